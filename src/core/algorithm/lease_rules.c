/* lease_rules.c - what the options and a plan alone say: whether there are leases, how large, for how long, and the
 * possible excess. */
#include "core/algorithm/lease_rules.h"

#include "core/ground/arith.h"

#define LIFE_MIN_US 1000 /* shorter leases are of no use: a round trip takes a good part of it */

static int64_t life_us(const struct lease_rules *rules, const struct weir_plan *plan)
{
    const int64_t units = (plan->size + plan->reserve) * plan->q; /* below 2^53 */
    int64_t natural_us = plan->period_us;
    if (plan->algorithm == WEIR_CONCURRENCY) /* slots are not leased */
        return 0;
    if (is_greedy(plan))
        natural_us = units * rules->excess / 100 / plan->p * plan->tick_us;
    else if (plan->algorithm == WEIR_LEAKY_BUCKET)
        natural_us = div_up(units, plan->p) * plan->tick_us;
    return min_of(rules->life_us, natural_us);
}

/* Return the permits that a greedy bucket regains in one life, rounded up. */
static int64_t life_permits(const struct lease_rules *rules, const struct weir_plan *plan)
{
    return div_up(mul_capped(div_up(life_us(rules, plan), plan->tick_us), plan->p), plan->q);
}

int64_t lease_reserve(const struct lease_rules *rules, const struct weir_plan *plan)
{
    if (!rules->strict || !is_greedy(plan) || life_us(rules, plan) < LIFE_MIN_US)
        return 0;
    const int64_t reserve = life_permits(rules, plan);
    return reserve <= plan->size / 2 ? reserve : 0;
}

int64_t lease_life_us(const struct lease_rules *rules, const struct weir_plan *plan)
{
    const int64_t life = life_us(rules, plan);
    return life < LIFE_MIN_US || (rules->strict && is_greedy(plan) && plan->reserve == 0) ? 0 : life;
}

bool lease_is_on(const struct lease_rules *rules, const struct weir_plan *plan)
{
    return lease_life_us(rules, plan) > 0 && plan->size >= 2 * rules->instances;
}

int64_t lease_max(const struct lease_rules *rules, const struct weir_plan *plan)
{
    if (!lease_is_on(rules, plan))
        return 0;
    return min_of(rules->max,
                  2 * (plan->size / (2 * rules->instances))); /* two grants, each at most its part of what remains */
}

int64_t lease_over_max(const struct lease_rules *rules, const struct weir_plan *plan)
{
    return !rules->strict && is_greedy(plan) && lease_is_on(rules, plan) ? life_permits(rules, plan) : 0;
}
