/* groups.h - what a group of cells is, and where the groups of all shards lie.
 *
 * A group has three cells in two neighbouring cache lines, which a processor fetches together, and a head:
 *
 *     head 8 | cell 40 | cell 40 | cell 40
 *     cell:  word | 4 words, as in struct record
 *
 * The head has 16 bits of each cell's hash, its tag. Tag 0 marks a free cell.
 *
 * A record that fits lies in a cell: a word, a state and a key of together 40 bytes.
 *
 * A record with a longer state, but a key of up to 16 bytes, is divided: the cell has the word and the key, and the
 * state lies behind the entry. In the two words between them is a summary of a sliding window's state, which decides
 * most requests.
 *
 * A record with a longer key lies behind its entry. Its cell then holds the place (slab.h) of the entry, under rule 0.
 * So does a cell without a key, with place 0. A place is only a hint: a thread checks whose record it leads to.
 *
 * Groups stay where they are: the address range for as many as there may ever be is reserved at the start. Groups that
 * come into use together are neighbours, because the first use of a page of memory takes long. A shard's first 31
 * groups are in levels of 1, 2, 4, 8 and 16, the others in chunks of 32, which is 4 KiB. With three shards a, b and c:
 *
 *     level 0   a1 b1 c1
 *     level 1   a2 a3 b2 b3 c2 c3
 *     level 2   a4 a5 a6 a7 b4 b5 b6 b7 c4 c5 c6 c7
 *
 * Once half of the groups in 2 MiB are in use, these may become a huge page (shared/huge.h).
 *
 * The owners of a group's cells, which are the places of their entries, lie in a mapping of the same order. Only
 * threads with the shard's mutex and returns of permits read them.
 */
#ifndef BACKENDS_MEMORY_GROUPS_H
#define BACKENDS_MEMORY_GROUPS_H

#include "backends/memory/entry.h"
#include "backends/memory/linear.h"

#include <stdalign.h>

#define CELLS_SLOTS 3   /* cells of a group */
#define CELL_WORDS 4    /* of a record behind its word */
#define CELLS_FIRST 1u  /* groups that a shard begins with */
#define CELLS_CHUNK 32u /* groups in a chunk; a power of two */

/* (s) written under the shard's mutex, (a) read atomically, (w) as in struct record */
struct cell_group {
    alignas(128) _Atomic uint64_t head;                    /* (s) (a) tag i in bits 16 i; above them CELLS_MARKED */
    _Atomic int64_t words[CELLS_SLOTS * (1 + CELL_WORDS)]; /* (w) */
};

#define CELLS_MARKED (UINT64_C(1) << 48) /* records of keys whose first group this is may be without a cell */

#define CELLS_SECOND_LINE 7 /* the first word in it */
_Static_assert(sizeof(struct cell_group) == 128, "two cache lines");
_Static_assert(offsetof(struct cell_group, words[CELLS_SECOND_LINE]) == 64, "there it begins");

struct cell_owners {
    _Atomic uint32_t places[CELLS_SLOTS]; /* (s) (a) 0: the cell is free */
};

/* (c) constant, (s) written under the shard's mutex, (a) read atomically */
struct cells {
    struct cell_group *groups;  /* (s) (a) */
    struct cell_owners *owners; /* (s) (a) */
    _Atomic uint32_t *counts;   /* (s) (a) groups of each shard */
    _Atomic uint32_t *in_pages; /* (a) groups in use in each 2 MiB; relaxed: counts that order nothing */
    size_t pages;               /* (c) whole ones */
    size_t shards;              /* (c) */
    uint32_t most_groups;       /* (c) of a shard; fills whole chunks */
    struct budget *budget;      /* (c) */
    const struct slab *slab;    /* (c) of the entries */
};

/* Return where a shard's group is in the mapping. Groups are numbered from 0; the drawing above counts from 1. The
 * level or chunk that begins with number n of each shard lies behind n * shards groups. */
static inline size_t cells_index(const struct cells *cells, size_t shard, uint32_t number)
{
    const size_t nth = (size_t)number + 1;
    if (nth < CELLS_CHUNK) {
        const unsigned level = 63 ^ (unsigned)__builtin_clzll(nth); /* the highest bit: one instruction */
        return ((cells->shards - 1 + shard) << level) + nth - cells->shards;
    }
    const size_t from = nth / CELLS_CHUNK * CELLS_CHUNK;
    return (from - 1) * cells->shards + shard * CELLS_CHUNK + (nth - from);
}

/* Return a shard's number of groups. */
static inline uint32_t cells_groups(const struct cells *cells, size_t shard)
{
    return atomic_load_explicit(&cells->counts[shard], memory_order_acquire);
}

/* Return the number of a key's first group, or of the second one, in a shard with `count`. */
static inline uint32_t cells_number(uint64_t hash, bool is_second, uint32_t count)
{
    const uint64_t low = (uint32_t)hash;
    const uint32_t half = is_second ? (uint32_t)(low * UINT64_C(0x9e3779b97f4a7c15) >> 32) : (uint32_t)low;
    return linear_number(half, count);
}

/* Return a group of a key. It is valid until its shard's number of groups changes. */
static inline struct cell_group *cells_group(const struct cells *cells, size_t shard, uint64_t hash, bool is_second)
{
    return &cells->groups[cells_index(cells, shard, cells_number(hash, is_second, cells_groups(cells, shard)))];
}

static inline struct record *cells_record(const struct cell_group *group, unsigned slot)
{
    return (struct record *)(uintptr_t)&group->words[slot * (1 + CELL_WORDS)];
}

/* True if entries of keys of this first group may be without a cell. */
static inline bool cells_are_marked(const struct cell_group *group)
{
    return (atomic_load_explicit(&group->head, memory_order_relaxed) & CELLS_MARKED) != 0;
}

#endif
