/* latch.h - the latches of a stripe: a lock for some of its buckets, with a journal of its own.
 *
 * Bucket b belongs to latch b % MACHINE_LATCHES. A thread that reads or writes the chain of a bucket, or the states of its
 * keys, has its latch. A thread that changes which keys or free cells there are has the stripe's lock as well, and takes
 * that first.
 *
 *     a decision for a known key      the latch alone; threads wait for it that want a key of the same latch
 *     anything else                   the stripe's lock, then the latches of all buckets that it looks at
 *
 * A thread with nothing but a latch waits for no other lock, so threads cannot wait for each other in a circle. Nor does
 * it take over the latch of a dead process, which may have died in the middle of a change to the stripe. Only a thread
 * with the stripe's lock does, because it has finished such a change.
 *
 * The journal is that of journal.h, for one run of words in a row: collect the values, commit by writing the run, write
 * the words, forget. It is in the same cache line as the lock, which moves to the owner as a whole.
 */
#ifndef BACKENDS_MACHINE_LATCH_H
#define BACKENDS_MACHINE_LATCH_H

#include "backends/machine/journal.h"

#define LATCH_RUN_BITS 3 /* of the number of words */
#define ALL_LATCHES UINT32_MAX

_Static_assert(MACHINE_LATCH_WORDS < 1 << LATCH_RUN_BITS, "the number of words fits");
_Static_assert(MACHINE_LATCHES == 32, "a set of latches is 32 bits");

static inline struct machine_latch *latch_of(struct machine_stripe *stripe, uint32_t bucket)
{
    return &stripe->latches[bucket % MACHINE_LATCHES];
}

/* Return the set that has nothing but a bucket's latch. */
static inline uint32_t latch_set(uint32_t bucket)
{
    return UINT32_C(1) << bucket % MACHINE_LATCHES;
}

/* Write `n` words from `at` on as a whole. The caller has the latch. */
static inline void latch_write(struct machine_stripe *stripe, struct machine_latch *latch, uint64_t at,
                               const int64_t *words, size_t n)
{
    assert(n > 0 && n <= MACHINE_LATCH_WORDS);
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&latch->values[i], (uint64_t)words[i], memory_order_release);
    atomic_store_explicit(&latch->run, at << LATCH_RUN_BITS | n, memory_order_release);
    for (size_t i = 0; i < n; i++)
        stripe_store(stripe, at + i, (uint64_t)words[i]);
    atomic_store_explicit(&latch->run, 0, memory_order_release);
}

/* Finish what a dead process had committed. False: the journal is damaged, and nothing was written. */
bool latch_recover(struct machine_stripe *stripe, const struct machine_shape *shape, struct machine_latch *latch);

#endif
