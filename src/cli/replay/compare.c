/* compare.c - what instances in hybrid mode decided, compared with what one exact limit would have decided. */
#include "cli/replay/compare.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static bool is_metered(const struct weir_policy *policy)
{
    return policy->algorithm == WEIR_TOKEN_BUCKET && policy->refill == WEIR_GREEDY;
}

int compare_start(struct compare *compare, const struct rows *rows, const struct policies *policies,
                  int64_t (*clock)(void *user), void *user, struct comparison *out)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    *compare = (struct compare){ .rows = rows, .policies = policies, .out = out };
    *out = (struct comparison){ 0 };
    options.now_us = clock;
    options.user = user;
    int result = instance_options(&options, policies, rows->key_count);
    if (result == EXIT_OK)
        result = instance_open(&compare->exact, &options, policies);
    if (result == EXIT_OK)
        result = instance_open(&compare->auditor, &options, policies);
    for (size_t i = 0; i < policies->count && result == EXIT_OK; i++) {
        out->limits[i].is_metered = is_metered(&policies->all[i].policy);
        if (!out->limits[i].is_metered)
            continue;
        compare->meters[i] = calloc(rows->key_count + 1, sizeof(struct meter));
        if (!compare->meters[i])
            result = out_of_memory();
    }
    return result;
}

void compare_end(struct compare *compare)
{
    instance_close(&compare->exact);
    instance_close(&compare->auditor);
    for (size_t i = 0; i < WEIR_MAX_ALL; i++) {
        free(compare->meters[i]);
        compare->meters[i] = NULL;
    }
}

/* Add an admitted row to a meter. A clock that steps back affects a meter as it affects a limit, see
 * WEIR_CLOCK_SLACK_US. */
static void meter_add(struct meter *meter, const struct weir_policy *policy, int64_t time_us, int64_t cost)
{
    int64_t passed_us = time_us - meter->at_us;
    if (passed_us < 0 && passed_us >= -WEIR_CLOCK_SLACK_US)
        passed_us = 0;
    if (passed_us != 0)
        meter->at_us = time_us;
    if (passed_us > 0)
        meter->level -= (double)passed_us * (double)policy->limit / (double)policy->period_us;
    meter->level = (meter->level < 0 ? 0 : meter->level) + (double)cost;
}

/* True if an override applies to the row's key. The bound that the library states for a limit does not cover such keys,
 * so they are left out. */
static bool is_overridden(const struct compare *compare, size_t limit, const struct row *row)
{
    struct weir_policy policy;
    const struct weir_policy *own = &compare->policies->all[limit].policy;
    const struct span key = rows_key(compare->rows,
                                     rows_key_of(compare->rows, row, compare->policies->all[limit].key_kind));
    return compare->policies->override_count > 0 &&
           weir_limit_policy_for(compare->exact.limits[limit], weir_key(key.data, key.len), &policy) == WEIR_OK &&
           memcmp(&policy, own, sizeof policy) != 0;
}

static void compare_measure(struct compare *compare, const struct row *row)
{
    for (size_t i = 0; i < compare->policies->count; i++) {
        const struct weir_policy *policy = &compare->policies->all[i].policy;
        struct compared_limit *limit = &compare->out->limits[i];
        if (!limit->is_metered || is_overridden(compare, i, row))
            continue;
        const struct named_policy *named = &compare->policies->all[i];
        struct meter *meter = &compare->meters[i][rows_key_of(compare->rows, row, named->key_kind)];
        meter_add(meter, policy, row->time_us, rows_cost_of(compare->rows, row, named->cost_kind));
        double over = meter->level - (double)((policy->burst ? policy->burst : policy->limit) + policy->debt);
        if (over > limit->most_over + 1e-6) /* a smaller excess is a rounding error */
            limit->most_over = over;
    }
}

int compare_add(struct compare *compare, const struct row *row, const struct weir_decision *decision)
{
    struct comparison *out = compare->out;
    struct weir_decision exact, audited = { .allowed = true };
    int result = instance_decide(&compare->exact, compare->rows, row, &exact);
    if (result == EXIT_OK && decision->allowed)
        result = instance_decide(&compare->auditor, compare->rows, row, &audited);
    if (result != EXIT_OK)
        return result;
    out->exact_admitted += exact.allowed;
    out->here_alone += decision->allowed && !exact.allowed;
    out->exact_alone += exact.allowed && !decision->allowed;
    out->permits_beyond += audited.allowed ? 0 : (uint64_t)row->cost;
    out->by_redis += decision->source == WEIR_BY_REDIS;
    out->by_lease += decision->source == WEIR_BY_LEASE;
    out->by_denial += decision->source == WEIR_BY_DENIAL;
    if (decision->allowed)
        compare_measure(compare, row);
    return EXIT_OK;
}

int compare_add_instance(struct compare *compare, const struct instance *instance)
{
    struct comparison *out = compare->out;
    struct weir_stats stats = { .size = sizeof stats };
    int error = weir_stats_read(instance->limiter, &stats);
    out->store_calls += stats.store_calls;
    out->leased += stats.leased;
    out->lease_lost += stats.lease_lost;
    for (size_t i = 0; i < instance->limit_count && error == WEIR_OK; i++) {
        struct weir_limit_info info = { .size = sizeof info };
        error = weir_limit_info(instance->limits[i], &info);
        out->limits[i].lease_life_us = info.lease_life_us;
        out->limits[i].lease_max = info.lease_max;
        out->limits[i].over_max = info.over_max;
    }
    return error == WEIR_OK ? EXIT_OK : instance_failed("cannot read what was counted", error);
}
