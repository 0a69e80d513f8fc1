/* entry.h - a key's entry, and its word, by which its state is read and changed without a lock.
 *
 * The word says all that must not change between a look at an entry and what is written to it: under which rule it was
 * written, and so of which limit it is, how long its key is, and how often its state has changed. It is written with
 * each change, and bit 0 is set while there is one under way.
 *
 *     look      word (bit 0 clear), key and state, what is to be decided; word again: the same, so that was the state
 *     change    the same, but the word is swapped for itself with bit 0: nobody has changed anything since, and nobody
 *               else can now; the new state; the word of one more change, which has bit 0 clear
 *
 * (A seqlock with a writer who has decided beforehand, so that bit 0 is set for three stores. Words of the state are
 * stored with release and loaded with acquire order: who loads a new one sees the word that came before it, as in
 * core/policy/plan_cell.h. Boehm, "Can seqlocks get along with programming language memory models?", 2012.)
 *
 * Who holds the shard's mutex may set bit 0 for longer. Whoever finds it set waits for three stores, and for the mutex
 * then: nobody waits for one thread that was preempted while it has the mutex, but for those that have the mutex.
 *
 * The memory of an entry stays an entry's of its size while anybody looks (slab.h, readers.h), and its word goes on
 * counting, so that one who slept over the end of one entry and the beginning of another finds it changed. A count of
 * 33 bits comes round in no less than a minute and a half of nothing but changes to one key: one who sleeps for just
 * that long between two stores could be fooled.
 */
#ifndef BACKENDS_MEMORY_ENTRY_H
#define BACKENDS_MEMORY_ENTRY_H

#include "backends/memory/rules.h"
#include "backends/shared/slab.h"
#include "core/ground/hash.h"

/* From the lowest bit on: busy, the length of the key, the rule's number, and the count, which may run over. */
#define WORD_BUSY UINT64_C(1)
#define WORD_LEN_BITS 10
#define WORD_RULE_SHIFT (1 + WORD_LEN_BITS)
#define WORD_COUNT_SHIFT (WORD_RULE_SHIFT + RULE_BITS)
#define WORD_ONE_CHANGE (UINT64_C(1) << WORD_COUNT_SHIFT)
#define WORD_WHOSE ((WORD_ONE_CHANGE - 1) & ~WORD_BUSY) /* length and rule */

_Static_assert(64 - WORD_COUNT_SHIFT >= 33, "room for the count, see above");
_Static_assert(SLAB_MAX_ENTRY <= 1 << WORD_LEN_BITS, "keys of entries that have a place are shorter than this");

/* (s) the shard's mutex, (w) by the word */
struct entry {
    UT_hash_handle hh;     /* (s); hh.key leads to the key */
    _Atomic uint64_t word; /* its rule's number is 0 when it is nobody's */
    /* (w) the state and the former one, the rule's `words` in all; then the key, whole words, the last filled up
     * with zeroes, which is constant while the rule's number is not 0 */
    _Atomic int64_t cells[];
};

_Static_assert(sizeof(struct entry) == sizeof(UT_hash_handle) + 8, "64 bytes, on the systems at hand");

static inline size_t entry_bytes(const struct rule *rule, size_t key_len)
{
    return sizeof(struct entry) + (rule->words + (key_len + 7) / 8) * sizeof(int64_t);
}

/* ---- The word ---- */

static inline uint32_t word_rule(uint64_t word)
{
    return (uint32_t)(word >> WORD_RULE_SHIFT) & ((1u << RULE_BITS) - 1);
}

static inline size_t word_len(uint64_t word)
{
    return (size_t)(word >> 1) & (((size_t)1 << WORD_LEN_BITS) - 1);
}

/* After one more change; not busy. */
static inline uint64_t word_next(uint64_t word)
{
    return (word & ~WORD_BUSY) + WORD_ONE_CHANGE;
}

/* The length and the rule of a word; of a length that is not told, its lower bits. */
static inline uint64_t word_whose(uint32_t rule, size_t key_len)
{
    const uint64_t len = key_len & (((size_t)1 << WORD_LEN_BITS) - 1);
    return (uint64_t)rule << WORD_RULE_SHIFT | len << 1;
}

/* After one more change, under another rule, or with another key. */
static inline uint64_t word_of(uint64_t word, uint32_t rule, size_t key_len)
{
    return (word_next(word) & ~WORD_WHOSE) | word_whose(rule, key_len);
}

static inline uint64_t entry_word(const struct entry *entry)
{
    return atomic_load_explicit(&entry->word, memory_order_acquire);
}

/* Nothing has changed since `word`, and nobody else changes anything until entry_release(). */
static inline bool entry_claim(struct entry *entry, uint64_t *word)
{
    return atomic_compare_exchange_strong_explicit(&entry->word, word, *word | WORD_BUSY, memory_order_acquire,
                                                   memory_order_acquire);
}

static inline void entry_release(struct entry *entry, uint64_t word)
{
    atomic_store_explicit(&entry->word, word, memory_order_release);
}

/* ---- State and key ---- */

static inline void entry_read(const struct entry *entry, size_t from, int64_t *state, size_t words)
{
    for (size_t i = 0; i < words; i++)
        state[i] = atomic_load_explicit(&entry->cells[from + i], memory_order_acquire);
}

/* While it is claimed, or nobody's. */
static inline void entry_write(struct entry *entry, size_t from, const int64_t *state, size_t words)
{
    for (size_t i = 0; i < words; i++)
        atomic_store_explicit(&entry->cells[from + i], state[i], memory_order_release);
}

/* The last word of a key, filled up, with the bytes as they lie in memory. */
static inline uint64_t key_rest(const unsigned char *bytes, size_t len)
{
    uint64_t rest = rest_of(bytes, len);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    rest = __builtin_bswap64(rest);
#endif
    return rest;
}

static inline uint64_t native_word(const unsigned char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static inline void entry_write_key(struct entry *entry, size_t from, struct weir_key key)
{
    const unsigned char *bytes = key.data;
    const size_t whole = key.len / 8;
    for (size_t i = 0; i < whole; i++)
        entry_write(entry, from + i, &(int64_t){ (int64_t)native_word(bytes + i * 8) }, 1);
    if (key.len % 8 != 0)
        entry_write(entry, from + whole, &(int64_t){ (int64_t)key_rest(bytes, key.len) }, 1);
}

static inline uint64_t cell_at(const struct entry *entry, size_t at)
{
    return (uint64_t)atomic_load_explicit(&entry->cells[at], memory_order_acquire);
}

/* Of any length. */
__attribute__((noinline)) static bool entry_has_bytes(const struct entry *entry, size_t from, struct weir_key key)
{
    const unsigned char *bytes = key.data;
    const size_t whole = key.len / 8;
    for (size_t i = 0; i < whole; i++)
        if (native_word(bytes + i * 8) != cell_at(entry, from + i))
            return false;
    return key.len % 8 == 0 || key_rest(bytes, key.len) == cell_at(entry, from + whole);
}

/* An IPv6 address, a UUID, 16 digits of a hash: what has 16 bytes is compared on the way. */
static inline bool entry_has_key(const struct entry *entry, size_t from, struct weir_key key)
{
    const unsigned char *bytes = key.data;
    if (__builtin_expect(key.len == 16, 1))
        return ((native_word(bytes) ^ cell_at(entry, from)) | (native_word(bytes + 8) ^ cell_at(entry, from + 1))) == 0;
    return entry_has_bytes(entry, from, key);
}

#endif
