/* known.h - remembers how many permits the backend last reported as left of a key.
 *
 * Keys share slots by their hash. A slot is one word, so it needs no lock: the upper 33 bits of the key's hash, then
 * the permits. A key whose slot another one has taken is unknown. That two keys in a slot have the same 33 bits is
 * improbable, and their hashes are secret; then one is taken for the other.
 */
#ifndef CORE_OUTAGE_KNOWN_H
#define CORE_OUTAGE_KNOWN_H

#include "core/ground/arith.h"

#include <stdatomic.h>

#define KNOWN_SLOTS 16384 /* 128 KiB */
#define KNOWN_LEFT_MAX INT64_C(0x7fffffff)

struct known {
    _Atomic uint64_t slots[KNOWN_SLOTS];
};

static inline void known_note(struct known *known, uint64_t hash, int64_t left)
{
    const uint64_t word = (hash & ~(uint64_t)KNOWN_LEFT_MAX) | (uint64_t)max_of(0, min_of(left, KNOWN_LEFT_MAX));
    atomic_store_explicit(&known->slots[hash % KNOWN_SLOTS], word, memory_order_relaxed);
}

/* Return 0 if it is not known. */
static inline int64_t known_left(const struct known *known, uint64_t hash)
{
    const uint64_t word = atomic_load_explicit(&known->slots[hash % KNOWN_SLOTS], memory_order_relaxed);
    return (word ^ hash) > (uint64_t)KNOWN_LEFT_MAX ? 0 : (int64_t)(word & (uint64_t)KNOWN_LEFT_MAX);
}

#endif
