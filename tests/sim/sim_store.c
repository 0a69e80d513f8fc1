/* sim_store.c - the stand-in for Redis: the core's algorithms over a table, by the store's clock. */
#include "sim.h"

#include "core/algorithm/former.h"

#include <string.h>

enum { STATE_KEPT_US = 3000000 }; /* about: lua/level.lua */

int64_t store_now_us(const struct sim *sim)
{
    return sim->now_us + sim->store.offset_us;
}

static void cell_begin(struct cell *cell, const struct weir_plan *plan, int64_t at_us, int64_t used)
{
    assert(state_words(plan) <= SIM_WORDS);
    memset(cell->state, 0, sizeof cell->state);
    state_charge(plan, cell->state, at_us, used);
    cell->plan = *plan;
    cell->is_there = true;
}

static struct key_states cell_states(const struct cell *cell)
{
    const int64_t *own = (const int64_t *)(const void *)&cell->origin;
    const int64_t *former = (const int64_t *)(const void *)&cell->former_origin;
    return (struct key_states){ .own = { &cell->plan, cell->state, cell->has_origin ? own : NULL },
                                .former = { cell->has_former ? &cell->former_plan : NULL, cell->former,
                                            cell->has_former_origin ? former : NULL },
                                .until_us = cell->until_us };
}

int64_t cell_used(const struct cell *cell, int64_t now_us)
{
    int64_t at_us = now_us;
    return cell->is_there ? state_used(&cell->plan, cell->state, &at_us) : 0;
}

/* Convert a state of another plan. */
static void cell_prepare(struct cell *cell, const struct weir_plan *plan, int64_t now_us)
{
    if (!cell->is_there) {
        cell->has_former = cell->has_origin = false;
        cell_begin(cell, plan, now_us, 0);
    } else if (cell->plan.fingerprint == plan->fingerprint) {
        cell->has_origin = cell->has_origin && cell_used(cell, now_us) > 0;
    } else if (cell->plan.fingerprint != plan->fingerprint) {
        const struct cell old = *cell;
        const struct key_states states = cell_states(&old);
        struct carried carried = carry_over(plan, &states, now_us);
        cell_begin(cell, plan, now_us, 0);
        if (carried.from.plan)
            carry_write(plan, &carried, now_us, cell->state);
        cell->has_origin = carried.from.plan && carried.has_origin;
        cell->origin = carried.origin;
        cell->has_former = carried.former.plan != NULL;
        cell->until_us = carried.until_us;
        if (cell->has_former) {
            cell->former_plan = *carried.former.plan;
            memcpy(cell->former, carried.former.state, sizeof cell->former);
            cell->has_former_origin = carried.former.origin != NULL;
            if (cell->has_former_origin)
                memcpy(&cell->former_origin, carried.former.origin, sizeof cell->former_origin);
        }
    }
}

/* Take and charge in advance, without state_take_ahead(), which is under test. */
static void take_ahead(struct cell *cell, const struct asked *asked, int64_t now_us, struct weir_decision *out)
{
    const struct weir_plan *plan = &asked->plan;
    state_decide(plan, cell->state, now_us, max_of(1, asked->cost), asked->cost > 0 ? WEIR_TAKE : WEIR_PEEK, out);
    if (asked->cost == 0) {
        out->allowed = true;
        out->retry_after_us = 0;
    }
    out->age_us = now_us;
    if (!out->allowed)
        return;
    const int64_t delay_us = out->delay_us, ahead = min_of(asked->ahead, out->remaining / asked->spread);
    if (ahead > 0) {
        state_decide(plan, cell->state, now_us, ahead, WEIR_TAKE, out);
        assert(out->allowed);
        out->age_us = now_us;
        if (asked->cost > 0)
            out->delay_us = delay_us;
    }
    out->ahead = ahead;
}

/* Change the former state as `decided` changed the state. */
static void cell_changed(struct cell *cell, const struct weir_backend_request *request,
                         const struct weir_decision *decided)
{
    const struct key_states states = cell_states(cell);
    former_change(&states, cell->former, cell->has_former_origin ? &cell->former_origin : NULL, request, decided);
    cell->has_former = former_counts(&states, request->now_us);
}

void cell_decide(struct cell *cell, const struct asked *asked, int64_t now_us, struct weir_decision *out)
{
    const struct weir_plan *plan = &asked->plan;
    const struct weir_backend_request request = { .cost = asked->cost,
                                                  .now_us = now_us,
                                                  .ahead = asked->ahead,
                                                  .spread = (uint16_t)asked->spread,
                                                  .verb = (uint8_t)asked->verb };
    cell_prepare(cell, plan, now_us);
    if (asked->verb == WEIR_RESET) {
        cell->is_there = false;
        *out = (struct weir_decision){ .allowed = true, .limit = plan->size, .remaining = plan->size };
    } else if (asked->verb == WEIR_TAKE && (asked->ahead > 0 || asked->cost == 0)) {
        take_ahead(cell, asked, now_us, out);
        cell_changed(cell, &request, out);
    } else {
        state_decide_request(plan, cell->state, cell->has_origin ? &cell->origin : NULL, now_us, asked->verb, &request,
                             out);
        if (asked->verb != WEIR_PEEK)
            cell_changed(cell, &request, out);
    }
    out->source = WEIR_BY_REDIS;
}

/* Return the state's use, or the former state's if it is greater. */
static int64_t cell_most_used(const struct cell *cell, int64_t now_us)
{
    int64_t at_us = now_us, used = cell_used(cell, now_us);
    return cell->is_there && cell->has_former ? max_of(used, state_used(&cell->former_plan, cell->former, &at_us))
                                              : used;
}

static void decide(struct sim *sim, struct cell *cell, const struct asked *asked, struct weir_decision *out)
{
    cell_decide(cell, asked, store_now_us(sim), out);
    if (sim->twin)
        sim->twin->check(sim, asked, store_now_us(sim), out);
}

/* Return how many permits the store may forget because a request comes under a third plan: those of the former state
 * that neither the state, which takes its place, nor a state under that plan can hold (docs/design/semantics.md). It
 * reads the states before the request, so the meters still report code that forgets more. */
static int64_t cell_forgets(const struct cell *cell, const struct weir_plan *plan, int64_t now_us)
{
    int64_t at_us = now_us;
    if (!cell->is_there || !cell->has_former || now_us >= cell->until_us ||
        plan->fingerprint == cell->plan.fingerprint || plan->fingerprint == cell->former_plan.fingerprint)
        return 0;
    const int64_t used = cell_used(cell, now_us), former = state_used(&cell->former_plan, cell->former, &at_us);
    return used == 0 ? 0 : max_of(0, former - max_of(used, plan->size)); /* an idle state takes no place */
}

/* Return when the state became idle, or will, by the store's clock, or INT64_MAX. Redis drops a state some time after
 * that. Then nothing tells when the key became idle: it counts as idle from the outage's beginning, after all of that
 * time had come back. */
static int64_t cell_idle_from_us(const struct cell *cell, const struct asked *asked, int64_t since_us, int64_t now_us)
{
    const struct weir_plan *plan = &asked->plan;
    const int64_t fill_us = state_drain_us(plan, 0);
    const int64_t dropped_us = STATE_KEPT_US + (plan->p > 0 ? fill_us / 4 : 0);
    int64_t from_us = INT64_MAX;
    if (cell->is_there && !cell->has_former && cell->plan.fingerprint == plan->fingerprint)
        from_us = state_fresh_at_us(plan, cell->state);
    if (!cell->is_there || (from_us != INT64_MAX && now_us - from_us > dropped_us))
        return since_us + fill_us;
    return from_us;
}

/* Answer a charge that asks how long its key lay idle, and leave a note: the twin of lua/settle.lua. */
static void cell_tell_idle(struct cell *cell, const struct asked *asked, int64_t now_us, struct weir_decision *out)
{
    const int64_t since_us = max_of(0, now_us - asked->ago_us);
    const int64_t from_us = cell_idle_from_us(cell, asked, since_us, now_us);
    const int64_t idle_us = from_us < now_us ? now_us - max_of(from_us, since_us) : 0;
    const int64_t noted_us = cell->idle_to_us - max_of(cell->idle_from_us, since_us);
    out->age_us = idle_us;
    out->retry_after_us = 0;
    if (cell->idle_to_us <= now_us && noted_us > idle_us) {
        out->age_us = noted_us;
        out->retry_after_us = now_us - cell->idle_to_us;
    } else if (idle_us > 0) {
        cell->idle_from_us = from_us;
        cell->idle_to_us = now_us;
    }
}

static void store_charge_after_outage(struct sim *sim, struct cell *cell, const struct asked *asked,
                                      struct weir_decision *out)
{
    struct weir_decision idle;
    cell_tell_idle(cell, asked, store_now_us(sim), &idle);
    decide(sim, cell, asked, out);
    out->age_us = idle.age_us;
    out->retry_after_us = idle.retry_after_us;
}

void store_decide(struct sim *sim, const struct asked *asked, struct weir_decision *out)
{
    struct cell *cell = &sim->store.cells[asked->limit][asked->key];
    const int64_t forgets = cell_forgets(cell, &asked->plan, store_now_us(sim));
    if (forgets > 0)
        audit_credit(sim, asked->limit, asked->key, forgets);
    if (asked->verb == WEIR_REFUND || asked->verb == WEIR_RESET) {
        const int64_t now_us = store_now_us(sim), used = cell_used(cell, now_us), most = cell_most_used(cell, now_us);
        decide(sim, cell, asked, out);
        /* A lease's were never used: the store holds no fewer than were used, and the meters show it. A request under
         * the other plan makes that one's use the state's. */
        if (asked->ahead == 0)
            audit_credit(sim, asked->limit, asked->key,
                         max_of(0, max_of(used - cell_used(cell, now_us), most - cell_most_used(cell, now_us))));
        audit_void_denials(sim, asked->limit, asked->key);
        return;
    }
    const int64_t used = cell_used(cell, store_now_us(sim));
    if (asked->ago_us > 0)
        store_charge_after_outage(sim, cell, asked, out);
    else
        decide(sim, cell, asked, out);
    const bool renews_in_time = asked->verb == WEIR_RENEW &&
                                renewal_is_in_time(sim, asked->limit, asked->ahead, store_now_us(sim));
    if ((renews_in_time || (asked->verb == WEIR_RENEW && !out->allowed)) && cell_used(cell, store_now_us(sim)) != used)
        violation(sim, "R3: a renewal of %lld permits that is %s makes %lld in use %lld", (long long)asked->cost,
                  out->allowed ? "in time" : "denied", (long long)used, (long long)cell_used(cell, store_now_us(sim)));
    if (asked->verb == WEIR_TAKE)
        sim->store.charged[asked->limit][asked->key] += (out->allowed ? asked->cost : 0) + out->ahead;
}

void store_snapshot(struct sim *sim)
{
    memcpy(sim->store.before, sim->store.cells, sizeof sim->store.before);
    memset(sim->store.charged, 0, sizeof sim->store.charged);
    if (sim->twin)
        sim->twin->snapshot(sim);
}

/* Permits that the new primary does not know of may be admitted again, and no others. */
void store_fail_over(struct sim *sim, bool loses_all)
{
    const int64_t now_us = store_now_us(sim);
    for (int limit = 0; limit < sim->limit_count; limit++) {
        for (int key = 0; key < sim->key_count; key++) {
            struct cell *cell = &sim->store.cells[limit][key];
            const int64_t used = cell_used(cell, now_us), most = cell_most_used(cell, now_us);
            if (loses_all)
                cell->is_there = false;
            else
                *cell = sim->store.before[limit][key];
            int64_t lost = max_of(used - cell_used(cell, now_us), most - cell_most_used(cell, now_us));
            /* Permits that were given back since then hide some that were charged, and their block may end sooner. */
            if (!loses_all && sim->limits[limit].policy.algorithm == WEIR_SLIDING_WINDOW)
                lost = max_of(lost, sim->store.charged[limit][key]);
            if (lost > 0)
                audit_credit(sim, limit, key, lost);
            audit_void_denials(sim, limit, key);
        }
    }
    if (sim->twin && loses_all)
        sim->twin->forget(sim);
    else if (sim->twin)
        sim->twin->fail_over(sim);
    trace(sim, "store: %s", loses_all ? "forgets all" : "another primary");
}

void store_step(struct sim *sim, int64_t by_us)
{
    trace(sim, "store: clock steps by %lld us", (long long)by_us);
    sim->store.offset_us += by_us;
    audit_stepped(sim, by_us);
}
