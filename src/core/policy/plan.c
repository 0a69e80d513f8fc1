/* plan.c - a policy made ready to run.
 *
 * Greedy buckets and leaky buckets count in units, so that no division is ever rounded. With share w/W the rate is
 * limit*w permits in period*W. Cut into ticks of u us, that is p/q permits per tick in lowest terms:
 *
 *     u = the finest of 1, 10, 100, ... 10^7 us, 1 m, 10 m, 1 h, 1 d that divides period and for which size*q and p are
 *         below 2^53
 *     p / q = limit*w / (period/u * W)        a permit is q units, p units drain per tick
 *
 * Interval refill and windows count whole permits. If an instance's part of an interval's refill is less than one
 * permit, it gets one permit in a longer interval instead: ceil(period*W / (limit*w)).
 *
 * A limit on requests in flight has its hold as period. Only slots are decided by it. A request for a rate that meets
 * such a plan began before the policy changed. For that the plan is also a bucket that refills within a microsecond.
 *
 * If this instance's share is 0, the size is 0 and every cost is denied forever. The rate is then the slowest that
 * there is, so that permits used before do not return while the share is 0.
 */
#include "core/policy/plan.h"

#include "core/ground/arith.h"
#include "core/ground/hash.h"

#include <inttypes.h>

__extension__ typedef unsigned __int128 wide;

/* Each divides the next one. */
static const int64_t ticks_us[] = { 1,         10,      100,      1000,        10000,
                                    100000,    1000000, 10000000, WEIR_MINUTE, 10 * WEIR_MINUTE,
                                    WEIR_HOUR, WEIR_DAY };
enum { TICKS = sizeof ticks_us / sizeof ticks_us[0] };

static wide greatest_common_divisor(wide a, wide b)
{
    while (b != 0) {
        wide rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

enum policy_field_id plan_size_field(const struct weir_policy *policy)
{
    if (policy->algorithm == WEIR_TOKEN_BUCKET && policy->burst)
        return POLICY_BURST;
    if (policy->algorithm == WEIR_LEAKY_BUCKET && policy->capacity)
        return POLICY_CAPACITY;
    return POLICY_LIMIT;
}

static bool is_window(const struct weir_policy *policy)
{
    return policy->algorithm == WEIR_FIXED_WINDOW || policy->algorithm == WEIR_SLIDING_WINDOW ||
           policy->algorithm == WEIR_CONCURRENCY;
}

enum plan_part plan_part(const struct weir_policy *policy, const struct share *share)
{
    if (policy_is_fixed(policy))
        return PLAN_PART;
    if (share_permits(share, policy_get(policy, plan_size_field(policy))) > 0)
        return PLAN_PART;
    return is_window(policy) || share_is_nothing(share_least(share)) ? PLAN_PART_ZERO : PLAN_PART_LIFTED;
}

int64_t plan_size(const struct weir_policy *policy, const struct share *share)
{
    int64_t size = share_permits(share, policy_get(policy, plan_size_field(policy)));
    if (!is_window(policy))
        size = max_of(size, 1);
    return size + share_permits(share, policy->debt);
}

static int refuse_fill(const struct weir_policy *policy, struct message message)
{
    return message_refuse(message, "%s takes over 142 years to fill at this rate",
                          policy_fields[plan_size_field(policy)].name);
}

/* Use `share` alone; it is the least of those that hold. */
static int plan_rate(const struct weir_policy *policy, const struct share *share, struct weir_plan *plan,
                     struct message message)
{
    for (int i = 0; i < TICKS && policy->period_us % ticks_us[i] == 0; i++) {
        const int64_t tick = ticks_us[i];
        wide permits = (wide)policy->limit * (wide)share->weight;
        wide ticks = (wide)(policy->period_us / tick) * (wide)share->total;
        wide divisor = greatest_common_divisor(permits, ticks);
        if (permits / divisor > EXACT_MAX || ticks / divisor > (wide)(EXACT_MAX / plan->size))
            continue;
        plan->p = (int64_t)(permits / divisor);
        plan->q = (int64_t)(ticks / divisor);
        plan->tick_us = tick;
        if (div_up(plan->size * plan->q, plan->p) > WEIR_MAX_FILL_US / tick)
            return refuse_fill(policy, message);
        return WEIR_OK;
    }
    return message_refuse(message,
                          "%s %" PRId64 " has no exact arithmetic with limit %" PRId64 " and period %" PRId64
                          "us: take a smaller one, or a rounder limit or period",
                          policy_fields[plan_size_field(policy)].name, policy_get(policy, plan_size_field(policy)),
                          policy->limit, policy->period_us);
}

/* Find the refill at `share` alone. False if it takes too long. */
static bool refill_at(const struct weir_policy *policy, const struct share *share, int64_t *limit, int64_t *period_us)
{
    wide scaled = (wide)policy->limit * (wide)share->weight;
    if (scaled >= (wide)share->total) {
        *limit = share_refill(share, policy->limit);
        *period_us = policy->period_us;
        return true;
    }
    wide period = ((wide)policy->period_us * (wide)share->total + scaled - 1) / scaled;
    if (period > (wide)WEIR_MAX_FILL_US)
        return false;
    *limit = 1;
    *period_us = (int64_t)period;
    return true;
}

static int plan_interval(const struct weir_policy *policy, const struct share *share, struct weir_plan *plan,
                         struct message message)
{
    for (; share; share = share->next) {
        int64_t limit, period_us;
        if (!refill_at(policy, share, &limit, &period_us))
            return refuse_fill(policy, message);
        if (plan->limit > 0 && (wide)limit * (wide)plan->period_us >= (wide)plan->limit * (wide)period_us)
            continue;
        plan->limit = limit;
        plan->period_us = period_us;
    }
    if (div_up(plan->size, plan->limit) > WEIR_MAX_FILL_US / plan->period_us)
        return refuse_fill(policy, message);
    return WEIR_OK;
}

static void plan_nothing(const struct weir_policy *policy, struct weir_plan *plan)
{
    plan->size = 0;
    if (policy->algorithm == WEIR_TOKEN_BUCKET && policy->refill == WEIR_INTERVAL) {
        plan->limit = 1;
        plan->period_us = WEIR_MAX_PERIOD_US;
    } else {
        plan->p = plan->q = 1;
        plan->tick_us = WEIR_MAX_PERIOD_US;
    }
}

/* Return the fingerprint. It is the same on every machine and in every process, because stored states carry it. */
static int64_t fingerprint_of(const struct weir_plan *plan)
{
    const int64_t fields[] = { plan->algorithm, plan->refill,  plan->align, plan->blocks,    plan->p,
                               plan->q,         plan->tick_us, plan->limit, plan->period_us, plan->size };
    unsigned char bytes[sizeof fields];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)((uint64_t)fields[i / 8] >> (i % 8 * 8));
    const struct hash_secret none = { 0, 0 };
    int64_t print = (int64_t)(siphash13(&none, bytes, sizeof bytes) & (uint64_t)EXACT_MAX);
    return max_of(print, 1);
}

static int plan_window(const struct weir_policy *policy, struct weir_plan *plan, struct message message)
{
    if (policy->blocks > WEIR_MAX_WIDE_BLOCKS && policy->limit > UINT32_MAX) /* counts of 64 bits would take too much */
        return message_refuse(message, "blocks must be 1 to %d with a limit of 2^32 or more, not %d",
                              WEIR_MAX_WIDE_BLOCKS, (int)policy->blocks);
    plan->limit = plan->size;
    plan->period_us = policy->period_us;
    if (plan->algorithm == WEIR_SLIDING_WINDOW) {
        plan->blocks = policy->blocks ? policy->blocks : POLICY_DEFAULT_BLOCKS;
        plan->period_us = div_up(policy->period_us, plan->blocks);
    }
    if (plan->algorithm == WEIR_CONCURRENCY) {
        plan->p = max_of(1, plan->size);
        plan->q = plan->tick_us = 1;
    }
    return WEIR_OK;
}

static struct weir_plan plan_begin(const struct weir_policy *policy)
{
    return (struct weir_plan){
        .algorithm = (int32_t)policy->algorithm,
        .refill = (int32_t)policy->refill,
        .align = (int32_t)policy->align,
    };
}

/* Make the plan of a policy that is decided without one. Only a request that began before the policy changed decides by
 * it, so it is a bucket that all costs fit, or none. */
static void plan_fixed(const struct weir_policy *policy, struct weir_plan *out)
{
    struct weir_plan plan = { .algorithm = WEIR_TOKEN_BUCKET };
    plan_nothing(&(struct weir_policy){ .algorithm = WEIR_TOKEN_BUCKET }, &plan);
    if (policy->algorithm == WEIR_UNLIMITED) {
        plan.size = plan.p = WEIR_MAX_PERMITS;
        plan.tick_us = 1;
    }
    plan.fingerprint = fingerprint_of(&plan);
    *out = plan;
}

int plan_make(const struct weir_policy *policy, const struct share *share, struct weir_plan *out,
              struct message message)
{
    if (policy_is_fixed(policy)) {
        plan_fixed(policy, out);
        return WEIR_OK;
    }
    const struct share *least = share_least(share);
    struct weir_plan plan = plan_begin(policy);
    int error = WEIR_OK;
    plan.size = plan_size(policy, share);
    if (is_window(policy))
        error = plan_window(policy, &plan, message);
    else if (share_is_nothing(least))
        plan_nothing(policy, &plan);
    else if (policy->algorithm == WEIR_TOKEN_BUCKET && policy->refill == WEIR_INTERVAL)
        error = plan_interval(policy, share, &plan, message);
    else
        error = plan_rate(policy, least, &plan, message);
    if (error)
        return error;
    plan.fingerprint = fingerprint_of(&plan);
    *out = plan;
    return WEIR_OK;
}

enum plan_part plan_at_share(const struct weir_policy *policy, const struct share *share, struct weir_plan *out)
{
    const struct message nowhere = { NULL, 0 };
    if (plan_make(policy, share, out, nowhere) == WEIR_OK)
        return plan_part(policy, share);

    const struct share *least = share_least(share); /* not 0: a share of 0 has a plan */
    const struct share rounder = {
        .weight = 1,
        .total = div_up(least->total, least->weight),
        .count = least->count,
        .floors_only = true,
        .next = share,
    };
    if (plan_make(policy, &rounder, out, nowhere) == WEIR_OK)
        return plan_part(policy, &rounder);

    struct weir_plan plan = plan_begin(policy);
    plan_nothing(policy, &plan);
    plan.fingerprint = fingerprint_of(&plan);
    *out = plan;
    return PLAN_PART_UNFIT;
}

/* Give a limit on requests in flight one slot. */
static void plan_lift(struct weir_plan *plan)
{
    plan->size = plan->limit = plan->p = 1;
    plan->fingerprint = fingerprint_of(plan);
}

enum plan_part plan_for_fallback(const struct weir_policy *policy, const struct share *share, struct weir_plan *out)
{
    struct weir_policy bucket = *policy;
    if (policy_is_fixed(policy)) {
        plan_fixed(policy, out);
        out->is_local = 1;
        return PLAN_PART;
    }
    if (policy->algorithm == WEIR_CONCURRENCY) { /* slots are counted: one at least, unless there are more instances */
        const enum plan_part part = plan_at_share(policy, share, out);
        if (out->size == 0 && share->weight > 0 && share_instances(share) <= policy->limit)
            plan_lift(out);
        out->is_local = 1;
        return part == PLAN_PART_ZERO && out->size > 0 ? PLAN_PART_LIFTED : part;
    }
    if (is_window(policy))
        bucket.burst = policy->limit;
    if (policy->algorithm != WEIR_LEAKY_BUCKET)
        bucket.algorithm = WEIR_TOKEN_BUCKET;
    bucket.refill = WEIR_GREEDY;
    bucket.align = WEIR_ALIGN_FIRST;
    for (int i = 1; i < TICKS; i++) {
        if (plan_make(&bucket, share, out, (struct message){ NULL, 0 }) == WEIR_OK)
            break;
        bucket.period_us = div_up(policy->period_us, ticks_us[i]) * ticks_us[i];
    }
    const enum plan_part part = plan_at_share(&bucket, share, out);
    out->is_local = 1;
    return part;
}

void plan_hold_back(struct weir_plan *plan, int64_t permits)
{
    plan->size -= permits;
    plan->reserve = permits;
    plan->fingerprint = fingerprint_of(plan);
}

static int half_check(const struct weir_policy *policy, struct message message, enum policy_field_id *fault)
{
    int error = policy_check(policy, message, fault);
    if (error)
        return error;
    struct weir_plan plan;
    *fault = is_window(policy) ? POLICY_BLOCKS : plan_size_field(policy);
    return plan_make(policy, &share_whole, &plan, message);
}

/* True for the algorithms that may have, and be, a candidate. The others are answered without a state, delay callers, or
 * need a permit to be released. */
static bool algorithm_can_halve(enum weir_algorithm algorithm)
{
    return algorithm == WEIR_TOKEN_BUCKET || algorithm == WEIR_FIXED_WINDOW || algorithm == WEIR_SLIDING_WINDOW;
}

/* Check a policy's second half, and that the first may have one. */
static int candidate_check(const struct weir_policy *policy, struct message message, enum policy_field_id *fault)
{
    char sentence[256];
    const struct weir_policy half = policy_candidate(policy);
    *fault = POLICY_PERCENT;
    if (policy->shadow || policy->percent)
        return message_refuse(message, "%s does not apply to a policy with a candidate",
                              policy->shadow ? "shadow" : "percent");
    if (policy->candidate.percent < 0 || policy->candidate.percent > 100)
        return message_refuse(message, "candidate: percent must be 0 to 100, not %lld",
                              (long long)policy->candidate.percent);
    *fault = POLICY_LIMIT;
    if ((unsigned)half.algorithm >= POLICY_ALGORITHMS || !algorithm_can_halve(half.algorithm) ||
        !algorithm_can_halve(policy->algorithm))
        return message_refuse(message, "a policy with a candidate is token_bucket, fixed_window or sliding_window, and "
                                       "so is the candidate");
    if (half_check(&half, (struct message){ sentence, sizeof sentence }, fault) != WEIR_OK)
        return message_refuse(message, "candidate: %s", sentence);
    return WEIR_OK;
}

int plan_check(const struct weir_policy *policy, struct message message, enum policy_field_id *fault)
{
    static const struct weir_candidate none;
    const int error = half_check(policy, message, fault);
    if (error || memcmp(&policy->candidate, &none, sizeof none) == 0)
        return error;
    return candidate_check(policy, message, fault);
}

int weir_policy_check(const struct weir_policy *policy, char *message, size_t message_size)
{
    struct message sentence = { message, message_size };
    enum policy_field_id fault;
    if (!policy)
        return message_refuse(sentence, "policy must not be NULL");
    return plan_check(policy, sentence, &fault);
}
