/* sim.h - one run of the simulator: limiters, a store and a network between them, all in virtual time.
 *
 * A run is a function of its seed and scenario. Nothing in it happens but by events, in the order of their times and,
 * at one time, of their making; the clocks and random numbers that the library asks the system for are the run's
 * (sim_clock.c). Each instance is a whole limiter: the core over the hybrid backend over `struct remote` (sim_net.c),
 * whose requests reach one store (sim_store.c), with a memory backend as its fallback.
 *
 * "True time" is the run's own, in microseconds; instances and the store have clocks that differ from it.
 */
#ifndef SIM_H
#define SIM_H

#include "backends/hybrid/hybrid.h"
#include "core/algorithm/algorithm.h"
#include "core/ground/arith.h"
#include "core/limiter/limiter.h"

#include <weir/backend.h>

#include <stdio.h>

enum {
    SIM_INSTANCES = 32,
    SIM_LIMITS = 3,
    SIM_KEYS = 3,
    SIM_WORDS = 16, /* of a key's state in the store */
    SIM_GRANTS = 64 /* grants of one key that an instance may have at a time, for the audit */
};

#define SIM_EPOCH_US INT64_C(1700000000000000)

/* ---- Time and chance: sim_clock.c ---- */

struct sim;
struct instance;

struct event {
    int64_t at_us;
    uint64_t order;
    struct instance *whose; /* NULL: nobody's. It waits while its instance is paused, and dies with it */
    void (*run)(struct sim *sim, void *what);
    void *what;
};

void events_add(struct sim *sim, int64_t at_us, struct instance *whose, void (*run)(struct sim *sim, void *what),
                void *what);
/* Run the next event that is not after `until_us`; false if there is none, and then it is `until_us`. */
bool events_step(struct sim *sim, int64_t until_us);

uint64_t random_bits(struct sim *sim);
int64_t random_in(struct sim *sim, int64_t least, int64_t most); /* both included */
bool random_chance(struct sim *sim, int64_t permille);

/* Zeroed memory that lives as long as the run. */
void *sim_take(struct sim *sim, size_t size);
void sim_free_all(struct sim *sim);

/* What an instance's clocks say at a true time, and the first true time at which CLOCK_MONOTONIC says that much. */
int64_t instance_clock_us(const struct instance *instance, int64_t true_us);
int64_t instance_true_us(const struct sim *sim, const struct instance *instance, int64_t clock_us);

/* From now on the library's clocks are this instance's; NULL: the system's. */
void clocks_of(struct sim *sim, struct instance *instance);

/* ---- What a run is made of: sim_run.c ---- */

/* Troubles, as bits of a scenario. */
enum trouble {
    TROUBLE_LOSS = 1,       /* requests and replies get lost, or come late */
    TROUBLE_OUTAGE = 2,     /* the store cannot be reached by anyone */
    TROUBLE_PARTITION = 4,  /* it cannot be reached by some */
    TROUBLE_FAILOVER = 8,   /* the store goes back to what it was some time ago */
    TROUBLE_FLUSH = 16,     /* the store forgets all */
    TROUBLE_STEP = 32,      /* the store's clock is set */
    TROUBLE_SLOW = 64,      /* the store stands still for a while */
    TROUBLE_ELASTIC = 128,  /* instances come and go; some crash */
    TROUBLE_PAUSE = 256,    /* an instance stands still for a while */
    TROUBLE_REDEFINE = 512, /* policies change */
    TROUBLE_REFUND = 1024,  /* permits are given back, keys forgotten */
    TROUBLE_FLAP = 2048,    /* many short outages of all at once */
    TROUBLE_DRIFT = 4096    /* the instances' clocks run at different speeds */
};
#define TROUBLES_CUTTING \
    (TROUBLE_LOSS | TROUBLE_OUTAGE | TROUBLE_PARTITION | TROUBLE_SLOW | TROUBLE_PAUSE | TROUBLE_FLAP)
#define TROUBLES_MINTING (TROUBLE_FAILOVER | TROUBLE_FLUSH | TROUBLE_STEP | TROUBLE_REDEFINE | TROUBLE_REFUND)

enum load_kind {
    LOAD_MIXED,  /* any demand, moving skews, flash crowds */
    LOAD_STEADY, /* hot keys below their limits */
    LOAD_WEIGHTS,
    LOAD_HOARD /* leases are built up and used together at their last moment, or at the end of windows */
};

struct scenario {
    const char *name;
    unsigned troubles;
    enum load_kind load;
    const char *what;
};
extern const struct scenario scenarios[];
extern const size_t scenario_count;

/* Somebody who is asked the same as the store and must come to the same: redis_store.c. */
struct asked;
struct store_twin {
    void (*begin)(void);                   /* a run: nothing is known */
    void (*forget)(const struct sim *sim); /* but for the snapshot */
    void (*snapshot)(const struct sim *sim);
    void (*fail_over)(const struct sim *sim);
    void (*check)(struct sim *sim, const struct asked *asked, int64_t now_us, const struct weir_decision *expected);
};

struct audit_track;

/* A limit as all instances define it. */
struct sim_limit {
    struct weir_policy policy;
    struct weir_plan plan; /* of the whole policy, made by the code under test but without strict's reserve */
    char name[16];
    int64_t size;       /* the greatest that the policy's size was in this run */
    int64_t rate_limit; /* likewise limit, a period */
    int64_t over_max;   /* the greatest weir_limit_info.over_max that any instance told */
    int64_t lease_max;
    int64_t demand_permille; /* of the rate */
};

/* Between an instance and the store. Of the instance's state the network knows only this. */
struct remote {
    struct weir_backend backend;
    struct instance *instance;
    struct flight *flights; /* not answered yet */
    bool is_cut;            /* nothing gets through */
    bool refuses;           /* while cut: told at once rather than never */
    bool is_open;           /* the breaker: calls fail without being sent */
    int failures;           /* timeouts in a row */
    int64_t probe_us;       /* pause before the next probe */
    int64_t reachable_us;   /* by the instance's clock; while open */
    void (*returned)(void *user);
    void *user;
};

/* Permits that an instance was granted of a key: what the audit lets it use. */
struct grant {
    int64_t asked_us, left; /* true time */
    int64_t shift_us;       /* from the store's decision to its landing here */
    bool is_lease;          /* some of it was ahead of use */
};
struct holding {
    struct grant grants[SIM_GRANTS]; /* the oldest first */
    int count;
    /* The denial that was delivered last: asked for at a true time, holds until one of the instance's clock. */
    int64_t denied_cost, denied_asked_us, denied_until_us;
    int64_t flying;       /* granted by the store, not delivered yet, or lost */
    int64_t fell_back_us; /* the last use by the fallback */
    int64_t unsettled;    /* admitted by the fallback, not charged to the store yet */
};

struct instance {
    int number; /* from 0, never used twice */
    bool is_dead;
    struct remote *remote;
    weir *limiter;
    weir_limit *limits[SIM_LIMITS];
    struct weir_backend *hybrid;
    int64_t clock_zero_us, skew_us, drift_ppm; /* its clocks; the skew is that of its Unix time */
    int64_t resumes_us;                        /* true time until which it is paused */
    int64_t count;                             /* how many instances it believes in */
    int64_t weight;                            /* of its part of the load */
    bool falls_back;                           /* its last answers were by the fallback */
    bool has_fallen_back;                      /* ever */
    int64_t fell_as;                           /* one of so many */
    struct holding holdings[SIM_LIMITS][SIM_KEYS];
    int64_t asks[SIM_LIMITS][SIM_KEYS];
    int64_t calls[SIM_LIMITS][SIM_KEYS]; /* that reached the store or were lost on the way */
};

/* Where the truth is kept. */
struct cell {
    struct weir_plan plan; /* that wrote the state; algorithm -1: no state */
    bool is_there, has_former;
    int64_t state[SIM_WORDS];
    struct weir_plan former_plan; /* that wrote the former state */
    int64_t former[SIM_WORDS];
};
struct store {
    struct cell cells[SIM_LIMITS][SIM_KEYS];
    struct cell before[SIM_LIMITS][SIM_KEYS]; /* a snapshot, for failovers */
    int64_t offset_us;                        /* the store's clock less true time */
    int64_t stands_until_us;
};

struct sim {
    uint64_t seed;
    const struct scenario *scenario;
    bool tells, tells_all, failed;
    uint64_t random;
    int64_t now_us;
    uint64_t order; /* of events and records */
    struct event *events;
    size_t event_count, event_room;
    uint64_t steps;
    struct chunk *chunks;
    char *trace; /* a ring of lines */
    size_t trace_next;

    int limit_count, key_count;
    struct sim_limit limits[SIM_LIMITS];
    struct instance *instances[SIM_INSTANCES]; /* those alive */
    int count, made;
    struct lease_rules leases;
    int64_t timeout_us;
    int64_t drift_max_ppm;

    int64_t up_min_us, up_max_us, down_min_us, down_max_us;
    int64_t lose_permille, late_permille;
    struct store store;
    const struct store_twin *twin; /* or NULL */

    int64_t heal_us; /* from then on there are no troubles */
    int64_t key_weights[SIM_KEYS];
    int64_t crowd_permille; /* what the demand is multiplied by at the moment */
    int64_t executed_us;    /* of the reply that is being delivered: when the store decided */
    uint64_t executed_order;
    int64_t executed_remaining;

    struct audit_track *tracks[SIM_LIMITS][SIM_KEYS];
    int64_t void_us[SIM_LIMITS][SIM_KEYS]; /* denials asked for up to then say nothing */
    bool is_over;                          /* what is answered now is answered by weir_close() */
    int64_t asked, answered, allowed, denied, fallbacks, lease_hits, denial_hits, store_calls;
    int64_t used, fallback_used, ideal;       /* permits */
    struct cell ideals[SIM_LIMITS][SIM_KEYS]; /* one bucket that everybody asks, at once */
};

/* Say what is broken, once a run. */
void violation(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void trace(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Simulate; false: a promise was broken, and it was said which. */
struct run_result {
    bool good;
    int64_t asked, steps, used, ideal, store_calls, lease_hits, denial_hits, fallbacks;
};
struct run_settings {
    bool tells, tells_all; /* violations; every event as well */
    bool until_broken;     /* for who runs many */
    const struct store_twin *twin;
    int64_t asks; /* about so many requests */
};
struct run_result run_seed(const struct scenario *scenario, uint64_t seed, const struct run_settings *settings);

struct sim *sim_make(const struct scenario *scenario, uint64_t seed, const struct run_settings *settings);
/* Close the instances, audit, free it all. */
struct run_result sim_end(struct sim *sim);

/* Print the matrix of utilisation, sim_matrix.c. */
int matrix(void);

/* ---- Instances: sim_instance.c ---- */

struct asked_op {
    struct weir_op op;
    struct sim *sim;
    struct instance *instance;
    int limit, key;
    int64_t asked_us;
    bool is_answered, must_pass; /* must_pass: nothing is wrong any more, and there is room */
};

/* NULL never: what cannot be made ends the program. */
struct instance *instance_make(struct sim *sim);
/* It is gone without a word: what it has on its way to the store may still arrive. */
void instance_crash(struct sim *sim, struct instance *instance);
void instance_ask(struct sim *sim, struct instance *instance, int limit, int key, int64_t cost, bool must_pass);
/* All that are alive are told how many there are. */
void instances_recount(struct sim *sim);
void instance_define(struct sim *sim, struct instance *instance, int limit);

/* ---- Network and store: sim_net.c, sim_store.c ---- */

struct remote *remote_make(struct sim *sim, struct instance *instance);
void remote_cut(struct sim *sim, struct remote *remote, bool refuses);
void remote_mend(struct sim *sim, struct remote *remote);

struct asked {
    int limit, key;
    int64_t cost, ahead;
    uint32_t spread;
    enum weir_verb verb;
    struct weir_plan plan;
};
int64_t store_now_us(const struct sim *sim);
void store_decide(struct sim *sim, const struct asked *asked, struct weir_decision *out);
/* One request at `now_us` of the store's clock, to any cell. */
void cell_decide(struct cell *cell, const struct asked *asked, int64_t now_us, struct weir_decision *out);
int64_t cell_used(const struct cell *cell, int64_t now_us);
void store_snapshot(struct sim *sim);
void store_fail_over(struct sim *sim, bool loses_all);
void store_step(struct sim *sim, int64_t by_us);

/* ---- Load and troubles: sim_load.c, sim_trouble.c ---- */

void load_start(struct sim *sim);
void troubles_start(struct sim *sim);
/* True time after which a key of any limit is fresh, whatever was used. */
int64_t longest_reset_us(const struct sim *sim);

/* ---- Audit: sim_audit.c, sim_meter.c ---- */

void audit_start(struct sim *sim);
void audit_executed(struct sim *sim, struct instance *instance, const struct asked *asked,
                    const struct weir_decision *decision);
void audit_delivered(struct sim *sim, struct instance *instance, const struct asked *asked, int64_t asked_us,
                     const struct weir_decision *decision);
/* Who waited for it has been served. */
void audit_landed(struct sim *sim, struct instance *instance, const struct asked *asked);
void audit_submitted(struct sim *sim, struct instance *instance, const struct asked *asked);
void audit_answered(struct sim *sim, struct asked_op *asked, int status);
void audit_crashed(struct sim *sim, struct instance *instance);
/* The store holds `permits` fewer of this key than were charged. */
void audit_credit(struct sim *sim, int limit, int key, int64_t permits);
void audit_stepped(struct sim *sim, int64_t by_us);
void audit_void_denials(struct sim *sim, int limit, int key);
void audit_end(struct sim *sim);

/* By how much clocks that drift may be out after so long. */
int64_t sim_drifted_us(const struct sim *sim, int64_t us);

/* Permits granted and not used, of grants whose life has not ended. */
int64_t grants_left(const struct sim *sim, struct holding *holding);
void grant_add(const struct sim *sim, struct holding *holding, const struct grant *grant);
/* Take `cost` out of what was granted, the oldest first. False: there is less. */
bool grants_use(const struct sim *sim, struct holding *holding, int64_t cost);
/* The same for what the store has admitted itself with the latest, be that as late as it may. */
bool latest_use(struct holding *holding, int64_t cost);

enum record_kind {
    RECORD_USE,      /* permits used by Redis's decision or a lease */
    RECORD_FALLBACK, /* permits used by a fallback's */
    RECORD_OUTAGE,   /* an instance began to fall back; amount 1: its share is another one */
    RECORD_SETTLED,  /* an instance's fallback was charged to the store: so many of its permits */
    RECORD_TOUCHED,  /* an instance was decided by the store again */
    RECORD_WINDOW,   /* the store's window, or what is refilled next, ends at `amount` */
    RECORD_CREDIT,   /* the store lost so many */
    RECORD_CREDITED, /* from now on nothing is used that was leased before that */
    RECORD_STEP      /* its clock went forward by so much */
};
struct record {
    int64_t at_us, amount;
    uint64_t order;
    int32_t instance;
    uint8_t kind;
    int64_t departs_us; /* USE, FALLBACK: leaky bucket, when it may go ahead, as the store reckons it */
    int64_t shift_us;
    int64_t count; /* FALLBACK, OUTAGE: how many instances that one believes in */
};
struct audit_track {
    struct record *records;
    size_t count, room;
};
void record_add(struct sim *sim, int limit, int key, const struct record *record);
void meter_track(struct sim *sim, int limit, int key);

#endif
