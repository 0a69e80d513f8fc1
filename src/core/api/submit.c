/* submit.c - requests of an event loop: submitted without blocking, answered later.
 *
 * While the backend has an op, op->done is op_answered(). It applies the failure policy and counts, as every verb does.
 * Then the op is dispatched (dispatch.h).
 *
 * Peeks, resets and groups are calls that wait for the backend. They are errands, which a thread of the limiter carries
 * out (errands.h). So is each try of a WEIR_OP_ACQUIRE (acquire_op.c).
 *
 * A request counts as one call inside the limiter until its `done` may run. With an event fd it is then on the stack,
 * and weir_close() dispatches what is there.
 */
#include "core/api/acquire.h"
#include "core/api/dispatch.h"
#include "core/api/group.h"
#include "core/api/reserve.h"
#include "core/api/verbs.h"
#include "core/ground/arith.h"
#include "core/ground/cancel.h"
#include "core/limiter/candidate.h"
#include "core/outage/arrears.h"
#include "core/outage/releases.h"
#include "core/outage/returns_kept.h"
#include "core/outage/settle.h"

#include <stdlib.h>

/* Words of an op that belong to the core while the backend has the op. Afterwards all do, see dispatch.c. */
enum { OP_DONE, OP_ASKED };

/* While the backend has an op about a slot, op->reservation.id is the slot's: also that of a verb whose reservation is
 * not the caller's. */
static bool op_has_reservation(const struct weir_op *op)
{
    return op->verb == WEIR_OP_RESERVE || op->verb == WEIR_OP_RENEW || op->verb == WEIR_OP_SETTLE;
}

_Static_assert(sizeof(void (*)(struct weir_op *, int)) <= sizeof(uint64_t), "a function fits a word of the op");

/* Restore what the caller put into the op. */
static void op_restore(struct weir_op *op)
{
    void (*done)(struct weir_op * op, int status);
    memcpy(&done, &op->opaque[OP_DONE], sizeof done);
    op->done = done;
    op->request.limit = op->request.limit->of;
    if (!op_has_reservation(op))
        op->reservation.id = 0;
}

/* ---- Answers ---- */

/* Return what the op asks of the backend. It is the same each time until op_finish(), but for the slot, which the op
 * then has. */
static struct weir_backend_request op_request(struct weir_op *op, int64_t now_us)
{
    struct weir_backend_request request = take_request(&op->request, now_us);
    switch (op->verb) {
    case WEIR_OP_TRY:
    case WEIR_OP_PEEK:
    case WEIR_OP_RESET:
    case WEIR_OP_TRY_ALL:
    case WEIR_OP_RESERVE_ALL:
    case WEIR_OP_ACQUIRE: break; /* all but the first are errands */
    case WEIR_OP_RESERVE: request.reservation = &op->reservation; break;
    case WEIR_OP_RENEW:
        request.reservation = &op->reservation;
        if (reservation_is_out(request.limit, &op->reservation)) { /* otherwise it reserves */
            request.verb = WEIR_RENEW;
            request_settles(&request, &op->reservation, 0);
        }
        break;
    case WEIR_OP_REFUND: request.verb = WEIR_REFUND; break;
    case WEIR_OP_CHARGE:
        request.verb = WEIR_CHARGE;
        request.cost = charge_cost(request.cost);
        break;
    case WEIR_OP_SETTLE: {
        const int64_t beyond = op->request.cost - op->reservation.permits;
        request.verb = beyond > 0 ? WEIR_CHARGE : WEIR_REFUND;
        request.cost = beyond > 0 ? charge_cost(beyond) : -beyond;
        request.slot = slot_beyond(op->reservation.id);
        if (beyond > 0 && request.slot == 0)
            request.ahead = min_of(0, op->reservation.at_us);
        if (beyond <= 0)
            request_settles(&request, &op->reservation, -beyond);
        return request;
    }
    }
    if (op->reservation.id)
        request.slot = op->reservation.id;
    op->reservation.id = request.slot;
    return request;
}

/* Complete an op that has been decided, and count it. `request` is the one that was decided. */
static void op_finish(struct weir_op *op, const struct weir_backend_request *request, int status)
{
    struct weir *limiter = request->limit->limiter;
    struct weir_backend_request first = *request;
    candidate_aim_first(&first); /* if the policy has got a candidate since it was submitted */
    request = &first;
    if (!status)
        shadow_apply(request->limit, request->key, &op->decision);
    if (request->verb == WEIR_TAKE)
        count_answer(request, status, &op->decision);
    if (op->verb == WEIR_OP_RESERVE && !status)
        reservation_finish(&op->reservation, op->reservation, request->cost, &op->decision);
    if (op->verb == WEIR_OP_RENEW && !status)
        renewal_finish(&op->reservation, op->reservation, request->cost, &op->decision);
    if (request->verb == WEIR_CHARGE && !status)
        charge_count(limiter, request->limit, request->cost, &op->decision);
    if (request->verb == WEIR_REFUND && !status)
        acquire_freed(request->limit, request->key, request->hash);
}

/* Take the caller's place as `done`, on a thread of the backend. */
static void op_answered(struct weir_op *op, int status)
{
    struct weir *limiter = op->request.limit->limiter;
    struct weir_backend_request request = op_request(op, WEIR_OWN_CLOCK);
    status = failure_answer(limiter, status, &request, 1, false, (uint32_t)op->opaque[OP_ASKED], &op->decision);
    op_finish(op, &request, status);
    op_restore(op);
    dispatch_op(limiter, op, status);
}

/* Submit an op whose `done` is op_answered(). Returns as ops->submit(). */
static int hand_over(struct weir *limiter, struct weir_op *op, int64_t deadline)
{
    int64_t now_us;
    int error = group_time(limiter, &op->request, 1, &now_us);
    if (error)
        return error;
    const struct weir_backend_request request = op_request(op, now_us);
    return limiter->backend->ops->submit(limiter->backend, &request, deadline, op);
}

/* Continue after the key has been settled, or settling it has failed. Runs on a thread of the backend. */
static void op_settled(struct weir_op *op, int status, int64_t deadline)
{
    if (!status)
        status = hand_over(op->request.limit->limiter, op, deadline);
    if (status != 1)
        op_answered(op, status);
}

/* Submit an op. WEIR_OK or an error: it has been decided. 1: op_answered() will run. */
static int submit(struct weir *limiter, struct weir_op *op)
{
    int64_t now_us = WEIR_OWN_CLOCK;
    int result = group_time(limiter, &op->request, 1, &now_us);
    struct weir_backend_request request = op_request(op, now_us);
    if (!result && request.verb == WEIR_REFUND && returns_keep(limiter, &request, &op->decision))
        return WEIR_OK;
    if (!result && releases_decide(limiter, &request, &op->decision)) {
        op_finish(op, &request, WEIR_OK);
        return WEIR_OK;
    }
    if (!result && (fixed_leaves(&request) || !fixed_decide(request.limit, &op->decision))) {
        const int64_t deadline = deadline_us(limiter);
        memcpy(&op->opaque[OP_DONE], &op->done, sizeof op->done);
        op->opaque[OP_ASKED] = outage_asked(limiter);
        op->done = op_answered;
        op->request.limit = request.limit; /* the key's override, if it has one: the backend reads the op */
        const bool is_due = settle_is_due(limiter) || arrears_any(limiter, &request, 1);
        if ((request.verb == WEIR_TAKE || request.verb == WEIR_RENEW) && is_due)
            result = settle_submit(limiter, &request, deadline, op_settled, op);
        if (result == SETTLE_BUSY && request.verb == WEIR_RENEW) /* it cannot be denied for that */
            result = WEIR_ETIME;
        const bool is_busy = result == SETTLE_BUSY;
        if (!result)
            result = limiter->backend->ops->submit(limiter->backend, &request, deadline, op);
        if (result == 1)
            return result;
        op_restore(op);
        if (is_busy)
            failure_deny_for_now(&request, &op->decision);
        result = is_busy ? WEIR_OK
                         : failure_answer(limiter, result, &request, 1, false, (uint32_t)op->opaque[OP_ASKED],
                                          &op->decision);
    }
    op_finish(op, &request, result);
    return result;
}

/* ---- Checks ---- */

static int check_settle(const struct weir *limiter, const struct weir_op *op)
{
    struct weir_request request = op->request;
    request.cost = 1;
    int error = check_request(limiter, &request);
    return error ? error : reservation_check(limiter, &op->reservation, op->request.cost);
}

/* True if there is nothing to settle. */
static bool settles_nothing(const struct weir_op *op)
{
    return op->verb == WEIR_OP_SETTLE && reservation_settles_nothing(&op->reservation, op->request.cost);
}

static int check_group(const struct weir *limiter, const struct weir_op *op)
{
    if (!op->requests)
        return refuse_null(limiter, "op->requests");
    if (op->verb == WEIR_OP_RESERVE_ALL && !op->reservations)
        return refuse_null(limiter, "op->reservations");
    if (op->n < 1 || op->n > WEIR_MAX_ALL)
        return refuse_range(limiter, "op->n", op->n > INT64_MAX ? INT64_MAX : (int64_t)op->n, 1, WEIR_MAX_ALL);
    int error = WEIR_OK;
    for (size_t i = 0; !error && i < op->n; i++)
        error = check_request(limiter, &op->requests[i]);
    return error;
}

static int check_op(const struct weir *limiter, const struct weir_op *op)
{
    if ((unsigned)op->verb > WEIR_OP_ACQUIRE)
        return refuse_range(limiter, "op->verb", (int64_t)op->verb, 0, WEIR_OP_ACQUIRE);
    if (op->verb == WEIR_OP_TRY_ALL || op->verb == WEIR_OP_RESERVE_ALL)
        return check_group(limiter, op);
    if (op->verb != WEIR_OP_TRY && op->request.now_us != 0)
        return refuse_range(limiter, "op->request.now_us", op->request.now_us, 0, 0);
    if (op->verb == WEIR_OP_SETTLE)
        return check_settle(limiter, op);
    if (op->verb == WEIR_OP_RENEW && renewal_check(limiter, &op->reservation, op->request.cost) != WEIR_OK)
        return WEIR_EINVAL;
    if (op->verb == WEIR_OP_ACQUIRE && op->max_wait_us < 0)
        return refuse_range(limiter, "op->max_wait_us", op->max_wait_us, 0, INT64_MAX);
    if (op->verb == WEIR_OP_CHARGE && check_charge(limiter, op->request.cost) != WEIR_OK)
        return WEIR_EINVAL;
    struct weir_request request = op->request;
    request.cost = op->verb == WEIR_OP_RESET || op->verb == WEIR_OP_CHARGE ? 1 : request.cost;
    const int error = check_request(limiter, &request);
    return !error && op->verb == WEIR_OP_REFUND ? check_refund(request.limit, request.key) : error;
}

/* ---- Calls that wait ---- */

/* Carry an op out on this thread, which may wait for the backend. */
static int op_now(struct weir_op *op)
{
    struct weir_request *request = &op->request;
    switch (op->verb) {
    case WEIR_OP_RESERVE:
        return weir_reserve(request->limit, request->key, request->cost, &op->decision, &op->reservation);
    case WEIR_OP_RENEW: return weir_renew(request->limit, request->key, request->cost, &op->decision, &op->reservation);
    case WEIR_OP_SETTLE: return weir_settle(request->limit, request->key, &op->reservation, request->cost);
    case WEIR_OP_REFUND: return weir_refund(request->limit, request->key, request->cost);
    case WEIR_OP_CHARGE: return weir_charge(request->limit, request->key, request->cost);
    case WEIR_OP_PEEK: return weir_peek(request->limit, request->key, request->cost, &op->decision);
    case WEIR_OP_RESET: return weir_reset(request->limit, request->key);
    case WEIR_OP_TRY_ALL: return weir_try_all(op->requests->limit->limiter, op->requests, op->n, &op->decision);
    case WEIR_OP_RESERVE_ALL:
        return weir_reserve_all(op->requests->limit->limiter, op->requests, op->n, &op->decision, op->reservations);
    case WEIR_OP_TRY:
    case WEIR_OP_ACQUIRE: break; /* an acquire has acquire_submit() */
    }
    return weir_try_at(request->limit, request->key, request->cost, request->now_us, &op->decision);
}

/* An op that a thread of the limiter carries out. */
struct call {
    struct errand errand; /* the first member */
    struct weir_op *op;
};

static void call_run(struct weir *limiter, struct errand *errand)
{
    struct call *call = (struct call *)(void *)errand;
    struct weir_op *op = call->op;
    const int status = op_now(op);
    lock_take(&limiter->errands->mutex);
    errands_ended(limiter);
    lock_give(&limiter->errands->mutex);
    free(call);
    dispatch_op(limiter, op, status);
}

static int call_submit(struct weir *limiter, struct weir_op *op)
{
    struct call *call = malloc(sizeof *call);
    if (!call)
        return WEIR_ENOMEM;
    *call = (struct call){ .errand = { .run = call_run }, .op = op };
    lock_take(&limiter->errands->mutex);
    const int error = errands_admit(limiter);
    if (!error)
        errands_put(limiter, &call->errand, clock_monotonic_us());
    lock_give(&limiter->errands->mutex);
    if (error)
        free(call);
    return error ? error : 1;
}

/* True if the op's key has a policy with a candidate, or its reservation is of one: two decisions follow each other. */
static bool op_has_halves(const struct weir_op *op)
{
    const struct weir_request *request = &op->request;
    struct weir_limit *limit = request->limit;
    if (atomic_load_explicit(&limit->limiter->candidate_count, memory_order_relaxed) == 0)
        return false;
    return limit_has_halves(limit_for_key(limit, request->key, key_hash(limit, request->key))) ||
           (op->verb == WEIR_OP_SETTLE && op->reservation.candidate_us > 0);
}

/* True if the backend must not get it by submit(). */
static bool op_is_call(const struct weir_op *op)
{
    return op->verb == WEIR_OP_PEEK || op->verb == WEIR_OP_RESET || op->verb == WEIR_OP_TRY_ALL ||
           op->verb == WEIR_OP_RESERVE_ALL || op_has_halves(op);
}

/* True if a renewal has permits that can be returned. */
static bool op_is_out(const struct weir_op *op)
{
    struct weir_limit *limit = op->request.limit;
    const struct weir_key key = op->request.key;
    return reservation_is_out(limit_for_key(limit, key, key_hash(limit, key)), &op->reservation);
}

int weir_submit(weir *limiter, struct weir_op *op)
{
    if (!limiter)
        return WEIR_EINVAL;
    if (!op)
        return refuse_null(limiter, "op");
    int error = check_op(limiter, op);
    if (error || settles_nothing(op))
        return error;
    const bool waits = op->verb == WEIR_OP_ACQUIRE;
    if (!waits && !limiter->backend->ops->submit)
        return op_now(op);
    if (!op->done)
        return refuse_null(limiter, "op->done");
    if (waits)
        return acquire_submit(limiter, op);

    /* Count two calls: this one, and the request until it is answered. */
    const bool is_call = op_is_call(op);
    CANCEL_DISABLED_IF(limiter->is_foreign || is_call);
    error = inside_enter(limiter, 2);
    if (error)
        return error;
    if (op->verb == WEIR_OP_RESERVE)
        op->reservation = RESERVATION_NONE;
    else if (!op_has_reservation(op))
        op->reservation.id = 0;
    else if (op->verb == WEIR_OP_RENEW && !op_is_out(op)) /* the backend notes the time of the charge, if it can */
        op->reservation.at_us = 0, op->reservation.id = 0;
    const int result = is_call ? call_submit(limiter, op) : submit(limiter, op);
    inside_leave(limiter, result == 1 ? 1 : 2);
    return result;
}
