/* ways.h - the same callers on several ways to a decision: a row for each number of callers and each way.
 *
 * The ways are measured in turns (load_measure()), so that ratios hold whatever else the machine does. The others are
 * compared with the first one.
 */
#ifndef BENCH_WAYS_H
#define BENCH_WAYS_H

#include "redis/remote.h"

#define WAYS_MAX 3

struct way {
    const char *name;
    load_call *call;
    void *subject;
    size_t step; /* decisions in a call; 0: one */
};

struct ways {
    const char *section;       /* shown as progress */
    const char *column;        /* the heading of the ways' names */
    const struct store *store; /* its keys are requested; its server's CPU time is reported */
    const int *callers;        /* the numbers of callers, measured one after the other; 0 at the end */
    int n;
    struct way way[WAYS_MAX];
    /* Adds to the row of way 1 and up how it compares with way 0. Decisions may have failed. */
    void (*compare)(struct bench *bench, const struct load *loads, int way);
};

void ways_measure(struct bench *bench, const struct ways *ways);

#endif
