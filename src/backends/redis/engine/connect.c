/* connect.c - the I/O thread's connection: made, lost, and made again.
 *
 * After the loss of a good connection the thread reconnects immediately. Otherwise pauses that grow separate the tries,
 * and no caller waits during a pause. With sentinels, the thread asks them for the server before each try. If they name
 * another one it drops the connection and follows. In a cluster the engine first waits to be aimed at a node.
 */
#include "backends/redis/engine/health.h"
#include "backends/redis/engine/io.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#define CONNECT_US WEIR_SECOND /* for a connection and its greeting */
#define RESOLVE_US (5 * WEIR_SECOND)
#define SAY_US WEIR_SECOND     /* between two lines in the log that the server cannot be used */
#define SETTLED_US WEIR_SECOND /* a connection that lasted this long was a good one, even unused */

int redis_connect_init(struct redis_io *io)
{
    const struct redis_config *config = io->engine->config;
    redis_pauses_init(&io->pauses);
    io->asking = io->engine->router;
    redis_addresses_seek(&io->resolver, config->target.host, config->target.port);
    if (config->target.host)
        snprintf(io->where.host, sizeof io->where.host, "%s", config->target.host);
    if (!config->target.service)
        return 0;
    io->sentinel = malloc(sizeof *io->sentinel);
    if (io->sentinel && redis_sentinel_init(io->sentinel, &config->target, &config->log) != 0) {
        free(io->sentinel);
        io->sentinel = NULL;
    }
    return io->sentinel ? 0 : -1;
}

void redis_connect_free(struct redis_io *io)
{
    resolver_destroy(&io->resolver);
    if (io->sentinel)
        redis_sentinel_free(io->sentinel);
    free(io->sentinel);
}

#define NAME_ROOM (REDIS_HOST_MAX + 16)

/* Name a cluster's node for the log. */
static const char *node_for_log(const struct redis_io *io, char *room)
{
    if (io->engine->router && io->port != 0)
        snprintf(room, NAME_ROOM, " node %s:%d", io->where.host, io->port);
    return room;
}

/* Handle a closed link: reconnect immediately if the connection was good, otherwise after a pause, the gate down. */
static void connection_lost(struct redis_io *io, int status)
{
    int64_t now_us = clock_monotonic_us();
    const struct log *log = &io->engine->config->log;
    bool good = io->up_since_us > 0 && (io->proven || now_us - io->up_since_us > SETTLED_US);
    bool late = atomic_load_explicit(&io->engine->late, memory_order_relaxed) >= REDIS_BREAK_TIMEOUTS;
    bool say = io->said_us == 0 || now_us - io->said_us > SAY_US;
    char room[NAME_ROOM] = "";
    const char *node = node_for_log(io, room);
    if (!atomic_load_explicit(&io->engine->closing, memory_order_relaxed))
        redis_note(io->engine->config, "redis%s cannot be used: %s", node, io->link.reason);
    if (!io->known_bad && say && !atomic_load_explicit(&io->engine->closing, memory_order_relaxed)) {
        io->known_bad = true;
        io->said_us = now_us;
        log_later(log, WEIR_LOG_WARNING,
                  "redis%s cannot be used: %s; weir keeps trying; on_failure applies until it can be", node,
                  io->link.reason);
    }
    if (io->engine->router && io->port != 0 && (io->up_since_us > 0 || !redis_engine_is_down(io->engine)))
        io->engine->router->look(io->engine->router);
    atomic_fetch_add_explicit(&io->engine->generation, 1, memory_order_release);
    redis_air_fail(io, status);
    io->misled = io->up_since_us == 0 && !io->asking;
    io->up_since_us = 0;
    io->linked = io->resolving = io->asking = io->told = false;
    if (good && (io->proven || !late))
        io->pauses.last_us = 0;
    if (good && !late) {
        io->try_again_us = now_us;
        io->addresses.count = 0; /* resolve again: the name may lead elsewhere now */
        redis_engine_set_gate(io->engine, REDIS_GATE_WAIT);
        return;
    }
    if (++io->address >= io->addresses.count)
        io->addresses.count = 0;
    io->try_again_us = now_us + redis_pause_next_us(&io->pauses);
    redis_engine_set_gate(io->engine, REDIS_GATE_DOWN);
    redis_ready_end(io, WEIR_EIO_UNDONE);
}

static void connection_up(struct redis_io *io)
{
    io->up_since_us = clock_monotonic_us();
    io->proven = false;
    redis_count(&io->engine->counts.connections, 1);
    atomic_store_explicit(&io->engine->late, 0, memory_order_relaxed);
    lock_take(&io->engine->address_lock);
    io->engine->where = io->where;
    lock_give(&io->engine->address_lock);
    atomic_fetch_add_explicit(&io->engine->generation, 1, memory_order_release); /* lanes read the new address */
    atomic_store_explicit(&io->engine->renew, false, memory_order_relaxed);
    if (io->known_bad)
        log_later(&io->engine->config->log, WEIR_LOG_INFO, "redis%s can be used again",
                  node_for_log(io, (char[NAME_ROOM]){ 0 }));
    io->known_bad = false;
    redis_engine_set_gate(io->engine, REDIS_GATE_UP);
}

static void connect_to_address(struct redis_io *io)
{
    io->give_up_us = clock_monotonic_us() + CONNECT_US;
    io->linked = true;
    io->where.address = io->addresses.list[io->address];
    redis_link_open(&io->link, &io->where, &io->engine->config->target, REDIS_GREET_WITH_SCRIPTS);
}

/* Some of a host's addresses may be dead: it is down only if all of them are. */
static void connect_to_next_address(struct redis_io *io)
{
    while (io->link.state == REDIS_LINK_CLOSED && io->address + 1 < io->addresses.count) {
        io->address++;
        connect_to_address(io);
    }
}

void redis_connect_look(struct redis_io *io)
{
    if (io->linked && io->up_since_us == 0)
        connect_to_next_address(io);
    if (io->linked && io->link.state == REDIS_LINK_CLOSED)
        connection_lost(io, WEIR_EIO);
    else if (io->link.state == REDIS_LINK_UP && io->up_since_us == 0)
        connection_up(io);
}

void redis_connect_lose(struct redis_io *io, const char *reason, int status)
{
    redis_link_close(&io->link, reason);
    connection_lost(io, status);
}

static void unix_address(const char *path, struct resolve_address *out)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    memset(out, 0, sizeof *out);
    memcpy(name.sun_path, path, strnlen(path, sizeof name.sun_path - 1)); /* url.c has refused longer ones */
    memcpy(&out->name, &name, sizeof name);
    out->len = sizeof name;
}

static enum resolved connect_find_addresses(struct redis_io *io, char *reason, size_t reason_size)
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
    switch (connect_find_addresses(io, reason, sizeof reason)) {
    case RESOLVING: return;
    case NOT_RESOLVED: redis_connect_lose(io, reason, WEIR_EIO); return;
    case RESOLVED:
        io->resolving = false;
        io->address = 0;
        connect_to_address(io);
    }
}

static void connect_begin(struct redis_io *io, int64_t now_us)
{
    io->resolving = true;
    io->give_up_us = now_us + RESOLVE_US;
    redis_connect_resolve(io);
}

/* ---- What the sentinels say ---- */

static void connect_to_named(struct redis_io *io, int64_t now_us)
{
    io->told = false;
    resolver_destroy(&io->resolver); /* it may still be looking up the previous server */
    redis_addresses_seek(&io->resolver, io->where.host, io->port);
    connect_begin(io, now_us);
}

/* Drop the connection, or the attempt, and turn to the server that the sentinels name now. If the last change was less
 * than SETTLED_US ago, wait for the usual pause first: if sentinels keep changing their minds, instances must not
 * storm. */
static void follow_sentinels(struct redis_io *io, int64_t now_us)
{
    const bool at_once = io->followed_us == 0 || now_us - io->followed_us > SETTLED_US;
    if (!io->known_bad)
        log_later(&io->engine->config->log, WEIR_LOG_INFO, "the sentinels name another primary; weir connects to it");
    io->known_bad = true; /* so that a line says when it can be used */
    if (io->link.state != REDIS_LINK_CLOSED || io->resolving)
        redis_connect_lose(io, "the sentinels name another primary", WEIR_EIO);
    io->addresses.count = 0;
    io->told = true;
    io->misled = false;
    if (!at_once)
        return;
    io->followed_us = now_us;
    io->try_again_us = now_us;
}

static void hear_sentinels(struct redis_io *io, int64_t now_us)
{
    const struct redis_sentinel *sentinel = io->sentinel;
    const bool is_other = io->port != sentinel->primary.port || strcasecmp(io->where.host, sentinel->primary.host) != 0;
    if (!io->asking && !is_other)
        return;
    memcpy(io->where.host, sentinel->primary.host, sizeof io->where.host);
    io->port = sentinel->primary.port;
    if (io->asking) {
        io->asking = false;
        connect_to_named(io, now_us);
    } else {
        follow_sentinels(io, now_us);
    }
}

static void connect_unnamed(struct redis_io *io)
{
    char reason[REDIS_REASON_SIZE];
    snprintf(reason, sizeof reason, "no sentinel names the primary; the last one: %.160s", io->sentinel->reason);
    redis_connect_lose(io, reason, WEIR_EIO);
}

void redis_connect_sentinels(struct redis_io *io, int64_t now_us)
{
    enum redis_sentinel_news news;
    while ((news = redis_sentinel_turn(io->sentinel, now_us)) != REDIS_NO_NEWS) {
        if (news == REDIS_PRIMARY_NAMED)
            hear_sentinels(io, now_us);
        else if (io->asking)
            connect_unnamed(io);
    }
}

/* ---- What the cluster aims at ---- */

static void leave_node(struct redis_io *io)
{
    redis_connect_lose(io, "it is not a node of the cluster", WEIR_EIO);
    redis_engine_set_gate(io->engine, REDIS_GATE_DOWN);
    redis_ready_end(io, WEIR_EIO_UNDONE);
    io->asking = true;
}

void redis_connect_aim(struct redis_io *io, int64_t now_us)
{
    struct redis_engine *engine = io->engine;
    const unsigned aims = atomic_load_explicit(&engine->aims, memory_order_acquire);
    if (aims == io->aims)
        return;
    io->aims = aims;
    lock_take(&engine->address_lock);
    const struct redis_node_name aim = engine->aim;
    lock_give(&engine->address_lock);
    io->port = 0;         /* this loss is wanted: it asks for no new map, */
    io->known_bad = true; /* and logs nothing */
    if (aim.port == 0) {
        leave_node(io);
        return;
    }
    if (io->link.state != REDIS_LINK_CLOSED || io->resolving)
        redis_connect_lose(io, "the engine now serves another node", WEIR_EIO);
    memcpy(io->where.host, aim.host, sizeof io->where.host);
    io->port = aim.port;
    io->known_bad = false;
    io->addresses.count = 0;
    io->asking = false;
    io->told = true;
    io->try_again_us = now_us;
    io->pauses.last_us = 0;
    atomic_store_explicit(&engine->doubt_us, 0, memory_order_relaxed); /* of the previous node */
    redis_engine_set_gate(engine, REDIS_GATE_WAIT);
}

void redis_connect_when_due(struct redis_io *io, int64_t now_us)
{
    if (io->link.state != REDIS_LINK_CLOSED || io->resolving || io->asking || now_us < io->try_again_us)
        return;
    if (io->addresses.count > 0) {
        connect_to_address(io);
    } else if (io->told || io->engine->router) {
        connect_to_named(io, now_us);
    } else if (!io->sentinel) {
        connect_begin(io, now_us);
    } else {
        io->asking = true;
        redis_sentinel_ask(io->sentinel, io->misled); /* the sentinel's turn is due from now on */
    }
}
