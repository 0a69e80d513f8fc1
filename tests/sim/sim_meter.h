/* sim_meter.h - what the meters of buckets and of windows share. */
#ifndef SIM_METER_H
#define SIM_METER_H

#include "sim.h"

/* What an outage that has ended left owed, in units, and when its fallback admitted the last of it. */
struct lone_part {
    int64_t units, taken_us;
};

enum { LONE_PARTS = 8 };

/* One instance's uses without the store. */
struct lone {
    int64_t level, cold;                 /* units: of its share's meter, and of a meter without uses */
    int64_t owed;                        /* permits not settled yet */
    struct lone_part before[LONE_PARTS]; /* of them, from earlier outages, what had not drained when the next began */
    int parts;
    int64_t taken_us; /* when its fallback admitted a permit last */
    int64_t stale;    /* units: of what it believes to be left, its part that is not */
    int64_t last_us, outage_us, count;
    int64_t made;                 /* units: what other shares of this instance yielded in the outage that lasts */
    int64_t left, since_us, most; /* of the outage that lasts: its share of what was left, in units, and when it began;
                                     the most that its share yielded in one outage */
};

struct meter {
    struct sim *sim;
    const struct sim_limit *limit;
    int number, key;
    int64_t period, size, rate;
    int64_t last_us;
    int64_t store, total; /* units */
    int64_t all, late;    /* a meter that forgets nothing; `most` of all instances; units */
    int64_t owed;         /* of all instances, permits */
    int64_t stale; /* of all instances in an outage, units; and of those that have settled, while it may matter */
    int64_t was_stale;
    struct lone *lones;
    int64_t next_refill_us, refilled_us; /* refilled_us: the last one */
    int64_t spare;                       /* units that it gave back beyond those in use */
    int64_t idle_from_us; /* since then the store has nothing in use, with interval refill */
    int64_t credits;      /* some of which may still be leased */
    int64_t
        beyond; /* what charges and the leases of that time may have beyond the size: units, or a window's permits */
    /* Windows. */
    int64_t window_end_us, window_used;
};

/* Report that a level is above the most that a promise allows; units. */
void meter_over(struct meter *meter, const char *promise, int64_t at_us, int64_t level, int64_t most);

/* True if meter->all has a bound in this scenario. */
bool late_counts(const struct sim *sim);

/* Note what an instance's share yields in this outage, in meter->late, if that is more than in any before. */
void late_take(struct meter *meter, const struct record *record);

/* What one instance does without the store; sim_meter.c. lone_settle() returns the units that the meter must forget. */
void lone_outage(struct meter *meter, const struct record *record);
void lone_take(struct meter *meter, const struct record *record);
int64_t lone_settle(struct meter *meter, const struct record *record);

/* sim_windows.c: fixed and sliding windows. Records are sorted by time. */
void windows_check(struct meter *meter, struct record *records, size_t count);

/* sim_renew.c: permits in flight. Records are sorted by time. */
void held_check(struct meter *meter, const struct record *records, size_t count);

#endif
