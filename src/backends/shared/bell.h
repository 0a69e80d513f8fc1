/* bell.h - wakes all who wait for the same flight by one call.
 *
 * To wake callers one by one costs the I/O thread a system call for each, and with few processors it is put off by each
 * of them. Those who are on board of one flight wait at the same bell. Who is woken looks whether it is he who was
 * meant, by an atomic of his own that is set before the bell is rung.
 */
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

/* Sleep until `awaited`, which is set (release) before the bell is rung; what happened before that is seen. The rings
 * are read before it (acquire), so that a ring between the look and the sleep ends the sleep. */
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
