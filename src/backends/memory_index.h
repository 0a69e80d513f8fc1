/* memory_index.h - where the entries of keys are: cache lines of tags and places, read without a lock.
 *
 * It is small, so that it stays in the processor's caches when the entries do not: a key costs 6 to 10 bytes here, one
 * line is looked into for it, and one miss, of the entry itself, is left. A line has 15 slots, of a tag (bits of the
 * hash) and a place (slab.h). Each shard has a number of lines among which the lower half of the hash chooses, and gets
 * half as many more when they fill up. All of one number, of all shards, lie side by side, so that little memory is
 * touched for few keys; the address range for all of them is had at once, and lines never move.
 *
 * It is a hint, written under the shard's mutex: an entry that it leads to is looked at to see whose it is, and a key
 * that it does not lead to may be there all the same. But if a line has never spilled, all entries that belong there
 * are in it, and who has the mutex need not look any further.
 */
#ifndef BACKENDS_MEMORY_INDEX_H
#define BACKENDS_MEMORY_INDEX_H

#include "backends/budget.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INDEX_SLOTS 16     /* of a line; the first is its notes */
#define INDEX_KEYS_MOST 10 /* keys a line at which a shard gets more lines */
#define INDEX_SPILLED 1u   /* in a line's notes: entries that belong here may be missing */
#define INDEX_MIN_PLACE_BITS 20
#define INDEX_MAX_PLACE_BITS 28

/* Two slots a word, so that eight loads read it. */
struct index_line {
    alignas(64) _Atomic uint64_t words[INDEX_SLOTS / 2];
};

/* (c) constant, (s) by shard, under its mutex, (a) atomic readers */
struct index {
    struct index_line *lines;  /* (s) (a) */
    _Atomic uint32_t *counts;  /* (s) (a) lines, by shard */
    unsigned shard_bits;       /* (c) */
    unsigned place_bits;       /* (c) of a slot; the others are the tag */
    uint32_t most_lines;       /* (c) a shard's */
    struct budget *budget;     /* (c) */
};

/* How many bits a place needs in a table of so many bytes. */
unsigned index_place_bits(int64_t bytes);

/* For 2^shard_bits shards, of up to about `keys` keys each. 0, or -1 if there was no memory. */
int index_init(struct index *index, unsigned shard_bits, int64_t keys, unsigned place_bits, struct budget *budget);
void index_free(struct index *index);

static inline struct index_line *index_line_at(const struct index *index, size_t shard, uint32_t number)
{
    return &index->lines[((size_t)number << index->shard_bits) + shard];
}

/* The line where a key is, as long as its shard's number of lines does not change. */
static inline struct index_line *index_line(const struct index *index, size_t shard, uint64_t hash)
{
    const uint32_t count = atomic_load_explicit(&index->counts[shard], memory_order_acquire);
    return index_line_at(index, shard, (uint32_t)(((hash & UINT32_MAX) * count) >> 32));
}

/* The tag of a key, where it stands in a slot. */
static inline uint32_t index_tag(const struct index *index, uint64_t hash)
{
    return (uint32_t)(hash >> 32) << index->place_bits;
}

/* The slots of a line with a tag: slot 2i + h is bit 32h + 31 - i. Empty ones may be among them. */
static inline uint64_t index_matches(const struct index *index, const struct index_line *line, uint32_t tag)
{
    const uint64_t twice = UINT64_C(0x0000000100000001), tops = twice << 31;
    const uint64_t tags = tag * twice, mask = (UINT32_MAX << index->place_bits) * twice;
    uint64_t matches = 0;
#pragma GCC unroll 8
    for (unsigned i = 0; i < INDEX_SLOTS / 2; i++) {
        /* What differs, in both halves, is 0 or has its bits in the upper part: halved and taken from the top bit, it
         * leaves that as it is if it is 0, and else clears it. */
        const uint64_t differs = (atomic_load_explicit(&line->words[i], memory_order_acquire) ^ tags) & mask;
        matches |= ((tops - (differs >> 1)) & tops) >> i;
    }
    return matches & ~(UINT64_C(1) << 31);
}

static inline unsigned index_first(uint64_t matches)
{
    const unsigned bit = (unsigned)__builtin_ctzll(matches);
    return 2 * (31 - bit % 32) + bit / 32;
}

/* The place in a slot; 0: the slot is empty. */
static inline uint32_t index_place(const struct index *index, const struct index_line *line, unsigned slot)
{
    const uint64_t word = atomic_load_explicit(&line->words[slot / 2], memory_order_acquire);
    return (uint32_t)(word >> 32 * (slot % 2)) & ~(UINT32_MAX << index->place_bits);
}

/* ---- Under the shard's mutex ---- */

static inline bool index_has_spilled(const struct index_line *line)
{
    return (atomic_load_explicit(&line->words[0], memory_order_relaxed) & INDEX_SPILLED) != 0;
}

/* Note where the entry of a key is; `place` 0: it has none. The line may spill. */
void index_put(struct index *index, size_t shard, uint64_t hash, uint32_t place);

/* An entry is not there any more. Of no effect if it was not noted. */
void index_remove(struct index *index, size_t shard, uint64_t hash, uint32_t place);

/* Whether a shard of so many keys is due for more lines. */
static inline bool index_is_narrow(const struct index *index, size_t shard, uint64_t keys)
{
    const uint32_t count = atomic_load_explicit(&index->counts[shard], memory_order_relaxed);
    return keys > (uint64_t)count * INDEX_KEYS_MOST && count < index->most_lines;
}

/* Give a shard half as many lines more, if the budget has room for them. `fetch` is told of entries that `hash_of` is
 * going to be asked for, the lower half of the hash of the entry at a place. */
void index_widen(struct index *index, size_t shard, void (*fetch)(void *user, uint32_t place),
                 uint32_t (*hash_of)(void *user, uint32_t place), void *user);

#endif
