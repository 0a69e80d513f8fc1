/* sim_renew.c - requests in flight that renew their permits: in time, late, again and again, until they release them or
 * die.
 *
 * The limits are sliding windows, as those of WEIR_CONCURRENCY are. What must hold:
 *
 *     R1  The permits in flight are at most the limit. They were taken or renewed less than a hold ago, and not
 *         released.
 *     R2  No renewal within the hold is denied.
 *     R3  A renewal within the hold does not change how many permits are in use. Nor does one that is denied.
 *     R4  Only the store decides a renewal of permits whose charge is known. One that fails or is denied does not
 *         change the reservation.
 *
 * A renewal may have been made although its answer was lost. The store then counts the permits from a later time than
 * their holder knows, and the holder's next renewal or release moves permits of another holder. So with lost answers R2
 * does not hold, and R3 holds for denials only. A holder that is denied goes on as if it still had its permits, and R1
 * must hold even then.
 */
#include "sim_meter.h"

struct held {
    struct asked_op asked;
    int64_t id, since_us; /* since_us: when the permits were charged, as the holder of a renewal under way knows it */
};

static void held_next(struct sim *sim, struct held *held);

static void held_record(struct sim *sim, const struct held *held, enum record_kind kind, int64_t at_us, uint64_t order)
{
    const struct record record = { .at_us = at_us,
                                   .order = order > 0 ? order : sim->order++,
                                   .kind = (uint8_t)kind,
                                   .instance = held->asked.instance->number,
                                   .amount = held->asked.op.request.cost,
                                   .count = held->id };
    record_add(sim, held->asked.limit, held->asked.key, &record);
}

bool renewal_is_in_time(const struct sim *sim, int limit, int64_t since_us, int64_t store_us)
{
    return !(sim->scenario->troubles & TROUBLES_CUTTING) && store_us - since_us < sim->limits[limit].policy.period_us;
}

static void renewed(struct weir_op *op, int status)
{
    struct held *held = op->user;
    struct sim *sim = held->asked.sim;
    sim->answered++;
    if (held->asked.instance->is_dead || sim->is_over)
        return;
    trace(sim, "instance %d: limit%d key%d renews %lld: status %d %s", held->asked.instance->number, held->asked.limit,
          held->asked.key, (long long)op->request.cost, status, op->decision.allowed ? "yes" : "no");
    if (status != WEIR_OK) {
        if (!(sim->scenario->troubles & TROUBLES_CUTTING))
            violation(sim, "a renewal got status %d", status);
        if (op->reservation.at_us != held->since_us || op->reservation.permits != op->request.cost)
            violation(sim, "R4: a renewal that failed changed its reservation");
        held_next(sim, held);
        return;
    }
    const bool is_stores = op->decision.source == WEIR_BY_REDIS;
    if (is_stores)
        audit_reported(&held->asked);
    else if (op->decision.source == WEIR_BY_FALLBACK) /* of a reservation that the fallback made, or none */
        audit_falls_back(sim, held->asked.instance);
    if (!is_stores && held->since_us > 0)
        violation(sim, "R4: a renewal was decided by source %d", op->decision.source);
    if (op->decision.allowed)
        held_record(sim, held, op->decision.source == WEIR_BY_FALLBACK ? RECORD_FREED : RECORD_HELD,
                    is_stores ? sim->executed_us : sim->now_us, is_stores ? sim->executed_order : 0);
    else if (op->reservation.at_us != held->since_us || op->reservation.permits != op->request.cost)
        violation(sim, "R4: a renewal that was denied changed its reservation");
    else if (renewal_is_in_time(sim, held->asked.limit, held->since_us, sim->executed_us + sim->store.offset_us))
        violation(sim, "R2: instance %d is denied a renewal of limit%d key%d within its hold",
                  held->asked.instance->number, held->asked.limit, held->asked.key);
    held_next(sim, held);
}

static void renew_now(struct sim *sim, void *what)
{
    struct held *held = what;
    if (sim->now_us >= sim->heal_us)
        return; /* all keys must become fresh */
    sim->asked++;
    held->asked.op.verb = WEIR_OP_RENEW;
    held->since_us = held->asked.op.reservation.at_us;
    clocks_of(sim, held->asked.instance);
    const int status = weir_submit(held->asked.instance->limiter, &held->asked.op);
    if (status != 1)
        renewed(&held->asked.op, status);
    clocks_of(sim, NULL);
}

static void release_now(struct sim *sim, void *what)
{
    struct held *held = what;
    held_record(sim, held, RECORD_FREED, sim->now_us, 0);
    reserve_settle(sim, &held->asked, 0);
}

/* Choose what the holder does next, and when: renew in time, renew late, release, or die. */
static void held_next(struct sim *sim, struct held *held)
{
    const int64_t hold_us = sim->limits[held->asked.limit].policy.period_us, choice = random_in(sim, 0, 99);
    void (*next)(struct sim *, void *) = renew_now;
    int64_t wait_us = random_in(sim, hold_us / 20, hold_us * 9 / 10);
    if (choice < 5)
        return;
    if (choice < 25)
        next = release_now;
    else if (choice < 40)
        wait_us = random_in(sim, hold_us, 2 * hold_us);
    events_add(sim, sim->now_us + wait_us, held->asked.instance, next, held);
}

void renew_admitted(struct sim *sim, const struct asked_op *asked)
{
    const bool is_stores = asked->op.decision.source == WEIR_BY_REDIS;
    if (asked->op.decision.source == WEIR_BY_FALLBACK)
        return; /* it has no permits of the store's */
    struct held *held = sim_take(sim, sizeof *held);
    *held = (struct held){ .asked = *asked, .id = sim->held_count++ };
    held->asked.op.done = renewed;
    held->asked.op.user = held;
    held_record(sim, held, RECORD_HELD, is_stores ? sim->executed_us : sim->now_us,
                is_stores ? sim->executed_order : 0);
    held_next(sim, held);
}

/* ---- R1 ---- */

void held_check(struct meter *meter, const struct record *records, size_t count)
{
    struct sim *sim = meter->sim;
    size_t *current = sim_take(sim, ((size_t)sim->held_count + 1) * sizeof *current); /* by id: its record's number */
    size_t oldest = 0;
    int64_t held = 0;
    for (size_t i = 0; i < count && !sim->failed; i++) {
        const struct record *record = &records[i];
        for (; records[oldest].at_us <= record->at_us - meter->period; oldest++) {
            if (records[oldest].kind != RECORD_HELD || current[records[oldest].count] != oldest + 1)
                continue;
            held -= records[oldest].amount;
            current[records[oldest].count] = 0;
        }
        if (record->kind != RECORD_HELD && record->kind != RECORD_FREED)
            continue;
        held -= current[record->count] > 0 ? record->amount : 0;
        held += record->kind == RECORD_HELD ? record->amount : 0;
        current[record->count] = record->kind == RECORD_HELD ? i + 1 : 0;
        if (held > meter->size)
            violation(sim, "R1: limit%d key%d at %lld us: %lld in flight, of %lld", meter->number, meter->key,
                      (long long)(record->at_us - SIM_EPOCH_US), (long long)held, (long long)meter->size);
    }
}
