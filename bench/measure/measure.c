/* measure.c - runs measurements in turns and keeps what each repetition took.
 *
 * All threads of a cell start at one barrier and run until the time is up. Each times itself, so that none runs on
 * alone at the end. The clock is read once per STREAM_STEP operations.
 *
 * Other programs disturb a repetition if a cell's only thread had its processor for less than UNDISTURBED of the time.
 * Such a repetition is measured again, up to MAX_ATTEMPTS times, and MAX_REPEATED times in the whole run. Threads that
 * share a lock may sleep because of it, so cells with several threads are not judged. A busy sibling on the same core
 * does not show.
 */
#include "measure/measure.h"

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure/say.h"
#include "measure/timer.h"

#define UNDISTURBED 0.98
#define MAX_ATTEMPTS 4
#define MAX_REPEATED 100 /* in the whole run: a busy machine must not take forever */

static struct measure_disturbances disturbances;

/* ---- Samples ---- */

void sample_add(struct sample *sample, double value)
{
    assert(sample->n < MEASURE_MAX_REPEATS);
    sample->values[sample->n++] = value;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

double sample_median(const struct sample *sample)
{
    struct sample sorted = *sample;
    assert(sorted.n > 0);
    qsort(sorted.values, (size_t)sorted.n, sizeof sorted.values[0], compare_doubles);
    return (sorted.values[(sorted.n - 1) / 2] + sorted.values[sorted.n / 2]) / 2;
}

double sample_min(const struct sample *sample)
{
    double min = sample->values[0];
    for (int i = 1; i < sample->n; i++)
        min = sample->values[i] < min ? sample->values[i] : min;
    return min;
}

double sample_max(const struct sample *sample)
{
    double max = sample->values[0];
    for (int i = 1; i < sample->n; i++)
        max = sample->values[i] > max ? sample->values[i] : max;
    return max;
}

struct sample sample_ratio(const struct sample *numerator, const struct sample *denominator)
{
    struct sample ratio = { 0 };
    assert(numerator->n == denominator->n);
    for (int i = 0; i < numerator->n; i++)
        sample_add(&ratio, numerator->values[i] / denominator->values[i]);
    return ratio;
}

/* ---- Processors ---- */

static cpu_set_t allowed_processors(void)
{
    static cpu_set_t allowed; /* as it was at the first call, before anything is pinned */
    static int known;
    if (!known && sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        CPU_ZERO(&allowed);
        CPU_SET(0, &allowed);
    }
    known = 1;
    return allowed;
}

int measure_processors(void)
{
    cpu_set_t allowed = allowed_processors();
    return CPU_COUNT(&allowed);
}

/* Pin a thread (0: the calling one) to processor number `place`, counted from the last, if there are at least `threads`
 * processors. */
static void pin(pid_t thread, int place, int threads)
{
    cpu_set_t chosen = allowed_processors();
    size_t processor = CPU_SETSIZE;
    if (threads <= measure_processors()) {
        for (int passed = -1; passed < place;) {
            processor--;
            passed += CPU_ISSET(processor, &chosen) ? 1 : 0;
        }
        CPU_ZERO(&chosen);
        CPU_SET(processor, &chosen);
    }
    sched_setaffinity(thread, sizeof chosen, &chosen); /* an unpinned thread is noisier, not wrong */
}

static void *end_at_once(void *argument)
{
    return argument;
}

void measure_start(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_at_once, NULL) == 0)
        pthread_join(thread, NULL);
}

void measure_pin_main(void)
{
    if (measure_processors() > 1)
        pin(0, 0, 1);
}

void measure_unpin_main(void)
{
    pin(0, 0, INT_MAX);
}

void measure_pin_server(pid_t pid)
{
    pin(pid, measure_processors() - 1, 1);
}

/* ---- Cells ---- */

struct runner { /* one thread of one repetition of a cell */
    struct cell *cell;
    pthread_barrier_t *start;
    int thread;
    int64_t time_ns;
    uint64_t operations, admitted;
    double ns;       /* per operation */
    double had_part; /* the part of the time for which it had a processor */
};

static void *cell_run(void *argument)
{
    struct runner *runner = argument;
    struct cell *cell = runner->cell;
    const struct stream *stream = cell->stream;
    size_t cursor = cell->cursors[runner->thread];
    pin(0, runner->thread, cell->threads);
    pthread_barrier_wait(runner->start);
    int64_t start_had_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    int64_t elapsed_ns = 0;
    do {
        runner->admitted += cell->work(cell->subject, stream ? stream->draws + cursor : NULL, STREAM_STEP);
        runner->operations += STREAM_STEP;
        cursor = stream ? (cursor + STREAM_STEP) % stream->len : 0;
        elapsed_ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
    } while (elapsed_ns < runner->time_ns);
    cell->cursors[runner->thread] = cursor;
    runner->had_part = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_had_ns) / (double)elapsed_ns;
    runner->ns = (double)elapsed_ns / (double)runner->operations;
    return NULL;
}

/* Run one repetition. Return the slowest thread's nanoseconds per operation, and the part of the time for which the
 * first thread had a processor. */
static double run_cell(struct cell *cell, double seconds, double *had_part)
{
    struct runner runners[MEASURE_MAX_THREADS] = { 0 };
    pthread_t threads[MEASURE_MAX_THREADS];
    pthread_barrier_t start;
    double slowest_ns = 0;
    pthread_barrier_init(&start, NULL, (unsigned)cell->threads);
    for (int i = cell->threads - 1; i >= 0; i--) {
        runners[i].cell = cell;
        runners[i].start = &start;
        runners[i].thread = i;
        runners[i].time_ns = (int64_t)(seconds * 1e9);
        if (i > 0 && pthread_create(&threads[i], NULL, cell_run, &runners[i]) != 0)
            bench_fail("cannot start %d threads", cell->threads);
    }
    cell_run(&runners[0]);
    *had_part = runners[0].had_part;
    for (int i = 0; i < cell->threads; i++) {
        if (i > 0)
            pthread_join(threads[i], NULL);
        slowest_ns = runners[i].ns > slowest_ns ? runners[i].ns : slowest_ns;
        cell->operations += runners[i].operations;
        cell->admitted += runners[i].admitted;
    }
    pthread_barrier_destroy(&start);
    measure_pin_main();
    return slowest_ns;
}

bool measure_again(int attempt)
{
    const bool again = attempt < MAX_ATTEMPTS && disturbances.repeated < MAX_REPEATED;
    *(again ? &disturbances.repeated : &disturbances.kept) += 1;
    return again;
}

int64_t measure_machine_cpu_us(void)
{
    unsigned long long user, nice, system, idle, wait, irq, soft, steal;
    FILE *file = fopen("/proc/stat", "r");
    int read = file ? fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait,
                             &irq, &soft, &steal)
                    : 0;
    if (file)
        fclose(file);
    if (read != 8)
        return -1;
    return (int64_t)((user + nice + system + irq + soft + steal) * 1000000 / (unsigned long long)sysconf(_SC_CLK_TCK));
}

static double run_undisturbed(struct cell *cell, double seconds)
{
    double had_part;
    double ns = run_cell(cell, seconds, &had_part);
    for (int attempt = 1; cell->threads == 1 && had_part < UNDISTURBED && measure_again(attempt); attempt++)
        ns = run_cell(cell, seconds, &had_part);
    return ns;
}

void measure_cells(struct cell *cells, int n, int repeats, double seconds)
{
    double had_part; /* the short pass may be disturbed */
    for (int i = 0; i < n; i++) {
        cells[i].ns.n = 0;
        for (int thread = 0; cells[i].stream && thread < cells[i].threads; thread++) {
            size_t steps = cells[i].stream->len / STREAM_STEP;
            cells[i].cursors[thread] = steps * (size_t)thread / (size_t)cells[i].threads * STREAM_STEP;
        }
        run_cell(&cells[i], seconds / 4, &had_part);
        cells[i].operations = 0;
        cells[i].admitted = 0;
    }
    for (int repeat = 0; repeat < repeats; repeat++) {
        for (int i = 0; i < n; i++) {
            struct cell *cell = &cells[repeat % 2 == 0 ? i : n - 1 - i];
            sample_add(&cell->ns, run_undisturbed(cell, seconds));
        }
    }
}

struct measure_disturbances measure_disturbed(void)
{
    return disturbances;
}
