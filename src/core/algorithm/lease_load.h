/* lease_load.h - how busy a key is in this instance: permits requested in a turn, and their moving average. */
#ifndef CORE_ALGORITHM_LEASE_LOAD_H
#define CORE_ALGORITHM_LEASE_LOAD_H

#include "core/algorithm/lease.h"

#define LOAD_PACE_US 5000 /* a busy key with rivals asks no more often for permits that have come back */
#define LOAD_TURNS_IN_LIFE 2
#define LOAD_AVERAGE_ONE 16  /* the average is kept in 16ths ... */
#define LOAD_AVERAGE_TURNS 4 /* ... and moves by a quarter of the difference each turn */

/* Return how long a turn is for leases with this life. */
int64_t load_turn_len_us(const struct weir_plan *plan, int64_t life_us);

/* Begin the turn that `now_us` is in. */
void load_turn_over(struct lease *lease, int64_t now_us);

static inline void load_turn(struct lease *lease, int64_t now_us)
{
    if (now_us >= lease->turn_us || now_us < lease->turn_us - 2 * lease->turn_len_us)
        load_turn_over(lease, now_us);
}

/* Return the permits requested in a turn, without the `cost` that was just counted. */
static inline int64_t load_beside(const struct lease *lease, int64_t cost)
{
    return max_of(lease->count - cost, (lease->average + LOAD_AVERAGE_ONE / 2) / LOAD_AVERAGE_ONE);
}

/* Return the permits that are requested while the key waits for others to come back. */
static inline int64_t load_in_pace(const struct lease *lease, int64_t load)
{
    return load * LOAD_PACE_US / lease->turn_len_us;
}

#endif
