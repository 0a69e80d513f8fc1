/* accuracy.c - what several processes that share a limit admit of it, in each mode, compared with one exact limiter.
 *
 * All cells run at once, each with its own keys. A cell says how traffic is dealt to the processes, how much of it
 * there is, and for which limit. One limit is a fixed window that outlasts the run, so the right number is known to the
 * permit. The other is a token bucket, compared with one limiter that gets all requests in the order in which they
 * came. A row shows the worst of all demands.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "modes/instances.h"
#include "redis/user_store.h"

#define RUNS_MOST 3
#define WINDOW_US (30 * WEIR_SECOND) /* longer than a run; expired on a user's server within a minute */
#define BUCKET_RATE 200              /* a second */
#define BUCKET_BURST 50

enum { WINDOW, BUCKET, LIMITS };
enum { EVEN, UNEVEN, HOT, TRAFFICS };        /* 1:1:1, 3:1:1, 1:0:0 */
static const double demands[] = { 1, 2, 4 }; /* times the limit */
#define DEMANDS ((int)(sizeof demands / sizeof *demands))
#define CELLS (LIMITS * TRAFFICS * DEMANDS)

struct outcome {                 /* of a cell */
    struct sample unused[MODES]; /* percent of the right number, one value per run */
    double over[MODES];          /* permits beyond the limit in any stretch of time: the worst of all runs */
};

struct accuracy {
    struct modes *modes;
    int runs;
    int64_t length_us, window_permits;
    struct instances_cell cells[CELLS];
    struct instances_limit limits[LIMITS];
    struct outcome outcomes[CELLS];
    double hybrid_over_max; /* of the bucket: the bound that hybrid mode states */
};

/* ---- What is asked ---- */

static int cell_of(int limit, int traffic, int demand)
{
    return (limit * TRAFFICS + traffic) * DEMANDS + demand;
}

int accuracy_runs(const struct bench *bench)
{
    return bench->is_quick ? 1 : bench->repeats < RUNS_MOST ? bench->repeats : RUNS_MOST;
}

static void set_scale(struct accuracy *accuracy)
{
    const struct bench *bench = accuracy->modes->bench;
    accuracy->runs = accuracy_runs(bench);
    accuracy->length_us = bench->is_quick ? 300000 : 3 * WEIR_SECOND;
    accuracy->window_permits = bench->is_quick ? 60 : 1000;
    for (int i = 0; i < CELLS; i++)
        accuracy->cells[i].limit = i / (TRAFFICS * DEMANDS);
    accuracy->limits[WINDOW] = (struct instances_limit){
        .name = "bench-window",
        .policy = { .algorithm = WEIR_FIXED_WINDOW, .limit = accuracy->window_permits, .period_us = WINDOW_US },
    };
    accuracy->limits[BUCKET] = (struct instances_limit){
        .name = "bench-bucket",
        .policy = { .limit = BUCKET_RATE, .period_us = WEIR_SECOND, .burst = BUCKET_BURST },
    };
}

static size_t requests_of(const struct accuracy *accuracy, int cell)
{
    const double limit = accuracy->cells[cell].limit == WINDOW ? (double)accuracy->window_permits
                                                               : BUCKET_RATE * (double)accuracy->length_us / 1e6;
    return (size_t)(limit * demands[cell % DEMANDS]);
}

static void accuracy_draw(const struct accuracy *accuracy, struct instances *all, int run)
{
    size_t drawn = 0;
    for (int i = 0; i < CELLS; i++) {
        const int traffic = i / DEMANDS % TRAFFICS;
        const size_t n = requests_of(accuracy, i);
        int weights[BENCH_MAX_INSTANCES] = { traffic == UNEVEN ? 3 : 1 };
        for (int other = 1; traffic != HOT && other < all->n; other++)
            weights[other] = 1;
        traffic_draw(all->arrivals + drawn, n, i, accuracy->length_us, weights, (uint64_t)(run * CELLS + i + 1));
        drawn += n;
    }
    traffic_sort(all->arrivals, drawn);
}

/* ---- What came of it ---- */

static void add_admitted(struct outcome *outcome, enum weir_mode mode, size_t admitted, double exact)
{
    sample_add(&outcome->unused[mode], fmax(0, 100 - 100 * (double)admitted / exact));
}

static void judge_window(struct accuracy *accuracy, const struct instances *all, int cell, struct admit *admits)
{
    struct outcome *outcome = &accuracy->outcomes[cell];
    const double permits = (double)accuracy->window_permits;
    const double exact = fmin(permits, (double)requests_of(accuracy, cell));
    for (int mode = 0; mode < MODES; mode++) {
        if (!accuracy->modes->is_chosen[mode])
            continue;
        const size_t admitted = traffic_admits(all->arrivals, all->arrivals_len, (enum weir_mode)mode, cell, admits);
        add_admitted(outcome, (enum weir_mode)mode, admitted, exact);
        outcome->over[mode] = fmax(outcome->over[mode], (double)admitted - permits);
    }
}

static int by_time(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Return what one limiter admits if it gets each request at the time when its instance made it in that mode. */
static size_t admit_exactly(weir_limit *limit, const struct instances *all, enum weir_mode mode, int cell)
{
    int64_t *times = bench_allocate(all->arrivals_len + 1, sizeof *times);
    char key[32];
    size_t n = 0, admitted = 0;
    snprintf(key, sizeof key, "%d-%d", cell, (int)mode);
    for (size_t i = 0; i < all->arrivals_len; i++)
        if (all->arrivals[i].cell == cell)
            times[n++] = all->arrivals[i].asked[mode].start_us;
    qsort(times, n, sizeof *times, by_time);
    for (size_t i = 0; i < n; i++) {
        struct weir_decision decision = { .allowed = false };
        weir_try_at(limit, weir_key_text(key), 1, times[i] + WEIR_SECOND, &decision);
        admitted += decision.allowed;
    }
    free(times);
    return admitted;
}

static void judge_bucket(struct accuracy *accuracy, const struct instances *all, weir_limit *exact, int cell,
                         struct admit *admits)
{
    struct outcome *outcome = &accuracy->outcomes[cell];
    for (int mode = 0; mode < MODES; mode++) {
        if (!accuracy->modes->is_chosen[mode])
            continue;
        const size_t admitted = traffic_admits(all->arrivals, all->arrivals_len, (enum weir_mode)mode, cell, admits);
        add_admitted(outcome, (enum weir_mode)mode, admitted,
                     (double)admit_exactly(exact, all, (enum weir_mode)mode, cell));
        const double burst = traffic_burst(admits, admitted, BUCKET_RATE);
        outcome->over[mode] = fmax(outcome->over[mode], burst - BUCKET_BURST);
    }
}

static void accuracy_judge(struct accuracy *accuracy, const struct instances *all)
{
    struct remote exact;
    const struct weir_options options = remote_options(WEIR_LOCAL);
    struct admit *admits = bench_allocate(all->arrivals_len + 1, sizeof *admits);
    remote_open(&exact, NULL, &options, accuracy->limits[BUCKET].name, &accuracy->limits[BUCKET].policy);
    for (int cell = 0; cell < CELLS; cell++) {
        if (accuracy->cells[cell].limit == WINDOW)
            judge_window(accuracy, all, cell, admits);
        else
            judge_bucket(accuracy, all, exact.limit, cell, admits);
    }
    remote_close(&exact);
    free(admits);
}

static void accuracy_run(struct accuracy *accuracy, int run)
{
    struct instances all = { .modes = accuracy->modes,
                             .run = run,
                             .n = accuracy->modes->bench->instances,
                             .limits = accuracy->limits,
                             .limits_len = LIMITS,
                             .cells = accuracy->cells,
                             .cells_len = CELLS };
    size_t requests = 0;
    bench_step("accuracy: %d processes, run %d of %d", all.n, run + 1, accuracy->runs);
    for (int i = 0; i < CELLS; i++)
        requests += requests_of(accuracy, i);
    instances_map(&all, requests);
    accuracy_draw(accuracy, &all, run);
    instances_run(&all);
    accuracy->hybrid_over_max = (double)all.board->hybrid[BUCKET].over_max;
    accuracy_judge(accuracy, &all);
    instances_unmap(&all);
}

/* ---- The rows ---- */

/* Return the largest unused part over all demands, one value per run. */
static struct sample worst_unused(const struct accuracy *accuracy, int limit, int traffic, int mode)
{
    struct sample worst = { .n = accuracy->runs };
    for (int demand = 0; demand < DEMANDS; demand++)
        for (int run = 0; run < accuracy->runs; run++)
            worst.values[run] = fmax(worst.values[run],
                                     accuracy->outcomes[cell_of(limit, traffic, demand)].unused[mode].values[run]);
    return worst;
}

static void report_limit(const struct accuracy *accuracy, int limit)
{
    static const char *const uneven[] = { "3:1", "3:1:1", "3:1:..:1" };
    const struct modes *modes = accuracy->modes;
    const int n = modes->bench->instances;
    const char *const names[TRAFFICS] = { "dealt evenly", uneven[n <= 3 ? n - 2 : 2], "all to one" };
    char figure[64];
    for (int traffic = 0; traffic < TRAFFICS; traffic++) {
        snprintf(figure, sizeof figure, "%s: unused, %%", names[traffic]);
        modes_row(modes, figure);
        for (int mode = 0; mode < MODES; mode++) {
            const struct sample worst = worst_unused(accuracy, limit, traffic, mode);
            if (modes->is_chosen[mode])
                modes_figure(modes, (enum weir_mode)mode, &worst);
        }
    }
    modes_row(modes, "largest excess, permits");
    for (int mode = 0; mode < MODES; mode++) {
        struct sample most = { .n = 1 };
        for (int cell = cell_of(limit, 0, 0); cell < cell_of(limit + 1, 0, 0); cell++)
            most.values[0] = fmax(most.values[0], floor(accuracy->outcomes[cell].over[mode] + 1e-6));
        if (modes->is_chosen[mode])
            modes_figure(modes, (enum weir_mode)mode, &most);
    }
    const struct sample stated = { .n = 1, .values = { accuracy->hybrid_over_max } };
    if (limit == BUCKET && modes->is_chosen[WEIR_HYBRID])
        modes_floor(modes, &stated, "what hybrid mode states");
}

static void accuracy_report(const struct accuracy *accuracy)
{
    struct report *report = accuracy->modes->bench->report;
    char heading[160];
    snprintf(heading, sizeof heading,
             "Accuracy, windows of %lld permits that %d processes share: the worst of demand 1, 2, 4",
             (long long)accuracy->window_permits, accuracy->modes->bench->instances);
    report_heading(report, heading);
    report_limit(accuracy, WINDOW);
    snprintf(heading, sizeof heading, "Accuracy, token bucket of %d a second, burst %d, likewise", BUCKET_RATE,
             BUCKET_BURST);
    report_heading(report, heading);
    report_limit(accuracy, BUCKET);
}

void modes_accuracy(struct modes *modes)
{
    struct accuracy *accuracy = bench_allocate(1, sizeof *accuracy);
    accuracy->modes = modes;
    set_scale(accuracy);
    for (int i = 0; i < LIMITS; i++)
        user_store_remember(modes->store, accuracy->limits[i].name, instances_keys(CELLS, accuracy->runs));
    measure_unpin_main();
    for (int run = 0; run < accuracy->runs; run++)
        accuracy_run(accuracy, run);
    measure_pin_main();
    accuracy_report(accuracy);
    free(accuracy);
}
