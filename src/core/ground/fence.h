/* fence.h - a barrier in all threads of the process at once, so that those who would need one often need none.
 *
 * Two threads that each write and then look at what the other writes may both miss it, unless there is a full barrier
 * between the two steps on both sides. Where one side takes its steps all the time and the other seldom, the seldom one
 * pays for both: membarrier(2) runs a barrier in every thread. Where the system has none of it, each pays for his own.
 */
#ifndef CORE_GROUND_FENCE_H
#define CORE_GROUND_FENCE_H

#include <stdbool.h>

/* Before the first fence_all(), and again in the child of a fork. False: there is none here; others must use barriers of
 * their own. */
bool fence_ready(void);

/* Any thread. What the caller wrote before is seen by all threads, and the other way round, but for what they do from
 * now on. */
void fence_all(void);

#endif
