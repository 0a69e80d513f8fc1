/* carry.c - brings entries under another plan of their limit, and charges former states.
 *
 * core/algorithm/former.c defines what a former state is and does. In memory it lies behind the entry's state,
 * under a special rule, until a take finds nothing used in it; the next decision then puts the entry back under
 * the ordinary rule. */
#include "backends/memory/decide.h"

#include <assert.h>

/* The states of a claimed entry, in place. */
struct entry_states {
    struct written own, former;
};

static struct entry_states carry_states(const struct memory *memory, const struct entry *entry)
{
    const struct rule *rule = entry_rule(&memory->table, entry);
    const struct weir_plan *former = rule_former(rule);
    return (struct entry_states){
        .own = { &rule->plan, entry_state(entry, 0) },
        .former = { former, former ? entry_state(entry, state_words(&rule->plan)) : NULL },
    };
}

/* True if the entry is under `plan`, which the request sees at `version`, or under a later one. */
static bool carry_is_under(const struct rule *rule, const struct weir_backend_request *request,
                           const struct weir_plan *plan, uint64_t version)
{
    return rule_is(rule, request, plan) || rule_version(rule) > rule_mark(rule, version);
}

/* Put a claimed entry under another rule with as many words, and let go of the old one. */
static void carry_put_under(struct table *table, struct entry *entry, const struct rule *rule)
{
    struct rule *old_rule = entry_rule(table, entry);
    const uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    entry_release(entry, word_of(word, rule->number, word_len(word)) | WORD_BUSY);
    rule_drop(&table->rules, old_rule);
}

/* Copy a state to an entry, which may be its own: the two places may overlap. */
static void carry_copy(struct entry *entry, size_t to, const int64_t *state, size_t words)
{
    const bool is_down = (uintptr_t)entry_state(entry, to) <= (uintptr_t)state;
    for (size_t i = 0; i < words; i++) {
        const size_t at = is_down ? i : words - 1 - i;
        entry_write(entry, to + at, &state[at], 1);
    }
}

/* Put the claimed entry of the request's key under a plan that the limit has at `version`, with `own` as its state or
 * `former` behind it, which are states of the entry. If `own` is NULL, the caller writes the state. *entry moves if its
 * size changes, but without room an entry whose states shrink stays as large as it is. On an error nothing changed. */
static enum table_error carry_put(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                                  const struct weir_plan *plan, uint64_t version, const int64_t *own,
                                  const struct written *former, struct entry **entry) REQUIRES(shard->mutex)
{
    struct entry *old = *entry;
    const size_t words = written_words(plan, former), old_words = entry_rule(table, old)->words;
    enum table_error error = TABLE_NO_ROOM;
    struct rule *rule;
    if (words != old_words) {
        error = shard_rule(table, shard, request, plan, version, former->plan, 0, &rule);
        if (!error)
            error = entry_make(table, shard, rule, request, entry);
    }
    const bool stays = error && words <= old_words;
    if (stays)
        error = shard_rule(table, shard, request, plan, version, former->plan, old_words - words, &rule);
    if (error)
        return error;
    assert(!own || !former->plan); /* one could be written over the other */
    if (own)
        carry_copy(*entry, 0, own, state_words(plan));
    if (former->plan)
        carry_copy(*entry, state_words(plan), former->state, state_words(former->plan));
    if (stays)
        carry_put_under(table, *entry, rule);
    else
        entry_drop(table, shard, old);
    return TABLE_OK;
}

/* Put a claimed entry under the request's limit or override, which has at `version` the same plan as the entry's
 * rule. The states stay. On an error nothing changed. */
static enum table_error carry_hand_over(struct table *table, struct shard *shard,
                                        const struct weir_backend_request *request, uint64_t version,
                                        struct entry *entry) REQUIRES(shard->mutex)
{
    struct rule *rule, *old_rule = entry_rule(table, entry);
    enum table_error error = shard_rule(table, shard, request, &old_rule->plan, version, rule_former(old_rule),
                                        old_rule->key.spare_words, &rule);
    if (!error)
        carry_put_under(table, entry, rule);
    return error;
}

/* Drop a former state in which nothing is used. Without a rule for the smaller state, it stays. */
static void carry_drop_former(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                              struct entry **entry) REQUIRES(shard->mutex)
{
    const struct written none = { NULL, NULL };
    const struct rule *rule = entry_rule(&memory->table, *entry);
    const struct weir_plan plan = rule->plan;
    if (carry_put(&memory->table, shard, request, &plan, rule_version(rule) & ~RULE_ASIDE, entry_state(*entry, 0),
                  &none, entry) == TABLE_OK)
        shard_note(&memory->table, shard, *entry, entry_fresh_at_us(&memory->table, *entry));
}

/* Put the entry under `plan`, with the state that it takes with it. */
static enum table_error carry_renew(struct memory *memory, struct shard *shard,
                                    const struct weir_backend_request *request, const struct weir_plan *plan,
                                    uint64_t version, const struct entry_states *states, const struct carried *carried,
                                    struct entry **entry) REQUIRES(shard->mutex)
{
    const int64_t *resumed = carried->resumes ? states->former.state : NULL;
    enum table_error error = carry_put(&memory->table, shard, request, plan, version, resumed, &carried->former, entry);
    if (error)
        return error;
    if (!resumed) {
        int64_t copy[ENTRY_COPIED_WORDS];
        const size_t words = state_words(plan);
        int64_t *state = entry_room(*entry, 0, copy, words);
        state_charge(plan, state, carried->at_us, carried->used);
        entry_put(*entry, 0, state, words);
    }
    shard_note(&memory->table, shard, *entry, entry_fresh_at_us(&memory->table, *entry));
    return TABLE_OK;
}

enum table_error carry_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                             struct entry **entry)
{
    struct rule *rule = entry_rule(&memory->table, *entry);
    const struct entry_states states = carry_states(memory, *entry);
    const struct written *former = &states.former;
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    if (carry_is_under(rule, request, &plan, version)) {
        const bool is_own = rule_is(rule, request, &plan);
        if (is_own)
            rule_raise(rule, rule_mark(rule, version));
        if (is_own && former->plan && state_fresh_at_us(former->plan, former->state) == 0)
            carry_drop_former(memory, shard, request, entry);
        return TABLE_OK;
    }
    if (rule->key.fingerprint == plan.fingerprint)
        return carry_hand_over(&memory->table, shard, request, version, *entry);
    const struct carried carried = carry_over(&plan, &states.own, former, request->now_us);
    if (carried.used == 0) {
        shard_remove(&memory->table, shard, *entry);
        *entry = NULL;
        return TABLE_OK;
    }
    return carry_renew(memory, shard, request, &plan, version, &states, &carried, entry);
}

enum table_error peek_carried(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                              const struct weir_plan *plan, uint64_t version, struct entry *entry, int64_t *state,
                              struct weir_decision *out)
{
    const struct rule *rule = entry_rule(&memory->table, entry);
    if (carry_is_under(rule, request, plan, version) || rule->key.fingerprint == plan->fingerprint) {
        peek_entry(memory, request, entry, out);
        return TABLE_OK;
    }
    const struct entry_states states = carry_states(memory, entry);
    const struct carried carried = carry_over(plan, &states.own, &states.former, request->now_us);
    const size_t words = written_words(plan, &carried.former);
    const bool has_room = words <= rule->words || shard_has_bytes(&memory->table, shard, words, request->key.len);
    if (carried.used == 0)
        missing_state(request, plan, state);
    else if (carried.resumes)
        state = (int64_t *)states.former.state; /* a peek does not write to it */
    else
        state_charge(plan, state, carried.at_us, carried.used);
    state_decide(plan, state, request->now_us, request->cost, WEIR_PEEK, out);
    return has_room || !out->allowed ? TABLE_OK : TABLE_NO_ROOM;
}

/* Charge the former state for an admitted take. */
static void former_charge(struct entry *entry, const struct weir_plan *former, size_t from, int64_t now_us,
                          int64_t permits)
{
    int64_t copy[ENTRY_COPIED_WORDS];
    const size_t words = state_words(former);
    int64_t *state = entry_get(entry, from, copy, words);
    former_take(former, state, now_us, permits);
    entry_put(entry, from, state, words);
}

/* Drop blocks of the entry's state that are too old to count. */
static void carry_empty(struct entry *entry, const struct weir_plan *plan, int64_t now_us)
{
    int64_t copy[ENTRY_COPIED_WORDS];
    const size_t words = state_words(plan);
    int64_t *state = entry_room(entry, 0, copy, words);
    state_charge(plan, state, now_us, 0);
    entry_put(entry, 0, state, words);
}

bool former_changed(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                    struct entry *entry, const struct weir_decision *decision)
{
    const struct entry_states states = carry_states(memory, entry);
    const struct weir_plan *plan = states.former.plan;
    int64_t at_us = request->now_us;
    const int64_t charged = request->verb == WEIR_TAKE && decision->allowed ? request->cost + decision->ahead : 0;
    if (charged > 0)
        former_charge(entry, plan, state_words(states.own.plan), request->now_us, charged);
    if (decision->reset_after_us == 0 && state_used(plan, states.former.state, &at_us) == 0) {
        shard_remove(&memory->table, shard, entry);
        return false;
    }
    if (decision->reset_after_us == 0) /* a refund */
        carry_empty(entry, states.own.plan, request->now_us);
    shard_note(&memory->table, shard, entry, entry_fresh_at_us(&memory->table, entry));
    return true;
}
