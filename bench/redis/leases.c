/* leases.c - what leases cost and save: a decision from a lease next to one in local mode, and the calls to Redis.
 *
 * There are few keys, so that each is requested all the time. Nearly every decision then comes from a lease or from a
 * remembered denial; the report shows how many do. Calls to Redis continue in the background, as they would in service.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "measure/subject.h"
#include "measure/timer.h"
#include "redis/remote.h"

#define KEYS 1000
#define GOAL_RATIO 1.3
#define EXCESS 10      /* percent of a burst that refills in a second: ... */
#define LIFE_US 100000 /* ... leases live for so long */
#define GOAL_CALLS (2.0 * 1e6 / LIFE_US)
#define GOAL_DENIALS 1.0
#define PAUSE_NS 200000

/* ---- What a decision by a lease costs ---- */

/* The same for both modes, with their default options: admit all requests of a benchmark, or one request a day. */
static const struct weir_policy POLICIES[2] = {
    [ANSWER_ALLOW] = { .limit = 100000, .period_us = WEIR_SECOND, .burst = SUBJECT_PLENTY },
    [ANSWER_DENY] = { .limit = 1, .period_us = WEIR_DAY },
};

struct side { /* a mode's limiters */
    struct remote remotes[2];
    struct subject subjects[2]; /* the same limiters, as subject_work() takes them */
};

static bool side_open(struct side *side, enum weir_mode mode, const struct store *store)
{
    static const char *const names[2] = { "leases-allow", "leases-deny" };
    for (int answer = ANSWER_ALLOW; answer <= ANSWER_DENY; answer++) {
        struct remote *remote = &side->remotes[answer];
        struct weir_options options = remote_options(mode);
        if (!remote_open(remote, store, &options, names[answer], &POLICIES[answer]))
            return false;
        side->subjects[answer] = (struct subject){ remote->weir, remote->limit };
    }
    return true;
}

static void side_close(struct side *side)
{
    for (int answer = ANSWER_ALLOW; answer <= ANSWER_DENY; answer++)
        remote_close(&side->remotes[answer]);
}

/* Run until leases have grown to the demand: each is somewhat larger than the one before. */
static void warm_up(struct side *side, const struct stream *stream, double seconds)
{
    int64_t end_ns = clock_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9);
    size_t cursor = 0;
    do {
        for (int answer = ANSWER_ALLOW; answer <= ANSWER_DENY; answer++)
            subject_work(&side->subjects[answer], stream->draws + cursor, STREAM_STEP);
        cursor = (cursor + STREAM_STEP) % stream->len;
    } while (clock_ns(CLOCK_MONOTONIC) < end_ns);
}

static void report_pair(struct bench *bench, enum answer answer, int threads, const struct cell *local,
                        const struct cell *hybrid, double here)
{
    struct sample ratio = sample_ratio(&hybrid->ns, &local->ns);
    char what[96];
    report_row(bench->report);
    report_text(bench->report, "answer", answer_name(answer));
    report_count(bench->report, "threads", (uint64_t)threads);
    report_sample(bench->report, "local ns", &local->ns);
    report_sample(bench->report, "hybrid ns", &hybrid->ns);
    report_number(bench->report, answer == ANSWER_ALLOW ? "by lease %" : "by denial %", here);
    report_sample(bench->report, "hybrid/local", &ratio);
    snprintf(what, sizeof what, "decision in hybrid mode relative to local mode, defaults, %d keys zipf, threads: %d",
             KEYS, threads);
    if (answer == ANSWER_ALLOW)
        report_goal(bench->report, what, &ratio, AT_MOST, GOAL_RATIO);
}

static void leases_measure_pair(struct bench *bench, struct side sides[2], enum answer answer,
                                const struct stream *stream, int threads)
{
    const struct remote *remote = &sides[1].remotes[answer];
    struct weir_stats before = remote_stats(remote), after;
    struct cell cells[2];
    bench_progress("leases: %s, %d threads", answer_name(answer), threads);
    for (int i = 0; i < 2; i++)
        cells[i] = (struct cell){
            .work = subject_work, .subject = &sides[i].subjects[answer], .stream = stream, .threads = threads
        };
    measure_cells(cells, 2, bench->repeats, bench->seconds);
    after = remote_stats(remote);
    uint64_t here = after.lease_hits - before.lease_hits + after.denial_hits - before.denial_hits;
    uint64_t all = after.allowed - before.allowed + after.denied - before.denied;
    report_pair(bench, answer, threads, &cells[0], &cells[1], 100.0 * (double)here / (double)all);
}

/* ---- What leases ask of Redis ---- */

struct hot { /* a key that is requested all the time */
    const char *name;
    struct weir_policy policy;
    bool pauses; /* between calls; otherwise as fast as possible */
    bool denies;
    struct remote remote;
    struct sample requests, calls;
    struct sample waits; /* sum of its denials' retry_after over the elapsed time; above 1: some came too soon */
};

static struct hot hots[] = {
    { .name = "below the limit, as fast as possible", .policy = { .limit = SUBJECT_PLENTY, .period_us = WEIR_SECOND } },
    { .name = "below the limit, one every 0.2 ms",
      .policy = { .limit = 10000, .period_us = WEIR_SECOND },
      .pauses = true },
    { .name = "denied, as fast as possible", .policy = { .limit = 20, .period_us = WEIR_SECOND }, .denies = true },
};
#define HOTS ((int)(sizeof hots / sizeof *hots))

/* Run one repetition: make calls until the time is up, and count the calls to Redis. */
static void ask_hot(struct hot *hot, double seconds, bool counts)
{
    const struct timespec pause = { .tv_nsec = PAUSE_NS };
    struct weir_stats before = remote_stats(&hot->remote);
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC), end_ns = start_ns + (int64_t)(seconds * 1e9);
    uint64_t requests = 0;
    int64_t waits_us = 0, last_us = 0;
    do {
        for (int i = 0; i < (hot->pauses ? 1 : 64); i++) {
            struct weir_decision decision;
            int status = weir_try(hot->remote.limit, weir_key_text("hot"), 1, &decision);
            if (status != WEIR_OK)
                load_complain("weir_try", weir_strerror(status));
            requests++;
            if (status == WEIR_OK && !decision.allowed && decision.source == WEIR_BY_REDIS) {
                waits_us += last_us; /* the last one may outlast the repetition */
                last_us = decision.retry_after_us;
            }
        }
        if (hot->pauses)
            nanosleep(&pause, NULL);
    } while (clock_ns(CLOCK_MONOTONIC) < end_ns);
    double elapsed = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) / 1e9;
    if (!counts)
        return;
    sample_add(&hot->requests, (double)requests / elapsed);
    sample_add(&hot->calls, (double)(remote_stats(&hot->remote).store_calls - before.store_calls) / elapsed);
    if (hot->denies)
        sample_add(&hot->waits, (double)waits_us / (elapsed * 1e6));
}

static void report_hot(struct bench *bench, const struct hot *hot)
{
    char what[96];
    report_row(bench->report);
    report_text(bench->report, "hot key", hot->name);
    report_sample(bench->report, "requests/s", &hot->requests);
    report_sample(bench->report, "store calls/s", &hot->calls);
    if (hot->denies) {
        report_sample(bench->report, "denials per retry_after", &hot->waits);
        report_goal(bench->report, "denials from Redis per retry_after, hot key", &hot->waits, AT_MOST, GOAL_DENIALS);
        return;
    }
    snprintf(what, sizeof what, "store calls a second, hot key %s", hot->name);
    report_goal(bench->report, what, &hot->calls, AT_MOST, GOAL_CALLS);
}

static bool measure_hots(struct bench *bench, const struct store *store)
{
    struct weir_options options = remote_options(WEIR_HYBRID);
    options.lease_excess = EXCESS;
    const double seconds = bench->extent == EXTENT_QUICK ? bench->seconds : 5 * bench->seconds;
    for (int i = 0; i < HOTS; i++) {
        bench_progress("leases: hot key %s", hots[i].name);
        if (!remote_open(&hots[i].remote, store, &options, "leases-hot", &hots[i].policy))
            return false;
        weir_reset(hots[i].remote.limit, weir_key_text("hot"));
        ask_hot(&hots[i], 3e-6 * LIFE_US, false);
        for (int repeat = 0; repeat < bench->repeats; repeat++)
            ask_hot(&hots[i], seconds, true);
        report_hot(bench, &hots[i]);
        remote_close(&hots[i].remote);
    }
    return true;
}

/* ---- Ordinary bursts ---- */

/* Users who each send a few requests at once, and then none for a while, to a limit with the usual burst. The bursts of
 * most keys are further apart than a lease lives by default. */
#define BURST 16
#define BURSTS_A_SECOND 300.0
static const struct weir_policy ORDINARY = { .limit = 1000, .period_us = WEIR_SECOND };

struct bursty { /* a mode under this load */
    struct remote remote;
    size_t cursor;
    struct sample ns; /* per request, spent in calls */
};

static double call_burst(const struct remote *remote, const struct bench_key *key)
{
    const int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < BURST; i++) {
        struct weir_decision decision;
        const int status = weir_try(remote->limit, weir_key(key->text, KEY_LEN), 1, &decision);
        if (status != WEIR_OK)
            load_complain("weir_try", weir_strerror(status));
    }
    return (double)(clock_ns(CLOCK_MONOTONIC) - start_ns);
}

static void run_bursts(struct bursty *bursty, const struct stream *stream, double seconds, bool counts)
{
    const struct timespec pause = { .tv_nsec = (long)(1e9 / BURSTS_A_SECOND) };
    const int64_t end_ns = clock_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9);
    double spent_ns = 0;
    int bursts = 0;
    do {
        spent_ns += call_burst(&bursty->remote, &stream->draws[bursty->cursor++ % stream->len]);
        bursts++;
        nanosleep(&pause, NULL);
    } while (clock_ns(CLOCK_MONOTONIC) < end_ns);
    if (counts)
        sample_add(&bursty->ns, spent_ns / (bursts * BURST));
}

static void report_bursts(struct bench *bench, const struct bursty *local, const struct bursty *hybrid,
                          const struct weir_stats *before)
{
    const struct weir_stats after = remote_stats(&hybrid->remote);
    const double all = (double)(after.allowed - before->allowed + after.denied - before->denied);
    const struct sample ratio = sample_ratio(&hybrid->ns, &local->ns);
    report_row(bench->report);
    report_count(bench->report, "requests in a burst", BURST);
    report_sample(bench->report, "local ns", &local->ns);
    report_sample(bench->report, "hybrid ns", &hybrid->ns);
    report_sample(bench->report, "hybrid/local", &ratio);
    report_number(bench->report, "by lease %", 100.0 * (double)(after.lease_hits - before->lease_hits) / all);
    report_number(bench->report, "store calls per 1000 requests",
                  1000.0 * (double)(after.store_calls - before->store_calls) / all);
}

static void measure_bursts(struct bench *bench, const struct store *store, const struct stream *stream)
{
    struct bursty sides[2] = { { .cursor = 0 } };
    bench_progress("leases: bursts");
    for (int i = 0; i < 2; i++) {
        const struct weir_options options = remote_options(i == 0 ? WEIR_LOCAL : WEIR_HYBRID);
        if (!remote_open(&sides[i].remote, store, &options, "leases-bursts", &ORDINARY)) {
            if (i == 1)
                remote_close(&sides[0].remote);
            remote_report_missing(bench);
            return;
        }
        run_bursts(&sides[i], stream, bench->seconds, false);
    }
    const struct weir_stats before = remote_stats(&sides[1].remote);
    for (int repeat = 0; repeat < bench->repeats; repeat++)
        for (int i = 0; i < 2; i++)
            run_bursts(&sides[(repeat + i) % 2], stream, bench->seconds, true);
    report_bursts(bench, &sides[0], &sides[1], &before);
    for (int i = 0; i < 2; i++)
        remote_close(&sides[i].remote);
}

/* ---- The sections ---- */

void bench_leases(struct bench *bench)
{
    const struct store *store = store_of(bench, "leases");
    struct side sides[2];
    struct stream stream;
    if (!store)
        return;
    report_section(bench->report, "leases",
                   "ns per decision: the slowest thread's wall time over its decisions, median (min..max); 1000 keys "
                   "zipf, all requested all the time, default options; local and hybrid in turns");
    stream_make(&stream, KEYS, SKEW_ZIPF);
    bool opened = side_open(&sides[0], WEIR_LOCAL, store) && side_open(&sides[1], WEIR_HYBRID, store);
    for (int i = 0; i < 2 && opened; i++)
        warm_up(&sides[i], &stream, 3 * bench->seconds);
    for (int threads = 1; threads <= 2 && opened; threads++)
        for (int answer = ANSWER_ALLOW; answer <= ANSWER_DENY; answer++)
            leases_measure_pair(bench, sides, (enum answer)answer, &stream, threads);
    if (opened) {
        side_close(&sides[0]);
        side_close(&sides[1]);
    } else {
        remote_report_missing(bench);
    }
    report_end_section(bench->report);
    store_section(bench, store, "lease-bursts",
                  "ns per request spent in calls; one caller, 300 bursts a second of 16 requests for one of 1000 keys, "
                  "limit 1000 a second and key, default options; local and hybrid in turns");
    measure_bursts(bench, store, &stream);
    stream_free(&stream);
    report_end_section(bench->report);
    store_section(bench, store, "lease-calls", "calls of one instance to Redis for one key, leases of 100 ms");
    if (!measure_hots(bench, store))
        remote_report_missing(bench);
    report_end_section(bench->report);
}
