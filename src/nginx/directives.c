/* directives.c - the module's directives, except the block weir_options. */
#include "nginx/module.h"

#define MESSAGE_SIZE 512

/* ---- http {} ---- */

void *nginx_make_main(ngx_conf_t *cf)
{
    struct nginx_main *main = ngx_pcalloc(cf->pool, sizeof *main);
    if (!main || ngx_array_init(&main->limits, cf->pool, 4, sizeof(struct nginx_limit)) != NGX_OK ||
        ngx_array_init(&main->uses, cf->pool, 4, sizeof(struct nginx_use *)) != NGX_OK)
        return NULL;
    main->options.size = sizeof main->options;
    main->options.mode = WEIR_MACHINE;
    main->memory = -1;
    return main;
}

static char *read_redis(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct nginx_main *main = conf;
    ngx_str_t *words = cf->args->elts;
    if (main->options.redis_url)
        return "is duplicate";
    main->options.redis_url = (const char *)words[1].data;
    main->redis = nginx_place_of(cf);
    return NGX_CONF_OK;
}

/* weir_limit NAME ALGORITHM WORD...: nginx has split the policy into words. */
static char *read_limit(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct nginx_main *main = conf;
    ngx_str_t *words = cf->args->elts;
    char text[MESSAGE_SIZE] = "", message[MESSAGE_SIZE];
    size_t len = 0;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (len + words[i].len + 2 > sizeof text)
            return "has a policy that is too long";
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i > 2 ? " " : "", (const char *)words[i].data);
    }
    const struct nginx_limit *limits = main->limits.elts;
    for (ngx_uint_t i = 0; i < main->limits.nelts; i++)
        if (strcmp(limits[i].name, (const char *)words[1].data) == 0)
            return "has the name of an earlier limit";
    struct nginx_limit *limit = ngx_array_push(&main->limits);
    if (!limit)
        return NGX_CONF_ERROR;
    limit->name = (char *)words[1].data;
    limit->place = nginx_place_of(cf);
    if (weir_policy_parse(text, &limit->policy, message, sizeof message) == WEIR_OK)
        return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "weir_limit %V: %s", &words[1], message);
    return NGX_CONF_ERROR;
}

/* ---- weir, weir_charge ---- */

/* Compile a template with variables. */
static ngx_int_t compile(ngx_conf_t *cf, ngx_str_t text, ngx_http_complex_value_t *out)
{
    ngx_http_compile_complex_value_t compiler = { .cf = cf, .value = &text, .complex_value = out };
    return ngx_http_compile_complex_value(&compiler);
}

static bool is_text(ngx_str_t text, const char *expected)
{
    return text.len == strlen(expected) && memcmp(text.data, expected, text.len) == 0;
}

/* Read the number behind the last '/' of *text, and cut both off. -1: there is none. */
static ngx_int_t cut_bits(ngx_str_t *text)
{
    const u_char *slash = memrchr(text->data, '/', text->len);
    const size_t at = slash ? (size_t)(slash - text->data) : 0;
    const ngx_int_t bits = slash ? ngx_atoi(text->data + at + 1, text->len - at - 1) : NGX_ERROR;
    if (bits >= 0)
        text->len = at;
    return bits;
}

/* TEXT, or ADDRESS/IPV4_BITS/IPV6_BITS. */
static char *read_part(ngx_conf_t *cf, struct nginx_part *part, ngx_str_t text)
{
    const ngx_str_t whole = text;
    const ngx_int_t last = cut_bits(&text);
    const ngx_int_t first = last < 0 ? last : cut_bits(&text);
    *part = (struct nginx_part){ .ipv4_bits = -1, .ipv6_bits = -1 };
    if (first < 0) {
        if (last >= 0 && is_text(text, "$remote_addr"))
            return "has an address with bits of one kind: give those of IPv4 and of IPv6, as in $remote_addr/24/64";
        text = whole;
    } else {
        if (first > 32 || last > 128)
            return "has an address with too many bits: IPv4 has up to 32, and IPv6 up to 128, as in $remote_addr/24/64";
        if (is_text(text, "$binary_remote_addr"))
            return "has an address that is not text: use $remote_addr";
        part->ipv4_bits = (int)first;
        part->ipv6_bits = (int)last;
    }
    if (text.len == 0)
        return "has a key with an empty part";
    return compile(cf, text, &part->text) == NGX_OK ? NULL : NGX_CONF_ERROR;
}

/* key=PART[,PART]... */
static char *read_key(ngx_conf_t *cf, struct nginx_use *use, ngx_str_t text)
{
    if (use->parts.nelts > 0)
        return "has two keys";
    for (;;) {
        const u_char *comma = memchr(text.data, ',', text.len);
        ngx_str_t word = { comma ? (size_t)(comma - text.data) : text.len, text.data };
        struct nginx_part *part = ngx_array_push(&use->parts);
        char *error = part ? read_part(cf, part, word) : NGX_CONF_ERROR;
        if (error || !comma)
            return error;
        text.data += word.len + 1;
        text.len -= word.len + 1;
    }
}

static char *read_cost(ngx_conf_t *cf, struct nginx_use *use, ngx_str_t text)
{
    if (use->cost)
        return "has two costs";
    use->cost = ngx_palloc(cf->pool, sizeof *use->cost);
    if (!use->cost || compile(cf, text, use->cost) != NGX_OK)
        return NGX_CONF_ERROR;
    if (!use->is_charge && (is_text(text, "$bytes_sent") || is_text(text, "$body_bytes_sent")))
        return "has a cost that is known after the response only: charge it by weir_charge";
    if (use->cost->lengths) /* it contains variables */
        return NULL;
    const ngx_int_t cost = ngx_atoi(text.data, text.len);
    use->fixed_cost = cost;
    if (use->is_charge)
        return cost < 1 ? "has a cost that is not a whole number from 1 on" : NULL;
    return cost < 1 || cost > WEIR_MAX_PERMITS ? "has a cost that is not a whole number from 1 to 8796093022208" : NULL;
}

/* delay=N, or nodelay. */
static char *read_delay(struct nginx_use *use, ngx_str_t word)
{
    if (use->undelayed != 0)
        return "has more than one delay=... or nodelay";
    use->undelayed = NEVER_DELAY;
    if (is_text(word, "nodelay"))
        return NULL;
    use->undelayed = ngx_atoi(word.data + 6, word.len - 6);
    return use->undelayed < 1 || use->undelayed > WEIR_MAX_PERMITS
               ? "has a delay that is not a whole number of permits from 1 on"
               : NULL;
}

/* Read the words after the directive's name. NULL and a sentence in the log if they are wrong. */
static char *read_use(ngx_conf_t *cf, bool is_charge, struct nginx_use **out)
{
    struct nginx_main *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_str_t *words = cf->args->elts;
    struct nginx_use *use = ngx_pcalloc(cf->pool, sizeof *use);
    struct nginx_use **listed = ngx_array_push(&main->uses);
    if (!use || !listed || ngx_array_init(&use->parts, cf->pool, 1, sizeof(struct nginx_part)) != NGX_OK)
        return NGX_CONF_ERROR;
    *listed = *out = use;
    use->name = (char *)words[1].data;
    use->is_charge = is_charge;
    use->place = nginx_place_of(cf);
    char *error = NULL;
    for (ngx_uint_t i = 2; i < cf->args->nelts && !error; i++) {
        ngx_str_t word = words[i];
        if (word.len > 4 && ngx_strncmp(word.data, "key=", 4) == 0)
            error = read_key(cf, use, (ngx_str_t){ word.len - 4, word.data + 4 });
        else if (word.len > 5 && ngx_strncmp(word.data, "cost=", 5) == 0)
            error = read_cost(cf, use, (ngx_str_t){ word.len - 5, word.data + 5 });
        else if (!is_charge && (is_text(word, "nodelay") || (word.len > 6 && ngx_strncmp(word.data, "delay=", 6) == 0)))
            error = read_delay(use, word);
        else {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" directive has the invalid parameter \"%V\": use key=... %s", &words[0], &word,
                               is_charge ? "and cost=..." : "[cost=...] [nodelay or delay=...]");
            error = NGX_CONF_ERROR;
        }
    }
    if (!error && use->parts.nelts == 0)
        error = "has no key=...";
    if (!error && is_charge && !use->cost)
        error = "has no cost=...";
    return error;
}

static char *add_use(ngx_conf_t *cf, ngx_array_t **uses, bool is_charge)
{
    struct nginx_use *use;
    char *error = read_use(cf, is_charge, &use);
    if (error)
        return error;
    if (!*uses)
        *uses = ngx_array_create(cf->pool, 2, sizeof use);
    struct nginx_use **added = *uses ? ngx_array_push(*uses) : NULL;
    if (!added)
        return NGX_CONF_ERROR;
    *added = use;
    return (*uses)->nelts > WEIR_MAX_ALL ? "is given more than 64 times" : NGX_CONF_OK;
}

/* weir NAME key=... [cost=...] [nodelay | delay=...], or weir off. */
static char *read_weir(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct nginx_location *location = conf;
    struct nginx_main *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_str_t *words = cf->args->elts;
    if (location->is_off)
        return "contradicts \"weir off\"";
    if (cf->args->nelts == 2 && strcmp((char *)words[1].data, "off") == 0) {
        location->is_off = true;
        return location->uses ? "contradicts an earlier \"weir\"" : NGX_CONF_OK;
    }
    main->decides = true;
    return add_use(cf, &location->uses, false);
}

static char *read_charge(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct nginx_location *location = conf;
    struct nginx_main *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    main->charges = true;
    return add_use(cf, &location->charges, true);
}

static char *read_after_auth(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct nginx_main *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    main->decides_late = true;
    return ngx_conf_set_flag_slot(cf, command, conf);
}

static char *read_metrics(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    (void)conf;
    struct nginx_main *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    main->shows_metrics = true;
    core->handler = metrics_page;
    return NGX_CONF_OK;
}

/* ---- Locations ---- */

void *nginx_make_location(ngx_conf_t *cf)
{
    struct nginx_location *location = ngx_pcalloc(cf->pool, sizeof *location);
    if (!location)
        return NULL;
    location->status = NGX_CONF_UNSET_UINT;
    location->headers = NGX_CONF_UNSET_UINT;
    location->log_level = NGX_CONF_UNSET_UINT;
    location->dry_run = NGX_CONF_UNSET;
    location->after_auth = NGX_CONF_UNSET;
    return location;
}

char *nginx_merge_location(ngx_conf_t *cf, void *parent, void *child)
{
    (void)cf;
    const struct nginx_location *outer = parent;
    struct nginx_location *inner = child;
    if (!inner->uses && !inner->is_off)
        inner->uses = outer->uses;
    if (!inner->charges)
        inner->charges = outer->charges;
    ngx_conf_merge_uint_value(inner->status, outer->status, NGX_HTTP_TOO_MANY_REQUESTS);
    ngx_conf_merge_uint_value(inner->headers, outer->headers, WEIR_HTTP_RETRY_AFTER);
    ngx_conf_merge_uint_value(inner->log_level, outer->log_level, NGX_LOG_ERR);
    ngx_conf_merge_value(inner->dry_run, outer->dry_run, 0);
    ngx_conf_merge_value(inner->after_auth, outer->after_auth, 0);
    return NGX_CONF_OK;
}

static ngx_conf_num_bounds_t status_bounds = { ngx_conf_check_num_bounds, 400, 599 };

static ngx_conf_enum_t header_choices[] = {
    { ngx_string("off"), 0 },
    { ngx_string("on"), WEIR_HTTP_RETRY_AFTER },
    { ngx_string("draft"), WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_RATELIMIT_POLICY | WEIR_HTTP_RATELIMIT },
    { ngx_string("legacy"), WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_X_RATELIMIT },
    { ngx_null_string, 0 },
};

static ngx_conf_enum_t log_levels[] = {
    { ngx_string("info"), NGX_LOG_INFO },
    { ngx_string("notice"), NGX_LOG_NOTICE },
    { ngx_string("warn"), NGX_LOG_WARN },
    { ngx_string("error"), NGX_LOG_ERR },
    { ngx_null_string, 0 },
};

#define ANYWHERE (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF)

ngx_command_t nginx_commands[] = {
    { ngx_string("weir_mode"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1, nginx_read_mode, NGX_HTTP_MAIN_CONF_OFFSET, 0,
      NULL },
    { ngx_string("weir_redis"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1, read_redis, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },
    { ngx_string("weir_options"), NGX_HTTP_MAIN_CONF | NGX_CONF_BLOCK | NGX_CONF_NOARGS, nginx_read_options,
      NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },
    { ngx_string("weir_limit"), NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE, read_limit, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },
    { ngx_string("weir"), ANYWHERE | NGX_CONF_1MORE, read_weir, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },
    { ngx_string("weir_charge"), ANYWHERE | NGX_CONF_2MORE, read_charge, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },
    { ngx_string("weir_status"), ANYWHERE | NGX_CONF_TAKE1, ngx_conf_set_num_slot, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(struct nginx_location, status), &status_bounds },
    { ngx_string("weir_headers"), ANYWHERE | NGX_CONF_TAKE1, ngx_conf_set_enum_slot, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(struct nginx_location, headers), header_choices },
    { ngx_string("weir_log_level"), ANYWHERE | NGX_CONF_TAKE1, ngx_conf_set_enum_slot, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(struct nginx_location, log_level), log_levels },
    { ngx_string("weir_dry_run"), ANYWHERE | NGX_CONF_FLAG, ngx_conf_set_flag_slot, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(struct nginx_location, dry_run), NULL },
    { ngx_string("weir_after_auth"), ANYWHERE | NGX_CONF_FLAG, read_after_auth, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(struct nginx_location, after_auth), NULL },
    { ngx_string("weir_metrics"), NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS, read_metrics, NGX_HTTP_LOC_CONF_OFFSET, 0,
      NULL },
    ngx_null_command,
};
