/* ticks.h - the time of CLOCK_BOOTTIME in a few nanoseconds, from the processor's time stamp counter.
 *
 * clock_gettime() takes as long as the rest of a decision in memory. It also waits until the processor has completed
 * all earlier instructions, so the cache misses of two decisions cannot overlap. Reading the counter does neither.
 *
 * So each thread reads the clock once per millisecond. In between it computes the time from the counter:
 *
 *     time = the last reading + ticks since then * pace
 *
 * The pace is the slowest that fits the last two readings, less one part in TICKS_BEHIND, so that the computed time
 * does not run ahead of the clock.
 *
 * ticks_are_steady() tells whether the kernel derives its clock from this counter ("tsc" is its clock source) and the
 * counter keeps its pace in all idle states. Only then is the counter used. The two then differ in one case: NTP slews
 * the clock. With a counter of 1 GHz or more the computed time is
 *
 *     never ahead of the clock and at most 2 us behind it, as long as the clock's pace changes by less than one part in
 *     TICKS_BEHIND (488 in a million) between two readings;
 *     wrong for one millisecond if the pace changes by more, by that part of it: at most by 0.25 ms, as the kernel
 *     slews by up to 10 % either way;
 *     never more than 1 ms ahead of the last reading, whatever the counter and the clock do.
 *
 * So a thread's time may step back when a slew begins, and the times of two threads may differ by 2 us. The algorithms
 * allow for steps of WEIR_CLOCK_SLACK_US. Unusual cases:
 *
 *     a reading is interrupted   The counter advances by more than TICKS_BRACKET during it. The thread returns the
 *                                reading and does not compute times from it. Every clock_gettime() that is slow,
 *                                because it is traced, instrumented or replaced, is such a reading.
 *     a pause of 20 ms           A thread that has not read the clock for so long reads it in every call, until two
 *                                readings 1 ms apart give the pace.
 *     the pace changes           If two paces in a row differ by more than one part in TICKS_AGREE: the same, until two
 *                                agree.
 *     the counter jumps          By 1 ms or more: the next call reads the clock. By less: the time is wrong by the
 *                                jump until the next reading.
 *     the counter stops          The time stands still, and so does the kernel's clock.
 *     the clock jumps            After a suspend, for example: the time continues as before for up to 1 ms of ticks.
 *     another processor          The kernel keeps the counters of all processors in step, or does not use them.
 *     fork                       The child computes its time from the parent's reading.
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
