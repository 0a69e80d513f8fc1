/* measure.h - samples, processors, and repetitions that other programs disturbed. */
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

/* Divide repetition by repetition. Both samples have the same number of values. */
struct sample sample_ratio(const struct sample *numerator, const struct sample *denominator);

/* Repetitions that other programs disturbed so far: those measured again, and those kept after the last attempt. */
struct measure_disturbances {
    int repeated, kept;
};
struct measure_disturbances measure_disturbed(void);

/* Note that attempt number `attempt`, from 1, was disturbed. True if it should be measured again. */
bool measure_again(int attempt);

/* Return the CPU time that all processes of the machine have used, in microseconds, in the system's steps; -1 if
 * unknown. */
int64_t measure_machine_cpu_us(void);

/* Return how many processors this process may run on. */
int measure_processors(void);

/* Make this a process of several threads for good. In a process that never had a second thread, glibc omits the locked
 * instructions of a mutex, some 9 ns; limiters live in processes with threads. */
void measure_start(void);

/* Pin the calling thread to the first processor, if there are several. The last processor counts as the first:
 * processor 0 tends to serve interrupts. */
void measure_pin_main(void);

/* Let the calling thread, and the threads it starts, run on all processors again. */
void measure_unpin_main(void);

/* Pin the first thread of another process to the processor farthest from the main thread's, if there are several. A
 * server and its callers then do not compete. */
void measure_pin_server(pid_t pid);

#endif
