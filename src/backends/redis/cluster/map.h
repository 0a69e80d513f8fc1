/* map.h - which node of a Redis Cluster serves which slots, parsed from an answer to CLUSTER SLOTS.
 *
 * The answer is a list of ranges [first slot, last, primary, replica, ...]; a node is [host, port, id, ...], and with
 * Redis 7 and Valkey a list of more details. Replicas and everything behind the port are ignored. A host is a name or
 * an address, nil or "" for the host of the node that answers, or "?" if that node does not know it. Slots of such a
 * range, and slots in no range, have no node. If anything else is wrong the whole answer is refused, so half a map is
 * never used. An answer that leaves every slot without a node is refused, too: it comes from a node that was reset or
 * never joined a cluster.
 */
#ifndef BACKENDS_REDIS_CLUSTER_MAP_H
#define BACKENDS_REDIS_CLUSTER_MAP_H

#include "backends/redis/flight/key.h"
#include "backends/redis/wire/node.h"
#include "backends/redis/wire/wire.h"

#define REDIS_NODES_MAX 128 /* primaries */
#define REDIS_NOBODY UINT16_MAX

struct redis_map {
    size_t node_count;
    struct redis_node_name nodes[REDIS_NODES_MAX]; /* all different */
    uint16_t owner[REDIS_CLUSTER_SLOTS];           /* index into nodes, or REDIS_NOBODY */

    /* The answer being read. */
    size_t range;      /* the current one; SIZE_MAX before the first */
    unsigned expected; /* the part that comes next */
    long long first, last;
    char host[REDIS_HOST_MAX]; /* of the range's primary, no NUL at the end */
    size_t host_len;
    const char *refused; /* why the answer is refused; NULL: it is not */
};

void redis_map_begin(struct redis_map *map);

/* A redis_wire_visit whose user is the map; it never ends the connection. */
bool redis_map_visit(void *map, const struct redis_wire_scalar *scalar);

/* The answer is complete. False: it is refused, and the map must not be used; `why` is a string constant. */
bool redis_map_end(struct redis_map *map, const char **why);

#endif
