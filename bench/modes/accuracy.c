/* accuracy.c - what several processes that share a limit admit of it, in each mode, compared with one exact limiter.
 *
 * All cells run at once, each with its own keys. A cell says how traffic is dealt to the processes, how much of it
 * there is, and for which limit. One limit is a fixed window that outlasts the run, so the right number is known to the
 * permit. The other is a token bucket, compared with one limiter that gets all requests in the order in which they
 * came. Some cells exist twice with the same requests, the second time for limiters with wrong clocks.
 */
#include "modes/accuracy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "redis/user_store.h"

#define RUNS_MOST 3
#define WINDOW_US (30 * WEIR_SECOND) /* longer than a run; expired on a user's server within a minute */

const double accuracy_demands[ACCURACY_DEMANDS] = { 0.5, 1, 2, 4 };

/* ---- What is asked ---- */

static void set_scale(struct accuracy *accuracy)
{
    const struct bench *bench = accuracy->modes->bench;
    accuracy->runs = bench->repeats < RUNS_MOST ? bench->repeats : RUNS_MOST;
    accuracy->length_us = 3 * WEIR_SECOND;
    accuracy->window_permits = 1000;
    if (bench->is_quick) {
        accuracy->runs = 1;
        accuracy->length_us = 300000;
        accuracy->window_permits = 60;
    }
}

const char *accuracy_traffic_name(int traffic, int instances)
{
    static const char *const uneven[] = { "3:1", "3:1:1", "3:1:..:1" };
    if (traffic == ACCURACY_UNEVEN)
        return uneven[instances <= 3 ? instances - 2 : 2];
    return traffic == ACCURACY_EVEN ? "even" : "all to one";
}

static struct stage stage_of(int traffic, int instances)
{
    struct stage stage = { .weights = { traffic == ACCURACY_UNEVEN ? 3 : 1 } };
    for (int i = 1; traffic != ACCURACY_HOT && i < instances; i++)
        stage.weights[i] = 1;
    return stage;
}

static size_t requests_of(const struct accuracy *accuracy, const struct setting *setting)
{
    const double limit = setting->limit == ACCURACY_WINDOW ? (double)accuracy->window_permits
                                                           : ACCURACY_BUCKET_RATE * (double)accuracy->length_us / 1e6;
    return (size_t)(limit * accuracy_demands[setting->demand]);
}

int accuracy_cell(int limit, int traffic, int demand)
{
    return (limit * ACCURACY_TRAFFICS + traffic) * ACCURACY_DEMANDS + demand;
}

int accuracy_wrong_clock_cell(int limit, int traffic)
{
    return ACCURACY_SETTINGS + limit * ACCURACY_TRAFFICS + traffic;
}

static void make_cells(struct accuracy *accuracy)
{
    for (int limit = 0; limit < ACCURACY_LIMITS; limit++) {
        for (int traffic = 0; traffic < ACCURACY_TRAFFICS; traffic++) {
            for (int demand = 0; demand < ACCURACY_DEMANDS; demand++)
                accuracy->settings[accuracy_cell(limit, traffic, demand)] = (struct setting){ limit, traffic, demand,
                                                                                              false };
            accuracy->settings[accuracy_wrong_clock_cell(limit, traffic)] = (struct setting){ limit, traffic,
                                                                                              ACCURACY_TWICE, true };
        }
    }
    for (int i = 0; i < ACCURACY_CELLS; i++)
        accuracy->cells[i] = (struct instances_cell){ .limit = accuracy->settings[i].limit,
                                                      .clocks_differ = accuracy->settings[i].clocks_differ };
    accuracy->limits[ACCURACY_WINDOW] = (struct instances_limit){
        .name = "bench-window",
        .policy = { .algorithm = WEIR_FIXED_WINDOW, .limit = accuracy->window_permits, .period_us = WINDOW_US },
    };
    accuracy->limits[ACCURACY_BUCKET] = (struct instances_limit){
        .name = "bench-bucket",
        .policy = { .limit = ACCURACY_BUCKET_RATE, .period_us = WEIR_SECOND, .burst = ACCURACY_BUCKET_BURST },
    };
}

static void accuracy_draw(const struct accuracy *accuracy, struct instances *all, int run)
{
    size_t drawn = 0;
    for (int i = 0; i < ACCURACY_CELLS; i++) {
        const struct setting *setting = &accuracy->settings[i];
        const struct stage stage = stage_of(setting->traffic, all->n);
        const size_t n = requests_of(accuracy, setting);
        /* A cell with wrong clocks has the same requests. */
        const int like = accuracy_cell(setting->limit, setting->traffic, setting->demand);
        traffic_draw(all->arrivals + drawn, n, i, accuracy->length_us, &stage, 1,
                     (uint64_t)(run * ACCURACY_SETTINGS + like + 1));
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

/* Return how many of its requests each instance's part of the window admits, summed up. */
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
    const double permits = (double)accuracy->window_permits;
    const double exact = fmin(permits, (double)requests_of(accuracy, &accuracy->settings[cell]));
    const double predicted = predict_split(all, cell, accuracy->window_permits);
    sample_add(&outcome->predicted, 100 * predicted / exact);
    for (int mode = 0; mode < MODES; mode++) {
        if (!accuracy->modes->is_chosen[mode])
            continue;
        const size_t admitted = traffic_admits(all->arrivals, all->arrivals_len, (enum weir_mode)mode, cell, admits);
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
        add_of_exact(outcome, (enum weir_mode)mode, admitted,
                     (double)admit_exactly(exact, all, (enum weir_mode)mode, cell));
        const double burst = traffic_burst(admits, admitted, ACCURACY_BUCKET_RATE);
        outcome->over[mode] = fmax(outcome->over[mode], burst - ACCURACY_BUCKET_BURST);
    }
}

static void accuracy_judge(struct accuracy *accuracy, const struct instances *all)
{
    struct remote exact;
    const struct weir_options options = remote_options(WEIR_LOCAL);
    struct admit *admits = bench_allocate(all->arrivals_len + 1, sizeof *admits);
    remote_open(&exact, NULL, &options, accuracy->limits[ACCURACY_BUCKET].name,
                &accuracy->limits[ACCURACY_BUCKET].policy);
    for (int cell = 0; cell < ACCURACY_CELLS; cell++) {
        if (accuracy->settings[cell].limit == ACCURACY_WINDOW)
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
                             .limits_len = ACCURACY_LIMITS,
                             .cells = accuracy->cells,
                             .cells_len = ACCURACY_CELLS };
    size_t requests = 0;
    bench_progress("accuracy: %d processes, run %d of %d", all.n, run + 1, accuracy->runs);
    for (int i = 0; i < ACCURACY_CELLS; i++)
        requests += requests_of(accuracy, &accuracy->settings[i]);
    instances_map(&all, requests);
    accuracy_draw(accuracy, &all, run);
    for (int i = 0; i < all.n; i++)
        instances_start(&all, i);
    instances_begin(&all);
    instances_finish(&all);
    accuracy->hybrid_over_max = (double)all.board->hybrid[ACCURACY_BUCKET].over_max;
    accuracy_judge(accuracy, &all);
    instances_unmap(&all);
}

void modes_accuracy(struct modes *modes)
{
    struct accuracy *accuracy = bench_allocate(1, sizeof *accuracy);
    accuracy->modes = modes;
    set_scale(accuracy);
    make_cells(accuracy);
    for (int i = 0; i < ACCURACY_LIMITS; i++)
        user_store_remember(modes->store, accuracy->limits[i].name, instances_keys(ACCURACY_CELLS, accuracy->runs));
    measure_unpin_main();
    for (int run = 0; run < accuracy->runs; run++)
        accuracy_run(accuracy, run);
    measure_pin_main();
    accuracy_report(accuracy);
    free(accuracy);
}
