/* ways.h - the same callers on a few ways to a decision: a row for each number of callers and each way.
 *
 * What is compared is measured in turns (load_measure()), so that the ratios hold whatever the machine does meanwhile.
 * The first way is the one that the others are compared with.
 */
#ifndef BENCH_WAYS_H
#define BENCH_WAYS_H

#include "redis/remote.h"

#define WAYS_MAX 3

struct way {
    const char *name;
    load_call *call;
    void *subject;
};

struct ways {
    const char *section;       /* told as progress */
    const char *column;        /* of the ways' names */
    const struct store *store; /* its keys are asked for; its server's CPU time is told */
    bool other_servers;        /* not all of them decide on that server: its CPU time is not told */
    bool failed_alone;         /* where decisions failed, how many is all that is told: failing has a pace of its own */
    const int *callers;        /* so many at once, one number after the other; 0 at the end */
    int n;
    struct way way[WAYS_MAX];
    /* Adds to the row of way 1 and up, of which decisions may have failed, how it compares. */
    void (*compare)(struct bench *bench, const struct load *loads, int way);
};

extern const int ways_callers[]; /* few, some, many */

void ways_measure(struct bench *bench, const struct ways *ways);

/* The same where each way is weir_try() in distributed mode, with options[i] on the server of stores[i]. If one of them
 * cannot be had from Redis, a row that says why is all. */
void ways_measure_distributed(struct bench *bench, const struct ways *ways, const struct store *const *stores,
                              const struct weir_options *options);

#endif
