/* log.c - a log of the user's, replayed in each mode: its requests come when they are due, an open loop, see due.h.
 *
 * Callers of one process take them in their order: whoever is free takes the next one and waits until it is due. If
 * none is free, requests pile up, and that is counted as latency.
 */
#include "modes/log.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure/hist.h"
#include "measure/timer.h"
#include "modes/due.h"
#include "modes/modes.h"
#include "modes/turns.h"
#include "redis/user_store.h"
#include "report/format.h"

#define CALLERS 32
#define PROGRESS_NS INT64_C(5000000000)

static struct log the_log;

struct replay { /* in one mode */
    struct remote remote;
    int64_t start_ns;
    atomic_size_t next;
    atomic_int busy; /* callers */
    bool can_be_interrupted;
};

struct replayer { /* a caller */
    struct replay *replay;
    uint64_t allowed, denied, failed;
    struct hist answer; /* ns from when it was due to the answer */
    struct hist late;   /* to the call */
};

void bench_read_log(struct bench *bench)
{
    log_read(bench, &the_log);
}

/* ---- A replay ---- */

static void ask(struct replayer *replayer, const struct log_request *request)
{
    struct weir_decision decision;
    struct bench_key key;
    int64_t due_ns = replayer->replay->start_ns + request->due_ns;
    key_write(request->key, &key);
    int64_t now_ns = due_wait(due_ns);
    hist_add(&replayer->late, (uint64_t)(now_ns - due_ns));
    int status = weir_try(replayer->replay->remote.limit, weir_key(&key, KEY_LEN), request->cost, &decision);
    hist_add(&replayer->answer, (uint64_t)(clock_ns(CLOCK_MONOTONIC) - due_ns));
    if (status != WEIR_OK) {
        load_complain("weir_try for a request of the log", weir_strerror(status));
        replayer->failed++;
    } else if (decision.allowed) {
        replayer->allowed++;
    } else {
        replayer->denied++;
    }
}

static void *ask_in_turn(void *argument)
{
    struct replayer *replayer = argument;
    struct replay *replay = replayer->replay;
    for (size_t i; (i = atomic_fetch_add(&replay->next, 1)) < the_log.requests_len;) {
        if (replay->can_be_interrupted)
            user_store_heed_interrupt();
        ask(replayer, &the_log.requests[i]);
    }
    atomic_fetch_sub(&replay->busy, 1);
    return NULL;
}

/* Says how far it has come, now and then, until the callers are done. */
static void watch(struct replay *replay, const char *mode)
{
    int64_t said_ns = 0;
    while (atomic_load(&replay->busy) > 0) {
        int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
        size_t next = atomic_load(&replay->next);
        if (now_ns - said_ns >= PROGRESS_NS) {
            bench_progress("the log, %s mode: %zu of %zu requests; it takes %.0f s", mode,
                           next < the_log.requests_len ? next : the_log.requests_len, the_log.requests_len,
                           the_log.seconds);
            said_ns = now_ns;
        }
        due_wait(now_ns + 20000000);
    }
}

static void run_replay(struct replay *replay, const char *mode, struct replayer *replayers, int replayers_len)
{
    pthread_t threads[MEASURE_MAX_THREADS];
    atomic_store(&replay->next, 0);
    atomic_store(&replay->busy, replayers_len);
    replay->start_ns = clock_ns(CLOCK_MONOTONIC) + 10000000; /* time for them all to start */
    for (int i = 0; i < replayers_len; i++) {
        replayers[i] = (struct replayer){ .replay = replay };
        if (pthread_create(&threads[i], NULL, ask_in_turn, &replayers[i]) != 0) {
            fputs("weir-bench: cannot start threads\n", stderr);
            exit(2);
        }
    }
    watch(replay, mode);
    for (int i = 0; i < replayers_len; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < replayers_len; i++) {
        replayers[0].allowed += replayers[i].allowed;
        replayers[0].denied += replayers[i].denied;
        replayers[0].failed += replayers[i].failed;
        hist_merge(&replayers[0].answer, &replayers[i].answer);
        hist_merge(&replayers[0].late, &replayers[i].late);
    }
}

/* ---- The rows ---- */

struct told { /* of a mode */
    double allowed_percent, denied, p50_us, p99_us, max_us, late_us, calls, failed;
};

static struct told tell(const struct replayer *all, const struct weir_stats *stats)
{
    double requests = (double)the_log.requests_len;
    return (struct told){ .allowed_percent = 100 * (double)all->allowed / requests,
                          .denied = (double)all->denied,
                          .p50_us = hist_quantile(&all->answer, 0.5) / 1e3,
                          .p99_us = hist_quantile(&all->answer, 0.99) / 1e3,
                          .max_us = (double)all->answer.max / 1e3,
                          .late_us = hist_quantile(&all->late, 0.99) / 1e3,
                          .calls = (double)stats->store_calls / requests,
                          .failed = (double)all->failed };
}

/* The most that --threads names. */
static int callers_of(const struct bench *bench)
{
    int most = bench->threads_given ? 1 : CALLERS;
    for (int i = 0; bench->threads_given && i < bench->threads_len; i++)
        most = bench->threads[i] > most ? bench->threads[i] : most;
    return most;
}

/* False: the mode cannot be had. */
static bool measure_mode(const struct modes *modes, enum weir_mode mode, struct told *out)
{
    static struct replayer replayers[MEASURE_MAX_THREADS];
    static struct replay replay;
    const int callers = callers_of(modes->bench);
    char limit[40];
    struct weir_stats before = { .size = sizeof before }, after = before;
    snprintf(limit, sizeof limit, "log-%s", modes_names[mode]);
    if (!modes_open(modes, mode, limit, &the_log.policy, &replay.remote))
        return false;
    replay.can_be_interrupted = mode != WEIR_LOCAL && modes->store->is_users;
    if (mode != WEIR_LOCAL)
        user_store_remember(modes->store, limit, the_log.keys_most);
    weir_stats_read(replay.remote.weir, &before);
    run_replay(&replay, modes_names[mode], replayers, callers);
    weir_stats_read(replay.remote.weir, &after);
    after.store_calls -= before.store_calls;
    remote_close(&replay.remote);
    *out = tell(&replayers[0], &after);
    return true;
}

static void report_value(const struct modes *modes, enum weir_mode mode, double value, bool is_count)
{
    struct sample sample = { 0 };
    sample_add(&sample, value);
    if (is_count)
        report_count(modes->bench->report, modes_names[mode], (uint64_t)value);
    else
        modes_figure(modes, mode, &sample);
}

static void report_told(const struct modes *modes, const struct told told[MODES], const bool has[MODES])
{
    static const struct {
        const char *figure;
        size_t value;
        bool is_count, is_trouble, is_of_redis;
    } rows[] = {
        { .figure = "admitted, % of the requests", .value = offsetof(struct told, allowed_percent) },
        { .figure = "denied, requests", .value = offsetof(struct told, denied), .is_count = true },
        { .figure = "failed, requests", .value = offsetof(struct told, failed), .is_count = true, .is_trouble = true },
        { .figure = "p50, us from when it was due", .value = offsetof(struct told, p50_us) },
        { .figure = "p99, us from when it was due", .value = offsetof(struct told, p99_us) },
        { .figure = "longest, us from when it was due", .value = offsetof(struct told, max_us) },
        { .figure = "p99 of how late it was asked, us", .value = offsetof(struct told, late_us) },
        { .figure = "Redis calls a request", .value = offsetof(struct told, calls), .is_of_redis = true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double values[MODES], most = 0;
        for (int mode = 0; mode < MODES; mode++) {
            values[mode] = *(const double *)(const void *)((const char *)&told[mode] + rows[i].value);
            most = fmax(most, values[mode]);
        }
        if (rows[i].is_trouble && most == 0)
            continue;
        modes_row(modes, rows[i].figure);
        for (int mode = 0; mode < MODES; mode++)
            if (has[mode] && (mode != WEIR_LOCAL || !rows[i].is_of_redis))
                report_value(modes, (enum weir_mode)mode, values[mode], rows[i].is_count);
    }
}

static void report_log(const struct modes *modes)
{
    struct report *report = modes->bench->report;
    char text[380], speed[24], left_out[120] = "";
    format_short(speed, sizeof speed, the_log.speed);
    snprintf(text, sizeof text, "The log %s: %zu requests, %zu key%s, at %s times its own pace", the_log.name,
             the_log.requests_len, the_log.keys, the_log.keys == 1 ? "" : "s", speed);
    report_heading(report, text);
    if (the_log.left_out > 0)
        snprintf(left_out, sizeof left_out, "; %zu requests after those are left out, --speed takes them all",
                 the_log.left_out);
    snprintf(text, sizeof text, "the log: %s%s %s '%s'%s%s%s; latency is from when a request was due",
             the_log.key_name[0] ? "each " : "all requests together", the_log.key_name,
             the_log.key_name[0] ? "has" : "have", modes->bench->log_policy,
             the_log.speed == 1 ? "" : ", its period shortened as time is, but not the life of leases",
             the_log.is_spread ? "; what came in one second is asked evenly over it" : "", left_out);
    report_note(report, text);
}

void modes_log(struct modes *modes)
{
    struct told told[MODES] = { { 0 } };
    bool has[MODES] = { false };
    if (!modes->bench->log)
        return;
    report_log(modes);
    measure_unpin_main();
    for (int mode = 0; mode < MODES; mode++) {
        has[mode] = modes->is_chosen[mode] && measure_mode(modes, (enum weir_mode)mode, &told[mode]);
        if (modes->is_chosen[mode] && !has[mode])
            turns_give_up(modes, (enum weir_mode)mode);
    }
    measure_pin_main();
    report_told(modes, told, has);
}
