/* test_follow.c - news from sources reaches the limiter: shares, stats and readiness. The test is the source. */
#include "follow_stage.h"

#include <stdio.h>
#include <stdlib.h>

TEST(nothing_is_admitted_until_a_hold_down_after_the_first_answer, 30)
{
    static const char *const policies[] = {
        "token_bucket limit=100 period=1m burst=50 debt=7",
        "token_bucket limit=100 period=1m refill=interval",
        "leaky_bucket limit=100 period=1m",
        "fixed_window limit=100 period=1m",
        "sliding_window limit=100 period=1m",
    };
    CLOSED_BY(stage_end) struct stage stage;
    stage_options(&stage);
    stage_open(&stage, false);
    weir_limit *limits[5];
    for (int i = 0; i < 5; i++)
        limits[i] = scene_define_text(&stage.scene, (const char *[]){ "a", "b", "c", "d", "e" }[i], policies[i]);
    assert_share(stage.scene.limiter, 0, 1);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).share_zeros, 5);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 5; i++) {
            for (int64_t cost = 1; cost <= WEIR_MAX_PERMITS; cost *= 1000) {
                struct weir_decision decision = taken(limits[i], "key", cost);
                ck_assert(!decision.allowed && decision.limit == 0 && decision.remaining == 0);
                ck_assert_int_eq(decision.retry_after_us, WEIR_NEVER);
                decision = peeked(limits[i], "key", cost);
                ck_assert(!decision.allowed && decision.remaining == 0 && decision.reset_after_us == 0);
            }
            must_succeed(weir_refund(limits[i], weir_key_text("key"), 5));
            must_succeed(weir_reset(limits[i], weir_key_text("key")));
        }
        if (turn == 0)
            tell(&stage, 2);
        if (turn == 1)
            pass(&stage, HOLD_US - 1);
    }
    pass(&stage, 1);
    assert_share(stage.scene.limiter, 1, 2);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(taken(limits[i], "key", 1).limit, i == 0 ? 28 : 50);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).share_zeros, 0);
}

TEST(a_share_shrinks_immediately_grows_after_the_hold_down_and_keeps_used_permits, 30)
{
    static const char *const unrefilled[] = {
        "fixed_window limit=100 period=30d", "sliding_window limit=100 period=30d",
        "token_bucket limit=100 period=30d", "token_bucket limit=100 period=30d refill=interval",
        "leaky_bucket limit=100 period=30d",
    };
    for (int i = 0; i < 5; i++) {
        CLOSED_BY(stage_end) struct stage stage;
        stage_options(&stage);
        stage_open(&stage, false);
        weir_limit *limit = scene_define_text(&stage.scene, "limit", unrefilled[i]);
        tell(&stage, 2);
        pass(&stage, HOLD_US);
        ck_assert(taken(limit, "key", 20).allowed);
        ck_assert_int_eq(peeked(limit, "key", 1).remaining, 30);
        tell(&stage, 4);
        ck_assert_int_eq(peeked(limit, "key", 1).remaining, 5);
        ck_assert(!taken(limit, "key", 6).allowed);
        tell(&stage, 2);
        ck_assert_int_eq(peeked(limit, "key", 1).remaining, 5);
        pass(&stage, HOLD_US - 1);
        ck_assert_int_eq(peeked(limit, "key", 1).remaining, 5);
        assert_share(stage.scene.limiter, 1, 4);
        pass(&stage, 1);
        ck_assert_int_eq(peeked(limit, "key", 1).remaining, 30);
        assert_share(stage.scene.limiter, 1, 2);
    }
}

TEST(answers_are_counted_and_an_unusable_one_leaves_the_share_unchanged, 30)
{
    static const struct weir_peer without[] = { { "a", 1 }, { "c", 1 } };
    static const struct weir_peer twice[] = { { "b", 1 }, { "c", 1 }, { "b", 1 } };
    static const struct weir_peer heavy[] = { { "b", 1 }, { "evil\n\033[1m", 65536 } };
    static const struct {
        const struct weir_peer *peers;
        size_t n;
        const char *says;
    } rows[] = {
        { abcd, 0, "the list of peers is empty" },
        { without, 2, "this instance, b, is not among the 2 peers" },
        { twice, 3, "peer b is there twice" },
        { heavy, 2, "the weight of peer evil\\x0a\\x1b[1m must be 1 to 65535, not 65536" },
    };
    CLOSED_BY(stage_end) struct stage stage;
    stage_options(&stage);
    stage_open(&stage, false);
    struct weir_follow_stats stats = peers_now(stage.scene.limiter);
    ck_assert_int_eq(stats.age_us, -1);
    ck_assert_int_eq(stats.rank, -1);
    ck_assert(stats.answers == 0 && stats.failures == 0 && stats.changes == 0 && stats.last_error[0] == '\0');

    tell(&stage, 3);
    tell(&stage, 3);
    follow_confirmed(stage.scene.limiter, WEIR_FOLLOW_PEERS);
    pass(&stage, HOLD_US);
    stats = peers_now(stage.scene.limiter);
    ck_assert(stats.answers == 3 && stats.changes == 1 && stats.failures == 0 && stats.refused == 0);
    ck_assert(stats.instances == 3 && stats.rank == 1 && stats.age_us == HOLD_US);

    stage.scene.log_allowed = true;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        follow_peers(stage.scene.limiter, rows[i].peers, rows[i].n, "b");
        stats = peers_now(stage.scene.limiter);
        ck_assert_str_eq(stats.last_error, rows[i].says);
        ck_assert_uint_eq(stats.failures, i + 1);
        assert_share(stage.scene.limiter, 1, 3);
    }
    ck_assert(stats.answers == 3 && stats.instances == 3 && stats.rank == 1);
    ck_assert_int_eq(stage.scene.log_lines, 1);
    ck_assert_str_eq(stage.scene.last_line, "peers: the list of peers is empty");
}

TEST(a_failing_source_and_its_recovery_are_logged_once_a_minute_at_most, 30)
{
    CLOSED_BY(stage_end) struct stage stage;
    stage_options(&stage);
    stage_open(&stage, false);
    stage.scene.log_allowed = true;
    for (int i = 0; i < 5; i++)
        follow_failed(stage.scene.limiter, WEIR_FOLLOW_PEERS, "number %d", i);
    ck_assert_int_eq(stage.scene.log_lines, 1);
    ck_assert_str_eq(stage.scene.last_line, "peers: number 0");
    ck_assert_str_eq(peers_now(stage.scene.limiter).last_error, "number 4");
    tell(&stage, 2);
    ck_assert_int_eq(stage.scene.log_lines, 2);
    ck_assert_str_eq(stage.scene.last_line, "peers: known again");
    for (int i = 0; i < 20; i++) { /* on and off, 40 s */
        follow_failed(stage.scene.limiter, WEIR_FOLLOW_PEERS, "again %d", i);
        boot_us += 2 * WEIR_SECOND;
        tell(&stage, 2);
    }
    ck_assert_int_eq(stage.scene.log_lines, 2);
    boot_us += 20 * WEIR_SECOND;
    follow_failed(stage.scene.limiter, WEIR_FOLLOW_PEERS, "much later");
    ck_assert_int_eq(stage.scene.log_lines, 3);
    boot_us += WEIR_MINUTE;
    follow_failed(stage.scene.limiter, WEIR_FOLLOW_PEERS, "much later"); /* no news */
    ck_assert_int_eq(stage.scene.log_lines, 3);
    follow_failed(stage.scene.limiter, WEIR_FOLLOW_PEERS, "another reason");
    ck_assert_int_eq(stage.scene.log_lines, 4);
}

TEST(a_share_that_is_too_old_is_replaced_by_the_floor_and_logged, 30)
{
    CLOSED_BY(stage_end) struct stage stage;
    stage_options(&stage);
    stage.peers.floor_instances = 10;
    stage_open(&stage, false);
    weir_limit *limit = scene_define_text(&stage.scene, "limit", "fixed_window limit=100 period=30d");
    assert_share(stage.scene.limiter, 1, 10);
    ck_assert_int_eq(peeked(limit, "key", 1).limit, 10);
    tell(&stage, 2);
    pass(&stage, HOLD_US);
    ck_assert_int_eq(peeked(limit, "key", 1).limit, 50);
    ck_assert_int_eq(follow_peers_due_us(stage.scene.limiter), boot_us + STALE_US - HOLD_US);
    stage.scene.log_allowed = true;
    pass(&stage, STALE_US - HOLD_US);
    assert_share(stage.scene.limiter, 1, 10);
    ck_assert_int_eq(peeked(limit, "key", 1).limit, 10);
    ck_assert_int_eq(stage.scene.log_lines, 1);
    ck_assert_str_eq(stage.scene.last_line, "peers: not known for 300 s: the share is 1/10 until they are known again");
    pass(&stage, 10 * (int64_t)STALE_US);
    ck_assert_int_eq(stage.scene.log_lines, 1);
    follow_confirmed(stage.scene.limiter, WEIR_FOLLOW_PEERS);
    ck_assert_int_eq(peeked(limit, "key", 1).limit, 10);
    pass(&stage, HOLD_US);
    ck_assert_int_eq(peeked(limit, "key", 1).limit, 50);
    ck_assert_int_eq(stage.scene.log_lines, 1);
}

TEST(a_limit_without_exact_arithmetic_at_the_current_share_is_defined_and_logged, 30)
{
    static const struct weir_peer uneven[] = { { "a", 65535 }, { "b", 1 } };
    const struct weir_policy slow = { .limit = 1, .period_us = 366 * WEIR_DAY, .burst = 100 };
    CLOSED_BY(stage_end) struct stage stage;
    stage_options(&stage);
    stage_open(&stage, false);
    weir_limit *limit = scene_define(&stage.scene, "slow", &slow);
    stage.scene.log_allowed = true;
    follow_peers(stage.scene.limiter, uneven, 2, "b");
    pass(&stage, HOLD_US);
    ck_assert_int_eq(stage.scene.log_lines, 1);
    ck_assert_str_eq(stage.scene.last_line,
                     "limit slow has no exact arithmetic at this instance's share: it is denied here");
    ck_assert_int_eq(taken(limit, "key", 1).retry_after_us, WEIR_NEVER);
    must_succeed(weir_limit_define(stage.scene.limiter, "slower", &slow, &limit));
    ck_assert_uint_eq(stats_of(stage.scene.limiter).share_zeros, 2);
    tell(&stage, 2);
    pass(&stage, HOLD_US);
    ck_assert_int_eq(peeked(limit, "key", 1).limit, 50);
}

TEST(a_common_backend_receives_the_instance_count_and_its_fallback_the_share, 30)
{
    CLOSED_BY(stage_end) struct stage stage;
    stage_options(&stage);
    stage.options.on_failure = WEIR_FAIL_LOCAL;
    stage_open(&stage, true);
    stage.scene.log_allowed = true;
    weir_limit *limit = scene_define_text(&stage.scene, "limit", "token_bucket limit=100 period=10us");
    struct weir_decision decision = taken(limit, "key", 1);
    ck_assert_int_eq(decision.source, WEIR_BY_BACKEND);
    ck_assert_int_eq(decision.limit, 100);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    decision = taken(limit, "key", 1);
    ck_assert_int_eq(decision.source, WEIR_BY_FALLBACK);
    ck_assert(decision.limit == 0 && decision.retry_after_us == WEIR_SECOND);
    ck_assert_int_eq(instances_told, SHARE_MAX_INSTANCES); /* as many as there may be */
    tell(&stage, 4);
    ck_assert_int_eq(instances_told, SHARE_MAX_INSTANCES);
    pass(&stage, HOLD_US);
    ck_assert_int_eq(instances_told, 4);
    ck_assert_int_eq(taken(limit, "key", 1).limit, 25);
    tell(&stage, 2);
    ck_assert_int_eq(instances_told, 4);
    pass(&stage, HOLD_US);
    ck_assert_int_eq(instances_told, 2);
    ck_assert_int_eq(taken(limit, "key", 1).limit, 50);
    atomic_store(&stage.fake.answer, WEIR_OK);
    ck_assert_int_eq(taken(limit, "key", 1).limit, 100);
}

TEST(nothing_is_leased_before_the_number_of_instances_is_known, 30)
{
    CLOSED_BY(stage_end) struct stage stage;
    struct weir_limit_info info = { .size = sizeof info };
    stage_options(&stage);
    stage.options.mode = WEIR_HYBRID;
    stage.options.redis_url = "redis://unused";
    stage_open(&stage, true);
    weir_limit *limit = scene_define_text(&stage.scene, "limit", "token_bucket limit=1000 period=1s");
    must_succeed(weir_limit_info(limit, &info));
    ck_assert(info.limit == 1000 && info.lease_max == 0 && info.over_max == 0);
    tell(&stage, 4);
    must_succeed(weir_limit_info(limit, &info));
    ck_assert(info.lease_max == 0 && info.over_max == 0);
    pass(&stage, HOLD_US);
    must_succeed(weir_limit_info(limit, &info));
    ck_assert_int_eq(info.lease_max, 2 * (1000 / 8));
    tell(&stage, 2);
    must_succeed(weir_limit_info(limit, &info));
    ck_assert_int_eq(info.lease_max, 2 * (1000 / 8));
    pass(&stage, HOLD_US);
    must_succeed(weir_limit_info(limit, &info));
    ck_assert_int_eq(info.lease_max, 2 * (1000 / 4));
}

struct noted {
    struct follower follower;
    int *ends, number;
};

static void note_end(struct follower *follower)
{
    struct noted *noted = (struct noted *)follower;
    *noted->ends = 10 * *noted->ends + noted->number;
    free(noted);
}

static int ends;

static int start_two_and_fail(const struct weir_options *options, struct weir *limiter)
{
    for (int number = 1; number <= 2; number++) {
        struct noted *noted = malloc(sizeof *noted);
        *noted = (struct noted){ .follower.end = note_end, .ends = &ends, .number = number };
        follow_add(limiter, &noted->follower);
    }
    return WEIR_EIO;
}

TEST(a_source_that_cannot_start_stops_earlier_ones_and_leaves_the_backend_open, 30)
{
    struct stage stage;
    stage_options(&stage);
    must_succeed(options_read(&stage.options, &stage.read));
    must_succeed(options_read_followed(&stage.read, &stage.read_peers, &stage.read_consul));
    fake_init(&stage.fake);
    weir *limiter = NULL;
    ck_assert_int_eq(limiter_make(&stage.read, &stage.fake.base, NULL, start_two_and_fail, &limiter), WEIR_EIO);
    ck_assert_ptr_null(limiter);
    ck_assert_int_eq(ends, 21); /* the last one first */
    ck_assert(!atomic_load(&stage.fake.destroyed));
}

/* ---- Readiness ---- */

TEST(weir_await_ready_returns_immediately_if_nothing_is_followed, 30)
{
    OPEN_SCENE(scene, NULL);
    must_succeed(weir_await_ready(scene.limiter, 0));
    struct weir_follow_stats stats = { .size = sizeof stats };
    for (int what = -1; what < 5; what++)
        ck_assert_int_eq(weir_follow_read(scene.limiter, (enum weir_followed)what, &stats), WEIR_EINVAL);
    ck_assert_int_eq(weir_await_ready(NULL, 0), WEIR_EINVAL);
    scene.log_allowed = true;
    ck_assert_int_eq(weir_await_ready(scene.limiter, -1), WEIR_EINVAL);
    ck_assert_int_eq(weir_await_ready(scene.limiter, WEIR_HOUR + 1), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "max_wait_us must be 0 to 3600000000, not 3600000001");
}

TEST(weir_await_ready_returns_once_the_first_share_is_in_force, 30)
{
    CLOSED_BY(stage_end) struct stage stage;
    stage_options(&stage);
    stage_open(&stage, false);
    ck_assert_int_eq(weir_await_ready(stage.scene.limiter, 0), WEIR_ETIME);
    tell(&stage, 2);
    ck_assert_int_eq(weir_await_ready(stage.scene.limiter, 1000), WEIR_ETIME);
    pass(&stage, HOLD_US);
    must_succeed(weir_await_ready(stage.scene.limiter, 0));
    struct weir_follow_stats stats = { .size = sizeof stats - 1 };
    ck_assert_int_eq(weir_follow_read(stage.scene.limiter, WEIR_FOLLOW_PEERS, &stats), WEIR_EINVAL);
    stats.size = sizeof stats;
    ck_assert_int_eq(weir_follow_read(stage.scene.limiter, WEIR_FOLLOW_PEERS, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_follow_read(stage.scene.limiter, WEIR_FOLLOW_POLICY_FILE, &stats), WEIR_EINVAL);
    ck_assert_int_eq(weir_follow_read(stage.scene.limiter, (enum weir_followed)(WEIR_FOLLOW_POLICY_FILE + 1), &stats),
                     WEIR_EINVAL);
}

TEST(terminal_control_characters_are_escaped_in_the_log, 30)
{
    static const struct {
        const char *told, *logged;
    } rows[] = {
        { "a\tb\r\nc \x1b[2J\x7f.", "a\\x09b\\x0d\\x0ac \\x1b[2J\\x7f." },
        { "\xc2\x80 \xc2\x9b\x32J \xc2\x9f\xc2", "\\xc2\\x80 \\xc2\\x9b"
                                                 "2J \\xc2\\x9f\xc2" },
        { "\xc2\xa0 \xc3\x9b \xe2\x82\xac \xf0\x9f\x98\x80", "\xc2\xa0 \xc3\x9b \xe2\x82\xac \xf0\x9f\x98\x80" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(stage_end) struct stage stage;
        char line[100];
        stage_options(&stage);
        stage_open(&stage, false);
        stage.scene.log_allowed = true;
        follow_failed(stage.scene.limiter, WEIR_FOLLOW_PEERS, "%s", rows[i].told);
        ck_assert_str_eq(peers_now(stage.scene.limiter).last_error, rows[i].logged);
        snprintf(line, sizeof line, "peers: %s", rows[i].logged);
        ck_assert_str_eq(stage.scene.last_line, line);
    }
}

TEST(weir_await_ready_waits_for_followed_policies_and_refused_ones_are_logged, 30)
{
    CLOSED_BY(stage_end) struct stage stage;
    struct weir_consul consul = { .size = sizeof consul };
    stage_options(&stage);
    stage.options.peers = NULL;
    stage.options.consul = &consul;
    stage.options.consul_policies = "weir";
    stage_open(&stage, false);
    weir *limiter = stage.scene.limiter;
    ck_assert_int_eq(weir_await_ready(limiter, 0), WEIR_ETIME);
    struct policy_entry entries[] = {
        { .name = "api", .policy = policy_of("fixed_window limit=7 period=1m"), .where = "here" },
        { .name = "bad", .error = "it is\nbad", .where = "there" },
    };
    stage.scene.log_allowed = true;
    follow_policies(limiter, WEIR_FOLLOW_CONSUL_POLICIES, entries, 2);
    ck_assert_int_eq(stage.scene.log_lines, 1);
    ck_assert_str_eq(stage.scene.last_line, "policies in Consul: 1 refused, the last of them: there: it is\\x0abad");
    must_succeed(weir_await_ready(limiter, 0));
    ck_assert_int_eq(peeked(weir_limit_find(limiter, "api"), "key", 1).limit, 7);
    struct weir_follow_stats stats = follow_stats_of(limiter, WEIR_FOLLOW_CONSUL_POLICIES);
    ck_assert(stats.answers == 1 && stats.changes == 1 && stats.refused == 1 && stats.failures == 0);
    ck_assert_str_eq(stats.last_error, "there: it is\\x0abad");
    follow_confirmed(limiter, WEIR_FOLLOW_CONSUL_POLICIES);
    must_succeed(weir_follow_read(limiter, WEIR_FOLLOW_CONSUL_POLICIES, &stats));
    ck_assert(stats.answers == 2 && stats.changes == 1);
}

/* ---- Memory that runs out ---- */

static _Thread_local int64_t mallocs_left = INT64_MAX;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
    return mallocs_left-- > 0 ? __real_malloc(size) : NULL;
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    return mallocs_left-- > 0 ? __real_calloc(count, size) : NULL;
}

TEST(without_memory_for_the_weights_a_share_is_rounded_down, 30)
{
    static const struct weir_peer uneven[] = { { "a", 2 }, { "b", 5 }, { "c", 1 }, { "d", 4 } };
    for (int64_t left = 0; left < 4; left++) {
        CLOSED_BY(stage_end) struct stage stage;
        stage_options(&stage);
        stage_open(&stage, false);
        weir_limit *limit = scene_define_text(&stage.scene, "limit", "fixed_window limit=50 period=30d");
        tell(&stage, 2);
        pass(&stage, HOLD_US);
        ck_assert_int_eq(peeked(limit, "key", 1).limit, 25);
        stage.scene.log_allowed = true;
        mallocs_left = left; /* the sorted list, the weights, the copy in force */
        follow_peers(stage.scene.limiter, uneven, 4, "b");
        mallocs_left = INT64_MAX;
        const struct weir_follow_stats stats = peers_now(stage.scene.limiter);
        ck_assert_uint_eq(stats.failures, left < 2);
        if (left < 2)
            ck_assert_str_eq(stats.last_error, "out of memory for 4 peers");
        ck_assert_int_eq(peeked(limit, "key", 1).limit, left < 2 ? 25 : left == 2 ? 20 : 21); /* of 20.8 */
    }
}

TEST(an_open_without_memory_is_refused_and_leaves_nothing_behind, 60) /* LeakSanitizer checks that */
{
    struct answer answer = { .n = 2 };
    for (int by_dns = 0; by_dns < 2; by_dns++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        struct weir_peers peers = { .size = sizeof peers, .id = "127.0.0.1" };
        peers.dns = by_dns ? "127.0.0.1" : NULL;
        peers.list = by_dns ? NULL : list_by_answer;
        options.peers = &peers;
        options.user = &answer;
        weir *limiter = NULL;
        int64_t left = 0;
        for (int error = WEIR_ENOMEM; error; left++) {
            mallocs_left = left;
            error = weir_open(&options, &limiter);
            mallocs_left = INT64_MAX;
            ck_assert(error == WEIR_OK || (error == WEIR_ENOMEM && !limiter));
        }
        ck_assert_int_gt(left, 3);
        weir_close(limiter);
    }
}
