/* call.c - what a request asks of the limiter, and what becomes of the answer.
 *
 * A call is allocated outside its request's pool, because the request may end while weir has the call's ops. Then
 * `request` becomes NULL, and the answer ends the call.
 *
 * One limit is asked by weir_submit(). Several are one step, a blocking call, which nginx's thread pool "default" makes
 * over Redis. In machine mode nothing blocks.
 *
 * A permit of a limit on requests in flight comes back after its hold, in case its holder has died. So a call renews its
 * permits for as long as its request runs.
 */
#include "nginx/module.h"

__extension__ typedef unsigned __int128 wide;

#define NETWORK_SIZE 48 /* enough for weir_key_address_text() */

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
                  is_charge ? "" : " from 1 to 8796093022208");
    return false;
}

/* Evaluate a part of a key. An address with bits stands for its network; any other text, such as "unix:", for itself. */
static ngx_int_t read_part(ngx_http_request_t *request, struct nginx_part *part, struct weir_key *out)
{
    ngx_str_t text;
    if (ngx_http_complex_value(request, &part->text, &text) != NGX_OK)
        return NGX_ERROR;
    *out = weir_key(text.data, text.len);
    if (part->ipv4_bits < 0 || text.len == 0)
        return NGX_OK;
    char *network = ngx_pnalloc(request->pool, NETWORK_SIZE);
    if (!network)
        return NGX_ERROR;
    const int len = weir_key_address_text(*out, part->ipv4_bits, part->ipv6_bits, network, NETWORK_SIZE);
    if (len > 0)
        *out = weir_key(network, (size_t)len);
    return NGX_OK;
}

/* Evaluate a use. As in limit_req, a request is not counted if each part of its key is empty. Nor is a charge of 0. */
static ngx_int_t read_values(ngx_http_request_t *request, struct nginx_use *use, bool is_charge, struct values *out)
{
    struct nginx_part *parts = use->parts.elts;
    bool has_key = false;
    *out = (struct values){ .n = use->parts.nelts };
    out->parts = ngx_palloc(request->pool, out->n * sizeof *out->parts);
    if (!out->parts)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    for (size_t i = 0; i < out->n; i++) {
        if (read_part(request, &parts[i], &out->parts[i]) != NGX_OK)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        has_key = has_key || out->parts[i].len > 0;
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
    struct nginx_call *call = ngx_calloc(ops_at + n * (sizeof *call->ops + sizeof *call->uses) + key_bytes,
                                         request->connection->log);
    if (!call)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    call->request = request;
    call->main = main;
    call->n = n;
    call->ops = (struct weir_op *)(void *)((char *)call + ops_at);
    call->uses = (const struct nginx_use **)(call->ops + n);
    char *key = (char *)(call->uses + n);
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
        call->uses[k] = listed[i];
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
        holds = holds || call->uses[i]->holds;
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
        op->verb = call->uses[0]->holds ? WEIR_OP_RESERVE : WEIR_OP_TRY;
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

int64_t call_delay_us(const struct nginx_call *call)
{
    int64_t spared_us = NEVER_DELAY;
    if (call->decision.delay_us == 0)
        return 0;
    for (size_t i = 0; i < call->n; i++) {
        const struct weir_request *request = &call->ops[i].request;
        const int64_t undelayed = call->uses[i]->undelayed;
        struct weir_policy policy;
        if (weir_limit_policy_for(request->limit, request->key, &policy) != WEIR_OK ||
            policy.algorithm != WEIR_LEAKY_BUCKET || undelayed == NEVER_DELAY)
            continue;
        const wide us = ((wide)undelayed * (wide)policy.period_us + (wide)policy.limit - 1) / (wide)policy.limit;
        spared_us = us < (wide)spared_us ? (int64_t)us : spared_us;
    }
    const int64_t left_us = call->decision.delay_us - spared_us;
    return left_us < 1000 ? 0 : left_us;
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

/* True if the op holds permits of a limit on requests in flight. */
static bool op_has_permits(const struct nginx_call *call, size_t i)
{
    return call->status == WEIR_OK && call->decision.allowed && call->uses[i]->holds &&
           call->ops[i].reservation.permits > 0;
}

static void call_release(struct nginx_call *call)
{
    call->under_way = 1; /* this function */
    for (size_t i = 0; i < call->n; i++) {
        struct weir_op *op = &call->ops[i];
        if (!op_has_permits(call, i))
            continue;
        op->verb = WEIR_OP_SETTLE;
        op->request.cost = 0;
        call_start_late_op(call, op);
    }
    call_op_done(call);
}

void call_end(struct nginx_call *call)
{
    if (call->renews.timer_set)
        ngx_del_timer(&call->renews);
    call->has_ended = true;
    if (call->renewing == 0) /* else the last of the answers releases the permits */
        call_release(call);
}

/* ---- Holding ---- */

/* Return a third of the shortest hold, in milliseconds; 0: the call holds nothing. */
static ngx_msec_t call_renewal_ms(const struct nginx_call *call)
{
    int64_t shortest_us = INT64_MAX;
    for (size_t i = 0; i < call->n; i++) {
        const struct weir_request *request = &call->ops[i].request;
        struct weir_policy policy;
        if (op_has_permits(call, i) && weir_limit_policy_for(request->limit, request->key, &policy) == WEIR_OK &&
            policy.period_us < shortest_us)
            shortest_us = policy.period_us;
    }
    return shortest_us == INT64_MAX ? 0 : shortest_us < 3000 ? 1 : (ngx_msec_t)(shortest_us / 3000);
}

/* After an error, such as one of an outage, the permits keep their hold, and the next renewal tries again. */
static void op_renewed(struct weir_op *op, int status)
{
    struct nginx_call *call = op->user;
    call->main->waiting--;
    call->renewing--;
    if (status == WEIR_OK && !op->decision.allowed && !call->has_lapsed) {
        call->has_lapsed = true;
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "weir: limit \"%s\" has given the place of a running request to another one, because it could"
                      " not be renewed within the hold",
                      weir_limit_name(op->request.limit));
    }
    if (call->has_ended && call->renewing == 0)
        call_release(call);
}

static void call_renew(ngx_event_t *event)
{
    struct nginx_call *call = event->data;
    if (call->renewing == 0) {
        call->renewing = 1; /* this function */
        for (size_t i = 0; i < call->n; i++) {
            struct weir_op *op = &call->ops[i];
            if (!op_has_permits(call, i))
                continue;
            op->verb = WEIR_OP_RENEW;
            op->request.cost = op->reservation.permits;
            op->done = op_renewed;
            call->renewing++;
            call->main->waiting++;
            const int status = weir_submit(call->main->limiter, op);
            if (status != 1)
                op_renewed(op, status);
        }
        call->renewing--;
    }
    call_hold(call);
}

void call_hold(struct nginx_call *call)
{
    const ngx_msec_t after_ms = call_renewal_ms(call);
    call->renews.handler = call_renew;
    call->renews.data = call;
    call->renews.log = ngx_cycle->log;
    if (after_ms > 0)
        ngx_add_timer(&call->renews, after_ms);
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
