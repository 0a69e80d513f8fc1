/* subject.h - a weir limiter set up for one kind of measurement. */
#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include <stdint.h>
#include <weir/weir.h>

#include "measure/baseline.h"
#include "measure/measure.h"

enum kind { KIND_TOKEN, KIND_INTERVAL, KIND_FIXED, KIND_SLIDING, KIND_LEAKY, KINDS };
enum answer { ANSWER_ALLOW, ANSWER_DENY }; /* the answer that nearly every decision is set up to give */

/* Return "token", "interval", "fixed", "sliding" or "leaky"; "allow" or "deny". */
const char *kind_name(enum kind kind);
const char *answer_name(enum answer answer);

struct subject {
    weir *weir;
    weir_limit *limit;
};

/* More permits than a benchmark takes. */
#define SUBJECT_PLENTY INT64_C(1000000000)

/* Open a limiter with one limit of that kind and room for at least `keys` keys. Under ANSWER_ALLOW a key admits
 * everything that a benchmark requests, and stays live for over an hour after SUBJECT_FILL permits were taken. Under
 * ANSWER_DENY it admits one request a day. Fails on an error. */
#define SUBJECT_FILL 1000
void subject_open(struct subject *subject, enum kind kind, enum answer answer, uint64_t keys);

/* The same with the caller's options; sets `log`, max_keys and max_bytes in them. */
void subject_open_with(struct subject *subject, struct weir_options *options, enum kind kind, enum answer answer,
                       uint64_t keys);

/* Open and fill. */
void subject_open_filled(struct subject *subject, enum kind kind, enum answer answer, uint64_t keys);

/* Bring keys 0 to keys-1 into the state in which they are measured: live, and used up under ANSWER_DENY. */
void subject_fill(struct subject *subject, enum answer answer, uint64_t keys);

/* Print a line to stderr unless the limiter still holds all `keys` keys and never ran out of room. */
void subject_check(const struct subject *subject, uint64_t keys);
void subject_close(struct subject *subject);

/* Check and close. */
void subject_finish(struct subject *subject, uint64_t keys);

/* Open and fill the yardstick: a token bucket with the same figures. */
struct baseline *subject_baseline(enum answer answer, uint64_t keys);

/* work_functions: one decision per draw, on a struct subject and on a struct baseline. */
uint64_t subject_work(void *subject, const struct bench_key *draws, size_t n);
uint64_t baseline_work(void *baseline, const struct bench_key *draws, size_t n);

#endif
