/* inside.h - who is inside a limiter and may be waiting there, so that weir_close() can wait until the last is out.
 *
 * Each thread counts in a stripe of its own, as in stats.h, by a plain load and store: a decision that needs no call to
 * Redis is not to wait for a locked instruction, nor for another thread's cache line. A call, or a submitted request
 * that waits for its answer, may leave on another thread than it entered: only the sum says how many are inside.
 *
 * Whoever enters counts himself first and looks then whether the limiter is being closed; weir_close() says so first
 * and counts then. That one of them sees the other takes a barrier between the two steps on both sides, to which
 * weir_close() sees if it can (fence.h). Who is counted is waited for; who sees the end leaves at once. The count is
 * the last that he touches.
 *
 * Where the backend cannot block, weir_acquire() alone is counted, and others pay a look at a constant.
 */
#ifndef CORE_LIMITER_INSIDE_H
#define CORE_LIMITER_INSIDE_H

#include "core/limiter/limiter.h"

/* Once, when the limiter is made; again in the child of a fork, whose only thread is not inside. */
void inside_init(struct weir *limiter);

/* From here on nobody enters. */
void inside_shut(struct weir *limiter);

/* How many are; while some enter and leave, how many were at some time or other. */
uint64_t inside_sum(struct weir *limiter);

/* Wait until all are out, after that. */
void inside_await_none(struct weir *limiter);

static inline void inside_count(struct weir *limiter, uint64_t calls)
{
    const unsigned stripe = stats_stripe();
    _Atomic uint64_t *inside = &limiter->stats.stripes[stripe].inside;
    if (stripe == STATS_SHARED_STRIPE || limiter->inside.needs_fences)
        atomic_fetch_add(inside, calls);
    else
        atomic_store_explicit(inside, atomic_load_explicit(inside, memory_order_relaxed) + calls, memory_order_release);
}

/* After this the limiter may be gone. */
static inline void inside_remove(struct weir *limiter, uint64_t calls)
{
    inside_count(limiter, -calls);
}

/* WEIR_OK: `calls` more are inside until as many are removed. WEIR_ECLOSED: none is, and the limiter may be gone. */
static inline int inside_add(struct weir *limiter, uint64_t calls)
{
    inside_count(limiter, calls);
    atomic_signal_fence(memory_order_seq_cst); /* for the compiler; weir_close() sees to the processors */
    if (!atomic_load(&limiter->inside.is_shut))
        return WEIR_OK;
    inside_remove(limiter, calls);
    return WEIR_ECLOSED;
}

/* The same, for calls that wait only if the backend can block. */
static inline int inside_enter(struct weir *limiter, uint64_t calls)
{
    return limiter->can_block ? inside_add(limiter, calls) : WEIR_OK;
}

static inline void inside_leave(struct weir *limiter, uint64_t calls)
{
    if (limiter->can_block)
        inside_remove(limiter, calls);
}

#endif
