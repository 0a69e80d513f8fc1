/* rules.h - the plans that states in memory were written under.
 *
 * An entry of the table names its rule, a plan of a limit, or of one of its overrides, and the version at which that
 * had it last. (Rules of two overrides are not one even if their plans are: a key may leave the one while the other
 * goes on.) Where that is not the request's, the state may have to be carried over, and for that the old plan must
 * still be there. So a rule lives as long as an entry was written under it, or a shard remembers it as its last; some
 * that nobody holds any more are kept until there are RULES_IDLE of them.
 *
 * A rule has a number, which entries name it by. Readers (readers.h) may look at a rule without a lock: it is what it
 * was as long as they look, for the memory of one that is forgotten waits for them before it serves another. That
 * memory is kept, so that a number always leads to a rule, by one look into a short directory.
 *
 * An entry with a former state (core/algorithm/former.h) is under a rule of its own kind, which names the plan of that one as
 * well. Such a rule is no request's: who decides for an entry that is current need not ask whether it has one.
 *
 * Locks: rules->mutex, inside a shard's.
 */
#ifndef BACKENDS_MEMORY_RULES_H
#define BACKENDS_MEMORY_RULES_H

#include "backends/shared/readers.h"
#include "core/ground/lock.h"
#include "core/ground/uthash_config.h"

#include <weir/backend.h>

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

struct rule_key {
    int64_t fingerprint;
    uint64_t limit_id;
    uint64_t limit;             /* the address of the limit or the override */
    int64_t former_fingerprint; /* 0: entries have no former state */
};

/* The version of a rule with a former plan has this bit, and no limit's plan ever gets as far. */
#define RULE_ASIDE (UINT64_C(1) << 63)

#define RULES_FIRST 64 /* the lowest number; the first chunk has as many rules, and each other twice those before it */
#define RULE_BITS 20   /* of a number */
#define RULES_CHUNKS (RULE_BITS - 6)
#define RULES_IDLE 64
#define RULES_CURRENT WEIR_MAX_LIMITS

/* What a decision reads is in the first two cache lines: with thousands of limits that is what they cost it. */
struct rule {
    alignas(64) struct rule_key key; /* (c) */
    _Atomic uint64_t version;        /* the latest at which this was the limit's plan; only grows, see rule_raise() */
    size_t words;                    /* (c) of an entry: its state's, then its former state's */
    uint32_t number;                 /* (c) */
    bool is_greedy;                  /* (c) a token bucket with greedy refill, as most are */
    struct weir_plan plan;           /* (c) */
    struct weir_plan former;         /* (c) if key.former_fingerprint is not 0 */
    /* What lies between this and the fields above keeps them out of each other's cache lines: it changes with each key
     * that comes or goes, and they are read by every decision. */
    _Atomic uint64_t holders; /* entries and shards; from 0 to 1 only under rules->mutex */
    struct rule *next;        /* rules->mutex, of one that is forgotten */
    UT_hash_handle hh;        /* rules->mutex */
};

_Static_assert(offsetof(struct rule, plan.reserve) <= 128, "decided by what is before it, in two cache lines");
_Static_assert(offsetof(struct rule, holders) >= 192, "apart from it");

/* (m) rules->mutex, (a) atomic. What every decision reads comes first, the mutex two cache lines further on. */
struct rules {
    /* (a) By limit: the rule got last, which is probably the one that a request asks for. Known before the entry, it
     * saves a decision the time from there to the plan. */
    struct rule *_Atomic *current;
    struct rule *_Atomic chunks[RULES_CHUNKS]; /* (a) */
    struct readers *readers;                   /* (c) */
    struct lock mutex;
    struct rule *table;     /* (m) */
    struct rule *forgotten; /* (m) memory for others */
    uint32_t count;         /* (m) numbers handed out ever */
    uint32_t idle;          /* (m) rules in the table that nobody holds */
};

/* 0, or -1 if there was no memory. */
int rules_init(struct rules *rules, struct readers *readers);

/* Nobody holds a rule any more. */
void rules_destroy(struct rules *rules);

static inline struct rule *rule_at(const struct rules *rules, uint32_t number)
{
    const unsigned top = 31 - (unsigned)__builtin_clz(number);
    struct rule *chunk = atomic_load_explicit(&rules->chunks[top - 6], memory_order_relaxed);
    return &chunk[number - (1u << top)];
}

/* The rule of a plan that the request's limit has as of `version`, for entries with a former state under `former`, or
 * without one if that is NULL; held once more. NULL: out of memory, or of numbers. */
struct rule *rule_get(struct rules *rules, const struct weir_backend_request *request, const struct weir_plan *plan,
                      uint64_t version, const struct weir_plan *former);

/* A rule to be compared with, or NULL. */
static inline struct rule *rule_guess(const struct rules *rules, uint64_t limit_id)
{
    return atomic_load_explicit(&rules->current[limit_id % RULES_CURRENT], memory_order_acquire);
}

/* One more holder of a rule that the caller holds already. Relaxed: its holding orders all that matters. */
static inline void rule_hold(struct rule *rule)
{
    atomic_fetch_add_explicit(&rule->holders, 1, memory_order_relaxed);
}

/* The plan of the entries' former states, or NULL. */
static inline const struct weir_plan *rule_former(const struct rule *rule)
{
    return rule->key.former_fingerprint ? &rule->former : NULL;
}

/* A limit's version as this rule has it. */
static inline uint64_t rule_mark(const struct rule *rule, uint64_t version)
{
    return rule->key.former_fingerprint ? version | RULE_ASIDE : version;
}

/* The limit has this plan as of `version`, as marked (or again). Relaxed: it is compared by threads of which each has
 * raised it before or brings an older version. */
static inline void rule_raise(struct rule *rule, uint64_t version)
{
    uint64_t known = atomic_load_explicit(&rule->version, memory_order_relaxed);
    while (known < version && !atomic_compare_exchange_weak_explicit(&rule->version, &known, version,
                                                                     memory_order_relaxed, memory_order_relaxed))
        ;
}

/* As marked. */
static inline uint64_t rule_version(const struct rule *rule)
{
    return atomic_load_explicit(&rule->version, memory_order_relaxed);
}

void rule_drop(struct rules *rules, struct rule *rule);

static inline bool rule_is(const struct rule *rule, const struct weir_backend_request *request,
                           const struct weir_plan *plan)
{
    return rule->key.fingerprint == plan->fingerprint && rule->key.limit_id == request->limit_id &&
           rule->key.limit == (uintptr_t)request->limit;
}

/* Whether an entry of the request's limit was written under the very plan that the request asks for, and has no former
 * state: no two plans of a limit have a version in common. */
static inline bool rule_is_current(const struct rule *rule, const struct weir_backend_request *request)
{
    return rule_version(rule) == request->plan_version;
}

#endif
