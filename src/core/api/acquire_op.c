/* acquire_op.c - submitted requests that wait for permits. Each is an errand (errands.h), which asks on a thread of the
 * limiter and stands in the same line as the threads of acquire.c.
 *
 * Several threads may ask for ops of one key, and one may overtake another on its way to `done`. So an op that is
 * admitted waits while one of its key that was submitted before it is being asked for, or runs its `done`: `done` runs in
 * the order of the line. An op that gets no permits waits for no other. */
#include "core/api/acquire.h"
#include "core/api/acquire_turn.h"
#include "core/api/dispatch.h"
#include "core/api/reserve.h"
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

/* ---- The order of `done` ---- */

static struct acquire **asked_bucket(struct weir *limiter, const struct acquire *acquire)
{
    return &limiter->errands->asked[acquire->at.hash & (LINE_BUCKETS - 1)];
}

/* From now on no op of the key that was submitted later runs its `done`. */
static void asked_add(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex)
{
    struct acquire **place = asked_bucket(limiter, acquire);
    if (acquire->is_asked)
        return;
    while (*place && (*place)->number < acquire->number)
        place = &(*place)->next_asked;
    acquire->next_asked = *place;
    acquire->is_asked = true;
    *place = acquire;
}

static void asked_remove(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex)
{
    struct acquire **place = asked_bucket(limiter, acquire);
    if (!acquire->is_asked)
        return;
    while (*place != acquire)
        place = &(*place)->next_asked;
    *place = acquire->next_asked;
    acquire->is_asked = false;
}

/* Return the first op of a key, if it is admitted and its `done` may run now. The key's bytes may be gone after `done`:
 * its hash stands for them. Two keys with one hash wait for each other. */
static struct acquire *asked_next(struct weir *limiter, const struct acquire *like) REQUIRES(limiter->errands->mutex)
{
    struct acquire *first = *asked_bucket(limiter, like);
    while (first && !(first->at.hash == like->at.hash && first->at.limit == like->at.limit))
        first = first->next_asked;
    return first && first->is_admitted && !first->is_ending ? first : NULL;
}

/* End the errand, which has left its line. Returns the op's status. The caller holds no lock. */
static int acquire_end(struct weir *limiter, struct acquire *acquire)
{
    count_answer(&acquire->request, acquire->status, &acquire->decision);
    if (!acquire->status) {
        acquire->op->decision = acquire->decision;
        reservation_finish(&acquire->op->reservation, acquire->reservation, acquire->at.cost, &acquire->decision);
    }
    lock_take(&limiter->errands->mutex);
    acquire_note(acquire->op, NULL);
    errands_ended(limiter);
    if (!acquire->is_ending)
        asked_remove(limiter, acquire);
    lock_give(&limiter->errands->mutex);
    return acquire->status;
}

/* Run the `done` of each op of the key whose turn it is. The thread that runs one runs those that become ready in that
 * time. The limiter lives on: weir_close() waits for the threads of errands. */
static void acquire_deliver(struct weir *limiter, const struct acquire *like) REQUIRES(limiter->errands->mutex)
{
    struct acquire *next;
    while ((next = asked_next(limiter, like)) != NULL) {
        next->is_ending = true;
        lock_give(&limiter->errands->mutex);
        dispatch_op(limiter, next->op, acquire_end(limiter, next));
        lock_take(&limiter->errands->mutex);
        asked_remove(limiter, next);
        free(next);
    }
}

/* ---- Asking ---- */

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
            asked_add(limiter, acquire);
            if (!acquire_stays(limiter, acquire))
                return true;
            asked_remove(limiter, acquire);
            continue;
        }
        int64_t due_us;
        asked_add(limiter, acquire);
        line_asks(&limiter->errands->lines, &acquire->at);
        lock_give(&limiter->errands->mutex);
        const enum acquire_outcome outcome = acquire_ask(limiter, acquire, &due_us);
        lock_take(&limiter->errands->mutex);
        acquire->may_ask = false;
        if (outcome == ACQUIRE_AGAIN) {
            asked_remove(limiter, acquire);
            acquire_denied(limiter, acquire, due_us);
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
    const int ended = acquire->is_cancelled ? WEIR_ECANCELED : limiter->errands->is_closing ? WEIR_ECLOSED : WEIR_OK;
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
    const struct acquire like = { .at = acquire->at };
    lock_take(&limiter->errands->mutex);
    const bool is_over = acquire_step(limiter, acquire);
    if (is_over)
        acquire->is_admitted = !acquire->status && acquire->decision.allowed;
    if (is_over && !acquire->is_admitted) {
        lock_give(&limiter->errands->mutex);
        dispatch_op(limiter, acquire->op, acquire_end(limiter, acquire));
        free(acquire);
        lock_take(&limiter->errands->mutex);
    }
    acquire_deliver(limiter, &like);
    lock_give(&limiter->errands->mutex);
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
    acquire->number = limiter->errands->acquires++;
    acquire->may_ask = line_join(&limiter->errands->lines, &acquire->at);
    if (acquire->may_ask)
        asked_add(limiter, acquire);
    bool is_over = false;
    if (limiter->can_block)
        errands_put(limiter, &acquire->errand, clock_monotonic_us());
    else
        is_over = acquire_step(limiter, acquire);
    lock_give(&limiter->errands->mutex);
    if (!is_over)
        return 1;
    const int result = acquire_end(limiter, acquire);
    free(acquire);
    return result;
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
        acquire->reserves = true;
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
