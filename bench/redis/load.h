/* load.h - callers in several threads that request decisions as fast as they are answered. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "redis/store.h"

/* Decide draws[0..n) for caller `thread`; return how many decisions failed. */
typedef size_t load_call(void *subject, int thread, const struct bench_key *draws, size_t n);

struct load {
    const char *name;
    load_call *call;
    void *subject;
    int threads; /* 1 to MEASURE_MAX_THREADS */
    size_t step; /* draws per call; divides STREAM_STEP */
    const struct stream *stream;
    double lead_seconds; /* runs that long before each repetition, unmeasured: leases are then warm */
    weir *weir;          /* the limiter whose calls to Redis are counted; NULL: none */
    /* Written by load_measure(), one value per repetition: */
    struct sample per_second;               /* decisions */
    struct sample ns;                       /* wall time per decision: 1e9 / per_second */
    struct sample server_us, client_us;     /* CPU time per decision, whole processes; server_us is empty if unknown */
    struct sample store_calls;              /* per decision, if `weir` is given */
    struct sample p50_us, p99_us;           /* of a call */
    uint64_t failed;                        /* decisions */
    bool is_disturbed[MEASURE_MAX_REPEATS]; /* a repetition that other programs disturbed in each attempt */
    int disturbed_len;
    size_t cursors[MEASURE_MAX_THREADS];
};

/* Measure in turns, as measure_cells() does. `store`: the server whose CPU time is reported; NULL: none. */
void load_measure(struct load *loads, int n, int repeats, double seconds, const struct store *store);

/* Return the CPU time so far, or since `before`, of the server (-1 if unknown), of this process and of everything else
 * on the machine; and the limiter's calls to Redis. Store and limiter may be NULL. */
struct load_cost {
    double server_us, client_us, others_us, store_calls;
};
struct load_cost load_cost_so_far(const struct store *store, weir *limiter);
struct load_cost load_cost_since(const struct load_cost *before, const struct store *store, weir *limiter);

/* True if other programs used enough of the machine that a repetition of that length must be measured again. */
bool load_was_disturbed(const struct load_cost *cost, double seconds);

/* Report a failure on stderr, the first time only. */
void load_complain(const char *what, const char *why);

#endif
