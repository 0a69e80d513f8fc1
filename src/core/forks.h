/* forks.h - notices that this process is the child of a fork.
 *
 * Threads, and what they have locked or begun, do not follow into a child. Who depends on them remembers the count of
 * forks at their start, and begins anew where it has changed.
 */
#ifndef CORE_FORKS_H
#define CORE_FORKS_H

/* Begin to count: any thread, any number of times. */
void forks_watch(void);

/* How many forks, since the first forks_watch(), lie between this process and the one that called it. */
extern volatile unsigned forks_count __attribute__((visibility("hidden")));

#endif
