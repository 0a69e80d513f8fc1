/* keys.c - the benchmark's keys, and streams of keys drawn in advance.
 *
 * A stream draws rank k with a probability proportional to k^-0.99, exactly, by rejection-inversion (W. Hoermann and G.
 * Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS 6, 1996). It
 * then scrambles the ranks over the key numbers, so that hot keys are not neighbours in memory.
 */
#include "measure/keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "measure/say.h"

#define ZIPF_EXPONENT 0.99
#define SCRAMBLE UINT64_C(2654435761) /* a prime above any number of keys: multiplying by it permutes the ranks */
#define HUGE_PAGE ((size_t)2 << 20)
#define DRAWS_MIN ((size_t)1 << 14)
#define DRAWS_MAX ((size_t)1 << 22)

/* Mix a number: a bijection in which every bit depends on every bit (the finaliser of MurmurHash3). */
static uint64_t keys_mix(uint64_t x)
{
    x = (x ^ (x >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ (x >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ (x >> 33);
}

void key_write(uint64_t index, struct bench_key *out)
{
    const uint64_t high = keys_mix(index + 1), low = keys_mix(~index);
    const uint32_t address = (uint32_t)(index / 2) * UINT32_C(2654435761) + UINT32_C(0x5bd1e995);
    if (index % 2 == 0)
        out->len = (uint8_t)snprintf(out->text, sizeof out->text, "%u.%u.%u.%u", address >> 24, address >> 16 & 255,
                                     address >> 8 & 255, address & 255);
    else
        out->len = (uint8_t)snprintf(out->text, sizeof out->text, "%08x-%04x-%04x-%04x-%012llx", (unsigned)(high >> 32),
                                     (unsigned)(high >> 16 & 0xffff), (unsigned)(high & 0xffff), (unsigned)(low >> 48),
                                     (unsigned long long)(low & UINT64_C(0xffffffffffff)));
}

double random_fraction(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return (double)(keys_mix(*state) >> 11) * 0x1p-53;
}

double random_gap_ns(uint64_t *state, double per_second)
{
    return -log1p(-random_fraction(state)) * 1e9 / per_second;
}

/* The integral of x^-s, and its inverse: the hat over the distribution. */
static double hat(double x)
{
    return pow(x, 1 - ZIPF_EXPONENT) / (1 - ZIPF_EXPONENT);
}
static double hat_inverse(double area)
{
    return pow(area * (1 - ZIPF_EXPONENT), 1 / (1 - ZIPF_EXPONENT));
}

struct zipf {
    double area_first, area_last; /* the hat's area from rank 1 to the last */
    double sure;                  /* a point this close below its rank needs no test */
    double ranks;
};

static struct zipf zipf_make(uint64_t ranks)
{
    struct zipf zipf = {
        .area_first = hat(1.5) - 1,
        .area_last = hat((double)ranks + 0.5),
        .sure = 2 - hat_inverse(hat(2.5) - pow(2, -ZIPF_EXPONENT)),
        .ranks = (double)ranks,
    };
    return zipf;
}

/* Draw a rank, counted from 0. */
static uint64_t zipf_draw(const struct zipf *zipf, uint64_t *state)
{
    for (;;) {
        double area = zipf->area_last + random_fraction(state) * (zipf->area_first - zipf->area_last);
        double x = hat_inverse(area);
        double rank = fmin(fmax(floor(x + 0.5), 1), zipf->ranks);
        if (rank - x <= zipf->sure || area >= hat(rank + 0.5) - pow(rank, -ZIPF_EXPONENT))
            return (uint64_t)rank - 1;
    }
}

void stream_make(struct stream *stream, uint64_t keys)
{
    struct zipf zipf = zipf_make(keys);
    uint64_t state = keys;
    stream->len = DRAWS_MIN;
    while (stream->len < DRAWS_MAX && stream->len < 4 * keys)
        stream->len *= 2;
    stream->draws = aligned_alloc(HUGE_PAGE,
                                  (stream->len * sizeof(struct bench_key) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (!stream->draws)
        bench_fail("no memory for %zu draws", stream->len);
    madvise(stream->draws, stream->len * sizeof(struct bench_key), MADV_HUGEPAGE); /* a refusal only slows it down */
    for (size_t i = 0; i < stream->len; i++)
        key_write(zipf_draw(&zipf, &state) * SCRAMBLE % keys, &stream->draws[i]);
}

void stream_free(struct stream *stream)
{
    free(stream->draws);
    stream->draws = NULL;
}
