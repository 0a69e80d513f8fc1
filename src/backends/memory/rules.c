/* rules.c - a counted table of plans. */
#include "backends/memory/rules.h"

#include "core/algorithm/algorithm.h"

#include <assert.h>
#include <stdlib.h>

int rules_init(struct rules *rules, struct readers *readers)
{
    *rules = (struct rules){ .readers = readers };
    lock_init(&rules->mutex);
    rules->current = calloc(RULES_CURRENT, sizeof *rules->current); /* pages are touched only for limits that exist */
    return rules->current ? 0 : -1;
}

void rules_destroy(struct rules *rules)
{
    struct rule *rule, *next;
    HASH_ITER(hh, rules->table, rule, next) {
        assert(atomic_load(&rule->holders) == 0);
        HASH_DEL(rules->table, rule);
    }
    for (int i = 0; i < RULES_CHUNKS; i++)
        free(atomic_load(&rules->chunks[i]));
    free((void *)rules->current);
    lock_destroy(&rules->mutex);
}

/* Make a chunk of rules unless it exists. False: out of memory. */
static bool rules_make_chunk(struct rules *rules, unsigned chunk) REQUIRES(rules->mutex)
{
    if (atomic_load_explicit(&rules->chunks[chunk], memory_order_relaxed))
        return true;
    struct rule *made = aligned_alloc(alignof(struct rule), ((size_t)RULES_FIRST << chunk) * sizeof *made);
    atomic_store_explicit(&rules->chunks[chunk], made, memory_order_relaxed);
    return made != NULL;
}

/* Return a rule's memory that no reader can still be using. NULL: out of memory or of numbers. */
static struct rule *rule_take(struct rules *rules) REQUIRES(rules->mutex)
{
    struct rule *rule = rules->forgotten;
    if (rule) {
        rules->forgotten = rule->next;
        return rule;
    }
    const uint32_t number = RULES_FIRST + rules->count;
    if (number >> RULE_BITS != 0 || !rules_make_chunk(rules, 25 - (unsigned)__builtin_clz(number)))
        return NULL;
    rules->count++;
    rule = rule_at(rules, number);
    rule->number = number;
    return rule;
}

static struct rule *rule_add(struct rules *rules, const struct weir_plan *plan, const struct weir_plan *former,
                             const struct rule_key *key) REQUIRES(rules->mutex)
{
    struct rule *rule = rule_take(rules);
    if (!rule)
        return NULL;
    *rule = (struct rule){
        .plan = *plan,
        .key = *key,
        .words = state_words(plan),
        .is_greedy = plan->algorithm == WEIR_TOKEN_BUCKET && plan->refill == WEIR_GREEDY && !former,
        .number = rule->number,
    };
    if (former) {
        rule->former = *former;
        rule->words += state_words(former);
    }
    HASH_ADD(hh, rules->table, key, sizeof rule->key, rule);
    if (!rule->hh.tbl) {
        rule->next = rules->forgotten;
        rules->forgotten = rule;
        return NULL;
    }
    rules->idle++;
    return rule;
}

static struct rule *_Atomic *rules_current(struct rules *rules, const struct rule *rule)
{
    return &rules->current[rule->key.limit_id % RULES_CURRENT];
}

/* Forget every rule without a holder, after all readers have left. */
static void rules_forget_idle(struct rules *rules) REQUIRES(rules->mutex)
{
    struct rule *rule, *next, *gone = NULL;
    HASH_ITER(hh, rules->table, rule, next) {
        if (atomic_load_explicit(&rule->holders, memory_order_acquire) > 0)
            continue;
        HASH_DEL(rules->table, rule);
        if (atomic_load_explicit(rules_current(rules, rule), memory_order_relaxed) == rule)
            atomic_store_explicit(rules_current(rules, rule), NULL, memory_order_relaxed);
        rule->next = gone;
        gone = rule;
    }
    rules->idle = 0;
    readers_wait(rules->readers);
    while (gone) {
        next = gone->next;
        gone->next = rules->forgotten;
        rules->forgotten = gone;
        gone = next;
    }
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
        rules->idle -= atomic_load_explicit(&rule->holders, memory_order_relaxed) == 0;
        rule_hold(rule);
        rule_raise(rule, rule_mark(rule, version));
        if (atomic_load_explicit(rules_current(rules, rule), memory_order_relaxed) !=
            rule) /* skip the write if it changes nothing: every decision reads that cache line */
            atomic_store_explicit(rules_current(rules, rule), rule, memory_order_release);
    }
    lock_give(&rules->mutex);
    return rule;
}

void rule_drop(struct rules *rules, struct rule *rule)
{
    /* Other holders keep the rule alive. The last one to leave takes the mutex. */
    uint64_t holders = atomic_load_explicit(&rule->holders, memory_order_relaxed);
    while (holders > 1)
        if (atomic_compare_exchange_weak_explicit(&rule->holders, &holders, holders - 1, memory_order_release,
                                                  memory_order_relaxed))
            return;
    lock_take(&rules->mutex);
    if (atomic_fetch_sub_explicit(&rule->holders, 1, memory_order_acq_rel) == 1 && ++rules->idle > RULES_IDLE)
        rules_forget_idle(rules);
    lock_give(&rules->mutex);
}
