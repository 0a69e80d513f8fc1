/* sim_meter.h - what the meters of buckets and of windows have in common. */
#ifndef SIM_METER_H
#define SIM_METER_H

#include "sim.h"

/* What one instance did without the store. */
struct lone {
    int64_t level, cold; /* units: of its share's meter, and of one that nobody uses */
    int64_t owed;        /* permits that are not settled */
    int64_t before;      /* units of them from earlier outages, not drained when the next began */
    int64_t last_us, outage_us, count;
};

struct meter {
    struct sim *sim;
    const struct sim_limit *limit;
    int number, key;
    int64_t period, size, rate;
    int64_t last_us;
    int64_t store, total; /* units */
    int64_t owed;         /* of all instances, permits */
    struct lone *lones;
    int64_t next_refill_us;
    int64_t credits; /* of which something may be leased yet */
    /* Windows. */
    int64_t window_end_us, window_used;
};

/* sim_windows.c: fixed and sliding ones. Records are in the order of time. */
void windows_check(struct meter *meter, struct record *records, size_t count);

#endif
