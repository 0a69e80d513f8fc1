/* top.h - the most that a state may hold in use. Only a charge for use that has happened goes beyond the limit. */
#ifndef CORE_ALGORITHM_TOP_H
#define CORE_ALGORITHM_TOP_H

#include "core/ground/arith.h"

#include <weir/backend.h>

/* Return it: units of a level, otherwise permits. Levels and refills must drain within WEIR_MAX_FILL_US, so that no
 * time overflows. A sliding window whose limit has 32 bits counts in as many. */
static inline int64_t state_top(const struct weir_plan *plan)
{
    if (plan->p > 0)
        return min_of(EXACT_MAX, mul_capped(WEIR_MAX_FILL_US / plan->tick_us, plan->p));
    if (plan->refill == WEIR_INTERVAL)
        return min_of(EXACT_MAX, mul_capped(WEIR_MAX_FILL_US / plan->period_us, plan->limit));
    return plan->algorithm == WEIR_SLIDING_WINDOW && plan->size <= UINT32_MAX ? UINT32_MAX : EXACT_MAX;
}

#endif
