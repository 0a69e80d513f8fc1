/* ready.c - the waiters of the I/O thread: taken from the queue, put aboard a flight, and ended. */
#include "backends/redis/engine/health.h"
#include "backends/redis/engine/io.h"
#include "core/ground/arith.h"

_Thread_local struct redis_io *redis_io_here;

const struct redis_engine *redis_engine_here(void)
{
    return redis_io_here ? redis_io_here->engine : NULL;
}

/* ---- Ending ---- */

static void ready_end_thread(struct redis_io *io, struct redis_thread_waiter *thread)
{
    io->waiting--;
    io->bells |= 1u << thread->bell;
    atomic_store_explicit(&thread->done, true, memory_order_release);
}

static void ready_release_op(struct redis_io *io)
{
    io->waiting--;
    atomic_fetch_sub_explicit(&io->engine->submitted, 1, memory_order_relaxed);
}

static void ready_end_op(struct redis_io *io, struct redis_op_waiter *waiter, int status)
{
    struct weir_op *op = redis_waiter_op(waiter);
    ready_release_op(io);
    op->done(op, status);
}

/* End a waiter none of whose requests has been sent. */
static void ready_end_waiter(struct redis_io *io, struct redis_waiter *waiter, int status)
{
    if (waiter->kind == REDIS_WAITER_THREAD) {
        struct redis_thread_waiter *thread = (struct redis_thread_waiter *)waiter;
        if (thread->job->error == WEIR_OK)
            thread->job->error = status;
        ready_end_thread(io, thread);
    } else {
        ready_end_op(io, (struct redis_op_waiter *)waiter, status);
    }
}

void redis_ready_request_ended(struct redis_flight_request *aboard, int status, const struct redis_redirect *redirect)
{
    struct redis_io *io = redis_io_here;
    struct redis_waiter *waiter = aboard->owner;
    redis_engine_ended(io->engine, aboard, status);
    if (waiter->kind == REDIS_WAITER_THREAD) {
        struct redis_thread_waiter *thread = (struct redis_thread_waiter *)waiter;
        redis_job_ended(thread->job, aboard, status, redirect);
        if (--thread->left == 0)
            ready_end_thread(io, thread);
    } else if (status > 0) { /* the engine of another node takes it over */
        ready_release_op(io);
        io->engine->router->send_on(io->engine->router, io->engine, (struct redis_op_waiter *)waiter, status, redirect);
    } else {
        ready_end_op(io, (struct redis_op_waiter *)waiter, status);
    }
}

void redis_ready_ring(struct redis_io *io)
{
    for (; io->bells != 0; io->bells &= io->bells - 1)
        bell_ring(&io->engine->bells[__builtin_ctz(io->bells)]);
}

/* ---- Ready ---- */

static void ready_push(struct redis_io *io, struct redis_waiter *waiter)
{
    waiter->next = NULL;
    *io->ready_end = waiter;
    io->ready_end = &waiter->next;
    io->ready_due_us = min_of(io->ready_due_us, waiter->deadline_us);
}

/* Empty the list and return what was in it. */
static struct redis_waiter *ready_take_list(struct redis_io *io)
{
    struct redis_waiter *first = io->ready;
    io->ready = NULL;
    io->ready_end = &io->ready;
    io->ready_due_us = INT64_MAX;
    return first;
}

void redis_ready_take(struct redis_io *io, bool last)
{
    struct redis_waiter *next, *waiter = redis_queue_take(&io->engine->queue, last);
    for (; waiter; waiter = next) {
        next = waiter->next;
        ready_push(io, waiter);
        io->waiting++;
    }
}

void redis_ready_pop(struct redis_io *io)
{
    if (io->ready->next)
        io->ready = io->ready->next;
    else
        ready_take_list(io);
}

void redis_ready_end(struct redis_io *io, int status)
{
    struct redis_waiter *next, *waiter = ready_take_list(io);
    for (; waiter; waiter = next) {
        next = waiter->next;
        ready_end_waiter(io, waiter, status);
    }
}

/* Deadlines mostly follow the order of arrival, but a caller that has tried a lane first has less time left. */
void redis_ready_end_overdue(struct redis_io *io, int64_t now_us)
{
    if (io->ready_due_us > now_us)
        return;
    struct redis_waiter *next, *waiter = ready_take_list(io);
    bool any = false;
    for (; waiter; waiter = next) {
        next = waiter->next;
        if (waiter->deadline_us <= now_us) {
            ready_end_waiter(io, waiter, WEIR_ETIME);
            any = true;
        } else {
            ready_push(io, waiter);
        }
    }
    if (any && atomic_load_explicit(&io->engine->gate, memory_order_relaxed) != REDIS_GATE_UP)
        redis_engine_late(io->engine); /* they have waited for the connection */
}

bool redis_ready_board(struct redis_flight *flight, struct redis_waiter *waiter)
{
    if (waiter->kind == REDIS_WAITER_THREAD) {
        const struct redis_job *job = ((struct redis_thread_waiter *)waiter)->job;
        return redis_flight_add(flight, job->requests, job->n, job->all, waiter->deadline_us, job->out, waiter,
                                job->asking);
    }
    struct redis_op_waiter *op_waiter = (struct redis_op_waiter *)waiter;
    const struct weir_backend_request request = redis_waiter_request(op_waiter);
    return redis_flight_add(flight, &request, 1, false, waiter->deadline_us, &redis_waiter_op(op_waiter)->decision,
                            waiter, waiter->asking);
}
