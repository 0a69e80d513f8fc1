/* candidate.c - contract: a policy's candidate counts beside the first half, and is enforced for some keys. */
#include "contract/parts.h"

#include <stdio.h>

#define TEN "fixed_window limit=10 period=1h"

/* Take until a request is denied; return how many were admitted, and in *good how many of them without would_deny. */
static int take_all(weir_limit *limit, const char *key, int *good)
{
    int admitted = 0;
    *good = 0;
    for (;; admitted++) {
        const struct weir_decision decision = taken(limit, key, 1);
        if (!decision.allowed) {
            ck_assert(!decision.would_deny);
            return admitted;
        }
        *good += !decision.would_deny;
        ck_assert_int_lt(admitted, 100);
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, a_candidate_counts_beside_the_first_half_and_denies_nothing, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    int good;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "api", TEN ", candidate limit=3");
    ck_assert_int_eq(take_all(limit, "a", &good), 10);
    ck_assert_int_eq(good, 3);
    ck_assert_int_eq(peeked(limit, "b", 1).limit, 10);
    ck_assert_int_eq(peeked(limit, "b", 1).remaining, 10);
    ck_assert(peeked(limit, "b", 4).allowed && peeked(limit, "b", 4).would_deny);
    ck_assert(peeked(limit, "b", 3).allowed && !peeked(limit, "b", 3).would_deny);
    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(limit, &stats));
    ck_assert_uint_eq(stats.allowed, 10);
    ck_assert_uint_eq(stats.denied, 1);
    ck_assert_uint_eq(stats.would_deny, 7);
    ck_assert_ptr_null(weir_limit_next(scene.limiter, limit)); /* it is no limit of its own */
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "api~"));
    must_succeed(weir_reset(limit, weir_key_text("a"))); /* both halves */
    ck_assert_int_eq(take_all(limit, "a", &good), 10);
    ck_assert_int_eq(good, 3);
}

CONTRACT_TEST(CONTRACT_COUNTS, each_half_keeps_its_count_while_percent_changes, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    int good;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "api", TEN ", candidate limit=6");
    for (int i = 0; i < 4; i++)
        ck_assert(!taken(limit, "a", 1).would_deny);
    scene_define_text(&scene, "api", TEN ", candidate limit=6 percent=100");
    ck_assert_int_eq(peeked(limit, "a", 1).limit, 6);
    ck_assert_int_eq(take_all(limit, "a", &good), 2);
    ck_assert_int_eq(good, 2);
    scene_define_text(&scene, "api", TEN ", candidate limit=6");
    ck_assert_int_eq(take_all(limit, "a", &good), 4);
    ck_assert_int_eq(good, 0);
    scene_define_text(&scene, "api", TEN);
    ck_assert(!taken(limit, "a", 1).allowed);
    ck_assert(taken(limit, "b", 7).allowed && !taken(limit, "b", 1).would_deny);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_candidate_binds_its_percent_of_the_keys, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    char key[16];
    int bound = 0, good;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "api", TEN ", candidate limit=3 percent=50");
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        const int admitted = take_all(limit, key, &good);
        ck_assert(admitted == 3 || admitted == 10);
        ck_assert_int_eq(good, 3);
        bound += admitted == 3;
    }
    ck_assert(bound > 5 && bound < 35);
    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(limit, &stats));
    ck_assert_uint_eq(stats.would_deny, (uint64_t)(40 - bound) * 7);
    ck_assert_uint_eq(stats.denied, 40);
}

CONTRACT_TEST(CONTRACT_COUNTS, every_verb_asks_both_halves, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decision, many[4];
    weir_handle *handle;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "api", TEN ", candidate limit=3");
    weir_limit *wide = scene_define_text(&scene, "wide", "fixed_window limit=100 period=1h");

    must_succeed(weir_key_resolve(limit, weir_key_text("handle"), &handle));
    for (int i = 0; i < 4; i++) {
        must_succeed(weir_handle_try(handle, 1, 0, &decision));
        ck_assert(decision.allowed && decision.would_deny == (i == 3));
    }
    weir_handle_free(handle);

    struct weir_request requests[4];
    for (int i = 0; i < 4; i++)
        requests[i] = (struct weir_request){ .limit = limit, .key = weir_key_text("batch"), .cost = 1 };
    must_succeed(weir_try_batch(scene.limiter, requests, 4, many));
    int would_deny = 0;
    for (int i = 0; i < 4; i++) {
        ck_assert(many[i].allowed);
        would_deny += many[i].would_deny;
    }
    ck_assert_int_eq(would_deny, 1);

    const struct weir_request group[] = { { .limit = wide, .key = weir_key_text("group"), .cost = 1 },
                                          { .limit = limit, .key = weir_key_text("group"), .cost = 1 } };
    for (int i = 0; i < 4; i++) {
        must_succeed(weir_try_all(scene.limiter, group, 2, &decision));
        ck_assert(decision.allowed && decision.would_deny == (i == 3));
        ck_assert_uint_eq(decision.would_deny_by, i == 3 ? 1 : 0);
    }

    for (int i = 0; i < 4; i++) {
        must_succeed(weir_acquire(limit, weir_key_text("acquire"), 1, WEIR_SECOND, &decision));
        ck_assert(decision.allowed && decision.would_deny == (i == 3));
    }

    for (int i = 0; i < 4; i++) {
        struct weir_op op = { .verb = WEIR_OP_TRY,
                              .request = { .limit = limit, .key = weir_key_text("submit"), .cost = 1 } };
        submit_and_wait(scene.limiter, &op);
        ck_assert(op.decision.allowed && op.decision.would_deny == (i == 3));
        ck_assert_ptr_eq(op.request.limit, limit);
    }

    must_succeed(weir_charge(limit, weir_key_text("charge"), 2));
    ck_assert(!taken(limit, "charge", 1).would_deny && taken(limit, "charge", 1).would_deny);
    must_succeed(weir_refund(limit, weir_key_text("charge"), 3));
    ck_assert(!taken(limit, "charge", 3).would_deny && taken(limit, "charge", 1).would_deny);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_settlement_gives_back_what_each_half_has_charged, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    int good;
    open_backend(&scene, _i);
    for (int percent = 0; percent <= 100; percent += 100) {
        char text[80], key[16];
        snprintf(text, sizeof text, TEN ", candidate limit=3 percent=%d", percent ? percent : 1);
        weir_limit *limit = scene_define_text(&scene, percent ? "all" : "none",
                                              percent ? text : TEN ", candidate limit=3");
        snprintf(key, sizeof key, "key-%d", percent);
        const struct weir_reservation first = reserved(limit, key, 3, true);
        must_succeed(weir_settle(limit, weir_key_text(key), &first, 1)); /* both have 1 in use */
        ck_assert_int_eq(peeked(limit, key, 1).remaining, percent ? 2 : 9);
        ck_assert(!taken(limit, key, 2).would_deny);
        if (percent) {
            ck_assert(!taken(limit, key, 1).allowed);
            scene_define_text(&scene, "all", TEN ", candidate limit=3");
            ck_assert_int_eq(take_all(limit, key, &good), 7);
            ck_assert_int_eq(good, 0);
            continue;
        }
        const struct weir_reservation second = reserved(limit, key, 2, true); /* not by the candidate */
        ck_assert_int_eq(second.candidate_us, -1);
        must_succeed(weir_settle(limit, weir_key_text(key), &second, 0));
        ck_assert_int_eq(peeked(limit, key, 1).remaining, 7);
        ck_assert(peeked(limit, key, 1).would_deny);
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, an_override_may_have_a_candidate_and_its_limit_another, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    int good;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "api", TEN ", candidate limit=3");
    scene_define_text(&scene, "api/vip-*", "fixed_window limit=20 period=1h, candidate limit=15");
    scene_define_text(&scene, "api/plain", "fixed_window limit=12 period=1h");
    ck_assert_int_eq(take_all(limit, "a", &good), 10);
    ck_assert_int_eq(good, 3);
    ck_assert_int_eq(take_all(limit, "vip-1", &good), 20);
    ck_assert_int_eq(good, 15);
    ck_assert_int_eq(take_all(limit, "plain", &good), 12);
    ck_assert_int_eq(good, 12);
    must_succeed(weir_limit_define(scene.limiter, "api/vip-*", NULL, NULL));
    ck_assert(!taken(limit, "vip-1", 1).allowed);
    struct weir_policy policy;
    must_succeed(weir_limit_policy_for(limit, weir_key_text("vip-1"), &policy));
    ck_assert_int_eq(policy.candidate.limit, 3);
}
