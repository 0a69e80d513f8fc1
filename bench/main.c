/* main.c - weir-bench: what weir's decisions cost, next to floors and yardsticks measured in the same run.
 *
 * Every figure is a median of repetitions with its spread; figures that are compared are measured in turns. Absolute
 * figures do not carry over to other machines or days; ratios nearly do. Unless the options say otherwise, the program
 * measures the three modes side by side, in one table.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cluster_sim.h"
#include "options.h"
#include "report/runs.h"

/* The parts that need Redis, TLS or Consul are absent from a build without them. */
#ifdef WEIR_REDIS
#define WITH_REDIS(function) function
#else
#define WITH_REDIS(function) NULL
#endif
#ifdef WEIR_TLS
#define WITH_TLS(function) function
#else
#define WITH_TLS(function) NULL
#endif
#ifdef WEIR_CONSUL
#define WITH_CONSUL(function) function
#else
#define WITH_CONSUL(function) NULL
#endif

static const struct section SECTIONS[] = {
    { .name = "memory", .run = bench_memory }, /* memory and growth come first, in children, while the heap is unused */
    { .name = "growth", .run = bench_growth },
    { .name = "goals", .run = bench_goals },
    { .name = "floors", .run = bench_floors },
    { .name = "decisions", .run = bench_decisions },
    { .name = "denials", .run = bench_denials },
    { .name = "full", .run = bench_full },
    { .name = "latency", .run = bench_latency },
    { .name = "hostile", .run = bench_hostile },
    { .name = "batch", .run = bench_batch },
    { .name = "handles", .run = bench_handles },
    { .name = "modes", .run = WITH_REDIS(bench_modes), .is_usual = true },
    { .name = "processes", .run = bench_processes, .is_usual = true },
    { .name = "server", .run = WITH_REDIS(bench_server) },
    { .name = "callers", .run = WITH_REDIS(bench_callers) },
    { .name = "round-trip", .run = WITH_REDIS(bench_round_trip) },
    { .name = "leases", .run = WITH_REDIS(bench_leases) },
    { .name = "one-caller", .run = WITH_REDIS(bench_one_caller) },
    { .name = "users", .run = WITH_REDIS(bench_users) },
    { .name = "outage", .run = WITH_REDIS(bench_outage) },
    { .name = "cluster", .run = WITH_REDIS(bench_cluster) },
    { .name = "replicas", .run = WITH_REDIS(bench_replicas) },
    { .name = "tls", .run = WITH_TLS(bench_tls) },
    { .name = "peers", .run = WITH_CONSUL(bench_peers) },
};
#define SECTIONS_LEN ((int)(sizeof SECTIONS / sizeof SECTIONS[0]))

/* Read the log and reach the server before anything is measured: a mistake in either ends the program. */
static void main_prepare(struct bench *bench)
{
    void (*const read_log)(struct bench *) = WITH_REDIS(bench_read_log);
    void (*const reach_redis)(struct bench *) = WITH_REDIS(bench_reach_redis);
    if ((bench->log && !read_log) || (bench->redis_url && !reach_redis))
        bench_fail("%s: built without it: -DWEIR_REDIS=OFF", bench->log ? "--log" : "--redis");
    if (bench->log)
        read_log(bench);
    if (bench->redis_url)
        reach_redis(bench);
}

static int main_compare(const struct options *options)
{
    const int status = runs_compare(options->compared[0], options->compared[1], options->bench.report);
    return report_close(options->bench.report) ? status : 2;
}

static int main_cluster_sim(const struct options *options)
{
    bench_machine(options->bench.report);
    const bool good = cluster_sim(options->cluster_sim, options->bench.report);
    return report_close(options->bench.report) && good ? 0 : 2;
}

int main(int argc, char **argv)
{
    static struct options options = { .sections = SECTIONS, .sections_len = SECTIONS_LEN };
    struct bench *bench = &options.bench;
    _Static_assert(SECTIONS_LEN <= OPTIONS_MAX_SECTIONS, "one mark each");
    signal(SIGPIPE, SIG_IGN); /* a server that has gone is reported; it does not end the program */
    options_parse(&options, argc, argv);
    if (!options.compared[0] && options.cluster_sim == 0)
        main_prepare(bench);
    bench->report = report_open(options.json, bench->results);
    if (!bench->report)
        return 2;
    if (options.compared[0])
        return main_compare(&options);
    if (options.cluster_sim > 0)
        return main_cluster_sim(&options);
    measure_start();
    measure_pin_main();
    bench_machine(bench->report);
    for (int i = 0; i < SECTIONS_LEN; i++)
        if (options.is_chosen[i] && SECTIONS[i].run)
            SECTIONS[i].run(bench);
        else if (options.is_chosen[i])
            bench_missing(bench, SECTIONS[i].name, "built without it: WEIR_REDIS, WEIR_TLS or WEIR_CONSUL is OFF");
    bench_progress("done");
    if (isatty(STDERR_FILENO))
        fputc('\n', stderr);
    return report_close(bench->report) ? 0 : 2;
}
