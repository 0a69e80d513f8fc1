/* ready.c - those who wait for the I/O thread: taken from the queue, put on board of a flight, told how it ended. */
#include "backends/redis/cluster/cluster.h"
#include "backends/redis/engine/io.h"
#include "core/ground/arith.h"

_Thread_local struct redis_io *redis_io_here;

const struct redis_engine *redis_engine_here(void)
{
    return redis_io_here ? redis_io_here->engine : NULL;
}

/* ---- Told ---- */

static void end_caller(struct redis_io *io, struct redis_caller *caller)
{
    io->waiting--;
    io->bells |= 1u << caller->bell;
    atomic_store_explicit(&caller->done, true, memory_order_release);
}

static void end_op(struct redis_io *io, struct redis_waiter *waiter, int status)
{
    struct weir_op *op = redis_waiter_op(waiter);
    io->waiting--;
    atomic_fetch_sub_explicit(&io->engine->submitted, 1, memory_order_relaxed);
    op->done(op, status);
}

/* None of its requests has been sent. */
static void end_waiter(struct redis_io *io, struct redis_waiter *waiter, int status)
{
    if (waiter->now_us == REDIS_CALLER) {
        struct redis_caller *caller = (struct redis_caller *)waiter;
        if (caller->errand->error == WEIR_OK)
            caller->errand->error = status;
        end_caller(io, caller);
    } else {
        end_op(io, waiter, status);
    }
}

/* A submitted request that another server is to decide is that one's engine's from now on. */
static void send_on(struct redis_io *io, struct redis_waiter *waiter, int status, const struct redis_redirect *redirect)
{
    io->waiting--;
    atomic_fetch_sub_explicit(&io->engine->submitted, 1, memory_order_relaxed);
    redis_cluster_send_on(io->engine->cluster, io->engine, waiter, status, redirect);
}

void redis_ready_told(struct redis_ask *ask, int status)
{
    struct redis_waiter *waiter = ask->owner;
    redis_engine_ended(redis_io_here->engine, ask, status);
    if (waiter->now_us == REDIS_CALLER) {
        struct redis_caller *caller = (struct redis_caller *)waiter;
        redis_errand_ended(caller->errand, ask, status);
        if (--caller->left == 0)
            end_caller(redis_io_here, caller);
    } else if (status > 0) {
        send_on(redis_io_here, waiter, status, ask->redirect);
    } else {
        end_op(redis_io_here, waiter, status);
    }
}

void redis_ready_ring(struct redis_io *io)
{
    for (; io->bells != 0; io->bells &= io->bells - 1)
        bell_ring(&io->engine->bells[__builtin_ctz(io->bells)]);
}

/* ---- Ready ---- */

static void push_ready(struct redis_io *io, struct redis_waiter *waiter)
{
    waiter->next = NULL;
    *io->ready_end = waiter;
    io->ready_end = &waiter->next;
    io->ready_due_us = min_of(io->ready_due_us, waiter->deadline_us);
}

void redis_ready_take(struct redis_io *io, bool last)
{
    struct redis_waiter *next, *waiter = redis_engine_take_queue(io->engine, last);
    for (; waiter; waiter = next) {
        next = waiter->next;
        push_ready(io, waiter);
        io->waiting++;
    }
}

struct redis_waiter *redis_ready_pop(struct redis_io *io)
{
    struct redis_waiter *waiter = io->ready;
    io->ready = waiter->next;
    if (!io->ready) {
        io->ready_end = &io->ready;
        io->ready_due_us = INT64_MAX;
    }
    return waiter;
}

void redis_ready_end(struct redis_io *io, int status)
{
    while (io->ready)
        end_waiter(io, redis_ready_pop(io), status);
}

/* Most wait equally long, in the order of their coming; one that has tried for itself first has less time left. */
void redis_ready_end_overdue(struct redis_io *io, int64_t now_us)
{
    if (io->ready_due_us > now_us)
        return;
    struct redis_waiter *waiter = io->ready;
    bool any = false;
    io->ready = NULL;
    io->ready_end = &io->ready;
    io->ready_due_us = INT64_MAX;
    while (waiter) {
        struct redis_waiter *next = waiter->next;
        if (waiter->deadline_us <= now_us) {
            end_waiter(io, waiter, WEIR_ETIME);
            any = true;
        } else {
            push_ready(io, waiter);
        }
        waiter = next;
    }
    if (any && atomic_load_explicit(&io->engine->gate, memory_order_relaxed) != REDIS_GATE_UP)
        redis_engine_late(io->engine); /* they had waited for the connection */
}

bool redis_ready_board(struct redis_flight *flight, struct redis_waiter *waiter)
{
    if (waiter->now_us == REDIS_CALLER) {
        const struct redis_errand *errand = ((struct redis_caller *)waiter)->errand;
        return redis_flight_add(flight, errand->requests, errand->n, errand->all, waiter->deadline_us, errand->out,
                                waiter, errand->asking);
    }
    struct weir_op *op = redis_waiter_op(waiter);
    const struct weir_backend_request request = {
        .limit = op->request.limit,
        .key = op->request.key,
        .hash = waiter->hash,
        .cost = waiter->cost,
        .now_us = waiter->now_us,
        .cold_since_us = -1,
        .ahead = waiter->ahead,
        .spread = waiter->spread,
        .verb = WEIR_TAKE,
    };
    return redis_flight_add(flight, &request, 1, false, waiter->deadline_us, &op->decision, waiter, waiter->asking);
}
