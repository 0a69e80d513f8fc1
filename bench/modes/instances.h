/* instances.h - real processes that share limits, each with its own limiters of every chosen mode.
 *
 * All requests are drawn in advance (traffic.h). For each of its arrivals, an instance asks one mode after the other,
 * so that all modes see the same requests at the same times. It records the answers in shared memory. Requests that
 * came due while it was busy go into one batch.
 *
 * An instance ends with the main thread. An instance that fails says why and ends the program.
 */
#ifndef BENCH_INSTANCES_H
#define BENCH_INSTANCES_H

#include <stdatomic.h>
#include <sys/types.h>

#include "modes/traffic.h"

#define INSTANCES_MAX_LIMITS 2

struct instances_limit {
    const char *name;
    struct weir_policy policy;
};

struct instances_cell { /* its own keys, one per mode */
    int limit;          /* its index in struct instances */
    bool clocks_differ; /* wrong clocks: an hour apart, and fast, right or slow by INSTANCES_CLOCK_PPM in turn */
    struct bench_key keys[MODES]; /* written by instances_map() */
};
#define INSTANCES_CLOCK_PPM 10000

struct instances_board {      /* in shared memory */
    _Atomic int64_t start_us; /* of CLOCK_MONOTONIC, as everything here; 0: not yet */
    atomic_bool is_ready[TRAFFIC_MAX_INSTANCES], has_served[TRAFFIC_MAX_INSTANCES];
    atomic_bool is_over;                                 /* all have served; they live until then */
    _Atomic int64_t beat_us[TRAFFIC_MAX_INSTANCES];      /* the last sign of life; 0: never */
    struct weir_limit_info hybrid[INSTANCES_MAX_LIMITS]; /* as the first instance sees them, if hybrid mode is chosen */
};

struct instances {
    const struct modes *modes;
    int run; /* from 0; each run has its own keys, with numbers below instances_keys() */
    int n;   /* processes that share each limit from the start */
    const struct instances_limit *limits;
    int limits_len;
    struct instances_cell *cells;
    int cells_len;
    /* Called in an instance before it opens its limiter of a mode; NULL: change nothing. */
    void (*adjust)(const struct instances *all, int number, struct weir_options *options);
    void *user; /* for the caller */
    /* Mapped by instances_map(); the caller draws and sorts. */
    struct arrival *arrivals;
    size_t arrivals_len;
    struct instances_board *board;
    pid_t pids[TRAFFIC_MAX_INSTANCES]; /* 0: not running */
};

int64_t instances_now_us(void);

/* Return how many keys the cells of `runs` runs take. */
uint64_t instances_keys(int cells, int runs);

/* Map room for `arrivals` arrivals and give all cells their keys. Fails without memory. */
void instances_map(struct instances *all, size_t arrivals);
void instances_unmap(struct instances *all);

/* Start a process. If the run has begun, it first serves the requests that came for it since. */
void instances_start(struct instances *all, int number);

/* Wait until all started processes are ready, and start the run. */
void instances_begin(struct instances *all);

/* Wait until that long after the start of the run. */
void instances_await(struct instances *all, int64_t after_us);

/* Kill a process, as by kill -9. */
void instances_kill(struct instances *all, int number);

/* Wait until all have served their requests and ended. */
void instances_finish(struct instances *all);

#endif
