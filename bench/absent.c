/* absent.c - the sections of distributed mode in a benchmark that was built without it: each says so. */
#include "bench.h"

static void say_absent(struct bench *bench, const char *name)
{
    const char *why = "built without it: -DWEIR_REDIS=OFF";
    bench_progress("%s: NOT MEASURED: %s", name, why);
    report_section(bench->report, name, "not measured");
    report_row(bench->report);
    report_text(bench->report, "not measured", "distributed mode");
    report_text(bench->report, "why", why);
    report_end_section(bench->report);
}

void bench_modes(struct bench *bench)
{
    say_absent(bench, "modes");
}

void bench_server(struct bench *bench)
{
    say_absent(bench, "server");
}

void bench_callers(struct bench *bench)
{
    say_absent(bench, "callers");
}

void bench_round_trip(struct bench *bench)
{
    say_absent(bench, "round-trip");
}

void bench_outage(struct bench *bench)
{
    say_absent(bench, "outage");
}
