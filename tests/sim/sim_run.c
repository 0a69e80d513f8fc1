/* sim_run.c - one run: its parts are drawn from its seed; then it is simulated, healed and audited. */
#include "core/policy/plan.h"
#include "sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TRACE_LINES = 60, TRACE_WIDTH = 200, STEPS_MOST = 4000000, RATE_MOST = 3000 };

const struct scenario scenarios[] = {
    { "calm", 0, LOAD_MIXED, "moving skews, crowds" },
    { "steady", 0, LOAD_STEADY, "hot keys below their limits" },
    { "canary", TROUBLE_CANARY, LOAD_STEADY, "instances that disagree on a policy, below its limit" },
    { "weights", 0, LOAD_WEIGHTS, "costs of all sizes" },
    { "hoard", 0, LOAD_HOARD, "leases built up and used at their last moment" },
    { "drift", TROUBLE_DRIFT, LOAD_HOARD, "hoarders whose clocks drift" },
    { "loss", TROUBLE_LOSS, LOAD_MIXED, "requests and replies lost, or late" },
    { "slow", TROUBLE_SLOW, LOAD_MIXED, "a store that stands still now and then" },
    { "outage", TROUBLE_OUTAGE, LOAD_MIXED, "a store that nobody reaches" },
    { "partition", TROUBLE_PARTITION, LOAD_MIXED, "a store that some do not reach" },
    { "late", TROUBLE_LATE, LOAD_LATE, "a store that some do not reach, again and again; outages count as one" },
    { "day", TROUBLE_OUTAGE, LOAD_LONG, "outages that are short beside a limit's period" },
    { "flap", TROUBLE_FLAP, LOAD_MIXED, "many outages" },
    { "failover", TROUBLE_FAILOVER, LOAD_MIXED, "lost writes" },
    { "flush", TROUBLE_FLUSH, LOAD_MIXED, "all is lost" },
    { "step", TROUBLE_STEP, LOAD_MIXED, "the store's clock is set" },
    { "elastic", TROUBLE_ELASTIC, LOAD_MIXED, "instances join and crash" },
    { "pause", TROUBLE_PAUSE, LOAD_HOARD, "hoarders that stand still" },
    { "redefine", TROUBLE_REDEFINE, LOAD_WEIGHTS, "policies change" },
    { "refund", TROUBLE_REFUND, LOAD_WEIGHTS, "permits given back, keys forgotten" },
    { "reserve", TROUBLE_RESERVE, LOAD_WEIGHTS, "reservations, settled soon, late or never" },
    { "reserve-hoard", TROUBLE_RESERVE, LOAD_HOARD, "the same with leases used at their last moment" },
    { "reserve-die", TROUBLE_RESERVE | TROUBLE_ELASTIC | TROUBLE_DRIFT, LOAD_WEIGHTS, "holders that die" },
    { "reserve-storm", TROUBLE_RESERVE | TROUBLE_LOSS | TROUBLE_PARTITION | TROUBLE_PAUSE | TROUBLE_SLOW, LOAD_WEIGHTS,
      "the same, cut off" },
    { "renew", TROUBLE_RESERVE | TROUBLE_RENEW, LOAD_WEIGHTS, "requests in flight that renew their permits" },
    { "renew-die", TROUBLE_RESERVE | TROUBLE_RENEW | TROUBLE_ELASTIC, LOAD_MIXED, "the same, and some of them die" },
    { "renew-storm", TROUBLE_RESERVE | TROUBLE_RENEW | TROUBLE_LOSS | TROUBLE_PARTITION | TROUBLE_PAUSE | TROUBLE_SLOW,
      LOAD_WEIGHTS, "the same, cut off" },
    { "elastic-outage", TROUBLE_ELASTIC | TROUBLE_OUTAGE | TROUBLE_LOSS, LOAD_MIXED, "the same, cut off" },
    { "storm", TROUBLE_LOSS | TROUBLE_PARTITION | TROUBLE_FLAP | TROUBLE_PAUSE | TROUBLE_SLOW, LOAD_WEIGHTS,
      "every way of being cut off" },
    { "all",
      TROUBLE_LOSS | TROUBLE_OUTAGE | TROUBLE_PARTITION | TROUBLE_FAILOVER | TROUBLE_FLUSH | TROUBLE_STEP |
          TROUBLE_SLOW | TROUBLE_ELASTIC | TROUBLE_PAUSE | TROUBLE_REDEFINE | TROUBLE_REFUND | TROUBLE_DRIFT,
      LOAD_WEIGHTS, "everything at once" },
};
const size_t scenario_count = sizeof scenarios / sizeof *scenarios;

/* ---- Reports ---- */

void trace(struct sim *sim, const char *format, ...)
{
    va_list arguments;
    if (!sim->traces)
        return;
    char *line = sim->trace + sim->trace_next++ % TRACE_LINES * TRACE_WIDTH;
    va_start(arguments, format);
    const int n = snprintf(line, TRACE_WIDTH, "%10lld  ", (long long)(sim->now_us - SIM_EPOCH_US));
    vsnprintf(line + n, TRACE_WIDTH - (size_t)n, format, arguments);
    va_end(arguments);
    if (sim->tells_all)
        puts(line);
}

void violation(struct sim *sim, const char *format, ...)
{
    va_list arguments;
    if (sim->failed)
        return;
    sim->failed = true;
    if (!sim->tells)
        return;
    va_start(arguments, format);
    if (!sim->is_over)
        for (size_t i = sim->trace_next > TRACE_LINES ? sim->trace_next - TRACE_LINES : 0; i < sim->trace_next; i++)
            puts(sim->trace + i % TRACE_LINES * TRACE_WIDTH);
    printf("VIOLATION in %s, seed %llu, at %lld us: ", sim->scenario->name, (unsigned long long)sim->seed,
           (long long)(sim->now_us - SIM_EPOCH_US));
    vprintf(format, arguments);
    printf("\n  once more: sim --scenario %s --seed %llu --trace\n", sim->scenario->name,
           (unsigned long long)sim->seed);
    va_end(arguments);
}

/* ---- Parts of a run ---- */

/* Draw a size with each power of two about as likely. */
static int64_t random_size(struct sim *sim, int64_t least, int64_t most)
{
    int64_t top = most;
    while (top / 2 > least && random_chance(sim, 700))
        top /= 2;
    return random_in(sim, max_of(least, top / 2), top);
}

static void limit_draw(struct sim *sim, struct sim_limit *limit, int number)
{
    static const int64_t periods_us[] = { 100000, 500000, WEIR_SECOND, 2 * WEIR_SECOND };
    static const int64_t long_us[] = { WEIR_MINUTE, WEIR_HOUR, WEIR_DAY };
    const bool is_long = sim->scenario->load == LOAD_LONG, is_late = sim->scenario->load == LOAD_LATE;
    struct weir_policy policy = { .period_us = is_long ? long_us[random_in(sim, 0, 2)]
                                                       : periods_us[random_in(sim, 0, 3)] };
    const int64_t rate_most = is_long ? RATE_MOST / 10 : RATE_MOST, second = policy.period_us / WEIR_SECOND;
    policy.limit = random_size(sim, is_long ? second : 4, policy.period_us * rate_most / WEIR_SECOND);
    switch (sim->scenario->troubles & (TROUBLE_CANARY | TROUBLE_RENEW) ? 4 : is_late ? 7 : random_in(sim, 0, 6)) {
    case 0:
    case 1: break;
    case 2: policy.refill = WEIR_INTERVAL; break;
    case 3: policy.algorithm = WEIR_FIXED_WINDOW; break;
    case 4: policy.algorithm = WEIR_SLIDING_WINDOW; break;
    case 5: policy.algorithm = WEIR_LEAKY_BUCKET; break;
    case 7:
        policy = (struct weir_policy){ .limit = random_in(sim, 10, 60), .period_us = WEIR_SECOND };
        switch (sim->seed % 8) { /* not drawn: mutants.sh needs seed 197 as it is */
        case 0: policy.algorithm = WEIR_FIXED_WINDOW; break;
        case 2: policy.algorithm = WEIR_SLIDING_WINDOW; break;
        case 4: policy.refill = WEIR_INTERVAL; break;
        default: policy.burst = random_in(sim, 4, policy.limit);
        }
        break;
    default: policy.burst = random_size(sim, 4, 4000);
    }
    const bool can_align = policy.refill == WEIR_INTERVAL || policy.algorithm == WEIR_FIXED_WINDOW;
    policy.align = can_align && random_chance(sim, 500) ? WEIR_ALIGN_EPOCH : WEIR_ALIGN_FIRST;
    if (policy.algorithm == WEIR_SLIDING_WINDOW)
        policy.blocks = (int32_t)random_in(sim, 1, 20);
    if (policy.algorithm == WEIR_LEAKY_BUCKET && random_chance(sim, 500))
        policy.capacity = random_size(sim, 4, 4000);
    if (policy.algorithm == WEIR_TOKEN_BUCKET && random_chance(sim, 200))
        policy.debt = random_in(sim, 1, policy.limit);
    *limit = (struct sim_limit){ .policy = policy, .demand_permille = random_size(sim, 250, 8000) };
    if (is_late)
        limit->demand_permille = random_in(sim, 1000, 4000);
    if (sim->scenario->load == LOAD_STEADY)
        limit->demand_permille = random_in(sim, 200, 500);
    snprintf(limit->name, sizeof limit->name, "limit%d", number);
    if (plan_make(&policy, &share_whole, &limit->plan, (struct message){ NULL, 0 }) != WEIR_OK)
        abort();
    limit->size = limit->plan.size;
    limit->rate_limit = policy.limit;
    char text[160];
    weir_policy_print(&policy, text, sizeof text);
    trace(sim, "%s: %s, asked for %lld/1000 of it", limit->name, text, (long long)limit->demand_permille);
}

static void draw(struct sim *sim)
{
    static const int64_t lives_us[] = { 50000, 100000, 200000, 500000, 2 * WEIR_SECOND };
    static const int64_t excesses[] = { 5, 30, 100 };
    const unsigned troubles = sim->scenario->troubles;
    sim->leases = (struct lease_rules){
        .life_us = lives_us[random_in(sim, 0, 4)],
        .excess = excesses[random_in(sim, 0, 2)],
        .denial_us = random_size(sim, 1000, 2 * WEIR_SECOND),
        .max = random_chance(sim, 200) ? random_in(sim, 1, 50) : WEIR_MAX_PERMITS,
        .strict = random_chance(sim, 200),
    };
    sim->all_adds = !(troubles & TROUBLE_LATE) && sim->seed % 5 == 0;
    sim->drift_max_ppm = troubles & TROUBLE_DRIFT ? 200 : 0;
    sim->up_min_us = random_in(sim, 20, 1000);
    sim->down_min_us = random_in(sim, 20, 1000);
    sim->up_max_us = sim->up_min_us + random_size(sim, 0, 4000);
    sim->down_max_us = sim->down_min_us + random_size(sim, 0, 4000);
    sim->timeout_us = 8 * (sim->up_max_us + sim->down_max_us) + random_in(sim, 1000, 80000);
    sim->limit_count = (int)random_in(sim, 1, SIM_LIMITS);
    sim->key_count = (int)random_in(sim, 1, SIM_KEYS);
    if (troubles & TROUBLE_LATE)
        sim->limit_count = sim->key_count = 1;
    for (int i = 0; i < sim->limit_count; i++)
        limit_draw(sim, &sim->limits[i], i);
    const int64_t count = random_size(sim, 1, troubles & (TROUBLE_ELASTIC | TROUBLE_LATE) ? 12 : SIM_DRAWN);
    for (int64_t i = 0; i < count; i++)
        instance_make(sim);
    instances_recount(sim);
    trace(sim, "%d instances, %d keys, leases of %lld us and %lld permits%s, way %lld to %lld us", sim->count,
          sim->key_count, (long long)sim->leases.life_us, (long long)sim->leases.max,
          sim->leases.strict ? ", strict" : "", (long long)(sim->up_min_us + sim->down_min_us),
          (long long)(sim->up_max_us + sim->down_max_us));
}

static int64_t asked_a_second(const struct sim *sim)
{
    int64_t a_second = 1;
    for (int i = 0; i < sim->limit_count; i++)
        a_second += sim->limits[i].policy.limit * WEIR_SECOND / sim->limits[i].policy.period_us *
                    sim->limits[i].demand_permille / 1000;
    return a_second;
}

/* Return a duration for about `asks` requests, within bounds; much larger demands are cut. */
static int64_t run_us(struct sim *sim, int64_t asks)
{
    const int64_t least_us = 5 * sim->leases.life_us;
    while (asked_a_second(sim) * least_us / WEIR_SECOND > 3 * asks) {
        struct sim_limit *limit = &sim->limits[random_in(sim, 0, sim->limit_count - 1)];
        limit->demand_permille = limit->demand_permille * 3 / 4;
    }
    return min_of(max_of(asks * WEIR_SECOND / asked_a_second(sim), least_us), 20 * WEIR_SECOND);
}

/* ---- The end ---- */

/* Bring the store back; one that stands still, and paused instances, resume by themselves. */
static void heal(struct sim *sim)
{
    trace(sim, "all is well again");
    sim->lose_permille = sim->late_permille = 0;
    for (int i = 0; i < sim->count; i++)
        if (sim->instances[i]->remote->is_cut)
            remote_mend(sim, sim->instances[i]->remote);
}

/* Check that every instance gets a permit of every key, after all keys have become fresh. It asks twice: the first
 * request notices a clock that was set back, and settles what its walk in the background, which pauses for up to 10 s,
 * has left. */
static void check_liveness(struct sim *sim)
{
    const int64_t reset_us = longest_reset_us(sim);
    int64_t until_us = max_of(sim->now_us, sim->store.stands_until_us);
    for (int i = 0; i < sim->count; i++)
        until_us = max_of(until_us, sim->instances[i]->resumes_us);
    until_us += reset_us + WEIR_CLOCK_SLACK_US + 2 * WEIR_SECOND;
    for (int i = 0; i < 2 * sim->count && !sim->failed; i++) {
        const bool must_pass = i % 2 == 1;
        while (events_step(sim, until_us) && !sim->failed)
            ;
        for (int limit = 0; limit < sim->limit_count; limit++)
            for (int key = 0; key < sim->key_count; key++)
                instance_ask(sim, sim->instances[i / 2], limit, key, 1, must_pass);
        until_us += reset_us + (must_pass ? 0 : WEIR_CLOCK_SLACK_US);
    }
    until_us += WEIR_SECOND;
    while (events_step(sim, until_us) && !sim->failed)
        ;
}

/* True if this instance's leases of a key could be as large as half a life's load requires, and are requested in
 * time. Leases of limits other than greedy buckets end sooner: with windows, blocks, refills, or unused slots. */
static bool is_hot(const struct sim *sim, const struct instance *instance, int limit, int key, int64_t ran_us)
{
    const struct sim_limit *known = &sim->limits[limit];
    if (known->life_us == 0)
        return false;
    const int64_t lives = ran_us / known->life_us + 1;
    const int64_t asks = instance->asks[limit][key] / lives;
    const int64_t trip_us = sim->up_max_us + sim->down_max_us;
    return known->policy.algorithm == WEIR_TOKEN_BUCKET && known->policy.refill == WEIR_GREEDY && asks >= 20 &&
           known->lease_max >= 4 * asks && known->size >= 20 * sim->count * asks && trip_us <= known->life_us / 20;
}

/* Check the calls for hot keys with demand below their limits: two per life, and some at first. */
static void check_calls(struct sim *sim, int64_t ran_us)
{
    for (int i = 0; i < sim->count; i++) {
        const struct instance *instance = sim->instances[i];
        for (int limit = 0; limit < sim->limit_count; limit++)
            for (int key = 0; key < sim->key_count; key++)
                if (is_hot(sim, instance, limit, key, ran_us) &&
                    instance->calls[limit][key] > 2 * ran_us / sim->limits[limit].life_us + 12)
                    violation(sim,
                              "calls: instance %d asked the store %lld times for limit%d key%d, more than twice a life",
                              instance->number, (long long)instance->calls[limit][key], limit, key);
    }
}

/* weir_close() would wait forever for a request that is still unanswered. */
static void close_all(struct sim *sim)
{
    if (sim->asked != sim->answered) {
        violation(sim, "liveness: %lld requests were not answered", (long long)(sim->asked - sim->answered));
        return;
    }
    sim->is_over = true;
    for (int i = 0; i < sim->count; i++) {
        clocks_of(sim, sim->instances[i]);
        weir_close(sim->instances[i]->limiter);
    }
    clocks_of(sim, NULL);
}

struct sim *sim_make(const struct scenario *scenario, uint64_t seed, const struct run_settings *settings)
{
    static char lines[TRACE_LINES * TRACE_WIDTH];
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        abort();
    sim->seed = sim->random = seed;
    sim->scenario = scenario;
    for (const char *letter = scenario->name; *letter; letter++)
        sim->random = sim->random * 31 + (unsigned char)*letter;
    sim->tells = settings->tells;
    sim->tells_all = settings->tells_all;
    sim->traces = settings->traces || settings->tells_all;
    sim->trace = lines;
    sim->now_us = SIM_EPOCH_US;
    sim->order = 1;
    sim->twin = settings->twin;
    if (sim->twin)
        sim->twin->begin();
    return sim;
}

struct run_result sim_end(struct sim *sim)
{
    close_all(sim);
    audit_end(sim);
    const struct run_result result = {
        .good = !sim->failed,
        .asked = sim->asked,
        .steps = (int64_t)sim->steps,
        .used = sim->used,
        .ideal = sim->ideal,
        .store_calls = sim->store_calls,
        .lease_hits = sim->lease_hits,
        .denial_hits = sim->denial_hits,
        .fallbacks = sim->fallbacks,
    };
    sim_free_all(sim);
    free(sim);
    return result;
}

static struct run_result run_once(const struct scenario *scenario, uint64_t seed, const struct run_settings *settings)
{
    struct sim *sim = sim_make(scenario, seed, settings);
    draw(sim);
    audit_start(sim);
    const int64_t ran_us = run_us(sim, settings->asks);
    sim->heal_us = sim->now_us + ran_us;
    load_start(sim);
    troubles_start(sim);
    while (!sim->failed && events_step(sim, sim->heal_us))
        if (sim->steps > STEPS_MOST)
            violation(sim, "liveness: the run does not end");
    if (!sim->failed && scenario->load == LOAD_STEADY)
        check_calls(sim, ran_us);
    if (!sim->failed && (scenario->troubles & TROUBLE_CANARY) && sim->ideal - sim->used > sim->asked / 20 + 2)
        violation(sim, "starved: %lld of %lld were admitted, and one limit would have admitted %lld",
                  (long long)sim->used, (long long)sim->asked, (long long)sim->ideal);
    heal(sim);
    if (!sim->failed)
        check_liveness(sim);
    return sim_end(sim);
}

/* A run that breaks a promise is repeated, to print what led to it. */
struct run_result run_seed(const struct scenario *scenario, uint64_t seed, const struct run_settings *settings)
{
    struct run_settings silent = *settings, telling = *settings;
    if (settings->tells_all)
        return run_once(scenario, seed, settings);
    silent.tells = false;
    telling.traces = true;
    const struct run_result result = run_once(scenario, seed, &silent);
    return result.good || !settings->tells ? result : run_once(scenario, seed, &telling);
}
