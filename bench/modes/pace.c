/* pace.c - latency of requests that come at random times: an open loop.
 *
 * Due times are drawn in advance (a Poisson process with a fixed seed). A request's latency runs from its due time to
 * its answer. So the time that requests wait behind others counts, and a slow answer delays no later request, as it
 * would if callers waited for each answer.
 *
 * One thread watches the clock and submits due requests by weir_submit(), however many are under way. An answer that
 * comes later is timed when weir delivers it. So no sleeping thread's wake-up is measured. While
 * nothing is due, the thread offers its processor to weir's own thread (sched_yield()). The floor is what the machine
 * itself adds: the same loop with a call that does nothing.
 *
 * A mode cannot sustain a rate if the number of requests under way keeps growing. At a rate that it sustains, there are
 * only as many as come during one latency. The answers that come after the last due time tell the two apart.
 */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/hist.h"
#include "measure/timer.h"
#include "modes/modes.h"
#include "redis/user_store.h"

#define LIMIT "pace"
#define KEYS 100000
#define QUICK_KEYS 1000
#define RATES 5
#define USUAL_RATE 1   /* of the terminal and the verdict */
#define LENGTH 2.5     /* of a repetition, relative to those of the other parts */
#define FEW 500        /* the least number of requests, unless --quick */
#define LEAD 0.8       /* of a repetition: a hybrid limiter runs so long before it, unmeasured, to warm its leases */
#define LATE_MOST 0.02 /* part of all requests */
#define LATE_FEW 64    /* so few prove nothing */
#define SEED 20

static const struct rate {
    int per_second;
    const char *name;
    bool is_in_table; /* the others appear only in the curves */
} ALL_RATES[RATES] = { { 1000, "1,000", true },
                       { 10000, "10,000", true },
                       { 30000, "30,000", false },
                       { 60000, "60,000", false },
                       { 100000, "100,000", true } };

struct request {
    struct weir_op op;
    int64_t due_ns, done_ns; /* since the start */
};

struct pace {                    /* a mode, or the floor, at a rate */
    const struct remote *remote; /* NULL: the floor */
    bool leads;
    int rate;
    struct hist all, now; /* of all repetitions, and of one */
    struct sample p50_us, p99_us, late;
    struct sample calls, server_us; /* of Redis, per million requests and per request */
    uint64_t failed;
};

/* The current repetition. */
static struct {
    struct request *requests;
    size_t requests_len;
    int64_t start_ns;
    atomic_size_t answered;
    atomic_size_t failed;
    unsigned sources;
} run;

/* What an operator writes for each client. */
static const struct weir_policy policy = { .limit = 100, .period_us = WEIR_MINUTE };

static struct pace paces[RATES][MODES + 1];

/* ---- Requests ---- */

static void on_answer(struct weir_op *op, int status)
{
    struct request *request = (struct request *)op; /* its first member */
    request->done_ns = clock_ns(CLOCK_MONOTONIC) - run.start_ns;
    if (status != WEIR_OK)
        load_complain("weir_submit", weir_strerror(status));
    if (status != WEIR_OK || (run.sources >> op->decision.source & 1) == 0)
        atomic_fetch_add(&run.failed, 1);
    atomic_fetch_add(&run.answered, 1);
}

/* Draw the same requests for each mode, and others for each repetition. */
static void draw_requests(const struct pace *pace, const struct stream *stream, int repeat, double seconds)
{
    uint64_t random = (uint64_t)(SEED + repeat) << 32 | (uint64_t)pace->rate;
    double due_ns = 0;
    run.requests_len = (size_t)(seconds * pace->rate) + 1;
    const size_t first = (size_t)repeat * run.requests_len;
    memset(run.requests, 0, run.requests_len * sizeof *run.requests);
    for (size_t i = 0; i < run.requests_len; i++) {
        struct request *request = &run.requests[i];
        due_ns += random_gap_ns(&random, pace->rate);
        request->due_ns = (int64_t)due_ns;
        request->op.done = on_answer;
        request->op.request = (struct weir_request){ .key = key_of(&stream->draws[(first + i) % stream->len]),
                                                     .cost = 1 };
        if (pace->remote)
            request->op.request.limit = pace->remote->limit;
    }
}

static void hand_in(const struct pace *pace, struct request *request)
{
    int status = pace->remote ? weir_submit(pace->remote->weir, &request->op) : WEIR_OK;
    if (status != 1)
        on_answer(&request->op, status);
}

/* ---- A repetition ---- */

static void run_requests(const struct pace *pace)
{
    atomic_store(&run.answered, 0);
    atomic_store(&run.failed, 0);
    run.sources = pace->remote ? pace->remote->sources : ~0u;
    run.start_ns = clock_ns(CLOCK_MONOTONIC);
    for (size_t i = 0; i < run.requests_len; i++) {
        while (clock_ns(CLOCK_MONOTONIC) - run.start_ns < run.requests[i].due_ns)
            sched_yield();
        hand_in(pace, &run.requests[i]);
        user_store_heed_interrupt();
    }
    while (atomic_load(&run.answered) < run.requests_len) /* each is answered within REMOTE_PATIENCE_US */
        sched_yield();
}

static void pace_add_repetition(struct pace *pace)
{
    const int64_t last_ns = run.requests[run.requests_len - 1].due_ns;
    size_t late = 0;
    hist_clear(&pace->now);
    for (size_t i = 0; i < run.requests_len; i++) {
        const struct request *request = &run.requests[i];
        hist_add(&pace->now, (uint64_t)(request->done_ns - request->due_ns));
        late += request->done_ns > last_ns;
    }
    hist_merge(&pace->all, &pace->now);
    sample_add(&pace->p50_us, hist_quantile(&pace->now, 0.5) / 1e3);
    sample_add(&pace->p99_us, hist_quantile(&pace->now, 0.99) / 1e3);
    sample_add(&pace->late, late < LATE_FEW ? 0 : (double)late / (double)run.requests_len);
    pace->failed += run.failed;
}

static struct load_cost run_drawn(const struct modes *modes, const struct pace *pace)
{
    weir *limiter = pace->remote ? pace->remote->weir : NULL;
    const struct load_cost before = load_cost_so_far(modes->store, limiter);
    run_requests(pace);
    return load_cost_since(&before, modes->store, limiter);
}

static void pace_run(const struct modes *modes, struct pace *pace, const struct stream *stream, int repeat,
                     double seconds)
{
    if (pace->leads) {
        draw_requests(pace, stream, repeat + MEASURE_MAX_REPEATS, LEAD * seconds);
        run_requests(pace);
    }
    draw_requests(pace, stream, repeat, seconds);
    struct load_cost cost = run_drawn(modes, pace);
    for (int attempt = 1; load_was_disturbed(&cost, seconds) && measure_again(attempt); attempt++) {
        draw_requests(pace, stream, repeat, seconds);
        cost = run_drawn(modes, pace);
    }
    if (cost.server_us >= 0)
        sample_add(&pace->server_us, cost.server_us / (double)run.requests_len);
    sample_add(&pace->calls, cost.store_calls * 1e6 / (double)run.requests_len);
    pace_add_repetition(pace);
}

/* ---- The part of the table ---- */

static bool keeps_up(const struct pace *pace)
{
    return sample_median(&pace->late) <= LATE_MOST;
}

/* Report a row: each mode's value and the floor's, or why there is none. */
static void pace_report_row(const struct modes *modes, int rate, const char *figure,
                            struct sample (*look)(const struct pace *pace))
{
    modes_row(modes, figure);
    for (int place = 0; place <= MODES; place++) {
        const struct pace *pace = &paces[rate][place];
        char text[40];
        if (pace->p50_us.n == 0)
            continue;
        const struct sample sample = look(pace);
        snprintf(text, sizeof text, "%llu failed", (unsigned long long)pace->failed);
        if (place == MODES)
            modes_floor(modes, &sample, "a call that does nothing");
        else if (pace->failed > 0)
            modes_text(modes, (enum weir_mode)place, text);
        else if (!keeps_up(pace))
            modes_text(modes, (enum weir_mode)place, "queue grows");
        else
            modes_figure(modes, (enum weir_mode)place, &sample);
    }
}

static struct sample p50_of(const struct pace *pace)
{
    return pace->p50_us;
}

static struct sample p99_of(const struct pace *pace)
{
    return pace->p99_us;
}

/* All repetitions together: one has too few requests for a p99.9. */
static struct sample p999_of(const struct pace *pace)
{
    return (struct sample){ .n = 1, .values = { hist_quantile(&pace->all, 0.999) / 1e3 } };
}

/* Report the calls to Redis at this rate: what leases save depends on how often a key is requested. */
static void report_calls(const struct modes *modes, int rate)
{
    const char *const names[2] = { "Redis calls per million", "Redis CPU us per request" };
    char figure[64];
    for (int which = 0; which < 2; which++) {
        snprintf(figure, sizeof figure, "%s a second: %s", ALL_RATES[rate].name, names[which]);
        modes_row(modes, figure);
        for (int mode = 0; mode < MODES; mode++) {
            const struct sample *sample = which == 0 ? &paces[rate][mode].calls : &paces[rate][mode].server_us;
            if (!modes->is_chosen[mode])
                continue;
            if (modes_asks_redis((enum weir_mode)mode) && sample->n > 0)
                modes_figure(modes, (enum weir_mode)mode, sample);
            else
                modes_text(modes, (enum weir_mode)mode, modes_asks_redis((enum weir_mode)mode) ? "unknown" : "none");
        }
        if (rate != USUAL_RATE)
            report_detail(modes->bench->report);
    }
}

static void report_latency(const struct modes *modes, int rate)
{
    static const struct {
        const char *name;
        struct sample (*look)(const struct pace *pace);
        bool is_detail;
    } looks[] = { { "p50", p50_of, false }, { "p99", p99_of, false }, { "p99.9", p999_of, true } };
    char figure[64];
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        snprintf(figure, sizeof figure, "%s a second: %s", ALL_RATES[rate].name, looks[i].name);
        pace_report_row(modes, rate, figure, looks[i].look);
        if (looks[i].is_detail || rate != USUAL_RATE)
            report_detail(modes->bench->report);
    }
}

static void pace_draw(const struct modes *modes, const char *title, const char *y,
                      struct sample (*look)(const struct pace *pace), bool has_floor)
{
    const struct report_curves curves = {
        .title = title, .x = "requests a second", .y = y, .is_log_x = true, .is_log_y = true
    };
    modes_curves(modes, curves, has_floor ? "floor" : NULL);
    for (int rate = 0; rate < RATES; rate++) {
        double values[MODES + 1];
        int n = 0;
        for (int place = 0; place <= MODES; place++) {
            const struct sample sample = look(&paces[rate][place]);
            if (place == MODES || modes->is_chosen[place])
                values[n++] = sample.n > 0 && keeps_up(&paces[rate][place]) ? sample_median(&sample) : NAN;
        }
        report_point(modes->bench->report, ALL_RATES[rate].per_second, values);
    }
}

static struct sample calls_of(const struct pace *pace)
{
    return pace->calls;
}

static void pace_report(const struct modes *modes)
{
    char heading[128];
    snprintf(heading, sizeof heading,
             "Latency, us, from when a request is due: 100 a minute for each of %d,000 clients by Zipf",
             (modes->bench->is_quick ? QUICK_KEYS : KEYS) / 1000);
    report_heading(modes->bench->report, heading);
    for (int rate = 0; rate < RATES; rate++)
        if (ALL_RATES[rate].is_in_table)
            report_latency(modes, rate);
    for (int rate = 0; rate < RATES; rate++)
        if (ALL_RATES[rate].is_in_table && modes->store)
            report_calls(modes, rate);
    pace_draw(modes, "Latency, p99", "microseconds", p99_of, true);
    if (modes->store)
        pace_draw(modes, "What it costs Redis", "calls per million requests", calls_of, false);
}

static void pace_open_mode(struct modes *modes, enum weir_mode mode, struct remote *remote)
{
    if (measure_processors() > 2) /* weir's own thread need not wait for the one that watches the clock */
        measure_unpin_main();
    if (modes_open(modes, mode, LIMIT, &policy, remote) && modes_asks_redis(mode))
        user_store_remember(modes->store, LIMIT, modes->bench->is_quick ? QUICK_KEYS : KEYS);
    measure_pin_main();
}

static double length_at(const struct bench *bench, int rate)
{
    const double few = bench->is_quick ? 0 : (double)FEW / ALL_RATES[rate].per_second;
    return fmax(LENGTH * bench->seconds, few);
}

static void pace_measure(const struct modes *modes, const struct stream *stream)
{
    for (int repeat = 0; repeat < modes->bench->repeats; repeat++) {
        bench_step("latency, repetition %d", repeat + 1);
        for (int rate = 0; rate < RATES; rate++) {
            bench_progress("latency at %s requests a second, repetition %d", ALL_RATES[rate].name, repeat + 1);
            for (int i = 0; i <= MODES; i++) {
                const int place = repeat % 2 == 0 ? i : MODES - i;
                if (place == MODES || modes->is_chosen[place])
                    pace_run(modes, &paces[rate][place], stream, repeat, length_at(modes->bench, rate));
            }
        }
    }
}

void modes_pace(struct modes *modes)
{
    struct remote remotes[MODES];
    struct stream stream;
    stream_make(&stream, modes->bench->is_quick ? QUICK_KEYS : KEYS);
    size_t most = 0;
    for (int rate = 0; rate < RATES; rate++)
        most = (size_t)fmax((double)most, length_at(modes->bench, rate) * ALL_RATES[rate].per_second + 1);
    run.requests = bench_allocate(most, sizeof *run.requests);
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            pace_open_mode(modes, (enum weir_mode)mode, &remotes[mode]);
    memset(paces, 0, sizeof paces);
    for (int rate = 0; rate < RATES; rate++)
        for (int place = 0; place <= MODES; place++) {
            paces[rate][place].rate = ALL_RATES[rate].per_second;
            paces[rate][place].leads = place == WEIR_HYBRID;
            paces[rate][place].remote = place < MODES ? &remotes[place] : NULL;
        }
    pace_measure(modes, &stream);
    pace_report(modes);
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            remote_close(&remotes[mode]);
    free(run.requests);
    stream_free(&stream);
}
