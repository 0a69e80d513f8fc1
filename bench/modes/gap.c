/* gap.c - Redis dies while requests keep coming, and comes back: the effect in each mode.
 *
 * The server is killed as by kill -9 and restarted some seconds later with its data: it writes each change to its
 * append-only file before it answers. (A restart without data forgives each key its used permits once.) This part has
 * its own server, because others are measured on the shared one.
 *
 * Each mode has as many instances as --instances says. They are limiters of this process that know only their number.
 * Each instance of each mode gets the same requests at the same times: an open loop, see due_wait(). All modes run at
 * once.
 */
#include "modes/gap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure/timer.h"

#define MAX_GAPS 2 /* each takes 5 seconds */

struct course { /* in seconds */
    double before, away, after;
};
static const struct course USUAL = { 1.2, 1.8, 2.0 };
static const struct course QUICK = { 0.15, 0.25, 0.4 };

/* ---- Requests ---- */

/* Draw when a caller's visits are due, from 0, and their keys. */
static void draw_visits(struct visitor *visitor, int caller, double per_second, double seconds)
{
    uint64_t random = (uint64_t)caller + 1;                 /* the same in each mode */
    size_t room = (size_t)(per_second * seconds * 2) + 100; /* about half as many come */
    visitor->visits = bench_allocate(room, sizeof *visitor->visits);
    double due_ns = random_gap_ns(&random, per_second);
    for (visitor->visits_len = 0; due_ns < seconds * 1e9 && visitor->visits_len < room; visitor->visits_len++) {
        struct visit *visit = &visitor->visits[visitor->visits_len];
        visit->due_ns = (int64_t)due_ns;
        visit->instance = caller / GAP_CALLERS;
        visit->key = (int)(random_fraction(&random) * GAP_KEYS);
        due_ns += random_gap_ns(&random, per_second);
    }
}

static void *ask_when_due(void *argument)
{
    const struct visitor *visitor = argument;
    for (size_t i = 0; i < visitor->visits_len; i++) {
        struct visit *visit = &visitor->visits[i];
        struct bench_key key;
        struct weir_decision decision = { .allowed = false };
        key_write((uint64_t)visit->key, &key);
        visit->start_ns = due_wait(visit->due_ns);
        int status = weir_try(visitor->limit, key_of(&key), 1, &decision);
        visit->end_ns = clock_ns(CLOCK_MONOTONIC);
        visit->is_failed = status != WEIR_OK;
        visit->is_allowed = decision.allowed;
        visit->source = decision.source;
        if (visit->is_failed)
            load_complain("weir_try while Redis is away", weir_strerror(status));
    }
    return NULL;
}

/* ---- The course of it ---- */

static bool gap_open_instances(struct gap *gap, enum weir_mode mode, const struct store *store)
{
    static const struct weir_policy policy = {
        .algorithm = WEIR_TOKEN_BUCKET, .limit = GAP_LIMIT, .period_us = WEIR_SECOND, .burst = GAP_BURST
    };
    struct weir_options options = remote_options(mode);
    if (mode != WEIR_MACHINE) { /* there, all count together */
        options.on_failure = WEIR_FAIL_LOCAL;
        options.timeout_us = GAP_TIMEOUT_MS * 1000;
        options.instances = gap->instances;
    }
    options.shared = gap->shared;
    for (int i = 0; i < gap->instances; i++) {
        options.rank = mode == WEIR_MACHINE ? 0 : i;
        if (!remote_open(&gap->remotes[mode][i], store, &options, modes_names[mode], &policy))
            return false;
    }
    return true;
}

static void draw_all(const struct modes *modes, struct gap *gap, double seconds)
{
    int callers = GAP_CALLERS * gap->instances;
    double per_second = (double)(GAP_LIMIT * GAP_KEYS * GAP_DEMAND) / callers;
    for (int mode = 0; mode < MODES; mode++)
        for (int i = 0; modes->is_chosen[mode] && i < callers; i++) {
            gap->visitors[mode][i].limit = gap->remotes[mode][i / GAP_CALLERS].limit;
            draw_visits(&gap->visitors[mode][i], i, per_second, seconds);
        }
}

static void begin_visits(struct gap *gap, struct visitor *visitor, pthread_t *thread)
{
    for (size_t i = 0; i < visitor->visits_len; i++)
        visitor->visits[i].due_ns += gap->start_ns;
    bench_thread(thread, ask_when_due, visitor);
}

/* False if the server did not come back. */
static bool run_course(struct gap *gap, struct redis_server *server, const struct course *course)
{
    pthread_t threads[MODES * GAP_MAX_CALLERS];
    int threads_len = 0;
    gap->start_ns = clock_ns(CLOCK_MONOTONIC) + 10000000; /* time for all of them to start */
    for (int mode = 0; mode < MODES; mode++)
        for (int i = 0; i < GAP_MAX_CALLERS && gap->visitors[mode][i].visits; i++)
            begin_visits(gap, &gap->visitors[mode][i], &threads[threads_len++]);
    due_wait(gap->start_ns + (int64_t)(course->before * 1e9));
    gap->dead_ns = clock_ns(CLOCK_MONOTONIC);
    redis_server_kill(server);
    due_wait(gap->start_ns + (int64_t)((course->before + course->away) * 1e9));
    bool is_back = redis_server_restart(server) == 0;
    gap->back_ns = clock_ns(CLOCK_MONOTONIC);
    while (threads_len > 0)
        pthread_join(threads[--threads_len], NULL);
    gap->end_ns = clock_ns(CLOCK_MONOTONIC);
    return is_back;
}

static void gap_close(struct gap *gap)
{
    for (int mode = 0; mode < MODES; mode++) {
        for (int i = 0; i < gap->instances; i++)
            if (gap->remotes[mode][i].weir)
                remote_close(&gap->remotes[mode][i]);
        for (int i = 0; i < GAP_MAX_CALLERS; i++)
            free(gap->visitors[mode][i].visits);
    }
}

/* Measure one gap. Return NULL, or why it could not be measured. */
static const char *measure_gap(const struct modes *modes, const struct course *course, struct gap_found found[MODES],
                               bool is_last)
{
    static const char *const keeps_all[] = { "--appendonly", "yes", "--appendfsync", "no", NULL };
    static struct store store;
    static struct gap gap;
    const char *why = NULL;
    gap = (struct gap){ .instances = modes->bench->instances };
    store = (struct store){ .keys = 0 };
    if (redis_server_start(&store.server, REDIS_SERVER_UNIX, keeps_all) != 0) {
        bench_say("Redis cannot be killed: %s", store.server.daemon.error);
        return "there is no server to kill";
    }
    snprintf(store.url, sizeof store.url, "%s", store.server.url);
    gap.shared_fd = remote_shared(gap.shared);
    for (int mode = 0; mode < MODES && !why; mode++)
        if (modes->is_chosen[mode] && !gap_open_instances(&gap, (enum weir_mode)mode, &store))
            why = remote_complaint();
    if (!why) {
        draw_all(modes, &gap, course->before + course->away + course->after);
        if (!run_course(&gap, &store.server, course))
            why = "the server did not start again";
    }
    for (int mode = 0; mode < MODES && !why; mode++)
        if (modes->is_chosen[mode])
            gap_find(&gap, (enum weir_mode)mode, &found[mode]);
    if (!why && is_last)
        gap_draw(modes, &gap);
    gap_close(&gap);
    close(gap.shared_fd);
    redis_server_stop(&store.server);
    return why;
}

/* ---- The rows ---- */

static void gap_report_row(const struct modes *modes, const char *figure, const struct gap_found found[MODES],
                           size_t sample)
{
    modes_row(modes, figure);
    for (int mode = 0; mode < MODES; mode++) {
        const struct sample *values = (const void *)((const char *)&found[mode] + sample);
        if (modes->is_chosen[mode] && values->n > 0)
            modes_figure(modes, (enum weir_mode)mode, values);
    }
}

static void report_failures(const struct modes *modes, const struct gap_found found[MODES])
{
    char text[40];
    bool any = false;
    for (int mode = 0; mode < MODES; mode++)
        any = any || found[mode].failed + found[mode].never > 0;
    if (!any)
        return;
    modes_row(modes, "failed calls; instances that did not return");
    for (int mode = 0; mode < MODES; mode++) {
        snprintf(text, sizeof text, "%llu; %llu", (unsigned long long)found[mode].failed,
                 (unsigned long long)found[mode].never);
        if (modes->is_chosen[mode])
            modes_text(modes, (enum weir_mode)mode, text);
    }
}

static void report_found(const struct modes *modes, const struct gap_found found[MODES])
{
    static const struct {
        const char *figure;
        size_t sample;
    } rows[] = {
        { "longest call, ms (timeout 50)", offsetof(struct gap_found, longest_ms) },
        { "p99 while it is away, us", offsetof(struct gap_found, p99_us) },
        { "until Redis decides again, ms, last instance", offsetof(struct gap_found, last_ms) },
        { "admitted while it is away, % of the limit", offsetof(struct gap_found, away_percent) },
        { "largest excess of a key, permits", offsetof(struct gap_found, over) },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        gap_report_row(modes, rows[i].figure, found, rows[i].sample);
    report_failures(modes, found);
}

int gap_count(const struct modes *modes)
{
    const struct bench *bench = modes->bench;
    if (bench->redis_url || (!modes->is_chosen[WEIR_DISTRIBUTED] && !modes->is_chosen[WEIR_HYBRID]))
        return 0; /* the other modes have no Redis to lose */
    return bench->repeats < MAX_GAPS ? bench->repeats : MAX_GAPS;
}

void modes_gap(struct modes *modes)
{
    static struct gap_found found[MODES];
    const struct bench *bench = modes->bench;
    const struct course *course = bench->is_quick ? &QUICK : &USUAL;
    const int gaps = gap_count(modes);
    const char *why = NULL;
    char words[300];
    if (bench->redis_url)
        report_note(bench->report, "Redis dies: not measured: the benchmark must not stop the user's server.");
    if (gaps == 0)
        return;
    snprintf(words, sizeof words,
             "Redis dies and is back after %.3g s with its data; %d instances, demand twice the limit", course->away,
             bench->instances);
    report_heading(bench->report, words);
    memset(found, 0, sizeof found);
    measure_unpin_main();
    for (int i = 0; i < gaps && !why; i++) {
        bench_step("Redis dies and comes back, %d of %d", i + 1, gaps);
        why = measure_gap(modes, course, found, i + 1 == gaps);
    }
    measure_pin_main();
    if (!why)
        report_found(modes, found);
    snprintf(words, sizeof words, "Redis dies: not measured: %s", why ? why : "");
    report_note(bench->report,
                why ? words
                    : "Redis dies: each instance notices by itself that Redis is back. Until then a late "
                      "instance admits its share of the rate, in addition to the others; that shows as "
                      "excess.");
}
