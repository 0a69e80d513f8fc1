/* ticks.h - CLOCK_BOOTTIME between its readings, by the processor's time stamp counter.
 *
 * clock_gettime() costs as much as all the rest of a decision in memory, and more than that: it waits until the
 * processor has done all that came before it, so that the cache misses of one decision cannot overlap with those of
 * the next. Reading the counter does neither. So each thread reads the clock once in a millisecond and counts on from
 * there, at the least pace that the two readings before can mean, less TICKS_BEHIND of it.
 *
 * This is done where the kernel's own clock is that counter ("tsc" is its clock source), steady in all idle states:
 * whatever befalls the counter befalls the clock as well, and the two part only as the kernel slews the clock (NTP).
 * With a counter of 1 GHz or more, what is told is
 *
 *     never ahead of the clock and at most two microseconds behind it, in whole ones, as long as the clock's pace
 *     changes by less than TICKS_BEHIND, 488 parts in a million, from one reading to the next;
 *     off by that change's part of a millisecond where it changes by more: a quarter of one at the kernel's limit, 10 %
 *     either way, and for that millisecond;
 *     a millisecond ahead of the last reading at most, whatever becomes of counter and clock.
 *
 * So a thread may see its time step back when a slew begins, and that of another by two microseconds at any time: see
 * WEIR_CLOCK_SLACK_US. And this is what becomes of trouble:
 *
 *     interrupted reading   by the counter before and after it, it took more than TICKS_BRACKET: it is not counted on
 *                           from. So it is with any clock_gettime() that is slow: traced, instrumented, replaced
 *     no reading for 20 ms  each is the clock's own, until two that are a millisecond apart have the pace known before
 *     the pace changes      by more than one in TICKS_AGREE: likewise, until two paces in a row agree
 *     the counter jumps     it is out of its millisecond at once. If not, time is off by the jump, until it is
 *     it stands still       so does the time that is told; where the kernel goes by the counter, the clock does as well
 *     the clock jumps       the system has slept, or the clock is replaced: the old time is told until the counter is
 *                           out of its millisecond
 *     another processor     the kernel keeps the counters in step, or does not go by them
 *     fork                  the child counts on from the parent's reading, by the same counter and clock
 */
#ifndef CORE_GROUND_TICKS_H
#define CORE_GROUND_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#define TICKS_COUNTED 1
#endif

#define TICKS_SPAN_NS 1000000  /* how long a reading of the clock is counted on from */
#define TICKS_PACE_NS 20000000 /* two readings further apart tell no pace: the machine may have slept between them */
#define TICKS_BEHIND 2048      /* one part in so many: by how much the pace may change until the next reading */
#define TICKS_AGREE 1024       /* paces that differ by more than one part in so many do not agree */
#define TICKS_BRACKET 300      /* a reading that took more ticks may be of any time between: not counted on from */

/* A reading of the clock, and what is known of the pace. All zeroes: nothing is. */
struct ticks {
    uint64_t from, at; /* the counter at the reading, no later and no earlier */
    uint64_t lasts;    /* how many ticks it is counted on for; 0: not at all */
    uint64_t scale;    /* microseconds a tick, less TICKS_BEHIND, times 2^32 */
    uint64_t fraction; /* of a microsecond, times 2^32 */
    int64_t us;        /* the reading */
    int64_t ns;        /* the same */
    uint64_t pace;     /* the last one found: as `scale`, but whole; 0: none */
};

/* The clock said `ns`, which is not negative, at some time between the counter's `before` and `after`. */
void ticks_anchor(struct ticks *ticks, uint64_t before, int64_t ns, uint64_t after);

/* Whether this system's clock is its counter, as said above. */
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
    return ticks_tell(&ticks_own, __builtin_ia32_rdtsc(), &us) ? us : ticks_read_us();
}
#endif

#endif
