/* waiting.c - contract: weir_acquire() waits for its permits, and closing the limiter ends the wait. */
#include "contract/parts.h"

#include "core/ground/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

CONTRACT_TEST(CONTRACT_WAITS, an_acquire_that_cannot_meet_its_longest_wait_is_denied_immediately, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decision;
    open_backend(&scene, _i); /* its clock stands still: a call that waits would never return */
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=2 period=2h");
    weir_limit *queue = scene_define_text(&scene, "queue", "leaky_bucket limit=2 period=2h capacity=9");
    struct weir_key key = weir_key_text("a");
    must_succeed(weir_acquire(limit, key, 2, 0, &decision));
    ck_assert(decision.allowed);
    must_succeed(weir_acquire(limit, key, 1, WEIR_HOUR - 1, &decision));
    ck_assert(!decision.allowed);
    ck_assert_int_eq(decision.retry_after_us, WEIR_HOUR);
    must_succeed(weir_acquire(limit, key, 3, INT64_MAX, &decision));
    ck_assert(!decision.allowed && decision.retry_after_us == WEIR_NEVER);
    must_succeed(weir_acquire(queue, key, 1, 0, &decision));
    ck_assert(decision.allowed && decision.delay_us == 0);
    must_succeed(weir_acquire(queue, key, 1, WEIR_MINUTE, &decision));
    ck_assert(!decision.allowed && decision.delay_us == 0);
    ck_assert_int_ge(decision.retry_after_us, WEIR_HOUR - WEIR_MINUTE);
    ck_assert_int_lt(decision.retry_after_us, WEIR_HOUR); /* shorter by the permitted wait */
    ck_assert_int_eq(peeked(queue, "a", 1).remaining, 8); /* the declined permit was given back */
}

static weir *open_in_real_time(int backend)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir *limiter;
    must_succeed(contract_backend(backend)->open(&options, &limiter));
    return limiter;
}

CONTRACT_TEST(CONTRACT_WAITS, an_acquire_waits_for_its_permits_and_gets_them, 60)
{
    struct weir_policy policies[] = { policy_of("token_bucket limit=1 period=20ms"),
                                      policy_of("fixed_window limit=1 period=20ms"),
                                      policy_of("leaky_bucket limit=1 period=20ms capacity=2") };
    CLOSED_BY(limiter_close) weir *limiter = open_in_real_time(_i);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        weir_limit *limit;
        struct weir_decision decision;
        char name[32];
        snprintf(name, sizeof name, "limit-%zu", i);
        must_succeed(weir_limit_define(limiter, name, &policies[i], &limit));
        const int64_t began_us = clock_monotonic_us();
        for (int turn = 0; turn < 3; turn++) {
            must_succeed(weir_acquire(limit, weir_key_text("a"), 1, WEIR_MINUTE, &decision));
            ck_assert(decision.allowed);
            ck_assert_int_eq(decision.delay_us, 0);
            ck_assert_int_eq(decision.retry_after_us, 0);
            /* Whatever the clocks' paces; the first window may be about to end. */
            const int64_t periods = policies[i].algorithm == WEIR_FIXED_WINDOW ? turn - 1 : turn;
            ck_assert_int_gt(clock_monotonic_us() - began_us, periods * 20000 - 5000);
        }
    }
}

struct waiter {
    weir_limit *limit;
    pthread_t thread;
    atomic_int id; /* of the thread, once it runs */
    int result;
    struct weir_decision decision;
};

static void *wait_for_permits(void *user)
{
    struct waiter *waiter = user;
    atomic_store(&waiter->id, (int)syscall(SYS_gettid));
    waiter->result = weir_acquire(waiter->limit, weir_key_text("a"), 1, WEIR_DAY, &waiter->decision);
    return NULL;
}

/* Wait until the thread sleeps. No other thread holds a lock that it needs, so it sleeps in weir_acquire(). */
static void await_sleep(struct waiter *waiter)
{
    char path[64], state = '?';
    while (state != 'S') {
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&waiter->id));
        FILE *file = atomic_load(&waiter->id) != 0 ? fopen(path, "r") : NULL;
        if (file == NULL)
            continue;
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = '?';
        fclose(file);
    }
}

CONTRACT_TEST(CONTRACT_WAITS, closing_wakes_all_waiting_threads, 60)
{
    enum { WAITERS = 3 };
    struct waiter waiters[WAITERS];
    struct weir_decision decision;
    weir *limiter = open_in_real_time(_i);
    weir_limit *limit;
    limit = limit_of(limiter, "limit", "token_bucket limit=1 period=20h");
    must_succeed(weir_try(limit, weir_key_text("a"), 1, &decision));
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){ .limit = limit, .result = 1 };
        ck_assert_int_eq(pthread_create(&waiters[i].thread, NULL, wait_for_permits, &waiters[i]), 0);
        await_sleep(&waiters[i]);
    }
    weir_close(limiter);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiters[i].thread, NULL);
        ck_assert_int_eq(waiters[i].result, WEIR_ECLOSED);
    }
}

/* Ways in which permits come to a key that has none for 20 hours. */
static const char *const ways[] = { "a raised limit", "a shadow limit", "an override", "no limit",
                                    "a policy file",  "a reset",        "a refund",    "a settlement" };
enum { WAYS = sizeof ways / sizeof *ways };

static void bring_permits(weir *limiter, weir_limit *limit, const char *name, int way,
                          const struct weir_reservation *reservation)
{
    static const char *const policies[] = { "fixed_window limit=2 period=20h", "fixed_window limit=1 period=20h shadow",
                                            "fixed_window limit=2 period=20h", "unlimited" };
    char text[256], path[] = "/tmp/weir-waiting-XXXXXX";
    if (way == 4) {
        const int fd = mkstemp(path);
        must(fd >= 0, "a file");
        dprintf(fd, "%s = %s\n", name, policies[0]);
        close(fd);
        must_succeed(weir_limits_load(limiter, path, text, sizeof text));
        unlink(path);
    } else if (way < 4) {
        const struct weir_policy policy = policy_of(policies[way]);
        snprintf(text, sizeof text, "%s%s", name, way == 2 ? "/a" : "");
        must_succeed(weir_limit_define(limiter, text, &policy, NULL));
    } else if (way == 5) {
        must_succeed(weir_reset(limit, weir_key_text("a")));
    } else if (way == 6) {
        must_succeed(weir_refund(limit, weir_key_text("a"), 1));
    } else {
        must_succeed(weir_settle(limit, weir_key_text("a"), reservation, 0));
    }
}

CONTRACT_TEST(CONTRACT_WAITS, a_waiter_is_served_by_whatever_brings_permits, 120)
{
    CLOSED_BY(limiter_close) weir *limiter = open_in_real_time(_i);
    for (int way = 0; way < WAYS; way++) {
        char name[32];
        snprintf(name, sizeof name, "way-%d", way);
        weir_limit *limit = limit_of(limiter, name, "fixed_window limit=1 period=20h");
        struct waiter waiter = { .limit = limit, .result = 1 };
        const struct weir_reservation reservation = reserved(limit, "a", 1, true);
        ck_assert_int_eq(pthread_create(&waiter.thread, NULL, wait_for_permits, &waiter), 0);
        await_sleep(&waiter);
        bring_permits(limiter, limit, name, way, &reservation);
        pthread_join(waiter.thread, NULL);
        ck_assert_msg(waiter.result == WEIR_OK && waiter.decision.allowed, "%s: %d", ways[way], waiter.result);
    }
}

/* Others may have changed the key: a store does not report that. */
CONTRACT_TEST(CONTRACT_WAITS, a_waiter_with_less_time_is_not_denied_by_an_old_denial, 60)
{
    CLOSED_BY(limiter_close) weir *limiter = open_in_real_time(_i);
    weir_limit *limit = limit_of(limiter, "limit", "fixed_window limit=1 period=20h");
    struct waiter waiter = { .limit = limit, .result = 1 };
    struct weir_decision decision;
    taken(limit, "a", 1);
    ck_assert_int_eq(pthread_create(&waiter.thread, NULL, wait_for_permits, &waiter), 0);
    await_sleep(&waiter);
    limit_of(limiter, "limit", "fixed_window limit=3 period=20h");
    must_succeed(weir_acquire(limit, weir_key_text("a"), 1, WEIR_MINUTE, &decision));
    ck_assert(decision.allowed);
    pthread_join(waiter.thread, NULL);
    ck_assert(waiter.decision.allowed);
}

CONTRACT_TEST(CONTRACT_WAITS, permits_that_were_waited_for_are_settled_like_others, 60)
{
    static const char *const policies[] = { "sliding_window limit=10 period=20h", "concurrency limit=10 hold=20h",
                                            "token_bucket limit=10 period=200h" };
    CLOSED_BY(limiter_close) weir *limiter = open_in_real_time(_i);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        char name[32];
        struct weir_decision decision;
        struct weir_reservation reservation;
        snprintf(name, sizeof name, "limit-%zu", i);
        weir_limit *limit = limit_of(limiter, name, policies[i]);
        must_succeed(weir_reserve_wait(limit, weir_key_text("a"), 6, WEIR_MINUTE, &decision, &reservation));
        ck_assert(decision.allowed && reservation.permits == 6);
        struct weir_op op = { .request = request_of(limit, "a", 4),
                              .verb = WEIR_OP_ACQUIRE,
                              .max_wait_us = WEIR_MINUTE };
        submit_and_wait(limiter, &op);
        ck_assert(op.decision.allowed && op.reservation.permits == 4);
        ck_assert(!peeked(limit, "a", 1).allowed);
        settle(limit, "a", op.reservation, 0);
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 4);
        settle(limit, "a", reservation, 1);
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 9);
        must_succeed(weir_reserve_wait(limit, weir_key_text("a"), 11, WEIR_MINUTE, &decision, &reservation));
        ck_assert(!decision.allowed && reservation.permits == -1);
    }
}

CONTRACT_TEST(CONTRACT_WAITS, thread_cancellation_neither_ends_a_wait_nor_prolongs_another, 60)
{
    struct waiter waiters[2];
    weir *limiter = open_in_real_time(_i);
    weir_limit *limit = limit_of(limiter, "limit", "token_bucket limit=1 period=20h");
    taken(limit, "a", 1);
    for (int i = 0; i < 2; i++) {
        waiters[i] = (struct waiter){ .limit = limit, .result = 1 };
        ck_assert_int_eq(pthread_create(&waiters[i].thread, NULL, wait_for_permits, &waiters[i]), 0);
        await_sleep(&waiters[i]);
    }
    pthread_cancel(waiters[0].thread);
    weir_close(limiter);
    for (int i = 0; i < 2; i++) {
        pthread_join(waiters[i].thread, NULL);
        ck_assert_int_eq(waiters[i].result, WEIR_ECLOSED);
    }
}
