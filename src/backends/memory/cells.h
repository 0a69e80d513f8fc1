/* cells.h - where the records of keys are: groups of cells (groups.h) that a hash leads to, read without a lock.
 *
 * A decision on a large table costs what its cache misses cost. So a record that fits, which is a word, a state and a
 * key of together 40 bytes, lies in a cell, and the hash of its key leads to the cell. Nothing else of the key is read.
 * A token bucket, a fixed window or a leaky bucket fits with a key of up to 16 bytes.
 *
 * The lower half of a hash chooses two of its shard's groups. A key takes a cell of its first group, or else of its
 * second one; or else up to CELLS_MOVES other records move, each to the other group of its key. A key that finds no
 * cell has its record behind its entry, and the mutex decides for it. Its first group is then marked. So a thread with
 * the mutex that finds a key in neither of its groups knows that there is none, unless the first is marked. (Two
 * choices and moves: Pagh and Rodler, "Cuckoo hashing", 2004.)
 *
 * A shard begins with one group. When most of its cells are in use, it gets more, one by one, and the records of one
 * of its groups are divided between both (linear.h). So a new key waits for a few moves only. A shard that has lost
 * most of its keys to the sweep gives groups back.
 */
#ifndef BACKENDS_MEMORY_CELLS_H
#define BACKENDS_MEMORY_CELLS_H

#include "backends/memory/groups.h"

#define CELLS_MOVES 4 /* records that move to make room for another one, at most */

/* A shard with more keys than 4/5 of its cells gets more. */
#define CELLS_FULL(groups) ((uint64_t)(groups)*CELLS_SLOTS * 4 / 5)

/* The groups of whose cells so many keys use 3/5. A shard with 8/5 times as many, and more than CELLS_KEPT, has too
 * many. */
#define CELLS_ROOMY(keys) ((uint64_t)(keys)*5 / (3 * CELLS_SLOTS) + 1)
#define CELLS_KEPT 8

/* A shard gets a 64th more groups at a time, up to CELLS_WIDEN_MOST. */
#define CELLS_WIDEN_SHARE 64
#define CELLS_WIDEN_MOST 8
#define CELLS_WIDEN_BYTES ((int64_t)(CELLS_WIDEN_MOST * (sizeof(struct cell_group) + sizeof(struct cell_owners))))

/* How often memory of cells has gone back to the system, in all tables of the process. It is raised before that: what a
 * thread keeps of a record beyond a read (readers.h) may then lead nowhere, or to a word that counts anew. */
extern _Atomic uint64_t cells_lost __attribute__((visibility("hidden")));

/* Prepare for `shards` shards with up to about `keys` keys each. 0, or -1: out of memory. */
int cells_init(struct cells *cells, size_t shards, int64_t keys, struct budget *budget, const struct slab *slab);
void cells_free(struct cells *cells);

static inline uint64_t cells_tag(uint64_t hash)
{
    const unsigned tag = (uint16_t)(hash >> 32);
    return tag + (tag < 1);
}

#define CELLS_TAG_ONES UINT64_C(0x000100010001)

/* Return the cells with a tag of a group with that head, for cells_slot(), and perhaps others after them. */
static inline uint64_t cells_matching(uint64_t head, uint64_t tag)
{
    const uint64_t differ = head ^ CELLS_TAG_ONES * tag;
    return (differ - CELLS_TAG_ONES) & ~differ & CELLS_TAG_ONES << 15; /* a borrow comes only from a match */
}

static inline uint64_t cells_matches(const struct cell_group *group, uint64_t tag)
{
    return cells_matching(atomic_load_explicit(&group->head, memory_order_acquire), tag);
}

#define CELLS_LAST (UINT64_C(1) << (16 * CELLS_SLOTS - 1)) /* the last cell, as in cells_matches() */

/* Return the lowest of these cells. */
static inline unsigned cells_slot(uint64_t matches)
{
    return (unsigned)__builtin_ctzll(matches) / 16;
}

/* Return the place that a cell holds, if its word was `word`; 0: it holds none, or a record. */
static inline uint32_t cells_place(const struct record *record, uint64_t word)
{
    if (word_rule(word) != 0 || (word & WORD_BUSY) != 0)
        return 0;
    const uint64_t place = record_at(record, 0);
    return atomic_load_explicit(&record->word, memory_order_relaxed) == word ? (uint32_t)place : 0;
}

static inline bool cells_has(const struct cells *cells, const struct record *record)
{
    return (uintptr_t)record - (uintptr_t)cells->groups <
           cells->shards * cells->most_groups * sizeof(struct cell_group);
}

/* Return the place of the entry whose record, or its word and key, is in a cell; 0: there is none any more. */
static inline _Atomic uint32_t *cells_owner(const struct cells *cells, const struct record *record)
{
    const size_t offset = (uintptr_t)record - (uintptr_t)cells->groups;
    const size_t slot = offset % sizeof(struct cell_group) / ((1 + CELL_WORDS) * sizeof(int64_t));
    return &cells->owners[offset / sizeof(struct cell_group)].places[slot];
}

static inline bool cells_fit(size_t words, size_t key_len)
{
    return record_words(words, key_len) <= CELL_WORDS;
}

/* True if a record that does not fit is divided between a cell and its entry. */
static inline bool cells_divide(size_t words, size_t key_len)
{
    return record_words(SUMMARY_WORDS, key_len) <= CELL_WORDS && entry_apart_bytes(words) <= SLAB_MAX_ENTRY;
}

/* ---- Under the shard's mutex ---- */

/* Return a free cell for a key, or NULL. With `makes`, up to `most_moves` records may move to make one free; those that
 * a thread with the mutex has claimed stay. Without, the cell may still have to be made free. */
struct record *cells_room(struct cells *cells, size_t shard, uint64_t hash, int most_moves, bool makes);

/* Fill a free cell with the record of an entry at `place`: claimed, with its key, without a state. */
void cells_fill(struct cells *cells, struct record *record, uint64_t hash, uint32_t place, const struct rule *rule,
                struct weir_key key);

/* Note the place of an entry that has its own record in a cell, if cells_room() finds one. */
void cells_note(struct cells *cells, size_t shard, uint64_t hash, uint32_t place, int most_moves);

/* Note that such an entry has moved, or forget it if `to` is 0. Has no effect if it was not noted. */
void cells_move(struct cells *cells, size_t shard, uint64_t hash, uint32_t from, uint32_t to);

/* Free the cell of a claimed record. */
void cells_empty(struct cells *cells, struct record *record);

/* True if a shard with `keys` keys should get more groups. */
static inline bool cells_are_narrow(const struct cells *cells, size_t shard, uint64_t keys)
{
    const uint32_t count = cells_groups(cells, shard);
    return keys > CELLS_FULL(count) && count < cells->most_groups;
}

/* Give a shard one more group, or a few if it is large, if it may have more and the budget has room for them. Some
 * records move there. False: it stays as it is. */
bool cells_widen(struct cells *cells, size_t shard);

/* True if a shard with `keys` keys should give groups back. */
static inline bool cells_are_loose(const struct cells *cells, size_t shard, uint64_t keys)
{
    const uint32_t count = cells_groups(cells, shard);
    return count > CELLS_KEPT && CELLS_ROOMY(keys) < count * UINT64_C(5) / 8;
}

/* Take groups away from such a shard as long as their records find cells in others. Waits for all readers before memory
 * goes back to the system. */
void cells_narrow(struct cells *cells, size_t shard, uint64_t keys, struct readers *readers);

#endif
