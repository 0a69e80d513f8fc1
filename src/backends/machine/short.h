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
    uint64_t at; /* its pair */
    struct pair pair;
    bool is_away; /* it is not in its home */
};

/* True if a cell, whose second word is then `what`, has a state of two words and the key. */
static inline bool short_is(const struct machine_stripe *stripe, uint64_t at, struct weir_key key, uint64_t what,
                            struct sight *sight)
{
    sight->at = at + MACHINE_CELL_HEAD;
    sight->pair = pair_load(stripe, sight->at);
    return stripe_load(stripe, at + 1) == what && cell_has_key(stripe, sight->at + PAIR_WORDS, key);
}

/* Find it: mostly in the home of its bucket. False: the stripe does not have it, or its chain is damaged. */
static inline bool short_find(const struct machine_stripe *stripe, const struct machine_shape *shape,
                              struct weir_key key, uint32_t bucket, uint64_t what, struct sight *sight)
{
    sight->is_away = false;
    if (__builtin_expect(short_is(stripe, cell_at(shape, bucket_home(bucket)), key, what, sight), 1))
        return true;
    sight->is_away = true;
    uint32_t cell = bucket_first(stripe, shape, bucket);
    for (int steps = 0; steps < SHORT_STEPS && cell_exists(shape, cell); steps++) {
        const uint64_t at = cell_at(shape, cell);
        if (short_is(stripe, at, key, what, sight))
            return true;
        cell = word_low(stripe_load(stripe, at));
    }
    return false;
}

#endif
