/* search.c - the tightest limit that denies at most a given number of requests and clients of a log. */
#include "cli/replay/search.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/replay/instance.h"

enum { BATCH = 64 };

int search_start(struct search *search, const struct rows *rows)
{
    size_t *next = calloc(rows->key_count + 1, sizeof *next);
    *search = (struct search){ .rows = rows, .key_count = rows->key_count };
    search->order = malloc((rows->count + 1) * sizeof *search->order);
    search->keys = calloc(rows->key_count + 1, sizeof *search->keys);
    if (!next || !search->order || !search->keys) {
        free(next);
        return out_of_memory();
    }
    for (size_t i = 0; i < rows->count; i++)
        search->keys[rows->all[i].key].count++;
    for (size_t i = 0, first = 0; i < rows->key_count; first += search->keys[i].count, i++) {
        search->keys[i].key = (uint32_t)i;
        search->keys[i].first = next[i] = first;
    }
    for (size_t i = 0; i < rows->count; i++)
        search->order[next[rows->all[i].key]++] = (uint32_t)i;
    free(next);
    return EXIT_OK;
}

void search_end(struct search *search)
{
    free(search->order);
    free(search->keys);
    *search = (struct search){ 0 };
}

static int busier(const void *left, const void *right)
{
    const struct search_key *a = left, *b = right;
    if (a->busiest != b->busiest)
        return a->busiest > b->busiest ? -1 : 1;
    return a->key < b->key ? -1 : a->key > b->key;
}

void search_period(struct search *search, int64_t period_us)
{
    const struct row *rows = search->rows->all;
    for (size_t i = 0; i < search->key_count; i++) {
        struct search_key *key = &search->keys[i];
        const uint32_t *order = search->order + key->first;
        uint64_t permits = 0;
        key->busiest = 0;
        for (size_t last = 0, first = 0; last < key->count; last++) {
            permits += (uint64_t)rows[order[last]].cost;
            for (; rows[order[last]].time_us - rows[order[first]].time_us > 2 * period_us; first++)
                permits -= (uint64_t)rows[order[first]].cost;
            key->busiest = permits > key->busiest ? permits : key->busiest;
        }
    }
    qsort(search->keys, search->key_count, sizeof *search->keys, busier);
}

uint64_t search_ceiling(const struct search *search)
{
    uint64_t most = search->key_count ? search->keys[0].busiest : 1;
    return most > WEIR_MAX_PERMITS ? WEIR_MAX_PERMITS : most;
}

static int64_t search_clock(void *user)
{
    (void)user;
    return 0; /* each request has its time */
}

/* Decide the rows of one key; count the denials. */
static int key_try(const struct search *search, const struct instance *instance, const struct search_key *key,
                   uint64_t most, uint64_t *out_denied)
{
    const uint32_t *order = search->order + key->first;
    struct span bytes = rows_key(search->rows, key->key);
    struct weir_request requests[BATCH];
    struct weir_decision decisions[BATCH];
    *out_denied = 0;
    for (size_t i = 0; i < key->count && *out_denied <= most;) {
        size_t n = 0;
        for (; n < BATCH && i < key->count; n++, i++) {
            const struct row *row = &search->rows->all[order[i]];
            if (row->cost == 0) { /* limits do not apply to it */
                n--;
                continue;
            }
            requests[n] = (struct weir_request){ instance->limits[0], weir_key(bytes.data, bytes.len), row->cost,
                                                 row->time_us };
        }
        int error = n ? weir_try_batch(instance->limiter, requests, n, decisions) : WEIR_OK;
        if (error != WEIR_OK)
            return instance_failed("cannot decide", error);
        for (size_t j = 0; j < n; j++)
            *out_denied += !decisions[j].allowed;
    }
    return EXIT_OK;
}

int search_try(const struct search *search, const char *policy, struct outcome most, struct outcome *out,
               uint32_t *denied_by_key)
{
    struct policies policies = { 0 };
    struct instance instance = { 0 };
    struct weir_options options = WEIR_OPTIONS_INIT;
    *out = (struct outcome){ 0 };
    if (policies_add_text(&policies, "suggest", policy) != EXIT_OK)
        return EXIT_FAILED;
    uint64_t limit = (uint64_t)policies.all[0].policy.limit;
    size_t busy = 0;
    while (busy < search->key_count && search->keys[busy].busiest > limit)
        busy++;
    options.now_us = search_clock;
    int code = instance_options(&options, &policies, busy);
    if (code == EXIT_OK)
        code = instance_open(&instance, &options, &policies);
    for (size_t i = 0; i < busy && code == EXIT_OK && out->denied <= most.denied && out->keys <= most.keys; i++) {
        uint64_t denied;
        code = key_try(search, &instance, &search->keys[i], most.denied - out->denied, &denied);
        out->denied += denied;
        out->keys += denied > 0;
        if (denied_by_key)
            denied_by_key[search->keys[i].key] = (uint32_t)denied;
    }
    instance_close(&instance);
    policies_free(&policies);
    return code;
}

int search_limit(const struct search *search, const char *algorithm, const char *period, struct outcome most,
                 uint64_t *out_limit, struct outcome *out)
{
    uint64_t low = 1, high = search_ceiling(search);
    int code = EXIT_OK;
    *out = (struct outcome){ 0 };
    while (low <= high && code == EXIT_OK) {
        uint64_t middle = low + (high - low) / 2;
        struct outcome tried;
        char policy[160];
        snprintf(policy, sizeof policy, "%s limit=%llu period=%s", algorithm, (unsigned long long)middle, period);
        code = search_try(search, policy, most, &tried, NULL);
        bool does_fit = tried.denied <= most.denied && tried.keys <= most.keys;
        if (does_fit)
            *out = tried;
        high = does_fit ? middle - 1 : high;
        low = does_fit ? low : middle + 1;
    }
    *out_limit = low;
    return code;
}
