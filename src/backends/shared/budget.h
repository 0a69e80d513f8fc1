/* budget.h - how many bytes the memory backend may hold, counted before they are taken. */
#ifndef BACKENDS_SHARED_BUDGET_H
#define BACKENDS_SHARED_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct budget {
    _Atomic int64_t used; /* relaxed: a sum with a bound, it orders nothing */
    int64_t max;          /* constant */
};

static inline bool budget_take(struct budget *budget, int64_t bytes)
{
    int64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    do {
        if (bytes > budget->max - used)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->used, &used, used + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

/* Where not taking would lose a key's state. */
static inline void budget_overdraw(struct budget *budget, int64_t bytes)
{
    atomic_fetch_add_explicit(&budget->used, bytes, memory_order_relaxed);
}

static inline void budget_give(struct budget *budget, int64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

#endif
