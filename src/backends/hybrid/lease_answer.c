/* lease_answer.c - sends lease calls, and serves their waiters by the answers. */
#include "backends/hybrid/lease_call.h"

#include "core/ground/arith.h"

#include <stdlib.h>

/* ---- Serving ---- */

struct ended {
    struct hybrid_waiter *first, **end;
};

static void ended_add(struct ended *ended, struct hybrid_waiter *waiter)
{
    waiter->next = NULL;
    *ended->end = waiter;
    ended->end = &waiter->next;
}

/* End the first waiter, whose request Redis has decided. If Redis denied it, permits that an earlier call leased
 * may still cover it. */
static void lease_call_end_leader(struct lease_call *call, struct account_shard *shard, struct account *account,
                                  int64_t now_us, struct ended *ended) REQUIRES(shard->mutex)
{
    struct hybrid_waiter *leader = lease_call_take_first(call);
    struct weir_decision *out = waiter_out(leader);
    const int64_t cost = waiter_cost(leader), left = account ? lease_left(&account->lease, now_us) : 0;
    *out = call->op.decision;
    out->ahead = out->age_us = 0;
    out->remaining = min_of(out->limit, out->remaining + left);
    waiter_note(leader, call->op.reservation.at_us);
    if (!out->allowed && left >= cost && lease_decide(&account->lease, now_us, cost, WEIR_TAKE, out) == LEASE_SPENT) {
        lease_note(&account->lease, now_us, cost, waiter_reservation(leader));
        shard->lease_hits++;
    }
    ended_add(ended, leader);
}

/* Serve the waiters in order. Once one of them needs Redis again, nothing more is spent, so that it is not
 * overtaken. Denials go on: by what is known, or, for waiters that were queued when the call was sent, by its
 * answer. */
static void lease_call_serve(struct lease_call *call, struct account_shard *shard, struct lease *lease, int64_t now_us,
                             struct ended *ended) REQUIRES(shard->mutex)
{
    struct hybrid_waiter *waiter = call->first;
    enum weir_verb verb = WEIR_TAKE;
    size_t present = call->present;
    call->first = NULL;
    call->end = &call->first;
    while (waiter) {
        struct hybrid_waiter *next = waiter->next;
        struct weir_decision decision;
        const int64_t cost = waiter_cost(waiter);
        const enum lease_answer answer = lease_decide(lease, now_us, cost, verb, &decision);
        const bool spent = answer == LEASE_SPENT && verb == WEIR_TAKE;
        const bool denied = answer == LEASE_DENIED || (answer == LEASE_UNDECIDED && present > 0 &&
                                                       lease_was_denied(lease, &call->order, call->asked_us, now_us,
                                                                        cost, &call->op.decision, &decision));
        if (spent || denied) {
            if (spent)
                lease_note(lease, now_us, cost, waiter_reservation(waiter));
            shard->lease_hits += spent;
            shard->denial_hits += denied;
            *waiter_out(waiter) = decision;
            ended_add(ended, waiter);
        } else {
            lease_call_add(call, waiter);
            verb = WEIR_PEEK;
        }
        present -= present > 0;
        waiter = next;
    }
}

/* Give each waiter behind the first a lone call. Returns those calls, to be sent together with this one. */
static struct lease_call *lease_call_split(struct lease_call *call, uint64_t era, int64_t now_us)
{
    struct lease_call *others = NULL, **end = &others;
    struct hybrid_waiter *waiter = call->first->next;
    call->first->next = NULL;
    call->end = &call->first->next;
    while (waiter) {
        struct hybrid_waiter *next = waiter->next;
        const struct lease_order order = { .era = era, .cost = waiter_cost(waiter), .whole = true };
        struct weir_backend_request request = call->request;
        request.key = waiter_key(waiter);
        request.now_us = waiter->now_us;
        *end = lease_call_make_lone(call->hybrid, &request, &order, now_us, waiter);
        if (*end)
            end = &(*end)->next;
        else
            lease_call_add(call, waiter); /* out of memory: it waits again */
        waiter = next;
    }
    return others;
}

/* Ask again for the waiters that are left: with one order if it can include what all need, otherwise with a call
 * for each, sent together; one call after another would make the last waiter too late. Returns the additional
 * calls. */
static struct lease_call *lease_call_ask_again(struct lease_call *call, struct lease *lease, int64_t now_us)
{
    const struct lease_rules rules = hybrid_rules(call->hybrid);
    const int64_t trip_us = atomic_load_explicit(&call->hybrid->trip_us, memory_order_relaxed);
    int64_t waiting = 0;
    for (struct hybrid_waiter *waiter = call->first->next; waiter; waiter = waiter->next)
        waiting += waiter_cost(waiter);
    const struct lease_order order = lease_make_order(lease, &rules, now_us, waiter_cost(call->first), waiting,
                                                      trip_us);
    struct lease_call *others = NULL;
    if (order.ahead < waiting)
        others = lease_call_split(call, order.era, now_us);
    call->deadline_us = INT64_MAX;
    call->present = 0;
    for (const struct hybrid_waiter *waiter = call->first; waiter; waiter = waiter->next) {
        call->deadline_us = min_of(call->deadline_us, waiter->deadline_us);
        call->present++;
    }
    call->request.now_us = call->first->now_us;
    call->is_led = true;
    lease_call_set_reservation(call);
    lease_call_set_order(call, &order, now_us);
    return others;
}

/* ---- The answer ---- */

/* The op that this thread is submitting. If its call ends during submit(), submit() returns the status and `done`
 * does not run. */
struct submitting {
    struct weir_op *op;
    bool ended;
    int status;
};
static _Thread_local struct submitting *submitting;

/* End the waiters with a status. A waiter may be gone as soon as its `done` runs or is set. The caller holds no
 * lock. */
static void lease_call_tell(struct account_shard *shard, struct hybrid_waiter *waiter, int status)
{
    bool rings = false;
    while (waiter) {
        struct hybrid_waiter *next = waiter->next;
        struct weir_op *op = waiter_op(waiter);
        if (op && submitting && submitting->op == op) {
            submitting->ended = true;
            submitting->status = status;
        } else if (op) {
            op->done(op, status);
        } else {
            struct hybrid_thread_waiter *thread = waiter_thread(waiter);
            thread->status = status;
            atomic_store_explicit(&thread->done, true, memory_order_release);
            rings = true;
        }
        waiter = next;
    }
    if (rings)
        bell_ring(&shard->bell);
}

/* Take the answer in and serve the waiters. Returns the calls to be sent next. This call is among them, or it is
 * freed. */
static struct lease_call *lease_call_finish(struct lease_call *call, int status)
{
    struct account_shard *shard = call->shard;
    const int64_t now_us = hybrid_time(call->hybrid, call->request.now_us);
    struct ended ended = { .end = &ended.first };
    struct lease_call *leaving = NULL;
    lock_take(&shard->mutex);
    shard->renewals -= call->is_renewal;
    call->is_renewal = false;
    struct account *account = account_find(shard, &call->request); /* a lone call's may be gone */
    const struct lease_rules rules = hybrid_rules(call->hybrid);
    if (account)
        account_keep_up(shard, account, &rules, &call->request);
    if (status == WEIR_OK) {
        if (call->request.now_us == WEIR_OWN_CLOCK)
            hybrid_note_trip(call->hybrid, now_us - call->asked_us);
        account_answered(shard, account, &rules, &call->order, call->asked_us, now_us, &call->op.decision,
                         call->is_led && !call->request.reservation);
        if (call->is_led && (call->order.whole || !call->op.decision.allowed))
            lease_call_end_leader(call, shard, account, now_us, &ended);
        if (!call->is_lone)
            lease_call_serve(call, shard, &account->lease, now_us, &ended);
    } else {
        if (account)
            lease_order_failed(&account->lease, &call->order);
        while (call->first)
            ended_add(&ended, lease_call_take_first(call));
    }
    if (call->first) {
        call->next = lease_call_ask_again(call, &account->lease, now_us);
        leaving = call;
    } else if (!call->is_lone) {
        account->call = NULL;
    }
    lock_give(&shard->mutex);
    lease_call_tell(shard, ended.first, status);
    if (!leaving)
        free(call);
    return leaving;
}

/* Runs on a thread of the remote. */
static void lease_call_answered(struct weir_op *op, int status)
{
    struct lease_call *call = (struct lease_call *)(void *)op; /* its first member */
    lease_call_submit(lease_call_finish(call, status));
}

void lease_call_submit(struct lease_call *call)
{
    while (call) {
        struct weir_backend *remote = call->hybrid->remote;
        struct lease_call *next = call->next;
        const struct weir_backend_request asked = hybrid_remote_request(&call->request, &call->order);
        call->next = NULL;
        call->op.done = lease_call_answered;
        const int status = remote->ops->submit(remote, &asked, call->deadline_us, &call->op);
        if (status != 1) {
            struct lease_call *leaving = lease_call_finish(call, status), **end = &leaving;
            while (*end)
                end = &(*end)->next;
            *end = next;
            next = leaving;
        }
        call = next;
    }
}

void lease_call_run(struct lease_call *call)
{
    struct weir_backend *remote = call->hybrid->remote;
    const struct weir_backend_request asked = hybrid_remote_request(&call->request, &call->order);
    const int status = remote->ops->decide(remote, &asked, 1, false, call->deadline_us, &call->op.decision);
    lease_call_submit(lease_call_finish(call, status));
}

int lease_call_submit_for(struct lease_call *call, struct weir_op *op)
{
    struct submitting own = { .op = op }, *outer = submitting;
    submitting = &own;
    lease_call_submit(call);
    submitting = outer;
    return own.ended ? own.status : 1;
}
