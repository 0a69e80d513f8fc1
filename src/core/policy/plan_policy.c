/* plan_policy.c - finds a policy that a person might have chosen for a plan. */
#include "core/ground/arith.h"
#include "core/policy/plan.h"

__extension__ typedef unsigned __int128 wide;

/* Give the policy a rate, and the plan's size. False: weir does not accept that, or the rate is out of range. */
static bool policy_give(const struct weir_plan *plan, wide limit, wide period_us, struct weir_policy *policy)
{
    if (limit > (wide)WEIR_MAX_PERMITS || period_us > (wide)WEIR_MAX_PERIOD_US)
        return false;
    struct weir_policy set = *policy;
    const int64_t size = plan->size == (int64_t)limit ? 0 : plan->size;
    set.limit = (int64_t)limit;
    set.period_us = (int64_t)period_us;
    if (plan->algorithm == WEIR_TOKEN_BUCKET) {
        set.burst = min_of(size, WEIR_MAX_PERMITS);
        set.debt = size - set.burst;
    }
    set.capacity = plan->algorithm == WEIR_LEAKY_BUCKET ? size : 0;
    if (weir_policy_check(&set, NULL, 0) != WEIR_OK)
        return false;
    *policy = set;
    return true;
}

/* Find a period in which a whole number of permits drains: a second, minute, hour or day, best of all the one in which
 * all of the bucket does; else the shortest period that there is. */
static void policy_give_level(const struct weir_plan *plan, struct weir_policy *policy)
{
    static const int64_t periods_us[] = { WEIR_SECOND, WEIR_MINUTE, WEIR_HOUR, WEIR_DAY };
    const wide ticks_us = (wide)plan->q * (wide)plan->tick_us; /* in which p permits drain */
    for (size_t i = 0; i < sizeof periods_us / sizeof *periods_us; i++) {
        const wide units = (wide)plan->p * (wide)periods_us[i], permits = units / ticks_us;
        if (units % ticks_us == 0 && (policy->limit == 0 || permits == (wide)plan->size))
            policy_give(plan, permits, (wide)periods_us[i], policy);
    }
    if (policy->limit == 0)
        policy_give(plan, (wide)plan->p, ticks_us, policy);
}

struct weir_policy plan_policy(const struct weir_plan *plan)
{
    struct weir_policy policy = { .algorithm = (enum weir_algorithm)plan->algorithm,
                                  .refill = (enum weir_refill)plan->refill,
                                  .align = (enum weir_align)plan->align,
                                  .blocks = plan->blocks == POLICY_DEFAULT_BLOCKS ? 0 : plan->blocks };
    const int64_t blocks = plan->algorithm == WEIR_SLIDING_WINDOW ? plan->blocks : 1;
    const int64_t period_us = mul_capped(blocks, plan->period_us);
    /* Blocks are rounded up, so those of the longest period may add up to a little more. */
    const bool is_rounded = period_us > WEIR_MAX_PERIOD_US && period_us - WEIR_MAX_PERIOD_US < blocks;
    if (plan->p > 0)
        policy_give_level(plan, &policy);
    else
        policy_give(plan, (wide)plan->limit, (wide)(is_rounded ? WEIR_MAX_PERIOD_US : period_us), &policy);
    return policy;
}
