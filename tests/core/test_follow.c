/* test_follow.c - news from sources reaches the limiter: shares, stats and readiness, from a function and from DNS. */
#include "fake.h"

#include "backends/follow/sources.h"
#include "backends/memory/memory.h"
#include "core/api/life.h"
#include "core/follow/follow.h"
#include "core/limiter/options.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- A limiter whose source is the test, with a clock that the test sets ---- */

enum { HOLD_US = 2000000, STALE_US = 300000000, POLL_US = 100000 };

static int64_t boot_us = 1000;

static int64_t boot_in_hand(void)
{
    return boot_us;
}

static int start_nothing(const struct weir_options *options, struct weir *limiter)
{
    limiter->follow->now_us = boot_in_hand;
    return WEIR_OK;
}

static int64_t list_nothing(void *user, struct weir_peer *peers, size_t room)
{
    return -1;
}

struct stage {
    struct scene scene;
    struct fake fake;
    struct weir_peers peers;
    struct weir_options options, read;
    struct weir_peers read_peers;
    struct weir_consul read_consul;
};

static void stage_options(struct stage *stage)
{
    *stage = (struct stage){ .options = WEIR_OPTIONS_INIT };
    stage->peers = (struct weir_peers){ .size = sizeof stage->peers, .list = list_nothing, .id = "b" };
    stage->peers.hold_down_us = HOLD_US;
    stage->peers.poll_us = POLL_US;
    stage->options.peers = &stage->peers;
}

static int64_t instances_told;

static void hear_instances(struct weir_backend *backend, int64_t count)
{
    instances_told = count;
}

/* Open with the options of stage_options() and the test. With `fake`, all instances count in the fake backend, and
 * memory is its fallback. */
static void stage_open(struct stage *stage, bool fake)
{
    struct weir_backend *memory;
    scene_init(&stage->scene, &stage->options);
    must_succeed(options_read(&stage->options, &stage->read));
    must_succeed(options_read_followed(&stage->read, &stage->read_peers, &stage->read_consul));
    must_succeed(memory_open(&stage->read, &memory));
    if (fake) {
        fake_init(&stage->fake);
        stage->fake.ops.shared = true;
        stage->fake.ops.instances = hear_instances;
    }
    must_succeed(limiter_make(&stage->read, fake ? &stage->fake.base : memory, fake ? memory : NULL, start_nothing,
                              &stage->scene.limiter));
}

static void stage_end(struct stage *stage)
{
    scene_close(&stage->scene);
}

static const struct weir_peer abcd[] = { { "a", 1 }, { "b", 1 }, { "c", 1 }, { "d", 1 } };

static void tell(struct stage *stage, size_t n)
{
    follow_peers(stage->scene.limiter, abcd, n, "b");
}

static void pass(struct stage *stage, int64_t us)
{
    boot_us += us;
    follow_peers_turn(stage->scene.limiter);
}

static struct weir_follow_stats peers_now(weir *limiter)
{
    return follow_stats_of(limiter, WEIR_FOLLOW_PEERS);
}

static void assert_share(weir *limiter, int64_t weight, int64_t total)
{
    struct weir_stats stats = stats_of(limiter);
    ck_assert_int_eq(stats.share_weight, weight);
    ck_assert_int_eq(stats.share_total, total);
}

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

/* ---- With threads ---- */

static void await(bool (*holds)(void *user), void *user, const char *what)
{
    for (int i = 0; i < 20000; i++) {
        if (holds(user))
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    ck_abort_msg("in vain: %s", what);
}

static void *await_for_ever(void *user)
{
    return (void *)(intptr_t)weir_await_ready(user, WEIR_HOUR);
}

static bool somebody_waits(void *user)
{
    struct weir *limiter = user;
    uint64_t inside = 0;
    for (int i = 0; i < STATS_STRIPES; i++)
        inside += atomic_load(&limiter->stats.stripes[i].inside);
    return inside == 1;
}

TEST(closing_wakes_a_thread_in_weir_await_ready, 60)
{
    struct stage stage;
    pthread_t thread;
    void *result;
    stage_options(&stage);
    stage_open(&stage, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, await_for_ever, stage.scene.limiter), 0);
    await(somebody_waits, stage.scene.limiter, "a call that waits");
    scene_close(&stage.scene);
    pthread_join(thread, &result);
    ck_assert_int_eq((int)(intptr_t)result, WEIR_ECLOSED);
}

/* The answer of a list function; any thread may change it. */
struct answer {
    _Atomic int64_t n;
    _Atomic int calls;
};

static int64_t list_by_answer(void *user, struct weir_peer *peers, size_t room)
{
    struct answer *answer = user;
    atomic_fetch_add(&answer->calls, 1);
    const int64_t n = atomic_load(&answer->n);
    for (int64_t i = 0; i < n && i < 4; i++)
        peers[i] = abcd[i];
    return n > 4 ? (int64_t)room + 1 : n;
}

struct expected {
    weir *limiter;
    int64_t total;
    uint64_t failures;
    const char *says;
};

static bool has_share(void *user)
{
    const struct expected *expected = user;
    return stats_of(expected->limiter).share_total == expected->total;
}

static bool has_failed(void *user)
{
    const struct expected *expected = user;
    return peers_now(expected->limiter).failures >= expected->failures;
}

/* Wait for this reason: a machine that pauses causes failures with other reasons. */
static bool has_failed_so(void *user)
{
    const struct expected *expected = user;
    return strstr(peers_now(expected->limiter).last_error, expected->says) != NULL;
}

static weir *open_list(struct answer *answer)
{
    struct weir_peers peers = { .size = sizeof peers, .list = list_by_answer, .poll_us = POLL_US };
    char id[] = "b";
    weir *limiter;
    peers.id = id;
    peers.hold_down_us = POLL_US;
    must_succeed(weir_open(OPTIONS(.peers = &peers, .user = answer), &limiter));
    id[0] = '?'; /* weir has copied it, and the structs on this stack */
    return limiter;
}

TEST(a_callers_list_function_provides_the_peers, 60)
{
    struct answer answer = { .n = 2 };
    weir *limiter = open_list(&answer);
    struct expected expected = { .limiter = limiter };
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    assert_share(limiter, 1, 2);
    atomic_store(&answer.n, 4);
    expected.total = 4;
    await(has_share, &expected, "a share of 1 in 4");
    atomic_store(&answer.n, -7);
    expected.failures = 1;
    await(has_failed, &expected, "a failure");
    ck_assert_str_eq(peers_now(limiter).last_error, "peers.list() failed: -7");
    atomic_store(&answer.n, 5);
    expected.failures = peers_now(limiter).failures + 2; /* one may be under way */
    await(has_failed, &expected, "another failure");
    ck_assert_str_eq(peers_now(limiter).last_error, "peers.list() returned 10001 peers; there is room for 10000");
    assert_share(limiter, 1, 4);
    atomic_store(&answer.n, 3);
    expected.total = 3;
    await(has_share, &expected, "a share of 1 in 3, a hold-down later");
    weir_close(limiter);
    const int calls = atomic_load(&answer.calls);
    nanosleep(&(struct timespec){ .tv_nsec = 2 * POLL_US * 1000 }, NULL);
    ck_assert_int_eq(atomic_load(&answer.calls), calls);
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

TEST(a_forked_child_follows_nothing_and_keeps_its_share, 60)
{
    struct answer answer = { .n = 2 };
    weir *limiter = open_list(&answer);
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct weir_stats stats = { .size = sizeof stats };
        struct weir_follow_stats followed = { .size = sizeof followed };
        alarm(30);
        bool right = weir_stats_read(limiter, &stats) == WEIR_OK && stats.share_total == 2 &&
                     weir_follow_read(limiter, WEIR_FOLLOW_PEERS, &followed) == WEIR_OK && followed.answers > 0 &&
                     weir_await_ready(limiter, 0) == WEIR_OK;
        const int calls = atomic_load(&answer.calls);
        weir_close(limiter);
        right = right && atomic_load(&answer.calls) == calls;
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* their own locks may be held in such a child */
        weir *own = open_list(&answer);                             /* the child may follow again */
        right = right && weir_await_ready(own, 20 * WEIR_SECOND) == WEIR_OK;
        weir_close(own);
#endif
        _exit(right ? 0 : 1);
    }
    assert_child_succeeds(child);
    struct expected expected = { .limiter = limiter, .total = 4 };
    atomic_store(&answer.n, 4);
    await(has_share, &expected, "the parent goes on");
    weir_close(limiter);
}

static _Atomic(weir *) to_close;

static int64_t list_that_closes(void *user, struct weir_peer *peers, size_t room)
{
    peers[0] = abcd[0];
    weir_close(atomic_exchange(&to_close, NULL)); /* NULL is ignored */
    return 1;
}

static int64_t list_that_fails(void *user, struct weir_peer *peers, size_t room)
{
    peers[0] = abcd[0];
    return atomic_load(&to_close) ? -1 : 1; /* logged once a minute */
}

static void hook_that_closes(void *user, enum weir_log_level level, const char *line)
{
    weir_close(atomic_exchange(&to_close, NULL));
}

/* Run in a child process, which this ends. */
static void close_from(struct weir_options *options, struct weir_peers *peers, int errors)
{
    weir *limiter;
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
    dup2(errors, STDERR_FILENO);
    alarm(30);
    peers->id = "a";
    peers->poll_us = POLL_US;
    options->peers = peers;
    must_succeed(weir_open(options, &limiter));
    atomic_store(&to_close, limiter);
    for (;;)
        pause();
}

TEST(closing_from_the_limiters_own_thread_ends_the_program_with_a_message, 60)
{
    for (int i = 0; i < 2; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        struct weir_peers peers = { .size = sizeof peers, .list = i ? list_that_fails : list_that_closes };
        char said[200] = "";
        int stream[2], status;
        options.log = i ? hook_that_closes : NULL;
        ck_assert_int_eq(pipe(stream), 0);
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            close_from(&options, &peers, stream[1]);
        close(stream[1]);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_gt(read(stream[0], said, sizeof said - 1), 0);
        close(stream[0]);
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "ended otherwise: %d", status);
        ck_assert_msg(strstr(said, "weir: weir_close() was called from the log hook or from") != NULL, "%s", said);
    }
}

TEST(a_forked_child_can_close_while_a_thread_waits_in_its_parent, 30)
{
    struct answer answer = { .n = -1 };
    weir *limiter = open_list(&answer);
    pthread_t thread;
    void *result;
    ck_assert_int_eq(pthread_create(&thread, NULL, await_for_ever, limiter), 0);
    await(somebody_waits, limiter, "a call that waits");
    usleep(20000); /* if the thread is not there yet, the child's case is only easier */
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        weir_close(limiter);
        _exit(0);
    }
    assert_child_succeeds(child);
    weir_close(limiter);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_int_eq((int)(intptr_t)result, WEIR_ECLOSED);
}

/* gcc 12's AddressSanitizer may fork while another thread holds its allocator's locks. */
#ifdef __SANITIZE_ADDRESS__
enum { RUNS_WITH_FORKS = 0 };
#else
enum { RUNS_WITH_FORKS = 1 };
#endif

TEST_EACH(limiters_can_be_opened_forked_and_closed_while_peers_change, RUNS_WITH_FORKS, 60)
{
    struct answer answer = { .n = 3 };
    for (int i = 0; i < 20; i++) {
        weir *limiter = open_list(&answer);
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);
            weir_close(limiter);
            _exit(0);
        }
        assert_child_succeeds(child);
        weir_close(limiter);
    }
}

/* ---- Many threads ---- */

enum { TELLERS = 3, TURNS = 400 };

struct crowd {
    weir *limiter;
    _Atomic int64_t now_us;
    _Atomic bool is_over;
};
static struct crowd crowd;

static int64_t crowd_now(void)
{
    return atomic_fetch_add(&crowd.now_us, 1 + HOLD_US / 10);
}

static int start_crowd(const struct weir_options *options, struct weir *limiter)
{
    limiter->follow->now_us = crowd_now;
    return WEIR_OK;
}

static void *tell_at_random(void *user)
{
    struct chance chance = chance_make((uint64_t)(intptr_t)user);
    for (int i = 0; i < TURNS; i++) {
        struct weir_peer peers[4];
        const size_t n = (size_t)chance_between(&chance, 2, 4);
        for (size_t k = 0; k < n; k++)
            peers[k] = (struct weir_peer){ abcd[k].id, chance_between(&chance, 1, 3) };
        follow_peers(crowd.limiter, peers, n, "b");
        follow_peers_turn(crowd.limiter);
        if (chance_one_in(&chance, 10))
            follow_failed(crowd.limiter, WEIR_FOLLOW_PEERS, "turn %d", i);
    }
    return NULL;
}

/* Decide and read stats, at least once, until the tellers are done. */
static void *look_on(void *user)
{
    struct weir_decision decision;
    for (int i = 0; i == 0 || !atomic_load(&crowd.is_over); i++) {
        const struct weir_policy policy = { .limit = 100 + i % 2, .period_us = 30 * WEIR_DAY };
        weir_limit *limit;
        must_succeed(weir_limit_define(crowd.limiter, "limit", &policy, &limit));
        must_succeed(weir_try(limit, weir_key_text("key"), 1, &decision));
        must(decision.limit <= 75, "b has three parts in four at most");
        struct weir_follow_stats stats = peers_now(crowd.limiter);
        must(stats.answers <= (uint64_t)TELLERS * TURNS, "answers are counted once");
        must(stats_of(crowd.limiter).share_total >= 1, "there is a share");
    }
    return NULL;
}

TEST(shares_reported_by_several_threads_take_effect_in_order, 60)
{
    struct weir_options options = WEIR_OPTIONS_INIT, read;
    struct weir_peers peers = { .size = sizeof peers, .list = list_nothing, .id = "b" }, read_peers;
    struct weir_consul consul;
    struct weir_backend *memory;
    pthread_t tellers[TELLERS], looker;
    options.peers = &peers;
    peers.hold_down_us = HOLD_US;
    peers.poll_us = POLL_US;
    peers.max_stale_us = 30 * WEIR_DAY;
    must_succeed(options_read(&options, &read));
    must_succeed(options_read_followed(&read, &read_peers, &consul));
    must_succeed(memory_open(&read, &memory));
    must_succeed(limiter_make(&read, memory, NULL, start_crowd, &crowd.limiter));
    ck_assert_int_eq(pthread_create(&looker, NULL, look_on, NULL), 0);
    for (intptr_t i = 0; i < TELLERS; i++)
        ck_assert_int_eq(pthread_create(&tellers[i], NULL, tell_at_random, (void *)i), 0);
    for (int i = 0; i < TELLERS; i++)
        pthread_join(tellers[i], NULL);
    atomic_store(&crowd.is_over, true);
    pthread_join(looker, NULL);

    /* The share in force follows from the rules, no matter which thread was last. */
    struct share chain[PEERS_SHARES];
    peers_in_force(&crowd.limiter->follow->peers, chain);
    assert_share(crowd.limiter, chain[0].weight, chain[0].total);
    const struct weir_follow_stats stats = peers_now(crowd.limiter);
    ck_assert_uint_eq(stats.answers, TELLERS * TURNS);
    weir_limit *limit = weir_limit_find(crowd.limiter, "limit");
    struct weir_policy policy;
    must_succeed(weir_limit_policy(limit, &policy));
    ck_assert_int_eq(peeked(limit, "new", 1).limit, share_permits(chain, policy.limit));
    weir_close(crowd.limiter);
}

/* ---- DNS ---- */

/* The addresses of the name; any thread may change them. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const char *addresses[6]; /* in digits, up to the first NULL */
    int error;
    bool hangs;
    int asked;
} dns = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static int look_up(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME; /* a name is not an address */
    ck_assert_str_eq(host, "peers.example");
    pthread_mutex_lock(&dns.mutex);
    dns.asked++;
    pthread_cond_broadcast(&dns.changed);
    while (dns.hangs)
        pthread_cond_wait(&dns.changed, &dns.mutex);
    int error = dns.error;
    struct addrinfo **link = found;
    *found = NULL;
    for (int i = 0; !error && dns.addresses[i]; i++, link = &(*link)->ai_next) {
        const struct addrinfo digits = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
        error = getaddrinfo(dns.addresses[i], service, &digits, link);
    }
    pthread_mutex_unlock(&dns.mutex);
    return error;
}

static void free_found(struct addrinfo *found)
{
    while (found) { /* each was found alone */
        struct addrinfo *next = found->ai_next;
        found->ai_next = NULL;
        freeaddrinfo(found);
        found = next;
    }
}

/* True once the resolver has been asked that often. */
static int dns_say(int error, bool hangs, const char *const addresses[])
{
    pthread_mutex_lock(&dns.mutex);
    dns.error = error;
    dns.hangs = hangs;
    for (int i = 0; i < 6; i++)
        dns.addresses[i] = NULL;
    for (int i = 0; addresses && addresses[i]; i++)
        dns.addresses[i] = addresses[i];
    const int asked = dns.asked;
    pthread_cond_broadcast(&dns.changed);
    pthread_mutex_unlock(&dns.mutex);
    return asked;
}

/* True once the resolver has been asked more often than that. */
static void await_question(int asked)
{
    pthread_mutex_lock(&dns.mutex);
    while (dns.asked == asked)
        pthread_cond_wait(&dns.changed, &dns.mutex);
    pthread_mutex_unlock(&dns.mutex);
}

static int start_dns(const struct weir_options *options, struct weir *limiter)
{
    return peers_dns_follow_by(options, limiter,
                               &(struct resolve_target){ .look_up = look_up, .free_found = free_found });
}

static weir *open_dns(const char *id)
{
    struct stage stage;
    struct weir_backend *memory;
    weir *limiter;
    stage_options(&stage);
    stage.peers = (struct weir_peers){ .size = sizeof stage.peers, .dns = "peers.example", .poll_us = POLL_US };
    stage.peers.hold_down_us = POLL_US;
    stage.peers.id = id;
    must_succeed(options_read(&stage.options, &stage.read));
    must_succeed(options_read_followed(&stage.read, &stage.read_peers, &stage.read_consul));
    must_succeed(memory_open(&stage.read, &memory));
    must_succeed(limiter_make(&stage.read, memory, NULL, start_dns, &limiter));
    return limiter;
}

TEST(dns_counts_the_addresses_behind_a_name, 60)
{
    static const char *const three[] = { "10.0.0.2", "10.0.0.1", "10.0.0.2", "2001:db8::1", NULL };
    static const char *const two[] = { "10.0.0.2", "10.0.0.1", NULL };
    static const char *const others[] = { "10.0.0.3", "10.0.0.4", "10.0.0.5", NULL };
    dns_say(0, false, three);
    weir *limiter = open_dns(NULL);
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    assert_share(limiter, 1, 3);
    ck_assert_int_eq(peers_now(limiter).rank, -1);
    struct expected expected = { .limiter = limiter, .total = 2 };
    dns_say(0, false, two);
    await(has_share, &expected, "a share of 1 in 2");
    weir_close(limiter);

    dns_say(0, false, three);
    limiter = open_dns("2001:0DB8:0::1"); /* however it is written */
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    ck_assert_int_eq(peers_now(limiter).rank, 2);
    dns_say(0, false, others); /* this one is not among them */
    expected = (struct expected){ .limiter = limiter, .says = "this instance, 2001:db8::1, is not among the 3 peers" };
    await(has_failed_so, &expected, "a list without this instance");
    assert_share(limiter, 1, 3);
    weir_close(limiter);
}

static weir *open_dns_that_hangs(void)
{
    const int asked = dns_say(0, true, NULL);
    weir *limiter = open_dns("10.0.0.1");
    await_question(asked);
    return limiter;
}

TEST(a_failing_or_hanging_dns_lookup_is_logged_and_delays_no_caller, 60)
{
    static const char *const two[] = { "10.0.0.2", "10.0.0.1", NULL };
    dns_say(0, false, two);
    weir *limiter = open_dns("10.0.0.1");
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    struct expected expected = { .limiter = limiter, .says = "peers.example: the host's name is not resolved: " };
    dns_say(EAI_NONAME, false, NULL);
    await(has_failed_so, &expected, "a name that is not there");
    dns_say(0, false, NULL); /* a name without an address */
    expected.failures = peers_now(limiter).failures + 2;
    await(has_failed, &expected, "a name without an address");
    const int asked = dns_say(0, true, two);
    await_question(asked);
    expected.failures = peers_now(limiter).failures + 3;
    await(has_failed, &expected, "no answer, and again none");
    ck_assert_str_eq(peers_now(limiter).last_error, "peers.example: no answer in time");
    assert_share(limiter, 1, 2);
    pthread_mutex_lock(&dns.mutex);
    ck_assert_int_eq(dns.asked, asked + 1); /* one that hangs is not asked twice */
    pthread_mutex_unlock(&dns.mutex);
    weir_close(limiter); /* while it hangs */
    dns_say(0, false, NULL);
}

/* Return 0, or the number of the process that lost a descriptor that it had opened itself. A daemon closes all
 * descriptors, so it reuses the numbers that its parent's limiter had, and it may fork again. */
static _Noreturn void be_daemon(weir *limiter)
{
    enum { FILES = 20, FIRST = 3 };
    int status = 0;
    alarm(30);
    closefrom(FIRST);
    for (int i = 0; i < FILES; i++)
        if (memfd_create("own", MFD_CLOEXEC) != FIRST + i)
            _exit(1);
    const pid_t child = fork();
    weir_close(limiter);
    for (int i = 0; i < FILES; i++)
        if (fcntl(FIRST + i, F_GETFD) < 0)
            _exit(child == 0 ? 3 : 2);
    if (child != 0)
        must(waitpid(child, &status, 0) == child, "a daemon forks");
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
}

TEST(a_forked_child_that_closed_all_descriptors_keeps_its_later_ones, 60)
{
    struct answer answer = { .n = 2 };
    char path[] = "/tmp/weir-policies-XXXXXX";
    close(mkstemp(path));
    for (int i = 0; i < 3; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        weir *limiter;
        options.policy_file = path;
        options.follow_policy_file = true;
        if (i == 0)
            limiter = open_list(&answer);
        else if (i == 1)
            limiter = open_dns_that_hangs();
        else
            must_succeed(weir_open(&options, &limiter));
        const pid_t child = fork();
        int status;
        if (child == 0)
            be_daemon(limiter);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(status == 0, "limiter %d: the child ended with status %#x", i, (unsigned)status);
        weir_close(limiter);
    }
    unlink(path);
    dns_say(0, false, NULL);
}

TEST(a_forked_child_can_close_while_dns_hangs_in_its_parent, 60)
{
    weir *limiter = open_dns_that_hangs();
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        weir_close(limiter);
        _exit(0);
    }
    assert_child_succeeds(child);
    weir_close(limiter);
    dns_say(0, false, NULL);
}

TEST(the_system_resolver_accepts_a_numeric_address, 60)
{
    struct weir_peers peers = { .size = sizeof peers, .dns = "127.0.0.1", .id = "127.0.0.1", .poll_us = POLL_US };
    weir *limiter;
    peers.hold_down_us = POLL_US;
    must_succeed(weir_open(OPTIONS(.peers = &peers), &limiter));
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    assert_share(limiter, 1, 1);
    ck_assert_int_eq(peers_now(limiter).instances, 1);
    weir_close(limiter);
}
