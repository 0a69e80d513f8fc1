/* settle_charge.c - charges the backend for what is owed of a key, before it decides about that key again.
 *
 * settle.c explains why. One thread at a time settles a key: the key is in the table `under_way` from before its debt
 * is assessed until after the debt is forgotten. Other threads that ask for the key wait, and do not charge it again if
 * the charge found no room in the meantime. A submitted request for the key is denied for the moment.
 */
#include "core/outage/settle.h"

#include "core/ground/arith.h"
#include "core/ground/cancel.h"
#include "core/limiter/request.h"
#include "core/limiter/same_key.h"
#include "core/outage/arrears.h"
#include "core/outage/outage_span.h"

#include <errno.h>
#include <stdlib.h>

/* ---- A settlement ---- */

static struct settlement *settlement_make(const struct weir_backend_request *of, const void *owner)
{
    struct settlement *settlement = malloc(sizeof *settlement + of->key.len);
    if (!settlement)
        return NULL;
    memset(settlement, 0, sizeof *settlement);
    memcpy(settlement->key, of->key.data, of->key.len);
    const struct weir_key key = weir_key(settlement->key, of->key.len);
    settlement->charge = backend_request(of->limit, key, 0, of->now_us, WEIR_TAKE);
    settlement->charge.spread = 1;
    settlement->asked = outage_asked(of->limit->limiter);
    settlement->owner = owner;
    return settlement;
}

/* Return the link to the settlement of the same key; it is the last link of the bucket if there is none. */
static struct settlement **settlement_find(struct weir *limiter, const struct weir_backend_request *like)
    REQUIRES(limiter->outage->settle.mutex)
{
    struct settlement **link = &limiter->outage->settle.under_way[like->hash % SETTLE_BUCKETS];
    while (*link && !same_key(&(*link)->charge, like))
        link = &(*link)->next;
    return link;
}

/* True if an outage lasts and the backend says that it has the key in a part that is out of reach. */
static bool key_is_out_of_reach(const struct weir *limiter, const struct weir_key *key)
{
    struct outage_id outage;
    return outage_read(limiter, &outage) && !outage_is_in_reach(limiter, key);
}

/* True if a charge of this key has found no room since `since`: another charge would find none either, unless its time
 * is later. Two keys with the same 64-bit hash count as one. */
static bool found_no_room(struct weir *limiter, const struct weir_backend_request *of, uint64_t since)
    REQUIRES(limiter->outage->settle.mutex)
{
    const struct settle_no_room *last = &limiter->outage->settle.no_room[of->hash % SETTLE_BUCKETS];
    return last->hash == of->hash && last->ended > since && of->now_us - last->now_us <= limiter->timeout_us;
}

/* Remove a settlement from the table. Its parts say what has been paid. */
static void settlement_release(struct weir *limiter, struct settlement *settlement, bool is_settled, bool no_room)
{
    struct settle *settle = &limiter->outage->settle;
    lock_take(&limiter->outage->settle.mutex);
    settle_note_paid(limiter, &settlement->debt);
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
    lock_give(&limiter->outage->settle.mutex);
    if (wakes_chain)
        settle_all(limiter);
}

enum settle_claim settle_claim(struct weir *limiter, const struct weir_backend_request *of, const void *owner,
                               bool wakes_chain, uint64_t since, struct settlement **out)
{
    struct weir_plan plan;
    const int64_t permits = settle_assess(limiter, of).permits;
    const bool owes = permits > 0 || arrears_must_ask(limiter, of, permits);
    if (!owes && arrears_of(limiter, of) == 0)
        return SETTLE_NOTHING;
    if (key_is_out_of_reach(limiter, &of->key))
        return SETTLE_OUT_OF_REACH;
    struct settlement *settlement = settlement_make(of, owner);
    if (!settlement)
        return SETTLE_NO_MEMORY;
    enum settle_claim claim = SETTLE_CLAIMED;
    lock_take(&limiter->outage->settle.mutex);
    struct settlement **link = settlement_find(limiter, of);
    if (*link && !owes) {
        claim = SETTLE_NOTHING; /* arrears hold up no request */
    } else if (*link) {
        claim = (*link)->owner == owner ? SETTLE_MINE : SETTLE_BY_OTHERS;
        (*link)->wakes_chain = (*link)->wakes_chain || wakes_chain;
    } else if (found_no_room(limiter, of, since)) {
        claim = SETTLE_NOTHING;
    } else {
        *link = settlement;
    }
    lock_give(&limiter->outage->settle.mutex);
    if (claim == SETTLE_CLAIMED) { /* the debt does not change from now on */
        settlement->debt = settle_assess(limiter, of);
        plan_cell_read(&of->limit->plan, &plan);
        settlement->charge.ahead = min_of(settlement->debt.permits, plan.size);
        if (!arrears_ask(limiter, &settlement->charge, settlement->debt.permits) && settlement->debt.permits == 0 &&
            !arrears_charge(limiter, &settlement->charge)) {
            /* another thread was faster, or arrears must wait */
            settlement_release(limiter, settlement, true, false);
            claim = SETTLE_NOTHING;
        }
    }
    if (claim != SETTLE_CLAIMED)
        free(settlement);
    *out = settlement;
    return claim;
}

/* Record the answer to a charge, and free the settlement. */
static void settlement_end(struct weir *limiter, struct settlement *settlement, int error,
                           const struct weir_decision *decision)
{
    const bool is_refused = error == WEIR_ESTATE; /* the store has no state to charge */
    struct settle_debt *debt = &settlement->debt;
    int64_t paid = error == WEIR_OK ? decision->ahead : is_refused ? debt->permits : 0;
    const int64_t charged = settlement->charge.ahead;
    const bool has_paid = paid > 0, is_settled = (has_paid || error == WEIR_OK) && paid >= charged;
    stats_add(&limiter->stats, is_refused ? STATS_UNSETTLED : STATS_SETTLED, (uint64_t)paid);
    if (error == WEIR_OK)
        outage_note_left(limiter, &settlement->charge, 1, settlement->asked, decision);
    if (error == WEIR_OK || is_refused)
        outage_over(limiter, &settlement->charge.key, outage_time(limiter, settlement->charge.now_us));
    if (error == WEIR_OK && settlement->charge.cold_left > 0) /* the outage is over: its idle time counts once */
        arrears_forgive(limiter, &settlement->charge, debt->permits, decision);
    arrears_pay(limiter, &settlement->charge, is_refused ? arrears_of(limiter, &settlement->charge) : paid);
    for (size_t i = 0; i < debt->count; i++) {
        struct settle_part *part = &debt->parts[i];
        part->permits = is_settled ? part->permits : min_of(part->permits, paid);
        paid -= part->permits;
        if (part->permits > 0)
            settle_pay(limiter, &settlement->charge, part, part->permits);
    }
    if (settlement->owner == &limiter->outage->settle.chain && has_paid)
        atomic_store(&limiter->outage->settle.chain.has_paid, true);
    if (settlement->owner == &limiter->outage->settle.chain && !is_settled)
        atomic_store(&limiter->outage->settle.chain.has_left_some, true);
    settlement_release(limiter, settlement, is_settled, error == WEIR_OK && !is_settled);
    free(settlement);
}

/* ---- Charged at once ---- */

#define CHARGE_MOST 4 /* keys in one call: their requests and decisions lie on the caller's stack */

/* Charge the first of a list, at most `most` of them and CHARGE_MOST, in one call. *n: how many; the decision of each
 * is in its op. Not inline, so that later steps do not keep this frame on the stack. */
__attribute__((noinline)) static int settlements_charge(struct weir *limiter, struct settlement *first, size_t most,
                                                        int64_t deadline_us, size_t *n)
{
    struct weir_backend_request requests[CHARGE_MOST];
    struct weir_decision decisions[CHARGE_MOST];
    struct settlement *settlement = first;
    *n = 0;
    do {
        requests[*n] = settlement->charge;
        decisions[*n].source = WEIR_BY_NOBODY;
        settlement = settlement->also;
    } while (++*n < most && *n < CHARGE_MOST && settlement);
    int error = limiter->backend->ops->decide(limiter->backend, requests, *n, false, deadline_us, decisions);
    assert(error <= 0);
    settlement = first;
    for (size_t i = 0; i < *n; i++, settlement = settlement->also)
        settlement->op.decision = decisions[i];
    return error;
}

/* End all of a list: charge them or, if `error` is not WEIR_OK, leave them owed. Return the first error; WEIR_ESTATE
 * only if there is no other. */
static int settlements_end(struct weir *limiter, struct settlement *first, int64_t deadline_us, int error)
{
    size_t most = CHARGE_MOST;
    while (first) {
        size_t n = 1;
        int status = error;
        if (!error || error == WEIR_ESTATE)
            status = settlements_charge(limiter, first, most, deadline_us, &n);
        else
            first->op.decision.source = WEIR_BY_NOBODY;
        error = status ? status : error;
        /* One of them has a stored state that is not weir's. Charge each alone; those before it may be charged
         * twice. */
        if (status == WEIR_ESTATE && n > 1) {
            most = 1;
            continue;
        }
        for (; n > 0; n--) {
            struct settlement *charged = first;
            const struct weir_decision *decision = &charged->op.decision;
            first = charged->also;
            settlement_end(limiter, charged, decision->source == WEIR_BY_NOBODY ? status : WEIR_OK, decision);
        }
    }
    return error;
}

/* Wait until the count of ended settlements exceeds `ended`. After `until_us`: WEIR_ETIME if an outage lasts, so that
 * the fallback answers; else SETTLE_BUSY. */
static int await_settlement(struct weir *limiter, uint64_t ended, int64_t until_us)
{
    struct settle *settle = &limiter->outage->settle;
    const struct timespec until = clock_timespec(until_us);
    int woken = 0;
    CANCEL_DISABLED;
    lock_take(&limiter->outage->settle.mutex);
    while (settle->ended == ended && woken != ETIMEDOUT)
        woken = pthread_cond_timedwait(&settle->changed, &settle->mutex.mutex, &until);
    const bool is_late = settle->ended == ended;
    lock_give(&limiter->outage->settle.mutex);
    struct outage_id outage;
    if (!is_late)
        return WEIR_OK;
    return outage_read(limiter, &outage) ? WEIR_ETIME : SETTLE_BUSY;
}

static uint64_t count_ended(struct weir *limiter)
{
    lock_take(&limiter->outage->settle.mutex);
    const uint64_t ended = limiter->outage->settle.ended;
    lock_give(&limiter->outage->settle.mutex);
    return ended;
}

/* Claim each of the requests' keys that is owed and not claimed yet, see settle_claim(), and add it to the list. *busy:
 * other threads have some of them. */
static int claim_each(struct weir *limiter, const struct weir_backend_request *requests, size_t n, uint64_t since,
                      struct settlement **claimed, bool *busy)
{
    struct settlement *settlement, **end = claimed;
    *claimed = NULL;
    *busy = false;
    for (size_t i = 0; i < n; i++) {
        switch (settle_claim(limiter, &requests[i], claimed, false, since, &settlement)) {
        case SETTLE_NOTHING:
        case SETTLE_MINE: break;
        case SETTLE_CLAIMED:
            *end = settlement;
            end = &settlement->also;
            break;
        case SETTLE_BY_OTHERS: *busy = true; break;
        case SETTLE_OUT_OF_REACH: return WEIR_EIO;
        case SETTLE_NO_MEMORY: return WEIR_ENOMEM;
        }
    }
    return WEIR_OK;
}

/* Never waits while it has claimed a key: two threads that waited for each other's would deadlock. */
__attribute__((noinline)) int settle_before(struct weir *limiter, const struct weir_backend_request *requests, size_t n,
                                            int64_t deadline_us)
{
    const int64_t until_us = min_of(deadline_us, clock_monotonic_us() + limiter->timeout_us);
    const uint64_t since = count_ended(limiter);
    settle_go_on(limiter);
    for (;;) {
        struct settlement *claimed;
        bool busy;
        const uint64_t ended = count_ended(limiter);
        int error = claim_each(limiter, requests, n, since, &claimed, &busy);
        error = settlements_end(limiter, claimed, deadline_us, error);
        if (!error && busy)
            error = await_settlement(limiter, ended, until_us);
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
