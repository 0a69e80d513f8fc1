/* shadow.c - chooses the keys of a limit with percent=N, and admits what a shadow limit denies. */
#include "core/limiter/shadow.h"

/* The hash is keyed by the limit's name as well, so that two limits do not spare the same keys. `percent` is that of
 * the shadow: the keys with the lowest hashes are enforced, so more of them come as it falls, and none leaves. */
bool shadow_spares(const struct weir_limit *limit, struct weir_key key, int32_t percent)
{
    const struct hash_secret *seed = &limit->limiter->chooses;
    const struct hash_secret secret = { siphash13(seed, limit->name, strlen(limit->name)), seed->k1 };
    return siphash13(&secret, key.data, key.len) % 100 >= (uint64_t)(100 - percent);
}

void shadow_admit(struct weir_decision *decision)
{
    decision->would_deny = !decision->allowed;
    decision->allowed = true;
    decision->retry_after_us = 0;
    decision->delay_us = 0;
}
