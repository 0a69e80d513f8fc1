/* modes.c - the modes of the soak, and the limits of each. */
#include "soak.h"

#include <stdio.h>
#include <stdlib.h>

const struct soak_mode soak_modes[MODES] = {
    { .name = "local", .mode = WEIR_LOCAL },
    { .name = "local, small, own clock", .mode = WEIR_LOCAL, .own_clock = true, .small = true },
    { .name = "local by share", .mode = WEIR_LOCAL, .by_share = true },
    { .name = "machine", .mode = WEIR_MACHINE, .place = PLACE_FILE },
    { .name = "distributed", .mode = WEIR_DISTRIBUTED, .place = PLACE_REDIS },
    { .name = "distributed or error",
      .mode = WEIR_DISTRIBUTED,
      .place = PLACE_REDIS,
      .on_failure = WEIR_FAIL_ERROR,
      .event_fd = true },
    { .name = "hybrid", .mode = WEIR_HYBRID, .place = PLACE_REDIS },
    { .name = "hybrid, strict", .mode = WEIR_HYBRID, .place = PLACE_REDIS, .strict = true, .event_fd = true },
    { .name = "hybrid in a cluster", .mode = WEIR_HYBRID, .place = PLACE_CLUSTER },
};

bool mode_is_own(int mode)
{
    return soak_modes[mode].mode == WEIR_LOCAL && !soak_modes[mode].by_share;
}

bool mode_asks_redis(int mode)
{
    return soak_modes[mode].place >= PLACE_REDIS;
}

uint32_t modes_on(enum soak_place place)
{
    uint32_t modes = 0;
    for (int mode = 0; mode < MODES; mode++)
        modes |= soak_modes[mode].place == place ? UINT32_C(1) << mode : 0;
    return modes;
}

uint32_t modes_local(void)
{
    return modes_on(PLACE_NONE);
}

/* Windows are aligned to the clock, because those that begin with a key's first request cannot be judged from
 * outside. Churning keys refill within two seconds, so that as many expire as appear. */
const struct soak_limit soak_limits[LIMITS] = {
    { .name = "bucket",
      .policy = "token_bucket limit=125 period=1s burst=40",
      .smaller = "token_bucket limit=60 period=1s burst=25",
      .turned = true },
    { .name = "sliding",
      .policy = "sliding_window limit=60 period=1s",
      .smaller = "sliding_window limit=30 period=1s" },
    { .name = "window", .policy = "fixed_window limit=60 period=1s align=epoch" },
    { .name = "queue", .policy = "leaky_bucket limit=60 period=1s capacity=20" },
    { .name = "interval", .policy = "token_bucket limit=30 period=500ms refill=interval align=epoch" },
    { .name = "churn", .policy = "token_bucket limit=3 period=2s burst=3", .churns = true },
};

struct weir_policy soak_policies[LIMITS];

void policies_read(void)
{
    char message[200];
    for (int limit = 0; limit < LIMITS; limit++)
        if (weir_policy_parse(soak_limits[limit].policy, &soak_policies[limit], message, sizeof message) != WEIR_OK) {
            fprintf(stderr, "soak: %s: %s\n", soak_limits[limit].name, message);
            abort();
        }
}

int64_t policy_size(const struct weir_policy *policy)
{
    if (policy->algorithm == WEIR_LEAKY_BUCKET)
        return policy->capacity ? policy->capacity : policy->limit;
    return (policy->burst ? policy->burst : policy->limit) + policy->debt;
}

bool policy_is_on_grid(const struct weir_policy *policy)
{
    return policy->algorithm == WEIR_FIXED_WINDOW || policy->refill == WEIR_INTERVAL;
}

bool policy_flows(const struct weir_policy *policy)
{
    return !policy_is_on_grid(policy) && policy->algorithm != WEIR_SLIDING_WINDOW;
}
