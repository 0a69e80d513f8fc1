/* buckets.h - the buckets of a shard: an array of uthash's, which come into use one by one.
 *
 * uthash itself doubles its buckets and moves all entries in one go. Among millions of keys, the cache misses of a
 * thousand entries would hold up one decision for a quarter of a millisecond. A new bucket takes entries from one
 * existing bucket only (linear.h). The number of keys alone decides when, so no sequence of keys can prevent it.
 * (uthash's rule looks at chain lengths and stops growing for good after two attempts that helped little.) Without
 * memory for more, chains get longer until there is some.
 *
 * Cells lead to nearly all entries, so chains are seldom walked, and a bucket may hold several keys.
 */
#ifndef BACKENDS_MEMORY_BUCKETS_H
#define BACKENDS_MEMORY_BUCKETS_H

#include "backends/memory/linear.h"
#include "backends/shared/budget.h"
#include "core/ground/uthash_config.h"

#include <stdbool.h>

#define BUCKETS_KEYS 6u   /* of a bucket on average, when a shard gets more */
#define BUCKETS_FIRST 8u  /* buckets that a shard begins with */
#define BUCKETS_SHARE 32u /* it gets a 32nd more buckets at a time, up to BUCKETS_MOST */
#define BUCKETS_MOST 8u

/* All of it is guarded by the shard's mutex. */
struct buckets {
    UT_hash_bucket *heads; /* uthash's array, which is the same here and there */
    uint32_t count;        /* in use */
    uint32_t room;         /* in the array; those that are not in use are empty */
};

static inline UT_hash_bucket *buckets_of(const struct buckets *buckets, unsigned hash)
{
    return &buckets->heads[linear_number(hash, buckets->count)];
}

/* Put an entry into its bucket. (HASH_ADD_TO_BKT of uthash might double the table.) */
static inline void buckets_put(const struct buckets *buckets, UT_hash_handle *handle)
{
    UT_hash_bucket *bucket = buckets_of(buckets, handle->hashv);
    handle->hh_prev = NULL;
    handle->hh_next = bucket->hh_head;
    if (bucket->hh_head)
        bucket->hh_head->hh_prev = handle;
    bucket->hh_head = handle;
    bucket->count++;
}

/* True if a shard with `items` items should get more buckets. */
static inline bool buckets_are_full(const struct buckets *buckets, unsigned items)
{
    return items > (uint64_t)buckets->count * BUCKETS_KEYS;
}

/* Take over the buckets of a new table, and overdraw the budget for them. */
void buckets_init(struct buckets *buckets, const UT_hash_table *table, struct budget *budget);

/* Give a shard one more bucket, or a few if it is large. Without memory or budget it stays as it is. */
void buckets_widen(struct buckets *buckets, UT_hash_table *table, struct budget *budget);

#endif
