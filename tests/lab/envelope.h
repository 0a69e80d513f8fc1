/* envelope.h - how far what was admitted went beyond what a limit may admit, from the times of the calls alone.
 *
 * A call was decided at some instant between its start and its end, nobody outside knows which. So admits count against
 * a stretch of time only if their calls lie wholly within it: what is found was really too much.
 */
#ifndef WEIR_LAB_ENVELOPE_H
#define WEIR_LAB_ENVELOPE_H

#include <stddef.h>
#include <stdint.h>

struct admit {
    int64_t start_us, end_us; /* of the call */
    int64_t cost;
};

/* The greatest, over all stretches of time [a, b], of the permits admitted within it less (b - a) * limit / period: the
 * burst that must have been there. Above the limit's own burst, that is over-admission. Sorts `admits`. n log n time.
 * -1 if there is no memory for it. */
double envelope_burst(struct admit *admits, size_t n, int64_t limit, int64_t period_us);

/* The most permits admitted within one stretch of `period_us` microseconds. Sorts `admits`. n log n time. -1 if there
 * is no memory for it. */
int64_t envelope_stretch(struct admit *admits, size_t n, int64_t period_us);

/* The same over those stretches alone that begin at a multiple of `period_us`. */
int64_t envelope_grid(struct admit *admits, size_t n, int64_t period_us);

#endif
