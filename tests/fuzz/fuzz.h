/* fuzz.h - helpers of the fuzz targets: choices from an input's bytes, and property checks.
 *
 * Each target is one file with one LLVMFuzzerTestOneInput(); its first comment lists the asserted properties. It is
 * linked twice: with libFuzzer, which searches for inputs (tests/fuzz/run.sh), and with seeds.c, which feeds it the
 * inputs in the folder of its name (the tests called fuzz_seeds_<target>).
 */
#ifndef WEIR_TESTS_FUZZ_H
#define WEIR_TESTS_FUZZ_H

#include <weir/weir.h>

/* Run one input and return 0. A violated property ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- Properties ---- */

/* Print the sentence and abort(), which libFuzzer and the sanitizers report as a finding. */
_Noreturn void fuzz_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define fuzz_must(holds, ...)       \
    do {                            \
        if (!(holds))               \
            fuzz_fail(__VA_ARGS__); \
    } while (0)

/* Check that a sentence has no control character, of ASCII or of Unicode, that a terminal could obey. */
void fuzz_clean(const char *sentence);

/* Check that both are equal in every field and padding byte. */
void fuzz_same_decision(const struct weir_decision *actual, const struct weir_decision *expected, const char *where);

/* True if both mean the same, including omitted fields. */
bool fuzz_same_policy(const struct weir_policy *a, const struct weir_policy *b);

/* ---- Choices: after its end an input continues with zeroes ---- */

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

/* Return a value from `least` to `most`, using as few bytes as possible; least <= most. */
int64_t feed_between(struct feed *feed, int64_t least, int64_t most);

/* Return 1 to `most`; half of the values are small or next to a power of two. */
int64_t feed_magnitude(struct feed *feed, int64_t most);

/* Copy up to `most` bytes, preceded by a byte with their number, and append a NUL. The caller frees it. */
char *feed_bytes(struct feed *feed, size_t most, size_t *len);

/* Copy the bytes and append a NUL. The caller frees it. */
char *fuzz_text(const void *data, size_t len);

/* Return the random length of a stream's next piece: 1 to 64 bytes, mostly short. Advances the seed *chance. */
size_t fuzz_piece(uint64_t *chance);

/* Each field is in range; weir_policy_check() may still refuse the combination. */
struct weir_policy feed_policy(struct feed *feed);

/* ---- Files ---- */

/* Return the path of a file in memory with these bytes; the next call replaces it. */
const char *fuzz_file(const void *data, size_t len);

#endif
