/* sim_grants.c - the permits that the audit lets an instance use of a key. */
#include "sim.h"

#include <string.h>

int64_t sim_drifted_us(const struct sim *sim, int64_t us)
{
    return sim->drift_max_ppm ? us * sim->drift_max_ppm / 1000000 + 2 /* rounding */ : 0;
}

static bool is_alive(const struct sim *sim, const struct grant *grant)
{
    const int64_t life_us = sim->leases.life_us;
    return sim->now_us < grant->asked_us + life_us + sim_drifted_us(sim, life_us);
}

/* Return what has refilled since this grant's life ended and since it was last asked. */
static int64_t grant_refilled(const struct sim *sim, struct grant *grant, int64_t busy_us)
{
    const int64_t aged_us = max_of(sim->now_us, busy_us) - grant->asked_us - grant->young_us - grant->life_us;
    const int64_t over_us = max_of(aged_us, sim->now_us - grant->asked_us - sim->leases.life_us) -
                            sim_drifted_us(sim, grant->life_us + grant->young_us);
    const struct weir_plan *plan = &grant->plan;
    if (!grant->shrinks || over_us <= 0)
        return 0;
    const int64_t shrunk = mul_capped(over_us / plan->tick_us, plan->p) / plan->q, more = shrunk - grant->shrunk;
    grant->shrunk = shrunk;
    return more;
}

/* Take off what has refilled since the grants were last asked. A bucket refills once, however many grants are old: the
 * oldest shrinks first, and a younger one only in the time that is left then and in which it was old, too. (The holder
 * rounds up, and asked for an older grant that it spends first.) */
static void grants_shrink(const struct sim *sim, struct holding *holding)
{
    int64_t refilled[SIM_GRANTS], most = INT64_MAX;
    for (int i = 0; i < holding->count; i++)
        refilled[i] = grant_refilled(sim, &holding->grants[i], holding->busy_us);
    for (int done = 0; done < holding->count; done++) {
        int oldest = 0; /* not always the first: answers may arrive in another order */
        for (int i = 1; i < holding->count; i++)
            oldest = refilled[i] > refilled[oldest] ? i : oldest;
        most = min_of(most, refilled[oldest]);
        const int64_t shrinks = max_of(0, min_of(most, holding->grants[oldest].left));
        holding->grants[oldest].left -= shrinks;
        most -= shrinks;
        refilled[oldest] = -1;
    }
}

/* Nothing that has just arrived is tidied away, because its waiter is about to be served with it. */
static void grants_tidy(const struct sim *sim, struct holding *holding)
{
    int kept = 0;
    grants_shrink(sim, holding);
    for (int i = 0; i < holding->count; i++) {
        struct grant *grant = &holding->grants[i];
        if (grant->arrived_us == sim->now_us || is_alive(sim, grant) ? grant->is_lease || grant->left > 0
                                                                     : grant->shrinks && grant->left > 0)
            holding->grants[kept++] = *grant;
    }
    holding->count = kept;
}

int64_t grants_left(const struct sim *sim, struct holding *holding)
{
    int64_t left = 0;
    grants_tidy(sim, holding);
    for (int i = 0; i < holding->count; i++)
        left += holding->grants[i].left;
    return left;
}

int64_t grants_young(const struct sim *sim, struct holding *holding)
{
    int64_t left = 0;
    grants_tidy(sim, holding);
    for (int i = 0; i < holding->count; i++)
        left += sim->now_us < holding->grants[i].asked_us + holding->grants[i].life_us ? holding->grants[i].left : 0;
    return left;
}

void grants_stay_young(const struct sim *sim, struct holding *holding, const struct weir_plan *plan, int64_t cost,
                       bool with_latest)
{
    const int64_t from_us = max_of(holding->busy_us, sim->now_us);
    if (!is_greedy(plan))
        return;
    holding->busy_us = from_us + cost * div_up(plan->q, plan->p) * plan->tick_us;
    for (int i = 0; i < holding->count; i++) {
        struct grant *grant = &holding->grants[i];
        grant->young_us += holding->busy_us - from_us;
        if (with_latest && i == holding->count - 1)
            grant->young_us = holding->busy_us - grant->asked_us;
    }
}

void grant_add(const struct sim *sim, struct holding *holding, const struct grant *grant)
{
    grants_tidy(sim, holding);
    if (holding->count == SIM_GRANTS) /* more grants than lives allow: the audit would be too strict, not too lax */
        memmove(holding->grants, holding->grants + 1, (size_t)--holding->count * sizeof *grant);
    holding->grants[holding->count] = *grant;
    holding->grants[holding->count++].young_us = max_of(0, holding->busy_us - grant->asked_us);
}

bool grants_use(const struct sim *sim, struct holding *holding, int64_t cost)
{
    if (grants_left(sim, holding) < cost)
        return false;
    for (int i = 0; i < holding->count && cost > 0; i++) {
        struct grant *grant = &holding->grants[i];
        const int64_t used = min_of(cost, grant->left);
        grant->left -= used;
        cost -= used;
    }
    return true;
}

void grants_restore(const struct sim *sim, struct holding *holding, const struct sim_limit *limit, int64_t permits)
{
    grants_tidy(sim, holding);
    if (holding->count > 0)
        holding->grants[holding->count - 1].left += permits;
    else
        grant_add(sim, holding,
                  &(struct grant){ .asked_us = sim->now_us,
                                   .left = permits,
                                   .life_us = limit->life_us,
                                   .shrinks = is_greedy(&limit->plan),
                                   .plan = limit->plan,
                                   .is_lease = true });
}

bool latest_use(struct holding *holding, int64_t cost)
{
    if (holding->count == 0)
        return false;
    struct grant *latest = &holding->grants[holding->count - 1];
    if (latest->left < cost)
        return false;
    latest->left -= cost;
    return true;
}
