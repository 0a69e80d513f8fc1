/* clock.h - where a limiter's time comes from.
 *
 * The default is Unix time as it stood when the clock was made, carried on by CLOCK_BOOTTIME: windows aligned to the
 * epoch fall on clock hours, suspend counts, and nobody who sets the system's clock adds or takes permits.
 *
 * It may be some microseconds behind (ticks.h). So the times of two threads, and a time and the one asked for after it
 * on another, need not be in order: whoever subtracts them bounds the result, and keys have WEIR_CLOCK_SLACK_US.
 */
#ifndef CORE_GROUND_CLOCK_H
#define CORE_GROUND_CLOCK_H

#include "core/ground/ticks.h"

#include <stdint.h>
#include <time.h>

struct clock {
    int64_t (*now_us)(void *user); /* (c) NULL: the default */
    void *user;                    /* (c) */
    int64_t epoch_us;              /* (c) Unix time at boot, for the default */
    bool ticks;                    /* (c) the default is told by the processor's counter between readings, ticks.h */
};

void clock_init(struct clock *clock, int64_t (*now_us)(void *user), void *user);

/* Unix time in microseconds. A clock of the user's own may answer anything: the caller checks. */
static inline int64_t clock_now_us(const struct clock *clock)
{
    if (clock->now_us)
        return clock->now_us(clock->user);
#ifdef TICKS_COUNTED
    if (clock->ticks)
        return clock->epoch_us + ticks_boot_us();
#endif
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time); /* cannot fail on any Linux since 2.6.39 */
    return clock->epoch_us + (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static inline struct timespec clock_timespec(int64_t us)
{
    return (struct timespec){ .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };
}

/* CLOCK_MONOTONIC in microseconds: for deadlines, whatever clock the limiter has. */
int64_t clock_monotonic_us(void);

/* CLOCK_BOOTTIME in microseconds, which goes on while the system sleeps: for what must not get too old. */
int64_t clock_boot_us(void);

#endif
