/* test_reserved_states.c - what settling a reservation does to the states of all algorithms. */
#include "core/algorithm/algorithm.h"
#include "core/ground/arith.h"
#include "plans.h"

#include <string.h>

static struct weir_backend_request take_of(int64_t cost, struct weir_reservation *reservation)
{
    return (struct weir_backend_request){ .cost = cost, .verb = WEIR_TAKE, .reservation = reservation };
}

/* Settle a reservation of `cost` permits for `actual`, at most `cost`. */
static void state_settle(const struct weir_plan *plan, int64_t *state, int64_t now_us,
                         struct weir_reservation *reservation, int64_t cost, int64_t actual)
{
    struct weir_decision decision;
    const struct weir_backend_request request = { .cost = cost - actual,
                                                  .verb = WEIR_REFUND,
                                                  .ahead = reservation->at_us };
    if (actual < cost)
        state_decide_request(plan, state, NULL, now_us, WEIR_REFUND, &request, &decision);
}

/* Charge a state at the time, or, with 0 permits, bring it there. */
static void state_use(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t permits)
{
    struct weir_decision decision;
    state_decide(plan, state, now_us, permits, WEIR_CHARGE, &decision);
}

/* Return what is in use: units of a level, otherwise permits. */
static int64_t state_holds(const struct weir_plan *plan, int64_t *state, int64_t now_us)
{
    if (plan->p == 0)
        return state_used(plan, state, &now_us);
    state_use(plan, state, now_us, 0);
    return state[0];
}

/* With refill once an interval, a bucket may hold more: what has come back since the reservation. */
TEST(a_reservation_settled_for_less_leaves_the_state_of_a_smaller_take, 60)
{
    struct chance chance = chance_make(101);
    int64_t admitted = 0;
    for (int64_t step = 0; step < steps_or(200000); step++) {
        const struct weir_plan plan = plan_by_chance(&chance, (int)(step % KIND_COUNT));
        int64_t reserved[STATE_MAX_WORDS], taken[STATE_MAX_WORDS];
        int64_t now_us = 1000000 * WEIR_SECOND + chance_between(&chance, 0, WEIR_DAY);
        const int64_t fill_us = plan_fill_us(&plan, 0), estimate = chance_between(&chance, 1, plan.size);
        const int64_t actual = chance_between(&chance, 0, estimate);
        struct weir_reservation reservation = { .permits = -1 };
        struct weir_decision decision;
        state_charge(&plan, reserved, now_us, chance_between(&chance, 0, plan.size - estimate));
        now_us += chance_magnitude(&chance, fill_us);
        memcpy(taken, reserved, sizeof taken);
        const struct weir_backend_request request = take_of(estimate, &reservation);
        state_decide_request(&plan, reserved, NULL, now_us, WEIR_TAKE, &request, &decision);
        must(decision.allowed && reservation.at_us > 0, "there is room");
        state_use(&plan, taken, now_us, actual);
        const int64_t unused = estimate - actual;
        const bool by_interval = plan.refill == WEIR_INTERVAL;
        now_us += chance_magnitude(&chance, 2 * fill_us);
        state_settle(&plan, reserved, now_us, &reservation, estimate, actual);
        for (int i = 0; i < 3; i++) {
            const int64_t holds = state_holds(&plan, reserved, now_us), least = state_holds(&plan, taken, now_us);
            const int64_t most = by_interval ? least + unused : least;
            if (holds < least || holds > most)
                ck_abort_msg("step %d: algorithm %d refill %d, %d of %d: %d in use, not %d to %d", (int)step,
                             plan.algorithm, plan.refill, (int)actual, (int)estimate, (int)holds, (int)least,
                             (int)most);
            admitted += least > 0;
            now_us += chance_magnitude(&chance, fill_us);
        }
    }
    must(admitted > steps_or(200000) / 10, "hardly anything was in use: the test says little");
}

/* Its limit was larger when it was reserved. A full bucket has refilled since: the permits in use are later ones. */
TEST(settling_a_reservation_larger_than_the_bucket_returns_no_later_permit, 20)
{
    struct chance chance = chance_make(103);
    for (int step = 0; step < 2000; step++) {
        const struct weir_plan plan = plan_by_chance(&chance, step % KIND_COUNT);
        if (plan.p == 0)
            continue;
        const int64_t now_us = WEIR_MAX_TIME_US, full = plan.size * plan.q;
        const int64_t since_us = now_us - plan_fill_us(&plan, 0) - plan.tick_us;
        int64_t state[2] = { full, now_us / plan.tick_us };
        level_return(&plan, state, since_us, plan.size + chance_between(&chance, 0, WEIR_MAX_PERMITS));
        ck_assert_int_eq(state[0], full);
    }
}

/* `used` permits of a key at a time; a reservation that is not settled yet counts in full. */
struct event {
    int64_t at_us, reserved, used;
    bool is_settled;
    struct weir_reservation reservation;
};

TEST(settling_leaves_at_least_the_used_permits_charged, 60)
{
    enum { EVENTS = 24 };
    struct chance chance = chance_make(102);
    int64_t given = 0;
    for (int64_t step = 0; step < steps_or(20000); step++) {
        const struct weir_plan plan = plan_by_chance(&chance, (int)(step % KIND_COUNT));
        struct event events[EVENTS];
        int64_t state[STATE_MAX_WORDS], used[STATE_MAX_WORDS];
        int64_t now_us = 1000000 * WEIR_SECOND + chance_between(&chance, 0, WEIR_DAY);
        const int64_t fill_us = plan_fill_us(&plan, 0), begin_us = now_us;
        int count = 0;
        state_charge(&plan, state, now_us, 0);
        for (int i = 0; i < EVENTS; i++) {
            struct weir_decision decision;
            struct event event = { .at_us = now_us, .reserved = chance_between(&chance, 1, plan.size) };
            if (!chance_one_in(&chance, 4))
                event.reserved = div_up(event.reserved, 8);
            event.used = event.reserved;
            const struct weir_backend_request request = take_of(event.reserved, &event.reservation);
            state_decide_request(&plan, state, NULL, now_us, WEIR_TAKE, &request, &decision);
            if (decision.allowed)
                events[count++] = event;
            now_us += chance_magnitude(&chance, chance_one_in(&chance, 4) ? fill_us : fill_us / 8 + 1);
            struct event *settled = count > 0 ? &events[chance_between(&chance, 0, count - 1)] : NULL;
            if (!settled || settled->is_settled)
                continue;
            settled->is_settled = true;
            settled->used = chance_between(&chance, 0, settled->reserved);
            const int64_t before = state_holds(&plan, state, now_us);
            state_settle(&plan, state, now_us, &settled->reservation, settled->reserved, settled->used);
            given += state_holds(&plan, state, now_us) < before;
            state_charge(&plan, used, begin_us, 0);
            for (int k = 0; k < count; k++)
                state_use(&plan, used, events[k].at_us, events[k].used);
            /* A window that opens with a request may open at another one here: compare the permits only. */
            if (plan.align == WEIR_ALIGN_EPOCH || (plan.algorithm != WEIR_FIXED_WINDOW && plan.refill != WEIR_INTERVAL))
                must(state_holds(&plan, state, now_us) >= state_holds(&plan, used, now_us),
                     "permits come back that were used");
        }
    }
    must(given > steps_or(20000), "hardly anything came back: the test says little");
}

/* Its time to wait counts from the state without its own permits. */
TEST(a_denied_renewal_leaves_the_state_as_a_denied_take_does, 60)
{
    struct chance chance = chance_make(107);
    int64_t denied = 0, found = 0;
    for (int64_t step = 0; step < steps_or(200000); step++) {
        const struct weir_plan plan = plan_by_chance(&chance, (int)(step % KIND_COUNT));
        int64_t state[STATE_MAX_WORDS], taken[STATE_MAX_WORDS], returned[STATE_MAX_WORDS];
        int64_t now_us = 1000000 * WEIR_SECOND + chance_between(&chance, 0, WEIR_DAY), since_us = now_us;
        const int64_t fill_us = plan_fill_us(&plan, 0), cost = chance_between(&chance, 1, plan.size + 1);
        struct weir_decision out, by_take, later;
        state_charge(&plan, state, now_us, chance_between(&chance, 0, plan.size));
        for (int i = 0; i < 4; i++) {
            now_us += chance_one_in(&chance, 6) ? -3 * WEIR_SECOND : chance_magnitude(&chance, fill_us);
            state_use(&plan, state, now_us, chance_between(&chance, 0, plan.size / 2));
            since_us = chance_one_in(&chance, 3) ? now_us : since_us;
        }
        now_us += chance_one_in(&chance, 6) ? -3 * WEIR_SECOND : chance_magnitude(&chance, fill_us / 4);
        memcpy(taken, state, sizeof taken);
        memcpy(returned, state, sizeof returned);
        const bool changed = state_renew(&plan, state, NULL, now_us, since_us, cost, &out);
        if (out.allowed)
            continue;
        denied++;
        ck_assert_int_eq(changed, state_decide(&plan, taken, now_us, cost, WEIR_TAKE, &by_take));
        ck_assert_mem_eq(state, taken, state_words(&plan) * sizeof *state);
        ck_assert(by_take.remaining == out.remaining && by_take.reset_after_us == out.reset_after_us);
        ck_assert_int_eq(out.retry_after_us == WEIR_NEVER, cost > plan.size);
        state_return(&plan, returned, NULL, now_us, since_us, cost, &later);
        found += later.remaining > out.remaining;
        const bool is_steady = !changed && since_us <= now_us; /* otherwise a later return may find more */
        for (int64_t early_us = 1; is_steady && cost <= plan.size && early_us >= 0; early_us--) {
            memcpy(taken, state, sizeof taken);
            state_renew(&plan, taken, NULL, now_us + out.retry_after_us - early_us, since_us, cost, &later);
            ck_assert_int_eq(later.allowed, early_us == 0);
        }
    }
    must(denied > steps_or(200000) / 10 && found > steps_or(200000) / 1000, "hardly any denial: the test says little");
}
