/* timer.h - the finest clock there is, fenced so that nothing timed leaks out of its interval.
 *
 * It is the time stamp counter between load fences on x86, the virtual counter behind a barrier on ARM, and
 * CLOCK_MONOTONIC elsewhere. Calibration against CLOCK_MONOTONIC turns ticks into nanoseconds.
 */
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

#if defined(__x86_64__)
static inline uint64_t timer_start(void)
{
    __builtin_ia32_lfence();
    uint64_t ticks = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
    return ticks;
}
static inline uint64_t timer_end(void)
{
    unsigned processor;
    uint64_t ticks = __builtin_ia32_rdtscp(&processor);
    __builtin_ia32_lfence();
    return ticks;
}
#elif defined(__aarch64__)
static inline uint64_t timer_start(void)
{
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
    return ticks;
}
static inline uint64_t timer_end(void)
{
    return timer_start();
}
#else
static inline uint64_t timer_start(void)
{
    return (uint64_t)clock_ns(CLOCK_MONOTONIC);
}
static inline uint64_t timer_end(void)
{
    return timer_start();
}
#endif

/* Return the length of a tick. The first call measures it (20 ms) and must not race with another. */
double timer_tick_ns(void);

/* Return what an empty interval measures, in ticks: the median of many. The caller subtracts it. */
uint64_t timer_overhead_ticks(void);

/* Sleep until that time of CLOCK_MONOTONIC; return the time, which is some 60 us later at best. A request timed from
 * when it was due also counts what piled up behind a slow answer before it: an open loop. */
int64_t due_wait(int64_t due_ns);

#endif
