/* sim_instance.c - instances: whole limiters, made, called and dropped. */
#include "set_share.h"
#include "sim.h"

#include "backends/memory/memory.h"
#include "core/api/life.h"
#include "core/limiter/options.h"

#include <stdlib.h>

static void must(int error, const char *what)
{
    if (error == WEIR_OK)
        return;
    fprintf(stderr, "sim: %s: %s\n", what, weir_strerror(error));
    exit(2);
}

/* The instance's Unix time. */
static int64_t unix_us(void *user)
{
    const struct instance *instance = user;
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return SIM_EPOCH_US + (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 - instance->clock_zero_us +
           instance->skew_us;
}

static int64_t lease_clock_us(void *user)
{
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void log_line_told(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    if (level == WEIR_LOG_ERROR)
        fprintf(stderr, "sim: the library says: %s\n", line);
}

static void limiter_open(struct sim *sim, struct instance *instance)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = WEIR_HYBRID;
    options.redis_url = "unix:///nowhere";
    options.max_keys = 64;
    options.timeout_us = sim->timeout_us;
    options.lease_life_us = sim->leases.life_us;
    options.lease_excess = sim->leases.excess;
    options.denial_life_us = sim->leases.denial_us;
    options.lease_max = sim->leases.max;
    options.strict = sim->leases.strict;
    options.outage_cold = instance->is_cold;
    options.outage_adds = instance->adds;
    options.instances = instance->count;
    options.rank = sim->count;
    options.now_us = unix_us;
    options.log = log_line_told;
    options.user = instance;
    struct weir_options read;
    must(options_read(&options, &read), "options");
    const struct hybrid_settings settings = {
        .leases = options_leases(&read),
        .max_keys = 64,
        .max_bytes = read.max_bytes,
        .timeout_us = read.timeout_us,
        .now_us = lease_clock_us,
    };
    struct weir_backend *fallback;
    instance->remote = remote_make(sim, instance);
    must(hybrid_open(&settings, &instance->remote->backend, &instance->hybrid), "hybrid_open");
    must(memory_open(&read, &fallback), "memory_open");
    must(limiter_make(&read, instance->hybrid, fallback, NULL, &instance->limiter), "limiter_make");
}

/* Choose keys of a limit that are in one shard, so that a call for one of them looks at the others. They depend on the
 * instance's secret: the store knows them by their fourth byte. */
static void keys_choose(struct instance *instance, int limit)
{
    for (int key = 0; key < SIM_KEYS; key++) {
        char *text = instance->keys[limit][key];
        for (int i = 0; i == 0 || key_hash(instance->limits[limit], instance_key(instance, limit, key)) >> 59 != 0; i++)
            snprintf(text, sizeof instance->keys[limit][key], "key%d%04d", key, i);
    }
}

void instance_define(struct sim *sim, struct instance *instance, int limit)
{
    struct sim_limit *known = &sim->limits[limit];
    struct weir_limit_info info = { .size = sizeof info };
    struct weir_policy policy = known->policy;
    if (sim->scenario->troubles & TROUBLE_CANARY)
        policy.blocks += instance->number % 2;
    must(weir_limit_define(instance->limiter, known->name, &policy, &instance->limits[limit]), "define");
    keys_choose(instance, limit);
    must(weir_limit_info(instance->limits[limit], &info), "weir_limit_info");
    known->over_max = max_of(known->over_max, info.over_max);
    known->lease_max = max_of(known->lease_max, info.lease_max);
    known->life_us = max_of(known->life_us, info.lease_life_us);
}

struct instance *instance_make(struct sim *sim)
{
    struct instance *instance = sim_take(sim, sizeof *instance);
    assert(sim->count < SIM_INSTANCES);
    instance->number = sim->made++;
    instance->count = sim->count + 1;
    instance->weight = 1;
    instance->clock_zero_us = random_in(sim, 0, 100 * WEIR_DAY);
    instance->skew_us = random_in(sim, -WEIR_MINUTE, WEIR_MINUTE);
    instance->drift_ppm = random_in(sim, -sim->drift_max_ppm, sim->drift_max_ppm);
    instance->is_cold = random_chance(sim, 300);
    instance->adds = sim->all_adds;
    clocks_of(sim, instance);
    limiter_open(sim, instance);
    for (int i = 0; i < sim->limit_count; i++)
        instance_define(sim, instance, i);
    clocks_of(sim, NULL);
    sim->instances[sim->count++] = instance;
    return instance;
}

void instances_recount(struct sim *sim)
{
    for (int i = 0; i < sim->count; i++) {
        struct instance *instance = sim->instances[i];
        const struct share share = { .weight = 1, .total = sim->count, .rank = i, .count = sim->count };
        clocks_of(sim, instance);
        instance->count = sim->count;
        must(limiter_set_share(instance->limiter, &share), "limiter_set_share");
        for (int limit = 0; limit < sim->limit_count; limit++) {
            struct sim_limit *known = &sim->limits[limit];
            struct weir_limit_info info = { .size = sizeof info };
            must(weir_limit_info(instance->limits[limit], &info), "weir_limit_info");
            known->over_max = max_of(known->over_max, info.over_max);
            known->lease_max = max_of(known->lease_max, info.lease_max);
            known->life_us = max_of(known->life_us, info.lease_life_us);
        }
    }
    clocks_of(sim, NULL);
}

static void instance_forget(struct sim *sim, struct instance *instance)
{
    audit_crashed(sim, instance);
    for (int i = 0; i < sim->count; i++)
        if (sim->instances[i] == instance)
            sim->instances[i] = sim->instances[--sim->count];
}

void instance_crash(struct sim *sim, struct instance *instance)
{
    instance->is_dead = true; /* the store must not see it close */
    instance_forget(sim, instance);
    clocks_of(sim, instance);
    weir_close(instance->limiter);
    clocks_of(sim, NULL);
}

bool instance_leave(struct sim *sim, struct instance *instance)
{
    if (instance->remote->flights)
        return false;
    clocks_of(sim, instance);
    weir_close(instance->limiter);
    clocks_of(sim, NULL);
    instance->is_dead = true;
    instance_forget(sim, instance);
    return true;
}

static void op_done(struct weir_op *op, int status)
{
    struct asked_op *asked = op->user;
    audit_answered(asked->sim, asked, status);
}

/* Decide by one ideal bucket that gets all requests without delay. */
static void ask_ideal(struct sim *sim, int limit, int key, int64_t cost)
{
    const struct asked asked = { .cost = cost, .verb = WEIR_TAKE, .plan = sim->limits[limit].plan };
    struct weir_decision decision;
    cell_decide(&sim->ideals[limit][key], &asked, sim->now_us, &decision);
    sim->ideal += decision.allowed ? cost : 0;
}

void instance_ask(struct sim *sim, struct instance *instance, int limit, int key, int64_t cost, bool must_pass)
{
    struct asked_op *asked = sim_take(sim, sizeof *asked);
    *asked = (struct asked_op){
        .op = { .request = { .limit = instance->limits[limit], .key = instance_key(instance, limit, key), .cost = cost },
                .done = op_done,
                .user = asked },
        .sim = sim,
        .instance = instance,
        .limit = limit,
        .key = key,
        .asked_us = sim->now_us,
        .must_pass = must_pass,
    };
    if (sim->scenario->troubles & TROUBLE_RESERVE && !must_pass)
        reserve_draw(sim, asked);
    sim->asked++;
    instance->asks[limit][key]++;
    ask_ideal(sim, limit, key, cost);
    clocks_of(sim, instance);
    const int status = weir_submit(instance->limiter, &asked->op);
    if (status != 1)
        audit_answered(sim, asked, status);
    clocks_of(sim, NULL);
}
