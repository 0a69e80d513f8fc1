/* mirror.c - what Redis must hold for a key: see mirror.h. */
#include "mirror.h"

#include "backends/redis_state.h"
#include "core/arith.h"
#include "core/plan.h"
#include "support.h"

static struct weir_policy friendly_policy(struct chance *chance, enum kind kind)
{
    struct weir_policy policy = policy_by_chance(chance, kind);
    policy.limit = chance_between(chance, 1, 20);
    policy.period_us = chance_between(chance, 1, 40) * (chance_one_in(chance, 2) ? WEIR_SECOND : 25000);
    policy.burst = policy.burst > 0 ? chance_between(chance, 1, 30) : 0;
    policy.debt = policy.debt > 0 ? chance_between(chance, 1, 10) : 0;
    policy.capacity = policy.capacity > 0 ? chance_between(chance, 1, 30) : 0;
    policy.blocks = policy.blocks > 60 && !chance_one_in(chance, 10) ? 10 : policy.blocks;
    return policy;
}

struct weir_plan plan_by_chance(struct chance *chance, int kind)
{
    const struct message none = { NULL, 0 };
    for (;;) {
        const struct weir_policy policy = chance_one_in(chance, 2) ? friendly_policy(chance, (enum kind)kind)
                                                                   : policy_by_chance(chance, (enum kind)kind);
        struct weir_plan plan;
        if (plan_make(&policy, &share_whole, &plan, none) == WEIR_OK)
            return plan;
    }
}

int64_t plan_fill_us(const struct weir_plan *plan)
{
    if (plan->p > 0)
        return div_up(plan->size * plan->q, plan->p) * plan->tick_us;
    if (plan->refill == WEIR_INTERVAL)
        return div_up(plan->size, plan->limit) * plan->period_us;
    return plan->period_us * (plan->blocks + 1);
}

static bool is_under(const struct mirror *mirror, const struct weir_plan *plan)
{
    unsigned char stamps[2][REDIS_STAMP_MAX];
    size_t len = redis_stamp_write(&mirror->plan, stamps[0]);
    return redis_stamp_write(plan, stamps[1]) == len && memcmp(stamps[0], stamps[1], len) == 0;
}

bool mirror_found(const struct mirror *mirror, const struct weir_plan *plan, int64_t now_us, int64_t *state)
{
    if (!mirror->stored)
        return false;
    if (is_under(mirror, plan)) {
        memcpy(state, mirror->state, state_words(plan) * sizeof *state);
        return true;
    }
    int64_t at_us = now_us;
    int64_t used = state_used(&mirror->plan, mirror->state, &at_us);
    if (used > 0)
        state_charge(plan, state, at_us, used);
    return used > 0;
}

/* True if it was carried over, perhaps to nothing. */
static bool mirror_carry(struct mirror *mirror, const struct weir_plan *plan, int64_t now_us)
{
    int64_t state[STATE_MAX_WORDS];
    if (!mirror->stored || is_under(mirror, plan))
        return false;
    mirror->stored = mirror_found(mirror, plan, now_us, state);
    if (mirror->stored) {
        mirror->plan = *plan;
        memcpy(mirror->state, state, state_words(plan) * sizeof *state);
    }
    return true;
}

bool mirror_decide(struct mirror *mirror, const struct weir_plan *plan, enum weir_verb verb, int64_t cost,
                   int64_t now_us, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    if (verb == WEIR_PEEK) {
        if (!mirror_found(mirror, plan, now_us, state))
            state_charge(plan, state, now_us, 0);
        state_decide(plan, state, now_us, cost, WEIR_PEEK, out);
        return false;
    }
    bool written = mirror_carry(mirror, plan, now_us);
    if (verb == WEIR_RESET) {
        written = written || mirror->stored;
        mirror->stored = false;
        verb = WEIR_PEEK;
    }
    if (!mirror->stored) {
        state_charge(plan, state, now_us, 0);
        state_decide(plan, state, now_us, cost, verb, out);
        if (verb == WEIR_TAKE && out->allowed) {
            mirror->stored = written = true;
            mirror->plan = *plan;
            memcpy(mirror->state, state, state_words(plan) * sizeof *state);
        }
        return written;
    }
    if (state_decide(plan, mirror->state, now_us, cost, verb, out)) {
        mirror->stored = out->reset_after_us > 0;
        written = true;
    }
    return written;
}

bool mirror_take_ahead(struct mirror *mirror, const struct weir_plan *plan, int64_t cost, int64_t ahead,
                       uint32_t spread, int64_t now_us, struct weir_decision *out)
{
    /* More than it can ever admit: that writes a rebase, if one is due. */
    bool written = mirror_decide(mirror, plan, WEIR_TAKE, cost > 0 ? cost : plan->size + 1, now_us, out);
    if (cost > 0 && !out->allowed)
        return written;
    const int64_t granted = min_of(ahead, out->remaining / spread), delay_us = out->delay_us;
    if (granted > 0 && mirror_decide(mirror, plan, WEIR_TAKE, granted, now_us, out))
        written = true;
    if (cost > 0)
        out->delay_us = delay_us;
    out->allowed = true;
    out->retry_after_us = 0;
    out->ahead = granted;
    return written;
}

bool mirror_try_all(struct mirror *const *mirrors, const struct weir_plan *plans, const int64_t *costs, size_t n,
                    int64_t now_us, bool *written)
{
    struct weir_decision decision;
    bool allowed = true;
    for (size_t i = 0; i < n; i++) {
        written[i] = mirror_carry(mirrors[i], &plans[i], now_us);
        mirror_decide(mirrors[i], &plans[i], WEIR_PEEK, costs[i], now_us, &decision);
        allowed = allowed && decision.allowed;
    }
    for (size_t i = 0; i < n; i++) /* more than it can ever admit: that writes a rebase, if one is due */
        if (mirror_decide(mirrors[i], &plans[i], WEIR_TAKE, allowed ? costs[i] : plans[i].size + 1, now_us, &decision))
            written[i] = true;
    return allowed;
}

void library_decide(const struct weir_plan *plan, int64_t *state, enum weir_verb verb, int64_t cost, int64_t now_us,
                    struct weir_decision *out)
{
    if (verb == WEIR_RESET)
        state_charge(plan, state, now_us, 0);
    state_decide(plan, state, now_us, cost, verb == WEIR_RESET ? WEIR_PEEK : verb, out);
}
