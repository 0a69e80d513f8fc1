/* node.c - the host and port of a server that a sentinel or a cluster's node has named. */
#include "backends/redis/wire/node.h"

#include "backends/redis/wire/text.h"

#include <strings.h>

static bool node_is_host_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || redis_is_digit(c) || c == '.' || c == '-' || c == '_' ||
           c == ':' || c == '%';
}

bool redis_node_name_set(struct redis_node_name *out, const char *host, size_t host_len, long long port)
{
    if (host_len > REDIS_HOST_MAX || port < 1 || port > 65535)
        return false;
    for (size_t i = 0; i < host_len; i++)
        if (!node_is_host_byte(host[i]))
            return false;
    if (host_len > 0)
        memcpy(out->host, host, host_len);
    out->host[host_len] = '\0';
    out->port = (int)port;
    return true;
}

bool redis_node_name_read(struct redis_node_name *out, const char *host, size_t host_len, const char *port,
                          size_t port_len)
{
    const struct redis_text digits = { port, port_len };
    return port_len <= 5 && redis_node_name_set(out, host, host_len, redis_text_number(digits, 1, 65535));
}

bool redis_node_name_is(const struct redis_node_name *a, const struct redis_node_name *b)
{
    return a->port == b->port && strcasecmp(a->host, b->host) == 0;
}
