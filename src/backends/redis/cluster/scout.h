/* scout.h - a thread that asks the nodes of a Redis Cluster which node serves which slots.
 *
 * It asks when an engine wants a new map, as long as slots have no node or a node of the map is down, and otherwise
 * once a minute. It asks one node at a time, each round beginning at another one: first healthy nodes with slots, then
 * healthy ones without, then the hosts of the URL, then the rest. While something is wrong it asks the same node a few
 * times on one connection. Pauses between questions grow, with jitter, to 0.35 to 0.7 s, however often engines want a
 * map. So instances do not all ask at the same time. If something is wrong but no engine wants a map, because no
 * request needs the missing slots, the scout asks ever more rarely, in the end every 2.5 to 5 s.
 *
 * It also calls redis_cluster_park() when that is due.
 */
#ifndef BACKENDS_REDIS_CLUSTER_SCOUT_H
#define BACKENDS_REDIS_CLUSTER_SCOUT_H

struct redis_cluster;
struct redis_scout;

/* WEIR_OK, WEIR_ENOMEM, or WEIR_EIO: the system has no descriptor left. */
int redis_scout_make(struct redis_cluster *cluster, struct redis_scout **out);

/* Start the thread. WEIR_OK, or WEIR_EIO: the system has no thread left. */
int redis_scout_start(struct redis_scout *scout);

/* Ask soon. Any thread. */
void redis_scout_look(struct redis_scout *scout);

/* Tell the thread to end; stop() also waits for it. */
void redis_scout_shut(struct redis_scout *scout);
void redis_scout_stop(struct redis_scout *scout);

void redis_scout_free(struct redis_scout *scout);

/* In the child of a fork, close the parent's descriptors. */
void redis_scout_abandon(struct redis_scout *scout);

#endif
