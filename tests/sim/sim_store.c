/* sim_store.c - what stands in for Redis: the core's own algorithms over a table, by the store's clock. */
#include "sim.h"

#include <string.h>

int64_t store_now_us(const struct sim *sim)
{
    return sim->now_us + sim->store.offset_us;
}

/* A state that another plan wrote is carried over. */
static void cell_prepare(struct cell *cell, const struct weir_plan *plan, int64_t now_us)
{
    assert(state_words(plan) <= SIM_WORDS);
    if (cell->is_there && cell->plan.fingerprint == plan->fingerprint)
        return;
    const struct written state = { &cell->plan, cell->state };
    const struct written former = { cell->has_former ? &cell->former_plan : NULL, cell->former };
    struct carried carried = { .at_us = now_us };
    if (cell->is_there)
        carried = carry_over(plan, &state, &former, now_us);
    cell->has_former = carried.former.plan != NULL;
    if (carried.former.plan == &cell->plan) {
        cell->former_plan = cell->plan;
        memcpy(cell->former, cell->state, sizeof cell->former);
    }
    memset(cell->state, 0, sizeof cell->state);
    state_charge(plan, cell->state, carried.at_us, carried.used);
    cell->plan = *plan;
    cell->is_there = true;
}

/* The state was decided for. */
static void cell_decided(struct cell *cell, const struct asked *asked, int64_t now_us, const struct weir_decision *out)
{
    const int64_t charged = asked->verb == WEIR_TAKE && out->allowed ? asked->cost + out->ahead : 0;
    if (!cell->has_former)
        return;
    if (charged > 0) {
        former_take(&cell->former_plan, cell->former, now_us, charged);
        cell->has_former = state_fresh_at_us(&cell->former_plan, cell->former) > 0;
    } else if (asked->verb == WEIR_REFUND && out->reset_after_us == 0) {
        cell->is_there = cell->has_former = cell_used_at_most(cell, now_us) > 0;
    }
}

void cell_decide(struct cell *cell, const struct asked *asked, int64_t now_us, struct weir_decision *out)
{
    const struct weir_plan *plan = &asked->plan;
    cell_prepare(cell, plan, now_us);
    if (asked->verb == WEIR_RESET) {
        cell->is_there = cell->has_former = false;
        *out = (struct weir_decision){ .allowed = true, .limit = plan->size, .remaining = plan->size };
    } else if (asked->cost > 0) {
        state_decide(plan, cell->state, now_us, asked->cost, asked->verb, out);
    } else {
        state_decide(plan, cell->state, now_us, 1, WEIR_PEEK, out);
        out->allowed = true;
        out->retry_after_us = 0;
    }
    if (asked->ahead > 0 && out->allowed) {
        const int64_t delay_us = out->delay_us;
        const int64_t ahead = min_of(asked->ahead, out->remaining / asked->spread);
        if (ahead > 0) {
            state_decide(plan, cell->state, now_us, ahead, WEIR_TAKE, out);
            assert(out->allowed);
            if (asked->cost > 0)
                out->delay_us = delay_us;
        }
        out->ahead = ahead;
    }
    cell_decided(cell, asked, now_us, out);
    out->source = WEIR_BY_REDIS;
}

int64_t cell_used(const struct cell *cell, int64_t now_us)
{
    int64_t at_us = now_us;
    return cell->is_there ? state_used(&cell->plan, cell->state, &at_us) : 0;
}

int64_t cell_used_at_most(const struct cell *cell, int64_t now_us)
{
    int64_t at_us = now_us;
    const bool has_former = cell->is_there && cell->has_former;
    return max_of(cell_used(cell, now_us), has_former ? state_used(&cell->former_plan, cell->former, &at_us) : 0);
}

static void decide(struct sim *sim, struct cell *cell, const struct asked *asked, struct weir_decision *out)
{
    cell_decide(cell, asked, store_now_us(sim), out);
    if (sim->twin)
        sim->twin->check(sim, asked, store_now_us(sim), out);
}

void store_decide(struct sim *sim, const struct asked *asked, struct weir_decision *out)
{
    struct cell *cell = &sim->store.cells[asked->limit][asked->key];
    if (asked->verb == WEIR_REFUND || asked->verb == WEIR_RESET) {
        const int64_t used = cell_used(cell, store_now_us(sim));
        decide(sim, cell, asked, out);
        audit_credit(sim, asked->limit, asked->key, used - cell_used(cell, store_now_us(sim)));
        audit_void_denials(sim, asked->limit, asked->key);
        return;
    }
    decide(sim, cell, asked, out);
}

void store_snapshot(struct sim *sim)
{
    memcpy(sim->store.before, sim->store.cells, sizeof sim->store.before);
    if (sim->twin)
        sim->twin->snapshot(sim);
}

/* What the new primary does not know of may be had once more, and not a permit beyond that. */
void store_fail_over(struct sim *sim, bool loses_all)
{
    const int64_t now_us = store_now_us(sim);
    for (int limit = 0; limit < sim->limit_count; limit++) {
        for (int key = 0; key < sim->key_count; key++) {
            struct cell *cell = &sim->store.cells[limit][key];
            const int64_t used = cell_used_at_most(cell, now_us);
            if (loses_all) /* and who would take over from it does, too */
                cell->is_there = sim->store.before[limit][key].is_there = false;
            else
                *cell = sim->store.before[limit][key];
            const int64_t lost = used - cell_used_at_most(cell, now_us);
            if (lost > 0)
                audit_credit(sim, limit, key, lost);
            audit_void_denials(sim, limit, key);
        }
    }
    if (sim->twin && loses_all)
        sim->twin->forget();
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
