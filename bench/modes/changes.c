/* changes.c - one of several processes that share a limit is killed, and later one starts: how much they admit then.
 *
 * Requests ask for twice the limit, and the balancer notices a change immediately, so the limiter alone is responsible
 * for any unused permits. Local mode has to know its peers. A list in shared memory names the processes that have
 * recently shown a sign of life, as Consul does with a TTL. That TTL and the hold-down, not weir, determine most of
 * local mode's result, so a note below the table states them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "modes/instances.h"
#include "redis/user_store.h"
#include "report/plots.h"

#define LIMIT "bench-changes"
#define RATE 1000
#define BURST 100
#define USED_PART 0.98
#define BIN_US 100000          /* of the plot */
#define PICTURE_FROM_US 300000 /* the plot starts after the initial burst */
#define STEP_US 10000          /* the resolution of times */
#define POLL_US 100000
#define HOLD_DOWN_US 250000
#define RUNS_MOST 3
#define ID_MAX 16 /* room for "i" and any int */

enum change { KILL, ARRIVAL, CHANGES };

struct scale {
    int runs;
    int64_t at_us[CHANGES + 1]; /* the last is the end */
    int64_t stretch_us;         /* in which the limit must be used again */
    int64_t alive_us;           /* how long a sign of life counts */
};

struct figures { /* of a mode, one value per run */
    struct sample again_s[CHANGES], least_used[CHANGES], over;
    int never[CHANGES]; /* runs in which the limit was not used again before the next change */
};

struct changes {
    struct modes *modes;
    struct scale scale;
    struct figures figures[MODES];
    double *admitted[MODES]; /* permits in each STEP_US, of all runs together */
    double hybrid_over_max;
};

static const struct scale scales[2] = { /* the second is quick */
    [true] = { 1, { 500000, 1200000, 1800000 }, 200000, 200000 },
    [false] = { RUNS_MOST, { 1000000, 3000000, 4500000 }, 500000, 500000 },
};

/* ---- Who else there is ---- */

/* weir_peers.list: the living processes. Their ids sort in the order of their numbers. */
static int64_t list_living(void *user, struct weir_peer *peers, size_t room)
{
    static _Thread_local char ids[TRAFFIC_MAX_INSTANCES][ID_MAX]; /* each limiter calls it on its own thread */
    const struct instances *all = user;
    const struct changes *changes = all->user;
    const int64_t now_us = instances_now_us();
    size_t n = 0;
    for (int i = 0; i < TRAFFIC_MAX_INSTANCES && n < room; i++) {
        const int64_t beat_us = atomic_load(&all->board->beat_us[i]);
        if (beat_us == 0 || now_us - beat_us > changes->scale.alive_us)
            continue;
        snprintf(ids[i], sizeof ids[i], "i%02d", i);
        peers[n++] = (struct weir_peer){ .id = ids[i], .weight = 1 };
    }
    return (int64_t)n;
}

static void follow_living(const struct instances *all, int number, struct weir_options *options)
{
    static char id[ID_MAX];
    static struct weir_peers peers;
    options->instances = options->mode == WEIR_DISTRIBUTED ? all->n : 0;
    options->rank = 0;
    if (options->mode == WEIR_DISTRIBUTED)
        return; /* there, shares matter only during an outage */
    snprintf(id, sizeof id, "i%02d", number);
    peers = (struct weir_peers){
        .size = sizeof peers, .list = list_living, .id = id, .poll_us = POLL_US, .hold_down_us = HOLD_DOWN_US
    };
    options->peers = &peers;
    options->user = (void *)(uintptr_t)all;
}

/* ---- A run ---- */

static void changes_draw(const struct changes *changes, struct instances *all, int run)
{
    struct stage stages[CHANGES + 1] = { { .from_us = 0 } };
    for (int i = 0; i < all->n; i++)
        stages[0].weights[i] = 1;
    stages[1] = stages[0];
    stages[1].from_us = changes->scale.at_us[KILL];
    stages[1].weights[all->n - 1] = 0;
    stages[2] = stages[1];
    stages[2].from_us = changes->scale.at_us[ARRIVAL];
    stages[2].weights[all->n] = 1;
    traffic_draw(all->arrivals, all->arrivals_len, 0, changes->scale.at_us[CHANGES], stages, CHANGES + 1,
                 (uint64_t)run + 1);
}

/* Fill `sums` (steps + 1 values) with the permits admitted to requests due before each step. A request counts at its
 * due time, not at its answer: an instance that waits for a processor has not changed. */
static void sum_steps(const struct instances *all, enum weir_mode mode, double *sums, size_t steps)
{
    for (size_t i = 0; i <= steps; i++)
        sums[i] = 0;
    for (size_t i = 0; i < all->arrivals_len; i++) {
        const struct asked *asked = &all->arrivals[i].asked[mode];
        const size_t step = (size_t)(all->arrivals[i].due_us / STEP_US);
        if (step < steps && asked->is_answered && asked->is_allowed)
            sums[step + 1] += 1;
    }
    for (size_t i = 0; i < steps; i++)
        sums[i + 1] += sums[i];
}

/* Find the first stretch of time that uses most of the limit, and how much the poorest stretch uses. */
static void judge_change(const struct scale *scale, enum change change, const double *sums, struct figures *figures)
{
    const int64_t first = scale->at_us[change] / STEP_US, stretch = scale->stretch_us / STEP_US;
    const int64_t last = scale->at_us[change + 1] / STEP_US - stretch;
    const double limit = RATE * (double)scale->stretch_us / 1e6;
    double least = INFINITY;
    int64_t again = last + 1;
    for (int64_t step = last; step >= first; step--) {
        const double used = (sums[step + stretch] - sums[step]) / limit;
        least = fmin(least, used);
        again = used >= USED_PART ? step : again;
    }
    figures->never[change] += again > last;
    sample_add(&figures->again_s[change], (double)((again - first) * STEP_US) / 1e6);
    sample_add(&figures->least_used[change], 100 * least);
}

static void changes_judge(struct changes *changes, const struct instances *all)
{
    const size_t steps = (size_t)(changes->scale.at_us[CHANGES] / STEP_US);
    struct admit *admits = bench_allocate(all->arrivals_len + 1, sizeof *admits);
    double *sums = bench_allocate(steps + 1, sizeof *sums);
    for (int mode = 0; mode < MODES; mode++) {
        struct figures *figures = &changes->figures[mode];
        if (!changes->modes->is_chosen[mode])
            continue;
        const size_t n = traffic_admits(all->arrivals, all->arrivals_len, (enum weir_mode)mode, 0, admits);
        sum_steps(all, (enum weir_mode)mode, sums, steps);
        for (int change = 0; change < CHANGES; change++)
            judge_change(&changes->scale, (enum change)change, sums, figures);
        for (size_t i = 0; i < steps; i++)
            changes->admitted[mode][i] += sums[i + 1] - sums[i];
        const double over = traffic_burst(admits, n, RATE) - BURST;
        sample_add(&figures->over, fmax(floor(over + 1e-6), 0));
    }
    free(admits);
    free(sums);
}

static void changes_run(struct changes *changes, int run)
{
    const struct instances_limit limit = { .name = LIMIT,
                                           .policy = { .limit = RATE, .period_us = WEIR_SECOND, .burst = BURST } };
    const int64_t *at_us = changes->scale.at_us;
    struct instances_cell cell = { .limit = 0 };
    struct instances all = { .modes = changes->modes,
                             .run = run,
                             .n = changes->modes->bench->instances,
                             .limits = &limit,
                             .limits_len = 1,
                             .cells = &cell,
                             .cells_len = 1,
                             .adjust = follow_living,
                             .user = changes };
    bench_progress("changes: one of %d processes is killed, one starts, run %d of %d", all.n, run + 1,
                   changes->scale.runs);
    instances_map(&all, (size_t)(2 * RATE * at_us[CHANGES] / WEIR_SECOND));
    changes_draw(changes, &all, run);
    for (int i = 0; i < all.n; i++)
        instances_start(&all, i);
    instances_begin(&all);
    instances_await(&all, at_us[KILL]);
    instances_kill(&all, all.n - 1);
    instances_await(&all, at_us[ARRIVAL]);
    instances_start(&all, all.n);
    instances_finish(&all);
    changes->hybrid_over_max = (double)all.board->hybrid[0].over_max;
    changes_judge(changes, &all);
    instances_unmap(&all);
}

/* ---- The table ---- */

static void changes_report_change(const struct changes *changes, enum change change, const char *after)
{
    const struct modes *modes = changes->modes;
    char figure[64], never[32];
    snprintf(figure, sizeof figure, "%s: until %.0f %% of the limit is used, s", after, 100 * USED_PART);
    modes_row(modes, figure);
    for (int mode = 0; mode < MODES; mode++) {
        const struct figures *figures = &changes->figures[mode];
        if (!modes->is_chosen[mode])
            continue;
        snprintf(never, sizeof never, "never, of %d: %d", changes->scale.runs, figures->never[change]);
        if (figures->never[change] > 0)
            modes_text(modes, (enum weir_mode)mode, never);
        else
            modes_figure(modes, (enum weir_mode)mode, &figures->again_s[change]);
    }
    snprintf(figure, sizeof figure, "%s: used in the worst %.1f s, %%", after, (double)changes->scale.stretch_us / 1e6);
    modes_row(modes, figure);
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            modes_figure(modes, (enum weir_mode)mode, &changes->figures[mode].least_used[change]);
}

static struct sample worst_over(const struct changes *changes, enum weir_mode mode)
{
    struct sample worst = { .n = 1, .values = { sample_max(&changes->figures[mode].over) } };
    return worst;
}

static void report_over(const struct changes *changes)
{
    const struct modes *modes = changes->modes;
    const struct sample stated = { .n = 1, .values = { changes->hybrid_over_max } };
    modes_row(modes, "largest excess in any stretch, permits");
    for (int mode = 0; mode < MODES; mode++) {
        if (!modes->is_chosen[mode])
            continue;
        const struct sample worst = worst_over(changes, (enum weir_mode)mode);
        modes_figure(modes, (enum weir_mode)mode, &worst);
    }
    if (modes->is_chosen[WEIR_HYBRID])
        modes_floor(modes, &stated, "hybrid, as stated");
}

static void report_changes(const struct changes *changes)
{
    struct report *report = changes->modes->bench->report;
    char words[240];
    snprintf(words, sizeof words, "one of %d is killed, and later one starts; 2 x the limit, dealt evenly at once",
             changes->modes->bench->instances);
    report_heading(report, words);
    changes_report_change(changes, KILL, "killed");
    changes_report_change(changes, ARRIVAL, "started");
    report_over(changes);
    snprintf(
        words, sizeof words,
        "Killed, started: signs of life in shared memory tell who lives. They count for %.1f s and are read every %.1f "
        "s, with a hold-down of %.2f s. With Consul, a TTL of 10 s and a hold-down of 2 s are usual; local mode then "
        "takes that much longer.",
        (double)changes->scale.alive_us / 1e6, POLL_US / 1e6, HOLD_DOWN_US / 1e6);
    if (changes->modes->is_chosen[WEIR_LOCAL])
        report_note(report, words);
}

static void plot_changes(const struct changes *changes)
{
    const struct modes *modes = changes->modes;
    const int64_t steps = BIN_US / STEP_US, bins = changes->scale.at_us[CHANGES] / BIN_US;
    const char *series[MODES];
    char title[120];
    int chosen = 0;
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            series[chosen++] = modes_names[mode];
    snprintf(title, sizeof title, "One of %d processes is killed after %g s, and one starts after %g s",
             modes->bench->instances, (double)changes->scale.at_us[KILL] / 1e6,
             (double)changes->scale.at_us[ARRIVAL] / 1e6);
    plots_begin(modes->plots, "changes", PLOTS_LINES, title, "time, s", "admitted, % of the limit", chosen, series);
    for (int64_t bin = PICTURE_FROM_US / BIN_US; bin < bins; bin++) {
        double values[MODES];
        int len = 0;
        for (int mode = 0; mode < MODES; mode++) {
            double sum = 0;
            if (!modes->is_chosen[mode])
                continue;
            for (int64_t step = bin * steps; step < (bin + 1) * steps; step++)
                sum += changes->admitted[mode][step];
            values[len++] = 100 * sum / changes->scale.runs / (RATE * BIN_US / 1e6);
        }
        plots_at(modes->plots, ((double)bin + 0.5) * BIN_US / 1e6, values);
    }
    plots_shade(modes->plots, (double)changes->scale.at_us[KILL] / 1e6, (double)changes->scale.at_us[ARRIVAL] / 1e6,
                "one is missing");
    plots_end(modes->plots);
}

void modes_changes(struct modes *modes)
{
    struct changes *changes = bench_allocate(1, sizeof *changes);
    const struct scale *scale = &scales[modes->bench->is_quick];
    for (int mode = 0; mode < MODES; mode++)
        changes->admitted[mode] = bench_allocate((size_t)(scale->at_us[CHANGES] / STEP_US), sizeof(double));
    changes->modes = modes;
    changes->scale = *scale;
    if (scale->runs > modes->bench->repeats)
        changes->scale.runs = modes->bench->repeats;
    user_store_remember(modes->store, LIMIT, instances_keys(1, changes->scale.runs));
    measure_unpin_main(); /* it must kill a process on time */
    for (int run = 0; run < changes->scale.runs; run++)
        changes_run(changes, run);
    measure_pin_main();
    report_changes(changes);
    plot_changes(changes);
    for (int mode = 0; mode < MODES; mode++)
        free(changes->admitted[mode]);
    free(changes);
}
