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
 * bound: the permits were taken since the entry was filed. Two changes would move it below the bound: a return of more,
 * and a clock that steps back so far that the state's time moves back. They are left to the threads with the mutex.
 */
#ifndef BACKENDS_MEMORY_LOOK_H
#define BACKENDS_MEMORY_LOOK_H

#include "backends/memory/look_steps.h"
#include "backends/shared/wait_briefly.h"

#define LOOK_TRIES 32       /* tries while other threads change the same key */
#define LOOK_PAUSE 32       /* turns of wait_pause() after the first try; the pause grows by as much each time ... */
#define LOOK_MOST_PAUSE 256 /* ... up to this */
#define LOOK_WORDS 48       /* larger states are decided under the mutex */

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

/* True if a decision that has changed the state needs nothing that takes the mutex. */
static inline bool look_keeps(const struct table *table, const struct look *look,
                              const struct weir_backend_request *request, const int64_t *state, int64_t time_before,
                              const struct weir_decision *out)
{
    return out->reset_after_us != 0 && state[state_time_at(&look->rule->plan)] >= time_before &&
           (request->verb != WEIR_REFUND ||
            !look_is_due_earlier(table, look->record, request->now_us + out->reset_after_us));
}

/* Copy the state of a divided record. The entry is that of the record if the word has not changed since. While the
 * thread looks, it stays an entry of that size. */
static inline struct record *look_read_apart(const struct table *table, const struct look *look, bool has_summary,
                                             int64_t state[LOOK_WORDS])
{
    int64_t summary[SUMMARY_WORDS];
    const size_t words = look->rule->words;
    const struct entry *entry = look_entry(table, look->record);
    if (!entry || atomic_load_explicit(&look->record->word, memory_order_relaxed) != look->word)
        return NULL;
    struct record *apart = entry_own((struct entry *)(uintptr_t)entry);
    record_read(apart, 0, state, words);
    if (!look_read(look, summary, SUMMARY_WORDS))
        return NULL;
    if (has_summary && !sliding_summary_open(summary, state))
        memset(state + SUMMARY_WORDS, 0, (words - SUMMARY_WORDS) * sizeof *state);
    return apart;
}

static inline bool look_publish_apart(const struct look *look, struct record *apart, bool has_summary,
                                      const int64_t *state)
{
    int64_t summary[SUMMARY_WORDS];
    uint64_t word = look->word;
    if (has_summary)
        sliding_summary_close(&look->rule->plan, state, summary);
    if (!record_claim(look->record, &word))
        return false;
    record_write(apart, 0, state, look->rule->words);
    if (has_summary)
        record_write(look->record, 0, summary, SUMMARY_WORDS);
    record_release(look->record, word + WORD_ONE_CHANGE);
    return true;
}

/* Decide by the summary of a sliding window alone. LOOK_GIVEN_UP: it does not suffice. */
static inline enum look_end look_by_summary(const struct look *look, const struct weir_backend_request *request,
                                            struct weir_decision *out)
{
    int64_t summary[SUMMARY_WORDS];
    struct weir_decision decision;
    if (!look_read(look, summary, SUMMARY_WORDS))
        return LOOK_AGAIN;
    if (!sliding_summary_decide(&look->rule->plan, summary, request, &decision))
        return LOOK_GIVEN_UP;
    if (decision.allowed && request->verb != WEIR_PEEK && !look_publish(look, summary, SUMMARY_WORDS))
        return LOOK_AGAIN;
    if (decision.allowed && request->reservation)
        request->reservation->at_us = state_noted_us(&look->rule->plan, summary, request->now_us);
    *out = decision;
    return LOOK_DONE;
}

/* Decide by a divided record. */
__attribute__((noinline)) static enum look_end look_apart(const struct table *table, const struct look look,
                                                          const struct weir_backend_request *request,
                                                          struct weir_decision *out)
{
    const struct weir_plan *plan = &look.rule->plan;
    const bool has_summary = rule_has_summary(look.rule);
    int64_t state[LOOK_WORDS];
    if (has_summary) {
        const enum look_end end = look_by_summary(&look, request, out);
        if (end != LOOK_GIVEN_UP)
            return end;
    }
    if (look.rule->words > LOOK_WORDS)
        return LOOK_GIVEN_UP;
    struct record *apart = look_read_apart(table, &look, has_summary, state);
    if (!apart)
        return LOOK_AGAIN;
    const int64_t time = state[state_time_at(plan)];
    const struct weir_decision before = *out;
    if (!state_decide_request(plan, state, NULL, request->now_us, request->verb, request, out))
        return LOOK_DONE;
    const bool keeps = look_keeps(table, &look, request, state, time, out);
    if (keeps && look_publish_apart(&look, apart, has_summary, state))
        return LOOK_DONE;
    *out = before;
    return keeps ? LOOK_AGAIN : LOOK_GIVEN_UP;
}

/* Do state_decide_request(), by fewer steps for a take and for what a reservation gives back. */
static inline bool look_state_decide(const struct weir_plan *plan, int64_t *state,
                                     const struct weir_backend_request *request, struct weir_decision *out)
{
    if (__builtin_expect(request->verb == WEIR_TAKE && request->ahead == 0 && request->cost > 0, 1)) {
        const bool changed = state_decide(plan, state, request->now_us, request->cost, WEIR_TAKE, out);
        if (request->reservation && out->allowed)
            request->reservation->at_us = state_noted_us(plan, state, request->now_us);
        return changed;
    }
    if (request->verb == WEIR_REFUND && request->ahead > 0)
        return state_return(plan, state, NULL, request->now_us, request->ahead, request->cost, out);
    return state_decide_request(plan, state, NULL, request->now_us, request->verb, request, out);
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
    const size_t words = rule->words;
    int64_t state[LOOK_WORDS];
    if (look_is_apart(table, record, words, word_len(word)))
        return look_apart(table, look, request, out);
    if (words > LOOK_WORDS)
        return LOOK_GIVEN_UP;
    if (!look_read(&look, state, words))
        return LOOK_AGAIN;
    const int64_t time = state[state_time_at(plan)];
    const struct weir_decision before = *out;
    if (!look_state_decide(plan, state, request, out))
        return LOOK_DONE;
    const bool keeps = look_keeps(table, &look, request, state, time, out);
    if (keeps && look_publish(&look, state, words))
        return LOOK_DONE;
    *out = before;
    return keeps ? LOOK_AGAIN : LOOK_GIVEN_UP;
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
    const bool charges = request->verb == WEIR_CHARGE && request->ahead == 0;
    return (takes || returns || charges) && request->key.len < (size_t)1 << WORD_LEN_BITS;
}

#endif
