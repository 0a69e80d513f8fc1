/* subject.h - a weir limiter set up for one kind of measurement. */
#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include <stdint.h>
#include <weir/weir.h>

#include "measure/baseline.h"
#include "measure/measure.h"

enum kind { KIND_TOKEN, KIND_INTERVAL, KIND_FIXED, KIND_SLIDING, KIND_LEAKY, KINDS };
enum answer { ANSWER_ALLOW, ANSWER_DENY }; /* what nearly every decision is set up to be */

/* "token", "interval", "fixed", "sliding", "leaky"; "allow", "deny". */
const char *kind_name(enum kind kind);
const char *answer_name(enum answer answer);

struct subject {
    weir *weir;
    weir_limit *limit;
};

/* A limiter with one limit of that kind and room for `keys` keys or the default, whichever is more. Under ANSWER_ALLOW
 * a key admits all that a benchmark can ask of it, and stays live for over an hour once it took SUBJECT_FILL permits;
 * under ANSWER_DENY it admits one request a day. Ends the program with a message on an error. */
#define SUBJECT_FILL 1000
void subject_open(struct subject *subject, enum kind kind, enum answer answer, uint64_t keys);

/* The same with more options; sets `log`, max_keys and max_bytes there. */
void subject_open_with(struct subject *subject, struct weir_options *options, enum kind kind, enum answer answer,
                       uint64_t keys);

/* Brings keys 0 to keys-1 into the state in which they are measured: live, and used up under ANSWER_DENY. */
void subject_fill(struct subject *subject, enum answer answer, uint64_t keys);

/* Writes a line to stderr unless all `keys` keys are held still and nothing was answered for want of room. */
void subject_check(const struct subject *subject, uint64_t keys);
void subject_close(struct subject *subject);

/* The same for the yardstick: a token bucket of the same figures, filled. */
struct baseline *subject_baseline(enum answer answer, uint64_t keys);

/* work_function: a decision per draw, of a struct subject and of a struct baseline. */
uint64_t subject_work(void *subject, const struct bench_key *draws, size_t n);
uint64_t baseline_work(void *baseline, const struct bench_key *draws, size_t n);

#endif
