/* short.h - the short way: a known key, found and changed under its bucket's latch alone.
 *
 * It is for keys of one cell, or of two of which the first holds nothing but the state, that are under the plan of their
 * request. It leaves all else to decide.c, which begins again under the stripe's lock: nothing has changed then.
 */
#ifndef BACKENDS_MACHINE_SHORT_H
#define BACKENDS_MACHINE_SHORT_H

#include "backends/machine/visit.h"

#define SHORT_STEPS 8 /* keys of a bucket to look at */

/* Find the state of a key in one cell, whose second word is `what`. 0: the stripe does not have the key, or its chain is damaged.
 * The caller has the bucket's latch. */
static inline uint64_t short_find(const struct machine_stripe *stripe, const struct machine_shape *shape,
                                  struct weir_key key, uint32_t bucket, uint64_t what)
{
    uint32_t cell = bucket_first(stripe, shape, bucket);
    for (int steps = 0; steps < SHORT_STEPS && cell_exists(shape, cell); steps++) {
        const uint64_t at = cell_at(shape, cell);
        if (stripe_load(stripe, at + 1) == what &&
            cell_has_key(stripe, at + MACHINE_CELL_HEAD + MACHINE_SMALL_WORDS, key))
            return at + MACHINE_CELL_HEAD;
        cell = word_low(stripe_load(stripe, at));
    }
    return 0;
}

/* Take a latch if it is free, or soon is. */
static inline bool short_enter(const struct machine_file *file, struct machine_latch *latch)
{
    return __builtin_expect(lock_try(file, &latch->lock), 1) || lock_soon(file, &latch->lock);
}

static inline void short_leave(struct machine_latch *latch)
{
    lock_leave(&latch->lock);
}

#endif
