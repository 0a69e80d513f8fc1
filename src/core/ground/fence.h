/* fence.h - a memory barrier in all threads of the process, so that threads on the fast path need none.
 *
 * Two threads that each write and then read what the other writes may both miss the other's write, unless each has a
 * full barrier between the two steps. If one side does this all the time and the other seldom, the seldom one can pay
 * for both: membarrier(2) runs a barrier in every thread. On a system without it, each side pays for itself.
 */
#ifndef CORE_GROUND_FENCE_H
#define CORE_GROUND_FENCE_H

#include <stdbool.h>

/* Register for fence_all(): before the first one, and again in the child of a fork. False if the system has no such
 * barrier; each thread must then use one itself. */
bool fence_ready(void);

/* Make what the caller has written visible to all threads, and what they have written visible to the caller. Writes
 * that begin later are not covered. Any thread. */
void fence_all(void);

#endif
