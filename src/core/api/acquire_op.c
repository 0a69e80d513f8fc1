/* acquire_op.c - submitted requests that wait for permits. Each is an errand (errands.h), which asks on a thread of the
 * limiter and stands in the same line as the threads of acquire.c. */
#include "core/api/acquire.h"
#include "core/api/acquire_turn.h"
#include "core/api/dispatch.h"
#include "core/api/verbs.h"
#include "core/ground/cancel.h"

#include <stddef.h>
#include <stdlib.h>

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
        acquire->is_served = true; /* the next waiter of the line may ask */
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

/* Join the line. If the backend cannot block, ask immediately. Returns as weir_submit(). */
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
