/* redis_engine.c - the life of an engine, and the queue to its I/O thread. */
#include "backends/redis_engine.h"

#include "core/clock.h"
#include "core/forks.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* What the queue holds when nobody will look at it again. */
static struct redis_waiter shut;

static int start_thread(struct redis_engine *engine)
{
    sigset_t all, before;
    sigfillset(&all); /* signals are the caller's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&engine->thread, NULL, redis_io_run, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? -1 : 0;
}

int redis_engine_start(const struct redis_config *config, struct redis_engine **out)
{
    int error = WEIR_ENOMEM;
    struct redis_engine *engine = aligned_alloc(64, sizeof *engine); /* a bell is a cache line */
    if (!engine)
        return WEIR_ENOMEM;
    memset(engine, 0, sizeof *engine);
    engine->config = config;
    engine->forks = forks_count;
    atomic_init(&engine->gate, REDIS_GATE_WAIT);
    lock_init(&engine->address_lock);
    engine->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->wake_fd < 0) {
        error = WEIR_EIO;
        goto no_descriptor;
    }
    if (redis_lanes_init(engine) != 0)
        goto no_lanes;
    engine->io = redis_io_make(engine);
    if (!engine->io)
        goto no_io;
    if (start_thread(engine) != 0) {
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
    const uint64_t one = 1;
    while (write(engine->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ; /* a full counter wakes as well */
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

void redis_engine_late(struct redis_engine *engine)
{
    if (atomic_fetch_add_explicit(&engine->late, 1, memory_order_relaxed) + 1 < REDIS_BREAK_TIMEOUTS)
        return;
    redis_engine_set_gate(engine, REDIS_GATE_DOWN);
    redis_engine_wake(engine);
}

/* Whether a line is due that may come once a second, and was last said at *at_us; then it has been now. */
static bool line_is_due(_Atomic int64_t *at_us)
{
    int64_t now_us = clock_monotonic_us();
    int64_t said_us = atomic_load_explicit(at_us, memory_order_relaxed);
    if (said_us != 0 && now_us - said_us < WEIR_SECOND)
        return false;
    return atomic_compare_exchange_strong_explicit(at_us, &said_us, now_us, memory_order_relaxed, memory_order_relaxed);
}

void redis_engine_say_error(struct redis_engine *engine, const char *word)
{
    if (line_is_due(&engine->said_us))
        log_line(&engine->config->log, WEIR_LOG_WARNING, "redis answers %s", word);
}

void redis_engine_say_unacknowledged(struct redis_engine *engine)
{
    const unsigned replicas = engine->config->rules.replicas;
    if (line_is_due(&engine->unacknowledged_us))
        log_line(&engine->config->log, WEIR_LOG_WARNING, "a charge was not acknowledged by %u replica%s", replicas,
                 replicas == 1 ? "" : "s");
}

void redis_engine_shut(struct redis_engine *engine)
{
    atomic_store_explicit(&engine->closing, true, memory_order_seq_cst);
    redis_engine_wake(engine);
    for (unsigned i = 0; i < REDIS_LANES; i++)
        redis_link_hang_up(&engine->lanes[i].link);
}

void redis_engine_free(struct redis_engine *engine)
{
    redis_engine_shut(engine);
    pthread_join(engine->thread, NULL);
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
        if (engine->lanes[i].link.fd >= 0)
            close(engine->lanes[i].link.fd);
    redis_io_abandon(engine->io);
}
