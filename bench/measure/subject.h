/* subject.h - a weir limiter set up for one kind of measurement. */
#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include <stdint.h>
#include <weir/weir.h>

#include "measure/measure.h"

enum kind { KIND_TOKEN, KIND_INTERVAL, KIND_FIXED, KIND_SLIDING, KIND_LEAKY, KINDS };

/* Return "token", "interval", "fixed", "sliding" or "leaky". */
const char *kind_name(enum kind kind);

struct subject {
    weir *weir;
    weir_limit *limit;
};

/* More permits than a benchmark takes. */
#define SUBJECT_PLENTY INT64_C(1000000000)

/* Open a limiter with one limit of that kind and room for at least `keys` keys, and take SUBJECT_FILL permits of keys 0
 * to keys-1: a key then admits everything that a benchmark requests, and stays live for over an hour. Sets `log`, max_keys
 * and max_bytes in the options. Fails on an error. */
#define SUBJECT_FILL 1000
void subject_open(struct subject *subject, struct weir_options *options, enum kind kind, uint64_t keys);
void subject_close(struct subject *subject);

/* Close it, after a line to stderr unless the limiter still holds all `keys` keys and never ran out of room. */
void subject_finish(struct subject *subject, uint64_t keys);

/* A work_function of a struct subject: one decision per draw. */
uint64_t subject_work(void *subject, const struct bench_key *draws, size_t n);

#endif
