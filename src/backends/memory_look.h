/* memory_look.h - decides for a key that is there without its shard's mutex: the fast path.
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
 * - The state changes in the middle of being read: the word has changed as well, or is marked as busy (memory_entry.h).
 * - Several keys are decided for as one step (memory_all.c): their entries are claimed all the while.
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

#include "backends/memory_decide.h"

#define LOOK_TRIES 32       /* while others change the same key */
#define LOOK_PAUSE 32       /* in turns of look_pause(), after the first of them, and as many more after each ... */
#define LOOK_MOST_PAUSE 256 /* ... up to this */
#define LOOK_WORDS 48       /* states that are larger are left to those with the mutex */

#define LOOK_UNGUESSED WORD_BUSY /* is no part of whose a word is */

/* What an entry is known by. Before it is found, `rule` and `whose` are those that it is guessed to have, or NULL and
 * LOOK_UNGUESSED, which no entry has: 0 have those that are nobody's, and a hint or a late look leads to them. */
struct look {
    struct entry *entry;
    const struct rule *rule;
    uint64_t word;  /* its last known one */
    uint64_t whose; /* of the word */
};

static inline uint64_t word_of_rule(const struct rule *rule, size_t key_len)
{
    return (uint64_t)rule->number << WORD_RULE_SHIFT | key_len << 1;
}

/* The request's rule is known before the entry as a rule, and nothing waits for the way from the one to the other. */
static inline struct look look_guess(const struct table *table, const struct weir_backend_request *request)
{
    const struct rule *rule = rule_guess(&table->rules, request->limit_id);
    if (__builtin_expect(rule && rule->key.limit_id == request->limit_id, 1))
        return (struct look){ .rule = rule, .whose = word_of_rule(rule, request->key.len) };
    return (struct look){ .whose = LOOK_UNGUESSED };
}

/* An entry that is not as guessed may be the request's all the same. */
__attribute__((noinline)) static bool look_closely(const struct table *table,
                                                   const struct weir_backend_request *request, struct look *look)
{
    const uint32_t number = word_rule(look->word);
    const struct rule *rule = number != 0 ? rule_at(&table->rules, number) : NULL;
    if (!rule || rule->key.limit_id != request->limit_id || word_len(look->word) != request->key.len)
        return false; /* the guess stays as it is, for the next one */
    look->rule = rule;
    look->whose = look->word & WORD_WHOSE;
    return true;
}

/* Whether the entry at a place is that of the request's key. */
static inline bool look_at(const struct table *table, uint32_t place, const struct weir_backend_request *request,
                           struct look *look)
{
    look->entry = slab_entry(&table->slab, place);
    look->word = entry_word(look->entry);
    if (__builtin_expect((look->word & WORD_WHOSE) != look->whose, 0) && !look_closely(table, request, look))
        return false;
    return entry_has_key(look->entry, look->rule->words, request->key);
}

/* By the request's hint: the place, and how often a page had come to serve another size by then. Acquire, and release
 * where it is written: who did not find the place by the index must see the region that it leads to all the same. */
static inline bool look_by_hint(const struct table *table, const struct weir_backend_request *request,
                                struct look *look)
{
    const uint64_t hint = __atomic_load_n(&request->hint->opaque[0], __ATOMIC_ACQUIRE);
    return (uint32_t)hint != 0 && (uint32_t)(hint >> 32) == slab_recast(&table->slab) &&
           look_at(table, (uint32_t)hint, request, look);
}

static inline bool look_by_index(const struct table *table, const struct weir_backend_request *request,
                                 struct look *look)
{
    const size_t shard = (size_t)(request->hash >> table->shard_shift);
    const struct index_line *line = index_line(&table->index, shard, request->hash);
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

/* One decision, on a copy of the state, if nobody comes in between. `is_greedy` is known when this is compiled, and then
 * state and decision stay in registers. */
__attribute__((always_inline)) static inline enum look_end look_once(struct look *look, bool is_greedy, size_t words,
                                                                     int64_t *state,
                                                                     const struct weir_backend_request *request,
                                                                     struct weir_decision *out)
{
    const struct weir_plan *plan = &look->rule->plan;
    struct entry *entry = look->entry;
    const uint64_t word = look->word;
    entry_read(entry, 0, state, words);
    /* Only now is it known to be a state of that rule: what another key's numbers would come to, no algorithm answers
     * for. */
    look->word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    if (__builtin_expect(look->word != word, 0))
        return LOOK_AGAIN;
    const size_t time_at = !is_greedy && plan->algorithm == WEIR_SLIDING_WINDOW ? 0 : 1;
    const int64_t time = state[time_at];
    const bool changed = is_greedy
                             ? token_bucket_decide(plan, state, request->now_us, request->cost, request->verb, out)
                             : state_decide(plan, state, request->now_us, request->cost, request->verb, out);
    if (!changed)
        return LOOK_DONE;
    if (out->reset_after_us == 0 || state[time_at] < time) /* to be dropped, or noted for the sweep */
        return LOOK_GIVEN_UP;
    if (!entry_claim(entry, &look->word))
        return LOOK_AGAIN;
    entry_write(entry, 0, state, words);
    entry_release(entry, word_next(word));
    return LOOK_DONE;
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

/* The same for any algorithm, and while others change the same key; as often as it takes, within reason: one that is
 * busy for long is claimed by somebody with the mutex, or by one who was preempted. */
__attribute__((noinline)) static bool look_on(struct look *look, bool is_contended,
                                              const struct weir_backend_request *request, struct weir_decision *out)
{
    const struct weir_decision before = *out;
    int64_t state[LOOK_WORDS];
    unsigned pause = is_contended ? LOOK_PAUSE : 0;
    for (int tries = 0; tries < LOOK_TRIES; tries++) {
        if (pause > 0) {
            look_pause(pause);
            look->word = entry_word(look->entry);
        }
        pause = pause < LOOK_MOST_PAUSE ? pause + LOOK_PAUSE : pause;
        if ((look->word & WORD_BUSY) != 0)
            continue;
        /* It may have become another key's meanwhile, and be under the same rule. */
        if ((look->word & WORD_WHOSE) != look->whose || !entry_has_key(look->entry, look->rule->words, request->key))
            break;
        const enum look_end end = look_once(look, false, look->rule->words, state, request, out);
        if (end == LOOK_DONE)
            return true;
        if (end == LOOK_GIVEN_UP)
            break;
    }
    *out = before;
    return false;
}

/* Decide for the request's key, by an entry that is there under the plan that the request asks for. False: take the
 * mutex; *out is as it was. By one who looks. */
static inline bool look_and_decide(const struct table *table, const struct weir_backend_request *request,
                                   struct weir_decision *out)
{
    struct look look = look_guess(table, request);
    if (!(request->hint && look_by_hint(table, request, &look)) && !look_by_index(table, request, &look))
        return false;
    if (!rule_is_current(look.rule, request) || look.rule->words > LOOK_WORDS)
        return false;
    bool is_contended = (look.word & WORD_BUSY) != 0;
    if (__builtin_expect(look.rule->is_greedy && (look.word & WORD_BUSY) == 0, 1)) {
        int64_t state[2];
        struct weir_decision decision;
        const enum look_end end = look_once(&look, true, 2, state, request, &decision);
        if (__builtin_expect(end == LOOK_DONE, 1)) {
            *out = decision;
            return true;
        }
        if (end == LOOK_GIVEN_UP)
            return false;
        is_contended = true;
    }
    return look_on(&look, is_contended, request, out);
}

/* Whether it is a request for those who look at all. */
static inline bool look_may(const struct weir_backend_request *request)
{
    return request->verb <= WEIR_PEEK && request->ahead == 0 && request->key.len < (size_t)1 << WORD_LEN_BITS;
}

#endif
