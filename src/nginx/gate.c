/* gate.c - lets requests through, lets them wait, or denies them; and charges what they have used. */
#include "nginx/module.h"

/* ---- Waiting ---- */

/* Let the request wait until request_resume(). If the client goes away, nginx ends the request. */
static ngx_int_t request_suspend(ngx_http_request_t *request, ngx_http_event_handler_pt on_write)
{
    ngx_event_t *read = request->connection->read;
    request->read_event_handler = ngx_http_test_reading;
    request->write_event_handler = on_write;
    if (read->ready) {
        ngx_post_event(read, &ngx_posted_events);
    } else if (ngx_handle_read_event(read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    return NGX_AGAIN;
}

static void request_resume(ngx_http_request_t *request)
{
    request->read_event_handler = ngx_http_block_reading;
    request->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(request);
}

/* A waiting request is answered: run the phases again, from the gate on. */
static void call_answered(struct nginx_call *call)
{
    ngx_http_request_t *request = call->request;
    ngx_connection_t *connection = request->connection;
    ngx_http_set_log_request(connection->log, request);
    request_resume(request);
    ngx_http_run_posted_requests(connection);
}

/* The delay of a leaky bucket may have passed. */
static void delay_passed(ngx_http_request_t *request)
{
    ngx_event_t *write = request->connection->write;
    if (write->delayed) {
        if (ngx_handle_write_event(write, 0) != NGX_OK)
            ngx_http_finalize_request(request, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    if (ngx_handle_read_event(request->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(request, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    request_resume(request);
}

static ngx_int_t request_delay(ngx_http_request_t *request, int64_t delay_us)
{
    ngx_event_t *write = request->connection->write;
    write->delayed = 1;
    ngx_add_timer(write, (ngx_msec_t)((delay_us + 999) / 1000));
    return request_suspend(request, delay_passed);
}

/* ---- The gate ---- */

/* Give the answer its effect. */
static ngx_int_t call_apply(ngx_http_request_t *request, struct nginx_call *call)
{
    const struct nginx_location *location = ngx_http_get_module_loc_conf(request, ngx_http_weir_module);
    const bool dry_run = location->dry_run;
    call->state = CALL_APPLIED;
    if (call->status != WEIR_OK) {
        call->outcome = dry_run ? OUTCOME_ERROR_DRY_RUN : OUTCOME_ERROR;
        answer_log(request, call);
        return dry_run                                                      ? NGX_DECLINED
               : call->status == WEIR_EINVAL || call->status == WEIR_ESTATE ? NGX_HTTP_INTERNAL_SERVER_ERROR
                                                                            : NGX_HTTP_SERVICE_UNAVAILABLE;
    }
    const int64_t delay_us = call_delay_us(call);
    call_hold(call);
    call->outcome = !call->decision.allowed     ? (dry_run ? OUTCOME_REJECTED_DRY_RUN : OUTCOME_REJECTED)
                    : delay_us > 0              ? (dry_run ? OUTCOME_DELAYED_DRY_RUN : OUTCOME_DELAYED)
                    : call->decision.would_deny ? OUTCOME_WOULD_REJECT
                                                : OUTCOME_PASSED;
    if (call->outcome != OUTCOME_PASSED)
        answer_log(request, call);
    if (dry_run)
        return NGX_DECLINED;
    if (location->headers && answer_add_fields(request, call) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (!call->decision.allowed)
        return (ngx_int_t)location->status;
    return delay_us > 0 ? request_delay(request, delay_us) : NGX_DECLINED;
}

/* Decide a request in one of the two phases. */
static ngx_int_t gate_decide(ngx_http_request_t *request, bool is_late)
{
    const struct nginx_location *location = ngx_http_get_module_loc_conf(request, ngx_http_weir_module);
    if (request != request->main) /* a subrequest belongs to its main request, which has been decided */
        return NGX_DECLINED;
    struct nginx_call *call = call_find(request);
    if (call)
        return call->state == CALL_APPLIED    ? NGX_DECLINED
               : call->state == CALL_ANSWERED ? call_apply(request, call)
                                              : NGX_AGAIN;
    if (!location->uses || (bool)location->after_auth != is_late)
        return NGX_DECLINED;
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(request->pool, 0);
    if (!cleanup)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    struct nginx_main *main = ngx_http_get_module_main_conf(request, ngx_http_weir_module);
    ngx_int_t made = call_make(request, main, location->uses, false, &call);
    if (made != NGX_OK)
        return made;
    call->answered = call_answered;
    call_attach(call, request, cleanup);
    return call_decide(call) ? call_apply(request, call) : request_suspend(request, ngx_http_request_empty_handler);
}

ngx_int_t nginx_gate(ngx_http_request_t *request)
{
    return gate_decide(request, false);
}

ngx_int_t nginx_late_gate(ngx_http_request_t *request)
{
    return gate_decide(request, true);
}

ngx_int_t nginx_charge_phase(ngx_http_request_t *request)
{
    const struct nginx_location *location = ngx_http_get_module_loc_conf(request, ngx_http_weir_module);
    if (!location->charges || request != request->main)
        return NGX_OK;
    const struct nginx_call *decided = call_find(request);
    if (decided && (decided->outcome == OUTCOME_REJECTED || decided->outcome == OUTCOME_ERROR))
        return NGX_OK; /* it has used nothing */
    struct nginx_main *main = ngx_http_get_module_main_conf(request, ngx_http_weir_module);
    struct nginx_call *call;
    if (call_make(request, main, location->charges, true, &call) == NGX_OK)
        call_charge(call);
    return NGX_OK;
}
