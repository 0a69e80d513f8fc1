/* lease_rest.h - the permits of a lease that can be given back to Redis. */
#ifndef CORE_ALGORITHM_LEASE_REST_H
#define CORE_ALGORITHM_LEASE_REST_H

#include "core/algorithm/lease.h"
#include "core/ground/arith.h"

/* True if permits charged at these times stop counting together. */
static inline bool lease_is_one_block(const struct weir_plan *plan, int64_t a_us, int64_t b_us)
{
    return plan->algorithm != WEIR_SLIDING_WINDOW || div_down(a_us, plan->period_us) == div_down(b_us, plan->period_us);
}

/* Add permits, charged at that time, to a rest: those of a sliding window to one of their block. Where there is none,
 * all count as charged with the oldest, which gives back no permit too many. */
static inline void lease_rest_add(struct lease *lease, int64_t permits, int64_t charged_us)
{
    struct lease_rest *rest = lease->rests, *last = &lease->rests[LEASE_RESTS - 1];
    while (rest < last && rest->left > 0 && !lease_is_one_block(&lease->plan, rest->charged_us, charged_us))
        rest++;
    rest->charged_us = rest->left > 0 ? min_of(rest->charged_us, charged_us) : charged_us;
    rest->left += permits;
}

#endif
