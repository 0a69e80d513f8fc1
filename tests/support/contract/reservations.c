/* reservations.c - contract: reserve and settle. */
#include "contract/parts.h"

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
