/* time.c - contract: the algorithms, by the clock of the options. */
#include "contract/parts.h"

#include <stdio.h>

static const char *const one_of_each[] = {
    "token_bucket limit=10 period=1s",
    "token_bucket limit=10 period=1s burst=20 debt=5",
    "token_bucket limit=10 period=1s refill=interval",
    "token_bucket limit=5 period=1s refill=interval align=epoch burst=15",
    "fixed_window limit=10 period=1s",
    "fixed_window limit=12 period=1m align=epoch",
    "sliding_window limit=10 period=1s",
    "sliding_window limit=30 period=1m blocks=60",
    "leaky_bucket limit=10 period=1s",
    "leaky_bucket limit=7 period=1m capacity=25",
};
enum { EACH = sizeof one_of_each / sizeof one_of_each[0] };

CONTRACT_TEST(CONTRACT_TIME, every_algorithm_denies_when_used_up_and_admits_again_at_retry_after, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (int i = 0; i < EACH; i++) {
        char name[32];
        snprintf(name, sizeof name, "limit-%d", i);
        weir_limit *limit = scene_define_text(&scene, name, one_of_each[i]);
        int64_t size = peeked(limit, "a", 1).limit;
        ck_assert_msg(taken(limit, "a", size).allowed, "%s", one_of_each[i]);
        struct weir_decision denied = taken(limit, "a", 1);
        ck_assert_msg(!denied.allowed && denied.retry_after_us > 0 && denied.reset_after_us >= denied.retry_after_us,
                      "%s", one_of_each[i]);
        scene.now_us += denied.retry_after_us - 1;
        ck_assert_msg(!taken(limit, "a", 1).allowed, "%s", one_of_each[i]);
        scene.now_us++;
        ck_assert_msg(taken(limit, "a", 1).allowed, "%s", one_of_each[i]);
        scene.now_us += peeked(limit, "a", 1).reset_after_us;
        ck_assert_msg(taken(limit, "a", size).allowed, "%s", one_of_each[i]);
    }
}

CONTRACT_TEST(CONTRACT_TIME, a_leaky_bucket_gives_each_caller_its_delay, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "leaky_bucket limit=10 period=1s capacity=3");
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(taken(limit, "a", 1).delay_us, i * 100000);
    struct weir_decision denied = taken(limit, "a", 1);
    ck_assert(!denied.allowed && denied.delay_us == 0 && denied.retry_after_us == 100000);
    scene.now_us += 150000;
    ck_assert_int_eq(taken(limit, "a", 1).delay_us, 150000);
}

CONTRACT_TEST(CONTRACT_TIME, a_redefinition_gives_no_second_burst_and_leaves_no_stale_denial, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (int from = 0; from < EACH; from++) {
        for (int to = 0; to < EACH; to++) {
            char name[32];
            snprintf(name, sizeof name, "limit-%d-%d", from, to);
            weir_limit *limit = scene_define_text(&scene, name, one_of_each[from]);
            int64_t old_size = peeked(limit, "a", 1).limit;
            ck_assert(taken(limit, "a", old_size).allowed && taken(limit, "b", 3).allowed);
            ck_assert_ptr_eq(scene_define_text(&scene, name, one_of_each[to]), limit);
            int64_t new_size = peeked(limit, "fresh", 1).limit;
            int64_t left = new_size > old_size ? new_size - old_size : 0;
            ck_assert_msg(peeked(limit, "a", 1).remaining == left && peeked(limit, "b", 1).remaining == new_size - 3,
                          "%s, then %s", one_of_each[from], one_of_each[to]);
            ck_assert(left == 0 || taken(limit, "a", left).allowed);
            ck_assert_msg(!taken(limit, "a", 1).allowed, "%s, then %s", one_of_each[from], one_of_each[to]);
            scene.now_us += peeked(limit, "a", 1).reset_after_us;
            ck_assert_msg(taken(limit, "a", new_size).allowed, "%s, then %s", one_of_each[from], one_of_each[to]);
        }
    }
}

CONTRACT_TEST(CONTRACT_TIME, a_request_that_gives_a_time_is_decided_at_that_time, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decisions[3];
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=1 period=1s");
    struct weir_request requests[3];
    for (int i = 0; i < 3; i++) {
        requests[i] = request_of(limit, "a", 1);
        requests[i].now_us = scene.now_us + i * 600000;
    }
    must_succeed(weir_try_batch(scene.limiter, requests, 3, decisions));
    ck_assert(decisions[0].allowed && !decisions[1].allowed && decisions[2].allowed);
    ck_assert_int_eq(decisions[1].retry_after_us, 400000);
    struct weir_op op = { .request = requests[2] };
    op.request.now_us += 500000;
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.decision.retry_after_us == 500000);
}

CONTRACT_TEST(CONTRACT_TIME, permits_charged_beyond_the_limit_refill_at_its_rate, 20)
{
    static const struct {
        const char *policy;
        int64_t retry_after_us; /* of one permit, after 25 were charged at a multiple of 10 s */
    } cases[] = {
        { "token_bucket limit=10 period=10s", 16 * WEIR_SECOND },
        { "token_bucket limit=10 period=10s burst=20", 6 * WEIR_SECOND },
        { "leaky_bucket limit=10 period=10s", 16 * WEIR_SECOND },
        { "token_bucket limit=10 period=10s refill=interval", 20 * WEIR_SECOND },
        { "fixed_window limit=10 period=10s", 10 * WEIR_SECOND },
        { "sliding_window limit=10 period=10s", 11 * WEIR_SECOND },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        open_backend(&scene, _i);
        weir_limit *limit = scene_define_text(&scene, "limit", cases[i].policy);
        scene.now_us = 1700000000 * WEIR_SECOND;
        charge(limit, "a", 20);
        charge(limit, "a", 5);
        const struct weir_decision denied = taken(limit, "a", 1);
        ck_assert(!denied.allowed && denied.remaining == 0);
        ck_assert_int_eq(denied.retry_after_us, cases[i].retry_after_us);
        scene.now_us += cases[i].retry_after_us - 1;
        ck_assert(!peeked(limit, "a", 1).allowed);
        scene.now_us++;
        ck_assert(taken(limit, "a", 1).allowed);
    }
}
