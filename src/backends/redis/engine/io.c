/* io.c - the thread that does I/O for all who wait for it.
 *
 * Its turn: take the queue, end what has waited too long, send what waits in one flight if fewer than REDIS_AIR_MAX are
 * under way, sleep until something comes or is due, take in what came. What comes while a flight is under way gathers,
 * and shares calls, until that flight has landed or GATHER_US have passed: to wake this thread for each would cost more
 * than all the rest. So with a server that is near, the callers of one flight are answered while the other's are
 * served.
 *
 * Flights that are held for replicas share a WAIT. Behind it the server takes nothing more from the connection, so
 * nothing leaves until it is answered, be it a denial: who comes gathers. Those who were told by one WAIT come again at
 * about the same time, so the next one leaves later by a part of how long the replicas took: else half of a crowd would
 * sit out one WAIT to be told by the next. So a charge takes 2 1/8 times as long as the replicas at worst.
 */
#include "backends/redis/engine/io.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/ground/wake_fd.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>

#define FLIGHT_ASKS 256  /* the most in one: some 1 ms of the server's time */
#define GATHER_US 250    /* so long after a flight has left nobody wakes this thread to send another */
#define GATHER_PART 8    /* the part of the last WAIT's time that the next is put off by, from GATHER_US on */
#define CROWD_FLIGHTS 64 /* so many flights without a crowd, and callers go by themselves again */

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
        io->spare[io->spare_count] = redis_flight_make(FLIGHT_ASKS, engine->config->rules);
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

/* ---- Flights ---- */

static struct redis_flight *take_spare(struct redis_io *io)
{
    assert(io->spare_count > 0);
    struct redis_flight *flight = io->spare[--io->spare_count];
    redis_flight_clear(flight);
    return flight;
}

static void give_spare(struct redis_io *io, struct redis_flight *flight)
{
    io->spare[io->spare_count++] = flight;
}

/* Callers go by themselves again after a while in which they could have. */
static void watch_crowd(struct redis_io *io)
{
    if (io->waiting > io->peak)
        io->peak = io->waiting;
    if (++io->calm < CROWD_FLIGHTS)
        return;
    if (io->peak <= REDIS_LANES)
        atomic_store_explicit(&io->engine->crowd, false, memory_order_relaxed);
    io->peak = 0;
    io->calm = 0;
}

/* What is to fly once more goes before all others. */
static struct redis_flight *next_flight(struct redis_io *io)
{
    if (io->again_count > 0)
        return io->again[--io->again_count];
    struct redis_flight *flight = take_spare(io);
    watch_crowd(io);
    return flight;
}

/* Whether a WAIT is to leave, now or later. */
static bool wants_wait(const struct redis_io *io)
{
    return io->held_count > 0 && !io->wait.due;
}

/* Whether a flight may leave: before a WAIT, or in the same write, and not behind it. */
static bool may_leave(const struct redis_io *io, int64_t now_us)
{
    return !io->wait.due && (io->held_count == 0 || io->wait_from_us <= now_us) &&
           io->air_count + io->held_count < REDIS_AIR_MAX;
}

static void take_off(struct redis_io *io, int64_t now_us)
{
    while (io->link.state == REDIS_LINK_UP && may_leave(io, now_us) && (io->ready || io->again_count > 0)) {
        bool is_new = io->again_count == 0; /* nobody joins those that have been tried before */
        struct redis_flight *flight = next_flight(io);
        while (is_new && io->ready && redis_ready_board(flight, io->ready))
            redis_ready_pop(io);
        atomic_fetch_add_explicit(&io->engine->boarding, 1, memory_order_relaxed);
        io->air[io->air_count++] = flight;
        if (!redis_engine_take_off(io->engine, flight, &io->link))
            return;
        flight->left_us = io->left_us = clock_monotonic_us();
    }
}

/* WAIT, for what is held and what is written before it. It lasts for who has most time left; who has less ends by
 * himself. If all had only as much as the first, one who came late would have nobody's charges acknowledged. */
static void ask_replicas(struct redis_io *io, int64_t now_us)
{
    int64_t until_us = INT64_MIN;
    if (io->link.state != REDIS_LINK_UP || !wants_wait(io) || io->wait_from_us > now_us)
        return;
    for (size_t i = 0; i < io->held_count; i++)
        until_us = max_of(until_us, io->held[i]->changes_until_us);
    for (size_t i = 0; i < io->air_count; i++)
        until_us = max_of(until_us, io->air[i]->changes_until_us);
    redis_wait_write(&io->wait, io->engine->config->rules.replicas, until_us, clock_monotonic_us(), &io->link.out);
    redis_link_send(&io->link);
}

/* The oldest is in the air no more. */
static struct redis_flight *leave_air(struct redis_io *io)
{
    struct redis_flight *flight = io->air[0];
    io->air_count--;
    for (size_t i = 0; i < io->air_count; i++)
        io->air[i] = io->air[i + 1];
    return flight;
}

static void hold(struct redis_io *io, struct redis_flight *flight)
{
    if (io->held_count == 0) {
        const int64_t late_us = io->acknowledging_us / GATHER_PART;
        io->wait_from_us = late_us < GATHER_US ? 0 : clock_monotonic_us() + late_us;
    }
    io->held[io->held_count++] = flight;
}

/* A flight is down. What the server did not execute flies once more, before all others. */
static void land(struct redis_io *io, struct redis_flight *flight)
{
    redis_engine_landed(io->engine, flight);
    io->proven = io->proven || flight->decided > 0;
    if (flight->read_only)
        redis_link_close(&io->link, "the server is a replica");
    if (flight->again > 0) {
        struct redis_flight *again = take_spare(io);
        redis_flight_again(flight, again, redis_ready_told);
        if (again->ask_count > 0)
            io->again[io->again_count++] = again;
        else
            give_spare(io, again);
    }
    give_spare(io, flight);
}

static void read_reply(struct redis_io *io, const struct redis_reply *reply)
{
    enum redis_progress progress = redis_flight_reply(io->air[0], reply, redis_ready_told);
    if (progress == REDIS_MISFIT)
        redis_link_close(&io->link, "an answer did not fit its question");
    else if (progress == REDIS_HELD)
        hold(io, leave_air(io));
    else if (progress == REDIS_LANDED)
        land(io, leave_air(io));
}

/* WAIT is answered, for all who are held. */
static void read_wait(struct redis_io *io, const struct redis_reply *reply)
{
    const int64_t took_us = clock_monotonic_us() - io->wait.left_us;
    io->wait = REDIS_NO_WAIT;
    while (io->held_count > 0) {
        struct redis_flight *flight = io->held[--io->held_count];
        if (redis_flight_reply(flight, reply, redis_ready_told) == REDIS_MISFIT) {
            io->held_count++;
            redis_link_close(&io->link, "an answer did not fit its question");
            return;
        }
        io->acknowledging_us = flight->unacknowledged ? 0 : took_us;
        land(io, flight);
    }
}

static void read_replies(struct redis_io *io)
{
    struct redis_reply reply;
    while (io->link.state == REDIS_LINK_UP && redis_link_next(&io->link, &reply)) {
        if (io->air_count > 0)
            read_reply(io, &reply);
        else if (io->wait.due)
            read_wait(io, &reply);
        else
            redis_link_close(&io->link, "an answer came that nobody had asked for");
    }
}

static void fail_flights(struct redis_io *io, struct redis_flight **flights, size_t *count, int status)
{
    while (*count > 0) {
        struct redis_flight *flight = flights[--*count];
        redis_flight_fail(flight, status, redis_ready_told);
        give_spare(io, flight);
    }
}

/* Nobody knows what became of those under way. */
void redis_io_fail_air(struct redis_io *io, int status)
{
    fail_flights(io, io->air, &io->air_count, status);
    fail_flights(io, io->held, &io->held_count, status);
    io->wait = REDIS_NO_WAIT;
    fail_flights(io, io->again, &io->again_count, status);
}

/* When to give the connection up: what is to be answered next has been under way for as long as any call may take. A
 * flight that had less time left when it came on board ends by itself. */
static int64_t hang_up_us(const struct redis_io *io)
{
    if (io->air_count == 0 && !io->wait.due)
        return INT64_MAX;
    return (io->air_count > 0 ? io->air[0]->left_us : io->wait.left_us) + io->engine->config->timeout_us;
}

static int64_t first_deadline_us(struct redis_flight *const *flights, size_t count)
{
    int64_t first_us = INT64_MAX;
    for (size_t i = 0; i < count; i++)
        first_us = min_of(first_us, flights[i]->deadline_us);
    return first_us;
}

static int64_t air_due_us(const struct redis_io *io)
{
    int64_t due_us = min_of(hang_up_us(io), io->wait.nudge_us);
    if (wants_wait(io))
        due_us = min_of(due_us, io->wait_from_us);
    due_us = min_of(due_us, first_deadline_us(io->air, io->air_count));
    return min_of(due_us, first_deadline_us(io->held, io->held_count));
}

static void expire(struct redis_flight *const *flights, size_t count, int64_t now_us)
{
    for (size_t i = 0; i < count; i++)
        if (flights[i]->deadline_us <= now_us)
            redis_flight_expire(flights[i], now_us, redis_ready_told);
}

/* Nothing was answered for too long. If that is WAIT, the replicas are late, and the server is well. */
static void hang_up(struct redis_io *io)
{
    const bool is_well = io->air_count == 0;
    redis_count(&io->engine->counts.timeouts, 1);
    io->proven = io->proven || is_well || io->air[0]->decided > 0;
    if (is_well)
        redis_engine_say_unacknowledged(io->engine);
    else
        redis_engine_late(io->engine);
    redis_connect_lose(io, is_well ? "replicas were late" : "an answer was late", WEIR_ETIME);
}

/* What has gone on too long. */
static void look_at_deadlines(struct redis_io *io, int64_t now_us)
{
    expire(io->air, io->air_count, now_us);
    expire(io->held, io->held_count, now_us);
    if (hang_up_us(io) <= now_us)
        hang_up(io);
    bool up = io->link.state == REDIS_LINK_UP;
    if (up && io->wait.nudge_us <= now_us) {
        redis_wait_nudge(&io->wait, now_us, &io->link.out);
        redis_link_send(&io->link);
    }
    if (up && atomic_load_explicit(&io->engine->gate, memory_order_acquire) == REDIS_GATE_DOWN)
        redis_connect_lose(io, "answers were late", WEIR_ETIME);
    else if (up && atomic_exchange_explicit(&io->engine->renew, false, memory_order_acquire))
        redis_connect_lose(io, "the server is a replica", WEIR_EIO);
    else if (io->resolving && io->give_up_us <= now_us)
        redis_connect_lose(io, "the host's name is not resolved in time", WEIR_EIO);
    else if (!up && io->link.state != REDIS_LINK_CLOSED && io->give_up_us <= now_us)
        redis_connect_lose(io, "no connection in time", WEIR_EIO);
    redis_ready_end_overdue(io, now_us);
}

/* ---- The turn ---- */

/* Whether another flight would leave at once, if anybody came. */
static bool idle(const struct redis_io *io, int64_t now_us)
{
    return may_leave(io, now_us) && (io->air_count == 0 || now_us - io->left_us >= GATHER_US);
}

static int64_t next_due_us(const struct redis_io *io, int64_t now_us)
{
    int64_t due_us = INT64_MAX;
    if (may_leave(io, now_us) && !idle(io, now_us))
        due_us = io->left_us + GATHER_US;
    due_us = min_of(due_us, air_due_us(io));
    due_us = min_of(due_us, io->ready_due_us);
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
        { .fd = engine->wake_fd, .events = POLLIN },
        { .fd = io->link.fd, .events = redis_link_events(&io->link) },
        { .fd = io->resolving ? resolver_fd(&io->resolver) : -1, .events = POLLIN },
    };
    nfds_t fd_count = 3;
    if (io->sentinel)
        fds[fd_count++] = redis_sentinel_polled(io->sentinel);
    int64_t now_us = clock_monotonic_us();
    /* Not while a flight gathers, which leaves soon. Who comes when none may leave can have less time than others. */
    bool wakeable = idle(io, now_us) || !may_leave(io, now_us);
    atomic_store_explicit(&engine->asleep, wakeable, memory_order_seq_cst);
    bool stay = wakeable && atomic_load_explicit(&engine->queue, memory_order_seq_cst) != NULL;
    int64_t due_us = next_due_us(io, now_us);
    int64_t left_us = stay ? 0 : due_us == INT64_MAX ? -1 : max_of(0, due_us - now_us);
    const struct timespec left = clock_timespec(left_us);
    int count = ppoll(fds, fd_count, left_us < 0 ? NULL : &left, NULL);
    atomic_store_explicit(&engine->asleep, false, memory_order_seq_cst);
    if (count <= 0)
        return;
    if (fds[0].revents)
        wake_fd_drain(engine->wake_fd);
    if (fds[2].revents)
        redis_connect_resolve(io);
    if (fds[1].revents && fds[1].fd == io->link.fd) {
        redis_link_step(&io->link);
        redis_connect_look(io);
        read_replies(io);
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
            redis_ready_end(io, WEIR_EIO);
        take_off(io, now_us);
        ask_replicas(io, now_us);
        redis_connect_look(io);
        redis_ready_ring(io); /* last: the server has its next work by now */
        sleep_and_step(io);
        redis_connect_look(io);
    }
    redis_io_fail_air(io, WEIR_ECLOSED);
    redis_ready_take(io, true);
    redis_ready_end(io, WEIR_ECLOSED);
    redis_ready_ring(io);
    redis_io_here = NULL;
    return NULL;
}
