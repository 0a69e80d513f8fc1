/* cluster.c - what a Redis Cluster costs: distributed mode on three primaries, and on one standalone server. */
#include <cluster.h>
#include <stdio.h>

#include "redis/ways.h"

#define GOAL_CALLERS 64
#define GOAL_COST 1.15
#define PRIMARIES 3

_Static_assert(PRIMARIES <= STORE_BESIDE_MAX, "store.beside has room for each");

enum { WAY_ALONE, WAY_CLUSTER, WAYS };

struct both {
    struct store stores[WAYS];
    struct cluster cluster;
};

/* Start all servers; on failure, return false with `why` and leave nothing running. The servers share one processor:
 * here they do in turn what they would do in parallel elsewhere. */
static bool cluster_start_servers(struct both *both, const char **why)
{
    static const struct cluster_wish wish = { .primaries = PRIMARIES, .without_replica = true };
    struct redis_server *alone = &both->stores[WAY_ALONE].server;
    measure_unpin_main();
    const bool has_alone = redis_server_start(alone, REDIS_SERVER_UNIX_AND_PORT, NULL) == 0;
    const bool has_cluster = has_alone && cluster_start(&both->cluster, &wish) == 0;
    *why = has_alone ? both->cluster.error : alone->daemon.error;
    if (has_cluster) {
        struct store *any = &both->stores[WAY_CLUSTER];
        measure_pin_server(alone->daemon.pid);
        for (int i = 0; i < PRIMARIES; i++) {
            measure_pin_server(both->cluster.nodes[i].server.daemon.pid);
            both->stores[WAY_ALONE].beside[i] = &both->cluster.nodes[i].server;
        }
        any->server = both->cluster.nodes[0].server;
        cluster_url(&both->cluster, 0, PRIMARIES, NULL, any->url, sizeof any->url);
        snprintf(both->stores[WAY_ALONE].url, sizeof any->url, "%s", alone->tcp_url);
    } else if (has_alone) {
        redis_server_stop(alone);
    }
    measure_pin_main();
    return has_cluster;
}

static void cluster_compare(struct bench *bench, const struct load *loads, int way)
{
    struct sample cost = sample_ratio(&loads[way].client_us, &loads[WAY_ALONE].client_us);
    report_sample(bench->report, "client, times one's", &cost);
    if (loads[way].threads == GOAL_CALLERS)
        report_goal(bench->report, "client CPU per decision, 3 primaries relative to one server, callers: 64", &cost,
                    AT_MOST, GOAL_COST);
}

void bench_cluster(struct bench *bench)
{
    const struct store *store = store_of(bench, "cluster"); /* for its stream of keys */
    static struct both both;
    const struct store *const stores[WAYS] = { &both.stores[WAY_ALONE], &both.stores[WAY_CLUSTER] };
    const struct weir_options distributed = remote_options(WEIR_DISTRIBUTED);
    const struct weir_options options[WAYS] = { distributed, distributed };
    const struct ways ways = { .section = "cluster",
                               .column = "on",
                               .store = stores[WAY_ALONE],
                               .other_servers = true,
                               .callers = ways_callers,
                               .n = WAYS,
                               .way = { { .name = "one server" }, { .name = "3 primaries" } },
                               .compare = cluster_compare };
    const char *why;
    if (!store)
        return;
    both.stores[WAY_ALONE] = both.stores[WAY_CLUSTER] = *store;
    if (!cluster_start_servers(&both, &why)) {
        bench_missing(bench, "cluster", why);
        return;
    }
    report_section(
        bench->report, "cluster",
        "threads that wait for each decision before the next, over TCP on the loopback, on one server and on a "
        "cluster of three; all servers share a processor; otherwise as in callers");
    ways_measure_distributed(bench, &ways, stores, options);
    report_end_section(bench->report);
    cluster_stop(&both.cluster);
    redis_server_stop(&both.stores[WAY_ALONE].server);
}
