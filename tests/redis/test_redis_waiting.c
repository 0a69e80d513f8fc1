/* test_redis_waiting.c - waiting for permits that come back through another process: here another limiter. */
#include "core/ground/clock.h"
#include "redis_place.h"

#include <stdio.h>

static const enum weir_mode modes[] = { WEIR_DISTRIBUTED, WEIR_HYBRID };

struct waiter {
    weir_limit *limit;
    pthread_t thread;
    int status;
    struct weir_decision decision;
    struct weir_reservation reservation;
};

static void *wait_a_day(void *user)
{
    struct waiter *waiter = user;
    waiter->status = weir_reserve_wait(waiter->limit, weir_key_text("a"), 1, WEIR_DAY, &waiter->decision,
                                       &waiter->reservation);
    return NULL;
}

/* Start a waiter, and wait until it has been denied: the limiter then counts a request to Redis more. */
static void start(struct waiter *waiter, weir *limiter, weir_limit *limit)
{
    *waiter = (struct waiter){ .limit = limit, .status = 1 };
    const uint64_t before = stats_of(limiter).store_requests;
    must(pthread_create(&waiter->thread, NULL, wait_a_day, waiter) == 0, "a thread");
    while (stats_of(limiter).store_requests == before)
        sleep_us(1000);
}

static void end(struct waiter *waiter)
{
    pthread_join(waiter->thread, NULL);
    ck_assert(waiter->status == WEIR_OK && waiter->decision.allowed);
    ck_assert_int_eq(waiter->reservation.permits, 1);
}

#define TWO_LIMITERS(mode_)                                                \
    PLACE(place, false, NULL);                                             \
    struct weir_options options = place_options(&place, 20 * WEIR_SECOND); \
    options.mode = mode_;                                                  \
    LIMITER(here, &options);                                               \
    LIMITER(elsewhere, &options)

TEST_EACH(a_waiter_sees_what_another_process_gives_back, 2, 60)
{
    TWO_LIMITERS(modes[_i]);
    static const char *const policies[] = { "fixed_window limit=1 period=20h", "sliding_window limit=1 period=20h",
                                            "concurrency limit=1 hold=20h" };
    for (int i = 0; i < 3; i++) {
        char name[16];
        struct waiter waiter;
        struct weir_decision decision;
        struct weir_reservation reservation;
        snprintf(name, sizeof name, "limit-%d", i);
        weir_limit *limit = limit_of(here, name, policies[i]), *other = limit_of(elsewhere, name, policies[i]);
        must_succeed(weir_reserve(other, weir_key_text("a"), 1, &decision, &reservation));
        must(decision.allowed, "a fresh key");
        start(&waiter, here, limit);
        if (i == 0)
            must_succeed(weir_reset(other, weir_key_text("a")));
        else
            must_succeed(weir_settle(other, weir_key_text("a"), &reservation, 0));
        end(&waiter);
        ck_assert(!taken(other, "a", 1).allowed);
        must_succeed(weir_settle(limit, weir_key_text("a"), &waiter.reservation, 0));
        while (!peeked(limit, "a", 1).allowed)
            sleep_us(10000);
    }
}

/* ---- Two processes that want the same slot ---- */

struct worker {
    weir_limit *limit;
    atomic_bool *ends;
    pthread_t thread;
    int jobs;
};

static void *work(void *user)
{
    struct worker *worker = user;
    while (!atomic_load(worker->ends)) {
        struct weir_decision decision;
        struct weir_reservation reservation;
        must_succeed(weir_reserve_wait(worker->limit, weir_key_text("a"), 1, WEIR_MINUTE, &decision, &reservation));
        if (!decision.allowed)
            continue;
        sleep_us(2000);
        worker->jobs++;
        must_succeed(weir_release(worker->limit, weir_key_text("a"), &reservation));
    }
    return NULL;
}

TEST(two_processes_that_wait_all_the_time_share_a_slot, 120)
{
    TWO_LIMITERS(WEIR_DISTRIBUTED);
    atomic_bool ends = false;
    struct worker workers[2] = { { .limit = limit_of(here, "slot", "concurrency limit=1 hold=10m"), .ends = &ends },
                                 { .limit = limit_of(elsewhere, "slot", "concurrency limit=1 hold=10m"),
                                   .ends = &ends } };
    for (int i = 0; i < 2; i++)
        must(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "a thread");
    sleep_us(full_or(20, 5) * WEIR_SECOND);
    atomic_store(&ends, true);
    for (int i = 0; i < 2; i++)
        pthread_join(workers[i].thread, NULL);
    printf("%d and %d jobs\n", workers[0].jobs, workers[1].jobs);
    const int all = workers[0].jobs + workers[1].jobs;
    ck_assert_int_ge(workers[0].jobs * 8, all); /* a third on an idle machine */
    ck_assert_int_ge(workers[1].jobs * 8, all);
}
