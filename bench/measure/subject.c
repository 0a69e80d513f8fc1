/* subject.c - a weir limiter set up for one kind of measurement.
 *
 * No key becomes idle while it is measured: a limiter may drop an idle key, and the benchmark would then measure adding
 * keys. The policies refill slowly and hold many permits.
 */
#include "measure/subject.h"

#include <stdio.h>
#include <stdlib.h>

#include "measure/say.h"
#include "report/report.h"

#define BYTES_PER_KEY 1024 /* room for eleven blocks of a sliding window */
#define PERMIT_SECONDS 4   /* the time in which a slow bucket refills one permit */

static const char *const KIND_NAMES[KINDS] = { "token", "interval", "fixed", "sliding", "leaky" };

static const struct weir_policy POLICIES[KINDS] = {
    [KIND_TOKEN] = { .limit = 1, .period_us = PERMIT_SECONDS * WEIR_SECOND, .burst = SUBJECT_PLENTY },
    [KIND_INTERVAL] = { .refill = WEIR_INTERVAL, .limit = SUBJECT_PLENTY, .period_us = WEIR_DAY },
    [KIND_FIXED] = { .algorithm = WEIR_FIXED_WINDOW, .limit = SUBJECT_PLENTY, .period_us = WEIR_DAY },
    [KIND_SLIDING] = { .algorithm = WEIR_SLIDING_WINDOW, .limit = SUBJECT_PLENTY, .period_us = WEIR_DAY },
    [KIND_LEAKY] = { .algorithm = WEIR_LEAKY_BUCKET,
                     .limit = 1,
                     .period_us = PERMIT_SECONDS * WEIR_SECOND,
                     .capacity = SUBJECT_PLENTY },
};

const char *kind_name(enum kind kind)
{
    return KIND_NAMES[kind];
}

static void subject_log(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    if (level != WEIR_LOG_INFO)
        bench_say("weir: %s", line);
}

static void subject_fill(const struct subject *subject, uint64_t keys)
{
    struct weir_decision decision;
    struct bench_key key;
    for (uint64_t i = 0; i < keys; i++) {
        key_write(i, &key);
        bench_require(weir_try(subject->limit, key_of(&key), SUBJECT_FILL, &decision), "weir_try");
    }
}

void subject_open(struct subject *subject, struct weir_options *options, enum kind kind, uint64_t keys)
{
    options->log = subject_log;
    if (keys > 500000) { /* half the default; the margin keeps one shard from filling up before the others */
        options->max_keys = (int64_t)(keys + keys / 4);
        options->max_bytes = options->max_keys * BYTES_PER_KEY;
    }
    report_options(options);
    bench_require(weir_open(options, &subject->weir), "weir_open");
    bench_require(weir_limit_define(subject->weir, kind_name(kind), &POLICIES[kind], &subject->limit),
                  "weir_limit_define");
    subject_fill(subject, keys);
}

static void subject_check(const struct subject *subject, uint64_t keys)
{
    struct weir_stats stats = { .size = sizeof stats };
    bench_require(weir_stats_read(subject->weir, &stats), "weir_stats_read");
    if (stats.keys != (int64_t)keys || stats.full > 0 || stats.evictions > 0)
        bench_say("%lld of %llu keys are held; %llu evicted; %llu decisions had no room", (long long)stats.keys,
                  (unsigned long long)keys, (unsigned long long)stats.evictions, (unsigned long long)stats.full);
}

void subject_close(struct subject *subject)
{
    weir_close(subject->weir);
    subject->weir = NULL;
}

void subject_finish(struct subject *subject, uint64_t keys)
{
    subject_check(subject, keys);
    subject_close(subject);
}

uint64_t subject_work(void *subject, const struct bench_key *draws, size_t n)
{
    weir_limit *limit = ((struct subject *)subject)->limit;
    struct weir_decision decision;
    uint64_t admitted = 0;
    for (size_t i = 0; i < n; i++) {
        bench_require(weir_try(limit, key_of(&draws[i]), 1, &decision), "weir_try");
        admitted += decision.allowed;
    }
    return admitted;
}
