/* allow.h - what may be admitted beyond a limit, and why: the one place where the soak says so.
 *
 * Always: of a greedy token bucket in hybrid mode weir_limit_info.over_max, of anything else nothing. What is done to
 * instances and to Redis allows more, by the table in docs/guarantees.md, once each time, in stretches of
 * time that touch the time in which it was done:
 *
 *     Redis loses what it counted       one fresh limit
 *     an instance forgets its own       local mode: one fresh limit, of what is counted by that instance alone; of a
 *     state: it is killed, or closed    limit that is shared out the instance's part, twice: what it has used is not
 *     and opened again                  known to those who get its part, nor is what they used to it when it is back
 *     a clock of its own goes forward   what the limit makes in as long, one fresh limit at most; of a window that
 *                                       limit whole. Twice that: a thread that has read the clock before may ask
 *                                       after another, and be taken for a clock that goes back and forward once more
 *     Redis was gone                    what was admitted without it while it was gone for all, one fresh limit at
 *                                       most, from when it is back: instances that are back before others cannot know
 *                                       what these have admitted. While it is gone nothing
 *     a key is reset, or refunded       one fresh limit; what was refunded
 *
 * What an instance admits by its fallback while Redis is there for others (it is late, or its own connection is bad)
 * comes on top, by its share: it is left out here, and held against that share by itself.
 */
#ifndef SOAK_ALLOW_H
#define SOAK_ALLOW_H

#include "soak.h"

/* Permits are told in thousandths. */
#define MILLI INT64_C(1000)

enum allowance_kind { ALLOW_LOSS, ALLOW_FORGOTTEN, ALLOW_REOPENED, ALLOW_CLOCK, ALLOW_OUTAGE, ALLOW_REFUND };

struct allowance {
    int64_t start_us, end_us; /* done at some time between */
    enum allowance_kind kind;
    uint32_t modes;     /* a bit each */
    uint32_t limits;    /* likewise; 0: all */
    int process;        /* that forgets its state; of ALLOW_REOPENED all do */
    int64_t forward_us; /* ALLOW_CLOCK: how far */
    int64_t milli;      /* ALLOW_OUTAGE, ALLOW_REFUND: permits */
};

/* How many thousandths of a permit more a key of that policy may admit; `process`: who counts it alone, or -1. */
int64_t allowance_milli(const struct allowance *allowance, const struct weir_policy *policy, int mode, int limit,
                        int process);

/* An instance's part of the permits of a limit, rounded up. */
int64_t part_of(int64_t permits);

#endif
