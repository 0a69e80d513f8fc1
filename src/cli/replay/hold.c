/* hold.c - runs rows against limits at the rows' own times and counts the outcome. */
#include "cli/replay/hold.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define BATCH 32 /* rows decided in one call, so that the limiter fetches their keys' states side by side */

static bool tally_reserve(struct tally *tally, size_t keys);
static int hold_open_instances(struct hold *hold);
static void close_instances(struct hold *hold);
static int count(struct hold *hold, const struct instance *instance, const struct row *row,
                 const struct weir_decision *decision);
static int blame(struct hold *hold, const struct instance *instance, const struct row *row);
static void count_figures(struct hold *hold, const struct instance *instance);
static bool hold_remove_keys(const struct hold *hold);

int hold_start(struct hold *hold, size_t most_keys)
{
    struct tally *tally = &hold->tally;
    *tally = (struct tally){ .policy_count = hold->policies->count, .least_remaining = -1 };
    hold->most_keys = most_keys;
    if (hold->store->options.mode != WEIR_LOCAL)
        store_hold_signals();
    tally->policies = calloc(tally->policy_count, sizeof *tally->policies);
    if (!tally->policies || !tally_reserve(tally, 1))
        return out_of_memory();
    return hold_open_instances(hold);
}

int hold_end(struct hold *hold, int result)
{
    for (size_t i = 0; i < hold->instance_count && result == EXIT_OK; i++) {
        if (hold->store->options.mode == WEIR_HYBRID)
            result = compare_add_instance(&hold->compare, &hold->instances[i]);
        count_figures(hold, &hold->instances[i]);
    }
    hold->tally.comparison.store_calls -= hold->peek_calls;
    if (hold->store->options.mode != WEIR_LOCAL && !hold_remove_keys(hold))
        result = EXIT_FAILED;
    progress_clear(hold->progress);
    close_instances(hold);
    if (hold->store->options.mode != WEIR_LOCAL)
        store_release_signals();
    return result;
}

/* Grow an array of counts; the new ones are 0. */
static bool counts_grow(uint32_t **counts, size_t from, size_t to)
{
    uint32_t *grown = realloc(*counts, to * sizeof *grown);
    if (!grown)
        return false;
    memset(grown + from, 0, (to - from) * sizeof *grown);
    *counts = grown;
    return true;
}

/* Make room in the arrays by key. False: out of memory. */
static bool tally_reserve(struct tally *tally, size_t keys)
{
    const size_t from = tally->key_room, to = keys + keys / 2;
    if (keys <= from)
        return true;
    bool has_room = counts_grow(&tally->requests_by_key, from, to) && counts_grow(&tally->denied_by_key, from, to);
    for (size_t i = 0; i < tally->policy_count && has_room; i++)
        has_room = counts_grow(&tally->policies[i].requests_by_key, from, to) &&
                   counts_grow(&tally->policies[i].denied_by_key, from, to);
    if (has_room)
        tally->key_room = to;
    return has_room;
}

void tally_free(struct tally *tally)
{
    for (size_t i = 0; i < tally->policy_count && tally->policies; i++) {
        free(tally->policies[i].requests_by_key);
        free(tally->policies[i].denied_by_key);
    }
    free(tally->policies);
    free(tally->requests_by_key);
    free(tally->denied_by_key);
    *tally = (struct tally){ 0 };
}

static int64_t row_clock(void *user)
{
    const struct hold *hold = user;
    return hold->now_us;
}

static int hold_open_instances(struct hold *hold)
{
    const bool is_hybrid = hold->store->options.mode == WEIR_HYBRID;
    size_t wanted = is_hybrid && hold->store->options.instances > 0 ? (size_t)hold->store->options.instances : 1;
    struct weir_options options = WEIR_OPTIONS_INIT;
    int result = EXIT_OK;
    store_options(hold->store, &options);
    options.now_us = row_clock;
    options.user = hold;
    options.by_local_clock = hold->store->options.mode != WEIR_LOCAL;
    if (hold->store->options.mode != WEIR_DISTRIBUTED)
        result = instance_options(&options, hold->policies, hold->most_keys);
    hold->instances = calloc(wanted, sizeof *hold->instances);
    if (!hold->instances)
        return out_of_memory();
    for (; hold->instance_count < wanted && result == EXIT_OK; hold->instance_count++) {
        options.rank = (int64_t)hold->instance_count;
        result = instance_open(&hold->instances[hold->instance_count], &options, hold->policies);
    }
    if (is_hybrid && result == EXIT_OK)
        result = compare_start(&hold->compare, hold->rows, hold->policies, row_clock, hold, &hold->tally.comparison);
    return result;
}

static void close_instances(struct hold *hold)
{
    for (size_t i = 0; i < hold->instance_count; i++)
        instance_close(&hold->instances[i]);
    free(hold->instances);
    flights_free(&hold->flights);
    compare_end(&hold->compare);
}

/* Return the instance that gets row `number`, counted from 0. */
static const struct instance *hold_deal(const struct hold *hold, const struct row *row, size_t number)
{
    size_t to = number % hold->instance_count, last = hold->instance_count - 1;
    if (hold->store->deal == DEAL_KEY)
        to = row->key % hold->instance_count;
    else if (hold->store->deal == DEAL_SKEWED)
        for (to = 0; to < last && number % 2 == 1; to++)
            number /= 2;
    return &hold->instances[to];
}

/* Decide rows by the only limit. A request's time of 0 means the limiter's clock, which stands at 0 here. */
static int decide_batch(struct hold *hold, const struct row *rows, size_t n, struct weir_decision *out)
{
    struct weir_request requests[BATCH];
    for (size_t i = 0; i < n; i++) {
        requests[i] = instance_request(hold->instances, hold->rows, &rows[i], 0);
        requests[i].now_us = rows[i].time_us;
    }
    int error = weir_try_batch(hold->instances->limiter, requests, n, out);
    return error == WEIR_OK ? EXIT_OK : instance_failed("cannot decide", error);
}

/* Decide one row. The clock shows its time, also for the peeks that may follow. */
static int decide_row(struct hold *hold, const struct instance *instance, const struct row *row,
                      struct weir_decision *out)
{
    hold->now_us = row->time_us;
    int result = instance_decide(instance, hold->rows, row, out);
    if (result == EXIT_OK && hold->store->options.mode == WEIR_HYBRID)
        result = compare_add(&hold->compare, row, out);
    return result;
}

/* Decide one row of which the duration is known, after the ends of earlier ones. */
static int decide_flight(struct hold *hold, const struct row *row, struct weir_decision *out)
{
    const struct instance *instance = hold->instances;
    struct weir_reservation reservations[WEIR_MAX_ALL];
    struct flight ended;
    while (flights_end(&hold->flights, row->time_us, &ended)) {
        const struct span key = rows_key(hold->rows, ended.key);
        hold->now_us = ended.ends_us;
        const int error = weir_release(instance->limits[ended.limit], weir_key(key.data, key.len), &ended.reservation);
        if (error != WEIR_OK)
            return instance_failed("cannot release", error);
    }
    hold->now_us = row->time_us;
    const int result = instance_reserve(instance, hold->rows, row, out, reservations);
    if (result != EXIT_OK || flights_add(&hold->flights, instance, hold->rows, row, reservations))
        return result;
    return out_of_memory();
}

static void count_request(struct hold *hold, const struct row *row)
{
    struct tally *tally = &hold->tally;
    tally->keys += tally->requests_by_key[row->key]++ == 0;
    tally->permits_asked += (uint64_t)row->cost;
    for (size_t i = 0; i < tally->policy_count; i++) {
        const struct named_policy *policy = &hold->policies->all[i];
        tally->policies[i].requests_by_key[rows_key_of(hold->rows, row, policy->key_kind)]++;
        tally->policies[i].permits_asked += (uint64_t)rows_cost_of(hold->rows, row, policy->cost_kind);
    }
}

int hold_take(struct hold *hold, const struct row *rows, size_t count_all)
{
    const bool has_durations = hold->rows->durations_us != NULL;
    const bool is_batched = hold->policies->count == 1 && hold->store->options.mode != WEIR_HYBRID && !has_durations;
    int result = tally_reserve(&hold->tally, hold->rows->key_count) ? EXIT_OK : out_of_memory();
    for (size_t i = 0, n; i < count_all && result == EXIT_OK && !store_signal(); i += n) {
        struct weir_decision decisions[BATCH];
        const struct row *batch = &rows[i];
        const struct instance *instance = hold_deal(hold, batch, hold->decided);
        for (n = 1; is_batched && batch->cost && n < BATCH && i + n < count_all && batch[n].cost;)
            n++;
        const bool is_batch = is_batched && batch->cost; /* a request that costs nothing is decided apart */
        if (hold->total)
            progress_show(hold->progress, "replaying", hold->decided, hold->total);
        hold->decided += n;
        for (size_t j = 0; j < n; j++)
            count_request(hold, &batch[j]);
        result = is_batch        ? decide_batch(hold, batch, n, decisions)
                 : has_durations ? decide_flight(hold, batch, decisions)
                                 : decide_row(hold, instance, batch, decisions);
        for (size_t j = 0; j < n && result == EXIT_OK; j++) {
            result = count(hold, instance, &batch[j], &decisions[j]);
            if (result == EXIT_OK && hold->watcher.decided)
                result = hold->watcher.decided(hold->watcher.user, &batch[j], &decisions[j]);
        }
    }
    return result;
}

static int count(struct hold *hold, const struct instance *instance, const struct row *row,
                 const struct weir_decision *decision)
{
    struct tally *tally = &hold->tally;
    if (decision->source == WEIR_BY_FULL) {
        complain("the limiter has no room for a key: its answers would be wrong");
        return EXIT_FAILED;
    }
    if (tally->admitted + tally->denied == 0)
        tally->first_us = tally->last_us = row->time_us;
    tally->first_us = row->time_us < tally->first_us ? row->time_us : tally->first_us;
    tally->last_us = row->time_us > tally->last_us ? row->time_us : tally->last_us;
    if (!decision->allowed)
        return blame(hold, instance, row);
    tally->admitted++;
    tally->permits_admitted += (uint64_t)row->cost;
    tally->would_deny += decision->would_deny;
    if (decision->would_deny)
        return EXIT_OK;
    if (tally->least_remaining < 0 || decision->remaining < tally->least_remaining) {
        tally->least_remaining = decision->remaining;
        tally->least_limit = decision->limit;
        tally->least_key = row->key;
    }
    return EXIT_OK;
}

static uint64_t store_calls(const struct instance *instance)
{
    struct weir_stats stats = { .size = sizeof stats };
    return weir_stats_read(instance->limiter, &stats) == WEIR_OK ? stats.store_calls : 0;
}

/* Find out which limits alone would have allowed the row. */
static int peek_limits(struct hold *hold, const struct instance *instance, const struct row *row, bool *allowed)
{
    const bool is_hybrid = hold->store->options.mode == WEIR_HYBRID;
    uint64_t before = is_hybrid ? store_calls(instance) : 0;
    for (size_t i = 0; i < hold->policies->count; i++) {
        struct weir_decision alone;
        struct weir_request request = instance_request(instance, hold->rows, row, i);
        int error = request.cost ? weir_peek(request.limit, request.key, request.cost, &alone) : WEIR_OK;
        if (error != WEIR_OK)
            return instance_failed("cannot decide", error);
        allowed[i] = request.cost == 0 || alone.allowed;
    }
    hold->peek_calls += is_hybrid ? store_calls(instance) - before : 0;
    return EXIT_OK;
}

/* Count a denial and find the limits that denied. */
static int blame(struct hold *hold, const struct instance *instance, const struct row *row)
{
    struct tally *tally = &hold->tally;
    bool allowed[WEIR_MAX_ALL] = { false };
    size_t deniers = 0, denier = 0;
    tally->denied++;
    tally->denied_by_key[row->key]++;
    int result = tally->policy_count > 1 ? peek_limits(hold, instance, row, allowed) : EXIT_OK;
    for (size_t i = 0; i < tally->policy_count && result == EXIT_OK; i++) {
        if (allowed[i])
            continue;
        tally->policies[i].denied++;
        tally->policies[i].denied_by_key[rows_key_of(hold->rows, row, hold->policies->all[i].key_kind)]++;
        denier = i;
        deniers++;
    }
    if (deniers == 1)
        tally->policies[denier].denied_alone++;
    return result;
}

/* Add what an instance's limits gave out, and its shadow limits would have denied. An override counts towards its
 * limit, as in the report. */
static void count_figures(struct hold *hold, const struct instance *instance)
{
    for (const weir_limit *target = NULL; (target = weir_limit_next(instance->limiter, target));)
        for (size_t i = 0; i < instance->limit_count; i++) {
            struct weir_limit_stats stats = { .size = sizeof stats };
            if (strcmp(weir_limit_name(target), weir_limit_name(instance->limits[i])) == 0 &&
                weir_limit_stats_read(target, &stats) == WEIR_OK) {
                hold->tally.policies[i].would_deny += stats.would_deny;
                hold->tally.policies[i].permits += stats.permits;
            }
        }
}

/* Remove this run's keys from Redis: every requested key under every limit. The rows hold all keys, so no other list is
 * needed. */
static bool hold_remove_keys(const struct hold *hold)
{
    for (size_t i = 0; i < hold->rows->key_count && i < hold->tally.key_room; i++) {
        struct span key = rows_key(hold->rows, i);
        progress_show(hold->progress, "removing keys", i, hold->rows->key_count);
        for (size_t j = 0; j < hold->policies->count; j++) {
            if (hold->tally.policies[j].requests_by_key[i] == 0)
                continue;
            int error = weir_reset(hold->instances->limits[j], weir_key(key.data, key.len));
            if (error != WEIR_OK) {
                progress_clear(hold->progress);
                complain(
                    "cannot remove this run's keys %s*: %s; they expire by themselves, a week after they become idle",
                    hold->store->options.redis_prefix, weir_strerror(error));
                return false;
            }
        }
    }
    return true;
}
