/* known.h - remembers how many permits the backend last reported as left of a key.
 *
 * Keys share slots by their hash. A slot is one word, so it needs no lock: the upper 27 bits of the key's hash, 6 bits
 * that differ after each change, then the permits. Of 2^30 permits or more it has the upper 25 bits, and how many lower
 * ones there are. A key whose slot another one has taken is unknown. That two keys in
 * a slot have the same 27 bits is improbable, and their hashes are secret; then one is taken for the other.
 *
 * Answers to requests that were under way at the same time may be noted in another order than the backend gave them.
 * Then the smaller number stays: another request of this process may have taken the difference.
 */
#ifndef CORE_OUTAGE_KNOWN_H
#define CORE_OUTAGE_KNOWN_H

#include "core/ground/arith.h"

#include <stdatomic.h>

#define KNOWN_SLOTS 16384               /* 192 KiB */
#define KNOWN_LEFT UINT64_C(0x7fffffff) /* of a slot: its permits, as known_packed() gives them */
#define KNOWN_LARGE UINT64_C(0x40000000)
#define KNOWN_DIGITS 25 /* bits of a large number */
#define KNOWN_CHANGE UINT64_C(0x80000000)
#define KNOWN_KEY (~UINT64_C(0x1fffffffff))

struct known {
    _Atomic uint32_t answers; /* how many have been noted; it wraps */
    _Atomic uint64_t slots[KNOWN_SLOTS];
    _Atomic uint32_t noted[KNOWN_SLOTS]; /* which answer it was, or one that is about to be */
};

/* Return permits, below 2^50, in 31 bits: of large numbers the upper bits, and how many others there are. So a larger
 * number never looks like a smaller one. */
static inline uint64_t known_packed(int64_t left)
{
    const uint64_t permits = (uint64_t)left;
    if (permits < KNOWN_LARGE)
        return permits;
    const unsigned others = 64 - KNOWN_DIGITS - (unsigned)__builtin_clzll(permits);
    return KNOWN_LARGE | (uint64_t)others << KNOWN_DIGITS | (permits >> others & ((UINT64_C(1) << KNOWN_DIGITS) - 1));
}
_Static_assert(50 - KNOWN_DIGITS < 1 << (30 - KNOWN_DIGITS), "the number of others fits");

/* Return permits from that, rounded down. */
static inline int64_t known_unpacked(uint64_t packed)
{
    if (packed < KNOWN_LARGE)
        return (int64_t)packed;
    return (int64_t)((packed & ((UINT64_C(1) << KNOWN_DIGITS) - 1)) << (packed >> KNOWN_DIGITS & 31));
}

static inline bool known_is_of(uint64_t word, uint64_t hash)
{
    return ((word ^ hash) & KNOWN_KEY) == 0;
}

/* Note an answer to a request. `asked` is what `answers` was before the request left. An answer that was noted since
 * then may be later than this one. It is in `noted` before it is in the slot, and a change of the slot in the meantime
 * begins the comparison anew. */
static inline void known_note(struct known *known, uint64_t hash, int64_t left, uint32_t asked)
{
    _Atomic uint64_t *slot = &known->slots[hash % KNOWN_SLOTS];
    _Atomic uint32_t *noted = &known->noted[hash % KNOWN_SLOTS];
    const uint32_t number = atomic_fetch_add_explicit(&known->answers, 1, memory_order_relaxed) + 1;
    uint64_t word = atomic_load_explicit(slot, memory_order_acquire), changed;
    const uint64_t packed = known_packed(max_of(0, left));
    do {
        const uint32_t latest = atomic_load_explicit(noted, memory_order_acquire);
        const bool overlaps = known_is_of(word, hash) && latest - asked - 1 < UINT32_MAX / 2;
        const uint64_t kept = overlaps && (word & KNOWN_LEFT) < packed ? word & KNOWN_LEFT : packed;
        changed = (hash & KNOWN_KEY) | ((word + KNOWN_CHANGE) & ~KNOWN_KEY & ~KNOWN_LEFT) | kept;
        atomic_store_explicit(noted, number, memory_order_release);
    } while (!atomic_compare_exchange_weak_explicit(slot, &word, changed, memory_order_acq_rel, memory_order_acquire));
}

/* Return 0 if it is not known. */
static inline int64_t known_left(const struct known *known, uint64_t hash)
{
    const uint64_t word = atomic_load_explicit(&known->slots[hash % KNOWN_SLOTS], memory_order_relaxed);
    return known_is_of(word, hash) ? known_unpacked(word & KNOWN_LEFT) : 0;
}

#endif
