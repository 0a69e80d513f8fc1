/* clock.c - system clocks in microseconds. */
#include "core/ground/clock.h"

#include "core/ground/cancel.h"

static int64_t system_us(clockid_t id)
{
    struct timespec time;
    clock_gettime(id, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

void clock_init(struct clock *clock, int64_t (*now_us)(void *user), void *user)
{
    *clock = (struct clock){ .now_us = now_us, .user = user };
    if (!now_us) {
        clock->ticks = ticks_are_steady();
        clock->epoch_us = system_us(CLOCK_REALTIME) - clock_now_us(clock);
    }
}

int64_t clock_ask_user(const struct clock *clock)
{
    CANCEL_DISABLED;
    return clock->now_us(clock->user);
}

int64_t clock_monotonic_us(void)
{
    return system_us(CLOCK_MONOTONIC);
}

int64_t clock_boot_us(void)
{
    return system_us(CLOCK_BOOTTIME);
}
