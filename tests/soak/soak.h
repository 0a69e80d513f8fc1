/* soak.h - what all of the soak's files share: the modes, their limits, and the memory that its processes share.
 *
 * A few processes each hold a limiter of every mode; several threads in each take permits of the same keys. One more
 * process, the first, runs the servers, makes the faults, and judges. Each admitted request is recorded in the ring
 * of its process, from which the first process takes it.
 *
 *     modes.c      the modes and the limits
 *     ledger.c     the shared memory and its rings
 *     instance.c   one of the processes; seat.c a limiter in it and its threads; calls.c their requests
 *     place.c      Redis, the proxy before it, Consul, the policy file, the processes
 *     faults.c     the faults and their order; acts_redis.c and acts_others.c make them
 *     allow.c      what each fault may admit beyond a limit: the only file that decides this
 *     judge.c      compares what was admitted with that; meter.c does the arithmetic
 *     flat.c       memory, descriptors and threads of each process
 *     main.c       the run; report.c its report; stored.c what Redis holds at its end
 */
#ifndef SOAK_SOAK_H
#define SOAK_SOAK_H

#include <weir/weir.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum {
    PROCESSES = 3,
    HOT_KEYS = 2,    /* of each limit: keys that are always in use */
    TURNED_KEYS = 2, /* after them, keys that are also reset and refunded, of limits that say so */
    LIMITS = 6,
    MODES = 9,
    RING = 1 << 15, /* records of a process that have not been taken yet */
    SOURCES = WEIR_BY_FAIL_CLOSED + 1,
    ERRORS = -WEIR_ECLOSED + 1,
    LEASE_LIFE_US = 100000 /* at most, of hybrid mode */
};

/* ---- Modes ---- */

enum soak_place { PLACE_NONE, PLACE_FILE, PLACE_REDIS, PLACE_CLUSTER };

struct soak_mode {
    const char *name;
    enum weir_mode mode;
    enum weir_on_failure on_failure;
    enum soak_place place;
    bool by_share;  /* Consul determines its share of each limit */
    bool own_clock; /* a clock that is set forward and back */
    bool small;     /* has no room for all keys */
    bool strict;
    bool event_fd; /* a thread of the caller's dispatches submitted requests */
};
extern const struct soak_mode soak_modes[MODES];

/* True if each process admits the limit for itself. */
bool mode_is_own(int mode);
/* True if Redis counts, on one server or in a cluster. */
bool mode_asks_redis(int mode);
uint32_t modes_on(enum soak_place place); /* a bit each */
uint32_t modes_local(void);

struct soak_limit {
    const char *name;
    const char *policy;
    const char *smaller; /* what a followed policy file changes it to now and then; NULL: nothing */
    bool turned;         /* some of its keys are reset and refunded */
    bool churns;         /* its keys appear and expire */
};
extern const struct soak_limit soak_limits[LIMITS];

/* The parsed policies. */
extern struct weir_policy soak_policies[LIMITS];
void policies_read(void);

/* Return what a fresh key admits. */
int64_t policy_size(const struct weir_policy *policy);
/* True if permits refill continuously, not by windows. */
bool policy_flows(const struct weir_policy *policy);
bool policy_is_on_grid(const struct weir_policy *policy);

/* ---- Shared memory ---- */

enum record_kind { RECORD_ADMITTED, RECORD_RESET, RECORD_REFUNDED };

struct record {
    _Atomic int64_t start_us; /* CLOCK_REALTIME, which Redis uses; 0: not written; written last */
    int64_t end_us;
    uint32_t key, cost;
    uint8_t mode, limit, kind, source;
};

struct tally { /* of one mode in one process, over all of its lives */
    _Atomic int64_t allowed, denied, fallbacks;
    _Atomic int64_t by_store;     /* decisions by Redis */
    _Atomic int64_t errors;       /* decisions that ended with an error that the options allow */
    _Atomic int64_t others;       /* such peeks, refunds and resets */
    _Atomic int64_t calm_errors;  /* of both, those without an active fault */
    _Atomic int64_t wrong_errors; /* errors that the options do not allow */
    _Atomic int64_t late_leases;  /* leased permits used after their life */
    _Atomic int64_t limiters;     /* closed in order, with their stats compared */
    _Atomic int64_t unlike;       /* stats that differ from what callers saw */
    _Atomic int64_t keys, bytes;  /* held, by weir_stats, at the last look */
};

struct account {                /* of one process */
    _Atomic int ready;          /* the number of its current life, from 1, once it is ready */
    _Atomic int reopened;       /* its last finished reopening */
    _Atomic int64_t heap_bytes; /* allocated by malloc() and not freed */
    struct tally tallies[MODES];
    char complaint[240]; /* the first one; empty: none */
    _Atomic int complaints;
    _Atomic uint64_t reserved, taken; /* of the ring: by the process, by the judge */
    struct record ring[RING];
};

enum plant { /* defects made on purpose, to check that they are found */
             PLANT_MEMORY = 1,
             PLANT_DESCRIPTORS = 2,
             PLANT_THREADS = 4,
             PLANT_PERMITS = 8,
             PLANT_STATS = 16,
             PLANT_ERRORS = 32,
             PLANT_IMMORTAL = 64,
             PLANT_ORPHAN = 128,
             PLANT_NOTHING_ALLOWED = 256 /* not a defect: the judge allows nothing, so each fault must show */
};

struct ledger {
    atomic_bool over;
    _Atomic int64_t trouble_until_us;        /* errors are excused until then */
    _Atomic int64_t clock_offset_us;         /* of the modes with their own clock */
    _Atomic int reopen;                      /* number of the last requested reopening */
    atomic_bool overwritten;                 /* states in Redis have been overwritten */
    _Atomic int64_t over_max[MODES][LIMITS]; /* the greatest value of weir_limit_info() */
    uint64_t seed;
    unsigned planted;
    int64_t pace_us;          /* longest pause of a thread between calls at high tide */
    bool with_cluster, tells; /* tells: log lines go to stderr */
    char redis_url[192], cluster_url[512], consul[128], policy_file[128], counts_file[128];
    struct account accounts[PROCESSES];
};

#define LEDGER_FD 3 /* in the processes */

/* Make and map a memory file of that size; return NULL with a perror line. */
struct ledger *ledger_make(int *fd);
struct ledger *ledger_open(int fd);

/* Write a record; wait while the ring is full. Any thread of the process may call it. */
void ledger_write(struct ledger *ledger, int process, const struct record *record);

/* Pass new records to take(user). `ended`: the process writes no more, so reserved but unwritten places are skipped. */
typedef void ledger_taker(void *user, int process, const struct record *record);
void ledger_take(struct ledger *ledger, int process, bool ended, ledger_taker *take, void *user);

void complain(struct ledger *ledger, int process, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- A process ---- */

int instance_run(struct ledger *ledger, int process, int life);

/* ---- Ground ---- */

static inline int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * WEIR_SECOND + now.tv_nsec / 1000;
}

static inline void pause_us(int64_t us)
{
    const struct timespec time = { .tv_sec = us / WEIR_SECOND, .tv_nsec = us % WEIR_SECOND * 1000 };
    nanosleep(&time, NULL);
}

/* SplitMix64 (Steele, Lea, Flood, 2014). */
static inline uint64_t draw_next(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

static inline int draw_below(uint64_t *state, int n)
{
    return (int)(draw_next(state) % (uint64_t)n);
}

#endif
