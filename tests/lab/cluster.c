/* cluster.c - a private Redis Cluster for a test or a benchmark: see cluster.h. */
#include "cluster.h"

#include "cluster_view.h"

#include <stdio.h>
#include <string.h>

enum {
    START_TRIES = 5,
    BUS_AWAY = 10000, /* a node's bus port is its port plus this; Redis 6 has no option for it */
    MEET_AGAIN_MS = 1500
};

/* ---- Commands ---- */

/* True if a node answers `expected` to a command that changes something; otherwise the error has the answer. */
#define told(cluster, number, expected, ...) \
    was_told(cluster, number, expected, cluster_ask(cluster, number, told_reply, sizeof told_reply, __VA_ARGS__))
static char told_reply[512];

static bool was_told(struct cluster *cluster, int number, const char *expected, ssize_t len)
{
    if (len >= 0 && strcmp(told_reply, expected) == 0)
        return true;
    cluster_fail(cluster, "node %d: %s", number, len < 0 ? cluster->nodes[number].asker.error : told_reply);
    return false;
}

/* ---- Start ---- */

static void node_words(struct cluster *cluster, struct cluster_node *node)
{
    snprintf(node->timeout_text, sizeof node->timeout_text, "%d",
             cluster->wish.patient ? CLUSTER_PATIENT_MS : CLUSTER_NODE_TIMEOUT_MS);
    const char **words = node->words, *password = cluster->wish.password;
    size_t n = 0;
    const char *const fixed[] = { "--cluster-enabled",
                                  "yes",
                                  "--cluster-node-timeout",
                                  node->timeout_text,
                                  "--cluster-require-full-coverage",
                                  cluster->wish.partial ? "no" : "yes",
                                  "--cluster-replica-validity-factor",
                                  "0",
                                  "--repl-diskless-sync-delay",
                                  "0",
                                  "--repl-ping-replica-period",
                                  "1",
                                  "--appendonly",
                                  "no",
                                  cluster->wish.tls ? "--tls-port" : "--port",
                                  node->port_text };
    for (; n < sizeof fixed / sizeof fixed[0]; n++)
        words[n] = fixed[n];
    const char *const secret[] = { "--requirepass", password, "--masterauth", password };
    for (size_t i = 0; password != NULL && i < sizeof secret / sizeof secret[0]; i++)
        words[n++] = secret[i];
    const char *const over_tls[] = { "--tls-cluster", "yes", "--tls-replication", "yes" };
    for (size_t i = 0; cluster->wish.tls && i < sizeof over_tls / sizeof over_tls[0]; i++)
        words[n++] = over_tls[i];
    for (const char *const *more = cluster->wish.server_words; more != NULL && *more != NULL; more++)
        if (n < CLUSTER_WORDS_MOST)
            words[n++] = *more;
    words[n] = NULL;
}

static int start_node(struct cluster *cluster, struct cluster_node *node)
{
    static const char *const in_a_cluster[] = { "in a cluster", NULL };
    const char *const *uses = cluster->wish.uses != NULL ? cluster->wish.uses : in_a_cluster;
    node->asker.fd = -1;
    for (int tries = START_TRIES; tries > 0; tries--) {
        node->port = daemon_port_free(BUS_AWAY);
        snprintf(node->port_text, sizeof node->port_text, "%d", node->port);
        node_words(cluster, node);
        node->up = redis_server_start_for(&node->server, REDIS_SERVER_UNIX, node->words, uses) == 0;
        if (node->up)
            return 0;
    }
    return cluster_fail(cluster, "a node: %s", node->server.daemon.error);
}

/* Read its id, and check that all ids differ at the start. */
static int name_node(struct cluster *cluster, int number)
{
    char epoch[16];
    struct cluster_node *node = &cluster->nodes[number];
    snprintf(epoch, sizeof epoch, "%d", number + 1);
    if (cluster_ask(cluster, number, node->id, sizeof node->id, "CLUSTER", "MYID") != sizeof node->id - 1)
        return cluster_fail(cluster, "node %d does not tell its id: %s", number, node->id);
    return told(cluster, number, "OK", "CLUSTER", "SET-CONFIG-EPOCH", epoch) ? 0 : -1;
}

/* Give the primary an equal part of the slots, the first one the remainder. One command, because the node saves its
 * state after each. */
static int give_slots(struct cluster *cluster, int primary)
{
    static char numbers[CLUSTER_SLOTS][12];
    static const char *words[CLUSTER_SLOTS + 2];
    static size_t lens[CLUSTER_SLOTS + 2];
    const int n = cluster->wish.primaries;
    int first = CLUSTER_SLOTS * primary / n, end = CLUSTER_SLOTS * (primary + 1) / n;
    size_t count = 0;
    words[count++] = "CLUSTER";
    words[count++] = "ADDSLOTS";
    for (int slot = first; slot < end; slot++) {
        snprintf(numbers[slot], sizeof numbers[slot], "%d", slot);
        words[count++] = numbers[slot];
    }
    for (size_t i = 0; i < count; i++)
        lens[i] = strlen(words[i]);
    ssize_t len = asker_ask_words(cluster_asker(cluster, primary), told_reply, sizeof told_reply, count, words, lens);
    return was_told(cluster, primary, "OK", len) ? 0 : -1;
}

/* Introduce nodes that this node does not know yet; gossip would take seconds. Return how many there were. */
static int introduce(struct cluster *cluster, int number)
{
    static struct cluster_view view;
    int unknown = 0;
    if (!cluster_view_of(cluster, number, &view))
        return 1;
    for (int i = 0; i < cluster->n; i++)
        if (view.primaries[i] < 0) {
            unknown++;
            cluster_ask(cluster, number, told_reply, sizeof told_reply, "CLUSTER", "MEET", "127.0.0.1",
                        cluster->nodes[i].port_text);
        }
    return unknown;
}

static bool all_known(struct cluster *cluster)
{
    static struct cluster_view view;
    for (int i = 0; i < cluster->n; i++) {
        if (!cluster_view_of(cluster, i, &view) || view.strangers)
            return false;
        for (int other = 0; other < cluster->n; other++)
            if (view.primaries[other] < 0)
                return false;
    }
    return true;
}

static int introduce_all(struct cluster *cluster)
{
    for (int waited = 0; waited < CLUSTER_PATIENCE_MS; waited += CLUSTER_STEP_MS) {
        if (waited % MEET_AGAIN_MS == 0) /* a handshake that took too long is forgotten */
            for (int i = 0; i < cluster->n; i++)
                introduce(cluster, i);
        if (all_known(cluster))
            return 0;
        cluster_step();
    }
    return cluster_fail(cluster, "the nodes do not know one another");
}

int cluster_start(struct cluster *cluster, const struct cluster_wish *wish)
{
    *cluster = (struct cluster){ 0 };
    if (wish != NULL)
        cluster->wish = *wish;
    int primaries = cluster->wish.primaries = cluster->wish.primaries != 0 ? cluster->wish.primaries : 3, error = 0;
    cluster->n = cluster->wish.without_replica ? primaries : 2 * primaries;
    if (cluster->n > CLUSTER_NODES_MOST) {
        cluster->n = 0;
        return cluster_fail(cluster, "more than %d nodes", CLUSTER_NODES_MOST);
    }
    for (int i = 0; i < cluster->n && error == 0; i++)
        error = start_node(cluster, &cluster->nodes[i]);
    for (int i = 0; i < cluster->n && error == 0; i++)
        error = name_node(cluster, i);
    for (int i = 0; i < primaries && error == 0; i++)
        error = give_slots(cluster, i);
    if (error == 0)
        error = introduce_all(cluster);
    for (int i = primaries; i < cluster->n && error == 0; i++)
        error = told(cluster, i, "OK", "CLUSTER", "REPLICATE", cluster->nodes[i - primaries].id) ? 0 : -1;
    if (error == 0)
        error = cluster_settle(cluster);
    for (int i = 0; i < cluster->n; i++)
        asker_close(&cluster->nodes[i].asker); /* each forked process opens its own connection */
    if (error != 0)
        cluster_stop(cluster);
    return error;
}

void cluster_stop(struct cluster *cluster)
{
    for (int i = 0; i < cluster->n; i++) {
        asker_close(&cluster->nodes[i].asker);
        cluster->nodes[i].up = false;
        redis_server_kill(&cluster->nodes[i].server); /* there is nothing to save */
        redis_server_stop(&cluster->nodes[i].server);
    }
}

void cluster_url(const struct cluster *cluster, int first, int count, const char *user_info, char *url, size_t size)
{
    int len = snprintf(url, size, "redis%s-cluster://%s", cluster->wish.tls ? "s" : "",
                       user_info != NULL ? user_info : cluster->nodes[0].server.login);
    for (int i = 0; i < count && len < (int)size; i++)
        len += snprintf(url + len, size - (size_t)len, "%s127.0.0.1:%d", i > 0 ? "," : "",
                        cluster->nodes[(first + i) % cluster->n].port);
}

/* ---- Trouble ---- */

void cluster_kill(struct cluster *cluster, int number)
{
    struct cluster_node *node = &cluster->nodes[number];
    node->up = false;
    asker_close(&node->asker);
    redis_server_kill(&node->server);
}

void cluster_pause(struct cluster *cluster, int number)
{
    cluster->nodes[number].up = false;
    redis_server_pause(&cluster->nodes[number].server);
}

void cluster_resume(struct cluster *cluster, int number)
{
    redis_server_resume(&cluster->nodes[number].server);
    cluster->nodes[number].up = true;
}

int cluster_restart(struct cluster *cluster, int number)
{
    struct cluster_node *node = &cluster->nodes[number];
    cluster_kill(cluster, number);
    if (redis_server_restart(&node->server) != 0)
        return cluster_fail(cluster, "node %d: %s", number, node->server.daemon.error);
    node->up = true;
    return 0;
}

int cluster_fail_over(struct cluster *cluster, int replica, enum cluster_failover how)
{
    static const char *const words[] = { [CLUSTER_FAILOVER_FORCE] = "FORCE", [CLUSTER_FAILOVER_TAKEOVER] = "TAKEOVER" };
    bool done = how == CLUSTER_FAILOVER ? told(cluster, replica, "OK", "CLUSTER", "FAILOVER")
                                        : told(cluster, replica, "OK", "CLUSTER", "FAILOVER", words[how]);
    return done ? 0 : -1;
}

/* ---- Slots in migration ---- */

int cluster_slot_begin(struct cluster *cluster, unsigned slot, int from, int to)
{
    char number[8];
    snprintf(number, sizeof number, "%u", slot);
    bool done = told(cluster, to, "OK", "CLUSTER", "SETSLOT", number, "IMPORTING", cluster->nodes[from].id) &&
                told(cluster, from, "OK", "CLUSTER", "SETSLOT", number, "MIGRATING", cluster->nodes[to].id);
    return done ? 0 : -1;
}

/* Read a key of any bytes: the answer is a list of one, which the asker ends with a newline. Return its length; 0:
 * none, or -1. */
static ssize_t key_in_slot(struct cluster *cluster, const char *slot, int node, char *key, size_t size)
{
    ssize_t len = cluster_ask(cluster, node, key, size, "CLUSTER", "GETKEYSINSLOT", slot, "1");
    if (len < 0 || key[0] == '-' || len >= (ssize_t)size)
        return cluster_fail(cluster, "node %d: no keys of slot %s are told", node, slot);
    return len > 0 ? len - 1 : 0;
}

int cluster_slot_carry(struct cluster *cluster, unsigned slot, int from, int to, int most)
{
    static char key[1024];
    char number[8];
    snprintf(number, sizeof number, "%u", slot);
    for (int count = 0; count < most; count++) {
        ssize_t len = key_in_slot(cluster, number, from, key, sizeof key);
        if (len <= 0)
            return len < 0 ? -1 : count;
        const char *words[12] = { "MIGRATE", "127.0.0.1", cluster->nodes[to].port_text, "", "0", "5000" };
        size_t lens[12], n = 6;
        if (cluster->wish.password != NULL) {
            words[n++] = "AUTH";
            words[n++] = cluster->wish.password;
        }
        words[n++] = "KEYS";
        for (size_t i = 0; i < n; i++)
            lens[i] = strlen(words[i]);
        words[n] = key;
        lens[n++] = (size_t)len;
        len = asker_ask_words(cluster_asker(cluster, from), told_reply, sizeof told_reply, n, words, lens);
        if (len < 0 || (strcmp(told_reply, "NOKEY") != 0 && !was_told(cluster, from, "OK", len)))
            return cluster_fail(cluster, "MIGRATE: node %d: %s", from, told_reply);
    }
    return most;
}

int cluster_slot_end(struct cluster *cluster, unsigned slot, int from, int to)
{
    char number[8];
    const char *id = cluster->nodes[to].id;
    snprintf(number, sizeof number, "%u", slot);
    /* The new owner must know before any other node hears that the old one gave it up. */
    bool done = told(cluster, to, "OK", "CLUSTER", "SETSLOT", number, "NODE", id) &&
                told(cluster, from, "OK", "CLUSTER", "SETSLOT", number, "NODE", id);
    return done ? 0 : -1;
}

int cluster_slot_move(struct cluster *cluster, unsigned slot, int to)
{
    int from = cluster_owner(cluster, slot), carried;
    if (from < 0 || from == to)
        return from == to ? 0 : cluster_fail(cluster, "nobody has slot %u", slot);
    if (cluster_slot_begin(cluster, slot, from, to) != 0)
        return -1;
    while ((carried = cluster_slot_carry(cluster, slot, from, to, 1000)) > 0)
        continue;
    return carried < 0 ? -1 : cluster_slot_end(cluster, slot, from, to);
}
