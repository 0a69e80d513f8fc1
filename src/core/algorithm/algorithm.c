/* algorithm.c - finds the algorithm of a plan. */
#include "core/algorithm/algorithm.h"

#include "core/algorithm/grid.h"
#include "core/algorithm/sliding_window.h"
#include "core/algorithm/top.h"
#include "core/ground/arith.h"

#include <string.h>

struct algorithm {
    void (*charge)(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used);
    int64_t (*used)(const struct weir_plan *plan, const int64_t *state, int64_t *now_us);
    int64_t (*fresh_at_us)(const struct weir_plan *plan, const int64_t *state);
};

#define FUNCTIONS_OF(name)                             \
    {                                                  \
        name##_charge, name##_used, name##_fresh_at_us \
    }

static const struct algorithm interval_bucket = FUNCTIONS_OF(interval_bucket);
static const struct algorithm algorithms[] = {
    [WEIR_TOKEN_BUCKET] = FUNCTIONS_OF(token_bucket),     [WEIR_FIXED_WINDOW] = FUNCTIONS_OF(fixed_window),
    [WEIR_SLIDING_WINDOW] = FUNCTIONS_OF(sliding_window), [WEIR_LEAKY_BUCKET] = FUNCTIONS_OF(leaky_bucket),
    [WEIR_CONCURRENCY] = FUNCTIONS_OF(token_bucket), /* policy/plan.c says why it is one here */
};

static const struct algorithm *algorithm_of(const struct weir_plan *plan)
{
    return plan->refill == WEIR_INTERVAL ? &interval_bucket : &algorithms[plan->algorithm];
}

size_t state_words(const struct weir_plan *plan)
{
    return plan->algorithm == WEIR_SLIDING_WINDOW ? sliding_window_words(plan) : 2 + (size_t)plan->is_local;
}

void state_charge(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used)
{
    algorithm_of(plan)->charge(plan, state, now_us, used);
    if (plan->is_local)
        state[2] = plan->size - min_of(used, plan->size);
}

int64_t state_used(const struct weir_plan *plan, const int64_t *state, int64_t *now_us)
{
    return algorithm_of(plan)->used(plan, state, now_us);
}

int64_t state_fresh_at_us(const struct weir_plan *plan, const int64_t *state)
{
    return algorithm_of(plan)->fresh_at_us(plan, state);
}

int64_t state_drain_us(const struct weir_plan *plan, int64_t used)
{
    const int64_t most = max_of(plan->size, used);
    if (plan->p > 0)
        return div_up(min_of(most * plan->q, state_top(plan)), plan->p) * plan->tick_us;
    if (plan->refill == WEIR_INTERVAL)
        return div_up(most, plan->limit) * plan->period_us;
    return plan->period_us * (plan->blocks + 1);
}

/* Return the greatest common divisor. */
static int64_t divisor_of(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool state_is_convertible(const struct weir_plan *from, const struct weir_plan *to)
{
    if (from->algorithm == WEIR_SLIDING_WINDOW || to->algorithm == WEIR_SLIDING_WINDOW)
        return from->algorithm == to->algorithm && from->blocks == to->blocks && from->period_us == to->period_us &&
               sliding_is_wide(from) == sliding_is_wide(to);
    if (from->p > 0 && to->p > 0)
        return from->tick_us == to->tick_us && mul_capped(from->q / divisor_of(from->q, to->q), to->q) <= EXACT_MAX;
    return from->p == to->p && from->algorithm == to->algorithm && from->refill == to->refill &&
           from->align == to->align && from->period_us == to->period_us;
}

/* Put used units of one plan's level into those of another, rounded up and clipped to its size. */
static void level_convert(const struct weir_plan *from, const struct weir_plan *to, int64_t *used)
{
    const int64_t divisor = divisor_of(from->q, to->q), whole = *used / from->q;
    const int64_t part = div_up(*used % from->q * (to->q / divisor), from->q / divisor);
    *used = whole < to->size ? whole * to->q + part : to->size * to->q;
}

bool state_convert(const struct weir_plan *from, const int64_t *old, const struct weir_plan *to, int64_t now_us,
                   int64_t *state)
{
    struct weir_decision unused;
    if (!state_is_convertible(from, to))
        return false;
    if (from->algorithm == WEIR_SLIDING_WINDOW) {
        sliding_window_convert(from, old, to, now_us, state);
        return true;
    }
    memmove(state, old, 2 * sizeof *state);
    state_decide(from, state, now_us, 0, WEIR_CHARGE, &unused);
    if (from->p > 0)
        level_convert(from, to, &state[0]);
    else
        state[0] = min_of(state[0], to->size);
    return true;
}

void state_fill(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t permits)
{
    struct weir_decision decision;
    if (plan->algorithm == WEIR_SLIDING_WINDOW) {
        sliding_window_fill(plan, state, now_us, permits);
        return;
    }
    state_decide(plan, state, now_us, permits, WEIR_TAKE, &decision);
    if (decision.allowed)
        return;
    state_decide(plan, state, now_us, decision.remaining, WEIR_CHARGE, &decision);
    if (plan->p > 0)
        state[0] = max_of(state[0], plan->size * plan->q);
}

bool state_take_ahead(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost, int64_t ahead,
                      uint32_t spread, struct weir_decision *out)
{
    assert(cost >= 0 && ahead >= 0 && spread > 0);
    /* More than the size: this is denied and changes nothing, except for a rebase that is due. */
    const int64_t none = plan->size + 1;
    bool changed = state_decide(plan, state, now_us, cost > 0 ? cost : none, WEIR_TAKE, out);
    if (cost == 0) {
        out->allowed = true;
        out->retry_after_us = 0;
    } else if (!out->allowed) {
        return changed;
    }
    const int64_t granted = min_of(ahead, div_down(out->remaining, spread));
    out->age_us = now_us;
    if (granted == 0)
        return changed;
    const int64_t delay_us = out->delay_us;
    state_decide(plan, state, now_us, granted, WEIR_TAKE, out);
    if (cost > 0)
        out->delay_us = delay_us;
    out->ahead = granted;
    out->age_us = now_us;
    return true;
}

int64_t state_edge_us(const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    if (plan->algorithm == WEIR_SLIDING_WINDOW)
        return sliding_window_edge_us(plan, state, now_us);
    if (state[1] - now_us > WEIR_CLOCK_SLACK_US)
        return now_us;
    if (plan->algorithm == WEIR_FIXED_WINDOW) /* if it has ended, nothing is in use: any time will do */
        return state[1];
    const int64_t first_us = grid_end_us(plan, state[1]);
    return now_us < first_us ? state[1] : now_us - (now_us - first_us) % plan->period_us;
}

bool state_return(const struct weir_plan *plan, int64_t *state, struct origin *origin, int64_t now_us, int64_t since_us,
                  int64_t cost, struct weir_decision *out)
{
    if (origin)
        cost = origin_return(origin, plan, cost, &since_us);
    cost = min_of(cost, plan->size);
    if (plan->algorithm == WEIR_SLIDING_WINDOW) {
        sliding_window_return(plan, state, now_us, since_us, cost, out);
        return true;
    }
    if (plan->algorithm == WEIR_FIXED_WINDOW || plan->refill == WEIR_INTERVAL) {
        const bool is_gone = since_us < state_edge_us(plan, state, now_us);
        return state_decide(plan, state, now_us, is_gone ? 0 : cost, WEIR_REFUND, out);
    }
    level_return(plan, state, since_us, cost);
    const struct level level = level_read(plan, state, now_us);
    level_tell(plan, &level, now_us, cost, true, out);
    return true;
}

/* Return the permits in use, in units. */
static int64_t units_used(const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    return plan->p > 0 ? level_read(plan, state, now_us).used : state_used(plan, state, &now_us);
}

bool state_renew(const struct weir_plan *plan, int64_t *state, struct origin *origin, int64_t now_us, int64_t since_us,
                 int64_t cost, struct weir_decision *out)
{
    struct origin after = origin ? *origin : (struct origin){ 0 };
    const int64_t unit = plan->p > 0 ? plan->q : 1, before = units_used(plan, state, now_us);
    const size_t size = state_words(plan) * sizeof *state;
    int64_t next[STATE_MAX_WORDS];
    memcpy(next, state, size);
    state_return(plan, next, origin ? &after : NULL, now_us, since_us, cost, out);
    if (cost <= plan->size && units_used(plan, next, now_us) + cost * unit <= max_of(before, plan->size * unit)) {
        state_decide(plan, next, now_us, cost, WEIR_CHARGE, out);
        memcpy(state, next, size);
        if (origin)
            *origin = after;
        return true;
    }
    state_decide(plan, next, now_us, cost, WEIR_PEEK, out);
    const int64_t retry_after_us = out->retry_after_us; /* its own permits need no room */
    const bool changed = state_decide(plan, state, now_us, cost, WEIR_TAKE, out);
    assert(!out->allowed);
    out->retry_after_us = retry_after_us;
    return changed;
}

void origin_look(struct origin *origin, const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    if (state_used(plan, state, &now_us) == 0)
        *origin = (struct origin){ 0 };
}

bool state_decide_request(const struct weir_plan *plan, int64_t *state, struct origin *origin, int64_t now_us,
                          enum weir_verb verb, const struct weir_backend_request *request, struct weir_decision *out)
{
    if (origin)
        origin_look(origin, plan, state, now_us);
    if (verb == WEIR_REFUND && request->ahead > 0)
        return state_return(plan, state, origin, now_us, request->ahead, request->cost, out);
    bool changed;
    if (verb == WEIR_RENEW)
        changed = state_renew(plan, state, origin, now_us, request->ahead, request->cost, out);
    else if (verb == WEIR_TAKE && (request->ahead > 0 || request->cost == 0))
        changed = state_take_ahead(plan, state, now_us, request->cost, request->ahead, request->spread, out);
    else
        changed = state_decide(plan, state, now_us, request->cost, verb, out);
    if ((verb == WEIR_TAKE || verb == WEIR_RENEW) && out->allowed && request->reservation)
        request->reservation->at_us = state_noted_us(plan, state, now_us);
    return changed;
}
