/* interval_bucket.c - token bucket with interval refill.
 *
 * `limit` permits return together every period, up to `burst`; up to `debt` more may be overdrawn: size is their sum.
 * The interval starts when the bucket first leaves full, or lies on the grid of the epoch (grid.h).
 *
 *     first = ts + period (off the grid: the first grid point at or after that)
 *     refills = now < first ? 0 : 1 + floor((now - first) / period);  w = max(0, w - refills * limit)
 *     if refills > 0: ts = first + (refills - 1) * period
 *     if w == 0: ts = the start of an interval at now
 *     allowed = w + cost <= size
 *
 * State: w = permits in use, ts = the last refill in us.
 */
#include "core/algorithm/algorithm.h"
#include "core/algorithm/grid.h"
#include "core/algorithm/top.h"

struct interval {
    int64_t used, start_us;
    bool rebased;
};

static struct interval interval_read(const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    struct interval interval = { .used = state[0], .start_us = state[1], .rebased = false };
    if (interval.used > 0 && now_us < interval.start_us) {
        if (interval.start_us - now_us > WEIR_CLOCK_SLACK_US) {
            interval.start_us = now_us;
            interval.rebased = true;
        }
        return interval;
    }
    const int64_t first_us = grid_end_us(plan, interval.start_us);
    if (interval.used > 0 && now_us >= first_us) {
        const int64_t later = div_down(now_us - first_us, plan->period_us);
        bool full = later + 1 >=
                    div_up(interval.used, plan->limit); /* otherwise the refills give back less than `used` */
        interval.used = full ? 0 : interval.used - (later + 1) * plan->limit;
        interval.start_us = first_us + later * plan->period_us;
    }
    if (interval.used == 0)
        interval.start_us = grid_start_us(plan, now_us);
    return interval;
}

/* Return the time from now until `permits` of those in use have returned. */
static int64_t interval_wait_us(const struct weir_plan *plan, const struct interval *interval, int64_t permits,
                                int64_t now_us)
{
    return grid_end_us(plan, interval->start_us) + (div_up(permits, plan->limit) - 1) * plan->period_us - now_us;
}

void interval_bucket_charge(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used)
{
    state[0] = min_of(used, plan->size);
    state[1] = grid_start_us(plan, now_us);
}

int64_t interval_bucket_used(const struct weir_plan *plan, const int64_t *state, int64_t *now_us)
{
    struct interval interval = interval_read(plan, state, *now_us);
    *now_us = max_of(*now_us, interval.start_us);
    return interval.used;
}

int64_t interval_bucket_fresh_at_us(const struct weir_plan *plan, const int64_t *state)
{
    const struct interval interval = { .used = state[0], .start_us = state[1] };
    return interval.used > 0 ? interval_wait_us(plan, &interval, interval.used, 0) : 0;
}

bool interval_bucket_decide(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost,
                            enum weir_verb verb, struct weir_decision *out)
{
    struct interval interval = interval_read(plan, state, now_us);
    bool allowed = verb == WEIR_REFUND || verb == WEIR_CHARGE || interval.used + cost <= plan->size;
    const int64_t fits = verb == WEIR_CHARGE ? min_of(cost, state_top(plan) - interval.used) : cost;
    int64_t retry_after_us = 0;

    if (cost > plan->size && !allowed)
        retry_after_us = WEIR_NEVER;
    else if (!allowed)
        retry_after_us = interval_wait_us(plan, &interval, interval.used + cost - plan->size, now_us);
    else if (verb == WEIR_TAKE || verb == WEIR_CHARGE)
        interval.used += fits;
    else if (verb == WEIR_REFUND)
        interval.used = max_of(0, interval.used - cost);

    bool changed = verb != WEIR_PEEK && (allowed || interval.rebased);
    if (changed) {
        state[0] = interval.used;
        state[1] = interval.start_us;
    }
    *out = (struct weir_decision){
        .allowed = allowed,
        .limit = plan->size,
        .remaining = max_of(0, plan->size - interval.used),
        .retry_after_us = retry_after_us,
        .reset_after_us = interval.used > 0 ? interval_wait_us(plan, &interval, interval.used, now_us) : 0,
        .ahead = cost - fits,
    };
    return changed;
}
