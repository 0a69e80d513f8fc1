/* dispatch.c - runs the `done` of ops that have their answer: immediately, or in weir_dispatch().
 *
 * Answered ops wait for weir_dispatch() on a stack. It grows by one compare-and-swap and is taken as a whole, so no two
 * threads look at one op. The thread that finds the stack empty rings the event fd; weir_dispatch() drains the fd
 * before it takes the stack. An op that arrives later either finds the stack empty and rings, or is taken along.
 */
#include "core/api/dispatch.h"

#include "core/ground/cancel.h"
#include "core/ground/wake_fd.h"
#include "core/limiter/inside.h"

/* Words of an op on the stack: no backend has it any more. */
enum { OP_NEXT = 2, OP_STATUS };

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

void dispatch_op(struct weir *limiter, struct weir_op *op, int status)
{
    if (atomic_load_explicit(&limiter->answers.event_fd, memory_order_relaxed) >= 0) {
        op_push(limiter, op, status);
    } else {
        CANCEL_DISABLED; /* this thread may be in another call to the limiter */
        op->done(op, status);
    }
    inside_remove(limiter, 1);
}
