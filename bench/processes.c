/* processes.c - one machine, four processes: local mode, in which each counts alone, next to machine mode, in which
 * they count together in one piece of memory.
 *
 * The accuracy of local mode is shown with each process enforcing the whole limit, as without further options, and with
 * each enforcing its quarter (instances, rank). The processes are children of this one, as the workers of a prefork
 * server are.
 *
 * Two processes never reach twice the speed of one if they write to the same cache lines. How far they get depends on
 * how long a line takes from one processor to the other, which on a virtual machine changes with the host's placement.
 * Local mode, which shares nothing, shows the bound.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "measure/timer.h"
#include "redis/remote.h"

enum { ALONE, SHARES, TOGETHER, WAYS };

#define PROCESSES 4
#define PERMITS 1000
#define KEYS 1000
#define MANY_KEYS 1000000
#define BYTES_KEYS 100000

static const char *const ways[WAYS] = { "local", "local, shares", "machine" };

/* ---- Processes that do the same ---- */

struct board { /* in shared memory */
    atomic_int ready;
    _Atomic int64_t until_ns; /* 0: wait; otherwise work until this time of CLOCK_MONOTONIC */
    _Atomic uint64_t counts[PROCESSES];
};

typedef void process_work(struct board *board, int number, void *user);

/* Have `n` processes work for `seconds` after all are ready; return the sum of their counts. */
static uint64_t processes_run(int n, double seconds, process_work *work, void *user)
{
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[PROCESSES];
    uint64_t sum = 0;
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
    for (int i = 0, status = 0; i < n; i++) {
        if (waitpid(children[i], &status, 0) != children[i] || status != 0)
            bench_fail("processes: one of them failed");
        sum += atomic_load(&board->counts[i]);
    }
    munmap(board, sizeof *board);
    return sum;
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
    struct weir_options options = remote_options(way == TOGETHER ? WEIR_MACHINE : WEIR_LOCAL);
    weir_limit *limit;
    options.max_keys = 1000;
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
    accuracy->limit = accuracy->way == TOGETHER ? accuracy_open(TOGETHER, 0, &accuracy->together) : NULL;
    const uint64_t admitted = processes_run(PROCESSES, 0, accuracy_work, accuracy);
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
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        report_row(bench->report);
        report_text(bench->report, "figure", rows[i].figure);
        for (int way = 0; way < WAYS; way++) {
            struct accuracy accuracy = { .way = way };
            for (int process = 0; process < PROCESSES; process++)
                accuracy.asked[process] = rows[i].asked[process];
            report_number(bench->report, ways[way], accuracy_measure(&accuracy));
        }
    }
}

/* ---- What it costs ---- */

static void open_filled(struct remote *remote, enum weir_mode mode, enum kind kind, uint64_t keys)
{
    struct weir_options options = remote_options(mode);
    options.max_keys = (int64_t)(mode == WEIR_MACHINE ? keys : keys + keys / 4 + 1000);
    options.max_bytes = mode == WEIR_MACHINE ? 0 : 1024 * options.max_keys;
    if (!remote_open(remote, NULL, &options, kind_name(kind), &calls_policies[kind]))
        bench_fail("processes: %s", remote_complaint());
    remote_fill(remote, keys, CALLS_FILL);
}

static void report_one(struct bench *bench, struct remote *alone, struct remote *together, const struct stream *stream,
                       enum kind kind, uint64_t keys)
{
    char text[80];
    struct load loads[2];
    for (int i = 0; i < 2; i++)
        loads[i] = (struct load){ .call = remote_call,
                                  .subject = i == 0 ? alone : together,
                                  .threads = 1,
                                  .step = STREAM_STEP,
                                  .stream = stream };
    bench_progress("processes: one of them, %llu keys, %s", (unsigned long long)keys, kind_name(kind));
    load_measure(loads, 2, bench->repeats, bench->seconds, NULL);
    const struct sample ratio = sample_ratio(&loads[1].ns, &loads[0].ns);
    report_row(bench->report);
    snprintf(text, sizeof text, "one process, %llu keys, %s: ns a decision", (unsigned long long)keys, kind_name(kind));
    report_text(bench->report, "figure", text);
    report_sample(bench->report, ways[ALONE], &loads[0].ns);
    report_sample(bench->report, ways[TOGETHER], &loads[1].ns);
    report_sample(bench->report, "machine/local", &ratio);
}

struct speed {
    struct remote *together; /* NULL: each opens its own limiter in local mode */
    const struct stream *stream;
};

static void speed_work(struct board *board, int number, void *user)
{
    const struct speed *speed = user;
    struct remote own, *remote = speed->together ? speed->together : &own;
    if (remote == &own)
        open_filled(&own, WEIR_LOCAL, KIND_TOKEN, KEYS);
    size_t at = (size_t)number * speed->stream->len / PROCESSES / STREAM_STEP * STREAM_STEP;
    uint64_t decisions = 0;
    const int64_t until_ns = await_start(board);
    do {
        remote_call(remote, 0, speed->stream->draws + at, STREAM_STEP);
        at = (at + STREAM_STEP) % speed->stream->len;
        decisions += STREAM_STEP;
    } while (clock_ns(CLOCK_MONOTONIC) < until_ns);
    atomic_store(&board->counts[number], decisions);
}

/* Report the speed of two and of four processes that draw from the same keys, and how many times one's that is. */
static void report_several(struct bench *bench, struct remote *together, const struct stream *stream)
{
    static const int counts[] = { 1, 2, PROCESSES };
    struct sample rates[3][2] = { 0 };
    char text[80];
    for (int repeat = 0; repeat < bench->repeats; repeat++)
        for (int i = 0; i < 3; i++)
            for (int way = 0; way < 2; way++) {
                struct speed speed = { .together = way ? together : NULL, .stream = stream };
                bench_progress("processes: %d of them, repetition %d", counts[i], repeat + 1);
                sample_add(&rates[i][way],
                           (double)processes_run(counts[i], bench->seconds, speed_work, &speed) / bench->seconds);
            }
    for (int i = 1; i < 3; i++) {
        const struct sample gains[2] = { sample_ratio(&rates[i][0], &rates[0][0]),
                                         sample_ratio(&rates[i][1], &rates[0][1]) };
        report_row(bench->report);
        snprintf(text, sizeof text, "%d processes, %d keys: decisions a second", counts[i], KEYS);
        report_text(bench->report, "figure", text);
        report_sample(bench->report, ways[ALONE], &rates[i][0]);
        report_sample(bench->report, ways[TOGETHER], &rates[i][1]);
        report_sample(bench->report, "local, times one process", &gains[0]);
        report_sample(bench->report, "machine, times one process", &gains[1]);
    }
}

/* Report the memory for keys that all processes see, as weir counts it. */
static void report_bytes(struct bench *bench)
{
    report_row(bench->report);
    report_text(bench->report, "figure", "memory of all processes, 100,000 keys that each sees: bytes a key");
    for (int way = ALONE; way <= TOGETHER; way += TOGETHER) {
        struct remote remote;
        open_filled(&remote, way == TOGETHER ? WEIR_MACHINE : WEIR_LOCAL, KIND_TOKEN, BYTES_KEYS);
        report_number(bench->report, ways[way],
                      (double)remote_stats(&remote).bytes / BYTES_KEYS * (way == TOGETHER ? 1 : PROCESSES));
        remote_close(&remote);
    }
}

void bench_processes(struct bench *bench)
{
    report_section(bench->report, "processes",
                   "one machine, four processes: each counts alone (local), enforces a quarter (local, shares), or all "
                   "count together (machine); speeds: token bucket, Zipf");
    bench_progress("processes: what four of them admit");
    report_accuracy(bench);
    for (enum kind kind = KIND_TOKEN; kind < KINDS; kind++)
        for (int many = 0; many < (kind == KIND_TOKEN && !bench->is_quick ? 2 : 1); many++) {
            const uint64_t keys = many ? MANY_KEYS : KEYS;
            struct remote alone, together;
            struct stream stream;
            stream_make(&stream, keys);
            open_filled(&alone, WEIR_LOCAL, kind, keys);
            open_filled(&together, WEIR_MACHINE, kind, keys);
            report_one(bench, &alone, &together, &stream, kind, keys);
            if (kind == KIND_TOKEN && !many)
                report_several(bench, &together, &stream);
            remote_close(&alone);
            remote_close(&together);
            stream_free(&stream);
        }
    report_bytes(bench);
}
