/* load.h - callers in several threads that ask for decisions as fast as they are answered. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "redis/store.h"

/* Decides draws[0..n) for caller `thread`; returns how many were not decided, for an error. */
typedef size_t load_call(void *subject, int thread, const struct bench_key *draws, size_t n);

struct load {
    const char *name;
    load_call *call;
    void *subject;
    int threads; /* 1 to MEASURE_MAX_THREADS */
    size_t step; /* draws per call; divides STREAM_STEP */
    const struct stream *stream;
    bool is_spread; /* the callers share all processors; else the main thread's, and a private server has another */
    double lead_seconds; /* it runs that long before each repetition, and is not looked at: leases are then warm */
    weir *weir;          /* whose calls to Redis are counted; NULL: none */
    /* Written by load_measure(), a value per repetition: */
    struct sample per_second;           /* decisions */
    struct sample ns;                   /* wall time per decision: 1e9 / per_second */
    struct sample server_us, client_us; /* CPU time per decision, the whole processes'; server_us is empty if unknown */
    struct sample store_calls;          /* per decision, if `weir` is given */
    struct sample p50_us, p99_us;       /* of a call */
    uint64_t failed;                    /* decisions */
    size_t cursors[MEASURE_MAX_THREADS];
};

/* As measure_cells(). `store`: whose CPU time is told; NULL: none. */
void load_measure(struct load *loads, int n, int repeats, double seconds, const struct store *store);

/* CPU time so far, or since then: of the server, -1 if unknown, of this process, and of all else on the machine as far
 * as it tells; and calls to Redis of `limiter`. Store and limiter may be
 * NULL. */
struct load_cost {
    double server_us, client_us, others_us, store_calls;
};
struct load_cost load_cost_so_far(const struct store *store, weir *limiter);
struct load_cost load_cost_since(const struct load_cost *before, const struct store *store, weir *limiter);

/* Whether other programs took so much of the machine that a repetition of that length is to be measured again. */
bool load_was_disturbed(const struct load_cost *cost, double seconds);

/* Tells a failure once, on stderr. */
void load_complain(const char *what, const char *why);

#endif
