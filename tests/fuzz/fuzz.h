/* fuzz.h - what the fuzz targets share: a target, the bytes of an input made into choices, and what must hold.
 *
 * Each target is one file with one LLVMFuzzerTestOneInput(), that says at its top which properties it asserts. It is
 * linked twice: with libFuzzer, which looks for inputs (tests/fuzz/run.sh), and with seeds.c, which feeds it those that
 * are kept in the folder of its name (the tests called fuzz_seeds_<target>).
 */
#ifndef WEIR_TESTS_FUZZ_H
#define WEIR_TESTS_FUZZ_H

#include <weir/weir.h>

/* Returns 0. Ends the process where a property does not hold. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- What must hold ---- */

/* Print the sentence and abort(), which is what libFuzzer and the sanitizers take for a finding. */
_Noreturn void fuzz_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define fuzz_must(holds, ...)       \
    do {                            \
        if (!(holds))               \
            fuzz_fail(__VA_ARGS__); \
    } while (0)

/* Both are equal in every field, to the last byte of padding. */
void fuzz_same_decision(const struct weir_decision *actual, const struct weir_decision *expected, const char *where);

/* Both say the same, what is left out included. */
bool fuzz_same_policy(const struct weir_policy *a, const struct weir_policy *b);

/* ---- Choices: an input that has ended goes on with zeroes ---- */

struct feed {
    const uint8_t *at, *end;
};

static inline struct feed feed_of(const uint8_t *data, size_t size)
{
    return (struct feed){ data, data + size };
}

static inline bool feed_is_over(const struct feed *feed)
{
    return feed->at == feed->end;
}

uint8_t feed_byte(struct feed *feed);

/* `least` to `most`, out of as few bytes as it takes; least <= most. */
int64_t feed_between(struct feed *feed, int64_t least, int64_t most);

/* 1 to `most`, small numbers and those next to powers of two as likely as all others. */
int64_t feed_magnitude(struct feed *feed, int64_t most);

/* A copy of up to `most` bytes behind one that says how many, with a NUL behind, to be freed. */
char *feed_bytes(struct feed *feed, size_t most, size_t *len);

/* A copy with a NUL behind, to be freed. */
char *fuzz_text(const void *data, size_t len);

/* How long the next piece of a stream is that is cut by chance: 1 to 64 bytes, short ones more often. *chance is the
 * seed, and is moved on. */
size_t fuzz_piece(uint64_t *chance);

/* Each field in its range; weir_policy_check() may still refuse its arithmetic. */
struct weir_policy feed_policy(struct feed *feed);

/* ---- Files ---- */

/* The path of a file in memory with these bytes in it; the next call makes another of it. */
const char *fuzz_file(const void *data, size_t len);

#endif
