/* redis_connect.c - the I/O thread's connection: made, lost, and made again.
 *
 * One that was good is made again at once when it is lost; else there are pauses that grow, with jitter (M. Brooker,
 * "Exponential backoff and jitter", 2015: decorrelated). While it pauses nobody waits.
 */
#include "backends/redis_io.h"
#include "core/arith.h"
#include "core/clock.h"

#include <sys/un.h>

#define CONNECT_US WEIR_SECOND /* for a connection and its greeting */
#define RESOLVE_US (5 * WEIR_SECOND)
#define SAY_US WEIR_SECOND /* between two lines in the log that it cannot be used */
#define PAUSE_MIN_US 10000
#define PAUSE_MAX_US WEIR_SECOND
#define SETTLED_US WEIR_SECOND /* a connection that stood so long was a good one, whether or not it was used */

static int64_t next_pause_us(struct redis_io *io)
{
    int64_t most = io->pause_us ? min_of(3 * io->pause_us, PAUSE_MAX_US) : PAUSE_MIN_US;
    uint64_t chance = siphash13(&io->jitter, &io->jitters, sizeof io->jitters);
    io->jitters++;
    return most <= PAUSE_MIN_US ? PAUSE_MIN_US : PAUSE_MIN_US + (int64_t)(chance % (uint64_t)(most - PAUSE_MIN_US + 1));
}

/* The link is closed. Connect again: at once if it has worked until now, else after a pause in which nobody waits. */
static void lost(struct redis_io *io, int status)
{
    int64_t now_us = clock_monotonic_us();
    const struct log *log = &io->engine->config->log;
    bool good = io->up_since_us > 0 && (io->proven || now_us - io->up_since_us > SETTLED_US);
    bool late = atomic_load_explicit(&io->engine->late, memory_order_relaxed) >= REDIS_BREAK_TIMEOUTS;
    bool say = io->said_us == 0 || now_us - io->said_us > SAY_US;
    if (!io->known_bad && say && !atomic_load_explicit(&io->engine->closing, memory_order_relaxed)) {
        io->known_bad = true;
        io->said_us = now_us;
        log_line(log, WEIR_LOG_WARNING, "redis cannot be used: %s", io->link.reason);
    }
    atomic_fetch_add_explicit(&io->engine->generation, 1, memory_order_release);
    redis_io_fail_air(io, status);
    io->up_since_us = 0;
    io->linked = io->resolving = false;
    if (good && (io->proven || !late))
        io->pause_us = 0;
    if (good && !late) {
        io->try_again_us = now_us;
        io->addresses.count = 0; /* the name may lead elsewhere now */
        redis_engine_set_gate(io->engine, REDIS_GATE_WAIT);
        return;
    }
    if (++io->address >= io->addresses.count)
        io->addresses.count = 0;
    io->pause_us = next_pause_us(io);
    io->try_again_us = now_us + io->pause_us;
    redis_engine_set_gate(io->engine, REDIS_GATE_DOWN);
    redis_io_end_ready(io, WEIR_EIO);
}

static void found_up(struct redis_io *io)
{
    io->up_since_us = clock_monotonic_us();
    io->proven = false;
    redis_count(&io->engine->counts.connections, 1);
    atomic_store_explicit(&io->engine->late, 0, memory_order_relaxed);
    lock_take(&io->engine->address_lock);
    io->engine->address = io->addresses.list[io->address];
    lock_give(&io->engine->address_lock);
    atomic_fetch_add_explicit(&io->engine->generation, 1, memory_order_release); /* with the address, for slots */
    atomic_store_explicit(&io->engine->renew, false, memory_order_relaxed);
    if (io->known_bad)
        log_line(&io->engine->config->log, WEIR_LOG_INFO, "redis can be used again");
    io->known_bad = false;
    redis_engine_set_gate(io->engine, REDIS_GATE_UP);
}

/* Whatever closed the link, it is dealt with here. */
void redis_connect_look(struct redis_io *io)
{
    if (io->linked && io->link.state == REDIS_LINK_CLOSED)
        lost(io, WEIR_EIO);
    else if (io->link.state == REDIS_LINK_UP && io->up_since_us == 0)
        found_up(io);
}

void redis_connect_lose(struct redis_io *io, const char *reason, int status)
{
    redis_link_close(&io->link, reason);
    lost(io, status);
}

static void open_link(struct redis_io *io)
{
    io->give_up_us = clock_monotonic_us() + CONNECT_US;
    io->linked = true;
    redis_link_open(&io->link, &io->addresses.list[io->address], &io->engine->config->target, true);
}

static void unix_address(const char *path, struct resolve_address *out)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    memset(out, 0, sizeof *out);
    memcpy(name.sun_path, path, strnlen(path, sizeof name.sun_path - 1)); /* redis_url.c has refused longer ones */
    memcpy(&out->name, &name, sizeof name);
    out->len = sizeof name;
}

/* A path needs nobody to be asked. */
static enum resolved find_addresses(struct redis_io *io, char *reason, size_t reason_size)
{
    const struct redis_target *target = &io->engine->config->target;
    if (!target->is_unix)
        return resolver_ask(&io->resolver, io->addresses.list, &io->addresses.count, reason, reason_size);
    unix_address(target->path, &io->addresses.list[0]);
    io->addresses.count = 1;
    return RESOLVED;
}

void redis_connect_resolve(struct redis_io *io)
{
    char reason[96];
    switch (find_addresses(io, reason, sizeof reason)) {
    case RESOLVING: return;
    case NOT_RESOLVED: redis_connect_lose(io, reason, WEIR_EIO); return;
    case RESOLVED:
        io->resolving = false;
        io->address = 0;
        open_link(io);
    }
}

void redis_connect_when_due(struct redis_io *io, int64_t now_us)
{
    if (io->link.state != REDIS_LINK_CLOSED || io->resolving || now_us < io->try_again_us)
        return;
    if (io->addresses.count > 0) {
        open_link(io);
        return;
    }
    io->resolving = true;
    io->give_up_us = now_us + RESOLVE_US;
    redis_connect_resolve(io);
}
