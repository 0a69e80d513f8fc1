/* options.c - the block weir_options: options by their names in text, see weir_options_set(). */
#include "nginx/module.h"

/* Options that have a directive of their own here, or that no nginx can use. */
static bool is_elsewhere(const char *name)
{
    static const char *const names[] = { "mode",         "redis",          "keep_idle",       "by_local_clock",
                                         "weight",       "total_weight",   "quiet",           "control_socket",
                                         "top_keys",     "events_at_once", "events_in_clear", "top_keys_in_clear" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Read a line of the block. `command` and `conf` are those of the directive that the block belongs to. */
static char *read_line(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    (void)conf;
    struct nginx_main *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_str_t *words = cf->args->elts;
    const char *name = (const char *)words[0].data;
    char sentence[256];
    size_t i = 0;
    const struct weir_option *option = weir_option_at(0);
    while (option && strcmp(option->name, name) != 0)
        option = weir_option_at(++i);
    if (!option || is_elsewhere(name) || i >= MAX_OPTIONS)
        snprintf(sentence, sizeof sentence, "there is no option \"%.64s\"", name);
    else if (cf->args->nelts != 2)
        snprintf(sentence, sizeof sentence, "%s takes one value", name);
    else if (main->places[i].line > 0)
        snprintf(sentence, sizeof sentence, "%s is given twice", name);
    else if (option->is_path && ngx_conf_full_name(cf->cycle, &words[1], 1) != NGX_OK)
        return NGX_CONF_ERROR;
    else if (weir_options_set(&main->options, name, (const char *)words[1].data, sentence, sizeof sentence) == WEIR_OK) {
        main->places[i] = nginx_place_of(cf);
        main->values[i] = words[1];
        return NGX_CONF_OK;
    }
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"weir_options\" directive: %s", sentence);
    return NGX_CONF_ERROR;
}

char *nginx_read_options(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct nginx_main *main = conf;
    if (main->block.line > 0)
        return "is duplicate";
    main->block = nginx_place_of(cf);
    ngx_conf_t block = *cf;
    block.handler = read_line;
    return ngx_conf_parse(&block, NULL);
}

/* "local" is another name of "machine": both count in memory, together with the other workers. */
char *nginx_read_mode(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    static const struct {
        const char *name;
        enum weir_mode mode;
    } modes[] = { { "machine", WEIR_MACHINE },
                  { "local", WEIR_MACHINE },
                  { "distributed", WEIR_DISTRIBUTED },
                  { "hybrid", WEIR_HYBRID } };
    struct nginx_main *main = conf;
    ngx_str_t *words = cf->args->elts;
    if (main->mode.line > 0)
        return "is duplicate";
    main->mode = nginx_place_of(cf);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(modes[i].name, (const char *)words[1].data) == 0) {
            main->options.mode = modes[i].mode;
            return NGX_CONF_OK;
        }
    }
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"weir_mode\" directive: the mode must be machine, distributed or hybrid, not \"%V\"",
                       &words[1]);
    return NGX_CONF_ERROR;
}

/* ---- Blame ---- */

void nginx_blame_option(const struct nginx_main *main, struct nginx_fault *fault)
{
    const char *first = NULL;
    snprintf(fault->text, sizeof fault->text, "%s", weir_last_message());
    fault->directive = "weir_options";
    for (size_t i = 0; i < MAX_OPTIONS && weir_option_at(i); i++) {
        if (main->places[i].line == 0)
            continue;
        const char *found = strstr(fault->text, weir_option_at(i)->name);
        if (!found && weir_option_at(i)->is_path)
            found = strstr(fault->text, (const char *)main->values[i].data);
        if (found && (!first || found < first)) { /* a sentence begins with the option that it is about */
            first = found;
            fault->place = main->places[i];
        }
    }
    if (first)
        return;
    const bool is_url = main->redis.line > 0 && strstr(fault->text, "redis_url");
    fault->directive = is_url ? "weir_redis" : main->mode.line > 0 ? "weir_mode" : "weir_options";
    fault->place = is_url ? main->redis : main->mode.line > 0 ? main->mode : main->block;
    if (fault->place.line == 0)
        fault->directive = NULL;
}
