/* uthash_config.h - uthash as used here: out of memory is an answer, never exit().
 *
 * HASH_ADD... on an element leaves element->hh.tbl NULL if there was no memory, and the table as it was.
 */
#ifndef CORE_GROUND_UTHASH_CONFIG_H
#define CORE_GROUND_UTHASH_CONFIG_H

#define HASH_NONFATAL_OOM 1

#include <uthash.h>

/* Put a copy of an element's handle in the place of the original in its table and bucket. The handle is the element's
 * first member. The caller changes its pointer to the table's first element, if the original was that. */
static inline void hash_moved(UT_hash_handle *copy)
{
    UT_hash_table *table = copy->tbl;
    UT_hash_handle *next = copy->next, *previous = copy->prev;
    if (copy->hh_prev)
        copy->hh_prev->hh_next = copy;
    else
        table->buckets[copy->hashv & (table->num_buckets - 1)].hh_head = copy;
    if (copy->hh_next)
        copy->hh_next->hh_prev = copy;
    if (previous)
        previous->next = copy;
    if (next)
        next->prev = copy;
    else
        table->tail = copy;
}

#endif
