/* index.c - writes the index. */
#include "backends/memory/index.h"

#include "backends/shared/huge.h"
#include "core/ground/arith.h"

#include <stdlib.h>
#include <string.h>

#define LINES_PER_PAGE (HUGE_BYTES / sizeof(struct index_line))

static size_t lines_bytes(const struct index *index)
{
    return index->most_lines * index->shards * sizeof(struct index_line);
}

/* Count a shard's lines from `from` to `end` as in use, and let memory that is mostly in use become huge pages. */
static void index_use(const struct index *index, size_t shard, uint32_t from, uint32_t end)
{
    for (uint32_t i = from; i < end; i++) {
        const size_t page = (size_t)(index_line_at(index, shard, i) - index->lines) / LINES_PER_PAGE;
        if (page < index->pages &&
            atomic_fetch_add_explicit(&index->in_pages[page], 1, memory_order_relaxed) + 1 == LINES_PER_PAGE / 2)
            huge_advise(&index->lines[page * LINES_PER_PAGE]);
    }
}

int index_init(struct index *index, size_t shards, int64_t keys, struct budget *budget)
{
    *index = (struct index){ .shards = shards, .budget = budget };
    const uint64_t enough = 2 + (uint64_t)keys / INDEX_KEYS_MOST * 3 / 2; /* hashes spread keys a little unevenly */
    index->most_lines = (uint32_t)(UINT64_MAX >> __builtin_clzll(enough));
    index->pages = lines_bytes(index) / HUGE_BYTES;
    index->counts = calloc(shards, sizeof *index->counts);
    index->in_pages = calloc(index->pages + 1, sizeof *index->in_pages); /* never of 0 bytes */
    index->lines = huge_map(lines_bytes(index));
    if (!index->counts || !index->in_pages || !index->lines)
        return -1;
    for (size_t i = 0; i < shards; i++) {
        atomic_init(&index->counts[i], 1);
        index_use(index, i, 0, 1);
    }
    const size_t bytes = shards * (sizeof(struct index_line) + sizeof *index->counts);
    budget_overdraw(budget, (int64_t)(bytes + index->pages * sizeof *index->in_pages));
    return 0;
}

void index_free(struct index *index)
{
    if (index->lines)
        huge_unmap(index->lines, lines_bytes(index));
    free((void *)index->counts);
    free((void *)index->in_pages);
}

static uint64_t slot_tag(const struct index_line *line, unsigned slot)
{
    return atomic_load_explicit(&line->tags[slot / 8], memory_order_relaxed) >> 8 * (slot % 8) & 0xff;
}

/* Write a slot so that its place is valid whenever its tag is set. */
static void slot_write(struct index_line *line, unsigned slot, uint64_t tag, uint32_t place)
{
    const uint64_t tags = atomic_load_explicit(&line->tags[slot / 8], memory_order_relaxed);
    const uint64_t others = tags & ~(UINT64_C(0xff) << 8 * (slot % 8));
    if (place != 0)
        atomic_store_explicit(&line->places[slot], place, memory_order_release);
    atomic_store_explicit(&line->tags[slot / 8], others | tag << 8 * (slot % 8), memory_order_release);
    if (place == 0)
        atomic_store_explicit(&line->places[slot], 0, memory_order_release);
}

static void line_spill(struct index_line *line)
{
    const uint64_t tags = atomic_load_explicit(&line->tags[1], memory_order_relaxed);
    atomic_store_explicit(&line->tags[1], tags | INDEX_SPILLED, memory_order_release);
}

/* Return the first empty slot, or INDEX_SLOTS. */
static unsigned line_room(const struct index_line *line)
{
    unsigned slot = 0;
    while (slot < INDEX_SLOTS && slot_tag(line, slot) != 0)
        slot++;
    return slot;
}

static void line_put(struct index_line *line, uint64_t tag, uint32_t place)
{
    const unsigned slot = line_room(line);
    if (slot < INDEX_SLOTS)
        slot_write(line, slot, tag, place);
    else
        line_spill(line);
}

void index_put(struct index *index, size_t shard, uint64_t hash, uint32_t place)
{
    struct index_line *line = index_line(index, shard, hash);
    if (place == 0)
        line_spill(line);
    else
        line_put(line, index_tag(hash), place);
}

void index_put_found(struct index *index, size_t shard, uint64_t hash, uint32_t place)
{
    struct index_line *line = index_line(index, shard, hash);
    const unsigned slot = line_room(line);
    if (place != 0)
        slot_write(line, slot < INDEX_SLOTS ? slot : place % INDEX_SLOTS, index_tag(hash), place);
}

void index_move(struct index *index, size_t shard, uint64_t hash, uint32_t from, uint32_t to)
{
    struct index_line *line = index_line(index, shard, hash);
    for (unsigned slot = 0; slot < INDEX_SLOTS && from != 0; slot++)
        if (index_place(line, slot) == from)
            slot_write(line, slot, to != 0 ? slot_tag(line, slot) : 0, to);
}

/* Spread lines from the last to the first, so that none is overwritten before it is read. The content of line i
 * goes to the lines from i * count / old to (i + 1) * count / old. A reader that finds nothing during this takes
 * the mutex. */
void index_widen(struct index *index, size_t shard, void (*fetch)(void *user, uint32_t place),
                 uint32_t (*hash_of)(void *user, uint32_t place), void *user)
{
    const uint32_t old = index_lines(index, shard);
    const uint32_t count = (uint32_t)min_of(old + old / 2 + 1, index->most_lines);
    if (!budget_take(index->budget, (int64_t)(count - old) * (int64_t)sizeof(struct index_line)))
        return;
    atomic_store_explicit(&index->counts[shard], count, memory_order_release);
    for (uint32_t i = old; i-- > 0;) {
        struct index_line *line = index_line_at(index, shard, i);
        const bool has_spilled = index_has_spilled(line);
        uint64_t tags[INDEX_SLOTS];
        uint32_t places[INDEX_SLOTS];
        for (unsigned slot = 0; slot < INDEX_SLOTS; slot++) {
            tags[slot] = slot_tag(line, slot);
            places[slot] = index_place(line, slot);
            if (tags[slot] != 0)
                fetch(user, places[slot]);
        }
        for (unsigned slot = 0; slot < INDEX_SLOTS; slot++)
            slot_write(line, slot, 0, 0);
        atomic_store_explicit(&line->tags[1], 0, memory_order_release);
        for (unsigned slot = 0; slot < INDEX_SLOTS; slot++)
            if (tags[slot] != 0) {
                const uint64_t hash = hash_of(user, places[slot]);
                line_put(index_line_at(index, shard, (uint32_t)((hash * count) >> 32)), tags[slot], places[slot]);
            }
        const uint32_t end = (uint32_t)(((uint64_t)(i + 1) * count + old - 1) / old);
        for (uint32_t to = (uint32_t)((uint64_t)i * count / old); has_spilled && to < end; to++)
            line_spill(index_line_at(index, shard, to));
    }
    index_use(index, shard, old, count);
}
