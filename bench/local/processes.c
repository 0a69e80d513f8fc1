/* processes.c - one machine, four processes: local mode, in which each counts alone, next to machine mode, in which
 * they count together in one piece of memory.
 *
 * The accuracy of local mode is shown with each process enforcing the whole limit, as without further options, and with
 * each enforcing its quarter (instances, rank). The processes are children of this one, as the workers of a prefork
 * server are. Speeds are those of all of them in one stretch of time; the modes take turns.
 *
 * Two processes never reach twice the speed of one if they write to the same cache lines. How far they get depends on
 * how long a line takes from one processor to the other, which on a virtual machine changes with the host's placement.
 * Two columns show the bounds: local mode, which shares nothing; and local mode with one atomic addition to a word that
 * all processes have for each key, the least that any exact count over processes can do.
 */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "measure/timer.h"

enum { ALONE, SHARES, TOGETHER, WAYS };
enum { SPEED_LOCAL, SPEED_MACHINE, SPEED_ADDS, SPEEDS };

#define PROCESSES 4
#define PERMITS 1000
#define PATIENCE_US (5 * WEIR_SECOND) /* a process may lose its processor in the middle of a decision */
#define BYTES_KEYS 100000
#define GOAL_RATIO 1.15
#define GOAL_TWO 1.6
#define GOAL_BYTES 80.0

static const int process_counts[] = { 1, 2, PROCESSES };
static const char *const ways[WAYS] = { "local", "local, shares", "machine" };

/* ---- Processes that do the same ---- */

struct board { /* in shared memory */
    atomic_int ready;
    _Atomic int64_t until_ns; /* 0: wait; otherwise work until this time of CLOCK_MONOTONIC */
    _Atomic uint64_t counts[PROCESSES];
};

typedef void process_work(struct board *board, int number, void *user);

static void board_end(struct board *board)
{
    munmap(board, sizeof *board);
}

/* Have `n` processes work, for `seconds` after all are ready. The caller ends the board. */
static struct board *processes_run(int n, double seconds, process_work *work, void *user)
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

/* Say that this process is ready, and wait until all are. Return when to stop. */
static int64_t await_start(struct board *board)
{
    int64_t until_ns;
    atomic_fetch_add(&board->ready, 1);
    while ((until_ns = atomic_load(&board->until_ns)) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    return until_ns;
}

/* ---- What they admit ---- */

struct accuracy {
    int way;
    int64_t asked[PROCESSES]; /* permits, by each process */
    weir *together;           /* of machine mode, opened before the processes */
    weir_limit *limit;
};

static weir_limit *accuracy_open(int way, int number, weir **limiter)
{
    static const struct weir_policy policy = { .algorithm = WEIR_FIXED_WINDOW,
                                               .limit = PERMITS,
                                               .period_us = WEIR_DAY };
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir_limit *limit;
    options.max_keys = 1000;
    options.timeout_us = PATIENCE_US;
    if (way == TOGETHER)
        options.mode = WEIR_MACHINE;
    if (way == SHARES) {
        options.instances = PROCESSES;
        options.rank = number;
    }
    bench_require(weir_open(&options, limiter), "weir_open");
    bench_require(weir_limit_define(*limiter, "api", &policy, &limit), "weir_limit_define");
    return limit;
}

static void accuracy_work(struct board *board, int number, void *user)
{
    const struct accuracy *accuracy = user;
    struct weir_decision decision;
    weir *own = NULL;
    weir_limit *limit = accuracy->limit ? accuracy->limit : accuracy_open(accuracy->way, number, &own);
    uint64_t admitted = 0;
    await_start(board);
    for (int64_t i = 0; i < accuracy->asked[number]; i++) {
        bench_require(weir_try(limit, weir_key("192.0.2.7", 9), 1, &decision), "weir_try");
        admitted += decision.allowed;
    }
    atomic_store(&board->counts[number], admitted);
    weir_close(own);
}

/* Return what the processes admit, in percent of the limit. */
static double accuracy_measure(struct accuracy *accuracy)
{
    uint64_t admitted = 0;
    accuracy->limit = accuracy->way == TOGETHER ? accuracy_open(TOGETHER, 0, &accuracy->together) : NULL;
    struct board *board = processes_run(PROCESSES, 0, accuracy_work, accuracy);
    for (int i = 0; i < PROCESSES; i++)
        admitted += atomic_load(&board->counts[i]);
    board_end(board);
    if (accuracy->limit)
        weir_close(accuracy->together);
    return 100 * (double)admitted / PERMITS;
}

static void report_accuracy(struct bench *bench)
{
    static const struct {
        const char *figure;
        int64_t asked[PROCESSES];
    } rows[] = {
        { "each asks for the whole limit: admitted, % of it", { PERMITS, PERMITS, PERMITS, PERMITS } },
        { "one asks for four times the limit: admitted, % of it", { 4 * PERMITS } },
        { "demand 3:1:1:1, equal to the limit: admitted, % of it",
          { PERMITS / 2, PERMITS / 6, PERMITS / 6, PERMITS / 2 - 2 * (PERMITS / 6) } },
    };
    struct sample off = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        report_row(bench->report);
        report_text(bench->report, "figure", rows[i].figure);
        for (int way = 0; way < WAYS; way++) {
            struct accuracy accuracy = { .way = way };
            for (int process = 0; process < PROCESSES; process++)
                accuracy.asked[process] = rows[i].asked[process];
            const double percent = accuracy_measure(&accuracy);
            report_number(bench->report, ways[way], percent);
            if (way == TOGETHER)
                sample_add(&off, percent > 100 ? percent - 100 : 100 - percent);
        }
    }
    report_goal_apart(bench->report, "machine mode, four processes: off the limit; %, worst row", &off, AT_MOST, 0);
}

/* ---- What it costs ---- */

struct word { /* alone in a cache line */
    alignas(64) _Atomic uint64_t value;
};

#define WORDS 4096

struct speed {
    int way;
    struct subject *together; /* for SPEED_MACHINE */
    struct word *words;       /* for SPEED_ADDS; in shared memory */
    const struct stream *stream;
    uint64_t keys;
};

/* Decide, and add to the word of the key. */
static void adds_work(struct subject *subject, struct word *words, const struct bench_key *draws, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t tail;
        subject_work(subject, draws + i, 1);
        memcpy(&tail, draws[i].text + KEY_LEN - sizeof tail, sizeof tail);
        atomic_fetch_add(&words[tail * UINT64_C(0x9e3779b97f4a7c15) >> 52].value, 1);
    }
}

_Static_assert(WORDS == 1 << (64 - 52), "the bits that adds_work() takes");

static void subject_open_together(struct subject *subject, enum kind kind, uint64_t keys)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = WEIR_MACHINE;
    options.max_keys = (int64_t)keys;
    options.timeout_us = PATIENCE_US;
    subject_open_with(subject, &options, kind, ANSWER_ALLOW, keys);
    subject_fill(subject, ANSWER_ALLOW, keys);
}

static void speed_work(struct board *board, int number, void *user)
{
    const struct speed *speed = user;
    struct subject own, *subject = speed->way == SPEED_MACHINE ? speed->together : &own;
    if (subject == &own)
        subject_open_filled(subject, KIND_TOKEN, ANSWER_ALLOW, speed->keys);
    size_t at = (size_t)number * speed->stream->len / PROCESSES / STREAM_STEP * STREAM_STEP;
    uint64_t operations = 0;
    const int64_t until_ns = await_start(board);
    do {
        if (speed->way == SPEED_ADDS)
            adds_work(subject, speed->words, speed->stream->draws + at, STREAM_STEP);
        else
            subject_work(subject, speed->stream->draws + at, STREAM_STEP);
        at = (at + STREAM_STEP) % speed->stream->len;
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

static void report_one(struct bench *bench, struct subject *alone, struct subject *together,
                       const struct stream *stream, enum kind kind, uint64_t keys)
{
    char text[80];
    struct cell cells[2] = { { .work = subject_work, .subject = alone, .stream = stream, .threads = 1 },
                             { .work = subject_work, .subject = together, .stream = stream, .threads = 1 } };
    bench_progress("processes: one of them, %llu keys, %s", (unsigned long long)keys, kind_name(kind));
    measure_cells(cells, 2, bench->repeats, bench->seconds);
    const struct sample ratio = sample_ratio(&cells[1].ns, &cells[0].ns);
    report_row(bench->report);
    snprintf(text, sizeof text, "one process, %llu keys, %s: ns a decision", (unsigned long long)keys, kind_name(kind));
    report_text(bench->report, "figure", text);
    report_figure(bench->report, ways[ALONE], &cells[0].ns);
    report_figure(bench->report, ways[TOGETHER], &cells[1].ns);
    report_sample(bench->report, "machine/local", &ratio);
    snprintf(text, sizeof text, "machine mode relative to local mode, one process, %llu keys, %s",
             (unsigned long long)keys, kind_name(kind));
    report_goal_apart(bench->report, text, &ratio, AT_MOST, GOAL_RATIO);
}

/* The other algorithms, with few keys: what the modes do differs most then, next to the cache misses of many. */
static void report_kinds(struct bench *bench, const struct stream *stream, uint64_t keys)
{
    for (enum kind kind = KIND_TOKEN + 1; kind < KINDS; kind++) {
        struct subject alone, together;
        subject_open_filled(&alone, kind, ANSWER_ALLOW, keys);
        subject_open_together(&together, kind, keys);
        report_one(bench, &alone, &together, stream, kind, keys);
        subject_finish(&alone, keys);
        subject_finish(&together, keys);
    }
}

/* Measure one, two and four processes in turns, in all ways from `first` on. */
static void measure_several(struct bench *bench, struct speed *speed, int first, struct sample rates[3][SPEEDS])
{
    for (int repeat = 0; repeat < bench->repeats; repeat++)
        for (int i = 0; i < 3; i++)
            for (speed->way = first; speed->way < (first == SPEED_LOCAL ? SPEEDS : first + 1); speed->way++) {
                bench_progress("processes: %d of them, %llu keys, repetition %d", process_counts[i],
                               (unsigned long long)speed->keys, repeat + 1);
                sample_add(&rates[i][speed->way], speed_measure(speed, process_counts[i], bench->seconds));
            }
}

/* Report them. With many keys only machine mode: each process of local mode would have to fill a table. */
static void report_several(struct bench *bench, struct subject *together, const struct stream *stream, uint64_t keys)
{
    static const char *const gains[SPEEDS] = { "local, times one process", "machine, times one process",
                                               "local and an addition, times one process" };
    const bool is_small = keys <= WORDS;
    const int first = is_small ? SPEED_LOCAL : SPEED_MACHINE, end = is_small ? SPEEDS : SPEED_MACHINE + 1;
    struct sample rates[3][SPEEDS] = { 0 };
    struct speed speed = { .together = together, .stream = stream, .keys = keys };
    char text[80];
    speed.words = mmap(NULL, WORDS * sizeof(struct word), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (speed.words == MAP_FAILED)
        bench_fail("processes: no shared memory");
    measure_several(bench, &speed, first, rates);
    for (int i = 1; i < 3; i++) {
        report_row(bench->report);
        snprintf(text, sizeof text, "%d processes, %llu keys: decisions a second", process_counts[i],
                 (unsigned long long)keys);
        report_text(bench->report, "figure", text);
        if (is_small)
            report_figure(bench->report, ways[ALONE], &rates[i][SPEED_LOCAL]);
        report_figure(bench->report, ways[TOGETHER], &rates[i][SPEED_MACHINE]);
        for (int way = first; way < end; way++) {
            const struct sample gain = sample_ratio(&rates[i][way], &rates[0][way]);
            report_sample(bench->report, gains[way], &gain);
            if (way != SPEED_MACHINE || process_counts[i] != 2 || measure_processors() < 2)
                continue;
            snprintf(text, sizeof text, "machine mode, two processes, %llu keys: times one process",
                     (unsigned long long)keys);
            report_goal_apart(bench->report, text, &gain, AT_LEAST, GOAL_TWO);
        }
    }
    munmap(speed.words, WORDS * sizeof(struct word));
}

/* Report the memory for keys that all processes see, as weir counts it. */
static void report_bytes(struct bench *bench)
{
    struct sample bytes[2] = { 0 };
    for (int mode = 0; mode < 2; mode++) {
        struct weir_stats stats = { .size = sizeof stats };
        struct subject subject;
        if (mode)
            subject_open_together(&subject, KIND_TOKEN, BYTES_KEYS);
        else
            subject_open_filled(&subject, KIND_TOKEN, ANSWER_ALLOW, BYTES_KEYS);
        bench_require(weir_stats_read(subject.weir, &stats), "weir_stats_read");
        sample_add(&bytes[mode], (double)stats.bytes / BYTES_KEYS * (mode ? 1 : PROCESSES));
        subject_close(&subject);
    }
    report_row(bench->report);
    report_text(bench->report, "figure", "memory of all processes, 100,000 keys that each sees: bytes a key");
    report_figure(bench->report, ways[ALONE], &bytes[0]);
    report_figure(bench->report, ways[TOGETHER], &bytes[1]);
    report_goal_apart(bench->report, "machine mode: bytes a key", &bytes[1], AT_MOST, GOAL_BYTES);
}

void bench_processes(struct bench *bench)
{
    const uint64_t sizes[] = { 1000, 1000000 };
    const bool is_large = bench->thorough && bench->extent != EXTENT_QUICK;
    report_section(bench->report, "processes",
                   "one machine, four processes: each counts alone (local), enforces a quarter (local, shares), or all "
                   "count together (machine); speeds: token bucket, Zipf");
    bench_progress("processes: what four of them admit");
    report_accuracy(bench);
    for (int i = 0; i < (is_large ? 2 : 1); i++) {
        struct subject alone, together;
        struct stream stream;
        stream_make(&stream, sizes[i], SKEW_ZIPF);
        subject_open_filled(&alone, KIND_TOKEN, ANSWER_ALLOW, sizes[i]);
        subject_open_together(&together, KIND_TOKEN, sizes[i]);
        report_one(bench, &alone, &together, &stream, KIND_TOKEN, sizes[i]);
        report_several(bench, &together, &stream, sizes[i]);
        subject_finish(&alone, sizes[i]);
        subject_finish(&together, sizes[i]);
        if (bench->thorough && i == 0)
            report_kinds(bench, &stream, sizes[i]);
        stream_free(&stream);
    }
    report_bytes(bench);
    report_end_section(bench->report);
}
