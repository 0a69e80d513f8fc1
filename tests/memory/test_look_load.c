/* test_look_load.c - threads decide without a mutex while keys come and go in the same memory; no thread ever gets
 * another key's state.
 *
 * Each thread has private keys and knows every field of their answers. All threads also take and refund permits of
 * shared keys, which therefore disappear and return all the time; in the end all their permits must be back. Private
 * and shared keys have the same lengths and limits and take turns in the same memory and cells. Lengths differ so
 * much that pages change their entry size.
 */
#include "support.h"

#include "backends/memory/look.h"
#include "backends/memory/memory.h"
#include "core/api/verbs.h"
#include "core/limiter/limiter.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = INSTRUMENTED ? 6000 : 60000 }; /* of each of eight threads */

enum { LIMITS = 10, SIZE = 1000, OWN_KEYS = 4, SHARED_KEYS = 3, THREADS_MOST = 100, HELD_MOST = 4, LENGTHS = 9 };

/* No permit comes back during a test. Limit i has SIZE + i permits, so a number shows whose state it is. */
static const char *const policies[LIMITS] = {
    "token_bucket limit=%d period=365d",
    "token_bucket limit=%d period=365d burst=%d",
    "token_bucket limit=%d period=365d refill=interval",
    "fixed_window limit=%d period=365d",
    "sliding_window limit=%d period=365d blocks=1",
    "sliding_window limit=%d period=365d blocks=10",
    "sliding_window limit=%d period=365d blocks=93",
    "sliding_window limit=%d period=365d blocks=94",
    "leaky_bucket limit=%d period=365d",
    "fixed_window limit=%d period=364d",
};

static struct weir_policy policy_sized(int policy, int size)
{
    char text[128];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, policies[policy], size, size);
#pragma GCC diagnostic pop
    return policy_of(text);
}

/* ---- A table of few keys ---- */

struct yard {
    weir *limiter;
    struct table *table;
    weir_limit *limits[LIMITS];
    _Atomic int64_t now_us;
    int threads, steps;
    atomic_int running;
    atomic_bool done;
    _Atomic int64_t disturbances;
};

static int64_t yard_clock(void *user)
{
    return atomic_load_explicit(&((struct yard *)user)->now_us, memory_order_relaxed);
}

static void yard_log(void *user, enum weir_log_level level, const char *line)
{
    ck_abort_msg("unexpected log line, level %d: %s", (int)level, line);
}

static void yard_open(struct yard *yard, int threads, int64_t max_keys)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    memset(yard, 0, sizeof *yard);
    atomic_store(&yard->now_us, INT64_C(1790000000123456));
    options.max_keys = max_keys;
    options.now_us = yard_clock;
    options.log = yard_log;
    options.user = yard;
    must_succeed(weir_open(&options, &yard->limiter));
    yard->table = &((struct memory *)yard->limiter->backend)->table;
    yard->threads = threads;
    yard->steps = STEPS * 8 / threads;
    for (int i = 0; i < LIMITS; i++) {
        char name[32];
        const struct weir_policy policy = policy_sized(i, SIZE + i);
        snprintf(name, sizeof name, "limit-%d", i);
        must_succeed(weir_limit_define(yard->limiter, name, &policy, &yard->limits[i]));
    }
}

static void yard_close(struct yard *yard)
{
    ck_assert_uint_eq(stats_of(yard->limiter).errors, 0);
    ck_assert_uint_eq(stats_of(yard->limiter).full, 0);
    weir_close(yard->limiter);
}

/* Open a yard that is closed where its block ends. */
#define YARD(name, ...)                     \
    CLOSED_BY(yard_close) struct yard name; \
    yard_open(&name, __VA_ARGS__)

/* ---- Keys ---- */

static const int lengths[LENGTHS] = { 1, 7, 8, 15, 16, 40, 100, 300, 700 };

struct name {
    char bytes[704];
    int len;
};

/* Return the key of that number and length. A short key holds only the number; keys of one length differ only in their
 * middle and last bytes. */
static struct name name_of(int number, int length)
{
    struct name name = { .len = lengths[length] };
    memset(name.bytes, 'k', sizeof name.bytes);
    name.bytes[name.len / 2] = (char)(number / 16);
    name.bytes[name.len - 1] = (char)(number % 16 + (name.len == 1 ? number / 16 * 16 : 0));
    return name;
}

static struct weir_key key_of(const struct name *name)
{
    return weir_key(name->bytes, (size_t)name->len);
}

/* ---- A thread ---- */

/* A private key of one thread, and its used permits. */
struct own {
    int limit, length;
    struct name name;
    int64_t used;
    weir_handle *handle;
};

/* The permits that this thread holds of a shared key. */
struct held {
    int limit, length, number;
    int64_t permits;
};

struct worker {
    struct yard *yard;
    int number;
    pthread_barrier_t *start;
    struct chance chance;
    struct own owns[OWN_KEYS];
    struct held held[HELD_MOST];
    int count;
};

/* With many threads there are fewer keys: then each thread has one private key. */
static int owns_of(const struct worker *worker)
{
    return worker->yard->threads > 16 ? 1 : OWN_KEYS;
}

static void own_choose(struct worker *worker, struct own *own, int i)
{
    weir_handle_free(own->handle);
    own->limit = (int)chance_between(&worker->chance, 0, LIMITS - 1);
    own->length = (int)chance_between(&worker->chance, 0, LENGTHS - 1);
    own->name = name_of(SHARED_KEYS + worker->number * owns_of(worker) + i, own->length);
    own->used = 0;
    own->handle = NULL;
    if (chance_one_in(&worker->chance, 2))
        must_succeed(weir_key_resolve(worker->yard->limits[own->limit], key_of(&own->name), &own->handle));
}

static void own_check(const struct worker *worker, const struct own *own, const struct weir_decision *decision,
                      const char *what)
{
    const int64_t left = SIZE + own->limit - own->used;
    if (decision->limit != SIZE + own->limit || decision->remaining != left || decision->source != WEIR_BY_MEMORY)
        ck_abort_msg("thread %d, %s, limit %d, length %d: %lld left of %lld by %d, not %lld of %d", worker->number,
                     what, own->limit, lengths[own->length], (long long)decision->remaining, (long long)decision->limit,
                     decision->source, (long long)left, SIZE + own->limit);
}

static void own_take(struct worker *worker, struct own *own)
{
    struct weir_decision decision;
    weir_limit *limit = worker->yard->limits[own->limit];
    const int64_t left = SIZE + own->limit - own->used;
    const int64_t cost = chance_one_in(&worker->chance, 8) ? chance_between(&worker->chance, 1, 2 * SIZE)
                                                           : chance_between(&worker->chance, 1, 5);
    if (own->handle && !chance_one_in(&worker->chance, 4))
        must_succeed(weir_handle_try(own->handle, cost, 0, &decision));
    else
        must_succeed(weir_try(limit, key_of(&own->name), cost, &decision));
    own->used += decision.allowed ? cost : 0;
    must(decision.allowed == (cost <= left), "a key that is one's own admits what is left");
    own_check(worker, own, &decision, "taken");
}

static void own_peek(struct worker *worker, struct own *own)
{
    struct weir_decision decision;
    const int64_t cost = chance_between(&worker->chance, 1, SIZE);
    must_succeed(weir_peek(worker->yard->limits[own->limit], key_of(&own->name), cost, &decision));
    must(decision.allowed == (cost <= SIZE + own->limit - own->used), "a peek tells what a take would");
    own_check(worker, own, &decision, "peeked");
}

static void own_give_back(struct worker *worker, struct own *own)
{
    const int64_t permits = chance_one_in(&worker->chance, 2) ? SIZE * 2 : chance_between(&worker->chance, 1, 5);
    must_succeed(weir_refund(worker->yard->limits[own->limit], key_of(&own->name), permits));
    own->used = permits > own->used ? 0 : own->used - permits;
}

static void own_forget(struct worker *worker, struct own *own, int i)
{
    must_succeed(weir_reset(worker->yard->limits[own->limit], key_of(&own->name)));
    own_choose(worker, own, i);
}

static struct name shared_name(const struct held *held)
{
    return name_of(held->number, held->length);
}

static void shared_give_back(struct worker *worker)
{
    const struct held held = worker->held[--worker->count];
    const struct name name = shared_name(&held);
    must_succeed(weir_refund(worker->yard->limits[held.limit], key_of(&name), held.permits));
}

static struct held shared_by_chance(struct worker *worker)
{
    return (struct held){
        .limit = (int)chance_between(&worker->chance, 0, LIMITS - 1),
        .length = (int)chance_between(&worker->chance, 0, 3), /* few lengths, so that threads collide */
        .number = (int)chance_between(&worker->chance, 0, SHARED_KEYS - 1),
        .permits = chance_between(&worker->chance, 1, 2),
    };
}

static void shared_check(const struct held *held, const struct weir_decision *decision)
{
    must(decision->limit == SIZE + held->limit, "a decision by the limit's own plan");
    must(decision->allowed && decision->remaining >= 0 && decision->remaining <= SIZE + held->limit,
         "less than all permits are out at once");
}

static void shared_take(struct worker *worker)
{
    if (worker->count == HELD_MOST)
        shared_give_back(worker);
    struct weir_decision decision;
    const struct held held = shared_by_chance(worker);
    const struct name name = shared_name(&held);
    must_succeed(weir_try(worker->yard->limits[held.limit], key_of(&name), held.permits, &decision));
    shared_check(&held, &decision);
    must(decision.remaining <= SIZE + held.limit - held.permits, "what one has taken is not left");
    worker->held[worker->count++] = held;
}

/* Take of a shared and a private key, all or nothing. */
static void take_of_both(struct worker *worker, struct own *own)
{
    if (worker->count == HELD_MOST)
        shared_give_back(worker);
    const struct held held = shared_by_chance(worker);
    const struct name name = shared_name(&held);
    const int64_t left = SIZE + own->limit - own->used;
    const int64_t cost = chance_one_in(&worker->chance, 4) ? left + 1 : left < 3 ? left : 3;
    struct weir_request both[2] = {
        { worker->yard->limits[held.limit], key_of(&name), held.permits, 0 },
        { worker->yard->limits[own->limit], key_of(&own->name), cost, 0 },
    };
    struct weir_decision decision;
    if (cost == 0)
        return;
    if (chance_one_in(&worker->chance, 2)) {
        const struct weir_request first = both[0];
        both[0] = both[1];
        both[1] = first;
    }
    must_succeed(weir_try_all(worker->yard->limiter, both, 2, &decision));
    must(decision.allowed == (cost <= left), "all or nothing");
    if (decision.allowed) {
        own->used += cost;
        worker->held[worker->count++] = held;
    }
}

static void take_a_batch(struct worker *worker)
{
    struct weir_request requests[OWN_KEYS + 1];
    struct weir_decision decisions[OWN_KEYS + 1];
    if (worker->count == HELD_MOST)
        shared_give_back(worker);
    const struct held held = shared_by_chance(worker);
    const struct name name = shared_name(&held);
    for (int i = 0; i < OWN_KEYS; i++)
        requests[i] = (struct weir_request){ worker->yard->limits[worker->owns[i].limit], key_of(&worker->owns[i].name),
                                             1 + i, 0 };
    requests[OWN_KEYS] = (struct weir_request){ worker->yard->limits[held.limit], key_of(&name), held.permits, 0 };
    must_succeed(weir_try_batch(worker->yard->limiter, requests, OWN_KEYS + 1, decisions));
    for (int i = 0; i < OWN_KEYS; i++) {
        worker->owns[i].used += decisions[i].allowed ? 1 + i : 0;
        own_check(worker, &worker->owns[i], &decisions[i], "taken in a batch");
    }
    shared_check(&held, &decisions[OWN_KEYS]);
    worker->held[worker->count++] = held;
}

static void work_step(struct worker *worker)
{
    const int owns = owns_of(worker);
    const int i = (int)chance_between(&worker->chance, 0, owns - 1);
    struct own *own = &worker->owns[i];
    switch (chance_between(&worker->chance, 0, 15)) {
    case 0:
    case 1: own_give_back(worker, own); break;
    case 2: own_forget(worker, own, i); break;
    case 3: own_peek(worker, own); break;
    case 4:
        if (owns == OWN_KEYS)
            take_a_batch(worker);
        break;
    case 5: take_of_both(worker, own); break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10: shared_take(worker); break;
    case 11:
    case 12:
    case 13:
        if (worker->count > 0)
            shared_give_back(worker);
        break;
    default: own_take(worker, own); break;
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    const int owns = owns_of(worker);
    worker->chance = chance_make((uint64_t)worker->number);
    for (int i = 0; i < owns; i++)
        own_choose(worker, &worker->owns[i], i);
    pthread_barrier_wait(worker->start);
    for (int step = 0; step < worker->yard->steps; step++)
        work_step(worker);
    while (worker->count > 0)
        shared_give_back(worker);
    for (int i = 0; i < owns; i++) {
        own_peek(worker, &worker->owns[i]);
        must_succeed(weir_reset(worker->yard->limits[worker->owns[i].limit], key_of(&worker->owns[i].name)));
        weir_handle_free(worker->owns[i].handle);
    }
    pthread_barrier_wait(worker->start); /* all threads have started */
    return NULL;
}

static void assert_nothing_is_left(struct yard *yard)
{
    for (int limit = 0; limit < LIMITS; limit++)
        for (int number = 0; number < SHARED_KEYS; number++)
            for (int length = 0; length < 4; length++) {
                struct weir_decision left;
                const struct name name = name_of(number, length);
                must_succeed(weir_peek(yard->limits[limit], key_of(&name), 1, &left));
                ck_assert_msg(left.remaining == SIZE + limit, "limit %d, key %d: %lld are left of %d", limit, number,
                              (long long)left.remaining, SIZE + limit);
            }
    ck_assert_int_eq(stats_of(yard->limiter).keys, 0);
}

static void yard_run(struct yard *yard, void *(*disturb)(void *))
{
    static struct worker workers[THREADS_MOST];
    pthread_t threads[THREADS_MOST], disturber;
    pthread_barrier_t start;
    memset(workers, 0, sizeof workers);
    pthread_barrier_init(&start, NULL, (unsigned)yard->threads);
    if (disturb)
        ck_assert_int_eq(pthread_create(&disturber, NULL, disturb, yard), 0);
    for (int i = 0; i < yard->threads; i++) {
        workers[i] = (struct worker){ .yard = yard, .number = i, .start = &start };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < yard->threads; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    atomic_store(&yard->done, true);
    if (disturb)
        ck_assert_int_eq(pthread_join(disturber, NULL), 0);
    pthread_barrier_destroy(&start);
}

TEST(keys_in_reused_memory_stay_distinct, 60)
{
    YARD(yard, 8, 1000);
    yard_run(&yard, NULL);
    assert_nothing_is_left(&yard);
    ck_assert_uint_gt(slab_recast(&yard.table->slab), 0);
}

TEST(keys_in_reused_memory_stay_distinct_without_membarrier, 60)
{
    YARD(yard, 8, 1000);
    atomic_fetch_or(&yard.table->readers.care, READERS_FENCES);
    yard_run(&yard, NULL);
    assert_nothing_is_left(&yard);
}

TEST(keys_in_reused_memory_stay_distinct_with_more_threads_than_stripes, 60)
{
    YARD(yard, THREADS_MOST, 1000);
    yard_run(&yard, NULL);
    assert_nothing_is_left(&yard);
}

/* Redefine limits and overrides with policies of the same size until the others end. */
static void *redefine(void *argument)
{
    struct yard *yard = argument;
    struct chance chance = chance_make(1000);
    while (!atomic_load(&yard->done)) {
        const int limit = (int)chance_between(&chance, 0, LIMITS - 1);
        const struct weir_policy policy = policy_sized((int)chance_between(&chance, 0, LIMITS - 1), SIZE + limit);
        char name[32];
        const bool overrides = chance_one_in(&chance, 2), ends = overrides && chance_one_in(&chance, 2);
        snprintf(name, sizeof name, overrides ? "limit-%d/k*" : "limit-%d", limit);
        must_succeed(weir_limit_define(yard->limiter, name, ends ? NULL : &policy, NULL));
        atomic_fetch_add(&yard->disturbances, 1);
        sched_yield();
    }
    return NULL;
}

TEST(keys_in_reused_memory_stay_distinct_while_limits_are_redefined, 60)
{
    YARD(yard, 8, 1000);
    yard_run(&yard, redefine);
    assert_nothing_is_left(&yard);
    ck_assert_int_gt(atomic_load(&yard.disturbances), 0);
}

/* ---- One key ---- */

static void *take_one_key(void *argument)
{
    weir_limit *limit = argument;
    for (int i = 0; i < STEPS * 4; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(limit, weir_key_text("hot"), 1, &decision));
        must(decision.allowed, "there is room for all of them");
    }
    return NULL;
}

TEST(takes_of_one_key_by_all_threads_are_all_counted, 60)
{
    static const char *const lots[] = { "token_bucket limit=10000000 period=365d",
                                        "sliding_window limit=10000000 period=365d blocks=10" };
    for (int p = 0; p < 2; p++) {
        struct crew threads;
        weir_limit *limit;
        struct weir_decision left;
        const struct weir_policy policy = policy_of(lots[p]);
        YARD(yard, 4, 1000);
        must_succeed(weir_limit_define(yard.limiter, "lots", &policy, &limit));
        crew_start(&threads, 4, take_one_key, limit);
        crew_join(&threads);
        must_succeed(weir_peek(limit, weir_key_text("hot"), 1, &left));
        ck_assert_int_eq(left.limit - left.remaining, 4 * STEPS * 4);
    }
}

/* ---- Records that move ---- */

enum { MOVING = 9, GROUPS = 4 }; /* this fills at least one group, with room for another key */

struct moving {
    struct yard *yard;
    weir_limit *limit;
    char keys[MOVING][16];         /* of shard 0, each with two groups */
    char crowding[GROUPS][16];     /* of shard 0, each with one group */
    _Atomic int64_t taken[MOVING]; /* by all threads */
    _Atomic int64_t moves;
};

/* Find the next key of shard 0 after *number that has one group or two, and the first of these. */
static uint32_t find_key(const struct moving *moving, bool is_crowding, int *number, char key[16])
{
    for (;;) {
        snprintf(key, 16, "%08d", ++*number);
        const uint64_t hash = key_hash(moving->limit, weir_key_text(key));
        const uint32_t first = cells_number(hash, false, GROUPS), second = cells_number(hash, true, GROUPS);
        if (hash >> moving->yard->table->shard_shift == 0 && (first == second) == is_crowding)
            return first;
    }
}

static void read_owners(const struct moving *moving, uint32_t places[GROUPS * CELLS_SLOTS])
{
    const struct cells *cells = &moving->yard->table->cells;
    for (uint32_t i = 0; i < GROUPS * CELLS_SLOTS; i++)
        places[i] = atomic_load(&cells->owners[cells_index(cells, 0, i / CELLS_SLOTS)].places[i % CELLS_SLOTS]);
}

/* Add and drop a key that has only one group. While that one is full, a record must leave it. */
static void *crowd(void *argument)
{
    struct moving *moving = argument;
    struct chance chance = chance_make(1);
    while (!atomic_load(&moving->yard->done) || atomic_load(&moving->moves) == 0) {
        uint32_t before[GROUPS * CELLS_SLOTS], after[GROUPS * CELLS_SLOTS];
        const struct weir_key key = weir_key_text(moving->crowding[chance_between(&chance, 0, GROUPS - 1)]);
        struct weir_decision decision;
        read_owners(moving, before);
        must_succeed(weir_try(moving->limit, key, 1, &decision));
        must_succeed(weir_reset(moving->limit, key));
        read_owners(moving, after);
        atomic_fetch_add(&moving->moves, memcmp(before, after, sizeof before) != 0);
    }
    return NULL;
}

static void *take_moving_keys(void *argument)
{
    struct moving *moving = argument;
    struct chance chance = chance_make(2);
    for (int i = 0; i < 4 * moving->yard->steps; i++) {
        const int key = (int)chance_between(&chance, 0, MOVING - 1);
        struct weir_decision decision;
        must_succeed(weir_try(moving->limit, weir_key_text(moving->keys[key]), 1, &decision));
        must(decision.allowed, "there is room for all of them");
        atomic_fetch_add(&moving->taken[key], 1);
    }
    return NULL;
}

TEST(takes_of_keys_are_all_counted_while_their_records_move, 60)
{
    YARD(yard, 2, 1000);
    struct moving moving = { .yard = &yard };
    struct weir_decision left;
    struct crew takers, mover;
    int number = 0;
    const struct weir_policy policy = policy_of("token_bucket limit=10000000 period=365d");
    must_succeed(weir_limit_define(yard.limiter, "moving", &policy, &moving.limit));
    lock_take(&yard.table->shards[0].mutex);
    while (cells_groups(&yard.table->cells, 0) < GROUPS)
        must(cells_widen(&yard.table->cells, 0), "there is memory");
    lock_give(&yard.table->shards[0].mutex);
    for (int i = 0; i < MOVING; i++) {
        while (find_key(&moving, false, &number, moving.keys[i]) != (uint32_t)i % GROUPS)
            ;
        must_succeed(weir_try(moving.limit, weir_key_text(moving.keys[i]), 1, &left));
        atomic_store(&moving.taken[i], 1);
    }
    ck_assert_uint_eq(cells_groups(&yard.table->cells, 0), GROUPS);
    yard.table->budget.max = atomic_load(&yard.table->budget.used); /* no more groups */
    for (uint32_t i = 0; i < GROUPS; i++)
        while (find_key(&moving, true, &number, moving.crowding[i]) != i)
            ;
    crew_start(&mover, 1, crowd, &moving);
    crew_start(&takers, 2, take_moving_keys, &moving);
    crew_join(&takers);
    atomic_store(&yard.done, true);
    crew_join(&mover);
    ck_assert_uint_eq(cells_groups(&yard.table->cells, 0), GROUPS);
    for (int i = 0; i < MOVING; i++) {
        must_succeed(weir_peek(moving.limit, weir_key_text(moving.keys[i]), 1, &left));
        ck_assert_int_eq(left.limit - left.remaining, atomic_load(&moving.taken[i]));
    }
}

/* ---- Keys that are dropped as the clock moves on ---- */

/* With any algorithm all permits return within a millisecond. So a key is fresh after each step of its thread's private
 * clock (weir_try_at). */
static const char *const passing[] = {
    "token_bucket limit=3 period=1ms", "token_bucket limit=3 period=1ms refill=interval",
    "fixed_window limit=3 period=1ms", "sliding_window limit=3 period=1ms blocks=10",
    "leaky_bucket limit=3 period=1ms",
};
enum { PASSING = sizeof passing / sizeof passing[0] };

struct passer {
    struct yard *yard;
    weir_limit **limits;
    int number, rounds;
};

/* Between two rounds time advances so far that every key is idle and any thread may sweep it. Within a round a key
 * admits exactly three permits. */
static void *pass(void *argument)
{
    struct passer *passer = argument;
    struct yard *yard = passer->yard;
    struct chance chance = chance_make((uint64_t)passer->number);
    for (int round = 0; round < yard->steps / 8; round++) {
        const int limit = (int)chance_between(&chance, 0, PASSING - 1);
        const struct name name = name_of(passer->number * 4 + round % 4, 1 + (int)chance_between(&chance, 0, 3));
        const int64_t now_us = atomic_fetch_add(&yard->now_us, 10000) + 10000;
        bool right = true;
        for (int i = 3; i >= 0; i--) {
            struct weir_decision decision;
            must_succeed(weir_try_at(passer->limits[limit], key_of(&name), 1, now_us, &decision));
            right = right && decision.allowed == (i > 0) && decision.remaining == (i > 0 ? i - 1 : 0);
        }
        /* Unless other threads are so far ahead that they may sweep it. */
        must(right || atomic_load(&yard->now_us) - now_us > WEIR_CLOCK_SLACK_US, "each is fresh: three, and no more");
        passer->rounds += right;
    }
    return NULL;
}

TEST(keys_dropped_and_created_again_as_the_clock_moves_are_fresh, 60)
{
    weir_limit *limits[PASSING];
    struct passer passers[8];
    pthread_t threads[8];
    YARD(yard, 8, 1000);
    for (int i = 0; i < PASSING; i++) {
        char name[32];
        const struct weir_policy policy = policy_of(passing[i]);
        snprintf(name, sizeof name, "passing-%d", i);
        must_succeed(weir_limit_define(yard.limiter, name, &policy, &limits[i]));
    }
    for (int i = 0; i < 8; i++) {
        passers[i] = (struct passer){ &yard, limits, i, 0 };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, pass, &passers[i]), 0);
    }
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 8; i++)
        ck_assert_int_gt(passers[i].rounds, yard.steps / 16);
    ck_assert_uint_gt(stats_of(yard.limiter).evictions, 100);
}

/* ---- All or nothing, seen from outside ---- */

enum { PAIR = 2, LOTS = 1000000 };

struct pairs {
    struct yard *yard;
    weir_limit *limits[PAIR];
    _Atomic int64_t charged, alone;
    _Atomic bool done;
};

static struct weir_decision pair_peek(const struct pairs *pairs, int which)
{
    struct weir_decision decision;
    must_succeed(weir_peek(pairs->limits[which], weir_key_text("pair"), 1, &decision));
    return decision;
}

static void *charge_both(void *argument)
{
    struct pairs *pairs = argument;
    struct weir_request both[PAIR + 1];
    for (int i = 0; i <= PAIR; i++)
        both[i] = (struct weir_request){ pairs->limits[i % PAIR], weir_key_text("pair"), 1, 0 };
    for (int step = 0; step < STEPS / 2; step++) {
        struct weir_decision decision;
        const bool fails = step % 5 == 0; /* more than the second key ever admits */
        both[1].cost = fails ? LOTS + 1 : 1;
        must_succeed(weir_try_all(pairs->yard->limiter, both + (fails ? 0 : step % 2), PAIR, &decision));
        must(decision.allowed == !fails, "there is room for all of them");
        atomic_fetch_add(&pairs->charged, decision.allowed);
    }
    return NULL;
}

/* The key that is read first cannot show more than the other one, read later. */
static void *look_at_both(void *argument)
{
    struct pairs *pairs = argument;
    int64_t last[PAIR] = { 0 };
    for (int first = 0; !atomic_load(&pairs->done); first = !first) {
        const int64_t before = LOTS - pair_peek(pairs, first).remaining;
        const int64_t after = LOTS - pair_peek(pairs, !first).remaining;
        if (before > after)
            ck_abort_msg("%lld of the one, and then %lld of the other", (long long)before, (long long)after);
        must(before >= last[first] && after >= last[!first], "nothing is given back");
        last[first] = before;
        last[!first] = after;
    }
    return NULL;
}

TEST(a_group_charged_in_one_step_is_never_seen_half_charged, 60)
{
    static const char *const lots[] = { "token_bucket limit=%d period=365d", "fixed_window limit=%d period=365d",
                                        "sliding_window limit=%d period=365d blocks=40",
                                        "leaky_bucket limit=%d period=365d" };
    for (int p = 0; p < 4; p++) {
        CLOSED_BY(yard_close) struct yard yard;
        struct pairs pairs = { .yard = &yard };
        pthread_t threads[6];
        yard_open(&yard, 8, 1000);
        for (int i = 0; i < PAIR; i++) {
            char name[32], text[128];
            snprintf(name, sizeof name, "pair-%d", i);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(text, sizeof text, lots[(p + i) % 4], LOTS);
#pragma GCC diagnostic pop
            pairs.limits[i] = limit_of(yard.limiter, name, text);
        }
        for (int i = 0; i < 6; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, i < 3 ? charge_both : look_at_both, &pairs), 0);
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        atomic_store(&pairs.done, true);
        for (int i = 3; i < 6; i++)
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        for (int i = 0; i < PAIR; i++)
            ck_assert_int_eq(LOTS - pair_peek(&pairs, i).remaining, atomic_load(&pairs.charged));
    }
}

/* ---- Forks ---- */

struct forked {
    struct pairs pairs;
    _Atomic bool done;
};

static void *decide_on(void *argument)
{
    struct forked *forked = argument;
    struct pairs *pairs = &forked->pairs;
    struct weir_request both[PAIR];
    struct weir_decision decision;
    for (int i = 0; i < PAIR; i++)
        both[i] = (struct weir_request){ pairs->limits[i], weir_key_text("pair"), 1, 0 };
    for (int step = 0; !atomic_load(&forked->done); step++) {
        const struct name name = name_of(step % 16, step % LENGTHS);
        weir_limit *limit = pairs->yard->limits[step % LIMITS];
        must_succeed(weir_try_all(pairs->yard->limiter, both, PAIR, &decision));
        for (int i = 0; i < 20; i++)
            must_succeed(weir_try(pairs->limits[i % PAIR], weir_key_text("looked at"), 1, &decision));
        must_succeed(weir_try(limit, key_of(&name), 1, &decision));
        must_succeed(weir_reset(limit, key_of(&name)));
    }
    return NULL;
}

/* Run in the child, with its parent's other threads stopped anywhere. Return 0 if it can decide, can reuse memory
 * (which waits for readers), and finds each atomic step whole. */
static int live_on(struct pairs *pairs)
{
    struct weir_decision decision;
    _Atomic uint64_t *turn = readers_enter(&pairs->yard->table->readers);
    if (!turn)
        return 7;
    readers_leave(turn);
    if (pair_peek(pairs, 0).remaining != pair_peek(pairs, 1).remaining)
        return 3;
    for (int i = 0; i < PAIR; i++)
        if (weir_try(pairs->limits[i], weir_key_text("looked at"), 1, &decision) != WEIR_OK ||
            weir_try(pairs->limits[i], weir_key_text("pair"), 1, &decision) != WEIR_OK)
            return 4;
    const uint32_t recast = slab_recast(&pairs->yard->table->slab);
    for (int step = 0; step < 3 * LENGTHS * LIMITS; step++) {
        const struct name name = name_of(step % 16, step % LENGTHS);
        weir_limit *limit = pairs->yard->limits[step / LENGTHS % LIMITS];
        if (weir_reset(limit, key_of(&name)) != WEIR_OK || weir_try(limit, key_of(&name), 1, &decision) != WEIR_OK ||
            decision.remaining != decision.limit - 1 || weir_reset(limit, key_of(&name)) != WEIR_OK)
            return 5;
    }
    return slab_recast(&pairs->yard->table->slab) == recast ? 6 : 0;
}

static pid_t fork_child(struct pairs *pairs)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(60); /* a signal ends a child that hangs */
        _exit(live_on(pairs));
    }
    return child;
}

TEST(a_forked_child_can_decide_although_its_parents_threads_held_locks, 60)
{
    CLOSED_BY(yard_close) struct yard yard;
    struct forked forked = { .pairs.yard = &yard };
    struct crew threads;
    yard_open(&yard, 8, 1000);
    memory_watch_forks(yard.limiter->backend);
    for (int i = 0; i < PAIR; i++) {
        char name[32];
        snprintf(name, sizeof name, "pair-%d", i);
        forked.pairs.limits[i] = limit_of(yard.limiter, name, "fixed_window limit=1000000000 period=365d");
    }
    crew_start(&threads, 4, decide_on, &forked);
    for (int i = 0; i < 60; i++) {
        const pid_t child = fork_child(&forked.pairs);
        assert_child_succeeds(child);
        _Atomic uint64_t *turn = readers_enter(&yard.table->readers);
        ck_assert_ptr_nonnull(turn); /* and the threads look again here */
        readers_leave(turn);
    }
    atomic_store(&forked.done, true);
    crew_join(&threads);
}
