/* budget.h - the bytes that a backend may hold, counted before they are allocated. */
#ifndef BACKENDS_SHARED_BUDGET_H
#define BACKENDS_SHARED_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct budget {
    _Atomic int64_t used; /* relaxed: a bounded sum that orders nothing */
    int64_t max;          /* constant */
};

static inline int64_t budget_used(const struct budget *budget)
{
    return atomic_load_explicit(&budget->used, memory_order_relaxed);
}

static inline bool budget_has(const struct budget *budget, int64_t bytes)
{
    return bytes <= budget->max - budget_used(budget);
}

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

/* Take bytes even beyond the budget, where refusing would lose a key's state. */
static inline void budget_overdraw(struct budget *budget, int64_t bytes)
{
    atomic_fetch_add_explicit(&budget->used, bytes, memory_order_relaxed);
}

static inline void budget_give(struct budget *budget, int64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

#endif
