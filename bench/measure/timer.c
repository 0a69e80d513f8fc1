/* timer.c - the length of a tick of timer.h and the cost of reading it; sleeping until a time. */
#include "measure/timer.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/prctl.h>

#include "measure/hist.h"

#define CALIBRATION_NS 20000000
#define EMPTY_INTERVALS 20000

double timer_tick_ns(void)
{
    static double tick_ns;
    if (tick_ns > 0)
        return tick_ns;
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    uint64_t start = timer_start();
    while (clock_ns(CLOCK_MONOTONIC) - start_ns < CALIBRATION_NS)
        continue;
    uint64_t ticks = timer_end() - start;
    tick_ns = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) / (double)ticks;
    return tick_ns;
}

uint64_t timer_overhead_ticks(void)
{
    static struct hist hist;
    hist_clear(&hist);
    for (int i = 0; i < EMPTY_INTERVALS; i++) {
        uint64_t start = timer_start();
        hist_add(&hist, timer_end() - start);
    }
    return (uint64_t)hist_quantile(&hist, 0.5);
}

int64_t due_wait(int64_t due_ns)
{
    static _Thread_local bool is_prompt;
    struct timespec until = { .tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000 };
    if (!is_prompt)
        prctl(PR_SET_TIMERSLACK, 1); /* otherwise the system may wake a thread 50 us late to save power */
    is_prompt = true;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
    return clock_ns(CLOCK_MONOTONIC);
}
