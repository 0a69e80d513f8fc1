/* log.c - replays the user's log in each mode: requests come when they are due, an open loop, see due_wait().
 *
 * The log is read as weir replay reads it. Without --speed, the replay takes USUAL_SECONDS but is never slower than the
 * log. It stops after as many requests as MAX_PER_SECOND allows, so that a waiting caller gets its turn.
 *
 * The callers of one process take the requests in order: a free caller takes the next one and waits until it is due. If
 * none is free, requests pile up, and latency shows that.
 */
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/replay/input/load.h"
#include "measure/hist.h"
#include "measure/timer.h"
#include "modes/modes.h"
#include "redis/user_store.h"
#include "report/inside.h"

#define USUAL_SECONDS 10
#define QUICK_SECONDS 1
#define MAX_PER_SECOND 20000 /* on average */
#define CALLERS 32

struct log_request {
    int64_t due_ns; /* after the start */
    uint32_t key;   /* a number: no client's address is sent to a server where it could be found later */
    int64_t cost;
};

struct log {
    char name[48];     /* of the file, safe to show on a terminal */
    char key_name[64]; /* what the keys are: "client"; empty: all requests have the same key */
    struct log_request *requests;
    size_t requests_len;       /* at least 1 */
    size_t keys;               /* distinct keys of these requests */
    size_t keys_most;          /* keys have numbers below this */
    size_t left_out;           /* requests after these */
    bool is_spread;            /* its times are whole seconds; the requests of a second are spread evenly over it */
    double speed;              /* times the log's own pace */
    double seconds;            /* how long it takes */
    struct weir_policy policy; /* its period shortened like time, so that it admits as many as at the log's own pace */
};

static struct log the_log;

struct replay { /* in one mode */
    struct remote remote;
    int64_t start_ns;
    atomic_size_t next;
    bool can_be_interrupted;
};

struct replayer { /* a caller */
    struct replay *replay;
    uint64_t allowed, denied, failed;
    struct hist answer; /* ns from the due time to the answer */
};

/* ---- Reading ---- */

/* Print the messages of the weir program's parts that are linked here. */
void complain(const char *format, ...)
{
    char line[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    bench_say("%s", line);
}

static void log_read_rows(const struct bench *bench, struct rows *rows, struct log *out)
{
    static const struct load_options options = { 0 };
    struct progress progress;
    struct loader load = { .rows = rows, .options = &options, .progress = &progress };
    rows_start(rows);
    progress_start(&progress, true);
    bool is_read = load_file(&load, bench->log) == 0 && load_finish(&load);
    progress_clear(&progress);
    if (!is_read)
        bench_fail(
            "--log: cannot replay this file; it must be one that weir replay reads without options. Options named above\n"
            "are those of weir replay");
    if (rows->count == 0)
        bench_fail("--log: there are no requests in it");
    rows_sort(rows);
    const char *slash = strrchr(bench->log, '/');
    span_show(span_of(slash ? slash + 1 : bench->log), out->name, sizeof out->name);
    span_show(span_of(load.key_name), out->key_name, sizeof out->key_name);
}

static bool has_whole_seconds(const struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        if (rows->all[i].time_us % WEIR_SECOND != 0)
            return false;
    return true;
}

/* Return when row `i` came, in microseconds after the first. If times are whole seconds, `same` rows from `first` on
 * share a second. */
static double came_at(const struct rows *rows, size_t i, size_t first, size_t same)
{
    double us = (double)(rows->all[i].time_us - rows->all[0].time_us);
    return same == 0 ? us : us + (double)(i - first) * WEIR_SECOND / (double)same;
}

/* Fill in the requests at the log's own pace. */
static void fill_requests(const struct rows *rows, struct log *out)
{
    size_t first = 0, same = 0;
    out->is_spread = has_whole_seconds(rows);
    for (size_t i = 0; i < out->requests_len; i++) {
        if (out->is_spread && i == first + same)
            for (first = i, same = 1;
                 first + same < rows->count && rows->all[first + same].time_us == rows->all[first].time_us;)
                same++;
        out->requests[i] = (struct log_request){ .due_ns = (int64_t)(came_at(rows, i, first, same) * 1e3),
                                                 .key = rows->all[i].key,
                                                 .cost = rows->all[i].cost };
    }
}

static void count_keys(struct log *log)
{
    bool *seen = bench_allocate(log->keys_most, sizeof *seen);
    for (size_t i = 0; i < log->requests_len; i++) {
        log->keys += !seen[log->requests[i].key];
        seen[log->requests[i].key] = true;
    }
    free(seen);
}

static void choose_pace(const struct bench *bench, struct log *log)
{
    double own_seconds = (double)log->requests[log->requests_len - 1].due_ns / 1e9;
    double usual = bench->is_quick ? QUICK_SECONDS : USUAL_SECONDS;
    log->speed = bench->log_speed != 0 ? bench->log_speed : fmax(1, own_seconds / usual);
    log->seconds = own_seconds / log->speed;
    for (size_t i = 0; i < log->requests_len; i++)
        log->requests[i].due_ns = (int64_t)((double)log->requests[i].due_ns / log->speed);
}

static void shorten_policy(const struct bench *bench, struct log *log)
{
    char message[200] = "the period would be 0";
    if (weir_policy_parse(bench->log_policy, &log->policy, NULL, 0) != WEIR_OK)
        bench_fail("--log: its policy cannot be read");
    log->policy.period_us = llround((double)log->policy.period_us / log->speed);
    if (log->policy.period_us > 0 && weir_policy_check(&log->policy, message, sizeof message) == WEIR_OK)
        return;
    bench_fail("--policy: cannot be used for a log at %.6g times its own pace: %s", log->speed, message);
}

static void read_log(const struct bench *bench, struct log *out)
{
    struct rows rows;
    *out = (struct log){ .speed = 1 };
    log_read_rows(bench, &rows, out);
    size_t most = bench->is_quick ? QUICK_SECONDS * MAX_PER_SECOND : USUAL_SECONDS * MAX_PER_SECOND;
    out->requests_len = bench->log_speed == 0 && rows.count > most ? most : rows.count;
    out->left_out = rows.count - out->requests_len;
    out->requests = bench_allocate(out->requests_len, sizeof *out->requests);
    fill_requests(&rows, out);
    out->keys_most = rows.key_count;
    count_keys(out);
    rows_free(&rows);
    choose_pace(bench, out);
    shorten_policy(bench, out);
}

void bench_read_log(struct bench *bench)
{
    read_log(bench, &the_log);
}

/* ---- A replay ---- */

static void log_ask(struct replayer *replayer, const struct log_request *request)
{
    struct weir_decision decision;
    struct bench_key key;
    int64_t due_ns = replayer->replay->start_ns + request->due_ns;
    key_write(request->key, &key);
    due_wait(due_ns);
    int status = weir_try(replayer->replay->remote.limit, key_of(&key), request->cost, &decision);
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
        log_ask(replayer, &the_log.requests[i]);
    }
    return NULL;
}

static void run_replay(struct replay *replay, struct replayer *replayers, int replayers_len)
{
    pthread_t threads[MEASURE_MAX_THREADS];
    atomic_store(&replay->next, 0);
    replay->start_ns = clock_ns(CLOCK_MONOTONIC) + 10000000; /* time for them all to start */
    for (int i = 0; i < replayers_len; i++) {
        replayers[i] = (struct replayer){ .replay = replay };
        bench_thread(&threads[i], ask_in_turn, &replayers[i]);
    }
    for (int i = 0; i < replayers_len; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < replayers_len; i++) {
        replayers[0].allowed += replayers[i].allowed;
        replayers[0].denied += replayers[i].denied;
        replayers[0].failed += replayers[i].failed;
        hist_merge(&replayers[0].answer, &replayers[i].answer);
    }
}

/* ---- The rows ---- */

struct told { /* of a mode */
    double allowed_percent, denied, p50_us, p99_us, max_us, calls, failed;
};

static struct told log_tell(const struct replayer *all, const struct weir_stats *stats)
{
    double requests = (double)the_log.requests_len;
    return (struct told){ .allowed_percent = 100 * (double)all->allowed / requests,
                          .denied = (double)all->denied,
                          .p50_us = hist_quantile(&all->answer, 0.5) / 1e3,
                          .p99_us = hist_quantile(&all->answer, 0.99) / 1e3,
                          .max_us = (double)all->answer.max / 1e3,
                          .calls = (double)stats->store_calls / requests,
                          .failed = (double)all->failed };
}

/* Return the largest number of --threads. */
static int callers_of(const struct bench *bench)
{
    int most = bench->threads_len > 0 ? 1 : CALLERS;
    for (int i = 0; i < bench->threads_len; i++)
        most = bench->threads[i] > most ? bench->threads[i] : most;
    return most;
}

/* False if the mode's limiter cannot be opened. */
static bool log_measure_mode(struct modes *modes, enum weir_mode mode, struct told *out)
{
    static struct replayer replayers[MEASURE_MAX_THREADS];
    static struct replay replay;
    const int callers = callers_of(modes->bench);
    char limit[40];
    struct weir_stats before = { .size = sizeof before }, after = before;
    snprintf(limit, sizeof limit, "log-%s", modes_names[mode]);
    if (!modes_open(modes, mode, limit, &the_log.policy, &replay.remote))
        return false;
    replay.can_be_interrupted = modes_asks_redis(mode) && modes->store->is_users;
    if (modes_asks_redis(mode))
        user_store_remember(modes->store, limit, the_log.keys_most);
    weir_stats_read(replay.remote.weir, &before);
    bench_progress("the log, %s mode: it takes %.0f s", modes_names[mode], the_log.seconds);
    run_replay(&replay, replayers, callers);
    weir_stats_read(replay.remote.weir, &after);
    after.store_calls -= before.store_calls;
    remote_close(&replay.remote);
    *out = log_tell(&replayers[0], &after);
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
        { .figure = "Redis calls per request", .value = offsetof(struct told, calls), .is_of_redis = true },
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
            if (has[mode] && (modes_asks_redis((enum weir_mode)mode) || !rows[i].is_of_redis))
                report_value(modes, (enum weir_mode)mode, values[mode], rows[i].is_count);
    }
}

static void report_log(const struct modes *modes)
{
    struct report *report = modes->bench->report;
    char text[380], speed[24], left_out[120] = "";
    number_show(speed, sizeof speed, the_log.speed);
    snprintf(text, sizeof text, "The log %s: %zu requests, %zu key%s, at %s times its own pace", the_log.name,
             the_log.requests_len, the_log.keys, the_log.keys == 1 ? "" : "s", speed);
    report_heading(report, text);
    if (the_log.left_out > 0)
        snprintf(left_out, sizeof left_out, "; %zu later requests are left out; --speed takes them all",
                 the_log.left_out);
    snprintf(text, sizeof text, "the log: %s%s %s '%s'%s%s%s; latency is from when a request was due",
             the_log.key_name[0] ? "each " : "all requests together", the_log.key_name,
             the_log.key_name[0] ? "has" : "have", modes->bench->log_policy,
             the_log.speed == 1 ? "" : ", its period shortened like time, but not the life of leases",
             the_log.is_spread ? "; requests of one second are spread evenly over it" : "", left_out);
    report_note(report, text);
}

void modes_log(struct modes *modes)
{
    struct told told[MODES] = { { 0 } };
    bool has[MODES] = { false };
    if (!modes->bench->log)
        return;
    report_log(modes);
    bench_step("the log");
    measure_unpin_main();
    for (int mode = 0; mode < MODES; mode++)
        has[mode] = modes->is_chosen[mode] && log_measure_mode(modes, (enum weir_mode)mode, &told[mode]);
    measure_pin_main();
    report_told(modes, told, has);
}
