/* timer.h - times, and sleeping until one. */
#ifndef BENCH_TIMER_H
#define BENCH_TIMER_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Sleep until that time of CLOCK_MONOTONIC; return the time, which is some 60 us later at best. A request timed from
 * when it was due also counts what piled up behind a slow answer before it: an open loop. */
int64_t due_wait(int64_t due_ns);

#endif
