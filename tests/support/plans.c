/* plans.c - plans by chance: see plans.h. */
#include "plans.h"

#include "core/ground/arith.h"
#include "core/policy/plan.h"

static struct weir_policy friendly_policy(struct chance *chance, enum kind kind)
{
    struct weir_policy policy = policy_by_chance(chance, kind);
    policy.limit = chance_between(chance, 1, 20);
    policy.period_us = chance_between(chance, 1, 40) * (chance_one_in(chance, 2) ? WEIR_SECOND : 25000);
    policy.burst = policy.burst > 0 ? chance_between(chance, 1, 30) : 0;
    policy.debt = policy.debt > 0 ? chance_between(chance, 1, 10) : 0;
    policy.capacity = policy.capacity > 0 ? chance_between(chance, 1, 30) : 0;
    policy.blocks = policy.blocks > 60 && !chance_one_in(chance, 10) ? 10 : policy.blocks;
    return policy;
}

struct weir_plan plan_by_chance(struct chance *chance, int kind)
{
    const struct message none = { NULL, 0 };
    for (;;) {
        const struct weir_policy policy = chance_one_in(chance, 2) ? friendly_policy(chance, (enum kind)kind)
                                                                   : policy_by_chance(chance, (enum kind)kind);
        struct weir_plan plan;
        if (plan_make(&policy, &share_whole, &plan, none) == WEIR_OK)
            return plan;
    }
}

int64_t plan_fill_us(const struct weir_plan *plan, int64_t used)
{
    const int64_t most = used > plan->size ? used : plan->size;
    if (plan->p > 0) {
        const int64_t drains = mul_capped(WEIR_MAX_FILL_US / plan->tick_us, plan->p);
        return div_up(min_of(most * plan->q, min_of(drains, EXACT_MAX)), plan->p) * plan->tick_us;
    }
    if (plan->refill == WEIR_INTERVAL)
        return div_up(most, plan->limit) * plan->period_us;
    return plan->period_us * (plan->blocks + 1);
}
