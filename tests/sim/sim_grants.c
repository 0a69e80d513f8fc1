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

static void grants_tidy(const struct sim *sim, struct holding *holding)
{
    int kept = 0;
    for (int i = 0; i < holding->count; i++)
        if (is_alive(sim, &holding->grants[i]) && (holding->grants[i].is_lease || holding->grants[i].left > 0))
            holding->grants[kept++] = holding->grants[i];
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

void grant_add(const struct sim *sim, struct holding *holding, const struct grant *grant)
{
    grants_tidy(sim, holding);
    if (holding->count == SIM_GRANTS) /* more grants than lives allow: the audit would be too strict, not too lax */
        memmove(holding->grants, holding->grants + 1, (size_t)--holding->count * sizeof *grant);
    holding->grants[holding->count++] = *grant;
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
