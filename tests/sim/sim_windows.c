/* sim_windows.c - exact meters of windows: the uses in any stretch of one period, or in each of the store's windows. */
#include "sim_meter.h"

#include <string.h>

/* Check any stretch of one period for a sliding window; for a fixed one, the store reports its windows' ends. */
static void sliding_check(struct meter *meter, const struct record *records, size_t count)
{
    const struct sim *sim = meter->sim;
    const int64_t period_us = meter->limit->policy.period_us - (sim->drift_max_ppm ? sim->leases.life_us / 1000 : 0);
    /* One permit more where clocks are set, or instances settle at different times. */
    const int64_t inexact = (sim->scenario->troubles & (TROUBLE_STEP | TROUBLES_CUTTING)) != 0;
    int64_t sum = 0, stepped_us = 0, first_stepped_us = 0, charges = 0; /* charges: in the stretch */
    size_t first = 0;
    for (size_t i = 0; i < count && !sim->failed; i++) {
        const struct record *record = &records[i];
        stepped_us += record->kind == RECORD_STEP ? record->amount : 0;
        for (; first < i; first++) { /* uses that are a period old or older */
            const struct record *old = &records[first];
            const int64_t old_us = old->at_us + first_stepped_us;
            if (old_us > record->at_us + stepped_us - period_us)
                break;
            first_stepped_us += old->kind == RECORD_STEP ? old->amount : 0;
            const bool charges_too = old->kind == RECORD_CHARGE;
            sum -= old->kind == RECORD_USE || old->kind == RECORD_FALLBACK || charges_too ? old->amount : 0;
            charges -= charges_too;
            sum += old->kind == RECORD_CREDITED || old->kind == RECORD_SETTLED ? old->departs_us : 0;
        }
        switch ((enum record_kind)record->kind) {
        case RECORD_USE: sum += record->amount; break;
        case RECORD_CHARGE:
            sum += record->amount;
            meter->beyond = max_of(charges++ > 0 ? meter->beyond : 0, sum + record->left - meter->size);
            break;
        case RECORD_FALLBACK:
            sum += record->amount;
            meter->owed += record->amount;
            meter->lones[record->instance].owed += record->amount;
            break;
        case RECORD_TOUCHED:
        case RECORD_SETTLED:
        case RECORD_CREDIT: sum -= record->departs_us; break;
        default: break;
        }
        if (record->kind == RECORD_TOUCHED || record->kind == RECORD_SETTLED) {
            struct lone *lone = &meter->lones[record->instance];
            const int64_t kept = min_of(record->left, lone->owed);
            meter->owed -= lone->owed - kept;
            lone->owed = kept;
        }
        const int64_t beyond = charges > 0 ? max_of(0, meter->beyond) : 0;
        if (sum > meter->size + meter->owed + inexact + beyond + (meter->stale + meter->was_stale) / meter->period)
            violation(meter->sim, "H4: limit%d key%d at %lld us: %lld used in a period, of %lld", meter->number,
                      meter->key, (long long)(record->at_us - SIM_EPOCH_US), (long long)sum,
                      (long long)(meter->size + meter->owed));
    }
}

/* Return the permits that the meter must forget: a window does not drain, so it may get what the share's rate makes. */
static int64_t window_settle(struct meter *meter, const struct record *record)
{
    struct lone *lone = &meter->lones[record->instance];
    const int64_t away_us = lone->owed > 0 ? record->at_us - lone->outage_us : 0;
    const arith_wide units = (arith_wide)meter->rate * (uint64_t)away_us; /* days at a large rate */
    const int64_t made = lone->count > 0 ? (int64_t)(units / (uint64_t)(lone->count * meter->period)) : 0;
    const int64_t forgiven = (lone_settle(meter, record) + meter->period - 1) / meter->period;
    lone->outage_us = record->at_us;
    return max_of(forgiven, made + (record->amount == INT64_MAX ? 0 : record->amount));
}

/* Follow each instance in its outages, and forgive what drained there, what the store had no room for, and what it has
 * lost; those records have the amount in departs_us. */
static void windows_forgive(struct meter *meter, struct record *records, size_t count)
{
    for (size_t i = 0; i < count && !meter->sim->failed; i++) {
        struct record *record = &records[i];
        record->departs_us = 0;
        switch ((enum record_kind)record->kind) {
        case RECORD_FALLBACK: lone_take(meter, record); break;
        case RECORD_OUTAGE: lone_outage(meter, record); break;
        case RECORD_CREDIT:
        case RECORD_CREDITED: record->departs_us = record->amount; break;
        case RECORD_SETTLED:
        case RECORD_TOUCHED: record->departs_us = window_settle(meter, record); break;
        default: break;
        }
    }
}

static void fixed_take(struct meter *meter, const struct record *record)
{
    const struct sim *sim = meter->sim;
    const int64_t late_us = sim->drift_max_ppm ? sim->leases.life_us / 1000 : 0;
    if (record->kind == RECORD_WINDOW && record->amount != meter->window_end_us) {
        meter->window_end_us = record->amount;
        meter->window_used = meter->beyond = 0;
    }
    if (record->kind == RECORD_CHARGE) {
        meter->window_used += record->amount;
        meter->beyond = max_of(meter->beyond, meter->window_used + record->left - meter->size);
    }
    if (record->kind != RECORD_USE)
        return;
    if (record->at_us >= meter->window_end_us + late_us)
        violation(meter->sim, "H3: limit%d key%d: a permit is used %lld us after its window", meter->number, meter->key,
                  (long long)(record->at_us - meter->window_end_us));
    meter->window_used += record->amount;
    if (meter->window_used > meter->size + meter->beyond)
        violation(meter->sim, "H3: limit%d key%d at %lld us: %lld used in a window of %lld", meter->number, meter->key,
                  (long long)(record->at_us - SIM_EPOCH_US), (long long)meter->window_used,
                  (long long)(meter->size + meter->beyond));
}

/* Check windows that the store lost or moved: at most two windows' worth per period. */
static void fixed_check_roughly(struct meter *meter, const struct record *records, size_t count)
{
    int64_t sum = 0, most = 2 * meter->size;
    size_t first = 0;
    for (size_t i = 0; i < count; i++) {
        const struct record *record = &records[i];
        for (; records[first].at_us <= record->at_us - meter->limit->policy.period_us; first++)
            sum -= records[first].kind == RECORD_USE ? records[first].amount : 0;
        sum += record->kind == RECORD_USE ? record->amount : 0;
        most += record->kind == RECORD_CREDIT ? record->amount : record->kind == RECORD_STEP ? meter->size : 0;
        if (sum > most)
            violation(meter->sim, "H3: limit%d key%d at %lld us: %lld used in a period, of %lld", meter->number,
                      meter->key, (long long)(record->at_us - SIM_EPOCH_US), (long long)sum, (long long)most);
    }
}

/* Add up all uses, without forgiving anything. What a fixed window admits comes back when the next one begins. Between
 * windows, and always for a sliding one, permits come back at the rate. */
static void windows_late(struct meter *meter, const struct record *records, size_t count)
{
    const bool slides = meter->limit->policy.algorithm == WEIR_SLIDING_WINDOW;
    int64_t last_us = SIM_EPOCH_US, end_us = 0;
    for (size_t i = 0; i < count && !meter->sim->failed; i++) {
        const struct record *record = &records[i];
        meter->all = max_of(0, meter->all - mul_capped(meter->rate, max_of(0, record->at_us - last_us)));
        last_us = max_of(last_us, record->at_us);
        if (record->kind == RECORD_WINDOW && !slides && record->amount != end_us) {
            meter->all = max_of(0, meter->all - meter->size * meter->period);
            last_us = end_us = record->amount;
        } else if (record->kind == RECORD_OUTAGE) {
            lone_outage(meter, record);
        } else if (record->kind == RECORD_FALLBACK) {
            late_take(meter, record);
        }
        if (record->kind == RECORD_USE || record->kind == RECORD_FALLBACK)
            meter->all += record->amount * meter->period;
        if (meter->all > meter->size * meter->period + meter->late)
            meter_over(meter, "H10: all together, late ones included", record->at_us, meter->all,
                       meter->size * meter->period + meter->late);
    }
}

static void meter_start(struct meter *meter)
{
    memset(meter->lones, 0, (size_t)meter->sim->made * sizeof *meter->lones);
    meter->owed = 0;
}

void windows_check(struct meter *meter, struct record *records, size_t count)
{
    windows_forgive(meter, records, count);
    if (meter->limit->policy.algorithm == WEIR_SLIDING_WINDOW) {
        meter_start(meter);
        sliding_check(meter, records, count);
    } else if (meter->sim->scenario->troubles & TROUBLES_MINTING) {
        fixed_check_roughly(meter, records, count);
    } else {
        for (size_t i = 0; i < count && !meter->sim->failed; i++)
            fixed_take(meter, &records[i]);
    }
    if (late_counts(meter->sim)) {
        meter_start(meter);
        windows_late(meter, records, count);
    }
}
