/* hybrid.c - the hybrid backend: leases permits of busy keys from a remote backend before they are needed.
 *
 * What happens to a request:
 *
 *     its lease has permits for it        spend them, no I/O
 *     a denial still holds                deny it, no I/O
 *     the key is rarely requested         ask the remote for this request alone, on this thread
 *     a lease call is under way           wait for its answer
 *     otherwise                           order this request's permits and some in advance (hybrid/lease_call.h)
 *
 * A request that brings its own time is decided at that time, on its own thread, and its leases use that time. So
 * no other thread can influence it, and a replay repeats exactly.
 *
 * core/algorithm/lease.c decides what is leased, when, and for how long. The core handles failures, as for every
 * backend.
 */
#include "backends/hybrid/hybrid.h"

#include "backends/hybrid/each.h"
#include "backends/hybrid/request.h"
#include "core/ground/forks.h"
#include "core/limiter/own_ops.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- Other verbs ---- */

static int hybrid_peek(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                       struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct weir_backend_request asked = *request;
    enum lease_answer answer = LEASE_UNDECIDED;
    int64_t left = 0;
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account && account->lease.version >= request->plan_version &&
        account->by_caller == (request->now_us != WEIR_OWN_CLOCK) && !lease_is_ahead(&account->lease, now_us)) {
        answer = lease_decide(&account->lease, now_us, request->cost, WEIR_PEEK, out);
        left = lease_left(&account->lease, now_us);
        if (account->lease.plan.algorithm != WEIR_LEAKY_BUCKET && request->cost <= account->lease.plan.size)
            asked.cost -= left;
    }
    lock_give(&shard->mutex);
    if (answer != LEASE_UNDECIDED)
        return WEIR_OK;
    const int error = hybrid->remote->ops->decide(hybrid->remote, &asked, 1, false, deadline_us, out);
    if (!error)
        out->remaining = min_of(out->limit, out->remaining + left);
    return error;
}

static int64_t hybrid_leased(struct weir_backend *backend, const struct weir_backend_request *request)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    const int64_t left = account ? lease_left(&account->lease, hybrid_time(hybrid, request->now_us)) : 0;
    lock_give(&shard->mutex);
    return left;
}

/* Drop a lease, both before a reset and after it: permits leased or denied in between may predate the reset. */
static void hybrid_forget_lease(struct hybrid *hybrid, const struct weir_backend_request *request)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account)
        account_forget_lease(shard, account);
    lock_give(&shard->mutex);
}

static void hybrid_note_refund(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t asked_us,
                               const struct weir_decision *decision)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account && account->by_caller != (request->now_us != WEIR_OWN_CLOCK))
        account->lease.denied_cost = 0;
    else if (account)
        lease_refunded(&account->lease, asked_us, hybrid_time(hybrid, request->now_us), decision);
    if (account && request->ahead == 0)
        lease_unused(&account->lease, request->cost);
    lock_give(&shard->mutex);
}

/* Forget a denial before permits go back in the background. A denial that Redis answers before that may outlast it. */
static void hybrid_forget_denial(struct hybrid *hybrid, const struct weir_backend_request *request)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account) {
        account->lease.denied_cost = 0;
        account->lease.refunded_us = hybrid_time(hybrid, request->now_us);
        if (request->ahead == 0)
            lease_unused(&account->lease, request->cost);
    }
    lock_give(&shard->mutex);
}

/* True for a limit whose permits are departure slots, which pass and cannot come back. */
static bool hybrid_has_slots(const struct weir_backend_request *request)
{
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    return plan.algorithm == WEIR_LEAKY_BUCKET;
}

/* Charge the lease as far as it covers the cost: its permits are charged in Redis already. Return what is left to
 * charge; if that is 0, *out is filled. */
static int64_t hybrid_charge_lease(struct hybrid *hybrid, const struct weir_backend_request *request,
                                   struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct lease_call *call = NULL;
    struct weir_backend_request covered = *request;
    covered.cost = 0;
    lock_take(&shard->mutex);
    struct account *account = request_account(hybrid, shard, request, now_us);
    if (account && account->lease.plan.algorithm != WEIR_LEAKY_BUCKET) {
        struct weir_decision decision;
        lease_count(&account->lease, now_us, request->cost);
        covered.cost = min_of(request->cost, lease_left(&account->lease, now_us));
        if (covered.cost > 0)
            request_decide(shard, account, now_us, &covered, &decision);
        if (covered.cost == request->cost)
            *out = decision;
        if (covered.cost == request->cost && lease_runs_low(&account->lease))
            call = request_call_ahead(hybrid, shard, account, request, now_us);
    }
    lock_give(&shard->mutex);
    lease_call_send(call);
    return request->cost - covered.cost;
}

/* Take back permits that a reservation did not need: they join the lease, or go to Redis beside the next call. False:
 * Redis must be asked now. */
static bool hybrid_settle_here(struct hybrid *hybrid, const struct weir_backend_request *request,
                               struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    bool settled = false;
    lock_take(&shard->mutex);
    const struct lease_rules rules = hybrid_rules(hybrid);
    struct account *account = request_account(hybrid, shard, request, now_us);
    if (account && account->lease.plan.algorithm != WEIR_LEAKY_BUCKET)
        settled = lease_settle(&account->lease, &rules, now_us, request->cost, request->ahead, account->call != NULL);
    if (settled) {
        account_count_lost(shard, account);
        if (!lease_recall(&account->lease, now_us, out))
            *out = (struct weir_decision){ .allowed = true,
                                           .source = WEIR_BY_LEASE,
                                           .limit = account->lease.plan.size };
    }
    lock_give(&shard->mutex);
    return settled;
}

/* Do what a verb needs of the account alone. True: the request is decided. False: *rest must go to the
 * remote. */
static bool hybrid_decide_here(struct hybrid *hybrid, const struct weir_backend_request *request,
                               struct weir_backend_request *rest, struct weir_decision *out)
{
    *rest = *request;
    if (request->verb == WEIR_CHARGE) {
        rest->cost = hybrid_charge_lease(hybrid, request, out);
        return rest->cost == 0;
    }
    return request->verb == WEIR_REFUND && request->ahead > 0 && hybrid_settle_here(hybrid, request, out);
}

/* A charge that fails may have been covered in part: its lease is then short of that part. */
static int hybrid_decide_other_verb(struct hybrid *hybrid, const struct weir_backend_request *request,
                                    int64_t deadline_us, struct weir_decision *out)
{
    const int64_t asked_us = hybrid_time(hybrid, request->now_us);
    struct weir_backend_request rest;
    if (request->verb == WEIR_PEEK)
        return hybrid_peek(hybrid, request, deadline_us, out);
    if (hybrid_decide_here(hybrid, request, &rest, out))
        return WEIR_OK;
    if (request->verb == WEIR_RESET)
        hybrid_forget_lease(hybrid, request);
    else
        hybrid_look_around(hybrid, request);
    const int error = hybrid->remote->ops->decide(hybrid->remote, &rest, 1, false, deadline_us, out);
    if (request->verb == WEIR_RESET)
        hybrid_forget_lease(hybrid, request);
    else if (!error && request->verb == WEIR_REFUND)
        hybrid_note_refund(hybrid, request, asked_us, out);
    return error;
}

/* True for a take that a lease may decide. Leased permits of a queue cannot be reserved. */
static bool hybrid_is_plain_take(const struct weir_backend_request *request)
{
    return request->verb == WEIR_TAKE && request->cost > 0 && request->ahead == 0 && !request->slot &&
           !(request->reservation && hybrid_has_slots(request));
}

/* ---- The vtable ---- */

static int hybrid_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    if (n == 1 && hybrid_is_plain_take(requests)) /* a group of one, too */
        return hybrid_decide_one(hybrid, requests, deadline_us, out);
    deadline_us = hybrid_deadline_us(deadline_us);
    if (n == 1 && requests->slot) /* neither leased nor remembered */
        return hybrid->remote->ops->decide(hybrid->remote, requests, 1, false, deadline_us, out);
    if (all && n > 1)
        return hybrid_decide_all(hybrid, requests, n, deadline_us, out);
    int error = WEIR_OK;
    for (size_t i = 0, part; !error && i < n; i += part) {
        for (part = 0; part < HYBRID_GROUP_MAX && i + part < n && hybrid_is_plain_take(&requests[i + part]); part++)
            ;
        if (part > 0) {
            error = hybrid_decide_batch(hybrid, requests + i, part, deadline_us, out + i);
        } else if (requests[i].slot) {
            for (part = 1; i + part < n && requests[i + part].slot; part++)
                ;
            error = hybrid->remote->ops->decide(hybrid->remote, requests + i, part, false, deadline_us, out + i);
        } else {
            error = hybrid_decide_other_verb(hybrid, &requests[i], deadline_us, &out[i]);
            part = 1;
        }
    }
    return error;
}

static int hybrid_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    struct weir_backend_request rest;
    if (request->slot)
        return hybrid->remote->ops->submit(hybrid->remote, request, deadline_us, op);
    if (hybrid_is_plain_take(request))
        return hybrid_submit_one(hybrid, request, deadline_us, op);
    if (hybrid_decide_here(hybrid, request, &rest, &op->decision))
        return WEIR_OK;
    if (request->verb == WEIR_REFUND)
        hybrid_forget_denial(hybrid, request);
    hybrid_look_around(hybrid, request);
    return hybrid->remote->ops->submit(hybrid->remote, &rest, deadline_us, op);
}

static void hybrid_stats(struct weir_backend *backend, struct weir_stats *add)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    if (hybrid->remote->ops->stats)
        hybrid->remote->ops->stats(hybrid->remote, add);
    add->keys += atomic_load_explicit(&hybrid->accounts.count, memory_order_relaxed);
    add->bytes += atomic_load_explicit(&hybrid->accounts.budget.used, memory_order_relaxed);
    for (size_t i = 0; i < HYBRID_SHARDS; i++) {
        struct account_shard *shard = &hybrid->accounts.shards[i];
        lock_take(&shard->mutex);
        add->leased += shard->leased;
        add->lease_lost += shard->lost;
        add->lease_hits += shard->lease_hits;
        add->denial_hits += shard->denial_hits;
        lock_give(&shard->mutex);
    }
}

static void hybrid_shut(struct weir_backend *backend)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    hybrid_give_all_back(hybrid);
    hybrid->remote->ops->shut(hybrid->remote);
}

static int64_t hybrid_reachable_us(struct weir_backend *backend, const struct weir_key *key)
{
    return backend_reachable_us(((struct hybrid *)backend)->remote, key);
}

static int64_t hybrid_well_us(struct weir_backend *backend, const struct weir_key *key)
{
    struct weir_backend *remote = ((struct hybrid *)backend)->remote;
    const struct own_ops *own = own_ops(remote);
    return own && own->well_us ? own->well_us(remote, key) : -1;
}

static int hybrid_probe(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                        int64_t deadline_us, struct weir_decision *out, struct message why)
{
    struct weir_backend *remote = ((struct hybrid *)backend)->remote;
    const struct own_ops *own = own_ops(remote);
    return own && own->probe ? own->probe(remote, requests, n, deadline_us, out, why) : WEIR_OK;
}

/* The remote may execute again what it has refused. Runs on a thread of the remote. */
static void hybrid_returned(void *user)
{
    struct hybrid *hybrid = user;
    hybrid_send_refused(hybrid);
    hybrid->returned(hybrid->returned_user);
}

static void hybrid_watch(struct weir_backend *backend, void (*returned)(void *user), void *user)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    hybrid->returned = returned;
    hybrid->returned_user = user;
    if (hybrid->remote->ops->watch)
        hybrid->remote->ops->watch(hybrid->remote, hybrid_returned, hybrid);
}

static void hybrid_instances(struct weir_backend *backend, int64_t count)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    atomic_store_explicit(&hybrid->instances, count, memory_order_relaxed);
}

/* Destroy the remote first: its last answers still need the accounts. */
static void hybrid_destroy(struct weir_backend *backend)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    if (hybrid->forks.told)
        forks_forget(&hybrid->forks);
    hybrid->remote->ops->destroy(hybrid->remote);
    hybrid_drop_refused(hybrid);
    accounts_free(&hybrid->accounts);
    free(hybrid);
}

/* ---- Life ---- */

/* Hold all locks during a fork. In the child they are held because the parent took them before. */
static void hybrid_forked(struct forks_watcher *watcher, enum forks_moment moment) UNCHECKED
{
    struct hybrid *hybrid = (struct hybrid *)((char *)watcher - offsetof(struct hybrid, forks));
    struct slab *slab = &hybrid->accounts.slab;
    void (*turn)(struct lock * lock) = moment == FORKS_BEFORE ? lock_take : lock_give;
    turn(&slab->packing);
    for (size_t i = 0; i < HYBRID_SHARDS; i++) {
        struct account_shard *shard = &hybrid->accounts.shards[i];
        if (moment == FORKS_BEFORE) {
            lock_take(&shard->mutex);
            continue;
        }
        struct account *account = moment == FORKS_IN_CHILD ? shard->accounts : NULL;
        for (; account; account = account->hh.next) { /* the parent spends these leases */
            account_forget_lease(shard, account);
            lease_call_forget(account);
        }
        if (moment == FORKS_IN_CHILD)
            shard->renewals = 0;
        lock_give(&shard->mutex);
    }
    turn(&slab->mutex);
    if (moment == FORKS_IN_CHILD) /* the parent sends them */
        hybrid_drop_refused(hybrid);
}

void hybrid_watch_forks(struct weir_backend *backend)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    hybrid->forks.told = hybrid_forked;
    forks_watch(&hybrid->forks);
}

static const struct own_ops hybrid_ops = {
    .base = {
        .size = OWN_OPS_SIZE,
        .name = "hybrid",
        .own_clock = true,
        .spans = true,
        .shared = true,
        .decide = hybrid_decide,
        .submit = hybrid_submit,
        .stats = hybrid_stats,
        .shut = hybrid_shut,
        .destroy = hybrid_destroy,
        .reachable_us = hybrid_reachable_us,
        .watch = hybrid_watch,
        .instances = hybrid_instances,
        .slots = true,
    },
    .leased = hybrid_leased,
    .idles = true,
    .well_us = hybrid_well_us,
    .probe = hybrid_probe,
};

int hybrid_open(const struct hybrid_settings *settings, struct weir_backend *remote, struct weir_backend **out)
{
    assert(remote->ops->submit && remote->ops->shut && remote->ops->shared);
    struct hybrid *hybrid = aligned_alloc(_Alignof(struct hybrid), sizeof *hybrid);
    if (!hybrid)
        return WEIR_ENOMEM;
    memset(hybrid, 0, sizeof *hybrid);
    hybrid->backend.ops = &hybrid_ops.base;
    hybrid->remote = remote;
    hybrid->rules = settings->leases;
    hybrid->instances = settings->leases.instances;
    hybrid->timeout_us = settings->timeout_us;
    clock_init(&hybrid->clock, settings->now_us, settings->user);
    accounts_init(&hybrid->accounts, settings->max_keys, settings->max_bytes, settings->timeout_us);
    hybrid->accounts.keep_idle = settings->keep_idle;
    *out = &hybrid->backend;
    return WEIR_OK;
}
