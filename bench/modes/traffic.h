/* traffic.h - requests drawn in advance: when each comes, to which instance, and for which key. */
#ifndef BENCH_TRAFFIC_H
#define BENCH_TRAFFIC_H

#include <envelope.h>

#include "modes/modes.h"

/* A mode's answer to a request, and its times in microseconds after the start of the run. */
struct asked {
    int64_t start_us, end_us;
    bool is_answered, is_allowed;
};

struct arrival {
    int64_t due_us; /* after the start of the run */
    int cell;       /* the cell whose key it requests */
    int instance;
    struct asked asked[MODES]; /* by enum weir_mode; written by the instance */
};

/* Draw arrivals[0..n) of a cell at random times within `length_us`, as from many independent users. Smooth weighted
 * round robin deals them to the instances, so that each gets its part to within one request. The same `seed` gives the
 * same arrivals. */
void traffic_draw(struct arrival *arrivals, size_t n, int cell, int64_t length_us,
                  const int weights[BENCH_MAX_INSTANCES], uint64_t seed);

/* Sort by due time. */
void traffic_sort(struct arrival *arrivals, size_t n);

/* Collect what a mode admitted of a cell, for envelope.h; return how many. `admits` has room for n. */
size_t traffic_admits(const struct arrival *arrivals, size_t n, enum weir_mode mode, int cell, struct admit *admits);

/* Return envelope_burst() for a limit of that many permits a second. Fails without memory: no number could stand for
 * the result. */
double traffic_burst(struct admit *admits, size_t n, int64_t per_second);

#endif
