/* cluster_view.c - what the nodes of a cluster say, and whether all is well: see cluster.h and cluster_view.h. */
#include "cluster_view.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TELL_AGAIN_MS = 200 };

int cluster_fail(struct cluster *cluster, const char *format, ...)
{
    char sentence[sizeof cluster->error];
    va_list list;
    va_start(list, format);
    vsnprintf(sentence, sizeof sentence, format, list);
    va_end(list);
    memcpy(cluster->error, sentence, sizeof sentence);
    return -1;
}

void cluster_step(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = CLUSTER_STEP_MS * 1000000L }, NULL);
}

/* ---- Questions ---- */

struct asker *cluster_asker(struct cluster *cluster, int number)
{
    struct cluster_node *node = &cluster->nodes[number];
    const char *password = cluster->wish.password;
    if (!node->up)
        asker_close(&node->asker);
    else if (node->asker.fd < 0 && asker_open(&node->asker, node->server.socket) == 0 && password != NULL)
        asker_ask(&node->asker, NULL, 0, "AUTH", password, NULL);
    return &node->asker;
}

int64_t cluster_info(struct cluster *cluster, int number, const char *section, const char *name)
{
    static char reply[65536];
    const char *found = NULL;
    if (cluster_ask(cluster, number, reply, sizeof reply, "INFO", section) > 0)
        found = strstr(reply, name);
    return found == NULL ? 0 : strtoll(found + strlen(name), NULL, 10);
}

unsigned cluster_key_slot(const char *key)
{
    unsigned crc = 0;
    size_t len = strlen(key);
    const char *open = strchr(key, '{'), *close = open != NULL ? strchr(open, '}') : NULL;
    if (close != NULL && close > open + 1) {
        key = open + 1;
        len = (size_t)(close - key);
    }
    for (size_t i = 0; i < len; i++) {
        crc ^= (unsigned)(unsigned char)key[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1) & 0xffff;
    }
    return crc % CLUSTER_SLOTS;
}

/* ---- What a node knows ---- */

static int number_of(const struct cluster *cluster, const char *id)
{
    for (int i = 0; i < cluster->n; i++)
        if (strncmp(cluster->nodes[i].id, id, sizeof cluster->nodes[i].id - 1) == 0)
            return i;
    return -1;
}

/* Read "1-5460 7000 [93->-id]"; slots in brackets are in migration. */
static void read_slots(struct cluster_view *view, int owner, const char *slots)
{
    while (slots != NULL && *slots != '\0') {
        char *end;
        long first = strtol(slots, &end, 10), last = *end == '-' ? strtol(end + 1, NULL, 10) : first;
        for (long slot = first; end != slots && slot <= last && slot < CLUSTER_SLOTS; slot++)
            view->owners[slot] = owner;
        slots = strchr(slots, ' ');
        slots += slots != NULL;
    }
}

/* Read a line of CLUSTER NODES: id, address, flags, id of the primary, ping, pong, epoch, link, slots. */
static void read_node(const struct cluster *cluster, struct cluster_view *view, char *line)
{
    char *words[9] = { NULL };
    for (size_t i = 0; i < 9 && line != NULL; i++)
        words[i] = i < 8 ? strsep(&line, " ") : line;
    int number = words[7] != NULL ? number_of(cluster, words[0]) : -1;
    const char *flags = words[2];
    if (number < 0 || strstr(flags, "handshake") != NULL) {
        view->strangers = true;
        return;
    }
    view->primaries[number] = strstr(flags, "master") != NULL ? number : number_of(cluster, words[3]);
    view->well[number] = strstr(flags, "fail") == NULL && (words[1][0] != ':' || cluster->n == 1) &&
                         strcmp(words[7], "connected") == 0; /* a node learns its own address from the others */
    view->epochs[number] = strtoll(words[6], NULL, 10);
    read_slots(view, number, words[8]);
}

bool cluster_view_of(struct cluster *cluster, int number, struct cluster_view *view)
{
    static char reply[262144];
    *view = (struct cluster_view){ 0 };
    for (int i = 0; i < CLUSTER_SLOTS; i++)
        view->owners[i] = -1;
    for (int i = 0; i < CLUSTER_NODES_MOST; i++)
        view->primaries[i] = -1;
    if (cluster_ask(cluster, number, reply, sizeof reply, "CLUSTER", "NODES") <= 0 || reply[0] == '-')
        return false;
    for (char *rest = reply, *line; (line = strsep(&rest, "\n")) != NULL;)
        if (*line != '\0')
            read_node(cluster, view, line);
    return true;
}

int cluster_owner(struct cluster *cluster, unsigned slot)
{
    static struct cluster_view view;
    int owner = -1;
    long long newest = -1;
    for (int i = 0; i < cluster->n; i++)
        if (cluster->nodes[i].up && cluster_view_of(cluster, i, &view) && view.owners[slot] == i &&
            view.epochs[i] > newest) {
            owner = i;
            newest = view.epochs[i];
        }
    return owner;
}

bool cluster_is_primary(struct cluster *cluster, int node)
{
    static struct cluster_view view;
    return cluster_view_of(cluster, node, &view) && view.primaries[node] == node;
}

int cluster_replica(struct cluster *cluster, int primary)
{
    static struct cluster_view view;
    for (int i = 0; i < cluster->n; i++)
        if (i != primary && cluster->nodes[i].up && cluster_view_of(cluster, i, &view) && view.primaries[i] == primary)
            return i;
    return -1;
}

/* ---- Whether all is well ---- */

static bool is_well(struct cluster *cluster, int number, const struct cluster_view *view)
{
    char reply[2048];
    for (int i = 0; i < cluster->n; i++)
        if (cluster->nodes[i].up && !view->well[i]) {
            cluster_fail(cluster, "node %d cannot reach node %d", number, i);
            return false;
        }
    for (int slot = 0; slot < CLUSTER_SLOTS; slot++) {
        int owner = view->owners[slot];
        if (owner < 0 || !cluster->nodes[owner].up) {
            cluster_fail(cluster, "node %d: nobody has slot %d", number, slot);
            return false;
        }
    }
    if (cluster_ask(cluster, number, reply, sizeof reply, "CLUSTER", "INFO") < 0 ||
        strstr(reply, "cluster_state:ok") == NULL) {
        cluster_fail(cluster, "node %d says the cluster is down", number);
        return false;
    }
    if (view->primaries[number] != number &&
        (cluster_ask(cluster, number, reply, sizeof reply, "INFO", "replication") < 0 ||
         strstr(reply, "master_link_status:up") == NULL)) {
        cluster_fail(cluster, "node %d is not in sync with its primary", number);
        return false;
    }
    return true;
}

/* A primary with a stale epoch may claim a slot by it, and Redis 6 never corrects that. */
static bool same_epochs(const struct cluster_view *one, const struct cluster_view *other)
{
    for (int i = 0; i < CLUSTER_NODES_MOST; i++)
        if (one->primaries[i] == i && one->epochs[i] != other->epochs[i])
            return false;
    return true;
}

static bool is_settled(struct cluster *cluster)
{
    static struct cluster_view first, view;
    int seen = 0;
    for (int i = 0; i < cluster->n; i++) {
        if (!cluster->nodes[i].up)
            continue;
        struct cluster_view *its = seen++ == 0 ? &first : &view;
        if (!cluster_view_of(cluster, i, its) || its->strangers) {
            cluster_fail(cluster, "node %d does not know them all", i);
            return false;
        }
        if (!is_well(cluster, i, its))
            return false;
        if (memcmp(first.owners, its->owners, sizeof first.owners) != 0 ||
            memcmp(first.primaries, its->primaries, sizeof first.primaries) != 0 || !same_epochs(&first, its)) {
            cluster_fail(cluster, "node %d sees the cluster otherwise than others", i);
            return false;
        }
    }
    return seen > 0;
}

int cluster_await_owner(struct cluster *cluster, unsigned slot, int before)
{
    for (int waited = 0; waited < CLUSTER_PATIENCE_MS; waited += CLUSTER_STEP_MS) {
        int owner = cluster_owner(cluster, slot);
        if (owner >= 0 && owner != before)
            return owner;
        cluster_step();
    }
    return cluster_fail(cluster, "slot %u is not taken from node %d", slot, before);
}

/* True if `other` sees a node's role, slots and epoch as the node itself does. */
static bool is_seen_as_it_is(const struct cluster_view *views, int node, int other)
{
    for (int slot = 0; slot < CLUSTER_SLOTS; slot++)
        if ((views[node].owners[slot] == node) != (views[other].owners[slot] == node))
            return false;
    return views[other].primaries[node] == views[node].primaries[node] &&
           (views[node].primaries[node] != node || views[other].epochs[node] == views[node].epochs[node]);
}

/* Make a changed node introduce itself to those that do not know; gossip would take seconds. */
static void tell_changes(struct cluster *cluster)
{
    static struct cluster_view views[CLUSTER_NODES_MOST];
    char reply[64];
    for (int i = 0; i < cluster->n; i++)
        if (cluster->nodes[i].up && !cluster_view_of(cluster, i, &views[i]))
            return;
    for (int i = 0; i < cluster->n; i++)
        for (int other = 0; other < cluster->n; other++)
            if (cluster->nodes[i].up && cluster->nodes[other].up && !is_seen_as_it_is(views, i, other))
                cluster_ask(cluster, i, reply, sizeof reply, "CLUSTER", "MEET", "127.0.0.1",
                            cluster->nodes[other].port_text);
}

int cluster_settle(struct cluster *cluster)
{
    for (int waited = 0; waited < CLUSTER_PATIENCE_MS; waited += CLUSTER_STEP_MS) {
        if (is_settled(cluster))
            return 0;
        if (waited % TELL_AGAIN_MS == TELL_AGAIN_MS / 2)
            tell_changes(cluster);
        cluster_step();
    }
    return -1;
}
