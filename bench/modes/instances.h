/* instances.h - real processes that share limits, each with its own limiters of every chosen mode.
 *
 * All that is asked is drawn beforehand (traffic.h). An instance asks each mode for each of its arrivals, one mode
 * after the other, so that all see the same requests at the same times, and writes down in shared memory what they
 * said. What was due while it was busy it asks for at once, as a batch.
 *
 * An instance ends with the main thread. One that fails says why and ends the program.
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

struct instances_cell { /* keys of its own, one a mode */
    int limit;          /* by its place in struct instances */
    bool clocks_differ; /* asked of limiters whose clocks, one an instance, are an hour apart, and fast, right and slow
                         * by INSTANCES_CLOCK_PPM in turn */
    struct bench_key keys[MODES]; /* written by instances_map() */
};
#define INSTANCES_CLOCK_PPM 10000

struct instances_board {      /* in shared memory */
    _Atomic int64_t start_us; /* of CLOCK_MONOTONIC, as all here; 0: not yet */
    atomic_bool is_ready[TRAFFIC_MAX_INSTANCES], has_served[TRAFFIC_MAX_INSTANCES];
    atomic_bool is_over;                                 /* all have served: until then they live */
    _Atomic int64_t beat_us[TRAFFIC_MAX_INSTANCES];      /* when it last showed that it lives; 0: never */
    struct weir_limit_info hybrid[INSTANCES_MAX_LIMITS]; /* as the first instance sees them, if hybrid mode is chosen */
};

struct instances {
    const struct modes *modes;
    int run; /* from 0: each has keys of its own, numbers below instances_keys() */
    int n;   /* that share each limit, from the start */
    const struct instances_limit *limits;
    int limits_len;
    struct instances_cell *cells;
    int cells_len;
    /* Called in an instance before it opens its limiter of a mode; NULL: nothing is to be changed. */
    void (*adjust)(const struct instances *all, int number, struct weir_options *options);
    void *user; /* the caller's own */
    /* By instances_map(): room for so many arrivals, for the caller to draw and sort. */
    struct arrival *arrivals;
    size_t arrivals_len;
    struct instances_board *board;
    pid_t pids[TRAFFIC_MAX_INSTANCES]; /* 0: not running */
};

int64_t instances_now_us(void);

/* How many keys the cells of so many runs take. */
uint64_t instances_keys(int cells, int runs);

/* Also gives all cells their keys. Ends the program with a message if there is no memory. */
void instances_map(struct instances *all, size_t arrivals);
void instances_unmap(struct instances *all);

/* Starts that one; once the run has begun it serves whatever has come for it since. */
void instances_start(struct instances *all, int number);

/* Waits until those that were started are ready to serve, and lets them. */
void instances_begin(struct instances *all);

/* Waits until so long after the start of the run. */
void instances_await(struct instances *all, int64_t after_us);

/* As by kill -9. */
void instances_kill(struct instances *all, int number);

/* Waits until all have served what is theirs, and ended. */
void instances_finish(struct instances *all);

#endif
