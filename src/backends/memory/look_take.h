/* look_take.h - the steps of a look for the commonest request: permits from a token bucket with greedy refill and a
 * tick of 1 us. take.c puts them together. (And finding the summary of a sliding window, for window.c.)
 *
 * They are those of look.h, in the same order, with one difference: the copy of the state is not compared before it is
 * used. The swap of the word shows whether it was one state of that key, and a denial reads the word once more. Until
 * then the numbers may be another key's, so the arithmetic is unsigned, which may overflow.
 */
#ifndef BACKENDS_MEMORY_LOOK_TAKE_H
#define BACKENDS_MEMORY_LOOK_TAKE_H

#include "backends/memory/look.h"

/* True if a record with that word is of a rule with a plain_whose and of a key of that length, and not claimed. */
static inline bool look_is_plain(const struct rule *rule, uint64_t word, size_t key_len)
{
    const uint32_t differs = (uint32_t)word ^ rule->plain_whose;
    return (differs & (uint32_t)(WORD_WHOSE | WORD_BUSY)) == (uint64_t)key_len << 1;
}

/* Return the rule that a limit's requests probably need, if it is that of the plan in force, or NULL. What a thread
 * reads of the limit afterwards was written with that plan or later. */
static inline const struct rule *look_rule(const struct table *table, struct weir_limit *limit)
{
    const struct rule *rule = rule_guess(&table->rules, limit->id);
    if (__builtin_expect(!rule || rule_version(rule) != plan_cell_version(&limit->plan), 0))
        return NULL;
    assert(rule->limit_id == limit->id); /* only a fallback's requests have numbers beyond WEIR_MAX_LIMITS */
    return rule;
}

/* True if a record is a key's, or leads to it, under a rule with a plain_whose, and is not claimed: *look is then ready
 * for look_take(). `in_cell`: it may hold a place, which is followed. The caller is inside readers_enter(). */
__attribute__((always_inline)) static inline bool look_take_at(const struct table *table, const struct rule *rule,
                                                               struct weir_key key, struct record *record, bool in_cell,
                                                               struct look *look)
{
    uint64_t word = record_word(record);
    if (in_cell && !look_is_plain(rule, word, key.len)) {
        const uint32_t place = cells_place(record, word);
        if (place == 0)
            return false;
        record = entry_own(slab_entry(&table->slab, place));
        word = record_word(record);
    }
    *look = (struct look){ .record = record, .rule = rule, .word = word, .whose = word & WORD_WHOSE };
    if (__builtin_expect(!look_is_plain(rule, word, key.len), 0))
        return false;
    return key.len == 16 ? record_has_key(record, GREEDY_WORDS, key)
                         : key.len < (size_t)1 << WORD_LEN_BITS && record_has_bytes(record, GREEDY_WORDS, key);
}

/* Find the record of a key for look_take(), under the rule of look_rule(): by the hint or else by the first cell with
 * its tag `at` its groups. False: none was found, although there may be one, or the rule has no plain_whose. The
 * caller is inside readers_enter(). */
__attribute__((always_inline)) static inline bool look_for_take(const struct table *table, const struct rule *rule,
                                                                struct weir_key key, uint64_t hash,
                                                                const struct look_groups *at,
                                                                const struct weir_backend_hint *hint, struct look *look)
{
    struct record *record;
    if (__builtin_expect(!(hint ? look_hinted(table, hint, &record) : look_first_cell(table, hash, at, &record)), 0))
        return false;
    return look_take_at(table, rule, key, record, !hint, look);
}

/* Find the cell with the summary of a key, under the rule of look_rule(): by the hint, or else by the first cell with
 * the key's tag `at` its groups. False: there may be one in spite of that. The caller is inside readers_enter(). */
static inline bool look_for_summary(const struct table *table, const struct rule *rule, struct weir_key key,
                                    uint64_t hash, const struct look_groups *at, const struct weir_backend_hint *hint,
                                    struct look *look)
{
    struct record *record;
    if (!rule_has_summary(rule) ||
        !(hint ? look_hinted(table, hint, &record) : look_first_cell(table, hash, at, &record)))
        return false;
    const uint64_t word = record_word(record), whose = word & WORD_WHOSE;
    *look = (struct look){ .record = record, .rule = rule, .word = word, .whose = whose };
    return (word & (WORD_WHOSE | WORD_BUSY)) == word_whose(rule->number, key.len) &&
           look_is_apart(table, record, rule->words, key.len) && record_has_key(record, SUMMARY_WORDS, key);
}

/* Take from such a bucket. If the answer is LOOK_DONE, the state after it is in *level, something is in use in it, and
 * the cost is at most the size. */
__attribute__((always_inline)) static inline enum look_end look_take(const struct look *look, int64_t now_us,
                                                                     int64_t cost, struct level *level, bool *allowed)
{
    const struct weir_plan *plan = rule_plain_plan(look->rule);
    const uint64_t was = record_at(look->record, 0), anchor = record_at(look->record, 1);
    uint64_t tick = (uint64_t)now_us;
    int64_t drained = 0;
    if (__builtin_expect((int64_t)(tick - anchor) < 0, 0)) {
        /* Nothing in use, which has no anchor; or the clock stepped back, which is to be noted for the sweep. */
        if (was == 0 || anchor - tick > WEIR_CLOCK_SLACK_US)
            return LOOK_GIVEN_UP;
        tick = anchor; /* held */
    } else {
        drained = mul_capped((int64_t)(tick - anchor), plan->p);
    }
    uint64_t used = was - (uint64_t)drained;
    if (__builtin_expect((int64_t)used < 0, 0))
        used = 0;
    if (__builtin_expect((uint64_t)cost - 1 >= (uint64_t)plan->size, 0)) /* never admitted, or refused */
        return LOOK_GIVEN_UP;
    const uint64_t asked = used + (uint64_t)cost * (uint64_t)plan->q;
    if ((int64_t)asked <= look->rule->known.top) {
        *allowed = true;
        *level = (struct level){ .used = (int64_t)asked, .tick = (int64_t)tick };
        return look_publish(look, (int64_t[GREEDY_WORDS]){ level->used, level->tick }, GREEDY_WORDS) ? LOOK_DONE
                                                                                                     : LOOK_AGAIN;
    }
    *allowed = false;
    *level = (struct level){ .used = (int64_t)used, .tick = (int64_t)tick };
    return atomic_load_explicit(&look->record->word, memory_order_relaxed) == look->word ? LOOK_DONE : LOOK_AGAIN;
}

#endif
