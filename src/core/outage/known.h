/* known.h - remembers how many permits the backend last reported as left of a key.
 *
 * Keys share slots by their hash. A slot is one word, so it needs no lock: the upper 27 bits of the key's hash, 6 bits
 * that differ after each change, then the permits. A key whose slot another one has taken is unknown. That two keys in
 * a slot have the same 27 bits is improbable, and their hashes are secret; then one is taken for the other.
 *
 * Answers to requests that were under way at the same time may be noted in another order than the backend gave them.
 * Then the smaller number stays: another request of this process may have taken the difference.
 */
#ifndef CORE_OUTAGE_KNOWN_H
#define CORE_OUTAGE_KNOWN_H

#include "core/ground/arith.h"

#include <stdatomic.h>

#define KNOWN_SLOTS 16384 /* 192 KiB */
#define KNOWN_LEFT_MAX INT64_C(0x7fffffff)
#define KNOWN_CHANGE UINT64_C(0x80000000)
#define KNOWN_KEY (~UINT64_C(0x1fffffffff))

struct known {
    _Atomic uint32_t answers; /* how many have been noted; it wraps */
    _Atomic uint64_t slots[KNOWN_SLOTS];
    _Atomic uint32_t noted[KNOWN_SLOTS]; /* which answer it was, or one that is about to be */
};

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
    left = max_of(0, min_of(left, KNOWN_LEFT_MAX));
    do {
        const uint32_t latest = atomic_load_explicit(noted, memory_order_acquire);
        const bool overlaps = known_is_of(word, hash) && latest - asked - 1 < UINT32_MAX / 2;
        const int64_t kept = overlaps ? min_of(left, (int64_t)word & KNOWN_LEFT_MAX) : left;
        changed = (hash & KNOWN_KEY) | ((word + KNOWN_CHANGE) & ~KNOWN_KEY & ~(uint64_t)KNOWN_LEFT_MAX) |
                  (uint64_t)kept;
        atomic_store_explicit(noted, number, memory_order_release);
    } while (!atomic_compare_exchange_weak_explicit(slot, &word, changed, memory_order_acq_rel, memory_order_acquire));
}

/* Return 0 if it is not known. */
static inline int64_t known_left(const struct known *known, uint64_t hash)
{
    const uint64_t word = atomic_load_explicit(&known->slots[hash % KNOWN_SLOTS], memory_order_relaxed);
    return known_is_of(word, hash) ? (int64_t)word & KNOWN_LEFT_MAX : 0;
}

#endif
