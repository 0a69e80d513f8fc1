/* token_bucket.c - token bucket with greedy refill.
 *
 * `limit` permits per period return continuously, up to `burst` in total; up to `debt` more may be overdrawn: size is
 * the sum of both. The bucket is kept upside down, as units in use that drain as permits return; level.h has the
 * arithmetic. In any interval of length T at most size + rate*T permits are admitted (Turner, "New directions in
 * communications", 1986; as a virtual scheduler: ITU-T I.371, GCRA).
 *
 * State: v, ts (level.h). The decision is in token_bucket.h, inline, because most limits are token buckets.
 */
#include "core/algorithm/algorithm.h"

void token_bucket_charge(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used)
{
    state[0] = min_of(used, plan->size) * plan->q;
    state[1] = div_down(now_us, plan->tick_us);
}

int64_t token_bucket_used(const struct weir_plan *plan, const int64_t *state, int64_t *now_us)
{
    struct level level = level_read(plan, state, *now_us);
    *now_us = max_of(*now_us, level.tick * plan->tick_us);
    return div_up(level.used, plan->q);
}

int64_t token_bucket_fresh_at_us(const struct weir_plan *plan, const int64_t *state)
{
    const struct level level = { .used = state[0], .tick = state[1] };
    return level.used > 0 ? level_wait_us(plan, &level, level.used, 0) : 0;
}
