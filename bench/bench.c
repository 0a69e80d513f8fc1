/* bench.c - what more than one section needs: see bench.h. */
#include "bench.h"

void bench_missing(struct bench *bench, const char *name, const char *why)
{
    bench_say("%s: NOT MEASURED: %s", name, why);
    report_section(bench->report, name, "NOT MEASURED");
    report_row(bench->report);
    report_text(bench->report, "not measured", name);
    report_text(bench->report, "why", why);
}
