/* keys.h - the benchmark's keys, and streams of keys drawn in advance. */
#ifndef BENCH_KEYS_H
#define BENCH_KEYS_H

#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

/* Keys as gateways have them: every second one is an address of 7 to 15 bytes, the others are UUIDs of 36. */
struct bench_key {
    uint8_t len;
    char text[39]; /* ends with a NUL */
};

/* Write the text of key number `index`. No two numbers below 2^32 have the same text. */
void key_write(uint64_t index, struct bench_key *out);

static inline struct weir_key key_of(const struct bench_key *key)
{
    return weir_key(key->text, key->len);
}

/* A stream holds draws as texts, in the order of their use. The processor prefetches this sequential pass, so a
 * decision pays only for the limiter's own cache misses. The length is a multiple of STREAM_STEP. */
#define STREAM_STEP ((size_t)1024)
struct stream {
    struct bench_key *draws;
    size_t len;
};

/* Make about four draws per key, 2^14 to 2^22 in all, by Zipf's law from keys 0 to keys-1 (1 to 2^31 keys). The same arguments give
 * the same draws. */
void stream_make(struct stream *stream, uint64_t keys);
void stream_free(struct stream *stream);

/* Return a number in [0, 1) of 53 random bits. The same states give the same numbers. */
double random_fraction(uint64_t *state);

/* Draw the time to the next of `per_second` requests from many independent users: exponentially distributed. */
double random_gap_ns(uint64_t *state, double per_second);

#endif
