/* latency.c - how long a single decision takes from call to answer if none may overlap with the next.
 *
 * A fence stands before and after each decision. The two fenced readings of the timer cost time, too: what an empty
 * interval measures is subtracted, and reported. The maximum contains every interrupt; the percentiles do not.
 */
#include <stdio.h>

#include "local/sections.h"
#include "measure/timer.h"

static const double QUANTILES[] = { 0.5, 0.99, 0.999 };
static const char *const QUANTILE_NAMES[] = { "p50 ns", "p99 ns", "p99.9 ns" };

void latency_run(struct timed *timed, const struct stream *stream, double seconds)
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

void latency_note(struct timed *timed, uint64_t overhead_ticks)
{
    for (int quantile = 0; quantile < TIMED_QUANTILES; quantile++)
        sample_add(&timed->quantiles[quantile],
                   hist_ns(hist_quantile(&timed->hist, QUANTILES[quantile]), overhead_ticks));
    sample_add(&timed->max, hist_ns((double)timed->hist.max, overhead_ticks));
}

void latency_report(struct report *report, const struct timed *timed)
{
    for (int quantile = 0; quantile < TIMED_QUANTILES; quantile++)
        report_sample(report, QUANTILE_NAMES[quantile], &timed->quantiles[quantile]);
    report_sample(report, "max ns", &timed->max);
}

static void measure_timed(struct bench *bench, struct timed *timed, int n, const struct stream *stream)
{
    uint64_t overhead_ticks = timer_overhead_ticks();
    for (int i = 0; i < n; i++)
        latency_run(&timed[i], stream, bench->seconds / 4); /* warm up */
    for (int repeat = 0; repeat < bench->repeats; repeat++) {
        for (int i = 0; i < n; i++) {
            struct timed *one = &timed[repeat % 2 == 0 ? i : n - 1 - i];
            hist_clear(&one->hist);
            latency_run(one, stream, bench->seconds);
            latency_note(one, overhead_ticks);
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
        latency_report(bench->report, &timed[i]);
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
