/* origin.c - what of earlier permits is in a state that was made from one under another plan: see origin.h. */
#include "core/algorithm/origin.h"

#include "core/ground/arith.h"

bool origin_is_sound(const int64_t words[ORIGIN_WORDS])
{
    for (size_t i = 0; i < ORIGIN_WORDS; i++)
        if (words[i] < 0 || words[i] > EXACT_MAX)
            return false;
    return true;
}

/* A bucket drains fractions of a permit. Those of a former bucket that are left of a return's last permit are told to
 * the new one as time: the permit counts as charged so much earlier. If the product is not exact, they are rounded up to
 * 1/ORIGIN_PARTS permit. */
#define ORIGIN_PARTS 128
#define ORIGIN_MOST_US (INT64_C(1) << 46) /* ORIGIN_PARTS times this is exact */

int64_t origin_return(struct origin *origin, const struct weir_plan *plan, int64_t cost, int64_t *since_us)
{
    int64_t earlier_us = 0;
    if (*since_us >= origin->made_us)
        return cost;
    if (*since_us < origin->edge_us && origin->rate_us == 0) {
        cost = 0;
    } else if (*since_us < origin->edge_us) {
        const int64_t ago_us = origin->edge_us - *since_us;
        const int64_t rest = ago_us % origin->rate_us * origin->rate, part = rest % origin->rate_us;
        const int64_t permit_us = plan->p > 0 ? div_up(plan->q * plan->tick_us, plan->p) : 0;
        int64_t drained = min_of(mul_capped(ago_us / origin->rate_us, origin->rate), EXACT_MAX) +
                          rest / origin->rate_us;
        if (plan->p > 0 && mul_capped(part, permit_us) <= EXACT_MAX)
            earlier_us = div_up(part * permit_us, origin->rate_us);
        else if (plan->p > 0 && origin->rate_us <= ORIGIN_MOST_US && permit_us <= ORIGIN_MOST_US)
            earlier_us = div_up(div_up(part * ORIGIN_PARTS, origin->rate_us) * permit_us, ORIGIN_PARTS);
        else
            drained += part > 0;
        cost = max_of(0, cost - drained);
    }
    const int64_t part = min_of(cost, origin->rest), before = min_of(origin->rest, origin->held);
    origin->rest -= part;
    *since_us = max_of(0, max_of(*since_us, origin->from_us) - earlier_us);
    return before - min_of(origin->rest, origin->held);
}
