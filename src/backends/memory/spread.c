/* spread.c - gives shards more groups of cells, or fewer.
 *
 * All records of the shard are lifted out of their cells and put into those of their new groups. Meanwhile looks find
 * nothing, and wait for the mutex. */
#include "backends/memory/cell.h"

#include "backends/shared/huge.h"
#include "core/ground/arith.h"

#include <stdlib.h>

#define WIDEN_TRIES 8

/* An entry whose cell is given up, and its record if that was in the cell. */
struct lifted {
    uint64_t hash;  /* the tag and the lower half */
    uint32_t place; /* of the entry */
    uint32_t from;  /* the cell's number in its shard */
    struct record *record;
    int64_t words[1 + CELL_WORDS]; /* the record */
};

struct lifting {
    struct cells *cells;
    size_t shard, n;
    uint32_t old; /* number of groups */
    struct lifted *all;
    bool *marked; /* by group */
};

static struct cell lifting_cell(const struct lifting *lifting, uint32_t number)
{
    return cell_at(lifting->cells, cells_index(lifting->cells, lifting->shard, number / CELLS_SLOTS),
                   number % CELLS_SLOTS);
}

/* Empty a cell, whose entry keeps its record in `lifted`. */
static void cell_lift(const struct cells *cells, struct cell cell, struct lifted *lifted)
{
    struct entry *entry = cell_entry(cells, cell);
    lifted->hash = cell_tag(cell) << 32 | entry->hh.hashv;
    lifted->place = cell_place(cell);
    lifted->record = NULL;
    if (!entry_has_own(entry)) {
        if ((entry->hh.keylen & ENTRY_HELD) == 0)
            record_hold(entry->record);
        lifted->record = (struct record *)(void *)lifted->words;
        record_copy(lifted->record, entry->record, record_held_word(entry->record));
        entry->record = lifted->record;
    }
    cell_empty(cell);
}

/* Give a lifted entry this free cell. */
static void cell_put(const struct cells *cells, struct cell cell, const struct lifted *lifted)
{
    struct entry *entry = slab_entry(cells->slab, lifted->place);
    if (lifted->record) {
        cell_write(cell, lifted->record);
        entry->record = cell_record(cell);
    } else {
        cell_write_place(cell, lifted->place);
    }
    cell_own(cell, cells_tag(lifted->hash), lifted->place);
    if (lifted->record && (entry->hh.keylen & ENTRY_HELD) == 0)
        cell_let_go(cell);
}

/* Lift all entries. */
static void lifting_lift(struct lifting *lifting)
{
    struct cells *cells = lifting->cells;
    const uint32_t all = lifting->old * CELLS_SLOTS;
    for (uint32_t i = 0; i < all; i++)
        if (cell_place(lifting_cell(lifting, i)) != 0)
            __builtin_prefetch(cell_entry(cells, lifting_cell(lifting, i)));
    for (uint32_t i = 0; i < all; i++)
        if (cell_place(lifting_cell(lifting, i)) != 0) {
            lifting->all[lifting->n].from = i;
            cell_lift(cells, lifting_cell(lifting, i), &lifting->all[lifting->n++]);
        }
    for (uint32_t i = 0; i < lifting->old; i++) {
        struct cell_group *group = lifting_cell(lifting, i * CELLS_SLOTS).group;
        lifting->marked[i] = cells_are_marked(group);
        atomic_store_explicit(&group->head, 0, memory_order_release);
    }
}

/* Mark the groups of the keys without cells. Those whose first group was i have groups from i * count / old to
 * (i + 1) * count / old as their first one with `count` groups. */
static void lifting_mark(const struct lifting *lifting, uint32_t count)
{
    const uint32_t old = lifting->old;
    for (uint32_t i = 0; i < old; i++) {
        const uint32_t end = (uint32_t)(((uint64_t)(i + 1) * count + old - 1) / old);
        for (uint32_t to = (uint32_t)((uint64_t)i * count / old); lifting->marked[i] && to < end; to++)
            group_mark(lifting_cell(lifting, to * CELLS_SLOTS).group);
    }
}

/* Put lifted entries into cells by their hashes. False: all records before *n have found one, and the next has not. */
static bool lifting_put(const struct lifting *lifting, size_t *n)
{
    struct cells *cells = lifting->cells;
    for (*n = 0; *n < lifting->n; ++*n) {
        const struct lifted *lifted = &lifting->all[*n];
        struct record *record = cells_room(cells, lifting->shard, lifted->hash, CELLS_MOVES, true);
        if (!record && lifted->record)
            return false;
        if (record)
            cell_put(cells, cell_of(cells, record), lifted);
        else
            group_mark(cells_group(cells, lifting->shard, lifted->hash, false));
    }
    return true;
}

/* Put all entries back where they were; the first `n` have other cells, in `count` groups. */
static void lifting_undo(struct lifting *lifting, size_t n, uint32_t count)
{
    struct cells *cells = lifting->cells;
    for (size_t i = 0; i < n; i++) {
        struct lifted *lifted = &lifting->all[i];
        struct entry *entry = slab_entry(cells->slab, lifted->place);
        if (lifted->record)
            cell_lift(cells, cell_of(cells, entry->record), lifted);
        else
            cells_move(cells, lifting->shard, lifted->hash, lifted->place, 0);
    }
    for (uint32_t i = 0; i < count; i++)
        atomic_store_explicit(&lifting_cell(lifting, i * CELLS_SLOTS).group->head, 0, memory_order_release);
    atomic_store_explicit(&cells->counts[lifting->shard], lifting->old, memory_order_release);
    lifting_mark(lifting, lifting->old);
    for (size_t i = 0; i < lifting->n; i++)
        cell_put(cells, lifting_cell(lifting, lifting->all[i].from), &lifting->all[i]);
}

/* Give a shard `count` groups. False: nothing has changed, because there is no memory, or because a record would find
 * no cell. */
static bool cells_spread(struct cells *cells, size_t shard, uint32_t count)
{
    struct lifting lifting = { .cells = cells, .shard = shard, .old = cells_groups(cells, shard) };
    lifting.all = malloc((size_t)lifting.old * (CELLS_SLOTS * sizeof *lifting.all + sizeof *lifting.marked));
    if (!lifting.all)
        return false;
    lifting.marked = (bool *)&lifting.all[lifting.old * CELLS_SLOTS];
    lifting_lift(&lifting);
    atomic_store_explicit(&cells->counts[shard], count, memory_order_release);
    lifting_mark(&lifting, count);
    size_t placed = 0;
    const bool is_done = lifting_put(&lifting, &placed);
    if (!is_done)
        lifting_undo(&lifting, placed, count);
    free(lifting.all);
    return is_done;
}

/* Records of few groups may find no cells in a quarter more, but do so in more than that. */
void cells_widen(struct cells *cells, size_t shard)
{
    const uint32_t old = cells_groups(cells, shard);
    uint32_t count = old;
    for (int tries = 0; tries < WIDEN_TRIES && count < cells->most_groups; tries++) {
        count = (uint32_t)min_of((int64_t)count + count / 4 + 1, cells->most_groups);
        const int64_t bytes = (int64_t)(count - old) * GROUP_BYTES;
        if (!budget_take(cells->budget, bytes))
            return;
        if (cells_spread(cells, shard, count)) {
            cells_use(cells, shard, old, count, 1);
            return;
        }
        budget_give(cells->budget, bytes);
    }
}

void cells_narrow(struct cells *cells, size_t shard, uint64_t keys, struct readers *readers)
{
    const uint32_t old = cells_groups(cells, shard), count = (uint32_t)CELLS_ROOMY(keys);
    if (!cells_spread(cells, shard, count))
        return;
    readers_wait(readers); /* a word that begins to count anew must not be mistaken for one that was read before */
    cells_use(cells, shard, count, old, -1);
    for (uint32_t from = count, end; from < old; from = end) {
        end = (uint32_t)min_of(old, (INT64_C(2) << (63 ^ __builtin_clzll((uint64_t)from + 1))) - 1); /* of its level */
        const size_t index = cells_index(cells, shard, from);
        huge_drop(&cells->groups[index], (end - from) * sizeof *cells->groups);
        huge_drop(&cells->owners[index], (end - from) * sizeof *cells->owners);
    }
    budget_give(cells->budget, (int64_t)(old - count) * GROUP_BYTES);
}
