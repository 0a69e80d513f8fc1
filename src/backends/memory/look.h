/* look.h - decides for an existing key without its shard's mutex: the fast path.
 *
 * A mutex costs two atomic read-modify-writes a decision and makes threads with different keys of one shard wait.
 * A look needs one compare-and-exchange, on the record itself.
 *
 *     cell          found by the hash and its tag; has the record or leads to it
 *     record        compare its word with the request's rule and length, then its key
 *     state         copy it; the word must not have changed
 *     decide        on the copy
 *     publish       if the decision changed the copy: claim the record, which fails if the word has changed; write
 *
 * What could go wrong without the mutex, and why it does not:
 *
 * - The key is dropped, or its record moves, and the memory serves another key. Then its word has changed. After
 *   everything that it reads, a look compares the word again, so that what it read is one state of one key; before it
 *   writes, it swaps the word.
 * - The memory serves another purpose, or the rule is forgotten. Neither happens while a thread looks
 *   (readers.h).
 * - A tag or a place is old or being rewritten. It only says where to look. A look that finds nothing takes the
 *   mutex.
 * - The state changes while it is read. Then the word has changed, or is marked busy (memory/entry.h).
 * - A group is decided as one step (memory/all.c). It keeps their records claimed for all that time.
 * - The limit is redefined. A thread with the mutex claims the record and brings it under the new plan. A look
 *   that began before finds the word changed; one that begins afterwards finds a rule that is not the request's
 *   and takes the mutex.
 * - The entry would have to be dropped, moved or noted for the sweep. The look gives up and takes the mutex.
 * - The process forks. Where forks are watched, no look runs during a fork (memory.c); elsewhere the child may
 *   not use the limiter.
 *
 * The sweep uses a lower bound of the time at which an entry becomes idle, `due_us`. A take or a charge only moves that
 * time later, so a look need not note anything. A return moves it back, mostly to a time that is still later than the
 * bound: the permits were taken since the entry was filed. What would move it below the bound is left to the threads
 * with the mutex: a return of more, or a clock that steps back so far that the state's time moves back.
 */
#ifndef BACKENDS_MEMORY_LOOK_H
#define BACKENDS_MEMORY_LOOK_H

#include "backends/memory/decide.h"
#include "backends/shared/wait_briefly.h"
#include "core/limiter/limiter.h"

#define LOOK_TRIES 32       /* tries while other threads change the same key */
#define LOOK_PAUSE 32       /* turns of wait_pause() after the first try; the pause grows by as much each time ... */
#define LOOK_MOST_PAUSE 256 /* ... up to this */
#define LOOK_WORDS 48       /* larger states are decided under the mutex */

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

/* True if a record in a cell has its state behind the entry, which has `words`. */
static inline bool look_is_apart(const struct table *table, const struct record *record, size_t words, size_t key_len)
{
    return words > SUMMARY_WORDS && !cells_fit(words, key_len) && cells_has(&table->cells, record);
}

/* True if a record under look->rule has the request's key. */
static inline bool look_has_key(const struct table *table, const struct look *look, struct weir_key key)
{
    const size_t words = look->rule->words;
    return record_has_key(look->record, look_is_apart(table, look->record, words, key.len) ? SUMMARY_WORDS : words,
                          key);
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

/* Where a key's cell may be. In a shard with few groups `second` is NULL. */
struct look_groups {
    const struct cell_group *first, *second;
};

/* Find the groups of a key and begin to fetch both of them whole: which line is needed is known only when the tags are.
 * The groups of a small table are near anyway. Nothing is read that a reader must protect, so this may come before
 * readers_enter(). */
__attribute__((always_inline)) static inline struct look_groups look_fetch(const struct table *table, uint64_t hash)
{
    const struct cells *cells = &table->cells;
    const size_t shard = (size_t)(hash >> table->shard_shift);
    const uint32_t count = cells_groups(cells, shard);
    struct look_groups at = { &cells->groups[cells_index(cells, shard, cells_number(hash, false, count))], NULL };
    __builtin_prefetch(&at.first->head);
    __builtin_prefetch(&at.first->words[CELLS_SECOND_LINE]);
    if (count > CELLS_CHUNK) {
        at.second = &cells->groups[cells_index(cells, shard, cells_number(hash, true, count))];
        __builtin_prefetch(&at.second->head);
        __builtin_prefetch(&at.second->words[CELLS_SECOND_LINE]);
    }
    return at;
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

/* Do that for one of many keys, whose groups are all being fetched. In a large shard it makes no branch of the tags in
 * the first group: every other guess would be wrong, and would end what has begun for the keys that follow. */
__attribute__((always_inline)) static inline bool
look_probable_cell(const struct table *table, uint64_t hash, const struct look_groups *at, struct record **record)
{
    if (!at->second)
        return look_first_cell(table, hash, at, record);
    const uint64_t tag = cells_tag(hash);
    const uint64_t in_first = cells_matches(at->first, tag), in_second = cells_matches(at->second, tag);
    uint64_t is_second = in_first == 0 ? UINT64_MAX : 0;
    __asm__("" : "+r"(is_second)); /* otherwise the compiler makes a branch of it again */
    const uint64_t matches = in_first | (in_second & is_second);
    const uintptr_t first = (uintptr_t)at->first, second = (uintptr_t)at->second;
    const struct cell_group *group = (const struct cell_group *)(first ^ ((first ^ second) & is_second));
    if (__builtin_expect(matches == 0, 0))
        return false;
    *record = cells_record(group, cells_slot(matches));
    __builtin_prefetch(&(*record)->words[GREEDY_WORDS + 1]);
    return true;
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

/* Decide by a token bucket with greedy refill, whose two numbers stay in registers. The decision is made of them once
 * the change is published: other threads wait for that only. */
__attribute__((always_inline)) static inline enum look_end
look_greedy(const struct look *look, int64_t now_us, int64_t cost, enum weir_verb verb, struct weir_decision *out)
{
    int64_t state[GREEDY_WORDS];
    if (!look_read(look, state, GREEDY_WORDS))
        return LOOK_AGAIN;
    const struct weir_plan *plan = &look->rule->plan;
    const int64_t tick = state[1];
    if (__builtin_expect(state[0] == 0, 0)) /* must be dropped */
        return LOOK_GIVEN_UP;
    struct level level = level_read(plan, state, now_us);
    if (__builtin_expect(level.changed && verb == WEIR_TAKE, 0)) /* the clock stepped back: to be noted for the sweep */
        return LOOK_GIVEN_UP;
    const bool allowed = level_ask(plan, level_given(&look->rule->known), &level, cost, verb);
    if (level.changed) {
        assert(level.used > 0 && level.tick >= tick);
        level_write(&level, state);
        if (!look_publish(look, state, GREEDY_WORDS))
            return LOOK_AGAIN;
    }
    (void)tick; /* for the assertion */
    level_tell_by(plan, level_given(&look->rule->known), &level, now_us, cost, allowed, out);
    return LOOK_DONE;
}

/* Give back to such a bucket, whose rule has a plain_whose, permits that were charged at `since_us`, as state_return()
 * does. There is no decision. */
__attribute__((always_inline)) static inline enum look_end
look_greedy_back(const struct table *table, const struct look *look, int64_t now_us, int64_t since_us, int64_t cost)
{
    int64_t state[GREEDY_WORDS];
    if (!look_read(look, state, GREEDY_WORDS))
        return LOOK_AGAIN;
    const struct weir_plan *plan = rule_plain_plan(look->rule);
    level_return(plan, state, since_us, cost);
    const struct level level = level_read(plan, state, now_us);
    if (level.used == 0) /* must be dropped */
        return LOOK_GIVEN_UP;
    const int64_t wait_us = level_wait_by(plan, level_given(&look->rule->known), &level, level.used, now_us);
    if (look_is_due_earlier(table, look->record, now_us + wait_us))
        return LOOK_GIVEN_UP;
    return look_publish(look, state, GREEDY_WORDS) ? LOOK_DONE : LOOK_AGAIN;
}

/* A copy of a state. The state lies in the record of the look or, if that is divided, in `apart`, and may have a
 * summary in the record. */
struct look_state {
    struct record *apart;
    bool has_summary;
    size_t words;
    int64_t copy[LOOK_WORDS];
};

/* Copy the state of a divided record. The entry is that of the record if the word has not changed since. While the
 * thread looks, it stays an entry of that size. */
static inline bool look_read_apart(const struct table *table, const struct look *look, struct look_state *state)
{
    int64_t summary[SUMMARY_WORDS];
    const struct entry *entry = look_entry(table, look->record);
    if (!entry || atomic_load_explicit(&look->record->word, memory_order_relaxed) != look->word)
        return false;
    state->apart = entry_own((struct entry *)(uintptr_t)entry);
    state->has_summary = rule_has_summary(look->rule);
    record_read(state->apart, 0, state->copy, state->words);
    if (!state->has_summary)
        return atomic_load_explicit(&look->record->word, memory_order_relaxed) == look->word;
    if (!look_read(look, summary, SUMMARY_WORDS))
        return false;
    if (!sliding_summary_open(summary, state->copy))
        memset(state->copy + SUMMARY_WORDS, 0, (state->words - SUMMARY_WORDS) * sizeof *state->copy);
    return true;
}

static inline bool look_publish_apart(const struct look *look, const struct look_state *state)
{
    int64_t summary[SUMMARY_WORDS];
    uint64_t word = look->word;
    if (state->has_summary)
        sliding_summary_close(&look->rule->plan, state->copy, summary);
    if (!record_claim(look->record, &word))
        return false;
    record_write(state->apart, 0, state->copy, state->words);
    if (state->has_summary)
        record_write(look->record, 0, summary, SUMMARY_WORDS);
    record_release(look->record, word + WORD_ONE_CHANGE);
    return true;
}

static inline bool look_may_by_summary(const struct weir_backend_request *request)
{
    return request->verb == WEIR_TAKE && request->ahead == 0 && request->cost > 0 && !request->reservation;
}

/* Take permits from a sliding window by its summary alone, if that suffices. */
static inline enum look_end look_take_by_summary(const struct look *look, const struct weir_backend_request *request,
                                                 struct weir_decision *out)
{
    int64_t summary[SUMMARY_WORDS];
    if (!look_read(look, summary, SUMMARY_WORDS))
        return LOOK_AGAIN;
    struct weir_decision decision;
    if (!sliding_summary_take(&look->rule->plan, summary, request->now_us, request->cost, &decision))
        return LOOK_GIVEN_UP;
    if (decision.allowed && !look_publish(look, summary, SUMMARY_WORDS))
        return LOOK_AGAIN;
    *out = decision;
    return LOOK_DONE;
}

/* Decide by any algorithm. The parameters are separate words, not a struct: a struct just written field by field
 * and then copied with wider loads stalls on store forwarding. The same holds for the answer, so it is written in
 * place. */
__attribute__((noinline)) static enum look_end look_any(const struct table *table, struct record *record,
                                                        const struct rule *rule, uint64_t word,
                                                        const struct weir_backend_request *request,
                                                        struct weir_decision *out)
{
    const struct look look = { .record = record, .rule = rule, .word = word };
    const struct weir_plan *plan = &rule->plan;
    const size_t words = rule->words, time_at = state_time_at(plan);
    struct look_state state;
    const bool is_apart = look_is_apart(table, record, words, word_len(word));
    if (is_apart && rule_has_summary(rule) && look_may_by_summary(request)) {
        const enum look_end end = look_take_by_summary(&look, request, out);
        if (end != LOOK_GIVEN_UP)
            return end;
    }
    if (words > LOOK_WORDS)
        return LOOK_GIVEN_UP;
    state.words = words;
    if (!(is_apart ? look_read_apart(table, &look, &state) : look_read(&look, state.copy, words)))
        return LOOK_AGAIN;
    const int64_t time = state.copy[time_at];
    const struct weir_decision before = *out;
    if (!state_decide_request(plan, state.copy, request->now_us, request->verb, request, out))
        return LOOK_DONE;
    const bool is_left = out->reset_after_us == 0 || state.copy[time_at] < time ||
                         (request->verb == WEIR_REFUND &&
                          look_is_due_earlier(table, record, request->now_us + out->reset_after_us));
    if (!is_left && (is_apart ? look_publish_apart(&look, &state) : look_publish(&look, state.copy, words)))
        return LOOK_DONE;
    *out = before;
    return is_left ? LOOK_GIVEN_UP : LOOK_AGAIN;
}

/* Try again while other threads change the same key, up to LOOK_TRIES times: an entry that stays busy for longer
 * is claimed by a thread that holds the mutex or that was preempted. */
__attribute__((noinline)) static bool look_retry(const struct table *table, struct look look,
                                                 const struct weir_backend_request *request, struct weir_decision *out)
{
    unsigned pause = LOOK_PAUSE;
    for (int tries = 0; tries < LOOK_TRIES; tries++) {
        wait_pause(pause);
        pause = pause < LOOK_MOST_PAUSE ? pause + LOOK_PAUSE : pause;
        look.word = record_word(look.record);
        if ((look.word & WORD_BUSY) != 0)
            continue;
        /* The memory may serve another key of the same rule by now. */
        if ((look.word & WORD_WHOSE) != look.whose || !look_has_key(table, &look, request->key))
            break;
        const enum look_end end = look_any(table, look.record, look.rule, look.word, request, out);
        if (end != LOOK_AGAIN)
            return end == LOOK_DONE;
    }
    return false;
}

/* Decide by an entry that exists under the request's plan, probably with the record `noted` if that is not NULL. False:
 * take the mutex; *out is unchanged. `is_plain`: look_may() is true. The caller is inside readers_enter(). */
__attribute__((always_inline)) static inline bool look_and_decide(const struct table *table,
                                                                  const struct weir_backend_request *request,
                                                                  struct record *noted, bool is_plain,
                                                                  struct weir_decision *out)
{
    struct look look = look_guess(table, request);
    if (!(noted && look_at(table, noted, request, &look)) && !look_by_cells(table, request, &look))
        return false;
    if (!rule_is_current(look.rule, request))
        return false;
    enum look_end end = LOOK_AGAIN;
    if (__builtin_expect((look.word & WORD_BUSY) == 0, 1))
        end = is_plain && __builtin_expect(rule_is_greedy(look.rule), 1)
                  ? look_greedy(&look, request->now_us, request->cost, request->verb, out)
                  : look_any(table, look.record, look.rule, look.word, request, out);
    if (__builtin_expect(end == LOOK_AGAIN, 0))
        return look_retry(table, look, request, out);
    return end == LOOK_DONE;
}

/* True if a look may decide the request, and look_greedy() if the limit is a greedy bucket. */
static inline bool look_may(const struct weir_backend_request *request)
{
    return request->verb <= WEIR_PEEK && request->ahead == 0 && !request->reservation &&
           request->key.len < (size_t)1 << WORD_LEN_BITS;
}

/* True if look_any() alone may decide it: a reservation, a charge, or a return. */
static inline bool look_may_rarely(const struct weir_backend_request *request)
{
    const bool takes = request->verb == WEIR_TAKE && request->ahead == 0 && request->reservation;
    const bool returns = request->verb == WEIR_REFUND && request->ahead > 0;
    return (takes || returns || request->verb == WEIR_CHARGE) && request->key.len < (size_t)1 << WORD_LEN_BITS;
}

#endif
