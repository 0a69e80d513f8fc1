/* cluster.h - a Redis Cluster: which node decides of a key, and an engine for each of the nodes.
 *
 * A key lies in one of 16,384 slots, and each slot at one of the primaries. A request goes to the engine of the node
 * that has its key's slot by the map; what is asked for at once but lies with several nodes goes to all of them at
 * once. A node that has not the slot says who does: that is followed REDIS_HOPS_MAX times, and then is an error, like
 * all else that keeps a request from being decided. So the map needs not be true, only true enough. A thread of its own
 * asks for it (redis/cluster/scout.h): when a node redirects, when one is lost, and as long as one is missing.
 *
 * One script decides all or nothing of keys in one slot, as all limits over one caller's key are. Keys in different
 * slots are charged one after the other, in three quarters of the call's time, and what was charged is refunded when
 * one denies or fails, in what is left of it. So it is, too, while some of a slot's keys are on their way to another
 * node (TRYAGAIN).
 *
 * Each node fails by itself: its engine's gate is its own. Engines are made for nodes as they are met, and are kept for
 * the next when a node has left: when it has not been in the map for 5 s, nor has a redirection led to it.
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
    int64_t left_us;             /* since when it is not in the map, and nobody was sent to it; 0: it is in it */
};

/* (a) atomic, (c) constant once made, (l) lock */
struct redis_cluster {
    const struct redis_config *config; /* (c) */
    struct redis_scout *scout;         /* (c) */

    _Atomic(struct redis_engine *) engines[REDIS_NODES_MAX]; /* (a) the first `count`, which stay */
    atomic_size_t count;                                     /* (a) release with the engine */
    atomic_bool serves[REDIS_NODES_MAX];                     /* (a) it has a slot */
    _Atomic uint16_t owner[REDIS_CLUSTER_SLOTS]; /* (a) release with the engine: its index, or REDIS_NOBODY. Before
                                                  * there is a map all are the first one's, which waits for a node */
    _Atomic int64_t holes_us;                    /* (a) since when there have been slots that are nobody's; 0: none */

    struct lock lock;
    struct redis_cluster_node nodes[REDIS_NODES_MAX]; /* (l) of each engine */
    const char *lack;                                 /* (l) why there last was no engine to be had; NULL: no reason */
    bool known_holes;                                 /* (l) a line in the log has told of slots that are nobody's */
    int64_t said_us; /* (l) when one last told of a redirection that was not followed */
    bool closing;    /* (l) no more engines are made */
};

/* WEIR_OK or as redis_engine_start(). */
int redis_cluster_start(const struct redis_config *config, struct redis_cluster **out);

/* As of an engine. */
void redis_cluster_shut(struct redis_cluster *cluster);
void redis_cluster_free(struct redis_cluster *cluster);
void redis_cluster_abandon(struct redis_cluster *cluster);

/* ---- Decisions ---- */

/* ops->decide() and the others. */
int redis_cluster_decide(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out);
int redis_cluster_submit(struct redis_cluster *cluster, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op);
int64_t redis_cluster_reachable_us(const struct redis_cluster *cluster, const struct weir_key *key);
int64_t redis_cluster_well_us(const struct redis_cluster *cluster, const struct weir_key *key);
void redis_cluster_stats(const struct redis_cluster *cluster, struct weir_stats *add);

/* ---- For the engines ---- */

/* Hand on a submitted request that `from` was told is another's: on the I/O thread of `from`. */
void redis_cluster_send_on(struct redis_cluster *cluster, const struct redis_engine *from, struct redis_waiter *waiter,
                           int status, const struct redis_redirect *redirect);

/* Something is not as the map has it: ask for it, soon. Any thread. */
void redis_cluster_look(struct redis_cluster *cluster);

/* ---- For decisions ---- */

static inline struct redis_engine *redis_cluster_engine(const struct redis_cluster *cluster, size_t i)
{
    return atomic_load_explicit(&cluster->engines[i], memory_order_relaxed);
}

/* Who decides of a key, by the map: the index of an engine, or REDIS_NOBODY. */
static inline unsigned redis_cluster_owner(const struct redis_cluster *cluster, struct weir_key key)
{
    return atomic_load_explicit(&cluster->owner[redis_key_slot(key)], memory_order_acquire);
}

/* The engine to which a redirection by `from` leads: an index, or REDIS_NOBODY if there is none to be had. */
unsigned redis_cluster_follow(struct redis_cluster *cluster, const struct redis_engine *from,
                              const struct redis_redirect *redirect);

/* ---- For the scout ---- */

/* Here is the map as the node `asked` has it. True: all slots have a node, and none of these cannot be reached. */
bool redis_cluster_adopt(struct redis_cluster *cluster, const struct redis_map *map, const char *asked);

/* No node has answered: nobody is to wait for the first map. */
void redis_cluster_not_found(struct redis_cluster *cluster);

/* Let go of nodes that have left for good. When to do so again, by the monotonic clock; INT64_MAX: none has left. */
int64_t redis_cluster_park(struct redis_cluster *cluster);

/* How many nodes there are, or were; the name of one, with port 0 if it is gone, and how it stands: in doubt if it cannot
 * be reached or has only refused of late, else with or without slots. */
enum redis_standing { REDIS_SERVES, REDIS_STANDS_BY, REDIS_IN_DOUBT };
size_t redis_cluster_nodes(const struct redis_cluster *cluster);
enum redis_standing redis_cluster_node(struct redis_cluster *cluster, size_t i, struct redis_node_name *name);

#endif
