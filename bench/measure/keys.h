/* keys.h - the benchmark's keys, and streams of them drawn beforehand. */
#ifndef BENCH_KEYS_H
#define BENCH_KEYS_H

#include <stddef.h>
#include <stdint.h>

#define KEY_LEN 16

struct bench_key { /* 16 hexadecimal digits, no NUL */
    char text[KEY_LEN];
};

enum skew { SKEW_ZIPF, SKEW_UNIFORM };

/* The text of key number `index`; no two numbers have the same. */
void key_write(uint64_t index, struct bench_key *out);

/* Draws in the order they will be used, as texts: reading them is one sequential pass that the processor prefetches,
 * so a decision pays for no miss that is not the limiter's. The length is a multiple of STREAM_STEP. */
#define STREAM_STEP ((size_t)1024)
struct stream {
    struct bench_key *draws;
    size_t len;
};

/* About four draws per key, 2^14 to 2^22 of them, out of keys 0 to keys-1 (1 to 2^31 keys). The same arguments give
 * the same draws. */
void stream_make(struct stream *stream, uint64_t keys, enum skew skew);
void stream_free(struct stream *stream);

/* A number in [0, 1) of 53 random bits; the same states give the same numbers. */
double random_fraction(uint64_t *state);

/* "zipf", "uniform". */
const char *skew_name(enum skew skew);

#endif
