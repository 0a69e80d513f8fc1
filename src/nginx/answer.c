/* answer.c - how a decision reaches people: header fields, variables, log lines. */
#include "nginx/module.h"

/* ---- Header fields ---- */

/* Return the request that binds. */
static const struct weir_request *call_binding(const struct nginx_call *call)
{
    return &call->ops[call->decision.bound_by].request;
}

static ngx_int_t add_field(ngx_http_request_t *request, const struct weir_http_field *field)
{
    ngx_table_elt_t *header = ngx_list_push(&request->headers_out.headers);
    u_char *value = ngx_pnalloc(request->pool, field->value_len);
    if (!header)
        return NGX_ERROR;
    header->hash = 0; /* nginx skips it, in case the next allocation fails */
    if (!value)
        return NGX_ERROR;
    ngx_memcpy(value, field->value, field->value_len);
    header->hash = 1;
#if (nginx_version >= 1023000)
    header->next = NULL;
#endif
    ngx_str_set(&header->key, "");
    header->key.data = (u_char *)(uintptr_t)field->name;
    header->key.len = field->name_len;
    header->value.data = value;
    header->value.len = field->value_len;
    return NGX_OK;
}

ngx_int_t answer_add_fields(ngx_http_request_t *request, const struct nginx_call *call)
{
    const struct nginx_location *location = ngx_http_get_module_loc_conf(request, ngx_http_weir_module);
    struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS];
    int n = weir_http_fields(call_binding(call), &call->decision, (unsigned)location->headers, fields,
                             WEIR_HTTP_MAX_FIELDS);
    for (int i = 0; i < n; i++)
        if (add_field(request, &fields[i]) != NGX_OK)
            return NGX_ERROR;
    return n < 0 ? NGX_ERROR : NGX_OK;
}

/* ---- Variables ---- */

static const ngx_str_t outcome_names[] = {
    [OUTCOME_NONE] = ngx_null_string,
    [OUTCOME_PASSED] = ngx_string("PASSED"),
    [OUTCOME_WOULD_REJECT] = ngx_string("WOULD_REJECT"),
    [OUTCOME_DELAYED] = ngx_string("DELAYED"),
    [OUTCOME_DELAYED_DRY_RUN] = ngx_string("DELAYED_DRY_RUN"),
    [OUTCOME_REJECTED] = ngx_string("REJECTED"),
    [OUTCOME_REJECTED_DRY_RUN] = ngx_string("REJECTED_DRY_RUN"),
    [OUTCOME_ERROR] = ngx_string("ERROR"),
    [OUTCOME_ERROR_DRY_RUN] = ngx_string("ERROR_DRY_RUN"),
};

enum variable { VARIABLE_STATUS, VARIABLE_LIMIT, VARIABLE_REMAINING };

static void set_variable(ngx_http_variable_value_t *out, const void *text, size_t len)
{
    out->valid = 1;
    out->no_cacheable = 0;
    out->not_found = 0;
    out->len = (unsigned)len & 0xfffffff;
    out->data = (u_char *)(uintptr_t)text;
}

static ngx_int_t get_variable(ngx_http_request_t *request, ngx_http_variable_value_t *out, uintptr_t variable)
{
    const struct nginx_call *call = call_find(request->main);
    if (!call || call->outcome == OUTCOME_NONE || (variable != VARIABLE_STATUS && call->status != WEIR_OK)) {
        out->not_found = 1;
        return NGX_OK;
    }
    if (variable == VARIABLE_STATUS) {
        set_variable(out, outcome_names[call->outcome].data, outcome_names[call->outcome].len);
    } else if (variable == VARIABLE_LIMIT) {
        const char *name = weir_limit_name(call_binding(call)->limit);
        set_variable(out, name, strlen(name));
    } else {
        u_char *text = ngx_pnalloc(request->pool, NGX_INT64_LEN);
        if (!text)
            return NGX_ERROR;
        set_variable(out, text, (size_t)(ngx_sprintf(text, "%L", call->decision.remaining) - text));
    }
    return NGX_OK;
}

ngx_int_t nginx_add_variables(ngx_conf_t *cf)
{
    static const struct {
        ngx_str_t name;
        enum variable variable;
    } variables[] = {
        { ngx_string("weir_status"), VARIABLE_STATUS },
        { ngx_string("weir_limit"), VARIABLE_LIMIT },
        { ngx_string("weir_remaining"), VARIABLE_REMAINING },
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        ngx_str_t name = variables[i].name;
        ngx_http_variable_t *added = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
        if (!added)
            return NGX_ERROR;
        added->get_handler = get_variable;
        added->data = variables[i].variable;
    }
    return NGX_OK;
}

/* ---- Log lines ---- */

void answer_log(ngx_http_request_t *request, const struct nginx_call *call)
{
    const struct nginx_location *location = ngx_http_get_module_loc_conf(request, ngx_http_weir_module);
    ngx_log_t *log = request->connection->log;
    const char *dry_run = location->dry_run ? ", dry run" : "";
    if (call->status != WEIR_OK) {
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: no decision for limit \"%s\": %s%s",
                      call->n == 1 && call->main->limiter ? weir_limit_name(call->ops[0].request.limit) : "",
                      call->main->limiter ? weir_strerror(call->status) : "the worker could not open its limiter",
                      dry_run);
        return;
    }
    const struct weir_decision *decision = &call->decision;
    const char *name = weir_limit_name(call_binding(call)->limit);
    if (!decision->allowed) {
        ngx_log_error(location->log_level, log, 0, "weir: limit \"%s\" denies the request%s; retry after %L ms", name,
                      dry_run, decision->retry_after_us < 0 ? -1 : (decision->retry_after_us + 999) / 1000);
    } else if (decision->would_deny) {
        ngx_log_error(location->log_level, log, 0, "weir: shadow limit \"%s\" would deny the request",
                      weir_limit_name(call->ops[decision->would_deny_by].request.limit));
    } else { /* as limit_req: a level below that of denials */
        ngx_log_error(location->log_level + 1, log, 0, "weir: limit \"%s\" delays the request by %L ms%s", name,
                      (call_delay_us(call) + 999) / 1000, dry_run);
    }
}
