/* call.c - what a request asks of the limiter, and what becomes of the answer.
 *
 * A call is allocated outside its request's pool, because the request may end while weir has the call's ops. Then
 * `request` becomes NULL, and the answer ends the call.
 *
 * One limit is asked by weir_submit(). Several are one step, a blocking call, which nginx's thread pool "default" makes
 * over Redis. In local mode nothing blocks.
 */
#include "nginx/module.h"

/* Longer than any wait for Redis, which ends by itself: see keep_worker(). */
#define KEEP_US (10 * WEIR_SECOND)

/* ---- Making one ---- */

/* The values of the variables of one use. */
struct values {
    struct weir_key *parts;
    size_t n, len; /* the length of the key made of them; 0: the request has none */
    int64_t cost;
};

static bool read_request_cost(ngx_http_request_t *request, const struct nginx_use *use, bool is_charge, int64_t *out)
{
    ngx_str_t text;
    *out = 1;
    if (!use->cost)
        return true;
    if (ngx_http_complex_value(request, use->cost, &text) != NGX_OK)
        return false;
    *out = ngx_atoi(text.data, text.len);
    if (is_charge ? *out >= 0 : *out >= 1 && *out <= WEIR_MAX_PERMITS)
        return true;
    ngx_log_error(NGX_LOG_ERR, request->connection->log, 0,
                  "weir: the cost \"%V\" of limit \"%s\" is not a whole number%s", &text, use->name,
                  is_charge ? "" : " from 1 to 1000000000");
    return false;
}

/* Evaluate a use. As in limit_req, a request is not counted if each part of its key is empty. Nor is a charge of 0. */
static ngx_int_t read_values(ngx_http_request_t *request, struct nginx_use *use, bool is_charge, struct values *out)
{
    ngx_http_complex_value_t *templates = use->parts.elts;
    bool has_key = false;
    *out = (struct values){ .n = use->parts.nelts };
    out->parts = ngx_palloc(request->pool, out->n * sizeof *out->parts);
    if (!out->parts)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    for (size_t i = 0; i < out->n; i++) {
        ngx_str_t text;
        if (ngx_http_complex_value(request, &templates[i], &text) != NGX_OK)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        out->parts[i] = weir_key(text.data, text.len);
        has_key = has_key || text.len > 0;
    }
    if (!has_key)
        return NGX_OK;
    if (!read_request_cost(request, use, is_charge, &out->cost))
        return NGX_HTTP_BAD_REQUEST;
    const int len = out->cost > 0 ? weir_key_join(out->parts, out->n, NULL, 0) : 0;
    if (len < 0) {
        ngx_log_error(NGX_LOG_ERR, request->connection->log, 0,
                      "weir: the key of limit \"%s\" is longer than 65536 bytes", use->name);
        return NGX_HTTP_BAD_REQUEST;
    }
    out->len = (size_t)len;
    return NGX_OK;
}

ngx_int_t call_make(ngx_http_request_t *request, struct nginx_main *main, const ngx_array_t *uses, bool is_charge,
                    struct nginx_call **out)
{
    struct nginx_use **listed = uses->elts;
    struct values values[WEIR_MAX_ALL];
    size_t n = 0, key_bytes = 0;
    for (ngx_uint_t i = 0; i < uses->nelts; i++) {
        ngx_int_t status = read_values(request, listed[i], is_charge, &values[i]);
        if (status != NGX_OK)
            return status;
        n += values[i].len > 0;
        key_bytes += values[i].len;
    }
    if (n == 0)
        return NGX_DECLINED;
    const size_t ops_at = (sizeof(struct nginx_call) + 15) & ~(size_t)15;
    struct nginx_call *call = ngx_calloc(ops_at + n * (sizeof *call->ops + sizeof *call->holds) + key_bytes,
                                         request->connection->log);
    if (!call)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    call->request = request;
    call->main = main;
    call->n = n;
    call->ops = (struct weir_op *)(void *)((char *)call + ops_at);
    call->holds = (bool *)(call->ops + n);
    char *key = (char *)(call->holds + n);
    for (ngx_uint_t i = 0, k = 0; i < uses->nelts; i++) {
        if (values[i].len == 0)
            continue;
        weir_key_join(values[i].parts, values[i].n, key, values[i].len);
        call->ops[k].request = (struct weir_request){
            .limit = listed[i]->limit,
            .key = weir_key(key, values[i].len),
            .cost = values[i].cost,
        };
        call->ops[k].user = call;
        call->holds[k] = listed[i]->holds;
        call->no_delay = call->no_delay || listed[i]->no_delay;
        key += values[i].len;
        k++;
    }
    *out = call;
    return NGX_OK;
}

/* ---- Waiting ---- */

static void kept_too_long(ngx_event_t *event)
{
    ngx_log_error(NGX_LOG_ALERT, event->log, 0, "weir: a decision has been under way for ten seconds");
}

/* Count the call as waiting. A worker that shuts down ends when no timer is left, so each call has one. */
static void call_wait(struct nginx_call *call)
{
    call->main->waiting++;
    call->keeps.handler = kept_too_long;
    call->keeps.data = call;
    call->keeps.log = ngx_cycle->log;
    ngx_add_timer(&call->keeps, KEEP_US / 1000);
}

static void call_waited(struct nginx_call *call)
{
    call->main->waiting--;
    if (call->keeps.timer_set)
        ngx_del_timer(&call->keeps);
}

/* ---- Deciding ---- */

static void call_take_answer(struct nginx_call *call, int status)
{
    call_waited(call);
    call->status = status;
    call->state = CALL_ANSWERED;
    if (!call->request || call->main->is_closing)
        call_end(call);
    else
        call->answered(call);
}

static void op_done(struct weir_op *op, int status)
{
    struct nginx_call *call = op->user;
    call->decision = op->decision;
    call_take_answer(call, status);
}

/* Decide all requests in one step. */
static int decide_group(struct nginx_call *call)
{
    struct weir_request requests[WEIR_MAX_ALL];
    struct weir_reservation reservations[WEIR_MAX_ALL];
    bool holds = false;
    for (size_t i = 0; i < call->n; i++) {
        requests[i] = call->ops[i].request;
        holds = holds || call->holds[i];
    }
    if (!holds)
        return weir_try_all(call->main->limiter, requests, call->n, &call->decision);
    int status = weir_reserve_all(call->main->limiter, requests, call->n, &call->decision, reservations);
    for (size_t i = 0; !status && i < call->n; i++)
        call->ops[i].reservation = reservations[i];
    return status;
}

/* On a thread of the pool. nginx allocates no memory there, and neither does this. */
static void group_run(void *data, ngx_log_t *log)
{
    struct nginx_call *call = *(struct nginx_call **)data;
    (void)log;
    call->status = decide_group(call);
}

static void group_done(ngx_event_t *event)
{
    struct nginx_call *call = *(struct nginx_call **)event->data;
    call_take_answer(call, call->status);
}

/* Let a thread of the pool decide. False if its queue is full. */
static bool group_start(struct nginx_call *call)
{
    call->self = call;
    call->task.ctx = &call->self;
    call->task.handler = group_run;
    call->task.event.handler = group_done;
    call->task.event.data = &call->self;
    call->task.event.log = ngx_cycle->log;
    return ngx_thread_task_post(call->main->threads, &call->task) == NGX_OK;
}

bool call_decide(struct nginx_call *call)
{
    int status;
    if (!call->main->limiter) {
        status = WEIR_ECLOSED;
    } else if (call->n == 1) {
        struct weir_op *op = &call->ops[0];
        op->verb = call->holds[0] ? WEIR_OP_RESERVE : WEIR_OP_TRY;
        op->done = op_done;
        status = weir_submit(call->main->limiter, op);
        if (status == WEIR_OK)
            call->decision = op->decision;
    } else if (!call->main->threads) {
        status = decide_group(call);
    } else {
        status = group_start(call) ? 1 : WEIR_EFULL;
    }
    if (status == 1) {
        call_wait(call);
        return false;
    }
    call->status = status;
    call->state = CALL_ANSWERED;
    return true;
}

/* ---- Ending ---- */

/* Free the call when the last of its ops has been carried out. */
static void call_op_done(struct nginx_call *call)
{
    if (--call->under_way == 0)
        ngx_free(call);
}

static void late_op_done(struct weir_op *op, int status)
{
    struct nginx_call *call = op->user;
    if (status != WEIR_OK)
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0, "weir: a %s of limit \"%s\" is lost: %s",
                      op->verb == WEIR_OP_CHARGE ? "charge" : "release", weir_limit_name(op->request.limit),
                      weir_strerror(status));
    call->main->waiting--;
    call_op_done(call);
}

/* Start an op of which no request waits for the answer. */
static void call_start_late_op(struct nginx_call *call, struct weir_op *op)
{
    op->done = late_op_done;
    call->under_way++;
    call->main->waiting++;
    int status = call->main->limiter ? weir_submit(call->main->limiter, op) : WEIR_ECLOSED;
    if (status != 1)
        late_op_done(op, status);
}

void call_charge(struct nginx_call *call)
{
    call->under_way = 1; /* this function */
    for (size_t i = 0; i < call->n; i++) {
        call->ops[i].verb = WEIR_OP_CHARGE;
        call_start_late_op(call, &call->ops[i]);
    }
    call_op_done(call);
}

void call_end(struct nginx_call *call)
{
    const bool has_permits = call->status == WEIR_OK && call->decision.allowed;
    call->under_way = 1; /* this function */
    for (size_t i = 0; has_permits && i < call->n; i++) {
        struct weir_op *op = &call->ops[i];
        if (!call->holds[i] || op->reservation.permits <= 0)
            continue;
        op->verb = WEIR_OP_SETTLE;
        op->request.cost = 0;
        call_start_late_op(call, op);
    }
    call_op_done(call);
}

/* ---- A request and its call ---- */

/* The request's pool is going: the request has ended. */
static void request_ended(void *data)
{
    struct nginx_call *call = data;
    call->request = NULL;
    if (call->state != CALL_WAITS)
        call_end(call);
}

void call_attach(struct nginx_call *call, ngx_http_request_t *request, ngx_pool_cleanup_t *cleanup)
{
    cleanup->handler = request_ended;
    cleanup->data = call;
    ngx_http_set_ctx(request, call, ngx_http_weir_module);
}

struct nginx_call *call_find(ngx_http_request_t *request)
{
    struct nginx_call *call = ngx_http_get_module_ctx(request, ngx_http_weir_module);
    if (call || !(request->internal || request->filter_finalize))
        return call;
    /* An internal redirect has cleared the contexts. */
    for (ngx_pool_cleanup_t *cleanup = request->pool->cleanup; cleanup; cleanup = cleanup->next)
        if (cleanup->handler == request_ended)
            return cleanup->data;
    return NULL;
}
