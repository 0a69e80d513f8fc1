/* settle.c - knows what a stand-in has admitted in a backend's place, which is to be charged to that afterwards.
 *
 * In an outage each instance admits by its share, from a state of its own that begins cold: as if all had been taken at
 * the outage's beginning. Its debt of a key is what is in use there beyond what would be in use if it had admitted
 * nothing. Let M be the level of a leaky meter over all that anybody admits of the key, R the level in the backend, D
 * the sum of all debts. What the stand-in admits raises M and D by the same; what the backend admits, M and R. M drains
 * at the whole rate while it is not 0, R does so, and D drains too, at the sum of the shares' rates, but only once the
 * cold level has gone, which it has when R has: so R + D >= M as long as all are cut off. Afterwards D stands still, and
 * is added to R, before the backend decides of that key again for the instance that owes it. Once all have done so R is
 * no less than M, so outages do not add up. Until then those who are back may be given what the others owe: the most that
 * is admitted at once is the limit and the debts of those not back yet.
 *
 * An instance that is cut off while others are not adds its share of the rate, and no more: for so long R and its debt
 * both drain, and M does but once. Nobody knows of that, so it is never charged: as often as some are late, M is beyond
 * R by what their shares make in that time, until traffic lets R drain to 0.
 *
 *     - A debt is charged as far as there is room for it. The rest is owed on, and comes before what is asked for here:
 *       others, who were not cut off, have had permits that were not theirs.
 *     - A bucket's debt is that at the end of the outage: it drains in the backend from then on, and must not do so
 *       here as well. A bucket that has had the time to fill owes nothing. A window's is what still counts now.
 *     - A charge without an answer may have been made. The debt stays, and may be charged twice: too few permits, never
 *       too many.
 *     - Where requests bring a time of their own, far from the limiter's clock, only they tell when they are: nothing
 *       of such an outage is charged in the background, by a clock that would move the backend's state of the key.
 *     - An outage that lasts is settled too, with the first request that gets through: it ends by that, before its
 *       state of the key is forgotten.
 *
 * When an outage ends, its record is made under the mutex if the count of what was admitted says so. A thread that was
 * in the stand-in meanwhile adds to the count first and looks whether the outage lasts afterwards, and the one that
 * ends it does these the other way round: so one of them sees the other.
 */
#include "core/outage/settle.h"

#include "core/algorithm/algorithm.h"
#include "core/ground/arith.h"
#include "core/outage/failure.h"

#include <stdlib.h>

/* ---- Records ---- */

int settle_init(struct weir *limiter)
{
    struct settle *settle = &limiter->settle;
    if (lock_condition_init(&settle->changed) != 0)
        return WEIR_ENOMEM;
    lock_init(&settle->mutex);
    atomic_store(&settle->own_time_us, -1);
    const struct weir_backend *fallback = limiter->fallback;
    settle->is_on = limiter->backend->ops->shared && fallback && own_ops(fallback) && own_ops(fallback)->debtors;
    return WEIR_OK;
}

void settle_free(struct weir *limiter)
{
    struct settle *settle = &limiter->settle;
    for (size_t i = 0; i < SETTLE_BUCKETS; i++)
        assert(!settle->under_way[i]);
    settle_chain_drop(&settle->chain);
    pthread_cond_destroy(&settle->changed);
    lock_destroy(&settle->mutex);
}

/* The mutex is held over the fork, past the analysis. */
void settle_begin_in_child(struct weir *limiter) UNCHECKED
{
    struct settle *settle = &limiter->settle;
    for (size_t i = 0; i < SETTLE_BUCKETS; i++) {
        struct settlement *settlement;
        while ((settlement = settle->under_way[i])) {
            settle->under_way[i] = settlement->next;
            free(settlement);
        }
    }
    settle_chain_drop(&settle->chain);
    atomic_store(&settle->count, 0);
    atomic_store(&settle->given_up_count, 0);
    atomic_store(&settle->admitted, 0);
    atomic_store(&settle->own_time_us, -1);
    atomic_store(&settle->owes, false);
    lock_condition_init(&settle->changed);
}

/* Nothing is owed any more, if that is so. */
static void settle_look(struct weir *limiter) REQUIRES(limiter->settle.mutex)
{
    struct settle *settle = &limiter->settle;
    struct failure_outage outage;
    if (!settle_has_records(limiter) && !failure_outage(limiter, &outage))
        atomic_store(&settle->owes, false);
}

static void record_remove(struct weir *limiter, size_t i) REQUIRES(limiter->settle.mutex)
{
    struct settle *settle = &limiter->settle;
    const size_t count = atomic_load(&settle->count) - 1;
    memmove(&settle->records[i], &settle->records[i + 1], (count - i) * sizeof settle->records[0]);
    atomic_store(&settle->count, count);
}

static struct settle_record *record_find(struct weir *limiter, uint32_t tag) REQUIRES(limiter->settle.mutex)
{
    struct settle *settle = &limiter->settle;
    for (size_t i = 0; i < atomic_load(&settle->count); i++)
        if (settle->records[i].tag == tag)
            return &settle->records[i];
    return NULL;
}

/* The record that costs least to give up: one whose permits have all been charged, or else the oldest. */
static size_t record_to_give_up(const struct settle *settle)
{
    for (size_t i = 0; i < SETTLE_RECORDS; i++)
        if (settle->records[i].settled >= settle->records[i].admitted)
            return i;
    return 0;
}

/* Make room for another record. If too many have been given up, the keys of this one stay in the stand-in until they
 * are full again. */
static void record_give_up(struct weir *limiter) REQUIRES(limiter->settle.mutex)
{
    struct settle *settle = &limiter->settle;
    const size_t chosen = record_to_give_up(settle);
    const struct settle_record *record = &settle->records[chosen];
    const size_t given_up = atomic_load(&settle->given_up_count);
    if (record->admitted > record->settled)
        stats_add(&limiter->stats, STATS_UNSETTLED, record->admitted - record->settled);
    if (given_up < SETTLE_RECORDS) {
        settle->given_up[given_up] = record->tag;
        atomic_store(&settle->given_up_count, given_up + 1);
    }
    record_remove(limiter, chosen);
}

/* It need not be forgotten any more, or must not, for it is owed something again. */
static void given_up_remove(struct weir *limiter, uint32_t tag) REQUIRES(limiter->settle.mutex)
{
    struct settle *settle = &limiter->settle;
    const size_t count = atomic_load(&settle->given_up_count);
    for (size_t i = 0; i < count; i++) {
        if (settle->given_up[i] != tag)
            continue;
        settle->given_up[i] = settle->given_up[count - 1];
        atomic_store(&settle->given_up_count, count - 1);
        return;
    }
}

static void record_add(struct weir *limiter, const struct settle_record *added) REQUIRES(limiter->settle.mutex)
{
    struct settle *settle = &limiter->settle;
    struct settle_record *record = record_find(limiter, added->tag);
    if (record) {
        record->admitted += added->admitted;
        record->by_own_time = record->by_own_time || added->by_own_time;
        return;
    }
    if (atomic_load(&settle->count) == SETTLE_RECORDS)
        record_give_up(limiter);
    given_up_remove(limiter, added->tag);
    record = &settle->records[atomic_load(&settle->count)];
    *record = *added;
    record->until_us = max_of(added->since_us, added->until_us);
    atomic_fetch_add(&settle->count, 1);
    atomic_store(&settle->owes, true);
}

void settle_outage_begins(struct weir *limiter)
{
    atomic_store(&limiter->settle.admitted, 0);
    atomic_store(&limiter->settle.own_time_us, -1);
}

void settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us)
{
    struct settle_record record = { .tag = tag, .since_us = since_us, .until_us = until_us };
    if (limiter->settle.is_on)
        record.admitted = atomic_exchange(&limiter->settle.admitted, 0);
    const int64_t own_time_us = atomic_exchange(&limiter->settle.own_time_us, -1);
    if (own_time_us >= 0) { /* who ended it may have another clock */
        record.by_own_time = true;
        record.until_us = own_time_us;
    }
    if (record.admitted > 0)
        record_add(limiter, &record);
    else
        settle_look(limiter);
}

void settle_admitted(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t now_us, int64_t permits, bool known)
{
    struct settle *settle = &limiter->settle;
    struct failure_outage outage;
    if (!settle->is_on)
        return;
    if (!known) {
        stats_add(&limiter->stats, STATS_UNSETTLED, (uint64_t)permits);
        return;
    }
    const int64_t ahead_us = now_us - failure_time(limiter, WEIR_OWN_CLOCK);
    const bool by_own_time = ahead_us > WEIR_CLOCK_SLACK_US || ahead_us < -WEIR_CLOCK_SLACK_US;
    if (by_own_time)
        atomic_store(&settle->own_time_us, now_us);
    atomic_fetch_add(&settle->admitted, (uint64_t)permits);
    if (!atomic_load(&settle->owes))
        atomic_store(&settle->owes, true);
    if (failure_outage(limiter, &outage) && outage.tag == tag)
        return;
    lock_take(&limiter->settle.mutex);
    record_add(limiter, &(struct settle_record){ .tag = tag,
                                                 .by_own_time = by_own_time,
                                                 .since_us = since_us,
                                                 .until_us = now_us,
                                                 .admitted = (uint64_t)permits });
    lock_give(&limiter->settle.mutex);
    settle_all(limiter);
}

void settle_record_done(struct weir *limiter, uint32_t tag, uint64_t admitted)
{
    struct settle *settle = &limiter->settle;
    lock_take(&limiter->settle.mutex);
    const struct settle_record *record = record_find(limiter, tag);
    if (record && record->admitted == admitted)
        record_remove(limiter, (size_t)(record - settle->records));
    settle_look(limiter);
    lock_give(&limiter->settle.mutex);
}

void settle_forgotten(struct weir *limiter, uint32_t tag)
{
    lock_take(&limiter->settle.mutex);
    given_up_remove(limiter, tag);
    settle_look(limiter);
    lock_give(&limiter->settle.mutex);
}

void settle_note_paid(struct weir *limiter, const struct settle_debt *paid)
{
    for (size_t i = 0; i < paid->count; i++) {
        struct settle_record *record = record_find(limiter, paid->parts[i].tag);
        if (record)
            record->settled += (uint64_t)paid->parts[i].permits;
    }
}

/* ---- What is owed of a key ---- */

struct owed {
    size_t count;
    struct settle_record records[SETTLE_RECORDS + 1];
};

/* All outages of which something may be owed as of `now_us`, the one that lasts among them. */
static void owed_read(struct weir *limiter, int64_t now_us, struct owed *owed)
{
    struct settle *settle = &limiter->settle;
    struct failure_outage outage;
    owed->count = 0;
    bool lasts = failure_outage(limiter, &outage);
    if (!lasts || atomic_load(&settle->count) > 0) { /* else it was the only one while it lasted */
        lock_take(&limiter->settle.mutex);
        owed->count = atomic_load(&settle->count);
        memcpy(owed->records, settle->records, owed->count * sizeof owed->records[0]);
        lasts = failure_outage(limiter, &outage);
        lock_give(&limiter->settle.mutex);
    }
    if (lasts)
        owed->records[owed->count++] = (struct settle_record){ .tag = outage.tag,
                                                               .since_us = outage.since_us,
                                                               .until_us = max_of(outage.since_us, now_us) };
}

/* Whether a bucket that was empty then is full now. */
static bool has_filled_since(const struct weir_plan *plan, int64_t then_us, int64_t now_us)
{
    int64_t state[2];
    state_charge(plan, state, then_us, plan->size);
    return state_fresh_at_us(plan, state) <= now_us;
}

/* To the stand-in, about a key and an outage. */
static struct weir_backend_request part_request(const struct weir_backend_request *of, const struct settle_part *part)
{
    struct weir_backend_request request = *of;
    request.cost = 1;
    request.now_us = part->at_us;
    request.plan_version = plan_cell_version(limit_plan(of->limit, true));
    request.cold_since_us = part->since_us;
    request.limit_id = of->limit->id | part->tag << OUTAGE_TAG_BIT;
    return request;
}

static int64_t part_debt(struct weir *limiter, const struct weir_backend_request *of, const struct settle_part *part)
{
    const struct weir_backend_request request = part_request(of, part);
    return own_ops(limiter->fallback)->debt(limiter->fallback, &request);
}

struct settle_debt settle_assess(struct weir *limiter, const struct weir_backend_request *of)
{
    struct owed owed;
    struct weir_plan plan;
    struct settle_debt debt = { .permits = 0 };
    const int64_t now_us = failure_time(limiter, of->now_us);
    plan_cell_read(limit_plan(of->limit, true), &plan);
    const bool is_bucket = plan.algorithm == WEIR_TOKEN_BUCKET || plan.algorithm == WEIR_LEAKY_BUCKET;
    owed_read(limiter, now_us, &owed);
    for (size_t i = 0; i < owed.count; i++) {
        const struct settle_record *record = &owed.records[i];
        struct settle_part part = { .tag = record->tag,
                                    .since_us = record->since_us,
                                    .at_us = is_bucket ? record->until_us : now_us };
        if (is_bucket && has_filled_since(&plan, record->until_us, now_us))
            continue;
        part.permits = part_debt(limiter, of, &part);
        if (part.permits > 0)
            debt.parts[debt.count++] = part;
        debt.permits += part.permits;
    }
    return debt;
}

int64_t settle_pay(struct weir *limiter, const struct weir_backend_request *of, const struct settle_part *part,
                   int64_t permits)
{
    const struct weir_backend_request request = part_request(of, part);
    return own_ops(limiter->fallback)->pay(limiter->fallback, &request, permits);
}

bool settle_forget(struct weir *limiter, const struct weir_backend_request *of, uint32_t tag, int64_t since_us,
                   int64_t most)
{
    const struct settle_part part = { .tag = tag, .since_us = since_us, .at_us = failure_time(limiter, of->now_us) };
    return settle_pay(limiter, of, &part, most) == 0;
}

void settle_forgive(struct weir *limiter, const struct weir_backend_request *of)
{
    const struct settle_debt debt = settle_assess(limiter, of);
    for (size_t i = 0; i < debt.count; i++)
        settle_pay(limiter, of, &debt.parts[i], debt.parts[i].permits);
}
