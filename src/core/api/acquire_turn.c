/* acquire_turn.c - asks for permits on behalf of one caller, and keeps its place in the line: see acquire_turn.h. */
#include "core/api/acquire_turn.h"

#include "core/api/acquire.h"
#include "core/api/verbs.h"
#include "core/ground/arith.h"
#include "core/ground/cancel.h"

void acquire_fill(struct acquire *acquire, const struct weir_request *request, int64_t max_wait_us)
{
    const int64_t now_us = clock_monotonic_us();
    acquire->at.limit = request->limit;
    acquire->at.key = request->key;
    acquire->at.hash = key_hash(request->limit, request->key);
    acquire->at.cost = request->cost;
    acquire->at.end_us = max_wait_us > INT64_MAX - now_us ? INT64_MAX : now_us + max_wait_us;
}

/* ---- Asking ---- */

int acquire_give_back(struct weir *limiter, struct acquire *acquire)
{
    acquire->request.verb = WEIR_REFUND;
    acquire->request.reservation = NULL;
    acquire->request.ahead = acquire->decision.source == WEIR_BY_FULL ? -acquire->reservation.at_us
                                                                      : acquire->reservation.at_us;
    return failure_follow(limiter, &acquire->request, &acquire->decision);
}

/* Deny a request that was admitted but would have to queue for longer than the caller will wait, and refund its
 * permits. If the refund fails they are lost, and the request is denied all the same. */
static void acquire_decline(struct weir *limiter, struct acquire *acquire, int64_t left_us)
{
    struct weir_decision *decision = &acquire->decision;
    const int64_t too_long_us = decision->delay_us - left_us;
    const uint8_t source = decision->source;
    const int error = acquire_give_back(limiter, acquire);
    decision->allowed = false;
    decision->source = source;
    decision->delay_us = 0;
    decision->retry_after_us = too_long_us;
    const bool failed = error == WEIR_ETIME || error == WEIR_EIO;
    acquire->status = failed && limiter->on_failure != WEIR_FAIL_ERROR ? WEIR_OK : error;
}

bool acquire_hopes(const struct line_waiter *at)
{
    struct weir_policy policy;
    return weir_limit_policy_for(at->limit, at->key, &policy) == WEIR_OK && policy.algorithm == WEIR_CONCURRENCY;
}

enum acquire_outcome acquire_ask(struct weir *limiter, struct acquire *acquire, int64_t *due_us)
{
    struct weir_decision *decision = &acquire->decision;
    const struct line_waiter *at = &acquire->at;
    struct weir_plan plan;
    acquire->request = backend_request(at->limit, at->key, at->cost, WEIR_OWN_CLOCK, WEIR_TAKE);
    acquire->reservation = (struct weir_reservation){ 0 };
    plan_cell_read(&acquire->request.limit->plan, &plan);
    /* No policy but a leaky bucket's delays, so that permits have to be given back. */
    if (acquire->reserves || plan.algorithm == WEIR_LEAKY_BUCKET)
        acquire->request.reservation = &acquire->reservation;
    const bool shares = limiter->has_others &&
                        atomic_load_explicit(&acquire->request.limit->in_flight, memory_order_relaxed);
    *due_us = shares ? rest_until_us(limiter, at) : 0;
    if (*due_us > 0 && *due_us < at->end_us)
        return ACQUIRE_AGAIN;
    acquire->status = decide_request(limiter, &acquire->request, decision);
    if (shares && !acquire->status && decision->allowed)
        rest_served(limiter, at);
    if (acquire->status || (decision->allowed && decision->delay_us == 0) || decision->retry_after_us == WEIR_NEVER)
        return ACQUIRE_OVER;
    if (shares)
        rest_note_waiting(limiter, at);
    const int64_t now_us = clock_monotonic_us();
    const int64_t left_us = max_of(0, at->end_us - now_us);
    if (!decision->allowed) {
        *due_us = now_us + min_of(decision->retry_after_us, left_us);
        const bool is_late = decision->retry_after_us > left_us;
        return is_late && (left_us == 0 || !acquire_hopes(at)) ? ACQUIRE_OVER : ACQUIRE_AGAIN;
    }
    if (decision->delay_us > left_us) {
        acquire_decline(limiter, acquire, left_us);
        return ACQUIRE_OVER;
    }
    *due_us = now_us + decision->delay_us;
    decision->delay_us = 0;
    return ACQUIRE_DELAY;
}

/* Deny a request whose time is over, because others wait before it, the first of them until `first_due_us`. A shadow
 * limit denies nothing. */
static void acquire_deny(struct weir *limiter, struct acquire *acquire, int64_t first_due_us)
{
    struct weir_decision *decision = &acquire->decision;
    const struct line_waiter *at = &acquire->at;
    acquire->request = backend_request(at->limit, at->key, at->cost, WEIR_OWN_CLOCK, WEIR_PEEK);
    acquire->status = decide_request(limiter, &acquire->request, decision);
    if (acquire->status || decision->would_deny)
        return;
    decision->allowed = false;
    decision->delay_us = 0;
    if (decision->retry_after_us != WEIR_NEVER)
        decision->retry_after_us = max_of(max_of(decision->retry_after_us, 1), first_due_us - clock_monotonic_us());
}

/* ---- In line; all of this needs errands->mutex ---- */

#define LOOK_IN_FLIGHT_US 100000

void acquire_denied(struct weir *limiter, struct acquire *acquire, int64_t due_us)
{
    int64_t look_us = INT64_MAX;
    if (limiter->has_others) /* a little earlier each time, so that several processes do not ask in step */
        look_us = acquire->hopes
                      ? LOOK_IN_FLIGHT_US - (int64_t)(limiter->errands->looks++ % 8) * (LOOK_IN_FLIGHT_US / 16)
                      : limiter->look_us;
    line_denied(&limiter->errands->lines, &acquire->at, due_us,
                min_of(due_us, look_us == INT64_MAX ? look_us : clock_monotonic_us() + look_us));
}

/* Let a waiter look what has changed. */
static void acquire_call(struct weir *limiter, struct line_waiter *waiter) REQUIRES(limiter->errands->mutex)
{
    struct acquire *acquire = (struct acquire *)(void *)waiter;
    if (!acquire->op)
        pthread_cond_signal(&acquire->turn);
    else if (acquire->errand.place > 0) /* otherwise it is being run, and looks by itself */
        errands_put(limiter, &acquire->errand, clock_monotonic_us());
}

void acquire_freed_all(struct weir *limiter)
{
    if (!acquire_awaits(limiter))
        return;
    CANCEL_DISABLED;
    lock_take(&limiter->errands->mutex);
    for (size_t i = 0; i < LINE_BUCKETS; i++)
        for (struct line_waiter *first = limiter->errands->lines.buckets[i]; first; first = first->next_line)
            acquire_call(limiter, line_freed(&limiter->errands->lines, first));
    lock_give(&limiter->errands->mutex);
}

void acquire_freed_permits(struct weir_limit *limit, struct weir_key key, uint64_t hash)
{
    struct weir *limiter = limit->limiter;
    const struct line_waiter like = { .limit = limit->of, .key = key, .hash = hash };
    CANCEL_DISABLED;
    lock_take(&limiter->errands->mutex);
    struct line_waiter *first = line_freed(&limiter->errands->lines, &like);
    if (first)
        acquire_call(limiter, first);
    lock_give(&limiter->errands->mutex);
}

void acquire_wake(struct line_waiter *waiter)
{
    struct acquire *acquire = (struct acquire *)(void *)waiter;
    if (!acquire->op)
        pthread_cond_signal(&acquire->turn);
}

void acquire_leave(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex)
{
    struct line_waiter *heir = line_leave(&limiter->errands->lines, &acquire->at);
    if (heir)
        acquire_call(limiter, heir);
}

bool acquire_is_due(const struct acquire *acquire, int64_t now_us)
{
    return acquire->may_ask || (acquire->at.is_first && acquire->at.look_us <= now_us);
}

int64_t acquire_due_us(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex)
{
    if (acquire->at.is_first)
        return acquire->at.look_us;
    const struct line_waiter *first = line_first(&limiter->errands->lines, &acquire->at);
    return first->due_us > acquire->at.end_us && !acquire->hopes
               ? 0
               : acquire->at.end_us; /* 0: the wait would be too long */
}

bool acquire_stays(struct weir *limiter, struct acquire *acquire)
{
    struct line_waiter *first = line_first(&limiter->errands->lines, &acquire->at);
    const bool is_held = first->is_held;
    const int64_t first_due_us = first->due_us, first_cost = first->cost;
    int64_t ignored_us;
    lock_give(&limiter->errands->mutex);
    if (is_held)
        acquire_deny(limiter, acquire, first_due_us);
    else
        acquire_ask(limiter, acquire, &ignored_us);
    lock_take(&limiter->errands->mutex);
    if (is_held && !acquire->status && acquire->decision.remaining >= first_cost && !acquire->at.is_first &&
        !acquire->has_stayed) {
        acquire->has_stayed = true;
        first = line_freed(&limiter->errands->lines, &acquire->at);
        acquire_call(limiter, first);
        if (acquire->at.end_us > clock_monotonic_us())
            return true;
        if (!acquire->decision.allowed)
            acquire->decision.retry_after_us = 1; /* until the first has asked again */
    }
    acquire_leave(limiter, acquire);
    return false;
}
