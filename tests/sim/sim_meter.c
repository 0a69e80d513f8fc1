/* sim_meter.c - exact meters that check a key's uses when a run is over.
 *
 * They know a limit's policy and each use with its time, and nothing of the code under test. The level of an
 * unlimited leaky meter over all uses, minus the bucket's size, is the excess in the worst stretch of time. Levels
 * count in units: a permit is period_us units, and `limit` units drain per microsecond, so nothing is rounded.
 *
 *     store      uses by the store's decisions and by leases only: size + over_max                   H1, H3 to H6, H9
 *     fallback   each instance's uses without the store: its share; each outage starts cold           H10, H11
 *     total      all uses: size + over_max + what instances without the store have not settled yet    H10, H11, H13
 *
 *     all        all uses, nothing forgiven: size + over_max + the most that each instance's share yields in one
 *                outage, whatever its share is in it; windows_late() does the same for windows. Not with outage_adds;
 *                and not for leaky buckets, whose slots are charged some time before they are used   H10, H11
 *
 * `owed` is all that an instance's fallback admitted and has not settled. When the store decides for the instance
 * again, it forgives only permits that drained in the fallback since (`debt` is the rest) and those for which it had no
 * room. Permits that the fallback admitted after it sent a settlement stay owed.
 */
#include "sim_meter.h"

#include <stdlib.h>
#include <string.h>

void meter_over(struct meter *meter, const char *promise, int64_t at_us, int64_t level, int64_t most)
{
    violation(meter->sim, "%s: limit%d key%d at %lld us: %lld.%06lld used, at most %lld.%06lld may be", promise,
              meter->number, meter->key, (long long)(at_us - SIM_EPOCH_US), (long long)(level / meter->period),
              (long long)(level % meter->period * 1000000 / meter->period), (long long)(most / meter->period),
              (long long)(most % meter->period * 1000000 / meter->period));
}

/* ---- Shares ---- */

static int64_t share_size(const struct meter *meter, int64_t count)
{
    return (meter->size / count + 2) * meter->period; /* burst and debt are divided separately, rounded up at most */
}

static void lone_drain(const struct meter *meter, struct lone *lone, int64_t now_us)
{
    if (lone->count > 0) {
        const int64_t passed_us = min_of(now_us - lone->last_us, INT64_MAX / 2 / meter->rate); /* more drains it all */
        const int64_t drained = (meter->rate * passed_us + lone->count - 1) / lone->count;
        lone->level = max_of(0, lone->level - drained);
        lone->cold = max_of(0, lone->cold - drained);
    }
    lone->last_us = now_us;
}

/* Return the part of what this outage admitted that has not drained, in units. The real share is up to two permits
 * smaller than assumed here: where its cold part may be gone, that much more has drained. */
static int64_t lone_debt_now(const struct meter *meter, const struct lone *lone)
{
    const int64_t inexact = lone->cold <= 2 * meter->period ? 2 * meter->period : 0;
    return max_of(0, lone->level - lone->cold - inexact);
}

/* Return the same for all its outages. A bucket that has had time to fill since owes nothing (docs/design/outages.md);
 * a share, of which rounding takes two permits at most and leaves one at least, fills that much sooner. */
static int64_t lone_debt(const struct meter *meter, const struct lone *lone)
{
    const int64_t least = max_of(meter->size - 2 * lone->count, lone->count); /* of all shares like this one */
    int64_t fill_us = mul_capped(least, meter->period) / meter->rate;
    fill_us -= sim_drifted_us(meter->sim, fill_us);
    int64_t debt = lone_debt_now(meter, lone);
    for (int i = 0; i < lone->parts; i++)
        debt += lone->last_us - lone->before[i].taken_us < fill_us ? lone->before[i].units : 0;
    return debt;
}

/* Note what the outage that ends here leaves owed. The two oldest notes become one when they are too many. */
static void lone_keep(const struct meter *meter, struct lone *lone)
{
    if (lone->parts == LONE_PARTS) {
        lone->before[1].units += lone->before[0].units;
        memmove(lone->before, lone->before + 1, sizeof lone->before - sizeof lone->before[0]);
        lone->parts--;
    }
    lone->before[lone->parts++] = (struct lone_part){ lone_debt_now(meter, lone), lone->taken_us };
}

void lone_outage(struct meter *meter, const struct record *record)
{
    struct lone *lone = &meter->lones[record->instance];
    lone_drain(meter, lone, record->at_us);
    if (lone->owed > 0)
        lone_keep(meter, lone);
    lone->made = record->amount ? lone->made + lone->left + 2 * meter->period +
                                      mul_capped(meter->rate, record->at_us - lone->since_us) / lone->count
                                : 0;
    lone->count = record->count;
    const int64_t size = share_size(meter, record->count);
    lone->since_us = record->at_us;
    lone->left = (record->left / record->count + 1) * meter->period;
    lone->level = lone->cold = max_of(0, size - (record->left / record->count + 1) * meter->period);
    meter->stale += (record->stale / record->count + 1) * meter->period - lone->stale;
    lone->stale = (record->stale / record->count + 1) * meter->period;
    if (!record->amount)
        lone->outage_us = record->at_us;
}

void lone_take(struct meter *meter, const struct record *record)
{
    struct lone *lone = &meter->lones[record->instance];
    lone_drain(meter, lone, record->at_us);
    lone->taken_us = record->at_us;
    lone->level += record->amount * meter->period;
    lone->owed += record->amount;
    meter->owed += record->amount;
    if (meter->sim->scenario->troubles & TROUBLE_REDEFINE)
        return; /* a limit that grows is larger immediately */
    if (lone->level > share_size(meter, lone->count) + meter->period)
        meter_over(meter, "H10: an instance in an outage", record->at_us, lone->level, share_size(meter, lone->count));
}

/* The store now counts this fallback's uses, except those without room. Return the units that the meter must forget:
 * those, and what drained since. */
int64_t lone_settle(struct meter *meter, const struct record *record)
{
    struct lone *lone = &meter->lones[record->instance];
    lone_drain(meter, lone, record->at_us);
    const int64_t kept = min_of(record->left, lone->owed), kept_units = kept * meter->period;
    const int64_t owed = lone->owed * meter->period - kept_units;
    const int64_t debt = max_of(0, lone_debt(meter, lone) - kept_units);
    const int64_t forgiven = record->amount == INT64_MAX ? owed
                                                         : max_of(0, owed - debt) + record->amount * meter->period;
    meter->owed -= lone->owed - kept;
    meter->stale -= lone->stale;
    meter->was_stale += lone->stale;
    lone->owed = kept;
    lone->parts = 0;
    lone->stale = 0;
    lone->cold = max_of(0, lone->level - kept_units); /* not owed twice */
    return forgiven;
}

/* ---- Outages that count as one ---- */

/* True if arrears bound what late instances add, and nothing else is lost or given back. */
bool late_counts(const struct sim *sim)
{
    const unsigned troubles = sim->scenario->troubles;
    return (troubles & TROUBLES_CUTTING) && !(troubles & (TROUBLES_MINTING | TROUBLE_RESERVE)) && !sim->all_adds;
}

/* Note what an instance's share yields in this outage, in units, if that is more than in any outage before. The outage
 * may have begun a timeout before the audit knew, and permits are whole. */
void late_take(struct meter *meter, const struct record *record)
{
    struct lone *lone = &meter->lones[record->instance];
    const int64_t lasted_us = record->at_us - lone->since_us + meter->sim->timeout_us;
    const int64_t yields = lone->made + lone->left + mul_capped(meter->rate, lasted_us) / record->count +
                           2 * meter->period;
    meter->late += max_of(0, yields - lone->most);
    lone->most = max_of(lone->most, yields);
}

/* ---- Buckets ---- */

/* A level drains down to 0. */
static int64_t drop(int64_t level, int64_t by)
{
    return level > 0 ? max_of(0, level - by) : level;
}

/* Drain, or refill, up to a record's time. */
static void bucket_drain(struct meter *meter, const struct record *record)
{
    const bool steps = meter->limit->policy.refill == WEIR_INTERVAL;
    const int64_t idle_us = record->at_us - max_of(meter->last_us, meter->idle_from_us);
    int64_t drained = mul_capped(meter->rate, record->at_us - meter->last_us), drained_all = drained;
    meter->last_us = record->at_us;
    if (steps && !(meter->sim->scenario->troubles & TROUBLES_MINTING)) {
        drained = 0;
        drained_all = mul_capped(meter->rate, max_of(0, idle_us));
        for (; meter->next_refill_us > 0 && meter->next_refill_us <= record->at_us;
             meter->next_refill_us += meter->period) {
            drained += meter->rate * meter->period;
            meter->refilled_us = meter->next_refill_us;
            meter->spare = max_of(0, drained - max_of(0, meter->store));
            if (meter->next_refill_us <= meter->idle_from_us)
                drained_all += meter->rate * meter->period;
        }
    }
    /* After a loss leases may be as young as if nothing had been lost, so that permits which have drained are used. */
    const bool floats = meter->credits > 0 && !steps;
    meter->store = floats ? meter->store - drained : drop(meter->store, drained);
    meter->total = floats ? meter->total - drained : drop(meter->total, drained);
    meter->beyond = drop(meter->beyond, drained);
    meter->all = drop(meter->all, drained_all);
}

/* Forget what the store lost. Below 0: it is leased, and will be used. */
static void bucket_credit(struct meter *meter, int64_t permits)
{
    meter->credits++;
    meter->store -= permits * meter->period;
    meter->total -= permits * meter->period;
}

/* Drifting clocks extend a lease's life. */
static int64_t over_max(const struct meter *meter)
{
    const struct sim *sim = meter->sim;
    const int64_t stretch_us = sim->leases.life_us * sim->drift_max_ppm / 1000000 + (sim->drift_max_ppm > 0);
    const int64_t over = meter->limit->over_max * meter->period;
    return over + (over > 0 ? meter->rate * stretch_us : 0);
}

static int64_t bucket_size(const struct meter *meter)
{
    const struct sim *sim = meter->sim;
    if (meter->limit->policy.refill == WEIR_INTERVAL && sim->scenario->troubles & TROUBLES_MINTING)
        return (meter->size + meter->rate) * meter->period; /* the time of its refill is unknown */
    /* The use at the time of a clock step is known in whole permits only. */
    const bool steps = sim->scenario->troubles & TROUBLE_STEP;
    return (meter->size + steps) * meter->period;
}

/* Return the units of a use that the last refill has given back already: a holder whose clock drifts may use its lease a
 * little after the refill that ends it. A fixed window is held to the same. */
static int64_t used_late(struct meter *meter, const struct record *record)
{
    const int64_t late_us = sim_drifted_us(meter->sim, meter->sim->leases.life_us);
    if (record->at_us >= meter->refilled_us + late_us)
        return 0;
    const int64_t late = min_of(meter->spare, record->amount * meter->period);
    meter->spare -= late;
    return late;
}

static void bucket_take(struct meter *meter, const struct record *record)
{
    const struct weir_policy *policy = &meter->limit->policy;
    bucket_drain(meter, record);
    switch ((enum record_kind)record->kind) {
    case RECORD_USE:
        meter->store += record->amount * meter->period - used_late(meter, record);
        meter->total += record->amount * meter->period;
        meter->all += record->amount * meter->period;
        if (policy->algorithm == WEIR_TOKEN_BUCKET &&
            meter->store > bucket_size(meter) + over_max(meter) + meter->beyond)
            meter_over(meter, policy->refill == WEIR_INTERVAL ? "H5" : "H1", record->at_us, meter->store,
                       bucket_size(meter) + over_max(meter) + meter->beyond);
        break;
    case RECORD_CHARGE:
        meter->store += record->amount * meter->period;
        meter->total += record->amount * meter->period;
        meter->beyond = max_of(meter->beyond, meter->store + record->left * meter->period - bucket_size(meter));
        break;
    case RECORD_FALLBACK:
        meter->total += record->amount * meter->period;
        meter->all += record->amount * meter->period;
        lone_take(meter, record);
        late_take(meter, record);
        break;
    case RECORD_OUTAGE: lone_outage(meter, record); break;
    case RECORD_SETTLED:
    case RECORD_TOUCHED: meter->total = drop(meter->total, lone_settle(meter, record)); break;
    case RECORD_WINDOW:
        if (record->amount > record->at_us)
            meter->next_refill_us = record->amount;
        meter->idle_from_us = record->left;
        break;
    case RECORD_CREDIT: bucket_credit(meter, record->amount); break;
    case RECORD_STEP:
        meter->store = drop(meter->store, meter->rate * record->amount);
        meter->total = drop(meter->total, meter->rate * record->amount);
        break;
    case RECORD_CREDITED:
        if (--meter->credits > 0)
            break;
        meter->store = max_of(0, meter->store);
        meter->total = max_of(0, meter->total);
        break;
    case RECORD_HELD:
    case RECORD_FREED: break; /* of windows */
    }
    /* One permit more, because settlements are whole permits. */
    meter->was_stale = min_of(meter->was_stale, max_of(0, meter->total - meter->store));
    const int64_t most = bucket_size(meter) + over_max(meter) + (meter->owed + 1) * meter->period + meter->stale +
                         meter->was_stale + meter->beyond;
    if (policy->algorithm == WEIR_TOKEN_BUCKET && policy->refill == WEIR_GREEDY && meter->total > most)
        meter_over(meter, "H10: all together", record->at_us, meter->total, most);
    const int64_t late_most = bucket_size(meter) + over_max(meter) + meter->late;
    if (policy->algorithm == WEIR_TOKEN_BUCKET && late_counts(meter->sim) && meter->all > late_most)
        meter_over(meter, "H10: all together, late ones included", record->at_us, meter->all, late_most);
}

/* ---- Leaky buckets ---- */

static int by_departure(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    return x->departs_us != y->departs_us ? (x->departs_us < y->departs_us ? -1 : 1)
                                          : (x->order < y->order ? -1 : x->order > y->order);
}

/* Each permit departs after those before it have drained: the meter is then empty, up to rounding of times. */
static void departures_check(struct meter *meter, struct record *records, size_t count)
{
    const struct sim *sim = meter->sim;
    if (sim->scenario->troubles & TROUBLES_MINTING)
        return;
    const int64_t rounding_us = 2 * meter->limit->plan.tick_us +
                                (sim->drift_max_ppm ? sim->timeout_us / 1000 + sim->leases.life_us / 1000 : 0);
    int64_t level = 0, last_us = SIM_EPOCH_US;
    qsort(records, count, sizeof *records, by_departure);
    for (size_t i = 0; i < count; i++) {
        const struct record *record = &records[i];
        if (record->kind != RECORD_USE)
            continue;
        level = max_of(0, level - mul_capped(meter->rate, record->departs_us - last_us));
        last_us = record->departs_us;
        if (level > meter->rate * rounding_us)
            violation(meter->sim,
                      "H6: limit%d key%d, used by instance %d at %lld us, departs at %lld us, %lld us too early",
                      meter->number, meter->key, record->instance, (long long)(record->at_us - SIM_EPOCH_US),
                      (long long)(record->departs_us - SIM_EPOCH_US), (long long)(level / meter->rate));
        if (record->departs_us - record->at_us > meter->size * meter->period / meter->rate + 1 + record->shift_us)
            violation(meter->sim, "H6: limit%d key%d waits %lld us, longer than the queue", meter->number, meter->key,
                      (long long)(record->departs_us - record->at_us));
        level += record->amount * meter->period;
    }
}

/* ---- All of it ---- */

static int by_time(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    return x->at_us != y->at_us ? (x->at_us < y->at_us ? -1 : 1) : (x->order < y->order ? -1 : x->order > y->order);
}

void meter_track(struct sim *sim, int limit, int key)
{
    struct audit_track *track = sim->tracks[limit][key];
    struct meter meter = {
        .sim = sim,
        .limit = &sim->limits[limit],
        .number = limit,
        .key = key,
        .period = sim->limits[limit].policy.period_us,
        .size = sim->limits[limit].size,
        .rate = sim->limits[limit].rate_limit,
        .last_us = SIM_EPOCH_US,
        .lones = sim_take(sim, (size_t)sim->made * sizeof *meter.lones),
    };
    const enum weir_algorithm algorithm = meter.limit->policy.algorithm;
    if (track->count == 0)
        return;
    qsort(track->records, track->count, sizeof *track->records, by_time);
    if (algorithm == WEIR_TOKEN_BUCKET || algorithm == WEIR_LEAKY_BUCKET) {
        for (size_t i = 0; i < track->count && !sim->failed; i++)
            bucket_take(&meter, &track->records[i]);
        if (algorithm == WEIR_LEAKY_BUCKET)
            departures_check(&meter, track->records, track->count);
        return;
    }
    if (sim->scenario->troubles & TROUBLE_RENEW)
        held_check(&meter, track->records, track->count);
    windows_check(&meter, track->records, track->count);
}
