/* cell.h - what cells.c and spread.c do to one cell, under the mutex of its shard. */
#ifndef BACKENDS_MEMORY_CELL_H
#define BACKENDS_MEMORY_CELL_H

#include "backends/memory/groups.h"
#include "backends/shared/huge.h"

#define GROUP_BYTES ((int64_t)(sizeof(struct cell_group) + sizeof(struct cell_owners))) /* for the budget */
#define GROUPS_PER_PAGE (HUGE_BYTES / sizeof(struct cell_group))

struct cell {
    struct cell_group *group;
    struct cell_owners *owners;
    unsigned slot;
};

static inline struct cell cell_at(const struct cells *cells, size_t index, unsigned slot)
{
    return (struct cell){ &cells->groups[index], &cells->owners[index], slot };
}

static inline struct cell cell_of(const struct cells *cells, const struct record *record)
{
    const size_t offset = (uintptr_t)record - (uintptr_t)cells->groups;
    const size_t slot = offset % sizeof(struct cell_group) / ((1 + CELL_WORDS) * sizeof(int64_t));
    return cell_at(cells, offset / sizeof(struct cell_group), (unsigned)slot);
}

static inline struct record *cell_record(struct cell cell)
{
    return cells_record(cell.group, cell.slot);
}

static inline uint32_t cell_place(struct cell cell)
{
    return atomic_load_explicit(&cell.owners->places[cell.slot], memory_order_relaxed);
}

static inline uint64_t cell_tag(struct cell cell)
{
    return atomic_load_explicit(&cell.group->head, memory_order_relaxed) >> 16 * cell.slot & 0xffff;
}

/* Write whose cell it is, after its content. Release, so that a look that follows the tag sees a word of this record,
 * and one that finds the owner sees its entry. */
static inline void cell_own(struct cell cell, uint64_t tag, uint32_t place)
{
    const uint64_t head = atomic_load_explicit(&cell.group->head, memory_order_relaxed);
    const uint64_t others = head & ~(UINT64_C(0xffff) << 16 * cell.slot);
    atomic_store_explicit(&cell.owners->places[cell.slot], place, memory_order_release);
    atomic_store_explicit(&cell.group->head, others | tag << 16 * cell.slot, memory_order_release);
}

/* Write a place in place of a record. It is claimed, or no look can claim it. */
static inline void cell_write_place(struct cell cell, uint32_t place)
{
    struct record *record = cell_record(cell);
    const uint64_t word = word_of(record_held_word(record), 0, 0);
    record_release(record, word | WORD_BUSY);
    record_write(record, 0, &(int64_t){ place }, 1);
    record_release(record, word_next(word));
}

/* Copy a claimed record under this word. */
static inline void record_copy(struct record *to, const struct record *from, uint64_t word)
{
    record_release(to, word);
    for (size_t i = 0; i < CELL_WORDS; i++)
        record_write(to, i, &(int64_t){ (int64_t)record_at(from, i) }, 1);
}

/* Write a claimed record into a free cell, claimed. */
static inline void cell_write(struct cell cell, const struct record *from)
{
    const uint64_t word = record_held_word(from);
    record_copy(cell_record(cell), from,
                word_of(record_held_word(cell_record(cell)), word_rule(word), word_len(word)) | WORD_BUSY);
}

static inline void cell_let_go(struct cell cell)
{
    record_release(cell_record(cell), word_next(record_held_word(cell_record(cell))));
}

static inline void cell_empty(struct cell cell)
{
    cell_own(cell, 0, 0);
    cell_write_place(cell, 0);
}

static inline struct entry *cell_entry(const struct cells *cells, struct cell cell)
{
    return slab_entry(cells->slab, cell_place(cell));
}

/* Note that keys of this first group may be without a cell. */
static inline void group_mark(struct cell_group *group)
{
    const uint64_t head = atomic_load_explicit(&group->head, memory_order_relaxed);
    atomic_store_explicit(&group->head, head | CELLS_MARKED, memory_order_release);
}

/* ---- cells.c ---- */

/* Fetch the entries of a group, so that their cache misses overlap. */
void group_fetch_entries(const struct cells *cells, size_t shard, uint32_t number);

/* Move what a cell holds to a free one. A record that a thread with the mutex has claimed stays claimed. */
void cell_move(const struct cells *cells, struct cell from, struct cell to);

/* Return the number of the other group of an entry that has a cell in this one. */
uint32_t cell_other_group(const struct entry *entry, uint32_t number, uint32_t count);

#endif
