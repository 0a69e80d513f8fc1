/* algorithm.c - finds the algorithm of a plan. */
#include "core/algorithm/algorithm.h"

#include "core/algorithm/sliding_window.h"
#include "core/ground/arith.h"

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
    [WEIR_TOKEN_BUCKET] = FUNCTIONS_OF(token_bucket),
    [WEIR_FIXED_WINDOW] = FUNCTIONS_OF(fixed_window),
    [WEIR_SLIDING_WINDOW] = FUNCTIONS_OF(sliding_window),
    [WEIR_LEAKY_BUCKET] = FUNCTIONS_OF(leaky_bucket),
};

static const struct algorithm *algorithm_of(const struct weir_plan *plan)
{
    return plan->refill == WEIR_INTERVAL ? &interval_bucket : &algorithms[plan->algorithm];
}

size_t state_words(const struct weir_plan *plan)
{
    return plan->algorithm == WEIR_SLIDING_WINDOW ? sliding_window_words(plan->blocks) : 2;
}

void state_charge(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used)
{
    algorithm_of(plan)->charge(plan, state, now_us, used);
}

int64_t state_used(const struct weir_plan *plan, const int64_t *state, int64_t *now_us)
{
    return algorithm_of(plan)->used(plan, state, now_us);
}

int64_t state_fresh_at_us(const struct weir_plan *plan, const int64_t *state)
{
    return algorithm_of(plan)->fresh_at_us(plan, state);
}

bool state_take_ahead(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost, int64_t ahead,
                      uint32_t spread, struct weir_decision *out)
{
    assert(cost >= 0 && ahead > 0 && spread > 0);
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
    if (granted == 0)
        return changed;
    const int64_t delay_us = out->delay_us;
    state_decide(plan, state, now_us, granted, WEIR_TAKE, out);
    if (cost > 0)
        out->delay_us = delay_us;
    out->ahead = granted;
    return true;
}
