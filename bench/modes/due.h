/* due.h - requests that come when they come, whether or not those before them have been answered: an open loop.
 *
 * What is asked when it is due, or late because the caller still waited for an answer, is timed from when it was due:
 * so whatever piles up behind a slow answer is counted as well.
 */
#ifndef BENCH_DUE_H
#define BENCH_DUE_H

#include <stdint.h>

/* The time to the next of so many requests a second from a great many users who know nothing of one another:
 * exponential. Draws from `random` as random_fraction() does. */
double due_gap_ns(uint64_t *random, double per_second);

/* Sleeps until then, by CLOCK_MONOTONIC; returns the time, which is some 60 us later at best. */
int64_t due_wait(int64_t due_ns);

#endif
