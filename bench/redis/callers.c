/* callers.c - decisions of many threads through Redis: weir's distributed mode next to a pool of blocking connections.
 *
 * All callers and weir's own thread share one processor; the server has another. As on a busy machine, the processor
 * time of either side thus bounds the decisions per second. A second table has one thread that wants many decisions.
 */
#include "redis/pool.h"
#include "redis/submitted.h"
#include "redis/ways.h"

static const int CALLERS[] = { 1, 2, 4, 8, 16, 32, 64, 0 };

enum { WAY_GATEWAY, WAY_SCRIPT, WAY_WEIR, WAYS };

static void callers_compare(struct bench *bench, const struct load *loads, int way)
{
    const struct load *load = &loads[way];
    struct sample speed = sample_ratio(&load->per_second, &loads[WAY_GATEWAY].per_second);
    struct sample server = sample_ratio(&load->server_us, &loads[WAY_GATEWAY].server_us);
    report_sample(bench->report, "times the gateway's", &speed);
    report_sample(bench->report, "server ratio", &server);
    if (way != WAY_WEIR)
        return;
    struct sample like = sample_ratio(&load->per_second, &loads[WAY_SCRIPT].per_second);
    report_sample(bench->report, "times the script's", &like);
}

/* ---- Many decisions of one thread ---- */

static void many_compare(struct bench *bench, const struct load *loads, int way)
{
    struct sample ratio = sample_ratio(&loads[way].per_second, &loads[0].per_second);
    report_sample(bench->report, "times the submitted", &ratio);
}

static void measure_many(struct bench *bench, const struct store *store)
{
    static const int one[] = { 1, 0 };
    static struct submitted submitted;
    struct remote remotes[2];
    const struct weir_options options = remote_options(WEIR_DISTRIBUTED);
    int opened = 0;
    while (opened < 2 && remote_open(&remotes[opened], store, &options, CALLS_LIMIT, &calls_policies[KIND_TOKEN]))
        opened++;
    if (opened == 2) {
        const struct ways ways = { .section = "many",
                                   .column = "how",
                                   .store = store,
                                   .callers = one,
                                   .n = 2,
                                   .way = { { "weir_submit, 256 at a time", submitted_call, &submitted,
                                              SUBMITTED_MOST },
                                            { "weir_try_batch of 256", remote_call_batch, &remotes[1], 256 } },
                                   .compare = many_compare };
        submitted_begin(&submitted, &remotes[0]);
        ways_measure(bench, &ways);
        submitted_end(&submitted);
    } else {
        remote_report_missing(bench);
    }
    while (opened > 0)
        remote_close(&remotes[--opened]);
}

/* ---- The sections ---- */

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
    const struct ways ways = { .section = "callers",
                               .column = "how",
                               .store = store,
                               .callers = CALLERS,
                               .n = has_weir ? WAYS : WAY_WEIR,
                               .way = { { "pool, gateway script", pool_call, &pools[0], 1 },
                                        { "pool, weir's script", pool_call, &pools[1], 1 },
                                        { "weir_try", remote_call, &remote, 1 } },
                               .compare = callers_compare };
    pool_open(&pools[0], store, POOL_GATEWAY, MEASURE_MAX_THREADS);
    pool_open(&pools[1], store, POOL_WEIR, MEASURE_MAX_THREADS);
    ways_measure(bench, &ways);
    if (has_weir)
        remote_close(&remote);
    else
        remote_report_missing(bench);
    pool_close(&pools[0]);
    pool_close(&pools[1]);
    store_section(bench, store, "many",
                  "one thread that wants many decisions, 256 a call or at a time; p50 and p99 are of 256 decisions; "
                  "otherwise as above");
    measure_many(bench, store);
}
