/* beside.c - what an instance does beside a call: each request that is about to go to the remote looks at its key and
 * at a few others.
 *
 * Permits that were leased and that this instance does not use go back. weir_close() gives back all that is left. A
 * return whose answer is lost may have been executed, so it is not sent again. One that the remote refuses to execute
 * (WEIR_EIO_UNDONE) waits until the remote reports that it may be tried again. The remote knows when it charged the
 * permits, and gives back none that have come back since (WEIR_REFUND in <weir/backend.h>).
 *
 * Leases that are about to end are renewed, if that costs other instances nothing (lease_needs_renewal()). Otherwise
 * each key's next request would wait for a call, however many keys one call could have carried. */
#include "backends/hybrid/request.h"
#include "core/ground/clock.h"
#include "core/limiter/own_ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define OTHERS_LOOKED_AT 3
#define OTHERS_FOR_RENEWAL 2 /* looked at in addition for each lease that is renewed */
#define RENEWALS_MOST 32     /* under way in a shard: few beside WEIR_MAX_SUBMITTED */
#define RETURNS_A_CALL 64
#define REFUSED_MOST 16384 /* refused returns that wait; further ones are lost */

struct hybrid_return {
    struct weir_op op;
    struct weir_backend_request request;
    struct hybrid_return *next;
    char key[];
};

/* End a return that has been sent: free it, or keep it for hybrid_send_refused(). */
static void return_end(struct hybrid *hybrid, struct hybrid_return *own, int status)
{
    const bool waits = status == WEIR_EIO_UNDONE && own->request.now_us == WEIR_OWN_CLOCK && hybrid->returned;
    if (!waits || atomic_fetch_add_explicit(&hybrid->refused_count, 1, memory_order_relaxed) >= REFUSED_MOST) {
        if (waits)
            atomic_fetch_sub_explicit(&hybrid->refused_count, 1, memory_order_relaxed);
        free(own);
        return;
    }
    own->next = atomic_load_explicit(&hybrid->refused, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&hybrid->refused, &own->next, own, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

static void return_ended(struct weir_op *op, int status)
{
    return_end(op->user, (struct hybrid_return *)(void *)op, status); /* its first member */
}

/* Return a request about the account's key. The key is the account's. */
static struct weir_backend_request request_about(struct account *account, int64_t request_us)
{
    return (struct weir_backend_request){
        .limit = account->limit,
        .key = weir_key(account->key, account->hh.keylen),
        .hash = account->hash,
        .now_us = request_us,
        .plan_version = account->lease.version,
        .cold_since_us = -1,
        .limit_id = account->limit_id,
    };
}

/* ---- Returns ---- */

/* Return what the account can give back, or NULL. */
static struct hybrid_return *return_of(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                       int64_t now_us, int64_t request_us, bool all) REQUIRES(shard->mutex)
{
    int64_t charged_us;
    const int64_t permits = lease_take_rest(&account->lease, now_us, all, &charged_us);
    account_count_lost(shard, account);
    struct hybrid_return *own = permits > 0 ? malloc(sizeof *own + account->hh.keylen) : NULL;
    if (!own)
        return NULL;
    memcpy(own->key, account->key, account->hh.keylen);
    own->next = NULL;
    own->request = request_about(account, request_us);
    own->request.key.data = own->key;
    own->request.verb = WEIR_REFUND;
    own->request.cost = permits;
    own->request.ahead = charged_us;
    own->op = (struct weir_op){
        .request = { .limit = account->limit, .key = own->request.key, .cost = permits },
        .done = return_ended,
        .user = hybrid,
    };
    return own;
}

static void return_send(struct hybrid *hybrid, struct hybrid_return *own)
{
    struct weir_backend *remote = hybrid->remote;
    struct weir_decision unused;
    const int64_t deadline_us = clock_monotonic_us() + hybrid->timeout_us;
    int status = 0;
    if (own->request.now_us == WEIR_OWN_CLOCK)
        status = remote->ops->submit(remote, &own->request, deadline_us, &own->op);
    else /* a replay repeats exactly only if no other thread has a part in it */
        remote->ops->decide(remote, &own->request, 1, false, deadline_us, &unused);
    if (status != 1)
        return_end(hybrid, own, status);
}

/* Take all that wait, in any order. */
static struct hybrid_return *refused_take(struct hybrid *hybrid)
{
    struct hybrid_return *first = atomic_exchange_explicit(&hybrid->refused, NULL, memory_order_acquire);
    for (struct hybrid_return *own = first; own; own = own->next)
        atomic_fetch_sub_explicit(&hybrid->refused_count, 1, memory_order_relaxed);
    return first;
}

void hybrid_send_refused(struct hybrid *hybrid)
{
    struct hybrid_return *own = refused_take(hybrid), *next;
    for (; own; own = next) {
        next = own->next;
        return_send(hybrid, own);
    }
}

/* ---- Renewals ---- */

/* Return a call that renews the account's lease, or NULL. */
static struct lease_call *renewal_of(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                     int64_t now_us) REQUIRES(shard->mutex)
{
    const struct weir_backend_request about = request_about(account, WEIR_OWN_CLOCK);
    if (shard->renewals == RENEWALS_MOST || !lease_needs_renewal(&account->lease, now_us))
        return NULL;
    struct lease_call *renewal = request_call_ahead(hybrid, shard, account, &about, now_us);
    if (renewal) {
        renewal->is_renewal = true;
        shard->renewals++;
    }
    return renewal;
}

/* ---- Beside a call ---- */

void hybrid_look_around(struct hybrid *hybrid, const struct weir_backend_request *request)
{
    if (!backend_is_in_reach(hybrid->remote, &request->key))
        return; /* what can be given back waits */
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    const bool by_caller = request->now_us != WEIR_OWN_CLOCK;
    struct hybrid_return *first = NULL, **end = &first;
    struct lease_call *renewals = NULL;
    lock_take(&shard->mutex);
    struct account *const asked = account_find(shard, request), *account = asked;
    /* Which others come up depends on chance, which a replay cannot repeat. */
    int others = hybrid->accounts.keep_idle ? 0 : OTHERS_LOOKED_AT;
    for (int i = 0; i <= others; i++) {
        const bool is_usable = account && account->by_caller == by_caller && !lease_is_ahead(&account->lease, now_us);
        if (is_usable)
            *end = return_of(hybrid, shard, account, now_us, request->now_us, false);
        if (*end)
            end = &(*end)->next;
        struct lease_call *renewal = NULL;
        if (is_usable && account != asked)
            renewal = renewal_of(hybrid, shard, account, now_us);
        if (renewal) {
            renewal->next = renewals;
            renewals = renewal;
            others += OTHERS_FOR_RENEWAL;
        }
        account = shard->hand ? shard->hand : shard->accounts;
        shard->hand = account ? account->hh.next : NULL;
    }
    lock_give(&shard->mutex);
    while (first) {
        struct hybrid_return *own = first;
        first = own->next;
        return_send(hybrid, own);
    }
    lease_call_submit(renewals);
}

void lease_call_send(struct lease_call *call)
{
    if (call)
        hybrid_look_around(call->hybrid, &call->request);
    lease_call_submit(call);
}

/* ---- At the end ---- */

static void returns_free(struct hybrid_return *first)
{
    while (first) {
        struct hybrid_return *own = first;
        first = own->next;
        free(own);
    }
}

/* Take up to `most` returns from the accounts between the shard's hand and its end. NULL: none is left. */
static struct hybrid_return *returns_take(struct hybrid *hybrid, struct account_shard *shard, size_t most)
{
    const int64_t now_us = hybrid_time(hybrid, WEIR_OWN_CLOCK);
    struct hybrid_return *first = NULL, **end = &first;
    lock_take(&shard->mutex);
    while (shard->hand && most > 0) {
        struct account *account = shard->hand;
        if (!account->by_caller) /* the leases of a replay end with it */
            *end = return_of(hybrid, shard, account, now_us, WEIR_OWN_CLOCK, true);
        if (*end) {
            end = &(*end)->next;
            most--;
        } else {
            shard->hand = account->hh.next;
        }
    }
    lock_give(&shard->mutex);
    return first;
}

void hybrid_drop_refused(struct hybrid *hybrid)
{
    returns_free(refused_take(hybrid));
}

/* Send them in one call and wait for the answer. */
static int returns_run(struct hybrid *hybrid, const struct hybrid_return *first, int64_t deadline_us)
{
    struct weir_backend_request requests[RETURNS_A_CALL];
    struct weir_decision decisions[RETURNS_A_CALL];
    size_t n = 0;
    for (const struct hybrid_return *own = first; own; own = own->next)
        requests[n++] = own->request;
    return clock_monotonic_us() < deadline_us
               ? hybrid->remote->ops->decide(hybrid->remote, requests, n, false, deadline_us, decisions)
               : WEIR_ETIME;
}

void hybrid_give_all_back(struct hybrid *hybrid)
{
    const int64_t deadline_us = clock_monotonic_us() + hybrid->timeout_us;
    int error = WEIR_OK;
    for (size_t i = 0; i < HYBRID_SHARDS && !error; i++) {
        struct account_shard *shard = &hybrid->accounts.shards[i];
        struct hybrid_return *first;
        lock_take(&shard->mutex);
        shard->hand = shard->accounts;
        lock_give(&shard->mutex);
        while (!error && (first = returns_take(hybrid, shard, RETURNS_A_CALL)) != NULL) {
            error = returns_run(hybrid, first, deadline_us);
            returns_free(first);
        }
    }
}
