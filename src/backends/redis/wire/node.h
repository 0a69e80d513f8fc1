/* node.h - the host and port of a server that a sentinel or a cluster's node has named.
 *
 * They come from the network and go to the system's resolver and to TLS, so a host may contain only the bytes that
 * names and addresses are made of.
 */
#ifndef BACKENDS_REDIS_WIRE_NODE_H
#define BACKENDS_REDIS_WIRE_NODE_H

#include "backends/redis/wire/url.h"

struct redis_node_name {
    char host[REDIS_HOST_MAX + 1]; /* a name or an address, no brackets; "": the host of the server that named it */
    int port;                      /* 1 to 65535 */
};

/* Set `out`. False: the host or the port is invalid, and `out` is untouched. The host may be empty. */
bool redis_node_name_set(struct redis_node_name *out, const char *host, size_t host_len, long long port);

/* The same, with a port in digits. */
bool redis_node_name_read(struct redis_node_name *out, const char *host, size_t host_len, const char *port,
                          size_t port_len);

/* True if both are the same; the case of letters does not count. */
bool redis_node_name_is(const struct redis_node_name *a, const struct redis_node_name *b);

#endif
