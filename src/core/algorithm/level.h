/* level.h - the level that token buckets and leaky buckets share: units in use that drain by p every tick.
 *
 *     n = floor(now / tick)                       the tick of now
 *     v = max(0, v - (n - ts) * p)                units in use, from the state's v at tick ts
 *     allowed = v + cost*q <= size*q              a permit is q units
 *
 * State: v, ts. Every product is below 2^53 (plan.c), except (n - ts) * p; if that is larger, v is 0.
 */
#ifndef CORE_ALGORITHM_LEVEL_H
#define CORE_ALGORITHM_LEVEL_H

#include "core/algorithm/top.h"

#include <weir/backend.h>

struct level {
    int64_t used; /* v, units */
    int64_t tick; /* n, or the anchor while a clock that stepped back is held */
    bool changed; /* the state must be written; true after the read if its anchor must move back to now */
};

static inline struct level level_read(const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    struct level level = { .used = state[0], .tick = div_down(now_us, plan->tick_us), .changed = false };
    if (level.used == 0)
        return level;
    const int64_t anchor_tick = state[1];
    if (anchor_tick * plan->tick_us - now_us > WEIR_CLOCK_SLACK_US) {
        level.changed = true;
        return level;
    }
    level.tick = max_of(level.tick, anchor_tick); /* at the anchor while a clock that stepped back is held */
    level.used -= min_of(level.used, mul_capped(level.tick - anchor_tick, plan->p));
    return level;
}

/* Numbers computed once for a plan: the reciprocals of p and q, and the size in units. */
struct level_known {
    uint64_t p_factor, q_factor; /* of a struct inverse, ... */
    uint32_t p_shift, q_shift;   /* ... whose halves are apart to save room */
    int64_t top;
};

static inline struct level_known level_known_of(const struct weir_plan *plan)
{
    const struct inverse p = inverse_of(plan->p), q = inverse_of(plan->q);
    return (struct level_known){ p.factor, q.factor, p.shift, q.shift, plan->size * plan->q };
}

/* Return the time from now until `units` of a level have drained. `known` may be a constant NULL. */
__attribute__((always_inline)) static inline int64_t level_wait_by(const struct weir_plan *plan,
                                                                   const struct level_known *known,
                                                                   const struct level *level, int64_t units,
                                                                   int64_t now_us)
{
    const int64_t ticks = known && plan->p != 1 /* most rates divide their period */
                              ? div_down_by(units + (plan->p - 1), (struct inverse){ known->p_factor, known->p_shift })
                              : div_up(units, plan->p);
    return (ticks + level->tick) * plan->tick_us - now_us;
}

static inline int64_t level_wait_us(const struct weir_plan *plan, const struct level *level, int64_t units,
                                    int64_t now_us)
{
    return level_wait_by(plan, NULL, level, units, now_us);
}

/* Return `known`, and say that it is not NULL: by -fno-delete-null-pointer-checks the compiler would check. */
__attribute__((always_inline)) static inline const struct level_known *level_given(const struct level_known *known)
{
    assume(known != NULL);
    return known;
}

static inline int64_t level_top(const struct weir_plan *plan, const struct level_known *known)
{
    return known ? known->top : plan->size * plan->q;
}

/* Take, peek or refund at a level just read, and update it. Return true if allowed. `known` may be a constant NULL. */
__attribute__((always_inline)) static inline bool level_ask(const struct weir_plan *plan,
                                                            const struct level_known *known, struct level *level,
                                                            int64_t cost, enum weir_verb verb)
{
    const bool fits = cost <= plan->size;
    if (verb == WEIR_REFUND) {
        level->used = max_of(0, level->used - mul_capped(cost, plan->q));
        level->changed = true;
        return true;
    }
    const bool allowed = fits && level->used + cost * plan->q <= level_top(plan, known);
    if (verb == WEIR_PEEK) {
        level->changed = false;
    } else if (allowed) {
        level->used += cost * plan->q;
        level->changed = true;
    }
    return allowed;
}

/* Give those of `cost` permits, charged at `since_us` and not used, that had not refilled when the state last changed
 * back to it as of then: at most the size. Its tick stays, so neither the time nor a clock that stepped back matters.
 * True to docs/design/semantics.md, "Permits that were charged and never used". */
static inline void level_return(const struct weir_plan *plan, int64_t *state, int64_t since_us, int64_t cost)
{
    const int64_t units = mul_capped(min_of(cost, plan->size), plan->q);
    const int64_t refilled = mul_capped(max_of(0, state[1] - div_down(since_us, plan->tick_us)), plan->p);
    state[0] -= min_of(state[0], units - min_of(units, refilled));
}

static inline void level_write(const struct level *level, int64_t *state)
{
    state[0] = level->used;
    state[1] = level->tick;
}

/* Fill the decision from the level after level_ask(), all but delay_us. The divisions are here: code that holds others
 * up writes the state first. Code that cannot spare them passes `known`, which otherwise is a constant NULL. */
__attribute__((always_inline)) static inline void level_tell_by(const struct weir_plan *plan,
                                                                const struct level_known *known,
                                                                const struct level *level, int64_t now_us, int64_t cost,
                                                                bool allowed, struct weir_decision *out)
{
    const int64_t top = level_top(plan, known);
    int64_t remaining = 0; /* of an overdrawn key */
    if (level->used <= top)
        remaining = known ? div_down_by(top - level->used, (struct inverse){ known->q_factor, known->q_shift })
                          : div_down(top - level->used, plan->q);
    int64_t retry_after_us = 0;
    if (!allowed && cost > plan->size)
        retry_after_us = WEIR_NEVER;
    else if (!allowed)
        retry_after_us = level_wait_by(plan, known, level, level->used - (plan->size - cost) * plan->q, now_us);
    *out = (struct weir_decision){
        .allowed = allowed,
        .limit = plan->size,
        .remaining = remaining,
        .retry_after_us = retry_after_us,
        .reset_after_us = level->used > 0 ? level_wait_by(plan, known, level, level->used, now_us) : 0,
    };
}

static inline void level_tell(const struct weir_plan *plan, const struct level *level, int64_t now_us, int64_t cost,
                              bool allowed, struct weir_decision *out)
{
    level_tell_by(plan, NULL, level, now_us, cost, allowed, out);
}

/* Charge what is not asked for, at a level just read. Return the permits beyond the top, which are not charged. */
static inline int64_t level_charge(const struct weir_plan *plan, struct level *level, int64_t cost)
{
    const int64_t fits = min_of(cost, div_down(state_top(plan) - level->used, plan->q));
    level->used += fits * plan->q;
    level->changed = true;
    return cost - fits;
}

/* Do both on the state that the level was read from. Return true if *state was changed. */
static inline bool level_decide(const struct weir_plan *plan, struct level *level, int64_t *state, int64_t now_us,
                                int64_t cost, enum weir_verb verb, struct weir_decision *out)
{
    const int64_t beyond = verb == WEIR_CHARGE ? level_charge(plan, level, cost) : 0;
    const bool allowed = verb == WEIR_CHARGE || level_ask(plan, NULL, level, cost, verb);
    if (level->changed)
        level_write(level, state);
    level_tell(plan, level, now_us, cost, allowed, out);
    out->ahead = beyond;
    return level->changed;
}

#endif
