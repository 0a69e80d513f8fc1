/* memory_index.c - writes the index. */
#include "backends/memory_index.h"

#include "core/arith.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

unsigned index_place_bits(int64_t bytes)
{
    unsigned bits = INDEX_MIN_PLACE_BITS;
    while (bits < INDEX_MAX_PLACE_BITS && (bytes >> 5) >> bits != 0) /* a place is 32 bytes */
        bits++;
    return bits;
}

static size_t lines_bytes(const struct index *index)
{
    return ((size_t)index->most_lines << index->shard_bits) * sizeof(struct index_line);
}

int index_init(struct index *index, unsigned shard_bits, int64_t keys, unsigned place_bits, struct budget *budget)
{
    const size_t shards = (size_t)1 << shard_bits;
    *index = (struct index){ .shard_bits = shard_bits, .place_bits = place_bits, .budget = budget };
    index->most_lines = (uint32_t)(2 + keys / INDEX_KEYS_MOST * 3 / 2); /* hashes do not spread keys quite evenly */
    index->counts = calloc(shards, sizeof *index->counts);
    if (!index->counts)
        return -1;
    void *lines = mmap(NULL, lines_bytes(index), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
    if (lines == MAP_FAILED)
        return -1;
    index->lines = lines;
    for (size_t i = 0; i < shards; i++)
        atomic_init(&index->counts[i], 1);
    budget_overdraw(budget, (int64_t)(shards * (sizeof(struct index_line) + sizeof *index->counts)));
    return 0;
}

void index_free(struct index *index)
{
    if (index->lines)
        munmap(index->lines, lines_bytes(index));
    free((void *)index->counts);
}

static uint32_t slot_read(const struct index_line *line, unsigned slot)
{
    return (uint32_t)(atomic_load_explicit(&line->words[slot / 2], memory_order_relaxed) >> 32 * (slot % 2));
}

static void slot_write(struct index_line *line, unsigned slot, uint32_t value)
{
    const uint64_t word = atomic_load_explicit(&line->words[slot / 2], memory_order_relaxed);
    const uint64_t kept = word & ~((uint64_t)UINT32_MAX << 32 * (slot % 2));
    atomic_store_explicit(&line->words[slot / 2], kept | (uint64_t)value << 32 * (slot % 2), memory_order_release);
}

static void line_spill(struct index_line *line)
{
    slot_write(line, 0, slot_read(line, 0) | INDEX_SPILLED);
}

static void line_put(struct index_line *line, uint32_t value)
{
    for (unsigned slot = 1; slot < INDEX_SLOTS; slot++)
        if (slot_read(line, slot) == 0) {
            slot_write(line, slot, value);
            return;
        }
    line_spill(line);
}

void index_put(struct index *index, size_t shard, uint64_t hash, uint32_t place)
{
    struct index_line *line = index_line(index, shard, hash);
    if (place == 0)
        line_spill(line);
    else
        line_put(line, index_tag(index, hash) | place);
}

void index_remove(struct index *index, size_t shard, uint64_t hash, uint32_t place)
{
    struct index_line *line = index_line(index, shard, hash);
    for (unsigned slot = 1; slot < INDEX_SLOTS && place != 0; slot++)
        if (index_place(index, line, slot) == place)
            slot_write(line, slot, 0);
}

/* Lines are spread from the last to the first, so that none is written that is still to be read: what is in line i goes
 * to the lines from i * count / old to (i + 1) * count / old. Who looks meanwhile may find nothing. */
void index_widen(struct index *index, size_t shard, void (*fetch)(void *user, uint32_t place),
                 uint32_t (*hash_of)(void *user, uint32_t place), void *user)
{
    const uint32_t old = atomic_load_explicit(&index->counts[shard], memory_order_relaxed);
    const uint32_t count = (uint32_t)min_of(old + old / 2 + 1, index->most_lines);
    const uint32_t places = ~(UINT32_MAX << index->place_bits);
    if (!budget_take(index->budget, (int64_t)(count - old) * (int64_t)sizeof(struct index_line)))
        return;
    atomic_store_explicit(&index->counts[shard], count, memory_order_release);
    for (uint32_t i = old; i-- > 0;) {
        struct index_line *line = index_line_at(index, shard, i);
        const bool has_spilled = index_has_spilled(line);
        uint32_t values[INDEX_SLOTS];
        for (unsigned slot = 1; slot < INDEX_SLOTS; slot++) {
            values[slot] = slot_read(line, slot);
            if (values[slot] != 0)
                fetch(user, values[slot] & places);
        }
        for (unsigned word = 0; word < INDEX_SLOTS / 2; word++)
            atomic_store_explicit(&line->words[word], 0, memory_order_relaxed);
        for (unsigned slot = 1; slot < INDEX_SLOTS; slot++)
            if (values[slot] != 0) {
                const uint64_t hash = hash_of(user, values[slot] & places);
                line_put(index_line_at(index, shard, (uint32_t)((hash * count) >> 32)), values[slot]);
            }
        const uint32_t end = (uint32_t)(((uint64_t)(i + 1) * count + old - 1) / old);
        for (uint32_t to = (uint32_t)((uint64_t)i * count / old); has_spilled && to < end; to++)
            line_spill(index_line_at(index, shard, to));
    }
}
