/* replicated.h - a Redis primary and one replica of it, with a proxy on the connection between them, for a test: on free
 * ports of 127.0.0.1.
 *
 * What the primary writes reaches the replica at the pace of the proxy, which knows nothing of Redis here: held back by
 * it, it is lost when the primary dies and the connection is cut.
 */
#ifndef WEIR_LAB_REPLICATED_H
#define WEIR_LAB_REPLICATED_H

#include "fproxy.h"
#include "redis_server.h"

struct replicated {
    struct redis_server primary, replica;
    struct fproxy *link; /* client: the replica; so replies are what is replicated */
    char proxy_port[8];
    const char *replica_words[9];
    char error[768]; /* after a -1, why */
};

/* Start both, and wait until the replica has all that the primary has. 0, or -1 with a sentence in both->error and
 * nothing left behind. */
int replicated_start(struct replicated *both);
void replicated_stop(struct replicated *both);

/* Wait until the replica has all that was written so far: whether it has, within some seconds. */
bool replicated_await(struct replicated *both);

/* The primary dies as by kill -9, and what was on its way to the replica with it; the replica is made a primary. 0, or
 * -1 with a sentence in both->error. */
int replicated_promote(struct replicated *both);

/* They are cut off from one another, and the replica is made a primary while the other one goes on as one; with
 * silence: it is not told, as where a network swallows all, and its connection stands. As above. */
int replicated_part(struct replicated *both);
int replicated_part_in_silence(struct replicated *both);

#endif
