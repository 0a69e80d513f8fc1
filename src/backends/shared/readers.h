/* readers.h - who is looking at memory that another may want to put to other use, at two plain stores a look.
 *
 * Each thread counts in a stripe of its own (core/ground/stats.h): odd while it looks. Who wants memory back makes it so that
 * it is not found any more, and waits then until each stripe has been seen even, or to have moved on: whoever looks by
 * then has begun since, and does not find it. That one of them sees the other takes a barrier on both sides, to which
 * the one who waits sees if it can (core/ground/fence.h).
 *
 * Looks are short and never wait for anything. Threads beyond the last stripe have none of their own and cannot look:
 * for them, and while all are shut out, there must be another way.
 *
 * (Desnoyers et al., "User-level implementations of read-copy update", 2012; here in the form that readers may be few
 * and writers seldom.)
 */
#ifndef BACKENDS_SHARED_READERS_H
#define BACKENDS_SHARED_READERS_H

#include "core/ground/stats.h"

#include <stdbool.h>
#include <stddef.h>

struct readers_stripe {
    alignas(64) _Atomic uint64_t turn;
};

struct readers {
    struct readers_stripe stripes[STATS_STRIPES];
    atomic_bool are_shut;
    bool fences; /* (c) each sees to its own barrier */
};

/* All zeroes before. Again in the child of a fork, whose only thread is not looking. */
void readers_init(struct readers *readers);

/* After this nobody looks who began before. Not by one who is looking; waits for the others, microseconds as a rule, at
 * worst until those that were preempted go on. */
void readers_wait(struct readers *readers);

/* From here on nobody can look, and nobody does; until they are let in again. */
void readers_shut(struct readers *readers);
void readers_open(struct readers *readers);

/* The look's stripe, for readers_leave(); NULL: it cannot be had. */
static inline _Atomic uint64_t *readers_enter(struct readers *readers)
{
    const unsigned stripe = stats_stripe();
    _Atomic uint64_t *turn = &readers->stripes[stripe].turn;
    if (__builtin_expect(stripe == STATS_SHARED_STRIPE, 0))
        return NULL;
    if (__builtin_expect(readers->fences, 0)) {
        atomic_fetch_add(turn, 1);
    } else {
        atomic_store_explicit(turn, atomic_load_explicit(turn, memory_order_relaxed) + 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst); /* for the compiler */
    }
    if (__builtin_expect(atomic_load_explicit(&readers->are_shut, memory_order_acquire), 0)) {
        atomic_store_explicit(turn, atomic_load_explicit(turn, memory_order_relaxed) + 1, memory_order_release);
        return NULL;
    }
    return turn;
}

/* How many looks this stripe has had, this one among them. */
static inline uint64_t readers_leave(_Atomic uint64_t *turn)
{
    const uint64_t next = atomic_load_explicit(turn, memory_order_relaxed) + 1;
    atomic_store_explicit(turn, next, memory_order_release);
    return next / 2;
}

#endif
