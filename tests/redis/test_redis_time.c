/* test_redis_time.c - clocks that are wrong, step back or leap: faults B1 to B4 of distributed mode.
 *
 * The test cannot set the server's clock. Instead it passes its own clock with by_local_clock, which the same scripts
 * apply to the same states.
 */
#include "redis_place.h"

#include "envelope.h"

#include <inttypes.h>
#include <stdio.h>

struct clocked {
    struct place place;
    weir *limiter;
    int64_t now_us; /* the time that the scripts get */
};

static int64_t clocked_now(void *user)
{
    return ((struct clocked *)user)->now_us;
}

static void log_nothing(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    ck_abort_msg("unexpected log line, level %d: %s", (int)level, line);
}

static void clocked_open(struct clocked *clocked)
{
    place_open(&clocked->place, false, NULL);
    clocked->now_us = INT64_C(1790000000123456);
    struct weir_options options = place_options(&clocked->place, 10 * WEIR_SECOND);
    options.by_local_clock = true;
    options.now_us = clocked_now;
    options.log = log_nothing;
    options.user = clocked;
    must_succeed(weir_open(&options, &clocked->limiter));
}

static void clocked_close(struct clocked *clocked)
{
    weir_close(clocked->limiter);
    place_close(&clocked->place);
}

/* ---- Clients' clocks ---- */

struct wrong_clock {
    _Atomic int64_t ahead_us;
};

static int64_t wrong_now(void *user)
{
    return INT64_C(1790000000000000) + ((struct wrong_clock *)user)->ahead_us;
}

TEST(clients_whose_clocks_differ_by_hours_share_one_burst, 30)
{
    enum { CLIENTS = 5 };
    struct wrong_clock clocks[CLIENTS];
    weir *limiters[CLIENTS];
    weir_limit *limits[CLIENTS];
    int64_t admitted = 0;
    PLACE(place, false, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        struct weir_options options = place_options(&place, 10 * WEIR_SECOND);
        clocks[i].ahead_us = (i - 2) * 6 * WEIR_HOUR;
        options.now_us = wrong_now;
        options.log = log_nothing;
        options.user = &clocks[i];
        must_succeed(weir_open(&options, &limiters[i]));
        limits[i] = limit_of(limiters[i], "limit", FIFTY_AN_HOUR);
    }
    for (int round = 0; round < 200; round++) {
        clocks[round % CLIENTS].ahead_us += round % 3 == 0 ? -30 * WEIR_SECOND : 30 * WEIR_SECOND;
        struct weir_decision decision = taken(limits[round % CLIENTS], "key", 1);
        admitted += decision.allowed;
        ck_assert_int_eq(decision.allowed, round < 50);
        ck_assert_int_eq(decision.source, WEIR_BY_REDIS);
        ck_assert_int_le(decision.retry_after_us, 2 * WEIR_MINUTE);
    }
    ck_assert_int_eq(admitted, 50);
    for (int i = 0; i < CLIENTS; i++)
        weir_close(limiters[i]);
}

/* ---- A clock that steps back ---- */

static const struct {
    const char *policy;
    int64_t limit, period_us;
    double burst; /* of the envelope: how much may pass at the same instant */
} stepping[] = {
    { "token_bucket limit=100 period=1s burst=30", 100, WEIR_SECOND, 30 },
    { "leaky_bucket limit=100 period=1s capacity=30", 100, WEIR_SECOND, 30 },
    { "token_bucket limit=10 period=100ms refill=interval", 10, WEIR_SECOND / 10,
      20 },                                                          /* a full bucket, then an immediate refill */
    { "fixed_window limit=100 period=1s", 100, WEIR_SECOND, 200 },   /* around a window's edge */
    { "sliding_window limit=100 period=1s", 100, WEIR_SECOND, 200 }, /* by the envelope; never more within a second */
};

/* True time advances while the clock falls behind it by random amounts, again and again. */
TEST_EACH(a_clock_step_back_admits_no_extra_permit, sizeof stepping / sizeof stepping[0], 30)
{
    enum { CALLS = 4000 };
    static struct admit admits[CALLS];
    static struct clocked clocked;
    struct chance chance = chance_make((uint64_t)(20 + _i));
    int64_t true_us = 0, behind_us = 0, steps = 0;
    size_t n = 0;
    clocked_open(&clocked);
    weir_limit *limit = limit_of(clocked.limiter, "limit", stepping[_i].policy);
    int64_t begin_us = clocked.now_us + 1000 * WEIR_HOUR;
    for (int i = 0; i < CALLS; i++) {
        true_us += chance_between(&chance, 0, 20000);
        if (chance_one_in(&chance, 20)) {
            behind_us += chance_magnitude(&chance, WEIR_HOUR);
            steps++;
        }
        clocked.now_us = begin_us + true_us - behind_us;
        int64_t cost = chance_between(&chance, 1, 5);
        if (taken(limit, "key", cost).allowed)
            admits[n++] = (struct admit){ true_us, true_us, cost };
    }
    double burst = envelope_burst(admits, n, stepping[_i].limit, stepping[_i].period_us);
    printf("%s: %" PRId64 " steps back, the burst was %.2f of %.0f\n", stepping[_i].policy, steps, burst,
           stepping[_i].burst);
    ck_assert(burst <= stepping[_i].burst + 1e-6);
    ck_assert_int_gt((int64_t)n, 100);
    if (strncmp(stepping[_i].policy, "sliding", 7) == 0)
        for (size_t from = 0, to = 0, sum = 0; to < n; to++) {
            sum += (size_t)admits[to].cost;
            for (; admits[to].start_us - admits[from].start_us >= stepping[_i].period_us; from++)
                sum -= (size_t)admits[from].cost;
            ck_assert_uint_le(sum, 100);
        }
    clocked_close(&clocked);
}

/* Retry after each denial's retry_after until a permit is admitted; return the time. */
static int64_t wait_for_permit(struct clocked *clocked, weir_limit *limit, int64_t cost)
{
    int64_t began_us = clocked->now_us;
    for (int asked = 0;; asked++) {
        struct weir_decision decision = taken(limit, "key", cost);
        if (decision.allowed)
            return clocked->now_us - began_us;
        ck_assert_int_gt(decision.retry_after_us, 0);
        ck_assert_int_lt(asked, 3);
        clocked->now_us += decision.retry_after_us;
    }
}

TEST_EACH(a_clock_that_steps_back_denies_no_key_longer_than_the_slack, sizeof stepping / sizeof stepping[0], 30)
{
    static const int64_t steps_us[] = {
        1, 1000, WEIR_SECOND, WEIR_CLOCK_SLACK_US, WEIR_CLOCK_SLACK_US + 1, WEIR_MINUTE, WEIR_HOUR, WEIR_DAY
    };
    static struct clocked clocked;
    clocked_open(&clocked);
    for (size_t i = 0; i < sizeof steps_us / sizeof steps_us[0]; i++) {
        /* A sliding or fixed window may have just begun when the clock steps back, so the wait is a whole period and
         * a block. */
        weir_limit *limit = limit_of(clocked.limiter, "limit", stepping[_i].policy);
        must_succeed(weir_reset(limit, weir_key_text("key")));
        clocked.now_us += WEIR_HOUR;
        int64_t size = peeked(limit, "key", 1).remaining;
        ck_assert(taken(limit, "key", size).allowed);
        int64_t usual_us = taken(limit, "key", 1).retry_after_us;
        clocked.now_us -= steps_us[i];
        int64_t held_us = steps_us[i] < WEIR_CLOCK_SLACK_US ? steps_us[i] : WEIR_CLOCK_SLACK_US;
        int64_t waited_us = wait_for_permit(&clocked, limit, 1), most_us = usual_us + held_us;
        if (strncmp(stepping[_i].policy, "sliding", 7) == 0)
            most_us += stepping[_i].period_us / 10; /* blocks are aligned to the new time */
        ck_assert_msg(waited_us <= most_us, "%s, back by %" PRId64 ": waited %" PRId64 ", at most %" PRId64,
                      stepping[_i].policy, steps_us[i], waited_us, most_us);
    }
    clocked_close(&clocked);
}

TEST_EACH(a_clock_leap_ahead_and_back_admits_at_most_one_extra_burst, sizeof stepping / sizeof stepping[0], 30)
{
    static struct clocked clocked;
    clocked_open(&clocked);
    weir_limit *limit = limit_of(clocked.limiter, "limit", stepping[_i].policy);
    int64_t size = peeked(limit, "key", 1).remaining, admitted = 0;
    for (int i = 0; i < 3 * size; i++)
        admitted += taken(limit, "key", 1).allowed;
    ck_assert_int_eq(admitted, size);
    clocked.now_us += WEIR_HOUR;
    for (int i = 0; i < 3 * size; i++)
        admitted += taken(limit, "key", 1).allowed;
    ck_assert_int_eq(admitted, 2 * size);
    clocked.now_us -= WEIR_HOUR;
    for (int i = 0; i < 3 * size; i++)
        admitted += taken(limit, "key", 1).allowed;
    ck_assert_int_eq(admitted, 2 * size);
    clocked_close(&clocked);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
