/* index.h - where the entries of keys are: cache lines of tags and places, read without a lock.
 *
 * Walking a hash table's chains costs a cache miss an entry. This index is small enough to stay in the
 * processor's caches when the entries do not: a key costs 6 to 10 bytes here. A lookup reads one line of it, and
 * the only miss left is the entry itself.
 *
 * A line has 12 slots, each with a tag (eight bits of the hash) and a place (slab.h). The lower half of a key's hash
 * chooses one of its shard's lines. A shard begins with one line and gets half as many more when they fill up.
 *
 * Lines never move: the address range for as many as there may ever be is reserved at the start. It is divided into
 * levels. Level k has 2^k lines of each shard; with three shards a, b and c it is
 *
 *     level 0   a1 b1 c1
 *     level 1   a2 a3 b2 b3 c2 c3
 *     level 2   a4 a5 a6 a7 b4 b5 b6 b7 c4 c5 c6 c7
 *
 * So lines that come into use together are neighbours. The first use of a page of memory takes long, and this way few
 * pages are used. Once half of the lines in 2 MiB are in use, these may become a huge page (shared/huge.h).
 *
 * The index is a hint, written under the shard's mutex. A reader checks whose entry it was led to, and a key may
 * have an entry that the index does not lead to. But a line that has never spilled has all entries that belong in
 * it, so a thread with the mutex need not look any further.
 *
 * (Comparing eight tags at a time: Google's "Swiss tables", 2017.)
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

#define INDEX_SLOTS 12    /* slots of a line */
#define INDEX_KEYS_MOST 8 /* a shard with more keys per line gets more lines */

/* Slot i is byte i of the tags, counted from the lowest, and place i. Tag 0 marks an empty slot. */
struct index_line {
    alignas(64) _Atomic uint64_t tags[2]; /* the second holds four tags, and INDEX_SPILLED above them */
    _Atomic uint32_t places[INDEX_SLOTS];
};

#define INDEX_SPILLED (UINT64_C(1) << 32) /* entries that belong in this line may be missing */

/* (c) constant, (s) written under the shard's mutex, (a) read atomically */
struct index {
    struct index_line *lines;   /* (s) (a) */
    _Atomic uint32_t *counts;   /* (s) (a) lines of each shard */
    _Atomic uint32_t *in_pages; /* (a) lines in use in each 2 MiB; relaxed: counts that order nothing */
    size_t pages;               /* (c) whole ones */
    size_t shards;              /* (c) */
    uint32_t most_lines;        /* (c) of a shard; fills whole levels */
    struct budget *budget;      /* (c) */
};

/* Prepare for `shards` shards with up to about `keys` keys each. 0, or -1: out of memory. */
int index_init(struct index *index, size_t shards, int64_t keys, struct budget *budget);
void index_free(struct index *index);

/* Return a shard's line, numbered from 0; the drawing above counts from 1. Level k lies behind (2^k - 1) * shards lines.
 */
static inline struct index_line *index_line_at(const struct index *index, size_t shard, uint32_t number)
{
    const size_t nth = (size_t)number + 1;
    const unsigned level = 63 ^ (unsigned)__builtin_clzll(nth); /* the highest bit: one instruction */
    return &index->lines[((index->shards - 1 + shard) << level) + nth - index->shards];
}

/* Return a shard's number of lines. */
static inline uint32_t index_lines(const struct index *index, size_t shard)
{
    return atomic_load_explicit(&index->counts[shard], memory_order_acquire);
}

/* Return the line of a key. It is valid until its shard's number of lines changes. */
static inline struct index_line *index_line(const struct index *index, size_t shard, uint64_t hash)
{
    const uint32_t count = index_lines(index, shard);
    return index_line_at(index, shard, (uint32_t)(((hash & UINT32_MAX) * count) >> 32));
}

static inline uint64_t index_tag(uint64_t hash)
{
    const unsigned tag = (uint8_t)(hash >> 32);
    return tag + (tag < 1);
}

/* Return the slots of a line with a tag, for index_first_by_words(). Works on any processor. */
static inline uint64_t index_matches_by_words(const struct index_line *line, uint64_t tag)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), low_bits = UINT64_C(0x7f7f7f7f7f7f7f7f);
    const uint64_t first = atomic_load_explicit(&line->tags[0], memory_order_acquire) ^ ones * tag;
    const uint64_t second = atomic_load_explicit(&line->tags[1], memory_order_acquire) ^ ones * tag;
    /* The top bit of each byte that is 0; no carry crosses bytes. */
    const uint64_t in_first = ~(((first & low_bits) + low_bits) | first | low_bits);
    const uint64_t in_second = ~(((second & low_bits) + low_bits) | second | low_bits) & UINT32_MAX;
    return in_first >> 7 | in_second >> 6;
}

/* Return the lowest matching slot. */
static inline unsigned index_first_by_words(uint64_t matches)
{
    const unsigned bit = (unsigned)__builtin_ctzll(matches);
    return bit / 8 + (bit % 8) * 8;
}

/* Return the slots of a line with a tag, for index_first(). A processor that compares bytes needs a third of the
 * instructions. */
static inline uint64_t index_matches(const struct index_line *line, uint64_t tag)
{
#if defined(__SSE2__)
    const uint64_t first = atomic_load_explicit(&line->tags[0], memory_order_acquire);
    const uint64_t second = atomic_load_explicit(&line->tags[1], memory_order_acquire);
    const __m128i tags = _mm_set_epi64x((int64_t)second, (int64_t)first);
    const __m128i sought = _mm_set1_epi32((int)((uint32_t)tag * UINT32_C(0x01010101))); /* SSE2 repeats no bytes */
    return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(tags, sought)) & ((1u << INDEX_SLOTS) - 1);
#else
    return index_matches_by_words(line, tag);
#endif
}

static inline size_t index_first(uint64_t matches)
{
#if defined(__SSE2__)
    return (unsigned)__builtin_ctzll(matches);
#else
    return index_first_by_words(matches);
#endif
}

/* Return a slot's place; 0: the slot has become empty. */
static inline uint32_t index_place(const struct index_line *line, size_t slot)
{
    return atomic_load_explicit(&line->places[slot], memory_order_acquire);
}

/* ---- Under the shard's mutex ---- */

static inline bool index_has_spilled(const struct index_line *line)
{
    return (atomic_load_explicit(&line->tags[1], memory_order_relaxed) & INDEX_SPILLED) != 0;
}

/* Note the place of a key's entry; `place` 0: it has none. The line may spill. */
void index_put(struct index *index, size_t shard, uint64_t hash, uint32_t place);

/* Note an entry that its spilled line did not lead to, if need be in another one's slot; that one is noted again
 * when it is next requested. Has no effect if `place` is 0. */
void index_put_found(struct index *index, size_t shard, uint64_t hash, uint32_t place);

/* Note that an entry has moved, or forget it if `to` is 0. Has no effect if it was not noted. */
void index_move(struct index *index, size_t shard, uint64_t hash, uint32_t from, uint32_t to);

/* True if a shard with `keys` keys should get more lines. */
static inline bool index_is_narrow(const struct index *index, size_t shard, uint64_t keys)
{
    const uint32_t count = index_lines(index, shard);
    return keys > (uint64_t)count * INDEX_KEYS_MOST && count < index->most_lines;
}

/* Give a shard half as many lines again if the budget has room for them. `hash_of` returns the lower half of the
 * hash of the entry at a place; `fetch` is called some time before with the same place, to prefetch it. */
void index_widen(struct index *index, size_t shard, void (*fetch)(void *user, uint32_t place),
                 uint32_t (*hash_of)(void *user, uint32_t place), void *user);

#endif
