/* test_clock_back.c - clocks that step back by more than the slack admit nothing that the policy forbids.
 *
 * Real time only moves forward. The clock that decides shows real time, less all steps back so far.
 */
#include "core/algorithm/algorithm.h"
#include "core/policy/plan.h"
#include "support.h"

#include <string.h>

enum { READINGS = 120 };

/* One reading of the clock, and the permits admitted at it. */
struct reading {
    int64_t real_us, clock_us, admitted;
};

static struct weir_plan plan_of_text(const char *text)
{
    const struct weir_policy policy = policy_of(text);
    struct weir_plan plan;
    must_succeed(plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }));
    return plan;
}

/* Fill a history: costs by chance, pauses up to `pause_us`, and every eighth time or so a step back up to `back_us`. */
static void history_by_chance(const struct weir_plan *plan, struct chance *chance, int64_t pause_us, int64_t back_us,
                              struct reading *readings)
{
    int64_t state[STATE_MAX_WORDS], real_us = INT64_C(1790000000000000), behind_us = 0;
    struct weir_decision out;
    real_us += chance_between(chance, 0, WEIR_DAY);
    state_charge(plan, state, real_us, 0);
    for (int i = 0; i < READINGS; i++) {
        const int64_t cost = chance_between(chance, 1, plan->size);
        real_us += chance_one_in(chance, 2) ? chance_between(chance, 0, pause_us) : chance_magnitude(chance, pause_us);
        behind_us += chance_one_in(chance, 8) ? chance_between(chance, 1, back_us) : 0;
        readings[i] = (struct reading){ .real_us = real_us, .clock_us = real_us - behind_us };
        state_decide(plan, state, readings[i].clock_us, cost, WEIR_TAKE, &out);
        readings[i].admitted = out.allowed ? cost : 0;
    }
}

static int64_t admitted_from(const struct reading *readings, int first, int last)
{
    int64_t sum = 0;
    for (int i = first; i <= last; i++)
        sum += readings[i].admitted;
    return sum;
}

/* The distinct windows of the epoch grid that readings[first..last] fall into. */
static int64_t windows_from(const struct reading *readings, int first, int last, int64_t period_us)
{
    int64_t distinct = 0;
    for (int i = first; i <= last; i++) {
        int64_t seen = first;
        while (readings[seen].clock_us / period_us != readings[i].clock_us / period_us)
            seen++;
        distinct += seen == i;
    }
    return distinct;
}

/* As long as the steps back of a history sum up to less than a period, which they do here. */
TEST(any_stretch_admits_the_limit_once_for_each_grid_window_that_the_clock_visits, 60)
{
    static const char *const policies[] = { "fixed_window limit=10 period=5m align=epoch",
                                            "token_bucket limit=10 period=5m refill=interval align=epoch" };
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        const struct weir_plan plan = plan_of_text(policies[p]);
        struct chance chance = chance_make(5000000 + p);
        for (int history = 0; history < 2000; history++) {
            struct reading readings[READINGS];
            history_by_chance(&plan, &chance, 20 * WEIR_SECOND, 5 * WEIR_SECOND, readings);
            for (int first = 0; first < READINGS; first += 7)
                for (int last = first; last < READINGS; last += 5)
                    ck_assert_msg(admitted_from(readings, first, last) <=
                                      plan.size * windows_from(readings, first, last, plan.period_us),
                                  "%s, history %d: %d to %d", policies[p], history, first, last);
        }
    }
}

/* However far it steps back: as with a steady clock, a stretch of real time meets one window more than it has begun. */
TEST(any_real_stretch_admits_no_more_windows_than_a_steady_clock_would, 60)
{
    static const char *const policies[] = { "fixed_window limit=10 period=10s align=epoch",
                                            "token_bucket limit=10 period=10s refill=interval align=epoch",
                                            "fixed_window limit=10 period=3s align=epoch",
                                            "token_bucket limit=10 period=1s refill=interval align=epoch" };
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        const struct weir_plan plan = plan_of_text(policies[p]);
        struct chance chance = chance_make(7000000 + p);
        for (int history = 0; history < 1000; history++) {
            struct reading readings[READINGS];
            history_by_chance(&plan, &chance, WEIR_SECOND, 5 * WEIR_SECOND, readings);
            for (int first = 0; first < READINGS; first += 7)
                for (int last = first; last < READINGS; last += 5) {
                    const int64_t lasts_us = readings[last].real_us - readings[first].real_us;
                    ck_assert_msg(admitted_from(readings, first, last) <= plan.size * (lasts_us / plan.period_us + 2),
                                  "%s, history %d: %d to %d", policies[p], history, first, last);
                }
        }
    }
}

TEST(twenty_steps_back_over_the_hour_admit_one_hour_of_permits, 10)
{
    const struct weir_plan plan = plan_of_text("fixed_window limit=10 period=1h align=epoch");
    const int64_t hour_us = INT64_C(497222) * WEIR_HOUR;
    int64_t state[STATE_MAX_WORDS], admitted = 0;
    struct weir_decision out;
    state_charge(&plan, state, hour_us, 0);
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < 20; i++, admitted += out.allowed)
            state_decide(&plan, state, hour_us + WEIR_SECOND, 1, WEIR_TAKE, &out);
        for (int i = 0; i < 20; i++, admitted += out.allowed)
            state_decide(&plan, state, hour_us - 2 * WEIR_SECOND, 1, WEIR_TAKE, &out);
    }
    ck_assert_int_eq(admitted, 10);
    ck_assert_int_eq(out.retry_after_us, WEIR_HOUR + 2 * WEIR_SECOND);
}

TEST(any_real_period_of_a_sliding_window_admits_its_limit_at_most, 60)
{
    static const char *const policies[] = { "sliding_window limit=10 period=10s blocks=1",
                                            "sliding_window limit=10 period=9s blocks=3",
                                            "sliding_window limit=20 period=30s blocks=10" };
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        const struct weir_policy policy = policy_of(policies[p]);
        const struct weir_plan plan = plan_of_text(policies[p]);
        struct chance chance = chance_make(6000000 + p);
        for (int history = 0; history < 2000; history++) {
            struct reading readings[READINGS];
            history_by_chance(&plan, &chance, 2 * WEIR_SECOND, 30 * WEIR_SECOND, readings);
            for (int last = 0, first = 0; last < READINGS; last++) {
                while (readings[first].real_us <= readings[last].real_us - policy.period_us)
                    first++;
                ck_assert_msg(admitted_from(readings, first, last) <= policy.limit, "%s, history %d: %d to %d",
                              policies[p], history, first, last);
            }
        }
    }
}
