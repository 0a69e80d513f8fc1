/* allow.h - what may be admitted beyond a limit, and why. No other file of the soak decides this.
 *
 * Without faults: over_max of weir_limit_info for a greedy token bucket in hybrid mode, otherwise nothing. Faults
 * allow more, by the table in docs/guarantees.md, once each, in stretches of time that touch the
 * fault's time:
 *
 *     Redis loses its counts            one fresh limit
 *     an instance loses its own         local mode: one fresh limit, if that instance alone counts it; of a shared
 *     state: it is killed, or closed    limit twice the instance's part: its heirs do not know what it used, and it
 *     and opened again                  does not know what they used when it returns
 *     its own clock goes forward        what the limit refills in that time, at most one fresh limit; a window whole.
 *                                       Twice that: a thread that read the clock before the step may ask after
 *                                       another one, which looks like a step back and forward again
 *     Redis was gone                    what was admitted without it while no instance reached it, at most one fresh
 *                                       limit, from its return on: instances that return first cannot know what the
 *                                       others admitted. Nothing while it is gone
 *     a key is reset, or refunded       one fresh limit; the refunded permits
 *
 * An instance's fallback may also admit permits while others reach Redis, because Redis is late or the instance's
 * connection is bad. They come on top, up to its share. They are not counted here, but checked against that share.
 */
#ifndef SOAK_ALLOW_H
#define SOAK_ALLOW_H

#include "soak.h"

/* Permits are counted in thousandths. */
#define MILLI INT64_C(1000)

enum allowance_kind { ALLOW_LOSS, ALLOW_FORGOTTEN, ALLOW_REOPENED, ALLOW_CLOCK, ALLOW_OUTAGE, ALLOW_REFUND };

struct allowance {
    int64_t start_us, end_us; /* it happened at some time between */
    enum allowance_kind kind;
    uint32_t modes;     /* a bit each */
    uint32_t limits;    /* a bit each; 0: all */
    int process;        /* the one that loses its state; ALLOW_REOPENED: all do */
    int64_t forward_us; /* ALLOW_CLOCK: how far */
    int64_t milli;      /* ALLOW_OUTAGE, ALLOW_REFUND: permits */
};

/* Return how many thousandths of a permit more a key of that policy may admit. `process` is the only one that counts
 * it, or -1. */
int64_t allowance_milli(const struct allowance *allowance, const struct weir_policy *policy, int mode, int limit,
                        int process);

/* Return an instance's part of a limit's permits, rounded up. */
int64_t part_of(int64_t permits);

#endif
