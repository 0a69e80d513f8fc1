/* options.c - the block weir_options: the fields of struct weir_options by their names, without "_us". */
#include "nginx/module.h"

enum option_kind {
    OPTION_TEXT,
    OPTION_FILE,
    OPTION_TIME,
    OPTION_COUNT,
    OPTION_BYTES,
    OPTION_FLAG,
    OPTION_SEED,
    OPTION_CHOICE
};

/* The names of an enum's values, in order. */
struct option {
    const char *name;
    enum option_kind kind;
    size_t offset;
    const char *const *choices; /* OPTION_CHOICE: the names of the enum's values, in their order, then NULL */
};

static const char *const failure_choices[] = { "local", "open", "closed", "error", NULL };
static const char *const full_choices[] = { "deny", "allow", "share", NULL };

#define OPTION(name, kind)                                     \
    {                                                          \
#name, kind, offsetof(struct weir_options, name), NULL \
    }
#define OPTION_US(name)                                                    \
    {                                                                      \
#name, OPTION_TIME, offsetof(struct weir_options, name##_us), NULL \
    }

static const struct option option_table[] = {
    OPTION(policy_file, OPTION_FILE),
    OPTION(follow_policy_file, OPTION_FLAG),
    { "on_full", OPTION_CHOICE, offsetof(struct weir_options, on_full), full_choices },
    OPTION(max_keys, OPTION_COUNT),
    OPTION(max_bytes, OPTION_BYTES),
    { "on_failure", OPTION_CHOICE, offsetof(struct weir_options, on_failure), failure_choices },
    OPTION_US(open_for),
    OPTION(outage_cold, OPTION_FLAG),
    OPTION(outage_adds, OPTION_FLAG),
    OPTION_US(outage_retry),
    OPTION_US(timeout),
    OPTION(redis_password_file, OPTION_FILE),
    OPTION(redis_sentinel_user, OPTION_TEXT),
    OPTION(redis_sentinel_password_file, OPTION_FILE),
    OPTION(redis_prefix, OPTION_TEXT),
    OPTION(redis_ca_file, OPTION_FILE),
    OPTION(redis_cert_file, OPTION_FILE),
    OPTION(redis_key_file, OPTION_FILE),
    OPTION(redis_insecure, OPTION_FLAG),
    OPTION(redis_replicas, OPTION_COUNT),
    OPTION_US(redis_gather),
    OPTION(lease_excess, OPTION_COUNT),
    OPTION_US(lease_life),
    OPTION(lease_max, OPTION_COUNT),
    OPTION(strict, OPTION_FLAG),
    OPTION_US(denial_life),
    OPTION(instances, OPTION_COUNT),
    OPTION(rank, OPTION_COUNT),
    OPTION(percent_seed, OPTION_SEED),
    OPTION(shared, OPTION_TEXT),
};

/* Store an integer; a negative one is how nginx's parsers say "malformed". */
static const char *set_integer(int64_t *field, int64_t value, const char *expected)
{
    if (value < 0)
        return expected;
    *field = value;
    return NULL;
}

static const char *set_flag(bool *field, const char *value)
{
    *field = strcmp(value, "on") == 0;
    return *field || strcmp(value, "off") == 0 ? NULL : "\"on\" or \"off\"";
}

static const char *set_choice(int *field, const char *const *choices, const char *value)
{
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], value) == 0) {
            *field = i;
            return NULL;
        }
    }
    return choices == failure_choices ? "local, open, closed or error" : "deny, allow or share";
}

static const char *set_seed(uint64_t *field, const char *value)
{
    char *end;
    errno = 0;
    *field = strtoull(value, &end, 10);
    return *value >= '0' && *value <= '9' && *end == '\0' && errno == 0 ? NULL : "a whole number below 2^64";
}

/* Store a value: NULL, or the values that are allowed. weir_open() checks ranges. */
static const char *set_option(ngx_conf_t *cf, const struct option *option, struct weir_options *options,
                              ngx_str_t *value)
{
    void *field = (char *)options + option->offset;
    int64_t number;
    switch (option->kind) {
    case OPTION_TEXT:
        *(const char **)field = (const char *)value->data;
        return value->len > 0 ? NULL : "a text that is not empty";
    case OPTION_FILE:
        if (ngx_conf_full_name(cf->cycle, value, 1) != NGX_OK)
            return "a path";
        *(const char **)field = (const char *)value->data;
        return NULL;
    case OPTION_TIME:
        number = ngx_parse_time(value, 0); /* in milliseconds */
        return set_integer(field, number < 0 ? number : number * 1000, "a time such as 50ms, 2s or 1h");
    case OPTION_COUNT: return set_integer(field, ngx_atoi(value->data, value->len), "a whole number");
    case OPTION_BYTES: return set_integer(field, ngx_parse_offset(value), "a size such as 64m or 1g");
    case OPTION_FLAG: return set_flag(field, (const char *)value->data);
    case OPTION_SEED: return set_seed(field, (const char *)value->data);
    case OPTION_CHOICE: return set_choice(field, option->choices, (const char *)value->data);
    }
    return NULL;
}

/* Read a line of the block. `command` and `conf` are those of the directive that the block belongs to. */
static char *read_line(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    (void)conf;
    struct nginx_main *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_str_t *words = cf->args->elts;
    for (size_t i = 0; i < sizeof option_table / sizeof *option_table; i++) {
        const struct option *option = &option_table[i];
        if (strcmp(option->name, (const char *)words[0].data) != 0)
            continue;
        if (cf->args->nelts != 2) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"weir_options\" directive: option \"%V\" takes one value",
                               &words[0]);
            return NGX_CONF_ERROR;
        }
        if (main->places[i].line > 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"weir_options\" directive: option \"%V\" is given twice",
                               &words[0]);
            return NGX_CONF_ERROR;
        }
        main->places[i] = nginx_place_of(cf);
        const char *expected = set_option(cf, option, &main->options, &words[1]);
        if (!expected)
            return NGX_CONF_OK;
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"weir_options\" directive: option \"%V\" must be %s, not \"%V\"",
                           &words[0], expected, &words[1]);
        return NGX_CONF_ERROR;
    }
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"weir_options\" directive: there is no option \"%V\"", &words[0]);
    return NGX_CONF_ERROR;
}

char *nginx_read_options(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct nginx_main *main = conf;
    _Static_assert(sizeof option_table / sizeof *option_table <= MAX_OPTIONS, "each option has a place");
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

/* Return where `text` has the option's name, or the path that is its value; NULL: nowhere. */
static const char *option_in(const char *text, const struct option *option, const struct weir_options *options)
{
    const char *found = strstr(text, option->name);
    if (!found && option->kind == OPTION_FILE)
        found = strstr(text, *(const char *const *)((const char *)options + option->offset));
    return found;
}

void nginx_blame_option(const struct nginx_main *main, struct nginx_fault *fault)
{
    const char *first = NULL;
    snprintf(fault->text, sizeof fault->text, "%s", weir_last_message());
    fault->directive = "weir_options";
    for (size_t i = 0; i < sizeof option_table / sizeof *option_table; i++) {
        const char *found = main->places[i].line > 0 ? option_in(fault->text, &option_table[i], &main->options) : NULL;
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
