/* engine.c - the life of an engine, the queue to its I/O thread, and which way a decision goes. */
#include "backends/redis/cluster/cluster.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/ground/quiet_thread.h"
#include "core/ground/wake_fd.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOUBT_US (2 * WEIR_SECOND) /* a failure after which nothing was asked for so long tells nothing any more */

/* What the queue holds when nobody will look at it again. */
static struct redis_waiter shut;

int redis_engine_start(const struct redis_config *config, struct redis_cluster *cluster, struct redis_engine **out)
{
    int error = WEIR_ENOMEM;
    struct redis_engine *engine = aligned_alloc(64, sizeof *engine); /* a bell is a cache line */
    if (!engine)
        return WEIR_ENOMEM;
    memset(engine, 0, sizeof *engine);
    engine->config = config;
    engine->cluster = cluster;
    atomic_init(&engine->gate, REDIS_GATE_WAIT);
    lock_init(&engine->address_lock);
    engine->wake_fd = wake_fd_open();
    if (engine->wake_fd < 0) {
        error = WEIR_EIO;
        goto no_descriptor;
    }
    if (redis_lanes_init(engine) != 0)
        goto no_lanes;
    engine->io = redis_io_make(engine);
    if (!engine->io)
        goto no_io;
    if (quiet_thread_start(&engine->thread, NULL, redis_io_run, engine) != 0) {
        error = WEIR_EIO;
        goto no_thread;
    }
    *out = engine;
    return WEIR_OK;

no_thread:
    redis_io_free(engine->io);
no_io:
    redis_lanes_free(engine);
no_lanes:
    close(engine->wake_fd);
no_descriptor:
    lock_destroy(&engine->address_lock);
    free(engine);
    return error;
}

void redis_engine_wake(struct redis_engine *engine)
{
    wake_fd_ring(engine->wake_fd);
}

/* Sequentially consistent, both here and where the I/O thread goes to sleep: either it sees this waiter, or this thread
 * sees it asleep. */
int redis_engine_queue(struct redis_engine *engine, struct redis_waiter *waiter)
{
    struct redis_waiter *newest = atomic_load_explicit(&engine->queue, memory_order_relaxed);
    do {
        if (newest == &shut)
            return WEIR_ECLOSED;
        waiter->next = newest;
    } while (!atomic_compare_exchange_weak_explicit(&engine->queue, &newest, waiter, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (atomic_load_explicit(&engine->asleep, memory_order_seq_cst) &&
        atomic_exchange_explicit(&engine->asleep, false, memory_order_seq_cst))
        redis_engine_wake(engine);
    return WEIR_OK;
}

struct redis_waiter *redis_engine_take_queue(struct redis_engine *engine, bool last)
{
    struct redis_waiter *newest = atomic_exchange_explicit(&engine->queue, last ? &shut : NULL, memory_order_seq_cst);
    struct redis_waiter *oldest = NULL;
    while (newest && newest != &shut) {
        struct redis_waiter *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

void redis_engine_set_gate(struct redis_engine *engine, enum redis_gate gate)
{
    int before = atomic_exchange_explicit(&engine->gate, (int)gate, memory_order_acq_rel);
    if (before == REDIS_GATE_UP && gate != REDIS_GATE_UP)
        atomic_store_explicit(&engine->closed_us, clock_monotonic_us(), memory_order_relaxed);
    if (gate == REDIS_GATE_DOWN && before != REDIS_GATE_DOWN)
        redis_count(&engine->counts.breaks, 1);
    if (gate == REDIS_GATE_UP && before != REDIS_GATE_UP) { /* which the I/O thread alone does */
        void (*returned)(void *user) = atomic_load_explicit(&engine->config->returned, memory_order_acquire);
        if (returned)
            returned(engine->config->returned_user);
    }
}

/* ---- Whether the server is well ---- */

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

/* It answers, but charges nobody. */
static void refused(struct redis_engine *engine)
{
    redis_engine_failed(engine);
    atomic_store_explicit(&engine->refuses, true, memory_order_relaxed);
}

void redis_engine_decided(struct redis_engine *engine, bool has_charged)
{
    if (!has_charged && atomic_load_explicit(&engine->refuses, memory_order_relaxed))
        return;
    atomic_store_explicit(&engine->refuses, false, memory_order_relaxed);
    atomic_store_explicit(&engine->doubt_us, 0, memory_order_relaxed);
}

int64_t redis_engine_well_us(const struct redis_engine *engine)
{
    const int64_t reachable_us = redis_engine_reachable_us(engine), now_us = clock_monotonic_us();
    const int64_t doubt_us = atomic_load_explicit(&engine->doubt_us, memory_order_relaxed);
    const bool lasts = doubt_us != 0 &&
                       now_us - atomic_load_explicit(&engine->failed_us, memory_order_relaxed) <= DOUBT_US;
    return lasts ? min_of(doubt_us, reachable_us) : reachable_us;
}

void redis_engine_late(struct redis_engine *engine)
{
    if (atomic_fetch_add_explicit(&engine->late, 1, memory_order_relaxed) + 1 < REDIS_BREAK_TIMEOUTS)
        return;
    redis_engine_set_gate(engine, REDIS_GATE_DOWN);
    redis_engine_wake(engine);
}

bool redis_line_is_due(_Atomic int64_t *at_us)
{
    int64_t now_us = clock_monotonic_us();
    int64_t said_us = atomic_load_explicit(at_us, memory_order_relaxed);
    if (said_us != 0 && now_us - said_us < WEIR_SECOND)
        return false;
    return atomic_compare_exchange_strong_explicit(at_us, &said_us, now_us, memory_order_relaxed, memory_order_relaxed);
}

static void say_error(struct redis_engine *engine, const char *word)
{
    refused(engine);
    if (engine->cluster && (strcmp(word, "CLUSTERDOWN") == 0 || strcmp(word, "MOVED") == 0 || strcmp(word, "ASK") == 0))
        redis_cluster_look(engine->cluster);
    if (redis_line_is_due(&engine->said_us))
        log_line(&engine->config->log, WEIR_LOG_WARNING, "redis answers %s%s", word,
                 strcmp(word, "MOVED") == 0 && !engine->cluster
                     ? ": it is part of a cluster, and redis-cluster:// is for that"
                     : "");
}

void redis_engine_say_unacknowledged(struct redis_engine *engine)
{
    const unsigned replicas = engine->config->rules.replicas;
    refused(engine);
    if (redis_line_is_due(&engine->unacknowledged_us))
        log_line(&engine->config->log, WEIR_LOG_WARNING, "a charge was not acknowledged by %u replica%s", replicas,
                 replicas == 1 ? "" : "s");
}

void redis_engine_say_lost(struct redis_engine *engine, const char *reason)
{
    if (!atomic_load_explicit(&engine->closing, memory_order_relaxed) && redis_line_is_due(&engine->lost_us))
        log_line(&engine->config->log, WEIR_LOG_WARNING, "a caller's connection to redis was lost: %s", reason);
}

bool redis_engine_take_off(struct redis_engine *engine, struct redis_flight *flight, struct redis_link *link)
{
    redis_flight_write(flight, engine->config->prefix, &link->out);
    if (!redis_link_send(link))
        return false;
    redis_count(&engine->counts.requests, flight->ask_count);
    redis_count(&engine->counts.calls, flight->call_count);
    return true;
}

void redis_engine_landed(struct redis_engine *engine, const struct redis_flight *flight)
{
    if (flight->decided > 0 && atomic_load_explicit(&engine->late, memory_order_relaxed) != 0)
        atomic_store_explicit(&engine->late, 0, memory_order_relaxed);
    if (flight->error_word[0] != '\0')
        say_error(engine, flight->error_word);
    if (flight->unacknowledged)
        redis_engine_say_unacknowledged(engine);
}

void redis_engine_shut(struct redis_engine *engine)
{
    atomic_store_explicit(&engine->closing, true, memory_order_seq_cst);
    redis_engine_wake(engine);
    for (unsigned i = 0; i < REDIS_LANES; i++)
        redis_link_hang_up(&engine->lanes[i].link);
}

void redis_engine_stop(struct redis_engine *engine)
{
    redis_engine_shut(engine);
    pthread_join(engine->thread, NULL);
}

void redis_engine_free(struct redis_engine *engine)
{
    redis_io_free(engine->io);
    redis_lanes_free(engine);
    close(engine->wake_fd);
    lock_destroy(&engine->address_lock);
    free(engine);
}

void redis_engine_abandon(struct redis_engine *engine)
{
    close(engine->wake_fd);
    for (unsigned i = 0; i < REDIS_LANES; i++)
        redis_link_abandon(&engine->lanes[i].link);
    redis_io_abandon(engine->io);
}

void redis_engine_aim(struct redis_engine *engine, const struct redis_node_name *node)
{
    lock_take(&engine->address_lock);
    engine->aim = node ? *node : (struct redis_node_name){ .port = 0 };
    lock_give(&engine->address_lock);
    atomic_fetch_add_explicit(&engine->aims, 1, memory_order_release);
    redis_engine_wake(engine);
}

/* ---- Decisions ---- */

void redis_errand_ended(struct redis_errand *errand, struct redis_ask *ask, int status)
{
    if (status > 0 && errand->n > 1 && !errand->all) {
        ask->out->source = REDIS_ELSEWHERE;
        return;
    }
    if (status == WEIR_OK || errand->error != WEIR_OK)
        return;
    errand->error = status;
    if (ask->redirect && errand->redirect)
        *errand->redirect = *ask->redirect;
}

int redis_caller_begin(struct redis_caller *caller, struct redis_engine *engine, struct redis_errand *errand)
{
    *caller = (struct redis_caller){
        .waiter = { .deadline_us = errand->deadline_us, .now_us = REDIS_CALLER },
        .errand = errand,
        .left = errand->n,
        .bell = atomic_load_explicit(&engine->boarding, memory_order_relaxed) % REDIS_BELLS,
    };
    return redis_engine_queue(engine, &caller->waiter);
}

void redis_caller_await(struct redis_caller *caller, struct redis_engine *engine)
{
    bell_await(&engine->bells[caller->bell], &caller->done);
}

int redis_engine_decide(struct redis_engine *engine, struct redis_errand *errand)
{
    if (atomic_load_explicit(&engine->closing, memory_order_relaxed))
        return WEIR_ECLOSED;
    int gate = atomic_load_explicit(&engine->gate, memory_order_acquire);
    if (gate == REDIS_GATE_DOWN)
        return WEIR_EIO;
    if (gate == REDIS_GATE_UP && !atomic_load_explicit(&engine->crowd, memory_order_relaxed)) {
        struct redis_lane *lane = redis_lane_take(engine);
        if (lane) {
            const bool ran = redis_lane_run(engine, lane, errand);
            redis_lane_give(engine, lane);
            if (ran)
                return errand->error;
        } else {
            atomic_store_explicit(&engine->crowd, true, memory_order_relaxed);
        }
    }
    struct redis_caller caller;
    int error = redis_caller_begin(&caller, engine, errand);
    if (error)
        return error;
    redis_caller_await(&caller, engine);
    return errand->error;
}

struct weir_op *redis_waiter_op(struct redis_waiter *waiter)
{
    return (struct weir_op *)((char *)waiter - offsetof(struct weir_op, opaque[2]));
}

int redis_engine_take_over(struct redis_engine *engine, struct redis_waiter *waiter)
{
    if (redis_engine_is_down(engine))
        return WEIR_EIO;
    if (atomic_fetch_add_explicit(&engine->submitted, 1, memory_order_relaxed) >= WEIR_MAX_SUBMITTED) {
        atomic_fetch_sub_explicit(&engine->submitted, 1, memory_order_relaxed);
        return WEIR_EFULL;
    }
    int error = redis_engine_queue(engine, waiter);
    if (error)
        atomic_fetch_sub_explicit(&engine->submitted, 1, memory_order_relaxed);
    return error ? error : 1;
}

int redis_engine_submit(struct redis_engine *engine, const struct weir_backend_request *request, int64_t deadline_us,
                        struct weir_op *op)
{
    struct redis_waiter *waiter = (struct redis_waiter *)(void *)&op->opaque[2];
    assert(request->ahead <= UINT32_MAX && request->spread <= UINT16_MAX);
    *waiter = (struct redis_waiter){
        .deadline_us = deadline_us,
        .hash = request->hash,
        .now_us = request->now_us,
        .cost = request->cost,
        .ahead = (uint32_t)request->ahead,
        .spread = (uint16_t)request->spread,
    };
    return redis_engine_take_over(engine, waiter);
}

/* ---- What there is to tell ---- */

int64_t redis_engine_reachable_us(const struct redis_engine *engine)
{
    if (atomic_load_explicit(&engine->gate, memory_order_acquire) == REDIS_GATE_UP)
        return clock_monotonic_us();
    return atomic_load_explicit(&engine->closed_us, memory_order_relaxed);
}

static uint64_t sum(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

void redis_engine_stats(const struct redis_engine *engine, struct weir_stats *add)
{
    add->store_requests += sum(&engine->counts.requests);
    add->store_calls += sum(&engine->counts.calls);
    add->store_timeouts += sum(&engine->counts.timeouts);
    add->store_connections += sum(&engine->counts.connections);
    add->store_breaks += sum(&engine->counts.breaks);
}
