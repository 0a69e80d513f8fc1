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

int64_t origin_return(struct origin *origin, int64_t cost, int64_t *since_us)
{
    if (*since_us >= origin->made_us)
        return cost;
    if (*since_us < origin->edge_us && origin->rate_us == 0) {
        cost = 0;
    } else if (*since_us < origin->edge_us) {
        const int64_t ago_us = origin->edge_us - *since_us;
        const int64_t whole = min_of(mul_capped(ago_us / origin->rate_us, origin->rate), EXACT_MAX);
        const int64_t drained = whole + div_up(ago_us % origin->rate_us * origin->rate, origin->rate_us);
        cost = max_of(0, cost - drained);
    }
    const int64_t part = min_of(cost, origin->rest), before = min_of(origin->rest, origin->held);
    origin->rest -= part;
    *since_us = max_of(*since_us, origin->from_us);
    return before - min_of(origin->rest, origin->held);
}
