/* acquire.h - submitted requests that wait for permits. */
#ifndef CORE_API_ACQUIRE_H
#define CORE_API_ACQUIRE_H

#include "core/api/errands.h"

/* Begin a WEIR_OP_ACQUIRE that has been checked. Returns as weir_submit(). */
int acquire_submit(struct weir *limiter, struct weir_op *op);

/* Permits of a key have come back by a refund or a reset: let the first of its line ask again. `limit` may be an
 * override. */
void acquire_freed_permits(struct weir_limit *limit, struct weir_key key, uint64_t hash);

/* Let the first of each line ask again: policies have changed, or permits of some key have come back. */
void acquire_freed_all(struct weir *limiter);

/* True if any caller waits for any key. */
static inline bool acquire_awaits(const struct weir *limiter)
{
    return atomic_load_explicit(&limiter->errands->lines.count, memory_order_seq_cst) > 0;
}

/* Do acquire_freed_permits() if it may do anything. */
static inline void acquire_freed(struct weir_limit *limit, struct weir_key key, uint64_t hash)
{
    if (acquire_awaits(limit->limiter))
        acquire_freed_permits(limit, key, hash);
}

/* Wake a waiter that sleeps, because the limiter is closing. */
void acquire_wake(struct line_waiter *waiter);

#endif
