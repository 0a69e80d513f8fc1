/* cluster.c - the life of a Redis Cluster's engines and scout, and what the engines ask of the cluster. */
#include "backends/redis/cluster/cluster.h"

#include "backends/redis/cluster/scout.h"
#include "backends/redis/engine/health.h"
#include "core/ground/arith.h"

#include <stdlib.h>

/* ---- For the engines ---- */

/* The router is the first member of the cluster. */
static struct redis_cluster *cluster_of(struct redis_router *router)
{
    return (struct redis_cluster *)router;
}

static void router_look(struct redis_router *router)
{
    redis_scout_look(cluster_of(router)->scout);
}

static void router_send_on(struct redis_router *router, const struct redis_engine *from, struct redis_op_waiter *waiter,
                           int status, const struct redis_redirect *redirect)
{
    struct redis_cluster *cluster = cluster_of(router);
    struct weir_op *op = redis_waiter_op(waiter);
    int error = WEIR_EIO_UNDONE; /* no node has executed it */
    if (waiter->waiter.hops < REDIS_HOPS_MAX && redirect) {
        const unsigned to = redis_cluster_follow(cluster, from, redirect);
        waiter->waiter.hops++;
        waiter->waiter.asking = status == REDIS_ASKING;
        if (to != REDIS_NOBODY) /* from here on the other engine may end the op, which is then gone */
            error = redis_engine_take_over(redis_cluster_engine(cluster, to), waiter);
    }
    if (error <= 0)
        op->done(op, error == WEIR_EFULL ? WEIR_EIO_UNDONE : error);
}

/* ---- Health ---- */

/* Return a time of the node that serves the key's slot or, if `key` is NULL, the earliest of all nodes with slots. A
 * slot without a node counts as unreachable since holes_us. */
static int64_t cluster_worst_us(const struct redis_cluster *cluster, const struct weir_key *key,
                                int64_t (*time_us)(const struct redis_engine *engine))
{
    const int64_t holes_us = atomic_load_explicit(&cluster->holes_us, memory_order_relaxed);
    if (key) {
        const unsigned owner = redis_cluster_owner(cluster, *key);
        return owner == REDIS_NOBODY ? holes_us : time_us(redis_cluster_engine(cluster, owner));
    }
    const size_t count = redis_cluster_nodes(cluster);
    int64_t worst_us = holes_us ? holes_us : INT64_MAX;
    for (size_t i = 0; i < count; i++)
        if (atomic_load_explicit(&cluster->serves[i], memory_order_relaxed))
            worst_us = min_of(worst_us, time_us(redis_cluster_engine(cluster, i)));
    return worst_us;
}

int64_t redis_cluster_reachable_us(const struct redis_cluster *cluster, const struct weir_key *key)
{
    return cluster_worst_us(cluster, key, redis_engine_reachable_us);
}

int64_t redis_cluster_well_us(const struct redis_cluster *cluster, const struct weir_key *key)
{
    return cluster_worst_us(cluster, key, redis_engine_well_us);
}

void redis_cluster_stats(const struct redis_cluster *cluster, struct weir_stats *add)
{
    const size_t count = redis_cluster_nodes(cluster);
    for (size_t i = 0; i < count; i++)
        redis_engine_stats(redis_cluster_engine(cluster, i), add);
}

/* ---- Life ---- */

/* Make no more engines. */
static void cluster_close(struct redis_cluster *cluster)
{
    lock_take(&cluster->lock);
    cluster->closing = true;
    lock_give(&cluster->lock);
}

static void cluster_free_engines(struct redis_cluster *cluster)
{
    cluster_close(cluster);
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
    cluster->router = (struct redis_router){ .look = router_look, .send_on = router_send_on };
    cluster->config = config;
    lock_init(&cluster->lock);
    int error = redis_scout_make(cluster, &cluster->scout);
    if (error) {
        cluster_free_engines(cluster);
        return error;
    }
    error = redis_engine_start(config, &cluster->router, &first);
    if (!error) {
        atomic_init(&cluster->engines[0], first);
        atomic_init(&cluster->serves[0], true);
        atomic_store_explicit(&cluster->count, 1, memory_order_release);
        error = redis_scout_start(cluster->scout);
    }
    if (error) {
        struct redis_scout *scout = cluster->scout;
        cluster_free_engines(cluster);
        redis_scout_free(scout);
        return error;
    }
    *out = cluster;
    return WEIR_OK;
}

void redis_cluster_shut(struct redis_cluster *cluster)
{
    cluster_close(cluster);
    const size_t count = redis_cluster_nodes(cluster);
    redis_scout_shut(cluster->scout);
    for (size_t i = 0; i < count; i++)
        redis_engine_shut(redis_cluster_engine(cluster, i));
}

void redis_cluster_free(struct redis_cluster *cluster)
{
    struct redis_scout *scout = cluster->scout;
    redis_scout_stop(scout);
    cluster_free_engines(cluster);
    redis_scout_free(scout);
}

void redis_cluster_abandon(struct redis_cluster *cluster)
{
    const size_t count = redis_cluster_nodes(cluster);
    redis_scout_abandon(cluster->scout);
    for (size_t i = 0; i < count; i++)
        redis_engine_abandon(redis_cluster_engine(cluster, i));
}
