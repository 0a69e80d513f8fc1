/* carry.c - brings entries under another plan of their limit, and changes former states.
 *
 * core/algorithm/former.c defines what a former state is and does. In memory it lies behind the entry's state,
 * under a special rule, until a take finds nothing used in it; the next decision then puts the entry back under
 * the ordinary rule. */
#include "backends/memory/parts.h"

/* Return the states of a claimed entry, in place. */
static struct key_states carry_states(const struct memory *memory, const struct entry *entry)
{
    const struct rule *rule = entry_rule(&memory->table, entry);
    const struct weir_plan *behind = rule_former(rule);
    return behind_states(&rule->plan, entry_state(entry, 0), behind,
                         behind ? entry_state(entry, state_words(&rule->plan)) : NULL);
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
    const uint64_t word = record_held_word(entry->record);
    record_release(entry->record, word_of(word, rule->number, word_len(word)) | WORD_BUSY);
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

/* Write the state of a claimed entry under `plan`, after the former one, and its origin. Not inline: its frame holds a
 * copy. */
__attribute__((noinline)) static void carry_state(struct entry *entry, const struct weir_plan *plan,
                                                  struct carried carried, int64_t now_us)
{
    int64_t origin[ORIGIN_WORDS];
    int64_t copy[ENTRY_COPIED_WORDS];
    const size_t words = state_words(plan);
    if (carried.former.plan) /* the same state, in its new place */
        carried.from.state = entry_state(entry, words + (carried.has_origin ? ORIGIN_WORDS : 0));
    int64_t *state = entry_room(entry, 0, copy, words);
    carry_write(plan, &carried, now_us, state);
    entry_put(entry, 0, state, words);
    memcpy(origin, &carried.origin, sizeof origin);
    if (carried.has_origin)
        entry_write(entry, words, origin, ORIGIN_WORDS);
}

/* Put the claimed entry of the request's key under a plan that the limit has at `version`, with the states that
 * *carried says. *entry moves if its size changes; but an entry whose states shrink keeps its size if there is no room.
 * On an error nothing has changed. */
static enum table_error carry_put(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                                  const struct weir_plan *plan, uint64_t version, const struct carried *carried,
                                  struct entry **entry) REQUIRES(shard->mutex)
{
    struct entry *old = *entry;
    const struct written *former = &carried->former;
    struct weir_plan behind_is;
    const struct weir_plan *behind = behind_plan(carried, &behind_is) ? &behind_is : NULL;
    const size_t words = state_words(plan) + behind_words(behind), old_words = entry_rule(table, old)->words;
    enum table_error error = TABLE_NO_ROOM;
    struct rule *rule;
    if (words != old_words) {
        error = shard_rule(table, shard, request, plan, version, behind, 0, &rule);
        if (!error)
            error = entry_make(table, shard, rule, request, entry);
    }
    const bool stays = error && words <= old_words;
    if (stays)
        error = shard_rule(table, shard, request, plan, version, behind, old_words - words, &rule);
    if (error)
        return error;
    if (former->plan)
        carry_copy(*entry, state_words(plan) + behind_former_at(behind), former->state, state_words(former->plan));
    carry_state(*entry, plan, *carried, request->now_us);
    if (stays)
        carry_put_under(table, *entry, rule);
    else
        entry_drop(table, shard, old);
    shard_note(table, shard, *entry, entry_fresh_at_us(table, *entry));
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

enum table_error carry_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                             struct entry **entry)
{
    struct rule *rule = entry_rule(&memory->table, *entry);
    const struct key_states states = carry_states(memory, *entry);
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    if (carry_is_under(rule, request, &plan, version)) {
        const bool is_own = rule_is(rule, request, &plan);
        if (is_own)
            rule_raise(rule, rule_mark(rule, version));
        if (is_own && rule_former(rule) && behind_is_over(&states, request->now_us)) {
            const struct carried alone = { .from = states.own };
            version = rule_version(rule) & ~RULE_ASIDE;
            carry_put(&memory->table, shard, request, &plan, version, &alone,
                      entry); /* without a rule for it, it stays */
        }
        return TABLE_OK;
    }
    if (rule->key.fingerprint == plan.fingerprint)
        return carry_hand_over(&memory->table, shard, request, version, *entry);
    struct carried carried = carry_over(&plan, &states, request->now_us);
    if (!carried.from.plan) {
        shard_remove(&memory->table, shard, *entry);
        *entry = NULL;
        return TABLE_OK;
    }
    const enum table_error error = carry_put(&memory->table, shard, request, &plan, version, &carried, entry);
    if (error != TABLE_NO_ROOM || !carried.has_origin)
        return error;
    carried.has_origin = false; /* without room for it, permits reserved before stay in use until they come back */
    return carry_put(&memory->table, shard, request, &plan, version, &carried, entry);
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
    const struct key_states states = carry_states(memory, entry);
    struct carried carried = carry_over(plan, &states, request->now_us);
    struct weir_plan behind;
    carried.has_origin = false; /* it can do without */
    const size_t words = state_words(plan) + (behind_plan(&carried, &behind) ? behind_words(&behind) : 0);
    const bool has_room = words <= rule->words || shard_has_bytes(&memory->table, shard, request, words);
    if (carried.from.plan)
        carry_write(plan, &carried, request->now_us, state);
    else
        missing_state(request, plan, state);
    state_decide(plan, state, request->now_us, request->cost, WEIR_PEEK, out);
    return has_room || !out->allowed ? TABLE_OK : TABLE_NO_ROOM;
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

bool decide_with_behind(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                        struct entry *entry, struct weir_decision *decision)
{
    int64_t copy[ENTRY_COPIED_WORDS], former_copy[ENTRY_COPIED_WORDS], words[ORIGIN_WORDS];
    const struct key_states states = carry_states(memory, entry);
    const size_t own_words = state_words(states.own.plan);
    struct origin origin;
    int64_t *state = entry_get(entry, 0, copy, own_words);
    if (!carry_decide(&states, state, request, &origin, decision))
        return true;
    entry_put(entry, 0, state, own_words);
    if (states.own.origin) {
        memcpy(words, &origin, sizeof words);
        entry_write(entry, own_words, words, ORIGIN_WORDS);
    }
    if (states.former.plan) {
        const size_t at = own_words + behind_former_at(states.former.plan), n = state_words(states.former.plan);
        int64_t *former = entry_get(entry, at, former_copy, n);
        former_change(&states, former, NULL, request, decision);
        entry_put(entry, at, former, n);
    }
    const bool is_fresh = state_is_fresh(states.own.plan, states.own.state, request, decision);
    if (is_fresh && !former_counts(&states, request->now_us)) {
        shard_remove(&memory->table, shard, entry);
        return false;
    }
    if (is_fresh) /* a refund */
        carry_empty(entry, states.own.plan, request->now_us);
    shard_note(&memory->table, shard, entry, entry_fresh_at_us(&memory->table, entry));
    return true;
}
