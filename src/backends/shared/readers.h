/* readers.h - keeps memory in place while threads read it without a lock. Reading costs two plain stores.
 *
 * Each thread has a stripe (core/ground/stats.h) with a counter that is odd while it reads. A thread that wants
 * memory back first makes it impossible to find, and then waits until each stripe has been even or has changed: a
 * thread that reads after that began later and cannot find the memory. Both sides need a barrier so that one sees
 * the other; the waiting side executes it for both if it can (core/ground/fence.h).
 *
 * Reads are short and never wait. Threads without a stripe cannot read this way, and no thread can while readers
 * are shut out. Those cases need another way, such as a mutex.
 *
 * (Desnoyers et al., "User-level implementations of read-copy update", 2012; here for few readers and rare
 * writers.)
 */
#ifndef BACKENDS_SHARED_READERS_H
#define BACKENDS_SHARED_READERS_H

#include "core/ground/stats.h"

#include <stdbool.h>
#include <stddef.h>

#define READERS_SHUT 1u   /* no thread can begin to read */
#define READERS_FENCES 2u /* each side executes its own barrier */

struct readers_stripe {
    alignas(64) _Atomic uint64_t turn;
};

struct readers {
    struct readers_stripe stripes[STATS_STRIPES];
    _Atomic unsigned care; /* READERS_SHUT, and READERS_FENCES, which is constant */
};

/* Prepare zeroed readers. Also called in the child of a fork, whose only thread does not read. */
void readers_init(struct readers *readers);

/* Wait until every read that began before has ended: usually microseconds, at worst until preempted readers run
 * again. Not for a thread that reads itself. */
void readers_wait(struct readers *readers);

/* Shut readers out and wait until none is left; readers_open() lets them in again. */
void readers_shut(struct readers *readers);
void readers_open(struct readers *readers);

/* End a read. Returns how many reads this stripe has had. */
static inline uint64_t readers_leave(_Atomic uint64_t *turn)
{
    stats_add_own(turn, 1, memory_order_release);
    return atomic_load_explicit(turn, memory_order_relaxed) / 2;
}

/* Return the turn of the thread whose stats_own_stripe is `own_stripe`, which is not 0. */
static inline _Atomic uint64_t *readers_turn(struct readers *readers, unsigned own_stripe)
{
    return &(readers->stripes + own_stripe)[-1].turn;
}

/* Do the rest of readers_begin() if readers are shut out or need barriers. */
bool readers_begin_with_care(struct readers *readers, _Atomic uint64_t *turn);

/* Begin to read by the turn of this thread's own stripe. False: it cannot read now. */
static inline bool readers_begin(struct readers *readers, _Atomic uint64_t *turn)
{
    stats_add_own(turn, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* for the compiler */
    return __builtin_expect(atomic_load_explicit(&readers->care, memory_order_acquire) == 0, 1) ||
           readers_begin_with_care(readers, turn);
}

/* Do that, and call no function. False: it takes a call, or the thread cannot read. To be used before it reads. */
static inline bool readers_begin_plainly(struct readers *readers, _Atomic uint64_t *turn)
{
    stats_add_own(turn, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&readers->care, memory_order_acquire) == 0, 1))
        return true;
    readers_leave(turn);
    return false;
}

/* Begin to read. Returns the turn for readers_leave(), or NULL if the thread cannot read. */
static inline _Atomic uint64_t *readers_enter(struct readers *readers)
{
    unsigned stripe = stats_own_stripe - 1; /* one comparison covers both: none yet, and the shared one */
    if (__builtin_expect(stripe >= STATS_SHARED_STRIPE, 0) && (stripe = stats_stripe()) == STATS_SHARED_STRIPE)
        return NULL;
    _Atomic uint64_t *turn = &readers->stripes[stripe].turn;
    return readers_begin(readers, turn) ? turn : NULL;
}

#endif
