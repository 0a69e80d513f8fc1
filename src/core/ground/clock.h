/* clock.h - where a limiter's time comes from.
 *
 * The default is Unix time as read when the clock was made, continued by CLOCK_BOOTTIME. So windows aligned to the
 * epoch begin on clock hours, suspended time counts, and setting the system's clock neither adds nor takes permits.
 *
 * The time may be some microseconds behind (ticks.h). So two threads may read times that are not in order, and a time
 * read on one thread may be later than one read afterwards on another. Code that subtracts times must bound the result;
 * keys have WEIR_CLOCK_SLACK_US.
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
    bool ticks;                    /* (c) the processor's counter continues the default between readings, ticks.h */
};

void clock_init(struct clock *clock, int64_t (*now_us)(void *user), void *user);

/* Call the user's clock. */
int64_t clock_ask_user(const struct clock *clock);

/* Return Unix time in microseconds. A user's clock may return anything; the caller checks. */
static inline int64_t clock_now_us(const struct clock *clock)
{
    if (clock->now_us)
        return clock_ask_user(clock);
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

/* Return CLOCK_MONOTONIC in microseconds: for deadlines, whatever the limiter's clock is. */
int64_t clock_monotonic_us(void);

/* Return CLOCK_BOOTTIME in microseconds, which includes suspended time: for the age of what is known. */
int64_t clock_boot_us(void);

#endif
