/* engine.c - the life of an engine, and whether a job takes a lane or the I/O thread. */
#include "backends/redis/engine/health.h"
#include "backends/redis/engine/io.h"
#include "core/ground/quiet_thread.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Life ---- */

int redis_engine_start(const struct redis_config *config, struct redis_router *router, struct redis_engine **out)
{
    int error = WEIR_ENOMEM;
    struct redis_engine *engine = aligned_alloc(64, sizeof *engine); /* a bell is a cache line */
    if (!engine)
        return WEIR_ENOMEM;
    memset(engine, 0, sizeof *engine);
    engine->config = config;
    engine->router = router;
    atomic_init(&engine->gate, REDIS_GATE_WAIT);
    lock_init(&engine->address_lock);
    engine->queue.wake_fd = wake_fd_open();
    if (engine->queue.wake_fd < 0) {
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
    close(engine->queue.wake_fd);
no_descriptor:
    lock_destroy(&engine->address_lock);
    free(engine);
    return error;
}

void redis_engine_shut(struct redis_engine *engine)
{
    atomic_store_explicit(&engine->closing, true, memory_order_seq_cst);
    redis_queue_wake(&engine->queue);
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
    close(engine->queue.wake_fd);
    lock_destroy(&engine->address_lock);
    free(engine);
}

void redis_engine_abandon(struct redis_engine *engine)
{
    close(engine->queue.wake_fd);
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
    redis_queue_wake(&engine->queue);
}

/* ---- Decisions ---- */

int redis_thread_waiter_begin(struct redis_thread_waiter *thread, struct redis_engine *engine, struct redis_job *job)
{
    *thread = (struct redis_thread_waiter){
        .waiter = { .deadline_us = job->deadline_us, .kind = REDIS_WAITER_THREAD },
        .job = job,
        .left = job->n,
        .bell = atomic_load_explicit(&engine->boarding, memory_order_relaxed) % REDIS_BELLS,
    };
    return redis_queue_put(&engine->queue, &thread->waiter);
}

void redis_thread_waiter_await(struct redis_thread_waiter *thread, struct redis_engine *engine)
{
    bell_await(&engine->bells[thread->bell], &thread->done);
}

int redis_engine_decide(struct redis_engine *engine, struct redis_job *job)
{
    if (atomic_load_explicit(&engine->closing, memory_order_relaxed))
        return WEIR_ECLOSED;
    int gate = atomic_load_explicit(&engine->gate, memory_order_acquire);
    if (gate == REDIS_GATE_DOWN)
        return WEIR_EIO_UNDONE;
    if (gate == REDIS_GATE_UP && engine->config->gather_us == 0 &&
        !atomic_load_explicit(&engine->crowd, memory_order_relaxed)) {
        struct redis_lane *lane = redis_lane_take(engine);
        if (lane) {
            const bool ran = redis_lane_run(engine, lane, job);
            redis_lane_give(engine, lane);
            if (ran)
                return job->error;
        } else {
            atomic_store_explicit(&engine->crowd, true, memory_order_relaxed);
        }
    }
    struct redis_thread_waiter thread;
    int error = redis_thread_waiter_begin(&thread, engine, job);
    if (error)
        return error;
    redis_thread_waiter_await(&thread, engine);
    return job->error;
}

int redis_engine_take_over(struct redis_engine *engine, struct redis_op_waiter *waiter)
{
    if (redis_engine_is_down(engine))
        return WEIR_EIO_UNDONE;
    int error = WEIR_EFULL;
    if (atomic_fetch_add_explicit(&engine->submitted, 1, memory_order_relaxed) < WEIR_MAX_SUBMITTED)
        error = redis_queue_put(&engine->queue, &waiter->waiter);
    if (error)
        atomic_fetch_sub_explicit(&engine->submitted, 1, memory_order_relaxed);
    return error ? error : 1;
}

int redis_engine_submit(struct redis_engine *engine, const struct weir_backend_request *request, int64_t deadline_us,
                        struct weir_op *op)
{
    struct redis_op_waiter *waiter = redis_waiter_in_op(op);
    const bool has_since = redis_op_has_since(op, request->verb);
    const bool returns = request->verb == WEIR_REFUND && request->ahead > 0 && !has_since && !request->slot;
    assert(!returns || request->now_us == WEIR_OWN_CLOCK);
    assert(request->cost >= 0 && request->cost <= EXACT_MAX);
    *waiter = (struct redis_op_waiter){
        .waiter = { .deadline_us = deadline_us,
                    .ahead = request->ahead,
                    .limit_id = request->limit_id,
                    .spread = request->spread,
                    .kind = REDIS_WAITER_OP,
                    .returns = returns,
                    .asks = redis_request_asks(request),
                    .verb = (uint8_t)(request->verb & 7) },
        .hash = request->hash,
        .now_us = returns ? request->ahead : request->now_us,
        .cost = request->cost,
    };
    if (waiter->waiter.asks)
        op->reservation.at_us = request->cold_left;
    return redis_engine_take_over(engine, waiter);
}
