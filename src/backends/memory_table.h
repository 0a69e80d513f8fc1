/* memory_table.h - the keys of the memory backend: uthash tables in shards, each guarded by a mutex.
 *
 * A key's entry is 64 bytes, its state, a former one if it has that, and the key itself, from a slab; with 16 bytes of
 * bucket at a load of about 1 that makes some 120 bytes for a key of 16 bytes. The upper bits of a key's hash choose
 * the shard, the lower 32 the bucket.
 *
 * Growth is decided by load alone, so that no run of keys can switch it off, and each shard grows at a load of its
 * own, so that they do not all grow at once; a shard is meant to hold about TABLE_KEYS_PER_SHARD keys at max_keys,
 * which bounds the pause. (uthash's own growth looks at chain lengths, and gives up for good after two that helped
 * little.) If there is no memory to grow, chains get longer until there is.
 *
 * Keys that are as good as new are dropped in small steps: each insertion looks at a few entries further on in the
 * shard's order of insertion. `soonest_us` is a lower bound of when any entry of a shard will be as good as new, kept
 * at each decision and made exact by each full round, so that nothing is looked at in vain.
 *
 * Locks, outer first; try_all holds several shards, taken in the order of their index:
 *
 *     shard->mutex
 *         slab->mutex
 *         rules->mutex
 */
#ifndef BACKENDS_MEMORY_TABLE_H
#define BACKENDS_MEMORY_TABLE_H

#include "backends/budget.h"
#include "backends/rules.h"
#include "backends/slab.h"
#include "core/former.h"

#include <stdalign.h>

#define TABLE_KEYS_PER_SHARD 4096
#define TABLE_MIN_SHARDS 16
#define TABLE_MAX_SHARDS 65536

struct entry {
    UT_hash_handle hh;
    struct rule *rule;
    int64_t state[]; /* and the former one, rule->state_bytes in all; then hh.keylen bytes of key */
};

/* (c) constant, (s) shard->mutex, (a) atomic */
struct shard {
    alignas(128) struct lock mutex;
    /* The table's buckets and their number - 1, kept here to save a cache miss. (s), but read without it to guess what
     * to prefetch: a pair that does not belong together makes a useless guess, no more. */
    UT_hash_bucket *_Atomic buckets;
    _Atomic unsigned bucket_mask;
    unsigned grow_at;         /* (s) items beyond which the table doubles */
    uint64_t drops;           /* (s) entries that have left their place, by being dropped or moved */
    struct entry *hand;       /* (s) next to be looked at; NULL: at the end of a round */
    int64_t round_soonest_us; /* (s) as soonest_us, of what the round has seen so far */
    struct rule *recent;      /* (s) the last rule that an entry was made under; held */
    uint64_t evictions;       /* (s) */
    unsigned turns;           /* (s) decisions, to pace the sweeping */
    unsigned index;           /* (c) */
    struct entry *first;      /* (c) a sentinel that keeps the table: an entry of no key */
};

struct table {
    struct shard *shards; /* (c) shard_count of them, then the overflow shard, whose keys are not counted */
    size_t shard_count;   /* (c) a power of two */
    unsigned shard_shift; /* (c) hash >> shard_shift is the index */
    struct entry *sentinels;
    _Atomic int64_t *soonest_us; /* (a) by shard, written under its mutex; apart, to be scanned fast */
    _Atomic int64_t keys;        /* (a) */
    int64_t max_keys;            /* (c) */
    struct budget budget;
    struct slab slab;
    struct rules rules;
};

enum table_error { TABLE_OK = 0, TABLE_NO_MEMORY, TABLE_NO_ROOM };

/* 0, or -1 if there was no memory. */
int table_init(struct table *table, int64_t max_keys, int64_t max_bytes);
void table_free(struct table *table);

static inline struct shard *table_shard(const struct table *table, uint64_t hash)
{
    return &table->shards[hash >> table->shard_shift];
}

static inline struct shard *table_overflow_shard(const struct table *table)
{
    return &table->shards[table->shard_count];
}

/* Eight bytes at a time: keys are short, and a call costs more than the comparison. */
static inline bool keys_equal(const void *a, const void *b, size_t len)
{
    const char *left = a, *right = b;
    uint64_t one, other;
    if (len < sizeof one)
        return memcmp(left, right, len) == 0;
    size_t last = len - sizeof one;
    for (size_t i = 0; i < last; i += sizeof one) {
        memcpy(&one, left + i, sizeof one);
        memcpy(&other, right + i, sizeof other);
        if (one != other)
            return false;
    }
    memcpy(&one, left + last, sizeof one);
    memcpy(&other, right + last, sizeof other);
    return one == other;
}

/* The bucket of a hash: to be looked into under the mutex only, to be prefetched at any time. */
static inline const UT_hash_bucket *shard_bucket(const struct shard *shard, uint64_t hash)
{
    uintptr_t buckets = (uintptr_t)atomic_load_explicit(&shard->buckets, memory_order_relaxed);
    unsigned mask = atomic_load_explicit(&shard->bucket_mask, memory_order_relaxed);
    return (const UT_hash_bucket *)(buckets + ((unsigned)hash & mask) * sizeof(UT_hash_bucket));
}

static inline struct entry *shard_find(const struct shard *shard, const struct weir_backend_request *request)
    REQUIRES(shard->mutex)
{
    unsigned hash = (unsigned)request->hash;
    UT_hash_handle *handle = shard_bucket(shard, request->hash)->hh_head;
    for (; handle; handle = handle->hh_next) {
        __builtin_prefetch(handle + 1, 1); /* state and key, while the hash is on its way */
        if (handle->hashv != hash || handle->keylen != request->key.len)
            continue;
        struct entry *entry = (struct entry *)handle; /* its first member */
        if (entry->rule->key.limit_id == request->limit_id &&
            keys_equal(handle->key, request->key.data, request->key.len))
            return entry;
    }
    return NULL;
}

/* The same by way of the request's hint: where the entry was found the last time, and how many had left their place in
 * this shard by then. If none has since, it is there still, and no other memory was looked at to know that. The hint is
 * guarded by the mutex as well, for its key is of this shard for ever. */
static inline struct entry *shard_recall(const struct shard *shard, const struct weir_backend_request *request)
    REQUIRES(shard->mutex)
{
    uint64_t *known = request->hint->opaque;
    if (known[0] != 0 && known[1] == shard->drops)
        return (struct entry *)(uintptr_t)known[0];
    struct entry *entry = shard_find(shard, request);
    known[0] = (uintptr_t)entry;
    known[1] = shard->drops;
    return entry;
}

/* An entry for a key that is not there, under a plan that the limit has as of `version`; its state is the caller's to
 * set. TABLE_NO_ROOM: max_keys or max_bytes. */
enum table_error shard_add(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                           const struct weir_plan *plan, uint64_t version, struct entry **out) REQUIRES(shard->mutex);

void shard_remove(struct table *table, struct shard *shard, struct entry *entry) REQUIRES(shard->mutex);

/* The entry of the request's key anew, under a plan that the limit has as of `version`, with a copy of `former` beside
 * its state, which is the caller's to set. *entry may move. TABLE_NO_MEMORY: nothing changed. */
enum table_error shard_renew(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                             const struct weir_plan *plan, uint64_t version, const struct written *former,
                             struct entry **entry) REQUIRES(shard->mutex);

/* The request's limit, or override, has the same plan as of `version` as the one that the entry was written under: it
 * keeps its states, and goes by what becomes of that one's plan. TABLE_NO_MEMORY: nothing changed. */
enum table_error shard_hand_over(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                                 uint64_t version, struct entry *entry) REQUIRES(shard->mutex);

/* The entry's former state; it has one if rule_former() says so. */
int64_t *entry_former(struct entry *entry);

/* When both its states will be as good as new if nobody touches them. */
int64_t entry_fresh_at_us(struct entry *entry);

/* An entry of the shard will be as good as new at `fresh_at_us`, no earlier. */
static inline void shard_note(struct table *table, struct shard *shard, int64_t fresh_at_us) REQUIRES(shard->mutex)
{
    _Atomic int64_t *soonest_us = &table->soonest_us[shard->index];
    if (fresh_at_us < shard->round_soonest_us)
        shard->round_soonest_us = fresh_at_us;
    if (fresh_at_us < atomic_load_explicit(soonest_us, memory_order_relaxed))
        atomic_store_explicit(soonest_us, fresh_at_us, memory_order_relaxed);
}

/* Look at up to `steps` entries and drop those as good as new since `grace_us`; stops after `most` of them. Returns
 * how many were dropped; *looked, if not NULL, goes down by the entries that were looked at. */
unsigned shard_sweep(struct table *table, struct shard *shard, int64_t now_us, int64_t grace_us, unsigned *steps,
                     unsigned most) REQUIRES(shard->mutex);

/* Drop one key as good as new, from any shard, `near` first: true if there was one among those looked at. If not,
 * *soonest_us is when the first of them will be. No lock is held. */
bool table_make_room(struct table *table, struct shard *near, int64_t now_us, int64_t *soonest_us);

/* Keys dropped so far. No lock is held. */
uint64_t table_evictions(struct table *table);

#endif
