/* cluster.c - what a Redis Cluster costs: distributed mode on three primaries, and on one server that stands alone. */
#include <cluster.h>
#include <stdio.h>

#include "remote.h"

#define GOAL_CALLERS 64
#define GOAL_COST 1.15

static const int CALLERS[] = { 1, 8, 64 };
#define CALLERS_LEN 3

enum way { WAY_ALONE, WAY_CLUSTER, WAYS };
static const char *const WAY_NAMES[WAYS] = { "one server", "3 primaries" };

struct both {
    struct store stores[WAYS];
    struct cluster cluster;
};

/* False, with `why`: nothing is left behind. All servers share a processor: what they do at once elsewhere, they do one
 * after the other here. */
static bool start_servers(struct both *both, const char **why)
{
    static const struct cluster_wish wish = { .primaries = 3, .without_replica = true };
    struct redis_server *alone = &both->stores[WAY_ALONE].server;
    measure_unpin_main();
    const bool has_alone = redis_server_start(alone, REDIS_SERVER_UNIX_AND_PORT, NULL) == 0;
    const bool has_cluster = has_alone && cluster_start(&both->cluster, &wish) == 0;
    *why = has_alone ? both->cluster.error : alone->daemon.error;
    if (has_cluster) {
        struct redis_server *any = &both->stores[WAY_CLUSTER].server;
        measure_pin_server(alone->daemon.pid);
        for (int i = 0; i < both->cluster.n; i++)
            measure_pin_server(both->cluster.nodes[i].server.daemon.pid);
        *any = both->cluster.nodes[0].server;
        cluster_url(&both->cluster, 0, 3, NULL, any->url, sizeof any->url);
        snprintf(alone->url, sizeof alone->url, "%s", alone->tcp_url);
    } else if (has_alone) {
        redis_server_stop(alone);
    }
    measure_pin_main();
    return has_cluster;
}

static void measure(struct bench *bench, struct both *both, struct remote *remotes)
{
    for (int i = 0; i < CALLERS_LEN; i++) {
        static struct load loads[WAYS];
        bench_progress("cluster: %d callers", CALLERS[i]);
        for (int way = 0; way < WAYS; way++)
            loads[way] = (struct load){ .name = WAY_NAMES[way],
                                        .call = remote_call,
                                        .subject = &remotes[way],
                                        .threads = CALLERS[i],
                                        .step = 1,
                                        .stream = &both->stores[way].stream };
        load_measure(loads, WAYS, bench->repeats, bench->seconds, &both->stores[WAY_ALONE]);
        for (int way = 0; way < WAYS; way++) {
            report_row(bench->report);
            report_count(bench->report, "callers", (uint64_t)CALLERS[i]);
            report_text(bench->report, "on", loads[way].name);
            report_sample(bench->report, "decisions/s", &loads[way].per_second);
            report_sample(bench->report, "client us", &loads[way].client_us);
            report_sample(bench->report, "p50 us", &loads[way].p50_us);
            report_sample(bench->report, "p99 us", &loads[way].p99_us);
            if (loads[way].failed > 0)
                report_count(bench->report, "failed", loads[way].failed);
            if (way == WAY_ALONE)
                continue;
            struct sample cost = sample_ratio(&loads[WAY_CLUSTER].client_us, &loads[WAY_ALONE].client_us);
            report_sample(bench->report, "client, times one's", &cost);
            if (CALLERS[i] == GOAL_CALLERS)
                report_goal(bench->report, "client's CPU a decision on 3 primaries to that on one server, callers: 64",
                            &cost, AT_MOST, GOAL_COST);
        }
    }
}

void bench_cluster(struct bench *bench)
{
    const struct store *store = store_of(bench, "cluster"); /* for its stream of keys */
    static struct both both;
    struct remote remotes[WAYS];
    const struct weir_options options = remote_options(WEIR_DISTRIBUTED);
    const char *why;
    if (!store)
        return;
    both.stores[WAY_ALONE] = both.stores[WAY_CLUSTER] = *store;
    if (!start_servers(&both, &why)) {
        bench_missing(bench, "cluster", why);
        return;
    }
    report_section(
        bench->report, "cluster",
        "threads that each wait for one decision after the other, over TCP on the loopback, on one server and "
        "on a cluster of three, which share a processor with it; as in callers");
    int opened = 0;
    while (opened < WAYS &&
           remote_open(&remotes[opened], &both.stores[opened], &options, CALLS_LIMIT, &calls_policies[KIND_TOKEN]))
        opened++;
    if (opened == WAYS)
        measure(bench, &both, remotes);
    else
        remote_report_missing(bench);
    while (opened > 0)
        remote_close(&remotes[--opened]);
    report_end_section(bench->report);
    cluster_stop(&both.cluster);
    redis_server_stop(&both.stores[WAY_ALONE].server);
}
