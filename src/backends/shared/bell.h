/* bell.h - wakes all threads that wait for the same answers with one system call.
 *
 * Waking threads one by one costs the I/O thread a system call each, and with few processors each of them
 * preempts it. So the threads whose requests share a flight wait at the same bell. A thread that wakes checks an
 * atomic of its waiter, which is set before the bell rings, to see whether its own answer has come. */
#ifndef BACKENDS_SHARED_BELL_H
#define BACKENDS_SHARED_BELL_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct bell {
    _Alignas(64) _Atomic uint32_t rings;
};
_Static_assert(sizeof(_Atomic uint32_t) == 4, "a futex is 32 bits");

/* Sleep until `awaited` is set (release), which happens before the bell rings; everything before that is visible.
 * The rings are read before it (acquire), so that a ring between the check and the sleep ends the sleep. */
static inline void bell_await(struct bell *bell, const atomic_bool *awaited)
{
    for (;;) {
        const uint32_t seen = atomic_load_explicit(&bell->rings, memory_order_acquire);
        if (atomic_load_explicit(awaited, memory_order_acquire))
            return;
        syscall(SYS_futex, &bell->rings, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    }
}

static inline void bell_ring(struct bell *bell)
{
    atomic_fetch_add_explicit(&bell->rings, 1, memory_order_release);
    syscall(SYS_futex, &bell->rings, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#endif
