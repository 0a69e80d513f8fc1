/* test_redis_process.c - a limiter and its process: forks, signals, weir_close(), and the caller's own event loop.
 * Faults E6 and E7 of distributed mode. */
#include "redis_place.h"

#include "core/limiter/inside.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Forks ---- */

/* ThreadSanitizer does not support threads in a forked child. With AddressSanitizer of gcc 12, a fork may find its
 * allocator's locks held by another thread; a child that allocates then waits forever. */
#if defined(UNDER_TSAN)
enum { CHILD_HAS_THREADS = 0, CHILD_ALLOCATES = 0 };
#elif defined(UNDER_ASAN)
enum { CHILD_HAS_THREADS = 1, CHILD_ALLOCATES = 0 };
#else
enum { CHILD_HAS_THREADS = 1, CHILD_ALLOCATES = 1 };
#endif

struct walker { /* takes permits of a private key, so it knows exactly how many are left */
    weir_limit *limit;
    int number;
    atomic_bool *done;
    _Atomic int64_t steps;
};

/* Take permits one by one; return the number of the first unexpected answer, or -1. */
static int64_t walk(struct walker *walker, int64_t least_steps)
{
    char key[32];
    struct weir_decision decision;
    snprintf(key, sizeof key, "walker-%d", walker->number);
    for (int64_t i = 1; i <= least_steps || (walker->done != NULL && !atomic_load(walker->done)); i++) {
        int status = weir_try(walker->limit, weir_key_text(key), 1, &decision);
        if (status != WEIR_OK || decision.source != WEIR_BY_REDIS || decision.limit - decision.remaining != i)
            return i;
        walker->steps = i;
    }
    return -1;
}

static void *walk_all_the_while(void *argument)
{
    struct walker *walker = argument;
    int64_t missed = walk(walker, 1);
    if (missed >= 0)
        ck_abort_msg("walker %d: step %" PRId64 " is not where it should be", walker->number, missed);
    return NULL;
}

TEST_EACH(after_a_fork_with_calls_in_flight_parent_and_child_get_their_own_answers, CHILD_ALLOCATES, 60)
{
    enum { WALKERS = 12, CHILDREN = 6 };
    struct crew crew = { .n = WALKERS };
    static struct walker walkers[WALKERS];
    atomic_bool done = false;
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 10 * WEIR_SECOND);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "key");
    for (int i = 0; i < WALKERS; i++) {
        walkers[i] = (struct walker){ .limit = limit, .number = i, .done = &done };
        must(pthread_create(&crew.threads[i], NULL, walk_all_the_while, &walkers[i]) == 0, "a thread starts");
    }
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        sleep_us(10000);
        children[i] = fork();
        if (children[i] == 0) {
            struct walker own = { .limit = limit, .number = 100 + i };
            signal(SIGALRM, SIG_DFL); /* Check uses SIGALRM itself */
            alarm(120);               /* distinguishes a hanging child from a failing one */
            int64_t missed = walk(&own, 200);
            if (i == 0 && missed < 0) { /* and once more */
                pid_t grandchild = fork();
                int status = 1;
                own.number = 200;
                if (grandchild == 0)
                    _exit(walk(&own, 100) >= 0);
                if (waitpid(grandchild, &status, 0) != grandchild || status != 0)
                    missed = 0;
            }
            if (i % 2 == 0)
                weir_close(limiter);
            _exit(missed >= 0);
        }
        must(children[i] > 0, "a fork");
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status = 1;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_msg(status == 0, "child %d ended with status %d", i, status);
    }
    for (int i = 0; i < WALKERS; i++)
        while (atomic_load(&walkers[i].steps) <= 10)
            sleep_us(1000);
    atomic_store(&done, true);
    crew_join(&crew);
    weir_close(limiter);
}

/* A caller gets its own connection after some calls: make this thread have one. */
static weir_limit *open_with_lane(struct place *place, weir **limiter)
{
    place_open(place, false, NULL);
    struct weir_options options = place_options(place, 10 * WEIR_SECOND);
    *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(*limiter, "limit", UNREFILLED);
    for (int i = 0; i < 20; i++)
        taken(limit, "key", 1);
    return limit;
}

TEST(a_forked_child_that_decides_nothing_leaves_its_parents_connections_open, 30)
{
    CLOSED_BY(place_close) struct place place;
    weir *limiter;
    weir_limit *limit = open_with_lane(&place, &limiter);
    uint64_t connections = stats_of(limiter).store_connections;
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        int status = 1;
        if (child == 0) {
            if (i % 2 == 0)
                weir_close(limiter);
            _exit(0);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
        ck_assert_int_eq(taken(limit, "key", 1).source, WEIR_BY_REDIS);
    }
    ck_assert_uint_eq(stats_of(limiter).store_connections, connections);
    ck_assert_int_eq(place_log_lines(&place), 0);
    weir_close(limiter);
}

/* Return the inode behind a descriptor. */
static ino_t inode_of(int fd)
{
    struct stat seen;
    return fstat(fd, &seen) == 0 ? seen.st_ino : 0;
}

/* Close all descriptors as a daemon does, then open files that reuse the numbers of the parent's connections. Return
 * 0 or a code of the failed step. */
static int close_all_and_take(weir_limit *limit, weir *limiter)
{
    enum { FILES = 40, FIRST = 3 };
    int files[FILES];
    closefrom(FIRST);
    for (int i = 0; i < FILES; i++)
        files[i] = memfd_create("own", MFD_CLOEXEC);
    const ino_t first = inode_of(files[0]), last = inode_of(files[FILES - 1]);
    struct walker walker = { .limit = limit, .number = 300 };
    if (files[0] != FIRST || first == 0 || last == 0)
        return 1;
    if (walk(&walker, 20) >= 0)
        return 2;
    weir_close(limiter);
    for (int i = 0; i < FILES; i++)
        if (inode_of(files[i]) == 0)
            return 3;
    return inode_of(files[0]) == first && inode_of(files[FILES - 1]) == last ? 0 : 4;
}

TEST_EACH(a_forked_child_that_closed_all_descriptors_keeps_those_opened_later, CHILD_HAS_THREADS, 30)
{
    CLOSED_BY(place_close) struct place place;
    weir *limiter;
    weir_limit *limit = open_with_lane(&place, &limiter);
    pid_t child = fork();
    int status = 1;
    if (child == 0)
        _exit(close_all_and_take(limit, limiter));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(status == 0, "the child ended with status %#x", (unsigned)status);
    ck_assert_int_eq(taken(limit, "key", 1).source, WEIR_BY_REDIS);
    weir_close(limiter);
}

static void *fall_back_all_the_while(void *argument)
{
    struct walker *walker = argument;
    while (!atomic_load(walker->done)) {
        char key[32];
        struct weir_decision decision;
        snprintf(key, sizeof key, "%d-%" PRId64, walker->number, walker->steps++);
        must_succeed(weir_try(walker->limit, weir_key_text(key), 1, &decision));
    }
    return NULL;
}

/* Without a server all decisions are made in memory, under locks that the child must not find held. */
TEST_EACH(a_child_forked_in_an_outage_has_a_working_fallback, CHILD_ALLOCATES, 60)
{
    enum { THREADS = 2, CHILDREN = 40 };
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_policy policy = { .limit = 1000, .period_us = 1000 };
    struct walker walkers[THREADS];
    pthread_t threads[THREADS];
    atomic_bool done = false;
    weir *limiter;
    weir_limit *limit;
    options.mode = WEIR_DISTRIBUTED;
    options.redis_url = "unix:///nowhere/redis.sock";
    options.max_keys = 60000;
    must_succeed(weir_open(&options, &limiter));
    must_succeed(weir_limit_define(limiter, "limit", &policy, &limit));
    for (int i = 0; i < THREADS; i++) {
        walkers[i] = (struct walker){ limit, i, &done, 0 };
        must(pthread_create(&threads[i], NULL, fall_back_all_the_while, &walkers[i]) == 0, "a thread");
    }
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        must(child >= 0, "a child");
        if (child == 0) {
            struct weir_decision decision;
            alarm(60);
            for (int j = 0; j < 2000; j++) {
                char key[32];
                snprintf(key, sizeof key, "child-%d", j);
                if (weir_try(limit, weir_key_text(key), 1, &decision) != WEIR_OK)
                    _exit(1);
            }
            _exit(0);
        }
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d ended with status %d", i, status);
    }
    atomic_store(&done, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    weir_close(limiter);
}

/* ---- Signals ---- */

static _Atomic int64_t alarms;

static void count_alarm(int number)
{
    (void)number;
    atomic_fetch_add(&alarms, 1);
}

TEST(ten_thousand_signals_a_second_cause_no_error, 60)
{
    const struct sigaction action = { .sa_handler = count_alarm }; /* without SA_RESTART */
    const struct itimerval often = { .it_interval.tv_usec = 100, .it_value.tv_usec = 100 },
                           never = { .it_value.tv_usec = 0 };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 10 * WEIR_SECOND);
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (int i = 0; i < 10; i++) {
        LIMITER(limiter, &options);
        struct walker walker = { .limit = limit_of(limiter, "limit", UNREFILLED), .number = i };
        ck_assert_int_eq(walk(&walker, 300), -1);
    }
    ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
    ck_assert_int_gt(atomic_load(&alarms), 10);
    ck_assert_int_eq(place_log_lines(&place), 0);
}

TEST(a_write_to_a_closed_connection_does_not_kill_the_process, 60)
{
    PLACE(place, true, NULL);
    struct weir_options options = place_options(&place, 100000);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    ck_assert_int_eq((intptr_t)signal(SIGPIPE, SIG_DFL), (intptr_t)SIG_DFL);
    for (int i = 0; i < 50; i++) {
        struct weir_decision decision;
        recover(limit, "key");
        fproxy_cut(place.proxy, i % 2 == 0);
        for (int j = 0; j < 3; j++) {
            int status = weir_try(limit, weir_key_text("key"), 1, &decision);
            ck_assert(status == WEIR_OK || status == WEIR_EIO || status == WEIR_ETIME);
        }
    }
}

/* ---- The end ---- */

struct waiting {
    weir *limiter;
    weir_limit *limit;
    _Atomic int64_t closed, submitted, submitted_closed;
};

static void *wait_for_an_answer(void *argument)
{
    struct waiting *waiting = argument;
    struct weir_decision decision = { .limit = 4711 };
    int status = weir_try(waiting->limit, weir_key_text("key"), 1, &decision);
    must(status == WEIR_ECLOSED, "a call that waits is told of the end");
    must(decision.limit == 4711, "an error leaves the decision alone");
    atomic_fetch_add(&waiting->closed, 1);
    return NULL;
}

static void count_closed(struct weir_op *op, int status)
{
    struct waiting *waiting = op->user;
    atomic_fetch_add(&waiting->submitted_closed, status == WEIR_ECLOSED);
}

TEST_EACH(weir_close_ends_all_waiting_requests_immediately, 2, 30)
{
    enum { CALLERS = 24, OPS = 200 };
    struct crew crew;
    static struct weir_op ops[OPS];
    struct waiting waiting = { .limiter = NULL };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 60 * WEIR_SECOND);
    waiting.limiter = limiter_of(&options);
    waiting.limit = limit_of(waiting.limiter, "limit", UNREFILLED);
    recover(waiting.limit, "key");
    if (_i == 1)
        ck_assert_int_ge(weir_event_fd(waiting.limiter), 0);
    redis_server_pause(&place.server);
    for (int i = 0; i < OPS; i++) {
        ops[i] = (struct weir_op){ .request = { waiting.limit, weir_key_text("key"), 1, 0 },
                                   .done = count_closed,
                                   .user = &waiting };
        ck_assert_int_eq(weir_submit(waiting.limiter, &ops[i]), 1);
    }
    crew_start(&crew, CALLERS, wait_for_an_answer, &waiting);
    while (inside_sum(waiting.limiter) < OPS + CALLERS) /* a call after weir_close() would be the test's defect */
        sched_yield();
    int64_t began_us = wire_now_us();
    weir_close(waiting.limiter);
    int64_t took_us = wire_now_us() - began_us;
    crew_join(&crew);
    printf("close with %d calls and %d requests under way took %" PRId64 " us\n", (int)CALLERS, (int)OPS, took_us);
    ck_assert_int_lt(took_us, 20 * WEIR_SECOND); /* and not the timeout */
    ck_assert_int_eq(waiting.closed, CALLERS);
    ck_assert_int_eq(waiting.submitted_closed, OPS);
}

/* ---- The caller's event loop ---- */

struct tally {
    pthread_t thread; /* where `done` must run */
    int64_t done, allowed, errors;
};

static void tally_one(struct weir_op *op, int status)
{
    struct tally *tally = op->user;
    must(pthread_equal(pthread_self(), tally->thread), "it runs on the thread that dispatches");
    tally->done++;
    tally->errors += status != WEIR_OK;
    tally->allowed += status == WEIR_OK && op->decision.allowed;
}

static void dispatch_all(weir *limiter, const struct tally *tally, int64_t n)
{
    struct pollfd ready = { .fd = weir_event_fd(limiter), .events = POLLIN };
    int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (tally->done < n) {
        must(wire_now_us() < until_us, "what was submitted is done");
        if (poll(&ready, 1, 1000) > 0)
            ck_assert_int_ge(weir_dispatch(limiter), 0);
    }
    ck_assert_int_eq(weir_dispatch(limiter), 0);
    ck_assert_int_eq(poll(&ready, 1, 0), 0);
}

TEST(a_callers_event_loop_completes_every_request_even_in_an_outage, 30)
{
    enum { OPS = 1000 };
    static struct weir_op ops[OPS];
    struct tally tally = { .thread = pthread_self() };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 10 * WEIR_SECOND);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", "fixed_window limit=500 period=366d");
    ck_assert_int_ge(weir_event_fd(limiter), 0);
    for (int round = 0; round < 2; round++) {
        int64_t waiting = 0;
        tally.done = tally.allowed = tally.errors = 0;
        for (int i = 0; i < OPS; i++) {
            ops[i] = (struct weir_op){ .request = { limit, weir_key_text("key"), 1, 0 },
                                       .done = tally_one,
                                       .user = &tally };
            int status = weir_submit(limiter, &ops[i]);
            ck_assert(status == 1 || (round == 1 && (status == WEIR_EIO || status == WEIR_ETIME)));
            waiting += status == 1;
        }
        dispatch_all(limiter, &tally, waiting);
        ck_assert_int_eq(tally.allowed, round == 0 ? 500 : 0);
        ck_assert_int_eq(tally.errors, round == 0 ? 0 : waiting);
        redis_server_kill(&place.server);
    }
    weir_close(limiter);
    asker_close(&place.asker);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}

/* ---- Leases of an instance that closes ---- */

enum { LEASED_KEYS = 200 };

/* Return the permits left in Redis, over all keys. */
static int64_t left_in_redis(weir_limit *limit)
{
    struct weir_decision decision;
    int64_t left = 0;
    char key[16];
    for (int i = 0; i < LEASED_KEYS; i++) {
        snprintf(key, sizeof key, "%d", i);
        must_succeed(weir_peek(limit, weir_key_text(key), 1, &decision));
        left += decision.remaining;
    }
    return left;
}

TEST(closing_gives_unused_leased_permits_back, 60)
{
    enum { USES = 20, LIMIT = 1000 };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    struct weir_decision decision;
    char key[16];
    weir *closing;
    LIMITER(other, &options);
    weir_limit *there = limit_of(other, "limit", "fixed_window limit=1000 period=1h");
    options.mode = WEIR_HYBRID;
    must_succeed(weir_open(&options, &closing));
    weir_limit *here = limit_of(closing, "limit", "fixed_window limit=1000 period=1h");
    for (int use = 0; use < USES; use++)
        for (int i = 0; i < LEASED_KEYS; i++) {
            snprintf(key, sizeof key, "%d", i);
            must_succeed(weir_try(here, weir_key_text(key), 1, &decision));
            ck_assert(decision.allowed);
        }
    const int64_t unused = (LIMIT - USES) * LEASED_KEYS - left_in_redis(there);
    ck_assert_int_gt(unused, LEASED_KEYS); /* otherwise this would test nothing */
    weir_close(closing);
    /* An order may still have been under way: its permits stay charged. */
    const int64_t lost = (LIMIT - USES) * LEASED_KEYS - left_in_redis(there);
    ck_assert_int_ge(lost, 0);
    ck_assert_int_lt(lost, unused / 2);
}
