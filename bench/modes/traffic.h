/* traffic.h - requests that are drawn beforehand: when each comes, to which instance, and for which key. */
#ifndef BENCH_TRAFFIC_H
#define BENCH_TRAFFIC_H

#include <envelope.h>

#include "modes/modes.h"

#define TRAFFIC_MAX_INSTANCES (BENCH_MAX_INSTANCES + 1) /* one may come later */

/* What a mode said to a request, and when: microseconds after the start of the run. */
struct asked {
    int64_t start_us, end_us;
    bool is_answered, is_allowed;
};

struct arrival {
    int64_t due_us; /* after the start of the run */
    int cell;       /* whose key it asks for; numbered by whoever draws */
    int instance;
    struct asked asked[MODES]; /* by enum weir_mode; written by the instance */
};

/* How the balancer in front of the instances deals from then on. */
struct stage {
    int64_t from_us; /* 0 for the first */
    int weights[TRAFFIC_MAX_INSTANCES];
};

/* Draws arrivals[0..n) of a cell: at random within `length_us`, as from a great many users who know nothing of one
 * another, and dealt by smooth weighted round robin, so that each instance has its part to within one request. The same
 * `seed` gives the same. */
void traffic_draw(struct arrival *arrivals, size_t n, int cell, int64_t length_us, const struct stage *stages,
                  int stages_len, uint64_t seed);

/* In the order in which they are due. */
void traffic_sort(struct arrival *arrivals, size_t n);

/* What a mode admitted of a cell, for envelope.h; how many. `admits` has room for n. */
size_t traffic_admits(const struct arrival *arrivals, size_t n, enum weir_mode mode, int cell, struct admit *admits);

/* envelope_burst() for a limit of so many permits a second. Ends the program with a message if there is no memory: that
 * is no burst of which it could be said that it is within a bound. */
double traffic_burst(struct admit *admits, size_t n, int64_t per_second);

#endif
