/* timer.c - what the ticks of timer.h are worth: their length, their steps and what reading them costs. */
#include "measure/timer.h"

#include "measure/hist.h"

#define CALIBRATION_NS 20000000
#define EMPTY_INTERVALS 20000
#define STEP_READINGS 1000

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

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

uint64_t timer_step_ticks(void)
{
    uint64_t last = timer_start();
    uint64_t step = 0;
    for (int i = 0; i < STEP_READINGS; i++) {
        uint64_t next = timer_start();
        step = common_divisor(next - last, step);
        last = next;
    }
    return step;
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
