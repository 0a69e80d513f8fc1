/* check.c - finds what is wrong with the configuration as a whole, so that `nginx -t` and a reload refuse it. */
#include "nginx/module.h"

#include <stdarg.h>

__attribute__((format(printf, 4, 5))) static void blame(struct nginx_fault *fault, const char *directive,
                                                        const struct nginx_place *place, const char *format, ...)
{
    va_list arguments;
    fault->directive = directive;
    fault->place = *place;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
}

static void blame_use(struct nginx_fault *fault, const struct nginx_use *use, const char *text)
{
    blame(fault, use->is_charge ? "weir_charge" : "weir", &use->place, "limit \"%s\" %s", use->name, text);
}

weir *nginx_open(struct nginx_main *main, const struct weir_options *options, struct nginx_fault *fault)
{
    weir *limiter;
    const struct nginx_limit *limits = main->limits.elts;
    struct nginx_use **uses = main->uses.elts;
    if (weir_open(options, &limiter) != WEIR_OK) {
        nginx_blame_option(main, fault);
        return NULL;
    }
    for (ngx_uint_t i = 0; i < main->limits.nelts; i++) {
        if (weir_limit_define(limiter, limits[i].name, &limits[i].policy, NULL) != WEIR_OK) {
            blame(fault, "weir_limit", &limits[i].place, "%s", weir_last_message());
            weir_close(limiter);
            return NULL;
        }
    }
    for (ngx_uint_t i = 0; i < main->uses.nelts; i++) {
        struct weir_policy policy;
        uses[i]->limit = weir_limit_find(limiter, uses[i]->name);
        if (!uses[i]->limit) {
            blame_use(fault, uses[i], "does not exist: define it by weir_limit or in the option policy_file");
            weir_close(limiter);
            return NULL;
        }
        uses[i]->holds = weir_limit_policy(uses[i]->limit, &policy) == WEIR_OK && policy.algorithm == WEIR_CONCURRENCY;
    }
    return limiter;
}

/* ---- Uses ---- */

/* True if the name is that of an override of the limit. */
static bool is_override_of(const char *name, const char *limit)
{
    const size_t len = strlen(limit);
    return strncmp(name, limit, len) == 0 && name[len] == '/';
}

static int visit_line(void *limit, const struct weir_policy_line *line)
{
    return line->name && line->pattern && strcmp(line->name, limit) == 0;
}

/* True if some keys of the limit have separate policies, which may admit other costs. */
static bool has_overrides(const struct nginx_main *main, const char *limit)
{
    const struct nginx_limit *limits = main->limits.elts;
    for (ngx_uint_t i = 0; i < main->limits.nelts; i++)
        if (is_override_of(limits[i].name, limit))
            return true;
    return main->options.policy_file &&
           weir_policy_file_read(main->options.policy_file, visit_line, (void *)(uintptr_t)limit, NULL, 0) == 1;
}

/* Refuse a use that cannot work by the policy that its limit has now. */
static bool check_use(const struct nginx_main *main, const struct nginx_use *use, struct nginx_fault *fault)
{
    struct weir_policy policy;
    struct weir_limit_info info = { .size = sizeof info };
    if (weir_limit_policy(use->limit, &policy) != WEIR_OK || weir_limit_info(use->limit, &info) != WEIR_OK)
        return true;
    if (use->is_charge && use->holds)
        blame_use(fault, use, "counts requests in flight, which end with their requests: there is nothing to charge");
    else if (use->undelayed != 0 && policy.algorithm != WEIR_LEAKY_BUCKET)
        blame_use(fault, use, "delays no request, because it is not a leaky_bucket: leave nodelay and delay=... out");
    else if (!use->is_charge && use->fixed_cost > info.limit && !has_overrides(main, use->name))
        blame(fault, "weir", &use->place,
              "limit \"%s\" admits a cost of %lld at most, so it denies each request of %lld", use->name,
              (long long)info.limit, (long long)use->fixed_cost);
    else
        return true;
    return false;
}

/* ---- All of it ---- */

ngx_int_t nginx_check(ngx_conf_t *cf, struct nginx_main *main)
{
    struct nginx_fault fault = { .directive = NULL };
    struct nginx_use **uses = main->uses.elts;
    struct weir_options options = main->options;
    options.quiet = true;
    if (options.mode == WEIR_MACHINE) { /* decides alike, and needs neither the file nor memory for all keys */
        options.mode = WEIR_LOCAL;
        options.max_bytes = 0;
    }
    if (main->redis.line > 0 && nginx_is_immediate(main)) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"weir_redis\" directive is not used without \"weir_mode distributed\" or \"hybrid\" in %V:%ui",
                      &main->redis.file, main->redis.line);
    }
    weir *limiter = nginx_open(main, &options, &fault);
    bool is_good = limiter != NULL;
    for (ngx_uint_t i = 0; is_good && i < main->uses.nelts; i++)
        is_good = check_use(main, uses[i], &fault);
    weir_close(limiter);
    if (is_good)
        return NGX_OK;
    if (fault.directive) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"%s\" directive: %s in %V:%ui", fault.directive, fault.text,
                      &fault.place.file, fault.place.line);
    } else {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "weir: %s", fault.text);
    }
    return NGX_ERROR;
}
