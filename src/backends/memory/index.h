/* index.h - where the entries of keys are: cache lines of tags and places, read without a lock.
 *
 * It is small, so that it stays in the processor's caches when the entries do not: a key costs 6 to 10 bytes here, one
 * line is looked into for it, and one miss, of the entry itself, is left. A line has 12 slots, of a tag (eight bits of
 * the hash) and a place (slab.h). Each shard has a number of lines among which the lower half of the hash chooses, and
 * gets half as many more when they fill up. They lie in levels, see index_line_at(), so that little memory is touched
 * for few keys; the address range for all of them is had at once, and lines never move.
 *
 * It is a hint, written under the shard's mutex: an entry that it leads to is looked at to see whose it is, and a key
 * that it does not lead to may be there all the same. But if a line has never spilled, all entries that belong there
 * are in it, and who has the mutex need not look any further.
 *
 * (Tags that are compared eight at a time: Google's "Swiss tables", 2017.)
 */
#ifndef BACKENDS_MEMORY_INDEX_H
#define BACKENDS_MEMORY_INDEX_H

#include "backends/shared/budget.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define INDEX_SLOTS 12    /* of a line */
#define INDEX_KEYS_MOST 8 /* keys a line at which a shard gets more lines */

/* Slot i is byte i of the tags, from the lowest on, and place i. A tag is not 0, which is that of an empty slot. */
struct index_line {
    alignas(64) _Atomic uint64_t tags[2]; /* the second has four, and above them INDEX_SPILLED */
    _Atomic uint32_t places[INDEX_SLOTS];
};

#define INDEX_SPILLED (UINT64_C(1) << 32) /* entries that belong here may be missing */

/* (c) constant, (s) by shard, under its mutex, (a) atomic readers */
struct index {
    struct index_line *lines; /* (s) (a) */
    _Atomic uint32_t *counts; /* (s) (a) lines, by shard */
    size_t shards;            /* (c) */
    uint32_t most_lines;      /* (c) a shard's: of levels, all or none */
    struct budget *budget;    /* (c) */
};

/* For so many shards, of up to about `keys` keys each. 0, or -1 if there was no memory. */
int index_init(struct index *index, size_t shards, int64_t keys, struct budget *budget);
void index_free(struct index *index);

/* Lines lie in levels: the first line of each shard, then the next two of each, the next four, and so on. So those of an
 * empty index lie side by side, and those that a shard gets at a time do as well: it has to wait for the first use of
 * a page of memory, and there are few of them. With `nth` from 1 on, level k begins after (2^k - 1) * shards lines and
 * with the shards' nth = 2^k. */
static inline struct index_line *index_line_at(const struct index *index, size_t shard, uint32_t number)
{
    const size_t nth = (size_t)number + 1;
    const unsigned level = 63 ^ (unsigned)__builtin_clzll(nth); /* the bit's number, as the processor tells it */
    return &index->lines[((index->shards - 1 + shard) << level) + nth - index->shards];
}

/* How many a shard has. */
static inline uint32_t index_lines(const struct index *index, size_t shard)
{
    return atomic_load_explicit(&index->counts[shard], memory_order_acquire);
}

/* The line where a key is, as long as its shard's number of lines does not change. */
static inline struct index_line *index_line(const struct index *index, size_t shard, uint64_t hash)
{
    const uint32_t count = index_lines(index, shard);
    return index_line_at(index, shard, (uint32_t)(((hash & UINT32_MAX) * count) >> 32));
}

static inline uint64_t index_tag(uint64_t hash)
{
    const uint64_t tag = hash >> 32 & 0xff;
    return tag + (tag == 0);
}

/* The slots of a line with a tag, to be told by index_first_by_words(), on any processor. */
static inline uint64_t index_matches_by_words(const struct index_line *line, uint64_t tag)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), low_bits = UINT64_C(0x7f7f7f7f7f7f7f7f);
    const uint64_t first = atomic_load_explicit(&line->tags[0], memory_order_acquire) ^ ones * tag;
    const uint64_t second = atomic_load_explicit(&line->tags[1], memory_order_acquire) ^ ones * tag;
    /* The top bit of each byte that is 0; no carry leaves a byte. */
    const uint64_t in_first = ~(((first & low_bits) + low_bits) | first | low_bits);
    const uint64_t in_second = ~(((second & low_bits) + low_bits) | second | low_bits) & UINT32_MAX;
    return in_first >> 7 | in_second >> 6;
}

/* The least of them. */
static inline unsigned index_first_by_words(uint64_t matches)
{
    const unsigned bit = (unsigned)__builtin_ctzll(matches);
    return bit / 8 + (bit % 8) * 8;
}

/* The same, to be told by index_first(), where the processor compares bytes at a third of the instructions. */
static inline uint64_t index_matches(const struct index_line *line, uint64_t tag)
{
#if defined(__SSE2__)
    const uint64_t first = atomic_load_explicit(&line->tags[0], memory_order_acquire);
    const uint64_t second = atomic_load_explicit(&line->tags[1], memory_order_acquire);
    const __m128i tags = _mm_set_epi64x((int64_t)second, (int64_t)first);
    return (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8((char)tag))) & ((1u << INDEX_SLOTS) - 1);
#else
    return index_matches_by_words(line, tag);
#endif
}

static inline unsigned index_first(uint64_t matches)
{
#if defined(__SSE2__)
    return (unsigned)__builtin_ctzll(matches);
#else
    return index_first_by_words(matches);
#endif
}

/* 0: the slot has become empty. */
static inline uint32_t index_place(const struct index_line *line, unsigned slot)
{
    return atomic_load_explicit(&line->places[slot], memory_order_acquire);
}

/* ---- Under the shard's mutex ---- */

static inline bool index_has_spilled(const struct index_line *line)
{
    return (atomic_load_explicit(&line->tags[1], memory_order_relaxed) & INDEX_SPILLED) != 0;
}

/* Note where the entry of a key is; `place` 0: it has none. The line may spill. */
void index_put(struct index *index, size_t shard, uint64_t hash, uint32_t place);

/* An entry that its line, which has spilled, did not lead to is asked for: note it, if need be in place of another,
 * which will be noted again when it is asked for itself. `place` 0: of no effect. */
void index_put_found(struct index *index, size_t shard, uint64_t hash, uint32_t place);

/* An entry is not there any more. Of no effect if it was not noted. */
void index_remove(struct index *index, size_t shard, uint64_t hash, uint32_t place);

/* Whether a shard of so many keys is due for more lines. */
static inline bool index_is_narrow(const struct index *index, size_t shard, uint64_t keys)
{
    const uint32_t count = index_lines(index, shard);
    return keys > (uint64_t)count * INDEX_KEYS_MOST && count < index->most_lines;
}

/* Give a shard half as many lines more, if the budget has room for them. `fetch` is told of entries that `hash_of` is
 * going to be asked for, the lower half of the hash of the entry at a place. */
void index_widen(struct index *index, size_t shard, void (*fetch)(void *user, uint32_t place),
                 uint32_t (*hash_of)(void *user, uint32_t place), void *user);

#endif
