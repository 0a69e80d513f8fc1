/* redis_cluster.c - a Redis Cluster: the engines of its nodes, and the map of slots by which they are chosen. */
#include "backends/redis_cluster.h"

#include "backends/redis_key.h"
#include "backends/redis_scout.h"
#include "core/arith.h"
#include "core/clock.h"

#include <stdlib.h>
#include <string.h>

#define LEFT_US (5 * WEIR_SECOND) /* an engine is kept at a node that has no slots any more for so long */

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
    if (cluster->closing || i == REDIS_NODES_MAX || redis_engine_start(cluster->config, cluster, &engine) != WEIR_OK)
        return REDIS_NOBODY;
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

/* A node that is not in the map. It may be on its way out, with requests under way to it. */
static void leave_node(struct redis_cluster *cluster, unsigned i, int64_t now_us) REQUIRES(cluster->lock)
{
    struct redis_cluster_node *node = &cluster->nodes[i];
    if (node->left_us == 0)
        node->left_us = now_us;
    if (now_us - node->left_us < LEFT_US)
        return;
    *node = (struct redis_cluster_node){ .left_us = 0 };
    redis_engine_aim(redis_cluster_engine(cluster, i), NULL);
}

bool redis_cluster_adopt(struct redis_cluster *cluster, const struct redis_map *map, const char *asked)
{
    const int64_t now_us = clock_monotonic_us();
    uint16_t engines[REDIS_NODES_MAX];
    bool in_map[REDIS_NODES_MAX] = { false }, has_holes = false, is_well = true;
    lock_take(&cluster->lock);
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
        has_holes = has_holes || owner == REDIS_NOBODY;
    }
    const size_t count = redis_cluster_nodes(cluster);
    for (unsigned i = 0; i < count; i++) {
        atomic_store_explicit(&cluster->serves[i], in_map[i], memory_order_relaxed);
        if (in_map[i]) {
            cluster->nodes[i].left_us = 0;
            is_well = is_well && !redis_engine_is_down(redis_cluster_engine(cluster, i));
        } else if (cluster->nodes[i].name.port != 0) {
            leave_node(cluster, i, now_us);
        }
    }
    if (!has_holes)
        atomic_store_explicit(&cluster->holes_us, 0, memory_order_relaxed);
    else if (atomic_load_explicit(&cluster->holes_us, memory_order_relaxed) == 0)
        atomic_store_explicit(&cluster->holes_us, now_us, memory_order_relaxed);
    lock_give(&cluster->lock);
    return is_well && !has_holes;
}

void redis_cluster_not_found(struct redis_cluster *cluster)
{
    lock_take(&cluster->lock);
    if (redis_cluster_nodes(cluster) == 1 && cluster->nodes[0].name.port == 0)
        redis_engine_aim(redis_cluster_engine(cluster, 0), NULL);
    lock_give(&cluster->lock);
}

bool redis_cluster_node(struct redis_cluster *cluster, size_t i, struct redis_node_name *name)
{
    lock_take(&cluster->lock);
    *name = cluster->nodes[i].name;
    lock_give(&cluster->lock);
    return atomic_load_explicit(&redis_cluster_engine(cluster, i)->gate, memory_order_acquire) == REDIS_GATE_UP;
}

/* ---- Redirections ---- */

unsigned redis_cluster_follow(struct redis_cluster *cluster, const struct redis_engine *from,
                              const struct redis_redirect *redirect)
{
    struct redis_node_name to = redirect->to;
    unsigned owner = REDIS_NOBODY;
    lock_take(&cluster->lock);
    const size_t count = redis_cluster_nodes(cluster);
    for (size_t i = 0; i < count && to.host[0] == '\0'; i++)
        if (redis_cluster_engine(cluster, i) == from)
            memcpy(to.host, cluster->nodes[i].name.host, sizeof to.host);
    if (to.host[0] != '\0')
        owner = find_node(cluster, &to);
    if (owner != REDIS_NOBODY && redirect->kind == REDIS_REDIRECT_MOVED) {
        atomic_store_explicit(&cluster->owner[redirect->slot], (uint16_t)owner, memory_order_release);
        atomic_store_explicit(&cluster->serves[owner], true, memory_order_relaxed);
    }
    lock_give(&cluster->lock);
    if (redirect->kind == REDIS_REDIRECT_MOVED)
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

bool redis_cluster_is_here(const struct redis_cluster *cluster)
{
    const size_t count = redis_cluster_nodes(cluster);
    for (size_t i = 0; i < count; i++)
        if (redis_io_is_here(redis_cluster_engine(cluster, i)))
            return true;
    return false;
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
