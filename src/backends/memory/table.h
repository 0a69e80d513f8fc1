/* table.h - the keys of the memory backend: uthash tables in shards, each guarded by a mutex.
 *
 * A key's record is its word, its state, perhaps a former state, and the key itself. It lies in a cell if it fits
 * (memory/cells.h), or else behind the key's entry. An entry is 56 bytes, from a slab. With its owner there, 3 bytes of
 * bucket and 62 of cells that makes 123 bytes for a key of 16 bytes. The upper bits of a key's hash choose
 * the shard, the lower 32 the bucket.
 *
 * The mutex guards which entries exist. An entry's content is guarded by its word (memory/entry.h), because
 * threads without the mutex read and change it as well (memory/look.h). A thread with the mutex claims an entry
 * first.
 *
 * A shard grows in small steps: a few groups of cells at a time, and a few buckets (memory/buckets.h). It holds about
 * TABLE_KEYS_PER_SHARD keys at max_keys.
 *
 * Idle keys are dropped in small steps: each insertion tries a few entries of the shard that are due (memory/due.h).
 * `soonest_us` is a tournament over the shards: the time before which no entry of any shard becomes idle is at its top,
 * so a full table of live keys turns new ones away without looking at any. Each fruitless look at an entry is paid for
 * by a decision that has moved its time, or by the insertion.
 *
 * Locks, outer first; try_all holds several shards, taken in the order of their index:
 *
 *     slab->packing
 *     shard->mutex
 *         slab->mutex
 *         rules->mutex
 *         table->soonest_mutex
 */
#ifndef BACKENDS_MEMORY_TABLE_H
#define BACKENDS_MEMORY_TABLE_H

#include "backends/memory/buckets.h"
#include "backends/memory/cells.h"
#include "backends/memory/due.h"
#include "core/algorithm/former.h"

#define TABLE_KEYS_PER_SHARD 2048
#define TABLE_MIN_SHARDS 16
#define TABLE_MAX_SHARDS 32768
#define TABLE_SHARED_SHARE 64 /* 1 / this of max_bytes is for states that keys without room share */
_Static_assert(TABLE_MAX_SHARDS <= SLAB_MAX_OWNER, "every shard can own entries");

/* (c) constant, (s) shard->mutex, (a) atomic */
struct shard {
    alignas(128) struct lock mutex;
    struct buckets buckets; /* (s) */
    struct rule *recent;    /* (s) the rule of the latest new entry; held */
    uint64_t evictions;     /* (s) */
    uint64_t tried;         /* (s) entries that sweeps have looked at; tests bound it */
    unsigned turns;         /* (s) decisions, to pace the sweeping */
    unsigned number;        /* (c) */
    struct entry *first;    /* (c) a sentinel without a key, which leads to uthash's table */
    struct due due;         /* (s) */
};

struct table {
    struct shard *shards; /* (c) shard_count of them, then the overflow shard, whose keys are not counted */
    size_t shard_count;   /* (c) a power of two */
    unsigned shard_shift; /* (c) hash >> shard_shift is the shard's number */
    struct entry *sentinels;
    /* (a) Written under soonest_mutex. Element i below shard_count is the lesser of 2 i and 2 i + 1, so 1 is the least
     * of all; from shard_count on, the shards' own, written under their mutexes, too. The last one is the overflow
     * shard's and is left out. */
    _Atomic int64_t *soonest_us;
    struct lock soonest_mutex;
    int64_t max_keys;                 /* (c) */
    struct cells cells;               /* of all shards except the overflow shard */
    alignas(64) _Atomic int64_t keys; /* (a) changes often; no look reads its cache line */
    struct budget budget;
    struct budget shared;
    alignas(64) struct slab slab;
    alignas(64) struct rules rules;
    struct readers readers;
};

enum table_error { TABLE_OK = 0, TABLE_NO_MEMORY, TABLE_NO_ROOM };

/* table_life.c: make an empty table. 0, or -1: out of memory. */
int table_init(struct table *table, int64_t max_keys, int64_t max_bytes);
void table_free(struct table *table);

/* shard.c: make an empty shard; 0, or -1: out of memory. Free one with all its keys. */
int shard_init(struct table *table, unsigned number);
void shard_free(struct table *table, struct shard *shard);

static inline struct shard *table_shard(const struct table *table, uint64_t hash)
{
    return &table->shards[hash >> table->shard_shift];
}

static inline struct shard *table_overflow_shard(const struct table *table)
{
    return &table->shards[table->shard_count];
}

/* True if the shard has cells. */
static inline bool shard_has_cells(const struct table *table, const struct shard *shard)
{
    return shard->number != table->shard_count;
}

static inline UT_hash_bucket *shard_bucket(const struct shard *shard, unsigned hash) REQUIRES(shard->mutex)
{
    return buckets_of(&shard->buckets, hash);
}

static inline struct rule *entry_rule(const struct table *table, const struct entry *entry)
{
    return rule_at(&table->rules, word_rule(entry_word(entry)));
}

/* Find and claim the entry of the request's key; NULL: there is none. The claim ends with shard_remove() or
 * entry_let_go(). An entry with its own record and without a cell gets one if there is one. */
struct entry *shard_find(struct table *table, const struct shard *shard, const struct weir_backend_request *request)
    REQUIRES(shard->mutex);

/* Claim an entry that the caller has not claimed. Waits for a thread that is changing it without the mutex. */
static inline void entry_hold(const struct table *table, struct entry *entry)
{
    record_hold(entry->record);
    entry->hh.keylen |= ENTRY_HELD;
    if (entry_is_apart(entry))
        entry_open(entry_rule(table, entry), entry);
}

static inline void entry_let_go(const struct table *table, struct entry *entry)
{
    if (entry_is_apart(entry))
        entry_close(entry_rule(table, entry), entry);
    entry->hh.keylen &= ~ENTRY_HELD;
    record_release(entry->record, word_next(record_held_word(entry->record)));
}

/* Add and claim an entry for a key that has none, under a plan that the limit has at `version`. The caller writes
 * its state. TABLE_NO_ROOM: max_keys or max_bytes is reached. */
enum table_error shard_add(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                           const struct weir_plan *plan, uint64_t version, struct entry **out) REQUIRES(shard->mutex);

/* True if an entry of the request's key would find room by its bytes alone; or by all that shard_add() needs. */
bool shard_has_bytes(struct table *table, const struct shard *shard, const struct weir_backend_request *request,
                     size_t words) REQUIRES(shard->mutex);
bool shard_has_room(struct table *table, const struct shard *shard, const struct weir_backend_request *request,
                    const struct weir_plan *plan) REQUIRES(shard->mutex);

/* Remove a claimed entry. */
void shard_remove(struct table *table, struct shard *shard, struct entry *entry) REQUIRES(shard->mutex);

/* Replacing an entry takes the parts of shard_add() and shard_remove(). This one finds the rule of rule_get(), with one
 * more holder for an entry. */
enum table_error shard_rule(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                            const struct weir_plan *plan, uint64_t version, const struct weir_plan *former,
                            size_t spare_words, struct rule **out) REQUIRES(shard->mutex);

/* Make an entry under a rule, whose hold it takes over, put it into the table, and claim it. */
enum table_error entry_make(struct table *table, struct shard *shard, struct rule *rule,
                            const struct weir_backend_request *request, struct entry **out) REQUIRES(shard->mutex);

/* Take a claimed entry out of the table, and give back its memory and its rule. */
void entry_drop(struct table *table, struct shard *shard, struct entry *entry) REQUIRES(shard->mutex);

/* Return the bytes of an entry's memory. */
size_t entry_size(const struct table *table, const struct entry *entry);

/* Return the time at which both states of a claimed entry become fresh if they are not used again. */
int64_t entry_fresh_at_us(const struct table *table, const struct entry *entry);

/* Return a time before which no entry of the shard becomes fresh. */
static inline int64_t shard_soonest_us(const struct table *table, const struct shard *shard)
{
    return atomic_load_explicit(&table->soonest_us[table->shard_count + shard->number], memory_order_relaxed);
}

/* sweep.c: file an entry that becomes fresh at `fresh_at_us`, not earlier. Only a new entry and one that may become
 * fresh earlier than before need it. */
void shard_note(struct table *table, struct shard *shard, struct entry *entry, int64_t fresh_at_us)
    REQUIRES(shard->mutex);

/* Try up to `steps` entries, and drop those that have been fresh since `at_us`. */
void shard_sweep(struct table *table, struct shard *shard, int64_t at_us, unsigned steps) REQUIRES(shard->mutex);

/* Make some room for new keys, of which there are `keys`: empty a page of the slab, or else drop a few fresh keys.
 * Without `drop`, only look whether there is such a page or key. False: none of the keys tried was fresh, and
 * *soonest_us is a time before which none is. The caller holds no lock. */
bool table_make_room(struct table *table, int64_t now_us, int64_t keys, bool drop, int64_t *soonest_us);

/* Return the bytes of all keys, tables and rules. */
static inline int64_t table_bytes(const struct table *table)
{
    return budget_used(&table->budget) + budget_used(&table->shared) + budget_used(&table->rules.own);
}

/* Return how many keys were dropped so far. The caller holds no lock. */
uint64_t table_evictions(struct table *table);

#endif
