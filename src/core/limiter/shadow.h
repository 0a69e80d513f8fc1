/* shadow.h - shadow limits: they decide and count as if they were enforced, and their denials bind nothing.
 *
 * The backend knows nothing of shadows: it decides, and what it denies it does not charge. Then shadow_apply() turns
 * the denial into an admission that says so. weir_try_all() passes only enforced limits to the backend as a group
 * (group.c).
 */
#ifndef CORE_LIMITER_SHADOW_H
#define CORE_LIMITER_SHADOW_H

#include "core/limiter/limiter.h"

/* True if the key is among the `percent` of all keys for which the limit is a shadow. */
bool shadow_spares(const struct weir_limit *limit, struct weir_key key, int32_t percent);

/* True if the limit is a shadow for some keys, or has or is a candidate. */
static inline bool limit_has_shadow(const struct weir_limit *limit)
{
    return atomic_load_explicit(&limit->shadow, memory_order_relaxed) != 0;
}

/* True if the limit denies nothing to this key. `limit` may be an override. */
static inline bool limit_is_shadow(const struct weir_limit *limit, struct weir_key key)
{
    const int32_t percent = atomic_load_explicit(&limit->shadow, memory_order_relaxed) & LIMIT_PERCENT;
    return __builtin_expect(percent != 0, 0) && (percent == 100 || shadow_spares(limit, key, percent));
}

/* Make a shadow limit's decision one that binds nothing: neither a denial nor a leaky bucket's delay. */
void shadow_admit(struct weir_decision *decision);

/* Do that if the limit is a shadow for this key. */
static inline void shadow_apply(const struct weir_limit *limit, struct weir_key key, struct weir_decision *decision)
{
    if (limit_is_shadow(limit, key))
        shadow_admit(decision);
}

#endif
