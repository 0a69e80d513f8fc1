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

struct instances_cell {           /* its own keys, one per mode */
    int limit;                    /* its index in struct instances */
    struct bench_key keys[MODES]; /* written by instances_map() */
};

struct instances_board {      /* in shared memory */
    _Atomic int64_t start_us; /* of CLOCK_MONOTONIC, as everything here; 0: not yet */
    atomic_bool is_ready[BENCH_MAX_INSTANCES], has_served[BENCH_MAX_INSTANCES];
    atomic_bool is_over;                                 /* all have served; they live until then */
    struct weir_limit_info hybrid[INSTANCES_MAX_LIMITS]; /* as the first instance sees them, if hybrid mode is chosen */
};

struct instances {
    const struct modes *modes;
    int run; /* from 0; each run has its own keys, with numbers below instances_keys() */
    int n;   /* processes that share each limit */
    const struct instances_limit *limits;
    int limits_len;
    struct instances_cell *cells;
    int cells_len;
    /* Mapped by instances_map(); the caller draws and sorts. */
    struct arrival *arrivals;
    size_t arrivals_len;
    struct instances_board *board;
    int shared_fd; /* of machine mode's memory */
    char shared[REMOTE_SHARED_SIZE];
    pid_t pids[BENCH_MAX_INSTANCES]; /* 0: not running */
};

/* Return how many keys the cells of `runs` runs take. */
uint64_t instances_keys(int cells, int runs);

/* Map room for `arrivals` arrivals and give all cells their keys. Fails without memory. */
void instances_map(struct instances *all, size_t arrivals);
void instances_unmap(struct instances *all);

/* Start the processes, serve all requests, and wait until all have ended. */
void instances_run(struct instances *all);

#endif
