/* meter.h - what was admitted of one key, and by how much it was too much. Used by judge.c only. */
#ifndef SOAK_METER_H
#define SOAK_METER_H

#include "allow.h"

#include "envelope.h"

#include <uthash.h>

#define CLOCK_ERROR_US 500 /* of a limiter's clock relative to the records', see weir_options.now_us */

struct meter { /* of a key */
    uint64_t id;
    int mode, limit, process; /* process: the only one that counts it, or the fallback's; -1: none */
    bool of_fallback;
    uint32_t key;
    struct admit *admits; /* costs in thousandths */
    size_t n, room;
    struct allowance *own;
    size_t own_n;
    int64_t latest_us, cut_us; /* records before cut_us are gone */
    bool touched;              /* since it was judged */
    UT_hash_handle hh;
};

struct bound {
    struct weir_policy policy;
    double size;                  /* permits of a fresh key */
    struct allowance *allowances; /* their `milli` is that of this key */
    size_t n;
};

/* Return the greatest excess over the bound in any known stretch of time, in permits; negative if there is room.
 * Sorts the calls. */
double meter_over(struct meter *meter, const struct bound *bound);

/* Forget what nothing after that time depends on; the calls are sorted. */
void meter_cut(struct meter *meter, const struct bound *bound, int64_t before_us);

/* Return `memory`, or exit if it is NULL. */
void *or_die(void *memory);

#endif
