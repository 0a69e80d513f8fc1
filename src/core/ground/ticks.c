/* ticks.c - finds the counter's pace from readings of the clock. */
#include "core/ground/ticks.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#ifdef TICKS_COUNTED
#include <cpuid.h>
#endif

#define SECOND_NS INT64_C(1000000000)

static bool is_near(uint64_t pace, uint64_t other)
{
    return (pace > other ? pace - other : other - pace) <= other / TICKS_AGREE;
}

void ticks_anchor(struct ticks *ticks, uint64_t before, int64_t ns, uint64_t after)
{
    const int64_t passed_ns = ns - ticks->ns;
    const uint64_t passed = after - ticks->from; /* at least as many as have passed between the readings */
    uint64_t pace = 0;
    ticks->lasts = 0;
    if (after - before > TICKS_BRACKET)
        return;
    if (passed_ns >= 0 && passed_ns < TICKS_SPAN_NS)
        return; /* too soon for a pace */
    if (passed_ns > 0 && passed_ns <= TICKS_PACE_NS && passed > 0)
        pace = ((uint64_t)passed_ns << 32) / 1000 / passed;
    const bool is_known = pace != 0 && is_near(pace, ticks->pace);
    *ticks = (struct ticks){
        .from = before,
        .at = after,
        .lasts = is_known ? ((uint64_t)TICKS_SPAN_NS << 32) / 1000 / pace : 0,
        .scale = pace - pace / TICKS_BEHIND,
        .fraction = ((uint64_t)(ns % 1000) << 32) / 1000,
        .us = ns / 1000,
        .ns = ns,
        .pace = pace != 0 ? pace : ticks->pace,
    };
}

#ifdef TICKS_COUNTED
_Thread_local struct ticks ticks_own;

int64_t ticks_read_us(void)
{
    struct timespec time;
    const uint64_t before = __builtin_ia32_rdtsc();
    clock_gettime(CLOCK_BOOTTIME, &time); /* cannot fail on any Linux since 2.6.39 */
    __builtin_ia32_lfence();              /* otherwise the counter might be read before the clock */
    const uint64_t after = __builtin_ia32_rdtsc();
    if ((uint64_t)time.tv_sec < INT64_MAX / SECOND_NS) /* a replaced clock may return anything */
        ticks_anchor(&ticks_own, before, (int64_t)time.tv_sec * SECOND_NS + time.tv_nsec, after);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static bool counts_when_idle(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) &&
           (d & 1u << 8) != 0; /* "invariant TSC", in both vendors' manuals */
}

bool ticks_are_steady(void)
{
    char source[32] = "";
    if (!counts_when_idle())
        return false;
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (!file)
        return false;
    const bool is_told = fgets(source, sizeof source, file) != NULL;
    fclose(file);
    return is_told && strcmp(source, "tsc\n") == 0;
}
#else
bool ticks_are_steady(void)
{
    return false;
}
#endif
