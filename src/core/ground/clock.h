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

/* Return CLOCK_BOOTTIME in microseconds, which includes suspended time: for the age of what is known. */
int64_t clock_boot_us(void);

/* Return Unix time in microseconds. A user's clock may return anything; the caller checks. */
static inline int64_t clock_now_us(const struct clock *clock)
{
    if (__builtin_expect(clock->now_us != NULL, 0))
        return clock_ask_user(clock);
#ifdef TICKS_COUNTED
    if (__builtin_expect(clock->ticks, 1))
        return clock->epoch_us + ticks_boot_us();
#endif
    return clock->epoch_us + clock_boot_us();
}

/* Do that by the counter alone. False: the clock must be read. */
static inline bool clock_counts_us(const struct clock *clock, int64_t *us)
{
#ifdef TICKS_COUNTED
    int64_t boot_us;
    if (__builtin_expect(clock->ticks && ticks_tell(&ticks_own, __builtin_ia32_rdtsc(), &boot_us), 1)) {
        *us = clock->epoch_us + boot_us;
        return true;
    }
#endif
    (void)clock, (void)us;
    return false;
}

static inline struct timespec clock_timespec(int64_t us)
{
    return (struct timespec){ .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };
}

/* Return CLOCK_MONOTONIC in microseconds: for deadlines, whatever the limiter's clock is. */
int64_t clock_monotonic_us(void);

#endif
