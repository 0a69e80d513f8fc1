/* processes.c - one machine, four processes: local mode, in which each counts alone, next to machine mode, in which
 * they count together in one piece of memory.
 *
 * The accuracy of local mode is shown with each process enforcing the whole limit, as without further options, and with
 * each enforcing its quarter (instances, rank). The processes are children of this one, as the workers of a prefork
 * server are. Speeds of one process are here, those of several in several.c.
 */
#include <stdio.h>

#include "local/several.h"

enum { ALONE, SHARES, TOGETHER, WAYS };

#define PERMITS 1000
#define BYTES_KEYS 100000

static const char *const ways[WAYS] = { "local", "local, shares", "machine" };

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
    report_sample(bench->report, ways[ALONE], &cells[0].ns);
    report_sample(bench->report, ways[TOGETHER], &cells[1].ns);
    report_sample(bench->report, "machine/local", &ratio);
}

/* The other algorithms, with few keys: what the modes do differs most then, next to the cache misses of many. */
static void report_kinds(struct bench *bench, const struct stream *stream, uint64_t keys)
{
    for (enum kind kind = KIND_TOKEN + 1; kind < KINDS; kind++) {
        struct subject alone, together;
        subject_open_alone(&alone, kind, keys);
        subject_open_together(&together, kind, keys);
        report_one(bench, &alone, &together, stream, kind, keys);
        subject_finish(&alone, keys);
        subject_finish(&together, keys);
    }
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
            subject_open_alone(&subject, KIND_TOKEN, BYTES_KEYS);
        bench_require(weir_stats_read(subject.weir, &stats), "weir_stats_read");
        sample_add(&bytes[mode], (double)stats.bytes / BYTES_KEYS * (mode ? 1 : PROCESSES));
        subject_close(&subject);
    }
    report_row(bench->report);
    report_text(bench->report, "figure", "memory of all processes, 100,000 keys that each sees: bytes a key");
    report_sample(bench->report, ways[ALONE], &bytes[0]);
    report_sample(bench->report, ways[TOGETHER], &bytes[1]);
}

void bench_processes(struct bench *bench)
{
    const uint64_t sizes[] = { 1000, 1000000 };
    const bool is_large = bench->is_alone && !bench->is_quick;
    report_section(bench->report, "processes",
                   "one machine, four processes: each counts alone (local), enforces a quarter (local, shares), or all "
                   "count together (machine); speeds: token bucket, Zipf");
    bench_progress("processes: what four of them admit");
    report_accuracy(bench);
    for (int i = 0; i < (is_large ? 2 : 1); i++) {
        struct subject alone, together;
        struct stream stream;
        stream_make(&stream, sizes[i], SKEW_ZIPF);
        subject_open_alone(&alone, KIND_TOKEN, sizes[i]);
        subject_open_together(&together, KIND_TOKEN, sizes[i]);
        report_one(bench, &alone, &together, &stream, KIND_TOKEN, sizes[i]);
        several_report(bench, &together, &stream, sizes[i]);
        subject_finish(&alone, sizes[i]);
        subject_finish(&together, sizes[i]);
        if (bench->is_alone && i == 0)
            report_kinds(bench, &stream, sizes[i]);
        stream_free(&stream);
    }
    several_report_apart(bench, sizes[0]);
    report_bytes(bench);
}
