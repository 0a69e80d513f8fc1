/* limiter.h - a limiter and its limits: what weir_open() makes, whatever backend is below.
 *
 * Locks, none of them held while another is taken (but the first, and while the process forks, in this order), none
 * held while a backend or a hook is called:
 *
 *     follow->peers_mutex     what is known of peers, and a share that is being put into force
 *     follow->mutex           how it goes with what is followed
 *     limiter->mutex          the table of limits, policies, plans being replaced
 *     limiter->wait_mutex     who waits in weir_acquire(), and the limiter's end
 *     limiter->settle.mutex   an outage's beginning and end, and what is owed from it
 *
 * A decision takes none of them, unless something is owed: it copies the limit's plan (plan_cell.h) and calls the
 * backend.
 */
#ifndef CORE_LIMITER_LIMITER_H
#define CORE_LIMITER_LIMITER_H

#include "core/ground/clock.h"
#include "core/ground/forks.h"
#include "core/ground/hash.h"
#include "core/algorithm/lease.h"
#include "core/ground/lock.h"
#include "core/ground/log.h"
#include "core/limiter/overrides.h"
#include "core/policy/plan.h"
#include "core/policy/plan_cell.h"
#include "core/outage/settle_state.h"
#include "core/policy/share.h"
#include "core/ground/stats.h"
#include "core/ground/uthash_config.h"

#include <weir/backend.h>

#include <pthread.h>

/* Where a policy may come from, the weakest first: of those that are there the last is in force. */
enum layer { LAYER_CODE, LAYER_FILE, LAYER_CONSUL, LAYERS };

struct layers {
    bool there[LAYERS];
    struct weir_policy policies[LAYERS];
};

/* A limit, or one of its overrides, which stands in for it. (c) constant once made, (m) limiter->mutex, (w)
 * limiter->wait_mutex, (a) atomic */
struct weir_limit {
    struct weir *limiter;                /* (c) */
    struct hash_secret secret;           /* (c) for the hashes of its keys */
    struct overrides *_Atomic overrides; /* (a) readers; (m) writers; NULL: none ever, and of an override */
    uint32_t id;                         /* (c) below WEIR_MAX_LIMITS */
    enum plan_part part;                 /* (m) */
    struct weir_limit *of;               /* (c) whose override it is; the limit itself: its own */
    struct plan_cell plan;               /* (a) readers; (m) writers; what the backend decides by */
    struct override *override;           /* (c) which; NULL: it is the limit itself */
    uint64_t version;                    /* (m) of the limit: of the plan written last, its own or an override's */
    bool is_defined;                     /* (m) of the limit: a policy has been in force; else it only has overrides */
    bool is_changed;                     /* (m) the policy in force has no plan yet */
    bool is_listed;                      /* (m) by the followed policies that are being applied */
    bool is_dirty;                       /* (m) of the limit: its plans are to be written */
    struct weir_policy policy;           /* (m) in force, or the last that was */
    struct layers layers;                /* (m) */
    UT_hash_handle hh;                   /* (m) by name */
    /* (a), (m) as `plan`: this instance's share, where the backend decides by the whole limit; else never written. */
    struct plan_cell share_plan;
    char name[]; /* (c) */
};

struct weir {
    struct weir_backend *backend;    /* (c) */
    struct clock clock;              /* (c) */
    bool is_plain;                   /* (c) the backend can neither block nor fail, and decides by `clock` */
    bool can_block;                  /* (c) weir_close() has calls to wait for: who is in it is counted, inside.h */
    bool fences;                     /* (c) inside.h */
    bool spans;                      /* (c) the backend takes deadlines as spans */
    bool own_clock;                  /* (c) the backend is told no time but a caller's */
    enum weir_on_failure on_failure; /* (c) */
    struct weir_backend *fallback;   /* (c) with WEIR_FAIL_LOCAL; else NULL */
    struct log log;                  /* (c) */
    struct hash_secret secret;       /* (c) */
    int64_t timeout_us;              /* (c) */
    struct lease_rules leases;       /* (c) but `instances`, which is the share's; life_us 0: not in hybrid mode */

    int64_t open_for_us; /* (c) with WEIR_FAIL_OPEN; 0: no end */

    _Atomic uint64_t outage;          /* (a) readers, settle.mutex writers; failure.c */
    _Atomic int64_t open_spent_us;    /* (a) likewise: how much of open_for_us was, when the outage began */
    int64_t over_us;                  /* settle.mutex; when the last outage ended */
    _Atomic int64_t failed_us;        /* (a) failure.c: the last failure, on CLOCK_MONOTONIC */
    _Atomic int64_t begun_us;         /* (a) failure.c: when the last outage began, likewise */
    _Atomic int64_t told_us;          /* (a) failure.c: when the log last was told of an outage, likewise */
    atomic_bool is_shut;              /* (a) inside.h */
    _Atomic int event_fd;             /* (a) -1: none; submit.c */
    struct weir_op *_Atomic answered; /* (a) with event_fd: those whose `done` is to run, the latest first */

    struct lock mutex;
    struct weir_limit *limits; /* (m) those without a policy too, see is_defined */
    size_t pattern_count;      /* (m) of all overrides that ever were */
    struct share share;        /* (m) or several that hold at once */
    void *share_memory;        /* (m) where their weights, and all but the first, are */
    struct follow *follow;     /* (c) follow.h; NULL: nothing is followed */

    struct lock wait_mutex;
    pthread_cond_t closing_begins; /* CLOCK_MONOTONIC */
    bool closing;                  /* (w) */

    struct forks_watcher forks; /* forks.c's; a limiter that can block goes on in the child of a fork */

    struct settle settle;

    struct stats stats; /* (a) */
};

/* Options are checked apart from all else, so that every kind of open refuses the same way. The sentence goes to the
 * log hook of `options`. On WEIR_OK every field of *out has its value, defaults filled in; strings are the caller's
 * still, and so are the structs behind `peers` and `consul`, which the second function checks as well and copies:
 * afterwards these lead to *peers and *consul, or are NULL. */
int options_read(const struct weir_options *options, struct weir_options *out);
int options_read_followed(struct weir_options *read, struct weir_peers *peers, struct weir_consul *consul);

/* Of options.c, for both. */
int options_range(const struct log *log, const char *name, int64_t value, int64_t min, int64_t max);
int options_refuse(const struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Copy a caller's struct that begins with its size, which must be this version's: a struct of any other size could end
 * within a field. `name` is what comes before "size" in the error. */
int options_copy(const struct log *log, const char *name, const void *from, void *to, size_t size);

/* The parts of weir_open() and weir_open_backend() that have nothing to do with the backend. `options` come from
 * options_read(); `fallback` decides in the backend's place with WEIR_FAIL_LOCAL, and is NULL otherwise; `start`, if
 * the options ask for anything that is followed, starts its sources or returns an error. Owns both on success only. */
int limiter_make(const struct weir_options *options, struct weir_backend *backend, struct weir_backend *fallback,
                 int (*start)(const struct weir_options *options, struct weir *limiter), struct weir **out);

/* The plan that a request is decided by: the share's, if it stands in for a backend of whole limits. */
static inline struct plan_cell *limit_plan(struct weir_limit *limit, bool stands_in)
{
    return stands_in && limit->limiter->backend->ops->shared ? &limit->share_plan : &limit->plan;
}

/* Put another share, or several that hold at once, into force for all limits; what keys have used stays used. `share`
 * is copied. A limit that has no arithmetic at this share has less (plan_at_share()), at worst nothing, of which the
 * log is told. WEIR_ENOMEM: nothing has changed; not for one share without weights. */
int limiter_set_share(struct weir *limiter, const struct share *share);

/* The same in two steps, for those who have a lock to give back between them: *unfit is a limit that is enforced at
 * nothing for want of arithmetic, or NULL. */
int limiter_put_share(struct weir *limiter, const struct share *share, struct weir_limit **unfit);
void limiter_tell_unfit(struct weir *limiter, const struct weir_limit *unfit);

#endif
