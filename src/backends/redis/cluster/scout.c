/* scout.c - a thread that asks the nodes of a Redis Cluster which node serves which slots. */
#include "backends/redis/cluster/scout.h"

#include "backends/redis/cluster/cluster.h"
#include "backends/redis/engine/health.h"
#include "backends/redis/wire/pause.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/ground/quiet_thread.h"
#include "core/ground/wake_fd.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_US (WEIR_SECOND / 2)     /* for a node to connect and answer; also for looking up its name */
#define PAUSE_MOST_US 700000            /* between two questions, however often engines want a map */
#define AMISS_MOST_US (5 * WEIR_SECOND) /* between two while something is wrong and no engine wants a map */
#define CALM_US (5 * WEIR_SECOND)       /* after this long without a question the pauses start small again */
#define GLANCE_US (60 * WEIR_SECOND)    /* between two while nothing is wrong */
#define LINK_ASKS 4                     /* questions to one node on a connection, before another node's turn */

/* (a) atomic, (c) constant once made; the rest is the thread's own */
struct redis_scout {
    struct redis_cluster *cluster; /* (c) */
    pthread_t thread;              /* (c) */
    bool runs;                     /* (c) once started */
    int wake_fd;                   /* (c) */
    atomic_bool ends;              /* (a) */
    atomic_bool wanted;            /* (a) */

    struct redis_link link;        /* kept while something is wrong: with TLS, connecting is most of the cost */
    struct redis_node_name linked; /* the node at its other end, */
    unsigned link_asks;            /* and how often it was asked on it */
    struct resolver resolver;      /* of the node being asked */
    struct redis_map map;
    struct redis_pauses pauses;     /* between any two questions */
    struct redis_pauses amiss;      /* between two while something is wrong and no engine wants a map */
    int64_t asked_us;               /* when the last question ended; 0: never */
    size_t turn;                    /* the node or host of the URL to begin with */
    bool known_bad;                 /* the log has a line that none answers */
    char reason[REDIS_REASON_SIZE]; /* why the last one did not */
};

static bool scout_ends(struct redis_scout *scout)
{
    return atomic_load_explicit(&scout->ends, memory_order_acquire);
}

/* ---- Waiting ---- */

/* Wait until `fd` (-1: none) is ready, the thread is woken, or the time has come. False: the thread is to end. */
static bool scout_wait_for(struct redis_scout *scout, int fd, short events, int64_t until_us)
{
    struct pollfd fds[] = { { .fd = scout->wake_fd, .events = POLLIN }, { .fd = fd, .events = events } };
    const struct timespec left = clock_timespec(max_of(0, until_us - clock_monotonic_us()));
    if (!scout_ends(scout) && ppoll(fds, 2, &left, NULL) > 0 && fds[0].revents)
        wake_fd_drain(scout->wake_fd);
    return !scout_ends(scout);
}

/* ---- One node ---- */

static bool scout_fail(struct redis_scout *scout, const char *reason)
{
    snprintf(scout->reason, sizeof scout->reason, "%s", reason);
    return false;
}

static bool scout_find_addresses(struct redis_scout *scout, struct redis_addresses *addresses)
{
    const int64_t until_us = clock_monotonic_us() + ANSWER_US;
    char reason[96];
    for (;;) {
        switch (resolver_ask(&scout->resolver, addresses->list, &addresses->count, reason, sizeof reason)) {
        case RESOLVED: return true;
        case NOT_RESOLVED: return scout_fail(scout, reason);
        case RESOLVING: break;
        }
        if (clock_monotonic_us() >= until_us)
            return scout_fail(scout, "its name is not resolved in time");
        if (!scout_wait_for(scout, resolver_fd(&scout->resolver), POLLIN, until_us))
            return false;
    }
}

/* Wait for the link and step it. False: it is closed, or the thread is to end. */
static bool scout_step(struct redis_scout *scout, int64_t until_us)
{
    if (clock_monotonic_us() >= until_us) {
        redis_link_close(&scout->link, "no answer in time");
        return false;
    }
    if (!scout_wait_for(scout, scout->link.fd, redis_link_events(&scout->link), until_us))
        return false;
    redis_link_step(&scout->link);
    return scout->link.state != REDIS_LINK_CLOSED;
}

static bool scout_take_answer(struct redis_scout *scout, const struct redis_reply *reply)
{
    static const char alone[] = "ERR This instance has cluster support disabled";
    const char *why = NULL;
    if (reply->kind == REDIS_REPLY_IS_ERROR && reply->len >= sizeof alone - 1 &&
        memcmp(reply->text, alone, sizeof alone - 1) == 0)
        redis_link_close(&scout->link, "the server is not part of a cluster");
    else if (reply->kind == REDIS_REPLY_IS_ERROR)
        redis_link_refused(&scout->link, reply, "CLUSTER SLOTS");
    else if (reply->kind != REDIS_REPLY_IS_LIST)
        redis_link_close(&scout->link, "the server does not speak Redis' protocol");
    else if (!redis_map_end(&scout->map, &why))
        redis_link_close(&scout->link, why);
    else
        return true;
    return false;
}

/* Ask on the link, which is up. True: the map is read. */
static bool scout_ask_link(struct redis_scout *scout, int64_t until_us)
{
    struct redis_link *link = &scout->link;
    struct redis_reply reply;
    redis_map_begin(&scout->map);
    redis_wire_show_lists(&link->wire, redis_map_visit, &scout->map);
    redis_bytes_words(&link->out, 0, "CLUSTER", "SLOTS", NULL);
    redis_link_send(link);
    while (link->state == REDIS_LINK_UP) {
        if (redis_link_next(link, &reply))
            return scout_take_answer(scout, &reply);
        if (link->state == REDIS_LINK_UP && !scout_step(scout, until_us))
            return false;
    }
    return false;
}

static bool scout_ask_address(struct redis_scout *scout, const struct redis_where *where)
{
    const int64_t until_us = clock_monotonic_us() + ANSWER_US;
    struct redis_link *link = &scout->link;
    redis_link_open(link, where, &scout->cluster->config->target, REDIS_GREET_SERVER);
    while (link->state != REDIS_LINK_CLOSED && link->state != REDIS_LINK_UP)
        if (!scout_step(scout, until_us))
            return false;
    return link->state == REDIS_LINK_UP && scout_ask_link(scout, until_us);
}

/* Ask one node. True: the map is read. */
static bool scout_ask_node(struct redis_scout *scout, const char *host, int port)
{
    struct redis_addresses addresses = { 0 };
    struct redis_where where = { 0 };
    redis_addresses_seek(&scout->resolver, host, port);
    bool has_answered = false;
    if (scout_find_addresses(scout, &addresses)) {
        snprintf(where.host, sizeof where.host, "%s", host);
        for (size_t i = 0; i < addresses.count && !has_answered && !scout_ends(scout); i++) {
            where.address = addresses.list[i];
            has_answered = scout_ask_address(scout, &where);
            if (!has_answered) {
                scout_fail(scout, scout->link.reason);
                redis_link_close(&scout->link, "it has not answered");
            }
        }
    }
    resolver_destroy(&scout->resolver);
    scout->linked = (struct redis_node_name){ .port = port };
    snprintf(scout->linked.host, sizeof scout->linked.host, "%s", host);
    scout->link_asks = 1;
    return has_answered;
}

/* ---- Choosing a node ---- */

/* Ask the same node as last time, if it has slots and its connection still stands. */
static bool scout_ask_again(struct redis_scout *scout, bool *is_well)
{
    const size_t count = redis_cluster_nodes(scout->cluster);
    struct redis_node_name name;
    bool serves = false;
    for (size_t i = 0; i < count && !serves; i++)
        serves = redis_cluster_node(scout->cluster, i, &name) == REDIS_SERVES &&
                 redis_node_name_is(&name, &scout->linked);
    if (scout->link.state != REDIS_LINK_UP || !serves || scout->link_asks++ == LINK_ASKS ||
        !redis_link_is_fresh(&scout->link) || !scout_ask_link(scout, clock_monotonic_us() + ANSWER_US)) {
        redis_link_close(&scout->link, "another is asked");
        return false;
    }
    *is_well = redis_cluster_adopt(scout->cluster, &scout->map, name.host);
    return true;
}

static bool scout_ask_nodes(struct redis_scout *scout, enum redis_standing standing, bool *is_well)
{
    const size_t count = redis_cluster_nodes(scout->cluster);
    for (size_t i = 0; i < count && !scout_ends(scout); i++) {
        struct redis_node_name name;
        if (redis_cluster_node(scout->cluster, (i + scout->turn) % count, &name) != standing || name.port == 0 ||
            !scout_ask_node(scout, name.host, name.port))
            continue;
        *is_well = redis_cluster_adopt(scout->cluster, &scout->map, name.host);
        return true;
    }
    return false;
}

static bool scout_ask_hosts(struct redis_scout *scout, bool *is_well)
{
    const struct redis_target *target = &scout->cluster->config->target;
    for (size_t i = 0; i < target->host_count && !scout_ends(scout); i++) {
        const struct redis_host *host = &target->hosts[(i + scout->turn) % target->host_count];
        if (!scout_ask_node(scout, host->name, host->port))
            continue;
        *is_well = redis_cluster_adopt(scout->cluster, &scout->map, host->name);
        return true;
    }
    return false;
}

static void scout_say(struct redis_scout *scout, bool has_answered)
{
    const struct log *log = &scout->cluster->config->log;
    if (!has_answered && !scout_ends(scout))
        redis_note(scout->cluster->config, "no node of the redis cluster gives a map of the slots: %s", scout->reason);
    if (has_answered && scout->known_bad)
        log_later(log, WEIR_LOG_INFO, "the nodes of the redis cluster answer again");
    else if (!has_answered && !scout->known_bad && !scout_ends(scout))
        log_later(log, WEIR_LOG_WARNING, "no node of the redis cluster gives a map of the slots: %s; weir keeps asking",
                  scout->reason);
    scout->known_bad = !has_answered;
}

/* Ask for the map. True: nothing is wrong with the cluster. A node that is cut off from the others may not know that it
 * has lost its slots; but it refuses requests, so it is asked last. */
static bool scout_ask(struct redis_scout *scout)
{
    bool is_well = false;
    const bool has_answered = scout_ask_again(scout, &is_well) || scout_ask_nodes(scout, REDIS_SERVES, &is_well) ||
                              scout_ask_nodes(scout, REDIS_STANDS_BY, &is_well) || scout_ask_hosts(scout, &is_well) ||
                              scout_ask_nodes(scout, REDIS_IN_DOUBT, &is_well);
    scout->turn++;
    if (is_well || !has_answered)
        redis_link_close(&scout->link, "it has answered");
    if (!has_answered)
        redis_cluster_not_found(scout->cluster);
    scout_say(scout, has_answered);
    return is_well;
}

/* ---- The thread ---- */

/* Double the pause up to `most_us`, and return between half and all of it. */
static int64_t scout_pause_us(struct redis_pauses *pauses, int64_t most_us)
{
    pauses->last_us = pauses->last_us ? min_of(2 * pauses->last_us, most_us) : REDIS_PAUSE_MIN_US;
    return pauses->last_us / 2 + redis_pause_chance_us(pauses, pauses->last_us / 2);
}

static bool scout_wanted(struct redis_scout *scout)
{
    return atomic_load_explicit(&scout->wanted, memory_order_seq_cst);
}

/* Rest until the time has come. `heeds`: or until an engine wants a map. */
static void scout_rest(struct redis_scout *scout, int64_t until_us, bool heeds)
{
    while (!scout_ends(scout) && clock_monotonic_us() < until_us && !(heeds && scout_wanted(scout)))
        scout_wait_for(scout, -1, 0, min_of(until_us, redis_cluster_park(scout->cluster)));
}

static void *scout_run(void *user)
{
    struct redis_scout *scout = user;
    while (!scout_ends(scout)) {
        if (atomic_exchange_explicit(&scout->wanted, false, memory_order_seq_cst))
            scout->amiss.last_us = 0;
        if (scout->asked_us && clock_monotonic_us() - scout->asked_us > CALM_US)
            scout->pauses.last_us = 0;
        const bool is_well = scout_ask(scout);
        if (is_well)
            scout->amiss.last_us = 0;
        scout->asked_us = clock_monotonic_us();
        scout_rest(scout, scout->asked_us + scout_pause_us(&scout->pauses, PAUSE_MOST_US), false);
        scout_rest(scout, scout->asked_us + (is_well ? GLANCE_US : scout_pause_us(&scout->amiss, AMISS_MOST_US)), true);
    }
    return NULL;
}

void redis_scout_look(struct redis_scout *scout)
{
    if (!scout_wanted(scout) && !atomic_exchange_explicit(&scout->wanted, true, memory_order_seq_cst))
        wake_fd_ring(scout->wake_fd);
}

/* ---- Life ---- */

int redis_scout_make(struct redis_cluster *cluster, struct redis_scout **out)
{
    struct redis_scout *scout = calloc(1, sizeof *scout);
    if (!scout)
        return WEIR_ENOMEM;
    scout->cluster = cluster;
    if (redis_link_init(&scout->link) != 0) {
        free(scout);
        return WEIR_ENOMEM;
    }
    redis_pauses_init(&scout->pauses);
    redis_pauses_init(&scout->amiss);
    scout->turn = (size_t)(siphash13(&scout->pauses.jitter, "turn", 4));
    scout->wake_fd = wake_fd_open();
    if (scout->wake_fd < 0) {
        redis_link_free(&scout->link);
        free(scout);
        return WEIR_EIO;
    }
    *out = scout;
    return WEIR_OK;
}

int redis_scout_start(struct redis_scout *scout)
{
    scout->runs = quiet_thread_start(&scout->thread, NULL, scout_run, scout) == 0;
    return scout->runs ? WEIR_OK : WEIR_EIO;
}

void redis_scout_shut(struct redis_scout *scout)
{
    atomic_store_explicit(&scout->ends, true, memory_order_release);
    wake_fd_ring(scout->wake_fd);
}

void redis_scout_stop(struct redis_scout *scout)
{
    redis_scout_shut(scout);
    if (scout->runs)
        pthread_join(scout->thread, NULL);
    scout->runs = false;
}

void redis_scout_free(struct redis_scout *scout)
{
    redis_link_free(&scout->link);
    close(scout->wake_fd);
    free(scout);
}

void redis_scout_abandon(struct redis_scout *scout)
{
    close(scout->wake_fd);
    redis_link_abandon(&scout->link);
    resolver_abandon(&scout->resolver);
}
