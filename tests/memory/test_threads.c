/* test_threads.c - what many threads take from a limiter in parallel adds up, to the permit.
 *
 * No test depends on a thread's speed. The threads move the clock themselves, so little that no key of a counted limit
 * gets a permit back, and each test ends when its permits are used up.
 */
#include "set_share.h"
#include "support.h"

#include "core/limiter/inside.h"
#include "core/limiter/limiter.h"

#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, KEYS_MOST = 64, SIZE = 1000 };

enum { ROUNDS = INSTRUMENTED ? 2000 : 20000, REPEATS = INSTRUMENTED ? 1 : 3 };

/* ---- Threads that start together ---- */

static void threads_run(int count, void *(*work)(void *), void *arguments, size_t argument_size)
{
    pthread_t threads[128];
    ck_assert_int_le(count, 128);
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, (char *)arguments + (size_t)i * argument_size), 0);
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

/* ---- A limiter whose clock any thread may advance ---- */

struct shop {
    weir *limiter;
    weir_limit *counted; /* the limit whose permits are counted */
    weir_limit *passing; /* the limit of keys that are soon idle and evicted */
    _Atomic int64_t now_us;
    _Atomic bool done;      /* the buyers have ended: disturbing threads end too */
    _Atomic bool unsettled; /* more permits will come */
    _Atomic int64_t disturbances;
    _Atomic int64_t admitted[KEYS_MOST]; /* for each key of the counted limit */
    _Atomic int64_t decisions_allowed, decisions_denied;
};

static int64_t shop_clock(void *user)
{
    return atomic_load_explicit(&((struct shop *)user)->now_us, memory_order_relaxed);
}

static void shop_log(void *user, enum weir_log_level level, const char *line)
{
    ck_abort_msg("unexpected log line, level %d: %s", (int)level, line);
}

static void shop_open(struct shop *shop, int64_t max_keys, const char *counted)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    memset(shop, 0, sizeof *shop);
    atomic_store(&shop->now_us, INT64_C(1790000000123456));
    options.max_keys = max_keys;
    options.now_us = shop_clock;
    options.log = shop_log;
    options.user = shop;
    must_succeed(weir_open(&options, &shop->limiter));
    const struct weir_policy policy = policy_of(counted), passing = policy_of("token_bucket limit=1 period=1ms");
    must_succeed(weir_limit_define(shop->limiter, "counted", &policy, &shop->counted));
    must_succeed(weir_limit_define(shop->limiter, "passing", &passing, &shop->passing));
}

static void shop_count(struct shop *shop, const struct weir_decision *decision)
{
    atomic_fetch_add(decision->allowed ? &shop->decisions_allowed : &shop->decisions_denied, 1);
}

static struct weir_key key_of(const int *number)
{
    return weir_key(number, sizeof *number);
}

/* Request a new key, and advance the clock so far that it is idle before the next one. */
static void shop_pass(struct shop *shop, int thread, int round)
{
    const int key[2] = { thread, round };
    struct weir_decision decision;
    must_succeed(weir_try(shop->passing, weir_key(key, sizeof key), 1, &decision));
    shop_count(shop, &decision);
    atomic_fetch_add(&shop->now_us, 2000);
}

static void shop_close(struct shop *shop)
{
    struct weir_stats stats = stats_of(shop->limiter);
    ck_assert_uint_eq(stats.allowed, (uint64_t)atomic_load(&shop->decisions_allowed));
    ck_assert_uint_eq(stats.denied, (uint64_t)atomic_load(&shop->decisions_denied));
    ck_assert_uint_eq(stats.errors, 0);
    weir_close(shop->limiter);
}

/* Open a shop that is closed where its block ends. */
#define SHOP(name, ...)                     \
    CLOSED_BY(shop_close) struct shop name; \
    shop_open(&name, __VA_ARGS__)

/* ---- Totals ---- */

/* SIZE permits a year are one in 8.7 hours: no test moves the clock that far. */
static const char *const unrefilled[] = {
    "fixed_window limit=1000 period=365d",
    "token_bucket limit=1000 period=365d refill=interval",
    "sliding_window limit=1000 period=365d blocks=7",
    "token_bucket limit=1000 period=365d",
    "sliding_window limit=1000 period=366d blocks=100",
    "leaky_bucket limit=1000 period=365d",
};
enum { UNREFILLED = sizeof unrefilled / sizeof unrefilled[0] };

struct buyer {
    struct shop *shop;
    pthread_barrier_t *start;
    int number, keys;
};

/* Take permits of random keys until none is left. */
static void *buy(void *argument)
{
    const struct buyer *buyer = argument;
    struct shop *shop = buyer->shop;
    struct chance chance = chance_make((uint64_t)buyer->number);
    bool used_up[KEYS_MOST] = { false };
    pthread_barrier_wait(buyer->start);
    for (int round = 0, left = buyer->keys; left > 0; round++) {
        int key = (int)chance_between(&chance, 0, buyer->keys - 1);
        int64_t cost = chance_one_in(&chance, 4) ? 2 : 1;
        bool settled = !atomic_load(&shop->unsettled);
        struct weir_decision decision;
        if (used_up[key])
            continue;
        must_succeed(weir_try(shop->counted, key_of(&key), cost, &decision));
        shop_count(shop, &decision);
        if (round % 4 == 0 && decision.allowed)
            shop_pass(shop, buyer->number, round);
        if (decision.source == WEIR_BY_FULL)
            continue; /* passing keys occupy the last room for a moment */
        if (decision.allowed)
            atomic_fetch_add(&shop->admitted[key], cost);
        used_up[key] = !decision.allowed && cost == 1 && settled;
        left -= used_up[key];
    }
    return NULL;
}

static void *redefine(void *argument)
{
    struct shop *shop = argument;
    for (int next = 1; !atomic_load(&shop->done); next++) {
        const struct weir_policy policy = policy_of(unrefilled[next % UNREFILLED]);
        must_succeed(weir_limit_define(shop->limiter, "counted", &policy, NULL));
        atomic_fetch_add(&shop->disturbances, 1);
    }
    return NULL;
}

/* Alternate between smaller policies and the whole one, which comes last. */
static void *lower_and_raise(void *argument)
{
    static const char *const lowered[] = {
        "fixed_window limit=400 period=365d",
        "sliding_window limit=70 period=365d blocks=7",
        "token_bucket limit=700 period=365d",
        "token_bucket limit=150 period=365d refill=interval",
    };
    struct shop *shop = argument;
    for (int next = 0; next < 400; next++) {
        const char *text = next % 3 == 2 ? unrefilled[next % UNREFILLED] : lowered[next % 4];
        const struct weir_policy policy = policy_of(next < 399 ? text : unrefilled[0]);
        must_succeed(weir_limit_define(shop->limiter, "counted", &policy, NULL));
        atomic_fetch_add(&shop->disturbances, 1);
        sched_yield();
    }
    atomic_store(&shop->unsettled, false);
    return NULL;
}

/* Grow the share from a hundredth to the whole. */
static void *grow_share(void *argument)
{
    struct shop *shop = argument;
    for (int64_t count = 100; count >= 1; count--) {
        const struct share part = { .weight = 1, .total = count, .rank = 0, .count = count };
        must_succeed(limiter_set_share(shop->limiter, &part));
        atomic_fetch_add(&shop->disturbances, 1);
        sched_yield();
    }
    atomic_store(&shop->unsettled, false);
    return NULL;
}

/* Let threads use up all keys while passing keys are evicted and, unless it is NULL, `disturb` runs in another thread.
 */
static void buy_all(struct shop *shop, int keys, const char *policy, void *(*disturb)(void *))
{
    struct buyer buyers[THREADS];
    pthread_barrier_t start;
    pthread_t disturber;
    shop_open(shop, keys + THREADS, policy);
    atomic_store(&shop->unsettled, disturb == grow_share || disturb == lower_and_raise);
    const int64_t start_us = atomic_load(&shop->now_us);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        buyers[i] = (struct buyer){ .shop = shop, .start = &start, .number = i, .keys = keys };

    if (disturb)
        ck_assert_int_eq(pthread_create(&disturber, NULL, disturb, shop), 0);
    while (disturb && atomic_load(&shop->disturbances) == 0)
        sched_yield();
    threads_run(THREADS, buy, buyers, sizeof buyers[0]);
    atomic_store(&shop->done, true);
    if (disturb)
        ck_assert_int_eq(pthread_join(disturber, NULL), 0);
    pthread_barrier_destroy(&start);
    ck_assert_int_lt(atomic_load(&shop->now_us) - start_us, WEIR_HOUR);
    ck_assert_uint_gt(stats_of(shop->limiter).evictions, 0);
}

static void assert_all_are_used_up_exactly(struct shop *shop, int keys, const char *policy)
{
    for (int key = 0; key < keys; key++) {
        struct weir_decision left;
        must_succeed(weir_peek(shop->counted, key_of(&key), 1, &left));
        ck_assert_msg(atomic_load(&shop->admitted[key]) == SIZE && !left.allowed && left.remaining == 0,
                      "%s: key %d of %d: %lld admitted, %lld left", policy, key, keys,
                      (long long)atomic_load(&shop->admitted[key]), (long long)left.remaining);
    }
}

static const int key_counts[] = { 1, 2, 7, KEYS_MOST };
enum { KEY_COUNTS = sizeof key_counts / sizeof key_counts[0] };

TEST(eight_threads_take_every_permit_of_every_key_once, 180)
{
    for (int i = 0; i < REPEATS * KEY_COUNTS; i++) {
        for (int p = 0; p < UNREFILLED; p++) {
            CLOSED_BY(shop_close) struct shop shop;
            int keys = key_counts[i % KEY_COUNTS];
            buy_all(&shop, keys, unrefilled[p], NULL);
            assert_all_are_used_up_exactly(&shop, keys, unrefilled[p]);
        }
    }
}

TEST(a_limit_redefined_continuously_gives_every_permit_once, 180)
{
    for (int i = 0; i < REPEATS * KEY_COUNTS; i++) {
        CLOSED_BY(shop_close) struct shop shop;
        int keys = key_counts[i % KEY_COUNTS];
        buy_all(&shop, keys, unrefilled[0], redefine);
        assert_all_are_used_up_exactly(&shop, keys, "all of them in turn");
    }
}

TEST(a_limit_lowered_and_raised_continuously_gives_every_permit_once, 180)
{
    for (int i = 0; i < REPEATS * KEY_COUNTS; i++) {
        CLOSED_BY(shop_close) struct shop shop;
        int keys = key_counts[i % KEY_COUNTS];
        buy_all(&shop, keys, unrefilled[0], lower_and_raise);
        assert_all_are_used_up_exactly(&shop, keys, "lowered and raised");
    }
}

TEST(a_share_that_grows_under_load_gives_every_permit_once, 180)
{
    for (int i = 0; i < REPEATS * KEY_COUNTS; i++) {
        CLOSED_BY(shop_close) struct shop shop;
        int keys = key_counts[i % KEY_COUNTS];
        buy_all(&shop, keys, unrefilled[0], grow_share);
        assert_all_are_used_up_exactly(&shop, keys, "at a growing share");
    }
}

/* ---- A crowd ---- */

enum { BUYERS = 64 };

struct customer {
    struct shop *shop;
    pthread_barrier_t *start;
    int number, keys;
    int64_t calls;
};

static void *buy_so_often(void *argument)
{
    const struct customer *customer = argument;
    struct shop *shop = customer->shop;
    struct chance chance = chance_make((uint64_t)(1000 + customer->number));
    pthread_barrier_wait(customer->start);
    for (int64_t call = 0; call < customer->calls; call++) {
        const int key = (int)chance_between(&chance, 0, customer->keys - 1);
        struct weir_decision decision;
        must_succeed(weir_try(shop->counted, key_of(&key), 1, &decision));
        shop_count(shop, &decision);
        if (decision.allowed)
            atomic_fetch_add(&shop->admitted[key], 1);
        if (call % 64 == 0)
            shop_pass(shop, customer->number, (int)call);
    }
    return NULL;
}

/* With WEIR_TEST_FULL each thread asks a hundred million times. Keys have half the permits that threads ask for. */
TEST(many_threads_take_every_permit_of_few_and_many_keys_once, 60)
{
    const int64_t calls = full_or(100000000, ROUNDS * 2) / KEY_COUNTS;
    struct customer customers[BUYERS];
    for (int i = 0; i < KEY_COUNTS; i++) {
        const int keys = key_counts[i];
        const int64_t size = calls * BUYERS / keys / 2;
        pthread_barrier_t start;
        char policy[64];
        snprintf(policy, sizeof policy, "fixed_window limit=%lld period=365d", (long long)size);
        SHOP(shop, keys + 2 * BUYERS, policy);
        pthread_barrier_init(&start, NULL, BUYERS);
        for (int j = 0; j < BUYERS; j++)
            customers[j] = (struct customer){ &shop, &start, j, keys, calls };
        threads_run(BUYERS, buy_so_often, customers, sizeof customers[0]);
        pthread_barrier_destroy(&start);
        for (int key = 0; key < keys; key++)
            ck_assert_int_eq(atomic_load(&shop.admitted[key]), size);
        ck_assert_uint_gt(stats_of(shop.limiter).evictions, 0);
    }
}

/* ---- All or nothing ---- */

enum { BASKETS = 8 };

struct basket_buyer {
    struct shop *shop;
    weir_limit *limits[2];
    _Atomic int64_t (*admitted)[BASKETS]; /* by limit and key */
    int number;
};

/* Take pairs and triples of keys that overlap with those of all other threads, each thread in another order. */
static void *buy_baskets(void *argument)
{
    struct basket_buyer *buyer = argument;
    struct chance chance = chance_make((uint64_t)buyer->number);
    for (int round = 0; round < ROUNDS; round++) {
        struct weir_request requests[3];
        int keys[3], limits[3];
        size_t n = (size_t)chance_between(&chance, 2, 3);
        for (size_t i = 0; i < n; i++) {
            keys[i] = (int)chance_between(&chance, 0, BASKETS - 1);
            limits[i] = (int)(i + (size_t)buyer->number) % 2;
            requests[i] = (struct weir_request){ buyer->limits[limits[i]], key_of(&keys[i]), 1, 0 };
        }
        struct weir_decision decision;
        must_succeed(weir_try_all(buyer->shop->limiter, requests, n, &decision));
        shop_count(buyer->shop, &decision);
        for (size_t i = 0; decision.allowed && i < n; i++)
            atomic_fetch_add(&buyer->admitted[limits[i]][keys[i]], 1);
        if (round % 16 == 0)
            shop_pass(buyer->shop, buyer->number, round);
    }
    return NULL;
}

TEST(groups_in_opposite_orders_neither_deadlock_nor_lose_permits, 60)
{
    static const int64_t sizes[2] = { SIZE, SIZE * 7 / 10 };
    _Atomic int64_t admitted[2][BASKETS] = { { 0 } };
    struct basket_buyer buyers[THREADS];
    SHOP(shop, 2 * BASKETS + THREADS, unrefilled[0]);
    weir_limit *second = limit_of(shop.limiter, "second", "token_bucket limit=700 period=365d refill=interval");
    for (int i = 0; i < THREADS; i++)
        buyers[i] = (struct basket_buyer){ &shop, { shop.counted, second }, admitted, i };
    threads_run(THREADS, buy_baskets, buyers, sizeof buyers[0]);

    int64_t used_up = 0;
    for (int limit = 0; limit < 2; limit++) {
        for (int key = 0; key < BASKETS; key++) {
            struct weir_decision left;
            must_succeed(weir_peek(limit ? second : shop.counted, key_of(&key), 1, &left));
            ck_assert_int_eq(left.remaining, sizes[limit] - atomic_load(&admitted[limit][key]));
            used_up += left.remaining == 0;
        }
    }
    ck_assert_int_gt(used_up, 0); /* otherwise there was no contention */
}

/* ---- Batches, refunds, resets ---- */

static void *buy_batches(void *argument)
{
    struct buyer *buyer = argument;
    struct shop *shop = buyer->shop;
    enum { BATCH = 100 };
    struct weir_request requests[BATCH];
    struct weir_decision decisions[BATCH];
    int keys[BATCH];
    bool any = true;
    pthread_barrier_wait(buyer->start);
    while (any) {
        for (int i = 0; i < BATCH; i++) {
            keys[i] = (i + buyer->number * 5) % buyer->keys;
            requests[i] = (struct weir_request){ shop->counted, key_of(&keys[i]), 1, 0 };
        }
        must_succeed(weir_try_batch(shop->limiter, requests, BATCH, decisions));
        any = false;
        for (int i = 0; i < BATCH; i++) {
            shop_count(shop, &decisions[i]);
            atomic_fetch_add(&shop->admitted[keys[i]], decisions[i].allowed);
            any = any || decisions[i].allowed;
        }
    }
    return NULL;
}

TEST(batches_of_eight_threads_take_every_permit_once, 30)
{
    struct buyer buyers[THREADS];
    pthread_barrier_t start;
    SHOP(shop, 1000, unrefilled[0]);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        buyers[i] = (struct buyer){ .shop = &shop, .start = &start, .number = i, .keys = KEYS_MOST };
    threads_run(THREADS, buy_batches, buyers, sizeof buyers[0]);
    assert_all_are_used_up_exactly(&shop, KEYS_MOST, unrefilled[0]);
    pthread_barrier_destroy(&start);
}

static void *take_and_give_back(void *argument)
{
    const struct buyer *buyer = argument;
    for (int round = 0; round < ROUNDS; round++) {
        int key = round % buyer->keys;
        struct weir_decision decision;
        must_succeed(weir_try(buyer->shop->counted, key_of(&key), 1 + buyer->number, &decision));
        shop_count(buyer->shop, &decision);
        must(decision.allowed, "at most 36 of 1,000 permits are out at once");
        must_succeed(weir_refund(buyer->shop->counted, key_of(&key), 1 + buyer->number));
    }
    return NULL;
}

TEST(permits_taken_and_refunded_by_eight_threads_are_all_available_again, 30)
{
    struct buyer buyers[THREADS];
    SHOP(shop, 1000, unrefilled[0]);
    for (int i = 0; i < THREADS; i++)
        buyers[i] = (struct buyer){ .shop = &shop, .number = i, .keys = 3 };
    threads_run(THREADS, take_and_give_back, buyers, sizeof buyers[0]);
    for (int key = 0; key < 3; key++) {
        struct weir_decision left;
        must_succeed(weir_peek(shop.counted, key_of(&key), 1, &left));
        ck_assert_int_eq(left.remaining, SIZE);
    }
    ck_assert_int_eq(stats_of(shop.limiter).keys, 0); /* a fully refunded key is not kept */
}

/* Reserve and settle for nothing, once in 64 rounds for 1 permit. */
static void *reserve_and_settle(void *argument)
{
    const struct buyer *buyer = argument;
    struct shop *shop = buyer->shop;
    for (int round = 0; round < ROUNDS / UNREFILLED; round++) {
        int key = round % buyer->keys;
        struct weir_decision decision;
        struct weir_reservation reservation;
        must_succeed(weir_reserve(shop->counted, key_of(&key), 1 + buyer->number, &decision, &reservation));
        shop_count(shop, &decision);
        const int64_t actual = decision.allowed && round % 64 == 0;
        must_succeed(weir_settle(shop->counted, key_of(&key), &reservation, actual));
        atomic_fetch_add(&shop->admitted[key], actual);
    }
    return NULL;
}

TEST(reservations_settled_by_eight_threads_leave_exactly_the_used_permits, 60)
{
    for (int policy = 0; policy < UNREFILLED; policy++) {
        struct buyer buyers[THREADS];
        SHOP(shop, 1000, unrefilled[policy]);
        for (int i = 0; i < THREADS; i++)
            buyers[i] = (struct buyer){ .shop = &shop, .number = i, .keys = 3 };
        threads_run(THREADS, reserve_and_settle, buyers, sizeof buyers[0]);
        for (int key = 0; key < 3; key++) {
            struct weir_decision left;
            must_succeed(weir_peek(shop.counted, key_of(&key), 1, &left));
            ck_assert_int_eq(left.remaining, SIZE - atomic_load(&shop.admitted[key]));
        }
    }
}

static void *take_and_forget(void *argument)
{
    const struct buyer *buyer = argument;
    for (int round = 0; round < ROUNDS; round++) {
        int key = round % buyer->keys;
        struct weir_decision decision;
        must_succeed(weir_try(buyer->shop->counted, key_of(&key), 1, &decision));
        shop_count(buyer->shop, &decision);
        if (round % 3 == buyer->number % 3)
            must_succeed(weir_reset(buyer->shop->counted, key_of(&key)));
    }
    for (int key = 0; key < buyer->keys; key++)
        must_succeed(weir_reset(buyer->shop->counted, key_of(&key)));
    return NULL;
}

TEST(keys_forgotten_by_eight_threads_leave_nothing_behind, 30)
{
    struct buyer buyers[THREADS];
    SHOP(shop, 1000, "sliding_window limit=1000 period=365d blocks=100");
    for (int i = 0; i < THREADS; i++)
        buyers[i] = (struct buyer){ .shop = &shop, .number = i, .keys = 5 };
    threads_run(THREADS, take_and_forget, buyers, sizeof buyers[0]);
    ck_assert_int_eq(stats_of(shop.limiter).keys, 0);
}

/* ---- Counters ---- */

static void *watch(void *argument)
{
    struct shop *shop = argument;
    struct weir_stats last = { .size = sizeof last };
    while (!atomic_load(&shop->done)) {
        struct weir_stats now = stats_of(shop->limiter);
        must(now.allowed >= last.allowed && now.denied >= last.denied && now.evictions >= last.evictions &&
                 now.full >= last.full,
             "a counter went back");
        must(now.keys >= 0 && now.bytes > 0, "what is held is never less than nothing");
        last = now;
        atomic_fetch_add(&shop->disturbances, 1);
    }
    return NULL;
}

TEST(counters_read_while_eight_threads_count_never_go_back, 30)
{
    CLOSED_BY(shop_close) struct shop shop;
    buy_all(&shop, KEYS_MOST, unrefilled[0], watch);
    assert_all_are_used_up_exactly(&shop, KEYS_MOST, unrefilled[0]);
}

enum { CROWD = 100 }; /* more threads than stripes of counters */

/* Return how many threads' stripes have counted answers of a limit. */
static int blocks_of(const weir_limit *limit)
{
    int blocks = 0;
    for (int i = 0; i < FIGURES_SLOTS; i++)
        blocks += atomic_load(&limit->figures[i]) != NULL;
    return blocks;
}

static void *count_in_a_crowd(void *argument)
{
    const struct buyer *buyer = argument;
    struct shop *shop = buyer->shop;
    pthread_barrier_wait(buyer->start); /* all threads have started */
    for (int round = 0; round < 1000; round++) {
        struct weir_decision decision;
        must_succeed(weir_try(shop->counted, key_of(&buyer->number), 1 + round % 2, &decision));
        shop_count(shop, &decision);
    }
    pthread_barrier_wait(buyer->start);
    return NULL;
}

TEST(a_hundred_threads_at_once_count_exactly, 30)
{
    struct buyer buyers[CROWD];
    pthread_barrier_t start;
    SHOP(shop, 1000, unrefilled[0]);
    pthread_barrier_init(&start, NULL, CROWD);
    for (int i = 0; i < CROWD; i++)
        buyers[i] = (struct buyer){ .shop = &shop, .start = &start, .number = i };
    threads_run(CROWD, count_in_a_crowd, buyers, sizeof buyers[0]);
    pthread_barrier_destroy(&start);
    ck_assert_int_gt(atomic_load(&shop.decisions_denied), 0); /* threads ask 1,500 of each key's 1,000 permits */
    ck_assert_int_eq(atomic_load(&shop.decisions_allowed) + atomic_load(&shop.decisions_denied), CROWD * 1000);

    ck_assert_int_eq(blocks_of(shop.counted), STATS_SHARED_STRIPE); /* all stripes were used ... */
    ck_assert_uint_gt(atomic_load(&shop.counted->shared_figures.singles[WEIR_BY_MEMORY][1]), 0); /* and no stripe */
    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(shop.counted, &stats));
    ck_assert_uint_eq(stats.allowed, (uint64_t)atomic_load(&shop.decisions_allowed));
    ck_assert_uint_eq(stats.denied, (uint64_t)atomic_load(&shop.decisions_denied));
    ck_assert_uint_eq(stats.permits, CROWD * 1000); /* all of each key's */
}

static void *count_once(void *argument)
{
    const struct buyer *buyer = argument;
    struct weir_decision decision;
    must_succeed(weir_try(buyer->shop->counted, key_of(&buyer->number), 1, &decision));
    shop_count(buyer->shop, &decision);
    return NULL;
}

TEST(a_thread_that_ends_frees_its_stripe, 30)
{
    SHOP(shop, 1000, unrefilled[0]);
    for (int i = 0; i < 500; i++) {
        struct buyer buyer = { .shop = &shop, .number = i };
        threads_run(1, count_once, &buyer, sizeof buyer);
    }
    ck_assert_int_eq(blocks_of(shop.counted), 1);
    ck_assert_uint_eq(stats_of(shop.limiter).allowed, 500);
}

/* ---- Limits ---- */

enum { NAMES = 300 };

struct definer {
    struct shop *shop;
    weir_limit *limits[NAMES];
    int number;
};

static void *define_and_find(void *argument)
{
    struct definer *definer = argument;
    const struct weir_policy policy = policy_of(unrefilled[definer->number % UNREFILLED]);
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        struct weir_decision decision;
        int at = definer->number % 2 ? i : NAMES - 1 - i;
        snprintf(name, sizeof name, "limit-%d", at);
        weir_limit *found = weir_limit_find(definer->shop->limiter, name);
        must_succeed(weir_limit_define(definer->shop->limiter, name, &policy, &definer->limits[at]));
        must(found == NULL || found == definer->limits[at], "a name has one limit");
        must(weir_limit_find(definer->shop->limiter, name) == definer->limits[at], "a defined limit is found");
        must(strcmp(weir_limit_name(definer->limits[at]), name) == 0, "a limit knows its name");
        must_succeed(weir_try(definer->limits[at], key_of(&definer->number), 1, &decision));
        must(decision.allowed, "a thread's own key has a thousand permits");
        shop_count(definer->shop, &decision);
    }
    return NULL;
}

TEST(a_name_defined_by_eight_threads_at_once_is_one_limit, 30)
{
    static struct definer definers[THREADS];
    SHOP(shop, 100000, unrefilled[0]);
    for (int i = 0; i < THREADS; i++)
        definers[i] = (struct definer){ .shop = &shop, .number = i };
    threads_run(THREADS, define_and_find, definers, sizeof definers[0]);
    for (int i = 0; i < NAMES; i++) {
        for (int j = 1; j < THREADS; j++)
            ck_assert_ptr_eq(definers[j].limits[i], definers[0].limits[i]);
        for (int j = 0; j < THREADS; j++) {
            struct weir_decision left;
            must_succeed(weir_peek(definers[0].limits[i], key_of(&j), 1, &left));
            ck_assert_int_eq(left.remaining, SIZE - 1);
        }
    }
    ck_assert_int_eq(stats_of(shop.limiter).keys, NAMES * THREADS);
}

/* ---- The end ---- */

static void *wait_for_ever(void *argument)
{
    const struct buyer *buyer = argument;
    struct weir_decision decision;
    int error = weir_acquire(buyer->shop->counted, key_of(&buyer->keys), SIZE, INT64_MAX, &decision);
    must(error == WEIR_ECLOSED, "a limiter that is closed says so to those who wait");
    return NULL;
}

/* A slow clock, so that the close meets a call before its decision. */
static atomic_int clock_readers;

static int64_t slow_clock(void *user)
{
    atomic_fetch_add(&clock_readers, 1);
    nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    return WEIR_HOUR;
}

static void *acquire_once(void *argument)
{
    struct weir_decision decision;
    int error = weir_acquire(argument, weir_key_text("a"), 1, 0, &decision);
    must(error == WEIR_OK || error == WEIR_ECLOSED, "decided or closed");
    return NULL;
}

TEST(closing_waits_for_an_acquire_that_has_not_begun_to_sleep, 60)
{
    weir *limiter;
    weir_limit *limit;
    pthread_t thread;
    struct weir_policy policy = { .limit = 1, .period_us = WEIR_SECOND };
    must_succeed(weir_open(OPTIONS(.now_us = slow_clock), &limiter));
    must_succeed(weir_limit_define(limiter, "limit", &policy, &limit));
    ck_assert_int_eq(pthread_create(&thread, NULL, acquire_once, limit), 0);
    while (atomic_load(&clock_readers) == 0)
        sched_yield();
    weir_close(limiter);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

TEST(closing_wakes_every_waiting_thread, 30)
{
    struct shop shop;
    struct crew threads;
    struct buyer buyer = { .shop = &shop, .keys = 0 };
    struct weir_decision decision;
    for (int fences = 0; fences < 2; fences++) { /* with and without membarrier(2) */
        shop_open(&shop, 1000, unrefilled[0]);
        shop.limiter->inside.needs_fences = shop.limiter->inside.needs_fences || fences;
        must_succeed(weir_try(shop.counted, key_of(&buyer.keys), SIZE, &decision));
        must(decision.allowed, "a fresh key has all its permits");
        crew_start(&threads, THREADS, wait_for_ever, &buyer);
        for (int64_t waiting = 0; waiting < THREADS;) {
            sched_yield();
            waiting = (int64_t)inside_sum(shop.limiter);
        }
        weir_close(shop.limiter);
        crew_join(&threads);
    }
}

#if defined(UNDER_TSAN)
/* ThreadSanitizer stops watching a thread in the last round of destructors, and has no threads in a forked child. */
enum { LAST_ROUND = PTHREAD_DESTRUCTOR_ITERATIONS - 1, CHILD_THREADS = 0 };
#else
enum { LAST_ROUND = PTHREAD_DESTRUCTOR_ITERATIONS, CHILD_THREADS = STATS_SHARED_STRIPE - 1 };
#endif

static pthread_key_t last_words;
static weir_limit *asked_last;

/* A destructor that asks to be called again, so that it runs after all others of the thread. */
static void ask_at_the_end(void *rounds)
{
    const intptr_t left = (intptr_t)rounds;
    struct weir_decision decision;
    must_succeed(weir_try(asked_last, weir_key_text("key"), 1, &decision));
    must(stats_stripe() != STATS_SHARED_STRIPE, "it has its own stripe to the end");
    if (left > 1)
        must(pthread_setspecific(last_words, (void *)(left - 1)) == 0, "it is called again");
}

static void *end_by_asking(void *limit)
{
    struct weir_decision decision;
    must_succeed(weir_try(limit, weir_key_text("key"), 1, &decision));
    must(pthread_setspecific(last_words, (void *)(intptr_t)LAST_ROUND) == 0, "it is called then");
    return NULL;
}

TEST(a_thread_keeps_its_stripe_exactly_until_it_has_ended, 60)
{
    enum { LAST_ONES = 100 };
    struct weir_stats stats = { .size = sizeof stats };
    weir *limiter;
    must_succeed(weir_open(NULL, &limiter));
    asked_last = limit_of(limiter, "limit", "fixed_window limit=1000 period=1d");
    ck_assert_int_eq(pthread_key_create(&last_words, ask_at_the_end), 0);
    for (int i = 0; i < LAST_ONES; i++) {
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, end_by_asking, asked_last), 0);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
    }
    must_succeed(weir_stats_read(limiter, &stats));
    ck_assert_uint_eq(stats.allowed, LAST_ONES * (1 + LAST_ROUND));
    weir_close(limiter);
    pthread_key_delete(last_words);
}

static void *takes_a_stripe(void *barrier)
{
    stats_stripe();
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

static void *takes_its_own_stripe(void *barrier)
{
    const unsigned stripe = stats_stripe();
    pthread_barrier_wait(barrier);
    return (void *)(uintptr_t)(stripe + 1);
}

/* Exit with 0 if this thread and as many as there is room for each have a stripe that no other has. */
static void check_stripes_in_child(void)
{
    pthread_barrier_t barrier;
    pthread_t threads[CHILD_THREADS + 1];
    uint64_t seen = UINT64_C(1) << stats_stripe() | UINT64_C(1) << STATS_SHARED_STRIPE;
    pthread_barrier_init(&barrier, NULL, CHILD_THREADS + 1);
    if (stats_stripe() == STATS_SHARED_STRIPE)
        _exit(1);
    for (int i = 0; i < CHILD_THREADS; i++)
        if (pthread_create(&threads[i], NULL, takes_its_own_stripe, &barrier) != 0)
            _exit(2);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < CHILD_THREADS; i++) {
        void *number;
        pthread_join(threads[i], &number);
        const uint64_t bit = UINT64_C(1) << ((uintptr_t)number - 1);
        if (seen & bit)
            _exit(3);
        seen |= bit;
    }
    _exit(0);
}

/* Run 0: the forking thread has a stripe. Run 1: the other threads have them all. */
TEST_EACH(a_forked_child_has_all_stripes_even_if_its_parent_used_them_up, 2, 60)
{
    struct crew crew;
    pthread_barrier_t barrier;
    OPEN_SCENE(scene, NULL);
    pthread_barrier_init(&barrier, NULL, STATS_STRIPES + 1);
    if (_i == 0)
        stats_stripe();
    crew_start(&crew, STATS_STRIPES, takes_a_stripe, &barrier);
    pthread_barrier_wait(&barrier);
    ck_assert_int_eq(stats_stripe() == STATS_SHARED_STRIPE, _i);
    const pid_t child = fork();
    if (child == 0)
        check_stripes_in_child();
    assert_child_succeeds(child);
    pthread_barrier_wait(&barrier);
    crew_join(&crew);
    pthread_barrier_destroy(&barrier);
}

/* Forbid membarrier(2) to this process. False if the system cannot forbid it. */
static bool forbid_membarrier(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = { .len = sizeof steps / sizeof *steps, .filter = steps };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(a_limiter_closes_even_if_membarrier_was_forbidden_after_it_opened, 30)
{
    enum { CLOSED = 10, CANNOT_FORBID, NOT_FORBIDDEN }; /* exit statuses that no failing check uses */
    const pid_t child = fork();
    if (child == 0) {
        struct shop shop;
        struct buyer buyer = { .shop = &shop };
        struct weir_decision decision;
        pthread_t thread;
        shop_open(&shop, 1000, unrefilled[0]);
        must_succeed(weir_try(shop.counted, key_of(&buyer.keys), SIZE, &decision));
        if (!forbid_membarrier())
            _exit(CANNOT_FORBID);
        if (syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) != -1)
            _exit(NOT_FORBIDDEN);
        must(pthread_create(&thread, NULL, wait_for_ever, &buyer) == 0, "a thread");
        while (inside_sum(shop.limiter) == 0)
            sched_yield();
        weir_close(shop.limiter);
        pthread_join(thread, NULL);
        _exit(CLOSED);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
    ck_assert_msg(WEXITSTATUS(status) == CLOSED || WEXITSTATUS(status) == CANNOT_FORBID, "ended with %d",
                  WEXITSTATUS(status));
}
