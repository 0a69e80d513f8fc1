/* settle.c - charges to the backend what a stand-in has admitted in its place.
 *
 * In an outage each instance admits by its share, from a state of its own that begins cold: as if all had been taken at
 * the outage's beginning. Its debt of a key is what is in use there beyond what would be in use if it had admitted
 * nothing. Let M be the level of a leaky meter over all that anybody admits of the key, R the level in the backend, D
 * the sum of all debts. What the stand-in admits raises M and D by the same; what the backend admits, M and R. M drains
 * at the whole rate while it is not 0, R does so, and D drains too, at the sum of the shares' rates, but only once the
 * cold level has gone, which it has when R has: so R + D >= M throughout. Afterwards D stands still, and is added to R,
 * before the backend decides of that key again for the instance that owes it. So the backend never takes M for less
 * than it is, and over any number of outages no more than the limit is admitted at once; an instance that is cut off
 * while others are not adds its share of the rate, and no more.
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
 * One at a time settles a key: it is in the table `under_way` from before its debt is looked at until after it is
 * forgotten. Others who ask for it wait, and do not charge it again if it found no room meanwhile; those who submit are
 * denied for the moment.
 *
 * When an outage ends, its record is made under the mutex if the count of what was admitted says so. A thread that was
 * in the stand-in meanwhile adds to the count first and looks whether the outage lasts afterwards, and the one that
 * ends it does these the other way round: so one of them sees the other.
 */
#include "core/settle.h"

#include "core/algorithm.h"
#include "core/arith.h"
#include "core/verbs.h"

#include <errno.h>
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
    settle->is_on = limiter->backend->ops->shared && fallback && fallback->ops->debtors;
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

/* The oldest record, for there is no room for another. Where too many have been given up its keys stay in the stand-in
 * until they are as good as new. */
static void record_give_up(struct weir *limiter) REQUIRES(limiter->settle.mutex)
{
    struct settle *settle = &limiter->settle;
    const struct settle_record *oldest = &settle->records[0];
    const size_t given_up = atomic_load(&settle->given_up_count);
    if (oldest->admitted > oldest->settled)
        stats_add(&limiter->stats, STATS_UNSETTLED, oldest->admitted - oldest->settled);
    if (given_up < SETTLE_RECORDS) {
        settle->given_up[given_up] = oldest->tag;
        atomic_store(&settle->given_up_count, given_up + 1);
    }
    record_remove(limiter, 0);
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
    request.limit_id = of->limit->id | part->tag << FAILURE_TAG_BIT;
    return request;
}

static int64_t part_debt(struct weir *limiter, const struct weir_backend_request *of, const struct settle_part *part)
{
    const struct weir_backend_request request = part_request(of, part);
    return limiter->fallback->ops->debt(limiter->fallback, &request);
}

/* What is owed of the key of a request at its time. */
static struct settle_debt assess(struct weir *limiter, const struct weir_backend_request *of)
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

int64_t settle_owed(struct weir *limiter, const struct weir_backend_request *of)
{
    return assess(limiter, of).permits;
}

/* ---- A settlement ---- */

/* A charge of what is owed, but for `ahead`. */
static struct weir_backend_request charge_request(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                  int64_t now_us)
{
    return (struct weir_backend_request){
        .limit = limit,
        .key = key,
        .hash = hash,
        .now_us = now_us,
        .plan_version = plan_cell_version(&limit->plan),
        .cold_since_us = -1,
        .spread = 1,
        .limit_id = limit->id,
        .verb = WEIR_TAKE,
    };
}

static struct settlement *settlement_make(const struct weir_backend_request *of, const void *owner)
{
    struct settlement *settlement = malloc(sizeof *settlement + of->key.len);
    if (!settlement)
        return NULL;
    memset(settlement, 0, sizeof *settlement);
    memcpy(settlement->key, of->key.data, of->key.len);
    settlement->charge = charge_request(of->limit, weir_key(settlement->key, of->key.len), of->hash, of->now_us);
    settlement->owner = owner;
    return settlement;
}

/* The link in its bucket to the settlement of the same key, or where there is none. */
static struct settlement **settlement_find(struct weir *limiter, const struct weir_backend_request *like)
    REQUIRES(limiter->settle.mutex)
{
    struct settlement **link = &limiter->settle.under_way[like->hash % SETTLE_BUCKETS];
    for (; *link; link = &(*link)->next) {
        const struct weir_backend_request *charge = &(*link)->charge;
        if (charge->hash == like->hash && charge->limit == like->limit && charge->key.len == like->key.len &&
            memcmp(charge->key.data, like->key.data, like->key.len) == 0)
            break;
    }
    return link;
}

/* In an outage that lasts a backend may say of itself that it has not been seen well since the last failure. */
static bool is_out_of_reach(struct weir *limiter)
{
    const struct weir_backend_ops *ops = limiter->backend->ops;
    struct failure_outage outage;
    return ops->reachable_us && failure_outage(limiter, &outage) &&
           ops->reachable_us(limiter->backend) <= atomic_load_explicit(&limiter->failed_us, memory_order_relaxed);
}

/* A debt that found no room finds none for those who waited for that, unless their own time is later. Others with the
 * same hash are told the same: they have the same key, but for a chance that is none. */
static bool found_no_room(struct weir *limiter, const struct weir_backend_request *of, uint64_t since)
    REQUIRES(limiter->settle.mutex)
{
    const struct settle_no_room *last = &limiter->settle.no_room[of->hash % SETTLE_BUCKETS];
    return last->hash == of->hash && last->ended > since && of->now_us - last->now_us <= limiter->timeout_us;
}

/* Out of the table: others may have it. What its parts say by now has been paid. */
static void settlement_release(struct weir *limiter, struct settlement *settlement, bool is_settled, bool no_room)
{
    struct settle *settle = &limiter->settle;
    lock_take(&limiter->settle.mutex);
    for (size_t i = 0; i < settlement->debt.count; i++) {
        struct settle_record *record = record_find(limiter, settlement->debt.parts[i].tag);
        if (record)
            record->settled += (uint64_t)settlement->debt.parts[i].permits;
    }
    struct settlement **link = settlement_find(limiter, &settlement->charge);
    *link = settlement->next;
    settle->ended++;
    const uint64_t hash = settlement->charge.hash;
    if (no_room)
        settle->no_room[hash % SETTLE_BUCKETS] = (struct settle_no_room){ .hash = hash,
                                                                          .ended = settle->ended,
                                                                          .now_us = settlement->charge.now_us };
    pthread_cond_broadcast(&settle->changed);
    const bool wakes_chain = settlement->wakes_chain && is_settled;
    lock_give(&limiter->settle.mutex);
    if (wakes_chain)
        settle_all(limiter);
}

enum settle_claim settle_claim(struct weir *limiter, const struct weir_backend_request *of, const void *owner,
                               bool wakes_chain, uint64_t since, struct settlement **out)
{
    struct weir_plan plan;
    if (assess(limiter, of).permits == 0)
        return SETTLE_NOTHING;
    if (is_out_of_reach(limiter))
        return SETTLE_OUT_OF_REACH;
    struct settlement *settlement = settlement_make(of, owner);
    if (!settlement)
        return SETTLE_NO_MEMORY;
    enum settle_claim claim = SETTLE_CLAIMED;
    lock_take(&limiter->settle.mutex);
    struct settlement **link = settlement_find(limiter, of);
    if (*link) {
        claim = (*link)->owner == owner ? SETTLE_MINE : SETTLE_BY_OTHERS;
        (*link)->wakes_chain = (*link)->wakes_chain || wakes_chain;
    } else if (found_no_room(limiter, of, since)) {
        claim = SETTLE_NOTHING;
    } else {
        *link = settlement;
    }
    lock_give(&limiter->settle.mutex);
    if (claim == SETTLE_CLAIMED) { /* only now does the debt stand still */
        settlement->debt = assess(limiter, of);
        plan_cell_read(&of->limit->plan, &plan);
        settlement->charge.ahead = min_of(settlement->debt.permits, plan.size);
        if (settlement->debt.permits == 0) { /* another one was faster */
            settlement_release(limiter, settlement, true, false);
            claim = SETTLE_NOTHING;
        }
    }
    if (claim != SETTLE_CLAIMED)
        free(settlement);
    *out = settlement;
    return claim;
}

/* So much of a part has been paid, which the stand-in writes down. What is left is owed, and so is what it has admitted
 * meanwhile: for a thread may still be in it that went there in the outage. */
static int64_t pay_part(struct weir *limiter, const struct weir_backend_request *of, const struct settle_part *part,
                        int64_t permits)
{
    const struct weir_backend_request request = part_request(of, part);
    return limiter->fallback->ops->pay(limiter->fallback, &request, permits);
}

bool settle_forget(struct weir *limiter, const struct weir_backend_request *of, uint32_t tag, int64_t since_us,
                   int64_t most)
{
    const struct settle_part part = { .tag = tag, .since_us = since_us, .at_us = failure_time(limiter, of->now_us) };
    return pay_part(limiter, of, &part, most) == 0;
}

void settle_forgive(struct weir *limiter, const struct weir_backend_request *of)
{
    const struct settle_debt debt = assess(limiter, of);
    for (size_t i = 0; i < debt.count; i++)
        pay_part(limiter, of, &debt.parts[i], debt.parts[i].permits);
}

/* The backend has answered a charge; the settlement is gone afterwards. */
static void settlement_end(struct weir *limiter, struct settlement *settlement, int error,
                           const struct weir_decision *decision)
{
    const bool is_refused = error == WEIR_ESTATE; /* there is nothing to charge it to */
    struct settle_debt *debt = &settlement->debt;
    int64_t paid = error == WEIR_OK ? decision->ahead : is_refused ? debt->permits : 0;
    const bool has_paid = paid > 0, is_settled = has_paid && paid >= settlement->charge.ahead;
    stats_add(&limiter->stats, is_refused ? STATS_UNSETTLED : STATS_SETTLED, (uint64_t)paid);
    if (error == WEIR_OK || is_refused)
        failure_over(limiter, failure_time(limiter, settlement->charge.now_us));
    for (size_t i = 0; i < debt->count; i++) {
        struct settle_part *part = &debt->parts[i];
        part->permits = is_settled ? part->permits : min_of(part->permits, paid);
        paid -= part->permits;
        if (part->permits > 0)
            pay_part(limiter, &settlement->charge, part, part->permits);
    }
    if (settlement->owner == &limiter->settle.chain && has_paid)
        atomic_store(&limiter->settle.chain.has_paid, true);
    if (settlement->owner == &limiter->settle.chain && !is_settled)
        atomic_store(&limiter->settle.chain.has_left_some, true);
    settlement_release(limiter, settlement, is_settled, error == WEIR_OK && !is_settled);
    free(settlement);
}

/* ---- Charged at once ---- */

/* WEIR_OK, or the error of one of them: of a state that is not weir's only if there is no other. */
static int charge(struct weir *limiter, struct settlement **settlements, size_t n, int64_t deadline_us)
{
    struct weir_backend_request requests[WEIR_MAX_ALL];
    struct weir_decision decisions[WEIR_MAX_ALL];
    size_t i = 0;
    do
        requests[i] = settlements[i]->charge;
    while (++i < n);
    int error = limiter->backend->ops->decide(limiter->backend, requests, n, false, deadline_us, decisions);
    assert(error <= 0);
    if (error == WEIR_ESTATE &&
        n > 1) { /* of one of them: those before it may have been charged, as without an answer */
        int first = WEIR_ESTATE;
        for (i = 0; i < n; i++) {
            int alone = charge(limiter, &settlements[i], 1, deadline_us);
            first = alone && first == WEIR_ESTATE ? alone : first;
        }
        return first;
    }
    for (i = 0; i < n; i++)
        settlement_end(limiter, settlements[i], error, &decisions[i]);
    return error;
}

/* Wait until a settlement has ended since `ended` were. Too late: in an outage that lasts the stand-in answers. */
static int await_change(struct weir *limiter, uint64_t ended, int64_t until_us)
{
    struct settle *settle = &limiter->settle;
    const struct timespec until = { .tv_sec = until_us / WEIR_SECOND, .tv_nsec = until_us % WEIR_SECOND * 1000 };
    int woken = 0;
    lock_take(&limiter->settle.mutex);
    while (settle->ended == ended && woken != ETIMEDOUT)
        woken = pthread_cond_timedwait(&settle->changed, &settle->mutex.mutex, &until);
    const bool is_late = settle->ended == ended;
    lock_give(&limiter->settle.mutex);
    struct failure_outage outage;
    if (!is_late)
        return WEIR_OK;
    return failure_outage(limiter, &outage) ? WEIR_ETIME : SETTLE_BUSY;
}

static uint64_t count_ended(struct weir *limiter)
{
    lock_take(&limiter->settle.mutex);
    const uint64_t ended = limiter->settle.ended;
    lock_give(&limiter->settle.mutex);
    return ended;
}

/* Those of the requests' keys that are owed and nobody has, see settle_claim(). WEIR_OK or an error; *busy: somebody
 * has some. */
static int claim_each(struct weir *limiter, const struct weir_backend_request *requests, size_t n, uint64_t since,
                      struct settlement **claimed, size_t *count, bool *busy)
{
    *count = 0;
    *busy = false;
    for (size_t i = 0; i < n; i++) {
        switch (settle_claim(limiter, &requests[i], claimed, false, since, &claimed[*count])) {
        case SETTLE_NOTHING:
        case SETTLE_MINE: break;
        case SETTLE_CLAIMED: ++*count; break;
        case SETTLE_BY_OTHERS: *busy = true; break;
        case SETTLE_OUT_OF_REACH: return WEIR_EIO;
        case SETTLE_NO_MEMORY: return WEIR_ENOMEM;
        }
    }
    return WEIR_OK;
}

/* Never waits while it has claimed a key: two who wait for each other's would wait in vain. */
__attribute__((noinline)) int settle_before(struct weir *limiter, const struct weir_backend_request *requests, size_t n,
                                            int64_t deadline_us)
{
    const int64_t until_us = min_of(deadline_us, clock_monotonic_us() + limiter->timeout_us);
    const uint64_t since = count_ended(limiter);
    settle_go_on(limiter);
    for (;;) {
        struct settlement *claimed[WEIR_MAX_ALL];
        size_t count;
        bool busy;
        const uint64_t ended = count_ended(limiter);
        int error = claim_each(limiter, requests, n, since, claimed, &count, &busy);
        for (size_t i = 0; error && i < count; i++)
            settlement_end(limiter, claimed[i], error, NULL);
        if (!error && count > 0)
            error = charge(limiter, claimed, count, deadline_us);
        if (!error && busy)
            error = await_change(limiter, ended, until_us);
        if (error || !busy)
            return error;
    }
}

/* ---- Submitted ---- */

static void settlement_charged(struct weir_op *op, int status)
{
    struct settlement *settlement = (struct settlement *)(void *)op; /* its first member */
    struct weir *limiter = settlement->charge.limit->limiter;
    settle_then *then = settlement->then;
    struct weir_op *then_op = settlement->then_op;
    const int64_t deadline_us = settlement->deadline_us;
    settlement_end(limiter, settlement, status, &op->decision);
    if (then)
        then(then_op, status, deadline_us);
    else
        settle_charged(limiter, status);
}

int settlement_submit(struct weir *limiter, struct settlement *settlement, int64_t deadline_us)
{
    const struct weir_backend_request *charge = &settlement->charge;
    settlement->deadline_us = deadline_us;
    settlement->op = (struct weir_op){
        .request = { charge->limit, charge->key, 0, max_of(0, charge->now_us) },
        .done = settlement_charged,
    };
    int result = limiter->backend->ops->submit(limiter->backend, charge, deadline_us, &settlement->op);
    if (result != 1)
        settlement_end(limiter, settlement, result, &settlement->op.decision);
    return result;
}

int settle_submit(struct weir *limiter, const struct weir_backend_request *request, int64_t deadline_us,
                  settle_then *then, struct weir_op *op)
{
    struct settlement *settlement;
    settle_go_on(limiter);
    switch (settle_claim(limiter, request, op, false, SETTLE_ANYHOW, &settlement)) {
    case SETTLE_CLAIMED: break;
    case SETTLE_MINE:
    case SETTLE_BY_OTHERS: return SETTLE_BUSY;
    case SETTLE_OUT_OF_REACH: return WEIR_EIO;
    case SETTLE_NO_MEMORY: return WEIR_ENOMEM;
    case SETTLE_NOTHING: return WEIR_OK;
    }
    settlement->then = then;
    settlement->then_op = op;
    return settlement_submit(limiter, settlement, deadline_us);
}
