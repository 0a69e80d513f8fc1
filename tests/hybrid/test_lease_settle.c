/* test_lease_settle.c - hybrid mode: reservations of leased permits, and where the permits go that they did not
 * need. */
#include "stage.h"

#include <stdio.h>

static struct weir_reservation reserved(struct stage *stage, const char *key, int64_t estimate)
{
    struct weir_decision decision;
    struct weir_reservation reservation;
    must_succeed(weir_reserve(stage->limit, weir_key_text(key), estimate, &decision, &reservation));
    must(decision.allowed, "a reservation is admitted");
    stage_answer(stage, 0);
    return reservation;
}

static void settled(struct stage *stage, const char *key, const struct weir_reservation *reservation, int64_t actual)
{
    must_succeed(weir_settle(stage->limit, weir_key_text(key), reservation, actual));
    stage_answer(stage, 0);
}

static int calls_of(const struct stage *stage)
{
    return stage->remote.decided + stage->remote.submitted;
}

/* Return the permits of a key that are not in use: in the store and on lease. */
static int64_t free_of(struct stage *stage, const char *key)
{
    return peeked(stage->limit, key, 1).remaining;
}

/* ---- Where they go ---- */

TEST(unused_permits_of_a_settled_reservation_return_to_their_lease, 10)
{
    static const char *const policies[] = { "fixed_window limit=1000 period=1m", "sliding_window limit=1000 period=1m",
                                            "token_bucket limit=1000 period=1m refill=interval",
                                            "token_bucket limit=1000 period=1m" };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        const struct stage_settings settings = { .life_us = WEIR_MINUTE, .excess = 5 };
        CLOSED_BY(stage_close) struct stage stage;
        stage_open_as(&stage, policies[i], &settings);
        for (int k = 0; k < 20; k++) {
            const struct weir_reservation busy = reserved(&stage, "a", 5);
            settled(&stage, "a", &busy, 5);
            stage_pass(&stage, 10000);
        }
        const int64_t before = free_of(&stage, "a");
        const struct weir_reservation reservation = reserved(&stage, "a", 5);
        const int calls = calls_of(&stage);
        ck_assert(reservation.permits == 5 && reservation.at_us > 0);
        ck_assert_int_eq(free_of(&stage, "a"), before - 5);
        settled(&stage, "a", &reservation, 1);
        ck_assert_int_eq(free_of(&stage, "a"), before - 1);
        const struct weir_reservation more = reserved(&stage, "a", 1);
        settled(&stage, "a", &more, 3);
        ck_assert_int_eq(free_of(&stage, "a"), before - 4);
        ck_assert_int_eq(calls_of(&stage), calls);
    }
}

static void use_often(struct stage *stage)
{
    for (int i = 0; i < 20; i++) {
        const struct weir_reservation busy = reserved(stage, "a", 5);
        settled(stage, "a", &busy, 5);
        stage_pass(stage, 10000);
    }
}

TEST(unused_permits_go_back_to_redis_with_the_next_call, 10)
{
    const struct stage_settings settings = { .life_us = WEIR_MINUTE };
    CLOSED_BY(stage_close) struct stage stage;
    stage_open_as(&stage, "sliding_window limit=1000 period=1m", &settings);
    use_often(&stage);
    const struct weir_reservation early = reserved(&stage, "a", 5);
    stage_pass(&stage, 6 * WEIR_SECOND); /* its block has ended */
    use_often(&stage);
    const int calls = calls_of(&stage);
    settled(&stage, "a", &early, 0);
    ck_assert_int_eq(calls_of(&stage), calls);
    const int64_t before = free_of(&stage, "a");
    must_succeed(weir_charge(stage.limit, weir_key_text("a"), 600)); /* the lease covers only a part */
    stage_answer(&stage, 0);
    ck_assert_int_eq(stage_elsewhere(&stage, "a", WEIR_PEEK, 1).remaining, before + 5 - 600);
}

TEST(settling_permits_of_an_older_block_leaves_the_held_ones_of_another, 10)
{
    const struct stage_settings settings = { .life_us = WEIR_MINUTE };
    CLOSED_BY(stage_close) struct stage stage;
    struct weir_reservation early[3];
    struct weir_decision decision;
    stage_open_as(&stage, "sliding_window limit=1000 period=1m", &settings);
    use_often(&stage);
    struct weir_reservation held = reserved(&stage, "a", 1);
    for (int i = 0; i < 3; i++) {
        early[i] = reserved(&stage, "a", 5);
        stage_pass(&stage, 6 * WEIR_SECOND); /* its block has ended */
        use_often(&stage);
    }
    const int calls = calls_of(&stage);
    settled(&stage, "a", &early[0], 0);
    settled(&stage, "a", &early[1], 0);
    ck_assert_int_eq(calls_of(&stage), calls); /* both wait */
    settled(&stage, "a", &early[2], 0);
    ck_assert_int_gt(calls_of(&stage), calls);
    for (int i = 0; i < 2; i++) { /* beside these calls the two go to the store */
        must_succeed(weir_charge(stage.limit, weir_key_text("a"), 100));
        stage_answer(&stage, 0);
    }
    const int64_t before = stage_elsewhere(&stage, "a", WEIR_PEEK, 1).remaining;
    must_succeed(weir_renew(stage.limit, weir_key_text("a"), 1, &decision, &held));
    stage_answer(&stage, 0);
    ck_assert(decision.allowed);
    ck_assert_int_eq(stage_elsewhere(&stage, "a", WEIR_PEEK, 1).remaining, before);
}

TEST(a_settlement_of_a_key_without_a_lease_goes_to_redis_immediately, 10)
{
    STAGE(stage, "sliding_window limit=1000 period=1m");
    const struct weir_reservation reservation = reserved(&stage, "a", 7);
    stage_pass(&stage, WEIR_SECOND);
    ck_assert_int_eq(stage_elsewhere(&stage, "a", WEIR_PEEK, 1).remaining, 993);
    settled(&stage, "a", &reservation, 2);
    ck_assert_int_eq(stage_elsewhere(&stage, "a", WEIR_PEEK, 1).remaining, 998);
}

TEST(unused_permits_of_an_earlier_window_do_not_join_a_later_lease, 10)
{
    const struct stage_settings settings = { .life_us = WEIR_MINUTE };
    CLOSED_BY(stage_close) struct stage stage;
    stage_open_as(&stage, "fixed_window limit=100 period=1s align=epoch", &settings);
    for (int i = 0; i < 10; i++)
        reserved(&stage, "a", 1);
    const struct weir_reservation early = reserved(&stage, "a", 10);
    stage_pass(&stage, WEIR_SECOND);
    for (int i = 0; i < 10; i++)
        reserved(&stage, "a", 1);
    const int64_t before = free_of(&stage, "a");
    settled(&stage, "a", &early, 0);
    ck_assert_int_eq(free_of(&stage, "a"), before);
    ck_assert_int_le(stage_spend(&stage, "a") + stage_drain(&stage, "a"), 90);
}

/* ---- Calls ---- */

enum { KEYS = 100, REQUESTS = 400000, GAP_US = 100, IN_FLIGHT_MOST = 10001 };

struct answer {
    struct weir_reservation reservation;
    char key[8];
    int64_t used;
};

/* 10,000 requests a second on 100 keys, each settled `in_flight` requests later for a quarter of its estimate up to
 * four times as much. */
static void count_calls(const char *policy, int in_flight)
{
    const struct stage_settings settings = { .life_us = WEIR_MINUTE, .excess = 5 };
    static struct answer answers[IN_FLIGHT_MOST];
    struct chance chance = chance_make(5);
    CLOSED_BY(stage_close) struct stage stage;
    stage_open_as(&stage, policy, &settings);
    for (int i = 0; i < REQUESTS; i++) {
        struct answer *answer = &answers[i % (in_flight + 1)], *ended = &answers[(i + 1) % (in_flight + 1)];
        snprintf(answer->key, sizeof answer->key, "%d", (int)chance_between(&chance, 0, KEYS - 1));
        answer->used = chance_between(&chance, 2, 32);
        answer->reservation = reserved(&stage, answer->key, 8);
        stage_pass(&stage, GAP_US);
        if (i >= in_flight)
            settled(&stage, ended->key, &ended->reservation, ended->used);
    }
    const double each = (double)calls_of(&stage) / (REQUESTS - in_flight);
    printf("%s, in flight %d: %d calls, %.4f a settled request\n", policy, in_flight, calls_of(&stage), each);
    ck_assert_double_le(each, 0.02);
}

TEST(settling_costs_at_most_two_calls_per_hundred_requests, 60)
{
    static const char *const policies[] = { "fixed_window limit=200000 period=1m",
                                            "sliding_window limit=200000 period=1m",
                                            "token_bucket limit=200000 period=1m",
                                            "token_bucket limit=200000 period=1m refill=interval" };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        count_calls(policies[i], 100);
        count_calls(policies[i], IN_FLIGHT_MOST - 1);
    }
}
