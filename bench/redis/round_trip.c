/* round_trip.c - how long a single caller waits for a decision, next to a blocking call of the same script. */
#include "redis/pool.h"
#include "redis/remote.h"

#define GOAL_RATIO 1.25

enum trip { TRIP_SCRIPT, TRIP_PING, TRIP_GATEWAY, TRIP_WEIR, TRIPS };
static const char *const TRIP_NAMES[TRIPS] = { "hiredis, weir's script", "hiredis, PING", "hiredis, gateway script",
                                               "weir_try" };
static const enum pool_script SCRIPTS[TRIP_WEIR] = { POOL_WEIR, POOL_PING, POOL_GATEWAY };

static void report_trip(struct bench *bench, const struct load *load, const struct load *loads)
{
    struct sample to_script = sample_ratio(&load->p50_us, &loads[TRIP_SCRIPT].p50_us);
    struct sample to_ping = sample_ratio(&load->p50_us, &loads[TRIP_PING].p50_us);
    report_row(bench->report);
    report_text(bench->report, "how", load->name);
    report_sample(bench->report, "p50 us", &load->p50_us);
    report_sample(bench->report, "p99 us", &load->p99_us);
    report_sample(bench->report, "client us", &load->client_us);
    report_sample(bench->report, "p50 to the script's", &to_script);
    report_sample(bench->report, "p50 to PING's", &to_ping);
    if (load->failed > 0)
        report_count(bench->report, "failed", load->failed);
    if (load == &loads[TRIP_WEIR])
        report_goal(bench->report, "p50 of a single caller, relative to a blocking call of the same script", &to_script,
                    AT_MOST, GOAL_RATIO);
}

void bench_round_trip(struct bench *bench)
{
    const struct store *store = store_of(bench, "round-trip");
    static struct load loads[TRIPS];
    struct pool pools[TRIP_WEIR];
    struct remote remote;
    const struct weir_options options = remote_options(WEIR_DISTRIBUTED);
    if (!store)
        return;
    store_section(bench, store, "round-trip",
                  "one caller, one call at a time, its processor and the server's otherwise idle; client us: CPU time "
                  "of this process per call; median (min..max) of the repetitions");
    bool has_weir = remote_open(&remote, store, &options, CALLS_LIMIT, &calls_policies[KIND_TOKEN]);
    bench_progress("round-trip");
    for (int i = 0; i < TRIPS; i++) {
        if (i < TRIP_WEIR)
            pool_open(&pools[i], store, SCRIPTS[i], 1);
        loads[i] = (struct load){ .name = TRIP_NAMES[i],
                                  .call = i == TRIP_WEIR ? remote_call : pool_call,
                                  .subject = i == TRIP_WEIR ? (void *)&remote : &pools[i],
                                  .threads = 1,
                                  .step = 1,
                                  .stream = &store->stream };
    }
    int trips = has_weir ? TRIPS : TRIP_WEIR;
    load_measure(loads, trips, bench->repeats, 2 * bench->seconds, store);
    for (int i = 0; i < trips; i++)
        report_trip(bench, &loads[i], loads);
    for (int i = 0; i < TRIP_WEIR; i++)
        pool_close(&pools[i]);
    if (has_weir)
        remote_close(&remote);
    else
        remote_report_missing(bench);
    report_end_section(bench->report);
}
