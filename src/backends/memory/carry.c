/* carry.c - brings entries under another plan of their limit, and decides for those with a former state.
 *
 * What that is, and what becomes of it, says core/algorithm/former.c. Here it lies behind the entry's state, under a rule of its
 * own kind, until a take finds nothing used in it; the next decision then puts the entry back under the ordinary rule.
 */
#include "backends/memory/decide.h"

/* An entry's states, copied. */
struct copy {
    int64_t state[STATE_MAX_WORDS], former_state[STATE_MAX_WORDS];
    struct written own, former;
};

static void copy_of(const struct memory *memory, const struct entry *entry, struct copy *copy)
{
    const struct rule *rule = entry_rule(&memory->table, entry);
    const struct weir_plan *former = rule_former(rule);
    const size_t words = state_words(&rule->plan);
    entry_read(entry, 0, copy->state, words);
    copy->own = (struct written){ &rule->plan, copy->state };
    copy->former = (struct written){ former, former ? copy->former_state : NULL };
    if (former)
        entry_read(entry, words, copy->former_state, state_words(former));
}

/* Whether a request that sees `plan` as that of `version` finds the entry under it, or under a later one. */
static bool is_under(const struct rule *rule, const struct weir_backend_request *request, const struct weir_plan *plan,
                     uint64_t version)
{
    return rule_is(rule, request, plan) || rule_version(rule) > rule_mark(rule, version);
}

/* Put the entry under `plan`, with `own` as its state, as it is, and `former` beside it. */
static enum table_error keep(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                             const struct weir_plan *plan, uint64_t version, const int64_t *own,
                             const struct written *former, struct entry **entry) REQUIRES(shard->mutex)
{
    enum table_error error = shard_renew(&memory->table, shard, request, plan, version, former, entry);
    if (error)
        return error;
    entry_write(*entry, 0, own, state_words(plan));
    shard_note(&memory->table, shard, entry_fresh_at_us(&memory->table, *entry));
    return TABLE_OK;
}

/* Without a former state in which nothing is used. Without memory to move to, the entry keeps it. */
static void let_go(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                   const struct copy *copy, struct entry **entry) REQUIRES(shard->mutex)
{
    const struct written none = { NULL, NULL };
    const struct rule *rule = entry_rule(&memory->table, *entry);
    const struct weir_plan plan = rule->plan;
    keep(memory, shard, request, &plan, rule_version(rule) & ~RULE_ASIDE, copy->state, &none, entry);
}

enum table_error carry_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                             struct entry **entry)
{
    struct rule *rule = entry_rule(&memory->table, *entry);
    struct copy copy;
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    copy_of(memory, *entry, &copy);
    if (is_under(rule, request, &plan, version)) {
        const bool is_own = rule_is(rule, request, &plan);
        if (is_own)
            rule_raise(rule, rule_mark(rule, version));
        if (is_own && copy.former.plan && state_fresh_at_us(copy.former.plan, copy.former.state) == 0)
            let_go(memory, shard, request, &copy, entry);
        return TABLE_OK;
    }
    if (rule->key.fingerprint == plan.fingerprint)
        return shard_hand_over(&memory->table, shard, request, version, *entry);
    const struct carried carried = carry_over(&plan, &copy.own, &copy.former, request->now_us);
    if (carried.used == 0) {
        shard_remove(&memory->table, shard, *entry);
        *entry = NULL;
        return TABLE_OK;
    }
    if (carried.resumes)
        return keep(memory, shard, request, &plan, version, copy.former_state, &carried.former, entry);
    int64_t state[STATE_MAX_WORDS];
    state_charge(&plan, state, carried.at_us, carried.used);
    return keep(memory, shard, request, &plan, version, state, &carried.former, entry);
}

void peek_carried(struct memory *memory, const struct weir_backend_request *request, struct entry *entry,
                  struct weir_decision *out)
{
    struct copy copy;
    int64_t state[STATE_MAX_WORDS];
    struct weir_plan plan;
    const struct rule *rule = entry_rule(&memory->table, entry);
    uint64_t version = weir_request_plan(request, &plan);
    if (is_under(rule, request, &plan, version) || rule->key.fingerprint == plan.fingerprint) {
        peek_entry(memory, request, entry, out);
        return;
    }
    copy_of(memory, entry, &copy);
    const struct carried carried = carry_over(&plan, &copy.own, &copy.former, request->now_us);
    if (carried.used > 0 && carried.resumes)
        memcpy(state, copy.former_state, state_words(&plan) * sizeof *state);
    else if (carried.used > 0)
        state_charge(&plan, state, carried.at_us, carried.used);
    else
        missing_state(request, &plan, state);
    state_decide(&plan, state, request->now_us, request->cost, WEIR_PEEK, out);
}

bool former_changed(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                    struct entry *entry, const struct weir_decision *decision)
{
    struct copy copy;
    copy_of(memory, entry, &copy);
    const struct weir_plan *plan = copy.former.plan;
    int64_t at_us = request->now_us;
    const int64_t charged = request->verb == WEIR_TAKE && decision->allowed ? request->cost + decision->ahead : 0;
    if (charged > 0) {
        former_take(plan, copy.former_state, request->now_us, charged);
        entry_write(entry, state_words(copy.own.plan), copy.former_state, state_words(plan));
    }
    if (decision->reset_after_us == 0 && state_used(plan, copy.former_state, &at_us) == 0) {
        shard_remove(&memory->table, shard, entry);
        return false;
    }
    if (decision->reset_after_us == 0) { /* given back: what is too old to count goes as well */
        state_charge(copy.own.plan, copy.state, request->now_us, 0);
        entry_write(entry, 0, copy.state, state_words(copy.own.plan));
    }
    shard_note(&memory->table, shard, entry_fresh_at_us(&memory->table, entry));
    return true;
}
