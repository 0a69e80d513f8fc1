/* spread.c - gives shards more groups of cells, or fewer.
 *
 * A look that runs at the same time may find a key in neither of its groups. It then waits for the mutex. */
#include "backends/memory/cells.h"

#include "backends/memory/cell.h"
#include "core/ground/arith.h"

static struct cell cell_in(const struct cells *cells, size_t shard, uint32_t number, unsigned slot)
{
    return cell_at(cells, cells_index(cells, shard, number), slot);
}

static void cells_count(struct cells *cells, size_t shard, uint32_t count)
{
    atomic_store_explicit(&cells->counts[shard], count, memory_order_release);
}

/* Count a shard's groups from `from` to `end` as in use, or no longer; `by` is 1 or -1. Memory may be a huge page while
 * all of it is in use: the rest of a huge page would be resident beyond the budget. The group that a shard begins with is
 * counted together with the next one: until a key is in it, nothing has touched its memory, and the first touch would
 * have to wait for a whole huge page. If two shards fill and leave a page at the same moment, the kernel may get the
 * advices in the wrong order; then this page stays small, or at most 2 MiB are resident beyond the budget. */
static void cells_use(const struct cells *cells, size_t shard, uint32_t from, uint32_t end, int by)
{
    for (uint32_t i = from; i < end; i++) {
        const size_t page = cells_index(cells, shard, i) / GROUPS_PER_PAGE;
        if (page >= cells->pages)
            continue;
        const uint32_t before = atomic_fetch_add_explicit(&cells->in_pages[page], (uint32_t)by, memory_order_relaxed);
        if (by > 0 && before == GROUPS_PER_PAGE - 1)
            huge_advise(&cells->groups[page * GROUPS_PER_PAGE]);
        else if (by < 0 && before == GROUPS_PER_PAGE)
            huge_refuse(&cells->groups[page * GROUPS_PER_PAGE]);
    }
}

/* ---- More ---- */

/* Move the records that belong to the last group, of which there is one more now, from the group that is divided. Each
 * has the new group in place of that one, so they find room there. */
static void group_divide(const struct cells *cells, size_t shard, uint32_t last)
{
    const uint32_t from = linear_origin(last);
    for (unsigned slot = 0; slot < CELLS_SLOTS; slot++) {
        const struct cell cell = cell_in(cells, shard, from, slot);
        if (cell_place(cell) == 0)
            continue;
        const uint64_t hash = cell_entry(cells, cell)->hh.hashv;
        if (cells_number(hash, false, last + 1) != from && cells_number(hash, true, last + 1) != from)
            cell_move(cells, cell, cell_in(cells, shard, last, slot));
    }
}

/* Prepare the group that is about to become the last one. Its head is written in any case: of fresh memory, a read
 * would fault, and then the first write once more. */
static void group_begin(const struct cells *cells, size_t shard, uint32_t last)
{
    const bool is_marked = cells_are_marked(cell_in(cells, shard, linear_origin(last), 0).group);
    atomic_store_explicit(&cell_in(cells, shard, last, 0).group->head, is_marked ? CELLS_MARKED : 0,
                          memory_order_release);
}

static void group_fetch(const struct cells *cells, size_t shard, uint32_t number)
{
    const struct cell cell = cell_in(cells, shard, number, 0);
    __builtin_prefetch(cell.group, 1);
    __builtin_prefetch(&cell.group->words[CELLS_SECOND_LINE], 1);
    __builtin_prefetch(cell.owners, 1);
}

/* Fetch what is needed to add some groups, so that the cache misses of all of them overlap. */
static void groups_fetch(const struct cells *cells, size_t shard, uint32_t from, uint32_t end)
{
    for (uint32_t number = from; number < end; number++) {
        group_fetch(cells, shard, number);
        group_fetch(cells, shard, linear_origin(number));
    }
    for (uint32_t number = from; number < end; number++)
        group_fetch_entries(cells, shard, linear_origin(number));
}

bool cells_widen(struct cells *cells, size_t shard)
{
    const uint32_t old = cells_groups(cells, shard);
    const uint32_t more = (uint32_t)min_of(1 + old / CELLS_WIDEN_SHARE,
                                           min_of(CELLS_WIDEN_MOST, cells->most_groups - old));
    groups_fetch(cells, shard, old, old + more);
    for (uint32_t last = old; last < old + more; last++) {
        if (!budget_take(cells->budget, GROUP_BYTES))
            return last > old;
        cells_use(cells, shard, last == CELLS_FIRST ? 0 : last, last + 1, 1);
        group_begin(cells, shard, last);
        cells_count(cells, shard, last + 1);
        group_divide(cells, shard, last);
    }
    return more > 0;
}

/* ---- Fewer ---- */

static unsigned group_used(const struct cells *cells, size_t shard, uint32_t number)
{
    unsigned used = 0;
    for (unsigned slot = 0; slot < CELLS_SLOTS; slot++)
        used += cell_place(cell_in(cells, shard, number, slot)) != 0;
    return used;
}

/* Return the first free cell of a group that has one. */
static struct cell group_free_cell(const struct cells *cells, size_t shard, uint32_t number)
{
    unsigned slot = 0;
    while (cell_place(cell_in(cells, shard, number, slot)) != 0)
        slot++;
    return cell_in(cells, shard, number, slot);
}

/* Move records of a group to their other groups, as far as these have free cells, until no more than `most` are in this
 * one and in `spared` together. None moves to that. */
static void group_thin(const struct cells *cells, size_t shard, uint32_t number, uint32_t spared, unsigned most)
{
    const uint32_t count = cells_groups(cells, shard);
    for (unsigned slot = 0; slot < CELLS_SLOTS; slot++) {
        const struct cell cell = cell_in(cells, shard, number, slot);
        if (cell_place(cell) == 0)
            continue;
        const uint32_t other = cell_other_group(cell_entry(cells, cell), number, count);
        if (other == number || other == spared || group_used(cells, shard, other) == CELLS_SLOTS)
            continue;
        if (group_used(cells, shard, number) + group_used(cells, shard, spared) <= most)
            return;
        cell_move(cells, cell, group_free_cell(cells, shard, other));
    }
}

/* Give up the last group. False: its records and those of the group that it was divided from do not find cells. */
static bool group_merge(struct cells *cells, size_t shard)
{
    const uint32_t last = cells_groups(cells, shard) - 1, to = linear_origin(last);
    group_thin(cells, shard, last, to, CELLS_SLOTS);
    group_thin(cells, shard, to, last, CELLS_SLOTS);
    if (group_used(cells, shard, last) + group_used(cells, shard, to) > CELLS_SLOTS)
        return false;
    for (unsigned slot = 0; slot < CELLS_SLOTS; slot++)
        if (cell_place(cell_in(cells, shard, last, slot)) != 0)
            cell_move(cells, cell_in(cells, shard, last, slot), group_free_cell(cells, shard, to));
    struct cell_group *group = cell_in(cells, shard, last, 0).group;
    if (cells_are_marked(group))
        group_mark(cell_in(cells, shard, to, 0).group);
    atomic_store_explicit(&group->head, 0, memory_order_release);
    cells_count(cells, shard, last);
    return true;
}

/* Give the chunks between two numbers of groups back to the system. */
static void cells_drop(const struct cells *cells, size_t shard, uint32_t from, uint32_t end, struct readers *readers)
{
    from = (from + CELLS_CHUNK) / CELLS_CHUNK * CELLS_CHUNK - 1; /* the first of a chunk */
    if (from >= end)
        return;
    readers_wait(readers); /* a word that begins to count anew must not be mistaken for one that was read before */
    atomic_fetch_add(&cells_lost, 1);
    for (; from < end; from += CELLS_CHUNK)
        huge_drop(&cells->groups[cells_index(cells, shard, from)], CELLS_CHUNK * sizeof *cells->groups);
}

void cells_narrow(struct cells *cells, size_t shard, uint64_t keys, struct readers *readers)
{
    const uint32_t old = cells_groups(cells, shard);
    while (cells_groups(cells, shard) > CELLS_ROOMY(keys) && group_merge(cells, shard))
        ;
    const uint32_t count = cells_groups(cells, shard);
    cells_use(cells, shard, count, old, -1);
    cells_drop(cells, shard, count, old, readers);
    budget_give(cells->budget, (int64_t)(old - count) * GROUP_BYTES);
}
