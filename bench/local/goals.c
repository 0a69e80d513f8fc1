/* goals.c - the goals of local mode, one line each: the measured value, the goal, and by how much it is missed.
 *
 * A ratio's two values are measured in turns; the second one's time stands next to it. Goals in nanoseconds hold for
 * one machine, where the yardstick took 216 ns (zipf) and 407 ns (uniform) for 10^6 keys. On other machines the ratio
 * of the same work tells more. A worst case is judged by the worst of all repetitions, everything else by the median.
 * With other numbers of keys than the goal's, a line shows the value but does not judge it.
 *
 * The limiters are subject.h's: none of their keys becomes idle while it is measured.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "local/sections.h"

#define KEYS UINT64_C(1000000)
#define FEW_KEYS UINT64_C(1000)
#define GROWTH_KEYS UINT64_C(10000000)
#define GROWTH_RUNS 5
#define BATCH 32

struct line {
    const char *work, *unit;
    const struct sample *measured;
    enum bound bound;
    double goal;               /* 0: none */
    double aim;                /* a stricter target, shown only; 0: none */
    bool worst;                /* judge the largest value */
    bool other_keys;           /* not as many as the goal was set for */
    const struct cell *cell;   /* the measurement; NULL if it is not the time of decisions */
    const struct cell *beside; /* the measurement it is compared with, or NULL */
    const char *beside_name;
};

static void report_line(struct bench *bench, const struct line *line)
{
    struct report *report = bench->report;
    char what[96];
    report_row(report);
    report_text(report, "work", line->work);
    report_text(report, "unit", line->unit);
    report_sample(report, "measured", line->measured);
    if (line->goal > 0 && line->other_keys) {
        snprintf(what, sizeof what, "%s %.3g, for more keys", line->bound == AT_MOST ? "<=" : ">=", line->goal);
        report_text(report, "not judged", what);
    } else if (line->goal > 0) {
        struct sample worst = { 0 };
        sample_add(&worst, sample_max(line->measured));
        snprintf(what, sizeof what, "%s: %s", line->work, line->unit);
        report_goal(report, what, line->worst ? &worst : line->measured, line->bound, line->goal);
    }
    if (line->aim > 0)
        report_number(report, "aim", line->aim);
    if (line->cell) {
        report_sample(report, "ns", &line->cell->ns);
        report_number(report, "admitted %", 100.0 * (double)line->cell->admitted / (double)line->cell->operations);
    }
    if (line->beside) {
        report_text(report, "beside", line->beside_name);
        report_sample(report, "its ns", &line->beside->ns);
    }
}

static uint64_t many_keys(const struct bench *bench)
{
    return bench->extent == EXTENT_QUICK ? 100000 : KEYS;
}

/* "keyed, 1000000 keys zipf, 2 threads" */
#define WORK_MAX 64
static const char *work_text(char out[WORK_MAX], const char *what, uint64_t keys, enum skew skew, int threads)
{
    snprintf(out, WORK_MAX, "%s, %llu keys %s, %d thread%s", what, (unsigned long long)keys, skew_name(skew), threads,
             threads == 1 ? "" : "s");
    return out;
}

/* ---- Single decisions and batches, beside the yardstick ---- */

struct keyed {
    uint64_t keys;
    bool other_keys;
    struct subject subject;
    struct baseline *baseline;
    struct reach *reach;
    struct stream streams[2]; /* by enum skew */
};

static void keyed_open(struct keyed *keyed, uint64_t keys, bool other_keys)
{
    bench_progress("goals: filling %llu keys", (unsigned long long)keys);
    keyed->keys = keys;
    keyed->other_keys = other_keys;
    keyed->baseline = subject_baseline(ANSWER_ALLOW, keys);
    keyed->reach = reach_open(keys);
    subject_open_filled(&keyed->subject, KIND_TOKEN, ANSWER_ALLOW, keys);
    for (int skew = SKEW_ZIPF; skew <= SKEW_UNIFORM; skew++)
        stream_make(&keyed->streams[skew], keys, (enum skew)skew);
}

static void keyed_close(struct keyed *keyed)
{
    subject_finish(&keyed->subject, keyed->keys);
    baseline_close(keyed->baseline);
    reach_close(keyed->reach);
    for (int skew = SKEW_ZIPF; skew <= SKEW_UNIFORM; skew++)
        stream_free(&keyed->streams[skew]);
}

/* Bounds of the time and of its ratio to the yardstick's; 0: none. */
struct keyed_goal {
    double ns, aim_ns, ratio;
};

static void report_keyed(struct bench *bench, const struct keyed *keyed, enum skew skew, const struct cell *yardstick,
                         const struct cell *cell, struct keyed_goal goal)
{
    char work[WORK_MAX];
    const struct sample ratio = sample_ratio(&cell->ns, &yardstick->ns);
    struct line line = { .work = work_text(work, "keyed", keyed->keys, skew, cell->threads),
                         .unit = "ns",
                         .measured = &cell->ns,
                         .goal = goal.ns,
                         .aim = goal.aim_ns,
                         .other_keys = keyed->other_keys,
                         .cell = cell,
                         .beside = yardstick,
                         .beside_name = "mutex_mono, presized" };
    if (goal.ns > 0)
        report_line(bench, &line);
    line.unit = "times mutex_mono";
    line.measured = &ratio;
    line.goal = goal.ratio;
    line.aim = 0;
    if (goal.ratio > 0)
        report_line(bench, &line);
}

enum { YARDSTICK_1, WEIR_1, MEMORY, YARDSTICK_2, WEIR_2, KEYED_CELLS };

static struct cell keyed_cell(const struct keyed *keyed, enum skew skew, int which)
{
    static work_function *const works[] = { [YARDSTICK_1] = baseline_work,
                                            [WEIR_1] = subject_work,
                                            [MEMORY] = reach_work,
                                            [YARDSTICK_2] = baseline_work,
                                            [WEIR_2] = subject_work };
    void *subject = (void *)&keyed->subject;
    if (works[which] == baseline_work)
        subject = keyed->baseline;
    else if (works[which] != subject_work)
        subject = keyed->reach;
    return (struct cell){ .work = works[which],
                          .subject = subject,
                          .stream = &keyed->streams[skew],
                          .threads = which < YARDSTICK_2 ? 1 : 2 };
}

static void measure_keyed(struct bench *bench, const struct keyed *keyed, enum skew skew,
                          struct cell cells[KEYED_CELLS], int n)
{
    bench_progress("goals: %llu keys %s", (unsigned long long)keyed->keys, skew_name(skew));
    for (int i = 0; i < n; i++)
        cells[i] = keyed_cell(keyed, skew, i);
    measure_cells(cells, n, bench->repeats, bench->seconds);
}

/* Report what memory alone costs: no goal, but the least that a decision can take that waits for one cache miss. */
static void report_reach(struct bench *bench, const struct keyed *keyed, enum skew skew,
                         const struct cell cells[KEYED_CELLS])
{
    char work[WORK_MAX];
    const struct sample ratio = sample_ratio(&cells[MEMORY].ns, &cells[YARDSTICK_1].ns);
    report_line(bench, &(struct line){ .work = work_text(work, "memory alone, one cell", keyed->keys, skew, 1),
                                       .unit = "times mutex_mono",
                                       .measured = &ratio,
                                       .cell = &cells[MEMORY],
                                       .beside = &cells[YARDSTICK_1],
                                       .beside_name = "mutex_mono, presized" });
}

/* Report how many decisions two threads make together for each one of a single thread. */
static void report_scaling(struct bench *bench, const struct keyed *keyed, const struct cell cells[KEYED_CELLS])
{
    char work[WORK_MAX];
    struct sample total = sample_ratio(&cells[WEIR_1].ns, &cells[WEIR_2].ns);
    for (int i = 0; i < total.n; i++)
        total.values[i] *= 2;
    report_line(bench, &(struct line){ .work = work_text(work, "keyed", keyed->keys, SKEW_ZIPF, 2),
                                       .unit = "total to one thread's",
                                       .measured = &total,
                                       .bound = AT_LEAST,
                                       .goal = 1.7,
                                       .other_keys = keyed->other_keys,
                                       .cell = &cells[WEIR_2],
                                       .beside = &cells[WEIR_1],
                                       .beside_name = "weir, 1 thread" });
}

static void goals_measure_batches(struct bench *bench, const struct keyed *keyed)
{
    static const double goals[] = { [SKEW_ZIPF] = 30, [SKEW_UNIFORM] = 45 };
    struct batched batched = { .subject = &keyed->subject, .size = BATCH };
    struct cell cells[2];
    bench_progress("goals: batches of %d", BATCH);
    for (int skew = SKEW_ZIPF; skew <= SKEW_UNIFORM; skew++)
        cells[skew] = (struct cell){
            .work = batch_work, .subject = &batched, .stream = &keyed->streams[skew], .threads = 1
        };
    measure_cells(cells, 2, bench->repeats, bench->seconds);
    for (int skew = SKEW_ZIPF; skew <= SKEW_UNIFORM; skew++) {
        char work[WORK_MAX];
        report_line(bench, &(struct line){ .work = work_text(work, "batch of 32", keyed->keys, (enum skew)skew, 1),
                                           .unit = "ns",
                                           .measured = &cells[skew].ns,
                                           .goal = goals[skew],
                                           .other_keys = keyed->other_keys,
                                           .cell = &cells[skew] });
    }
}

static void measure_singles(struct bench *bench)
{
    struct keyed keyed, few;
    struct cell cells[KEYED_CELLS];
    keyed_open(&keyed, many_keys(bench), many_keys(bench) != KEYS);
    measure_keyed(bench, &keyed, SKEW_ZIPF, cells, KEYED_CELLS);
    report_keyed(bench, &keyed, SKEW_ZIPF, &cells[YARDSTICK_1], &cells[WEIR_1], (struct keyed_goal){ 100, 75, 0.45 });
    report_keyed(bench, &keyed, SKEW_ZIPF, &cells[YARDSTICK_2], &cells[WEIR_2], (struct keyed_goal){ .ratio = 0.35 });
    report_scaling(bench, &keyed, cells);
    report_reach(bench, &keyed, SKEW_ZIPF, cells);
    measure_keyed(bench, &keyed, SKEW_UNIFORM, cells, YARDSTICK_2);
    report_keyed(bench, &keyed, SKEW_UNIFORM, &cells[YARDSTICK_1], &cells[WEIR_1],
                 (struct keyed_goal){ 200, 165, 0.5 });
    report_reach(bench, &keyed, SKEW_UNIFORM, cells);
    keyed_open(&few, FEW_KEYS, false);
    measure_keyed(bench, &few, SKEW_ZIPF, cells, KEYED_CELLS);
    report_keyed(bench, &few, SKEW_ZIPF, &cells[YARDSTICK_1], &cells[WEIR_1], (struct keyed_goal){ .ns = 45 });
    report_keyed(bench, &few, SKEW_ZIPF, &cells[YARDSTICK_2], &cells[WEIR_2], (struct keyed_goal){ .ns = 90 });
    keyed_close(&few);
    goals_measure_batches(bench, &keyed);
    keyed_close(&keyed);
}

/* ---- One hot key by its handle ---- */

enum { EXACT_ALLOW, EXACT_DENY, AT_ALLOW, AT_DENY, HANDLE_CELLS };

static void measure_alone(struct bench *bench, struct resolved resolved[2], const struct stream *stream)
{
    static const char *const works[] = { "handle, one hot key, allow", "handle, one hot key, deny",
                                         "handle, one hot key, allow, caller's time",
                                         "handle, one hot key, deny, caller's time" };
    static const double goals[] = { 32, 25, 15, 8 };
    struct cell cells[HANDLE_CELLS];
    for (int i = 0; i < HANDLE_CELLS; i++)
        cells[i] = (struct cell){ .work = i < AT_ALLOW ? handles_work : handles_work_at,
                                  .subject = &resolved[i % 2],
                                  .stream = stream,
                                  .threads = 1 };
    measure_cells(cells, HANDLE_CELLS, bench->repeats, bench->seconds);
    for (int i = 0; i < HANDLE_CELLS; i++)
        report_line(
            bench, &(struct line){
                       .work = works[i], .unit = "ns", .measured = &cells[i].ns, .goal = goals[i], .cell = &cells[i] });
}

static void measure_contended(struct bench *bench, struct resolved *resolved, const struct stream *stream)
{
    static _Alignas(128) _Atomic uint64_t number;
    struct cell cells[] = {
        { .work = swap_work, .subject = &number, .threads = 2 },
        { .work = handles_work, .subject = resolved, .stream = stream, .threads = 2 },
        { .work = handles_work_at, .subject = resolved, .stream = stream, .threads = 2 },
    };
    measure_cells(cells, 3, bench->repeats, bench->seconds);
    for (int i = 1; i < 3; i++) {
        const struct sample ratio = sample_ratio(&cells[i].ns, &cells[0].ns);
        report_line(bench, &(struct line){ .work = i == 1 ? "handle, one hot key, allow, 2 threads"
                                                          : "handle, one hot key, allow, 2 threads, caller's time",
                                           .unit = "times compare-and-swap",
                                           .measured = &ratio,
                                           .goal = i == 1 ? 1.1 : 0,
                                           .cell = &cells[i],
                                           .beside = &cells[0],
                                           .beside_name = "compare-and-swap, one line" });
    }
}

static void measure_handles(struct bench *bench)
{
    struct subject subjects[2];
    struct resolved resolved[2];
    struct stream stream;
    bench_progress("goals: one hot key by its handle");
    stream_make(&stream, 1, SKEW_ZIPF);
    for (int answer = ANSWER_ALLOW; answer <= ANSWER_DENY; answer++) {
        subject_open_filled(&subjects[answer], KIND_TOKEN, (enum answer)answer, 1);
        handles_resolve(&resolved[answer], &subjects[answer], &stream);
    }
    measure_alone(bench, resolved, &stream);
    measure_contended(bench, &resolved[ANSWER_ALLOW], &stream);
    for (int answer = ANSWER_ALLOW; answer <= ANSWER_DENY; answer++) {
        handles_forget(&resolved[answer]);
        subject_finish(&subjects[answer], 1);
    }
    stream_free(&stream);
}

/* ---- Memory and growth: measured first, in children, and reported in their place ---- */

struct children {
    struct memory_cost cost;
    uint64_t grown_to;
    struct sample stalls_ms, fresh_ms;
};

static void measure_children(struct bench *bench, struct children *children)
{
    children->grown_to = bench->extent == EXTENT_QUICK ? 100000 : bench->extent == EXTENT_FULL ? GROWTH_KEYS : KEYS;
    children->grown_to = bench_largest_keys(bench, children->grown_to);
    memory_measure(bench, many_keys(bench), &children->cost);
    growth_measure(children->grown_to, GROWTH_RUNS, &children->stalls_ms, &children->fresh_ms);
}

static void report_children(struct bench *bench, const struct children *children)
{
    char work[WORK_MAX];
    struct line line = { .work = work, .other_keys = many_keys(bench) != KEYS, .goal = 128, .aim = 104 };
    if (children->cost.held != (int64_t)many_keys(bench))
        bench_say("memory was measured with only %lld keys held", (long long)children->cost.held);
    snprintf(work, sizeof work, "bytes per key, %llu keys of %d bytes", (unsigned long long)many_keys(bench), KEY_LEN);
    line.unit = "resident, with the limiter";
    line.measured = &children->cost.with_empty;
    report_line(bench, &line);
    line.unit = "as weir_stats reports";
    line.measured = &children->cost.own;
    report_line(bench, &line);

    snprintf(work, sizeof work, "worst decision, growing to %llu keys", (unsigned long long)children->grown_to);
    report_line(bench, &(struct line){ .work = work,
                                       .unit = "ms, worst of 5 runs",
                                       .measured = &children->stalls_ms,
                                       .goal = 0.5,
                                       .worst = true,
                                       .other_keys = children->grown_to < GROWTH_KEYS });
    report_line(bench, &(struct line){ .work = "fresh memory alone, as many pages of 4 KiB",
                                       .unit = "ms, median of 5 runs",
                                       .measured = &children->fresh_ms });
}

/* ---- Algorithms beside the token bucket; many limits beside one ---- */

static void report_times(struct bench *bench, const char *what, uint64_t keys, const struct cell *cell,
                         const struct cell *beside, const char *beside_name, double goal)
{
    char work[WORK_MAX], unit[32];
    const struct sample ratio = sample_ratio(&cell->ns, &beside->ns);
    snprintf(unit, sizeof unit, "times %s", beside_name);
    report_line(bench, &(struct line){ .work = work_text(work, what, keys, SKEW_ZIPF, 1),
                                       .unit = unit,
                                       .measured = &ratio,
                                       .goal = goal,
                                       .other_keys = keys != FEW_KEYS && keys != KEYS,
                                       .cell = cell,
                                       .beside = beside,
                                       .beside_name = beside_name });
}

static void measure_algorithms(struct bench *bench, uint64_t keys)
{
    struct subject subjects[KINDS];
    struct cell cells[KINDS];
    struct stream stream;
    bench_progress("goals: algorithms, %llu keys", (unsigned long long)keys);
    stream_make(&stream, keys, SKEW_ZIPF);
    for (int kind = KIND_TOKEN; kind < KINDS; kind++) {
        subject_open_filled(&subjects[kind], (enum kind)kind, ANSWER_ALLOW, keys);
        cells[kind] = (struct cell){
            .work = subject_work, .subject = &subjects[kind], .stream = &stream, .threads = 1
        };
    }
    measure_cells(cells, KINDS, bench->repeats, bench->seconds);
    for (int kind = KIND_TOKEN; kind < KINDS; kind++) {
        if (kind != KIND_TOKEN)
            report_times(bench, kind_name((enum kind)kind), keys, &cells[kind], &cells[KIND_TOKEN], "token", 1.3);
        subject_finish(&subjects[kind], keys);
    }
    stream_free(&stream);
}

static void measure_limits(struct bench *bench, uint64_t keys)
{
    static const uint64_t numbers[] = { 1, 100, 10000 };
    static const char *const names[] = { "one limit", "100 limits", "10000 limits" };
    enum { NUMBERS = sizeof numbers / sizeof numbers[0] };
    struct limited limited[NUMBERS];
    struct cell cells[NUMBERS];
    struct stream stream;
    bench_progress("goals: limits, %llu keys", (unsigned long long)keys);
    stream_make(&stream, keys, SKEW_ZIPF);
    for (int i = 0; i < NUMBERS; i++) {
        limits_open(&limited[i], numbers[i], keys, &stream);
        cells[i] = (struct cell){ .work = limits_work, .subject = &limited[i], .stream = &stream, .threads = 1 };
    }
    measure_cells(cells, NUMBERS, bench->repeats, bench->seconds);
    for (int i = 0; i < NUMBERS; i++) {
        if (i > 0)
            report_times(bench, names[i], keys, &cells[i], &cells[0], names[0], 1.1);
        subject_check(&limited[i].subject, keys);
        limits_close(&limited[i]);
    }
    stream_free(&stream);
}

void bench_goals(struct bench *bench)
{
    struct children children;
    measure_children(bench, &children);
    report_section(bench->report, "goals",
                   "the goals of local mode; token bucket, all admitted, by the limiter's clock, unless the line says "
                   "otherwise; median (min..max), of which the median counts, or the worst of all where the unit says "
                   "so; goals in ns are those of one machine, see bench/local/goals.c");
    measure_singles(bench);
    measure_handles(bench);
    report_children(bench, &children);
    measure_algorithms(bench, FEW_KEYS);
    measure_algorithms(bench, many_keys(bench));
    measure_limits(bench, FEW_KEYS);
    measure_limits(bench, many_keys(bench));
    report_end_section(bench->report);
}
