/* figures.c - contract: what the limiter and each limit count. */
#include "contract/parts.h"

CONTRACT_TEST(CONTRACT_COUNTS, each_limit_counts_its_answers_to_every_verb, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=30 period=1h");
    weir_limit *other = scene_define_text(&scene, "other", "fixed_window limit=5 period=1h");
    struct weir_limit_stats stats = { .size = sizeof stats };
    struct weir_decision decisions[2];
    taken(limit, "a", 2);
    taken(limit, "a", 29);
    peeked(limit, "a", 1);
    refund(limit, "a", 1);
    must_succeed(weir_acquire(limit, weir_key_text("a"), 26, 0, decisions));
    const struct weir_request both[] = { request_of(limit, "a", 1), request_of(other, "a", 5) };
    must_succeed(weir_try_batch(scene.limiter, both, 2, decisions));
    must_succeed(weir_try_all(scene.limiter, both, 2, decisions)); /* `other` denies; `limit` would have admitted */
    struct weir_op op = { .request = request_of(limit, "a", 1) };
    submit_and_wait(scene.limiter, &op);

    must_succeed(weir_limit_stats_read(limit, &stats));
    ck_assert_uint_eq(stats.allowed, 4);
    ck_assert_uint_eq(stats.denied, 1);
    ck_assert_uint_eq(stats.permits, 30);
    ck_assert_uint_eq(stats.near, 2); /* when 2 and 1 of 30 were left */
    uint64_t sources = 0;
    for (int source = 0; source < WEIR_SOURCES_LEN; source++)
        sources += stats.by_source[source];
    ck_assert_uint_eq(sources, 5);
    must_succeed(weir_limit_stats_read(other, &stats));
    ck_assert_uint_eq(stats.allowed, 1);
    ck_assert_uint_eq(stats.denied, 1);
    ck_assert_uint_eq(stats.permits, 5);
}

CONTRACT_TEST(CONTRACT_COUNTS, every_answer_is_counted_once, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_stats stats = { .size = sizeof stats };
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=5 period=1h");
    const struct weir_request three[] = { request_of(limit, "b", 2), request_of(limit, "c", 2),
                                          request_of(limit, "d", 9) };
    struct weir_decision decisions[3];
    struct weir_op op = { .request = request_of(limit, "e", 5) };
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.allowed + stats.denied + stats.errors, 0);
    for (int i = 0; i < 8; i++)
        taken(limit, "a", 1);                                               /* 5 and 3 */
    must_succeed(weir_try_batch(scene.limiter, three, 3, decisions));       /* 2 and 1 */
    must_succeed(weir_try_all(scene.limiter, three, 2, decisions));         /* 1 */
    must_succeed(weir_try_all(scene.limiter, three, 3, decisions));         /* and 1 */
    must_succeed(weir_acquire(limit, weir_key_text("f"), 1, 0, decisions)); /* 1 */
    must_succeed(weir_acquire(limit, weir_key_text("f"), 5, 0, decisions)); /* and 1 */
    peeked(limit, "a", 1);
    refund(limit, "a", 1);
    must_succeed(weir_reset(limit, weir_key_text("a")));
    submit_and_wait(scene.limiter, &op); /* 1 */
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.allowed, 10);
    ck_assert_uint_eq(stats.denied, 6);
    ck_assert_uint_eq(stats.errors, 0);
    ck_assert_int_eq(stats.share_weight, 1);
    ck_assert_int_eq(stats.share_total, 1);
    stats.size = 1;
    ck_assert_int_eq(weir_stats_read(scene.limiter, &stats), WEIR_EINVAL);
    ck_assert_int_eq(weir_stats_read(scene.limiter, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_stats_read(NULL, &stats), WEIR_EINVAL);
}
