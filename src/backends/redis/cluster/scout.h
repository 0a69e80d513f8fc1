/* scout.h - asks the nodes of a Redis Cluster which of them has which slots, on a thread of its own.
 *
 * It asks when it is told to look, and goes on as long as slots have no node or a node of the map cannot be reached;
 * else once in a while. One node is asked at a time: first those with slots that are well, then those without that are,
 * then the URL's, then the others, each time beginning at another one; but while something is amiss one is asked a few
 * times on the same connection. Pauses between two questions grow, with jitter, to 0.35 to 0.7 s: so many
 * instances do not ask at once, and however often they are told to look they ask that often at most. What is amiss but
 * nobody tells it to look for, since no key of it is asked for, it asks about ever more rarely: in the end each 2.5 to
 * 5 s.
 *
 * It also lets go of nodes that have left, when it is time.
 */
#ifndef BACKENDS_REDIS_CLUSTER_SCOUT_H
#define BACKENDS_REDIS_CLUSTER_SCOUT_H

struct redis_cluster;
struct redis_scout;

/* WEIR_OK, WEIR_ENOMEM, or WEIR_EIO: no descriptor to be had. */
int redis_scout_make(struct redis_cluster *cluster, struct redis_scout **out);

/* Begin to ask. WEIR_OK, or WEIR_EIO: no thread to be had. */
int redis_scout_start(struct redis_scout *scout);

/* Ask soon. Any thread. */
void redis_scout_look(struct redis_scout *scout);

/* End; does not wait, and then waits for that. */
void redis_scout_shut(struct redis_scout *scout);
void redis_scout_stop(struct redis_scout *scout);

void redis_scout_free(struct redis_scout *scout);

/* In a child, close what belongs to the parent. */
void redis_scout_abandon(struct redis_scout *scout);

#endif
