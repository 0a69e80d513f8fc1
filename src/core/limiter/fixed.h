/* fixed.h - limits and overrides that exempt a key or ban it: decided without the backend.
 *
 * Each way to the backend asks here first. A backend never sees their requests, except one that began before the policy
 * came into force.
 */
#ifndef CORE_LIMITER_FIXED_H
#define CORE_LIMITER_FIXED_H

#include "core/limiter/limiter.h"

/* True if the limit or override is unlimited or denies everything. */
static inline bool limit_is_fixed(const struct weir_limit *limit)
{
    return atomic_load_explicit(&limit->fixed, memory_order_acquire) != 0;
}

/* True if a request is about a slot that was taken before the policy came into force: it is released all the same. */
static inline bool fixed_leaves(const struct weir_backend_request *request)
{
    return request->slot != 0 && request->verb == WEIR_REFUND;
}

/* Decide about a limit or an override, as of limit_for_key(), if it is unlimited or denies everything; whatever the
 * verb, because it keeps no state that a refund, charge or reset would change. False: the backend decides. */
static inline bool fixed_decide(const struct weir_limit *limit, struct weir_decision *out)
{
    const int32_t fixed = atomic_load_explicit(&limit->fixed, memory_order_acquire);
    if (__builtin_expect(fixed == 0, 1))
        return false;
    const bool admits = fixed == WEIR_UNLIMITED;
    *out = (struct weir_decision){
        .allowed = admits,
        .source = WEIR_BY_POLICY,
        .limit = admits ? WEIR_MAX_PERMITS : 0,
        .remaining = admits ? WEIR_MAX_PERMITS : 0,
        .retry_after_us = admits ? 0 : WEIR_NEVER,
    };
    return true;
}

#endif
