/* journal.h - changes to a stripe that happen as a whole or not at all, whenever the process dies.
 *
 *     collect     the words to be written go to the stripe's journal, behind its length, which is still 0
 *     commit      the length is written: the change is decided
 *     apply       the words are written to their places
 *     forget      the length becomes 0
 *
 * A thread that inherits the lock of a dead process applies what was committed, which does no harm if it was applied
 * before, and forgets it. So a death before the commit changes nothing, and one after it changes everything. The caller
 * in the dead process never got its answer: at worst the permits of one decision are charged and not used.
 *
 * All stores have release order, so that they become visible in this order on every processor. What is not reachable
 * yet, such as the content of free cells, is written without the journal.
 *
 * The caller holds the stripe's lock. A decision without that lock could change a pair at the same time, so the caller
 * holds the pair until the journal is empty again (pair.h). Otherwise the journal of a dead process would undo the
 * decision.
 */
#ifndef BACKENDS_MACHINE_JOURNAL_H
#define BACKENDS_MACHINE_JOURNAL_H

#include "backends/machine/layout.h"

#include <assert.h>

/* Where the parts of a stripe are, in words from its beginning, and how many. (c) */
struct machine_shape {
    uint64_t bucket_word, cell_word, words;
    uint32_t cells; /* and buckets */
};

struct change {
    struct machine_stripe *stripe;
    unsigned n;
};

static inline _Atomic uint64_t *stripe_word(struct machine_stripe *stripe, uint64_t at)
{
    return (_Atomic uint64_t *)(void *)stripe + at;
}

/* Acquire order is for decisions without the stripe's lock: what they read later is not older. */
static inline uint64_t stripe_load(const struct machine_stripe *stripe, uint64_t at)
{
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)stripe + at, memory_order_acquire);
}

/* Write what no other process can reach yet. */
static inline void stripe_store(struct machine_stripe *stripe, uint64_t at, uint64_t value)
{
    atomic_store_explicit(stripe_word(stripe, at), value, memory_order_release);
}

static inline struct change change_begin(struct machine_stripe *stripe)
{
    return (struct change){ .stripe = stripe };
}

static inline uint64_t journal_at(const struct machine_stripe *stripe, uint64_t i)
{
    return atomic_load_explicit(&stripe->journal[i].at, memory_order_relaxed);
}

static inline uint64_t journal_value(const struct machine_stripe *stripe, uint64_t i)
{
    return atomic_load_explicit(&stripe->journal[i].value, memory_order_relaxed);
}

/* Add a word that the change does not have yet. */
static inline void change_add(struct change *change, uint64_t at, uint64_t value)
{
    assert(change->n < MACHINE_JOURNAL);
    struct machine_write *write = &change->stripe->journal[change->n++];
    atomic_store_explicit(&write->at, at, memory_order_release);
    atomic_store_explicit(&write->value, value, memory_order_release);
}

/* Return a word as it will be. */
static inline uint64_t change_get(const struct change *change, uint64_t at)
{
    for (unsigned i = 0; i < change->n; i++)
        if (journal_at(change->stripe, i) == at)
            return journal_value(change->stripe, i);
    return stripe_load(change->stripe, at);
}

static inline void change_put(struct change *change, uint64_t at, uint64_t value)
{
    for (unsigned i = 0; i < change->n; i++)
        if (journal_at(change->stripe, i) == at) {
            atomic_store_explicit(&change->stripe->journal[i].value, value, memory_order_release);
            return;
        }
    change_add(change, at, value);
}

/* Apply what the journal holds, and forget it. */
static inline void journal_apply(struct machine_stripe *stripe, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        stripe_store(stripe, journal_at(stripe, i), journal_value(stripe, i));
    atomic_store_explicit(&stripe->journal_len, 0, memory_order_release);
}

static inline void change_commit(struct change *change)
{
    if (change->n == 0)
        return;
    atomic_store_explicit(&change->stripe->journal_len, change->n, memory_order_release);
    journal_apply(change->stripe, change->n);
    change->n = 0;
}

/* Finish what a dead process had committed. False: the journal or the stripe is damaged, and stripe_repair() must go
 * through it. */
bool journal_recover(struct machine_stripe *stripe, const struct machine_shape *shape);

#endif
