/* hist.c - a log-linear histogram: any 64-bit value, counted to within 1.6 %.
 *
 * Values below 2^6 have a bucket each. For larger values the top seven bits choose the bucket: the position of the
 * highest bit gives the row, the six bits below it the column. Row r >= 1 holds the values v with v >> (r-1) in 64 to
 * 127. The bucket's number, (r-1) * 64 + (v >> (r-1)), therefore runs on without a gap.
 */
#include "measure/hist.h"

#include <math.h>
#include <string.h>

void hist_clear(struct hist *hist)
{
    memset(hist, 0, sizeof *hist);
}

void hist_merge(struct hist *hist, const struct hist *more)
{
    for (unsigned bucket = 0; bucket < HIST_BUCKETS; bucket++)
        hist->counts[bucket] += more->counts[bucket];
    hist->total += more->total;
    hist->max = more->max > hist->max ? more->max : hist->max;
}

static double bucket_middle(unsigned bucket)
{
    if (bucket < (2u << HIST_LINEAR_BITS))
        return bucket;
    unsigned shift = (bucket >> HIST_LINEAR_BITS) - 1;
    uint64_t low = (uint64_t)(bucket - (shift << HIST_LINEAR_BITS)) << shift;
    return (double)low + (double)(UINT64_C(1) << shift) / 2;
}

double hist_quantile(const struct hist *hist, double quantile)
{
    uint64_t wanted = (uint64_t)ceil(quantile * (double)hist->total);
    uint64_t seen = 0;
    for (unsigned bucket = 0; bucket < HIST_BUCKETS && hist->total > 0; bucket++) {
        seen += hist->counts[bucket];
        if (seen >= wanted && seen > 0)
            return fmin(bucket_middle(bucket), (double)hist->max);
    }
    return 0;
}
