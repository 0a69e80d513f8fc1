/* test_follow_threads.c - a limiter follows a list function: its thread, a close, a fork, and many threads together. */
#include "follow_stage.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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
#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN) /* their own locks may be held in such a child */
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
    assert_child_can_close(limiter);
    weir_close(limiter);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_int_eq((int)(intptr_t)result, WEIR_ECLOSED);
}

/* gcc 12's AddressSanitizer may fork while another thread holds its allocator's locks. */
#ifdef UNDER_ASAN
enum { RUNS_WITH_FORKS = 0 };
#else
enum { RUNS_WITH_FORKS = 1 };
#endif

TEST_EACH(limiters_can_be_opened_forked_and_closed_while_peers_change, RUNS_WITH_FORKS, 60)
{
    struct answer answer = { .n = 3 };
    for (int i = 0; i < 20; i++) {
        weir *limiter = open_list(&answer);
        assert_child_can_close(limiter);
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
