/* io.c - the thread that does I/O for all waiters.
 *
 * In each turn it takes the queue, ends overdue waiters, sends the ready ones in one flight if fewer than REDIS_AIR_MAX
 * are under way, sleeps until something arrives or is due, and takes in what has arrived. Waiters that come while a
 * flight is under way gather and share calls until that flight has landed or GATHER_US have passed: waking this thread
 * for each would cost more than everything else. With a nearby server, the callers of one flight are answered while the
 * server works on another. With redis_gather_us they gather for that time after each flight, whether it has landed or
 * not.
 */
#include "backends/redis/engine/io.h"
#include "backends/redis/engine/health.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>

#define FLIGHT_REQUESTS 256 /* per flight: about 1 ms of the server's time */

/* ---- Life ---- */

struct redis_io *redis_io_make(struct redis_engine *engine)
{
    struct redis_io *io = calloc(1, sizeof *io);
    if (!io)
        return NULL;
    io->engine = engine;
    io->ready_end = &io->ready;
    io->ready_due_us = INT64_MAX;
    io->wait = REDIS_NO_WAIT;
    if (redis_link_init(&io->link) != 0) {
        free(io);
        return NULL;
    }
    if (redis_connect_init(io) != 0) {
        redis_io_free(io);
        return NULL;
    }
    for (; io->spare_count < REDIS_AIR_MAX + 1; io->spare_count++) {
        io->spare[io->spare_count] = redis_flight_make(FLIGHT_REQUESTS, engine->config->rules);
        if (!io->spare[io->spare_count]) {
            redis_io_free(io);
            return NULL;
        }
    }
    return io;
}

void redis_io_free(struct redis_io *io)
{
    redis_link_free(&io->link);
    redis_connect_free(io);
    for (size_t i = 0; i < io->spare_count; i++)
        redis_flight_free(io->spare[i]);
    free(io);
}

void redis_io_abandon(struct redis_io *io)
{
    redis_link_abandon(&io->link);
    resolver_abandon(&io->resolver);
    if (io->sentinel)
        redis_sentinel_abandon(io->sentinel);
}

/* ---- Deadlines ---- */

/* An answer has been due for too long. If it is WAIT's, the replicas are late and the server is healthy. */
static void io_hang_up(struct redis_io *io)
{
    const bool is_well = io->air_count == 0;
    io->proven = io->proven || is_well || io->air[0]->decided;
    redis_connect_lose(io, redis_engine_timed_out(io->engine, is_well, true), WEIR_ETIME);
}

static void look_at_deadlines(struct redis_io *io, int64_t now_us)
{
    redis_air_expire(io, now_us);
    if (redis_air_hang_up_us(io) <= now_us)
        io_hang_up(io);
    bool up = io->link.state == REDIS_LINK_UP;
    if (up && io->wait.nudge_us <= now_us) {
        redis_wait_nudge(&io->wait, now_us, &io->link.out);
        redis_link_send(&io->link);
    }
    if (up && atomic_load_explicit(&io->engine->gate, memory_order_acquire) == REDIS_GATE_DOWN)
        redis_connect_lose(io, "no answer in time", WEIR_ETIME);
    else if (up && atomic_exchange_explicit(&io->engine->renew, false, memory_order_acquire))
        redis_connect_lose(io, "the server is a replica", WEIR_EIO);
    else if (io->resolving && io->give_up_us <= now_us)
        redis_connect_lose(io, "the host's name is not resolved in time", WEIR_EIO);
    else if (!up && io->link.state != REDIS_LINK_CLOSED && io->give_up_us <= now_us)
        redis_connect_lose(io,
                           io->link.state == REDIS_LINK_SECURING
                               ? "no answer to TLS in time: for a plain port use a redis:// URL"
                           : io->link.state == REDIS_LINK_GREETING ? "no answer in time"
                                                                   : "no connection in time",
                           WEIR_EIO);
    redis_ready_end_overdue(io, now_us);
    if (redis_engine_retry_us(io->engine) <= now_us)
        redis_engine_retry(io->engine);
}

/* ---- The turn ---- */

/* True if a new waiter's flight would leave without delay. */
static bool io_is_idle(const struct redis_io *io, int64_t now_us)
{
    return redis_air_may_leave(io, now_us) && redis_air_gathers_until_us(io) <= now_us;
}

static int64_t next_due_us(const struct redis_io *io, int64_t now_us)
{
    int64_t due_us = INT64_MAX;
    if (redis_air_may_leave(io, now_us) && !io_is_idle(io, now_us))
        due_us = redis_air_gathers_until_us(io);
    due_us = min_of(due_us, redis_air_due_us(io));
    due_us = min_of(due_us, io->ready_due_us);
    due_us = min_of(due_us, redis_engine_retry_us(io->engine));
    if (io->resolving || (io->link.state != REDIS_LINK_CLOSED && io->link.state != REDIS_LINK_UP))
        due_us = min_of(due_us, io->give_up_us);
    else if (io->link.state == REDIS_LINK_CLOSED && !io->asking)
        due_us = min_of(due_us, io->try_again_us);
    if (io->sentinel)
        due_us = min_of(due_us, io->sentinel->due_us);
    return due_us;
}

static void sleep_and_step(struct redis_io *io)
{
    struct redis_engine *engine = io->engine;
    struct pollfd fds[4] = {
        { .fd = engine->queue.wake_fd, .events = POLLIN },
        { .fd = io->link.fd, .events = redis_link_events(&io->link) },
        { .fd = io->resolving ? resolver_fd(&io->resolver) : -1, .events = POLLIN },
    };
    nfds_t fd_count = 3;
    if (io->sentinel)
        fds[fd_count++] = redis_sentinel_polled(io->sentinel);
    int64_t now_us = clock_monotonic_us();
    /* Not while waiters gather for a flight that leaves soon. If none may leave, a new waiter can have an early
     * deadline. */
    bool wakeable = io_is_idle(io, now_us) || !redis_air_may_leave(io, now_us);
    atomic_store_explicit(&engine->queue.asleep, wakeable, memory_order_seq_cst);
    bool stay = wakeable && atomic_load_explicit(&engine->queue.newest, memory_order_seq_cst) != NULL;
    int64_t due_us = next_due_us(io, now_us);
    int64_t left_us = stay ? 0 : due_us == INT64_MAX ? -1 : max_of(0, due_us - now_us);
    const struct timespec left = clock_timespec(left_us);
    int count = ppoll(fds, fd_count, left_us < 0 ? NULL : &left, NULL);
    atomic_store_explicit(&engine->queue.asleep, false, memory_order_seq_cst);
    if (count <= 0)
        return;
    if (fds[0].revents)
        wake_fd_drain(engine->queue.wake_fd);
    if (fds[2].revents)
        redis_connect_resolve(io);
    if (fds[1].revents && fds[1].fd == io->link.fd) {
        redis_link_step(&io->link);
        redis_connect_look(io);
        redis_air_read(io);
    }
    if (fd_count > 3 && fds[3].revents)
        redis_connect_sentinels(io, clock_monotonic_us());
}

void *redis_io_run(void *user)
{
    struct redis_engine *engine = user;
    struct redis_io *io = engine->io;
    redis_io_here = io;
    while (!atomic_load_explicit(&engine->closing, memory_order_seq_cst)) {
        int64_t now_us = clock_monotonic_us();
        redis_ready_take(io, false);
        look_at_deadlines(io, now_us);
        redis_connect_aim(io, now_us);
        redis_connect_when_due(io, now_us);
        if (io->sentinel && io->sentinel->due_us <= now_us)
            redis_connect_sentinels(io, now_us);
        redis_connect_look(io);
        if (atomic_load_explicit(&engine->gate, memory_order_relaxed) == REDIS_GATE_DOWN)
            redis_ready_end(io, WEIR_EIO_UNDONE); /* they have not left */
        redis_air_take_off(io, now_us);
        redis_air_ask_replicas(io, now_us);
        redis_connect_look(io);
        redis_ready_ring(io); /* last: the server already works on the next flight */
        sleep_and_step(io);
        redis_connect_look(io);
    }
    redis_air_fail(io, WEIR_ECLOSED);
    redis_ready_take(io, true);
    redis_ready_end(io, WEIR_ECLOSED);
    redis_ready_ring(io);
    redis_io_here = NULL;
    return NULL;
}
