/* redis.c - the Redis backend: its life, and its operations over one server's engine or a cluster. */
#include "backends/redis/redis.h"

#include "backends/redis/engine/health.h"
#include "backends/redis/process.h"
#include "core/ground/cancel.h"
#include "core/ground/forks.h"
#include "core/limiter/own_ops.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A process's threads and connections ---- */

static int process_start(const struct redis_config *config, struct redis_process *out)
{
    *out = (struct redis_process){ .forks = forks_count };
    return config->rules.in_cluster ? redis_cluster_start(config, &out->cluster)
                                    : redis_engine_start(config, NULL, &out->engine);
}

static const char *why_not_started(int error)
{
    return error == WEIR_EIO ? "the system has no thread or descriptor left" : weir_strerror(error);
}

static void process_stop(struct redis_process *process)
{
    if (process->cluster) {
        redis_cluster_free(process->cluster);
    } else {
        redis_engine_stop(process->engine);
        redis_engine_free(process->engine);
    }
}

static void process_abandon(struct redis_process *process)
{
    if (process->cluster)
        redis_cluster_abandon(process->cluster);
    else
        redis_engine_abandon(process->engine);
}

/* Close the parent's connections in the child before it opens any. Later their numbers could belong to other files: the
 * system copies the open descriptors before the memory, and the parent's threads may act in between. A grandchild has
 * none of these connections. */
static void redis_forked(struct forks_watcher *watcher, enum forks_moment moment)
{
    struct redis *redis = (struct redis *)((char *)watcher - offsetof(struct redis, forks));
    struct redis_process *process = atomic_load_explicit(&redis->current, memory_order_relaxed);
    if (moment != FORKS_IN_CHILD)
        return;
    lock_init(&redis->words.mutex); /* a thread of the parent may have held it */
    if (process->forks == forks_count - 1)
        process_abandon(process);
}

/* Return this process's threads and connections. The child of a fork finds its parent's, whose threads did not come
 * along, and makes its own. NULL: that failed. */
static struct redis_process *process_of(struct redis *redis)
{
    struct redis_process *process = atomic_load_explicit(&redis->current, memory_order_acquire);
    if (process->forks == forks_count)
        return process;
    CANCEL_DISABLED;
    struct redis_process *own = malloc(sizeof *own);
    const int error = own ? process_start(&redis->config, own) : WEIR_ENOMEM;
    if (error) {
        free(own);
        if (redis_line_is_due(&redis->said_us))
            log_line(&redis->config.log, WEIR_LOG_WARNING,
                     "redis cannot be used in the child of a fork: %s; on_failure decides, and each call tries again",
                     why_not_started(error));
        return NULL;
    }
    own->elder = process;
    if (atomic_compare_exchange_strong_explicit(&redis->current, &process, own, memory_order_acq_rel,
                                                memory_order_acquire))
        return own;
    process_stop(own); /* another thread was faster */
    free(own);
    return process;
}

/* The same, but NULL if this process has not made its own yet. */
static struct redis_process *process_here(struct weir_backend *backend)
{
    struct redis_process *process = atomic_load_explicit(&((struct redis *)backend)->current, memory_order_acquire);
    return process->forks == forks_count ? process : NULL;
}

/* ---- Decisions ---- */

/* True if this is one of the backend's I/O threads. */
static bool process_is_here(const struct redis_process *process)
{
    const struct redis_engine *here = redis_engine_here();
    return here && (process->cluster ? here->router == &process->cluster->router : here == process->engine);
}

static int redis_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                        int64_t deadline_us, struct weir_decision *out)
{
    CANCEL_DISABLED;
    struct redis *redis = (struct redis *)backend;
    struct redis_process *process = process_of(redis);
    if (!process)
        return WEIR_EIO_UNDONE;
    if (process_is_here(process)) {
        log_line(&redis->config.log, WEIR_LOG_ERROR,
                 "a `done` must not wait for Redis: call weir_submit() there, or use weir_event_fd()");
        return WEIR_EINVAL;
    }
    if (process->cluster)
        return redis_cluster_decide(process->cluster, requests, n, all, deadline_us, out);
    struct redis_job job = {
        .requests = requests,
        .n = n,
        .all = all,
        .deadline_us = deadline_us,
        .out = out,
    };
    return redis_engine_decide(process->engine, &job);
}

static int redis_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                        struct weir_op *op)
{
    struct redis_process *process = process_of((struct redis *)backend);
    if (!process)
        return WEIR_EIO_UNDONE;
    return process->cluster ? redis_cluster_submit(process->cluster, request, deadline_us, op)
                            : redis_engine_submit(process->engine, request, deadline_us, op);
}

static int redis_probe(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                       int64_t deadline_us, struct weir_decision *out, struct message why)
{
    struct redis *redis = (struct redis *)backend;
    const int error = redis_decide(backend, requests, n, false, deadline_us, out);
    lock_take(&redis->words.mutex);
    const bool has_words = redis->words.text[0] != '\0';
    if (error)
        message_write(why, "%s",
                      has_words ? redis->words.text : "redis has not answered yet: the connection is being made");
    lock_give(&redis->words.mutex);
    return error == WEIR_EIO_UNDONE ? WEIR_EIO : error;
}

/* ---- Life ---- */

static void redis_shut(struct weir_backend *backend)
{
    struct redis_process *process = process_here(backend);
    if (!process)
        return;
    if (process->cluster)
        redis_cluster_shut(process->cluster);
    else
        redis_engine_shut(process->engine);
}

static void redis_stats(struct weir_backend *backend, struct weir_stats *add)
{
    const struct redis_process *process = process_here(backend);
    if (!process)
        return;
    if (process->cluster)
        redis_cluster_stats(process->cluster, add);
    else
        redis_engine_stats(process->engine, add);
}

static int64_t redis_reachable_us(struct weir_backend *backend, const struct weir_key *key)
{
    const struct redis_process *process = atomic_load_explicit(&((struct redis *)backend)->current,
                                                               memory_order_acquire);
    return process->cluster ? redis_cluster_reachable_us(process->cluster, key)
                            : redis_engine_reachable_us(process->engine);
}

static int64_t redis_well_us(struct weir_backend *backend, const struct weir_key *key)
{
    const struct redis_process *process = atomic_load_explicit(&((struct redis *)backend)->current,
                                                               memory_order_acquire);
    return process->cluster ? redis_cluster_well_us(process->cluster, key) : redis_engine_well_us(process->engine);
}

static void redis_watch(struct weir_backend *backend, void (*returned)(void *user), void *user)
{
    struct redis *redis = (struct redis *)backend;
    redis->config.returned_user = user;
    atomic_store_explicit(&redis->config.returned, returned, memory_order_release);
}

static void redis_destroy(struct weir_backend *backend)
{
    struct redis *redis = (struct redis *)backend;
    struct redis_process *process = process_here(backend);
    forks_forget(&redis->forks);
    if (process) {
        process_stop(process);
        free(process);
    }
    redis_target_free(&redis->config.target);
    lock_destroy(&redis->words.mutex);
    free(redis);
}

static bool redis_is_here(struct weir_backend *backend)
{
    const struct redis_process *process = process_here(backend);
    return process && process_is_here(process);
}

static const struct own_ops redis_ops = {
    .base = {
        .size = OWN_OPS_SIZE,
        .name = "redis",
        .own_clock = true,
        .shared = true,
        .decide = redis_decide,
        .submit = redis_submit,
        .stats = redis_stats,
        .shut = redis_shut,
        .destroy = redis_destroy,
        .reachable_us = redis_reachable_us,
        .watch = redis_watch,
        .slots = true,
    },
    .idles = true,
    .well_us = redis_well_us,
    .is_here = redis_is_here,
    .probe = redis_probe,
};

static int open_process(const struct weir_options *options, struct redis *redis, struct redis_process *process,
                        struct message message)
{
    struct redis_config *config = &redis->config;
    int error = redis_target_read(options, &config->target, message);
    if (!error)
        error = redis_target_secure(options, &config->target, message);
    if (error)
        return error;
    config->rules.in_cluster = config->target.is_cluster;
    error = process_start(config, process);
    if (error)
        message_write(message, "%s", why_not_started(error));
    return error;
}

int redis_open(const struct weir_options *options, struct weir_backend **out)
{
    struct redis *redis = calloc(1, sizeof *redis);
    struct redis_process *process = malloc(sizeof *process);
    char sentence[256] = "out of memory";
    if (!redis || !process) {
        free(redis);
        free(process);
        return WEIR_ENOMEM;
    }
    redis->backend.ops = &redis_ops.base;
    redis->config.log = (struct log){ options->log, options->user };
    redis->config.timeout_us = options->timeout_us;
    redis->config.gather_us = options->redis_gather_us;
    lock_init(&redis->words.mutex);
    redis->config.words = &redis->words;
    redis->config.rules.replicas = (unsigned)options->redis_replicas;
    redis->config.rules.denials = &redis->denials;
    snprintf(redis->config.prefix, sizeof redis->config.prefix, "%s", options->redis_prefix);
    int error = open_process(options, redis, process, (struct message){ sentence, sizeof sentence });
    if (error) {
        log_line(&redis->config.log, WEIR_LOG_ERROR, "%s", sentence);
        redis_target_free(&redis->config.target);
        free(process);
        free(redis);
        return error;
    }
    if (options->redis_insecure)
        log_line(&redis->config.log, WEIR_LOG_WARNING,
                 "redis_insecure is set: the server's certificate is not verified");
    atomic_init(&redis->current, process);
    redis->forks.told = redis_forked;
    forks_watch(&redis->forks);
    *out = &redis->backend;
    return WEIR_OK;
}
