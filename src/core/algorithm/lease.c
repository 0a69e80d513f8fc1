/* lease.c - the arithmetic of leases. */
#include "core/algorithm/lease.h"

#include "core/algorithm/lease_load.h"
#include "core/algorithm/lease_rest.h"
#include "core/ground/arith.h"

#define RIVALS_US WEIR_SECOND /* how long it is remembered that others take permits that come back */
#define ROUNDING_TICKS 2
#define NEVER_HOLDS_US WEIR_SECOND /* how long a denial of a cost that can never fit is remembered */

/* ---- Times ---- */

/* Return how long the permits charged by `decision` stay useful, apart from the life of leases. The times of the
 * decision count from Redis's now. */
static int64_t good_for_us(const struct weir_plan *plan, const struct weir_decision *decision)
{
    switch (plan->algorithm) {
    case WEIR_FIXED_WINDOW: return decision->reset_after_us;
    case WEIR_SLIDING_WINDOW: /* it was charged to the newest block, which empties last */
        return decision->reset_after_us - plan->blocks * plan->period_us;
    case WEIR_LEAKY_BUCKET: return INT64_MAX;
    default: break;
    }
    if (plan->refill == WEIR_GREEDY)
        return INT64_MAX;
    const int64_t refills = div_up(plan->size - decision->remaining, plan->limit);
    return decision->reset_after_us - max_of(0, refills - 1) * plan->period_us;
}

/* Return the earliest time of a charge whose permits come back together with those that were charged at `charged_us`
 * and are good for `good_us`. */
static int64_t from_us(const struct weir_plan *plan, int64_t charged_us, int64_t good_us)
{
    if (plan->algorithm == WEIR_SLIDING_WINDOW)
        return charged_us - charged_us % plan->period_us;
    return good_us == INT64_MAX ? charged_us : charged_us + good_us - plan->period_us;
}

/* Return how much longer, at least, a cost that is `more` permits larger has to wait. */
static int64_t further_wait_us(const struct weir_plan *plan, int64_t more)
{
    switch (plan->algorithm) {
    case WEIR_FIXED_WINDOW:
    case WEIR_SLIDING_WINDOW: return 0;
    default: break;
    }
    if (plan->refill == WEIR_INTERVAL)
        return div_down(more, plan->limit) * plan->period_us;
    return div_down(mul_capped(more, plan->q), plan->p) * plan->tick_us;
}

/* ---- What is left ---- */

/* Return when the slot of that number departs. */
static int64_t slot_at_us(const struct weir_plan *plan, const struct lease_batch *batch, int64_t number)
{
    return batch->slot_us + div_up(number * plan->q, plan->p) * plan->tick_us;
}

/* Drop the slots whose time has passed. */
static void skip_slots(struct lease *lease, struct lease_batch *batch, int64_t now_us)
{
    const struct weir_plan *plan = &lease->plan;
    if (now_us <= slot_at_us(plan, batch, batch->next))
        return;
    const int64_t end = batch->next + batch->left;
    int64_t next = end;
    if (now_us <= slot_at_us(plan, batch, end - 1)) /* the first whose time is not before now */
        next = div_down((div_up(now_us - batch->slot_us, plan->tick_us) - 1) * plan->p, plan->q) + 1;
    next = max_of(next, batch->next);
    lease->lost += (uint64_t)(next - batch->next);
    batch->left = end - next;
    batch->next = next;
}

/* Take from a greedy bucket's batch the permits that refill in the `over_us` since its end, rounded up. It then equals a
 * batch that was ordered later: giving the rest back and taking it again would change nothing in Redis. */
static void batch_shrink(const struct weir_plan *plan, struct lease_batch *batch, int64_t over_us)
{
    const int64_t ticks = over_us / plan->tick_us + 1;
    const int64_t units = mul_capped(ticks, plan->p);
    const int64_t permits = units / plan->q + (units % plan->q > 0);
    if (permits >= batch->left) {
        batch->left = 0;
        return;
    }
    const int64_t later_us = permits * plan->q / plan->p * plan->tick_us;
    batch->left -= permits;
    batch->charged_us += batch->charged_us > 0 ? later_us : 0;
    batch->from_us = batch->charged_us;
    batch->asked_us += later_us;
    batch->end_us += later_us;
}

static inline int64_t batch_left(struct lease *lease, struct lease_batch *batch, int64_t now_us)
{
    const struct weir_plan *plan = &lease->plan;
    const int64_t left = batch->left;
    const int64_t end_us = lease_end_us(lease, batch);
    if (left > 0 && now_us >= end_us) {
        if (plan->algorithm == WEIR_SLIDING_WINDOW && batch->charged_us > 0)
            lease_rest_add(lease, left, batch->charged_us);
        if (is_greedy(plan))
            batch_shrink(plan, batch, now_us - end_us);
        else
            batch->left = 0;
        lease->lost += (uint64_t)(left - batch->left);
    }
    if (batch->left > 0 && plan->algorithm == WEIR_LEAKY_BUCKET)
        skip_slots(lease, batch, now_us);
    return batch->left;
}

int64_t lease_left(struct lease *lease, int64_t now_us)
{
    const int64_t first = batch_left(lease, &lease->batches[0], now_us);
    const int64_t second = batch_left(lease, &lease->batches[1], now_us);
    return lease->plan.algorithm == WEIR_LEAKY_BUCKET ? max_of(first, second) : first + second;
}

/* ---- Decisions ---- */

void lease_forget(struct lease *lease)
{
    *lease = (struct lease){
        .plan = lease->plan,
        .life_us = lease->life_us,
        .life_max_us = lease->life_max_us,
        .permit_us = lease->permit_us,
        .version = lease->version,
        .era = lease->era + 1,
        .remaining = lease->plan.size,
        .count = lease->count,
        .average = lease->average,
        .turn_us = lease->turn_us,
        .turn_len_us = lease->turn_len_us,
        .lost = lease->lost + (uint64_t)(lease->batches[0].left + lease->batches[1].left),
    };
}

void lease_renew(struct lease *lease, const struct lease_rules *rules, const struct weir_plan *plan, uint64_t version)
{
    lease->plan = *plan;
    lease->version = version;
    lease->life_us = lease_life_us(rules, plan);
    lease->life_max_us = rules->life_us;
    lease->permit_us = is_greedy(plan) && lease->life_us > 0 ? div_down(plan->q, plan->p) * plan->tick_us : 0;
    lease->turn_len_us = load_turn_len_us(plan, lease->life_us);
    lease_forget(lease);
}

void lease_keep(struct lease *lease, uint64_t version)
{
    if (version == lease->version)
        return;
    lease->version = version;
    lease->era++;
    lease->is_asked = false;
    lease->late_us = 0;
}

/* Take `cost` from the batches, the older first. Return the time of the order of its oldest permit. */
static int64_t spend(struct lease *lease, int64_t now_us, int64_t cost, int64_t *delay_us)
{
    struct lease_batch *first = &lease->batches[0], *second = &lease->batches[1];
    *delay_us = 0;
    if (first->left == 0) {
        *first = *second;
        second->left = 0;
    }
    if (lease->plan.algorithm == WEIR_LEAKY_BUCKET) {
        struct lease_batch *batch = first->left >= cost ? first : second;
        *delay_us = max_of(0, slot_at_us(&lease->plan, batch, batch->next) - now_us);
        batch->next += cost;
        batch->left -= cost;
        return batch->asked_us;
    }
    const int64_t from_first = min_of(first->left, cost);
    first->left -= from_first;
    second->left -= cost - from_first;
    return first->asked_us;
}

bool lease_denies(const struct lease *lease, int64_t now_us, int64_t lacks)
{
    return lease->denied_cost > 0 && now_us < lease->denied_until_us && lacks >= lease->denied_cost;
}

static int64_t lacks_of(const struct lease *lease, int64_t left, int64_t cost)
{
    return lease->plan.algorithm == WEIR_LEAKY_BUCKET ? cost : cost - left;
}

enum lease_answer lease_decide(struct lease *lease, int64_t now_us, int64_t cost, enum weir_verb verb,
                               struct weir_decision *out)
{
    const struct weir_plan *plan = &lease->plan;
    const int64_t left = lease_left(lease, now_us);
    const int64_t reset_after_us = max_of(0, lease->reset_at_us - now_us);
    if (left >= cost) {
        const struct lease_batch kept[2] = { lease->batches[0], lease->batches[1] };
        int64_t delay_us;
        const int64_t asked_us = spend(lease, now_us, cost, &delay_us);
        if (verb == WEIR_PEEK) {
            lease->batches[0] = kept[0];
            lease->batches[1] = kept[1];
        }
        *out = (struct weir_decision){
            .allowed = true,
            .source = WEIR_BY_LEASE,
            .limit = plan->size,
            .remaining = min_of(plan->size, lease->remaining + left - (verb == WEIR_PEEK ? 0 : cost)),
            .delay_us = delay_us,
            .reset_after_us = reset_after_us,
            .age_us = max_of(0, now_us - asked_us),
        };
        return LEASE_SPENT;
    }
    if (!lease_denies(lease, now_us, lacks_of(lease, left, cost)))
        return LEASE_UNDECIDED;
    const int64_t more = lacks_of(lease, left, cost) - lease->denied_cost;
    *out = (struct weir_decision){
        .source = WEIR_BY_DENIAL,
        .limit = plan->size,
        .remaining = min_of(plan->size, lease->remaining + left),
        .retry_after_us = cost > plan->size ? WEIR_NEVER : lease->denied_end_us - now_us + further_wait_us(plan, more),
        .reset_after_us = reset_after_us,
        .age_us = max_of(0, now_us - lease->denied_asked_us),
    };
    return LEASE_DENIED;
}

/* ---- The answer ---- */

/* Return the place for the latest grant, behind the one before it; NULL if both are taken. */
static struct lease_batch *next_batch(struct lease *lease)
{
    struct lease_batch *first = &lease->batches[0], *second = &lease->batches[1];
    if (first->left == 0) {
        *first = *second;
        second->left = 0;
    }
    return first->left == 0 ? first : second->left == 0 ? second : NULL;
}

static void add_batch(struct lease *lease, const struct lease_batch *grant)
{
    struct lease_batch *batch = next_batch(lease);
    if (batch) {
        *batch = *grant;
        return;
    }
    /* An answer for what a request lacked has arrived in between; never with a leaky bucket. Merge: both count as old
     * as the older one. */
    batch = &lease->batches[1];
    batch->left += grant->left;
    batch->asked_us = min_of(batch->asked_us, grant->asked_us);
    batch->end_us = min_of(batch->end_us, grant->end_us);
    batch->charged_us = min_of(batch->charged_us, grant->charged_us);
    batch->from_us = is_greedy(&lease->plan) ? batch->charged_us : max_of(batch->from_us, grant->from_us);
    batch->lead_us = min_of(batch->lead_us, grant->lead_us);
}

/* Return how long, at least, one permit has to wait if `decision` leaves none. */
static int64_t least_wait_us(const struct weir_plan *plan, const struct weir_decision *decision)
{
    const int64_t good_us = good_for_us(plan, decision); /* set if permits return all together: until they do */
    return good_us < INT64_MAX
               ? good_us
               : decision->reset_after_us - div_up(mul_capped(plan->size - 1, plan->q), plan->p) * plan->tick_us;
}

bool lease_was_denied(struct lease *lease, const struct lease_order *order, int64_t asked_us, int64_t now_us,
                      int64_t cost, const struct weir_decision *decision, struct weir_decision *out)
{
    const struct weir_plan *plan = &lease->plan;
    if (order->era != lease->era)
        return false;
    const int64_t left = lease_left(lease, now_us);
    const bool is_empty = decision->allowed && order->spread == 1 && decision->ahead < order->ahead;
    const int64_t denied_cost = is_empty ? 1 : order->cost;
    const int64_t wait_us = is_empty ? least_wait_us(plan, decision) : decision->retry_after_us;
    const int64_t more = lacks_of(lease, left, cost) - denied_cost;
    if ((decision->allowed && !is_empty) || more < 0)
        return false;
    *out = (struct weir_decision){
        .source = WEIR_BY_REDIS,
        .limit = plan->size,
        .remaining = min_of(plan->size, decision->remaining + left),
        .retry_after_us = cost > plan->size || wait_us == WEIR_NEVER
                              ? WEIR_NEVER
                              : max_of(1, asked_us + wait_us - now_us + further_wait_us(plan, more)),
        .reset_after_us = max_of(0, lease->reset_at_us - now_us),
    };
    return true;
}

/* Remember that Redis has less than `cost` for `wait_us`. A denial of a smaller cost, or one that ends later, stays. */
static void note_denial(struct lease *lease, const struct lease_rules *rules, int64_t asked_us, int64_t now_us,
                        int64_t cost, int64_t wait_us)
{
    const int64_t until_us = asked_us + min_of(wait_us, rules->denial_us);
    const bool is_denied = lease_denies(lease, now_us, cost - 1) ||
                           (lease_denies(lease, now_us, cost) && lease->denied_until_us >= until_us);
    if (asked_us <= lease->refunded_us || is_denied)
        return;
    lease->denied_cost = cost;
    lease->denied_asked_us = asked_us;
    lease->denied_end_us = asked_us + wait_us;
    lease->denied_until_us = until_us;
}

/* True if an answer shows that others take this key's permits: it takes longer to refill than after the answer before
 * it and what was charged here since. */
static bool has_rivals(const struct lease *lease, const struct lease_order *order, int64_t asked_us,
                       const struct weir_decision *decision)
{
    const struct weir_plan *plan = &lease->plan;
    const int64_t charged = decision->ahead + (decision->allowed ? order->cost : 0);
    const int64_t most_us = max_of(asked_us, lease->reset_at_us) +
                            (div_up(mul_capped(charged, plan->q), plan->p) + ROUNDING_TICKS) * plan->tick_us;
    return lease->is_known && asked_us + decision->reset_after_us > most_us;
}

/* Remember what an answer proves about later requests. Where permits come back one by one and others take them too, a
 * busy key waits for several. */
static void note_denials(struct lease *lease, const struct lease_rules *rules, const struct lease_order *order,
                         int64_t asked_us, int64_t now_us, const struct weir_decision *decision)
{
    const struct weir_plan *plan = &lease->plan;
    const bool one_by_one = drains_steadily(plan);
    if (one_by_one && has_rivals(lease, order, asked_us, decision))
        lease->rivals_until_us = max_of(lease->rivals_until_us, asked_us + RIVALS_US);
    const bool paces = one_by_one && asked_us < lease->rivals_until_us && lease_is_on(rules, plan) &&
                       load_in_pace(lease, load_beside(lease, order->cost)) > 0;
    if (!decision->allowed && decision->retry_after_us == WEIR_NEVER)
        note_denial(lease, rules, asked_us, now_us, order->cost, NEVER_HOLDS_US);
    else if (!decision->allowed)
        note_denial(lease, rules, asked_us, now_us, order->cost,
                    max_of(paces ? LOAD_PACE_US : 0, decision->retry_after_us));
    else if (paces && decision->remaining == 0 && !lease_denies(lease, now_us, INT64_MAX))
        note_denial(lease, rules, asked_us, now_us, 1, max_of(LOAD_PACE_US, least_wait_us(plan, decision)));
}

void lease_answered(struct lease *lease, const struct lease_rules *rules, const struct lease_order *order,
                    int64_t asked_us, int64_t now_us, const struct weir_decision *decision)
{
    const struct weir_plan *plan = &lease->plan;
    const int64_t direct = order->whole && decision->allowed ? order->cost : 0;
    const int64_t granted = lease_granted(order, decision);
    if (order->era != lease->era) {
        lease->lost += (uint64_t)granted;
        return;
    }
    const int64_t late_us = lease->late_us;
    note_denials(lease, rules, order, asked_us, now_us, decision);
    lease_order_failed(lease, order);                      /* the order is complete */
    if (!lease->is_known || asked_us >= lease->known_us) { /* answers may arrive in another order */
        lease->is_known = true;
        lease->known_us = asked_us;
        lease->remaining = decision->remaining;
        lease->reset_at_us = asked_us + decision->reset_after_us;
    }
    if (order->ahead > 0 || !decision->allowed)
        lease->scarce = !decision->allowed || (decision->ahead < order->ahead && 2 * decision->remaining < plan->size);
    const int64_t good_us = good_for_us(plan, decision);
    if (good_us < INT64_MAX && decision->reset_after_us > 0)
        lease->edge_us = asked_us + good_us;
    if (granted == 0)
        return;
    /* It has aged on its way, too, while nothing that was used here had yet to refill: at the latest until idle_us. */
    const int64_t aged_us = max_of(0, lease->idle_us - asked_us) + late_us;
    const int64_t young_us = max_of(max_of(asked_us, lease->idle_us), lease->busy_us) - aged_us;
    struct lease_batch grant = {
        .left = granted,
        .asked_us = asked_us,
        .end_us = young_us + min_of(lease->life_us, good_us),
        .slot_us = now_us + decision->delay_us,
        .next = direct,
        .charged_us = order->ahead > 0 ? decision->age_us : 0,
        .from_us = order->ahead > 0 ? from_us(plan, decision->age_us, good_us) : 0,
    };
    const int64_t aged_since_us = lease_aged_since_us(lease, &grant, now_us);
    if (grant.charged_us > 0) {
        grant.lead_us = grant.charged_us - aged_since_us;
        lease->lead_us = grant.charged_us - asked_us;
    }
    if (now_us < min_of(lease_end_us(lease, &grant), aged_since_us + lease->life_us))
        add_batch(lease, &grant);
    else
        lease->lost += (uint64_t)granted;
}

bool lease_recall(struct lease *lease, int64_t now_us, struct weir_decision *out)
{
    if (!lease->is_known)
        return false;
    *out = (struct weir_decision){
        .allowed = true,
        .source = WEIR_BY_LEASE,
        .limit = lease->plan.size,
        .remaining = min_of(lease->plan.size, lease->remaining + lease_left(lease, now_us)),
        .reset_after_us = max_of(0, lease->reset_at_us - now_us),
        .age_us = max_of(0, now_us - lease->known_us),
    };
    return true;
}

bool lease_is_idle(struct lease *lease, int64_t now_us, int64_t asking_us)
{
    load_turn(lease, now_us);
    return now_us - lease->used_us >= asking_us && lease_left(lease, now_us) == 0 &&
           !lease_denies(lease, now_us, INT64_MAX) && lease->count == 0 && lease->average < LOAD_AVERAGE_ONE / 2;
}
