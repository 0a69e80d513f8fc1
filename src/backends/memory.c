/* memory.c - the memory backend: time, batches, and what the vtable asks for. */
#include "backends/memory.h"

#include "backends/memory_decide.h"

#include <inttypes.h>
#include <stdlib.h>

#define PREFETCH_GROUP 32 /* how many keys of a batch are fetched from memory at once */

/* The time of a request; the clock is read once for all requests of a call that have none. */
static int request_time(const struct memory *memory, const struct weir_backend_request *request, int64_t *clock_us,
                        int64_t *out)
{
    if (request->now_us != WEIR_OWN_CLOCK) {
        *out = request->now_us;
        return WEIR_OK;
    }
    if (*clock_us == WEIR_OWN_CLOCK) {
        int64_t now_us = clock_now_us(&memory->clock);
        if (now_us < 0 || now_us > WEIR_MAX_TIME_US) {
            log_line(&memory->log, WEIR_LOG_ERROR, "the clock must be 0 to %" PRId64 ", not %" PRId64,
                     WEIR_MAX_TIME_US, now_us);
            return WEIR_EINVAL;
        }
        *clock_us = now_us;
    }
    *out = *clock_us;
    return WEIR_OK;
}

/* A batch is dominated by cache misses that depend on one another, shard, bucket, entry: fetch each kind for all keys
 * before the next. What is read here is only a guess, and read under the lock. */
static void prefetch(struct memory *memory, const struct weir_backend_request *requests, size_t n)
{
    struct shard *shards[PREFETCH_GROUP];
    for (size_t i = 0; i < n; i++) {
        shards[i] = table_shard(&memory->table, requests[i].hash);
        __builtin_prefetch(shards[i], 1);
    }
    for (size_t i = 0; i < n; i++) {
        pthread_mutex_lock(&shards[i]->mutex);
        __builtin_prefetch(&shards[i]->buckets[(unsigned)requests[i].hash & shards[i]->bucket_mask]);
        pthread_mutex_unlock(&shards[i]->mutex);
    }
    for (size_t i = 0; i < n; i++) {
        pthread_mutex_lock(&shards[i]->mutex);
        const UT_hash_bucket *bucket = &shards[i]->buckets[(unsigned)requests[i].hash & shards[i]->bucket_mask];
        const char *entry = (const char *)bucket->hh_head;
        pthread_mutex_unlock(&shards[i]->mutex);
        __builtin_prefetch(entry, 1);
        __builtin_prefetch(entry + 64, 1);
    }
}

static int memory_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out)
{
    struct memory *memory = (struct memory *)backend;
    (void)deadline_us; /* nothing here blocks */
    int64_t clock_us = WEIR_OWN_CLOCK, now_us = 0;
    if (all) {
        int error = request_time(memory, &requests[0], &clock_us, &now_us);
        return error ? error : memory_decide_all(memory, requests, n, now_us, out);
    }
    for (size_t i = 0; i < n; i++) {
        if (n > 1 && i % PREFETCH_GROUP == 0)
            prefetch(memory, requests + i, n - i < PREFETCH_GROUP ? n - i : PREFETCH_GROUP);
        int error = request_time(memory, &requests[i], &clock_us, &now_us);
        if (!error)
            error = memory_decide_one(memory, &requests[i], now_us, &out[i]);
        if (error)
            return error;
    }
    return WEIR_OK;
}

static void memory_stats(struct weir_backend *backend, struct weir_stats *add)
{
    struct memory *memory = (struct memory *)backend;
    add->full += atomic_load_explicit(&memory->full, memory_order_relaxed);
    add->evictions += table_evictions(&memory->table);
    add->keys += atomic_load_explicit(&memory->table.keys, memory_order_relaxed);
    add->bytes += atomic_load_explicit(&memory->table.budget.used, memory_order_relaxed);
}

static void memory_destroy(struct weir_backend *backend)
{
    struct memory *memory = (struct memory *)backend;
    table_free(&memory->table);
    free(memory);
}

static const struct weir_backend_ops memory_ops = {
    .size = sizeof memory_ops,
    .name = "memory",
    .decide = memory_decide,
    .stats = memory_stats,
    .destroy = memory_destroy,
};

int memory_open(const struct weir_options *options, struct weir_backend **out)
{
    struct memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return WEIR_ENOMEM;
    memory->backend.ops = &memory_ops;
    memory->log = (struct log){ options->log, options->user };
    memory->on_full = options->on_full;
    memory->keep_idle = options->keep_idle;
    clock_init(&memory->clock, options->now_us, options->user);
    if (table_init(&memory->table, options->max_keys, options->max_bytes) != 0) {
        free(memory);
        return WEIR_ENOMEM;
    }
    *out = &memory->backend;
    return WEIR_OK;
}
