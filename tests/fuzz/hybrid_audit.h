/* hybrid_audit.h - checks what instances admitted of a key against the policy alone. */
#ifndef WEIR_TESTS_HYBRID_AUDIT_H
#define WEIR_TESTS_HYBRID_AUDIT_H

#include <weir/weir.h>

/* By a lease: when the permit was used; by the store: when it was charged. */
struct admitted {
    int64_t at_us, cost;
};

/* Check that no stretch of time has more than the bucket plus `over_max`, and no window or refill more than its size.
 * Leaky buckets and windows that begin with a key's first request are skipped. The list is sorted. */
void audit_admitted(const struct weir_policy *policy, int64_t over_max, struct admitted *list, size_t n);

#endif
