/* acquire.c - waits for permits: asks, waits for as long as the answer says, and asks again.
 *
 * Those who wait for the same key stand in one line (line.h), threads in weir_acquire() and submitted requests alike. A
 * thread sleeps and asks by itself; a submitted request is an errand (errands.h), which asks on a thread of the
 * limiter. Nothing is asked while the mutex is held.
 *
 * Every call is counted (inside.h): weir_close() wakes those that sleep and waits until the last one has left.
 */
#include "core/api/acquire.h"

#include "core/api/dispatch.h"
#include "core/api/verbs.h"
#include "core/ground/arith.h"
#include "core/ground/cancel.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

/* A thread in weir_acquire(), on its stack; or the errand of an op. (e) errands->mutex, (o) the owner's alone */
struct acquire {
    struct line_waiter at;               /* (e) */
    pthread_cond_t turn;                 /* a thread's: it is the first now, or the limiter is closing */
    struct errand errand;                /* (e) an op's */
    struct weir_op *op;                  /* (o) NULL: a thread's */
    bool is_cancelled;                   /* (e) by weir_cancel() */
    bool may_ask;                        /* (o) now, without being the first */
    bool hopes;                          /* (o) acquire_hopes(); set before it joins its line */
    bool is_served;                      /* (o) the permits are taken; only the delay is left to wait for */
    int status;                          /* (o) with it, the result */
    struct weir_decision decision;       /* (o) */
    struct weir_backend_request request; /* (o) the last one */
};

int acquire_sleep_until(struct weir *limiter, int64_t until_us)
{
    const struct timespec until = clock_timespec(until_us);
    int woken = 0;
    lock_take(&limiter->closing.mutex);
    while (!limiter->closing.has_begun && woken != ETIMEDOUT)
        woken = pthread_cond_timedwait(&limiter->closing.begins, &limiter->closing.mutex.mutex, &until);
    int result = limiter->closing.has_begun ? WEIR_ECLOSED : WEIR_OK;
    lock_give(&limiter->closing.mutex);
    return result;
}

/* ---- Asking ---- */

enum acquire_outcome {
    ACQUIRE_OVER,  /* status and decision are the result */
    ACQUIRE_AGAIN, /* denied: ask again at *due_us */
    ACQUIRE_DELAY  /* admitted, to go ahead at *due_us */
};

static void acquire_give_back(struct weir *limiter, struct acquire *acquire)
{
    struct weir_decision ignored;
    acquire->request.verb = WEIR_REFUND;
    failure_follow(limiter, &acquire->request, &ignored); /* if it fails, the permits stay used */
}

/* Deny a request that was admitted but would have to queue for longer than the caller will wait, and refund its
 * permits. If the refund fails they are lost, and the request is denied all the same. */
static void acquire_decline(struct weir *limiter, struct acquire *acquire, int64_t left_us)
{
    struct weir_decision *decision = &acquire->decision;
    const int64_t too_long_us = decision->delay_us - left_us;
    const uint8_t source = decision->source;
    acquire->request.verb = WEIR_REFUND;
    const int error = failure_follow(limiter, &acquire->request, decision);
    decision->allowed = false;
    decision->source = source;
    decision->delay_us = 0;
    decision->retry_after_us = too_long_us;
    const bool failed = error == WEIR_ETIME || error == WEIR_EIO;
    acquire->status = failed && limiter->on_failure != WEIR_FAIL_ERROR ? WEIR_OK : error;
}

/* True if permits of the key come back earlier than denials say: a release is not foreseen. */
static bool acquire_hopes(const struct line_waiter *at)
{
    struct weir_policy policy;
    return weir_limit_policy_for(at->limit, at->key, &policy) == WEIR_OK && policy.algorithm == WEIR_CONCURRENCY;
}

static enum acquire_outcome acquire_ask(struct weir *limiter, struct acquire *acquire, int64_t *due_us)
{
    struct weir_decision *decision = &acquire->decision;
    const struct line_waiter *at = &acquire->at;
    acquire->request = backend_request(at->limit, at->key, at->cost, WEIR_OWN_CLOCK, WEIR_TAKE);
    acquire->status = decide_request(limiter, &acquire->request, decision);
    if (acquire->status || (decision->allowed && decision->delay_us == 0) || decision->retry_after_us == WEIR_NEVER)
        return ACQUIRE_OVER;
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

/* Let a waiter look what has changed. */
static void acquire_call(struct weir *limiter, struct line_waiter *waiter) REQUIRES(limiter->errands->mutex)
{
    struct acquire *acquire = (struct acquire *)(void *)waiter;
    if (!acquire->op)
        pthread_cond_signal(&acquire->turn);
    else if (acquire->errand.place > 0) /* otherwise it is being run, and looks by itself */
        errands_put(limiter, &acquire->errand, clock_monotonic_us());
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

static void acquire_leave(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex)
{
    struct line_waiter *heir = line_leave(&limiter->errands->lines, &acquire->at);
    if (heir)
        acquire_call(limiter, heir);
}

/* True if it may ask now. */
static bool acquire_is_due(const struct acquire *acquire, int64_t now_us)
{
    return acquire->may_ask || (acquire->at.is_first && acquire->at.due_us <= now_us);
}

/* Return when a waiter that may not ask must look again: it then may, or its time is over. */
static int64_t acquire_due_us(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex)
{
    if (acquire->at.is_first)
        return acquire->at.due_us;
    const struct line_waiter *first = line_first(&limiter->errands->lines, &acquire->at);
    return first->due_us > acquire->at.end_us && !acquire->hopes
               ? 0
               : acquire->at.end_us; /* 0: the wait would be too long */
}

/* Leave the line, because the time is over. Then ask the last time, or deny if others of the line have been denied. */
static void acquire_give_up(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex)
{
    const struct line_waiter *first = line_first(&limiter->errands->lines, &acquire->at);
    const bool is_held = first->is_held;
    const int64_t first_due_us = first->due_us;
    int64_t ignored_us;
    acquire_leave(limiter, acquire);
    lock_give(&limiter->errands->mutex);
    if (is_held)
        acquire_deny(limiter, acquire, first_due_us);
    else
        acquire_ask(limiter, acquire, &ignored_us);
    lock_take(&limiter->errands->mutex);
}

/* ---- Threads ---- */

/* Wait in line and ask. Returns with the mutex held, after leaving the line. */
static enum acquire_outcome acquire_in_line(struct weir *limiter, struct acquire *acquire, int64_t *due_us)
    REQUIRES(limiter->errands->mutex)
{
    enum acquire_outcome outcome = ACQUIRE_AGAIN;
    acquire->may_ask = line_join(&limiter->errands->lines, &acquire->at);
    while (!limiter->errands->is_closing) {
        const int64_t now_us = clock_monotonic_us();
        if (acquire_is_due(acquire, now_us)) {
            line_asks(&limiter->errands->lines, &acquire->at);
            lock_give(&limiter->errands->mutex);
            outcome = acquire_ask(limiter, acquire, due_us);
            lock_take(&limiter->errands->mutex);
            if (outcome != ACQUIRE_AGAIN)
                break;
            acquire->may_ask = false;
            line_denied(&limiter->errands->lines, &acquire->at, *due_us);
            continue;
        }
        const int64_t until_us = acquire_due_us(limiter, acquire);
        if (until_us <= now_us) {
            acquire_give_up(limiter, acquire);
            return ACQUIRE_OVER;
        }
        const struct timespec until = clock_timespec(until_us);
        pthread_cond_timedwait(&acquire->turn, &limiter->errands->mutex.mutex, &until);
    }
    if (outcome == ACQUIRE_AGAIN) { /* otherwise the answer came before the end */
        acquire->status = WEIR_ECLOSED;
        outcome = ACQUIRE_OVER;
    }
    acquire_leave(limiter, acquire);
    return outcome;
}

static void acquire_wait(struct weir *limiter, struct acquire *acquire)
{
    enum acquire_outcome outcome = ACQUIRE_AGAIN;
    int64_t due_us;
    const bool is_alone = !limiter->can_block &&
                          atomic_load_explicit(&limiter->errands->lines.count, memory_order_relaxed) == 0;
    if (is_alone) /* the usual case takes no mutex */
        outcome = acquire_ask(limiter, acquire, &due_us);
    if (outcome == ACQUIRE_AGAIN) {
        acquire->status = lock_condition_init(&acquire->turn) == 0 ? WEIR_OK : WEIR_ENOMEM;
        if (acquire->status)
            return;
        acquire->hopes = acquire_hopes(&acquire->at);
        lock_take(&limiter->errands->mutex);
        outcome = acquire_in_line(limiter, acquire, &due_us);
        lock_give(&limiter->errands->mutex);
        pthread_cond_destroy(&acquire->turn);
    }
    if (outcome == ACQUIRE_DELAY)
        acquire->status = acquire_sleep_until(limiter, due_us);
}

static void acquire_fill(struct acquire *acquire, const struct weir_request *request, int64_t max_wait_us)
{
    const int64_t now_us = clock_monotonic_us();
    acquire->at.limit = request->limit;
    acquire->at.key = request->key;
    acquire->at.hash = key_hash(request->limit, request->key);
    acquire->at.cost = request->cost;
    acquire->at.end_us = max_wait_us > INT64_MAX - now_us ? INT64_MAX : now_us + max_wait_us;
}

int weir_acquire(weir_limit *limit, struct weir_key key, int64_t cost, int64_t max_wait_us, struct weir_decision *out)
{
    int error = check_arguments(limit, key, cost);
    if (error)
        return error;
    struct weir *limiter = limit->limiter;
    if (!out)
        return refuse_null(limiter, "out");
    if (max_wait_us < 0)
        return refuse_range(limiter, "max_wait_us", max_wait_us, 0, INT64_MAX);

    CANCEL_DISABLED;
    error = inside_add(limiter, 1);
    if (error)
        return error;
    struct acquire acquire = { .op = NULL };
    acquire.request = backend_request(limit, key, cost, WEIR_OWN_CLOCK, WEIR_TAKE);
    acquire_fill(&acquire, &(struct weir_request){ .limit = limit, .key = key, .cost = cost }, max_wait_us);
    acquire_wait(limiter, &acquire);
    count_answer(&acquire.request, acquire.status, &acquire.decision);
    error = acquire.status;
    if (!error)
        *out = acquire.decision;
    inside_remove(limiter, 1); /* the limiter may be freed from here on */
    return error;
}

/* ---- Submitted requests ---- */

/* The word of an op that leads to its errand while it waits. (e) */
#define ACQUIRE_WORD 4

static void acquire_note(struct weir_op *op, struct acquire *acquire)
{
    op->opaque[ACQUIRE_WORD] = (uint64_t)(uintptr_t)acquire;
}

/* End the errand, which has left its line. Returns the op's status. */
static int acquire_end(struct weir *limiter, struct acquire *acquire)
{
    struct weir_op *op = acquire->op;
    const int status = acquire->status;
    count_answer(&acquire->request, status, &acquire->decision);
    if (!status)
        op->decision = acquire->decision;
    lock_take(&limiter->errands->mutex);
    acquire_note(op, NULL);
    errands_ended(limiter);
    lock_give(&limiter->errands->mutex);
    free(acquire);
    return status;
}

/* Ask if it may. Return true if it is over. */
static bool acquire_step(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex)
{
    while (!acquire->is_served && !acquire->is_cancelled && !limiter->errands->is_closing) {
        const int64_t now_us = clock_monotonic_us();
        if (!acquire_is_due(acquire, now_us)) {
            const int64_t until_us = acquire_due_us(limiter, acquire);
            if (until_us > now_us) {
                errands_put(limiter, &acquire->errand, until_us);
                return false;
            }
            acquire_give_up(limiter, acquire);
            return true;
        }
        int64_t due_us;
        line_asks(&limiter->errands->lines, &acquire->at);
        lock_give(&limiter->errands->mutex);
        const enum acquire_outcome outcome = acquire_ask(limiter, acquire, &due_us);
        lock_take(&limiter->errands->mutex);
        acquire->may_ask = false;
        if (outcome == ACQUIRE_AGAIN) {
            line_denied(&limiter->errands->lines, &acquire->at, due_us);
            continue;
        }
        acquire_leave(limiter, acquire);
        if (outcome == ACQUIRE_OVER)
            return true;
        acquire->is_served = true; /* the next of the line may be asked for */
        if (acquire->is_cancelled || limiter->errands->is_closing)
            break;
        errands_put(limiter, &acquire->errand, due_us);
        return false;
    }
    const int ended = limiter->errands->is_closing ? WEIR_ECLOSED : acquire->is_cancelled ? WEIR_ECANCELED : WEIR_OK;
    if (!acquire->is_served) {
        acquire_leave(limiter, acquire);
    } else if (ended == WEIR_ECANCELED) {
        lock_give(&limiter->errands->mutex);
        acquire_give_back(limiter, acquire);
        lock_take(&limiter->errands->mutex);
    }
    acquire->status = ended;
    return true;
}

static void acquire_run(struct weir *limiter, struct errand *errand)
{
    struct acquire *acquire = (struct acquire *)(void *)((char *)errand - offsetof(struct acquire, errand));
    struct weir_op *op = acquire->op;
    lock_take(&limiter->errands->mutex);
    const bool is_over = acquire_step(limiter, acquire);
    lock_give(&limiter->errands->mutex);
    if (is_over)
        dispatch_op(limiter, op, acquire_end(limiter, acquire));
}

/* Join the line. If the backend cannot block, ask at once. Returns as weir_submit(). */
static int acquire_begin(struct weir *limiter, struct acquire *acquire)
{
    lock_take(&limiter->errands->mutex);
    const int error = errands_admit(limiter);
    if (error) {
        lock_give(&limiter->errands->mutex);
        free(acquire);
        return error;
    }
    acquire_note(acquire->op, acquire);
    acquire->may_ask = line_join(&limiter->errands->lines, &acquire->at);
    bool is_over = false;
    if (limiter->can_block)
        errands_put(limiter, &acquire->errand, clock_monotonic_us());
    else
        is_over = acquire_step(limiter, acquire);
    lock_give(&limiter->errands->mutex);
    return is_over ? acquire_end(limiter, acquire) : 1;
}

int acquire_submit(struct weir *limiter, struct weir_op *op)
{
    CANCEL_DISABLED;
    int error = inside_add(limiter, 2); /* this call, and the request until it is done */
    if (error)
        return error;
    struct acquire *acquire = calloc(1, sizeof *acquire);
    int result = WEIR_ENOMEM;
    if (acquire) {
        acquire->op = op;
        acquire->errand.run = acquire_run;
        acquire->request = backend_request(op->request.limit, op->request.key, op->request.cost, WEIR_OWN_CLOCK,
                                           WEIR_TAKE);
        acquire_fill(acquire, &op->request, op->max_wait_us);
        acquire->hopes = acquire_hopes(&acquire->at);
        result = acquire_begin(limiter, acquire);
    }
    inside_remove(limiter, result == 1 ? 1 : 2);
    return result;
}

int weir_cancel(weir *limiter, struct weir_op *op)
{
    if (!limiter)
        return WEIR_EINVAL;
    if (!op)
        return refuse_null(limiter, "op");
    if (op->verb != WEIR_OP_ACQUIRE)
        return refuse_range(limiter, "op->verb", (int64_t)op->verb, WEIR_OP_ACQUIRE, WEIR_OP_ACQUIRE);
    CANCEL_DISABLED;
    int error = inside_add(limiter, 1);
    if (error)
        return error;
    lock_take(&limiter->errands->mutex);
    struct acquire *acquire = (struct acquire *)(uintptr_t)op->opaque[ACQUIRE_WORD];
    if (acquire) {
        acquire->is_cancelled = true;
        if (acquire->errand.place > 0)
            errands_put(limiter, &acquire->errand, clock_monotonic_us());
    }
    lock_give(&limiter->errands->mutex);
    inside_remove(limiter, 1);
    return WEIR_OK;
}
