/* cluster.h - a private Redis Cluster for a test or a benchmark: primaries with a replica each, on free ports of
 * 127.0.0.1, with timeouts so short that a failover takes two or three seconds.
 *
 * Nodes have numbers from 0: first the primaries in the order of their slots, then their replicas in the same order.
 * Roles and slots change, so ask for them. All answers come from the nodes, not from the library.
 *
 * Ports lie below the system's ephemeral ports. So a restarted node finds its port free, and a client that keeps
 * connecting cannot reach itself. The cluster ends with the thread that started it, and a restarted node with the
 * thread that restarted it. One thread at a time may use a cluster; a forked child keeps the view of that moment.
 */
#ifndef WEIR_LAB_CLUSTER_H
#define WEIR_LAB_CLUSTER_H

#include "asker.h"
#include "redis_server.h"

enum {
    CLUSTER_NODES_MOST = 12,
    CLUSTER_WORDS_MOST = 48,
    CLUSTER_SLOTS = 16384,
    CLUSTER_NODE_TIMEOUT_MS = 1000, /* silence after which a node counts as down */
    CLUSTER_PATIENT_MS = 15000,     /* the same in a patient cluster */
    CLUSTER_PATIENCE_MS = 30000     /* longest wait for the nodes' agreement */
};

struct cluster_wish {
    int primaries;        /* 0: 3 */
    bool without_replica; /* otherwise each primary has one */
    bool patient;         /* busy machines never make a node look down: for tests that kill none */
    bool partial;         /* slots without a primary do not stop the others: cluster-require-full-coverage no */
    bool tls;             /* `server_words` name certificates; ports and bus then speak only TLS */
    const char *password; /* NULL: none */
    /* More command-line words for every node, up to a NULL, which must outlive the cluster. NULL: none. */
    const char *const *server_words;
    const char *const *uses; /* its user's, as for redis_server_start_for(); NULL: only "in a cluster" */
};

struct cluster_node {
    struct redis_server server;
    struct asker asker; /* over the node's Unix socket; opened on first use */
    int port;
    bool up; /* runs and is not paused */
    char id[41], port_text[8], timeout_text[8];
    const char *words[CLUSTER_WORDS_MOST + 1];
};

struct cluster {
    struct cluster_wish wish;
    int n; /* nodes */
    struct cluster_node nodes[CLUSTER_NODES_MOST];
    char error[1024]; /* the reason after a -1 */
};

/* Start it with equal parts of the slots, and wait until it is settled. `wish` may be NULL. Return 0, or -1 with a
 * sentence in cluster->error and nothing left behind. */
int cluster_start(struct cluster *cluster, const struct cluster_wish *wish);
void cluster_stop(struct cluster *cluster);

/* Wait until all running nodes report no problem and agree on the slots, and every replica is in sync. Return 0, or
 * -1 with a sentence in cluster->error. */
int cluster_settle(struct cluster *cluster);

/* Write a redis-cluster:// URL (with TLS rediss-cluster://) of `count` seeds from node `first`, wrapping around.
 * `user_info` is "" or ends with '@'; NULL: the user of redis_user.h. */
void cluster_url(const struct cluster *cluster, int first, int count, const char *user_info, char *url, size_t size);

/* ---- What the nodes say ---- */

/* Return the slot of a key, from its braces. */
unsigned cluster_key_slot(const char *key);

/* Ask a running node, as asker_ask() and asker_count() do; -1 for others. */
#define cluster_ask(cluster, node, reply, size, ...) \
    asker_ask(cluster_asker(cluster, node), reply, size, __VA_ARGS__, NULL)
#define cluster_count(cluster, node, ...) asker_count(cluster_asker(cluster, node), __VA_ARGS__, NULL)
struct asker *cluster_asker(struct cluster *cluster, int node);

/* Return the number after `name` in a node's INFO; 0 if it is missing or the node is not running. */
int64_t cluster_info(struct cluster *cluster, int node, const char *section, const char *name);

/* Return the running node that claims a slot, the one with the newest claim if there are several; -1: none. */
int cluster_owner(struct cluster *cluster, unsigned slot);

/* True if a node says that it is a primary. */
bool cluster_is_primary(struct cluster *cluster, int node);

/* Return a running node that says it is the replica of `primary`; -1: none. */
int cluster_replica(struct cluster *cluster, int primary);

/* ---- What the test does to them ---- */

/* kill -9; SIGSTOP and SIGCONT; restart with what the node has stored. */
void cluster_kill(struct cluster *cluster, int node);
void cluster_pause(struct cluster *cluster, int node);
void cluster_resume(struct cluster *cluster, int node);
int cluster_restart(struct cluster *cluster, int node); /* 0, or -1 with a sentence in cluster->error */

/* Ask a replica to replace its primary: in agreement with it, without it, or without any vote. cluster_await_owner()
 * waits for the result. Return 0, or -1 with a sentence in cluster->error. */
enum cluster_failover { CLUSTER_FAILOVER, CLUSTER_FAILOVER_FORCE, CLUSTER_FAILOVER_TAKEOVER };
int cluster_fail_over(struct cluster *cluster, int replica, enum cluster_failover how);

/* Wait until another node than `before` has the slot. Return its number, or -1 with a sentence in cluster->error. */
int cluster_await_owner(struct cluster *cluster, unsigned slot, int before);

/* Move a slot with its keys to another primary. Return 0, or -1 with a sentence in cluster->error. Let it settle
 * before the slot moves on: a primary that has not heard of the last move cannot announce the next one. */
int cluster_slot_move(struct cluster *cluster, unsigned slot, int to);

/* The same in three steps, between which keys are on both sides. cluster_slot_carry() moves up to `most` keys and
 * returns how many it moved. */
int cluster_slot_begin(struct cluster *cluster, unsigned slot, int from, int to);
int cluster_slot_carry(struct cluster *cluster, unsigned slot, int from, int to, int most);
int cluster_slot_end(struct cluster *cluster, unsigned slot, int from, int to);

#endif
