/* ticks.h - CLOCK_BOOTTIME between its readings, by the processor's time stamp counter.
 *
 * clock_gettime() costs as much as all the rest of a decision in memory, and more than that: it waits until the
 * processor has done all that came before it, so that the cache misses of one decision cannot overlap with those of
 * the next. Reading the counter does neither. So each thread reads the clock once in a millisecond and counts on from
 * there, at the pace of the two readings before, less TICKS_BEHIND of it: what it tells is never ahead of the clock,
 * and behind it by less than two microseconds.
 *
 * The counter is believed where the kernel itself goes by it ("tsc" is its clock source, and it counts on in all sleep
 * states), and only as long as each three readings in a row agree about its pace to one in a thousand. A counter that jumps,
 * for the machine was moved or slept, is out of its millisecond at once; one that stands still while the clock goes on
 * tells an old time for that millisecond at most. Everywhere else each reading is the clock's own.
 */
#ifndef CORE_TICKS_H
#define CORE_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#define TICKS_COUNTED 1
#endif

#define TICKS_SPAN_NS 1000000  /* how long a reading of the clock is counted on from */
#define TICKS_PACE_NS 20000000 /* two readings further apart tell no pace: the machine may have slept between them */
#define TICKS_BEHIND 2048      /* one part in so many: more than a pace may be off by, or change by in a millisecond */
#define TICKS_AGREE 1024       /* paces that differ by more than one part in so many do not agree */
#define TICKS_BRACKET 600      /* a reading that took more ticks may be of any time between: not counted on from */

/* A reading of the clock, and what is known of the pace. All zeroes: nothing is. */
struct ticks {
    uint64_t at;       /* the counter at the reading, no earlier */
    uint64_t lasts;    /* how many ticks it is counted on for; 0: not at all */
    uint64_t scale;    /* microseconds a tick, less TICKS_BEHIND, times 2^32 */
    uint64_t fraction; /* of a microsecond, times 2^32 */
    int64_t us;        /* the reading */
    int64_t ns;        /* the same */
    uint64_t pace;     /* the last one found: as `scale`, but whole; 0: none */
};

/* The clock said `ns` at some time between the counter's `before` and `after`. */
void ticks_anchor(struct ticks *ticks, uint64_t before, int64_t ns, uint64_t after);

/* Whether this system's counter is as said above. */
bool ticks_are_steady(void);

/* Whether `counter` is within what the last reading is good for: then *us is the time. */
static inline bool ticks_tell(const struct ticks *ticks, uint64_t counter, int64_t *us)
{
    const uint64_t passed = counter - ticks->at;
    if (__builtin_expect(passed >= ticks->lasts, 0))
        return false;
    *us = ticks->us + (int64_t)((ticks->fraction + passed * ticks->scale) >> 32);
    return true;
}

#ifdef TICKS_COUNTED
extern _Thread_local struct ticks ticks_own __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Read the clock, and count on from there. Of no use but on a system whose counter is steady. */
int64_t ticks_read_us(void);

/* CLOCK_BOOTTIME in microseconds, as above. */
static inline int64_t ticks_boot_us(void)
{
    int64_t us;
    return ticks_tell(&ticks_own, __rdtsc(), &us) ? us : ticks_read_us();
}
#endif

#endif
