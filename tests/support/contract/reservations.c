/* reservations.c - contract: reserve and settle. */
#include "contract/parts.h"

#include <stdio.h>

CONTRACT_TEST(CONTRACT_COUNTS, a_reservation_is_settled_for_the_used_permits, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    weir_limit *beside = scene_define_text(&scene, "beside", "fixed_window limit=10 period=1h");
    struct weir_reservation first = reserved(limit, "a", 6, true);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 4);
    const struct weir_reservation denied = reserved(limit, "a", 5, false);
    settle(limit, "a", denied, 0);
    settle(limit, "a", denied, 5);
    settle(limit, "a", first, 6);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 4);
    settle(limit, "a", first, 2);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 8);
    settle(limit, "a", reserved(limit, "a", 5, true), 9);
    ck_assert(!taken(limit, "a", 1).allowed);
    must_succeed(weir_refund(limit, weir_key_text("a"), 2));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    settle(limit, "b", reserved(limit, "b", 10, true), 0);
    ck_assert_int_eq(peeked(limit, "b", 1).reset_after_us, 0);

    struct weir_decision decision;
    struct weir_reservation all[3];
    const struct weir_request group[] = { request_of(limit, "c", 3), request_of(beside, "c", 5),
                                          request_of(limit, "c", 2) };
    must_succeed(weir_reserve_all(scene.limiter, group, 3, &decision, all));
    ck_assert(decision.allowed && all[0].permits == 3 && all[1].permits == 5 && all[2].permits == 2);
    settle(limit, "c", all[0], 1);
    settle(beside, "c", all[1], 8);
    settle(limit, "c", all[2], 2);
    ck_assert_int_eq(peeked(limit, "c", 1).remaining, 7);
    ck_assert_int_eq(peeked(beside, "c", 1).remaining, 2);
    must_succeed(weir_reserve_all(scene.limiter, group, 3, &decision, all));
    ck_assert(!decision.allowed && all[0].permits == -1 && all[1].permits == -1 && all[2].permits == -1);
    ck_assert_int_eq(peeked(limit, "c", 1).remaining, 7);
}

/* A return counts as of the last change of a level, so it does not notice that all of it has drained. */
CONTRACT_TEST(CONTRACT_TIME, a_clock_that_steps_back_after_a_settlement_finds_what_was_there_before, 20)
{
    static const char *const policies[] = { "token_bucket limit=10 period=1s", "leaky_bucket limit=10 period=1s" };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        open_backend(&scene, _i);
        weir_limit *limit = scene_define_text(&scene, "limit", policies[i]);
        scene.now_us = 1700000000 * WEIR_SECOND;
        const struct weir_reservation reservation = reserved(limit, "a", 6, true);
        scene.now_us += WEIR_SECOND;
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
        settle(limit, "a", reservation, 1);
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
        scene.now_us -= 4 * WEIR_SECOND; /* the state moves to this time */
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 9);
    }
}

CONTRACT_TEST(CONTRACT_TIME, settling_after_a_step_back_of_the_clock_returns_no_other_requests_permits, 20)
{
    static const char *const policies[] = { "sliding_window limit=10 period=10s",
                                            "sliding_window limit=10 period=10s blocks=3" };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        open_backend(&scene, _i);
        weir_limit *limit = scene_define_text(&scene, "limit", policies[i]);
        scene.now_us = 1700000000 * WEIR_SECOND;
        const struct weir_reservation reservation = reserved(limit, "a", 5, true);
        scene.now_us -= 5 * WEIR_SECOND;
        ck_assert(taken(limit, "a", 4).allowed);
        scene.now_us += 5 * WEIR_SECOND;
        ck_assert(taken(limit, "a", 1).allowed);
        settle(limit, "a", reservation, 0);
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 5);
        scene.now_us += 9 * WEIR_SECOND; /* less than a period ago one permit was used */
        ck_assert_int_le(peeked(limit, "a", 1).remaining, 9);
        scene.now_us += 6 * WEIR_SECOND;
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
    }
}

/* Open 20 reservations of 4 permits and use 7 others. */
static void open_reservations(weir_limit *limit, const char *key, struct weir_reservation open[20])
{
    for (int i = 0; i < 20; i++)
        open[i] = reserved(limit, key, 4, true);
    ck_assert(taken(limit, key, 7).allowed);
}

/* A bucket keeps what has refilled since the reservations, which is less than one permit. What is left of a lease under
 * the former policy stays in use. */
static void expect_left(int backend, weir_limit *limit, const char *key, int64_t left, const char *from, const char *to)
{
    const int64_t remaining = peeked(limit, key, 1).remaining;
    const bool is_bucket = strstr(from, "0d") || strstr(to, "0d") || strstr(from, "299d") || strstr(to, "299d");
    const int64_t leased = strstr(contract_backend(backend)->name, "hybrid") ? 10 : 0;
    if (remaining > left || remaining < left - is_bucket - leased)
        ck_abort_msg("%s, %s -> %s: %d instead of %d", key, from, to, (int)remaining, (int)left);
}

/* The buckets are so slow that no whole permit refills. */
CONTRACT_TEST(CONTRACT_TIME, a_new_policy_keeps_what_open_reservations_will_return, 60)
{
    static const char *const policies[] = {
        "sliding_window limit=100 period=10m",
        "sliding_window limit=100 period=10m blocks=7",
        "sliding_window limit=100 period=30m",
        "sliding_window limit=100 period=2m",
        "fixed_window limit=100 period=10m",
        "fixed_window limit=100 period=1h",
        "fixed_window limit=100 period=2m align=epoch",
        "token_bucket limit=100 period=10m refill=interval",
        "token_bucket limit=100 period=1h refill=interval",
        "token_bucket limit=100 period=300d",
        "token_bucket limit=99 period=299d burst=100",
        "leaky_bucket limit=100 period=200d",
        "sliding_window limit=50 period=10m", /* cannot hold them all */
        "sliding_window limit=50 period=7m",
        "fixed_window limit=50 period=10m",
        "token_bucket limit=50 period=200d",
        "token_bucket limit=50 period=10m refill=interval",
    };
    enum { POLICIES = sizeof policies / sizeof *policies };
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (size_t pair = 0; pair < POLICIES * POLICIES; pair++) {
        char name[32];
        struct weir_reservation open[20], late[20];
        const char *from = policies[pair / POLICIES], *to = policies[pair % POLICIES];
        if (strstr(from, "limit=50"))
            continue;
        snprintf(name, sizeof name, "limit%d", (int)pair);
        scene.now_us = 1700000000 * WEIR_SECOND + (int64_t)pair * WEIR_HOUR;
        weir_limit *limit = scene_define_text(&scene, name, from);
        open_reservations(limit, "soon", open);
        open_reservations(limit, "late", late);
        scene.now_us += 5 * WEIR_SECOND;
        limit = scene_define_text(&scene, name, to);
        const int64_t size = peeked(limit, "soon", 1).limit;
        must_succeed(weir_charge(limit, weir_key_text("late"), 1)); /* now the state is under the new policy */
        for (int i = 0; i < 20; i++)
            settle(limit, "soon", open[i], 1);
        expect_left(_i, limit, "soon", size - 27, from, to);
        scene.now_us += 25 * WEIR_SECOND;
        for (int i = 0; i < 20; i++)
            settle(limit, "late", late[i], 1);
        expect_left(_i, limit, "late", size - 28, from, to);
        settle(limit, "late", late[0], 0); /* one too many finds none of another request */
    }
}

CONTRACT_TEST(CONTRACT_TIME, a_renewal_after_a_new_policy_needs_no_room, 30)
{
    static const char *const policies[][2] = {
        { "sliding_window limit=20 period=20s", "sliding_window limit=20 period=30s" },
        { "sliding_window limit=20 period=20s", "sliding_window limit=20 period=20s blocks=3" },
        { "fixed_window limit=20 period=20s", "fixed_window limit=20 period=30s" },
        { "fixed_window limit=20 period=20s", "sliding_window limit=20 period=40s" },
        { "token_bucket limit=20 period=300d", "token_bucket limit=20 period=200d" },
        { "token_bucket limit=20 period=20s refill=interval", "token_bucket limit=20 period=30s refill=interval" },
    };
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        char name[32];
        struct weir_reservation open[20];
        struct weir_decision decision;
        snprintf(name, sizeof name, "limit%d", (int)i);
        scene.now_us = 1700000000 * WEIR_SECOND + (int64_t)i * WEIR_HOUR;
        weir_limit *limit = scene_define_text(&scene, name, policies[i][0]);
        for (int k = 0; k < 20; k++)
            open[k] = reserved(limit, "a", 1, true);
        scene.now_us += 5 * WEIR_SECOND;
        limit = scene_define_text(&scene, name, policies[i][1]);
        must_succeed(weir_renew(limit, weir_key_text("a"), 1, &decision, &open[0]));
        ck_assert_msg(decision.allowed, "%s", policies[i][1]);
        for (int k = 0; k < 20; k++)
            settle(limit, "a", open[k], 0);
        const int64_t remaining = peeked(limit, "a", 1).remaining;
        ck_assert_int_ge(remaining, strstr(policies[i][0], "300d") ? 19 : 20); /* a bucket keeps what has refilled */
    }
}

CONTRACT_TEST(CONTRACT_TIME, a_new_rate_keeps_reservations_of_one_permit, 20)
{
    static const char *const policies[] = { "token_bucket limit=20 period=100d", "token_bucket limit=20 period=360d",
                                            "token_bucket limit=19 period=300d burst=20" };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        struct weir_reservation open[20];
        struct weir_decision decision;
        open_backend(&scene, _i);
        weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=20 period=300d");
        for (int k = 0; k < 20; k++) {
            open[k] = reserved(limit, "a", 1, true);
            scene.now_us += 50;
        }
        scene.now_us += 2 * WEIR_SECOND;
        limit = scene_define_text(&scene, "limit", policies[i]);
        for (int k = 0; k < 20; k++)
            settle(limit, "a", open[k], 0);
        ck_assert_int_ge(peeked(limit, "a", 1).remaining, 18); /* fractions stay, of the level and of a permit */
        must_succeed(weir_renew(limit, weir_key_text("a"), 1, &decision, &open[0]));
        ck_assert(decision.allowed);
    }
}

CONTRACT_TEST(CONTRACT_TIME, settling_returns_no_permit_that_has_already_refilled, 20)
{
    static const struct {
        const char *policy;
        bool refills; /* continuously */
    } cases[] = {
        { "token_bucket limit=10 period=10s", true },
        { "leaky_bucket limit=10 period=10s", true },
        { "token_bucket limit=10 period=10s refill=interval", false },
        { "fixed_window limit=10 period=10s", false },
        { "sliding_window limit=10 period=10s", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        open_backend(&scene, _i);
        weir_limit *limit = scene_define_text(&scene, "limit", cases[i].policy);
        scene.now_us = 1700000000 * WEIR_SECOND;
        settle(limit, "at once", reserved(limit, "at once", 8, true), 2);
        ck_assert_int_eq(peeked(limit, "at once", 1).remaining, 8);

        const struct weir_reservation alone = reserved(limit, "alone", 8, true);
        scene.now_us += 3 * WEIR_SECOND;
        settle(limit, "alone", alone, 2); /* the key is as if 2 had been taken at first */
        ck_assert_int_eq(peeked(limit, "alone", 1).remaining, cases[i].refills ? 10 : 8);

        scene.now_us = 1700000100 * WEIR_SECOND;
        const struct weir_reservation amid = reserved(limit, "amid", 8, true);
        scene.now_us += 5 * WEIR_SECOND;
        taken(limit, "amid", cases[i].refills ? 5 : 2); /* a bucket then holds 3 of 8 permits and 5 */
        settle(limit, "amid", amid, 0);
        ck_assert_int_eq(peeked(limit, "amid", 1).remaining, cases[i].refills ? 5 : 8);

        scene.now_us = 1700000200 * WEIR_SECOND;
        const struct weir_reservation late = reserved(limit, "late", 8, true);
        scene.now_us += 20 * WEIR_SECOND;
        taken(limit, "late", 3);
        settle(limit, "late", late, 0);
        ck_assert_int_eq(peeked(limit, "late", 1).remaining, 7);
    }
}

CONTRACT_TEST(CONTRACT_TIME, settling_a_reservation_larger_than_the_new_limit_returns_no_later_permit, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=1000 period=1000s");
    scene.now_us = 1700000000 * WEIR_SECOND;
    const struct weir_reservation larger = reserved(limit, "a", 25, true), large = reserved(limit, "a", 900, true);
    scene_define_text(&scene, "limit", "token_bucket limit=10 period=10s");
    ck_assert(!taken(limit, "a", 1).allowed);
    scene.now_us += 20 * WEIR_SECOND;
    ck_assert(taken(limit, "a", 10).allowed);
    settle(limit, "a", larger, 0);
    ck_assert(!taken(limit, "a", 1).allowed);
    settle(limit, "a", large, 0);
    ck_assert(!taken(limit, "a", 1).allowed);
}
