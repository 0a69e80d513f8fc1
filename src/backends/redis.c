/* redis.c - the Redis backend: its life, its counters, who goes which way, and the vtable. */
#include "backends/redis.h"

#include "backends/redis_engine.h"
#include "core/clock.h"
#include "core/forks.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The engine of this process. A child of a fork has its parent's, whose thread did not come along: it gets one of its
 * own. NULL: there is none to be had. */
static struct redis_engine *engine_of(struct redis *redis)
{
    struct redis_engine *engine = atomic_load_explicit(&redis->current, memory_order_acquire);
    if (engine->forks == forks_count)
        return engine;
    struct redis_engine *own;
    if (redis_engine_start(&redis->config, &own) != WEIR_OK)
        return NULL;
    own->elder = engine;
    if (atomic_compare_exchange_strong_explicit(&redis->current, &engine, own, memory_order_acq_rel,
                                                memory_order_acquire)) {
        redis_engine_abandon(own->elder);
        return own;
    }
    redis_engine_free(own); /* another thread was faster */
    return engine;
}

/* ---- Decisions ---- */

static int decide_by_thread(struct redis_engine *engine, const struct weir_backend_request *requests, size_t n,
                            bool all, int64_t deadline_us, struct weir_decision *out)
{
    struct redis_caller caller = {
        .waiter = { .deadline_us = deadline_us, .now_us = REDIS_CALLER },
        .requests = requests,
        .out = out,
        .n = n,
        .left = n,
        .all = all,
    };
    if (redis_io_is_here(engine)) {
        log_line(&engine->config->log, WEIR_LOG_ERROR,
                 "a `done` must not wait for Redis: call weir_submit() there, or use weir_event_fd()");
        return WEIR_EINVAL;
    }
    caller.bell = atomic_load_explicit(&engine->boarding, memory_order_relaxed) % REDIS_BELLS;
    struct bell *bell = &engine->bells[caller.bell];
    int error = redis_engine_queue(engine, &caller.waiter);
    if (error)
        return error;
    for (;;) {
        uint32_t rings = bell_rings(bell);
        if (atomic_load_explicit(&caller.done, memory_order_acquire))
            return caller.error;
        bell_wait(bell, rings);
    }
}

static int redis_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                        int64_t deadline_us, struct weir_decision *out)
{
    struct redis_engine *engine = engine_of((struct redis *)backend);
    if (!engine)
        return WEIR_EIO;
    if (atomic_load_explicit(&engine->closing, memory_order_relaxed))
        return WEIR_ECLOSED;
    int gate = atomic_load_explicit(&engine->gate, memory_order_acquire);
    if (gate == REDIS_GATE_DOWN)
        return WEIR_EIO;
    if (gate == REDIS_GATE_UP && !atomic_load_explicit(&engine->crowd, memory_order_relaxed)) {
        struct redis_lane *lane = redis_lane_take(engine);
        if (lane) {
            int result = redis_lane_decide(engine, lane, requests, n, all, deadline_us, out);
            redis_lane_give(engine, lane);
            if (result <= 0)
                return result;
        } else {
            atomic_store_explicit(&engine->crowd, true, memory_order_relaxed);
        }
    }
    return decide_by_thread(engine, requests, n, all, deadline_us, out);
}

static int redis_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                        struct weir_op *op)
{
    struct redis_engine *engine = engine_of((struct redis *)backend);
    if (!engine || atomic_load_explicit(&engine->gate, memory_order_acquire) == REDIS_GATE_DOWN)
        return WEIR_EIO;
    if (atomic_fetch_add_explicit(&engine->submitted, 1, memory_order_relaxed) >= WEIR_MAX_SUBMITTED) {
        atomic_fetch_sub_explicit(&engine->submitted, 1, memory_order_relaxed);
        return WEIR_EFULL;
    }
    struct redis_waiter *waiter = (struct redis_waiter *)(void *)&op->opaque[2];
    assert(request->ahead <= UINT32_MAX);
    *waiter = (struct redis_waiter){
        .deadline_us = deadline_us,
        .hash = request->hash,
        .now_us = request->now_us,
        .cost = request->cost,
        .ahead = (uint32_t)request->ahead,
        .spread = request->spread,
    };
    int error = redis_engine_queue(engine, waiter);
    if (error)
        atomic_fetch_sub_explicit(&engine->submitted, 1, memory_order_relaxed);
    return error ? error : 1;
}

/* ---- Life ---- */

static void redis_shut(struct weir_backend *backend)
{
    struct redis_engine *engine = atomic_load_explicit(&((struct redis *)backend)->current, memory_order_acquire);
    if (engine->forks == forks_count)
        redis_engine_shut(engine);
}

static uint64_t sum(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void redis_stats(struct weir_backend *backend, struct weir_stats *add)
{
    const struct redis_engine *engine = atomic_load_explicit(&((struct redis *)backend)->current, memory_order_acquire);
    if (engine->forks != forks_count)
        return;
    add->store_requests += sum(&engine->counts.requests);
    add->store_calls += sum(&engine->counts.calls);
    add->store_timeouts += sum(&engine->counts.timeouts);
    add->store_connections += sum(&engine->counts.connections);
    add->store_breaks += sum(&engine->counts.breaks);
}

static int64_t redis_reachable_us(struct weir_backend *backend)
{
    struct redis_engine *engine = atomic_load_explicit(&((struct redis *)backend)->current, memory_order_acquire);
    if (atomic_load_explicit(&engine->gate, memory_order_acquire) == REDIS_GATE_UP)
        return clock_monotonic_us();
    return atomic_load_explicit(&engine->closed_us, memory_order_relaxed);
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
    struct redis_engine *engine = atomic_load_explicit(&redis->current, memory_order_acquire);
    if (engine->forks == forks_count)
        redis_engine_free(engine);
    else
        redis_engine_abandon(engine);
    redis_target_free(&redis->config.target);
    free(redis);
}

static bool redis_is_here(struct weir_backend *backend)
{
    const struct redis_engine *engine = atomic_load_explicit(&((struct redis *)backend)->current, memory_order_acquire);
    return engine->forks == forks_count && redis_io_is_here(engine);
}

static const struct weir_backend_ops redis_ops = {
    .size = sizeof redis_ops,
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
    .is_here = redis_is_here,
};

/* Who is trusted, and who this client is: once for all connections. */
static int make_tls(const struct weir_options *options, struct redis_target *target, struct message message)
{
    const char *given = options->redis_ca_file     ? "redis_ca_file"
                        : options->redis_cert_file ? "redis_cert_file"
                        : options->redis_key_file  ? "redis_key_file"
                        : options->redis_insecure  ? "redis_insecure"
                                                   : NULL;
    if (target->is_tls)
        return redis_tls_context_make(options, &target->tls, message);
    if (!given)
        return WEIR_OK;
    return message_refuse(message,
                          "%s is for a redis_url that begins with rediss://, rediss-sentinel:// or "
                          "rediss-cluster://",
                          given);
}

int redis_open(const struct weir_options *options, struct weir_backend **out)
{
    struct redis *redis = calloc(1, sizeof *redis);
    if (!redis)
        return WEIR_ENOMEM;
    char sentence[256] = "out of memory";
    struct redis_engine *engine;
    redis->backend.ops = &redis_ops;
    redis->config.log = (struct log){ options->log, options->user };
    redis->config.timeout_us = options->timeout_us;
    redis->config.rules.replicas = (unsigned)options->redis_replicas;
    snprintf(redis->config.prefix, sizeof redis->config.prefix, "%s", options->redis_prefix);
    int error = redis_target_read(options, &redis->config.target, (struct message){ sentence, sizeof sentence });
    if (!error)
        error = make_tls(options, &redis->config.target, (struct message){ sentence, sizeof sentence });
    if (!error) {
        error = redis_engine_start(&redis->config, &engine);
        if (error == WEIR_EIO)
            snprintf(sentence, sizeof sentence, "no thread or descriptor to be had");
    }
    if (error) {
        log_line(&redis->config.log, WEIR_LOG_ERROR, "%s", sentence);
        redis_target_free(&redis->config.target);
        free(redis);
        return error;
    }
    if (options->redis_insecure)
        log_line(&redis->config.log, WEIR_LOG_WARNING,
                 "redis_insecure: whoever answers is taken for the server, its certificate is not looked at");
    atomic_init(&redis->current, engine);
    *out = &redis->backend;
    return WEIR_OK;
}
