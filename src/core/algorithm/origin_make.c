/* origin_make.c - makes the origin of a state: see origin.h. */
#include "core/algorithm/algorithm.h"
#include "core/algorithm/sliding_window.h"
#include "core/ground/arith.h"

#include <string.h>

/* Say which permits were in use at `now_us`: those charged from the edge on, and of earlier ones those that had not
 * drained. A rate whose product with its time is not exact is rounded up. */
static void origin_look_back(const struct weir_plan *plan, const int64_t *state, int64_t now_us, struct origin *origin)
{
    if (plan->p == 0) {
        origin->edge_us = state_edge_us(plan, state, now_us);
        return;
    }
    const int64_t tick = min_of(state[1], level_read(plan, state, now_us).tick);
    origin->edge_us = min_of(tick * plan->tick_us + plan->tick_us - 1, EXACT_MAX); /* earlier time counts in ticks */
    origin->rate = plan->p;
    origin->rate_us = plan->q * plan->tick_us;
    while (mul_capped(origin->rate, origin->rate_us) > EXACT_MAX) {
        origin->rate = div_up(origin->rate, 2);
        origin->rate_us = div_down(origin->rate_us, 2);
    }
}

bool origin_is_needed(const struct written *from, const struct weir_plan *to, int64_t used)
{
    const bool keeps_times = to->p == 0 || (from->plan->p == to->p && from->plan->q == to->q);
    return from->origin || used > to->size || !keeps_times || !state_is_convertible(from->plan, to);
}

struct origin origin_begin(const struct written *from, const struct weir_plan *to, int64_t now_us, int64_t made_us)
{
    const struct weir_plan *plan = from->plan;
    const bool keeps_times = to->p == 0 && state_is_convertible(plan, to);
    struct origin origin = { .made_us = made_us, .from_us = keeps_times ? 0 : made_us };
    struct origin before = { 0 };
    origin.until_us = min_of(made_us + state_drain_us(to, 0), EXACT_MAX);
    origin_look_back(plan, from->state, now_us, &origin);
    if (from->origin)
        memcpy(&before, from->origin, sizeof before);
    if (!from->origin || made_us > before.until_us)
        return origin;
    if (keeps_times)
        origin.from_us = before.from_us;
    if (plan->p == 0 && before.made_us < origin.edge_us)
        return origin;
    origin.rest = max_of(0, before.rest - before.held);
    if (plan->p == 0) {
        origin.edge_us = before.edge_us;
        origin.rate = before.rate;
        origin.rate_us = before.rate_us;
    } else { /* one rate does not describe two plans: what was charged before the last change counts as drained */
        origin.rate = origin.rate_us = 0;
    }
    return origin;
}

void origin_complete(struct origin *origin, const struct weir_plan *from, const struct weir_plan *to,
                     const int64_t *state, int64_t used)
{
    origin->held = min_of(used, to->size);
    if (to->p > 0 &&
        state_is_convertible(from, to)) /* its level has a fraction of a permit, which no return may take */
        origin->held = min_of(origin->held, div_down(state[0], to->q));
    origin->rest += used > to->size ? used : origin->held;
}

bool origin_is_over(const struct origin *origin, const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    return now_us > origin->until_us && (plan->p == 0 || state[1] * plan->tick_us > origin->until_us);
}
