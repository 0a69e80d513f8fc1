/* waiter.h - a request that waits for a lease call.
 *
 * A waiter is a calling thread, with its node on its stack, or a submitted op, with its node in the op.
 */
#ifndef BACKENDS_HYBRID_WAITER_H
#define BACKENDS_HYBRID_WAITER_H

#include <assert.h>
#include <stdatomic.h>
#include <weir/weir.h>

enum hybrid_waiter_kind { WAITER_THREAD = 1, WAITER_OP };

/* A node in the queue of a lease call; `kind` tells which of the two structs below it begins. */
struct hybrid_waiter {
    struct hybrid_waiter *next;
    enum hybrid_waiter_kind kind;
    int64_t deadline_us;
    int64_t now_us; /* WEIR_OWN_CLOCK, or the time that the request brings */
} __attribute__((may_alias));

/* A submitted op that waits. It lies in op->opaque[2..8], which belong to the backend. */
struct hybrid_op_waiter {
    struct hybrid_waiter node;
    struct weir_op *op;
} __attribute__((may_alias));
_Static_assert(sizeof(struct hybrid_op_waiter) <= 7 * sizeof(uint64_t), "it fits the backend's words of an op");

/* A calling thread that waits. It lies on that thread's stack. */
struct hybrid_thread_waiter {
    struct hybrid_waiter node;
    struct weir_key key;
    int64_t cost;
    struct weir_reservation *reservation; /* NULL: it is none */
    struct weir_decision *out;
    int status;
    atomic_bool done; /* release: status and *out */
};

/* Return the op that waits, or NULL: a thread waits. */
static inline struct weir_op *waiter_op(const struct hybrid_waiter *waiter)
{
    return waiter->kind == WAITER_OP ? ((const struct hybrid_op_waiter *)waiter)->op : NULL;
}

static inline struct hybrid_thread_waiter *waiter_thread(struct hybrid_waiter *waiter)
{
    assert(waiter->kind == WAITER_THREAD);
    return (struct hybrid_thread_waiter *)(void *)waiter;
}

static inline int64_t waiter_cost(struct hybrid_waiter *waiter)
{
    const struct weir_op *op = waiter_op(waiter);
    return op ? op->request.cost : waiter_thread(waiter)->cost;
}

static inline struct weir_key waiter_key(struct hybrid_waiter *waiter)
{
    const struct weir_op *op = waiter_op(waiter);
    return op ? op->request.key : waiter_thread(waiter)->key;
}

/* Return the reservation that the waiter makes, or NULL. */
static inline struct weir_reservation *waiter_reservation(struct hybrid_waiter *waiter)
{
    struct weir_op *op = waiter_op(waiter);
    const bool reserves = op && (op->verb == WEIR_OP_RESERVE || op->verb == WEIR_OP_RENEW);
    return !op ? waiter_thread(waiter)->reservation : reserves ? &op->reservation : NULL;
}

/* Note when the permits of a waiter that has been admitted were charged, if it reserves them. */
static inline void waiter_note(struct hybrid_waiter *waiter, int64_t charged_us)
{
    struct weir_reservation *reservation = waiter_reservation(waiter);
    if (reservation)
        reservation->at_us = charged_us;
}

static inline struct weir_decision *waiter_out(struct hybrid_waiter *waiter)
{
    struct weir_op *op = waiter_op(waiter);
    return op ? &op->decision : waiter_thread(waiter)->out;
}

#endif
