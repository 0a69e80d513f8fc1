/* settle.c - knows what the fallback has admitted during outages, so that the backend can be charged for it afterwards.
 *
 * In an outage each key is a bucket of this instance's share. It begins cold, as if all permits had been taken when the
 * outage began, or with its share of the permits that are known to be left. The debt of a key is what is in use there,
 * minus what would be in use if the fallback had admitted nothing. docs/design/outages.md has the rules of settling and
 * the proof that outages do not add up.
 *
 * An outage that lasts is settled too, by the first request that gets through. That ends it, before its state of the
 * key is forgotten.
 *
 * When an outage ends, its record is made under the mutex if the count of admitted permits is not 0. A thread in the
 * fallback adds to the count first and then checks whether the outage lasts; the thread that ends the outage does these
 * in the opposite order. So one of the two sees the other.
 */
#include "core/outage/settle.h"

#include "core/algorithm/algorithm.h"
#include "core/ground/arith.h"
#include "core/limiter/own_ops.h"
#include "core/outage/arrears.h"

#include <stdlib.h>

/* ---- Records ---- */

int settle_init(struct weir *limiter)
{
    struct settle *settle = &limiter->outage->settle;
    if (lock_condition_init(&settle->changed) != 0)
        return WEIR_ENOMEM;
    lock_init(&settle->mutex);
    atomic_store(&settle->own_time_us, -1);
    const struct weir_backend *fallback = limiter->fallback;
    settle->is_on = limiter->backend->ops->shared && fallback && own_ops(fallback) && own_ops(fallback)->debtors;
    return WEIR_OK;
}

void settle_chain_drop(struct settle_chain *chain)
{
    struct settle_key *key;
    while ((key = chain->batch)) {
        chain->batch = key->next;
        free(key);
    }
    free(chain->limits);
    *chain = (struct settle_chain){ 0 };
}

void settle_free(struct weir *limiter)
{
    struct settle *settle = &limiter->outage->settle;
    for (size_t i = 0; i < SETTLE_BUCKETS; i++)
        assert(!settle->under_way[i]);
    settle_chain_drop(&settle->chain);
    pthread_cond_destroy(&settle->changed);
    lock_destroy(&settle->mutex);
}

/* Not checked: the fork holds the mutex. */
void settle_begin_in_child(struct weir *limiter) UNCHECKED
{
    struct settle *settle = &limiter->outage->settle;
    for (size_t i = 0; i < SETTLE_BUCKETS; i++) {
        struct settlement *settlement;
        while ((settlement = settle->under_way[i])) {
            settle->under_way[i] = settlement->next;
            free(settlement);
        }
    }
    settle_chain_drop(&settle->chain);
    arrears_clear(limiter);
    atomic_store(&settle->count, 0);
    atomic_store(&settle->given_up_count, 0);
    atomic_store(&settle->admitted, 0);
    atomic_store(&settle->own_time_us, -1);
    atomic_store(&settle->owes, false);
    lock_condition_init(&settle->changed);
}

/* Clear `owes` if nothing is owed any more. */
static void settle_look(struct weir *limiter) REQUIRES(limiter->outage->settle.mutex)
{
    struct settle *settle = &limiter->outage->settle;
    struct outage_id outage;
    if (!settle_has_records(limiter) && !outage_read(limiter, &outage))
        atomic_store(&settle->owes, false);
}

static void record_remove(struct weir *limiter, size_t i) REQUIRES(limiter->outage->settle.mutex)
{
    struct settle *settle = &limiter->outage->settle;
    const size_t count = atomic_load(&settle->count) - 1;
    memmove(&settle->records[i], &settle->records[i + 1], (count - i) * sizeof settle->records[0]);
    atomic_store(&settle->count, count);
}

static struct settle_record *record_find(struct weir *limiter, uint32_t tag) REQUIRES(limiter->outage->settle.mutex)
{
    struct settle *settle = &limiter->outage->settle;
    for (size_t i = 0; i < atomic_load(&settle->count); i++)
        if (settle->records[i].tag == tag)
            return &settle->records[i];
    return NULL;
}

/* Return the record that costs least to give up: one whose permits have all been charged, or else the oldest. */
static size_t record_to_give_up(const struct settle *settle)
{
    for (size_t i = 0; i < SETTLE_RECORDS; i++)
        if (settle->records[i].settled >= settle->records[i].admitted)
            return i;
    return 0;
}

/* Make room for another record. If too many have been given up already, the keys of this one stay in the fallback until
 * they are idle. */
static void record_give_up(struct weir *limiter) REQUIRES(limiter->outage->settle.mutex)
{
    struct settle *settle = &limiter->outage->settle;
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

/* Its keys have been forgotten, or must not be because something is owed of them again. */
static void given_up_remove(struct weir *limiter, uint32_t tag) REQUIRES(limiter->outage->settle.mutex)
{
    struct settle *settle = &limiter->outage->settle;
    const size_t count = atomic_load(&settle->given_up_count);
    for (size_t i = 0; i < count; i++) {
        if (settle->given_up[i] != tag)
            continue;
        settle->given_up[i] = settle->given_up[count - 1];
        atomic_store(&settle->given_up_count, count - 1);
        return;
    }
}

static void record_add(struct weir *limiter, const struct settle_record *added) REQUIRES(limiter->outage->settle.mutex)
{
    struct settle *settle = &limiter->outage->settle;
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
    atomic_store(&limiter->outage->settle.admitted, 0);
    atomic_store(&limiter->outage->settle.own_time_us, -1);
}

void settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us)
{
    struct settle_record record = {
        .tag = tag, .answered = limiter->outage->answered, .since_us = since_us, .until_us = until_us
    };
    if (limiter->outage->settle.is_on)
        record.admitted = atomic_exchange(&limiter->outage->settle.admitted, 0);
    const int64_t own_time_us = atomic_exchange(&limiter->outage->settle.own_time_us, -1);
    if (own_time_us >= 0) { /* the request that ended it may use another clock */
        record.by_own_time = true;
        record.until_us = own_time_us;
    }
    if (record.admitted > 0)
        record_add(limiter, &record);
    else
        settle_look(limiter);
}

bool settle_admitted(struct weir *limiter, const struct weir_backend_request *request, int64_t permits, bool known)
{
    struct settle *settle = &limiter->outage->settle;
    const struct settle_record record = {
        .tag = request->limit_id >> OUTAGE_TAG_BIT,
        .since_us = request->cold_since_us,
        .until_us = request->now_us,
        .admitted = (uint64_t)permits,
    };
    if (!settle->is_on)
        return false;
    if (!known) {
        stats_add(&limiter->stats, STATS_UNSETTLED, record.admitted);
        return false;
    }
    const int64_t ahead_us = request->now_us - outage_time(limiter, WEIR_OWN_CLOCK);
    const bool by_own_time = ahead_us > WEIR_CLOCK_SLACK_US || ahead_us < -WEIR_CLOCK_SLACK_US;
    if (by_own_time)
        atomic_store(&settle->own_time_us, request->now_us);
    arrears_note(limiter, request, permits);
    atomic_fetch_add(&settle->admitted, record.admitted);
    if (!atomic_load(&settle->owes))
        atomic_store(&settle->owes, true);
    struct outage_id outage;
    if (outage_read(limiter, &outage) && outage.tag == record.tag)
        return false;
    struct settle_record late = record;
    late.by_own_time = by_own_time;
    lock_take(&limiter->outage->settle.mutex);
    late.answered = limiter->outage->answered;
    record_add(limiter, &late);
    lock_give(&limiter->outage->settle.mutex);
    return true;
}

void settle_record_done(struct weir *limiter, uint32_t tag, uint64_t admitted)
{
    struct settle *settle = &limiter->outage->settle;
    lock_take(&limiter->outage->settle.mutex);
    const struct settle_record *record = record_find(limiter, tag);
    if (record && record->admitted == admitted)
        record_remove(limiter, (size_t)(record - settle->records));
    settle_look(limiter);
    lock_give(&limiter->outage->settle.mutex);
}

void settle_forgotten(struct weir *limiter, uint32_t tag)
{
    lock_take(&limiter->outage->settle.mutex);
    given_up_remove(limiter, tag);
    settle_look(limiter);
    lock_give(&limiter->outage->settle.mutex);
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

static void owed_copy(struct weir *limiter, struct owed *owed) REQUIRES(limiter->outage->settle.mutex)
{
    const struct settle *settle = &limiter->outage->settle;
    owed->count = atomic_load(&settle->count);
    memcpy(owed->records, settle->records, owed->count * sizeof owed->records[0]);
}

/* Copy the records of all outages from which something may be owed at `now_us`, including the one that lasts. */
static void owed_read(struct weir *limiter, int64_t now_us, struct owed *owed)
{
    struct settle *settle = &limiter->outage->settle;
    struct outage_id outage;
    owed->count = 0;
    bool lasts = outage_read(limiter, &outage);
    if (!lasts || atomic_load(&settle->count) > 0) { /* otherwise it was the only one while it lasted */
        lock_take(&limiter->outage->settle.mutex);
        owed_copy(limiter, owed);
        lasts = outage_read(limiter, &outage);
        lock_give(&limiter->outage->settle.mutex);
    }
    if (lasts)
        owed->records[owed->count++] = (struct settle_record){ .tag = outage.tag,
                                                               .since_us = outage.since_us,
                                                               .until_us = max_of(outage.since_us, now_us) };
}

/* True if a bucket that was empty at `then_us` is full at `now_us`. */
static bool has_filled_since(const struct weir_plan *plan, int64_t then_us, int64_t now_us)
{
    int64_t state[3];
    state_charge(plan, state, then_us, plan->size);
    return state_fresh_at_us(plan, state) <= now_us;
}

/* Make a request to the fallback, about a key and an outage. */
static struct weir_backend_request part_request(const struct weir_backend_request *of, const struct settle_part *part)
{
    struct weir_backend_request request = *of;
    request.cost = 1;
    request.ahead = 0; /* a refund with it would be a lease that is returned */
    request.now_us = part->at_us;
    request.cold_left = 0;
    request.plan_version = plan_cell_version(&of->limit->local_plan);
    request.cold_since_us = part->since_us;
    request.limit_id = of->limit->id | part->tag << OUTAGE_TAG_BIT;
    return request;
}

static int64_t part_debt(struct weir *limiter, const struct weir_backend_request *of, const struct settle_part *part)
{
    const struct weir_backend_request request = part_request(of, part);
    return own_ops(limiter->fallback)->debt(limiter->fallback, &request);
}

/* Return what is owed of a key for one outage. */
static struct settle_part record_debt(struct weir *limiter, const struct weir_backend_request *of,
                                      const struct weir_plan *plan, const struct settle_record *record, int64_t now_us)
{
    struct settle_part part = { .tag = record->tag, .since_us = record->since_us, .at_us = record->until_us };
    if (!has_filled_since(plan, record->until_us, now_us))
        part.permits = part_debt(limiter, of, &part);
    return part;
}

struct settle_debt settle_assess(struct weir *limiter, const struct weir_backend_request *of)
{
    struct owed owed;
    struct weir_plan plan;
    struct settle_debt debt = { .permits = 0 };
    const int64_t now_us = outage_time(limiter, of->now_us);
    plan_cell_read(&of->limit->local_plan, &plan);
    owed_read(limiter, now_us, &owed);
    for (size_t i = 0; i < owed.count; i++) {
        const struct settle_part part = record_debt(limiter, of, &plan, &owed.records[i], now_us);
        if (part.permits > 0)
            debt.parts[debt.count++] = part;
        debt.permits += part.permits;
    }
    return debt;
}

bool settle_owes(struct weir *limiter, const struct weir_backend_request *of)
{
    struct owed owed;
    struct weir_plan plan;
    if (atomic_load(&limiter->outage->settle.count) == 0)
        return false;
    plan_cell_read(&of->limit->local_plan, &plan);
    lock_take(&limiter->outage->settle.mutex);
    owed_copy(limiter, &owed);
    const uint32_t answered = limiter->outage->answered;
    lock_give(&limiter->outage->settle.mutex);
    for (size_t i = 0; i < owed.count; i++)
        if (owed.records[i].answered != answered &&
            record_debt(limiter, of, &plan, &owed.records[i], of->now_us).permits > 0)
            return true;
    return false;
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
    const struct settle_part part = { .tag = tag, .since_us = since_us, .at_us = outage_time(limiter, of->now_us) };
    return settle_pay(limiter, of, &part, most) == 0;
}

void settle_forgive(struct weir *limiter, const struct weir_backend_request *of)
{
    const struct settle_debt debt = settle_assess(limiter, of);
    for (size_t i = 0; i < debt.count; i++)
        settle_pay(limiter, of, &debt.parts[i], debt.parts[i].permits);
    arrears_pay(limiter, of, arrears_of(limiter, of));
}
