/* arguments.c - contract: a bad argument is refused with a sentence that names it, and changes nothing. */
#include "contract/parts.h"

#include <inttypes.h>
#include <stdio.h>

/* Assert that every verb refuses the argument and writes no output. */
static void assert_refused(struct scene *scene, weir_limit *limit, struct weir_key key, int64_t cost)
{
    struct weir_decision decision, untouched;
    struct weir_op op = { .request = { .limit = limit, .key = key, .cost = cost } };
    memset(&untouched, 0x5a, sizeof untouched);
    decision = untouched;
    op.decision = untouched;
    ck_assert_int_eq(weir_try(limit, key, cost, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_acquire(limit, key, cost, 0, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_peek(limit, key, cost, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_refund(limit, key, cost), WEIR_EINVAL);
    if (cost <= 1) /* a charge is never too large */
        ck_assert_int_eq(weir_charge(limit, key, cost), WEIR_EINVAL);
    struct weir_reservation reservation;
    ck_assert_int_eq(weir_reserve(limit, key, cost, &decision, &reservation), WEIR_EINVAL);
    if (cost == 1)
        ck_assert_int_eq(weir_reset(limit, key), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_all(scene->limiter, &op.request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_batch(scene->limiter, &op.request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_submit(scene->limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(memcmp(&decision, &untouched, sizeof decision), 0);
    ck_assert_int_eq(memcmp(&op.decision, &untouched, sizeof decision), 0);
}

CONTRACT_TEST(CONTRACT_COUNTS, arguments_out_of_range_are_refused_and_change_nothing, 10)
{
    static char long_key[WEIR_MAX_KEY_LEN + 1];
    static const int64_t costs[] = { 0, -1, WEIR_MAX_PERMITS + 1, INT64_MAX, INT64_MIN };
    struct weir_key key = weir_key_text("a");
    struct weir_decision decision;
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3 period=1h");
    scene.log_allowed = true;
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++)
        assert_refused(&scene, limit, key, costs[i]);
    assert_refused(&scene, limit, weir_key("a", 0), 1);
    assert_refused(&scene, limit, weir_key(long_key, sizeof long_key), 1);
    assert_refused(&scene, limit, weir_key("a", SIZE_MAX), 1);
    assert_refused(&scene, limit, weir_key(NULL, 1), 1);
    assert_refused(&scene, NULL, key, 1);

    struct weir_request request = request_of(limit, "a", 1);
    ck_assert_int_eq(weir_try(limit, key, 1, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_peek(limit, key, 1, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_acquire(limit, key, 1, 0, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_acquire(limit, key, 1, -1, &decision), WEIR_EINVAL);
    struct weir_reservation waited;
    ck_assert_int_eq(weir_reserve_wait(limit, key, 1, 0, &decision, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_reserve_wait(limit, key, 1, 0, NULL, &waited), WEIR_EINVAL);
    ck_assert_int_eq(weir_reserve_wait(limit, key, 1, -1, &decision, &waited), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_all(NULL, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_all(scene.limiter, NULL, 1, &decision), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "requests must not be NULL");
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, 1, NULL), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "out must not be NULL");
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, 0, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, WEIR_MAX_ALL + 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_batch(NULL, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_batch(scene.limiter, NULL, 1, &decision), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "requests must not be NULL");
    ck_assert_int_eq(weir_try_batch(scene.limiter, &request, 1, NULL), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "outs must not be NULL");
    ck_assert_int_eq(weir_try_batch(scene.limiter, NULL, 0, NULL), WEIR_OK);
    ck_assert_int_eq(weir_submit(NULL, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_submit(scene.limiter, NULL), WEIR_EINVAL);
    request.now_us = -1;
    ck_assert_int_eq(weir_try_batch(scene.limiter, &request, 1, &decision), WEIR_EINVAL);
    request.now_us = WEIR_MAX_TIME_US + 1;
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_refusal_names_the_argument_and_its_range, 10)
{
    static char long_key[WEIR_MAX_KEY_LEN + 1];
    struct weir_decision decisions[2];
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3 period=1h");
    const struct weir_key key = weir_key_text("a");
    struct weir_request request = request_of(limit, "a", 1);
    scene.log_allowed = true;
#define ASSERT_NAMES(call, ...)                           \
    do {                                                  \
        char sentence[128];                               \
        snprintf(sentence, sizeof sentence, __VA_ARGS__); \
        ck_assert_int_eq(call, WEIR_EINVAL);              \
        ck_assert_str_eq(scene.last_line, sentence);      \
    } while (0)
    ASSERT_NAMES(weir_try(limit, key, 0, decisions), "cost must be 1 to %" PRId64 ", not 0", WEIR_MAX_PERMITS);
    ASSERT_NAMES(weir_try(limit, key, WEIR_MAX_PERMITS + 1, decisions), "cost must be 1 to %" PRId64 ", not %" PRId64,
                 WEIR_MAX_PERMITS, WEIR_MAX_PERMITS + 1);
    ASSERT_NAMES(weir_try(limit, weir_key("a", 0), 1, decisions), "key.len must be 1 to %d, not 0", WEIR_MAX_KEY_LEN);
    ASSERT_NAMES(weir_try(limit, weir_key(long_key, sizeof long_key), 1, decisions), "key.len must be 1 to %d, not %d",
                 WEIR_MAX_KEY_LEN, WEIR_MAX_KEY_LEN + 1);
    ASSERT_NAMES(weir_try(limit, weir_key("a", SIZE_MAX), 1, decisions), "key.len must be 1 to %d, not %" PRId64,
                 WEIR_MAX_KEY_LEN, INT64_MAX);
    ASSERT_NAMES(weir_acquire(limit, key, 1, -1, decisions), "max_wait_us must be 0 or more, not -1");
    ASSERT_NAMES(weir_try_all(scene.limiter, &request, 0, decisions), "n must be 1 to %d, not 0", WEIR_MAX_ALL);
    ASSERT_NAMES(weir_try_all(scene.limiter, &request, WEIR_MAX_ALL + 1, decisions), "n must be 1 to %d, not %d",
                 WEIR_MAX_ALL, WEIR_MAX_ALL + 1);
    ASSERT_NAMES(weir_try_all(scene.limiter, &request, SIZE_MAX, decisions), "n must be 1 to %d, not %" PRId64,
                 WEIR_MAX_ALL, INT64_MAX);
    request.now_us = -1;
    ASSERT_NAMES(weir_try_batch(scene.limiter, &request, 1, decisions),
                 "request.now_us must be 0 to %" PRId64 ", not -1", WEIR_MAX_TIME_US);
    request.now_us = WEIR_MAX_TIME_US + 1;
    ASSERT_NAMES(weir_try_batch(scene.limiter, &request, 1, decisions),
                 "request.now_us must be 0 to %" PRId64 ", not %" PRId64, WEIR_MAX_TIME_US, WEIR_MAX_TIME_US + 1);
#undef ASSERT_NAMES
}

CONTRACT_TEST(CONTRACT_COUNTS, a_refused_request_leaves_the_rest_of_its_call_uncharged, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decisions[2];
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3 period=1h");
    const struct weir_request requests[] = { request_of(limit, "a", 1), request_of(limit, "a", 0) };
    scene.log_allowed = true;
    ck_assert_int_eq(weir_try_all(scene.limiter, requests, 2, decisions), WEIR_EINVAL);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_limit_of_another_limiter_is_refused, 10)
{
    struct scene scene, other;
    struct weir_decision decision;
    open_backend(&scene, _i);
    open_backend(&other, _i);
    struct weir_request request = request_of(scene_define_text(&other, "limit", "fixed_window limit=3 period=1h"), "a",
                                             1);
    struct weir_op op = { .request = request };
    scene.log_allowed = true;
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_batch(scene.limiter, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(peeked(request.limit, "a", 1).remaining, 3);
    scene_close(&other);
    scene_close(&scene);
}
