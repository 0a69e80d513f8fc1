/* several.h - several processes that do the same, for section processes. */
#ifndef BENCH_SEVERAL_H
#define BENCH_SEVERAL_H

#include <stdatomic.h>

#include "bench.h"

#define PROCESSES 4
#define PATIENCE_US (5 * WEIR_SECOND) /* a process may lose its processor in the middle of a decision */

struct board { /* in shared memory */
    atomic_int ready;
    _Atomic int64_t until_ns; /* 0: wait; otherwise work until this time of CLOCK_MONOTONIC */
    _Atomic uint64_t counts[PROCESSES];
};

typedef void process_work(struct board *board, int number, void *user);

/* Have `n` processes work, for `seconds` after all are ready. The caller ends the board. */
struct board *processes_run(int n, double seconds, process_work *work, void *user);
void board_end(struct board *board);

/* Say that this process is ready, and wait until all are. Return when to stop. */
int64_t await_start(struct board *board);

/* Open local mode, or machine mode in memory that child processes share. */
void subject_open_alone(struct subject *subject, enum kind kind, uint64_t keys);
void subject_open_together(struct subject *subject, enum kind kind, uint64_t keys);

/* Report the speed of several processes that draw from the same keys. With many keys only machine mode: each process
 * of local mode would have to fill a table. */
void several_report(struct bench *bench, struct subject *together, const struct stream *stream, uint64_t keys);

/* Report that of machine mode if each process draws from other keys, and if all draw each key equally often. */
void several_report_apart(struct bench *bench, uint64_t keys);

#endif
