/* full.c - what a new key costs that a full table of live keys turns away, next to a decision for a known key.
 *
 * The attacker of the last row knows how the table looks for room. It uses each of its keys a moment before that
 * becomes idle, and requests a new key after each use. Times are the benchmark's, so that keys return at the same pace
 * on any machine.
 */
#include <stdio.h>

#include "bench.h"

#define GOAL_RATIO 3.0
#define FIRST_NEW (UINT64_C(1) << 40)
#define USE 500 /* of 1000 permits an hour: back after LAP_US */
#define LAP_US (INT64_C(1800) * WEIR_SECOND)
#define MARGIN_US (INT64_C(100) * 1000)

struct full {
    struct subject subject;
    uint64_t keys, turn; /* the attacker's turn, of two for each key and lap */
    int64_t now_us;
};

static bool full_try(struct full *full, const struct bench_key *key, int64_t cost)
{
    struct weir_decision decision;
    bench_require(weir_try_at(full->subject.limit, weir_key(key, KEY_LEN), cost, full->now_us, &decision),
                  "weir_try_at");
    return decision.allowed;
}

static void full_attack(struct full *full, uint64_t turn)
{
    struct bench_key key;
    full->now_us += turn % 2 == 0 ? (LAP_US - MARGIN_US) / (int64_t)full->keys : 0;
    key_write(turn % 2 == 0 ? turn / 2 % full->keys : FIRST_NEW + turn, &key);
    full_try(full, &key, USE);
}

static uint64_t full_known_work(void *full, const struct bench_key *draws, size_t n)
{
    uint64_t admitted = 0;
    for (size_t i = 0; i < n; i++)
        admitted += full_try(full, &draws[i], 1);
    return admitted;
}

static uint64_t full_new_work(void *subject, const struct bench_key *draws, size_t n)
{
    struct full *full = subject;
    struct bench_key key;
    uint64_t admitted = 0;
    (void)draws;
    for (size_t i = 0; i < n; i++) {
        key_write(FIRST_NEW + full->turn++, &key);
        admitted += full_try(full, &key, 1);
    }
    return admitted;
}

static uint64_t full_attack_work(void *subject, const struct bench_key *draws, size_t n)
{
    struct full *full = subject;
    (void)draws;
    for (size_t i = 0; i < n; i++)
        full_attack(full, full->turn++);
    return n;
}

static void full_open(struct full *full, uint64_t keys)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    const struct weir_policy policy = { .algorithm = WEIR_TOKEN_BUCKET, .limit = 2 * USE, .period_us = 2 * LAP_US };
    *full = (struct full){ .keys = keys, .now_us = INT64_C(1700000000) * WEIR_SECOND };
    options.max_keys = (int64_t)keys;
    bench_require(weir_open(&options, &full->subject.weir), "weir_open");
    bench_require(weir_limit_define(full->subject.weir, "limit", &policy, &full->subject.limit), "weir_limit_define");
    for (; full->turn < 2 * keys; full->turn += 2)
        full_attack(full, full->turn);
}

static void full_measure(struct bench *bench, uint64_t keys)
{
    static const char *const names[] = { "a known key", "a new key, turned away", "under attack, each request" };
    struct full quiet, attacked;
    struct stream stream;
    bench_progress("full: %llu keys", (unsigned long long)keys);
    full_open(&quiet, keys);
    full_open(&attacked, keys);
    stream_make(&stream, keys, SKEW_UNIFORM);
    struct cell cells[3] = {
        { .work = full_known_work, .subject = &quiet, .stream = &stream, .threads = 1 },
        { .work = full_new_work, .subject = &quiet, .stream = &stream, .threads = 1 },
        { .work = full_attack_work, .subject = &attacked, .stream = &stream, .threads = 1 },
    };
    measure_cells(cells, 3, bench->repeats, bench->seconds);
    for (int i = 0; i < 3; i++) {
        const struct sample ratio = sample_ratio(&cells[i].ns, &cells[0].ns);
        char what[80];
        report_row(bench->report);
        report_text(bench->report, "request", names[i]);
        report_count(bench->report, "keys", keys);
        report_sample(bench->report, "ns", &cells[i].ns);
        report_sample(bench->report, "relative", &ratio);
        snprintf(what, sizeof what, "full table, %llu keys: %s, relative to a known one", (unsigned long long)keys,
                 names[i]);
        if (i > 0)
            report_goal(bench->report, what, &ratio, AT_MOST, GOAL_RATIO);
    }
    stream_free(&stream);
    subject_close(&quiet.subject);
    subject_close(&attacked.subject);
}

void bench_full(struct bench *bench)
{
    const uint64_t sizes[] = { 1000, bench_largest_keys(bench, bench->extent == EXTENT_QUICK ? 100000 : 1000000) };
    report_section(bench->report, "full",
                   "token bucket, a table with live keys only; ns per request, median (min..max)");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        full_measure(bench, sizes[i]);
    report_end_section(bench->report);
}
