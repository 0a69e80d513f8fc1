/* judge.c - compares what was admitted of each key with its limit: see judge.h. It keeps a meter per key and knows
 * what is allowed when; meter.c does the arithmetic. */
#include "judge.h"

#include "meter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_US (12 * WEIR_SECOND)    /* longest call, and how late its record may come */
#define FORGET_US (120 * WEIR_SECOND) /* drops allowances once no call that they touch can remain */
#define SLIGHT 0.01                   /* rounding of thousandths and doubles, in permits */

enum { ALLOWANCES_MOST = 4096 };

struct judge {
    struct meter *meters;
    struct allowance allowances[ALLOWANCES_MOST];
    size_t allowances_n;
    uint32_t gone_modes;
    int64_t gone_from_us;
    double worst[MODES][LIMITS];
    char worst_key[MODES][LIMITS][96];
    int64_t keys, too_late;
    bool forgives;
};

struct judge *judge_make(bool forgives)
{
    struct judge *judge = or_die(calloc(1, sizeof *judge));
    judge->forgives = forgives;
    for (int i = 0; i < MODES * LIMITS; i++)
        judge->worst[i / LIMITS][i % LIMITS] = -1e9;
    return judge;
}

static void meter_free(struct judge *judge, struct meter *meter)
{
    HASH_DEL(judge->meters, meter);
    free(meter->admits);
    free(meter->own);
    free(meter);
}

void judge_free(struct judge *judge)
{
    struct meter *meter, *next;
    if (judge == NULL)
        return;
    HASH_ITER(hh, judge->meters, meter, next)
        meter_free(judge, meter);
    free(judge);
}

/* ---- Records ---- */

static struct meter *meter_of(struct judge *judge, int process, const struct record *record, bool of_fallback)
{
    const int whose = of_fallback || mode_is_own(record->mode) ? process : -1;
    const uint64_t id = (uint64_t)record->key << 32 | (uint64_t)record->mode << 24 | (uint64_t)record->limit << 16 |
                        (uint64_t)of_fallback << 8 | (uint64_t)(whose + 1);
    struct meter *meter;
    HASH_FIND(hh, judge->meters, &id, sizeof id, meter);
    if (meter != NULL)
        return meter;
    meter = or_die(calloc(1, sizeof *meter));
    meter->id = id;
    meter->mode = record->mode;
    meter->limit = record->limit;
    meter->process = whose;
    meter->of_fallback = of_fallback;
    meter->key = record->key;
    HASH_ADD(hh, judge->meters, id, sizeof meter->id, meter);
    judge->keys += !of_fallback;
    return meter;
}

static void meter_add(struct judge *judge, struct meter *meter, const struct record *record)
{
    if (record->start_us < meter->cut_us) {
        judge->too_late++;
        return;
    }
    if (meter->n == meter->room) {
        meter->room = meter->room > 0 ? 2 * meter->room : 4;
        meter->admits = or_die(realloc(meter->admits, meter->room * sizeof *meter->admits));
    }
    meter->admits[meter->n++] = (struct admit){ record->start_us, record->end_us, record->cost * MILLI };
    meter->latest_us = record->end_us > meter->latest_us ? record->end_us : meter->latest_us;
    meter->touched = true;
}

static struct allowance *meter_allow(struct meter *meter, const struct allowance *allowance)
{
    meter->own = or_die(realloc(meter->own, (meter->own_n + 1) * sizeof *meter->own));
    meter->own[meter->own_n] = *allowance;
    return &meter->own[meter->own_n++];
}

/* Sum what was admitted without Redis while it was gone for all: one allowance per outage, which begins when Redis
 * returns. */
static void meter_add_outage(struct meter *meter, int64_t cost)
{
    struct allowance *outage = NULL;
    for (size_t i = 0; i < meter->own_n; i++)
        if (meter->own[i].kind == ALLOW_OUTAGE && meter->own[i].start_us == INT64_MAX)
            outage = &meter->own[i];
    if (outage == NULL)
        outage = meter_allow(
            meter,
            &(struct allowance){
                .start_us = INT64_MAX, .end_us = INT64_MAX, .kind = ALLOW_OUTAGE, .modes = UINT32_MAX, .process = -1 });
    outage->milli += cost * MILLI;
}

void judge_take(void *user, int process, const struct record *record)
{
    struct judge *judge = user;
    const bool stood_in = record->kind == RECORD_ADMITTED && record->source == WEIR_BY_FALLBACK;
    const bool gone = judge->gone_modes >> record->mode & 1 && record->start_us >= judge->gone_from_us;
    if (stood_in)
        meter_add(judge, meter_of(judge, process, record, true), record);
    if (stood_in && (!gone || !policy_flows(&soak_policies[record->limit]))) /* a window may be passed by its share */
        return;
    struct meter *meter = meter_of(judge, process, record, false);
    if (record->kind == RECORD_ADMITTED) {
        meter_add(judge, meter, record);
        if (stood_in)
            meter_add_outage(meter, record->cost);
        return;
    }
    meter_allow(meter, &(struct allowance){ .start_us = record->start_us,
                                            .end_us = record->end_us,
                                            .kind = record->kind == RECORD_RESET ? ALLOW_LOSS : ALLOW_REFUND,
                                            .modes = UINT32_MAX,
                                            .process = -1,
                                            .milli = record->cost * MILLI });
    meter->touched = true;
}

void judge_allow(struct judge *judge, const struct allowance *allowance)
{
    size_t kept = 0;
    for (size_t i = 0; i < judge->allowances_n; i++)
        if (judge->allowances[i].end_us > allowance->start_us - FORGET_US)
            judge->allowances[kept++] = judge->allowances[i];
    judge->allowances_n = kept;
    if (kept == ALLOWANCES_MOST) {
        fputs("soak: more was done in two minutes than the judge can hold\n", stderr);
        abort();
    }
    judge->allowances[judge->allowances_n++] = *allowance;
}

void judge_gone(struct judge *judge, uint32_t modes, int64_t at_us)
{
    judge->gone_modes = modes;
    judge->gone_from_us = at_us;
}

void judge_back(struct judge *judge, int64_t at_us)
{
    struct meter *meter, *next;
    judge->gone_modes = 0;
    HASH_ITER(hh, judge->meters, meter, next)
        for (size_t i = 0; i < meter->own_n; i++)
            if (meter->own[i].start_us == INT64_MAX)
                meter->own[i].start_us = at_us;
}

static void end_all(struct allowance *allowances, size_t n, int64_t end_us)
{
    for (size_t i = 0; i < n; i++)
        if (allowances[i].end_us == INT64_MAX)
            allowances[i].end_us = end_us;
}

void judge_over(struct judge *judge, int64_t end_us)
{
    struct meter *meter, *next;
    end_all(judge->allowances, judge->allowances_n, end_us);
    HASH_ITER(hh, judge->meters, meter, next)
        end_all(meter->own, meter->own_n, end_us);
}

/* ---- What may be admitted of a key ---- */

static int by_allowance_start(const void *left, const void *right)
{
    const struct allowance *a = left, *b = right;
    return (a->start_us > b->start_us) - (a->start_us < b->start_us);
}

static void bound_add(const struct judge *judge, struct bound *bound, const struct meter *meter,
                      const struct allowance *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t milli = !judge->forgives
                                  ? 0
                                  : allowance_milli(&all[i], &bound->policy, meter->mode, meter->limit, meter->process);
        if (milli == 0 || all[i].end_us < meter->cut_us - FORGET_US)
            continue;
        bound->allowances[bound->n] = all[i];
        bound->allowances[bound->n++].milli = milli;
    }
}

static struct bound bound_of(const struct judge *judge, const struct meter *meter, int64_t over_max)
{
    struct bound bound = { .policy = soak_policies[meter->limit] };
    bound.allowances = or_die(malloc((judge->allowances_n + meter->own_n + 1) * sizeof *bound.allowances));
    bound.size = (double)policy_size(&bound.policy);
    if (meter->of_fallback) {
        /* Only its share, as a bucket whatever the algorithm. It starts cold in each outage, so no fault allows
         * more. */
        const struct weir_policy *policy = &soak_policies[meter->limit];
        bound.size = (double)part_of(policy_size(policy));
        bound.policy = (struct weir_policy){ .limit = policy->limit, .period_us = policy->period_us * PROCESSES };
        over_max = 0;
    }
    if (policy_flows(&bound.policy))
        bound.size += (double)over_max + CLOCK_ERROR_US * (double)bound.policy.limit / (double)bound.policy.period_us;
    if (meter->of_fallback)
        return bound;
    bound_add(judge, &bound, meter, judge->allowances, judge->allowances_n);
    bound_add(judge, &bound, meter, meter->own, meter->own_n);
    qsort(bound.allowances, bound.n, sizeof *bound.allowances, by_allowance_start);
    return bound;
}

/* ---- Judgement ---- */

static void note_worst(struct judge *judge, const struct meter *meter, double over)
{
    if (over <= judge->worst[meter->mode][meter->limit])
        return;
    judge->worst[meter->mode][meter->limit] = over;
    snprintf(judge->worst_key[meter->mode][meter->limit], sizeof judge->worst_key[0][0],
             "%s of key-%u%s, process %d, by %.3f", soak_limits[meter->limit].name, (unsigned)meter->key,
             meter->of_fallback ? " by its fallback" : "", meter->process, over);
}

static void forget_own(struct meter *meter)
{
    size_t kept = 0;
    for (size_t i = 0; i < meter->own_n; i++)
        if (meter->own[i].end_us >= meter->cut_us - FORGET_US && meter->own[i].end_us >= meter->latest_us - FORGET_US)
            meter->own[kept++] = meter->own[i];
    meter->own_n = kept;
}

static void meter_judge(struct judge *judge, struct meter *meter, int64_t at_us, int64_t over_max)
{
    struct bound bound = bound_of(judge, meter, over_max);
    note_worst(judge, meter, meter_over(meter, &bound) - SLIGHT);
    meter_cut(meter, &bound, at_us - HOLD_US);
    free(bound.allowances);
    forget_own(meter);
    meter->touched = false;
}

void judge_turn(struct judge *judge, int64_t at_us, bool last, _Atomic int64_t (*over_max)[LIMITS])
{
    struct meter *meter, *next;
    HASH_ITER(hh, judge->meters, meter, next) {
        const bool idle = meter->latest_us < at_us - HOLD_US - 8 * soak_policies[meter->limit].period_us;
        if (meter->touched || last)
            meter_judge(judge, meter, at_us, atomic_load(&over_max[meter->mode][meter->limit]));
        if (idle && soak_limits[meter->limit].churns)
            meter_free(judge, meter);
    }
}

double judge_worst(const struct judge *judge, int mode, int limit)
{
    return judge->worst[mode][limit];
}

const char *judge_worst_key(const struct judge *judge, int mode, int limit)
{
    return judge->worst_key[mode][limit];
}

int64_t judge_keys(const struct judge *judge)
{
    return judge->keys;
}

int64_t judge_too_late(const struct judge *judge)
{
    return judge->too_late;
}
