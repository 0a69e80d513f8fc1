/* sim.h - one run of the simulator: limiters, a store and the network between them, all in virtual time.
 *
 * A run is a function of its seed and scenario. Everything in it happens through events, in the order of their times
 * and then of their creation. The run also provides the clocks and random numbers that the library asks the system
 * for (sim_clock.c). Each instance is a whole limiter: the core over the hybrid backend over `struct remote`
 * (sim_net.c), whose requests reach one store (sim_store.c), with a memory backend as its fallback.
 *
 * "True time" is the run's time in microseconds; the clocks of instances and store differ from it.
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
    SIM_INSTANCES = 1000,
    SIM_DRAWN = 32, /* the most that a seed starts */
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
    struct instance *whose; /* NULL: none. It waits while its instance is paused, and dies with it */
    void (*run)(struct sim *sim, void *what);
    void *what;
};

void events_add(struct sim *sim, int64_t at_us, struct instance *whose, void (*run)(struct sim *sim, void *what),
                void *what);
/* Run the next event up to `until_us`; if there is none, advance to `until_us` and return false. */
bool events_step(struct sim *sim, int64_t until_us);

uint64_t random_bits(struct sim *sim);
int64_t random_in(struct sim *sim, int64_t least, int64_t most); /* both included */
bool random_chance(struct sim *sim, int64_t permille);

/* Return zeroed memory that lives as long as the run. */
void *sim_take(struct sim *sim, size_t size);
void sim_free_all(struct sim *sim);

/* Return an instance's clock at a true time; and the first true time at which its CLOCK_MONOTONIC shows a value. */
int64_t instance_clock_us(const struct instance *instance, int64_t true_us);
int64_t instance_true_us(const struct sim *sim, const struct instance *instance, int64_t clock_us);

/* Give the library this instance's clocks from now on; NULL: the system's. */
void clocks_of(struct sim *sim, struct instance *instance);

/* ---- Parts of a run: sim_run.c ---- */

/* Troubles, as bits of a scenario. */
enum trouble {
    TROUBLE_LOSS = 1,       /* requests and replies are lost or late */
    TROUBLE_OUTAGE = 2,     /* no instance reaches the store */
    TROUBLE_PARTITION = 4,  /* some instances do not reach it */
    TROUBLE_FAILOVER = 8,   /* the store returns to an earlier state */
    TROUBLE_FLUSH = 16,     /* the store forgets everything */
    TROUBLE_STEP = 32,      /* the store's clock is set */
    TROUBLE_SLOW = 64,      /* the store pauses for a while */
    TROUBLE_ELASTIC = 128,  /* instances start and stop; some crash */
    TROUBLE_PAUSE = 256,    /* an instance pauses for a while */
    TROUBLE_REDEFINE = 512, /* policies change */
    TROUBLE_REFUND = 1024,  /* permits are refunded, keys reset */
    TROUBLE_FLAP = 2048,    /* many short outages for all instances */
    TROUBLE_DRIFT = 4096,   /* the instances' clocks run at different speeds */
    TROUBLE_CANARY = 8192,  /* every other instance has another policy: sliding windows of other blocks */
    TROUBLE_LATE =
        32768, /* some instances, or all, are cut off again and again, for longer than a bucket takes to fill */
    TROUBLE_RESERVE = 16384, /* most requests reserve permits, and settle soon, late or never */
    TROUBLE_RENEW = 65536    /* with TROUBLE_RESERVE: all do, of sliding windows, and renew them */
};
#define TROUBLES_CUTTING \
    (TROUBLE_LOSS | TROUBLE_OUTAGE | TROUBLE_PARTITION | TROUBLE_SLOW | TROUBLE_PAUSE | TROUBLE_FLAP | TROUBLE_LATE)
#define TROUBLES_MINTING (TROUBLE_FAILOVER | TROUBLE_FLUSH | TROUBLE_STEP | TROUBLE_REDEFINE | TROUBLE_REFUND)

enum load_kind {
    LOAD_MIXED,  /* any demand, moving skews, flash crowds */
    LOAD_STEADY, /* hot keys below their limits */
    LOAD_WEIGHTS,
    LOAD_LONG, /* limits of a minute to a day, with permits left all the time */
    LOAD_LATE, /* one key at its limit; its bucket fills in a second or less */
    LOAD_HOARD /* instances build up leases and spend them together at the last moment, or at the end of windows */
};

struct scenario {
    const char *name;
    unsigned troubles;
    enum load_kind load;
    const char *what;
};
extern const struct scenario scenarios[];
extern const size_t scenario_count;

/* A second store that gets the same requests and must decide the same: redis_store.c. */
struct asked;
struct store_twin {
    void (*begin)(void);                   /* a new run */
    void (*forget)(const struct sim *sim); /* except for the snapshot */
    void (*snapshot)(const struct sim *sim);
    void (*fail_over)(const struct sim *sim);
    void (*check)(struct sim *sim, const struct asked *asked, int64_t now_us, const struct weir_decision *expected);
};

struct audit_track;

/* A limit as all instances define it. */
struct sim_limit {
    struct weir_policy policy;
    struct weir_plan plan; /* of the whole policy, by the code under test but without strict mode's reserve */
    char name[24];
    int64_t size;       /* the greatest size that the policy had in this run */
    int64_t rate_limit; /* the same for its limit, per period */
    int64_t over_max;   /* the greatest weir_limit_info.over_max of any instance */
    int64_t lease_max, life_us;
    int64_t demand_permille; /* of the rate */
};

/* The link between an instance and the store; all that the network knows of the instance. */
struct remote {
    struct weir_backend backend;
    struct instance *instance;
    struct flight *flights; /* without an answer yet */
    bool is_cut;            /* nothing passes */
    bool was_cut;           /* now, or at any time before */
    bool refuses;           /* while cut: requests fail immediately instead of never */
    bool is_open;           /* the breaker is open: calls fail without being sent */
    int failures;           /* timeouts in a row */
    int64_t probe_us;       /* pause before the next probe */
    int64_t reachable_us;   /* by the instance's clock; while open */
    void (*returned)(void *user);
    void *user;
};

/* Permits granted to an instance for a key: the audit lets it use these. */
struct grant {
    int64_t asked_us, left; /* true time */
    int64_t arrived_us;
    int64_t shift_us; /* from the store's decision to its arrival */
    int64_t life_us;  /* after which a greedy bucket's lease shrinks by what the bucket refills */
    int64_t shrunk;   /* by so much */
    bool shrinks;     /* after its life, by this plan: a greedy bucket's */
    int64_t young_us; /* for so long it did not age, or will not: permits used here had not refilled */
    struct weir_plan plan;
    bool is_lease; /* part of it was charged in advance */
};
struct holding {
    struct grant grants[SIM_GRANTS]; /* oldest first */
    int count;
    int64_t busy_us; /* until then, permits that were used here have not refilled */
    /* The denial delivered last: its request's true time, and its end by the instance's clock. */
    int64_t denied_cost, denied_asked_us, denied_until_us;
    int64_t returned_us;      /* permits were given back then: a denial asked for by then may be outdated */
    int64_t emptied_until_us; /* until then an answer that left no permit may count as a denial of one */
    int64_t flying;           /* granted by the store, and not delivered yet or lost */
    int64_t fell_back_us;     /* the fallback's last use */
    int64_t left;             /* what the store last reported as left, in an answer to a caller or to a settlement */
    int64_t leased;           /* of these, permits that the instance had leased */
    int64_t unpaid;           /* admitted by the fallback since a settlement was last answered */
    bool owes;                /* some of that in an earlier outage */
    int64_t settled;          /* settled here: they may be spent again, or go back with the next call */
    int64_t unsettled;        /* admitted by the fallback, not charged to the store yet */
    int64_t settling;         /* of these, what a settlement under way is about */
    int64_t level, level_us,
        cold_since_us; /* a meter of what the fallback has admitted since the outage began: units */
};

struct instance {
    int number; /* from 0, never reused */
    bool is_dead;
    struct remote *remote;
    weir *limiter;
    weir_limit *limits[SIM_LIMITS];
    char keys[SIM_LIMITS][SIM_KEYS][9];
    struct weir_backend *hybrid;
    int64_t clock_zero_us, skew_us, drift_ppm; /* its clocks; skew_us is that of its Unix time */
    int64_t resumes_us;                        /* true time at which its pause ends */
    int64_t count;                             /* the number of instances that it assumes */
    bool is_cold;                              /* its outages begin without permits */
    bool adds;                                 /* what it admits in several outages adds up */
    int64_t weight;                            /* of its part of the load */
    bool falls_back;                           /* the fallback gave its last answers */
    bool has_fallen_back;                      /* at any time */
    int64_t fell_as;                           /* the number of instances then */
    struct holding holdings[SIM_LIMITS][SIM_KEYS];
    int64_t asks[SIM_LIMITS][SIM_KEYS];
    int64_t calls[SIM_LIMITS][SIM_KEYS]; /* that reached the store or were lost on the way */
};

/* The true state of a key. */
struct cell {
    struct weir_plan plan; /* of the state; algorithm -1: no state */
    bool is_there, has_former, has_origin, has_former_origin;
    struct origin origin, former_origin;
    int64_t state[SIM_WORDS];
    struct weir_plan former_plan; /* of the former state */
    int64_t former[SIM_WORDS], until_us;
    int64_t idle_from_us, idle_to_us; /* the note of a charge after an outage: lua/settle.lua */
};
struct store {
    struct cell cells[SIM_LIMITS][SIM_KEYS];
    struct cell before[SIM_LIMITS][SIM_KEYS]; /* a snapshot, for failovers */
    int64_t charged[SIM_LIMITS][SIM_KEYS];    /* permits since then */
    int64_t offset_us;                        /* the store's clock minus true time */
    int64_t stands_until_us;
};

struct sim {
    uint64_t seed;
    const struct scenario *scenario;
    bool tells, traces, tells_all, failed;
    uint64_t random;
    int64_t now_us;
    uint64_t order;     /* of events and records */
    int64_t held_count; /* holders of permits so far: sim_renew.c */
    struct event *events;
    size_t event_count, event_room;
    uint64_t steps;
    struct chunk *chunks;
    char *trace; /* a ring of lines */
    size_t trace_next;

    int limit_count, key_count;
    bool all_adds; /* all instances have outage_adds */
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

    int64_t heal_us; /* there are no troubles from then on */
    int64_t key_weights[SIM_KEYS];
    int64_t crowd_permille; /* the demand's current multiplier */
    int64_t executed_us;    /* when the store decided the reply that is being delivered */
    uint64_t executed_order;
    int64_t executed_remaining;

    struct audit_track *tracks[SIM_LIMITS][SIM_KEYS];
    int64_t void_us[SIM_LIMITS][SIM_KEYS];  /* denials requested until then prove nothing */
    bool is_over;                           /* answers now come from weir_close() */
    int64_t reserved[SIM_LIMITS][SIM_KEYS]; /* more than is really used: some of it will be settled */
    const struct weir_op *settling;         /* the op that is being submitted to settle; NULL: none */
    int64_t settling_sent;                  /* the permits about which it has gone to the store */
    int64_t asked, answered, allowed, denied, fallbacks, lease_hits, denial_hits, store_calls;
    int64_t used, fallback_used, ideal;       /* permits */
    struct cell ideals[SIM_LIMITS][SIM_KEYS]; /* one bucket that gets all requests without delay */
};

/* Report a violation, once per run. */
void violation(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void trace(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Simulate; false if a promise was broken, which was reported. */
struct run_result {
    bool good;
    int64_t asked, steps, used, ideal, store_calls, lease_hits, denial_hits, fallbacks;
};
struct run_settings {
    bool tells, tells_all; /* report violations; report every event too */
    bool traces;           /* print the last events before a violation: formatting them takes a third of the time */
    bool until_broken;     /* for callers that run many */
    const struct store_twin *twin;
    int64_t asks; /* the approximate number of requests */
};
struct run_result run_seed(const struct scenario *scenario, uint64_t seed, const struct run_settings *settings);

struct sim *sim_make(const struct scenario *scenario, uint64_t seed, const struct run_settings *settings);
/* Close the instances, audit, and free everything. */
struct run_result sim_end(struct sim *sim);

/* Print the utilisation matrix, sim_matrix.c. */
int matrix(void);
/* Print it for regular loads over long and short periods, sim_loads.c; a part of it, or all. */
int loads(bool all);
/* Print the calls to the store for users with different demand, sim_calls.c. */
int calls(void);
/* Print what outages of some instances admit beyond the limit, sim_late.c. */
int late(void);
/* Print rows for 1, 2, 5, 10, ... and at last `most` instances, sim_scale.c; 1 to SIM_INSTANCES. */
int scale(int most);

/* ---- Instances: sim_instance.c ---- */

struct asked_op {
    struct weir_op op;
    struct sim *sim;
    struct instance *instance;
    int limit, key;
    int64_t asked_us;
    bool is_answered, must_pass; /* must_pass: no trouble is left, and there is room */
    int64_t actual;              /* of a reservation: permits really used */
};

/* Never returns NULL; a failure ends the program. */
struct instance *instance_make(struct sim *sim);
/* Remove it without notice: what it has sent may still reach the store. */
void instance_crash(struct sim *sim, struct instance *instance);
/* Close it, so that it gives its leases back. False: it waits for an answer, and weir_close() would wait, too. */
bool instance_leave(struct sim *sim, struct instance *instance);
void instance_ask(struct sim *sim, struct instance *instance, int limit, int key, int64_t cost, bool must_pass);

static inline struct weir_key instance_key(const struct instance *instance, int limit, int key)
{
    return weir_key_text(instance->keys[limit][key]);
}
/* Tell all live instances how many there are. */
void instances_recount(struct sim *sim);
void instance_define(struct sim *sim, struct instance *instance, int limit);

/* ---- Reservations: sim_reserve.c ---- */

/* Make a request a reservation, or leave it. */
void reserve_draw(struct sim *sim, struct asked_op *asked);
/* It was admitted: it may settle later. */
void reserve_admitted(struct sim *sim, struct asked_op *asked);
/* Settle it in `late_us`. */
void reserve_settle(struct sim *sim, const struct asked_op *asked, int64_t late_us);

/* ---- Renewals: sim_renew.c ---- */

/* A reservation was admitted: its holder renews it. */
void renew_admitted(struct sim *sim, const struct asked_op *asked);
/* True if a renewal of permits charged at `since_us` finds them in use at `store_us`, both by the store's clock. */
bool renewal_is_in_time(const struct sim *sim, int limit, int64_t since_us, int64_t store_us);

/* ---- Network and store: sim_net.c, sim_store.c ---- */

struct remote *remote_make(struct sim *sim, struct instance *instance);
void remote_cut(struct sim *sim, struct remote *remote, bool refuses);
void remote_mend(struct sim *sim, struct remote *remote);

struct asked {
    int limit, key;
    int64_t cost, ahead;
    int64_t ago_us; /* of a charge that asks how long its key lay idle; otherwise 0 */
    uint32_t spread;
    enum weir_verb verb;
    bool settles; /* a settlement of a caller's, not a return of what was leased */
    struct weir_plan plan;
};
int64_t store_now_us(const struct sim *sim);
void store_decide(struct sim *sim, const struct asked *asked, struct weir_decision *out);
/* Decide one request at `now_us` of the store's clock, on any cell. */
void cell_decide(struct cell *cell, const struct asked *asked, int64_t now_us, struct weir_decision *out);
int64_t cell_used(const struct cell *cell, int64_t now_us);
void store_snapshot(struct sim *sim);
void store_fail_over(struct sim *sim, bool loses_all);
void store_step(struct sim *sim, int64_t by_us);

/* ---- Load and troubles: sim_load.c, sim_trouble.c ---- */

void load_start(struct sim *sim);
void troubles_start(struct sim *sim);
/* Return a true time after which a key of any limit is fresh, whatever was used. */
int64_t longest_reset_us(const struct sim *sim);

/* ---- Audit: sim_audit.c, sim_meter.c ---- */

void audit_start(struct sim *sim);
void audit_executed(struct sim *sim, struct instance *instance, const struct asked *asked,
                    const struct weir_decision *decision);
void audit_delivered(struct sim *sim, struct instance *instance, const struct asked *asked, int64_t asked_us,
                     const struct weir_decision *decision);
/* The request that waited for it has been served. */
void audit_landed(struct sim *sim, struct instance *instance, const struct asked *asked);
void audit_submitted(struct sim *sim, struct instance *instance, const struct asked *asked);
void audit_answered(struct sim *sim, struct asked_op *asked, int status);
/* The store has said in its answer what is left. */
void audit_reported(const struct asked_op *asked);
/* The fallback of an instance has decided: an outage begins for all of its keys, unless one lasts. */
void audit_falls_back(struct sim *sim, struct instance *instance);
void audit_crashed(struct sim *sim, struct instance *instance);
/* The store holds `permits` fewer of this key than were charged. */
void audit_credit(struct sim *sim, int limit, int key, int64_t permits);
void audit_stepped(struct sim *sim, int64_t by_us);
void audit_void_denials(struct sim *sim, int limit, int key);
void audit_end(struct sim *sim);

/* Return how far drifting clocks may be apart after that time. */
int64_t sim_drifted_us(const struct sim *sim, int64_t us);

/* Return the permits that are granted, unused, and within their life. */
int64_t grants_left(const struct sim *sim, struct holding *holding);
/* Return those of grants that do not shrink yet. */
int64_t grants_young(const struct sim *sim, struct holding *holding);
/* Note that `cost` permits were used just now: no grant ages until they have refilled. `with_latest`: the store charged
 * them together with the latest grant, which has not aged at all since then. */
void grants_stay_young(const struct sim *sim, struct holding *holding, const struct weir_plan *plan, int64_t cost,
                       bool with_latest);
void grant_add(const struct sim *sim, struct holding *holding, const struct grant *grant);
/* Take `cost` from the grants, the oldest first. Return false if they have less. */
bool grants_use(const struct sim *sim, struct holding *holding, int64_t cost);
/* The same, for what the store itself admitted in the latest grant, however late. */
bool latest_use(struct holding *holding, int64_t cost);

/* Put permits back that were settled, into the latest grant: with reservations, the meters alone judge their life. */
void grants_restore(const struct sim *sim, struct holding *holding, const struct sim_limit *limit, int64_t permits);

enum record_kind {
    RECORD_USE,      /* permits used by Redis's decision or a lease */
    RECORD_FALLBACK, /* permits used by a fallback's decision */
    RECORD_OUTAGE,   /* an instance began to fall back; amount 1: with another share */
    RECORD_SETTLED,  /* an instance's fallback charged that many of its permits to the store */
    RECORD_TOUCHED,  /* the store decided for an instance again */
    RECORD_WINDOW,   /* the store's window, or next refill, ends at `amount` */
    RECORD_CREDIT,   /* the store lost that many */
    RECORD_CREDITED, /* nothing that was leased before that loss is used from now on */
    RECORD_STEP,     /* its clock went forward by that much */
    RECORD_CHARGE,   /* permits charged beyond a reservation, whatever was left */
    RECORD_HELD,     /* permits of the holder `count` were taken, or renewed: sim_renew.c */
    RECORD_FREED     /* that holder has them no more */
};
struct record {
    int64_t at_us, amount;
    uint64_t order;
    int32_t instance;
    uint8_t kind;
    int64_t departs_us; /* USE, FALLBACK: for a leaky bucket, when it may proceed by the store's reckoning */
    int64_t shift_us;
    int64_t count; /* FALLBACK, OUTAGE: how many instances that one assumes; HELD, FREED: the holder */
    int64_t left;  /* OUTAGE: the permits that it believes are left of the whole limit; SETTLED: those admitted after it
                      was sent; CHARGE: those on lease, or reserved and not used; WINDOW: when the store has nothing
                      in use any more */
    int64_t stale; /* OUTAGE: how many of them are not left any more */
};
struct audit_track {
    struct record *records;
    size_t count, room;
};
void record_add(struct sim *sim, int limit, int key, const struct record *record);
/* Record a charge of now. */
void audit_charged(struct sim *sim, int limit, int key, int instance, int64_t permits);
void meter_track(struct sim *sim, int limit, int key);

#endif
