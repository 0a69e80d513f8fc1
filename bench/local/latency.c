/* latency.c - how long a single decision takes from call to answer if none may overlap with the next.
 *
 * A fence stands before and after each decision. The two fenced readings of the timer cost time, too: what an empty
 * interval measures is subtracted, and reported. The maximum contains every interrupt; the percentiles do not.
 */
#include <stdio.h>

#include "bench.h"
#include "measure/hist.h"
#include "measure/timer.h"

static const double QUANTILES[] = { 0.5, 0.99, 0.999 };
static const char *const QUANTILE_NAMES[] = { "p50 ns", "p99 ns", "p99.9 ns" };
#define QUANTILES_LEN 3

struct timed { /* a limiter whose decisions are timed one by one */
    work_function *work;
    void *subject;
    const char *name;
    size_t cursor; /* the place in the stream */
    struct hist hist;
    struct sample quantiles[QUANTILES_LEN], max;
};

/* Time decisions for about `seconds`, continuing where the last run stopped. */
static void run_timed(struct timed *timed, const struct stream *stream, double seconds)
{
    int64_t end_ns = clock_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9);
    while (clock_ns(CLOCK_MONOTONIC) < end_ns) {
        for (size_t i = 0; i < STREAM_STEP; i++) {
            uint64_t start = timer_start();
            timed->work(timed->subject, &stream->draws[timed->cursor + i], 1);
            hist_add(&timed->hist, timer_end() - start);
        }
        timed->cursor = (timed->cursor + STREAM_STEP) % stream->len;
    }
}

static double hist_ns(double ticks, uint64_t overhead_ticks)
{
    double net = ticks - (double)overhead_ticks;
    return net > 0 ? net * timer_tick_ns() : 0;
}

static void measure_timed(struct bench *bench, struct timed *timed, int n, const struct stream *stream)
{
    uint64_t overhead_ticks = timer_overhead_ticks();
    for (int i = 0; i < n; i++)
        run_timed(&timed[i], stream, bench->seconds / 4); /* warm up */
    for (int repeat = 0; repeat < bench->repeats; repeat++) {
        for (int i = 0; i < n; i++) {
            struct timed *one = &timed[repeat % 2 == 0 ? i : n - 1 - i];
            hist_clear(&one->hist);
            run_timed(one, stream, bench->seconds);
            for (int quantile = 0; quantile < QUANTILES_LEN; quantile++)
                sample_add(&one->quantiles[quantile],
                           hist_ns(hist_quantile(&one->hist, QUANTILES[quantile]), overhead_ticks));
            sample_add(&one->max, hist_ns((double)one->hist.max, overhead_ticks));
        }
    }
}

static void measure_latency(struct bench *bench, uint64_t keys, enum skew skew)
{
    static struct timed timed[2];
    struct subject subject;
    struct stream stream;
    bench_progress("latency: %llu keys %s", (unsigned long long)keys, skew_name(skew));
    stream_make(&stream, keys, skew);
    subject_open_filled(&subject, KIND_TOKEN, ANSWER_ALLOW, keys);
    struct baseline *baseline = subject_baseline(ANSWER_ALLOW, keys);
    timed[0] = (struct timed){ .work = baseline_work, .subject = baseline, .name = "mutex_mono, presized" };
    timed[1] = (struct timed){ .work = subject_work, .subject = &subject, .name = "weir_try" };
    measure_timed(bench, timed, 2, &stream);
    struct sample ratio = sample_ratio(&timed[1].quantiles[0], &timed[0].quantiles[0]);
    for (int i = 0; i < 2; i++) {
        report_row(bench->report);
        report_text(bench->report, "limiter", timed[i].name);
        report_count(bench->report, "keys", keys);
        report_text(bench->report, "skew", skew_name(skew));
        for (int quantile = 0; quantile < QUANTILES_LEN; quantile++)
            report_sample(bench->report, QUANTILE_NAMES[quantile], &timed[i].quantiles[quantile]);
        report_sample(bench->report, "max ns", &timed[i].max);
        if (i == 1)
            report_sample(bench->report, "p50 ratio", &ratio);
    }
    subject_finish(&subject, keys);
    baseline_close(baseline);
    stream_free(&stream);
}

void bench_latency(struct bench *bench)
{
    char sentence[300];
    uint64_t large = bench_largest_keys(bench, bench->extent == EXTENT_QUICK ? 100000 : 1000000);
    snprintf(sentence, sizeof sentence,
             "one decision at a time, fenced, token bucket, all allowed, 1 thread; the "
             "%.1f ns of an empty interval are subtracted; median (min..max) of the repetitions",
             (double)timer_overhead_ticks() * timer_tick_ns());
    report_section(bench->report, "latency", sentence);
    measure_latency(bench, 1000, SKEW_ZIPF);
    measure_latency(bench, large, SKEW_ZIPF);
    measure_latency(bench, large, SKEW_UNIFORM);
    report_end_section(bench->report);
}
