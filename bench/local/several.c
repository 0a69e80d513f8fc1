/* several.c - the speed of several processes: of all of them in one stretch of time; the modes take turns.
 *
 * Two processes never reach twice the speed of one if they write to the same cache lines. How far they get depends on
 * how long a line takes from one processor to the other, which on a virtual machine changes with the host's placement.
 * A column shows the bound: local mode, which shares nothing. Two rows show what the keys do to it: processes that have
 * no key in common, and keys of which none is busier than the others.
 */
#include "local/several.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "measure/timer.h"

enum { SPEED_LOCAL, SPEED_MACHINE, SPEEDS };

#define MANY 4096 /* keys: each process of local mode would have to fill a table of more */

static const int process_counts[] = { 1, 2, PROCESSES };
static const char *const gains[SPEEDS] = {
    [SPEED_LOCAL] = "local, times one process", [SPEED_MACHINE] = "machine, times one process"
};

/* ---- Processes that do the same ---- */

void board_end(struct board *board)
{
    munmap(board, sizeof *board);
}

struct board *processes_run(int n, double seconds, process_work *work, void *user)
{
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[PROCESSES];
    if (board == MAP_FAILED)
        bench_fail("processes: no shared memory");
    fflush(NULL); /* or a child would write the parent's buffers, too */
    for (int i = 0; i < n; i++) {
        children[i] = fork();
        if (children[i] < 0)
            bench_fail("processes: one of them cannot be started");
        if (children[i] == 0) {
            measure_unpin_main();
            work(board, i, user);
            _exit(0);
        }
    }
    while (atomic_load(&board->ready) < n && waitpid(-1, NULL, WNOHANG) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    atomic_store(&board->until_ns, clock_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9));
    for (int i = 0, status = 0; i < n; i++)
        if (waitpid(children[i], &status, 0) != children[i] || status != 0)
            bench_fail("processes: one of them failed");
    return board;
}

int64_t await_start(struct board *board)
{
    int64_t until_ns;
    atomic_fetch_add(&board->ready, 1);
    while ((until_ns = atomic_load(&board->until_ns)) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    return until_ns;
}

/* ---- What they do ---- */

struct speed {
    int way;
    struct subject *together;                /* for SPEED_MACHINE */
    const struct stream *streams[PROCESSES]; /* of each process */
    uint64_t keys;
};

void subject_open_together(struct subject *subject, enum kind kind, uint64_t keys)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = WEIR_MACHINE;
    options.max_keys = (int64_t)keys;
    options.timeout_us = PATIENCE_US;
    subject_open(subject, &options, kind, keys);
}

void subject_open_alone(struct subject *subject, enum kind kind, uint64_t keys)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    subject_open(subject, &options, kind, keys);
}

static void speed_work(struct board *board, int number, void *user)
{
    const struct speed *speed = user;
    struct subject own, *subject = speed->way == SPEED_MACHINE ? speed->together : &own;
    if (subject == &own)
        subject_open_alone(subject, KIND_TOKEN, speed->keys);
    const struct stream *stream = speed->streams[number];
    size_t at = (size_t)number * stream->len / PROCESSES / STREAM_STEP * STREAM_STEP;
    uint64_t operations = 0;
    const int64_t until_ns = await_start(board);
    do {
        subject_work(subject, stream->draws + at, STREAM_STEP);
        at = (at + STREAM_STEP) % stream->len;
        operations += STREAM_STEP;
    } while (clock_ns(CLOCK_MONOTONIC) < until_ns);
    atomic_store(&board->counts[number], operations);
}

/* Return the decisions a second of `n` processes together. */
static double speed_measure(struct speed *speed, int n, double seconds)
{
    uint64_t operations = 0;
    struct board *board = processes_run(n, seconds, speed_work, speed);
    for (int i = 0; i < n; i++)
        operations += atomic_load(&board->counts[i]);
    board_end(board);
    return (double)operations / seconds;
}

/* ---- Reports ---- */

static void report_begin(struct bench *bench, int processes, uint64_t keys, const char *which)
{
    char text[96];
    report_row(bench->report);
    snprintf(text, sizeof text, "%d processes, %llu keys%s: decisions a second", processes, (unsigned long long)keys,
             which);
    report_text(bench->report, "figure", text);
}

/* Measure one, two and four processes in turns, in all ways from `first` on. */
static void measure_several(struct bench *bench, struct speed *speed, int first, struct sample rates[3][SPEEDS])
{
    for (int repeat = 0; repeat < bench->repeats; repeat++)
        for (int i = 0; i < 3; i++)
            for (speed->way = first; speed->way < SPEEDS; speed->way++) {
                bench_progress("processes: %d of them, %llu keys, repetition %d", process_counts[i],
                               (unsigned long long)speed->keys, repeat + 1);
                sample_add(&rates[i][speed->way], speed_measure(speed, process_counts[i], bench->seconds));
            }
}

void several_report(struct bench *bench, struct subject *together, const struct stream *stream, uint64_t keys)
{
    const bool is_small = keys <= MANY;
    const int first = is_small ? SPEED_LOCAL : SPEED_MACHINE;
    struct sample rates[3][SPEEDS] = { 0 };
    struct speed speed = { .together = together, .keys = keys };
    for (int i = 0; i < PROCESSES; i++)
        speed.streams[i] = stream;
    measure_several(bench, &speed, first, rates);
    for (int i = 1; i < 3; i++) {
        report_begin(bench, process_counts[i], keys, "");
        if (is_small)
            report_sample(bench->report, "local", &rates[i][SPEED_LOCAL]);
        report_sample(bench->report, "machine", &rates[i][SPEED_MACHINE]);
        for (int way = first; way < SPEEDS; way++) {
            const struct sample gain = sample_ratio(&rates[i][way], &rates[0][way]);
            report_sample(bench->report, gains[way], &gain);
        }
    }
}

static void report_apart(struct bench *bench, struct speed *speed, const char *which)
{
    struct sample rates[3][SPEEDS] = { 0 };
    measure_several(bench, speed, SPEED_MACHINE, rates);
    for (int i = 1; i < 3; i++) {
        const struct sample gain = sample_ratio(&rates[i][SPEED_MACHINE], &rates[0][SPEED_MACHINE]);
        report_begin(bench, process_counts[i], speed->keys, which);
        report_sample(bench->report, "machine", &rates[i][SPEED_MACHINE]);
        report_sample(bench->report, gains[SPEED_MACHINE], &gain);
    }
}

void several_report_apart(struct bench *bench, uint64_t keys)
{
    struct subject together;
    struct stream streams[PROCESSES], uniform;
    struct speed speed = { .way = SPEED_MACHINE, .together = &together, .keys = keys };
    subject_open_together(&together, KIND_TOKEN, PROCESSES * keys);
    for (int i = 0; i < PROCESSES; i++) {
        stream_make_from(&streams[i], (uint64_t)i * keys, keys, SKEW_ZIPF);
        speed.streams[i] = &streams[i];
    }
    report_apart(bench, &speed, " a process, none shared");
    stream_make(&uniform, keys, SKEW_UNIFORM);
    for (int i = 0; i < PROCESSES; i++) {
        stream_free(&streams[i]);
        speed.streams[i] = &uniform;
    }
    report_apart(bench, &speed, ", uniform");
    stream_free(&uniform);
    subject_finish(&together, PROCESSES * keys);
}
