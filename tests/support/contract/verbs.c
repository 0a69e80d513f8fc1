/* verbs.c - contract: take, peek, charge, refund and reset, on a limit whose permits do not come back. */
#include "contract/parts.h"

#include <inttypes.h>
#include <stdio.h>

CONTRACT_TEST(CONTRACT_COUNTS, permits_count_down_and_a_denial_changes_nothing, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    for (int left = 9; left >= 3; left--) {
        struct weir_decision decision = taken(limit, "a", 1);
        ck_assert(decision.allowed);
        ck_assert_int_eq(decision.limit, 10);
        ck_assert_int_eq(decision.remaining, left);
        ck_assert_int_eq(decision.retry_after_us, 0);
        ck_assert_int_eq(decision.delay_us, 0);
        ck_assert_int_eq(decision.bound_by, 0);
    }
    for (int i = 0; i < 5; i++) {
        struct weir_decision denied = taken(limit, "a", 4);
        ck_assert(!denied.allowed);
        ck_assert_int_eq(denied.remaining, 3);
        ck_assert_int_ne(denied.retry_after_us, 0);
    }
    ck_assert(taken(limit, "a", 3).allowed);
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 0);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_peek_answers_as_a_try_would_and_changes_nothing, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    for (int i = 0; i < 20; i++) {
        struct weir_decision fits = peeked(limit, "a", 10), beyond = peeked(limit, "a", 11);
        ck_assert(fits.allowed && fits.remaining == 10 && fits.limit == 10 && fits.reset_after_us == 0);
        ck_assert(!beyond.allowed && beyond.remaining == 10);
    }
    taken(limit, "a", 7);
    struct weir_decision first = peeked(limit, "a", 4);
    ck_assert(!first.allowed && first.remaining == 3);
    for (int i = 0; i < 20; i++) {
        struct weir_decision again = peeked(limit, "a", 4);
        assert_decision_is(&again, &first, "a peek after a peek");
        ck_assert(peeked(limit, "a", 3).allowed);
    }
    struct weir_decision denied = taken(limit, "a", 4);
    assert_decision_is(&denied, &first, "a denial after its peek");
}

CONTRACT_TEST(CONTRACT_COUNTS, a_charge_is_never_denied_and_overdraws_the_key, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    weir_limit *beside = scene_define_text(&scene, "beside", "fixed_window limit=10 period=1h");
    taken(limit, "a", 7);
    charge(limit, "a", 1);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    charge(limit, "a", 5);
    const struct weir_decision denied = taken(limit, "a", 1);
    ck_assert(!denied.allowed && denied.remaining == 0 && denied.retry_after_us > 0);
    refund(limit, "a", 3);
    ck_assert(!taken(limit, "a", 1).allowed);
    refund(limit, "a", 1);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    charge(limit, "new", 25);
    ck_assert(!taken(limit, "new", 1).allowed);
    struct weir_decision decision;
    const struct weir_request group[] = { request_of(beside, "new", 1), request_of(limit, "new", 1) };
    must_succeed(weir_try_all(scene.limiter, group, 2, &decision));
    ck_assert(!decision.allowed && decision.bound_by == 1);
    ck_assert_int_eq(peeked(beside, "new", 1).remaining, 10);
    must_succeed(weir_reset(limit, weir_key_text("new")));
    ck_assert_int_eq(taken(limit, "new", 1).remaining, 9);
    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(limit, &stats));
    ck_assert_uint_eq(stats.permits, 7 + 1 + 5 + 25 + 1);
}

/* Around 2^32, where counts of sliding windows grow, and up to the largest limit. */
CONTRACT_TEST(CONTRACT_COUNTS, limits_of_terabytes_count_to_the_byte, 30)
{
    static const int64_t limits[] = { UINT32_MAX, INT64_C(1) << 32, 100000000000, WEIR_MAX_PERMITS - 1,
                                      WEIR_MAX_PERMITS };
    static const char *const policies[] = { "token_bucket limit=%" PRId64 " period=30d refill=interval",
                                            "fixed_window limit=%" PRId64 " period=30d",
                                            "sliding_window limit=%" PRId64 " period=30d" };
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0] * (sizeof policies / sizeof policies[0]); i++) {
        const int64_t size = limits[i % 5];
        char name[32], text[96];
        snprintf(name, sizeof name, "limit-%zu", i);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, policies[i / 5], size);
#pragma GCC diagnostic pop
        weir_limit *limit = scene_define_text(&scene, name, text);
        const struct weir_decision first = taken(limit, "a", size - 2);
        ck_assert_msg(first.allowed && first.limit == size && first.remaining == 2, "%s", text);
        ck_assert_msg(!taken(limit, "a", 3).allowed, "%s", text);
        ck_assert_msg(taken(limit, "a", 2).allowed, "%s", text);
        const struct weir_decision denied = taken(limit, "a", 1);
        ck_assert_msg(!denied.allowed && denied.remaining == 0 && denied.retry_after_us > 0, "%s", text);
        refund(limit, "a", size - 7);
        ck_assert_msg(peeked(limit, "a", size - 7).remaining == size - 7, "%s", text);
        const struct weir_reservation part = reserved(limit, "a", size - 7, true);
        ck_assert_msg(part.permits == size - 7, "%s", text);
        settle(limit, "a", part, 4);
        ck_assert_msg(peeked(limit, "a", 1).remaining == size - 11, "%s", text);
        charge(limit, "a", size);
        ck_assert_msg(!taken(limit, "a", 1).allowed, "%s", text);
        const struct weir_request halves[] = { request_of(limit, "b", size / 2), request_of(limit, "b", size / 2) };
        struct weir_decision decision;
        must_succeed(weir_try_all(scene.limiter, halves, 2, &decision));
        ck_assert_msg(decision.allowed && decision.remaining == size % 2, "%s", text);
    }
}

/* What has been used is charged as far as a key can hold it: by each call that records use. */
CONTRACT_TEST(CONTRACT_COUNTS, a_charge_or_settlement_of_any_size_empties_the_key, 30)
{
    static const int64_t sizes[] = { WEIR_MAX_PERMITS + 1, 3300000000, INT64_C(1) << 53, INT64_MAX };
    static const char *const policies[] = { "token_bucket limit=50000000 period=1h",
                                            "leaky_bucket limit=50000000 period=1h",
                                            "token_bucket limit=50000000 period=1h refill=interval",
                                            "fixed_window limit=50000000 period=1h",
                                            "sliding_window limit=50000000 period=1h" };
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "limit-%zu", i);
        weir_limit *limit = scene_define_text(&scene, name, policies[i]);
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            char keys[4][32];
            for (int way = 0; way < 4; way++)
                snprintf(keys[way], sizeof keys[way], "%zu-%d", k, way);
            struct weir_reservation reservation;
            struct weir_decision decision;
            struct weir_op op = { .request = request_of(limit, keys[2], sizes[k]), .verb = WEIR_OP_CHARGE };
            must_succeed(weir_charge(limit, weir_key_text(keys[0]), sizes[k]));
            must_succeed(weir_reserve(limit, weir_key_text(keys[1]), 1, &decision, &reservation));
            must_succeed(weir_settle(limit, weir_key_text(keys[1]), &reservation, sizes[k]));
            submit_and_wait(scene.limiter, &op);
            op = (struct weir_op){ .request = request_of(limit, keys[3], 1), .verb = WEIR_OP_RESERVE };
            submit_and_wait(scene.limiter, &op);
            op.verb = WEIR_OP_SETTLE;
            op.request.cost = sizes[k];
            submit_and_wait(scene.limiter, &op);
            for (int way = 0; way < 4; way++) {
                const struct weir_decision denied = taken(limit, keys[way], 1);
                ck_assert_msg(!denied.allowed && denied.remaining == 0, "%s %" PRId64 " %d", policies[i], sizes[k],
                              way);
                must_succeed(weir_charge(limit, weir_key_text(keys[way]), INT64_MAX)); /* it is full already */
            }
        }
    }
    scene.log_allowed = true;
    weir_limit *limit = weir_limit_find(scene.limiter, "limit-0");
    ck_assert_int_eq(weir_charge(limit, weir_key_text("a"), 0), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "cost must be 1 or more, not 0");
    ck_assert_int_eq(weir_charge(limit, weir_key_text("a"), INT64_MIN), WEIR_EINVAL);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 50000000);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_refund_returns_at_most_the_permits_that_were_taken, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    taken(limit, "a", 7);
    refund(limit, "a", 2);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 5);
    refund(limit, "a", 6);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
    ck_assert_int_eq(peeked(limit, "a", 1).reset_after_us, 0);
    refund(limit, "a", WEIR_MAX_PERMITS);
    refund(limit, "never seen", WEIR_MAX_PERMITS);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
    ck_assert_int_eq(peeked(limit, "never seen", 1).remaining, 10);
    ck_assert(!taken(limit, "never seen", 11).allowed);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_reset_forgets_the_key_and_no_other, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    taken(limit, "a", 10);
    taken(limit, "b", 10);
    must_succeed(weir_reset(limit, weir_key_text("a")));
    must_succeed(weir_reset(limit, weir_key_text("never seen")));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
    ck_assert_int_eq(peeked(limit, "b", 1).remaining, 0);
    ck_assert(taken(limit, "a", 10).allowed);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_cost_above_the_limit_is_denied_for_ever, 10)
{
    static const char *const policies[] = { "token_bucket limit=10 period=1s debt=2",
                                            "leaky_bucket limit=1 period=1s capacity=12",
                                            "token_bucket limit=3 period=1s burst=12 refill=interval",
                                            "fixed_window limit=12 period=1s", "sliding_window limit=12 period=1s" };
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "limit-%zu", i);
        weir_limit *limit = scene_define_text(&scene, name, policies[i]);
        const struct weir_decision never = taken(limit, "a", 13);
        ck_assert_msg(!never.allowed && never.retry_after_us == WEIR_NEVER && never.limit == 12, "%s", policies[i]);
        ck_assert_int_eq(taken(limit, "a", WEIR_MAX_PERMITS).retry_after_us, WEIR_NEVER);
        ck_assert_msg(taken(limit, "a", 12).allowed, "%s", policies[i]);
    }
}
