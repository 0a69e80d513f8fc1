/* meter.h - what was admitted of one key, and by how much it was too much. The judge's own: see judge.h. */
#ifndef SOAK_METER_H
#define SOAK_METER_H

#include "allow.h"

#include "envelope.h"

#include <uthash.h>

#define CLOCK_ERROR_US 500 /* of a limiter's clock against that of the records, see weir_options.now_us */

struct meter { /* of a key */
    uint64_t id;
    int mode, limit, process; /* process: who counts it alone, or whose fallback it is; -1 */
    bool of_fallback;
    uint32_t key;
    struct admit *admits; /* costs in thousandths */
    size_t n, room;
    struct allowance *own;
    size_t own_n;
    int64_t latest_us, cut_us; /* nothing before cut_us is known */
    bool touched;              /* since it was judged */
    UT_hash_handle hh;
};

struct bound {
    struct weir_policy policy;
    double size;                  /* permits at once */
    struct allowance *allowances; /* with `milli` what it is for this key */
    size_t n;
};

/* The greatest excess over the bound in any stretch of time that is known, in permits; below 0: so much less. Sorts the
 * calls. */
double meter_over(struct meter *meter, const struct bound *bound);

/* Forget what nothing after that time depends on; the calls are sorted. */
void meter_cut(struct meter *meter, const struct bound *bound, int64_t before_us);

/* `memory`, or the end. */
void *or_die(void *memory);

#endif
