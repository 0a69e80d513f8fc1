/* baseline.c - the yardstick: the plainest limiter that could be called fast, without anything that a product needs.
 *
 * It has 64 shards, each a pthread mutex and a uthash table. The buckets are allocated once for the final number of
 * keys (a load of at most 1) and never grow. Entries of 96 bytes are packed into one slab on huge pages. The hash takes
 * one wide multiplication a word. The token bucket counts integer nanoseconds; CLOCK_MONOTONIC is read once a decision,
 * before the lock. There is no expiry, no eviction, no statistics, no secret in the hash and no answer but yes or no.
 * The tables call this limiter "mutex_mono, presized"; weir's ratios are relative to it.
 *
 * uthash takes its constants and its allocator from macros that expand late. They are redefined below its include and
 * use the local variable `baseline` of the function that expands them.
 */
#include "measure/baseline.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uthash.h>

#include "measure/pages.h"
#include "measure/timer.h"

#undef HASH_INITIAL_NUM_BUCKETS
#define HASH_INITIAL_NUM_BUCKETS baseline->buckets
#undef HASH_INITIAL_NUM_BUCKETS_LOG2
#define HASH_INITIAL_NUM_BUCKETS_LOG2 baseline->buckets_log2
#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 1000000U /* never grow */
#undef uthash_malloc
#define uthash_malloc(size) arena_take(baseline, size)
#undef uthash_free
#define uthash_free(pointer, size) ((void)(pointer)) /* the arena is freed as a whole */

#define SHARDS_LOG2 6
#define SHARDS (1u << SHARDS_LOG2)
#define BUCKETS_LOG2_MIN 3
#define ARENA_ALIGN 64

struct entry {
    UT_hash_handle hh;
    struct bench_key key;
    int64_t used_ns; /* permits used, as the time it takes to refill them */
    int64_t anchor_ns;
};

struct shard {
    _Alignas(128) pthread_mutex_t mutex;
    struct entry *entries; /* uthash's head; needs the mutex */
};

struct baseline {
    struct shard shards[SHARDS];
    int64_t permit_ns, most_ns;
    unsigned buckets, buckets_log2; /* of each shard */
    struct entry *slab;
    uint64_t slab_len;
    _Atomic uint64_t slab_used; /* relaxed: only hands out numbers */
    char *arena;                /* uthash's tables and buckets */
    size_t arena_size;
    _Atomic size_t arena_used; /* relaxed, too */
};

static void *arena_take(struct baseline *baseline, size_t size)
{
    size_t aligned = (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    size_t start = atomic_fetch_add_explicit(&baseline->arena_used, aligned, memory_order_relaxed);
    return start + aligned <= baseline->arena_size ? baseline->arena + start : NULL;
}

struct baseline *baseline_open(uint64_t keys, int64_t permit_ns, int64_t burst)
{
    struct baseline *baseline = pages_map(sizeof *baseline);
    baseline->permit_ns = permit_ns;
    baseline->most_ns = permit_ns * burst;
    baseline->buckets_log2 = BUCKETS_LOG2_MIN;
    while ((UINT64_C(1) << baseline->buckets_log2) * SHARDS < keys)
        baseline->buckets_log2++;
    baseline->buckets = 1u << baseline->buckets_log2;
    baseline->slab_len = keys;
    baseline->slab = pages_map(keys * sizeof(struct entry));
    baseline->arena_size = SHARDS *
                           (sizeof(UT_hash_table) + baseline->buckets * sizeof(UT_hash_bucket) + 2 * ARENA_ALIGN);
    baseline->arena = pages_map(baseline->arena_size);
    for (unsigned i = 0; i < SHARDS; i++)
        pthread_mutex_init(&baseline->shards[i].mutex, NULL);
    return baseline;
}

static uint64_t hash(const struct bench_key *key)
{
    uint64_t words[2];
    memcpy(words, key, sizeof words);
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(words[0] ^ UINT64_C(0x2d358dccaa6c78a5)) * (words[1] ^ UINT64_C(0x8bb84b93962eacc9));
    uint64_t folded = (uint64_t)product ^ (uint64_t)(product >> 64);
    product = (wide)folded * UINT64_C(0x9e3779b97f4a7c15);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Return the key's entry, added with all permits if it is new, or NULL without room. Needs the shard's mutex. */
static struct entry *find_or_add(struct baseline *baseline, struct shard *shard, const struct bench_key *key,
                                 unsigned hash_value)
{
    struct entry *entry;
    HASH_FIND_BYHASHVALUE(hh, shard->entries, key, KEY_LEN, hash_value, entry);
    if (entry)
        return entry;
    uint64_t place = atomic_fetch_add_explicit(&baseline->slab_used, 1, memory_order_relaxed);
    if (place >= baseline->slab_len)
        return NULL;
    entry = &baseline->slab[place];
    entry->key = *key;
    HASH_ADD_BYHASHVALUE(hh, shard->entries, key, KEY_LEN, hash_value, entry);
    return entry;
}

/* Take the cost if it is there. `now_ns` was read before the lock, so another thread may have left a later anchor. */
static bool baseline_take(const struct baseline *baseline, struct entry *entry, int64_t now_ns, int64_t cost)
{
    int64_t elapsed_ns = now_ns > entry->anchor_ns ? now_ns - entry->anchor_ns : 0;
    int64_t used_ns = entry->used_ns > elapsed_ns ? entry->used_ns - elapsed_ns : 0;
    int64_t cost_ns = cost * baseline->permit_ns;
    if (cost_ns > baseline->most_ns - used_ns)
        return false;
    entry->used_ns = used_ns + cost_ns;
    entry->anchor_ns = now_ns;
    return true;
}

bool baseline_try(struct baseline *baseline, const struct bench_key *key, int64_t cost)
{
    uint64_t hash_value = hash(key);
    struct shard *shard = &baseline->shards[hash_value >> (64 - SHARDS_LOG2)];
    int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_lock(&shard->mutex);
    struct entry *entry = find_or_add(baseline, shard, key, (unsigned)hash_value);
    bool allowed = entry && baseline_take(baseline, entry, now_ns, cost);
    pthread_mutex_unlock(&shard->mutex);
    return allowed;
}

void baseline_close(struct baseline *baseline)
{
    if (!baseline)
        return;
    for (unsigned i = 0; i < SHARDS; i++)
        pthread_mutex_destroy(&baseline->shards[i].mutex);
    pages_unmap(baseline->arena, baseline->arena_size);
    pages_unmap(baseline->slab, baseline->slab_len * sizeof(struct entry));
    pages_unmap(baseline, sizeof *baseline);
}
