/* wait_briefly.h - waits for another thread to finish a few steps. */
#ifndef BACKENDS_SHARED_WAIT_BRIEFLY_H
#define BACKENDS_SHARED_WAIT_BRIEFLY_H

#include "core/ground/cancel.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define WAIT_SPINS 100 /* tries while the other thread probably runs on another processor */
#define WAIT_YIELDS 100
#define WAIT_PAUSE_NS 50000 /* afterwards: yielding does not help a thread of lower priority */

/* Leave a cache line to the other threads for a while: taking it away in the middle of a change slows both down. */
static inline void wait_pause(unsigned times)
{
    for (unsigned i = 0; i < times; i++)
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb");
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Wait after a failed try; `tries` counts from 0. */
static inline void wait_briefly(int tries)
{
    CANCEL_DISABLED_IF(tries >= WAIT_SPINS + WAIT_YIELDS);
    if (tries >= WAIT_SPINS + WAIT_YIELDS)
        nanosleep(&(struct timespec){ .tv_nsec = WAIT_PAUSE_NS }, NULL);
    else if (tries >= WAIT_SPINS)
        sched_yield();
    else
        wait_pause(1);
}

#endif
