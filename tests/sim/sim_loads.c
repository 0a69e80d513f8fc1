/* sim_loads.c - what hybrid mode admits under regular loads, compared with one ideal limit that gets every request
 * without delay. Default options, no faults, one key. An instance alone must admit as much as the ideal limit. */
#include "core/policy/plan.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* Thousandths of a percent of what the ideal limit admits. */
enum { WORST_LEAST = 97000, MEAN_LEAST = 99900 };

enum { LIMIT = 200, SPARSE_LIMIT = 20, BURST = 12, BURST_GAP_US = 1000, PERIODS = 4 };

enum shape { STEADY, POISSON, BURSTY, SPARSE, SKEWED, SHAPES };
static const char *const shape_names[] = { "steady", "Poisson", "bursty", "sparse", "skewed" };

static const struct {
    const char *name;
    struct weir_policy policy;
} kinds[] = {
    { "token", { .algorithm = WEIR_TOKEN_BUCKET } },
    { "interval", { .algorithm = WEIR_TOKEN_BUCKET, .refill = WEIR_INTERVAL } },
    { "leaky", { .algorithm = WEIR_LEAKY_BUCKET } },
    { "fixed", { .algorithm = WEIR_FIXED_WINDOW } },
    { "sliding", { .algorithm = WEIR_SLIDING_WINDOW } },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct scenario loads_scenario = { "loads", 0, LOAD_STEADY, "" };

struct cell_of_loads {
    int kind;
    int64_t period_us, demand_permille;
    enum shape shape;
    int count;
};

/* The requests to come. */
struct arrivals {
    enum shape shape;
    int64_t mean_us; /* between two requests */
    int in_burst;
};

/* Return a time that is nearly exponentially distributed: each stretch of 0.693 means is half as likely as the one
 * before, and all times within it are alike. */
static int64_t exponential_us(struct sim *sim, int64_t mean_us)
{
    int64_t halvings = 0;
    while (random_chance(sim, 500))
        halvings++;
    return mean_us * 693 / 1000 * (1000 * halvings + random_in(sim, 0, 885)) / 1000;
}

static struct instance *receiver(struct sim *sim, enum shape shape)
{
    int at = 0;
    if (shape != SKEWED)
        return sim->instances[random_in(sim, 0, sim->count - 1)];
    while (at < sim->count - 1 && random_chance(sim, 500)) /* half of all to the first, half of the rest to the next */
        at++;
    return sim->instances[at];
}

static void arrives(struct sim *sim, void *what)
{
    struct arrivals *load = what;
    int64_t wait_us = load->mean_us;
    if (sim->now_us >= sim->heal_us)
        return;
    instance_ask(sim, receiver(sim, load->shape), 0, 0, 1, false);
    if (load->shape == POISSON || load->shape == SKEWED)
        wait_us = exponential_us(sim, load->mean_us);
    else if (load->shape == BURSTY && ++load->in_burst < BURST)
        wait_us = min_of(BURST_GAP_US, load->mean_us);
    else if (load->shape == BURSTY) {
        load->in_burst = 0;
        wait_us = BURST * load->mean_us - (BURST - 1) * min_of(BURST_GAP_US, load->mean_us);
    }
    events_add(sim, sim->now_us + max_of(1, wait_us), NULL, arrives, load);
}

static struct run_result loads_run(const struct cell_of_loads *cell)
{
    const struct run_settings settings = { .tells = true, .asks = 1 };
    struct sim *sim = sim_make(&loads_scenario, 1, &settings);
    struct arrivals *load = sim_take(sim, sizeof *load);
    struct weir_policy policy = kinds[cell->kind].policy;
    policy.limit = cell->shape == SPARSE ? SPARSE_LIMIT : LIMIT;
    policy.period_us = cell->period_us;
    sim->leases = (struct lease_rules){
        .life_us = WEIR_MAX_PERIOD_US, .excess = 5, .denial_us = 2 * WEIR_SECOND, .max = WEIR_MAX_PERMITS
    };
    sim->timeout_us = 50000;
    sim->down_min_us = 300; /* and no way up: the ideal limit decides when the store does, in the same window */
    sim->down_max_us = 800;
    sim->limit_count = sim->key_count = 1;
    sim->limits[0] = (struct sim_limit){
        .policy = policy, .name = "limit0", .rate_limit = policy.limit, .demand_permille = cell->demand_permille
    };
    if (plan_make(&policy, &share_whole, &sim->limits[0].plan, (struct message){ NULL, 0 }) != WEIR_OK)
        abort();
    sim->limits[0].size = sim->limits[0].plan.size;
    for (int i = 0; i < cell->count; i++)
        instance_make(sim);
    instances_recount(sim);
    audit_start(sim);
    sim->heal_us = sim->now_us + PERIODS * cell->period_us;
    load->shape = cell->shape;
    load->mean_us = max_of(1, cell->period_us * 1000 / (policy.limit * cell->demand_permille));
    events_add(sim, sim->now_us + 1000, NULL, arrives, load);
    while (!sim->failed && events_step(sim, sim->heal_us + WEIR_SECOND))
        ;
    return sim_end(sim);
}

struct sums {
    int64_t cells, share, worst, lone_cells, lone_wrong, lone_missed, asked, calls;
    char worst_cell[128], lone_cell[176];
    bool good;
};

static void loads_add(struct sums *sums, const struct cell_of_loads *cell, const struct run_result *result)
{
    const int64_t share = result->used * 100000 / max_of(1, result->ideal);
    char name[128];
    snprintf(name, sizeof name, "%s, %lld s, %s, %d instances, demand %lld.%lld", kinds[cell->kind].name,
             (long long)(cell->period_us / WEIR_SECOND), shape_names[cell->shape], cell->count,
             (long long)(cell->demand_permille / 1000), (long long)(cell->demand_permille % 1000 / 100));
    sums->cells++;
    sums->share += share;
    sums->asked += result->asked;
    sums->calls += result->store_calls;
    sums->good = sums->good && result->good;
    if (share < sums->worst) {
        sums->worst = share;
        snprintf(sums->worst_cell, sizeof sums->worst_cell, "%s", name);
    }
    sums->lone_cells += cell->count == 1;
    if (cell->count == 1 && result->used < result->ideal) {
        sums->lone_wrong++;
        if (result->ideal - result->used > sums->lone_missed)
            snprintf(sums->lone_cell, sizeof sums->lone_cell, "%s: %lld of %lld", name, (long long)result->used,
                     (long long)result->ideal);
        sums->lone_missed = max_of(sums->lone_missed, result->ideal - result->used);
    }
}

static void loads_row(const struct sums *sums, const char *name, int64_t period_us, const char *shape)
{
    printf("%-9s %6lld s %-8s %9.3f %9.3f %8.3f\n", name, (long long)(period_us / WEIR_SECOND), shape,
           (double)sums->share / (double)sums->cells / 1000, (double)sums->worst / 1000,
           (double)sums->calls / (double)max_of(1, sums->asked));
}

int loads(bool all)
{
    static const int64_t periods_us[] = { WEIR_SECOND, WEIR_HOUR, WEIR_MINUTE, WEIR_DAY };
    static const int counts[] = { 1, 4, 2, 16, 100 };
    static const int64_t demands[] = { 1000, 2000, 500, 4000 };
    const size_t periods = all ? 4 : 2, count_count = all ? 5 : 2, demand_count = all ? 4 : 2;
    struct sums total = { .worst = INT64_MAX, .good = true };
    printf("permits admitted, in %% of one ideal limit's, and calls to the store a request\n");
    printf("%-9s %8s %-8s %9s %9s %8s\n", "algorithm", "period", "load", "mean", "worst", "calls");
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t p = 0; p < periods; p++)
            for (int shape = 0; shape < SHAPES; shape++) {
                struct sums row = { .worst = INT64_MAX, .good = true };
                for (size_t c = 0; c < count_count; c++)
                    for (size_t d = 0; d < demand_count; d++) {
                        const struct cell_of_loads cell = { kind, periods_us[p], demands[d], (enum shape)shape,
                                                            counts[c] };
                        const struct run_result result = loads_run(&cell);
                        loads_add(&row, &cell, &result);
                        loads_add(&total, &cell, &result);
                    }
                loads_row(&row, kinds[kind].name, periods_us[p], shape_names[shape]);
            }
    printf("%lld cells: mean %.3f %%, worst %.3f %% (%s)\n", (long long)total.cells,
           (double)total.share / (double)total.cells / 1000, (double)total.worst / 1000, total.worst_cell);
    printf("one instance alone: %lld of %lld cells with a wrong denial, at most %lld permits%s%s\n",
           (long long)total.lone_wrong, (long long)total.lone_cells, (long long)total.lone_missed,
           total.lone_wrong > 0 ? ": " : "", total.lone_cell);
    return total.good && total.worst >= WORST_LEAST && total.share / total.cells >= MEAN_LEAST && total.lone_wrong == 0
               ? 0
               : 1;
}
