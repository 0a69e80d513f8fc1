/* node.h - what a sentinel or a node of a cluster says of where another server is: a host and a port.
 *
 * It comes from elsewhere, and goes to the system's resolver and into TLS: a host has bytes that names and addresses have,
 * and no others.
 */
#ifndef BACKENDS_REDIS_WIRE_NODE_H
#define BACKENDS_REDIS_WIRE_NODE_H

#include "backends/redis/wire/url.h"

struct redis_node_name {
    char host[REDIS_HOST_MAX + 1]; /* a name or an address, without brackets; "": that of the server that said so */
    int port;                      /* 1 to 65535 */
};

/* Any thread. False: host or port is none, and `out` is untouched. The host may be empty. */
bool redis_node_name_set(struct redis_node_name *out, const char *host, size_t host_len, long long port);

/* Likewise, with a port in digits. */
bool redis_node_name_read(struct redis_node_name *out, const char *host, size_t host_len, const char *port,
                          size_t port_len);

/* Whether both are the same; host names differ in more than the case of their letters. */
bool redis_node_name_is(const struct redis_node_name *a, const struct redis_node_name *b);

#endif
