/* flight.c - flights: made, launched, landed, and those who wait served. */
#include "backends/hybrid/lease_call.h"

#include "core/limiter/own_ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TRIP_WEIGHT 8 /* the average moves by an eighth of the difference */

struct lease_call {
    struct weir_op op; /* the remote's */
    struct hybrid *hybrid;
    struct account_shard *shard;
    struct account *account;             /* stays while this is on its way; NULL: a request alone */
    struct weir_backend_request request; /* the first waiter's, or like it; with an account the key is the account's */
    struct lease_order order;
    int64_t asked_us, deadline_us;
    bool is_led; /* what is asked for is the first waiter's request */
    struct hybrid_waiter *first, **end;
    size_t present;          /* how many of them waited when it left: what it finds out holds for these */
    struct lease_call *next; /* of those that are to leave */
};

static int64_t waiter_cost(const struct hybrid_waiter *waiter)
{
    return waiter->op ? waiter->op->request.cost : ((const struct hybrid_thread_waiter *)(const void *)waiter)->cost;
}

static struct weir_key waiter_key(const struct hybrid_waiter *waiter)
{
    return waiter->op ? waiter->op->request.key : ((const struct hybrid_thread_waiter *)(const void *)waiter)->key;
}

static struct weir_decision *waiter_out(struct hybrid_waiter *waiter)
{
    return waiter->op ? &waiter->op->decision : ((struct hybrid_thread_waiter *)(void *)waiter)->out;
}

struct weir_backend_request hybrid_remote_request(const struct weir_backend_request *request,
                                                  const struct lease_order *order)
{
    struct weir_backend_request asked = *request;
    asked.verb = WEIR_TAKE;
    asked.cost = order->cost;
    asked.ahead = order->ahead;
    asked.spread = order->spread;
    return asked;
}

void hybrid_note_trip(struct hybrid *hybrid, int64_t trip_us)
{
    const int64_t known = atomic_load_explicit(&hybrid->trip_us, memory_order_relaxed);
    const int64_t moved = known == 0 ? trip_us : known + (trip_us - known) / TRIP_WEIGHT;
    atomic_store_explicit(&hybrid->trip_us, moved, memory_order_relaxed);
}

/* ---- Made ---- */

bool hybrid_is_answer_thread(const struct hybrid *hybrid)
{
    struct weir_backend *remote = hybrid->remote;
    const struct own_ops *own = own_ops(remote);
    return own && own->is_here && own->is_here(remote);
}

static void lease_call_answered(struct weir_op *op, int status);

static void lease_call_set_order(struct lease_call *call, const struct lease_order *order, int64_t asked_us)
{
    call->order = *order;
    call->asked_us = asked_us;
    call->op.request = (struct weir_request){
        .limit = call->request.limit,
        .key = call->request.key,
        .cost = order->cost,
        .now_us = call->request.now_us == WEIR_OWN_CLOCK ? 0 : call->request.now_us,
    };
}

static struct lease_call *make(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us)
{
    struct lease_call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->hybrid = hybrid;
    call->shard = account_shard(&hybrid->accounts, request->hash);
    call->request = *request;
    call->deadline_us = deadline_us;
    call->op.done = lease_call_answered;
    call->end = &call->first;
    return call;
}

static void join(struct lease_call *call, struct hybrid_waiter *waiter)
{
    waiter->next = NULL;
    *call->end = waiter;
    call->end = &waiter->next;
}

struct lease_call *lease_call_make_ahead(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                         const struct weir_backend_request *request, const struct lease_order *order,
                                         int64_t asked_us, int64_t deadline_us)
{
    assert(!account->call && shard == account_shard(&hybrid->accounts, request->hash));
    struct lease_call *call = make(hybrid, request, deadline_us);
    if (call) {
        call->account = account;
        call->request.key = weir_key(account->key, account->hh.keylen);
        lease_call_set_order(call, order, asked_us);
        account->call = call;
    }
    (void)shard; /* for the lock */
    return call;
}

struct lease_call *lease_call_make(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                   const struct weir_backend_request *request, const struct lease_order *order,
                                   int64_t asked_us, struct hybrid_waiter *waiter)
{
    struct lease_call *call = lease_call_make_ahead(hybrid, shard, account, request, order, asked_us,
                                                    waiter->deadline_us);
    if (call) {
        join(call, waiter);
        call->is_led = true;
        call->present = 1;
    }
    return call;
}

struct lease_call *lease_call_make_lone(struct hybrid *hybrid, const struct weir_backend_request *request,
                                        const struct lease_order *order, int64_t asked_us, struct hybrid_waiter *waiter)
{
    assert(order->whole);
    struct lease_call *call = make(hybrid, request, waiter->deadline_us);
    if (call) {
        lease_call_set_order(call, order, asked_us);
        join(call, waiter);
        call->is_led = true;
        call->present = 1;
    }
    return call;
}

/* ---- Who waits ---- */

/* A time that a request brings stands still while it waits, so none such is waited behind: what has been leased
 * meanwhile may have ended by the clock of who waits. */
bool lease_call_join(struct account *account, const struct weir_backend_request *request, struct hybrid_waiter *waiter)
{
    struct lease_call *call = account->call;
    if (!call || call->request.now_us != WEIR_OWN_CLOCK || call->deadline_us > waiter->deadline_us ||
        call->request.limit != request->limit)
        return false;
    join(call, waiter);
    return true;
}

bool lease_call_has_waiters(const struct lease_call *call)
{
    return call->first != NULL;
}

void lease_call_forget(struct account *account)
{
    free(account->call);
    account->call = NULL;
}

static struct hybrid_waiter *leave(struct lease_call *call)
{
    struct hybrid_waiter *waiter = call->first;
    call->present -= call->present > 0;
    call->first = waiter->next;
    if (!call->first)
        call->end = &call->first;
    return waiter;
}

/* ---- Landed ---- */

struct ended {
    struct hybrid_waiter *first, **end;
};

static void end_waiter(struct ended *ended, struct hybrid_waiter *waiter)
{
    waiter->next = NULL;
    *ended->end = waiter;
    ended->end = &waiter->next;
}

/* The request that led the flight was decided by Redis itself; but where it was denied, permits may have been leased by
 * a flight that landed before. */
static void end_leader(struct lease_call *call, struct account_shard *shard, struct account *account, int64_t now_us,
                       struct ended *ended) REQUIRES(shard->mutex)
{
    struct hybrid_waiter *leader = leave(call);
    struct weir_decision *out = waiter_out(leader);
    const int64_t cost = waiter_cost(leader), left = account ? lease_left(&account->lease, now_us) : 0;
    *out = call->op.decision;
    out->ahead = 0;
    out->remaining = min_of(out->limit, out->remaining + left);
    if (!out->allowed && left >= cost && lease_decide(&account->lease, now_us, cost, WEIR_TAKE, out) == LEASE_SPENT)
        shard->lease_hits++;
    end_waiter(ended, leader);
}

/* Serve those who wait, in their order. Behind one whom Redis must be asked for nothing is spent any more, but who is
 * denied is told so: by what is known, or, if he waited when the flight left, by what it has found. */
static void serve(struct lease_call *call, struct account_shard *shard, int64_t now_us, struct ended *ended)
    REQUIRES(shard->mutex)
{
    struct lease *lease = &call->account->lease;
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
            shard->lease_hits += spent;
            shard->denial_hits += denied;
            *waiter_out(waiter) = decision;
            end_waiter(ended, waiter);
        } else {
            join(call, waiter);
            verb = WEIR_PEEK;
        }
        present -= present > 0;
        waiter = next;
    }
}

/* All behind the first ask for themselves, and leave with him. Returns their flights. */
static struct lease_call *part(struct lease_call *call, uint64_t era, int64_t now_us)
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
            join(call, waiter); /* no memory: he waits once more */
        waiter = next;
    }
    return others;
}

/* Ask for those who wait still: for all together if as much can be asked for ahead as the others need, or else for each
 * at once, for one after another the last would be too late. Returns the flights that leave beside this one. */
static struct lease_call *ask_again(struct lease_call *call, int64_t now_us)
{
    struct lease *lease = &call->account->lease;
    const struct lease_rules rules = hybrid_rules(call->hybrid);
    const int64_t trip_us = atomic_load_explicit(&call->hybrid->trip_us, memory_order_relaxed);
    int64_t waiting = 0;
    for (const struct hybrid_waiter *waiter = call->first->next; waiter; waiter = waiter->next)
        waiting += waiter_cost(waiter);
    const struct lease_order order = lease_make_order(lease, &rules, now_us, waiter_cost(call->first), waiting,
                                                      trip_us);
    struct lease_call *others = NULL;
    if (order.ahead < waiting)
        others = part(call, order.era, now_us);
    call->deadline_us = INT64_MAX;
    call->present = 0;
    for (const struct hybrid_waiter *waiter = call->first; waiter; waiter = waiter->next) {
        call->deadline_us = min_of(call->deadline_us, waiter->deadline_us);
        call->present++;
    }
    call->request.now_us = call->first->now_us;
    call->is_led = true;
    lease_call_set_order(call, &order, now_us);
    return others;
}

/* The op that this thread is submitting: where its flight ends at once its `done` does not run, submit() says so. */
struct submitting {
    struct weir_op *op;
    bool ended;
    int status;
};
static _Thread_local struct submitting *submitting;

/* No lock is held. Who was told may be gone at once. */
static void tell(struct account_shard *shard, struct hybrid_waiter *waiter, int status)
{
    bool rings = false;
    while (waiter) {
        struct hybrid_waiter *next = waiter->next;
        struct weir_op *op = waiter->op;
        if (op && submitting && submitting->op == op) {
            submitting->ended = true;
            submitting->status = status;
        } else if (op) {
            op->done(op, status);
        } else {
            struct hybrid_thread_waiter *caller = (struct hybrid_thread_waiter *)(void *)waiter;
            caller->status = status;
            atomic_store_explicit(&caller->done, true, memory_order_release);
            rings = true;
        }
        waiter = next;
    }
    if (rings)
        bell_ring(&shard->bell);
}

/* Take in what the flight has brought. Returns the flights that leave next, this one among them or not: then it is
 * gone. */
static struct lease_call *land(struct lease_call *call, int status)
{
    struct account_shard *shard = call->shard;
    const int64_t now_us = hybrid_time(call->hybrid, call->request.now_us);
    struct ended ended = { .end = &ended.first };
    struct lease_call *leaving = NULL;
    lock_take(&shard->mutex);
    struct account *account = call->account ? call->account : account_find(shard, &call->request);
    if (account)
        account_keep_up(shard, account, &call->request);
    if (status == WEIR_OK) {
        if (call->request.now_us == WEIR_OWN_CLOCK)
            hybrid_note_trip(call->hybrid, now_us - call->asked_us);
        const struct lease_rules rules = hybrid_rules(call->hybrid);
        account_answered(shard, account, &rules, &call->order, call->asked_us, now_us, &call->op.decision);
        if (call->is_led && (call->order.whole || !call->op.decision.allowed))
            end_leader(call, shard, account, now_us, &ended);
        if (call->account)
            serve(call, shard, now_us, &ended);
    } else {
        if (account)
            lease_order_failed(&account->lease, &call->order);
        while (call->first)
            end_waiter(&ended, leave(call));
    }
    if (call->first) {
        call->next = ask_again(call, now_us);
        leaving = call;
    } else if (call->account) {
        call->account->call = NULL;
    }
    lock_give(&shard->mutex);
    tell(shard, ended.first, status);
    if (!leaving)
        free(call);
    return leaving;
}

void lease_call_send(struct lease_call *call)
{
    while (call) {
        struct weir_backend *remote = call->hybrid->remote;
        struct lease_call *next = call->next;
        const struct weir_backend_request asked = hybrid_remote_request(&call->request, &call->order);
        call->next = NULL;
        const int status = remote->ops->submit(remote, &asked, call->deadline_us, &call->op);
        if (status != 1) {
            struct lease_call *leaving = land(call, status), **end = &leaving;
            while (*end)
                end = &(*end)->next;
            *end = next;
            next = leaving;
        }
        call = next;
    }
}

int lease_call_send_for(struct lease_call *call, struct weir_op *op)
{
    struct submitting own = { .op = op }, *outer = submitting;
    submitting = &own;
    lease_call_send(call);
    submitting = outer;
    return own.ended ? own.status : 1;
}

/* On a thread of the remote's. */
static void lease_call_answered(struct weir_op *op, int status)
{
    struct lease_call *call = (struct lease_call *)(void *)op; /* its first member */
    lease_call_send(land(call, status));
}
