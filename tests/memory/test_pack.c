/* test_pack.c - keys of one size lock out no keys of another size, and moving entries loses no permits. */
#include "support.h"

#include "backends/memory/memory.h"
#include "backends/memory/parts.h"
#include "core/ground/arith.h"
#include "core/limiter/limiter.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct table *table_of(weir *limiter)
{
    return &((struct memory *)limiter->backend)->table;
}

static char bytes[WEIR_MAX_KEY_LEN];

/* Return a key of `len` bytes, 8 or more, that begins with the number. */
static struct weir_key key_of(int64_t number, size_t len)
{
    memcpy(bytes, &number, sizeof number);
    return weir_key(bytes, len);
}

static struct weir_decision take(weir_limit *limit, int64_t number, size_t len, int64_t cost)
{
    struct weir_decision decision;
    must_succeed(weir_try(limit, key_of(number, len), cost, &decision));
    return decision;
}

/* ---- Lock-out ---- */

/* Fill the table with keys of `len` bytes, let all but one in `live_one_in` become idle, and assert that `others` keys
 * of another size all find room and none of the live keys is lost. */
static void assert_others_find_room(const struct weir_options *options, size_t len, int live_one_in, size_t other_len,
                                    int64_t others)
{
    OPEN_SCENE(scene, options);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1m");
    weir_limit *kept = scene_define_text(&scene, "kept", "token_bucket limit=10 period=1d");
    int64_t filled = 0, live = 0;
    for (; take(limit, filled, len, 1).source == WEIR_BY_MEMORY && filled < 2 * options->max_keys; filled++)
        if (filled % live_one_in == 0 && take(kept, filled, len, 5).source == WEIR_BY_MEMORY)
            live = filled;
    scene.now_us += WEIR_MINUTE;
    const uint64_t full = stats_of(scene.limiter).full;
    for (int64_t i = 0; i < others; i++)
        must(take(kept, -1 - i, other_len, 10).allowed, "a fresh key has all permits");
    ck_assert_uint_eq(stats_of(scene.limiter).full, full);
    for (int64_t i = 0; i <= live; i += live_one_in)
        ck_assert_int_eq(take(kept, i, len, 1).remaining, 4);
    for (int64_t i = 0; i < others; i++)
        must(!take(kept, -1 - i, other_len, 1).allowed, "what was taken is counted");
}

TEST(long_keys_find_room_in_a_table_full_of_idle_short_keys, 60)
{
    assert_others_find_room(OPTIONS(.max_keys = 100000, .max_bytes = 8 << 20), 16, 50, 100, 25000);
}

TEST(with_on_full_allow_no_long_key_passes_uncounted_while_short_keys_are_idle, 60)
{
    assert_others_find_room(OPTIONS(.max_keys = 100000, .max_bytes = 8 << 20, .on_full = WEIR_FULL_ALLOW), 16, 50, 100,
                            25000);
}

TEST(short_keys_find_room_in_a_table_of_a_few_idle_long_keys, 60)
{
    assert_others_find_room(OPTIONS(.max_keys = 20000), 400, 90, 16, 15000);
}

TEST(keys_too_large_for_a_page_find_room_in_a_table_of_idle_short_keys, 60)
{
    assert_others_find_room(OPTIONS(.max_keys = 100000, .max_bytes = 8 << 20), 16, 50, 65536, 90);
    assert_others_find_room(OPTIONS(.max_keys = 100000, .max_bytes = 1 << 20), 16, 50, 65536, 8);
}

TEST(a_group_of_new_keys_finds_room_among_idle_keys, 60)
{
    OPEN_SCENE(scene, OPTIONS(.max_bytes = 1 << 20));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1m");
    struct weir_request requests[20];
    char keys[20][1200];
    int64_t number = 0;
    while (take(limit, number, 16, 1).source == WEIR_BY_MEMORY)
        number++;
    scene.now_us += WEIR_MINUTE;
    for (int64_t i = 0; i < number; i += 10)
        take(limit, i, 16, 9);
    for (int round = 0; round < 20; round++) {
        struct weir_decision decision;
        for (int i = 0; i < 20; i++) {
            memset(keys[i], round * 20 + i, sizeof keys[i]);
            keys[i][0] = (char)round;
            requests[i] = (struct weir_request){ limit, weir_key(keys[i], (size_t)(i + 1) * 60), 1, 0 };
        }
        must_succeed(weir_try_all(scene.limiter, requests, 20, &decision));
        ck_assert_int_eq(decision.source, WEIR_BY_MEMORY);
        ck_assert(decision.allowed);
    }
}

/* ---- The invariant ---- */

/* Assert that little is free in a table that has refused a key with an entry of up to `entry_bytes`. Return how many
 * keys are idle. */
static int64_t idle_keys_of_full_table(const struct scene *scene, int64_t max_bytes, int64_t entry_bytes)
{
    struct table *table = table_of(scene->limiter);
    int64_t idle = 0, free_bytes = max_bytes - table_bytes(table);
    for (size_t s = 0; s < table->shard_count; s++)
        for (unsigned b = 0; b < table->shards[s].buckets.count; b++)
            for (UT_hash_handle *handle = table->shards[s].buckets.heads[b].hh_head; handle; handle = handle->hh_next)
                idle += handle->keylen > 0 && /* a shard's sentinel has no key */
                        entry_fresh_at_us(table, (struct entry *)(void *)handle) <= scene->now_us;
    for (size_t c = 0; c < SLAB_CLASSES; c++)
        free_bytes += table->slab.classes[c].free * table->slab.classes[c].entry_bytes;
    ck_assert_int_lt(free_bytes, max_bytes / 10 + entry_bytes);
    return idle;
}

/* Return a length; the range of lengths is different in each phase. */
static size_t len_by_chance(struct chance *chance, int phase)
{
    switch (phase % 5) {
    case 0: return 16;
    case 1: return (size_t)chance_between(chance, 8, 100 + phase * 20);
    case 2: return (size_t)chance_between(chance, 700, 1100);
    case 3: return (size_t)chance_between(chance, 8, 80);
    default: return (size_t)max_of(8, chance_magnitude(chance, WEIR_MAX_KEY_LEN));
    }
}

/* Each refusal inspects up to 512 keys, so while the time stands still, idle keys are soon found. */
TEST_EACH(a_key_is_refused_only_without_an_idle_key_and_with_little_memory_free, 3, 60)
{
    static const char *const policies[] = { "token_bucket limit=10 period=1m",
                                            "sliding_window limit=1000 period=1m blocks=20",
                                            "fixed_window limit=10 period=10m" };
    const int64_t max_bytes = INT64_C(1) << (20 + _i);
    struct chance chance = chance_make((uint64_t)_i);
    int64_t refused = 0, number = 0, in_vain = 0;
    OPEN_SCENE(scene, OPTIONS(.max_bytes = max_bytes, .max_keys = 1 << 20));
    weir_limit *limits[3];
    for (int i = 0; i < 3; i++)
        limits[i] = scene_define_text(&scene, (const char *[]){ "a", "b", "c" }[i], policies[i]);
    for (int phase = 0; phase < 30; phase++) {
        weir_limit *limit = limits[chance_between(&chance, 0, 2)];
        int64_t left = 20;
        for (int64_t i = 0; left > 0 && i < 50000; i++) {
            const size_t len = len_by_chance(&chance, phase);
            if (take(limit, number++, len, chance_between(&chance, 1, 10)).source != WEIR_BY_FULL)
                continue;
            left--;
            refused++;
            const bool has_idle = idle_keys_of_full_table(&scene, max_bytes, (int64_t)len + 64 + 22 * 8) > 0;
            in_vain = has_idle ? in_vain + 1 : 0;
            ck_assert_int_le(in_vain, stats_of(scene.limiter).keys / 512 + 1);
            if (!has_idle && chance_one_in(&chance, 3))
                scene.now_us += chance_magnitude(&chance, WEIR_SECOND);
        }
        scene.now_us += chance_magnitude(&chance, 10 * WEIR_MINUTE);
    }
    ck_assert_int_gt(refused, 300);
}

/* ---- Threads ---- */

enum { THREADS = 4, COUNTED = 200, SIZE = 1000, FORKS = 10 };

struct yard {
    weir_limit *counted, *passing;
    weir_handle *handles[COUNTED];
    _Atomic int64_t now_us;
    _Atomic int64_t admitted[COUNTED];
    _Atomic int64_t number; /* of the next passing key */
    int64_t steps;
    atomic_bool done;
};

static int64_t yard_clock(void *user)
{
    return atomic_load_explicit(&((struct yard *)user)->now_us, memory_order_relaxed);
}

static struct weir_key key_in(char *room, int64_t number, size_t len)
{
    memset(room, 'k', len);
    memcpy(room, &number, sizeof number);
    return weir_key(room, len);
}

/* Every other key has a cell for itself and at most two words of state. */
static size_t counted_len(int number)
{
    return number % 2 == 0 ? 8 + (size_t)number % 9 : 8 + (size_t)number % 50 * 20;
}

/* Take permits of counted keys, which are spread over the table, and add passing keys whose lengths change. */
static void *work(void *argument)
{
    struct yard *yard = argument;
    char room[1200];
    for (int64_t i = 0; i < yard->steps; i++) {
        const int64_t number = atomic_fetch_add(&yard->number, 1);
        const size_t len = 16 + (size_t)(number / 2000) % 40 * 25 + (size_t)number % 20;
        struct weir_decision decision;
        must_succeed(weir_try(yard->passing, key_in(room, number, len), 1, &decision));
        atomic_fetch_add_explicit(&yard->now_us, 100, memory_order_relaxed);
        const int c = (int)(number % COUNTED);
        if (number % 3 == 0)
            must_succeed(weir_handle_try(yard->handles[c], 1, 0, &decision));
        else
            must_succeed(weir_try(yard->counted, key_in(room, c, counted_len(c)), 1, &decision));
        atomic_fetch_add(&yard->admitted[c], decision.allowed);
    }
    return NULL;
}

static void *fork_often(void *argument)
{
    struct yard *yard = argument;
    char room[1200];
    for (int i = 0; i < FORKS || !atomic_load(&yard->done); i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            struct weir_decision decision;
            for (int64_t k = 0; k < 3000; k++)
                if (weir_try(yard->passing, key_in(room, -1 - k, 300 + (size_t)k % 900), 1, &decision) != WEIR_OK)
                    _exit(1);
            _exit(0);
        }
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
    }
    return NULL;
}

/* A fork of a process that ThreadSanitizer watches takes seconds. */
#ifdef UNDER_TSAN
enum { FORKS_TOO = 0 };
#else
enum { FORKS_TOO = 1 };
#endif

/* The window has a new block each second, and no permit comes back: the threads take less than 20 seconds of the
 * clock. */
TEST_EACH(no_permit_is_lost_or_made_when_threads_move_entries, 2, 120)
{
    static const char *const policies[] = { "token_bucket limit=1000 period=365d",
                                            "sliding_window limit=1000 period=1m blocks=60" };
    static struct yard yard;
    char room[1200];
    pthread_t threads[THREADS], forker;
    memset(&yard, 0, sizeof yard);
    yard.steps = INSTRUMENTED ? 8000 : 40000;
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.max_bytes = 1 << 20;
    options.now_us = yard_clock;
    options.user = &yard;
    atomic_store(&yard.now_us, WEIR_SECOND * 1000000);
    weir *limiter;
    must_succeed(weir_open(&options, &limiter));
    memory_watch_forks(limiter->backend);
    yard.counted = limit_of(limiter, "counted", policies[_i]);
    yard.passing = limit_of(limiter, "passing", "token_bucket limit=10 period=100ms");
    for (int c = 0; c < COUNTED; c++) {
        struct weir_decision decision;
        must_succeed(weir_key_resolve(yard.counted, key_in(room, c, counted_len(c)), &yard.handles[c]));
        must_succeed(weir_handle_try(yard.handles[c], 1, 0, &decision));
        atomic_store(&yard.admitted[c], 1);
    }
    if (FORKS_TOO)
        ck_assert_int_eq(pthread_create(&forker, NULL, fork_often, &yard), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &yard), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    atomic_store(&yard.done, true);
    if (FORKS_TOO)
        ck_assert_int_eq(pthread_join(forker, NULL), 0);
    ck_assert_uint_gt(slab_recast(&table_of(limiter)->slab), 100);
    for (int c = 0; c < COUNTED; c++) {
        struct weir_decision decision;
        must_succeed(weir_peek(yard.counted, key_in(room, c, counted_len(c)), 1, &decision));
        ck_assert_int_eq(decision.remaining, SIZE - atomic_load(&yard.admitted[c]));
        weir_handle_free(yard.handles[c]);
    }
    weir_close(limiter);
}
