/* meter.c - by how much a key's admitted permits were too many: see meter.h.
 *
 * For a limit that refills continuously, an allowance is extra refill time: A permits between s and e advance the
 * clock by A / rate for all stretches that touch [s, e]. So a call's start is moved by all allowances that ended
 * before it, and its end by all that had begun.
 */
#include "meter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE INT64_C(1000000000000) /* far more than any level, in thousandths of a permit */

void *or_die(void *memory)
{
    if (memory != NULL)
        return memory;
    fputs("soak: out of memory\n", stderr);
    abort();
}

/* ---- Continuous refill ---- */

static int64_t ahead_us(const struct weir_policy *policy, int64_t milli)
{
    return (int64_t)((double)milli * (double)policy->period_us / ((double)policy->limit * (double)MILLI)) + 1;
}

/* Return the same calls on a clock that each allowance has advanced. */
static struct admit *moved(const struct bound *bound, const struct admit *admits, size_t n, size_t room)
{
    struct admit *copies = or_die(malloc((room + 1) * sizeof *copies));
    for (size_t i = 0; i < n; i++) {
        copies[i] = admits[i];
        for (size_t j = 0; j < bound->n; j++) {
            const struct allowance *allowance = &bound->allowances[j];
            const int64_t us = ahead_us(&bound->policy, allowance->milli);
            copies[i].start_us += allowance->end_us < admits[i].start_us ? us : 0;
            copies[i].end_us += allowance->start_us <= admits[i].end_us ? us : 0;
        }
    }
    return copies;
}

static double burst_of(const struct bound *bound, struct admit *copies, size_t n)
{
    return envelope_burst(copies, n, bound->policy.limit * MILLI, bound->policy.period_us);
}

/* Return by how many permits a bucket of `size` was overdrawn. */
static double over_flowing(const struct bound *bound, const struct meter *meter)
{
    struct admit *copies = moved(bound, meter->admits, meter->n, meter->n);
    double burst = burst_of(bound, copies, meter->n);
    free(copies);
    return burst / (double)MILLI - bound->size;
}

static int by_start(const void *left, const void *right)
{
    const struct admit *a = left, *b = right;
    return (a->start_us > b->start_us) - (a->start_us < b->start_us);
}

static bool is_within_allowance(const struct bound *bound, int64_t us)
{
    for (size_t i = 0; i < bound->n; i++)
        if (bound->allowances[i].start_us <= us && bound->allowances[i].end_us >= us)
            return true;
    return false;
}

/* Replace all calls before a moment by the bucket's level: the latest moment before `before_us` without a call under
 * way or an active fault. */
static void cut_flowing(struct meter *meter, const struct bound *bound, int64_t before_us)
{
    int64_t latest_end_us = INT64_MIN;
    size_t cut = 0;
    for (size_t i = 0; i < meter->n && meter->admits[i].start_us <= before_us; i++) {
        if (latest_end_us < meter->admits[i].start_us && !is_within_allowance(bound, meter->admits[i].start_us))
            cut = i;
        latest_end_us = meter->admits[i].end_us > latest_end_us ? meter->admits[i].end_us : latest_end_us;
    }
    if (cut < 2)
        return;
    const int64_t at_us = meter->admits[cut].start_us;
    struct admit *copies = moved(bound, meter->admits, cut, cut + 1), probe = { at_us, at_us, PROBE };
    struct admit *moved_probe = moved(bound, &probe, 1, 1);
    copies[cut] = *moved_probe;
    const int64_t level = (int64_t)(burst_of(bound, copies, cut + 1) - (double)PROBE);
    free(moved_probe);
    free(copies);
    meter->admits[cut - 1] = (struct admit){ at_us, at_us, level > 0 ? level : 0 };
    meter->n -= cut - 1;
    memmove(meter->admits, meter->admits + cut - 1, meter->n * sizeof *meter->admits);
    meter->cut_us = at_us;
}

/* ---- Windows ---- */

static int64_t allowed_in(const struct bound *bound, int64_t start_us, int64_t end_us)
{
    int64_t milli = 0;
    for (size_t i = 0; i < bound->n; i++)
        if (bound->allowances[i].end_us >= start_us && bound->allowances[i].start_us <= end_us)
            milli += bound->allowances[i].milli;
    return milli;
}

/* Sorted by start. */
static double over_on_grid(const struct bound *bound, const struct admit *admits, size_t n)
{
    const int64_t period_us = bound->policy.period_us;
    int64_t window = -1, milli = 0;
    double most = -1e9;
    for (size_t i = 0; i < n; i++) {
        const int64_t of = (admits[i].start_us - CLOCK_ERROR_US) / period_us;
        if ((admits[i].end_us + CLOCK_ERROR_US) / period_us != of)
            continue;
        milli = of == window ? milli + admits[i].cost : admits[i].cost;
        window = of;
        const int64_t allowed = allowed_in(bound, of * period_us, (of + 1) * period_us);
        const double over = (double)(milli - allowed) / (double)MILLI - bound->size;
        most = over > most ? over : most;
    }
    return most;
}

/* Of the calls that lie wholly between the two times. */
static double over_between(const struct bound *bound, const struct admit *admits, size_t n, int64_t from_us,
                           int64_t until_us, int64_t allowed)
{
    struct admit *within = or_die(malloc((n + 1) * sizeof *within));
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (admits[i].start_us > from_us && admits[i].end_us < until_us)
            within[m++] = admits[i];
    const int64_t most = m > 0 ? envelope_stretch(within, m, bound->policy.period_us) : 0;
    free(within);
    return (double)(most - allowed) / (double)MILLI - bound->size;
}

/* Windows without an allowance lie between two of them. Any other window lies within a period of an allowance that it
 * touches, as do all its allowances. */
static double over_sliding(const struct bound *bound, const struct admit *admits, size_t n)
{
    const int64_t period_us = bound->policy.period_us;
    int64_t from_us = INT64_MIN;
    double most = -1e9, over;
    for (size_t i = 0; i < bound->n; i++) {
        const struct allowance *allowance = &bound->allowances[i];
        const int64_t first_us = allowance->start_us - period_us;
        const int64_t last_us = allowance->end_us < INT64_MAX - period_us ? allowance->end_us + period_us : INT64_MAX;
        over = over_between(bound, admits, n, from_us, allowance->start_us, 0);
        most = over > most ? over : most;
        over = over_between(bound, admits, n, first_us, last_us, allowed_in(bound, first_us, last_us));
        most = over > most ? over : most;
        from_us = allowance->end_us > from_us ? allowance->end_us : from_us;
    }
    over = over_between(bound, admits, n, from_us, INT64_MAX, 0);
    return over > most ? over : most;
}

static void cut_windows(struct meter *meter, int64_t before_us)
{
    size_t kept = 0;
    before_us -= 2 * soak_policies[meter->limit].period_us;
    for (size_t i = 0; i < meter->n; i++)
        if (meter->admits[i].end_us >= before_us)
            meter->admits[kept++] = meter->admits[i];
    meter->cut_us = kept < meter->n ? before_us : meter->cut_us;
    meter->n = kept;
}

/* ---- Either kind ---- */

double meter_over(struct meter *meter, const struct bound *bound)
{
    qsort(meter->admits, meter->n, sizeof *meter->admits, by_start);
    if (policy_flows(&bound->policy))
        return over_flowing(bound, meter);
    return policy_is_on_grid(&bound->policy) ? over_on_grid(bound, meter->admits, meter->n)
                                             : over_sliding(bound, meter->admits, meter->n);
}

void meter_cut(struct meter *meter, const struct bound *bound, int64_t before_us)
{
    if (policy_flows(&bound->policy))
        cut_flowing(meter, bound, before_us);
    else
        cut_windows(meter, before_us);
}
