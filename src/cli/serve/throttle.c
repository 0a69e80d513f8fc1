/* throttle.c - makes a limit of each set of CL.THROTTLE's parameters, and replaces idle ones. */
#include "cli/serve/throttle.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define SLACK_US (3 * WEIR_SECOND) /* by which a clock may step back without a key being older than it seems */

bool throttle_init(struct throttle *throttle, bool is_local)
{
    *throttle = (struct throttle){ .sets = calloc(THROTTLE_MAX, sizeof *throttle->sets), .is_local = is_local };
    return throttle->sets && getrandom(&throttle->seed, sizeof throttle->seed, 0) == sizeof throttle->seed;
}

void throttle_free(struct throttle *throttle)
{
    free(throttle->sets);
}

/* ---- The table ---- */

/* Mix one number into a hash. (The finalizer of SplitMix64: Steele et al., "Fast splittable pseudorandom number
 * generators", 2014.) */
static uint64_t mix(uint64_t hash, int64_t number)
{
    hash = (hash ^ (uint64_t)number) + UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

/* Return the head of the chain in which a set with these parameters is. */
static uint32_t *throttle_head(struct throttle *throttle, int64_t max_burst, int64_t count, int64_t period_s)
{
    return &throttle->heads[mix(mix(mix(throttle->seed, max_burst), count), period_s) % THROTTLE_MAX];
}

static void set_put(struct throttle *throttle, struct throttle_set *set)
{
    uint32_t *head = throttle_head(throttle, set->max_burst, set->count, set->period_s);
    set->next = *head;
    *head = (uint32_t)(set - throttle->sets) + 1;
}

static void set_take_out(struct throttle *throttle, const struct throttle_set *set)
{
    uint32_t *link = throttle_head(throttle, set->max_burst, set->count, set->period_s);
    while (&throttle->sets[*link - 1] != set)
        link = &throttle->sets[*link - 1].next;
    *link = set->next;
}

/* Return a set to replace: an idle one, or the least recently used one of the sample. NULL: all of the sample are in
 * use. */
static struct throttle_set *throttle_victim(struct throttle *throttle, int64_t now_us)
{
    struct throttle_set *oldest = NULL;
    for (int i = 0; i < THROTTLE_SAMPLE; i++) {
        struct throttle_set *set = &throttle->sets[throttle->hand++ % THROTTLE_MAX];
        if (set->waiting > 0)
            continue;
        if (now_us - set->asked_us > set->idle_us)
            return set;
        if (!set->is_leased && (!oldest || set->asked_us < oldest->asked_us))
            oldest = set;
    }
    return oldest;
}

/* ---- Limits ---- */

static bool is_in_range(struct fault *fault, const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return true;
    return fault_say(fault, "%s must be %lld to %lld, not %lld", name, (long long)least, (long long)most,
                     (long long)value);
}

static bool is_good(int64_t max_burst, int64_t count, int64_t period_s, struct fault *fault)
{
    return is_in_range(fault, "max_burst", max_burst, 0, WEIR_MAX_PERMITS - 1) &&
           is_in_range(fault, "count", count, 1, WEIR_MAX_PERMITS) &&
           is_in_range(fault, "period", period_s, 1, WEIR_MAX_PERIOD_US / WEIR_SECOND);
}

/* Find out how long after its last request a set is idle. */
static void set_note_idle(const struct throttle *throttle, struct throttle_set *set)
{
    struct weir_limit_info info = { .size = sizeof info };
    weir_limit_info(set->limit, &info);
    set->is_leased = info.lease_life_us > 0;
    set->idle_us = 2 * info.lease_life_us + SLACK_US;
    if (throttle->is_local) /* when the slowest key is full again */
        set->idle_us = (set->max_burst / set->count + 2) * set->period_s * WEIR_SECOND + SLACK_US;
}

/* Make the set's limit: a new one, or that of the set whose place it takes. */
static int set_define(weir *limiter, struct throttle_set *set, const struct weir_policy *policy)
{
    char name[WEIR_MAX_NAME_LEN + 1];
    snprintf(name, sizeof name, "cl.throttle.%lld.%lld.%lld", (long long)set->max_burst, (long long)set->count,
             (long long)set->period_s);
    return set->limit ? weir_limit_rename(set->limit, name, policy)
                      : weir_limit_define(limiter, name, policy, &set->limit);
}

static struct throttle_set *set_add(struct throttle *throttle, weir *limiter, const struct throttle_set *added,
                                    const struct weir_policy *policy, int64_t now_us, struct fault *fault)
{
    const bool is_full = throttle->used == THROTTLE_MAX;
    struct throttle_set *set = is_full ? throttle_victim(throttle, now_us) : &throttle->sets[throttle->used];
    if (!set) {
        fault_say(fault, "%d sets of parameters are in use", THROTTLE_MAX);
        return NULL;
    }
    struct throttle_set made = *added;
    made.limit = set->limit;
    const int error = set_define(limiter, &made, policy);
    if (error) {
        fault_say(fault, "%s", weir_strerror(error));
        return NULL;
    }
    if (is_full)
        set_take_out(throttle, set);
    else
        throttle->used++;
    set_note_idle(throttle, &made);
    *set = made;
    set_put(throttle, set);
    return set;
}

struct throttle_set *throttle_get(struct throttle *throttle, weir *limiter, int64_t max_burst, int64_t count,
                                  int64_t period_s, int64_t now_us, struct fault *fault)
{
    struct throttle_set *set;
    for (uint32_t at = *throttle_head(throttle, max_burst, count, period_s); at; at = set->next) {
        set = &throttle->sets[at - 1];
        if (set->max_burst == max_burst && set->count == count && set->period_s == period_s) {
            set->asked_us = now_us;
            return set;
        }
    }
    if (!is_good(max_burst, count, period_s, fault))
        return NULL;
    const struct weir_policy policy = { .limit = count, .period_us = period_s * WEIR_SECOND, .burst = max_burst + 1 };
    if (weir_policy_check(&policy, fault->text, sizeof fault->text) != WEIR_OK)
        return NULL;
    const struct throttle_set added = {
        .max_burst = max_burst, .count = count, .period_s = period_s, .asked_us = now_us
    };
    return set_add(throttle, limiter, &added, &policy, now_us, fault);
}
