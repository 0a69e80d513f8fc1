/* one_caller.c - hybrid mode for one caller that asks again as soon as it is answered, with a limit far above that.
 *
 * Such a caller shows how often a request must wait for Redis: while it waits, it asks for nothing, so each key's lease
 * serves fewer requests before it ends. The first rows have a thousand keys, the others so many that most are asked for
 * less than once in a lease's life.
 */
#include <stdio.h>

#include "redis/remote.h"

#define FEW 1000
#define MANY 100000

static const struct one_caller {
    const char *text;
    uint64_t keys;
} CELLS[] = {
    { "token_bucket limit=1000000 period=1s", FEW },  { "token_bucket limit=1000000 period=1m", FEW },
    { "fixed_window limit=1000000 period=1s", FEW },  { "sliding_window limit=1000000 period=1s", FEW },
    { "token_bucket limit=1000000 period=1s", MANY }, { "token_bucket limit=1000000 period=1m", MANY },
};

static void one_caller_report(struct bench *bench, const struct one_caller *cell, const struct load *load,
                              double by_lease)
{
    report_row(bench->report);
    report_text(bench->report, "policy", cell->text);
    report_count(bench->report, "keys", cell->keys);
    report_sample(bench->report, "ns", &load->ns);
    report_sample(bench->report, "client CPU us", &load->client_us);
    report_sample(bench->report, "calls to Redis", &load->store_calls);
    report_number(bench->report, "by lease %", by_lease);
    if (load->failed > 0)
        report_count(bench->report, "failed", load->failed);
}

static bool one_caller_measure(struct bench *bench, const struct store *store, const struct one_caller *cell)
{
    const struct weir_options options = remote_options(WEIR_HYBRID);
    struct weir_policy policy;
    struct stream stream;
    struct remote remote;
    bench_require(weir_policy_parse(cell->text, &policy, NULL, 0), "weir_policy_parse");
    bench_progress("one-caller: %s, %d keys", cell->text, (int)cell->keys);
    if (!remote_open(&remote, store, &options, "one-caller", &policy))
        return false;
    stream_make(&stream, cell->keys);
    struct load load = { .name = cell->text,
                         .call = remote_call,
                         .subject = &remote,
                         .threads = 1,
                         .step = 32,
                         .stream = &stream,
                         .lead_seconds = 5 * bench->seconds,
                         .weir = remote.weir };
    const struct weir_stats before = remote_stats(&remote);
    load_measure(&load, 1, bench->repeats, 5 * bench->seconds, store);
    const struct weir_stats after = remote_stats(&remote);
    one_caller_report(bench, cell, &load,
                      100.0 * (double)(after.lease_hits - before.lease_hits) /
                          (double)(after.allowed - before.allowed));
    stream_free(&stream);
    remote_close(&remote);
    return true;
}

void bench_one_caller(struct bench *bench)
{
    const struct store *store = store_of(bench, "one-caller");
    if (!store)
        return;
    store_section(bench, store, "one-caller",
                  "hybrid mode, default options; one caller in a closed loop, zipf; wall time and CPU time of this "
                  "process per decision; median (min..max) of the repetitions");
    for (size_t i = 0; i < sizeof CELLS / sizeof *CELLS; i++) {
        if (!one_caller_measure(bench, store, &CELLS[i])) {
            remote_report_missing(bench);
            break;
        }
    }
}
