/* replicas.c - what redis_replicas costs: distributed mode on a primary with one replica, with and without waiting
 * until the replica has acknowledged each charge. */
#include <asker.h>
#include <stdio.h>

#include "redis/ways.h"

enum { WAY_HASTY, WAY_DURABLE, WAYS };

/* The replica's copy starts at once and goes over the connection itself. */
static const char *const PRIMARY[] = { "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", NULL };

/* Wait until the replica follows. The first acknowledgement may come before the replica receives later writes, so wait
 * for two. */
static bool follows(const struct redis_server *primary)
{
    struct asker asker;
    char reply[32];
    int had = 0;
    if (asker_open(&asker, primary->socket) == 0)
        while (had < 2 && asker_ask(&asker, reply, sizeof reply, "SET", "awaited", "1", NULL) > 0 &&
               asker_count(&asker, "WAIT", "1", "8000", NULL) == 1)
            had++;
    asker_close(&asker);
    return had == 2;
}

/* Start both servers; on failure, return false with `why` and leave nothing running. They share a processor, although
 * elsewhere each has a machine. */
static bool replicas_start_servers(struct redis_server *primary, struct redis_server *replica, const char **why)
{
    static char port[8];
    static const char *const uses[] = { "redis_replicas", NULL }; /* WAIT needs its own right */
    const char *const config[] = { "--replicaof", "127.0.0.1", port, NULL };
    measure_unpin_main();
    bool has_replica = false;
    const bool has_primary = redis_server_start_for(primary, REDIS_SERVER_UNIX_AND_PORT, PRIMARY, uses) == 0;
    *why = primary->daemon.error;
    if (has_primary) {
        snprintf(port, sizeof port, "%d", primary->port);
        has_replica = redis_server_start_for(replica, REDIS_SERVER_UNIX_AND_PORT, config, uses) == 0;
        *why = replica->daemon.error;
    }
    if (has_replica) {
        measure_pin_server(primary->daemon.pid);
        measure_pin_server(replica->daemon.pid);
    }
    measure_pin_main();
    if (has_replica && follows(primary))
        return true;
    if (has_replica) {
        *why = "the replica does not follow";
        redis_server_stop(replica);
    }
    if (has_primary)
        redis_server_stop(primary);
    return false;
}

static void replicas_compare(struct bench *bench, const struct load *loads, int way)
{
    struct sample speed = sample_ratio(&loads[way].per_second, &loads[WAY_HASTY].per_second);
    report_sample(bench->report, "times without", &speed);
}

void bench_replicas(struct bench *bench)
{
    const struct store *common = store_of(bench, "replicas"); /* for its stream of keys */
    static struct store store;
    struct redis_server replica;
    const struct store *const stores[WAYS] = { &store, &store };
    const struct weir_options distributed = remote_options(WEIR_DISTRIBUTED);
    struct weir_options options[WAYS] = { distributed, distributed };
    const struct ways ways = { .section = "replicas",
                               .column = "how",
                               .store = &store,
                               .failed_alone = true,
                               .callers = ways_callers,
                               .n = WAYS,
                               .way = { { .name = "redis_replicas 0" }, { .name = "redis_replicas 1" } },
                               .compare = replicas_compare };
    const char *why;
    if (!common)
        return;
    store = *common;
    store.beside[0] = &replica;
    if (!replicas_start_servers(&store.server, &replica, &why)) {
        bench_missing(bench, "replicas", why);
        return;
    }
    snprintf(store.url, sizeof store.url, "%s", store.server.url);
    report_section(bench->report, "replicas",
                   "threads that wait for each decision before the next, on a primary with a replica, both on one "
                   "processor; otherwise as in callers");
    options[WAY_DURABLE].redis_replicas = 1;
    ways_measure_distributed(bench, &ways, stores, options);
    report_end_section(bench->report);
    redis_server_stop(&replica);
    redis_server_stop(&store.server);
}
