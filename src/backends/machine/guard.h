/* guard.h - keeps a process alive when a file that it has mapped becomes shorter, or its disk fails.
 *
 * The system then sends SIGBUS to a thread that touches a missing page. A handler puts an empty page of this process in
 * its place and marks the file as lost, so the thread goes on, and its call fails. weir trusts nothing that it reads
 * from the file, so empty pages do no harm.
 *
 * The handler is installed once, with the first file that has a name, and stays. It passes every other fault on to the
 * handler that was there before, or to the system's default, which ends the process. A handler that the program
 * installs later takes its place.
 */
#ifndef BACKENDS_MACHINE_GUARD_H
#define BACKENDS_MACHINE_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A mapped file. Guards are reused and never freed, because a handler may be reading one. All is (a) */
struct guard {
    _Atomic uintptr_t from;
    _Atomic size_t len; /* 0: nothing is guarded */
    _Atomic bool is_lost;
    atomic_flag is_taken;
    struct guard *next; /* (c) once it is in the list */
};

/* Guard a mapping. NULL: there is no memory. */
struct guard *guard_begin(void *map, size_t len);

/* End it, before the mapping goes. NULL is ignored. */
void guard_end(struct guard *guard);

/* True if a page of the file was missing. NULL is never lost. */
static inline bool guard_is_lost(const struct guard *guard)
{
    return guard && __builtin_expect(atomic_load_explicit(&guard->is_lost, memory_order_relaxed), 0);
}

#endif
