/* lease_rest.h - the permits of a lease that can be given back to Redis. */
#ifndef CORE_ALGORITHM_LEASE_REST_H
#define CORE_ALGORITHM_LEASE_REST_H

#include "core/algorithm/lease.h"
#include "core/ground/arith.h"

#define IDLE_PART 32      /* a lease that was not used for this part of its life is idle, ... */
#define IDLE_SHORT_PART 2 /* ... or for this part, if lives are short compared with the limit's period */

/* True if no request has used the lease for so long that others should have its permits. */
static inline bool lease_is_unused(const struct lease *lease, int64_t now_us)
{
    const bool is_short = is_greedy(&lease->plan) || lease->plan.algorithm == WEIR_SLIDING_WINDOW;
    return now_us - lease->used_us >= lease->life_us / (is_short ? IDLE_SHORT_PART : IDLE_PART);
}

/* Return the time at which a batch would have been asked for that has aged all the time since, and is as old now. */
static inline int64_t lease_aged_since_us(const struct lease *lease, const struct lease_batch *batch, int64_t now_us)
{
    return lease->permit_us > 0 ? batch->end_us - lease->life_us - max_of(0, lease->busy_us - now_us) : batch->asked_us;
}

/* True if permits charged at these times stop counting together. */
static inline bool lease_is_one_block(const struct weir_plan *plan, int64_t a_us, int64_t b_us)
{
    return plan->algorithm != WEIR_SLIDING_WINDOW || div_down(a_us, plan->period_us) == div_down(b_us, plan->period_us);
}

/* Return the rest that permits charged at that time may join, or NULL. A sliding window's join only those of their
 * block: a return for another block would take permits that a holder there is about to renew. */
static inline struct lease_rest *lease_rest_of(struct lease *lease, int64_t charged_us)
{
    struct lease_rest *of = NULL;
    for (int i = 0; i < LEASE_RESTS; i++) {
        struct lease_rest *rest = &lease->rests[i];
        if (rest->left > 0 && lease_is_one_block(&lease->plan, rest->charged_us, charged_us))
            return rest;
        if (rest->left == 0 && !of)
            of = rest;
    }
    return of;
}

/* Add permits to that rest: all count as charged with the oldest, which gives back no permit too many. Where there is
 * none they come back with their block. */
static inline void lease_rest_add(struct lease *lease, int64_t permits, int64_t charged_us)
{
    struct lease_rest *rest = lease_rest_of(lease, charged_us);
    if (!rest)
        return;
    rest->charged_us = rest->left > 0 ? min_of(rest->charged_us, charged_us) : charged_us;
    rest->left += permits;
}

#endif
