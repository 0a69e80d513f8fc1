/* cluster.c - a Redis Cluster: the engines of its nodes, and the map of slots by which they are chosen. */
#include "backends/redis/cluster/cluster.h"

#include "backends/redis/cluster/scout.h"
#include "backends/redis/flight/key.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <stdlib.h>
#include <string.h>

#define LEFT_US (5 * WEIR_SECOND) /* an engine is kept at a node that has no slots any more for so long */
#define SAY_US (60 * WEIR_SECOND) /* so rarely the log has a line about redirections that are not followed */

size_t redis_cluster_nodes(const struct redis_cluster *cluster)
{
    return atomic_load_explicit(&cluster->count, memory_order_acquire);
}

/* ---- Nodes ---- */

/* One more engine, which is aimed at nothing yet: its index, or REDIS_NOBODY. */
static unsigned add_engine(struct redis_cluster *cluster) REQUIRES(cluster->lock)
{
    const size_t i = redis_cluster_nodes(cluster);
    struct redis_engine *engine;
    if (cluster->closing)
        return REDIS_NOBODY;
    if (i == REDIS_NODES_MAX) {
        _Static_assert(REDIS_NODES_MAX == 128, "as this says");
        cluster->lack = "there are 128 nodes already";
        return REDIS_NOBODY;
    }
    const int error = redis_engine_start(cluster->config, cluster, &engine);
    if (error) {
        cluster->lack = error == WEIR_ENOMEM ? "out of memory" : "no thread or descriptor to be had";
        return REDIS_NOBODY;
    }
    atomic_store_explicit(&cluster->engines[i], engine, memory_order_relaxed);
    atomic_store_explicit(&cluster->count, i + 1, memory_order_release);
    return (unsigned)i;
}

/* The engine of a node, aimed at it if none was: its index, or REDIS_NOBODY if no more are to be had. */
static unsigned find_node(struct redis_cluster *cluster, const struct redis_node_name *name) REQUIRES(cluster->lock)
{
    const size_t count = redis_cluster_nodes(cluster);
    unsigned unaimed = REDIS_NOBODY;
    for (unsigned i = 0; i < count; i++) {
        if (redis_node_name_is(&cluster->nodes[i].name, name))
            return i;
        if (unaimed == REDIS_NOBODY && cluster->nodes[i].name.port == 0)
            unaimed = i;
    }
    if (unaimed == REDIS_NOBODY)
        unaimed = add_engine(cluster);
    if (unaimed == REDIS_NOBODY)
        return REDIS_NOBODY;
    cluster->nodes[unaimed] = (struct redis_cluster_node){ .name = *name };
    redis_engine_aim(redis_cluster_engine(cluster, unaimed), name);
    return unaimed;
}

/* One that is not in the map may be on its way out, or in, with requests under way to it. */
int64_t redis_cluster_park(struct redis_cluster *cluster)
{
    const int64_t now_us = clock_monotonic_us();
    int64_t next_us = INT64_MAX;
    lock_take(&cluster->lock);
    const size_t count = redis_cluster_nodes(cluster);
    for (size_t i = 0; i < count; i++) {
        struct redis_cluster_node *node = &cluster->nodes[i];
        if (node->left_us == 0)
            continue;
        if (now_us - node->left_us < LEFT_US) {
            next_us = min_of(next_us, node->left_us + LEFT_US);
            continue;
        }
        struct redis_engine *engine = redis_cluster_engine(cluster, i);
        *node = (struct redis_cluster_node){ .left_us = 0 };
        redis_engine_aim(engine, NULL);
        for (unsigned lane = 0; lane < REDIS_LANES; lane++) /* which nobody may use again for long */
            redis_link_hang_up(&engine->lanes[lane].link);
    }
    lock_give(&cluster->lock);
    return next_us;
}

static void say_holes(const struct redis_cluster *cluster, size_t holes, const char *lack)
{
    const struct log *log = &cluster->config->log;
    if (holes > 0)
        log_line(log, WEIR_LOG_WARNING, "%zu slots of the redis cluster have no node that can be asked: %s", holes,
                 lack ? lack : "the map names none");
    else
        log_line(log, WEIR_LOG_INFO, "all slots of the redis cluster have a node again");
}

bool redis_cluster_adopt(struct redis_cluster *cluster, const struct redis_map *map, const char *asked)
{
    const int64_t now_us = clock_monotonic_us();
    uint16_t engines[REDIS_NODES_MAX];
    bool in_map[REDIS_NODES_MAX] = { false }, is_well = true;
    size_t holes = 0;
    lock_take(&cluster->lock);
    cluster->lack = NULL;
    for (size_t i = 0; i < map->node_count; i++) {
        struct redis_node_name name = map->nodes[i];
        if (name.host[0] == '\0')
            memcpy(name.host, asked, strlen(asked) + 1);
        engines[i] = (uint16_t)find_node(cluster, &name);
        if (engines[i] != REDIS_NOBODY)
            in_map[engines[i]] = true;
    }
    for (size_t slot = 0; slot < REDIS_CLUSTER_SLOTS; slot++) {
        const uint16_t owner = map->owner[slot] == REDIS_NOBODY ? REDIS_NOBODY : engines[map->owner[slot]];
        atomic_store_explicit(&cluster->owner[slot], owner, memory_order_release);
        holes += owner == REDIS_NOBODY;
    }
    const size_t count = redis_cluster_nodes(cluster);
    for (unsigned i = 0; i < count; i++) {
        atomic_store_explicit(&cluster->serves[i], in_map[i], memory_order_relaxed);
        if (in_map[i]) {
            cluster->nodes[i].left_us = 0;
            is_well = is_well && !redis_engine_is_down(redis_cluster_engine(cluster, i));
        } else if (cluster->nodes[i].name.port != 0 && cluster->nodes[i].left_us == 0) {
            cluster->nodes[i].left_us = now_us;
        }
    }
    if (holes == 0)
        atomic_store_explicit(&cluster->holes_us, 0, memory_order_relaxed);
    else if (atomic_load_explicit(&cluster->holes_us, memory_order_relaxed) == 0)
        atomic_store_explicit(&cluster->holes_us, now_us, memory_order_relaxed);
    const bool is_news = cluster->known_holes != (holes > 0) && !cluster->closing;
    const char *lack = cluster->lack;
    cluster->known_holes = holes > 0;
    lock_give(&cluster->lock);
    if (is_news)
        say_holes(cluster, holes, lack);
    return is_well && holes == 0;
}

void redis_cluster_not_found(struct redis_cluster *cluster)
{
    lock_take(&cluster->lock);
    if (redis_cluster_nodes(cluster) == 1 && cluster->nodes[0].name.port == 0)
        redis_engine_aim(redis_cluster_engine(cluster, 0), NULL);
    lock_give(&cluster->lock);
}

enum redis_standing redis_cluster_node(struct redis_cluster *cluster, size_t i, struct redis_node_name *name)
{
    const int64_t now_us = clock_monotonic_us();
    lock_take(&cluster->lock);
    *name = cluster->nodes[i].name;
    lock_give(&cluster->lock);
    if (redis_engine_well_us(redis_cluster_engine(cluster, i)) < now_us)
        return REDIS_IN_DOUBT;
    return atomic_load_explicit(&cluster->serves[i], memory_order_relaxed) ? REDIS_SERVES : REDIS_STANDS_BY;
}

/* ---- Redirections ---- */

/* A request goes to where it was sent. True: to a node without slots that nobody was sent to lately. */
static bool send_to(struct redis_cluster *cluster, unsigned owner, const struct redis_redirect *redirect,
                    int64_t now_us) REQUIRES(cluster->lock)
{
    struct redis_cluster_node *node = &cluster->nodes[owner];
    if (redirect->kind == REDIS_REDIRECT_MOVED) {
        atomic_store_explicit(&cluster->owner[redirect->slot], (uint16_t)owner, memory_order_release);
        atomic_store_explicit(&cluster->serves[owner], true, memory_order_relaxed);
        node->left_us = 0;
        return false;
    }
    if (atomic_load_explicit(&cluster->serves[owner], memory_order_relaxed))
        return false;
    const bool is_new = node->left_us == 0;
    node->left_us = now_us;
    return is_new;
}

unsigned redis_cluster_follow(struct redis_cluster *cluster, const struct redis_engine *from,
                              const struct redis_redirect *redirect)
{
    const int64_t now_us = clock_monotonic_us();
    struct redis_node_name to = redirect->to;
    unsigned owner = REDIS_NOBODY;
    const char *lack = NULL;
    bool is_new = false;
    lock_take(&cluster->lock);
    const size_t count = redis_cluster_nodes(cluster);
    for (size_t i = 0; i < count && to.host[0] == '\0'; i++)
        if (redis_cluster_engine(cluster, i) == from)
            memcpy(to.host, cluster->nodes[i].name.host, sizeof to.host);
    if (to.host[0] != '\0')
        owner = find_node(cluster, &to);
    if (owner != REDIS_NOBODY)
        is_new = send_to(cluster, owner, redirect, now_us);
    else if (to.host[0] != '\0' && cluster->lack && (cluster->said_us == 0 || now_us - cluster->said_us > SAY_US))
        lack = cluster->lack;
    if (lack)
        cluster->said_us = now_us;
    lock_give(&cluster->lock);
    if (lack)
        log_line(&cluster->config->log, WEIR_LOG_WARNING,
                 "redirections to node %s:%d of the redis cluster are not followed: %s", to.host, to.port, lack);
    if (redirect->kind == REDIS_REDIRECT_MOVED || is_new)
        redis_cluster_look(cluster);
    return owner;
}

void redis_cluster_send_on(struct redis_cluster *cluster, const struct redis_engine *from, struct redis_waiter *waiter,
                           int status, const struct redis_redirect *redirect)
{
    struct weir_op *op = redis_waiter_op(waiter);
    int error = WEIR_EIO;
    if (waiter->hops < REDIS_HOPS_MAX && redirect) {
        const unsigned to = redis_cluster_follow(cluster, from, redirect);
        waiter->hops++;
        waiter->asking = status == REDIS_ASKING;
        if (to != REDIS_NOBODY)
            error = redis_engine_take_over(redis_cluster_engine(cluster, to), waiter); /* it may be gone, with its op */
    }
    if (error <= 0)
        op->done(op, error == WEIR_EFULL ? WEIR_EIO : error);
}

/* ---- What there is to tell ---- */

/* Of the node that has a key's slot; or NULL: of all that have slots, the worst. Slots that nobody has are away, too. */
static int64_t ask_engines(const struct redis_cluster *cluster, const struct weir_key *key,
                           int64_t (*ask)(const struct redis_engine *engine))
{
    const int64_t holes_us = atomic_load_explicit(&cluster->holes_us, memory_order_relaxed);
    if (key) {
        const unsigned owner = redis_cluster_owner(cluster, *key);
        return owner == REDIS_NOBODY ? holes_us : ask(redis_cluster_engine(cluster, owner));
    }
    const size_t count = redis_cluster_nodes(cluster);
    int64_t worst_us = holes_us ? holes_us : INT64_MAX;
    for (size_t i = 0; i < count; i++)
        if (atomic_load_explicit(&cluster->serves[i], memory_order_relaxed))
            worst_us = min_of(worst_us, ask(redis_cluster_engine(cluster, i)));
    return worst_us;
}

int64_t redis_cluster_reachable_us(const struct redis_cluster *cluster, const struct weir_key *key)
{
    return ask_engines(cluster, key, redis_engine_reachable_us);
}

int64_t redis_cluster_well_us(const struct redis_cluster *cluster, const struct weir_key *key)
{
    return ask_engines(cluster, key, redis_engine_well_us);
}

void redis_cluster_stats(const struct redis_cluster *cluster, struct weir_stats *add)
{
    const size_t count = redis_cluster_nodes(cluster);
    for (size_t i = 0; i < count; i++)
        redis_engine_stats(redis_cluster_engine(cluster, i), add);
}

void redis_cluster_look(struct redis_cluster *cluster)
{
    redis_scout_look(cluster->scout);
}

/* ---- Life ---- */

/* No more engines are made. */
static void begin_closing(struct redis_cluster *cluster)
{
    lock_take(&cluster->lock);
    cluster->closing = true;
    lock_give(&cluster->lock);
}

static void free_all(struct redis_cluster *cluster)
{
    begin_closing(cluster);
    const size_t count = redis_cluster_nodes(cluster);
    for (size_t i = 0; i < count; i++)
        redis_engine_stop(redis_cluster_engine(cluster, i));
    for (size_t i = 0; i < count; i++)
        redis_engine_free(redis_cluster_engine(cluster, i));
    lock_destroy(&cluster->lock);
    free(cluster);
}

int redis_cluster_start(const struct redis_config *config, struct redis_cluster **out)
{
    struct redis_cluster *cluster = calloc(1, sizeof *cluster);
    struct redis_engine *first;
    if (!cluster)
        return WEIR_ENOMEM;
    cluster->config = config;
    lock_init(&cluster->lock);
    int error = redis_scout_make(cluster, &cluster->scout);
    if (error) {
        free_all(cluster);
        return error;
    }
    error = redis_engine_start(config, cluster, &first);
    if (!error) {
        atomic_init(&cluster->engines[0], first);
        atomic_init(&cluster->serves[0], true);
        atomic_store_explicit(&cluster->count, 1, memory_order_release);
        error = redis_scout_start(cluster->scout);
    }
    if (error) {
        struct redis_scout *scout = cluster->scout;
        free_all(cluster);
        redis_scout_free(scout);
        return error;
    }
    *out = cluster;
    return WEIR_OK;
}

void redis_cluster_shut(struct redis_cluster *cluster)
{
    begin_closing(cluster);
    const size_t count = redis_cluster_nodes(cluster);
    redis_scout_shut(cluster->scout);
    for (size_t i = 0; i < count; i++)
        redis_engine_shut(redis_cluster_engine(cluster, i));
}

void redis_cluster_free(struct redis_cluster *cluster)
{
    struct redis_scout *scout = cluster->scout;
    redis_scout_stop(scout);
    free_all(cluster);
    redis_scout_free(scout);
}

void redis_cluster_abandon(struct redis_cluster *cluster)
{
    const size_t count = redis_cluster_nodes(cluster);
    redis_scout_abandon(cluster->scout);
    for (size_t i = 0; i < count; i++)
        redis_engine_abandon(redis_cluster_engine(cluster, i));
}
