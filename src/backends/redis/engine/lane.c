/* lane.c - connections that callers work themselves, one caller at a time on each.
 *
 * The caller writes, waits and reads on its own thread. A lane connects at its first use, to where the I/O thread has
 * found the server. It drops its connection after an error or a late answer, and when the I/O thread has lost its own.
 */
#include "backends/redis/engine/health.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <time.h>

#define PATIENCE_US 20000 /* how long to wait in recv(), which may overshoot by MARGIN_US; poll() waits after that */
#define MARGIN_US 12000   /* three times the system's second longest tick */
#define IDLE_US 1000      /* a connection idle for longer may be gone: look before writing to it */
#define CONNECT_PART 4    /* connecting may take this part of a call's time; the I/O thread needs the rest */
#define NO_LANES_US 100000

int redis_lanes_init(struct redis_engine *engine)
{
    for (unsigned i = 0; i < REDIS_LANES; i++) {
        if (redis_link_init(&engine->lanes[i].link) != 0) {
            while (i > 0)
                redis_link_free(&engine->lanes[--i].link);
            return -1;
        }
    }
    atomic_init(&engine->free_lanes, (1u << REDIS_LANES) - 1);
    return 0;
}

void redis_lanes_free(struct redis_engine *engine)
{
    for (unsigned i = 0; i < REDIS_LANES; i++) {
        struct redis_lane *lane = &engine->lanes[i];
        redis_link_free(&lane->link);
        redis_flight_free(lane->flight);
        redis_flight_free(lane->again);
    }
}

/* Take the lowest free lane: then at most as many lanes connect as there are concurrent callers. Acquire and release
 * hand the lane's fields from one caller to the next. */
struct redis_lane *redis_lane_take(struct redis_engine *engine)
{
    unsigned seen = atomic_load_explicit(&engine->free_lanes, memory_order_relaxed);
    while (seen != 0) {
        unsigned i = (unsigned)__builtin_ctz(seen);
        if (atomic_compare_exchange_weak_explicit(&engine->free_lanes, &seen, seen & ~(1u << i), memory_order_acquire,
                                                  memory_order_relaxed))
            return &engine->lanes[i];
    }
    return NULL;
}

void redis_lane_give(struct redis_engine *engine, struct redis_lane *lane)
{
    unsigned bit = 1u << (lane - engine->lanes);
    atomic_fetch_or_explicit(&engine->free_lanes, bit, memory_order_release);
}

/* Wait until the link is ready, and step it. False: the deadline has passed. An interrupted wait returns true: the
 * caller checks the clock again. */
static bool lane_wait(struct redis_link *link, int64_t deadline_us)
{
    struct pollfd ready = { .fd = link->fd, .events = redis_link_events(link) };
    int64_t left_us = deadline_us - clock_monotonic_us();
    if (left_us <= 0)
        return false;
    const struct timespec left = clock_timespec(left_us);
    if (ppoll(&ready, 1, &left, NULL) > 0)
        redis_link_step(link);
    return true;
}

/* True if the lane is connected to the same server as the I/O thread. */
static bool lane_is_current(struct redis_engine *engine, const struct redis_lane *lane)
{
    return lane->generation == atomic_load_explicit(&engine->generation, memory_order_acquire);
}

/* The server is a replica: have the I/O thread find out which server is the primary. */
static void lane_renew(struct redis_engine *engine, const struct redis_lane *lane)
{
    if (!lane_is_current(engine, lane))
        return;
    atomic_store_explicit(&engine->renew, true, memory_order_release);
    redis_queue_wake(&engine->queue);
}

static void lane_open(struct redis_engine *engine, struct redis_lane *lane, unsigned generation)
{
    lock_take(&engine->address_lock);
    struct redis_where where = engine->where;
    lock_give(&engine->address_lock);
    lane->generation = generation;
    redis_link_open(&lane->link, &where, &engine->config->target, REDIS_GREET_SERVER);
    redis_count(&engine->counts.connections, lane->link.state != REDIS_LINK_CLOSED);
    if (atomic_load_explicit(&engine->closing,
                             memory_order_seq_cst)) /* redis_engine_shut() may have missed this link */
        redis_link_close(&lane->link, "closing");
}

static bool lane_connect(struct redis_engine *engine, struct redis_lane *lane, int64_t now_us, int64_t deadline_us)
{
    struct redis_link *link = &lane->link;
    unsigned generation = atomic_load_explicit(&engine->generation, memory_order_acquire);
    if (link->state != REDIS_LINK_CLOSED &&
        (generation != lane->generation || (now_us - lane->last_used_us > IDLE_US && !redis_link_is_fresh(link))))
        redis_link_close(link, "stale");
    if (link->state == REDIS_LINK_UP)
        return true;
    if (now_us < atomic_load_explicit(&engine->no_lanes_until_us, memory_order_relaxed))
        return false;
    lane_open(engine, lane, generation);
    while (link->state != REDIS_LINK_CLOSED && link->state != REDIS_LINK_UP)
        if (!lane_wait(link, now_us + (deadline_us - now_us) / CONNECT_PART))
            redis_link_close(link, "no answer to the greeting");
    if (link->state == REDIS_LINK_UP) {
        redis_link_make_patient(link, PATIENCE_US);
        return true;
    }
    atomic_store_explicit(&engine->no_lanes_until_us, now_us + NO_LANES_US, memory_order_relaxed);
    if (link->greeting.not_primary)
        lane_renew(engine, lane);
    return false;
}

/* The owner of a lane's requests is the job. */
static void lane_request_ended(struct redis_flight_request *aboard, int status, const struct redis_redirect *redirect)
{
    struct redis_job *job = aboard->owner;
    redis_engine_ended(job->engine, aboard, status);
    redis_job_ended(job, aboard, status, redirect);
}

/* Receive what comes. False: the deadline has passed first. */
static bool lane_receive(struct redis_link *link, int64_t deadline_us)
{
    if (!link->is_patient || redis_link_has_output(link) ||
        deadline_us - clock_monotonic_us() < PATIENCE_US + MARGIN_US)
        return lane_wait(link, deadline_us);
    redis_link_receive(link);
    return true;
}

static int lane_time_out(struct redis_engine *engine, struct redis_lane *lane, struct redis_flight *flight,
                         int64_t deadline_us)
{
    const bool had_time = deadline_us - lane->last_used_us >= engine->config->timeout_us / 2;
    const bool blame = lane_is_current(engine, lane) && had_time;
    redis_link_close(&lane->link, redis_engine_timed_out(engine, flight->held, blame));
    redis_flight_fail(flight, WEIR_ETIME, lane_request_ended);
    return WEIR_ETIME;
}

/* Take the replies that have come. If the last one leaves requests held, write WAIT. */
static enum redis_progress lane_take_replies(struct redis_engine *engine, struct redis_lane *lane,
                                             struct redis_flight *flight, struct redis_wait *wait)
{
    struct redis_link *link = &lane->link;
    struct redis_reply reply;
    enum redis_progress progress = flight->held ? REDIS_HELD : REDIS_FLYING;
    while (link->state == REDIS_LINK_UP && progress < REDIS_LANDED && redis_link_next(link, &reply))
        progress = redis_flight_reply(flight, &reply, lane_request_ended);
    if (progress == REDIS_HELD && !wait->due && link->state == REDIS_LINK_UP) {
        redis_wait_write(wait, engine->config->rules.replicas, flight->changes_until_us, clock_monotonic_us(),
                         &link->out);
        redis_link_send(link);
    }
    return progress;
}

/* Write the flight and read until it has landed. WEIR_OK, or the error that its requests ended with. */
static int lane_fly(struct redis_engine *engine, struct redis_lane *lane, struct redis_flight *flight,
                    int64_t deadline_us)
{
    struct redis_link *link = &lane->link;
    enum redis_progress progress = REDIS_FLYING;
    struct redis_wait wait = REDIS_NO_WAIT;
    if (!redis_engine_take_off(engine, flight, link)) {
        redis_flight_fail(flight, WEIR_ENOMEM, lane_request_ended);
        return WEIR_ENOMEM;
    }
    while (link->state == REDIS_LINK_UP && progress < REDIS_LANDED) {
        if (!lane_receive(link, min_of(deadline_us, wait.nudge_us))) {
            const int64_t now_us = clock_monotonic_us();
            if (now_us >= deadline_us)
                return lane_time_out(engine, lane, flight, deadline_us);
            redis_wait_nudge(&wait, now_us, &link->out);
            redis_link_send(link);
            continue;
        }
        progress = lane_take_replies(engine, lane, flight, &wait);
    }
    if (progress == REDIS_MISFIT)
        redis_link_close(link, "an answer did not fit its question");
    if (progress != REDIS_LANDED) {
        if (lane_is_current(engine, lane)) /* otherwise the I/O thread has logged it */
            redis_engine_say_lost(engine, link->reason);
        redis_flight_fail(flight, WEIR_EIO, lane_request_ended);
        return WEIR_EIO;
    }
    redis_link_leave(link);
    redis_engine_landed(engine, flight);
    if (flight->read_only) {
        redis_link_close(link, "the server is a replica");
        lane_renew(engine, lane);
    }
    return WEIR_OK;
}

/* Have two flights with room for n requests. */
static bool lane_make_flights(struct redis_lane *lane, struct redis_flight_rules rules, size_t n)
{
    if (lane->flight && lane->flight->room < n) {
        redis_flight_free(lane->flight);
        redis_flight_free(lane->again);
        lane->flight = lane->again = NULL;
    }
    if (!lane->flight)
        lane->flight = redis_flight_make(n > WEIR_MAX_ALL ? REDIS_LANE_REQUESTS : WEIR_MAX_ALL, rules);
    if (lane->flight && !lane->again)
        lane->again = redis_flight_make(lane->flight->room, rules);
    return lane->flight && lane->again;
}

bool redis_lane_run(struct redis_engine *engine, struct redis_lane *lane, struct redis_job *job)
{
    const int64_t now_us = clock_monotonic_us(), deadline_us = job->deadline_us;
    if (now_us >= deadline_us) {
        job->error = WEIR_ETIME;
        return true;
    }
    if (job->n > REDIS_LANE_REQUESTS || !lane_make_flights(lane, engine->config->rules, job->n) ||
        !lane_connect(engine, lane, now_us, deadline_us))
        return false;
    lane->last_used_us = now_us;

    job->engine = engine;
    redis_flight_clear(lane->flight);
    bool fits = redis_flight_add(lane->flight, job->requests, job->n, job->all, deadline_us, job->out, job,
                                 job->asking);
    assert(fits);
    (void)fits;
    while (lane_fly(engine, lane, lane->flight, deadline_us) == WEIR_OK && redis_flight_goes_on(lane->flight)) {
        redis_flight_clear(lane->again);
        redis_flight_again(lane->flight, lane->again, lane_request_ended);
        struct redis_flight *landed = lane->flight;
        lane->flight = lane->again;
        lane->again = landed;
        if (lane->flight->request_count == 0)
            break;
        if (lane->link.state != REDIS_LINK_UP) {
            redis_flight_fail(lane->flight, WEIR_EIO_UNDONE, lane_request_ended); /* it has not left */
            break;
        }
    }
    if ((job->error == WEIR_EIO || job->error == WEIR_EIO_UNDONE) &&
        atomic_load_explicit(&engine->closing, memory_order_relaxed))
        job->error = WEIR_ECLOSED;
    return true;
}
