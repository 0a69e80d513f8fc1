/* lock.h - a lock in shared memory that outlives its owner.
 *
 * The word is 0, or names the process whose thread has the lock (file.h). One compare-and-exchange takes it, a store
 * gives it back. A thread that finds it taken spins with pauses, yields and then sleeps for 50 us at a time. Each time
 * it asks whether the owner lives. If the owner has ended, the lock goes to the thread that asked. That thread gets
 * LOCK_INHERITED, because the owner may have died in the middle of a change.
 *
 * A process that was stopped with the lock (SIGSTOP, a debugger) lives. A thread waits for it no longer than its
 * patience, which may be for several locks: the time that it sleeps is subtracted.
 */
#ifndef BACKENDS_MACHINE_LOCK_H
#define BACKENDS_MACHINE_LOCK_H

#include "backends/machine/file.h"

enum lock_end { LOCK_TAKEN, LOCK_INHERITED, LOCK_TIMEOUT };

/* Do lock_enter() for a lock that another thread has. Counts the wait in file->waits if the thread sleeps. */
enum lock_end lock_wait(struct machine_file *file, _Atomic uint64_t *word, int64_t *patience_us);

/* Take a lock that no thread has. */
static inline bool lock_try(const struct machine_file *file, _Atomic uint64_t *word)
{
    uint64_t none = 0;
    return atomic_compare_exchange_strong_explicit(word, &none, file->owner, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Take a lock. LOCK_INHERITED: the owner died with it. LOCK_TIMEOUT: not taken within *patience_us. */
static inline enum lock_end lock_enter(struct machine_file *file, _Atomic uint64_t *word, int64_t *patience_us)
{
    return __builtin_expect(lock_try(file, word), 1) ? LOCK_TAKEN : lock_wait(file, word, patience_us);
}

static inline void lock_leave(_Atomic uint64_t *word)
{
    atomic_store_explicit(word, 0, memory_order_release);
}

#endif
