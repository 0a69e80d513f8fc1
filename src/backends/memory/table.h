/* table.h - the keys of the memory backend: uthash tables in shards, each guarded by a mutex.
 *
 * A key's entry is 64 bytes, its state, a former one if it has that, and the key itself, from a slab; with 8 bytes of
 * bucket and 8 of the index that makes some 112 bytes for a key of 16 bytes. The upper bits of a key's hash choose the
 * shard, the lower 32 the bucket.
 *
 * The mutex guards which entries there are. What is in one is read and changed by its word, see memory/entry.h, also by
 * those that have no mutex, see memory/look.h; who has the mutex claims an entry before that.
 *
 * Growth is decided by load alone, so that no run of keys can switch it off, and each shard grows at a load of its
 * own, so that they do not all grow at once; a shard is meant to hold about TABLE_KEYS_PER_SHARD keys at max_keys,
 * which bounds the pause. (uthash's own growth looks at chain lengths, and gives up for good after two that helped
 * little.) If there is no memory to grow, chains get longer until there is. Buckets hold two entries as a rule: it is
 * by the index that most are found.
 *
 * Keys that are as good as new are dropped in small steps: each insertion tries a few entries further on in the shard's
 * order of insertion. `soonest_us` is a lower bound of when any entry of a shard will be as good as new, noted when one
 * is made, or may be that earlier than before, and made exact by each full round, so that none is tried in vain.
 *
 * Locks, outer first; try_all holds several shards, taken in the order of their index:
 *
 *     shard->mutex
 *         slab->mutex
 *         rules->mutex
 */
#ifndef BACKENDS_MEMORY_TABLE_H
#define BACKENDS_MEMORY_TABLE_H

#include "backends/memory/entry.h"
#include "backends/memory/index.h"
#include "core/algorithm/former.h"

#define TABLE_KEYS_PER_SHARD 2048
#define TABLE_MIN_SHARDS 16
#define TABLE_MAX_SHARDS 65536

/* (c) constant, (s) shard->mutex, (a) atomic */
struct shard {
    alignas(128) struct lock mutex;
    UT_hash_bucket *buckets;  /* (s) the table's, kept here to save a cache miss */
    unsigned bucket_mask;     /* (s) their number - 1 */
    unsigned grow_at;         /* (s) items beyond which the table doubles */
    struct entry *hand;       /* (s) next to be tried; NULL: at the end of a round */
    int64_t round_soonest_us; /* (s) as soonest_us, of what the round has seen so far */
    struct rule *recent;      /* (s) the last rule that an entry was made under; held */
    uint64_t evictions;       /* (s) */
    unsigned turns;           /* (s) decisions, to pace the sweeping */
    unsigned number;          /* (c) */
    struct entry *first;      /* (c) a sentinel that keeps the table: an entry of no key */
};

struct table {
    struct shard *shards; /* (c) shard_count of them, then the overflow shard, whose keys are not counted */
    size_t shard_count;   /* (c) a power of two */
    unsigned shard_shift; /* (c) hash >> shard_shift is the number */
    struct entry *sentinels;
    _Atomic int64_t *soonest_us;      /* (a) by shard, written under its mutex; apart, to be scanned fast */
    int64_t max_keys;                 /* (c) */
    struct index index;               /* of all shards but the overflow shard */
    alignas(64) _Atomic int64_t keys; /* (a) changes all the time; no decision by a look reads its cache line */
    struct budget budget;
    alignas(64) struct slab slab;
    alignas(64) struct rules rules;
    struct readers readers;
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

/* The shard of the index. */
static inline bool shard_is_indexed(const struct table *table, const struct shard *shard)
{
    return shard->number != table->shard_count;
}

static inline UT_hash_bucket *shard_bucket(const struct shard *shard, unsigned hash) REQUIRES(shard->mutex)
{
    return &shard->buckets[hash & shard->bucket_mask];
}

static inline struct rule *entry_rule(const struct table *table, const struct entry *entry)
{
    return rule_at(&table->rules, word_rule(entry_word(entry)));
}

/* Claimed until shard_remove(), or entry_let_go(). One that the index had left out is put back there. */
struct entry *shard_find(struct table *table, const struct shard *shard, const struct weir_backend_request *request)
    REQUIRES(shard->mutex);

/* Claim one that the caller has not claimed: waits for who is changing it without the mutex. */
void entry_hold(struct entry *entry);

static inline void entry_let_go(struct entry *entry)
{
    entry_release(entry, word_next(atomic_load_explicit(&entry->word, memory_order_relaxed)));
}

/* An entry for a key that is not there, claimed, under a plan that the limit has as of `version`; its state is the
 * caller's to write. TABLE_NO_ROOM: max_keys or max_bytes. */
enum table_error shard_add(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                           const struct weir_plan *plan, uint64_t version, struct entry **out) REQUIRES(shard->mutex);

/* Of one that is claimed. */
void shard_remove(struct table *table, struct shard *shard, struct entry *entry) REQUIRES(shard->mutex);

/* The claimed entry of the request's key anew, under a plan that the limit has as of `version`, with a copy of `former`
 * beside its state, which is the caller's to write. *entry may move. TABLE_NO_MEMORY: nothing changed. */
enum table_error shard_renew(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                             const struct weir_plan *plan, uint64_t version, const struct written *former,
                             struct entry **entry) REQUIRES(shard->mutex);

/* The request's limit, or override, has the same plan as of `version` as the one that the claimed entry was written
 * under: it keeps its states, and goes by what becomes of that one's plan. TABLE_NO_MEMORY: nothing changed. */
enum table_error shard_hand_over(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                                 uint64_t version, struct entry *entry) REQUIRES(shard->mutex);

/* Of a claimed entry: when both its states will be as good as new if nobody touches them. */
int64_t entry_fresh_at_us(const struct table *table, const struct entry *entry);

/* An entry of the shard will be as good as new at `fresh_at_us`, no earlier. */
static inline void shard_note(struct table *table, struct shard *shard, int64_t fresh_at_us) REQUIRES(shard->mutex)
{
    _Atomic int64_t *soonest_us = &table->soonest_us[shard->number];
    if (fresh_at_us < shard->round_soonest_us)
        shard->round_soonest_us = fresh_at_us;
    if (fresh_at_us < atomic_load_explicit(soonest_us, memory_order_relaxed))
        atomic_store_explicit(soonest_us, fresh_at_us, memory_order_relaxed);
}

/* memory/sweep.c: try up to *steps entries, which goes down by those tried, and drop those as good as new since
 * `grace_us`; stops after `most` of them. Returns how many were dropped. */
unsigned shard_sweep(struct table *table, struct shard *shard, int64_t now_us, int64_t grace_us, unsigned *steps,
                     unsigned most) REQUIRES(shard->mutex);

/* Drop one key as good as new, from any shard, `near` first: true if there was one among those tried. If not,
 * *soonest_us is when the first of them will be. No lock is held. */
bool table_make_room(struct table *table, struct shard *near, int64_t now_us, int64_t *soonest_us);

/* Keys dropped so far. No lock is held. */
uint64_t table_evictions(struct table *table);

#endif
