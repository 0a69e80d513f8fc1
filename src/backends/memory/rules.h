/* rules.h - the plans under which states in memory were written.
 *
 * Each entry of the table names its rule: a plan of a limit or of an override, and the latest version at which
 * the limit had it. Two overrides with equal plans have two rules, because a key may leave one override while the
 * other continues. If an entry's rule is not the request's, the state may have to be carried over, and that takes
 * the old plan. So a rule lives while an entry was written under it or a shard remembers it as its latest.
 *
 * A rule without holders is idle. Up to RULES_IDLE idle rules are kept, in a list in the order in which they became
 * idle. One more, and the older half is forgotten in one batch. A batch waits for readers once and looks at no rule
 * that is held, so forgetting costs the same per rule however many rules there are.
 *
 * Entries name a rule by its number. Readers (readers.h) may use a rule without a lock: the memory of a forgotten
 * rule serves another one only after all readers have left. The memory itself is kept, so that a number always
 * leads to a rule by one lookup in a short directory.
 *
 * Every rule counts towards the backend's budget from the first use of its memory on. If the budget is spent, all
 * idle rules are forgotten and a new rule takes the place of one of them. Part of the budget is for rules alone, so
 * that a new limit has room although keys fill the rest.
 *
 * An entry with a former state (core/algorithm/former.h) is under a special rule that names the former plan as
 * well. No request has such a rule, so a decision for a current entry need not check for a former state.
 *
 * Locks: rules->mutex, inside a shard's.
 */
#ifndef BACKENDS_MEMORY_RULES_H
#define BACKENDS_MEMORY_RULES_H

#include "backends/shared/budget.h"
#include "backends/shared/readers.h"
#include "core/algorithm/level.h"
#include "core/algorithm/sliding_window.h"
#include "core/ground/lock.h"
#include "core/ground/uthash_config.h"

#include <weir/backend.h>

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

struct rule_key {
    int64_t fingerprint;
    uint64_t limit_id;
    uint64_t limit;             /* address of the limit or the override */
    int64_t former_fingerprint; /* 0: no former state */
    uint64_t spare_words;       /* of an entry: unused ones between its states and its key */
};

/* Marks the version of a rule with a former plan. No limit's version ever gets this high. */
#define RULE_ASIDE (UINT64_C(1) << 63)

#define RULES_FIRST 64 /* the lowest number; also the size of the first chunk, and each further one doubles the total */
#define RULE_BITS 20   /* bits of a number, ... */
#define RULE_SHIFT 11  /* ... and where a record's word has them, memory/entry.h */
#define RULES_CHUNKS (RULE_BITS - 6)
#define RULES_IDLE 128
#define RULES_CURRENT WEIR_MAX_LIMITS
#define RULES_CURRENT_PAGE 512 /* limits per page of `current`, so that a page has 4 KiB */
#define RULES_CURRENT_PAGES (RULES_CURRENT / RULES_CURRENT_PAGE)
#define RULES_SHARE 32 /* 1 / this of max_bytes is for rules alone */

#define GREEDY_WORDS 2 /* of a token bucket with greedy refill */

/* Everything that a decision reads is in the first two cache lines. */
struct rule {
    alignas(64) _Atomic uint64_t version; /* the latest version with this plan; only grows, see rule_raise() */
    uint32_t limit_id;                    /* (c) as in `key` */
    uint32_t number;                      /* (c) */
    uint32_t words;                       /* (c) of an entry: its state, its former state and spare ones */
    /* (c) What the number adds to a record's word, if rule_is_greedy(), a tick is 1 us, and the size is a cost that the
     * API allows, as it is except with very large numbers. Otherwise 0, which no key's record has. */
    uint32_t plain_whose;
    struct level_known known; /* (c) valid if rule_is_greedy() */
    int64_t near;          /* (c) with plain_whose: the units in use beyond which less than 1 / FIGURES_NEAR is left */
    struct weir_plan plan; /* (c) */
    struct rule_key key;   /* (c) */
    struct weir_plan former; /* (c) valid if key.former_fingerprint is not 0 */
    /* Every decision reads the fields above; `holders` changes with each key that comes or goes. `former` between
     * them keeps them in separate cache lines. */
    _Atomic uint64_t holders; /* entries and shards that use the rule; goes from 0 to 1 only under rules->mutex */
    struct rule *prev, *next; /* rules->mutex; links idle rules; `next` also links forgotten ones */
    UT_hash_handle hh;        /* rules->mutex */
};

_Static_assert(offsetof(struct rule, plan.reserve) <= 128, "decided by what is before it, in two cache lines");
_Static_assert(offsetof(struct rule, holders) >= 192, "apart from it");

/* (m) rules->mutex, (a) atomic. The mutex is two cache lines away from what every decision reads. */
struct rules {
    /* (a) By limit: the latest rule, which is probably the request's. Guessing it before the entry is read saves
     * a decision a cache miss, see look_guess(). */
    struct rule *_Atomic *current;
    struct rule *_Atomic chunks[RULES_CHUNKS]; /* (a) */
    struct readers *readers;                   /* (c) */
    struct budget own;                         /* for rules alone; spent first */
    struct budget *budget;                     /* (c) the backend's */
    struct lock mutex;
    struct rule *table;     /* (m) */
    struct rule *idle;      /* (m) rules in the table without holders; the first has been idle for longest */
    struct rule *forgotten; /* (m) memory for new rules */
    uint32_t count;         /* (m) numbers ever assigned */
    uint32_t idle_count;    /* (m) */
    uint64_t visited;       /* (m) rules that forgetting has looked at; tests bound it */
    uint64_t current_pages[RULES_CURRENT_PAGES / 64]; /* (m) one bit for each page of `current` that is counted */
};

/* Prepare an empty table, with `own_bytes` for rules alone. 0, or -1: out of memory. */
int rules_init(struct rules *rules, struct readers *readers, struct budget *budget, int64_t own_bytes);

/* Free everything. No rule may have a holder. */
void rules_destroy(struct rules *rules);

static inline struct rule *rule_at(const struct rules *rules, uint32_t number)
{
    const unsigned top = 31 - (unsigned)__builtin_clz(number);
    struct rule *chunk = atomic_load_explicit(&rules->chunks[top - 6], memory_order_relaxed);
    return &chunk[number - (1u << top)];
}

/* Return the rule of a plan that the request's limit has at `version`, with one more holder. `former` is the plan
 * of the entries' former states, or NULL. A spent budget refuses a new rule and sets *is_spent. NULL: refused, or out
 * of memory or of numbers. */
struct rule *rule_get(struct rules *rules, const struct weir_backend_request *request, const struct weir_plan *plan,
                      uint64_t version, const struct weir_plan *former, size_t spare_words, bool *is_spent);

/* True if rule_get(), without a former plan and spare words, would not be refused. */
bool rules_have_room(struct rules *rules, const struct weir_backend_request *request, const struct weir_plan *plan);

/* True only for a token bucket with greedy refill, the commonest kind: GREEDY_WORDS. */
static inline bool rule_is_greedy(const struct rule *rule)
{
    return rule->known.q_factor != 0; /* no reciprocal is */
}

/* Return the plan of a rule with a plain_whose: the compiler leaves out what a tick of 1 us does not need. */
__attribute__((always_inline)) static inline const struct weir_plan *rule_plain_plan(const struct rule *rule)
{
    assume(rule->plan.tick_us == 1);
    return &rule->plan;
}

/* Return the rule that the limit's requests probably need, or NULL. The caller must check that it fits. */
static inline struct rule *rule_guess(const struct rules *rules, uint64_t limit_id)
{
    return atomic_load_explicit(&rules->current[limit_id % RULES_CURRENT], memory_order_acquire);
}

/* Add a holder to a rule that the caller holds. Relaxed: the caller's own hold orders everything. */
static inline void rule_hold(struct rule *rule)
{
    atomic_fetch_add_explicit(&rule->holders, 1, memory_order_relaxed);
}

/* Return the plan of what the entries have behind their states (core/algorithm/former.h), or NULL. */
static inline const struct weir_plan *rule_former(const struct rule *rule)
{
    return rule->key.former_fingerprint ? &rule->former : NULL;
}

/* Return a limit's version in this rule's form: marked if it has a former plan. */
static inline uint64_t rule_mark(const struct rule *rule, uint64_t version)
{
    return rule->key.former_fingerprint ? version | RULE_ASIDE : version;
}

/* Note that the limit has this plan, perhaps again, at `version`, which is marked. Relaxed: every thread that
 * compares the version has raised it before or brings an older one. */
static inline void rule_raise(struct rule *rule, uint64_t version)
{
    uint64_t known = atomic_load_explicit(&rule->version, memory_order_relaxed);
    while (known < version && !atomic_compare_exchange_weak_explicit(&rule->version, &known, version,
                                                                     memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Return the version, marked. */
static inline uint64_t rule_version(const struct rule *rule)
{
    return atomic_load_explicit(&rule->version, memory_order_relaxed);
}

void rule_drop(struct rules *rules, struct rule *rule);

/* True if a state that lies behind an entry has a summary (core/algorithm/sliding_window.h) in the entry's cell. Under
 * any other rule, all of it is behind the entry. */
static inline bool rule_has_summary(const struct rule *rule)
{
    return rule->plan.algorithm == WEIR_SLIDING_WINDOW && !sliding_is_wide(&rule->plan) && !rule_former(rule);
}

static inline bool rule_is(const struct rule *rule, const struct weir_backend_request *request,
                           const struct weir_plan *plan)
{
    return rule->key.fingerprint == plan->fingerprint && rule->key.limit_id == request->limit_id &&
           rule->key.limit == (uintptr_t)request->limit;
}

/* True if an entry of the request's limit was written under exactly the plan that the request needs and has no
 * former state: no two plans of a limit share a version. */
static inline bool rule_is_current(const struct rule *rule, const struct weir_backend_request *request)
{
    return rule_version(rule) == request->plan_version;
}

#endif
