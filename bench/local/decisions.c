/* decisions.c - what weir_try() costs, next to the yardstick measured in the same repetitions.
 *
 * For each number of keys, the yardstick and weir are open at the same time. Each is set up to allow and, with --full
 * or in this section alone, also to deny. Every repetition measures all of them one after the other, so that a slow
 * moment of the machine affects them alike. Ratios are taken within a repetition.
 */
#include <stdio.h>
#include <string.h>

#include "bench.h"

#define GOAL_RATIO 1.15 /* weir to the yardstick */

enum { CELL_BASELINE_ALLOW, CELL_WEIR_ALLOW, CELL_BASELINE_DENY, CELL_WEIR_DENY, CELLS };

struct group { /* the limiters of one algorithm and number of keys */
    enum kind kind;
    uint64_t keys;
    int answers; /* 1: only ANSWER_ALLOW; denials.c measures denials */
    struct subject subjects[2];
    struct baseline *baselines[2];
};

static void group_open(struct group *group, enum kind kind, uint64_t keys, int answers)
{
    group->kind = kind;
    group->keys = keys;
    group->answers = answers;
    bench_progress("decisions: %s, filling %llu keys", kind_name(kind), (unsigned long long)keys);
    for (int answer = ANSWER_ALLOW; answer < group->answers; answer++) {
        group->baselines[answer] = subject_baseline((enum answer)answer, keys);
        subject_open_filled(&group->subjects[answer], kind, (enum answer)answer, keys);
    }
}

static void group_close(struct group *group)
{
    for (int answer = ANSWER_ALLOW; answer < group->answers; answer++) {
        subject_finish(&group->subjects[answer], group->keys);
        baseline_close(group->baselines[answer]);
    }
}

static void report_decisions(struct bench *bench, const struct group *group, const char *skew, const struct cell *cell,
                             const char *limiter, const char *kind, enum answer answer)
{
    report_row(bench->report);
    report_text(bench->report, "limiter", limiter);
    report_text(bench->report, "algorithm", kind);
    report_count(bench->report, "keys", group->keys);
    report_text(bench->report, "skew", skew);
    report_count(bench->report, "threads", (uint64_t)cell->threads);
    report_text(bench->report, "answer", answer_name(answer));
    report_number(bench->report, "admitted %", 100.0 * (double)cell->admitted / (double)cell->operations);
    report_sample(bench->report, "ns", &cell->ns);
}

/* True for the rows that weir makes a promise about. */
static bool has_goal(const struct group *group, enum skew skew, int threads, enum answer answer)
{
    return group->kind == KIND_TOKEN && threads == 1 && answer == ANSWER_ALLOW &&
           (group->keys == 1000000 || (group->keys == 1000 && skew == SKEW_ZIPF));
}

static void measure_group(struct bench *bench, struct group *group, enum skew skew, const struct stream *stream,
                          int threads)
{
    const char *skew_text = group->keys == 1 ? "-" : skew_name(skew);
    struct cell cells[CELLS] = {
        [CELL_BASELINE_ALLOW] = { .work = baseline_work, .subject = group->baselines[ANSWER_ALLOW] },
        [CELL_WEIR_ALLOW] = { .work = subject_work, .subject = &group->subjects[ANSWER_ALLOW] },
        [CELL_BASELINE_DENY] = { .work = baseline_work, .subject = group->baselines[ANSWER_DENY] },
        [CELL_WEIR_DENY] = { .work = subject_work, .subject = &group->subjects[ANSWER_DENY] },
    };
    bench_progress("decisions: %s, %llu keys %s, %d threads", kind_name(group->kind), (unsigned long long)group->keys,
                   skew_text, threads);
    const int n = group->answers * CELLS / 2;
    for (int i = 0; i < n; i++) {
        cells[i].stream = stream;
        cells[i].threads = threads;
    }
    measure_cells(cells, n, bench->repeats, bench->seconds);
    for (int i = 0; i < n; i += 2) {
        enum answer answer = i == CELL_BASELINE_ALLOW ? ANSWER_ALLOW : ANSWER_DENY;
        struct sample ratio = sample_ratio(&cells[i + 1].ns, &cells[i].ns);
        report_decisions(bench, group, skew_text, &cells[i], "mutex_mono, presized", "token", answer);
        report_decisions(bench, group, skew_text, &cells[i + 1], "weir_try", kind_name(group->kind), answer);
        report_sample(bench->report, "ratio", &ratio);
        if (has_goal(group, skew, threads, answer)) {
            char what[80];
            snprintf(what, sizeof what, "weir_try relative to mutex_mono presized, %llu keys %s, 1 thread",
                     (unsigned long long)group->keys, skew_text);
            report_goal(bench->report, what, &ratio, AT_MOST, GOAL_RATIO);
        }
    }
}

/* Measure every skew and number of threads, or only the first of each. */
static void measure_keys(struct bench *bench, enum kind kind, uint64_t keys, bool all)
{
    struct group group;
    group_open(&group, kind, keys, bench->thorough ? 2 : 1);
    int skews = all && keys > 1 ? 2 : 1;
    for (int skew = 0; skew < skews; skew++) {
        struct stream stream;
        stream_make(&stream, keys, (enum skew)skew);
        for (int i = 0; i < (all ? bench->threads_len : 1); i++)
            measure_group(bench, &group, (enum skew)skew, &stream, bench->threads[i]);
        stream_free(&stream);
    }
    group_close(&group);
}

void bench_decisions(struct bench *bench)
{
    report_section(bench->report, "decisions",
                   "ns per decision: the slowest thread's wall time over its decisions, median (min..max); keys of 16 "
                   "hex digits; ratio: to the yardstick's row above, within a repetition");
    for (int kind = KIND_TOKEN; kind < KINDS; kind++) {
        bool all = kind == KIND_TOKEN || bench->extent == EXTENT_FULL;
        for (int i = all ? 0 : bench->keys_len - 1; bench->kinds[kind] && i < bench->keys_len; i++)
            measure_keys(bench, (enum kind)kind, bench->keys[i], all);
    }
    report_end_section(bench->report);
}
