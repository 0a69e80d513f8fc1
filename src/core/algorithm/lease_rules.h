/* lease_rules.h - what the options and a plan alone say about leases. */
#ifndef CORE_ALGORITHM_LEASE_RULES_H
#define CORE_ALGORITHM_LEASE_RULES_H

#include <weir/backend.h>

/* From the options, and the number of instances. */
struct lease_rules {
    int64_t life_us;   /* 0: no leases */
    int64_t max;       /* permits that one key may have on lease in this instance */
    int64_t instances; /* the most that there may be */
    bool strict;
};

/* True if permits of a limit with this plan are leased. */
bool lease_is_on(const struct lease_rules *rules, const struct weir_plan *plan);

/* Return the most permits that an instance has on lease for one key. */
int64_t lease_max(const struct lease_rules *rules, const struct weir_plan *plan);

/* Return the most permits that all instances together admit beyond the limit. */
int64_t lease_over_max(const struct lease_rules *rules, const struct weir_plan *plan);

/* Return the permits that `strict` subtracts from a plan of the whole limit, or 0. The caller subtracts them. */
int64_t lease_reserve(const struct lease_rules *rules, const struct weir_plan *plan);

#endif
