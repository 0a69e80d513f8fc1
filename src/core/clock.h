/* clock.h - where a limiter's time comes from.
 *
 * The default is Unix time as it stood when the clock was made, carried on by CLOCK_BOOTTIME: windows aligned to the
 * epoch fall on clock hours, suspend counts, and nobody who sets the system's clock adds or takes permits.
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*now_us)(void *user); /* (c) NULL: the default */
    void *user;                    /* (c) */
    int64_t epoch_us;              /* (c) Unix time at boot, for the default */
};

void clock_init(struct clock *clock, int64_t (*now_us)(void *user), void *user);

/* Unix time in microseconds. A clock of the user's own may answer anything: the caller checks. */
int64_t clock_now_us(const struct clock *clock);

/* CLOCK_MONOTONIC in microseconds: for deadlines, whatever clock the limiter has. */
int64_t clock_monotonic_us(void);

#endif
