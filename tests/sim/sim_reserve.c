/* sim_reserve.c - requests that reserve permits: what they really use, and when they settle, if at all.
 *
 * A meter counts what was really used: at the reservation up to the reserved permits, and the rest when it is charged.
 * So a settlement that gives back too much shows as an excess. Holders that die settle nothing.
 */
#include "sim.h"

/* Charges whatever is left are judged only where nothing else changes what the store counts. */
static bool may_overdraw(const struct sim *sim, const struct asked_op *asked)
{
    return !(sim->scenario->troubles & (TROUBLES_CUTTING | TROUBLES_MINTING | TROUBLE_ELASTIC | TROUBLE_DRIFT)) &&
           sim->limits[asked->limit].policy.algorithm != WEIR_LEAKY_BUCKET;
}

void reserve_draw(struct sim *sim, struct asked_op *asked)
{
    const int64_t cost = asked->op.request.cost;
    const bool renews = sim->scenario->troubles & TROUBLE_RENEW;
    if (!renews && random_chance(sim, 300))
        return;
    asked->op.verb = WEIR_OP_RESERVE;
    if (renews)
        return; /* a release settles to 0 */
    /* A queue gives freed slots to later requests, which may then depart together with one before them. */
    const bool is_queue = sim->limits[asked->limit].policy.algorithm == WEIR_LEAKY_BUCKET;
    asked->actual = is_queue ? cost : random_in(sim, 0, cost);
    if (may_overdraw(sim, asked) && random_chance(sim, 150))
        asked->actual = cost + random_in(sim, 1, cost);
}

static void settle_done(struct weir_op *op, int status)
{
    struct asked_op *settle = op->user;
    struct sim *sim = settle->sim;
    sim->answered++;
    if (status != WEIR_OK && !settle->instance->is_dead && !sim->is_over &&
        !(sim->scenario->troubles & TROUBLES_CUTTING))
        violation(sim, "a settlement got status %d", status);
}

/* Follow what the call did here: the part that did not go to the store. */
static void settled_here(struct sim *sim, const struct asked_op *settle, int64_t permits)
{
    struct instance *instance = settle->instance;
    struct holding *holding = &instance->holdings[settle->limit][settle->key];
    const int64_t beyond = settle->actual - settle->op.reservation.permits;
    if (permits <= 0)
        return;
    if (beyond < 0) {
        holding->settled += permits;
        grants_restore(sim, holding, &sim->limits[settle->limit], permits);
        return;
    }
    grants_use(sim, holding, permits);
    audit_charged(sim, settle->limit, settle->key, instance->number, permits);
}

static void settle_now(struct sim *sim, void *what)
{
    struct asked_op *settle = what;
    const int64_t permits = settle->op.reservation.permits;
    const int64_t by = max_of(settle->actual - permits, permits - settle->actual);
    sim->reserved[settle->limit][settle->key] -= max_of(0, permits - settle->actual);
    if (sim->now_us >= sim->heal_us)
        return; /* all keys must become fresh */
    sim->asked++;
    sim->settling = &settle->op;
    sim->settling_sent = 0;
    clocks_of(sim, settle->instance);
    const int status = weir_submit(settle->instance->limiter, &settle->op);
    sim->settling = NULL;
    trace(sim, "instance %d: limit%d key%d settles %lld for %lld, status %d, %lld of it in the store",
          settle->instance->number, settle->limit, settle->key, (long long)permits, (long long)settle->actual, status,
          (long long)sim->settling_sent);
    if (status != 1)
        settle_done(&settle->op, status);
    if (status == WEIR_OK || status == 1)
        settled_here(sim, settle, by - sim->settling_sent);
    clocks_of(sim, NULL);
}

void reserve_admitted(struct sim *sim, struct asked_op *asked)
{
    const struct sim_limit *limit = &sim->limits[asked->limit];
    const int64_t scales_us[] = { 2000, sim->leases.life_us, 2 * limit->policy.period_us };
    const struct weir_reservation *reservation = &asked->op.reservation;
    if (reservation->permits != asked->op.request.cost)
        violation(sim, "a reservation of %lld permits is one of %lld", (long long)asked->op.request.cost,
                  (long long)reservation->permits);
    if (sim->scenario->troubles & TROUBLE_RENEW) {
        renew_admitted(sim, asked);
        return;
    }
    if (asked->actual <= reservation->permits && (reservation->at_us == 0 || random_chance(sim, 150)))
        return; /* it never settles, or would change nothing */
    reserve_settle(sim, asked, random_in(sim, 0, scales_us[random_in(sim, 0, 2)]));
}

void reserve_settle(struct sim *sim, const struct asked_op *asked, int64_t late_us)
{
    sim->reserved[asked->limit][asked->key] += max_of(0, asked->op.reservation.permits - asked->actual);
    struct asked_op *settle = sim_take(sim, sizeof *settle);
    *settle = *asked;
    settle->op.verb = WEIR_OP_SETTLE;
    settle->op.request.cost = asked->actual;
    settle->op.done = settle_done;
    settle->op.user = settle;
    events_add(sim, sim->now_us + late_us, asked->instance, settle_now, settle);
}
