/* outage.c - what callers notice when Redis stops answering in the middle of their calls, and when it comes back.
 *
 * SIGSTOP stops the server: its connections stay open, and the system even accepts new ones, but nothing is answered.
 * That is harder to tell from slowness than a server that is gone. Callers pause a little between calls, as a program
 * with other work does; otherwise they would wait for a processor, and that wait would be measured. The report also
 * shows how late a short sleep of the main thread returns in that time: the delay that the machine itself adds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/hist.h"
#include "measure/timer.h"
#include "redis/remote.h"

#define CALLERS 8
#define TIMEOUT_MS 50
#define GOAL_LONGEST_MS (TIMEOUT_MS + 2)
#define GOAL_OPEN_US 100
#define GOAL_RECOVERY_MS 1000
#define BREAK_TIMEOUTS 3 /* timeouts in a row that open the breaker */
#define PAUSE_NS 100000
#define POLL_NS 1000000
#define OPEN_MOST_NS INT64_C(3000000000)
#define RECOVER_MOST_NS INT64_C(10000000000)

struct outage { /* one outage; times are of CLOCK_MONOTONIC, 0: not yet */
    struct remote remote;
    const struct stream *stream;
    _Atomic int64_t stopped_ns, open_ns, resumed_ns, recovered_ns;
    atomic_bool over;
    int64_t late_ns; /* how late the latest sleep returned */
};

struct victim { /* a caller */
    struct outage *outage;
    int number;
    int64_t longest_ns;
    uint64_t waited, failed; /* calls that took at least half the timeout, and errors */
    struct hist open;        /* calls begun while the breaker was known to be open, ns */
};

struct figures { /* one value per outage */
    struct sample longest_ms, waited, timeouts, open_ms, open_p999_us, open_max_us, recovery_ms, late_ms;
    uint64_t failed, never_open, never_recovered;
};

/* ---- Callers ---- */

static void call_once(struct victim *victim, const struct bench_key *key)
{
    struct outage *outage = victim->outage;
    struct weir_decision decision;
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    int status = weir_try(outage->remote.limit, weir_key(key, KEY_LEN), 1, &decision);
    int64_t end_ns = clock_ns(CLOCK_MONOTONIC);
    int64_t open_ns = atomic_load(&outage->open_ns);
    int64_t resumed_ns = atomic_load(&outage->resumed_ns);
    int64_t none = 0;
    victim->failed += status != WEIR_OK;
    if (atomic_load(&outage->stopped_ns) != 0 && resumed_ns == 0) {
        victim->longest_ns = end_ns - start_ns > victim->longest_ns ? end_ns - start_ns : victim->longest_ns;
        victim->waited += end_ns - start_ns > TIMEOUT_MS * 500000;
        if (open_ns != 0 && start_ns > open_ns)
            hist_add(&victim->open, (uint64_t)(end_ns - start_ns));
    }
    /* A lease does not outlive an outage, so this one is new. */
    if (resumed_ns != 0 && status == WEIR_OK && (decision.source == WEIR_BY_REDIS || decision.source == WEIR_BY_LEASE))
        atomic_compare_exchange_strong(&outage->recovered_ns, &none, end_ns);
}

static void *call_through_outage(void *argument)
{
    struct victim *victim = argument;
    const struct stream *stream = victim->outage->stream;
    const struct timespec pause = { .tv_nsec = PAUSE_NS };
    size_t cursor = stream->len / CALLERS * (size_t)victim->number;
    while (!atomic_load(&victim->outage->over)) {
        call_once(victim, &stream->draws[cursor]);
        cursor = (cursor + 1) % stream->len;
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* ---- The course of an outage ---- */

static void poll_once(struct outage *outage)
{
    const struct timespec pause = { .tv_nsec = POLL_NS };
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    nanosleep(&pause, NULL);
    int64_t late_ns = clock_ns(CLOCK_MONOTONIC) - start_ns - POLL_NS;
    outage->late_ns = late_ns > outage->late_ns ? late_ns : outage->late_ns;
}

static void wait_for(struct outage *outage, double seconds)
{
    int64_t end_ns = clock_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9);
    while (clock_ns(CLOCK_MONOTONIC) < end_ns)
        poll_once(outage);
}

static void stop_server(struct outage *outage, struct redis_server *server, struct figures *figures, double seconds)
{
    struct weir_stats before = remote_stats(&outage->remote);
    struct weir_stats after = before;
    outage->late_ns = 0;
    redis_server_pause(server);
    atomic_store(&outage->stopped_ns, clock_ns(CLOCK_MONOTONIC));
    int64_t stopped_ns = outage->stopped_ns;
    bool open = false;
    while (!open && clock_ns(CLOCK_MONOTONIC) - stopped_ns < OPEN_MOST_NS) {
        poll_once(outage);
        after = remote_stats(&outage->remote);
        open = after.store_breaks > before.store_breaks ||
               after.store_timeouts >= before.store_timeouts + BREAK_TIMEOUTS;
    }
    if (open)
        atomic_store(&outage->open_ns, clock_ns(CLOCK_MONOTONIC));
    else
        figures->never_open++;
    sample_add(&figures->open_ms, (double)(clock_ns(CLOCK_MONOTONIC) - stopped_ns) / 1e6);
    wait_for(outage, 3 * seconds);
    sample_add(&figures->timeouts, (double)(remote_stats(&outage->remote).store_timeouts - before.store_timeouts));
}

static void resume_server(struct outage *outage, struct redis_server *server, struct figures *figures)
{
    atomic_store(&outage->resumed_ns, clock_ns(CLOCK_MONOTONIC));
    int64_t resumed_ns = outage->resumed_ns;
    redis_server_resume(server);
    while (atomic_load(&outage->recovered_ns) == 0 && clock_ns(CLOCK_MONOTONIC) - resumed_ns < RECOVER_MOST_NS)
        poll_once(outage);
    int64_t recovered_ns = atomic_load(&outage->recovered_ns);
    figures->never_recovered += recovered_ns == 0;
    sample_add(&figures->recovery_ms,
               (double)((recovered_ns ? recovered_ns : clock_ns(CLOCK_MONOTONIC)) - resumed_ns) / 1e6);
}

static void add_victims(const struct outage *outage, struct victim *victims, struct figures *figures)
{
    int64_t longest_ns = 0;
    uint64_t waited = 0;
    for (int i = 0; i < CALLERS; i++) {
        longest_ns = victims[i].longest_ns > longest_ns ? victims[i].longest_ns : longest_ns;
        waited += victims[i].waited;
        figures->failed += victims[i].failed;
        if (i > 0)
            hist_merge(&victims[0].open, &victims[i].open);
    }
    sample_add(&figures->longest_ms, (double)longest_ns / 1e6);
    sample_add(&figures->waited, (double)waited);
    if (victims[0].open.total > 0) {
        sample_add(&figures->open_p999_us, hist_quantile(&victims[0].open, 0.999) / 1e3);
        sample_add(&figures->open_max_us, (double)victims[0].open.max / 1e3);
    }
    sample_add(&figures->late_ms, (double)outage->late_ns / 1e6);
}

static bool run_outage(const struct bench *bench, enum weir_mode mode, struct store *store, struct figures *figures)
{
    struct weir_options options = remote_options(mode);
    options.on_failure = WEIR_FAIL_LOCAL;
    options.timeout_us = TIMEOUT_MS * 1000;
    static struct victim victims[CALLERS];
    struct outage outage = { .stream = &store->stream };
    pthread_t threads[CALLERS];
    if (!remote_open(&outage.remote, store, &options, CALLS_LIMIT, &calls_policies[KIND_TOKEN]))
        return false;
    for (int i = 0; i < CALLERS; i++) {
        victims[i] = (struct victim){ .outage = &outage, .number = i };
        bench_thread(&threads[i], call_through_outage, &victims[i]);
    }
    wait_for(&outage, bench->seconds);
    stop_server(&outage, &store->server, figures, bench->seconds);
    resume_server(&outage, &store->server, figures);
    atomic_store(&outage.over, true);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    add_victims(&outage, victims, figures);
    remote_close(&outage.remote);
    return true;
}

static void report_outages(struct bench *bench, const char *mode, const struct figures *figures)
{
    struct sample worst = { 0 };
    char what[96];
    sample_add(&worst, sample_max(&figures->longest_ms));
    report_row(bench->report);
    report_text(bench->report, "mode", mode);
    report_text(bench->report, "what", "all calls");
    report_count(bench->report, "outages", (uint64_t)figures->longest_ms.n);
    report_sample(bench->report, "longest call ms", &figures->longest_ms);
    snprintf(what, sizeof what, "longest call while the server is stopped, timeout 50 ms; ms, worst of all, %s", mode);
    report_goal(bench->report, what, &worst, AT_MOST, GOAL_LONGEST_MS);
    report_sample(bench->report, "calls that waited", &figures->waited);
    report_sample(bench->report, "timeouts", &figures->timeouts);
    report_sample(bench->report, "open after ms", &figures->open_ms);
    report_sample(bench->report, "recovery ms", &figures->recovery_ms);
    snprintf(what, sizeof what, "from the server's return to its first answer; ms, %s", mode);
    report_goal(bench->report, what, &figures->recovery_ms, AT_MOST, GOAL_RECOVERY_MS);
    report_sample(bench->report, "a sleep's lateness ms", &figures->late_ms);
    if (figures->failed + figures->never_recovered > 0)
        report_count(bench->report, "failed", figures->failed + figures->never_recovered);
    if (figures->never_open > 0)
        report_count(bench->report, "never open", figures->never_open);
    if (figures->open_p999_us.n == 0)
        return;
    report_row(bench->report);
    report_text(bench->report, "mode", mode);
    report_text(bench->report, "what", "calls once the breaker is open");
    report_count(bench->report, "outages", (uint64_t)figures->open_p999_us.n);
    report_sample(bench->report, "p99.9 us", &figures->open_p999_us);
    report_sample(bench->report, "longest us", &figures->open_max_us);
    snprintf(what, sizeof what, "p99.9 of calls once the breaker is open; us, %s", mode);
    report_goal(bench->report, what, &figures->open_p999_us, AT_MOST, GOAL_OPEN_US);
}

/* False if weir cannot be opened on Redis. */
static bool outage_measure_mode(struct bench *bench, enum weir_mode mode, const char *name, struct store *store)
{
    static struct figures figures;
    int done = 0;
    figures = (struct figures){ .failed = 0 };
    for (; done < bench->repeats; done++) {
        bench_progress("outage: %s, %d", name, done + 1);
        if (!run_outage(bench, mode, store, &figures))
            break;
    }
    if (done > 0)
        report_outages(bench, name, &figures);
    return done == bench->repeats;
}

void bench_outage(struct bench *bench)
{
    struct store *store = store_of(bench, "outage");
    if (!store)
        return;
    store_section(bench, store, "outage",
                  "SIGSTOP, later SIGCONT, while 8 callers pause 0.1 ms between calls; timeout 50 ms, fallback local; "
                  "open: calls begun after the breaker was seen open; median (min..max) of the outages");
    measure_unpin_main();
    bool measured = outage_measure_mode(bench, WEIR_DISTRIBUTED, "distributed", store) &&
                    outage_measure_mode(bench, WEIR_HYBRID, "hybrid", store);
    measure_pin_main();
    if (!measured)
        remote_report_missing(bench);
    report_end_section(bench->report);
}
