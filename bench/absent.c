/* absent.c - the sections of distributed mode in a benchmark that was built without it: each says so. */
#include "bench.h"

static const char why[] = "built without it: -DWEIR_REDIS=OFF";

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

void bench_tls(struct bench *bench)
{
    bench_missing(bench, "tls", why);
}
