/* nodes.c - the engines of a Redis Cluster's nodes, and the map of slots that chooses among them. */
#include "backends/redis/cluster/cluster.h"

#include "backends/redis/engine/health.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <string.h>

#define LEFT_US (5 * WEIR_SECOND) /* how long an engine stays at a node that has left the map */
#define SAY_US (60 * WEIR_SECOND) /* between two lines in the log about redirects that cannot be followed */

size_t redis_cluster_nodes(const struct redis_cluster *cluster)
{
    return atomic_load_explicit(&cluster->count, memory_order_acquire);
}

/* Start one more engine, aimed at nothing yet. Return its index, or REDIS_NOBODY. */
static unsigned cluster_add_engine(struct redis_cluster *cluster) REQUIRES(cluster->lock)
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
    const int error = redis_engine_start(cluster->config, &cluster->router, &engine);
    if (error) {
        cluster->lack = error == WEIR_ENOMEM ? "out of memory" : "the system has no thread or descriptor left";
        return REDIS_NOBODY;
    }
    atomic_store_explicit(&cluster->engines[i], engine, memory_order_relaxed);
    atomic_store_explicit(&cluster->count, i + 1, memory_order_release);
    return (unsigned)i;
}

/* Return the index of a node's engine. If there is none, aim a free or a new one at it. REDIS_NOBODY: none is left. */
static unsigned cluster_engine_for(struct redis_cluster *cluster, const struct redis_node_name *name)
    REQUIRES(cluster->lock)
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
        unaimed = cluster_add_engine(cluster);
    if (unaimed == REDIS_NOBODY)
        return REDIS_NOBODY;
    cluster->nodes[unaimed] = (struct redis_cluster_node){ .name = *name };
    redis_engine_aim(redis_cluster_engine(cluster, unaimed), name);
    return unaimed;
}

/* A node outside the map may be leaving or joining, with requests still on their way to it. */
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
        for (unsigned lane = 0; lane < REDIS_LANES; lane++) /* they may stay unused for long */
            redis_link_hang_up(&engine->lanes[lane].link);
    }
    lock_give(&cluster->lock);
    return next_us;
}

static void cluster_say_holes(const struct redis_cluster *cluster, size_t holes, const char *lack)
{
    const struct log *log = &cluster->config->log;
    if (holes > 0)
        log_later(log, WEIR_LOG_WARNING,
                  "%zu slots of the redis cluster have no node that can be asked: %s; on_failure decides their keys",
                  holes, lack ? lack : "the map names none");
    else
        log_later(log, WEIR_LOG_INFO, "all slots of the redis cluster have a node again");
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
        engines[i] = (uint16_t)cluster_engine_for(cluster, &name);
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
        cluster_say_holes(cluster, holes, lack);
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

/* ---- Redirects ---- */

/* Send a request where a redirect leads. True: the node has no slots, and no request was sent to it lately. */
static bool cluster_send_to(struct redis_cluster *cluster, unsigned owner, const struct redis_redirect *redirect,
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
        owner = cluster_engine_for(cluster, &to);
    if (owner != REDIS_NOBODY)
        is_new = cluster_send_to(cluster, owner, redirect, now_us);
    else if (to.host[0] != '\0' && cluster->lack && (cluster->said_us == 0 || now_us - cluster->said_us > SAY_US))
        lack = cluster->lack;
    if (lack)
        cluster->said_us = now_us;
    lock_give(&cluster->lock);
    if (lack)
        log_later(&cluster->config->log, WEIR_LOG_WARNING,
                  "redirects to node %s:%d of the redis cluster cannot be followed: %s", to.host, to.port, lack);
    if (redirect->kind == REDIS_REDIRECT_MOVED || is_new)
        redis_cluster_look(cluster);
    return owner;
}
