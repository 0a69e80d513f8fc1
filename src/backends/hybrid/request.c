/* request.c - decides one request in its key's account. */
#include "backends/hybrid/request.h"

#include "core/ground/clock.h"

int64_t hybrid_deadline_us(int64_t deadline_or_span_us)
{
    return deadline_or_span_us < 0 ? clock_monotonic_us() - deadline_or_span_us : deadline_or_span_us;
}

/* How often a new account makes some room before Redis decides without one. That is enough for an account of any size:
 * before the slab can empty a page, at most 140 accounts must go (all but one slot of a page of each class that
 * accounts have), and each of the 5 pages that the longest key needs takes at most 36 more. */
#define ROOM_TRIES 400

struct account *request_account(struct hybrid *hybrid, struct account_shard *shard,
                                const struct weir_backend_request *request, int64_t now_us)
{
    const bool by_caller = request->now_us != WEIR_OWN_CLOCK;
    const struct lease_rules rules = hybrid_rules(hybrid);
    struct account *account = account_find(shard, request);
    if (!account)
        return NULL;
    if (account->lease.version < request->plan_version || account->by_caller != by_caller)
        account_keep_up(shard, account, &rules, request);
    if (lease_is_ahead(&account->lease, now_us)) /* the clock has stepped back */
        account_forget_times(shard, account);
    return account;
}

struct account *request_enter(struct hybrid *hybrid, struct account_shard *shard,
                              const struct weir_backend_request *request, int64_t now_us)
{
    const bool by_caller = request->now_us != WEIR_OWN_CLOCK;
    for (int tries = 0;; tries++) {
        lock_take(&shard->mutex);
        const struct lease_rules rules = hybrid_rules(hybrid);
        struct account *account = request_account(hybrid, shard, request, now_us);
        if (!account)
            account = account_add(&hybrid->accounts, shard, &rules, request, now_us);
        if (account || tries == ROOM_TRIES)
            return account;
        lock_give(&shard->mutex);
        if (!accounts_make_room(&hybrid->accounts, request->key.len, now_us, by_caller))
            tries = ROOM_TRIES - 1;
    }
}

enum lease_answer request_decide(struct account_shard *shard, struct account *account, int64_t now_us,
                                 const struct weir_backend_request *request, struct weir_decision *out)
{
    const enum lease_answer answer = lease_decide(&account->lease, now_us, request->cost, WEIR_TAKE, out);
    if (answer == LEASE_SPENT)
        lease_note(&account->lease, now_us, request->cost, request->reservation);
    shard->lease_hits += answer == LEASE_SPENT;
    shard->denial_hits += answer == LEASE_DENIED;
    return answer;
}

struct lease_order request_make_order(const struct hybrid *hybrid, struct account *account, int64_t now_us,
                                      int64_t cost, int64_t waiting)
{
    const struct lease_rules rules = hybrid_rules(hybrid);
    const int64_t trip_us = account->by_caller ? 0 : atomic_load_explicit(&hybrid->trip_us, memory_order_relaxed);
    return lease_make_order(&account->lease, &rules, now_us, cost, waiting, trip_us);
}

struct lease_call *request_call_ahead(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                      const struct weir_backend_request *request, int64_t now_us)
{
    if (account->call || account->by_caller)
        return NULL;
    const struct lease_order order = request_make_order(hybrid, account, now_us, 0, 0);
    if (order.ahead == 0)
        return NULL;
    const int64_t deadline_us = clock_monotonic_us() + hybrid->timeout_us;
    struct lease_call *call = lease_call_make_ahead(hybrid, shard, account, request, &order, now_us, deadline_us);
    if (!call)
        lease_order_failed(&account->lease, &order);
    return call;
}

/* Take the remote's answer into the account. Returns the account, or NULL if it is gone. */
static struct account *request_take_answer(struct hybrid *hybrid, struct account_shard *shard,
                                           const struct weir_backend_request *request, const struct lease_order *order,
                                           int64_t asked_us, int64_t now_us, const struct weir_decision *decision,
                                           bool uses, struct weir_decision *out) REQUIRES(shard->mutex)
{
    *out = *decision;
    out->ahead = out->age_us = 0;
    const struct lease_rules rules = hybrid_rules(hybrid);
    struct account *account = request_account(hybrid, shard, request, now_us);
    if (account)
        account_keep_up(shard, account, &rules, request);
    account_answered(shard, account, &rules, order, asked_us, now_us, decision, uses);
    if (account)
        out->remaining = min_of(out->limit, out->remaining + lease_left(&account->lease, now_us));
    return account;
}

bool request_answered(struct hybrid *hybrid, const struct weir_backend_request *request,
                      const struct lease_order *order, int64_t asked_us, const struct weir_decision *decision,
                      struct weir_decision *out)
{
    const bool lacks = !order->whole && decision->allowed; /* the lacking permits have come: the lease decides */
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    bool decided = !lacks;
    if (request->now_us == WEIR_OWN_CLOCK)
        hybrid_note_trip(hybrid, now_us - asked_us);
    lock_take(&shard->mutex);
    struct account *account = request_take_answer(hybrid, shard, request, order, asked_us, now_us, decision,
                                                  !request->reservation, out);
    /* A denied request may be covered by permits that other requests have leased since. */
    if (account && (lacks || !decision->allowed) && lease_left(&account->lease, now_us) >= request->cost)
        decided = request_decide(shard, account, now_us, request, out) == LEASE_SPENT;
    lock_give(&shard->mutex);
    return decided;
}

void request_answered_in_group(struct hybrid *hybrid, const struct weir_backend_request *request,
                               const struct lease_order *order, int64_t asked_us, const struct weir_decision *decision,
                               struct weir_decision *out)
{
    if (request->slot) {
        *out = *decision;
        return;
    }
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    request_take_answer(hybrid, shard, request, order, asked_us, now_us, decision, false, out);
    lock_give(&shard->mutex);
}

void request_failed(struct hybrid *hybrid, const struct weir_backend_request *request, const struct lease_order *order)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account)
        lease_order_failed(&account->lease, order);
    lock_give(&shard->mutex);
}
