/* pause.h - pauses between retries, which grow and have jitter.
 *
 * Source: M. Brooker, "Exponential backoff and jitter", 2015, decorrelated jitter.
 */
#ifndef BACKENDS_REDIS_WIRE_PAUSE_H
#define BACKENDS_REDIS_WIRE_PAUSE_H

#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/ground/hash.h"

#include <weir/weir.h>

#define REDIS_PAUSE_MIN_US 10000
#define REDIS_PAUSE_MAX_US WEIR_SECOND

struct redis_pauses {
    int64_t last_us; /* 0: no pause yet; the owner resets it after a success */
    struct hash_secret jitter;
    uint64_t count;
};

static inline void redis_pauses_init(struct redis_pauses *pauses)
{
    *pauses = (struct redis_pauses){ 0 };
    if (hash_secret_draw(&pauses->jitter) != 0)
        pauses->jitter = (struct hash_secret){ (uint64_t)clock_monotonic_us(), (uint64_t)(uintptr_t)pauses };
}

/* Return a random number from 0 to `most_us`, which is not negative. */
static inline int64_t redis_pause_chance_us(struct redis_pauses *pauses, int64_t most_us)
{
    const uint64_t chance = siphash13(&pauses->jitter, &pauses->count, sizeof pauses->count);
    pauses->count++;
    return (int64_t)(chance % (uint64_t)(most_us + 1));
}

static inline int64_t redis_pause_next_us(struct redis_pauses *pauses)
{
    int64_t most = pauses->last_us ? min_of(3 * pauses->last_us, REDIS_PAUSE_MAX_US) : REDIS_PAUSE_MIN_US;
    pauses->last_us = REDIS_PAUSE_MIN_US + redis_pause_chance_us(pauses, most - REDIS_PAUSE_MIN_US);
    return pauses->last_us;
}

#endif
