/* hold.c - holds rows against limits, by the rows' own times, and counts what comes of it. */
#include "hold.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

/* The limiter must never be short of room: the rows are bounded already, and so are their keys. */
#define ALL_THE_ROOM (INT64_C(1) << 50)
#define MAX_KEYS (INT64_C(1) << 31)

#define BATCH 32 /* rows decided in one call, for the limiter to fetch their keys' states side by side */

struct hold {
    const struct rows *rows;
    const struct store *store;
    const struct policies *policies;
    int64_t now_us;
    weir *limiter;
    weir_limit *limits[WEIR_MAX_ALL];
    struct tally *tally;
};

static bool tally_start(struct tally *tally, size_t keys, size_t policies);
static int open_limiter(struct hold *hold);
static int decide_batch(struct hold *hold, const struct row *rows, size_t n, struct weir_decision *out);
static int decide_all(struct hold *hold, const struct row *row, struct weir_decision *out);
static int count(struct hold *hold, const struct row *row, const struct weir_decision *decision);
static int blame(struct hold *hold, const struct row *row);
static bool remove_keys(const struct hold *hold, struct progress *progress);

int hold_rows(const struct rows *rows, const struct policies *policies, const struct store *store,
              struct hold_watcher watcher, struct progress *progress, struct tally *out)
{
    struct hold hold = { .rows = rows, .policies = policies, .store = store, .tally = out };
    size_t most = policies->count == 1 ? BATCH : 1, n;
    if (!tally_start(out, rows->key_count, policies->count)) {
        complain("out of memory");
        return EXIT_FAILED;
    }
    if (store->is_distributed)
        store_hold_signals();
    int result = open_limiter(&hold);
    for (size_t i = 0; i < rows->count && result == EXIT_OK && !store_signal(); i += n) {
        struct weir_decision decisions[BATCH];
        const struct row *batch = &rows->all[i];
        n = rows->count - i < most ? rows->count - i : most;
        progress_show(progress, "replaying", i, rows->count);
        for (size_t j = 0; j < n; j++)
            out->requests_by_key[batch[j].key]++;
        result = policies->count == 1 ? decide_batch(&hold, batch, n, decisions) : decide_all(&hold, batch, decisions);
        for (size_t j = 0; j < n && result == EXIT_OK; j++) {
            result = count(&hold, &batch[j], &decisions[j]);
            if (result == EXIT_OK && watcher.decided)
                result = watcher.decided(watcher.user, &batch[j], &decisions[j]);
        }
    }
    if (store->is_distributed && !remove_keys(&hold, progress))
        result = EXIT_FAILED;
    progress_clear(progress);
    weir_close(hold.limiter);
    if (store->is_distributed)
        store_release_signals();
    if (result != EXIT_OK)
        tally_free(out);
    return result;
}

static bool tally_start(struct tally *tally, size_t keys, size_t policies)
{
    size_t room = keys ? keys : 1;
    *tally = (struct tally){ .policy_count = policies, .least_remaining = -1 };
    tally->requests_by_key = calloc(room, sizeof(uint32_t));
    tally->denied_by_key = calloc(room, sizeof(uint32_t));
    tally->policies = calloc(policies, sizeof *tally->policies);
    bool has_room = tally->requests_by_key && tally->denied_by_key && tally->policies;
    for (size_t i = 0; i < policies && has_room; i++)
        has_room = (tally->policies[i].denied_by_key = calloc(room, sizeof(uint32_t))) != NULL;
    if (!has_room)
        tally_free(tally);
    return has_room;
}

void tally_free(struct tally *tally)
{
    for (size_t i = 0; i < tally->policy_count && tally->policies; i++)
        free(tally->policies[i].denied_by_key);
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

static int failed(const char *what, int error)
{
    complain("%s: %s", what, weir_strerror(error));
    return EXIT_FAILED;
}

static int open_limiter(struct hold *hold)
{
    int64_t keys = (int64_t)hold->rows->key_count * (int64_t)hold->policies->count;
    struct weir_options options = WEIR_OPTIONS_INIT;
    store_options(hold->store, &options);
    options.now_us = row_clock;
    options.user = hold;
    options.by_local_clock = hold->store->is_distributed;
    if (!hold->store->is_distributed) {
        options.keep_idle = true;
        options.max_keys = keys < 1 ? 1 : keys;
        options.max_bytes = ALL_THE_ROOM;
        if (keys > MAX_KEYS) {
            complain("%lld keys are more than the 2^31 that a limiter can hold", (long long)keys);
            return EXIT_FAILED;
        }
    }
    int error = weir_open(&options, &hold->limiter);
    if (error != WEIR_OK)
        return failed("cannot open a limiter", error);
    for (size_t i = 0; i < hold->policies->count; i++) {
        char name[32]; /* the policies' own names need not be unique: -p gives none */
        snprintf(name, sizeof name, "policy-%zu", i + 1);
        error = weir_limit_define(hold->limiter, name, &hold->policies->all[i].policy, &hold->limits[i]);
        if (error != WEIR_OK)
            return failed(hold->policies->all[i].text, error);
    }
    return EXIT_OK;
}

/* Rows against the only limit. A request's own time of 0 means the limiter's clock, which stands at 0 here. */
static int decide_batch(struct hold *hold, const struct row *rows, size_t n, struct weir_decision *out)
{
    struct weir_request requests[BATCH];
    for (size_t i = 0; i < n; i++) {
        struct span key = rows_key(hold->rows, rows[i].key);
        requests[i] = (struct weir_request){ hold->limits[0], weir_key(key.data, key.len), rows[i].cost,
                                             rows[i].time_us };
    }
    int error = weir_try_batch(hold->limiter, requests, n, out);
    return error == WEIR_OK ? EXIT_OK : failed("cannot decide", error);
}

/* One row against all limits. The limiter's clock shows its time, now and for the peeks that may follow. */
static int decide_all(struct hold *hold, const struct row *row, struct weir_decision *out)
{
    struct weir_request requests[WEIR_MAX_ALL];
    struct span key = rows_key(hold->rows, row->key);
    for (size_t i = 0; i < hold->policies->count; i++)
        requests[i] = (struct weir_request){ hold->limits[i], weir_key(key.data, key.len), row->cost, 0 };
    hold->now_us = row->time_us;
    int error = weir_try_all(hold->limiter, requests, hold->policies->count, out);
    return error == WEIR_OK ? EXIT_OK : failed("cannot decide", error);
}

static int count(struct hold *hold, const struct row *row, const struct weir_decision *decision)
{
    struct tally *tally = hold->tally;
    if (decision->source == WEIR_BY_FULL) {
        complain("the limiter had no room for a key: its answers would be wrong");
        return EXIT_FAILED;
    }
    if (tally->admitted + tally->denied == 0)
        tally->first_us = tally->last_us = row->time_us;
    tally->first_us = row->time_us < tally->first_us ? row->time_us : tally->first_us;
    tally->last_us = row->time_us > tally->last_us ? row->time_us : tally->last_us;
    tally->permits_asked += row->cost;
    if (!decision->allowed)
        return blame(hold, row);
    tally->admitted++;
    tally->permits_admitted += row->cost;
    if (tally->least_remaining < 0 || decision->remaining < tally->least_remaining) {
        tally->least_remaining = decision->remaining;
        tally->least_limit = decision->limit;
        tally->least_key = row->key;
    }
    return EXIT_OK;
}

/* Count a denial, and find out which limits it comes from. */
static int blame(struct hold *hold, const struct row *row)
{
    struct tally *tally = hold->tally;
    struct span key = rows_key(hold->rows, row->key);
    size_t deniers = 0, denier = 0;
    tally->denied++;
    tally->denied_by_key[row->key]++;
    for (size_t i = 0; i < tally->policy_count; i++) {
        struct weir_decision alone = { .allowed = false };
        if (tally->policy_count > 1) {
            int error = weir_peek(hold->limits[i], weir_key(key.data, key.len), row->cost, &alone);
            if (error != WEIR_OK)
                return failed("cannot decide", error);
        }
        if (alone.allowed)
            continue;
        tally->policies[i].denied++;
        tally->policies[i].denied_by_key[row->key]++;
        denier = i;
        deniers++;
    }
    if (deniers == 1)
        tally->policies[denier].denied_alone++;
    return EXIT_OK;
}

/* Remove what this run has put into Redis: each key that was asked about, under each limit. The rows hold them all, so
 * that nothing need be remembered besides. */
static bool remove_keys(const struct hold *hold, struct progress *progress)
{
    for (size_t i = 0; i < hold->rows->key_count; i++) {
        struct span key = rows_key(hold->rows, i);
        if (hold->tally->requests_by_key[i] == 0)
            continue;
        progress_show(progress, "removing keys", i, hold->rows->key_count);
        for (size_t j = 0; j < hold->policies->count; j++) {
            int error = weir_reset(hold->limits[j], weir_key(key.data, key.len));
            if (error != WEIR_OK) {
                progress_clear(progress);
                complain("cannot remove this run's keys %s*: %s; they go by themselves, a week after they are as good "
                         "as new",
                         hold->store->prefix, weir_strerror(error));
                return false;
            }
        }
    }
    return true;
}
