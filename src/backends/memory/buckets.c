/* buckets.c - gives shards more buckets. */
#include "backends/memory/buckets.h"

#include "core/ground/arith.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_ROOM_SHARE 4u /* the array grows by a quarter, so that little of it is unused */

static int64_t buckets_bytes(uint32_t room)
{
    return (int64_t)room * (int64_t)sizeof(UT_hash_bucket);
}

static void buckets_note(const struct buckets *buckets, UT_hash_table *table)
{
    table->buckets = buckets->heads;
    table->num_buckets = buckets->count;
}

void buckets_init(struct buckets *buckets, const UT_hash_table *table, struct budget *budget)
{
    *buckets = (struct buckets){ table->buckets, table->num_buckets, table->num_buckets };
    budget_overdraw(budget, buckets_bytes(buckets->room));
}

/* Make room for `more` buckets. False: there is no memory. */
static bool buckets_make_room(struct buckets *buckets, uint32_t more, struct budget *budget)
{
    if (buckets->count + more <= buckets->room)
        return true;
    const uint32_t room = buckets->count + (uint32_t)max_of(more, buckets->count / BUCKETS_ROOM_SHARE);
    const int64_t bytes = buckets_bytes(room) - buckets_bytes(buckets->room);
    if (!budget_take(budget, bytes))
        return false;
    UT_hash_bucket *heads = realloc(buckets->heads, (size_t)buckets_bytes(room));
    if (!heads) {
        budget_give(budget, bytes);
        return false;
    }
    memset(heads + buckets->room, 0, (size_t)bytes);
    buckets->heads = heads;
    buckets->room = room;
    return true;
}

/* Fetch the entries of some buckets that will be divided. An entry is loaded before it leads to the next one, so the
 * buckets take turns: then their cache misses overlap. */
static void buckets_fetch(const struct buckets *buckets, uint32_t more)
{
    const UT_hash_handle *next[BUCKETS_MOST];
    uint32_t left = more;
    for (uint32_t i = 0; i < more; i++)
        next[i] = buckets->heads[linear_origin(buckets->count + i)].hh_head;
    while (left > 0) {
        left = 0;
        for (uint32_t i = 0; i < more; i++)
            if (next[i]) {
                __builtin_prefetch(next[i], 1);
                __builtin_prefetch(&next[i]->hashv, 1); /* it may be in the line behind */
            }
        for (uint32_t i = 0; i < more; i++)
            if (next[i]) {
                next[i] = next[i]->hh_next;
                left += next[i] != NULL;
            }
    }
}

/* Bring one more bucket into use, and move the entries that belong there. */
static void buckets_divide(struct buckets *buckets)
{
    UT_hash_bucket *from = &buckets->heads[linear_origin(buckets->count++)];
    for (UT_hash_handle *handle = from->hh_head, *next; handle; handle = next) {
        next = handle->hh_next;
        if (buckets_of(buckets, handle->hashv) != from) {
            HASH_DEL_IN_BKT(*from, handle);
            buckets_put(buckets, handle);
        }
    }
}

void buckets_widen(struct buckets *buckets, UT_hash_table *table, struct budget *budget)
{
    const uint32_t more = (uint32_t)min_of(1 + buckets->count / BUCKETS_SHARE, BUCKETS_MOST);
    if (!buckets_make_room(buckets, more, budget))
        return;
    buckets_fetch(buckets, more);
    for (uint32_t i = 0; i < more; i++)
        buckets_divide(buckets);
    buckets_note(buckets, table);
}
