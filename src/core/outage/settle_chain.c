/* settle_chain.c - settles all keys in the background, a batch at a time.
 *
 * It goes through the records, the oldest first, and through each one's keys in the stand-in. What a batch finds is
 * charged by submitted requests, the last of which to be answered goes on with the next batch, on whichever thread that
 * is. A charge that fails ends it: for the backend is gone again, and tells of its return, or answers late, and then
 * whoever finds something owed begins anew, after a pause. Where there is much that owes nothing it rests, so that
 * nobody is held up for long, and the next who finds something owed goes on with it.
 *
 * Where the backend has no submit(), or requests bring a time of their own, nothing is charged here: then each request
 * is settled just before it is decided (settle.c), and what is done here, a few keys at a time, is to find out when
 * nothing is owed any more.
 */
#include "core/outage/settle.h"

#include "core/ground/arith.h"
#include "core/limiter/verbs.h"

#include <stdlib.h>

#define BATCH 64    /* keys looked at, or a few more */
#define RUN_MOST 16 /* batches that one call looks at without having to wait: others wait for what it does meanwhile */
#define PAUSE_US 100000 /* between two walks, and twice as long each time that nothing was paid */
#define PAUSE_MOST_US (10 * WEIR_SECOND)

/* A key that was found in the stand-in. */
struct settle_key {
    struct settle_key *next;
    uint32_t limit_id;
    size_t len;
    char bytes[];
};

/* ---- The walk ---- */

/* Into the batch. Under a lock of the stand-in's. */
static bool add_key(void *user, uint32_t limit_id, struct weir_key key)
{
    struct settle_chain *chain = user;
    struct settle_key *found = malloc(sizeof *found + key.len);
    if (!found) { /* the next batch may have no more */
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

static void walk_from_start(struct settle_chain *chain, const struct settle_record *record)
{
    chain->walks = true;
    chain->at_end = false;
    chain->record = *record;
    chain->forgets = false;
    chain->place = 0;
    atomic_store(&chain->has_left_some, false);
}

/* Where it is between records: at the next that it has not been at. False: there is none. */
static bool next_record(struct weir *limiter)
{
    struct settle *settle = &limiter->settle;
    struct settle_chain *chain = &settle->chain;
    struct failure_outage outage;
    lock_take(&settle->mutex);
    for (size_t i = 0; !chain->walks && i < atomic_load(&settle->count); i++) {
        struct settle_record *record = &settle->records[i];
        if (record->walked)
            continue;
        record->walked = true;
        walk_from_start(chain, record);
    }
    if (!chain->walks && atomic_exchange(&chain->takes_outage, false) && failure_outage(limiter, &outage))
        walk_from_start(chain, &(struct settle_record){ .tag = outage.tag,
                                                        .by_own_time = atomic_load(&settle->own_time_us) >= 0,
                                                        .since_us = outage.since_us,
                                                        .until_us = outage.since_us,
                                                        .admitted = atomic_load(&settle->admitted) });
    if (!chain->walks && atomic_load(&settle->given_up_count) > 0) {
        walk_from_start(chain, &(struct settle_record){ .tag = settle->given_up[0] });
        chain->forgets = true;
    }
    lock_give(&settle->mutex);
    return chain->walks;
}

/* All records are to be looked at once more. */
static void forget_walks(struct weir *limiter)
{
    struct settle *settle = &limiter->settle;
    lock_take(&settle->mutex);
    for (size_t i = 0; i < atomic_load(&settle->count); i++)
        settle->records[i].walked = false;
    lock_give(&settle->mutex);
    settle->chain.walks = false;
}

/* Fill the batch, or end a record: true if there is more to do at it. */
static bool walk_on(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->settle.chain;
    struct weir_backend *fallback = limiter->fallback;
    if (chain->at_end) {
        chain->walks = false;
        if (chain->forgets)
            settle_forgotten(limiter, chain->record.tag);
        else if (!atomic_load(&chain->has_left_some))
            settle_record_done(limiter, chain->record.tag, chain->record.admitted);
        return false;
    }
    chain->at_end = !own_ops(fallback)->debtors(fallback, chain->record.tag, &chain->place, BATCH, add_key, chain);
    return true;
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

/* ---- The limit of a key ---- */

/* Ids are given in the order of definition, which is the table's, and limits stay. */
static void look_up_limits(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->settle.chain;
    lock_take(&limiter->mutex);
    const size_t count = HASH_COUNT(limiter->limits);
    struct weir_limit **limits = realloc(chain->limits, count * sizeof *limits);
    if (limits) {
        struct weir_limit *limit, *next;
        HASH_ITER(hh, limiter->limits, limit, next)
            limits[limit->id] = limit;
        chain->limits = limits;
        chain->limit_count = count;
    }
    lock_give(&limiter->mutex);
}

/* NULL: out of memory. */
static struct weir_limit *limit_of(struct weir *limiter, uint32_t limit_id)
{
    struct settle_chain *chain = &limiter->settle.chain;
    const uint32_t id = limit_id & ((1 << OUTAGE_TAG_BIT) - 1);
    if (id >= chain->limit_count)
        look_up_limits(limiter);
    return id < chain->limit_count ? chain->limits[id] : NULL;
}

/* ---- A batch ---- */

/* Whether a charge is for that outage, and not for others alone. */
static bool is_for(const struct settlement *settlement, uint32_t tag)
{
    for (size_t i = 0; i < settlement->debt.count; i++)
        if (settlement->debt.parts[i].tag == tag)
            return true;
    return false;
}

/* Have a key charged if anything is owed of it, and forgotten for the record's outage if nothing is owed for that: but
 * not while it lasts, for then more may be admitted at any moment, nor if more was just now. */
static void settle_key(struct weir *limiter, const struct settle_key *key)
{
    struct settle_chain *chain = &limiter->settle.chain;
    struct weir_limit *limit = limit_of(limiter, key->limit_id);
    int64_t now_us;
    if (!limit || request_time(limiter, &now_us) != WEIR_OK) {
        atomic_store(&chain->has_left_some, true);
        return;
    }
    if (chain->record.by_own_time || chain->forgets)
        now_us = chain->record.until_us; /* nobody knows how late it is by their time */
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
    struct failure_outage outage;
    const bool lasts = failure_outage(limiter, &outage) && outage.tag == chain->record.tag;
    const bool owes = claim == SETTLE_CLAIMED ? is_for(settlement, chain->record.tag) : claim != SETTLE_NOTHING;
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

static void settle_batch(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->settle.chain;
    struct settle_key *key;
    while ((key = chain->batch)) {
        chain->batch = key->next;
        settle_key(limiter, key);
        free(key);
    }
}

/* ---- The chain ---- */

/* If there is something to settle and nobody is at it. Whoever is looks once more when it has ended. */
static bool begin(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->settle.chain;
    if (!atomic_load(&chain->again) || atomic_exchange(&chain->busy, true))
        return false;
    atomic_store(&chain->again, false);
    atomic_store(&chain->failed, false);
    if (!atomic_exchange(&chain->rests, false)) {
        atomic_store(&chain->has_paid, false);
        forget_walks(limiter);
    }
    return true;
}

/* After a walk over all records, or one that failed. */
static void pause(struct settle_chain *chain)
{
    const bool begins = atomic_load(&chain->failed) || atomic_load(&chain->has_paid) || chain->pause_us == 0;
    chain->pause_us = begins ? PAUSE_US : min_of(PAUSE_MOST_US, 2 * chain->pause_us);
    atomic_store(&chain->again_us, clock_monotonic_us() + chain->pause_us);
}

/* True: there is more, and it has begun anew. */
static bool end(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->settle.chain;
    const bool goes_on = !atomic_load(&chain->failed) && !atomic_load(&chain->rests);
    if (!atomic_load(&chain->rests))
        pause(chain);
    atomic_store(&chain->busy, false);
    return goes_on && begin(limiter);
}

/* Batch after batch. False: the last has to be waited for. */
static bool run(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->settle.chain;
    for (int batches = 0; !atomic_load(&chain->failed) && (chain->walks || next_record(limiter)); batches++) {
        if (batches == RUN_MOST) {
            atomic_store(&chain->rests, true);
            break;
        }
        if (!walk_on(limiter))
            continue;
        atomic_store(&chain->waiting, 1); /* this thread, so that nobody goes on while it submits */
        settle_batch(limiter);
        if (atomic_fetch_sub(&chain->waiting, 1) > 1)
            return false;
    }
    return true;
}

/* What has begun, on a call inside that it leaves in the end: the limiter may be gone afterwards. */
static void go_on(struct weir *limiter)
{
    do
        if (!run(limiter))
            return; /* whoever is told of the last charge goes on */
    while (end(limiter));
    inside_leave(limiter, 1);
}

void settle_charged(struct weir *limiter, int status)
{
    struct settle_chain *chain = &limiter->settle.chain;
    if (status != WEIR_OK && status != WEIR_ESTATE)
        atomic_store(&chain->failed, true);
    if (atomic_fetch_sub(&chain->waiting, 1) == 1)
        go_on(limiter);
}

void settle_all(struct weir *limiter)
{
    if (!limiter->backend->ops->submit)
        return;
    atomic_store(&limiter->settle.chain.again, true);
    if (inside_enter(limiter, 1) != WEIR_OK)
        return;
    if (begin(limiter))
        go_on(limiter);
    else
        inside_leave(limiter, 1);
}

void settle_returned(void *user)
{
    struct weir *limiter = user;
    if (!failure_is_in_reach(limiter, NULL)) /* it is a part that is back */
        failure_split(limiter);
    if (!settle_is_due(limiter))
        return;
    atomic_store(&limiter->settle.chain.takes_outage, true);
    settle_all(limiter);
}

/* A few keys, without charging them. */
static void look_on(struct weir *limiter)
{
    struct settle_chain *chain = &limiter->settle.chain;
    if (atomic_exchange(&chain->busy, true))
        return;
    if (!chain->walks && !next_record(limiter))
        forget_walks(limiter);
    else if (walk_on(limiter))
        settle_batch(limiter);
    atomic_store(&chain->busy, false);
}

void settle_go_on(struct weir *limiter)
{
    struct settle *settle = &limiter->settle;
    if (!settle_has_records(limiter) || atomic_load(&settle->chain.busy))
        return;
    if (!limiter->backend->ops->submit)
        look_on(limiter);
    else if (atomic_load(&settle->chain.rests) || clock_monotonic_us() >= atomic_load(&settle->chain.again_us))
        settle_all(limiter);
}
