/* throttle.c - makes a limit of each set of CL.THROTTLE's parameters, once. */
#include "cli/serve/throttle.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

bool throttle_init(struct throttle *throttle)
{
    *throttle = (struct throttle){ .sets = calloc(2 * THROTTLE_MAX, sizeof *throttle->sets) };
    return throttle->sets && getrandom(&throttle->seed, sizeof throttle->seed, 0) == sizeof throttle->seed;
}

void throttle_free(struct throttle *throttle)
{
    free(throttle->sets);
}

/* Mix one number into a hash. (The finalizer of SplitMix64: Steele et al., "Fast splittable pseudorandom number
 * generators", 2014.) */
static uint64_t mix(uint64_t hash, int64_t number)
{
    hash = (hash ^ (uint64_t)number) + UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

/* Return the slot of these parameters, or the empty one where they belong. The table is at most half full. */
static struct throttle_set *throttle_find(const struct throttle *throttle, int64_t max_burst, int64_t count,
                                          int64_t period_s)
{
    const uint64_t hash = mix(mix(mix(throttle->seed, max_burst), count), period_s);
    for (size_t i = (size_t)hash;; i++) {
        struct throttle_set *set = &throttle->sets[i % (2 * THROTTLE_MAX)];
        if (!set->limit || (set->max_burst == max_burst && set->count == count && set->period_s == period_s))
            return set;
    }
}

static bool is_in_range(struct fault *fault, const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return true;
    return fault_say(fault, "%s must be %lld to %lld, not %lld", name, (long long)least, (long long)most,
                     (long long)value);
}

weir_limit *throttle_limit(struct throttle *throttle, weir *limiter, int64_t max_burst, int64_t count, int64_t period_s,
                           struct fault *fault)
{
    struct throttle_set *set = throttle_find(throttle, max_burst, count, period_s);
    if (set->limit)
        return set->limit;
    if (!is_in_range(fault, "max_burst", max_burst, 0, WEIR_MAX_PERMITS - 1) ||
        !is_in_range(fault, "count", count, 1, WEIR_MAX_PERMITS) ||
        !is_in_range(fault, "period", period_s, 1, WEIR_MAX_PERIOD_US / WEIR_SECOND))
        return NULL;
    if (throttle->used == THROTTLE_MAX) {
        fault_say(fault, "this server has seen %d different sets of parameters and takes no more", THROTTLE_MAX);
        return NULL;
    }
    const struct weir_policy policy = { .limit = count, .period_us = period_s * WEIR_SECOND, .burst = max_burst + 1 };
    char name[WEIR_MAX_NAME_LEN + 1];
    snprintf(name, sizeof name, "cl.throttle.%lld.%lld.%lld", (long long)max_burst, (long long)count,
             (long long)period_s);
    weir_limit *limit;
    if (weir_policy_check(&policy, fault->text, sizeof fault->text) != WEIR_OK)
        return NULL;
    const int error = weir_limit_define(limiter, name, &policy, &limit);
    if (error) {
        fault_say(fault, "%s", weir_strerror(error));
        return NULL;
    }
    *set = (struct throttle_set){ max_burst, count, period_s, limit };
    throttle->used++;
    return limit;
}
