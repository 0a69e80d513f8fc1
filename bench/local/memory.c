/* memory.c - what a key costs in resident memory, and what weir says that it costs.
 *
 * Each case runs in a child process, forked before the benchmark has used its heap. The figure is the growth of the
 * process between an empty and a full limiter, divided by the keys; it includes the allocator's and the tables'
 * overhead. The limiter before its first key is reported separately.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "local/sections.h"

#define GOAL_BYTES 128.0

struct memory_case {
    uint64_t keys;
    int64_t open_bytes, resident_bytes, own_bytes, held;
};

/* Return this process's resident bytes: exactly from smaps_rollup, or nearly so from statm. */
static int64_t resident_bytes(void)
{
    char line[256];
    long long kib = -1, pages = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && kib < 0 && fgets(line, sizeof line, file))
        sscanf(line, "Rss: %lld kB", &kib);
    if (file)
        fclose(file);
    if (kib >= 0)
        return kib * 1024;
    file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %lld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void run_case(void *shared)
{
    struct memory_case *result = shared;
    struct weir_stats stats = { .size = sizeof stats };
    struct subject subject;
    int64_t before = resident_bytes(); /* the first reading also allocates stdio's buffers */
    before = resident_bytes();
    subject_open(&subject, KIND_TOKEN, ANSWER_ALLOW, result->keys);
    int64_t open = resident_bytes();
    subject_fill(&subject, ANSWER_ALLOW, result->keys);
    result->open_bytes = open - before;
    result->resident_bytes = resident_bytes() - open;
    if (weir_stats_read(subject.weir, &stats) == WEIR_OK) {
        result->own_bytes = stats.bytes;
        result->held = stats.keys;
    }
    subject_finish(&subject, result->keys);
}

void memory_measure(struct bench *bench, uint64_t keys, struct memory_cost *out)
{
    *out = (struct memory_cost){ 0 };
    for (int repeat = 0; repeat < bench->repeats; repeat++) {
        bench_progress("memory: %llu keys, repetition %d", (unsigned long long)keys, repeat + 1);
        struct memory_case result = { .keys = keys };
        bench_in_child(run_case, &result, sizeof result);
        sample_add(&out->resident, (double)result.resident_bytes / (double)keys);
        sample_add(&out->with_empty, (double)(result.open_bytes + result.resident_bytes) / (double)keys);
        sample_add(&out->own, (double)result.own_bytes / (double)keys);
        out->held = result.held;
        out->open_bytes = (double)result.open_bytes;
    }
}

static void measure_memory(struct bench *bench, uint64_t keys)
{
    struct memory_cost cost;
    char what[80];
    memory_measure(bench, keys, &cost);
    report_row(bench->report);
    report_count(bench->report, "keys", keys);
    report_count(bench->report, "keys held", (uint64_t)cost.held);
    report_sample(bench->report, "resident bytes/key", &cost.resident);
    report_sample(bench->report, "with the empty limiter", &cost.with_empty);
    report_number(bench->report, "weir_stats bytes/key", sample_median(&cost.own));
    report_number(bench->report, "empty limiter KiB", cost.open_bytes / 1024);
    snprintf(what, sizeof what, "resident bytes a key, limiter included, %llu keys of 16 bytes",
             (unsigned long long)keys);
    if (keys == 1000000)
        report_goal(bench->report, what, &cost.with_empty, AT_MOST, GOAL_BYTES);
}

void bench_memory(struct bench *bench)
{
    static const uint64_t quick[] = { 1000, 100000 };
    static const uint64_t full[] = { 1000, 1000000, 10000000 };
    const uint64_t *keys = bench->keys_given ? bench->keys : bench->extent == EXTENT_QUICK ? quick : full;
    int keys_len = bench->keys_given ? bench->keys_len : bench->extent == EXTENT_FULL ? 3 : 2;
    report_section(bench->report, "memory",
                   "token bucket, keys of 16 bytes, all live; resident memory from the kernel, median (min..max)");
    for (int i = 0; i < keys_len; i++)
        measure_memory(bench, keys[i]);
    report_end_section(bench->report);
}
