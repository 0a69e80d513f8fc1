/* accuracy_table.c - rows and plots of what several processes that share a limit admit of it: see accuracy.h. */
#include "modes/accuracy.h"

#include <math.h>
#include <stdio.h>

#include "report/plots.h"

/* ---- Admitted ---- */

static void report_admitted(const struct accuracy *accuracy, int cell, const char *figure)
{
    modes_row(accuracy->modes, figure);
    for (int mode = 0; mode < MODES; mode++)
        if (accuracy->modes->is_chosen[mode])
            modes_figure(accuracy->modes, (enum weir_mode)mode, &accuracy->outcomes[cell].of_exact[mode]);
    if (accuracy->settings[cell].limit == ACCURACY_WINDOW && accuracy->modes->is_chosen[WEIR_LOCAL])
        modes_floor(accuracy->modes, &accuracy->outcomes[cell].predicted, "local, predicted");
}

static void report_cells(const struct accuracy *accuracy, int limit, int first_demand, int last_demand)
{
    char figure[64];
    for (int traffic = 0; traffic < ACCURACY_TRAFFICS; traffic++)
        for (int demand = first_demand; demand <= last_demand; demand++) {
            snprintf(figure, sizeof figure, "%s, %g x the limit",
                     accuracy_traffic_name(traffic, accuracy->modes->bench->instances), accuracy_demands[demand]);
            report_admitted(accuracy, accuracy_cell(limit, traffic, demand), figure);
        }
}

/* Return the largest excess of the cells first..last in any run, rounded to whole permits. */
static struct sample over(const struct accuracy *accuracy, enum weir_mode mode, int first, int last)
{
    struct sample most = { .n = 1 };
    for (int cell = first; cell <= last; cell++)
        most.values[0] = fmax(most.values[0], floor(accuracy->outcomes[cell].over[mode] + 1e-6));
    return most;
}

/* Return the largest unused part of the right number in those cells, percent, one value per run. */
static struct sample left(const struct accuracy *accuracy, enum weir_mode mode, int first, int last)
{
    struct sample most = { .n = accuracy->runs };
    for (int cell = first; cell <= last; cell++)
        for (int run = 0; run < accuracy->runs && accuracy->modes->is_chosen[mode]; run++)
            most.values[run] = fmax(most.values[run], 100 - accuracy->outcomes[cell].of_exact[mode].values[run]);
    return most;
}

typedef struct sample worst_of(const struct accuracy *accuracy, enum weir_mode mode, int first, int last);

static void report_worst(const struct accuracy *accuracy, const char *figure, worst_of *of, int first, int last)
{
    modes_row(accuracy->modes, figure);
    for (int mode = 0; mode < MODES; mode++) {
        const struct sample sample = of(accuracy, (enum weir_mode)mode, first, last);
        if (accuracy->modes->is_chosen[mode])
            modes_figure(accuracy->modes, (enum weir_mode)mode, &sample);
    }
}

static void report_windows(const struct accuracy *accuracy)
{
    struct report *report = accuracy->modes->bench->report;
    const int first = accuracy_cell(ACCURACY_WINDOW, 0, 0), last = accuracy_cell(ACCURACY_BUCKET, 0, 0) - 1;
    char heading[128];
    snprintf(heading, sizeof heading,
             "%d processes share windows of %lld permits, requested within %.3g s: admitted, %% of the right number",
             accuracy->modes->bench->instances, (long long)accuracy->window_permits, (double)accuracy->length_us / 1e6);
    report_heading(report, heading);
    report_cells(accuracy, ACCURACY_WINDOW, 0, ACCURACY_DEMANDS - 1);
    report_worst(accuracy, "largest excess over the limit, permits", over, first, last);
    report_worst(accuracy, "unused, %: the worst of these rows", left, first, last);
    if (!accuracy->modes->is_chosen[WEIR_LOCAL])
        return;
    struct sample off = { 0 };
    double most = 0;
    for (int cell = first; cell <= last; cell++)
        most = fmax(most, accuracy->outcomes[cell].off_prediction);
    sample_add(&off, most);
    modes_row(accuracy->modes, "off the split's prediction, permits");
    modes_figure(accuracy->modes, WEIR_LOCAL, &off);
}

static void report_buckets(const struct accuracy *accuracy)
{
    struct report *report = accuracy->modes->bench->report;
    const int first = accuracy_cell(ACCURACY_BUCKET, 0, 0), last = accuracy_cell(ACCURACY_LIMITS, 0, 0) - 1;
    const struct sample stated = { .n = 1, .values = { accuracy->hybrid_over_max } };
    char heading[128];
    snprintf(heading, sizeof heading, "the same, token bucket of %d a second, burst %d: %% of what one limiter admits",
             ACCURACY_BUCKET_RATE, ACCURACY_BUCKET_BURST);
    report_heading(report, heading);
    report_cells(accuracy, ACCURACY_BUCKET, ACCURACY_TWICE, ACCURACY_TWICE);
    report_worst(accuracy, "unused at 0.5 to 4 x, %: the worst row", left, first, last);
    report_worst(accuracy, "largest excess in any stretch, permits", over, first, last);
    if (accuracy->modes->is_chosen[WEIR_HYBRID])
        modes_floor(accuracy->modes, &stated, "hybrid, as stated");
}

/* ---- Clocks that disagree ---- */

/* Return by how many permits wrong clocks change the cell that they change most, one value per run. */
static struct sample differ_by(const struct accuracy *accuracy, enum weir_mode mode)
{
    struct sample most = { .n = accuracy->runs };
    for (int traffic = 0; traffic < ACCURACY_TRAFFICS; traffic++) {
        const int right = accuracy_cell(ACCURACY_WINDOW, traffic, ACCURACY_TWICE);
        const int wrong = accuracy_wrong_clock_cell(ACCURACY_WINDOW, traffic);
        for (int run = 0; run < accuracy->runs; run++)
            most.values[run] = fmax(most.values[run], fabs(accuracy->outcomes[wrong].admitted[mode].values[run] -
                                                           accuracy->outcomes[right].admitted[mode].values[run]));
    }
    return most;
}

/* Return by how many permits runs with right clocks differ from one another. */
static struct sample runs_differ_by(const struct accuracy *accuracy, enum weir_mode mode)
{
    struct sample most = { .n = 1 };
    for (int traffic = 0; traffic < ACCURACY_TRAFFICS; traffic++) {
        const int right = accuracy_cell(ACCURACY_WINDOW, traffic, ACCURACY_TWICE);
        const struct sample *admitted = &accuracy->outcomes[right].admitted[mode];
        most.values[0] = fmax(most.values[0], sample_max(admitted) - sample_min(admitted));
    }
    return most;
}

static void report_wrong_windows(const struct accuracy *accuracy)
{
    const struct modes *modes = accuracy->modes;
    modes_row(modes, "windows: difference to right clocks, permits");
    for (int mode = 0; mode < MODES; mode++) {
        if (!modes->is_chosen[mode])
            continue;
        const struct sample differ = differ_by(accuracy, (enum weir_mode)mode);
        modes_figure(modes, (enum weir_mode)mode, &differ);
    }
    if (modes->is_chosen[WEIR_HYBRID]) {
        const struct sample runs = runs_differ_by(accuracy, WEIR_HYBRID);
        modes_floor(modes, &runs, "hybrid, run to run");
    }
    report_worst(accuracy, "windows: largest excess, permits", over, accuracy_wrong_clock_cell(ACCURACY_WINDOW, 0),
                 accuracy_wrong_clock_cell(ACCURACY_BUCKET, 0) - 1);
}

static void report_clocks(const struct accuracy *accuracy)
{
    const struct modes *modes = accuracy->modes;
    report_heading(modes->bench->report,
                   "clocks 1 h apart, and fast by 1 %, right or slow in turn; 2 x the limit, the same requests");
    report_wrong_windows(accuracy);
    modes_row(modes, "bucket, all to one with a fast clock: %");
    for (int mode = 0; mode < MODES; mode++) {
        const struct outcome *outcomes = accuracy->outcomes;
        struct sample of_right = sample_ratio(
            &outcomes[accuracy_wrong_clock_cell(ACCURACY_BUCKET, ACCURACY_HOT)].admitted[mode],
            &outcomes[accuracy_cell(ACCURACY_BUCKET, ACCURACY_HOT, ACCURACY_TWICE)].admitted[mode]);
        for (int run = 0; run < of_right.n; run++)
            of_right.values[run] *= 100;
        if (modes->is_chosen[mode])
            modes_figure(modes, (enum weir_mode)mode, &of_right);
    }
    report_worst(accuracy, "bucket: largest excess, permits", over, accuracy_wrong_clock_cell(ACCURACY_BUCKET, 0),
                 ACCURACY_CELLS - 1);
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
    plots_begin(modes->plots, name, PLOTS_BARS, title, "traffic, and its demand relative to the limit",
                "admitted, % of the right number", chosen, series);
    for (int cell = accuracy_cell(limit, 0, 0); cell < accuracy_cell(limit + 1, 0, 0); cell++) {
        const struct setting *setting = &accuracy->settings[cell];
        double values[MODES];
        char x[48];
        int len = 0;
        for (int mode = 0; mode < MODES; mode++)
            if (modes->is_chosen[mode])
                values[len++] = sample_median(&accuracy->outcomes[cell].of_exact[mode]);
        snprintf(x, sizeof x, "%s %gx",
                 setting->traffic == ACCURACY_HOT ? "hot" /* space is short */
                                                  : accuracy_traffic_name(setting->traffic, modes->bench->instances),
                 accuracy_demands[setting->demand]);
        plots_at_word(modes->plots, x, values);
    }
    plots_end(modes->plots);
}

void accuracy_report(const struct accuracy *accuracy)
{
    report_windows(accuracy);
    report_buckets(accuracy);
    report_clocks(accuracy);
    plot_cells(accuracy, ACCURACY_WINDOW, "accuracy-windows", "What several processes admit of a shared window");
    plot_cells(accuracy, ACCURACY_BUCKET, "accuracy-bucket", "What several processes admit of a shared token bucket");
}
