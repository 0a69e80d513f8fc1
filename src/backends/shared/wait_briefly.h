/* wait_briefly.h - waits for another thread to take the few steps that it is in the middle of. */
#ifndef BACKENDS_SHARED_WAIT_BRIEFLY_H
#define BACKENDS_SHARED_WAIT_BRIEFLY_H

#include <sched.h>
#include <time.h>

#define WAIT_SPINS 100 /* tries: it takes its steps on another processor */
#define WAIT_YIELDS 100
#define WAIT_PAUSE_NS 50000 /* from then on: it is of lower priority, perhaps, and yielding would not do */

/* After so many tries, from 0 on. */
static inline void wait_briefly(int tries)
{
    if (tries >= WAIT_SPINS + WAIT_YIELDS)
        nanosleep(&(struct timespec){ .tv_nsec = WAIT_PAUSE_NS }, NULL);
    else if (tries >= WAIT_SPINS)
        sched_yield();
}

#endif
