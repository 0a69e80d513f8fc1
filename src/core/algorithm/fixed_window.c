/* fixed_window.c - `limit` permits per window.
 *
 * A window opens with the first admitted request of a key, or lies on the grid of the epoch (grid.h). A window that has
 * ended is forgotten. Up to twice the limit can pass within one period around the boundary of two windows; the sliding
 * window prevents that.
 *
 *     allowed = w + cost <= limit
 *
 * State: w = permits in use, start of the window in us.
 */
#include "core/algorithm/algorithm.h"
#include "core/algorithm/grid.h"
#include "core/algorithm/top.h"

struct window {
    int64_t used, start_us, end_us;
    bool rebased;
};

static struct window window_read(const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    struct window window = { .used = state[0], .start_us = state[1], .rebased = false };
    if (window.used > 0 && window.start_us - now_us > WEIR_CLOCK_SLACK_US) {
        window.start_us = now_us;
        window.rebased = true;
    } else if (window.used == 0 || now_us >= grid_end_us(plan, window.start_us)) {
        window.used = 0;
        window.start_us = grid_start_us(plan, now_us);
    }
    window.end_us = grid_end_us(plan, window.start_us);
    return window;
}

void fixed_window_charge(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used)
{
    state[0] = min_of(used, plan->size);
    state[1] = grid_start_us(plan, now_us);
}

int64_t fixed_window_used(const struct weir_plan *plan, const int64_t *state, int64_t *now_us)
{
    struct window window = window_read(plan, state, *now_us);
    *now_us = max_of(*now_us, window.start_us);
    return window.used;
}

int64_t fixed_window_fresh_at_us(const struct weir_plan *plan, const int64_t *state)
{
    return state[0] > 0 ? grid_end_us(plan, state[1]) : 0;
}

bool fixed_window_decide(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost,
                         enum weir_verb verb, struct weir_decision *out)
{
    struct window window = window_read(plan, state, now_us);
    int64_t left_us = window.end_us - now_us;
    const int64_t fits = verb == WEIR_CHARGE ? min_of(cost, state_top(plan) - window.used) : cost;
    bool allowed = verb == WEIR_REFUND || verb == WEIR_CHARGE || window.used + cost <= plan->size;

    if (verb == WEIR_CHARGE || (verb == WEIR_TAKE && allowed))
        window.used += fits;
    else if (verb == WEIR_REFUND)
        window.used = max_of(0, window.used - cost);

    bool changed = verb != WEIR_PEEK && (allowed || window.rebased);
    if (changed) {
        state[0] = window.used;
        state[1] = window.start_us;
    }
    *out = (struct weir_decision){
        .allowed = allowed,
        .limit = plan->size,
        .remaining = max_of(0, plan->size - window.used),
        .retry_after_us = allowed             ? 0
                          : cost > plan->size ? WEIR_NEVER
                                              : left_us,
        .reset_after_us = window.used > 0 ? left_us : 0,
        .ahead = cost - fits,
    };
    return changed;
}
