/* look_steps.h - the steps of a decision without the mutex: finding the record of a key, reading a state, and
 * publishing a new one. look.h puts them together and says why they are safe.
 */
#ifndef BACKENDS_MEMORY_LOOK_STEPS_H
#define BACKENDS_MEMORY_LOOK_STEPS_H

#include "backends/memory/parts.h"
#include "core/limiter/limiter.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define LOOK_UNGUESSED WORD_BUSY /* no entry's `whose` contains this bit */

/* What a look knows of an entry. Until the entry is found, `rule` and `whose` are a guess, or NULL and
 * LOOK_UNGUESSED, which match no entry. (0 would match freed entries, to which a stale hint can still lead.) The
 * struct stays in registers: functions that are not inlined get a copy. */
struct look {
    struct record *record;
    const struct rule *rule;
    uint64_t word;  /* the entry's word as it was read */
    uint64_t whose; /* the word's identifying part */
};

/* Guess the entry's rule from the request's limit. Finding it through the entry's word would wait for two cache
 * misses in a row; with the guess, both loads overlap. */
static inline struct look look_guess(const struct table *table, const struct weir_backend_request *request)
{
    const struct rule *rule = rule_guess(&table->rules, request->limit_id);
    if (__builtin_expect(rule && rule->limit_id == request->limit_id, 1))
        return (struct look){ .rule = rule, .whose = word_whose(rule->number, request->key.len) };
    return (struct look){ .whose = LOOK_UNGUESSED };
}

/* Return the rule of an entry that does not match the guess but may still be the request's, or NULL. */
__attribute__((noinline)) static const struct rule *
look_closely(const struct table *table, const struct weir_backend_request *request, uint64_t word)
{
    const uint32_t number = word_rule(word);
    const struct rule *rule = number != 0 ? rule_at(&table->rules, number) : NULL;
    const bool may_be = rule && rule->limit_id == request->limit_id && word_len(word) == request->key.len;
    return may_be ? rule : NULL;
}

/* True if a record has its state, of `words`, behind its entry. */
static inline bool look_is_apart(const struct table *table, const struct record *record, size_t words, size_t key_len)
{
    return __builtin_expect(words > SUMMARY_WORDS, 0) && !cells_fit(words, key_len) && cells_has(&table->cells, record);
}

/* True if a record under look->rule has the request's key. */
static inline bool look_has_key(const struct table *table, const struct look *look, struct weir_key key)
{
    size_t at = look->rule->words;
    if (look_is_apart(table, look->record, at, key.len))
        at = SUMMARY_WORDS;
    return record_has_key(look->record, at, key);
}

/* True if a record is that of the request's key. */
static inline bool look_at(const struct table *table, struct record *record, const struct weir_backend_request *request,
                           struct look *look)
{
    look->record = record;
    look->word = record_word(record);
    if (__builtin_expect((look->word & WORD_WHOSE) != look->whose, 0)) {
        const struct rule *rule = look_closely(table, request, look->word);
        if (!rule)
            return false; /* the guess stays for the next record */
        look->rule = rule;
        look->whose = look->word & WORD_WHOSE;
    }
    return look_has_key(table, look, request->key);
}

/* A hint leads to a cell, by its offset in bytes, or to an entry with its own record, by LOOK_HINTS_OWN, its place, and
 * how often pages had been recast when the hint was written. If that count has changed, the place may lead to an entry
 * of another size. Acquire pairs with release where the hint is written: a thread that did not find the record by its
 * cell must still see the region that it lies in. */
#define LOOK_HINTS_OWN (UINT64_C(1) << 63)

/* Find the record that a request's hint leads to. False: it leads to none. */
static inline bool look_hinted(const struct table *table, const struct weir_backend_hint *hint_at,
                               struct record **record)
{
    const uint64_t hint = __atomic_load_n(&hint_at->opaque[0], __ATOMIC_ACQUIRE);
    if (__builtin_expect((int64_t)hint > 0, 1)) {
        *record = (struct record *)(void *)((char *)table->cells.groups + hint);
        return true;
    }
    if (hint == 0 || (uint32_t)(hint >> 32) != (slab_recast(&table->slab) | LOOK_HINTS_OWN >> 32))
        return false;
    *record = entry_own(slab_entry(&table->slab, (uint32_t)hint));
    return true;
}

/* Let a request's hint lead to a record. `recast` was read before the record was found. */
static inline void look_hint(const struct table *table, struct weir_backend_hint *hint, const struct record *record,
                             uint32_t place, uint32_t recast)
{
    const uint64_t value = place == 0 ? (uintptr_t)record - (uintptr_t)table->cells.groups
                                      : LOOK_HINTS_OWN | (uint64_t)recast << 32 | place;
    __atomic_store_n(&hint->opaque[0], value, __ATOMIC_RELEASE);
}

/* Where a key's cell may be. `second` may be NULL in a shard with few groups. */
struct look_groups {
    union {
        struct {
            const struct cell_group *first, *second;
        };
        const struct cell_group *both[2];
    };
};

/* Find the groups of a key and begin to fetch both of them whole: which line is needed is known only when the tags are.
 * `always`, a constant: otherwise the second group of a small table is left out, because it is near anyway. Nothing is
 * read that a reader must protect, so this may come before readers_enter(). */
__attribute__((always_inline)) static inline struct look_groups look_fetch_by(const struct table *table, uint64_t hash,
                                                                              bool always)
{
    const struct cells *cells = &table->cells;
    const size_t shard = (size_t)(hash >> table->shard_shift);
    const uint32_t count = cells_groups(cells, shard);
    struct look_groups at = { .first = &cells->groups[cells_index(cells, shard, cells_number(hash, false, count))] };
    __builtin_prefetch(&at.first->head);
    __builtin_prefetch(&at.first->words[CELLS_SECOND_LINE]);
    if (always || count > CELLS_CHUNK) {
        at.second = &cells->groups[cells_index(cells, shard, cells_number(hash, true, count))];
        __builtin_prefetch(&at.second->head);
        __builtin_prefetch(&at.second->words[CELLS_SECOND_LINE]);
    }
    return at;
}

__attribute__((always_inline)) static inline struct look_groups look_fetch(const struct table *table, uint64_t hash)
{
    return look_fetch_by(table, hash, false);
}

/* Return the second group of a key. */
static inline const struct cell_group *look_second(const struct table *table, uint64_t hash,
                                                   const struct look_groups *at)
{
    return at->second ? at->second : cells_group(&table->cells, (size_t)(hash >> table->shard_shift), hash, true);
}

/* Return what a cell leads to: its own record, or that of the entry whose place it holds, which is then in *place;
 * NULL: nothing. */
static inline struct record *look_in_cell(const struct table *table, struct record *cell, uint32_t *place)
{
    const uint64_t word = record_word(cell);
    *place = 0;
    if (__builtin_expect(word_rule(word) != 0, 1))
        return cell;
    *place = cells_place(cell, word);
    return *place != 0 ? entry_own(slab_entry(&table->slab, *place)) : NULL;
}

/* Find the first cell with a key's tag, in its first group or else in the second one. */
__attribute__((always_inline)) static inline bool look_first_cell(const struct table *table, uint64_t hash,
                                                                  const struct look_groups *at, struct record **record)
{
    const uint64_t tag = cells_tag(hash);
    const struct cell_group *group = at->first;
    uint64_t matches = cells_matches(group, tag);
    if (matches == 0) {
        group = look_second(table, hash, at);
        matches = cells_matches(group, tag);
    }
    if (matches == 0)
        return false;
    *record = cells_record(group, cells_slot(matches));
    return true;
}

/* Return the first cell with a key's tag in either of its groups; the last cell of the second group, if there is none.
 * There is no branch: in a large shard every other guess would be wrong, and would end what has begun for the keys that
 * follow. */
__attribute__((always_inline)) static inline struct record *look_probable_cell(const struct look_groups *at,
                                                                               uint64_t hash)
{
    const uint64_t first = atomic_load_explicit(&at->first->head, memory_order_acquire);
    const uint64_t second = atomic_load_explicit(&at->second->head, memory_order_acquire);
#if defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128(), heads = _mm_set_epi64x((int64_t)second, (int64_t)first);
    __m128i tag = _mm_shufflelo_epi16(_mm_cvtsi64_si128((int64_t)hash), 0xaa); /* as cells_tag() */
    tag = _mm_unpacklo_epi64(tag, tag);
    tag = _mm_sub_epi16(tag, _mm_cmpeq_epi16(tag, zero));
    const unsigned same = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi16(heads, tag)); /* two bits a cell */
    const unsigned bit = (unsigned)__builtin_ctz((same & 0x3f3f) | 1u << (8 + 2 * (CELLS_SLOTS - 1)));
    return cells_record(at->both[bit / 8], bit % 8 / 2);
#else
    const uint64_t tag = cells_tag(hash);
    const uint64_t in_first = cells_matching(first, tag), in_second = cells_matching(second, tag) | CELLS_LAST;
    uint64_t is_second = in_first == 0 ? UINT64_MAX : 0;
    __asm__("" : "+r"(is_second)); /* otherwise the compiler makes a branch of it again */
    const uintptr_t one = (uintptr_t)at->first, other = (uintptr_t)at->second;
    const struct cell_group *group = (const struct cell_group *)(one ^ ((one ^ other) & is_second));
    return cells_record(group, cells_slot(in_first | (in_second & is_second)));
#endif
}

/* Begin to fetch a record behind its entry, up to where a key of 16 bytes ends. */
static inline void look_fetch_record(const struct record *record)
{
    __builtin_prefetch(&record->word, 1);
    __builtin_prefetch(&record->words[3], 1);
}

__attribute__((always_inline)) static inline bool
look_by_cells(const struct table *table, const struct weir_backend_request *request, struct look *look)
{
    const uint32_t recast = request->hint ? slab_recast(&table->slab) : 0;
    const struct look_groups at = look_fetch(table, request->hash);
    for (int second = 0; second < 2; second++) {
        const struct cell_group *group = second ? look_second(table, request->hash, &at) : at.first;
        uint64_t matches = cells_matches(group, cells_tag(request->hash));
        for (; matches != 0; matches &= matches - 1) {
            uint32_t place;
            struct record *record = look_in_cell(table, cells_record(group, cells_slot(matches)), &place);
            if (!record || !look_at(table, record, request, look))
                continue;
            if (request->hint)
                look_hint(table, request->hint, record, place, recast);
            return true;
        }
    }
    return false;
}

enum look_end { LOOK_DONE, LOOK_AGAIN, LOOK_GIVEN_UP };

/* Copy the state. True if the copy is a state of that rule: before this check the numbers may be another key's,
 * and no algorithm defines what they would decide. */
static inline bool look_read(const struct look *look, int64_t *state, size_t words)
{
    record_read(look->record, 0, state, words);
    return atomic_load_explicit(&look->record->word, memory_order_relaxed) == look->word;
}

static inline bool look_publish(const struct look *look, const int64_t *state, size_t words)
{
    uint64_t word = look->word;
    struct record *record = look->record;
    __asm__("" : "+r"(record)); /* otherwise the compiler keeps the addresses of the words in registers, too */
    assert((word & WORD_BUSY) == 0);
    if (!record_claim(record, &word))
        return false;
    record_write(record, 0, state, words);
    record_release(record, word + WORD_ONE_CHANGE);
    return true;
}

/* Return the entry of a record; NULL: its cell has become free. */
static inline const struct entry *look_entry(const struct table *table, const struct record *record)
{
    if (!cells_has(&table->cells, record))
        return (const struct entry *)(const void *)((const char *)record - offsetof(struct entry, own));
    const uint32_t place = atomic_load_explicit(cells_owner(&table->cells, record), memory_order_acquire);
    return place != 0 ? slab_entry(&table->slab, place) : NULL;
}

/* True if the entry of a record that becomes idle at `idle_us` must be filed under an earlier time than it is. Relaxed:
 * while the time or the entry changes, the record is claimed, so that the look publishes nothing. */
static inline bool look_is_due_earlier(const struct table *table, const struct record *record, int64_t idle_us)
{
    const struct entry *entry = look_entry(table, record);
    return !entry || idle_us < atomic_load_explicit(&entry->due_us, memory_order_relaxed);
}

#endif
