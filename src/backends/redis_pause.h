/* redis_pause.h - how long to wait before something is tried again: pauses that grow, with jitter.
 *
 * Source: M. Brooker, "Exponential backoff and jitter", 2015: decorrelated.
 */
#ifndef BACKENDS_REDIS_PAUSE_H
#define BACKENDS_REDIS_PAUSE_H

#include "core/arith.h"
#include "core/clock.h"
#include "core/hash.h"

#define REDIS_PAUSE_MIN_US 10000
#define REDIS_PAUSE_MAX_US WEIR_SECOND

struct redis_pauses {
    int64_t last_us; /* 0: none since it worked; for the owner to set back */
    struct hash_secret jitter;
    uint64_t count;
};

static inline void redis_pauses_init(struct redis_pauses *pauses)
{
    *pauses = (struct redis_pauses){ 0 };
    if (hash_secret_draw(&pauses->jitter) != 0)
        pauses->jitter = (struct hash_secret){ (uint64_t)clock_monotonic_us(), (uint64_t)(uintptr_t)pauses };
}

static inline int64_t redis_pause_next_us(struct redis_pauses *pauses)
{
    int64_t most = pauses->last_us ? min_of(3 * pauses->last_us, REDIS_PAUSE_MAX_US) : REDIS_PAUSE_MIN_US;
    uint64_t chance = siphash13(&pauses->jitter, &pauses->count, sizeof pauses->count);
    pauses->count++;
    pauses->last_us = REDIS_PAUSE_MIN_US + (int64_t)(chance % (uint64_t)(most - REDIS_PAUSE_MIN_US + 1));
    return pauses->last_us;
}

#endif
