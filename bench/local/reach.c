/* reach.c - what memory alone costs a decision: finding a key's state, and changing it.
 *
 * There is no clock, no rule, no comparison of keys and no arithmetic. Groups of three cells are as large as the
 * limiter's, and 4/5 of the cells are in use. The hash chooses the cell, and one compare-and-swap changes it. Each
 * operation depends on the one before. A decision has some hundred instructions, so a processor does not look ahead to
 * the next one; without the dependency it would run many of these in parallel.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "local/sections.h"
#include "measure/pages.h"

#define CELLS 3 /* of a group */

struct group {
    _Alignas(128) uint64_t head;
    struct {
        _Atomic uint64_t state;
        uint64_t others[4];
    } cells[CELLS];
};

struct reach {
    struct group *groups;
    uint64_t count;
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

struct reach *reach_open(uint64_t keys)
{
    struct reach *reach = bench_allocate(1, sizeof *reach);
    *reach = (struct reach){ .count = keys * 5 / (4 * CELLS) + 1 };
    reach->groups = pages_map(reach->count * sizeof *reach->groups);
    memset((void *)reach->groups, 1, reach->count * sizeof *reach->groups);
    return reach;
}

void reach_close(struct reach *reach)
{
    pages_unmap(reach->groups, reach->count * sizeof *reach->groups);
    free(reach);
}

/* Change the state of a cell; return 0, once that is done: states stay far below 2^63. */
static uint64_t state_change(_Atomic uint64_t *state)
{
    uint64_t seen = atomic_load_explicit(state, memory_order_acquire);
    while (!atomic_compare_exchange_weak_explicit(state, &seen, seen + 1, memory_order_acq_rel, memory_order_acquire))
        continue;
    return seen >> 63;
}

uint64_t reach_work(void *subject, const struct bench_key *draws, size_t n)
{
    const struct reach *reach = subject;
    uint64_t last = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t hash = reach_hash(&draws[i], last);
        last = state_change(&reach->groups[spread(hash, reach->count)].cells[(uint32_t)hash % CELLS].state);
    }
    return n;
}
