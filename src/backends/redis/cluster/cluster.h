/* cluster.h - a Redis Cluster: which node serves a key, and an engine for each node.
 *
 * A key lies in one of 16,384 slots, and each slot belongs to one primary. A request goes to the engine of the node
 * that the map names for its key's slot. Requests that are handed in together but belong to several nodes go to all of
 * these in parallel. A node that does not serve the slot answers with a redirect, which is followed up to
 * REDIS_HOPS_MAX times before the request fails. The map may therefore be slightly out of date. A scout
 * (redis/cluster/scout.h) asks for a new one when a node redirects, when one is lost, and as long as one is missing.
 *
 * One script decides all or nothing over keys in one slot; all limits over the same key share a slot. Keys in different
 * slots are charged one after the other, within three quarters of the call's time. If one denies or fails, the charges
 * before it are refunded in the time that is left. The same happens while some keys of a slot are moving to another
 * node (TRYAGAIN).
 *
 * Each node fails alone: its engine has its own gate. Engines are started as nodes are met. A node has left when it has
 * not been in the map for 5 s and no redirect has led to it; the next new node then gets its engine.
 */
#ifndef BACKENDS_REDIS_CLUSTER_CLUSTER_H
#define BACKENDS_REDIS_CLUSTER_CLUSTER_H

#include "backends/redis/cluster/map.h"
#include "backends/redis/engine/engine.h"
#include "core/ground/lock.h"

#define REDIS_HOPS_MAX 3

struct redis_scout;

struct redis_cluster_node {
    struct redis_node_name name; /* port 0: its engine is aimed at nothing */
    int64_t left_us;             /* since when it is out of the map and unused; 0: it is in the map */
};

/* (a) atomic, (c) constant once made, (l) lock */
struct redis_cluster {
    struct redis_router router;        /* (c) first: the engines know the cluster by it */
    const struct redis_config *config; /* (c) */
    struct redis_scout *scout;         /* (c) */

    _Atomic(struct redis_engine *) engines[REDIS_NODES_MAX]; /* (a) the first `count`, which stay until the end */
    atomic_size_t count;                                     /* (a) release, after the engine */
    atomic_bool serves[REDIS_NODES_MAX];                     /* (a) the node has slots */
    _Atomic uint16_t
        owner[REDIS_CLUSTER_SLOTS]; /* (a) release, after the engine: its index, or REDIS_NOBODY. Before the
                                                  * first map the first engine, which waits for a node, has all slots */
    _Atomic int64_t holes_us;       /* (a) since when some slots have no node; 0: all have one */

    struct lock lock;
    struct redis_cluster_node nodes[REDIS_NODES_MAX]; /* (l) of each engine */
    const char *lack;                                 /* (l) why no engine was left lately; NULL: there was one */
    bool known_holes;                                 /* (l) the log has a line about slots without a node */
    int64_t said_us;                                  /* (l) the last line about a redirect that cannot be followed */
    bool closing;                                     /* (l) start no more engines */
};

/* Returns as redis_engine_start(). */
int redis_cluster_start(const struct redis_config *config, struct redis_cluster **out);

/* As the engine's functions of these names; free() also stops. */
void redis_cluster_shut(struct redis_cluster *cluster);
void redis_cluster_free(struct redis_cluster *cluster);
void redis_cluster_abandon(struct redis_cluster *cluster);

/* Implement ops->decide() and the others. */
int redis_cluster_decide(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out);
int redis_cluster_submit(struct redis_cluster *cluster, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op);
int64_t redis_cluster_reachable_us(const struct redis_cluster *cluster, const struct weir_key *key);
int64_t redis_cluster_well_us(const struct redis_cluster *cluster, const struct weir_key *key);
void redis_cluster_stats(const struct redis_cluster *cluster, struct weir_stats *add);

/* ---- nodes.c ---- */

static inline struct redis_engine *redis_cluster_engine(const struct redis_cluster *cluster, size_t i)
{
    return atomic_load_explicit(&cluster->engines[i], memory_order_relaxed);
}

/* Return the index of the engine that the map names for a key, or REDIS_NOBODY. */
static inline unsigned redis_cluster_owner(const struct redis_cluster *cluster, struct weir_key key)
{
    return atomic_load_explicit(&cluster->owner[redis_key_slot(key)], memory_order_acquire);
}

/* The map is out of date: ask for a new one soon. Any thread. */
static inline void redis_cluster_look(struct redis_cluster *cluster)
{
    cluster->router.look(&cluster->router);
}

/* Return the index of the engine that a redirect by `from` leads to, or REDIS_NOBODY if none is left. */
unsigned redis_cluster_follow(struct redis_cluster *cluster, const struct redis_engine *from,
                              const struct redis_redirect *redirect);

/* Use the map that the node `asked` gave. True: every slot has a node, and no node of the map is down. */
bool redis_cluster_adopt(struct redis_cluster *cluster, const struct redis_map *map, const char *asked);

/* No node has answered: callers do not wait for the first map any more. */
void redis_cluster_not_found(struct redis_cluster *cluster);

/* Aim the engines of nodes that have left at nothing, for new nodes to use. Return when to call this again; INT64_MAX:
 * every node is in the map. */
int64_t redis_cluster_park(struct redis_cluster *cluster);

/* The number of nodes, past ones included. The name of a node, with port 0 if it is gone, and its standing: in doubt if
 * it is down or has only refused lately. */
enum redis_standing { REDIS_SERVES, REDIS_STANDS_BY, REDIS_IN_DOUBT };
size_t redis_cluster_nodes(const struct redis_cluster *cluster);
enum redis_standing redis_cluster_node(struct redis_cluster *cluster, size_t i, struct redis_node_name *name);

#endif
