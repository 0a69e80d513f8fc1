/* test_redis_refused.c - refunds and settlements while Redis answers that it executes nothing: READONLY, OOM, NOREPLICAS.
 *
 * A second limiter, which decides nothing, reads what is in use. The first one makes no further request: what it has
 * taken on must reach Redis without any.
 */
#include "core/ground/clock.h"
#include "redis_place.h"

#include <stdio.h>

enum { KEYS = 20, ESTIMATE = 4000, USED = 100 };

static const char *const policies[] = { "sliding_window limit=10000 period=1h",
                                        "token_bucket limit=10000 period=300d" };

/* Ways to make the server refuse, and to end that. */
static const struct {
    const char *name;
    const char *begin[4], *end[4];
} refusals[] = {
    { "READONLY", { "REPLICAOF", "127.0.0.1", "1" }, { "REPLICAOF", "NO", "ONE" } },
    { "OOM", { "CONFIG", "SET", "maxmemory", "1" }, { "CONFIG", "SET", "maxmemory", "0" } },
    { "NOREPLICAS",
      { "CONFIG", "SET", "min-replicas-to-write", "1" },
      { "CONFIG", "SET", "min-replicas-to-write", "0" } },
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

static void say(struct place *place, const char *const *words)
{
    ck_assert_str_eq(place_ask(place, words[0], words[1], words[2], words[3]), "OK");
}

/* Return what is in use of all keys. */
static int64_t in_use(weir_limit *limit)
{
    int64_t used = 0;
    for (int i = 0; i < KEYS; i++) {
        const struct weir_decision peek = peeked(limit, (char[2]){ (char)('a' + i) }, 1);
        used += peek.limit - peek.remaining;
    }
    return used;
}

static void await_use(weir_limit *limit, int64_t expected)
{
    const int64_t until_us = clock_monotonic_us() + RECOVERY_MOST_US;
    while (in_use(limit) != expected && clock_monotonic_us() < until_us)
        sleep_us(20000);
    ck_assert_int_eq(in_use(limit), expected);
}

static int answered_status;

static void answered(struct weir_op *op, int status)
{
    (void)op;
    answered_status = status;
}

/* Give the rest of each reservation back: by a settlement, a refund, or a submitted settlement. Return the first error.
 */
static int give_back(weir *limiter, weir_limit *limit, const struct weir_reservation *reservations, int way)
{
    int error = WEIR_OK;
    must(weir_event_fd(limiter) >= 0, "a descriptor");
    for (int i = 0; i < KEYS; i++) {
        const struct weir_key key = weir_key((char[1]){ (char)('a' + i) }, 1);
        int status = WEIR_OK;
        if (way == 0) {
            status = weir_settle(limit, key, &reservations[i], USED);
        } else if (way == 1) {
            status = weir_refund(limit, key, ESTIMATE - USED);
        } else {
            struct weir_op op = { .request = { .limit = limit, .key = key, .cost = USED },
                                  .verb = WEIR_OP_SETTLE,
                                  .reservation = reservations[i],
                                  .done = answered };
            status = weir_submit(limiter, &op);
            while (status == 1 && weir_dispatch(limiter) == 0)
                sleep_us(1000);
            status = status == 1 ? answered_status : status;
        }
        error = error ? error : status;
    }
    return error;
}

static void check(int i, enum weir_mode mode, enum weir_on_failure on_failure)
{
    struct weir_reservation reservations[KEYS];
    const int refusal = i % REFUSALS, way = i / REFUSALS;
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    LIMITER(reader, &options);
    options.mode = mode;
    options.on_failure = on_failure;
    LIMITER(limiter, &options);
    const char *policy = policies[i % 2];
    weir_limit *limit = limit_of(limiter, "limit", policy), *read = limit_of(reader, "limit", policy);
    ck_assert_str_eq(place_ask(&place, "CONFIG", "SET", "maxmemory-policy", "noeviction"), "OK");
    for (int k = 0; k < KEYS; k++) {
        struct weir_decision decision;
        must_succeed(
            weir_reserve(limit, weir_key((char[1]){ (char)('a' + k) }, 1), ESTIMATE, &decision, &reservations[k]));
    }
    ck_assert_int_eq(in_use(read), KEYS * ESTIMATE);
    say(&place, refusals[refusal].begin);
    const int status = give_back(limiter, limit, reservations, way);
    sleep_us(500000); /* so that those which wait have been tried and refused again */
    say(&place, refusals[refusal].end);
    if (on_failure == WEIR_FAIL_LOCAL) {
        ck_assert_int_eq(status, WEIR_OK);
        await_use(read, KEYS * USED);
    } else {
        ck_assert_int_eq(status, WEIR_EIO);
        recover(read, "a");
        ck_assert_int_eq(in_use(read), KEYS * ESTIMATE);
    }
}

TEST_EACH(what_a_server_refuses_to_take_back_goes_back_once_it_accepts_writes, 3 * REFUSALS, 90)
{
    check(_i, WEIR_DISTRIBUTED, WEIR_FAIL_LOCAL);
}

TEST_EACH(so_it_does_in_hybrid_mode, 3 * REFUSALS, 90)
{
    check(_i, WEIR_HYBRID, WEIR_FAIL_LOCAL);
}

TEST_EACH(without_a_fallback_a_refused_settlement_is_an_error_and_changes_nothing, 3 * REFUSALS, 90)
{
    check(_i, WEIR_DISTRIBUTED, WEIR_FAIL_ERROR);
}

TEST(a_repeated_release_frees_all_that_its_slot_costs, 90)
{
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    LIMITER(reader, &options);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "flight", "concurrency limit=20 hold=10m");
    weir_limit *read = limit_of(reader, "flight", "concurrency limit=20 hold=10m");
    struct weir_reservation held[2];
    struct weir_decision decision;
    for (int i = 0; i < 2; i++)
        must_succeed(weir_reserve(limit, weir_key_text("a"), 5, &decision, &held[i]));
    for (int i = 0; i < 2; i++) {
        say(&place, refusals[0].begin);
        ck_assert_int_eq(weir_release(limit, weir_key_text("a"), &held[i]), WEIR_OK);
        say(&place, refusals[0].end);
        const int64_t until_us = clock_monotonic_us() + RECOVERY_MOST_US;
        while (peeked(read, "a", 1).remaining == 10 + 5 * i && clock_monotonic_us() < until_us)
            sleep_us(20000);
        ck_assert_int_eq(peeked(read, "a", 1).remaining, 15 + 5 * i);
    }
    ck_assert_int_eq(taken_by_redis(read, "a", 20).remaining, 0);
}
