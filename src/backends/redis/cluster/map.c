/* map.c - which node of a Redis Cluster serves which slots, parsed from an answer to CLUSTER SLOTS. */
#include "backends/redis/cluster/map.h"

#include <string.h>

#define NOT_KNOWN (REDIS_NOBODY - 1) /* while reading: the owner of slots whose host is unknown */

#define NO_RANGE "a range of slots is not [first, last, [host, port, ...], ...]"

/* In the order of the answer. */
enum part { FIRST_SLOT, LAST_SLOT, HOST, PORT, REST, NO_PART };

void redis_map_begin(struct redis_map *map)
{
    map->node_count = 0;
    memset(map->owner, 0xff, sizeof map->owner); /* REDIS_NOBODY */
    map->range = SIZE_MAX;
    map->expected = REST;
    map->refused = NULL;
}

/* ---- Ranges: each function returns why the answer is refused, or NULL ---- */

static enum part map_part(const struct redis_wire_scalar *scalar)
{
    const size_t *place = scalar->place;
    if (scalar->depth == 2 && place[1] < 2)
        return place[1] == 0 ? FIRST_SLOT : LAST_SLOT;
    if (scalar->depth == 3 && place[1] == 2 && place[2] < 2)
        return place[2] == 0 ? HOST : PORT;
    if (scalar->depth >= 3 && (place[1] > 2 || (place[1] == 2 && place[2] > 1)))
        return REST;
    return NO_PART;
}

/* Return the index of the node, which is added if it is new. REDIS_NOBODY: there is no room. */
static uint16_t map_node(struct redis_map *map, const struct redis_node_name *name)
{
    for (size_t i = 0; i < map->node_count; i++)
        if (redis_node_name_is(&map->nodes[i], name))
            return (uint16_t)i;
    if (map->node_count == REDIS_NODES_MAX)
        return REDIS_NOBODY;
    map->nodes[map->node_count] = *name;
    return (uint16_t)map->node_count++;
}

static const char *map_take_slot(const struct redis_wire_scalar *scalar, long long least, long long *out)
{
    if (!scalar->is_number || scalar->number < least || scalar->number >= REDIS_CLUSTER_SLOTS)
        return "a slot is not a number of 0 to 16383, or a range ends before it begins";
    *out = scalar->number;
    return NULL;
}

static const char *map_take_host(struct redis_map *map, const struct redis_wire_scalar *scalar)
{
    if ((!scalar->text && !scalar->is_nil) || scalar->len > sizeof map->host)
        return "a node's host is not a string of at most 253 bytes";
    if (scalar->len > 0)
        memcpy(map->host, scalar->text, scalar->len);
    map->host_len = scalar->len;
    return NULL;
}

/* The port completes the range. */
static const char *map_take_port(struct redis_map *map, const struct redis_wire_scalar *scalar)
{
    const bool is_known = map->host_len != 1 || map->host[0] != '?';
    struct redis_node_name name;
    if (!scalar->is_number || !redis_node_name_set(&name, map->host, is_known ? map->host_len : 0, scalar->number))
        return "a node's host or port is invalid";
    const uint16_t node = is_known ? map_node(map, &name) : NOT_KNOWN;
    if (node == REDIS_NOBODY)
        return "there are too many nodes";
    for (long long slot = map->first; slot <= map->last; slot++) {
        if (map->owner[slot] != REDIS_NOBODY)
            return "two ranges overlap";
        map->owner[slot] = node;
    }
    return NULL;
}

static const char *map_take(struct redis_map *map, const struct redis_wire_scalar *scalar)
{
    const enum part part = map_part(scalar);
    if (scalar->place[0] != map->range) {
        if (map->expected != REST || scalar->place[0] != map->range + 1)
            return NO_RANGE;
        map->range++;
        map->expected = FIRST_SLOT;
    }
    if (part != map->expected)
        return NO_RANGE;
    if (part == REST)
        return NULL;
    map->expected++;
    switch (part) {
    case FIRST_SLOT: return map_take_slot(scalar, 0, &map->first);
    case LAST_SLOT: return map_take_slot(scalar, map->first, &map->last);
    case HOST: return map_take_host(map, scalar);
    default: return map_take_port(map, scalar);
    }
}

bool redis_map_visit(void *user, const struct redis_wire_scalar *scalar)
{
    struct redis_map *map = user;
    if (!map->refused)
        map->refused = map_take(map, scalar);
    return true;
}

bool redis_map_end(struct redis_map *map, const char **why)
{
    if (!map->refused && map->expected != REST)
        map->refused = NO_RANGE;
    if (!map->refused && map->node_count == 0)
        map->refused = "no slot has a node";
    *why = map->refused;
    for (size_t i = 0; !map->refused && i < REDIS_CLUSTER_SLOTS; i++)
        if (map->owner[i] == NOT_KNOWN)
            map->owner[i] = REDIS_NOBODY;
    return !map->refused;
}
