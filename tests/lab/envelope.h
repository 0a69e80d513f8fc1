/* envelope.h - by how much admitted permits exceed a limit, from the times of the calls alone.
 *
 * A call is decided at an unknown instant between its start and its end. So a call counts in a stretch of time only
 * if it lies wholly within it: a reported excess is real.
 */
#ifndef WEIR_LAB_ENVELOPE_H
#define WEIR_LAB_ENVELOPE_H

#include <stddef.h>
#include <stdint.h>

struct admit {
    int64_t start_us, end_us; /* of the call */
    int64_t cost;
};

/* Return the greatest permits admitted within a stretch [a, b] minus (b - a) * limit / period, over all stretches:
 * the burst that must have existed. If it exceeds the limit's burst, that is over-admission. Sorts `admits`, takes n
 * log n time. -1 without memory. */
double envelope_burst(struct admit *admits, size_t n, int64_t limit, int64_t period_us);

/* Return the most permits admitted within any stretch of `period_us`. Sorts `admits`, takes n log n time. -1 without
 * memory. */
int64_t envelope_stretch(struct admit *admits, size_t n, int64_t period_us);

/* The same, only over stretches that begin at a multiple of `period_us`. */
int64_t envelope_grid(struct admit *admits, size_t n, int64_t period_us);

#endif
