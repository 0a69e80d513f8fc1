/* short.h - the short way: a known key, found and changed without a lock.
 *
 * A thread reads the key's pair, sees that the key is the request's, decides, and swaps the pair (pair.h). All that
 * changes more than the pair, or finds the key held or under another plan, is left to decide.c, which begins again
 * under the stripe's lock: nothing has changed then.
 *
 * The chain of a bucket may change while it is followed. Then the thread finds the key, finds nothing, or finds a cell
 * that was another key's a moment ago, whose pair has another turn. The process's copies of plans stay what they are,
 * because the thread is one of the book's readers.
 */
#ifndef BACKENDS_MACHINE_SHORT_H
#define BACKENDS_MACHINE_SHORT_H

#include "backends/machine/visit.h"

#define SHORT_STEPS 8  /* keys of a bucket to look at */
#define SHORT_TRIES 16 /* swaps: each that fails means that another thread's succeeded, or that the key was held */

/* A key that was found. */
struct sight {
    uint32_t first; /* cell */
    uint64_t at;    /* its pair */
    struct pair pair;
};

/* Find a key with a state of two words in one cell, whose second word is `what`. False: the bucket does not have it, or
 * its chain is damaged. */
static inline bool short_find(const struct machine_stripe *stripe, const struct machine_shape *shape,
                              struct weir_key key, uint32_t bucket, uint64_t what, struct sight *sight)
{
    uint32_t cell = bucket_first(stripe, shape, bucket);
    for (int steps = 0; steps < SHORT_STEPS && cell_exists(shape, cell); steps++) {
        const uint64_t at = cell_at(shape, cell);
        *sight = (struct sight){ cell, at + MACHINE_CELL_HEAD, pair_load(stripe, at + MACHINE_CELL_HEAD) };
        if (stripe_load(stripe, at + 1) == what && cell_has_key(stripe, at + MACHINE_CELL_HEAD + PAIR_WORDS, key))
            return true;
        cell = word_low(stripe_load(stripe, at));
    }
    return false;
}

#endif
