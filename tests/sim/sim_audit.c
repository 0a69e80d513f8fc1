/* sim_audit.c - watches a run: it checks what it can immediately, and records uses for the meters.
 *
 * Checked immediately:
 *
 *     only the instance to which a permit was granted uses it, once, within the lease's life      (for H1, H6)
 *     an instance has at most lease_max permits in advance                                        (H7: what strands)
 *     each refund that reaches the store was requested, or gives back permits that were not used  (H2)
 *     memory denies only what the store would deny, and a request that a known denial answers
 *     does not go to the store                                                                    (H12)
 *     each request is answered once, in time; the store admits those of check_liveness()          (liveness)
 */
#include "core/limiter/own_ops.h"
#include "core/limiter/request.h"
#include "core/outage/known.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { PACE_US = 5000 };

static bool is_by_level(const struct weir_plan *plan)
{
    return plan->algorithm == WEIR_LEAKY_BUCKET || is_greedy(plan);
}

void audit_start(struct sim *sim)
{
    for (int limit = 0; limit < sim->limit_count; limit++)
        for (int key = 0; key < sim->key_count; key++)
            sim->tracks[limit][key] = sim_take(sim, sizeof(struct audit_track));
}

void record_add(struct sim *sim, int limit, int key, const struct record *record)
{
    struct audit_track *track = sim->tracks[limit][key];
    if (track->count == track->room) {
        track->room = track->room ? 2 * track->room : 256;
        track->records = realloc(track->records, track->room * sizeof *track->records);
        if (!track->records)
            abort();
    }
    track->records[track->count++] = *record;
}

static void record_now(struct sim *sim, int limit, int key, enum record_kind kind, int instance, int64_t amount)
{
    const struct record record = {
        .at_us = sim->now_us, .order = sim->order++, .kind = (uint8_t)kind, .instance = instance, .amount = amount
    };
    record_add(sim, limit, key, &record);
}

/* ---- What the store does ---- */

/* Record where the store's window, or its next refill, ends, and when nothing is in use there any more. */
static void note_window(struct sim *sim, const struct asked *asked, const struct weir_decision *decision)
{
    const struct weir_plan *plan = &asked->plan;
    int64_t end_us = 0;
    if (decision->reset_after_us == 0)
        return;
    if (plan->algorithm == WEIR_FIXED_WINDOW) {
        end_us = sim->now_us + decision->reset_after_us;
    } else if (plan->algorithm == WEIR_TOKEN_BUCKET && plan->refill == WEIR_INTERVAL) {
        end_us = sim->now_us + (decision->reset_after_us - 1) % plan->period_us + 1; /* also if it is overdrawn */
    }
    if (end_us == 0)
        return;
    const struct record record = { .at_us = sim->now_us,
                                   .order = sim->order++,
                                   .kind = RECORD_WINDOW,
                                   .instance = -1,
                                   .amount = end_us,
                                   .left = sim->now_us + decision->reset_after_us };
    record_add(sim, asked->limit, asked->key, &record);
}

static int64_t granted_left(const struct holding *holding);

void audit_charged(struct sim *sim, int limit, int key, int instance, int64_t permits)
{
    struct record record = {
        .at_us = sim->now_us, .order = sim->order++, .kind = RECORD_CHARGE, .instance = instance, .amount = permits
    };
    record.left = sim->reserved[limit][key];
    for (int i = 0; i < sim->count; i++)
        record.left += granted_left(&sim->instances[i]->holdings[limit][key]);
    record_add(sim, limit, key, &record);
}

/* Only what an outage admitted is charged this way. */
static bool is_settlement(const struct asked *asked)
{
    return asked->verb == WEIR_TAKE && asked->cost == 0 && asked->spread == 1;
}

/* The same, for permits whose debt has drained in the fallback: core/outage/arrears.c. */
static bool is_for_arrears(const struct asked *asked)
{
    const int64_t size = asked->plan.size;
    return asked->verb == WEIR_TAKE && asked->cost == 0 &&
           asked->spread == (size == 2 ? 2 : min_of(15, (size - 1) | 1));
}

static int64_t granted_by(const struct asked *asked, const struct weir_decision *decision)
{
    return (decision->allowed ? asked->cost : 0) + decision->ahead;
}

void audit_executed(struct sim *sim, struct instance *instance, const struct asked *asked,
                    const struct weir_decision *decision)
{
    sim->store_calls++;
    trace(sim, "store: limit%d key%d instance %d cost %lld ahead %lld: %s, ahead %lld, remaining %lld, retry %lld",
          asked->limit, asked->key, instance->number, (long long)asked->cost, (long long)asked->ahead,
          decision->allowed ? "yes" : "no", (long long)decision->ahead, (long long)decision->remaining,
          (long long)decision->retry_after_us);
    if (asked->verb == WEIR_REFUND && asked->ahead == 0 && !(sim->scenario->troubles & TROUBLE_REFUND))
        violation(sim, "H2: instance %d gave %lld permits back", instance->number, (long long)asked->cost);
    if (asked->verb == WEIR_TAKE || asked->verb == WEIR_CHARGE)
        note_window(sim, asked, decision);
    if (asked->verb == WEIR_CHARGE)
        audit_charged(sim, asked->limit, asked->key, instance->number, asked->cost - decision->ahead);
    if (asked->verb == WEIR_REFUND && sim->scenario->troubles & TROUBLE_RESERVE)
        audit_void_denials(sim, asked->limit, asked->key);
    if (asked->verb != WEIR_TAKE)
        return;
    instance->holdings[asked->limit][asked->key].flying += granted_by(asked, decision);
    if (is_settlement(asked)) {
        struct holding *holding = &instance->holdings[asked->limit][asked->key];
        holding->unsettled = max_of(0, holding->unsettled - holding->settling);
        holding->settling = 0;
        const struct record record = { .at_us = sim->now_us,
                                       .order = sim->order++,
                                       .kind = RECORD_SETTLED,
                                       .instance = instance->number,
                                       .amount = asked->ahead - decision->ahead,
                                       .left = holding->unsettled };
        record_add(sim, asked->limit, asked->key, &record);
    }
}

/* Return the permits that are granted and unused, expired or not, at most. */
static int64_t granted_left(const struct holding *holding)
{
    int64_t left = holding->flying;
    for (int i = 0; i < holding->count; i++)
        left += holding->grants[i].left;
    return left;
}

void audit_delivered(struct sim *sim, struct instance *instance, const struct asked *asked, int64_t asked_us,
                     const struct weir_decision *decision)
{
    if (asked->verb != WEIR_TAKE)
        return;
    struct holding *holding = &instance->holdings[asked->limit][asked->key];
    const bool settles = is_settlement(asked) || is_for_arrears(asked);
    if (settles) {
        holding->left = decision->remaining;
        holding->leased = granted_left(holding);
        holding->unpaid = max_of(0, holding->unpaid - decision->ahead);
        instance->falls_back = false;
    }
    const int64_t granted = granted_by(asked, decision);
    holding->flying -= granted;
    if (granted > 0 && !settles)
        grant_add(sim, holding,
                  &(struct grant){ .asked_us = asked_us,
                                   .arrived_us = sim->now_us,
                                   .left = granted,
                                   .shift_us = sim->now_us - sim->executed_us,
                                   .life_us = sim->limits[asked->limit].life_us,
                                   .shrinks = is_greedy(&asked->plan),
                                   .plan = sim->limits[asked->limit].plan,
                                   .is_lease = decision->ahead > 0 });
    if (!is_settlement(asked) &&
        asked_us > holding->fell_back_us) { /* it left the store when all debts had been settled */
        holding->unsettled = 0;
        const struct record record = { .at_us = sim->executed_us,
                                       .order = sim->executed_order,
                                       .kind = RECORD_TOUCHED,
                                       .instance = instance->number };
        record_add(sim, asked->limit, asked->key, &record);
    }
    /* A denial of less that the instance may still know, even one that proves nothing any more, keeps its place. */
    const bool is_denied = holding->denied_cost > 0 && asked->cost > holding->denied_cost &&
                           instance_clock_us(instance, sim->now_us) < holding->denied_until_us + 4 * PACE_US;
    if (decision->allowed && decision->remaining == 0) {
        const int64_t permit_us = is_by_level(&asked->plan) ? div_up(asked->plan.q, asked->plan.p) * asked->plan.tick_us
                                                            : 0;
        holding->emptied_until_us = max_of(holding->emptied_until_us, asked_us + max_of(PACE_US, permit_us));
        if (holding->denied_cost > 1) { /* a denial of one may have taken its place, or it counts on */
            const int64_t lasts_us = holding->denied_until_us - instance_clock_us(instance, sim->now_us);
            const int64_t paced_us = holding->denied_asked_us + min_of(PACE_US, sim->leases.denial_us);
            holding->emptied_until_us = max_of(holding->emptied_until_us, max_of(sim->now_us + lasts_us, paced_us));
            holding->denied_cost = 0;
        }
    }
    if (!decision->allowed && asked->cost > 1 &&
        (is_denied || sim->now_us < holding->emptied_until_us)) /* it may count */
        holding->emptied_until_us = max_of(
            holding->emptied_until_us,
            asked_us + max_of(PACE_US, min_of(decision->retry_after_us, sim->leases.denial_us)));
    if (!decision->allowed && decision->retry_after_us != WEIR_NEVER && !is_denied && asked_us > holding->returned_us) {
        /* After an answer that left no permit, a denial of one may be known: then this one takes no place. */
        holding->denied_cost = asked->cost == 1 || sim->now_us >= holding->emptied_until_us ? asked->cost : 0;
        holding->denied_asked_us = asked_us;
        holding->denied_until_us = instance_clock_us(instance, asked_us) +
                                   min_of(decision->retry_after_us, sim->leases.denial_us);
    }
}

/* Return how many permits of a key the instance itself counts as leased. */
static int64_t leased_by(struct instance *instance, int limit, int key)
{
    const struct weir_backend_request of = backend_request(instance->limits[limit], instance_key(instance, limit, key),
                                                           1, WEIR_OWN_CLOCK, WEIR_PEEK);
    return own_ops(instance->hybrid)->leased(instance->hybrid, &of);
}

void audit_landed(struct sim *sim, struct instance *instance, const struct asked *asked)
{
    const struct sim_limit *limit = &sim->limits[asked->limit];
    if (limit->policy.algorithm != WEIR_TOKEN_BUCKET || limit->policy.refill != WEIR_GREEDY ||
        sim->scenario->troubles & (TROUBLES_MINTING | TROUBLES_CUTTING | TROUBLE_DRIFT | TROUBLE_RESERVE) ||
        sim->scenario->load == LOAD_WEIGHTS) /* the answer may be more than the waiting request needs */
        return;
    struct holding *holding = &instance->holdings[asked->limit][asked->key];
    /* The instance may have given up permits that the audit still counts, because it rounds up what has refilled. */
    const int64_t ahead = min_of(grants_young(sim, holding), leased_by(instance, asked->limit, asked->key));
    /* A lease that shrinks rounds up. The audit charges to the older one what the holder then spends of a younger. */
    const int64_t rounding = 3 * holding->count + 1;
    if (ahead > limit->lease_max + rounding)
        violation(sim, "H7: instance %d has %lld permits of limit%d key%d ahead of use, of %lld", instance->number,
                  (long long)ahead, asked->limit, asked->key, (long long)(limit->lease_max + rounding));
}

void audit_submitted(struct sim *sim, struct instance *instance, const struct asked *asked)
{
    struct holding *holding = &instance->holdings[asked->limit][asked->key];
    instance->calls[asked->limit][asked->key]++;
    if (is_settlement(asked))
        holding->settling = holding->unsettled;
    /* A sliding window's are those of a grant that has ended. */
    if (asked->verb == WEIR_REFUND && asked->ahead > 0) {
        holding->returned_us = sim->now_us;
        holding->denied_cost = 0;
        const int64_t settled = asked->settles ? asked->cost : min_of(asked->cost, holding->settled);
        holding->settled -= asked->settles ? 0 : settled;
        if (asked->plan.algorithm != WEIR_SLIDING_WINDOW)
            grants_use(sim, holding, min_of(asked->cost - settled, grants_left(sim, holding)));
    }
    if (sim->scenario->troubles & TROUBLE_RESERVE && asked->plan.algorithm == WEIR_LEAKY_BUCKET)
        return; /* the store decides a queue's reservations, whatever is known */
    if (sim->scenario->troubles & TROUBLE_REDEFINE || instance->has_fallen_back || asked->verb != WEIR_TAKE ||
        holding->denied_cost == 0 || asked->cost < holding->denied_cost ||
        holding->denied_asked_us <= sim->void_us[asked->limit][asked->key] || grants_left(sim, holding) > 0)
        return; /* leased permits here compensate for it */
    if (instance_clock_us(instance, sim->now_us) < holding->denied_until_us)
        violation(sim, "H12: instance %d asks for %lld of limit%d key%d, which is denied for %lld us yet",
                  instance->number, (long long)asked->cost, asked->limit, asked->key,
                  (long long)(holding->denied_until_us - instance_clock_us(instance, sim->now_us)));
}

void audit_void_denials(struct sim *sim, int limit, int key)
{
    /* A key learns of it with its next request, and requests under way then not at all. */
    const bool lingers = sim->scenario->troubles & (TROUBLE_REDEFINE | TROUBLE_REFUND | TROUBLE_RESERVE);
    sim->void_us[limit][key] = sim->now_us + (lingers ? 2 * sim->timeout_us : 0);
}

/* Part of it may be leased, and be used only after the loss. Leases do not age while what their instance has used has
 * not refilled, which it does not know to be lost. */
void audit_credit(struct sim *sim, int limit, int key, int64_t permits)
{
    assert(permits >= 0);
    const int64_t amount = permits + 1; /* the use is reported rounded up */
    const struct weir_policy *policy = &sim->limits[limit].policy;
    record_now(sim, limit, key, RECORD_CREDIT, -1, amount);
    const int64_t refills_us = div_up(mul_capped(amount, policy->period_us), policy->limit);
    const struct record ends = { .at_us = sim->now_us + refills_us + sim->leases.life_us + sim->timeout_us,
                                 .order = sim->order++,
                                 .kind = RECORD_CREDITED,
                                 .instance = -1,
                                 .amount = amount };
    record_add(sim, limit, key, &ends);
}

/* Leased permits may be used after their charge has drained by the new clock. */
void audit_stepped(struct sim *sim, int64_t by_us)
{
    for (int limit = 0; limit < sim->limit_count; limit++) {
        for (int key = 0; key < sim->key_count; key++) {
            int64_t leased = 0;
            for (int i = 0; i < sim->count; i++)
                leased += grants_left(sim, &sim->instances[i]->holdings[limit][key]) +
                          sim->instances[i]->holdings[limit][key].flying;
            if (by_us > 0)
                record_now(sim, limit, key, RECORD_STEP, -1, by_us);
            audit_credit(sim, limit, key, leased);
            audit_void_denials(sim, limit, key);
        }
    }
}

void audit_crashed(struct sim *sim, struct instance *instance)
{
    for (int limit = 0; limit < sim->limit_count; limit++)
        for (int key = 0; key < sim->key_count; key++)
            record_now(sim, limit, key, RECORD_SETTLED, instance->number, INT64_MAX);
}

/* ---- Answers to callers ---- */

/* Return what the store would report as left now. */
static int64_t truly_left(struct sim *sim, int limit, int key)
{
    struct cell cell = sim->store.cells[limit][key];
    struct weir_decision decision;
    const struct asked peek = {
        .limit = limit, .key = key, .cost = 1, .verb = WEIR_PEEK, .plan = sim->limits[limit].plan
    };
    cell_decide(&cell, &peek, store_now_us(sim), &decision);
    return decision.remaining;
}

void audit_falls_back(struct sim *sim, struct instance *instance)
{
    if (instance->falls_back && instance->fell_as == instance->count)
        return;
    const bool resized =
        instance->falls_back; /* another share is another outage, if the limit is divided differently */
    instance->fell_as = instance->count;
    instance->has_fallen_back = true;
    instance->falls_back = true;
    for (int limit = 0; limit < sim->limit_count; limit++) {
        for (int key = 0; key < sim->key_count; key++) {
            const int64_t left = instance->is_cold ? 0 : instance->holdings[limit][key].left;
            struct record record = { .at_us = sim->now_us,
                                     .order = sim->order++,
                                     .kind = RECORD_OUTAGE,
                                     .left = left,
                                     .stale = max_of(0, left - truly_left(sim, limit, key)),
                                     .amount = resized,
                                     .instance = instance->number,
                                     .count = instance->count };
            record_add(sim, limit, key, &record);
        }
    }
}

static uint64_t known_slot(const struct instance *instance, int limit, int key)
{
    return key_hash(instance->limits[limit], instance_key(instance, limit, key)) % KNOWN_SLOTS;
}

/* Return what the instance must know to be left of the whole limit: nothing if another key may have taken the slot. */
static int64_t surely_left(const struct sim *sim, const struct instance *instance, int limit, int key)
{
    const struct holding *holding = &instance->holdings[limit][key];
    int sharing = 0;
    for (int i = 0; i < sim->limit_count; i++)
        for (int j = 0; j < sim->key_count; j++)
            sharing += known_slot(instance, i, j) == known_slot(instance, limit, key);
    return instance->is_cold || sharing > 1 ? 0 : max_of(0, holding->left - holding->leased);
}

/* Check that the fallback admits what this instance's share of the rate has made since the outage began, up to two
 * permits: a share is rounded down. Only where clocks are as good as the audit's. */
static void must_share(struct sim *sim, const struct asked_op *asked)
{
    const struct sim_limit *limit = &sim->limits[asked->limit];
    struct holding *holding = &asked->instance->holdings[asked->limit][asked->key];
    const int64_t size = limit->size / asked->instance->count, period_us = limit->policy.period_us;
    const int64_t since_us = sim->now_us - asked->op.decision.age_us;
    if (asked->op.decision.age_us == 0)
        return; /* the key is being settled */
    if (since_us != holding->cold_since_us) {
        holding->cold_since_us = holding->level_us = since_us;
        holding->owes = holding->unpaid > 0;
        const int64_t left = surely_left(sim, asked->instance, asked->limit, asked->key) / asked->instance->count;
        holding->level = (size - max_of(0, min_of(left, size) - 1)) * period_us;
    }
    holding->level -= limit->policy.limit * (sim->now_us - holding->level_us) / asked->instance->count;
    holding->level = max_of(0, holding->level);
    holding->level_us = sim->now_us;
    if (asked->op.decision.allowed)
        holding->level += asked->op.request.cost * period_us;
    else if (!holding->owes && holding->level + (asked->op.request.cost + 2) * period_us <= size * period_us)
        violation(sim, "H10: instance %d is denied limit%d key%d, and its share has %lld permits",
                  asked->instance->number, asked->limit, asked->key, (long long)(size - holding->level / period_us));
}

static void used(struct sim *sim, const struct asked_op *asked)
{
    const struct weir_decision *decision = &asked->op.decision;
    struct instance *instance = asked->instance;
    struct holding *holding = &instance->holdings[asked->limit][asked->key];
    const int64_t cost = asked->op.request.cost;
    const bool settles = asked->op.verb == WEIR_OP_RESERVE && decision->source != WEIR_BY_FALLBACK;
    const int64_t amount = settles ? min_of(cost, asked->actual) : cost; /* what is charged beyond it follows */
    struct record record = { .at_us = sim->now_us,
                             .amount = amount,
                             .kind = RECORD_USE,
                             .instance = instance->number,
                             .count = instance->count };
    if (decision->source == WEIR_BY_FALLBACK) {
        record.kind = RECORD_FALLBACK;
        holding->unsettled += cost;
        holding->unpaid += cost;
        holding->fell_back_us = sim->now_us;
        sim->fallback_used += cost;
    } else if (decision->source == WEIR_BY_REDIS) {
        record.at_us = sim->executed_us;
        record.order = sim->executed_order;
        if (!latest_use(holding, cost) && !(sim->scenario->troubles & TROUBLE_RESERVE))
            violation(sim, "instance %d says the store admitted %lld of limit%d key%d, which it did not",
                      instance->number, (long long)cost, asked->limit, asked->key);
    } else if (decision->source == WEIR_BY_LEASE) {
        record.shift_us = 0;
        for (int i = 0; i < holding->count; i++)
            if (holding->grants[i].is_lease && llabs(sim->now_us - decision->age_us - holding->grants[i].asked_us) <=
                                                   sim_drifted_us(sim, sim->leases.life_us))
                record.shift_us = holding->grants[i].shift_us;
        if (decision->age_us >= sim->leases.life_us)
            violation(sim, "H1: a permit of limit%d key%d is used %lld us after it was asked for", asked->limit,
                      asked->key, (long long)decision->age_us);
        if (!grants_use(sim, holding, cost) && !(sim->scenario->troubles & TROUBLE_RESERVE))
            violation(sim, "H1: instance %d uses %lld permits of limit%d key%d and was granted fewer, or too long ago",
                      instance->number, (long long)cost, asked->limit, asked->key);
    } else {
        violation(sim, "a decision has source %d", decision->source);
    }
    if (decision->source != WEIR_BY_FALLBACK)
        grants_stay_young(sim, holding, &sim->limits[asked->limit].plan, cost, decision->source == WEIR_BY_REDIS);
    record.departs_us = record.at_us + decision->delay_us - record.shift_us;
    if (record.order == 0)
        record.order = sim->order++;
    record_add(sim, asked->limit, asked->key, &record);
    sim->used += cost;
}

/* The store, asked without any delay, must deny it too. */
static void denied_by_memory(struct sim *sim, const struct asked_op *asked)
{
    const int64_t age_us = asked->op.decision.age_us + sim_drifted_us(sim, asked->op.decision.age_us);
    if (asked->op.decision.age_us < PACE_US) /* permits may have come back since, one by one */
        return;
    if (sim->scenario->troubles & TROUBLE_CANARY) /* the state may be under the other instances' plan */
        return;
    if (sim->now_us - age_us <= sim->void_us[asked->limit][asked->key])
        return;
    struct cell cell = sim->store.cells[asked->limit][asked->key];
    struct weir_decision exact;
    if (!cell.is_there)
        return;
    const struct asked peek = {
        .limit = asked->limit, .key = asked->key, .cost = asked->op.request.cost, .verb = WEIR_PEEK, .plan = cell.plan
    };
    cell_decide(&cell, &peek, store_now_us(sim) - sim_drifted_us(sim, age_us), &exact);
    if (exact.allowed)
        violation(sim, "H12: instance %d denies %lld of limit%d key%d by memory, and the store has %lld",
                  asked->instance->number, (long long)asked->op.request.cost, asked->limit, asked->key,
                  (long long)exact.remaining);
}

static void check_in_time(struct sim *sim, const struct asked_op *asked)
{
    const int64_t took_us = sim->now_us - asked->asked_us;
    const int64_t most_us = sim->timeout_us + sim->timeout_us * sim->drift_max_ppm / 1000000 + 4 /* rounding */;
    if (took_us > most_us && asked->instance->resumes_us < asked->asked_us)
        violation(sim, "a request was answered after %lld us", (long long)took_us);
}

void audit_reported(const struct asked_op *asked)
{
    struct holding *holding = &asked->instance->holdings[asked->limit][asked->key];
    asked->instance->falls_back = false;
    holding->left = asked->op.decision.remaining;
    holding->leased = granted_left(holding);
}

void audit_answered(struct sim *sim, struct asked_op *asked, int status)
{
    struct instance *instance = asked->instance;
    const struct weir_decision *decision = &asked->op.decision;
    if (asked->is_answered)
        violation(sim, "a request was answered twice");
    asked->is_answered = true;
    sim->answered++;
    if (instance->is_dead || sim->is_over)
        return;
    trace(sim, "instance %d: limit%d key%d cost %lld: status %d source %d %s, remaining %lld, age %lld, delay %lld",
          instance->number, asked->limit, asked->key, (long long)asked->op.request.cost, status, decision->source,
          decision->allowed ? "yes" : "no", (long long)decision->remaining, (long long)decision->age_us,
          (long long)decision->delay_us);
    check_in_time(sim, asked);
    if (status != WEIR_OK) {
        violation(sim, "a request got status %d", status);
        return;
    }
    sim->allowed += decision->allowed;
    sim->denied += !decision->allowed;
    sim->lease_hits += decision->source == WEIR_BY_LEASE;
    sim->denial_hits += decision->source == WEIR_BY_DENIAL;
    sim->fallbacks += decision->source == WEIR_BY_FALLBACK;
    if (decision->source == WEIR_BY_FALLBACK && !instance->remote->was_cut &&
        !(sim->scenario->troubles & (TROUBLES_CUTTING | TROUBLE_ELASTIC)))
        violation(sim, "calls: instance %d decides limit%d key%d without the store, which it reaches", instance->number,
                  asked->limit, asked->key);
    if (decision->source == WEIR_BY_FALLBACK)
        audit_falls_back(sim, instance);
    else if (decision->source == WEIR_BY_REDIS)
        audit_reported(asked);
    if (decision->source == WEIR_BY_FALLBACK && sim->scenario->load == LOAD_LONG)
        must_share(sim, asked);
    if (!decision->allowed && decision->source == WEIR_BY_FALLBACK && decision->retry_after_us > WEIR_SECOND)
        violation(sim, "H10: instance %d is denied limit%d key%d for %lld us, and the outage may end", instance->number,
                  asked->limit, asked->key, (long long)decision->retry_after_us);
    if (decision->allowed)
        used(sim, asked);
    if (decision->allowed && asked->op.verb == WEIR_OP_RESERVE)
        reserve_admitted(sim, asked);
    if (decision->allowed)
        ;
    else if (decision->source == WEIR_BY_DENIAL)
        denied_by_memory(sim, asked);
    else if (decision->source == WEIR_BY_REDIS && asked->op.request.cost <= sim->executed_remaining)
        violation(sim, "H7: instance %d is denied %lld of limit%d key%d, and the store had %lld", instance->number,
                  (long long)asked->op.request.cost, asked->limit, asked->key, (long long)sim->executed_remaining);
    if (asked->must_pass && (!decision->allowed || decision->source == WEIR_BY_FALLBACK))
        violation(sim, "liveness: instance %d cannot have a permit of limit%d key%d, source %d, retry after %lld us",
                  instance->number, asked->limit, asked->key, decision->source, (long long)decision->retry_after_us);
}

void audit_end(struct sim *sim)
{
    for (int limit = 0; limit < sim->limit_count; limit++) {
        for (int key = 0; key < sim->key_count; key++) {
            if (!sim->failed)
                meter_track(sim, limit, key);
            free(sim->tracks[limit][key]->records);
        }
    }
}
