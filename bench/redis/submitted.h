/* submitted.h - decisions that one thread submits without waiting for each, up to SUBMITTED_MOST at a time. */
#ifndef BENCH_SUBMITTED_H
#define BENCH_SUBMITTED_H

#include "redis/remote.h"

#define SUBMITTED_MOST 256

struct submitted {
    struct remote *remote;
    int fd; /* readable while decisions have come */
    size_t idle[SUBMITTED_MOST], idle_len, failed;
    struct weir_op ops[SUBMITTED_MOST];
};

/* `remote` must be open; only this thread may use it until submitted_end(). */
void submitted_begin(struct submitted *submitted, struct remote *remote);

/* A load_call of a struct submitted, for one thread. It returns once all draws are submitted; their decisions come
 * during the next call. */
size_t submitted_call(void *submitted, int thread, const struct bench_key *draws, size_t n);

/* Wait for the decisions that are due. */
void submitted_end(struct submitted *submitted);

#endif
