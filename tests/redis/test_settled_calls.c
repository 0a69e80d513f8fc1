/* test_settled_calls.c - how often hybrid mode asks a real Redis while it reserves and settles on busy keys.
 *
 * 10,000 requests a second on 100 keys, each settled 100 requests later for a quarter of its estimate up to four times
 * as much, or released. The requests are due at fixed times: after a delay, those that are due follow immediately.
 * Redis counts the calls. tests/hybrid/test_lease_settle.c does the same on a store without delays, for more policies.
 */
#include "core/ground/clock.h"
#include "redis_place.h"

#include <stdio.h>

enum { KEYS = 100, IN_FLIGHT = 100, GAP_US = 100, ESTIMATE = 8, WARM = 20000 };

struct answer {
    struct weir_reservation reservation;
    char key[8];
    int64_t used;
};

static int64_t calls_of(struct place *place)
{
    return place_info(place, "commandstats", "cmdstat_evalsha:calls=") +
           place_info(place, "commandstats", "cmdstat_eval:calls=");
}

/* Reserve and settle `count` times, and return how long that took. */
static int64_t go_on(weir_limit *limit, struct chance *chance, struct answer *answers, int count, bool releases)
{
    const int64_t begin_us = clock_monotonic_us();
    for (int i = 0; i < count; i++) {
        struct answer *answer = &answers[i % IN_FLIGHT];
        struct weir_decision decision;
        while (clock_monotonic_us() < begin_us + i * GAP_US)
            sleep_us(GAP_US);
        if (answer->key[0] != '\0')
            must_succeed(weir_settle(limit, weir_key_text(answer->key), &answer->reservation, answer->used));
        snprintf(answer->key, sizeof answer->key, "%d", (int)chance_between(chance, 0, KEYS - 1));
        answer->used = releases ? 0 : chance_between(chance, ESTIMATE / 4, ESTIMATE * 4);
        must_succeed(weir_reserve(limit, weir_key_text(answer->key), ESTIMATE, &decision, &answer->reservation));
        must(decision.allowed, "the limit has room");
    }
    return clock_monotonic_us() - begin_us;
}

TEST_EACH(a_settled_request_on_a_busy_key_costs_redis_at_most_a_fiftieth_of_a_call, 3, 120)
{
    static const char *const policies[] = { "token_bucket limit=200000 period=1m",
                                            "fixed_window limit=200000 period=1m",
                                            "sliding_window limit=200000 period=1m" };
    struct answer answers[IN_FLIGHT] = { { .key = "" } };
    struct chance chance = chance_make(5);
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    options.mode = WEIR_HYBRID;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", policies[_i]);
    const bool releases = _i == 2;
    const int count = (int)full_or(400000, 30000);
    go_on(limit, &chance, answers, WARM, releases); /* until the keys have leases */
    const int64_t before = calls_of(&place), took_us = go_on(limit, &chance, answers, count, releases);
    const int64_t calls = calls_of(&place) - before;
    printf("%s: %d calls to Redis, %.4f a settled request, at %.0f a second\n", policies[_i], (int)calls,
           (double)calls / count, (double)count * WEIR_SECOND / (double)took_us);
    /* On a machine that is too slow for the rate, the keys are less busy. */
    const bool kept_pace = took_us < (int64_t)count * GAP_US * 5 / 4;
    ck_assert(!kept_pace || calls * 50 <= count);
}
