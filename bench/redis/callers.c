/* callers.c - decisions of many threads through Redis: weir's distributed mode next to a pool of blocking connections.
 *
 * All callers and weir's own thread share one processor; the server has another. As on a busy machine, the processor
 * time of either side thus bounds the decisions per second.
 */
#include "redis/pool.h"
#include "redis/remote.h"

static const int CALLERS[] = { 1, 2, 4, 8, 16, 32, 64, 0 };

enum { WAY_GATEWAY, WAY_SCRIPT, WAY_WEIR, WAYS };

static void callers_report(struct bench *bench, const struct load *loads, int way)
{
    const struct load *load = &loads[way];
    report_row(bench->report);
    report_count(bench->report, "callers", (uint64_t)load->threads);
    report_text(bench->report, "how", load->name);
    report_sample(bench->report, "decisions/s", &load->per_second);
    report_sample(bench->report, "server us", &load->server_us);
    report_sample(bench->report, "client us", &load->client_us);
    report_sample(bench->report, "p50 us", &load->p50_us);
    report_sample(bench->report, "p99 us", &load->p99_us);
    if (load->failed > 0)
        report_count(bench->report, "failed", load->failed);
    if (way == WAY_GATEWAY)
        return;
    const struct sample speed = sample_ratio(&load->per_second, &loads[WAY_GATEWAY].per_second);
    const struct sample server = sample_ratio(&load->server_us, &loads[WAY_GATEWAY].server_us);
    const struct sample like = sample_ratio(&load->per_second, &loads[WAY_SCRIPT].per_second);
    report_sample(bench->report, "times the gateway's", &speed);
    report_sample(bench->report, "server ratio", &server);
    if (way == WAY_WEIR)
        report_sample(bench->report, "times the script's", &like);
}

void bench_callers(struct bench *bench)
{
    const struct store *store = store_of(bench, "callers");
    struct pool pools[2];
    struct remote remote;
    const struct weir_options options = remote_options(WEIR_DISTRIBUTED);
    if (!store)
        return;
    store_section(bench, store, "callers",
                  "threads that wait for each decision before the next; CPU us per decision of the server and of this "
                  "process; median (min..max); callers on one processor, the server on another");
    const bool has_weir = remote_open(&remote, store, &options, CALLS_LIMIT, &calls_policies[KIND_TOKEN]);
    pool_open(&pools[0], store, POOL_GATEWAY, MEASURE_MAX_THREADS);
    pool_open(&pools[1], store, POOL_WEIR, MEASURE_MAX_THREADS);
    for (const int *callers = CALLERS; *callers > 0; callers++) {
        struct load loads[WAYS] = {
            { .name = "pool, gateway script", .call = pool_call, .subject = &pools[0] },
            { .name = "pool, weir's script", .call = pool_call, .subject = &pools[1] },
            { .name = "weir_try", .call = remote_call, .subject = &remote },
        };
        const int n = has_weir ? WAYS : WAY_WEIR;
        bench_progress("callers: %d at once", *callers);
        for (int way = 0; way < n; way++) {
            loads[way].threads = *callers;
            loads[way].step = 1;
            loads[way].stream = &store->stream;
        }
        load_measure(loads, n, bench->repeats, bench->seconds, store);
        for (int way = 0; way < n; way++)
            callers_report(bench, loads, way);
    }
    if (has_weir)
        remote_close(&remote);
    else
        remote_report_missing(bench);
    pool_close(&pools[0]);
    pool_close(&pools[1]);
}
