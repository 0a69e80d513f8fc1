/* rules.c - a counted table of plans. */
#include "backends/rules.h"

#include "core/algorithm.h"

#include <assert.h>
#include <stdlib.h>

void rules_init(struct rules *rules)
{
    rules->table = NULL;
    lock_init(&rules->mutex);
}

void rules_destroy(struct rules *rules)
{
    assert(!rules->table);
    lock_destroy(&rules->mutex);
}

static struct rule *rule_add(struct rules *rules, const struct weir_plan *plan, const struct weir_plan *former,
                             const struct rule_key *key) REQUIRES(rules->mutex)
{
    struct rule *rule = calloc(1, sizeof *rule + (former ? sizeof *former : 0));
    if (!rule)
        return NULL;
    rule->plan = *plan;
    rule->key = *key;
    rule->state_bytes = state_words(plan) * sizeof(int64_t);
    if (former) {
        rule->former[0] = *former;
        rule->state_bytes += state_words(former) * sizeof(int64_t);
    }
    HASH_ADD(hh, rules->table, key, sizeof rule->key, rule);
    if (!rule->hh.tbl) {
        free(rule);
        return NULL;
    }
    return rule;
}

struct rule *rule_get(struct rules *rules, const struct weir_backend_request *request, const struct weir_plan *plan,
                      uint64_t version, const struct weir_plan *former)
{
    const struct rule_key key = {
        .fingerprint = plan->fingerprint,
        .limit_id = request->limit_id,
        .limit = (uintptr_t)request->limit,
        .former_fingerprint = former ? former->fingerprint : 0,
    };
    struct rule *rule;
    lock_take(&rules->mutex);
    HASH_FIND(hh, rules->table, &key, sizeof key, rule);
    if (!rule)
        rule = rule_add(rules, plan, former, &key);
    if (rule) {
        rule_hold(rule);
        rule_raise(rule, rule_mark(rule, version));
    }
    lock_give(&rules->mutex);
    return rule;
}

void rule_drop(struct rules *rules, struct rule *rule)
{
    /* As long as others hold it nobody frees it, and it takes the mutex to be the last. */
    uint64_t holders = atomic_load_explicit(&rule->holders, memory_order_relaxed);
    while (holders > 1)
        if (atomic_compare_exchange_weak_explicit(&rule->holders, &holders, holders - 1, memory_order_release,
                                                  memory_order_relaxed))
            return;
    lock_take(&rules->mutex);
    if (atomic_fetch_sub_explicit(&rule->holders, 1, memory_order_acq_rel) == 1) {
        HASH_DEL(rules->table, rule);
        free(rule);
    }
    lock_give(&rules->mutex);
}
