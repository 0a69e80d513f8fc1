/* stats.h - counters that cost a decision about a nanosecond and lose none.
 *
 * Each thread that counts has a stripe of its own, in every limiter the one of the same number: it adds by a plain
 * load and store, no locked instruction. Threads beyond the last stripe share that one and add atomically. A stripe
 * that a thread gives up at its end goes to the next new thread with its sums in place.
 */
#ifndef CORE_STATS_H
#define CORE_STATS_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#define STATS_STRIPES 64 /* the last is shared */

enum stats_counter { STATS_ALLOWED, STATS_DENIED, STATS_ERRORS, STATS_COUNTERS };

struct stats_stripe {
    alignas(64) _Atomic uint64_t counts[STATS_COUNTERS]; /* relaxed: sums only, they order nothing */
};

struct stats {
    struct stats_stripe stripes[STATS_STRIPES];
};

void stats_add(struct stats *stats, enum stats_counter counter, uint64_t amount);

uint64_t stats_sum(struct stats *stats, enum stats_counter counter);

#endif
