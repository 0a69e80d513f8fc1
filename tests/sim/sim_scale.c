/* sim_scale.c - what hybrid mode admits and asks of the store as instances grow, by default options.
 *
 * One key has a limit of RATE a second with a burst of as many, so that leases live for 50 ms. Requests come at random
 * times and are dealt at random, each instance as likely as another. Each row is a run of RUN_US without faults; the
 * auditor of all runs also watches this one.
 */
#include "core/policy/plan.h"
#include "sim.h"

enum { RATE = 1000, LIFE_US = 50000, RUN_US = 10 * WEIR_SECOND };

static const struct scenario scale_scenario = { "scale", 0, LOAD_STEADY, "" };

/* Print one row; false if a promise was broken. */
static bool scale_run(int count, int64_t demand_permille)
{
    const struct run_settings settings = { .tells = true, .asks = 1 };
    struct sim *sim = sim_make(&scale_scenario, 1, &settings);
    sim->leases = (struct lease_rules){ /* the defaults */
                                        .life_us = LIFE_US,
                                        .excess = 5,
                                        .denial_us = 2 * WEIR_SECOND,
                                        .max = WEIR_MAX_PERMITS
    };
    sim->timeout_us = 50000;
    sim->up_min_us = sim->down_min_us = 150;
    sim->up_max_us = sim->down_max_us = 400;
    sim->limit_count = sim->key_count = 1;
    sim->limits[0] = (struct sim_limit){
        .policy = { .limit = RATE, .period_us = WEIR_SECOND },
        .name = "limit0",
        .size = RATE,
        .rate_limit = RATE,
        .demand_permille = demand_permille,
    };
    plan_make(&sim->limits[0].policy, &share_whole, &sim->limits[0].plan, (struct message){ NULL, 0 });
    for (int i = 0; i < count; i++)
        instance_make(sim);
    instances_recount(sim);
    audit_start(sim);
    sim->heal_us = sim->now_us + RUN_US;
    load_start(sim);
    for (int i = 0; i < sim->count; i++)
        sim->instances[i]->weight = 1;
    while (!sim->failed && events_step(sim, sim->heal_us + WEIR_SECOND))
        ;
    const struct run_result result = sim_end(sim);
    printf("%d\t%lld\t%lld\t%lld\t%lld\t%lld\n", count, (long long)demand_permille / 10, (long long)result.asked,
           (long long)result.used, (long long)result.ideal, (long long)(result.store_calls * WEIR_SECOND / RUN_US));
    fflush(stdout);
    return result.good;
}

int scale(int most)
{
    static const int steps[] = { 1, 2, 5, 10, 20, 50, 100, 200, 500, SIM_INSTANCES };
    static const int64_t demands[] = { 500, 1000, 2000 };
    bool good = true;
    int last = 0;
    printf("instances\tdemand, %%\trequests\tadmitted\tone limit admits\tcalls a second\n");
    for (size_t i = 0; i < sizeof steps / sizeof *steps && last < most; i++) {
        last = steps[i] < most ? steps[i] : most;
        for (size_t d = 0; d < sizeof demands / sizeof *demands; d++)
            good = scale_run(last, demands[d]) && good;
    }
    return good ? 0 : 1;
}
