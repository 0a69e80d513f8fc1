/* lease_rules.h - what the options and a plan alone say about leases. */
#ifndef CORE_ALGORITHM_LEASE_RULES_H
#define CORE_ALGORITHM_LEASE_RULES_H

#include <weir/backend.h>

/* From the options, and the number of instances. */
struct lease_rules {
    int64_t life_us;   /* no lease lives longer; 0: no leases */
    int64_t excess;    /* greedy buckets: what refills in a lease's life, in percent of the burst */
    int64_t denial_us; /* no denial is remembered longer */
    int64_t max;       /* permits that one key may have on lease in this instance */
    int64_t instances; /* the most that there may be */
    bool strict;
};

/* True if permits come back continuously. */
static inline bool is_greedy(const struct weir_plan *plan)
{
    return plan->algorithm == WEIR_TOKEN_BUCKET && plan->refill == WEIR_GREEDY;
}

/* True for a bucket that drains all the time, so that permits come back one by one. */
static inline bool drains_steadily(const struct weir_plan *plan)
{
    return plan->algorithm == WEIR_LEAKY_BUCKET || is_greedy(plan);
}

/* Return how long a lease may be spent at most: while it does no harm. Leases of greedy buckets live for as long as
 * `excess` takes to refill, those of windows and of interval refill until permits come back together, those of leaky
 * buckets while the queue drains. 0: too short, or `strict` cannot hold enough back. */
int64_t lease_life_us(const struct lease_rules *rules, const struct weir_plan *plan);

/* True if permits of a limit with this plan are leased. */
bool lease_is_on(const struct lease_rules *rules, const struct weir_plan *plan);

/* Return the most permits that an instance has on lease for one key. */
int64_t lease_max(const struct lease_rules *rules, const struct weir_plan *plan);

/* Return the most permits that all instances together admit beyond the limit, however many they are. */
int64_t lease_over_max(const struct lease_rules *rules, const struct weir_plan *plan);

/* Return the permits that `strict` subtracts from a plan of the whole limit, or 0. The caller subtracts them. */
int64_t lease_reserve(const struct lease_rules *rules, const struct weir_plan *plan);

#endif
