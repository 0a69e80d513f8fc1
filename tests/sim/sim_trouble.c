/* sim_trouble.c - what goes wrong in a run, and when; all of it is over by heal_us. */
#include "core/policy/plan.h"
#include "sim.h"

int64_t longest_reset_us(const struct sim *sim)
{
    int64_t longest_us = 0;
    for (int i = 0; i < sim->limit_count; i++) {
        const struct weir_policy *policy = &sim->limits[i].policy;
        const int64_t fill_us = (sim->limits[i].size / policy->limit + 1) * policy->period_us;
        longest_us = max_of(longest_us, fill_us + policy->period_us);
    }
    return sim->scenario->troubles & TROUBLE_RESERVE ? 3 * longest_us : longest_us; /* keys may be overdrawn */
}

/* Return when the next trouble of a kind begins: about `times` of them in a run. */
static int64_t next_us(struct sim *sim, int64_t times)
{
    const int64_t run_us = sim->heal_us - SIM_EPOCH_US;
    return sim->now_us + random_in(sim, 1, 2 * run_us / times);
}

/* Return a duration: shorter than the timeout, about as long, or a good part of the run. */
static int64_t length_us(struct sim *sim)
{
    const int64_t run_us = sim->heal_us - SIM_EPOCH_US;
    const int64_t scales_us[] = { sim->timeout_us / 4, 2 * sim->timeout_us, run_us / 4, 8 * sim->leases.life_us };
    return 1 + random_in(sim, 0, scales_us[random_in(sim, 0, 3)]);
}

static bool is_healed(const struct sim *sim)
{
    return sim->now_us >= sim->heal_us;
}

static struct instance *anyone(struct sim *sim)
{
    return sim->instances[random_in(sim, 0, sim->count - 1)];
}

/* ---- Links that are cut ---- */

static void mend_all(struct sim *sim, void *what)
{
    (void)what;
    for (int i = 0; i < sim->count; i++)
        if (sim->instances[i]->remote->is_cut)
            remote_mend(sim, sim->instances[i]->remote);
}

static void mend_one(struct sim *sim, void *what)
{
    remote_mend(sim, what);
}

static void outage(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    const bool refuses = random_chance(sim, 500);
    for (int i = 0; i < sim->count; i++)
        remote_cut(sim, sim->instances[i]->remote, refuses);
    const int64_t end_us = sim->now_us + length_us(sim);
    events_add(sim, end_us, NULL, mend_all, NULL);
    events_add(sim, max_of(end_us, next_us(sim, 3)), NULL, outage, what);
}

static void flap(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    const bool refuses = random_chance(sim, 800);
    for (int i = 0; i < sim->count; i++)
        remote_cut(sim, sim->instances[i]->remote, refuses);
    const int64_t life_us = sim->leases.life_us;
    const int64_t end_us = sim->now_us + random_in(sim, life_us / 4, 4 * life_us);
    events_add(sim, end_us, NULL, mend_all, NULL);
    events_add(sim, end_us + random_in(sim, life_us / 4, 4 * life_us), NULL, flap, what);
}

static void partition(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    const bool refuses = random_chance(sim, 500);
    const int64_t cuts = random_in(sim, 1, sim->count);
    for (int64_t i = 0; i < cuts; i++) {
        struct remote *remote = anyone(sim)->remote;
        if (remote->is_cut)
            continue;
        remote_cut(sim, remote, refuses);
        events_add(sim, sim->now_us + length_us(sim), remote->instance, mend_one, remote);
    }
    events_add(sim, next_us(sim, 4), NULL, partition, what);
}

/* Cut some instances off, or all, for up to three seconds; soon after, do it again. */
static void cut_again(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    const bool refuses = random_chance(sim, 500);
    const int64_t cuts = random_in(sim, 1, sim->count);
    for (int64_t i = 0; i < cuts; i++)
        if (!sim->instances[i]->remote->is_cut)
            remote_cut(sim, sim->instances[i]->remote, refuses);
    const int64_t end_us = sim->now_us + random_in(sim, WEIR_SECOND / 10, 3 * WEIR_SECOND);
    events_add(sim, end_us, NULL, mend_all, NULL);
    events_add(sim, end_us + random_in(sim, WEIR_SECOND / 10, WEIR_SECOND), NULL, cut_again, what);
}

/* ---- A store that forgets, pauses, or has its clock set ---- */

static void snapshot_lost(struct sim *sim, void *what)
{
    (void)what;
    store_fail_over(sim, false);
}

static void failover(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    store_snapshot(sim);
    const int64_t lag_us = random_in(sim, 0, random_chance(sim, 500) ? 2000 : 200000);
    events_add(sim, sim->now_us + lag_us, NULL, snapshot_lost, NULL);
    events_add(sim, sim->now_us + lag_us + next_us(sim, 3) - sim->now_us, NULL, failover, what);
}

static void flush(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    store_fail_over(sim, true);
    events_add(sim, next_us(sim, 3), NULL, flush, what);
}

static void step(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    const int64_t scales_us[] = { 1000, 100000, WEIR_SECOND, 10 * WEIR_SECOND };
    const int64_t most_us = scales_us[random_in(sim, 0, 3)];
    store_step(sim, random_in(sim, -most_us, most_us));
    events_add(sim, next_us(sim, 4), NULL, step, what);
}

static void stand(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    sim->store.stands_until_us = sim->now_us + length_us(sim);
    trace(sim, "store: stands still for %lld us", (long long)(sim->store.stands_until_us - sim->now_us));
    events_add(sim, sim->store.stands_until_us + random_in(sim, 1, next_us(sim, 4) - sim->now_us), NULL, stand, what);
}

/* ---- Instances ---- */

static void elastic(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    const int64_t changes = random_in(sim, 1, 3);
    const bool leaves = random_chance(sim, 500);
    for (int64_t i = 0; i < changes; i++) {
        if (leaves && sim->count > 1) {
            struct instance *instance = anyone(sim);
            const bool is_orderly = random_chance(sim, 500) && instance_leave(sim, instance);
            trace(sim, "instance %d %s", instance->number, is_orderly ? "leaves" : "crashes");
            if (!is_orderly)
                instance_crash(sim, instance);
        } else if (!leaves && sim->count < SIM_DRAWN) {
            trace(sim, "an instance joins");
            instance_make(sim);
        }
    }
    instances_recount(sim);
    events_add(sim, next_us(sim, 8), NULL, elastic, what);
}

static void pause_one(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    struct instance *instance = anyone(sim);
    instance->resumes_us = max_of(instance->resumes_us, sim->now_us + length_us(sim));
    trace(sim, "instance %d: stands still for %lld us", instance->number,
          (long long)(instance->resumes_us - sim->now_us));
    events_add(sim, next_us(sim, 6), NULL, pause_one, what);
}

/* ---- Users' actions ---- */

static void define_one(struct sim *sim, void *what)
{
    struct instance *instance = what;
    for (int limit = 0; limit < sim->limit_count; limit++) {
        clocks_of(sim, instance);
        instance_define(sim, instance, limit);
        for (int key = 0; key < sim->key_count; key++)
            audit_void_denials(sim, limit, key);
    }
}

static void redefine(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    struct sim_limit *limit = &sim->limits[random_in(sim, 0, sim->limit_count - 1)];
    struct weir_policy *policy = &limit->policy;
    policy->limit = max_of(2, policy->limit * random_in(sim, 400, 2500) / 1000);
    if (policy->burst)
        policy->burst = max_of(2, policy->burst * random_in(sim, 400, 2500) / 1000);
    trace(sim, "%s: limit is %lld now", limit->name, (long long)policy->limit);
    plan_make(policy, &share_whole, &limit->plan, (struct message){ NULL, 0 });
    limit->size = max_of(limit->size, limit->plan.size);
    limit->rate_limit = max_of(limit->rate_limit, policy->limit);
    for (int i = 0; i < sim->count; i++) /* not all at the same moment */
        events_add(sim, sim->now_us + random_in(sim, 0, 1000), sim->instances[i], define_one, sim->instances[i]);
    events_add(sim, next_us(sim, 4), NULL, redefine, what);
}

static void give_back(struct sim *sim, void *what)
{
    if (is_healed(sim))
        return;
    struct instance *instance = anyone(sim);
    const int limit = (int)random_in(sim, 0, sim->limit_count - 1);
    const struct weir_key key = instance_key(instance, limit, 0);
    events_add(sim, next_us(sim, 10), NULL, give_back, what);
    if (instance->has_fallen_back)
        return; /* in this simulator these calls would wait forever while debts are settled */
    clocks_of(sim, instance);
    trace(sim, "instance %d: gives back, limit%d", instance->number, limit);
    if (random_chance(sim, 200))
        weir_reset(instance->limits[limit], key);
    else
        weir_refund(instance->limits[limit], key, random_in(sim, 1, sim->limits[limit].plan.size));
}

void troubles_start(struct sim *sim)
{
    static const struct {
        enum trouble trouble;
        int times;
        void (*run)(struct sim *sim, void *what);
    } kinds[] = {
        { TROUBLE_LATE, 20, cut_again },     { TROUBLE_OUTAGE, 3, outage },     { TROUBLE_FLAP, 30, flap },
        { TROUBLE_PARTITION, 4, partition }, { TROUBLE_FAILOVER, 3, failover }, { TROUBLE_FLUSH, 3, flush },
        { TROUBLE_STEP, 4, step },           { TROUBLE_SLOW, 4, stand },        { TROUBLE_ELASTIC, 8, elastic },
        { TROUBLE_PAUSE, 6, pause_one },     { TROUBLE_REDEFINE, 4, redefine }, { TROUBLE_REFUND, 10, give_back },
    };
    const unsigned troubles = sim->scenario->troubles;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (troubles & kinds[i].trouble)
            events_add(sim, next_us(sim, kinds[i].times), NULL, kinds[i].run, NULL);
    if (troubles & TROUBLE_LOSS) {
        sim->lose_permille = random_chance(sim, 700) ? random_in(sim, 1, 50) : random_in(sim, 50, 400);
        sim->late_permille = random_in(sim, 0, 200);
    }
}
