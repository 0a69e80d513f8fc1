/* lease.c - the arithmetic of leases. */
#include "core/algorithm/lease.h"

#include "core/ground/arith.h"

#define TRIPS_IN_LIFE 10 /* a life must last this many round trips; otherwise a lease would end before it is of use */
#define NEVER_HOLDS_US WEIR_SECOND /* how long a denial of a cost that can never fit is remembered */
#define LOW_PART 8                 /* order ahead when this part of the permits requested in half a life is left */
#define COUNT_MAX (INT64_C(1) << 40)
#define AVERAGE_ONE 16  /* the average is kept in 16ths ... */
#define AVERAGE_TURNS 4 /* ... and moves by a quarter of the difference each half life */

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

/* Return how long a grant asked for now is expected to stay useful: until the next edge. */
static int64_t useful_us(const struct lease *lease, const struct lease_rules *rules, int64_t now_us)
{
    const struct weir_plan *plan = &lease->plan;
    const bool returns = plan->algorithm != WEIR_FIXED_WINDOW || plan->align == WEIR_ALIGN_EPOCH;
    const int64_t ahead_us = lease->edge_us - now_us;
    if (lease->edge_us == 0 || (ahead_us <= 0 && !returns))
        return rules->life_us;
    return min_of(rules->life_us,
                  ahead_us > 0 ? (ahead_us - 1) % plan->period_us + 1 : plan->period_us - -ahead_us % plan->period_us);
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

/* ---- Load ---- */

static int64_t half_us(const struct lease_rules *rules)
{
    return rules->life_us / 2;
}

static void turn_halves(struct lease *lease, const struct lease_rules *rules, int64_t now_us)
{
    const int64_t half = half_us(rules);
    if (lease->turn_us == 0 || now_us < lease->turn_us - half) { /* new, or the caller's clock has stepped back */
        lease->count = 0;
        lease->turn_us = now_us + half;
        return;
    }
    int64_t turns = 1 + (now_us - lease->turn_us) / half;
    lease->turn_us += turns * half;
    for (; turns > 0 && (lease->count > 0 || lease->average > 0); turns--) {
        const int64_t seen = lease->count * AVERAGE_ONE;
        lease->average += (seen - lease->average) / AVERAGE_TURNS;
        if (seen == 0 && lease->average < AVERAGE_TURNS)
            lease->average = 0;
        lease->count = 0;
    }
}

static inline void load_turn(struct lease *lease, const struct lease_rules *rules, int64_t now_us)
{
    if (now_us >= lease->turn_us || now_us < lease->turn_us - rules->life_us)
        turn_halves(lease, rules, now_us);
}

void lease_count(struct lease *lease, const struct lease_rules *rules, int64_t now_us, int64_t cost)
{
    load_turn(lease, rules, now_us);
    lease->count = min_of(lease->count + cost, COUNT_MAX);
}

/* Return the permits requested in half a life, without the `cost` that was just counted. */
static int64_t load_beside(const struct lease *lease, int64_t cost)
{
    return max_of(lease->count - cost, (lease->average + AVERAGE_ONE / 2) / AVERAGE_ONE);
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

static inline int64_t batch_left(struct lease *lease, struct lease_batch *batch, int64_t now_us)
{
    if (batch->left > 0 && now_us >= batch->end_us) {
        lease->lost += (uint64_t)batch->left;
        batch->left = 0;
    }
    if (batch->left > 0 && lease->plan.algorithm == WEIR_LEAKY_BUCKET)
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

void lease_renew(struct lease *lease, const struct weir_plan *plan, uint64_t version)
{
    *lease = (struct lease){
        .plan = *plan,
        .version = version,
        .era = lease->era + 1,
        .remaining = plan->size,
        .count = lease->count,
        .average = lease->average,
        .turn_us = lease->turn_us,
        .lost = lease->lost + (uint64_t)(lease->batches[0].left + lease->batches[1].left),
    };
}

/* Take `cost` from the batches, the older first. Return when the oldest of it was asked for. */
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
        .retry_after_us = cost > plan->size ? WEIR_NEVER
                                            : lease->denied_until_us - now_us + further_wait_us(plan, more),
        .reset_after_us = reset_after_us,
        .age_us = max_of(0, now_us - lease->denied_asked_us),
    };
    return LEASE_DENIED;
}

/* ---- Asking, and the answer ---- */

static bool can_lease(const struct lease *lease, const struct lease_rules *rules, int64_t trip_us)
{
    return lease_is_on(rules, &lease->plan) && trip_us <= rules->life_us / TRIPS_IN_LIFE;
}

static void note_asked(struct lease *lease, const struct lease_order *order)
{
    lease->coming = order->ahead + (order->whole ? 0 : order->cost);
    lease->is_asked = lease->coming > 0;
}

struct lease_order lease_make_order(struct lease *lease, const struct lease_rules *rules, int64_t now_us, int64_t cost,
                                    int64_t waiting, int64_t trip_us)
{
    const struct weir_plan *plan = &lease->plan;
    struct lease_order order = {
        .era = lease->era, .cost = cost, .spread = (uint32_t)(2 * rules->instances), .whole = true
    };
    const int64_t left = lease_left(lease, now_us);
    /* An order on its way counts as held: both together never exceed lease_max(). */
    if (left > 0 && left < cost && cost <= lease_max(rules, plan) && !lease->is_asked &&
        plan->algorithm != WEIR_LEAKY_BUCKET) {
        order.cost = cost - left;
        order.whole = false;
    }
    load_turn(lease, rules, now_us);
    const int64_t load = load_beside(lease, cost);
    order.alone = load < 1 || !can_lease(lease, rules, trip_us);
    if (order.alone)
        lease->low = 0;
    const bool was_asked = lease->is_asked;
    if (!was_asked)
        note_asked(lease, &order);
    if (order.alone || was_asked || lease->batches[1].left > 0)
        return order;
    lease->low = load / LOW_PART + mul_capped(2 * load, trip_us) / half_us(rules);
    const int64_t want = min_of(load, mul_capped(load, useful_us(lease, rules, now_us)) / half_us(rules));
    const int64_t room = max_of(0, lease_max(rules, plan) - (order.whole ? left : cost));
    if (lease->scarce &&
        waiting > 0) { /* near the limit, order only what waiting requests are sure to use, but with spread 1 */
        order.ahead = min_of(waiting, room);
        order.spread = 1;
    } else { /* an order ahead of any request must last as long as others, and no request comes with it */
        order.ahead = min_of(waiting + want + want / 8 + (cost == 0 && want > 0), room);
    }
    note_asked(lease, &order);
    return order;
}

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
    const int64_t left = lease_left(lease, now_us);
    const bool is_empty = decision->allowed && order->spread == 1 && decision->ahead < order->ahead;
    const int64_t denied_cost = is_empty ? 1 : order->cost;
    const int64_t wait_us = is_empty ? least_wait_us(plan, decision) : decision->retry_after_us;
    const int64_t more = lacks_of(lease, left, cost) - denied_cost;
    if (order->era != lease->era || (decision->allowed && !is_empty) || more < 0)
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
    lease_order_failed(lease, order); /* the order is complete */
    lease->is_known = true;
    lease->known_us = asked_us;
    lease->remaining = decision->remaining;
    lease->reset_at_us = asked_us + decision->reset_after_us;
    if (order->ahead > 0 || !decision->allowed)
        lease->scarce = decision->ahead < order->ahead || !decision->allowed;
    /* Keep a denial of a smaller cost: it was asked for at about the same time. */
    if (!decision->allowed && asked_us > lease->refunded_us && !lease_denies(lease, now_us, order->cost - 1)) {
        const bool never = decision->retry_after_us == WEIR_NEVER;
        lease->denied_cost = order->cost;
        lease->denied_asked_us = asked_us;
        lease->denied_until_us = asked_us + (never ? NEVER_HOLDS_US : decision->retry_after_us);
    }
    const int64_t good_us = good_for_us(plan, decision);
    if (good_us < INT64_MAX && decision->reset_after_us > 0)
        lease->edge_us = asked_us + good_us;
    if (granted == 0)
        return;
    const struct lease_batch grant = {
        .left = granted,
        .asked_us = asked_us,
        .end_us = asked_us + min_of(rules->life_us, good_us),
        .slot_us = now_us + decision->delay_us,
        .next = direct,
    };
    if (now_us < grant.end_us)
        add_batch(lease, &grant);
    else
        lease->lost += (uint64_t)granted;
}

void lease_give_back(struct lease *lease, const struct lease_rules *rules, uint64_t era, int64_t asked_us, int64_t cost)
{
    /* Leases made since, or on their way, may together with this exceed what one instance may have. */
    const int64_t coming = lease->is_asked ? lease->coming : 0;
    const int64_t room = lease_max(rules, &lease->plan) - lease->batches[0].left - lease->batches[1].left - coming;
    const int64_t fits = era == lease->era ? min_of(cost, max_of(0, room)) : 0;
    assert(lease->plan.algorithm != WEIR_LEAKY_BUCKET);
    for (int i = 0; i < 2; i++) {
        struct lease_batch *batch = &lease->batches[i];
        if (batch->asked_us == asked_us && batch->end_us > 0) {
            batch->left += fits;
            lease->lost += (uint64_t)(cost - fits);
            return;
        }
    }
    lease->lost += (uint64_t)cost;
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

bool lease_is_idle(struct lease *lease, const struct lease_rules *rules, int64_t now_us)
{
    load_turn(lease, rules, now_us);
    return lease_left(lease, now_us) == 0 && !lease_denies(lease, now_us, INT64_MAX) && lease->count == 0 &&
           lease->average < AVERAGE_ONE / 2;
}
