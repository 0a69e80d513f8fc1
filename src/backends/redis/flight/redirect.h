/* redirect.h - a redirect: a cluster node's answer that another node serves the slot. */
#ifndef BACKENDS_REDIS_FLIGHT_REDIRECT_H
#define BACKENDS_REDIS_FLIGHT_REDIRECT_H

#include "backends/redis/wire/node.h"
#include "backends/redis/wire/wire.h"

enum redis_redirection {
    REDIS_NO_REDIRECT,
    REDIS_REDIRECT_MOVED, /* the other node serves the slot from now on */
    REDIS_REDIRECT_ASK    /* the slot is moving; the other node may have the key already, and answers after ASKING */
};

struct redis_redirect {
    enum redis_redirection kind;
    unsigned slot;
    struct redis_node_name to; /* host "": the host of the node that answered */
};

/* Parse a reply. False: it is not a redirect; `kind` is then REDIS_NO_REDIRECT and the other fields are undefined. */
bool redis_redirect_read(const struct redis_reply *reply, struct redis_redirect *out);

#endif
