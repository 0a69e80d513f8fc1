/* entry.h - a key's entry and its record, whose word lets threads read and change the record without a lock.
 *
 * The word is 64 bits. It holds all that must stay the same between reading a record and writing to it:
 *
 * - the number of the rule that the state was written under, which also tells the limit
 * - the length of the key
 * - a count of changes, which every change raises
 * - bit 0, which is set while a change is under way: the record, and the entry, is then claimed
 *
 * To read: load the word, with bit 0 clear. Copy the key and the state. Load the word again. If it is the same,
 * the copy is one state of one key.
 *
 * To change: read, and decide on the copy. Swap the word for itself with bit 0 set (compare and exchange). If
 * that succeeds, nothing has changed, and no other thread can change the entry now. Write the new state. Write
 * the word with the count raised and bit 0 clear.
 *
 * This is a seqlock whose writer has decided beforehand, so that bit 0 is set for three stores only. Words of the
 * state are stored with release order and loaded with acquire order. So a thread that loads a new one also sees
 * the claimed word before it, as in core/policy/plan_cell.h. (Boehm, "Can seqlocks get along with programming
 * language memory models?", 2012.)
 *
 * A thread that holds the shard's mutex may keep an entry claimed for longer. A thread that finds an entry
 * claimed retries for a while and then takes the mutex. So only the thread that holds the mutex ever waits for a
 * claim by a preempted thread.
 *
 * The memory of a record stays one while any thread reads it: a cell is always a cell (cells.h), and an entry stays an
 * entry of that size (slab.h, readers.h). Its word keeps counting. A thread that slept while one entry ended and
 * another began therefore finds the word changed. The count has 33 bits and takes at least a minute and a half of
 * changes to one key to wrap. A thread that sleeps for exactly that long between two stores could be fooled.
 */
#ifndef BACKENDS_MEMORY_ENTRY_H
#define BACKENDS_MEMORY_ENTRY_H

#include "backends/memory/rules.h"
#include "backends/shared/slab.h"
#include "core/algorithm/sliding_window.h"
#include "core/ground/hash.h"

/* From the lowest bit up: busy, the key's length, the rule's number, and the count, which may overflow. */
#define WORD_BUSY UINT64_C(1)
#define WORD_LEN_BITS 10
#define WORD_RULE_SHIFT RULE_SHIFT
#define WORD_COUNT_SHIFT (WORD_RULE_SHIFT + RULE_BITS)
#define WORD_ONE_CHANGE (UINT64_C(1) << WORD_COUNT_SHIFT)
#define WORD_WHOSE ((WORD_ONE_CHANGE - 1) & ~WORD_BUSY) /* length and rule: what identifies the entry */

_Static_assert(WORD_RULE_SHIFT == 1 + WORD_LEN_BITS, "the number follows the length");
_Static_assert(WORD_COUNT_SHIFT <= 32, "half a word says whose a record is, and whether it is busy");
_Static_assert(64 - WORD_COUNT_SHIFT >= 33, "room for the count, see above");
_Static_assert(SLAB_MAX_ENTRY <= 1 << WORD_LEN_BITS, "keys of entries that have a place are shorter than this");

/* What threads read and change by the word: in a cell of memory/cells.h or, if it is longer, behind its entry. */
struct record {
    _Atomic uint64_t word; /* the rule's number is 0 in a freed record */
    /* (w) The state and the former state: the rule's `words` in all. Then the key in whole words, padded with
     * zeros; it is constant while the rule's number is not 0. */
    _Atomic int64_t words[];
};

/* (s) shard->mutex, (w) guarded by the word */
struct entry {
    union {
        UT_hash_handle hh; /* (s) except its members `tbl` and `key`: the key is in the record */
        struct {
            struct record *record; /* (s) moves with its cell; a sentinel has uthash's table here */
            char between[offsetof(UT_hash_handle, key) - sizeof(void *)];
            _Atomic int64_t due_us; /* (s) writers, with the entry claimed or new; memory/due.h */
        };
    };
    _Atomic uint64_t own[]; /* a record, unless that is in a cell; if it is divided, a record of the state alone */
};

_Static_assert(sizeof(struct entry) == sizeof(UT_hash_handle), "56 bytes, on the systems at hand");
_Static_assert(offsetof(UT_hash_handle, tbl) == 0, "record takes its place");
_Static_assert(sizeof(const void *) == sizeof(int64_t), "due_us takes the place of a pointer");

#define ENTRY_NOT_DUE INT64_MAX
#define ENTRY_HELD UINT32_C(0x80000000)  /* in hh.keylen: a thread with the mutex has claimed the entry */
#define ENTRY_APART UINT32_C(0x40000000) /* in hh.keylen: the state is behind the entry, the rest in a cell (cells.h) */
#define SUMMARY_WORDS 2                  /* between the word and the key of such a record */
_Static_assert(SUMMARY_WORDS == SLIDING_SUMMARY_WORDS, "a sliding window's summary");

/* Return the record behind an entry. */
static inline struct record *entry_own(struct entry *entry)
{
    return (struct record *)(void *)entry->own;
}

static inline bool entry_has_own(const struct entry *entry)
{
    return (const void *)entry->record == (const void *)entry->own;
}

static inline size_t entry_key_len(const struct entry *entry)
{
    return entry->hh.keylen & ~(ENTRY_HELD | ENTRY_APART);
}

static inline bool entry_is_apart(const struct entry *entry)
{
    return (entry->hh.keylen & ENTRY_APART) != 0;
}

/* Return where the key of an entry's record begins, if its state has `words`. */
static inline size_t entry_key_at(const struct entry *entry, size_t words)
{
    return entry_is_apart(entry) ? SUMMARY_WORDS : words;
}

/* Make an entry's handle from another one, which is in the same place of its bucket, except `record`. Member by member,
 * because a look may read due_us of what was here before. */
static inline void entry_copy_handle(struct entry *entry, const struct entry *from)
{
    entry->hh.prev = from->hh.prev;
    entry->hh.next = from->hh.next;
    entry->hh.hh_prev = from->hh.hh_prev;
    entry->hh.hh_next = from->hh.hh_next;
    entry->hh.keylen = from->hh.keylen;
    entry->hh.hashv = from->hh.hashv;
    atomic_store_explicit(&entry->due_us, atomic_load_explicit(&from->due_us, memory_order_relaxed),
                          memory_order_relaxed);
}

/* Return the words of a record behind its word. */
static inline size_t record_words(size_t words, size_t key_len)
{
    return words + (key_len + 7) / 8;
}

/* Return the bytes of an entry with its own record. One whose record is in a cell has sizeof(struct entry). */
static inline size_t entry_bytes(size_t words, size_t key_len)
{
    return sizeof(struct entry) + sizeof(struct record) + record_words(words, key_len) * sizeof(int64_t);
}

/* Return the bytes of an entry with its state behind it: a record without a key. */
static inline size_t entry_apart_bytes(size_t words)
{
    return entry_bytes(words, 0);
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

/* Return the word after one more change, not busy. */
static inline uint64_t word_next(uint64_t word)
{
    return (word & ~WORD_BUSY) + WORD_ONE_CHANGE;
}

/* Return the identifying part of a word, for a length that the word can hold. With a longer one it is another's. */
static inline uint64_t word_whose_short(uint32_t rule, size_t key_len)
{
    return (uint64_t)rule << WORD_RULE_SHIFT | (uint64_t)key_len << 1;
}

/* Return the same for any length. Of one that the word cannot hold, only the lower bits count. */
static inline uint64_t word_whose(uint32_t rule, size_t key_len)
{
    return word_whose_short(rule, key_len & (((size_t)1 << WORD_LEN_BITS) - 1));
}

/* Return the word after one more change, under another rule or with another key. */
static inline uint64_t word_of(uint64_t word, uint32_t rule, size_t key_len)
{
    return (word_next(word) & ~WORD_WHOSE) | word_whose(rule, key_len);
}

static inline uint64_t record_word(const struct record *record)
{
    return atomic_load_explicit(&record->word, memory_order_acquire);
}

/* Claim the record: true if nothing has changed since `word`. Then no other thread changes it until
 * record_release(). */
static inline bool record_claim(struct record *record, uint64_t *word)
{
    return atomic_compare_exchange_strong_explicit(&record->word, word, *word | WORD_BUSY, memory_order_acquire,
                                                   memory_order_acquire);
}

static inline void record_release(struct record *record, uint64_t word)
{
    atomic_store_explicit(&record->word, word, memory_order_release);
}

/* Return the word of a record that is claimed, or that no look can claim. */
static inline uint64_t record_held_word(const struct record *record)
{
    return atomic_load_explicit(&record->word, memory_order_relaxed);
}

/* Claim a record that the caller has not claimed. Waits for a thread that is changing it without the mutex: for three
 * stores as a rule, or until a thread that was preempted between them runs again. */
void record_hold(struct record *record);

static inline uint64_t entry_word(const struct entry *entry)
{
    return record_word(entry->record);
}

/* ---- State and key ---- */

static inline void record_read(const struct record *record, size_t from, int64_t *state, size_t words)
{
    for (size_t i = 0; i < words; i++)
        state[i] = atomic_load_explicit(&record->words[from + i], memory_order_acquire);
}

/* Write to a record that is claimed or freed. */
static inline void record_write(struct record *record, size_t from, const int64_t *state, size_t words)
{
    for (size_t i = 0; i < words; i++)
        atomic_store_explicit(&record->words[from + i], state[i], memory_order_release);
}

/* Prepare the memory of an entry with its state behind it. A late look may take that for a record, so it must find one
 * without a rule there, and the count continued. */
static inline void entry_set_apart(struct entry *entry)
{
    struct record *own = entry_own(entry);
    record_release(own, word_of(record_held_word(own), 0, 0));
}

/* Return the record that has an entry's state. */
static inline struct record *entry_stated(const struct entry *entry)
{
    return entry_is_apart(entry) ? entry_own((struct entry *)(uintptr_t)entry) : entry->record;
}

static inline void entry_read(const struct entry *entry, size_t from, int64_t *state, size_t words)
{
    record_read(entry_stated(entry), from, state, words);
}

/* Write to an entry that is claimed or new. */
static inline void entry_write(struct entry *entry, size_t from, const int64_t *state, size_t words)
{
    record_write(entry_stated(entry), from, state, words);
}

/* Bring the state behind a claimed entry up to date from its summary; or the summary from the state. `rule` is the
 * entry's. */
void entry_open(const struct rule *rule, struct entry *entry);
void entry_close(const struct rule *rule, struct entry *entry);

/* Return the last word of a key, padded with zeros, its bytes in memory order. */
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

/* Looks never use an entry whose state has more words than this, because it is too large for a page (slab.h). A thread
 * that has claimed it may therefore change the state in place, and needs no copy of it on its stack. */
#define ENTRY_COPIED_WORDS ((SLAB_MAX_ENTRY - sizeof(struct entry) - sizeof(struct record)) / sizeof(int64_t))

/* Return a state of a claimed entry, to be read in place: no other thread changes it. */
static inline const int64_t *entry_state(const struct entry *entry, size_t from)
{
    return (const int64_t *)&entry_stated(entry)->words[from];
}

/* Return room for a state of a claimed entry, to be changed and then passed to entry_put(): `copy`, or the state
 * itself. */
static inline int64_t *entry_room(struct entry *entry, size_t from, int64_t copy[ENTRY_COPIED_WORDS], size_t words)
{
    return words > ENTRY_COPIED_WORDS ? (int64_t *)&entry_stated(entry)->words[from] : copy;
}

/* Return the same, filled with the state. */
static inline int64_t *entry_get(struct entry *entry, size_t from, int64_t copy[ENTRY_COPIED_WORDS], size_t words)
{
    int64_t *state = entry_room(entry, from, copy, words);
    if (state == copy)
        entry_read(entry, from, copy, words);
    return state;
}

static inline void entry_put(struct entry *entry, size_t from, const int64_t *state, size_t words)
{
    if (words <= ENTRY_COPIED_WORDS)
        entry_write(entry, from, state, words);
}

static inline void record_write_key(struct record *record, size_t from, struct weir_key key)
{
    const unsigned char *bytes = key.data;
    const size_t whole = key.len / 8;
    for (size_t i = 0; i < whole; i++)
        record_write(record, from + i, &(int64_t){ (int64_t)native_word(bytes + i * 8) }, 1);
    if (key.len % 8 != 0)
        record_write(record, from + whole, &(int64_t){ (int64_t)key_rest(bytes, key.len) }, 1);
}

static inline uint64_t record_at(const struct record *record, size_t at)
{
    return (uint64_t)atomic_load_explicit(&record->words[at], memory_order_acquire);
}

/* Compare keys of any length. */
__attribute__((noinline)) static bool record_has_bytes(const struct record *record, size_t from, struct weir_key key)
{
    const unsigned char *bytes = key.data;
    const size_t whole = key.len / 8;
    for (size_t i = 0; i < whole; i++)
        if (native_word(bytes + i * 8) != record_at(record, from + i))
            return false;
    return key.len % 8 == 0 || key_rest(bytes, key.len) == record_at(record, from + whole);
}

/* Compare keys. Those of 16 bytes (an IPv6 address, a UUID, 16 digits of a hash) are compared inline. */
static inline bool record_has_key(const struct record *record, size_t from, struct weir_key key)
{
    const unsigned char *bytes = key.data;
    if (__builtin_expect(key.len == 16, 1))
        return ((native_word(bytes) ^ record_at(record, from)) |
                (native_word(bytes + 8) ^ record_at(record, from + 1))) == 0;
    return record_has_bytes(record, from, key);
}

#endif
