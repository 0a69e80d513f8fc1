/* sim_matrix.c - what hybrid mode admits compared with one ideal bucket, without faults. */
#include "core/policy/plan.h"
#include "sim.h"

enum { WORST_LEAST = 98000, MEAN_LEAST = 99500 }; /* thousandths of a percent */

static const struct scenario matrix_scenario = { "matrix", 0, LOAD_STEADY, "" };

struct matrix_cell {
    int64_t rate, life_us, demand_permille;
    int count;
};

/* Permits admitted relative to the ideal bucket, in thousandths of a percent. */
struct matrix_result {
    int64_t share;
    int64_t calls_milli; /* store calls per second and instance, in thousandths */
    int64_t asked;
    bool good;
};

static struct matrix_result cell_run(const struct matrix_cell *cell)
{
    const struct run_settings settings = { .tells = true, .asks = 1 };
    struct sim *sim = sim_make(&matrix_scenario, 1, &settings);
    const int64_t run_us = cell->rate > 1000 ? 5 * WEIR_SECOND : 20 * WEIR_SECOND;
    sim->leases = (struct lease_rules){
        .life_us = cell->life_us, .excess = 100, .denial_us = 2 * WEIR_SECOND, .max = WEIR_MAX_PERMITS
    };
    sim->timeout_us = 50000;
    sim->up_min_us = sim->down_min_us = 150;
    sim->up_max_us = sim->down_max_us = 400;
    sim->limit_count = sim->key_count = 1;
    sim->limits[0] = (struct sim_limit){
        .policy = { .limit = cell->rate, .period_us = WEIR_SECOND },
        .name = "limit0",
        .size = cell->rate,
        .rate_limit = cell->rate,
        .demand_permille = cell->demand_permille,
    };
    plan_make(&sim->limits[0].policy, &share_whole, &sim->limits[0].plan, (struct message){ NULL, 0 });
    for (int i = 0; i < cell->count; i++)
        instance_make(sim);
    instances_recount(sim);
    audit_start(sim);
    sim->heal_us = sim->now_us + run_us;
    load_start(sim);
    for (int i = 0; i < sim->count; i++) /* weights 1, 1/2, 1/3, ... */
        sim->instances[i]->weight = 5040 / (i + 1);
    while (!sim->failed && events_step(sim, sim->heal_us + WEIR_SECOND))
        ;
    const struct run_result result = sim_end(sim);
    return (struct matrix_result){
        .share = result.used * 100000 / max_of(1, result.ideal),
        .calls_milli = result.store_calls * 1000 / cell->count * WEIR_SECOND / run_us,
        .asked = result.asked,
        .good = result.good,
    };
}

int matrix(void)
{
    static const int64_t rates[] = { 10, 100, 1000, 10000 };
    static const int counts[] = { 2, 8, 32 };
    static const int64_t lives_us[] = { 50000, 100000, 200000, 500000 };
    static const int64_t demands[] = { 500, 1000, 2000, 4000 };
    int64_t worst = INT64_MAX, sum = 0, cells = 0;
    bool good = true;
    printf("permits admitted, in %% of one ideal bucket's, and store calls a second and instance\n");
    printf("%6s %4s %7s", "rate/s", "n", "life");
    for (size_t d = 0; d < sizeof demands / sizeof *demands; d++)
        printf("    demand %lld.%lld x  ", (long long)(demands[d] / 1000), (long long)(demands[d] % 1000 / 100));
    printf("\n");
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
            for (size_t l = 0; l < sizeof lives_us / sizeof *lives_us; l++) {
                printf("%6lld %4d %4lld ms", (long long)rates[r], counts[n], (long long)(lives_us[l] / 1000));
                for (size_t d = 0; d < sizeof demands / sizeof *demands; d++) {
                    const struct matrix_cell cell = { rates[r], lives_us[l], demands[d], counts[n] };
                    const struct matrix_result result = cell_run(&cell);
                    printf("  %7.3f %8.1f", (double)result.share / 1000, (double)result.calls_milli / 1000);
                    good = good && result.good;
                    worst = min_of(worst, result.share);
                    sum += result.share;
                    cells++;
                }
                printf("\n");
            }
        }
    }
    printf("worst %.3f %%, mean %.3f %%; at least %d %% and %d.%d %% are wanted\n", (double)worst / 1000,
           (double)(sum / cells) / 1000, WORST_LEAST / 1000, MEAN_LEAST / 1000, MEAN_LEAST % 1000 / 100);
    return good && worst >= WORST_LEAST && sum / cells >= MEAN_LEAST ? 0 : 1;
}
