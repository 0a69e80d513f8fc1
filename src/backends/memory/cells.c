/* cells.c - fills cells, and moves records between them to make room.
 *
 * All of it happens under the shard's mutex. A record that moves is claimed, so that no look changes it while it is
 * copied. A look that finds neither the old cell nor the new one takes the mutex. */
#include "backends/memory/cells.h"

#include "backends/memory/cell.h"
#include "core/ground/arith.h"

#include <stdlib.h>

_Atomic uint64_t cells_lost;

/* ---- All of them ---- */

static size_t cells_most(const struct cells *cells)
{
    return cells->most_groups * cells->shards;
}

int cells_init(struct cells *cells, size_t shards, int64_t keys, struct budget *budget, const struct slab *slab)
{
    *cells = (struct cells){ .shards = shards, .budget = budget, .slab = slab };
    const uint64_t enough = 2 + (uint64_t)keys * 3 / 5; /* hashes spread keys a little unevenly */
    cells->most_groups = (uint32_t)((enough / CELLS_CHUNK + 1) * CELLS_CHUNK - 1);
    cells->pages = cells_most(cells) / GROUPS_PER_PAGE;
    cells->counts = calloc(shards, sizeof *cells->counts);
    cells->in_pages = calloc(cells->pages + 1, sizeof *cells->in_pages); /* never of 0 bytes */
    cells->groups = huge_map(cells_most(cells) * sizeof *cells->groups);
    cells->owners = huge_map(cells_most(cells) * sizeof *cells->owners);
    if (!cells->counts || !cells->in_pages || !cells->groups || !cells->owners)
        return -1;
    for (size_t i = 0; i < shards; i++)
        atomic_init(&cells->counts[i], CELLS_FIRST);
    const size_t bytes = shards * sizeof *cells->counts + cells->pages * sizeof *cells->in_pages;
    budget_overdraw(budget, (int64_t)shards * GROUP_BYTES + (int64_t)bytes);
    return 0;
}

void cells_free(struct cells *cells)
{
    atomic_fetch_add(&cells_lost, 1);
    if (cells->groups)
        huge_unmap(cells->groups, cells_most(cells) * sizeof *cells->groups);
    if (cells->owners)
        huge_unmap(cells->owners, cells_most(cells) * sizeof *cells->owners);
    free((void *)cells->counts);
    free((void *)cells->in_pages);
}

/* ---- Room ---- */

void cell_move(const struct cells *cells, struct cell from, struct cell to)
{
    const uint32_t place = cell_place(from);
    struct entry *entry = cell_entry(cells, from);
    if (entry_has_own(entry)) {
        cell_write_place(to, place);
        cell_own(to, cell_tag(from), place);
        cell_empty(from);
        return;
    }
    const bool is_held = (entry->hh.keylen & ENTRY_HELD) != 0;
    if (!is_held)
        record_hold(cell_record(from));
    cell_write(to, cell_record(from));
    entry->record = cell_record(to);
    cell_own(to, cell_tag(from), place);
    cell_empty(from);
    if (!is_held)
        cell_let_go(to);
}

uint32_t cell_other_group(const struct entry *entry, uint32_t number, uint32_t count)
{
    const uint32_t first = cells_number(entry->hh.hashv, false, count);
    return first == number ? cells_number(entry->hh.hashv, true, count) : first;
}

void group_fetch_entries(const struct cells *cells, size_t shard, uint32_t number)
{
    for (unsigned slot = 0; slot < CELLS_SLOTS; slot++) {
        const struct cell cell = cell_at(cells, cells_index(cells, shard, number), slot);
        if (cell_place(cell) != 0)
            __builtin_prefetch(cell_entry(cells, cell), 1);
    }
}

/* Fetch the groups to which the records of a full group may move. */
static void group_fetch_others(const struct cells *cells, size_t shard, uint32_t number)
{
    const uint32_t count = cells_groups(cells, shard);
    for (unsigned slot = 0; slot < CELLS_SLOTS; slot++) {
        const struct cell cell = cell_at(cells, cells_index(cells, shard, number), slot);
        const uint32_t other = cell_other_group(cell_entry(cells, cell), number, count);
        __builtin_prefetch(&cells->groups[cells_index(cells, shard, other)], 1);
    }
}

/* Find a free cell in a group, or make one free by up to `moves` moves; without `makes`, only find that it can be. The
 * slot; or CELLS_SLOTS: there is none. A move may not lead back to the group `from`: then up to CELLS_MOVES moves never
 * move a record twice. */
static unsigned group_room(const struct cells *cells, size_t shard, uint32_t from, uint32_t number, int moves,
                           bool makes)
{
    const uint32_t count = cells_groups(cells, shard);
    const size_t index = cells_index(cells, shard, number);
    for (unsigned slot = 0; slot < CELLS_SLOTS; slot++)
        if (cell_tag(cell_at(cells, index, slot)) == 0)
            return slot;
    for (unsigned slot = 0; moves > 0 && slot < CELLS_SLOTS; slot++) {
        const struct cell cell = cell_at(cells, index, slot);
        const struct entry *entry = cell_entry(cells, cell);
        const uint32_t other = cell_other_group(entry, number, count);
        if (other == number || other == from || (entry->hh.keylen & ENTRY_HELD) != 0)
            continue;
        const unsigned room = group_room(cells, shard, number, other, moves - 1, makes);
        if (room == CELLS_SLOTS)
            continue;
        if (makes)
            cell_move(cells, cell, cell_at(cells, cells_index(cells, shard, other), room));
        return slot;
    }
    return CELLS_SLOTS;
}

struct record *cells_room(struct cells *cells, size_t shard, uint64_t hash, int most_moves, bool makes)
{
    const uint32_t count = cells_groups(cells, shard);
    const uint32_t numbers[] = { cells_number(hash, false, count), cells_number(hash, true, count) };
    for (int moves = 0; moves <= most_moves; moves++) {
        for (int second = 0; moves == 1 && second < 2; second++)
            group_fetch_entries(cells, shard, numbers[second]);
        for (int second = 0; moves == 1 && second < 2; second++)
            group_fetch_others(cells, shard, numbers[second]);
        for (int second = 0; second < 2; second++) {
            const uint32_t number = numbers[second];
            const unsigned slot = group_room(cells, shard, number, number, moves, makes);
            if (slot != CELLS_SLOTS)
                return cell_record(cell_at(cells, cells_index(cells, shard, number), slot));
        }
    }
    return NULL;
}

/* ---- Keys ---- */

void cells_fill(struct cells *cells, struct record *record, uint64_t hash, uint32_t place, const struct rule *rule,
                struct weir_key key)
{
    record_release(record, word_of(record_held_word(record), rule->number, key.len) | WORD_BUSY);
    record_write_key(record, cells_fit(rule->words, key.len) ? rule->words : SUMMARY_WORDS, key);
    cell_own(cell_of(cells, record), cells_tag(hash), place);
}

void cells_note(struct cells *cells, size_t shard, uint64_t hash, uint32_t place, int most_moves)
{
    struct record *record = place != 0 ? cells_room(cells, shard, hash, most_moves, true) : NULL;
    if (!record) {
        group_mark(cells_group(cells, shard, hash, false));
        return;
    }
    const struct cell cell = cell_of(cells, record);
    cell_write_place(cell, place);
    cell_own(cell, cells_tag(hash), place);
}

void cells_move(struct cells *cells, size_t shard, uint64_t hash, uint32_t from, uint32_t to)
{
    const uint32_t count = cells_groups(cells, shard);
    for (int i = 0; i < 2 * CELLS_SLOTS && from != 0; i++) {
        const uint32_t number = cells_number(hash, i >= CELLS_SLOTS, count);
        const struct cell cell = cell_at(cells, cells_index(cells, shard, number), (unsigned)i % CELLS_SLOTS);
        if (cell_place(cell) != from)
            continue;
        cell_write_place(cell, to);
        cell_own(cell, to != 0 ? cell_tag(cell) : 0, to);
        return;
    }
}

void cells_empty(struct cells *cells, struct record *record)
{
    cell_empty(cell_of(cells, record));
}
