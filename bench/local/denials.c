/* denials.c - whether a denial costs more than an admission, also for one contended key.
 *
 * Each repetition measures admissions and denials in turns; the ratio is taken within it. With one key and two threads,
 * the time is mostly that of a cache line moving between processors.
 */
#include <stdio.h>

#include "bench.h"

#define GOAL_RATIO 1.0
#define NOISE 0.05 /* smaller differences mean nothing */

static void denials_measure_pair(struct bench *bench, struct subject subjects[2], const struct stream *stream,
                                 uint64_t keys, enum skew skew, int threads)
{
    struct cell cells[2] = {
        { .work = subject_work, .subject = &subjects[ANSWER_ALLOW], .stream = stream, .threads = threads },
        { .work = subject_work, .subject = &subjects[ANSWER_DENY], .stream = stream, .threads = threads },
    };
    bench_progress("denials: %llu keys, %d threads", (unsigned long long)keys, threads);
    measure_cells(cells, 2, bench->repeats, bench->seconds);
    struct sample ratio = sample_ratio(&cells[ANSWER_DENY].ns, &cells[ANSWER_ALLOW].ns);
    char what[80];
    snprintf(what, sizeof what, "denial relative to admission, %llu keys%s%s, threads: %d", (unsigned long long)keys,
             keys > 1 ? " " : "", keys > 1 ? skew_name(skew) : "", threads);
    report_row(bench->report);
    report_count(bench->report, "keys", keys);
    report_text(bench->report, "skew", keys > 1 ? skew_name(skew) : "-");
    report_count(bench->report, "threads", (uint64_t)threads);
    report_sample(bench->report, "allow ns", &cells[ANSWER_ALLOW].ns);
    report_sample(bench->report, "deny ns", &cells[ANSWER_DENY].ns);
    report_sample(bench->report, "deny/allow", &ratio);
    report_goal(bench->report, what, &ratio, AT_MOST, GOAL_RATIO + NOISE);
}

void bench_denials(struct bench *bench)
{
    uint64_t sizes[] = { 1, 1000, bench_largest_keys(bench, bench->extent == EXTENT_QUICK ? 100000 : 1000000) };
    report_section(
        bench->report, "denials",
        "token bucket, denials next to admissions; ns per decision, median (min..max); the goal is 1.00 plus "
        "5 % of noise");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct subject subjects[2];
        struct stream stream;
        stream_make(&stream, sizes[i], SKEW_ZIPF);
        for (int answer = ANSWER_ALLOW; answer <= ANSWER_DENY; answer++) {
            subject_open_filled(&subjects[answer], KIND_TOKEN, (enum answer)answer, sizes[i]);
        }
        denials_measure_pair(bench, subjects, &stream, sizes[i], SKEW_ZIPF, 1);
        denials_measure_pair(bench, subjects, &stream, sizes[i], SKEW_ZIPF, 2);
        for (int answer = ANSWER_ALLOW; answer <= ANSWER_DENY; answer++) {
            subject_finish(&subjects[answer], sizes[i]);
        }
        stream_free(&stream);
    }
    report_end_section(bench->report);
}
