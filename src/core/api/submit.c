/* submit.c - requests of an event loop: submitted without blocking, answered later.
 *
 * While the backend has an op, op->done is op_answered(). It applies the failure policy and counts, as every verb does.
 * Then it runs the caller's `done`, or leaves it to weir_dispatch().
 *
 * Answered ops wait for weir_dispatch() on a stack. It grows by one compare-and-swap and is taken as a whole, so no two
 * threads look at one op. The thread that finds the stack empty rings the event fd; weir_dispatch() drains the fd
 * before it takes the stack. An op that arrives later either finds the stack empty and rings, or is taken along.
 *
 * A request counts as one call inside the limiter until its `done` may run. With an event fd it is then on the stack,
 * and weir_close() dispatches what is there.
 */
#include "core/api/group.h"
#include "core/api/reserve.h"
#include "core/ground/cancel.h"
#include "core/ground/wake_fd.h"
#include "core/outage/settle.h"

/* Words of an op. The first two belong to the core while the backend has the op; afterwards all do. */
enum { OP_DONE, OP_LIMITER, OP_NEXT, OP_STATUS };

_Static_assert(sizeof(void (*)(struct weir_op *, int)) <= sizeof(uint64_t), "a function fits a word of the op");

/* Restore what the caller put into the op. */
static void op_restore(struct weir_op *op)
{
    void (*done)(struct weir_op * op, int status);
    memcpy(&done, &op->opaque[OP_DONE], sizeof done);
    op->done = done;
    op->request.limit = op->request.limit->of;
}

/* ---- To be dispatched ---- */

static struct weir_op *op_next(const struct weir_op *op)
{
    return (struct weir_op *)(uintptr_t)op->opaque[OP_NEXT];
}

static void op_set_next(struct weir_op *op, struct weir_op *next)
{
    op->opaque[OP_NEXT] = (uint64_t)(uintptr_t)next;
}

static void op_push(struct weir *limiter, struct weir_op *op, int status)
{
    const int event_fd = atomic_load_explicit(&limiter->answers.event_fd, memory_order_relaxed);
    struct weir_op *latest = atomic_load_explicit(&limiter->answers.latest, memory_order_relaxed);
    op->opaque[OP_STATUS] = (uint64_t)(int64_t)status;
    do
        op_set_next(op, latest);
    while (!atomic_compare_exchange_weak_explicit(&limiter->answers.latest, &latest, op, memory_order_release,
                                                  memory_order_relaxed));
    if (!latest)
        wake_fd_ring(event_fd);
}

int weir_event_fd(weir *limiter)
{
    if (!limiter)
        return WEIR_EINVAL;
    int known = atomic_load_explicit(&limiter->answers.event_fd, memory_order_acquire);
    if (known >= 0)
        return known;
    CANCEL_DISABLED;
    int made = wake_fd_open();
    if (made < 0) {
        log_line(&limiter->log, WEIR_LOG_ERROR, "the system has no event fd to give");
        return WEIR_EIO;
    }
    if (atomic_compare_exchange_strong(&limiter->answers.event_fd, &known, made))
        return made;
    close(made); /* another thread was faster */
    return known;
}

int weir_dispatch(weir *limiter)
{
    const int event_fd = atomic_load_explicit(&limiter->answers.event_fd, memory_order_acquire);
    if (event_fd < 0)
        return 0;
    CANCEL_DISABLED; /* ops that are off the stack and not done yet would be lost */
    wake_fd_drain(event_fd);

    struct weir_op *latest = atomic_exchange_explicit(&limiter->answers.latest, NULL, memory_order_acquire);
    struct weir_op *first = NULL;
    while (latest) {
        struct weir_op *before = op_next(latest);
        op_set_next(latest, first);
        first = latest;
        latest = before;
    }
    int count = 0;
    while (first) { /* `done` may reuse or free its op: read the next one first */
        struct weir_op *op = first;
        first = op_next(op);
        op->done(op, (int)(int64_t)op->opaque[OP_STATUS]);
        count++;
    }
    return count;
}

/* ---- Answers ---- */

/* Return what the op asks of the backend. It is the same each time until op_finish(). */
static struct weir_backend_request op_request(struct weir_op *op, int64_t now_us)
{
    struct weir_backend_request request = take_request(&op->request, now_us);
    const int64_t beyond = op->request.cost - op->reservation.permits;
    switch (op->verb) {
    case WEIR_OP_TRY: break;
    case WEIR_OP_RESERVE: request.reservation = &op->reservation; break;
    case WEIR_OP_REFUND: request.verb = WEIR_REFUND; break;
    case WEIR_OP_CHARGE: request.verb = WEIR_CHARGE; break;
    case WEIR_OP_SETTLE:
        request.verb = beyond > 0 ? WEIR_CHARGE : WEIR_REFUND;
        request.cost = beyond > 0 ? beyond : -beyond;
        request.ahead = beyond > 0 ? 0 : op->reservation.at_us;
        break;
    }
    return request;
}

/* Complete an op that has been decided, and count it. `request` is the one that was decided. */
static void op_finish(struct weir_op *op, const struct weir_backend_request *request, int status)
{
    struct weir *limiter = request->limit->limiter;
    if (!status)
        shadow_apply(request->limit, request->key, &op->decision);
    if (op->verb == WEIR_OP_TRY || op->verb == WEIR_OP_RESERVE)
        count_answer(request, status, &op->decision);
    if (op->verb == WEIR_OP_RESERVE && !status)
        reservation_finish(&op->reservation, request->cost, &op->decision);
    if (request->verb == WEIR_CHARGE && !status)
        charge_count(limiter, request->limit, request->cost, &op->decision);
}

/* Take the caller's place as `done`, on a thread of the backend. */
static void op_answered(struct weir_op *op, int status)
{
    struct weir *limiter = (struct weir *)(uintptr_t)op->opaque[OP_LIMITER];
    struct weir_backend_request request = op_request(op, WEIR_OWN_CLOCK);
    status = failure_answer(limiter, status, &request, 1, false, &op->decision);
    op_finish(op, &request, status);
    op_restore(op);
    if (atomic_load_explicit(&limiter->answers.event_fd, memory_order_relaxed) >= 0) {
        op_push(limiter, op, status);
    } else {
        CANCEL_DISABLED; /* this thread may be in another call to the limiter */
        op->done(op, status);
    }
    inside_leave(limiter, 1);
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
        status = hand_over((struct weir *)(uintptr_t)op->opaque[OP_LIMITER], op, deadline);
    if (status != 1)
        op_answered(op, status);
}

/* Submit an op. WEIR_OK or an error: it has been decided. 1: op_answered() will run. */
static int submit(struct weir *limiter, struct weir_op *op)
{
    int64_t now_us = WEIR_OWN_CLOCK;
    int result = group_time(limiter, &op->request, 1, &now_us);
    struct weir_backend_request request = op_request(op, now_us);
    if (!result) {
        const int64_t deadline = deadline_us(limiter);
        memcpy(&op->opaque[OP_DONE], &op->done, sizeof op->done);
        op->opaque[OP_LIMITER] = (uint64_t)(uintptr_t)limiter;
        op->done = op_answered;
        op->request.limit = request.limit; /* the key's override, if it has one: the backend reads the op */
        if (request.verb == WEIR_TAKE && settle_is_due(limiter))
            result = settle_submit(limiter, &request, deadline, op_settled, op);
        const bool is_busy = result == SETTLE_BUSY;
        if (!result)
            result = limiter->backend->ops->submit(limiter->backend, &request, deadline, op);
        if (result == 1)
            return result;
        op_restore(op);
        if (is_busy)
            failure_deny_for_now(&request, &op->decision);
        result = is_busy ? WEIR_OK : failure_answer(limiter, result, &request, 1, false, &op->decision);
    }
    op_finish(op, &request, result);
    return result;
}

/* Check an op. *is_nothing: there is nothing to settle. */
static int check_op(const struct weir *limiter, struct weir_op *op, bool *is_nothing)
{
    struct weir_request request = op->request;
    if ((unsigned)op->verb > WEIR_OP_CHARGE)
        return refuse_range(limiter, "op->verb", (int64_t)op->verb, 0, WEIR_OP_CHARGE);
    if (op->verb != WEIR_OP_TRY && request.now_us != 0)
        return refuse_range(limiter, "op->request.now_us", request.now_us, 0, 0);
    request.cost = op->verb == WEIR_OP_SETTLE ? 1 : request.cost;
    int error = check_request(limiter, &request);
    if (!error && op->verb == WEIR_OP_SETTLE) {
        const int64_t permits = op->reservation.permits;
        error = reservation_check(limiter, &op->reservation, op->request.cost);
        *is_nothing = permits < 0 || permits == op->request.cost ||
                      (permits > op->request.cost && op->reservation.at_us == 0);
    }
    return error;
}

/* Carry an op out on this thread: the backend does not block. */
static int op_now(struct weir_op *op)
{
    struct weir_request *request = &op->request;
    switch (op->verb) {
    case WEIR_OP_RESERVE:
        return weir_reserve(request->limit, request->key, request->cost, &op->decision, &op->reservation);
    case WEIR_OP_SETTLE: return weir_settle(request->limit, request->key, &op->reservation, request->cost);
    case WEIR_OP_REFUND: return weir_refund(request->limit, request->key, request->cost);
    case WEIR_OP_CHARGE: return weir_charge(request->limit, request->key, request->cost);
    case WEIR_OP_TRY: break;
    }
    return weir_try_at(request->limit, request->key, request->cost, request->now_us, &op->decision);
}

int weir_submit(weir *limiter, struct weir_op *op)
{
    if (!limiter)
        return WEIR_EINVAL;
    if (!op)
        return refuse_null(limiter, "op");
    bool is_nothing = false;
    int error = check_op(limiter, op, &is_nothing);
    if (error || is_nothing)
        return error;
    if (!limiter->backend->ops->submit)
        return op_now(op);
    if (!op->done)
        return refuse_null(limiter, "op->done");

    /* Count two calls: this one, and the request until it is answered. */
    CANCEL_DISABLED_IF(limiter->is_foreign);
    error = inside_enter(limiter, 2);
    if (error)
        return error;
    if (op->verb == WEIR_OP_RESERVE)
        op->reservation = RESERVATION_NONE;
    int result = submit(limiter, op);
    inside_leave(limiter, result == 1 ? 1 : 2);
    return result;
}
