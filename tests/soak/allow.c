/* allow.c - what may be admitted beyond a limit: see allow.h. */
#include "allow.h"

int64_t part_of(int64_t permits)
{
    return (permits + PROCESSES - 1) / PROCESSES;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rounded up, as everything here is. */
static int64_t made_in(const struct weir_policy *policy, int64_t us)
{
    const int64_t size = policy_size(policy) * MILLI;
    if (!policy_flows(policy))
        return size;
    return least(size, (int64_t)((double)us * (double)policy->limit * (double)MILLI / (double)policy->period_us) + 1);
}

int64_t allowance_milli(const struct allowance *allowance, const struct weir_policy *policy, int mode, int limit,
                        int process)
{
    const int64_t size = policy_size(policy) * MILLI;
    if (!(allowance->modes & UINT32_C(1) << mode) ||
        (allowance->limits != 0 && !(allowance->limits & UINT32_C(1) << limit)))
        return 0;
    switch (allowance->kind) {
    case ALLOW_LOSS:
    case ALLOW_REOPENED: return size;
    case ALLOW_FORGOTTEN:
        if (process < 0)
            return 2 * part_of(policy_size(policy)) * MILLI;
        return process == allowance->process ? size : 0;
    case ALLOW_CLOCK: return 2 * made_in(policy, allowance->forward_us);
    case ALLOW_OUTAGE:
    case ALLOW_REFUND: return least(size, allowance->milli);
    }
    return 0;
}
