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
#define SETTLE_BITS 4       /* a key that is not at home asks for a move in one of 2^this decisions that change it, */
#define SETTLE_RIVAL_BITS 8 /* and to take the place of another key of that home in one of 2^this */
#define SHORT_TRIES 16 /* swaps: each that fails means that another thread's succeeded, or that the key was held */

/* A key that was found. */
struct sight {
    uint64_t at; /* its pair */
    struct pair pair;
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
    if (__builtin_expect(short_is(stripe, cell_at(shape, bucket_home(bucket)), key, what, sight), 1))
        return true;
    uint32_t cell = bucket_first(stripe, shape, bucket);
    for (int steps = 0; steps < SHORT_STEPS && cell_exists(shape, cell); steps++) {
        const uint64_t at = cell_at(shape, cell);
        if (short_is(stripe, at, key, what, sight))
            return true;
        cell = word_low(stripe_load(stripe, at));
    }
    return false;
}

/* Move a key that a decision found outside its home and changed, if it is time. `reads` is from readers_leave(). */
static inline void short_settle(struct machine *machine, const struct weir_limit *limit, struct weir_key key,
                                uint64_t hash, uint64_t reads)
{
    const uint64_t chance = reads * UINT64_C(0x9e3779b97f4a7c15);
    if (chance >> (64 - SETTLE_BITS) == 0)
        machine_settle(machine, limit, key, hash, chance >> (64 - SETTLE_RIVAL_BITS) == 0);
}

#endif
