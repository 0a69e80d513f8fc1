/* replicated.h - a Redis primary and its replica with a proxy on the connection between them, for a test: on free
 * ports of 127.0.0.1.
 *
 * The primary's writes reach the replica at the proxy's pace; the proxy treats them as plain bytes. Writes that it
 * holds back are lost when the primary dies.
 */
#ifndef WEIR_LAB_REPLICATED_H
#define WEIR_LAB_REPLICATED_H

#include "fproxy.h"
#include "redis_server.h"

struct replicated {
    struct redis_server primary, replica;
    struct fproxy *link; /* its client is the replica, so its replies are the replication stream */
    char proxy_port[8];
    const char *replica_words[9];
    char error[768]; /* the reason after a -1 */
};

/* Start both, and wait until the replica has all of the primary's data. Return 0, or -1 with a sentence in
 * both->error and nothing left behind. */
int replicated_start(struct replicated *both);
void replicated_stop(struct replicated *both);

/* Wait until the replica has all writes so far; false after some seconds. */
bool replicated_await(struct replicated *both);

/* Kill the primary as by kill -9, together with the writes under way to the replica; make the replica a primary.
 * Return 0, or -1 with a sentence in both->error. */
int replicated_promote(struct replicated *both);

/* Cut them apart and make the replica a primary while the old one goes on. In silence, nothing is closed: the old
 * primary's connection stands, as where a network drops all packets. Return as above. */
int replicated_part(struct replicated *both);
int replicated_part_in_silence(struct replicated *both);

#endif
