/* leaky_bucket.c - leaky bucket as a queue.
 *
 * The mirror image of the token bucket: admitted requests wait in a queue of `capacity` permits that drains `limit` per
 * period, evenly. level.h has the arithmetic. The decision says how long the permits before this request take to drain
 * (delay_us); the caller sleeps, schedules or queues for that time.
 *
 * State: v, ts (level.h).
 */
#include "core/algorithm/algorithm.h"

void leaky_bucket_charge(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used)
{
    token_bucket_charge(plan, state, now_us, used);
}

int64_t leaky_bucket_used(const struct weir_plan *plan, const int64_t *state, int64_t *now_us)
{
    return token_bucket_used(plan, state, now_us);
}

int64_t leaky_bucket_fresh_at_us(const struct weir_plan *plan, const int64_t *state)
{
    return token_bucket_fresh_at_us(plan, state);
}

bool leaky_bucket_decide(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost,
                         enum weir_verb verb, struct weir_decision *out)
{
    struct level level = level_read(plan, state, now_us);
    int64_t delay_us = level.used > 0 ? level_wait_us(plan, &level, level.used, now_us) : 0;
    bool changed = level_decide(plan, &level, state, now_us, cost, verb, out);
    if (out->allowed && verb <= WEIR_PEEK)
        out->delay_us = delay_us;
    return changed;
}
