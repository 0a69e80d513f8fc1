/* health.c - what an engine knows about its server: the gate, the doubts, the counts, and what the log says of them. */
#include "backends/redis/engine/health.h"

#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RETRY_US 200000            /* from a refused write to the next try of those that wait */
#define DOUBT_US (2 * WEIR_SECOND) /* a failure followed by this long without requests says nothing any more */

/* ---- The gate ---- */

static void health_tell_return(const struct redis_engine *engine)
{
    void (*returned)(void *user) = atomic_load_explicit(&engine->config->returned, memory_order_acquire);
    if (returned)
        returned(engine->config->returned_user);
}

void redis_engine_set_gate(struct redis_engine *engine, enum redis_gate gate)
{
    int before = atomic_exchange_explicit(&engine->gate, (int)gate, memory_order_acq_rel);
    if (before == REDIS_GATE_UP && gate != REDIS_GATE_UP)
        atomic_store_explicit(&engine->closed_us, clock_monotonic_us(), memory_order_relaxed);
    if (gate == REDIS_GATE_DOWN && before != REDIS_GATE_DOWN)
        redis_count(&engine->counts.breaks, 1);
    if (gate == REDIS_GATE_UP && before != REDIS_GATE_UP) { /* only the I/O thread opens the gate */
        atomic_store_explicit(&engine->retry_us, clock_monotonic_us() + RETRY_US, memory_order_relaxed);
        health_tell_return(engine);
    }
}

void redis_engine_late(struct redis_engine *engine)
{
    if (atomic_fetch_add_explicit(&engine->late, 1, memory_order_relaxed) + 1 < REDIS_BREAK_TIMEOUTS)
        return;
    redis_engine_set_gate(engine, REDIS_GATE_DOWN);
    redis_queue_wake(&engine->queue);
}

/* ---- Doubts ---- */

void redis_engine_failed(struct redis_engine *engine)
{
    const int64_t now_us = clock_monotonic_us();
    const int64_t last_us = atomic_exchange_explicit(&engine->failed_us, now_us, memory_order_relaxed);
    int64_t doubt_us = atomic_load_explicit(&engine->doubt_us, memory_order_relaxed);
    if (doubt_us != 0 && now_us - last_us <= DOUBT_US)
        return;
    if (atomic_compare_exchange_strong_explicit(&engine->doubt_us, &doubt_us, now_us, memory_order_relaxed,
                                                memory_order_relaxed))
        atomic_store_explicit(&engine->refuses, false, memory_order_relaxed);
}

/* The server answers, but refuses to charge. What it refused is tried again and again: nothing else tells when it
 * accepts writes again. */
static void health_refused(struct redis_engine *engine)
{
    int64_t none_us = 0;
    redis_engine_failed(engine);
    atomic_store_explicit(&engine->refuses, true, memory_order_relaxed);
    if (atomic_compare_exchange_strong_explicit(&engine->retry_us, &none_us, clock_monotonic_us() + RETRY_US,
                                                memory_order_relaxed, memory_order_relaxed))
        redis_queue_wake(&engine->queue);
}

int64_t redis_engine_retry_us(const struct redis_engine *engine)
{
    const int64_t retry_us = atomic_load_explicit(&engine->retry_us, memory_order_relaxed);
    return retry_us > 0 ? retry_us : INT64_MAX;
}

void redis_engine_retry(struct redis_engine *engine)
{
    const int64_t now_us = clock_monotonic_us();
    const bool goes_on = atomic_load_explicit(&engine->refuses, memory_order_relaxed) &&
                         now_us - atomic_load_explicit(&engine->failed_us, memory_order_relaxed) <= DOUBT_US;
    atomic_store_explicit(&engine->retry_us, goes_on ? now_us + RETRY_US : 0, memory_order_relaxed);
    if (atomic_load_explicit(&engine->gate, memory_order_relaxed) == REDIS_GATE_UP) /* otherwise its opening tells */
        health_tell_return(engine);
}

void redis_engine_decided(struct redis_engine *engine, bool has_charged)
{
    if (!has_charged && atomic_load_explicit(&engine->refuses, memory_order_relaxed))
        return;
    atomic_store_explicit(&engine->refuses, false, memory_order_relaxed);
    atomic_store_explicit(&engine->doubt_us, 0, memory_order_relaxed);
}

int64_t redis_engine_reachable_us(const struct redis_engine *engine)
{
    if (atomic_load_explicit(&engine->gate, memory_order_acquire) == REDIS_GATE_UP)
        return clock_monotonic_us();
    return atomic_load_explicit(&engine->closed_us, memory_order_relaxed);
}

int64_t redis_engine_well_us(const struct redis_engine *engine)
{
    const int64_t reachable_us = redis_engine_reachable_us(engine), now_us = clock_monotonic_us();
    const int64_t doubt_us = atomic_load_explicit(&engine->doubt_us, memory_order_relaxed);
    const bool lasts = doubt_us != 0 &&
                       now_us - atomic_load_explicit(&engine->failed_us, memory_order_relaxed) <= DOUBT_US;
    return lasts ? min_of(doubt_us, reachable_us) : reachable_us;
}

/* ---- The log ---- */

bool redis_line_is_due(_Atomic int64_t *at_us)
{
    int64_t now_us = clock_monotonic_us();
    int64_t said_us = atomic_load_explicit(at_us, memory_order_relaxed);
    if (said_us != 0 && now_us - said_us < WEIR_SECOND)
        return false;
    return atomic_compare_exchange_strong_explicit(at_us, &said_us, now_us, memory_order_relaxed, memory_order_relaxed);
}

void redis_note(const struct redis_config *config, const char *format, ...)
{
    char text[sizeof config->words->text] = "";
    va_list arguments;
    if (!config->words)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    lock_take(&config->words->mutex);
    memcpy(config->words->text, text, sizeof text);
    lock_give(&config->words->mutex);
}

static void say_error(struct redis_engine *engine, const char *word, const char *said)
{
    const bool moved = strcmp(word, "MOVED") == 0, in_cluster = moved || strcmp(word, "CROSSSLOT") == 0;
    health_refused(engine);
    if (engine->router && (moved || strcmp(word, "CLUSTERDOWN") == 0 || strcmp(word, "ASK") == 0))
        engine->router->look(engine->router);
    const char *hint = in_cluster && !engine->router ? ": it is part of a cluster; use a redis-cluster:// URL" : "";
    redis_note(engine->config, "redis answers %s%s", said, hint);
    if (redis_line_is_due(&engine->said_us))
        log_later(&engine->config->log, WEIR_LOG_WARNING, "redis answers %s%s", said, hint);
}

static void say_unacknowledged(struct redis_engine *engine)
{
    const unsigned replicas = engine->config->rules.replicas;
    health_refused(engine);
    redis_note(engine->config, "a charge was not acknowledged by %u replica%s in time", replicas,
               replicas == 1 ? "" : "s");
    if (redis_line_is_due(&engine->unacknowledged_us))
        log_later(&engine->config->log, WEIR_LOG_WARNING, "a charge was not acknowledged by %u replica%s in time",
                  replicas, replicas == 1 ? "" : "s");
}

static void say_foreign(struct redis_engine *engine, const char *limit)
{
    redis_note(engine->config, "a value in redis under limit %s is not a state of weir's", limit);
    if (redis_line_is_due(&engine->foreign_us))
        log_later(
            &engine->config->log, WEIR_LOG_WARNING,
            "a value in redis under limit %s is not a state of weir's: weir leaves it alone, and calls for its key "
            "return WEIR_ESTATE; delete it, or choose another redis_prefix",
            limit);
}

void redis_engine_say_lost(struct redis_engine *engine, const char *reason)
{
    redis_note(engine->config, "a connection to redis was lost: %s", reason);
    if (!atomic_load_explicit(&engine->closing, memory_order_relaxed) && redis_line_is_due(&engine->lost_us))
        log_later(&engine->config->log, WEIR_LOG_WARNING, "a caller's connection to redis was lost: %s", reason);
}

/* ---- Flights ---- */

bool redis_engine_take_off(struct redis_engine *engine, struct redis_flight *flight, struct redis_link *link)
{
    redis_flight_write(flight, engine->config->prefix, &link->out);
    if (!redis_link_send(link))
        return false;
    redis_count(&engine->counts.requests, flight->request_count);
    redis_count(&engine->counts.calls, flight->call_count);
    return true;
}

void redis_engine_landed(struct redis_engine *engine, const struct redis_flight *flight)
{
    if (flight->decided && atomic_load_explicit(&engine->late, memory_order_relaxed) != 0)
        atomic_store_explicit(&engine->late, 0, memory_order_relaxed);
    if (flight->error_word[0] != '\0')
        say_error(engine, flight->error_word, flight->error_said);
    if (flight->foreign_limit)
        say_foreign(engine, flight->foreign_limit);
    if (flight->unacknowledged)
        say_unacknowledged(engine);
}

const char *redis_engine_timed_out(struct redis_engine *engine, bool by_replicas, bool blame)
{
    redis_count(&engine->counts.timeouts, 1);
    if (by_replicas)
        say_unacknowledged(engine);
    else if (blame)
        redis_engine_late(engine);
    return by_replicas ? "replicas were late" : "no answer in time";
}

static uint64_t health_count(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

void redis_engine_stats(const struct redis_engine *engine, struct weir_stats *add)
{
    add->store_requests += health_count(&engine->counts.requests);
    add->store_calls += health_count(&engine->counts.calls);
    add->store_timeouts += health_count(&engine->counts.timeouts);
    add->store_connections += health_count(&engine->counts.connections);
    add->store_breaks += health_count(&engine->counts.breaks);
}
