/* hist.h - a log-linear histogram: any 64-bit value, counted to within 1.6 %. */
#ifndef BENCH_HIST_H
#define BENCH_HIST_H

#include <stdint.h>

#define HIST_LINEAR_BITS 6 /* each power of two is cut into 2^6 equal buckets */
#define HIST_BUCKETS ((64 - HIST_LINEAR_BITS + 1) << HIST_LINEAR_BITS)

struct hist { /* all zeroes is empty */
    uint64_t total, max;
    uint32_t counts[HIST_BUCKETS];
};

static inline unsigned hist_bucket(uint64_t value)
{
    if (value < (1u << HIST_LINEAR_BITS))
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - HIST_LINEAR_BITS;
    return (shift << HIST_LINEAR_BITS) + (unsigned)(value >> shift);
}

static inline void hist_add(struct hist *hist, uint64_t value)
{
    hist->counts[hist_bucket(value)]++;
    hist->total++;
    if (value > hist->max)
        hist->max = value;
}

void hist_clear(struct hist *hist);

/* Add the counts of `more`. */
void hist_merge(struct hist *hist, const struct hist *more);

/* Return the value that a share of `quantile` (0 to 1) of all values does not exceed: the middle of its bucket, and at
 * most the greatest value. 0 if the histogram is empty. */
double hist_quantile(const struct hist *hist, double quantile);

#endif
