/* lease_rules.c - what the options and a plan alone say: whether there are leases, how large, and the possible excess.
 */
#include "core/algorithm/lease_rules.h"

#include "core/ground/arith.h"

static bool is_greedy(const struct weir_plan *plan)
{
    return plan->algorithm == WEIR_TOKEN_BUCKET && plan->refill == WEIR_GREEDY;
}

/* Return the permits that a greedy bucket regains in one life, rounded up. */
static int64_t life_permits(const struct lease_rules *rules, const struct weir_plan *plan)
{
    const int64_t units = mul_capped(div_up(rules->life_us, plan->tick_us), plan->p);
    return units > INT64_MAX - plan->q ? WEIR_MAX_PERMITS : div_up(units, plan->q);
}

int64_t lease_reserve(const struct lease_rules *rules, const struct weir_plan *plan)
{
    if (rules->life_us == 0 || !rules->strict || !is_greedy(plan))
        return 0;
    const int64_t reserve = life_permits(rules, plan);
    return reserve <= plan->size / 2 ? reserve : 0;
}

bool lease_is_on(const struct lease_rules *rules, const struct weir_plan *plan)
{
    if (rules->life_us == 0 || plan->size < 2 * rules->instances)
        return false;
    return !rules->strict || !is_greedy(plan) || plan->reserve > 0;
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
    if (rules->strict || !is_greedy(plan) || !lease_is_on(rules, plan))
        return 0;
    return min_of(rules->instances * lease_max(rules, plan), life_permits(rules, plan));
}
