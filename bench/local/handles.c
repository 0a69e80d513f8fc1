/* handles.c - what a decision costs through a handle and at a time that the caller has read, next to plain calls.
 *
 * Each way makes decisions for the same keys of the same limiter, in turns. The caller's time is the limiter's clock,
 * read once for STREAM_STEP decisions, and advances by a microsecond every DECISIONS_A_US of them. It thus keeps up
 * with the clock that the other ways read, and steps neither back nor ahead of it. For the single key, a row shows a
 * compare-and-swap on one cache line: no decision that writes can cost less.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "local/sections.h"

#define DECISIONS_A_US 64

struct known { /* a key and its handle */
    struct bench_key key;
    weir_handle *handle;
    UT_hash_handle hh;
};

void handles_resolve(struct resolved *resolved, const struct subject *subject, const struct stream *stream)
{
    struct known *known = NULL, *one;
    *resolved = (struct resolved){ .subject = subject, .stream = stream };
    resolved->handles = bench_allocate(stream->len, sizeof(weir_handle *));
    for (size_t i = 0; i < stream->len; i++) {
        HASH_FIND(hh, known, &stream->draws[i], KEY_LEN, one);
        if (!one) {
            one = bench_allocate(1, sizeof *one);
            one->key = stream->draws[i];
            bench_require(weir_key_resolve(subject->limit, weir_key(&one->key, KEY_LEN), &one->handle),
                          "weir_key_resolve");
            HASH_ADD(hh, known, key, KEY_LEN, one);
        }
        resolved->handles[i] = one->handle;
    }
    resolved->known = known;
}

void handles_forget(struct resolved *resolved)
{
    struct known *known = resolved->known, *one, *next;
    HASH_ITER(hh, known, one, next) {
        HASH_DEL(known, one);
        weir_handle_free(one->handle);
        free(one);
    }
    free(resolved->handles);
}

/* ---- work_functions ---- */

static int64_t handles_read_clock(const struct resolved *resolved)
{
    int64_t now_us;
    bench_require(weir_clock(resolved->subject->weir, &now_us), "weir_clock");
    return now_us;
}

static uint64_t work_at(void *subject, const struct bench_key *draws, size_t n)
{
    const struct resolved *resolved = subject;
    weir_limit *limit = resolved->subject->limit;
    struct weir_decision decision;
    const int64_t start_us = handles_read_clock(resolved);
    uint64_t admitted = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t now_us = start_us + (int64_t)(i / DECISIONS_A_US);
        bench_require(weir_try_at(limit, weir_key(&draws[i], KEY_LEN), 1, now_us, &decision), "weir_try_at");
        admitted += decision.allowed;
    }
    return admitted;
}

static inline uint64_t try_handles(const struct resolved *resolved, const struct bench_key *draws, size_t n,
                                   bool by_caller)
{
    weir_handle *const *handles = resolved->handles + (draws - resolved->stream->draws);
    struct weir_decision decision;
    const int64_t start_us = by_caller ? handles_read_clock(resolved) : 0;
    uint64_t admitted = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t now_us = by_caller ? start_us + (int64_t)(i / DECISIONS_A_US) : 0;
        bench_require(weir_handle_try(handles[i], 1, now_us, &decision), "weir_handle_try");
        admitted += decision.allowed;
    }
    return admitted;
}

uint64_t handles_work(void *subject, const struct bench_key *draws, size_t n)
{
    return try_handles(subject, draws, n, false);
}

uint64_t handles_work_at(void *subject, const struct bench_key *draws, size_t n)
{
    return try_handles(subject, draws, n, true);
}

/* Uses acquire and release, as swapping a state needs. */
uint64_t swap_work(void *subject, const struct bench_key *draws, size_t n)
{
    _Atomic uint64_t *number = subject;
    (void)draws;
    for (size_t i = 0; i < n; i++) {
        uint64_t seen = atomic_load_explicit(number, memory_order_relaxed);
        while (
            !atomic_compare_exchange_weak_explicit(number, &seen, seen + 1, memory_order_acq_rel, memory_order_relaxed))
            continue;
    }
    return n;
}

/* ---- The section ---- */

enum { CALL_SWAP, CALL_TRY, CALL_TRY_AT, CALL_HANDLE, CALL_HANDLE_AT, CALLS };

static const char *const CALL_NAMES[CALLS] = { "compare-and-swap, one line", "weir_try", "weir_try_at",
                                               "weir_handle_try", "weir_handle_try, caller's time" };

static void measure_calls(struct bench *bench, struct resolved *resolved, struct subject *subject, uint64_t keys,
                          enum answer answer, int threads)
{
    static _Alignas(128) _Atomic uint64_t number;
    struct cell cells[CALLS] = {
        [CALL_SWAP] = { .work = swap_work, .subject = &number },
        [CALL_TRY] = { .work = subject_work, .subject = subject },
        [CALL_TRY_AT] = { .work = work_at, .subject = resolved },
        [CALL_HANDLE] = { .work = handles_work, .subject = resolved },
        [CALL_HANDLE_AT] = { .work = handles_work_at, .subject = resolved },
    };
    bench_progress("handles: %llu keys, %s, %d threads", (unsigned long long)keys, answer_name(answer), threads);
    for (int i = 0; i < CALLS; i++) {
        cells[i].stream = resolved->stream;
        cells[i].threads = threads;
    }
    measure_cells(cells, CALLS, bench->repeats, bench->seconds);
    for (int i = keys == 1 ? CALL_SWAP : CALL_TRY; i < CALLS; i++) {
        struct sample ratio = sample_ratio(&cells[i].ns, &cells[CALL_TRY].ns);
        report_row(bench->report);
        report_text(bench->report, "call", CALL_NAMES[i]);
        report_count(bench->report, "keys", keys);
        report_count(bench->report, "threads", (uint64_t)threads);
        report_text(bench->report, "answer", answer_name(answer));
        report_number(bench->report, "admitted %", 100.0 * (double)cells[i].admitted / (double)cells[i].operations);
        report_sample(bench->report, "ns", &cells[i].ns);
        report_sample(bench->report, "to weir_try", &ratio);
    }
}

void bench_handles(struct bench *bench)
{
    const uint64_t sizes[] = { 1, 1000, bench_largest_keys(bench, bench->extent == EXTENT_QUICK ? 100000 : 1000000) };
    report_section(bench->report, "handles",
                   "token bucket, zipf; ns per decision, median (min..max); to weir_try: relative to weir_try's row, "
                   "within a repetition");
    const int answers = bench->thorough ? 2 : 1;
    const size_t step = bench->thorough ? 1 : 2; /* without the middle one */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i += step) {
        for (int answer = ANSWER_ALLOW; answer < answers; answer++) {
            struct subject subject;
            struct stream stream;
            struct resolved resolved;
            stream_make(&stream, sizes[i], SKEW_ZIPF);
            subject_open_filled(&subject, KIND_TOKEN, (enum answer)answer, sizes[i]);
            handles_resolve(&resolved, &subject, &stream);
            for (int threads = 1; threads <= 2; threads++)
                measure_calls(bench, &resolved, &subject, sizes[i], (enum answer)answer, threads);
            handles_forget(&resolved);
            subject_finish(&subject, sizes[i]);
            stream_free(&stream);
        }
    }
    report_end_section(bench->report);
}
