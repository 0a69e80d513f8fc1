/* ways.c - the same callers on several ways to a decision: see ways.h. */
#include "redis/ways.h"

static void report_way(struct bench *bench, const struct ways *ways, const struct load *loads, int way)
{
    const struct load *load = &loads[way];
    report_row(bench->report);
    report_count(bench->report, "callers", (uint64_t)load->threads);
    report_text(bench->report, ways->column, load->name);
    report_sample(bench->report, "decisions/s", &load->per_second);
    report_sample(bench->report, "server us", &load->server_us);
    report_sample(bench->report, "client us", &load->client_us);
    report_sample(bench->report, "p50 us", &load->p50_us);
    report_sample(bench->report, "p99 us", &load->p99_us);
    if (load->failed > 0)
        report_count(bench->report, "failed", load->failed);
    if (way > 0)
        ways->compare(bench, loads, way);
}

void ways_measure(struct bench *bench, const struct ways *ways)
{
    static struct load loads[WAYS_MAX];
    for (const int *callers = ways->callers; *callers > 0; callers++) {
        bench_progress("%s: %d at once", ways->section, *callers);
        for (int way = 0; way < ways->n; way++)
            loads[way] = (struct load){ .name = ways->way[way].name,
                                        .call = ways->way[way].call,
                                        .subject = ways->way[way].subject,
                                        .threads = *callers,
                                        .step = ways->way[way].step > 0 ? ways->way[way].step : 1,
                                        .stream = &ways->store->stream };
        load_measure(loads, ways->n, bench->repeats, bench->seconds, ways->store);
        for (int way = 0; way < ways->n; way++)
            report_way(bench, ways, loads, way);
    }
}
