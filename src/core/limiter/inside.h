/* inside.h - counts the calls inside a limiter, so that weir_close() can wait until the last one has left.
 *
 * Each thread counts in its stripe, as in stats.h, with a plain load and store: a decision that needs no call to Redis
 * must not pay for a locked instruction or for another thread's cache line. A call, or a submitted request that waits
 * for its answer, may leave on another thread than it entered; only the sum over all stripes is meaningful.
 *
 * A thread that enters counts itself first and then checks whether the limiter is being closed. weir_close() sets the
 * flag first and then counts. For one of them to see the other there must be a barrier between the two steps on both
 * sides; weir_close() provides both if it can (fence.h). weir_close() waits for each call that is counted; a thread
 * that sees the flag leaves immediately. Removing itself from the count is the last access of a thread to the limiter.
 *
 * If the backend cannot block, only weir_acquire() is counted, and the other calls pay for one load of a constant.
 */
#ifndef CORE_LIMITER_INSIDE_H
#define CORE_LIMITER_INSIDE_H

#include "core/limiter/limiter.h"

/* Reset the count: when the limiter is made, and in the child of a fork, whose only thread is not inside. */
void inside_init(struct weir *limiter);

/* Let no further call enter. */
void inside_shut(struct weir *limiter);

/* Return the count; while calls enter and leave, a count that was true at some moment. */
uint64_t inside_sum(struct weir *limiter);

/* After inside_shut(): wait until all calls have left. */
void inside_await_none(struct weir *limiter);

static inline void inside_count(struct weir *limiter, uint64_t calls)
{
    const unsigned stripe = stats_stripe();
    _Atomic uint64_t *inside = &limiter->stats.stripes[stripe].inside;
    if (stripe == STATS_SHARED_STRIPE || limiter->inside.needs_fences)
        atomic_fetch_add(inside, calls);
    else /* acquire: weir_close() sees through this thread what the stripe's former owner did */
        atomic_store_explicit(inside, atomic_load_explicit(inside, memory_order_acquire) + calls, memory_order_release);
}

/* Remove calls from the count. The limiter may be freed right after this. */
static inline void inside_remove(struct weir *limiter, uint64_t calls)
{
    inside_count(limiter, -calls);
}

/* Enter. WEIR_OK: `calls` more are inside, until they are removed. WEIR_ECLOSED: none is, and the limiter may be freed.
 */
static inline int inside_add(struct weir *limiter, uint64_t calls)
{
    inside_count(limiter, calls);
    atomic_signal_fence(memory_order_seq_cst); /* orders the compiler; weir_close() orders the processors */
    if (!atomic_load(&limiter->inside.is_shut))
        return WEIR_OK;
    inside_remove(limiter, calls);
    return WEIR_ECLOSED;
}

/* Enter, for a call that waits only if the backend can block. */
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
