/* cluster.h - a Redis Cluster of its own for a test or a benchmark: primaries, a replica for each, on free ports of
 * 127.0.0.1, with times so short that a failover takes two or three seconds.
 *
 * Nodes are known by their number, from 0: at first the primaries, in the order of their slots, and behind them their
 * replicas, the first primary's first. Who is a primary, and of which slots, changes: ask. Nothing here is told by the
 * library: what a slot is and who has it, the nodes say.
 *
 * Ports lie below those that the system gives to whoever connects: a node that is down and comes back finds its own
 * still free, and nobody who keeps connecting to it meets himself. All of it ends with the thread that started it, and
 * a node with the one that restarted it. One thread at a time may use a cluster; in the child of a fork it is known as
 * it was then.
 */
#ifndef WEIR_LAB_CLUSTER_H
#define WEIR_LAB_CLUSTER_H

#include "asker.h"
#include "redis_server.h"

enum {
    CLUSTER_NODES_MOST = 12,
    CLUSTER_WORDS_MOST = 48,
    CLUSTER_SLOTS = 16384,
    CLUSTER_NODE_TIMEOUT_MS = 1000, /* of silence, until a node is taken to be down */
    CLUSTER_PATIENT_MS = 15000,     /* the same in a cluster that is patient */
    CLUSTER_PATIENCE_MS = 30000     /* longest wait for what nodes must agree on */
};

struct cluster_wish {
    int primaries;        /* 0: 3 */
    bool without_replica; /* otherwise each primary has one */
    bool patient;         /* however busy the machine is, no node takes another to be down: for who kills none */
    bool partial;         /* slots without a primary leave the others served: cluster-require-full-coverage no */
    bool tls;             /* `server_words` name certificates: ports and bus then speak TLS alone */
    const char *password; /* NULL: none */
    /* More words for the command line of every node, up to a NULL; they stay the caller's, for as long as the cluster
     * lives. NULL: none. */
    const char *const *server_words;
    const char *const *uses; /* of its user, as redis_server_start_for() takes them; NULL: "in a cluster" alone */
};

struct cluster_node {
    struct redis_server server;
    struct asker asker; /* over the node's Unix socket; opened when it is needed */
    int port;
    bool up; /* runs and is not paused */
    char id[41], port_text[8], timeout_text[8];
    const char *words[CLUSTER_WORDS_MOST + 1];
};

struct cluster {
    struct cluster_wish wish;
    int n; /* nodes */
    struct cluster_node nodes[CLUSTER_NODES_MOST];
    char error[1024]; /* after a -1, why */
};

/* Start it, with the slots in equal parts, and wait until it is settled. `wish` may be NULL. 0, or -1 with a sentence
 * in cluster->error and nothing left behind. */
int cluster_start(struct cluster *cluster, const struct cluster_wish *wish);
void cluster_stop(struct cluster *cluster);

/* Wait until all nodes that are up say that all is well, agree on who has which slot, and every replica is in sync with
 * its primary. 0, or -1 with a sentence in cluster->error. */
int cluster_settle(struct cluster *cluster);

/* redis-cluster://, or with TLS rediss-cluster://, with `count` seeds from node `first` round; `user_info` is "" or
 * ends with '@', NULL: as the user of redis_user.h. */
void cluster_url(const struct cluster *cluster, int first, int count, const char *user_info, char *url, size_t size);

/* ---- What they say ---- */

/* The slot of a key, by its braces. */
unsigned cluster_key_slot(const char *key);

/* What a node that is up answers, as asker_ask() and asker_count() say; -1 of one that is not. */
#define cluster_ask(cluster, node, reply, size, ...) \
    asker_ask(cluster_asker(cluster, node), reply, size, __VA_ARGS__, NULL)
#define cluster_count(cluster, node, ...) asker_count(cluster_asker(cluster, node), __VA_ARGS__, NULL)
struct asker *cluster_asker(struct cluster *cluster, int node);

/* The number after `name` in a node's INFO; 0 if it is not there, or the node is not up. */
int64_t cluster_info(struct cluster *cluster, int node, const char *section, const char *name);

/* The node that is up and has a slot by its own word, by the newest if there are more; -1: none. */
int cluster_owner(struct cluster *cluster, unsigned slot);

/* Whether a node says of itself that it is a primary. */
bool cluster_is_primary(struct cluster *cluster, int node);

/* A node that is up and says it is the replica of that one; -1: none. */
int cluster_replica(struct cluster *cluster, int primary);

/* ---- What befalls them ---- */

/* As by kill -9; SIGSTOP and SIGCONT; started again as it was, knowing what it knew of the cluster. */
void cluster_kill(struct cluster *cluster, int node);
void cluster_pause(struct cluster *cluster, int node);
void cluster_resume(struct cluster *cluster, int node);
int cluster_restart(struct cluster *cluster, int node); /* 0, or -1 with a sentence in cluster->error */

/* Have a replica take its primary's place: in agreement with it, without it, without anybody's. It is only asked to:
 * cluster_await_owner() waits. 0, or -1 with a sentence in cluster->error. */
enum cluster_failover { CLUSTER_FAILOVER, CLUSTER_FAILOVER_FORCE, CLUSTER_FAILOVER_TAKEOVER };
int cluster_fail_over(struct cluster *cluster, int replica, enum cluster_failover how);

/* Wait until another node than `before` has the slot: its number, or -1 with a sentence in cluster->error. */
int cluster_await_owner(struct cluster *cluster, unsigned slot, int before);

/* Move a slot with its keys to another primary. 0, or -1 with a sentence in cluster->error. Let it settle before the
 * slot moves on: a primary that has not heard yet of the last move cannot make the next one known. */
int cluster_slot_move(struct cluster *cluster, unsigned slot, int to);

/* The same in three steps; between them keys are here and there. cluster_slot_carry() moves up to `most` keys and says
 * how many it moved. */
int cluster_slot_begin(struct cluster *cluster, unsigned slot, int from, int to);
int cluster_slot_carry(struct cluster *cluster, unsigned slot, int from, int to, int most);
int cluster_slot_end(struct cluster *cluster, unsigned slot, int from, int to);

#endif
