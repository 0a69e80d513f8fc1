/* settle_chain.c - settles all keys in the background, a batch at a time.
 *
 * Without it a debt would be charged only when its key is next requested here; until then the other instances would
 * admit permits that this one has already given away.
 *
 * The chain walks through the records, the oldest first, and through the keys that each one has in the fallback. It
 * submits a charge for each key of a batch; the thread that delivers the last answer continues with the next batch. A
 * charge that fails ends the walk: the backend is away again and reports its return, or it answers late. In the latter
 * case the next request that finds something owed begins a new walk, after a pause. A walk that meets many keys without
 * debts stops midway, so that it holds up no thread for long; the next request that finds something owed continues it.
 *
 * If the backend has no submit(), or if requests bring their times, the chain charges nothing. Each request then
 * settles its key just before its decision (settle.c). The chain looks at a few keys at a time, to find out when
 * nothing is owed any more.
 */
#include "core/outage/settle.h"

#include "core/ground/arith.h"
#include "core/limiter/inside.h"
#include "core/limiter/own_ops.h"
#include "core/limiter/request.h"
#include "core/outage/outage_span.h"
#include "core/outage/returns_kept.h"

#include <stdlib.h>

#define BATCH 64    /* keys in a batch, or a few more */
#define RUN_MOST 16 /* batches that one call handles if it never has to wait; it holds up its thread for that long */
#define PAUSE_US 100000 /* between two walks; doubled after each walk that paid nothing */
#define PAUSE_MOST_US (10 * WEIR_SECOND)

/* ---- The walk ---- */

/* Add a key to the batch; a visit of own_ops.debtors. */
static bool chain_add_key(void *user, uint32_t limit_id, struct weir_key key)
{
    struct settle_chain *chain = user;
    struct settle_key *found = malloc(sizeof *found + key.len);
    if (!found) { /* the next batch may not have memory either */
        atomic_store(&chain->has_left_some, true);
        atomic_store(&chain->failed, true);
        return false;
    }
    found->next = chain->batch;
    found->limit_id = limit_id;
    found->len = key.len;
    memcpy(found->bytes, key.data, key.len);
    chain->batch = found;
    return true;
}

static void chain_enter(struct settle_chain *chain, const struct settle_record *record)
{
    chain->walks = true;
    chain->at_end = false;
    chain->record = *record;
    chain->forgets = false;
    chain->place = 0;
    atomic_store(&chain->has_left_some, false);
}

/* Enter the next record that has not been walked. False if there is none. */
static bool chain_next_record(struct weir *limiter)
{
    struct settle *settle = &limiter->outage->settle;
    struct settle_chain *chain = &settle->chain;
    struct outage_id outage;
    lock_take(&settle->mutex);
    for (size_t i = 0; !chain->walks && i < atomic_load(&settle->count); i++) {
        struct settle_record *record = &settle->records[i];
        if (record->walked)
            continue;
        record->walked = true;
        chain_enter(chain, record);
    }
    if (!chain->walks && atomic_exchange(&chain->takes_outage, false) && outage_read(limiter, &outage))
        chain_enter(chain, &(struct settle_record){ .tag = outage.tag,
                                                    .by_own_time = atomic_load(&settle->own_time_us) >= 0,
                                                    .since_us = outage.since_us,
                                                    .until_us = outage.since_us,
                                                    .admitted = atomic_load(&settle->admitted) });
    if (!chain->walks && atomic_load(&settle->given_up_count) > 0) {
        chain_enter(chain, &(struct settle_record){ .tag = settle->given_up[0] });
        chain->forgets = true;
    }
    lock_give(&settle->mutex);
    return chain->walks;
}

/* Mark all records as not walked. */
static void chain_rewind(struct weir *limiter)
{
    struct settle *settle = &limiter->outage->settle;
    lock_take(&settle->mutex);
    for (size_t i = 0; i < atomic_load(&settle->count); i++)
        settle->records[i].walked = false;
    lock_give(&settle->mutex);
    settle->chain.walks = false;
}

/* Fill the batch, or leave a record that has no more keys. True if there is a batch. */
static bool chain_fill_batch(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    struct weir_backend *fallback = limiter->fallback;
    if (chain->at_end) {
        chain->walks = false;
        if (chain->forgets)
            settle_forgotten(limiter, chain->record.tag);
        else if (!atomic_load(&chain->has_left_some))
            settle_record_done(limiter, chain->record.tag, chain->record.admitted);
        return false;
    }
    chain->at_end = !own_ops(fallback)->debtors(fallback, chain->record.tag, &chain->place, BATCH, chain_add_key,
                                                chain);
    return true;
}

/* ---- The limit of a key ---- */

/* Copy the table of limits. Their ids are their places in it, and limits are never removed. */
static void chain_copy_limits(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    lock_take(&limiter->mutex);
    /* Ids of candidates are the last ones. */
    const bool has_candidates = atomic_load_explicit(&limiter->candidate_count, memory_order_relaxed) > 0;
    const size_t count = has_candidates ? WEIR_MAX_LIMITS : limiter->limit_count;
    struct weir_limit **limits = realloc(chain->limits, count * sizeof *limits);
    if (limits) {
        memset(limits, 0, count * sizeof *limits);
        for (struct weir_limit *target = limiter->first_target; target; target = target->next_target) {
            struct weir_limit *candidate = atomic_load_explicit(&target->candidate, memory_order_relaxed);
            limits[target->id] = target->of;
            if (candidate)
                limits[candidate->id] = candidate;
        }
        chain->limits = limits;
        chain->limit_count = count;
    }
    lock_give(&limiter->mutex);
}

/* Return the limit with this id; NULL if out of memory. */
static struct weir_limit *chain_limit(struct weir *limiter, uint32_t limit_id)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    const uint32_t id = limit_id & ((1 << OUTAGE_TAG_BIT) - 1);
    if (id >= chain->limit_count || !chain->limits[id])
        chain_copy_limits(limiter);
    return id < chain->limit_count ? chain->limits[id] : NULL;
}

/* ---- A batch ---- */

/* True if a charge includes a debt from that outage. */
static bool settlement_is_for(const struct settlement *settlement, uint32_t tag)
{
    for (size_t i = 0; i < settlement->debt.count; i++)
        if (settlement->debt.parts[i].tag == tag)
            return true;
    return false;
}

/* Charge a key if anything is owed of it. If nothing is owed of it for the record's outage, let the fallback forget it:
 * not while the outage lasts, because more may be admitted at any moment. */
static void chain_settle_key(struct weir *limiter, const struct settle_key *key)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    struct weir_limit *limit = chain_limit(limiter, key->limit_id);
    int64_t now_us;
    if (!limit || request_time(limiter, &now_us) != WEIR_OK) {
        atomic_store(&chain->has_left_some, true);
        return;
    }
    if (chain->record.by_own_time || chain->forgets)
        now_us = chain->record.until_us; /* the current time by the requests' clock is not known */
    const struct weir_backend_request of = backend_request(limit, weir_key(key->bytes, key->len), 1, now_us, WEIR_TAKE);
    if (chain->forgets) {
        settle_forget(limiter, &of, chain->record.tag, chain->record.since_us, INT64_MAX);
        return;
    }
    struct settlement *settlement = NULL;
    enum settle_claim claim = SETTLE_NOTHING;
    if (limiter->backend->ops->submit && !chain->record.by_own_time)
        claim = settle_claim(limiter, &of, chain, true, SETTLE_ANYHOW, &settlement);
    else if (settle_assess(limiter, &of).permits > 0)
        claim = SETTLE_BY_OTHERS;
    struct outage_id outage;
    const bool lasts = outage_read(limiter, &outage) && outage.tag == chain->record.tag;
    const bool owes = claim == SETTLE_CLAIMED ? settlement_is_for(settlement, chain->record.tag)
                                              : claim != SETTLE_NOTHING;
    const bool is_left = owes ? claim != SETTLE_CLAIMED
                              : lasts || !settle_forget(limiter, &of, chain->record.tag, chain->record.since_us, 0);
    if (is_left)
        atomic_store(&chain->has_left_some, true);
    if (claim != SETTLE_CLAIMED)
        return;
    atomic_fetch_add(&chain->waiting, 1);
    int result = settlement_submit(limiter, settlement, deadline_us(limiter));
    if (result == 1)
        return;
    if (result != WEIR_OK && result != WEIR_ESTATE)
        atomic_store(&chain->failed, true);
    atomic_fetch_sub(&chain->waiting, 1);
}

static void chain_settle_batch(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    struct settle_key *key;
    while ((key = chain->batch)) {
        chain->batch = key->next;
        chain_settle_key(limiter, key);
        free(key);
    }
}

/* ---- The chain ---- */

/* Begin a walk if there is something to settle and no thread is at it. A thread that is checks again when it ends. */
static bool chain_begin(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    if (!atomic_load(&chain->again) || atomic_exchange(&chain->busy, true))
        return false;
    atomic_store(&chain->again, false);
    atomic_store(&chain->failed, false);
    if (!atomic_exchange(&chain->rests, false)) {
        atomic_store(&chain->has_paid, false);
        chain_rewind(limiter);
    }
    return true;
}

/* Set the time of the next walk, after one that saw all records or failed. */
static void chain_set_pause(struct settle_chain *chain)
{
    const bool begins = atomic_load(&chain->failed) || atomic_load(&chain->has_paid) || chain->pause_us == 0;
    chain->pause_us = begins ? PAUSE_US : min_of(PAUSE_MOST_US, 2 * chain->pause_us);
    atomic_store(&chain->again_us, clock_monotonic_us() + chain->pause_us);
}

/* End the walk. True if a new one has begun, because there is more to settle. */
static bool chain_end(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    const bool goes_on = !atomic_load(&chain->failed) && !atomic_load(&chain->rests);
    if (!atomic_load(&chain->rests))
        chain_set_pause(chain);
    atomic_store(&chain->busy, false);
    return goes_on && chain_begin(limiter);
}

/* Settle one batch after another. False if charges of the last one have not ended. */
static bool chain_run(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    for (int batches = 0; !atomic_load(&chain->failed) && (chain->walks || chain_next_record(limiter)); batches++) {
        if (batches == RUN_MOST) {
            atomic_store(&chain->rests, true);
            break;
        }
        if (!chain_fill_batch(limiter))
            continue;
        atomic_store(&chain->waiting, 1); /* for this thread, so that no other one continues while it submits */
        chain_settle_batch(limiter);
        if (atomic_fetch_sub(&chain->waiting, 1) > 1)
            return false;
    }
    return true;
}

/* Run the walk that has begun. It counts as one call inside the limiter, which may be gone after it ends. */
static void chain_go_on(struct weir *limiter)
{
    do
        if (!chain_run(limiter))
            return; /* the thread that delivers the last answer continues */
    while (chain_end(limiter));
    inside_leave(limiter, 1);
}

void settle_charged(struct weir *limiter, int status)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    if (status != WEIR_OK && status != WEIR_ESTATE)
        atomic_store(&chain->failed, true);
    if (atomic_fetch_sub(&chain->waiting, 1) == 1)
        chain_go_on(limiter);
}

void settle_all(struct weir *limiter)
{
    if (!limiter->backend->ops->submit)
        return;
    atomic_store(&limiter->outage->settle.chain.again, true);
    if (inside_enter(limiter, 1) != WEIR_OK)
        return;
    if (chain_begin(limiter))
        chain_go_on(limiter);
    else
        inside_leave(limiter, 1);
}

void settle_returned(void *user)
{
    struct weir *limiter = user;
    if (!outage_is_in_reach(limiter, NULL)) /* only a part is back */
        outage_split(limiter);
    returns_send(limiter);
    if (!settle_is_due(limiter))
        return;
    atomic_store(&limiter->outage->settle.chain.takes_outage, true);
    settle_all(limiter);
}

/* Look at a few keys without charging them. */
static void chain_look_on(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->outage->settle.chain;
    if (atomic_exchange(&chain->busy, true))
        return;
    if (!chain->walks && !chain_next_record(limiter))
        chain_rewind(limiter);
    else if (chain_fill_batch(limiter))
        chain_settle_batch(limiter);
    atomic_store(&chain->busy, false);
}

void settle_go_on(struct weir *limiter)
{
    struct settle *settle = &limiter->outage->settle;
    if (!settle_has_records(limiter) || atomic_load(&settle->chain.busy))
        return;
    if (!limiter->backend->ops->submit)
        chain_look_on(limiter);
    else if (atomic_load(&settle->chain.rests) || clock_monotonic_us() >= atomic_load(&settle->chain.again_us))
        settle_all(limiter);
}
