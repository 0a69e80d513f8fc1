/* lease_back.c - permits that come back: those that a caller did not need go into the lease, and those that the lease
 * does not need go to Redis. */
#include "core/algorithm/lease_rest.h"

#include "core/ground/arith.h"

#include <assert.h>

/* ---- Into the lease ---- */

/* Redis is about to take back permits that have aged for `age_us` at most. It then counts as if it had never charged
 * them, so a use of others of the same charge counts from that charge, however late it was. Count it so here, too:
 * otherwise it would keep leases young for longer than Redis counts it, and each return would add to the excess. An
 * order on its way may have been charged before. */
static void lease_date_back(struct lease *lease, int64_t now_us, int64_t age_us)
{
    if (lease->is_asked)
        lease->late_us += max_of(0, age_us - max_of(0, lease->busy_us - now_us));
    lease_age(lease, age_us);
}

/* Return how many permits may come back into the lease. Those made since, or on their way, may together with them
 * exceed what one instance may have. */
static int64_t lease_room(const struct lease *lease, const struct lease_rules *rules)
{
    const int64_t coming = lease->is_asked ? lease->coming : 0;
    return max_of(0, lease_max(rules, &lease->plan) - lease->batches[0].left - lease->batches[1].left - coming);
}

void lease_give_back(struct lease *lease, const struct lease_rules *rules, uint64_t era, int64_t asked_us, int64_t cost)
{
    const int64_t fits = era == lease->era ? min_of(cost, lease_room(lease, rules)) : 0;
    assert(lease->plan.algorithm != WEIR_LEAKY_BUCKET);
    if (era == lease->era)
        lease_unused(lease, cost);
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

/* Return the batch that permits charged at that time can join, also one whose permits are all spent; or NULL. *passed:
 * a window or an interval has ended since they were charged, so they have come back. */
static struct lease_batch *batch_of(struct lease *lease, int64_t now_us, int64_t charged_us, bool *passed)
{
    const struct weir_plan *plan = &lease->plan;
    const bool one_by_one = is_greedy(plan);
    *passed = false;
    for (int i = 0; i < 2; i++) {
        struct lease_batch *batch = &lease->batches[i];
        if (batch->charged_us == 0 || (!one_by_one && now_us >= lease_end_us(lease, batch)))
            continue;
        if (one_by_one ? charged_us == batch->charged_us
                       : charged_us >= batch->from_us && lease_is_one_block(plan, charged_us, batch->charged_us))
            return batch;
        *passed = *passed || (!one_by_one && plan->algorithm != WEIR_SLIDING_WINDOW && charged_us < batch->from_us);
    }
    return NULL;
}

bool lease_settle(struct lease *lease, const struct lease_rules *rules, int64_t now_us, int64_t cost,
                  int64_t charged_us, bool is_busy)
{
    bool passed;
    const int64_t left = lease_left(lease, now_us);
    struct lease_batch *batch = batch_of(lease, now_us, charged_us, &passed);
    const int64_t fits = batch ? min_of(cost, lease_room(lease, rules)) : 0;
    assert(lease->plan.algorithm != WEIR_LEAKY_BUCKET);
    if (!batch && !passed && !is_busy && left == 0)
        return false;
    if (fits < cost && !passed && !lease_rest_of(lease, charged_us))
        return false;
    if (batch)
        batch->left += fits;
    if (fits < cost && !passed)
        lease_rest_add(lease, cost - fits, charged_us);
    lease->lost += (uint64_t)(cost - fits);
    if (lease->batches[0].left > 0 && lease->batches[1].left > 0 &&
        lease->batches[1].asked_us < lease->batches[0].asked_us) { /* the older first */
        const struct lease_batch younger = lease->batches[0];
        lease->batches[0] = lease->batches[1];
        lease->batches[1] = younger;
    }
    return true;
}

/* ---- To Redis ---- */

/* True if nothing of this batch has been used for so long that others should have it. Permits that another
 * instance would hardly miss stay, since giving them back costs a call. All stay while an order is under way, which may
 * be for permits that this lease lacks. */
static bool batch_is_idle(const struct lease *lease, const struct lease_batch *batch, int64_t now_us)
{
    const struct weir_plan *plan = &lease->plan;
    const int64_t age_us = now_us - lease_aged_since_us(lease, batch, now_us);
    if (lease->is_asked || batch->left * LEASE_LEAST_PART < plan->size || !lease_is_unused(lease, now_us))
        return false;
    return !is_greedy(plan) || age_us / plan->tick_us < batch->left * plan->q / plan->p;
}

int64_t lease_take_rest(struct lease *lease, int64_t now_us, bool all, int64_t *charged_us)
{
    lease_left(lease, now_us); /* ends what has ended */
    struct lease_rest *rest = lease->rests;
    while (rest < &lease->rests[LEASE_RESTS - 1] && rest->left == 0)
        rest++;
    for (int i = 0; i < 2 && rest->left == 0; i++) {
        struct lease_batch *batch = &lease->batches[i];
        const bool can = batch->charged_us > 0 && lease->plan.algorithm != WEIR_LEAKY_BUCKET;
        if (batch->left > 0 && can && (all || batch_is_idle(lease, batch, now_us))) {
            const int64_t aged_since_us = lease_aged_since_us(lease, batch, now_us);
            const bool is_greedy_one = is_greedy(&lease->plan);
            *rest = (struct lease_rest){ batch->left,
                                         is_greedy_one ? aged_since_us + batch->lead_us : batch->charged_us };
            if (is_greedy_one && lease->noted_us >= batch->asked_us)
                lease_date_back(lease, now_us, max_of(0, now_us - aged_since_us));
            lease->lost += (uint64_t)batch->left;
            batch->left = 0;
        }
    }
    const int64_t permits = rest->left;
    *charged_us = rest->charged_us;
    rest->left = 0;
    if (permits > 0) { /* a cost that was denied may be admitted soon */
        lease->denied_cost = 0;
        lease->refunded_us = now_us;
    }
    return permits;
}
