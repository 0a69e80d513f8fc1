/* reach.c - what memory alone costs a decision: finding a key's state, and changing it.
 *
 * There is no clock, no rule, no comparison of keys and no arithmetic. An index holds the place of each entry: 8 bytes
 * a key at a load of 0.8, about the size of the limiter's own. The entry is as large as the limiter's; one
 * compare-and-swap changes it. Each operation depends on the one before. A decision has some hundred instructions, so a
 * processor does not look ahead to the next one; without the dependency it would run many of these at once.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "local/sections.h"
#include "measure/pages.h"

#define ENTRY_BYTES 96 /* as large as a limiter's entry for a key of 16 bytes */

struct entry {
    _Alignas(32) char before[56];
    _Atomic uint64_t state;
    char after[ENTRY_BYTES - 64];
};

struct cell_of_index {
    uint32_t fingerprint, place; /* a place is an entry's number + 1; 0: empty */
};

struct reach {
    struct cell_of_index *index;
    struct entry *entries;
    uint64_t keys, cells;
};

/* `last` is always 0, but the processor has to wait for it. */
static uint64_t reach_hash(const struct bench_key *key, uint64_t last)
{
    uint64_t words[2];
    memcpy(words, key, sizeof words);
    words[0] += last;
    words[0] = (words[0] ^ words[0] >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    words[1] = (words[0] ^ words[1] ^ words[0] >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return words[1] ^ words[1] >> 32;
}

/* Spread the upper half of a hash over 0 to `range` - 1. */
static uint64_t spread(uint64_t hash, uint64_t range)
{
    return (hash >> 32) * range >> 32;
}

static uint64_t index_find(const struct reach *reach, uint64_t hash)
{
    uint64_t at = spread(hash, reach->cells);
    while (reach->index[at].place != 0 && reach->index[at].fingerprint != (uint32_t)hash)
        at = at + 1 < reach->cells ? at + 1 : 0;
    return at;
}

struct reach *reach_open(uint64_t keys)
{
    struct reach *reach = bench_allocate(1, sizeof *reach);
    *reach = (struct reach){ .keys = keys, .cells = keys * 5 / 4 + 1 };
    reach->index = pages_map(reach->cells * sizeof *reach->index);
    reach->entries = pages_map(keys * sizeof *reach->entries);
    memset(reach->entries, 1, keys * sizeof *reach->entries);
    for (uint64_t i = 0; i < keys; i++) {
        struct bench_key key;
        key_write(i, &key);
        const uint64_t hash = reach_hash(&key, 0), at = index_find(reach, hash);
        reach->index[at] = (struct cell_of_index){ .fingerprint = (uint32_t)hash, .place = (uint32_t)i + 1 };
    }
    return reach;
}

void reach_close(struct reach *reach)
{
    pages_unmap(reach->index, reach->cells * sizeof *reach->index);
    pages_unmap(reach->entries, reach->keys * sizeof *reach->entries);
    free(reach);
}

/* Change the entry; return 0, once that is done: states stay far below 2^63. */
static uint64_t entry_change(struct entry *entry)
{
    uint64_t seen = atomic_load_explicit(&entry->state, memory_order_acquire);
    while (!atomic_compare_exchange_weak_explicit(&entry->state, &seen, seen + 1, memory_order_acq_rel,
                                                  memory_order_acquire))
        continue;
    return seen >> 63;
}

uint64_t reach_work(void *subject, const struct bench_key *draws, size_t n)
{
    const struct reach *reach = subject;
    uint64_t last = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = index_find(reach, reach_hash(&draws[i], last));
        last = entry_change(&reach->entries[reach->index[at].place - 1]);
    }
    return n;
}
