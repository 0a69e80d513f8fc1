/* inside.h - who is inside a limiter and may be waiting there, so that weir_close() can wait until the last is out.
 *
 * One word counts the calls, and the submitted requests that wait for their answer; its top bit says that the limiter
 * is being closed. Whoever leaves before that bit is set touches the limiter no more. Who leaves later does so under
 * wait_mutex, where weir_close() looks. Where the backend cannot block, weir_acquire() alone is counted, and others pay a
 * look at a constant.
 */
#ifndef CORE_INSIDE_H
#define CORE_INSIDE_H

#include "core/limiter.h"

#define INSIDE_SHUT (UINT64_C(1) << 63)

/* Out of line: leave a limiter that is being closed. */
void inside_leave_shut(struct weir *limiter, uint64_t calls);

static inline void inside_remove(struct weir *limiter, uint64_t calls)
{
    uint64_t inside = atomic_load_explicit(&limiter->inside, memory_order_relaxed);
    while (!(inside & INSIDE_SHUT))
        if (atomic_compare_exchange_weak_explicit(&limiter->inside, &inside, inside - calls, memory_order_release,
                                                  memory_order_relaxed))
            return;
    inside_leave_shut(limiter, calls);
}

/* WEIR_OK: `calls` more are inside until as many are removed. WEIR_ECLOSED: none is, and the limiter may be gone. */
static inline int inside_add(struct weir *limiter, uint64_t calls)
{
    if (!(atomic_fetch_add(&limiter->inside, calls) & INSIDE_SHUT))
        return WEIR_OK;
    inside_leave_shut(limiter, calls);
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

/* From here on nobody enters. */
static inline void inside_shut(struct weir *limiter)
{
    atomic_fetch_or(&limiter->inside, INSIDE_SHUT);
}

static inline uint64_t inside_count(struct weir *limiter)
{
    return atomic_load(&limiter->inside) & ~INSIDE_SHUT;
}

#endif
