/* acts_redis.c - faults of Redis, of the connections to it, and of a cluster's nodes: see acts.h. */
#include "acts.h"

#include <stdio.h>

enum {
    SLOW_US = 12000,     /* each way: too slow for leases, not for calls */
    TOO_SLOW_US = 100000 /* longer than a call's timeout */
};

/* Between these two, Redis answers no instance. */
static void gone(struct faults *faults, enum soak_place which)
{
    judge_gone(faults->place->judge, modes_on(which), now_us());
}

static void back(struct faults *faults)
{
    place_take(faults->place);
    judge_back(faults->place->judge, now_us());
}

/* ---- Redis ---- */

int redis_killed(struct faults *faults)
{
    redis_server_kill(&faults->place->redis);
    gone(faults, PLACE_REDIS);
    return 0;
}

int redis_returns(struct faults *faults)
{
    back(faults);
    return place_redis_restart(faults->place, true);
}

int redis_returns_empty(struct faults *faults)
{
    back(faults);
    faults_allow(faults, ALLOW_LOSS, modes_on(PLACE_REDIS), 0);
    return place_redis_restart(faults->place, false);
}

int redis_stopped(struct faults *faults)
{
    redis_server_pause(&faults->place->redis);
    gone(faults, PLACE_REDIS);
    return 0;
}

int redis_goes_on(struct faults *faults)
{
    back(faults);
    redis_server_resume(&faults->place->redis);
    return 0;
}

int scripts_flushed(struct faults *faults)
{
    return place_ask(faults->place, NULL, 0, "SCRIPT", "FLUSH") < 0 ? -1 : 0;
}

int flushed(struct faults *faults)
{
    faults_allow(faults, ALLOW_LOSS, modes_on(PLACE_REDIS), 0);
    return place_ask(faults->place, NULL, 0, "FLUSHALL") < 0 ? -1 : 0;
}

int clients_killed(struct faults *faults)
{
    return place_ask(faults->place, NULL, 0, "CLIENT", "KILL", "TYPE", "normal") < 0 ? -1 : 0;
}

int redis_full(struct faults *faults)
{
    return place_ask(faults->place, NULL, 0, "CONFIG", "SET", "maxmemory", "1") < 0 ? -1 : 0;
}

int redis_has_room(struct faults *faults)
{
    return place_ask(faults->place, NULL, 0, "CONFIG", "SET", "maxmemory", "0") < 0 ? -1 : 0;
}

int redis_busy(struct faults *faults)
{
    return place_ask(faults->place, NULL, 0, "CLIENT", "PAUSE", "150", "ALL") < 0 ? -1 : 0;
}

/* Write bytes that are no state over each mode's state, and remove them. */
static int for_each_state(struct faults *faults, bool write)
{
    for (int mode = 0; mode < MODES; mode++) {
        char key[64];
        snprintf(key, sizeof key, "weir:mode-%d:bucket:{key-0}", mode);
        if (soak_modes[mode].place != PLACE_REDIS)
            continue;
        if ((write ? place_ask(faults->place, NULL, 0, "SET", key, "no state", "PX", "60000")
                   : place_ask(faults->place, NULL, 0, "DEL", key)) < 0)
            return -1;
    }
    return 0;
}

int states_overwritten(struct faults *faults)
{
    atomic_store(&faults->place->ledger->overwritten, true);
    faults_allow(faults, ALLOW_LOSS, modes_on(PLACE_REDIS), 1);
    return for_each_state(faults, true);
}

int states_removed(struct faults *faults)
{
    return for_each_state(faults, false);
}

/* ---- Connections to Redis ---- */

int wire_goes_bad(struct faults *faults)
{
    fproxy_fault(faults->place->proxy, faults->wire, "EVALSHA", faults->wire_every, -1);
    return 0;
}

int wire_is_well(struct faults *faults)
{
    fproxy_fault(faults->place->proxy, FPROXY_NONE, NULL, 1, 0);
    fproxy_pace(faults->place->proxy, 0, 0, 1000);
    return 0;
}

int slow(struct faults *faults)
{
    fproxy_pace(faults->place->proxy, SLOW_US, SLOW_US, 1000);
    return 0;
}

int too_slow(struct faults *faults)
{
    fproxy_pace(faults->place->proxy, TOO_SLOW_US, 0, 1000);
    return 0;
}

int cut(struct faults *faults)
{
    fproxy_cut(faults->place->proxy, draw_below(&faults->chance, 2) == 0);
    return 0;
}

int frozen(struct faults *faults)
{
    fproxy_freeze(faults->place->proxy, true);
    gone(faults, PLACE_REDIS);
    return 0;
}

int thawed(struct faults *faults)
{
    back(faults);
    fproxy_freeze(faults->place->proxy, false);
    return 0;
}

int refused(struct faults *faults)
{
    fproxy_door(faults->place->proxy, FPROXY_REFUSE);
    fproxy_cut(faults->place->proxy, true);
    gone(faults, PLACE_REDIS);
    return 0;
}

int let_in(struct faults *faults)
{
    back(faults);
    fproxy_door(faults->place->proxy, FPROXY_OPEN);
    return 0;
}

/* ---- The cluster: a node without a replica, which loses its keys ---- */

int node_killed(struct faults *faults)
{
    faults->node = draw_below(&faults->chance, 3);
    faults_allow(faults, ALLOW_LOSS, modes_on(PLACE_CLUSTER), 0);
    cluster_kill(&faults->place->cluster, faults->node);
    gone(faults, PLACE_CLUSTER);
    return 0;
}

int node_returns(struct faults *faults)
{
    back(faults);
    if (cluster_restart(&faults->place->cluster, faults->node) != 0 || cluster_settle(&faults->place->cluster) != 0)
        return place_fail(faults->place, "the cluster: %s", faults->place->cluster.error);
    return 0;
}

int node_stopped(struct faults *faults)
{
    faults->node = draw_below(&faults->chance, 3);
    cluster_pause(&faults->place->cluster, faults->node);
    gone(faults, PLACE_CLUSTER);
    return 0;
}

int node_goes_on(struct faults *faults)
{
    back(faults);
    cluster_resume(&faults->place->cluster, faults->node);
    if (cluster_settle(&faults->place->cluster) != 0)
        return place_fail(faults->place, "the cluster: %s", faults->place->cluster.error);
    return 0;
}
