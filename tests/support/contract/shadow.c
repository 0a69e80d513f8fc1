/* shadow.c - contract: a shadow limit counts and denies nothing. */
#include "contract/parts.h"

CONTRACT_TEST(CONTRACT_COUNTS, a_shadow_limit_counts_and_denies_nothing, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *shadow = scene_define_text(&scene, "shadow", "fixed_window limit=3 period=1h shadow");
    for (int i = 0; i < 5; i++) {
        struct weir_decision decision = taken(shadow, "a", 1);
        ck_assert(decision.allowed);
        ck_assert(decision.would_deny == (i >= 3));
        ck_assert_int_eq(decision.retry_after_us, 0);
        ck_assert_int_eq(decision.remaining, i < 3 ? 2 - i : 0);
    }
    ck_assert(peeked(shadow, "a", 1).allowed && peeked(shadow, "a", 1).would_deny);
    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(shadow, &stats));
    ck_assert_uint_eq(stats.allowed, 5);
    ck_assert_uint_eq(stats.denied, 0);
    ck_assert_uint_eq(stats.would_deny, 2);
    ck_assert_uint_eq(stats.permits, 3);

    scene_define_text(&scene, "shadow", "fixed_window limit=3 period=1h"); /* what was used stays used */
    ck_assert(!taken(shadow, "a", 1).allowed);
    ck_assert(!taken(shadow, "a", 1).would_deny);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_shadow_limit_never_denies_a_group_and_is_charged_with_it, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *small = scene_define_text(&scene, "small", "fixed_window limit=2 period=1h shadow");
    weir_limit *tiny = scene_define_text(&scene, "tiny", "fixed_window limit=1 period=1h shadow");
    weir_limit *large = scene_define_text(&scene, "large", "fixed_window limit=3 period=1h");
    const struct weir_request requests[] = { request_of(small, "a", 1), request_of(large, "a", 1),
                                             request_of(tiny, "a", 1) };
    struct weir_decision decision;
    for (int i = 0; i < 4; i++) {
        must_succeed(weir_try_all(scene.limiter, requests, 3, &decision));
        ck_assert(decision.allowed == (i < 3));
        ck_assert(decision.would_deny == (i == 1 || i == 2));
        ck_assert_int_eq(decision.would_deny_by, i == 1 ? 2 : 0);
        ck_assert_int_eq(decision.bound_by, 1);
        ck_assert_int_eq(decision.limit, 3);
        ck_assert_int_eq(decision.remaining, i < 3 ? 2 - i : 0);
    }
    ck_assert_int_eq(peeked(small, "a", 1).remaining, 0);
    must_succeed(weir_reset(small, weir_key_text("a")));
    must_succeed(weir_try_all(scene.limiter, requests, 3, &decision)); /* denied by `large`: nothing is charged */
    ck_assert(!decision.allowed);
    ck_assert_int_eq(peeked(small, "a", 1).remaining, 2);

    must_succeed(weir_try_all(scene.limiter, &requests[0], 1, &decision)); /* no limit of the group is enforced */
    ck_assert(decision.allowed && !decision.would_deny);
    ck_assert_int_eq(decision.remaining, 1);
    const struct weir_request twice[] = { requests[0], requests[0] };
    must_succeed(weir_try_all(scene.limiter, twice, 2, &decision));
    ck_assert(decision.allowed && decision.would_deny);

    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(small, &stats));
    ck_assert_uint_eq(stats.allowed, 5);
    ck_assert_uint_eq(stats.would_deny, 2);
    ck_assert_uint_eq(stats.permits, 3);
    must_succeed(weir_limit_stats_read(large, &stats));
    ck_assert_uint_eq(stats.allowed, 3);
    ck_assert_uint_eq(stats.denied, 2);
    ck_assert_uint_eq(stats.permits, 3);
    ck_assert_uint_eq(stats_of(scene.limiter).allowed, 5); /* each call once */
    ck_assert_uint_eq(stats_of(scene.limiter).denied, 2);
}
