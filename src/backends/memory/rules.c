/* rules.c - a counted table of plans. */
#include "backends/memory/rules.h"

#include "core/algorithm/former.h"
#include "core/limiter/figures.h"

#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

/* What a rule adds to the memory: itself, and about one bucket of uthash's table. */
#define RULE_BYTES ((int64_t)(sizeof(struct rule) + sizeof(UT_hash_bucket)))

int rules_init(struct rules *rules, struct readers *readers, struct budget *budget, int64_t own_bytes)
{
    *rules = (struct rules){ .readers = readers, .own.max = own_bytes, .budget = budget };
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

static bool rules_pay(struct rules *rules, int64_t bytes)
{
    return budget_take(&rules->own, bytes) || budget_take(rules->budget, bytes);
}

static struct rule *_Atomic *rules_current(struct rules *rules, const struct rule *rule)
{
    return &rules->current[rule->key.limit_id % RULES_CURRENT];
}

/* Forget the rules that have been idle for longest until `most` idle ones are left, and wait for all readers. */
static void rules_forget_idle(struct rules *rules, uint32_t most) REQUIRES(rules->mutex)
{
    for (; rules->idle_count > most; rules->idle_count--) {
        struct rule *rule = rules->idle;
        rules->visited++;
        DL_DELETE(rules->idle, rule);
        HASH_DEL(rules->table, rule);
        if (atomic_load_explicit(rules_current(rules, rule), memory_order_relaxed) == rule)
            atomic_store_explicit(rules_current(rules, rule), NULL, memory_order_relaxed);
        LL_PREPEND(rules->forgotten, rule);
    }
    readers_wait(rules->readers); /* before the mutex lets anyone take the memory */
}

/* Return memory for a rule under the next number. NULL: out of memory or of numbers, or *is_spent. */
static struct rule *rule_make(struct rules *rules, bool *is_spent) REQUIRES(rules->mutex)
{
    const uint32_t number = RULES_FIRST + rules->count;
    if (number >> RULE_BITS != 0 || !rules_make_chunk(rules, 25 - (unsigned)__builtin_clz(number)))
        return NULL;
    if (!rules_pay(rules, RULE_BYTES)) {
        *is_spent = true;
        return NULL;
    }
    rules->count++;
    struct rule *rule = rule_at(rules, number);
    rule->number = number;
    return rule;
}

/* Return a rule's memory that no reader can still be using, or NULL as rule_make() does. */
static struct rule *rule_take(struct rules *rules, bool *is_spent) REQUIRES(rules->mutex)
{
    if (!rules->forgotten) {
        bool is_refused = false;
        struct rule *made = rule_make(rules, rules->idle ? &is_refused : is_spent);
        if (made || !rules->idle)
            return made;
        rules_forget_idle(rules, 0);
    }
    struct rule *rule = rules->forgotten;
    LL_DELETE(rules->forgotten, rule);
    return rule;
}

static struct rule *rule_add(struct rules *rules, const struct weir_plan *plan, const struct weir_plan *former,
                             const struct rule_key *key, bool *is_spent) REQUIRES(rules->mutex)
{
    struct rule *rule = rule_take(rules, is_spent);
    if (!rule)
        return NULL;
    const bool is_greedy = plan->algorithm == WEIR_TOKEN_BUCKET && plan->refill == WEIR_GREEDY;
    *rule = (struct rule){
        .plan = *plan,
        .key = *key,
        .limit_id = (uint32_t)key->limit_id,
        .words = (uint32_t)(state_words(plan) + key->spare_words),
        .number = rule->number,
    };
    if (is_greedy && !former && key->spare_words == 0) {
        rule->known = level_known_of(plan);
        rule->near = rule->known.top - div_up(plan->size, FIGURES_NEAR) * plan->q;
        if (plan->tick_us == 1 && plan->size <= WEIR_MAX_PERMITS)
            rule->plain_whose = rule->number << RULE_SHIFT;
    }
    if (former) {
        rule->former = *former;
        rule->words += (uint32_t)behind_words(former);
    }
    HASH_ADD(hh, rules->table, key, sizeof rule->key, rule);
    if (!rule->hh.tbl) {
        LL_PREPEND(rules->forgotten, rule);
        return NULL;
    }
    return rule;
}

/* Make a rule what its limit's requests are guessed to need. Without budget for the page of the guess, they find
 * it through their entries. */
static void rule_expect(struct rules *rules, struct rule *rule) REQUIRES(rules->mutex)
{
    struct rule *_Atomic *current = rules_current(rules, rule);
    const size_t page = (size_t)(current - rules->current) / RULES_CURRENT_PAGE;
    const uint64_t bit = UINT64_C(1) << page % 64;
    if (atomic_load_explicit(current, memory_order_relaxed) == rule)
        return; /* skip the write if it changes nothing: every decision reads that cache line */
    if ((rules->current_pages[page / 64] & bit) == 0) {
        if (!rules_pay(rules, (int64_t)(RULES_CURRENT_PAGE * sizeof *current)))
            return;
        rules->current_pages[page / 64] |= bit;
    }
    atomic_store_explicit(current, rule, memory_order_release);
}

static struct rule_key rule_key_of(const struct weir_backend_request *request, const struct weir_plan *plan,
                                   const struct weir_plan *former, size_t spare_words)
{
    return (struct rule_key){
        .fingerprint = plan->fingerprint,
        .limit_id = request->limit_id,
        .limit = (uintptr_t)request->limit,
        .former_fingerprint = former ? former->fingerprint : 0,
        .spare_words = spare_words,
    };
}

static struct rule *rule_find(struct rules *rules, const struct rule_key *key) REQUIRES(rules->mutex)
{
    struct rule *rule;
    HASH_FIND(hh, rules->table, key, sizeof *key, rule);
    return rule;
}

bool rules_have_room(struct rules *rules, const struct weir_backend_request *request, const struct weir_plan *plan)
{
    const struct rule_key key = rule_key_of(request, plan, NULL, 0);
    lock_take(&rules->mutex);
    const bool has_room = rule_find(rules, &key) || rules->forgotten || rules->idle ||
                          budget_has(&rules->own, RULE_BYTES) || budget_has(rules->budget, RULE_BYTES);
    lock_give(&rules->mutex);
    return has_room;
}

struct rule *rule_get(struct rules *rules, const struct weir_backend_request *request, const struct weir_plan *plan,
                      uint64_t version, const struct weir_plan *former, size_t spare_words, bool *is_spent)
{
    const struct rule_key key = rule_key_of(request, plan, former, spare_words);
    lock_take(&rules->mutex);
    struct rule *rule = rule_find(rules, &key);
    if (!rule) {
        rule = rule_add(rules, plan, former, &key, is_spent);
    } else if (atomic_load_explicit(&rule->holders, memory_order_relaxed) == 0) {
        DL_DELETE(rules->idle, rule);
        rules->idle_count--;
    }
    if (rule) {
        rule_hold(rule);
        rule_raise(rule, rule_mark(rule, version));
        rule_expect(rules, rule);
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
    if (atomic_fetch_sub_explicit(&rule->holders, 1, memory_order_acq_rel) == 1) {
        DL_APPEND(rules->idle, rule);
        if (++rules->idle_count > RULES_IDLE)
            rules_forget_idle(rules, RULES_IDLE / 2);
    }
    lock_give(&rules->mutex);
}
