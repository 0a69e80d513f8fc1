/* look.h - decides for a key that is there without its shard's mutex: the fast path.
 *
 *     index line, by the hash      where an entry with such a hash is
 *     entry                        its word: whose it is; its key: yes; its rule: the plan that the request asks for
 *     state                        a copy, if nobody has changed anything since the word was read
 *     decide                       on the copy
 *     publish                      if that changed anything, and still nobody has changed anything
 *
 * What could go wrong without the mutex, and why it does not:
 *
 * - The entry is dropped, and its memory serves another key: its word has changed. All that is read is followed by
 *   a comparison of the word with what it was, and belongs to one state of one key then; what is written is preceded by
 *   a swap of it.
 * - Its memory serves something else altogether, or its rule is forgotten: not while anybody looks (readers.h).
 * - The index is wrong, old, or being rewritten: it only says where to look. Whoever finds nothing takes the mutex.
 * - The state changes in the middle of being read: the word has changed as well, or is marked as busy (memory/entry.h).
 * - Several keys are decided for as one step (memory/all.c): their entries are claimed all the while.
 * - The limit is redefined: the entry is brought under the new plan by one that has the mutex, and claims it. Whoever
 *   looked before finds the word changed; whoever looks after finds a rule that is not the request's, and takes the
 *   mutex, as do all for whom the entry would have to be dropped, moved, or noted for the sweep.
 * - The process forks: nobody may look while it does, where forks are watched (memory.c); elsewhere the child may not
 *   use the limiter.
 *
 * The sweep goes by a lower bound of when an entry will be as good as new. A take makes that later, so nothing need be
 * noted, unless the clock has stepped back so far that the state's time moves back: that is left to those with the
 * mutex.
 */
#ifndef BACKENDS_MEMORY_LOOK_H
#define BACKENDS_MEMORY_LOOK_H

#include "backends/memory/decide.h"

#define LOOK_TRIES 32       /* while others change the same key */
#define LOOK_PAUSE 32       /* in turns of look_pause(), after the first of them, and as many more after each ... */
#define LOOK_MOST_PAUSE 256 /* ... up to this */
#define LOOK_WORDS 48       /* states that are larger are left to those with the mutex */

#define LOOK_UNGUESSED WORD_BUSY /* is no part of whose a word is */

/* What an entry is known by. Before it is found, `rule` and `whose` are those that it is guessed to have, or NULL and
 * LOOK_UNGUESSED, which no entry has: 0 have those that are nobody's, and a place that was noted or a late look leads to
 * them. It stays in registers: who is not inlined gets a copy. */
struct look {
    struct entry *entry;
    const struct rule *rule;
    uint64_t word;  /* its, as it was read */
    uint64_t whose; /* of the word */
};

/* The request's rule is known before the entry as a rule, and nothing waits for the way from the one to the other. */
static inline struct look look_guess(const struct table *table, const struct weir_backend_request *request)
{
    const struct rule *rule = rule_guess(&table->rules, request->limit_id);
    if (__builtin_expect(rule && rule->key.limit_id == request->limit_id, 1))
        return (struct look){ .rule = rule, .whose = word_whose(rule->number, request->key.len) };
    return (struct look){ .whose = LOOK_UNGUESSED };
}

/* An entry that is not as guessed may be the request's all the same: its rule, or NULL. */
__attribute__((noinline)) static const struct rule *
look_closely(const struct table *table, const struct weir_backend_request *request, uint64_t word)
{
    const uint32_t number = word_rule(word);
    const struct rule *rule = number != 0 ? rule_at(&table->rules, number) : NULL;
    const bool may_be = rule && rule->key.limit_id == request->limit_id && word_len(word) == request->key.len;
    return may_be ? rule : NULL;
}

/* Whether the entry at a place is that of the request's key. */
static inline bool look_at(const struct table *table, uint32_t place, const struct weir_backend_request *request,
                           struct look *look)
{
    look->entry = slab_entry(&table->slab, place);
    look->word = entry_word(look->entry);
    if (__builtin_expect((look->word & WORD_WHOSE) != look->whose, 0)) {
        const struct rule *rule = look_closely(table, request, look->word);
        if (!rule)
            return false; /* the guess stays as it is, for the next one */
        look->rule = rule;
        look->whose = look->word & WORD_WHOSE;
    }
    return entry_has_key(look->entry, look->rule->words, request->key);
}

/* The place by the request's hint, which says how often a page had come to serve another size by then as well; 0: none.
 * Acquire, and release where it is written: who did not find the place by the index must see the region that it leads
 * to all the same. */
static inline uint32_t look_hinted(const struct table *table, const struct weir_backend_request *request)
{
    const uint64_t hint = __atomic_load_n(&request->hint->opaque[0], __ATOMIC_ACQUIRE);
    return (uint32_t)(hint >> 32) == slab_recast(&table->slab) ? (uint32_t)hint : 0;
}

static inline const struct index_line *look_line(const struct table *table, uint64_t hash)
{
    return index_line(&table->index, (size_t)(hash >> table->shard_shift), hash);
}

static inline bool look_by_index(const struct table *table, const struct weir_backend_request *request,
                                 struct look *look)
{
    const struct index_line *line = look_line(table, request->hash);
    uint64_t matches = index_matches(line, index_tag(request->hash));
    const uint32_t recast = request->hint ? slab_recast(&table->slab) : 0;
    for (; matches != 0; matches &= matches - 1) {
        const uint32_t place = index_place(line, index_first(matches));
        if (place == 0 || !look_at(table, place, request, look))
            continue;
        if (request->hint)
            __atomic_store_n(&request->hint->opaque[0], (uint64_t)recast << 32 | place, __ATOMIC_RELEASE);
        return true;
    }
    return false;
}

enum look_end { LOOK_DONE, LOOK_AGAIN, LOOK_GIVEN_UP };

/* A copy of the state. Only after this is it known to be a state of that rule: what another key's numbers would come to,
 * no algorithm answers for. */
static inline bool look_read(const struct look *look, int64_t *state, size_t words)
{
    entry_read(look->entry, 0, state, words);
    return atomic_load_explicit(&look->entry->word, memory_order_relaxed) == look->word;
}

static inline bool look_publish(const struct look *look, const int64_t *state, size_t words)
{
    uint64_t word = look->word;
    if (!entry_claim(look->entry, &word))
        return false;
    entry_write(look->entry, 0, state, words);
    entry_release(look->entry, word_next(word));
    return true;
}

/* One decision, on the copy, if nobody comes in between: by a token bucket with greedy refill, whose numbers stay in
 * registers. Others wait for the change, and none for what is told of it. */
static inline enum look_end look_greedy(const struct look *look, const struct weir_backend_request *request,
                                        struct weir_decision *out)
{
    const struct weir_plan *plan = &look->rule->plan;
    int64_t state[2];
    if (!look_read(look, state, 2))
        return LOOK_AGAIN;
    const int64_t tick = state[1];
    struct level level = level_read(plan, state, request->now_us);
    const bool allowed = level_ask(plan, &level, request->cost, request->verb);
    if (level.changed) {
        if (level.used == 0 || level.tick < tick) /* to be dropped, or noted for the sweep */
            return LOOK_GIVEN_UP;
        level_write(&level, state);
        if (!look_publish(look, state, 2))
            return LOOK_AGAIN;
    }
    level_tell(plan, &level, request->now_us, request->cost, allowed, out);
    return LOOK_DONE;
}

/* The same by any algorithm. Not handed a struct, which would be copied by wider words than it was written by: those wait
 * for what is written. Nor is the answer copied, for the same reason. */
__attribute__((noinline)) static enum look_end look_any(struct entry *entry, const struct rule *rule, uint64_t word,
                                                        const struct weir_backend_request *request,
                                                        struct weir_decision *out)
{
    const struct look look = { .entry = entry, .rule = rule, .word = word };
    const struct weir_plan *plan = &rule->plan;
    const size_t words = rule->words, time_at = plan->algorithm == WEIR_SLIDING_WINDOW ? 0 : 1;
    int64_t state[LOOK_WORDS];
    if (words > LOOK_WORDS)
        return LOOK_GIVEN_UP;
    if (!look_read(&look, state, words))
        return LOOK_AGAIN;
    const int64_t time = state[time_at];
    const struct weir_decision before = *out;
    if (!state_decide(plan, state, request->now_us, request->cost, request->verb, out))
        return LOOK_DONE;
    const bool is_left = out->reset_after_us == 0 || state[time_at] < time;
    if (!is_left && look_publish(&look, state, words))
        return LOOK_DONE;
    *out = before;
    return is_left ? LOOK_GIVEN_UP : LOOK_AGAIN;
}

/* Let the others have the entry's cache line for a while: who takes it away from one in the middle of a change makes
 * both slower. */
static inline void look_pause(unsigned times)
{
    for (unsigned i = 0; i < times; i++)
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb");
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* While others change the same key; as often as it takes, within reason: one that is busy for long is claimed by somebody
 * with the mutex, or by one who was preempted. */
__attribute__((noinline)) static bool look_on(struct look look, const struct weir_backend_request *request,
                                              struct weir_decision *out)
{
    unsigned pause = LOOK_PAUSE;
    for (int tries = 0; tries < LOOK_TRIES; tries++) {
        look_pause(pause);
        pause = pause < LOOK_MOST_PAUSE ? pause + LOOK_PAUSE : pause;
        look.word = entry_word(look.entry);
        if ((look.word & WORD_BUSY) != 0)
            continue;
        /* It may have become another key's meanwhile, and be under the same rule. */
        if ((look.word & WORD_WHOSE) != look.whose || !entry_has_key(look.entry, look.rule->words, request->key))
            break;
        const enum look_end end = look_any(look.entry, look.rule, look.word, request, out);
        if (end != LOOK_AGAIN)
            return end == LOOK_DONE;
    }
    return false;
}

/* Decide for the request's key, by an entry that is there under the plan that the request asks for, probably at `place`
 * if that is not 0. False: take the mutex; *out is as it was. By one who looks. */
__attribute__((always_inline)) static inline bool look_and_decide(const struct table *table,
                                                                  const struct weir_backend_request *request,
                                                                  uint32_t place, struct weir_decision *out)
{
    struct look look = look_guess(table, request);
    if (!(place != 0 && look_at(table, place, request, &look)) && !look_by_index(table, request, &look))
        return false;
    if (!rule_is_current(look.rule, request))
        return false;
    enum look_end end = LOOK_AGAIN;
    if (__builtin_expect((look.word & WORD_BUSY) == 0, 1))
        end = __builtin_expect(look.rule->is_greedy, 1) ? look_greedy(&look, request, out)
                                                        : look_any(look.entry, look.rule, look.word, request, out);
    if (__builtin_expect(end == LOOK_AGAIN, 0))
        return look_on(look, request, out);
    return end == LOOK_DONE;
}

/* Whether it is a request for those who look at all. */
static inline bool look_may(const struct weir_backend_request *request)
{
    return request->verb <= WEIR_PEEK && request->ahead == 0 && request->key.len < (size_t)1 << WORD_LEN_BITS;
}

#endif
