/* sections.h - what goals.c or the modes side by side measure just as the section does that has it: theirs to define,
 * both's to use. */
#ifndef BENCH_SECTIONS_H
#define BENCH_SECTIONS_H

#include "bench.h"

/* ---- batch.c ---- */

#define BATCH_MAX 64

struct batched {
    const struct subject *subject;
    size_t size; /* of a batch: divides STREAM_STEP, BATCH_MAX at most */
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

/* Ends the program with a message on an error. */
void handles_resolve(struct resolved *resolved, const struct subject *subject, const struct stream *stream);
void handles_forget(struct resolved *resolved);

/* work_functions of a struct resolved whose stream the cell has: decisions by handle, by the limiter's clock and at a
 * time that was read beforehand. */
uint64_t handles_work(void *resolved, const struct bench_key *draws, size_t n);
uint64_t handles_work_at(void *resolved, const struct bench_key *draws, size_t n);

/* work_function of an _Atomic uint64_t: what a state that is swapped would need, and nothing else. */
uint64_t swap_work(void *number, const struct bench_key *draws, size_t n);

/* ---- limits.c ---- */

struct limited { /* a limiter of which each key has one of many limits, all of the same policy */
    struct subject subject;
    weir_limit **limits;
    uint64_t limits_len;
    const struct stream *stream;
    weir_limit **drawn; /* the limit of each draw */
};

/* Defines the limits and fills keys 0 to keys-1. Ends the program with a message on an error. */
void limits_open(struct limited *limited, uint64_t limits_len, uint64_t keys, const struct stream *stream);
void limits_close(struct limited *limited);

/* work_function of a struct limited whose stream the cell has: a weir_try() per draw, with its limit. */
uint64_t limits_work(void *limited, const struct bench_key *draws, size_t n);

/* ---- floors.c ---- */

/* A bare uthash table that holds keys 0 to keys-1. Ends the program with a message on an error. */
struct table;
struct table *floors_table_open(uint64_t keys);
void floors_table_close(struct table *table);

/* work_function of a struct table: for each draw the clock is read, a mutex locked and the key looked up. */
uint64_t floors_work(void *table, const struct bench_key *draws, size_t n);

/* ---- reach.c ---- */

/* Keys 0 to keys-1, with an index or found by their hash alone. Ends the program with a message on an error. */
struct reach;
struct reach *reach_open(uint64_t keys);
void reach_close(struct reach *reach);

/* work_functions of a struct reach: each draw's entry is changed once. Two cache lines, of which the second is where
 * the first says; or the one line of the entry. */
uint64_t reach_work_two(void *reach, const struct bench_key *draws, size_t n);
uint64_t reach_work_one(void *reach, const struct bench_key *draws, size_t n);

/* ---- memory.c, growth.c: in forked children ---- */

struct memory_cost { /* bytes per key */
    struct sample resident, with_empty, own;
    int64_t held; /* keys, at the end of the last repetition */
    double open_bytes;
};
void memory_measure(struct bench *bench, uint64_t keys, struct memory_cost *out);

/* The longest stall of any insert of 0 to `keys` keys, in milliseconds: one for each of `runs` runs, and beside it what
 * fresh memory on small pages alone costs. */
void growth_measure(uint64_t keys, int runs, struct sample *weir_ms, struct sample *memory_ms);

#endif
