/* hybrid_audit.h - what instances have admitted of a key, held against the policy alone. */
#ifndef WEIR_TESTS_HYBRID_AUDIT_H
#define WEIR_TESTS_HYBRID_AUDIT_H

#include <weir/weir.h>

/* By a lease: when that was used; by the store: when it was charged. */
struct admitted {
    int64_t at_us, cost;
};

/* In no stretch of time more than the bucket and `over_max`, in no window or refill more than it has. Those that begin
 * with a key's first request are left out, and leaky buckets. The list is sorted. */
void audit_admitted(const struct weir_policy *policy, int64_t over_max, struct admitted *list, size_t n);

#endif
