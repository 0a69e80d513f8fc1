/* limiter.h - a limiter and its limits.
 *
 * Locks. A thread holds one at a time; it calls no backend and no hook while it holds any. Two exceptions follow this
 * order: peers_mutex is held while a share is put into force, and a fork takes all of them.
 *
 *     follow->peers_mutex        what is known of peers, and the share that is being put into force
 *     follow->mutex              the progress of everything that is followed
 *     limiter->mutex             the table of limits, their policies, and the replacement of plans
 *     limiter->closing.mutex     calls that sleep, and the limiter's end
 *     errands->mutex             waiting for permits, and what the limiter's own threads have to do
 *     outage->settle.mutex       an outage's beginning and end, and what is owed from it
 *     outage->releases.mutex     releases that wait for the backend. A fork does not take it: the child forgets them
 *
 * A decision takes none of them unless permits are owed: it copies the limit's plan (plan_cell.h) and calls the
 * backend.
 */
#ifndef CORE_LIMITER_LIMITER_H
#define CORE_LIMITER_LIMITER_H

#include "core/algorithm/lease_rules.h"
#include "core/ground/clock.h"
#include "core/ground/forks.h"
#include "core/ground/key_hash.h"
#include "core/ground/lock.h"
#include "core/ground/log.h"
#include "core/ground/stats.h"
#include "core/ground/uthash_config.h"
#include "core/limiter/own_ops.h"
#include "core/policy/plan.h"
#include "core/policy/plan_cell.h"
#include "core/policy/share.h"

struct control;
struct errands;
struct events;
struct follow;
struct outage;
struct override;
struct overrides;
struct page;
struct top_keys;

/* Where a policy may come from. If several layers have one, the last of them is in force. */
enum layer { LAYER_CODE, LAYER_FILE, LAYER_CONSUL, LAYERS };

struct layers {
    bool there[LAYERS];
    struct weir_policy policies[LAYERS];
};

/* What a limit has answered, figures.h. A decision in memory counts in the first cache line. Relaxed: sums only, they
 * order nothing. */
struct figures {
    _Atomic uint64_t permits;                        /* charged */
    _Atomic uint64_t near;                           /* admissions that left less than 1 / FIGURES_NEAR of the limit */
    _Atomic uint64_t singles[WEIR_SOURCES_LEN][2];   /* by source and by `allowed` */
    _Atomic uint64_t would_deny;                     /* admissions that the limit would have denied: it is a shadow */
    _Atomic uint64_t in_groups[WEIR_SOURCES_LEN][2]; /* members: admitted with their group, or denied */
};

/* Slots by stats_own_stripe. That of threads without a stripe, 0, and that of the shared stripe stay empty. */
#define FIGURES_SLOTS (STATS_STRIPES + 1)

/* What is in weir_limit.shadow besides a percent. */
#define LIMIT_PERCENT 0xff
#define LIMIT_HAS_CANDIDATE 0x100
#define LIMIT_IS_CANDIDATE 0x200

/* A limit, or one of its overrides, which takes its place in requests. (c) constant once made, (m) limiter->mutex, (a)
 * atomic */
struct weir_limit {
    struct weir *limiter; /* (c) */
    /* (a) the limiter's, if the plan is a token bucket with greedy refill; otherwise NULL. A guess: the plan may
     * change */
    const struct own_takes *_Atomic takes;
    struct overrides
        *_Atomic overrides; /* (a) readers; (m) writers; NULL if there never were any; an override's is NULL */
    uint32_t id;            /* (c) below WEIR_MAX_LIMITS; an override has its limit's */
    _Atomic int32_t shadow; /* (a) percent of its keys for which it denies nothing, shadow.h; and LIMIT_HAS_CANDIDATE
                             * while its policy has one, or LIMIT_IS_CANDIDATE, candidate.h */
    /* (a) readers; (m) writers: WEIR_UNLIMITED or WEIR_DENY while that is the policy in force; otherwise 0, fixed.h */
    _Atomic int32_t fixed;
    /* (a) the machine backend's: what it decides by, and the version of the plan for which that holds; 0: none */
    const struct page *_Atomic bound;
    struct key_hash hash; /* (m) writers, as of `name` */
    _Atomic uint64_t bound_version;
    struct plan_cell plan;          /* (a) readers; (m) writers; the backend decides by it */
    struct key_hash_rest hash_rest; /* (m) writers, as of `name` */
    struct hash_secret secret;      /* (m) writers, as of `name`; both of the hash are made of it */
    struct weir_limit *of;          /* (c) the limit that this override or candidate belongs to; a limit points to
                                     * itself */
    struct weir_limit *first;       /* (c) a candidate's: the limit or override that it is beside; otherwise NULL */
    struct weir_limit
        *_Atomic candidate;         /* (a) readers; (m) writers: the one in force, if shadow says so; NULL: none yet */
    _Atomic int32_t enforced;       /* (a) a candidate's: percent of the keys that it binds */
    uint32_t candidate_id;          /* (m) a limit's: of its candidate and its overrides'; 0: none yet */
    struct override *override;      /* (c) NULL if this is the limit itself */
    enum plan_part part;            /* (m) */
    uint64_t version;               /* (m) a limit's: of the plan written last, its own or an override's */
    bool is_defined;                /* (m) a limit's: a policy has been in force; otherwise it only has overrides */
    bool is_changed;                /* (m) the policy in force has no plan yet */
    bool is_listed;                 /* (m) named by the followed policies that are being applied */
    bool is_dirty;                  /* (m) a limit's: its plans must be written */
    bool has_ended;                 /* (m) a limit's: an override must go out of force */
    bool is_untold;                 /* (m) its policy has changed since events.h reported one */
    atomic_bool in_flight;          /* (a) readers; (m) writers: the policy in force limits requests in flight */
    struct weir_policy policy;      /* (m) in force, or the last that was */
    struct layers layers;           /* (m) */
    UT_hash_handle hh;              /* (m) by name */
    struct plan_cell local_plan;    /* as `plan`; the fallback decides by it */
    struct weir_limit *next_target; /* (m) the next one in limiter->first_target */
    struct weir_limit *next_bound;  /* the machine backend's, as is_bound; the next one in its list */
    bool is_bound;                  /* it is in that list */
    struct figures *_Atomic figures[FIGURES_SLOTS]; /* (a) by stats_own_stripe; NULL: none yet */
    struct figures shared_figures;                  /* (a) of all threads that have no block in `figures` */
    char name[WEIR_MAX_NAME_LEN + 1];               /* (m) writers: weir_limit_rename(), while nothing reads it */
};

/* inside.h. (c) constant, (a) atomic */
struct inside {
    bool needs_fences;   /* (c) a thread that enters must issue a barrier */
    atomic_bool is_shut; /* (a) */
};

/* What weir_dispatch() is for, dispatch.c. (a) atomic */
struct answers {
    _Atomic int event_fd;           /* (a) -1: there is none */
    struct weir_op *_Atomic latest; /* (a) with event_fd: a stack of ops whose `done` must run */
};

/* The end of calls that sleep. (w) mutex */
struct closing {
    struct lock mutex;
    pthread_cond_t begins; /* CLOCK_MONOTONIC */
    bool has_begun;        /* (w) */
};

/* (c) constant once open, (m) mutex */
struct weir {
    struct weir_backend *backend;  /* (c) */
    struct clock clock;            /* (c) */
    const struct own_takes *takes; /* (c) the backend's, if is_plain is set; NULL: it has none */
    bool is_plain;   /* (c) the backend can neither block nor fail, and decides by `clock`; and there are no events */
    bool can_block;  /* (c) weir_close() must wait for calls, so inside.h counts them */
    bool has_others; /* (c) other processes may decide about the same states */
    int64_t look_us; /* (c) how often one who waits for permits of a rate asks again because of them */
    void (*freed)(struct weir *limiter); /* (c) policies or permits have changed: let all who wait ask again */
    bool is_foreign;                 /* (c) the backend is a user's and can block: cancel.h is for each call to it */
    bool spans;                      /* (c) the backend takes spans as deadlines */
    bool own_clock;                  /* (c) the backend gets no time unless the caller passes one */
    bool share_varies;               /* (c) peers are followed */
    enum weir_on_failure on_failure; /* (c) */
    struct weir_backend *fallback;   /* (c) with WEIR_FAIL_LOCAL; otherwise NULL */
    struct log log;                  /* (c) */
    _Atomic uint64_t slot_number;    /* (a) of the slot made last: counts from a random start; slot_next() */
    struct hash_secret secret;       /* (c) */
    struct hash_secret chooses;      /* (c) the keys for which a limit with percent=N is enforced */
    int64_t timeout_us;              /* (c) */
    struct lease_rules leases; /* (c) except `instances`, which `share` tells; life_us is 0 unless in hybrid mode */
    struct inside inside;
    struct answers answers;

    struct lock mutex;
    struct weir_limit *limits;       /* (m) including those without a policy, see is_defined */
    struct weir_limit *first_target; /* (m) a list of all limits and overrides, in the order in which they were made */
    struct weir_limit *last_target;  /* (m) */
    struct weir_limit *_Atomic ping; /* (a) core/api/ready.c; NULL: not made yet */
    size_t limit_count;              /* (m) limits made: ids are below it */
    _Atomic size_t candidate_count;  /* (a) readers; (m) writers: ids of candidates, the last below WEIR_MAX_LIMITS */
    size_t pattern_count;            /* (m) overrides made, in force or not */
    uint64_t retired[2];             /* (m) single requests denied and admitted by limits that have been renamed */
    struct share share;              /* (m) or a chain of shares that all hold */
    void *share_memory;              /* (m) the weights of all of them, and all but the first */

    struct closing closing;
    struct errands *errands;   /* (c) core/api/errands.h */
    struct outage *outage;     /* (c) core/outage/outage.h */
    struct follow *follow;     /* (c) core/follow/follow.h; NULL if nothing is followed */
    struct top_keys *top_keys; /* (c) top_keys.h; NULL: not asked for */
    struct events *events;     /* (c) events.h; NULL: no hook */
    struct control *control;   /* (c) src/control/control.h; NULL: no socket */
    void (*end_control)(struct control *control);
    struct forks_watcher forks;
    struct stats stats;
};

/* Return the hash of a key; a limit and its overrides hash alike. */
static inline uint64_t key_hash(const struct weir_limit *limit, struct weir_key key)
{
    return __builtin_expect(key.len == 16, 1) ? key_hash_16(&limit->hash, key.data)
                                              : key_hash_any(&limit->hash, &limit->hash_rest, key.data, key.len);
}

/* True if the limit or override, as of limit_for_key(), limits requests in flight. */
static inline bool limit_in_flight(const struct weir_limit *limit)
{
    return __builtin_expect(atomic_load_explicit(&limit->in_flight, memory_order_relaxed), 0);
}

#define SLOT_LOCAL UINT64_C(1) /* a bit of the id of a slot that the fallback of an outage has given */

/* Return the id of a new slot: not 0, and without that bit. Each limiter of each process counts from its own random
 * number. */
static inline uint64_t slot_next(struct weir *limiter)
{
    uint64_t id = 0;
    while (id == 0)
        id = atomic_fetch_add_explicit(&limiter->slot_number, 2, memory_order_relaxed) & ~SLOT_LOCAL;
    return id;
}

/* Return the id of the slot for what a slot's holder has used beyond its reservation. */
static inline uint64_t slot_beyond(uint64_t id)
{
    return id ? id ^ UINT64_C(1) << 63 : 0;
}

#endif
