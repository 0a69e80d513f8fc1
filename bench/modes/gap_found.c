/* gap_found.c - what the answers show before, during and after Redis was away: see gap.h. */
#include "modes/gap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure/hist.h"
#include "modes/traffic.h"

#define BIN_NS 100000000

/* Call look(user, visit) for each visit of a mode. */
static void for_each_visit(const struct gap *gap, enum weir_mode mode,
                           void (*look)(void *user, const struct visit *visit), void *user)
{
    for (int caller = 0; caller < GAP_MAX_CALLERS; caller++)
        for (size_t i = 0; i < gap->visitors[mode][caller].visits_len; i++)
            look(user, &gap->visitors[mode][caller].visits[i]);
}

struct sums {
    const struct gap *gap;
    int64_t longest_ns;
    int64_t back_ns[BENCH_MAX_INSTANCES]; /* when Redis decides again for an instance; 0: never */
    uint64_t away_allowed, failed;
    struct hist away;
};

static void add_visit(void *user, const struct visit *visit)
{
    struct sums *sums = user;
    const struct gap *gap = sums->gap;
    bool meets_gap = visit->end_ns >= gap->dead_ns && visit->start_ns < gap->back_ns;
    if (meets_gap && visit->end_ns - visit->start_ns > sums->longest_ns)
        sums->longest_ns = visit->end_ns - visit->start_ns;
    if (visit->due_ns >= gap->dead_ns && visit->due_ns < gap->back_ns)
        hist_add(&sums->away, (uint64_t)(visit->end_ns - visit->due_ns));
    sums->away_allowed += visit->is_allowed && visit->end_ns >= gap->dead_ns && visit->end_ns < gap->back_ns;
    sums->failed += visit->is_failed;
    bool is_by_redis = visit->source == WEIR_BY_REDIS || visit->source == WEIR_BY_LEASE;
    bool is_after = visit->start_ns > gap->dead_ns && visit->end_ns > gap->back_ns;
    int64_t *back_ns = &sums->back_ns[visit->instance];
    if (!visit->is_failed && is_by_redis && is_after && (*back_ns == 0 || visit->end_ns < *back_ns))
        *back_ns = visit->end_ns;
}

struct admits {
    const struct gap *gap;
    int key;
    size_t n, room;
    struct admit *all;
};

static void add_admit(void *user, const struct visit *visit)
{
    struct admits *admits = user;
    if (visit->key != admits->key || !visit->is_allowed)
        return;
    if (admits->n == admits->room) {
        admits->room = 2 * admits->room + 256;
        admits->all = realloc(admits->all, admits->room * sizeof *admits->all);
        if (!admits->all)
            bench_fail("no memory to examine the answers");
    }
    admits->all[admits->n++] = (struct admit){ .start_us = (visit->start_ns - admits->gap->start_ns) / 1000,
                                               .end_us = (visit->end_ns - admits->gap->start_ns) / 1000 + 1,
                                               .cost = 1 };
}

/* Return the largest excess of any key over burst and rate in any stretch of time, in permits. */
static double most_over(const struct gap *gap, enum weir_mode mode)
{
    double most = 0;
    struct admits admits = { .gap = gap };
    for (admits.key = 0; admits.key < GAP_KEYS; admits.key++) {
        admits.n = 0;
        for_each_visit(gap, mode, add_admit, &admits);
        most = fmax(most, traffic_burst(admits.all, admits.n, GAP_LIMIT) - GAP_BURST);
    }
    free(admits.all);
    return most;
}

/* Find when Redis decides again for the last of the instances. */
static void find_return(const struct sums *sums, struct gap_found *found)
{
    int64_t last_ns = 0;
    for (int i = 0; i < sums->gap->instances; i++) {
        found->never += sums->back_ns[i] == 0;
        last_ns = sums->back_ns[i] > last_ns ? sums->back_ns[i] : last_ns;
    }
    if (last_ns > 0)
        sample_add(&found->last_ms, (double)(last_ns - sums->gap->back_ns) / 1e6);
}

void gap_find(const struct gap *gap, enum weir_mode mode, struct gap_found *found)
{
    static struct sums sums;
    double away_s = (double)(gap->back_ns - gap->dead_ns) / 1e9;
    sums = (struct sums){ .gap = gap };
    for_each_visit(gap, mode, add_visit, &sums);
    sample_add(&found->longest_ms, (double)sums.longest_ns / 1e6);
    sample_add(&found->p99_us, hist_quantile(&sums.away, 0.99) / 1e3);
    sample_add(&found->away_percent, 100 * (double)sums.away_allowed / (GAP_LIMIT * GAP_KEYS * away_s));
    sample_add(&found->over, most_over(gap, mode));
    found->failed += sums.failed;
    if (modes_asks_redis(mode))
        find_return(&sums, found);
}

/* ---- Curves ---- */

struct bin { /* requests due in this bin; `admitted`: answered in it */
    uint64_t admitted;
    struct hist hist;
};

struct bins {
    const struct gap *gap;
    int n;
    struct bin *all[MODES]; /* NULL: a mode that was not chosen */
};

struct binned {
    const struct bins *bins;
    struct bin *all;
};

static int bin_of(const struct bins *bins, int64_t ns)
{
    int64_t bin = (ns - bins->gap->start_ns) / BIN_NS;
    return bin < bins->n ? (int)bin : bins->n - 1;
}

static void add_to_bin(void *user, const struct visit *visit)
{
    const struct binned *binned = user;
    hist_add(&binned->all[bin_of(binned->bins, visit->due_ns)].hist, (uint64_t)(visit->end_ns - visit->due_ns));
    binned->all[bin_of(binned->bins, visit->end_ns)].admitted += visit->is_allowed;
}

/* Add a point for each bin: `look` of each mode's, then `last`. */
static void draw_bins(const struct modes *modes, const struct bins *bins, double (*look)(const struct bin *bin),
                      double last)
{
    for (int bin = 0; bin < bins->n; bin++) {
        double values[MODES + 1];
        int n = 0;
        for (int mode = 0; mode < MODES; mode++)
            if (bins->all[mode])
                values[n++] = look(&bins->all[mode][bin]);
        values[n] = last;
        report_point(modes->bench->report, (bin + 0.5) * BIN_NS / 1e9, values);
    }
    report_range(modes->bench->report, (double)(bins->gap->dead_ns - bins->gap->start_ns) / 1e9,
                 (double)(bins->gap->back_ns - bins->gap->start_ns) / 1e9, "Redis is away");
}

static double longest_of(const struct bin *bin)
{
    return bin->hist.total > 0 ? (double)bin->hist.max / 1e3 : NAN;
}

static double admitted_of(const struct bin *bin)
{
    return (double)bin->admitted * 1e9 / BIN_NS;
}

void gap_draw(const struct modes *modes, const struct gap *gap)
{
    struct bins bins = { .gap = gap, .n = (int)((gap->end_ns - gap->start_ns) / BIN_NS) };
    if (bins.n == 0)
        return;
    for (int mode = 0; mode < MODES; mode++) {
        if (!modes->is_chosen[mode])
            continue;
        bins.all[mode] = bench_allocate((size_t)bins.n, sizeof *bins.all[mode]);
        struct binned binned = { .bins = &bins, .all = bins.all[mode] };
        for_each_visit(gap, (enum weir_mode)mode, add_to_bin, &binned);
    }
    modes_curves(modes,
                 (struct report_curves){ .title = "The longest call of each tenth of a second",
                                         .x = "seconds",
                                         .y = "microseconds",
                                         .is_log_y = true },
                 NULL);
    draw_bins(modes, &bins, longest_of, NAN);
    modes_curves(
        modes, (struct report_curves){ .title = "What all instances admit", .x = "seconds", .y = "requests a second" },
        "the limit");
    draw_bins(modes, &bins, admitted_of, GAP_LIMIT * GAP_KEYS);
    for (int mode = 0; mode < MODES; mode++)
        free(bins.all[mode]);
}
