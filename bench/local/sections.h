/* sections.h - measurements of one section that goals.c or section modes also use. */
#ifndef BENCH_SECTIONS_H
#define BENCH_SECTIONS_H

#include "bench.h"
#include "measure/hist.h"

/* ---- latency.c ---- */

#define TIMED_QUANTILES 3 /* p50, p99 and p99.9 */

struct timed { /* a limiter whose decisions are timed one by one */
    work_function *work;
    void *subject;
    const char *name;
    size_t cursor; /* the place in the stream */
    struct hist hist;
    struct sample quantiles[TIMED_QUANTILES], max;
};

/* Time decisions for about `seconds`, continuing where the last run stopped; add the histogram's quantiles, without the
 * overhead, to the samples; report these. */
void latency_run(struct timed *timed, const struct stream *stream, double seconds);
void latency_note(struct timed *timed, uint64_t overhead_ticks);
void latency_report(struct report *report, const struct timed *timed);

/* ---- batch.c ---- */

#define BATCH_MAX 64

struct batched {
    const struct subject *subject;
    size_t size; /* of a batch: divides STREAM_STEP, at most BATCH_MAX */
};

/* work_function of a struct batched: decisions by weir_try_batch(). */
uint64_t batch_work(void *batched, const struct bench_key *draws, size_t n);

/* ---- handles.c ---- */

struct resolved { /* a handle for each draw of a stream */
    const struct subject *subject;
    const struct stream *stream;
    weir_handle **handles;
    struct known *known; /* each key once, with its handle */
};

/* Resolve the handles of a stream's draws. Fails on an error. */
void handles_resolve(struct resolved *resolved, const struct subject *subject, const struct stream *stream);
void handles_forget(struct resolved *resolved);

/* work_functions of a struct resolved, for a cell with its stream: decisions by handle, at the limiter's clock or at a
 * time read in advance. */
uint64_t handles_work(void *resolved, const struct bench_key *draws, size_t n);
uint64_t handles_work_at(void *resolved, const struct bench_key *draws, size_t n);

/* work_function of an _Atomic uint64_t: one compare-and-swap, the least that swapping a state takes. */
uint64_t swap_work(void *number, const struct bench_key *draws, size_t n);

/* ---- limits.c ---- */

struct limited { /* a limiter with many limits of the same policy; each key belongs to one of them */
    struct subject subject;
    weir_limit **limits;
    uint64_t limits_len;
    const struct stream *stream;
    weir_limit **drawn; /* the limit of each draw */
};

/* Define the limits and fill keys 0 to keys-1. Fails on an error. */
void limits_open(struct limited *limited, uint64_t limits_len, uint64_t keys, const struct stream *stream);
void limits_close(struct limited *limited);

/* work_function of a struct limited, for a cell with its stream: a weir_try() per draw, on its limit. */
uint64_t limits_work(void *limited, const struct bench_key *draws, size_t n);

/* ---- floors.c ---- */

/* Open a bare uthash table that holds keys 0 to keys-1. */
struct table;
struct table *floors_table_open(uint64_t keys);
void floors_table_close(struct table *table);

/* work_function of a struct table: read the clock, lock a mutex and look up the key, for each draw. */
uint64_t floors_work(void *table, const struct bench_key *draws, size_t n);

/* ---- reach.c ---- */

/* Open an index and entries for keys 0 to keys-1. Fails without memory. */
struct reach;
struct reach *reach_open(uint64_t keys);
void reach_close(struct reach *reach);

/* work_function of a struct reach: change each draw's entry once. It touches two cache lines, and the first one holds
 * the place of the second. */
uint64_t reach_work(void *reach, const struct bench_key *draws, size_t n);

/* ---- memory.c, growth.c: in forked children ---- */

struct memory_cost { /* bytes per key */
    struct sample resident, with_empty, own;
    int64_t held; /* keys, at the end of the last repetition */
    double open_bytes;
};
void memory_measure(struct bench *bench, uint64_t keys, struct memory_cost *out);

/* Measure the longest stall of an insert of 0 to `keys` keys, in milliseconds, once in each of `runs` runs; and next to
 * it what fresh memory on small pages costs alone. */
void growth_measure(uint64_t keys, int runs, struct sample *weir_ms, struct sample *memory_ms);

#endif
