/* carry.c - brings entries under another plan of their limit, and charges former states.
 *
 * core/algorithm/former.c defines what a former state is and does. In memory it lies behind the entry's state,
 * under a special rule, until a take finds nothing used in it; the next decision then puts the entry back under
 * the ordinary rule. */
#include "backends/memory/decide.h"

/* A copy of an entry's states. */
struct entry_copy {
    int64_t state[STATE_MAX_WORDS], former_state[STATE_MAX_WORDS];
    struct written own, former;
};

static void carry_copy(const struct memory *memory, const struct entry *entry, struct entry_copy *copy)
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

/* True if the entry is under `plan`, which the request sees at `version`, or under a later one. */
static bool carry_is_under(const struct rule *rule, const struct weir_backend_request *request,
                           const struct weir_plan *plan, uint64_t version)
{
    return rule_is(rule, request, plan) || rule_version(rule) > rule_mark(rule, version);
}

/* Put the entry under `plan`, with `own` as its state and `former` behind it. */
static enum table_error carry_keep(struct memory *memory, struct shard *shard,
                                   const struct weir_backend_request *request, const struct weir_plan *plan,
                                   uint64_t version, const int64_t *own, const struct written *former,
                                   struct entry **entry) REQUIRES(shard->mutex)
{
    enum table_error error = shard_renew(&memory->table, shard, request, plan, version, former, entry);
    if (error)
        return error;
    entry_write(*entry, 0, own, state_words(plan));
    shard_note(&memory->table, shard, entry_fresh_at_us(&memory->table, *entry));
    return TABLE_OK;
}

/* Drop a former state in which nothing is used. Without memory for the smaller entry, it stays. */
static void carry_drop_former(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                              const struct entry_copy *copy, struct entry **entry) REQUIRES(shard->mutex)
{
    const struct written none = { NULL, NULL };
    const struct rule *rule = entry_rule(&memory->table, *entry);
    const struct weir_plan plan = rule->plan;
    carry_keep(memory, shard, request, &plan, rule_version(rule) & ~RULE_ASIDE, copy->state, &none, entry);
}

/* Write the state that an entry has under `plan`. True if anything in it is used. */
static bool carry_state(const struct weir_plan *plan, const struct entry_copy *copy, const struct carried *carried,
                        int64_t *state)
{
    if (carried->used > 0 && carried->resumes)
        memcpy(state, copy->former_state, state_words(plan) * sizeof *state);
    else if (carried->used > 0)
        state_charge(plan, state, carried->at_us, carried->used);
    return carried->used > 0;
}

enum table_error carry_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                             struct entry **entry)
{
    struct rule *rule = entry_rule(&memory->table, *entry);
    struct entry_copy copy;
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    carry_copy(memory, *entry, &copy);
    if (carry_is_under(rule, request, &plan, version)) {
        const bool is_own = rule_is(rule, request, &plan);
        if (is_own)
            rule_raise(rule, rule_mark(rule, version));
        if (is_own && copy.former.plan && state_fresh_at_us(copy.former.plan, copy.former.state) == 0)
            carry_drop_former(memory, shard, request, &copy, entry);
        return TABLE_OK;
    }
    if (rule->key.fingerprint == plan.fingerprint)
        return shard_hand_over(&memory->table, shard, request, version, *entry);
    const struct carried carried = carry_over(&plan, &copy.own, &copy.former, request->now_us);
    int64_t state[STATE_MAX_WORDS];
    if (!carry_state(&plan, &copy, &carried, state)) {
        shard_remove(&memory->table, shard, *entry);
        *entry = NULL;
        return TABLE_OK;
    }
    return carry_keep(memory, shard, request, &plan, version, state, &carried.former, entry);
}

void peek_carried(struct memory *memory, const struct weir_backend_request *request, struct entry *entry,
                  struct weir_decision *out)
{
    struct entry_copy copy;
    int64_t state[STATE_MAX_WORDS];
    struct weir_plan plan;
    const struct rule *rule = entry_rule(&memory->table, entry);
    uint64_t version = weir_request_plan(request, &plan);
    if (carry_is_under(rule, request, &plan, version) || rule->key.fingerprint == plan.fingerprint) {
        peek_entry(memory, request, entry, out);
        return;
    }
    carry_copy(memory, entry, &copy);
    const struct carried carried = carry_over(&plan, &copy.own, &copy.former, request->now_us);
    if (!carry_state(&plan, &copy, &carried, state))
        missing_state(request, &plan, state);
    state_decide(&plan, state, request->now_us, request->cost, WEIR_PEEK, out);
}

bool former_changed(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                    struct entry *entry, const struct weir_decision *decision)
{
    struct entry_copy copy;
    carry_copy(memory, entry, &copy);
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
    if (decision->reset_after_us == 0) { /* a refund: drop blocks that are too old to count as well */
        state_charge(copy.own.plan, copy.state, request->now_us, 0);
        entry_write(entry, 0, copy.state, state_words(copy.own.plan));
    }
    shard_note(&memory->table, shard, entry_fresh_at_us(&memory->table, entry));
    return true;
}
