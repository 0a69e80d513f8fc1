/* absent.c - the sections of what the benchmark was built without: each says so. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

#ifndef WEIR_CONSUL
void bench_peers(struct bench *bench)
{
    bench_missing(bench, "peers", "built without it: -DWEIR_CONSUL=OFF");
}
#endif

#ifndef WEIR_REDIS
static const char why[] = "built without it: -DWEIR_REDIS=OFF";

void bench_reach_redis(struct bench *bench)
{
    (void)bench;
    fprintf(stderr, "weir-bench: --redis: %s\n", why);
    exit(2);
}

void bench_read_log(struct bench *bench)
{
    fprintf(stderr, "weir-bench: --log %s: %s\n", bench->log, why);
    exit(2);
}

void bench_modes(struct bench *bench)
{
    bench_missing(bench, "modes", why);
}

void bench_server(struct bench *bench)
{
    bench_missing(bench, "server", why);
}

void bench_callers(struct bench *bench)
{
    bench_missing(bench, "callers", why);
}

void bench_round_trip(struct bench *bench)
{
    bench_missing(bench, "round-trip", why);
}

void bench_leases(struct bench *bench)
{
    bench_missing(bench, "leases", why);
}

void bench_outage(struct bench *bench)
{
    bench_missing(bench, "outage", why);
}

void bench_cluster(struct bench *bench)
{
    bench_missing(bench, "cluster", why);
}

void bench_replicas(struct bench *bench)
{
    bench_missing(bench, "replicas", why);
}
#endif

#ifndef WEIR_TLS
void bench_tls(struct bench *bench)
{
    bench_missing(bench, "tls", "built without it: -DWEIR_REDIS=OFF or -DWEIR_TLS=OFF");
}
#endif
