/* accuracy.c - what several processes that share a limit admit of it, in each mode, against one exact limiter.
 *
 * In one run all cells go on at once, each with a key of its own: how the traffic is dealt, how much of it there is, and
 * of which limit: a fixed window that outlasts the run, of which it is known to the permit what is right; and a token
 * bucket, which is held against one limiter that was asked for all of it in the order in which it came. Some cells are
 * there twice, with the very same requests, the second time for limiters whose clocks are wrong.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "instances.h"
#include "plots.h"

enum { WINDOW, BUCKET, LIMITS };
enum { TRAFFICS = 3, DEMANDS = 4, TWICE = 2 };
#define SETTINGS (LIMITS * TRAFFICS * DEMANDS)       /* each a cell whose clocks agree */
#define CELLS (SETTINGS + LIMITS * TRAFFICS)         /* and some where they do not */
#define RUNS_MOST 3                                  /* unless more is asked for: --full */
#define WINDOW_US (30 * WEIR_SECOND)                 /* longer than a run, and gone from a user's server in a minute */
#define BUCKET_RATE 200
#define BUCKET_BURST 50
#define GOAL_SHORT_PERCENT 2.0

static const double demands[DEMANDS] = { 0.5, 1, 2, 4 }; /* times the limit */

struct setting {
    int limit, traffic, demand;
    bool clocks_differ;
};

struct scale {
    int runs;
    int64_t length_us, window_permits;
};

struct outcome { /* of a cell, a value a run */
    struct sample admitted[MODES], of_exact[MODES]; /* permits; percent */
    struct sample predicted;                        /* of local mode's split, percent; windows only */
    double over[MODES];   /* beyond the limit in any stretch of time, permits: the worst of all runs */
    double off_prediction; /* local mode, permits: likewise */
};

struct accuracy {
    struct modes *modes;
    struct scale scale;
    struct setting settings[CELLS];
    struct instances_cell cells[CELLS];
    struct instances_limit limits[LIMITS];
    struct outcome outcomes[CELLS];
    double hybrid_over_max;
};

/* ---- What is asked ---- */

static struct scale scale_of(const struct bench *bench)
{
    if (bench->extent == EXTENT_QUICK)
        return (struct scale){ .runs = 1, .length_us = 300000, .window_permits = 60 };
    if (bench->extent == EXTENT_FULL)
        return (struct scale){ .runs = bench->repeats, .length_us = 8 * WEIR_SECOND, .window_permits = 1300 };
    return (struct scale){ .runs = bench->repeats < RUNS_MOST ? bench->repeats : RUNS_MOST,
                           .length_us = 3 * WEIR_SECOND,
                           .window_permits = 500 };
}

static const char *traffic_name(int traffic, int instances)
{
    static const char *const uneven[] = { "3:1", "3:1:1", "3:1:..:1" };
    if (traffic == 1)
        return uneven[instances <= 3 ? instances - 2 : 2];
    return traffic == 0 ? "even" : "all to one";
}

static struct stage stage_of(int traffic, int instances)
{
    struct stage stage = { .weights = { traffic == 1 ? 3 : 1 } };
    for (int i = 1; traffic != 2 && i < instances; i++)
        stage.weights[i] = 1;
    return stage;
}

static size_t requests_of(const struct accuracy *accuracy, const struct setting *setting)
{
    const struct scale *scale = &accuracy->scale;
    const double limit = setting->limit == WINDOW ? (double)scale->window_permits
                                                  : BUCKET_RATE * (double)scale->length_us / 1e6;
    return (size_t)(limit * demands[setting->demand]);
}

static int cell_of(int limit, int traffic, int demand)
{
    return (limit * TRAFFICS + traffic) * DEMANDS + demand;
}

static int wrong_clock_cell_of(int limit, int traffic)
{
    return SETTINGS + limit * TRAFFICS + traffic;
}

static void make_cells(struct accuracy *accuracy)
{
    for (int limit = 0; limit < LIMITS; limit++) {
        for (int traffic = 0; traffic < TRAFFICS; traffic++) {
            for (int demand = 0; demand < DEMANDS; demand++)
                accuracy->settings[cell_of(limit, traffic, demand)] = (struct setting){ limit, traffic, demand, false };
            accuracy->settings[wrong_clock_cell_of(limit, traffic)] = (struct setting){ limit, traffic, TWICE, true };
        }
    }
    for (int i = 0; i < CELLS; i++)
        accuracy->cells[i] = (struct instances_cell){ .limit = accuracy->settings[i].limit,
                                                      .clocks_differ = accuracy->settings[i].clocks_differ };
    accuracy->limits[WINDOW] = (struct instances_limit){
        .name = "bench-window",
        .policy = { .algorithm = WEIR_FIXED_WINDOW, .limit = accuracy->scale.window_permits, .period_us = WINDOW_US },
    };
    accuracy->limits[BUCKET] = (struct instances_limit){
        .name = "bench-bucket",
        .policy = { .limit = BUCKET_RATE, .period_us = WEIR_SECOND, .burst = BUCKET_BURST },
    };
}

static void draw(const struct accuracy *accuracy, struct instances *all, int run)
{
    size_t drawn = 0;
    for (int i = 0; i < CELLS; i++) {
        const struct setting *setting = &accuracy->settings[i];
        const struct stage stage = stage_of(setting->traffic, all->n);
        const size_t n = requests_of(accuracy, setting);
        const int like = cell_of(setting->limit, setting->traffic, setting->demand); /* the same with clocks that agree */
        traffic_draw(all->arrivals + drawn, n, i, accuracy->scale.length_us, &stage, 1,
                     (uint64_t)(run * SETTINGS + like + 1));
        drawn += n;
    }
    traffic_sort(all->arrivals, drawn);
}

/* ---- What came of it ---- */

static void add_of_exact(struct outcome *outcome, enum weir_mode mode, size_t admitted, double exact)
{
    sample_add(&outcome->admitted[mode], (double)admitted);
    sample_add(&outcome->of_exact[mode], 100 * (double)admitted / exact);
}

/* What each instance's part of the window lets through of what is dealt to it. */
static double predict_split(const struct instances *all, int cell, int64_t permits)
{
    int64_t asked[TRAFFIC_MAX_INSTANCES] = { 0 }, sum = 0;
    for (size_t i = 0; i < all->arrivals_len; i++)
        asked[all->arrivals[i].instance] += all->arrivals[i].cell == cell;
    for (int i = 0; i < all->n; i++) {
        const int64_t part = permits / all->n + (i < permits % all->n);
        sum += asked[i] < part ? asked[i] : part;
    }
    return (double)sum;
}

static void judge_window(struct accuracy *accuracy, const struct instances *all, int cell, struct admit *admits)
{
    struct outcome *outcome = &accuracy->outcomes[cell];
    const double permits = (double)accuracy->scale.window_permits;
    const double exact = fmin(permits, (double)requests_of(accuracy, &accuracy->settings[cell]));
    const double predicted = predict_split(all, cell, accuracy->scale.window_permits);
    sample_add(&outcome->predicted, 100 * predicted / exact);
    for (int mode = 0; mode < MODES; mode++) {
        if (!accuracy->modes->is_chosen[mode])
            continue;
        const size_t admitted = instances_admits(all, (enum weir_mode)mode, cell, admits);
        add_of_exact(outcome, (enum weir_mode)mode, admitted, exact);
        outcome->over[mode] = fmax(outcome->over[mode], (double)admitted - permits);
        if (mode == WEIR_LOCAL)
            outcome->off_prediction = fmax(outcome->off_prediction, fabs((double)admitted - predicted));
    }
}

static int by_time(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* What one limiter admits that is asked for all of it, each at the time when its instance asked that mode. */
static size_t admit_exactly(weir_limit *limit, const struct instances *all, enum weir_mode mode, int cell)
{
    int64_t *times = malloc((all->arrivals_len + 1) * sizeof *times);
    char key[32];
    size_t n = 0, admitted = 0;
    if (!times) {
        fputs("weir-bench: no memory for the exact limiter\n", stderr);
        exit(2);
    }
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
        const size_t admitted = instances_admits(all, (enum weir_mode)mode, cell, admits);
        add_of_exact(outcome, (enum weir_mode)mode, admitted,
                     (double)admit_exactly(exact, all, (enum weir_mode)mode, cell));
        const double burst = envelope_burst(admits, admitted, BUCKET_RATE, WEIR_SECOND);
        outcome->over[mode] = fmax(outcome->over[mode], burst - BUCKET_BURST);
    }
}

static void judge(struct accuracy *accuracy, const struct instances *all)
{
    struct remote exact;
    struct admit *admits = malloc((all->arrivals_len + 1) * sizeof *admits);
    if (!admits) {
        fputs("weir-bench: no memory for what was admitted\n", stderr);
        exit(2);
    }
    remote_open_local(&exact, accuracy->limits[BUCKET].name, &accuracy->limits[BUCKET].policy);
    for (int cell = 0; cell < CELLS; cell++) {
        if (accuracy->settings[cell].limit == WINDOW)
            judge_window(accuracy, all, cell, admits);
        else
            judge_bucket(accuracy, all, exact.limit, cell, admits);
    }
    remote_close(&exact);
    free(admits);
}

static void run_once(struct accuracy *accuracy, int run)
{
    struct instances all = { .modes = accuracy->modes,
                             .n = accuracy->modes->bench->instances,
                             .limits = accuracy->limits,
                             .limits_len = LIMITS,
                             .cells = accuracy->cells,
                             .cells_len = CELLS };
    size_t requests = 0;
    bench_progress("accuracy: %d processes, run %d of %d", all.n, run + 1, accuracy->scale.runs);
    for (int i = 0; i < CELLS; i++)
        requests += requests_of(accuracy, &accuracy->settings[i]);
    instances_map(&all, requests);
    draw(accuracy, &all, run);
    for (int i = 0; i < all.n; i++)
        instances_start(&all, i);
    instances_begin(&all);
    instances_finish(&all);
    accuracy->hybrid_over_max = (double)all.board->hybrid[BUCKET].over_max;
    judge(accuracy, &all);
    instances_unmap(&all);
}

/* ---- The table ---- */

static void report_admitted(const struct accuracy *accuracy, int cell, const char *figure)
{
    modes_row(accuracy->modes, figure);
    for (int mode = 0; mode < MODES; mode++)
        if (accuracy->modes->is_chosen[mode])
            modes_figure(accuracy->modes, (enum weir_mode)mode, &accuracy->outcomes[cell].of_exact[mode]);
    if (accuracy->settings[cell].limit == WINDOW && accuracy->modes->is_chosen[WEIR_LOCAL])
        modes_floor(accuracy->modes, &accuracy->outcomes[cell].predicted, "local, predicted");
}

static void report_cells(const struct accuracy *accuracy, int limit, int first_demand, int last_demand)
{
    char figure[64];
    for (int traffic = 0; traffic < TRAFFICS; traffic++)
        for (int demand = first_demand; demand <= last_demand; demand++) {
            snprintf(figure, sizeof figure, "%s, %g x the limit", traffic_name(traffic, accuracy->modes->bench->instances),
                     demands[demand]);
            report_admitted(accuracy, cell_of(limit, traffic, demand), figure);
        }
}

/* The worst of the cells first..last, by run or in all; 0 at least. */
typedef double worst_of(const struct outcome *outcome, enum weir_mode mode);

static double most_over(const struct outcome *outcome, enum weir_mode mode)
{
    return floor(outcome->over[mode] + 1e-6); /* whole permits; a double's last digits are none */
}

static double most_short(const struct outcome *outcome, enum weir_mode mode)
{
    return 100 - sample_min(&outcome->of_exact[mode]);
}

static struct sample worst(const struct accuracy *accuracy, worst_of *of, enum weir_mode mode, int first, int last)
{
    struct sample sample = { 0 };
    double most = 0;
    for (int cell = first; cell <= last; cell++)
        most = fmax(most, of(&accuracy->outcomes[cell], mode));
    sample_add(&sample, most);
    return sample;
}

static void report_worst(const struct accuracy *accuracy, const char *figure, worst_of *of, int first, int last)
{
    modes_row(accuracy->modes, figure);
    for (int mode = 0; mode < MODES; mode++) {
        const struct sample sample = worst(accuracy, of, (enum weir_mode)mode, first, last);
        if (accuracy->modes->is_chosen[mode])
            modes_figure(accuracy->modes, (enum weir_mode)mode, &sample);
    }
}

/* A goal for the worst of that mode, if it was measured. */
static void hold_worst(const struct accuracy *accuracy, const char *what, worst_of *of, enum weir_mode mode, int limit,
                       double most)
{
    const struct sample sample = worst(accuracy, of, mode, cell_of(limit, 0, 0), cell_of(limit + 1, 0, 0) - 1);
    if (accuracy->modes->is_chosen[mode])
        report_goal(accuracy->modes->bench->report, what, &sample, AT_MOST, most);
}

static void report_windows(const struct accuracy *accuracy)
{
    struct report *report = accuracy->modes->bench->report;
    const int first = cell_of(WINDOW, 0, 0), last = cell_of(BUCKET, 0, 0) - 1;
    char heading[96];
    snprintf(heading, sizeof heading,
             "%d processes share windows of %lld permits that outlast the run: admitted, %% of what is right",
             accuracy->modes->bench->instances, (long long)accuracy->scale.window_permits);
    report_heading(report, heading);
    report_cells(accuracy, WINDOW, 0, DEMANDS - 1);
    report_worst(accuracy, "the most over the limit, permits", most_over, first, last);
    hold_worst(accuracy, "windows, distributed: over the limit; permits, worst of all", most_over, WEIR_DISTRIBUTED,
               WINDOW, 0);
    hold_worst(accuracy, "windows, hybrid: over the limit; permits, worst of all", most_over, WEIR_HYBRID, WINDOW, 0);
    report_worst(accuracy, "the most that was left, %", most_short, first, last);
    hold_worst(accuracy, "windows, distributed: of the limit not used; %, worst of all", most_short, WEIR_DISTRIBUTED,
               WINDOW, 0);
    hold_worst(accuracy, "windows, hybrid: of the limit not used; %, worst of all", most_short, WEIR_HYBRID, WINDOW,
               GOAL_SHORT_PERCENT);
    if (!accuracy->modes->is_chosen[WEIR_LOCAL])
        return;
    struct sample off = { 0 };
    double most = 0;
    for (int cell = first; cell <= last; cell++)
        most = fmax(most, accuracy->outcomes[cell].off_prediction);
    sample_add(&off, most);
    modes_row(accuracy->modes, "off what the split predicts, permits");
    modes_figure(accuracy->modes, WEIR_LOCAL, &off);
    report_goal(report, "windows, local: off what its split predicts; permits, worst of all", &off, AT_MOST, 1);
}

static void report_buckets(const struct accuracy *accuracy)
{
    struct report *report = accuracy->modes->bench->report;
    const int first = cell_of(BUCKET, 0, 0), last = cell_of(LIMITS, 0, 0) - 1;
    struct sample bound = { 0 };
    char heading[96];
    snprintf(heading, sizeof heading, "the same, token bucket of %d a second, burst %d: %% of what one limiter admits",
             BUCKET_RATE, BUCKET_BURST);
    report_heading(report, heading);
    report_cells(accuracy, BUCKET, TWICE, TWICE);
    report_worst(accuracy, "0.5 to 4 x: the most that was left, %", most_short, first, last);
    hold_worst(accuracy, "bucket, hybrid: of the limit not used; %, worst of all", most_short, WEIR_HYBRID, BUCKET,
               GOAL_SHORT_PERCENT);
    report_worst(accuracy, "the most over it in any stretch, permits", most_over, first, last);
    if (accuracy->modes->is_chosen[WEIR_HYBRID]) {
        sample_add(&bound, accuracy->hybrid_over_max);
        modes_floor(accuracy->modes, &bound, "hybrid, as stated");
    }
    hold_worst(accuracy, "bucket, distributed: over the limit; permits, worst of all", most_over, WEIR_DISTRIBUTED,
               BUCKET, 0);
    hold_worst(accuracy, "bucket, hybrid: over the limit, as stated; permits, worst of all", most_over, WEIR_HYBRID,
               BUCKET, accuracy->hybrid_over_max);
}

/* ---- Clocks that disagree ---- */

/* By how many permits the runs with wrong clocks differ from those with right ones, at most. */
static struct sample differ_by(const struct accuracy *accuracy, enum weir_mode mode, int limit)
{
    struct sample most = { 0 };
    sample_add(&most, 0);
    for (int traffic = 0; traffic < TRAFFICS; traffic++) {
        const struct sample *right = &accuracy->outcomes[cell_of(limit, traffic, TWICE)].admitted[mode];
        const struct sample *wrong = &accuracy->outcomes[wrong_clock_cell_of(limit, traffic)].admitted[mode];
        for (int run = 0; run < right->n; run++)
            most.values[0] = fmax(most.values[0], fabs(wrong->values[run] - right->values[run]));
    }
    return most;
}

static void report_clocks(const struct accuracy *accuracy)
{
    const struct modes *modes = accuracy->modes;
    struct report *report = modes->bench->report;
    char what[96];
    snprintf(what, sizeof what, "clocks 1 h apart, 1 %% fast, right, slow in turn; 2 x the limit, the very same requests");
    report_heading(report, what);
    modes_row(modes, "windows: differ from right clocks, permits");
    for (int mode = 0; mode < MODES; mode++) {
        const struct sample sample = differ_by(accuracy, (enum weir_mode)mode, WINDOW);
        if (!modes->is_chosen[mode])
            continue;
        modes_figure(modes, (enum weir_mode)mode, &sample);
        snprintf(what, sizeof what, "windows, %s: what wrong clocks change; permits, worst of all", modes_names[mode]);
        if (mode != WEIR_LOCAL)
            report_goal(report, what, &sample, AT_MOST, 0);
    }
    modes_row(modes, "bucket, all to one whose clock is fast: more, %");
    for (int mode = 0; mode < MODES; mode++) {
        const struct outcome *outcomes = accuracy->outcomes;
        struct sample more = sample_ratio(&outcomes[wrong_clock_cell_of(BUCKET, TRAFFICS - 1)].admitted[mode],
                                          &outcomes[cell_of(BUCKET, TRAFFICS - 1, TWICE)].admitted[mode]);
        for (int run = 0; run < more.n; run++)
            more.values[run] = 100 * more.values[run] - 100;
        if (modes->is_chosen[mode])
            modes_figure(modes, (enum weir_mode)mode, &more);
    }
    report_worst(accuracy, "bucket: the most over it, permits", most_over, wrong_clock_cell_of(BUCKET, 0), CELLS - 1);
}

/* ---- Pictures ---- */

static void plot_cells(const struct accuracy *accuracy, int limit, const char *name, const char *title)
{
    const struct modes *modes = accuracy->modes;
    const char *series[MODES];
    int chosen = 0;
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            series[chosen++] = modes_names[mode];
    plots_begin(modes->plots, name, PLOTS_BARS, title, "traffic, and how much of it, times the limit",
                "admitted, % of what is right", chosen, series);
    for (int cell = cell_of(limit, 0, 0); cell < cell_of(limit + 1, 0, 0); cell++) {
        const struct setting *setting = &accuracy->settings[cell];
        double values[MODES];
        char x[48];
        int len = 0;
        for (int mode = 0; mode < MODES; mode++)
            if (modes->is_chosen[mode])
                values[len++] = sample_median(&accuracy->outcomes[cell].of_exact[mode]);
        snprintf(x, sizeof x, "%s %gx", traffic_name(setting->traffic, modes->bench->instances),
                 demands[setting->demand]);
        plots_at_word(modes->plots, x, values);
    }
    plots_end(modes->plots);
}

void modes_accuracy(struct modes *modes)
{
    struct accuracy *accuracy = calloc(1, sizeof *accuracy);
    if (!accuracy) {
        fputs("weir-bench: no memory for what was admitted\n", stderr);
        exit(2);
    }
    accuracy->modes = modes;
    accuracy->scale = scale_of(modes->bench);
    make_cells(accuracy);
    for (int run = 0; run < accuracy->scale.runs; run++)
        run_once(accuracy, run);
    report_windows(accuracy);
    report_buckets(accuracy);
    report_clocks(accuracy);
    plot_cells(accuracy, WINDOW, "accuracy-windows", "A window shared by several processes: what they admit of it");
    plot_cells(accuracy, BUCKET, "accuracy-bucket", "A token bucket shared by several processes: what they admit of it");
    free(accuracy);
}
