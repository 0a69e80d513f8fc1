/* sim_calls.c - how often hybrid mode asks the store for users of very different demand: the figures of
 * docs/design/hybrid.md. 100,000 users make a request a second each on average, by Zipf's law with exponent 0.99, at
 * four instances with default options. Keys hardly influence each other, so one key stands for those of similar rank.
 */
#include "core/policy/plan.h"
#include "sim.h"

#include <math.h>
#include <stdlib.h>

enum {
    USERS = 100000,
    INSTANCES = 4,
    ASKS = 3000,
    BUSY = 100 /* a second: such a key is simulated for a second each */
};

#define DENIAL_US (2 * WEIR_SECOND) /* the default of denial_life_us */
#define EXCESS 5                    /* of lease_excess, percent */
#define NEXT_RANK 1.41

static const struct scenario calls_scenario = { "calls", 0, LOAD_STEADY, "" };

/* ---- One key ---- */

static void calls_asks(struct sim *sim, void *what)
{
    const double *mean_us = what;
    if (sim->now_us >= sim->heal_us)
        return;
    instance_ask(sim, sim->instances[random_in(sim, 0, sim->count - 1)], 0, 0, 1, false);
    const double chance = (double)random_in(sim, 1, 1000000) / 1000000;
    events_add(sim, sim->now_us + 1 + (int64_t)(-log(chance) * *mean_us), NULL, calls_asks, what);
}

/* Return the calls for each request of a key with this demand. They count after `warm_s`, by when a key above
 * its limit has spent its burst. */
static double calls_run(const struct weir_policy *policy, double a_second, double warm_s, double for_s)
{
    const struct run_settings settings = { .tells = true, .asks = 1 };
    struct sim *sim = sim_make(&calls_scenario, 1, &settings);
    double mean_us = (double)WEIR_SECOND / a_second;
    sim->leases = (struct lease_rules){
        .life_us = WEIR_MAX_PERIOD_US, .excess = EXCESS, .denial_us = DENIAL_US, .max = WEIR_MAX_PERMITS
    };
    sim->timeout_us = 50000;
    sim->up_min_us = sim->down_min_us = 150;
    sim->up_max_us = sim->down_max_us = 400;
    sim->limit_count = sim->key_count = 1;
    sim->limits[0] = (struct sim_limit){ .policy = *policy, .name = "limit0", .rate_limit = policy->limit };
    if (plan_make(policy, &share_whole, &sim->limits[0].plan, (struct message){ NULL, 0 }) != WEIR_OK)
        abort();
    sim->limits[0].size = sim->limits[0].plan.size;
    for (int i = 0; i < INSTANCES; i++)
        instance_make(sim);
    instances_recount(sim);
    audit_start(sim);
    const int64_t warm_us = sim->now_us + (int64_t)(warm_s * WEIR_SECOND);
    sim->heal_us = warm_us + (int64_t)(for_s * WEIR_SECOND);
    events_add(sim, sim->now_us + 1000, NULL, calls_asks, &mean_us);
    while (!sim->failed && events_step(sim, warm_us))
        ;
    const int64_t asked = sim->asked, called = sim->store_calls;
    while (!sim->failed && events_step(sim, sim->heal_us + WEIR_SECOND))
        ;
    const struct run_result result = sim_end(sim);
    return (double)(result.store_calls - called) / (double)(result.asked - asked);
}

/* ---- All keys ---- */

struct calls_of {
    double part, calls, least; /* of all decisions; a decision; the same at least */
};

/* Return the fewest calls for each request of a key, if denials are exact and leases no larger than a fair part. A call
 * serves its instance until a permit may be back, or until the lease has ended; the next request asks again. Below the
 * limit, the lease does not age for the part of the time in which what was used here has not refilled. */
static double calls_least(double rate, double size, double a_second)
{
    const double denied_s = fmin((double)DENIAL_US / WEIR_SECOND, 1 / rate);
    const double busy = fmin(a_second / INSTANCES / rate, 0.99);
    const double leased_s = (size * EXCESS / 100 + size / INSTANCES) / rate / (1 - busy);
    return 1 / (1 + a_second / INSTANCES * (a_second > rate ? denied_s : leased_s));
}

static void calls_add(struct calls_of *sum, double part, double calls, double least)
{
    sum->part += part;
    sum->calls += part * calls;
    sum->least += part * least;
}

/* Print the calls for a limit. True if they are more than `most` a decision. */
static bool calls_of_limit(const struct weir_policy *policy, double most)
{
    const double rate = (double)policy->limit * WEIR_SECOND / (double)policy->period_us, size = (double)policy->limit;
    struct calls_of over = { 0, 0, 0 }, under = { 0, 0, 0 };
    double all = 0;
    for (int rank = 1; rank <= USERS; rank++)
        all += pow(rank, -0.99);
    for (int first = 1, last; first <= USERS; first = last + 1) {
        double part = 0;
        last = (int)fmin(first * NEXT_RANK, USERS);
        for (int rank = first; rank <= last; rank++)
            part += pow(rank, -0.99) / all;
        const double a_second = part * USERS / (last - first + 1);
        const bool is_over = a_second > rate;
        const double calls = calls_run(policy, a_second, is_over ? 1.1 * size / (a_second - rate) : 60,
                                       a_second > BUSY ? BUSY : ASKS / a_second);
        calls_add(is_over ? &over : &under, part, calls, calls_least(rate, size, a_second));
    }
    printf("%lld in %lld s: %.3f calls a decision, at least %.3f\n", (long long)policy->limit,
           (long long)(policy->period_us / WEIR_SECOND), over.calls + under.calls, over.least + under.least);
    printf("    %2.0f %% of the decisions, of keys above the limit: %.3f, at least %.3f\n", 100 * over.part, over.calls,
           over.least);
    printf("    %2.0f %% of the decisions, of keys below the limit: %.3f, at least %.3f\n", 100 * under.part,
           under.calls, under.least);
    return over.calls + under.calls > most;
}

int calls(void)
{
    static const struct weir_policy minute = { .limit = 100, .period_us = WEIR_MINUTE };
    static const struct weir_policy hour = { .limit = 1000, .period_us = WEIR_HOUR };
    const bool is_more = calls_of_limit(&minute, 0.46);
    return calls_of_limit(&hour, 0.26) || is_more;
}
