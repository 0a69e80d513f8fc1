/* batch.c - what a decision costs in weir_try_batch(), next to single calls on the same limiter.
 *
 * The time includes writing the requests of each batch, as a caller must. Draws are taken as they come: a batch may
 * hold a hot key twice.
 */
#include <stdio.h>
#include <stdlib.h>

#include "local/sections.h"

#define GOAL_BATCH 32
#define GOAL_SPEEDUP 3.0

static const int SIZES[] = { 8, 16, 32, 64 };
#define SIZES_LEN 4

uint64_t batch_work(void *subject, const struct bench_key *draws, size_t n)
{
    const struct batched *batched = subject;
    struct weir_request requests[BATCH_MAX];
    struct weir_decision decisions[BATCH_MAX];
    uint64_t admitted = 0;
    for (size_t start = 0; start < n; start += batched->size) {
        for (size_t i = 0; i < batched->size; i++)
            requests[i] = (struct weir_request){ .limit = batched->subject->limit,
                                                 .key = weir_key(&draws[start + i], KEY_LEN),
                                                 .cost = 1 };
        int status = weir_try_batch(batched->subject->weir, requests, batched->size, decisions);
        if (status != WEIR_OK)
            bench_fail("weir_try_batch: %s", weir_strerror(status));
        for (size_t i = 0; i < batched->size; i++)
            admitted += decisions[i].allowed;
    }
    return admitted;
}

static void report_batch(struct bench *bench, const char *call, uint64_t keys, enum skew skew, const struct cell *cell)
{
    report_row(bench->report);
    report_text(bench->report, "call", call);
    report_count(bench->report, "keys", keys);
    report_text(bench->report, "skew", skew_name(skew));
    report_number(bench->report, "admitted %", 100.0 * (double)cell->admitted / (double)cell->operations);
    report_sample(bench->report, "ns", &cell->ns);
}

static void measure_batches(struct bench *bench, struct subject *subject, uint64_t keys, enum skew skew)
{
    struct stream stream;
    struct batched batched[SIZES_LEN];
    struct cell cells[1 + SIZES_LEN] = { { .work = subject_work, .subject = subject } };
    bench_progress("batch: %llu keys %s", (unsigned long long)keys, skew_name(skew));
    stream_make(&stream, keys, skew);
    for (int i = 0; i < SIZES_LEN; i++) {
        batched[i] = (struct batched){ .subject = subject, .size = (size_t)SIZES[i] };
        cells[1 + i].work = batch_work;
        cells[1 + i].subject = &batched[i];
    }
    for (int i = 0; i < 1 + SIZES_LEN; i++) {
        cells[i].stream = &stream;
        cells[i].threads = 1;
    }
    measure_cells(cells, 1 + SIZES_LEN, bench->repeats, bench->seconds);
    report_batch(bench, "weir_try", keys, skew, &cells[0]);
    for (int i = 0; i < SIZES_LEN; i++) {
        char text[80];
        struct sample speedup = sample_ratio(&cells[0].ns, &cells[1 + i].ns);
        snprintf(text, sizeof text, "weir_try_batch of %d", SIZES[i]);
        report_batch(bench, text, keys, skew, &cells[1 + i]);
        report_sample(bench->report, "times faster", &speedup);
        snprintf(text, sizeof text, "batch of %d, speed relative to single calls, %llu keys %s", SIZES[i],
                 (unsigned long long)keys, skew_name(skew));
        if (SIZES[i] == GOAL_BATCH && keys == 1000000)
            report_goal(bench->report, text, &speedup, AT_LEAST, GOAL_SPEEDUP);
    }
    stream_free(&stream);
}

void bench_batch(struct bench *bench)
{
    uint64_t keys = bench_largest_keys(bench, bench->extent == EXTENT_QUICK ? 100000 : 1000000);
    struct subject subject;
    report_section(bench->report, "batch",
                   "token bucket, all allowed, 1 thread; ns per decision, median (min..max); the "
                   "time to write the requests is included");
    subject_open_filled(&subject, KIND_TOKEN, ANSWER_ALLOW, keys);
    measure_batches(bench, &subject, keys, SKEW_ZIPF);
    measure_batches(bench, &subject, keys, SKEW_UNIFORM);
    subject_finish(&subject, keys);
    report_end_section(bench->report);
}
