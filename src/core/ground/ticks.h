/* ticks.h - CLOCK_BOOTTIME between its readings, from the processor's time stamp counter.
 *
 * clock_gettime() costs as much as the rest of a decision in memory. It also waits until the processor has completed
 * all earlier instructions, so the cache misses of one decision cannot overlap with those of the next. Reading the
 * counter does neither. So each thread reads the clock once per millisecond and counts on from there, at the slowest
 * pace that the last two readings allow, less one part in TICKS_BEHIND.
 *
 * This is used only if the kernel's clock is that counter ("tsc" is its clock source) and the counter is steady in all
 * idle states. Then whatever happens to the counter happens to the clock too; the two differ only while the kernel
 * slews the clock (NTP). With a counter of 1 GHz or more, the time returned is
 *
 *     never ahead of the clock, and at most two whole microseconds behind it, as long as the clock's pace changes by
 *     less than one part in TICKS_BEHIND (488 in a million) from one reading to the next;
 *     off by that change's part of a millisecond if it changes by more: a quarter of one at the kernel's limit of 10 %
 *     either way, for that millisecond;
 *     at most a millisecond ahead of the last reading, whatever happens to the counter and the clock.
 *
 * So a thread may see its time step back when a slew begins, and may see another thread's time differ by two
 * microseconds at any moment: see WEIR_CLOCK_SLACK_US. In the following cases:
 *
 *     interrupted reading   The counter before and after it differs by more than TICKS_BRACKET: the reading is not used
 *                           to count on. This covers every slow clock_gettime(): traced, instrumented, replaced.
 *     no reading for 20 ms  Each time is a reading of the clock, until two readings a millisecond apart give the pace.
 *     the pace changes      By more than one part in TICKS_AGREE: the same, until two successive paces agree.
 *     the counter jumps     It leaves its millisecond immediately; if not, time is off by the jump until it does.
 *     the counter stops     The time stops too; so does the clock, if the kernel uses the counter.
 *     the clock jumps       The system was suspended, or the clock was replaced: the old time continues until the
 *                           counter leaves its millisecond.
 *     another processor     The kernel keeps the counters in step, or does not use them.
 *     fork                  The child counts on from the parent's reading, with the same counter and clock.
 */
#ifndef CORE_GROUND_TICKS_H
#define CORE_GROUND_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#define TICKS_COUNTED 1
#endif

#define TICKS_SPAN_NS 1000000  /* how long a reading of the clock is used */
#define TICKS_PACE_NS 20000000 /* two readings further apart give no pace: the machine may have slept between them */
#define TICKS_BEHIND 2048      /* the pace may change by one part in this until the next reading */
#define TICKS_AGREE 1024       /* paces that differ by more than one part in this do not agree */
#define TICKS_BRACKET 300      /* a reading that took more ticks may be of any moment in between, and is not used */

/* A reading of the clock and the pace, as far as they are known. All zeroes: neither is. */
struct ticks {
    uint64_t from, at; /* the counter at the reading, no later and no earlier */
    uint64_t lasts;    /* ticks for which the reading is used; 0: none */
    uint64_t scale;    /* microseconds a tick, less TICKS_BEHIND, times 2^32 */
    uint64_t fraction; /* of a microsecond, times 2^32 */
    int64_t us;        /* the reading */
    int64_t ns;        /* the same */
    uint64_t pace;     /* the last one found, as `scale` but not reduced; 0: none */
};

/* Note that the clock read `ns`, which is not negative, at some moment between the counter values `before` and `after`.
 */
void ticks_anchor(struct ticks *ticks, uint64_t before, int64_t ns, uint64_t after);

/* True if this system's clock is its counter, as described above. */
bool ticks_are_steady(void);

/* True if the last reading covers `counter`; *us is then the time. */
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

/* Read the clock and begin to count from there. Useless unless the counter is steady. */
int64_t ticks_read_us(void);

/* Return CLOCK_BOOTTIME in microseconds, as described above. */
static inline int64_t ticks_boot_us(void)
{
    int64_t us;
    return ticks_tell(&ticks_own, __builtin_ia32_rdtsc(), &us) ? us : ticks_read_us();
}
#endif

#endif
