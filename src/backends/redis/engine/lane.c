/* lane.c - connections that callers work for themselves, one caller at a time on each.
 *
 * Such a caller writes, waits and reads on its own thread. Its connection is made at first use, where the I/O thread
 * has found the server; it is dropped after an error, a late answer, and when the I/O thread has lost its own.
 */
#include "backends/redis/engine/engine.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#define PATIENCE_US 20000 /* how long to wait the cheap way, which may overshoot by MARGIN_US; then by poll() */
#define MARGIN_US 12000   /* three of the system's longest ticks but one */
#define IDLE_US 1000      /* a connection that was idle for longer may be gone: look, before it is written to */
#define CONNECT_PART 4    /* the part of a call's time that may go into a connection; the I/O thread has the rest */
#define NO_LANES_US 100000

int redis_lanes_init(struct redis_engine *engine)
{
    for (unsigned i = 0; i < REDIS_LANES; i++) {
        struct redis_lane *lane = &engine->lanes[i];
        if (redis_link_init(&lane->link) != 0) {
            while (i > 0)
                redis_link_free(&engine->lanes[--i].link);
            return -1;
        }
        lane->flight = lane->again = NULL;
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

/* The lowest that is free, so that as few as there are callers have a connection. Acquire and release hand its fields
 * from one caller to the next. */
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

/* Wait until the link can go on, and let it: false if the deadline has come. */
static bool wait_and_step(struct redis_link *link, int64_t deadline_us)
{
    struct pollfd ready = { .fd = link->fd, .events = redis_link_events(link) };
    int64_t left_us = deadline_us - clock_monotonic_us();
    if (left_us <= 0)
        return false;
    const struct timespec left = clock_timespec(left_us);
    int count = ppoll(&ready, 1, &left, NULL);
    if (count > 0)
        redis_link_step(link);
    return true; /* whoever was interrupted, or waited in vain, looks at the clock again */
}

/* Whether what a lane has seen is about the server that the I/O thread is connected to now. */
static bool is_about_now(struct redis_engine *engine, const struct redis_lane *lane)
{
    return lane->generation == atomic_load_explicit(&engine->generation, memory_order_acquire);
}

/* The server is a replica: let the I/O thread look again who the primary is. */
static void have_renewed(struct redis_engine *engine, const struct redis_lane *lane)
{
    if (!is_about_now(engine, lane))
        return;
    atomic_store_explicit(&engine->renew, true, memory_order_release);
    redis_engine_wake(engine);
}

/* For a while nobody tries again. */
static void not_made(struct redis_engine *engine, const struct redis_lane *lane, int64_t now_us)
{
    atomic_store_explicit(&engine->no_lanes_until_us, now_us + NO_LANES_US, memory_order_relaxed);
    if (lane->link.not_primary)
        have_renewed(engine, lane);
}

static bool connected(struct redis_engine *engine, struct redis_lane *lane, int64_t now_us, int64_t deadline_us)
{
    struct redis_link *link = &lane->link;
    unsigned generation = atomic_load_explicit(&engine->generation, memory_order_acquire);
    if (link->state != REDIS_LINK_CLOSED &&
        (generation != lane->generation || (now_us - lane->last_used_us > IDLE_US && !redis_link_is_fresh(link))))
        redis_link_close(link, "stale");
    bool is_new = link->state == REDIS_LINK_CLOSED;
    if (is_new && now_us < atomic_load_explicit(&engine->no_lanes_until_us, memory_order_relaxed))
        return false;
    if (is_new) {
        lock_take(&engine->address_lock);
        struct redis_where where = engine->where;
        lock_give(&engine->address_lock);
        lane->generation = generation;
        redis_link_open(link, &where, &engine->config->target, REDIS_GREET_SERVER);
        redis_count(&engine->counts.connections, link->state != REDIS_LINK_CLOSED);
        if (atomic_load_explicit(&engine->closing, memory_order_seq_cst)) /* it may have come too late to be hung up */
            redis_link_close(link, "closing");
    }
    while (link->state != REDIS_LINK_CLOSED && link->state != REDIS_LINK_UP)
        if (!wait_and_step(link, now_us + (deadline_us - now_us) / CONNECT_PART))
            redis_link_close(link, "no answer to the greeting");
    if (is_new && link->state == REDIS_LINK_UP)
        redis_link_make_patient(link, PATIENCE_US);
    else if (is_new)
        not_made(engine, lane, now_us);
    return link->state == REDIS_LINK_UP;
}

/* The owner of the asks of a lane is the errand. */
static void ended(struct redis_ask *ask, int status)
{
    struct redis_errand *errand = ask->owner;
    redis_engine_ended(errand->engine, ask, status);
    redis_errand_ended(errand, ask, status);
}

/* Take in what comes; false if the deadline has come first. */
static bool take_in(struct redis_link *link, int64_t deadline_us)
{
    if (!link->is_patient || redis_link_has_output(link) ||
        deadline_us - clock_monotonic_us() < PATIENCE_US + MARGIN_US)
        return wait_and_step(link, deadline_us);
    redis_link_receive(link);
    return true;
}

/* What replicas do not acknowledge in time is told of as that; the server is well. */
static int too_late(struct redis_engine *engine, struct redis_lane *lane, struct redis_flight *flight,
                    int64_t deadline_us)
{
    redis_count(&engine->counts.timeouts, 1);
    if (flight->held) {
        redis_link_close(&lane->link, "replicas were late");
        redis_engine_say_unacknowledged(engine);
    } else {
        redis_link_close(&lane->link, "an answer was late");
        if (is_about_now(engine, lane) && deadline_us - lane->last_used_us >= engine->config->timeout_us / 2)
            redis_engine_late(engine);
    }
    redis_flight_fail(flight, WEIR_ETIME, ended);
    return WEIR_ETIME;
}

/* Take the replies that have come; after the last to a call, write WAIT if something has changed. */
static enum redis_progress take_replies(struct redis_engine *engine, struct redis_lane *lane,
                                        struct redis_flight *flight, struct redis_wait *wait)
{
    struct redis_link *link = &lane->link;
    struct redis_reply reply;
    enum redis_progress progress = flight->held ? REDIS_HELD : REDIS_FLYING;
    while (link->state == REDIS_LINK_UP && progress < REDIS_LANDED && redis_link_next(link, &reply))
        progress = redis_flight_reply(flight, &reply, ended);
    if (progress == REDIS_HELD && !wait->due && link->state == REDIS_LINK_UP) {
        redis_wait_write(wait, engine->config->rules.replicas, flight->changes_until_us, clock_monotonic_us(),
                         &link->out);
        redis_link_send(link);
    }
    return progress;
}

/* Write the flight and read until it has landed. WEIR_OK, or the error that it was failed with. */
static int fly(struct redis_engine *engine, struct redis_lane *lane, struct redis_flight *flight, int64_t deadline_us)
{
    struct redis_link *link = &lane->link;
    enum redis_progress progress = REDIS_FLYING;
    struct redis_wait wait = REDIS_NO_WAIT;
    if (!redis_engine_take_off(engine, flight, link)) {
        redis_flight_fail(flight, WEIR_ENOMEM, ended);
        return WEIR_ENOMEM;
    }
    while (link->state == REDIS_LINK_UP && progress < REDIS_LANDED) {
        if (!take_in(link, min_of(deadline_us, wait.nudge_us))) {
            const int64_t now_us = clock_monotonic_us();
            if (now_us >= deadline_us)
                return too_late(engine, lane, flight, deadline_us);
            redis_wait_nudge(&wait, now_us, &link->out);
            redis_link_send(link);
            continue;
        }
        progress = take_replies(engine, lane, flight, &wait);
    }
    if (progress == REDIS_MISFIT)
        redis_link_close(link, "an answer did not fit its question");
    if (progress != REDIS_LANDED) {
        if (is_about_now(engine, lane)) /* else the I/O thread has told of it */
            redis_engine_say_lost(engine, link->reason);
        redis_flight_fail(flight, WEIR_EIO, ended);
        return WEIR_EIO;
    }
    redis_link_leave(link);
    redis_engine_landed(engine, flight);
    if (flight->read_only) {
        redis_link_close(link, "the server is a replica");
        have_renewed(engine, lane);
    }
    return WEIR_OK;
}

static bool lane_ready(struct redis_lane *lane, struct redis_flight_rules rules)
{
    if (!lane->flight)
        lane->flight = redis_flight_make(REDIS_LANE_ASKS, rules);
    if (!lane->again)
        lane->again = redis_flight_make(REDIS_LANE_ASKS, rules);
    return lane->flight && lane->again;
}

bool redis_lane_run(struct redis_engine *engine, struct redis_lane *lane, struct redis_errand *errand)
{
    const int64_t now_us = clock_monotonic_us(), deadline_us = errand->deadline_us;
    if (now_us >= deadline_us) {
        errand->error = WEIR_ETIME;
        return true;
    }
    if (errand->n > REDIS_LANE_ASKS || !lane_ready(lane, engine->config->rules) ||
        !connected(engine, lane, now_us, deadline_us))
        return false;
    lane->last_used_us = now_us;

    errand->engine = engine;
    redis_flight_clear(lane->flight);
    bool fits = redis_flight_add(lane->flight, errand->requests, errand->n, errand->all, deadline_us, errand->out,
                                 errand, errand->asking);
    assert(fits);
    (void)fits;
    while (fly(engine, lane, lane->flight, deadline_us) == WEIR_OK && lane->flight->again > 0) {
        redis_flight_clear(lane->again);
        redis_flight_again(lane->flight, lane->again, ended);
        struct redis_flight *landed = lane->flight;
        lane->flight = lane->again;
        lane->again = landed;
        if (lane->flight->ask_count == 0)
            break;
        if (lane->link.state != REDIS_LINK_UP) {
            redis_flight_fail(lane->flight, WEIR_EIO, ended);
            break;
        }
    }
    if (atomic_load_explicit(&engine->closing, memory_order_relaxed) && errand->error == WEIR_EIO)
        errand->error = WEIR_ECLOSED;
    return true;
}
