/* air.c - the flights of an I/O thread: sent, answered, held for replicas, and failed.
 *
 * Flights that are held for replicas share a WAIT. Behind a WAIT the server reads nothing more from the connection, so
 * nothing leaves, not even requests that would be denied, until it is answered. Waiters that one WAIT has released tend
 * to come back together, so the next WAIT is delayed by a part of the time that the last one took. Otherwise half of a
 * crowd would sit out one WAIT only to be released by the next. A charge therefore takes at most 2 1/8 times as long as
 * the replicas do.
 */
#include "backends/redis/engine/health.h"
#include "backends/redis/engine/io.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <assert.h>

#define GATHER_US 250 /* for this long after a flight has left, new waiters do not wake the thread */
#define GATHER_PART 8 /* the next WAIT is delayed by this part of the last one's time, if that is long enough */
#define DELAY_LEAST_US 250
#define CROWD_FLIGHTS 64 /* after this many flights without a crowd, callers use lanes again */

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

/* ---- Leaving ---- */

/* Let callers use lanes again once they could have done so for a while. */
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

/* Flights to be flown once more go first. */
static struct redis_flight *next_flight(struct redis_io *io)
{
    if (io->again_count > 0)
        return io->again[--io->again_count];
    struct redis_flight *flight = take_spare(io);
    watch_crowd(io);
    return flight;
}

/* True if a WAIT has to be written, now or later. */
static bool wants_wait(const struct redis_io *io)
{
    return io->held_count > 0 && !io->wait.due;
}

bool redis_air_may_leave(const struct redis_io *io, int64_t now_us)
{
    return !io->wait.due && (io->held_count == 0 || io->wait_from_us <= now_us) &&
           io->air_count + io->held_count < REDIS_AIR_MAX;
}

int64_t redis_air_gathers_until_us(const struct redis_io *io)
{
    const int64_t gather_us = io->engine->config->gather_us;
    if (gather_us == 0 && io->air_count == 0)
        return INT64_MIN;
    return io->left_us + (gather_us > 0 ? gather_us : GATHER_US);
}

void redis_air_take_off(struct redis_io *io, int64_t now_us)
{
    /* This thread is awake anyway, so waiters that have gathered for less than GATHER_US may leave, too. */
    const bool do_leave = io->engine->config->gather_us == 0 || redis_air_gathers_until_us(io) <= now_us;
    while (io->link.state == REDIS_LINK_UP && redis_air_may_leave(io, now_us) &&
           ((io->ready && do_leave) || io->again_count > 0)) {
        bool is_new = io->again_count == 0; /* nothing joins requests that have been tried before */
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

/* Write a WAIT that covers the held flights and those written before it. It lasts until the latest deadline; a request
 * with less time left expires by itself. If it lasted only until the first deadline, one late request would leave all
 * charges unconfirmed. */
void redis_air_ask_replicas(struct redis_io *io, int64_t now_us)
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

/* Remove and return the oldest flight. */
static struct redis_flight *leave_air(struct redis_io *io)
{
    struct redis_flight *flight = io->air[0];
    io->air_count--;
    for (size_t i = 0; i < io->air_count; i++)
        io->air[i] = io->air[i + 1];
    return flight;
}

static void hold_flight(struct redis_io *io, struct redis_flight *flight)
{
    if (io->held_count == 0) {
        const int64_t late_us = io->acknowledging_us / GATHER_PART;
        io->wait_from_us = late_us < DELAY_LEAST_US ? 0 : clock_monotonic_us() + late_us;
    }
    io->held[io->held_count++] = flight;
}

/* ---- Replies ---- */

/* Requests that the server has not executed fly once more, before all others. */
static void land_flight(struct redis_io *io, struct redis_flight *flight)
{
    redis_engine_landed(io->engine, flight);
    io->proven = io->proven || flight->decided;
    if (flight->read_only)
        redis_link_close(&io->link, "the server is a replica");
    if (redis_flight_goes_on(flight)) {
        struct redis_flight *again = take_spare(io);
        redis_flight_again(flight, again, redis_ready_request_ended);
        if (again->request_count > 0)
            io->again[io->again_count++] = again;
        else
            give_spare(io, again);
    }
    give_spare(io, flight);
}

static void read_reply(struct redis_io *io, const struct redis_reply *reply)
{
    enum redis_progress progress = redis_flight_reply(io->air[0], reply, redis_ready_request_ended);
    if (progress == REDIS_MISFIT)
        redis_link_close(&io->link, "an answer did not fit its question");
    else if (progress == REDIS_HELD)
        hold_flight(io, leave_air(io));
    else if (progress == REDIS_LANDED)
        land_flight(io, leave_air(io));
}

/* The answer to WAIT concerns all held flights. */
static void read_wait(struct redis_io *io, const struct redis_reply *reply)
{
    const int64_t took_us = clock_monotonic_us() - io->wait.left_us;
    io->wait = REDIS_NO_WAIT;
    while (io->held_count > 0) {
        struct redis_flight *flight = io->held[--io->held_count];
        if (redis_flight_reply(flight, reply, redis_ready_request_ended) == REDIS_MISFIT) {
            io->held_count++;
            redis_link_close(&io->link, "an answer did not fit its question");
            return;
        }
        io->acknowledging_us = flight->unacknowledged ? 0 : took_us;
        land_flight(io, flight);
    }
}

void redis_air_read(struct redis_io *io)
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
        redis_flight_fail(flight, status, redis_ready_request_ended);
        give_spare(io, flight);
    }
}

void redis_air_fail(struct redis_io *io, int status)
{
    fail_flights(io, io->air, &io->air_count, status);
    fail_flights(io, io->held, &io->held_count, status);
    io->wait = REDIS_NO_WAIT;
    fail_flights(io, io->again, &io->again_count, status);
}

/* ---- Deadlines ---- */

int64_t redis_air_hang_up_us(const struct redis_io *io)
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

int64_t redis_air_due_us(const struct redis_io *io)
{
    int64_t due_us = min_of(redis_air_hang_up_us(io), io->wait.nudge_us);
    if (wants_wait(io))
        due_us = min_of(due_us, io->wait_from_us);
    due_us = min_of(due_us, first_deadline_us(io->air, io->air_count));
    return min_of(due_us, first_deadline_us(io->held, io->held_count));
}

static void expire_flights(struct redis_flight *const *flights, size_t count, int64_t now_us)
{
    for (size_t i = 0; i < count; i++)
        if (flights[i]->deadline_us <= now_us)
            redis_flight_expire(flights[i], now_us, redis_ready_request_ended);
}

void redis_air_expire(struct redis_io *io, int64_t now_us)
{
    expire_flights(io->air, io->air_count, now_us);
    expire_flights(io->held, io->held_count, now_us);
}
