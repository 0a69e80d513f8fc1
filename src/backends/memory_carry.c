/* memory_carry.c - brings entries under another plan of their limit, and decides for those with a former state.
 *
 * What that is, and what becomes of it, says core/former.c. Here it lies behind the entry's state, under a rule of its
 * own kind, until a take finds nothing used in it; the next decision then puts the entry back under the ordinary rule.
 */
#include "backends/memory_decide.h"

static struct written written_of(struct entry *entry)
{
    return (struct written){ &entry->rule->plan, entry->state };
}

static struct written former_of(struct entry *entry)
{
    const struct weir_plan *former = rule_former(entry->rule);
    return (struct written){ former, former ? entry_former(entry) : NULL };
}

static struct carried carried_to(const struct weir_plan *plan, struct entry *entry, int64_t now_us)
{
    const struct written state = written_of(entry), former = former_of(entry);
    return carry_over(plan, &state, &former, now_us);
}

/* Whether a request that sees `plan` as that of `version` finds the entry under it, or under a later one. */
static bool is_under(const struct rule *rule, const struct weir_backend_request *request, const struct weir_plan *plan,
                     uint64_t version)
{
    return rule_is(rule, request, plan) || rule_version(rule) > rule_mark(rule, version);
}

/* Put the entry under `plan`, with `own` of its two states as its state, as it is, and `former` beside it. */
static enum table_error keep(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                             const struct weir_plan *plan, uint64_t version, const int64_t *own,
                             const struct written *former, struct entry **entry) REQUIRES(shard->mutex)
{
    int64_t state[STATE_MAX_WORDS];
    const size_t bytes = state_words(plan) * sizeof *state;
    memcpy(state, own, bytes);
    enum table_error error = shard_renew(&memory->table, shard, request, plan, version, former, entry);
    if (error)
        return error;
    memcpy((*entry)->state, state, bytes);
    shard_note(&memory->table, shard, entry_fresh_at_us(*entry));
    return TABLE_OK;
}

/* Nothing is used in its former state: without memory to move to, the entry keeps it. */
static void let_go(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                   struct entry **entry) REQUIRES(shard->mutex)
{
    const struct written none = { NULL, NULL };
    const struct weir_plan plan = (*entry)->rule->plan;
    const uint64_t version = rule_version((*entry)->rule) & ~RULE_ASIDE;
    keep(memory, shard, request, &plan, version, (*entry)->state, &none, entry);
}

enum table_error carry_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                             struct entry **entry)
{
    struct rule *rule = (*entry)->rule;
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    if (is_under(rule, request, &plan, version)) {
        const bool is_own = rule_is(rule, request, &plan);
        if (is_own)
            rule_raise(rule, rule_mark(rule, version));
        if (is_own && rule_former(rule) && state_fresh_at_us(rule->former, entry_former(*entry)) == 0)
            let_go(memory, shard, request, entry);
        return TABLE_OK;
    }
    if (rule->key.fingerprint == plan.fingerprint)
        return shard_hand_over(&memory->table, shard, request, version, *entry);
    const struct carried carried = carried_to(&plan, *entry, request->now_us);
    if (carried.used == 0) {
        shard_remove(&memory->table, shard, *entry);
        *entry = NULL;
        return TABLE_OK;
    }
    if (carried.resumes)
        return keep(memory, shard, request, &plan, version, entry_former(*entry), &carried.former, entry);
    enum table_error error = shard_renew(&memory->table, shard, request, &plan, version, &carried.former, entry);
    if (error)
        return error;
    state_charge(&plan, (*entry)->state, carried.at_us, carried.used);
    shard_note(&memory->table, shard, entry_fresh_at_us(*entry));
    return TABLE_OK;
}

void peek_carried(const struct weir_backend_request *request, struct entry *entry, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    if (is_under(entry->rule, request, &plan, version) || entry->rule->key.fingerprint == plan.fingerprint) {
        state_decide(&entry->rule->plan, entry->state, request->now_us, request->cost, WEIR_PEEK, out);
        return;
    }
    const struct carried carried = carried_to(&plan, entry, request->now_us);
    if (carried.used > 0 && carried.resumes)
        memcpy(state, entry_former(entry), state_words(&plan) * sizeof *state);
    else if (carried.used > 0)
        state_charge(&plan, state, carried.at_us, carried.used);
    else
        missing_state(request, &plan, state);
    state_decide(&plan, state, request->now_us, request->cost, WEIR_PEEK, out);
}

/* The state of an entry with a former one was changed by this decision. */
static void former_changed(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                           struct entry *entry, const struct weir_decision *decision) REQUIRES(shard->mutex)
{
    const struct weir_plan *plan = entry->rule->former;
    int64_t *former = entry_former(entry), at_us = request->now_us;
    const int64_t charged = request->verb == WEIR_TAKE && decision->allowed ? request->cost + decision->ahead : 0;
    if (charged > 0)
        former_take(plan, former, request->now_us, charged);
    if (decision->reset_after_us == 0 && state_used(plan, former, &at_us) == 0) {
        shard_remove(&memory->table, shard, entry);
        return;
    }
    if (decision->reset_after_us == 0) /* given back: what is too old to count goes as well */
        state_charge(&entry->rule->plan, entry->state, request->now_us, 0);
    shard_note(&memory->table, shard, entry_fresh_at_us(entry));
}

void decide_any_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                      struct entry *entry, struct weir_decision *out)
{
    const struct rule *rule = entry->rule;
    bool changed;
    if (request->verb == WEIR_TAKE && request->ahead > 0)
        changed = state_take_ahead(&rule->plan, entry->state, request->now_us, request->cost, request->ahead,
                                   request->spread, out);
    else
        changed = state_decide(&rule->plan, entry->state, request->now_us, request->cost, request->verb, out);
    if (changed && rule_former(rule))
        former_changed(memory, shard, request, entry, out);
    else if (changed)
        entry_changed(memory, shard, request, entry, out);
}
