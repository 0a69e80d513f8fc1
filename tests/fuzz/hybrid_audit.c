/* hybrid_audit.c - checks admitted permits against the policy alone: see hybrid_audit.h. */
#include "hybrid_audit.h"

#include "fuzz.h"
#include "model.h"

#include <inttypes.h>

static void sort_by_time(struct admitted *list, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && list[k - 1].at_us > list[k].at_us; k--) {
            const struct admitted earlier = list[k];
            list[k] = list[k - 1];
            list[k - 1] = earlier;
        }
}

/* Compute the level of a leaky meter over all admitted permits. With `steps` it drains at multiples of the period. A
 * permit is period_us units. */
static void check_meter(const struct weir_policy *policy, int64_t over_max, const struct admitted *list, size_t n,
                        bool steps)
{
    const wide period = policy->period_us, size = (policy->burst ? policy->burst : policy->limit) + policy->debt;
    wide level = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t before_us = i > 0 ? list[i - 1].at_us : list[i].at_us;
        const wide drained = steps ? (list[i].at_us / period - before_us / period) * period
                                   : (wide)(list[i].at_us - before_us);
        level = level > drained * policy->limit ? level - drained * policy->limit : 0;
        level += list[i].cost * period;
        fuzz_must(level <= (size + over_max) * period, "at %" PRId64 " us %" PRId64 " too many were admitted",
                  list[i].at_us, (int64_t)(level / period - size - over_max));
    }
}

static void check_window(const struct weir_policy *policy, const struct admitted *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (size_t k = i; k < n; k++) {
            const bool within = policy->algorithm == WEIR_FIXED_WINDOW
                                    ? list[k].at_us / policy->period_us == list[i].at_us / policy->period_us
                                    : list[k].at_us - list[i].at_us < policy->period_us;
            sum += within ? list[k].cost : 0;
        }
        fuzz_must(sum <= policy->limit, "%" PRId64 " are admitted within %" PRId64 " us", sum, policy->period_us);
    }
}

void audit_admitted(const struct weir_policy *policy, int64_t over_max, struct admitted *list, size_t n)
{
    sort_by_time(list, n);
    const bool on_grid = policy->align == WEIR_ALIGN_EPOCH;
    if (policy->algorithm == WEIR_SLIDING_WINDOW || (policy->algorithm == WEIR_FIXED_WINDOW && on_grid))
        check_window(policy, list, n);
    else if (policy->algorithm == WEIR_TOKEN_BUCKET && (policy->refill == WEIR_GREEDY || on_grid))
        check_meter(policy, over_max, list, n, on_grid);
}
