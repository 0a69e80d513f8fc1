/* map.h - which node of a Redis Cluster has which slots, by what the nodes answer to CLUSTER SLOTS.
 *
 * CLUSTER SLOTS is answered by a list of ranges [first slot, last, primary, replica, ...], a node being [host, port, id,
 * ...], and Redis 7 and Valkey add a list of what else is known of it. Replicas and all behind the port are passed over.
 * A host may be a name or an address, nil or "" for that of the node that was asked, or "?" where nobody knows it: the
 * slots of that range then have nobody, like those that stand in no range.
 * It is all or nothing: an answer in which anything else is amiss is refused, so that no half of a map is used. One in
 * which no slot has a node is refused, too: so answers a node that has been reset, or never was of a cluster.
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
    struct redis_node_name nodes[REDIS_NODES_MAX]; /* no two alike */
    uint16_t owner[REDIS_CLUSTER_SLOTS];           /* index into nodes, or REDIS_NOBODY */

    /* The answer that is being read. */
    size_t range;      /* the one at hand; before the first SIZE_MAX */
    unsigned expected; /* which part of it comes next */
    long long first, last;
    char host[REDIS_HOST_MAX]; /* of its primary, no NUL after it */
    size_t host_len;
    const char *refused; /* why it is; NULL: it is not */
};

void redis_map_begin(struct redis_map *map);

/* A redis_wire_visit whose user is the map; it never ends the connection. */
bool redis_map_visit(void *map, const struct redis_wire_scalar *scalar);

/* The whole answer has come: here is the map; or false: it is refused, `why` says why in words that stay, and the map
 * must not be used. */
bool redis_map_end(struct redis_map *map, const char **why);

#endif
