/* measure.h - runs things beside one another and keeps what each repetition took. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "measure/keys.h"

#define MEASURE_MAX_REPEATS 99
#define MEASURE_MAX_THREADS 64

struct sample { /* one value per repetition */
    int n;
    double values[MEASURE_MAX_REPEATS];
};

void sample_add(struct sample *sample, double value);
double sample_median(const struct sample *sample);
double sample_min(const struct sample *sample);
double sample_max(const struct sample *sample);

/* One quotient per repetition, numerator and denominator from the same one. Both have as many values. */
struct sample sample_ratio(const struct sample *numerator, const struct sample *denominator);

/* One thing to measure: `work` does `n` operations on `subject`, with one draw each, and returns how many were
 * admitted. A cell without a stream gets NULL for draws. */
typedef uint64_t work_function(void *subject, const struct bench_key *draws, size_t n);
struct cell {
    work_function *work;
    void *subject;
    const struct stream *stream;
    int threads;
    /* Written by measure_cells(): */
    struct sample ns; /* a repetition's: the slowest thread's wall time over its operations */
    uint64_t operations, admitted;
    size_t cursors[MEASURE_MAX_THREADS]; /* each thread's place in the stream; goes on from repetition to repetition */
};

/* Measures cells[0..n) `repeats` times for about `seconds` each, after a short pass that is not counted. The cells of
 * a repetition run one after the other, every second repetition in the opposite order. */
void measure_cells(struct cell *cells, int n, int repeats, double seconds);

/* What other programs did to repetitions so far: those that were measured again, and those that were
 * kept although disturbed, for want of a better one. */
struct measure_disturbances {
    int repeated, kept;
};
struct measure_disturbances measure_disturbed(void);

/* Notes that a repetition was disturbed at its attempt number `attempt`, from 1; whether it should be measured again.
 */
bool measure_again(int attempt);

/* CPU time that all processes of the machine have taken, in microseconds, in steps of the system's; -1 if unknown. */
int64_t measure_machine_cpu_us(void);

/* How many processors this process may run on. Threads are pinned to one each as long as they suffice; otherwise
 * they are left to the scheduler. */
int measure_processors(void);

/* Makes this a process of several threads, once and for all. glibc spares a process that never had a second thread the
 * locked instructions of a mutex, some 9 ns; limiters live in processes that have one. */
void measure_start(void);

/* Pins the calling thread to the first of them, if there is more than one. The last processor counts as the first:
 * processor 0 tends to serve the interrupts. */
void measure_pin_main(void);

/* Lets the calling thread, and those it starts, run on all of them again. */
void measure_unpin_main(void);

/* Pins the first thread of another process to the processor at the other end from the main thread's, if there is more
 * than one: a server and its callers then do not push each other about. */
void measure_pin_server(pid_t pid);

#endif
