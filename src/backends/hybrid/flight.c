/* flight.c - flights: made, launched, landed, and those who wait served. */
#include "backends/hybrid/flight.h"

#include "core/limiter/own_ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TRIP_WEIGHT 8 /* the average moves by an eighth of the difference */

struct hybrid_flight {
    struct weir_op op; /* the remote's */
    struct hybrid *hybrid;
    struct account_shard *shard;
    struct account *account;             /* stays while this is on its way; NULL: a request alone */
    struct weir_backend_request request; /* the first waiter's, or like it; with an account the key is the account's */
    struct lease_ask ask;
    int64_t asked_us, deadline_us;
    bool is_led; /* what is asked for is the first waiter's request */
    struct hybrid_waiter *first, **end;
    size_t present;             /* how many of them waited when it left: what it finds out holds for these */
    struct hybrid_flight *next; /* of those that are to leave */
};

static int64_t waiter_cost(const struct hybrid_waiter *waiter)
{
    return waiter->op ? waiter->op->request.cost : ((const struct hybrid_caller *)(const void *)waiter)->cost;
}

static struct weir_key waiter_key(const struct hybrid_waiter *waiter)
{
    return waiter->op ? waiter->op->request.key : ((const struct hybrid_caller *)(const void *)waiter)->key;
}

static struct weir_decision *waiter_out(struct hybrid_waiter *waiter)
{
    return waiter->op ? &waiter->op->decision : ((struct hybrid_caller *)(void *)waiter)->out;
}

struct weir_backend_request hybrid_asked(const struct weir_backend_request *request, const struct lease_ask *ask)
{
    struct weir_backend_request asked = *request;
    asked.verb = WEIR_TAKE;
    asked.cost = ask->cost;
    asked.ahead = ask->ahead;
    asked.spread = ask->spread;
    return asked;
}

void hybrid_note_trip(struct hybrid *hybrid, int64_t trip_us)
{
    const int64_t known = atomic_load_explicit(&hybrid->trip_us, memory_order_relaxed);
    const int64_t moved = known == 0 ? trip_us : known + (trip_us - known) / TRIP_WEIGHT;
    atomic_store_explicit(&hybrid->trip_us, moved, memory_order_relaxed);
}

/* ---- Made ---- */

bool flight_lands_here(const struct hybrid *hybrid)
{
    struct weir_backend *remote = hybrid->remote;
    const struct own_ops *own = own_ops(remote);
    return own && own->is_here && own->is_here(remote);
}

static void flight_landed(struct weir_op *op, int status);

static void flight_set(struct hybrid_flight *flight, const struct lease_ask *ask, int64_t asked_us)
{
    flight->ask = *ask;
    flight->asked_us = asked_us;
    flight->op.request = (struct weir_request){
        .limit = flight->request.limit,
        .key = flight->request.key,
        .cost = ask->cost,
        .now_us = flight->request.now_us == WEIR_OWN_CLOCK ? 0 : flight->request.now_us,
    };
}

static struct hybrid_flight *make(struct hybrid *hybrid, const struct weir_backend_request *request,
                                  int64_t deadline_us)
{
    struct hybrid_flight *flight = calloc(1, sizeof *flight);
    if (!flight)
        return NULL;
    flight->hybrid = hybrid;
    flight->shard = account_shard(&hybrid->accounts, request->hash);
    flight->request = *request;
    flight->deadline_us = deadline_us;
    flight->op.done = flight_landed;
    flight->end = &flight->first;
    return flight;
}

static void join(struct hybrid_flight *flight, struct hybrid_waiter *waiter)
{
    waiter->next = NULL;
    *flight->end = waiter;
    flight->end = &waiter->next;
}

struct hybrid_flight *flight_make_ahead(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                        const struct weir_backend_request *request, const struct lease_ask *ask,
                                        int64_t asked_us, int64_t deadline_us)
{
    assert(!account->flight && shard == account_shard(&hybrid->accounts, request->hash));
    struct hybrid_flight *flight = make(hybrid, request, deadline_us);
    if (flight) {
        flight->account = account;
        flight->request.key = weir_key(account->key, account->hh.keylen);
        flight_set(flight, ask, asked_us);
        account->flight = flight;
    }
    (void)shard; /* for the lock */
    return flight;
}

struct hybrid_flight *flight_make(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                  const struct weir_backend_request *request, const struct lease_ask *ask,
                                  int64_t asked_us, struct hybrid_waiter *waiter)
{
    struct hybrid_flight *flight = flight_make_ahead(hybrid, shard, account, request, ask, asked_us,
                                                     waiter->deadline_us);
    if (flight) {
        join(flight, waiter);
        flight->is_led = true;
        flight->present = 1;
    }
    return flight;
}

struct hybrid_flight *flight_make_lone(struct hybrid *hybrid, const struct weir_backend_request *request,
                                       const struct lease_ask *ask, int64_t asked_us, struct hybrid_waiter *waiter)
{
    assert(ask->whole);
    struct hybrid_flight *flight = make(hybrid, request, waiter->deadline_us);
    if (flight) {
        flight_set(flight, ask, asked_us);
        join(flight, waiter);
        flight->is_led = true;
        flight->present = 1;
    }
    return flight;
}

/* ---- Who waits ---- */

/* A time that a request brings stands still while it waits, so none such is waited behind: what has been leased
 * meanwhile may have ended by the clock of who waits. */
bool flight_join(struct account *account, const struct weir_backend_request *request, struct hybrid_waiter *waiter)
{
    struct hybrid_flight *flight = account->flight;
    if (!flight || flight->request.now_us != WEIR_OWN_CLOCK || flight->deadline_us > waiter->deadline_us ||
        flight->request.limit != request->limit)
        return false;
    join(flight, waiter);
    return true;
}

bool flight_has_waiters(const struct hybrid_flight *flight)
{
    return flight->first != NULL;
}

void flight_forget(struct account *account)
{
    free(account->flight);
    account->flight = NULL;
}

static struct hybrid_waiter *leave(struct hybrid_flight *flight)
{
    struct hybrid_waiter *waiter = flight->first;
    flight->present -= flight->present > 0;
    flight->first = waiter->next;
    if (!flight->first)
        flight->end = &flight->first;
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
static void end_leader(struct hybrid_flight *flight, struct account_shard *shard, struct account *account,
                       int64_t now_us, struct ended *ended) REQUIRES(shard->mutex)
{
    struct hybrid_waiter *leader = leave(flight);
    struct weir_decision *out = waiter_out(leader);
    const int64_t cost = waiter_cost(leader), left = account ? lease_left(&account->lease, now_us) : 0;
    *out = flight->op.decision;
    out->ahead = 0;
    out->remaining = min_of(out->limit, out->remaining + left);
    if (!out->allowed && left >= cost && lease_decide(&account->lease, now_us, cost, WEIR_TAKE, out) == LEASE_SPENT)
        shard->lease_hits++;
    end_waiter(ended, leader);
}

/* Serve those who wait, in their order. Behind one whom Redis must be asked for nothing is spent any more, but who is
 * denied is told so: by what is known, or, if he waited when the flight left, by what it has found. */
static void serve(struct hybrid_flight *flight, struct account_shard *shard, int64_t now_us, struct ended *ended)
    REQUIRES(shard->mutex)
{
    struct lease *lease = &flight->account->lease;
    struct hybrid_waiter *waiter = flight->first;
    enum weir_verb verb = WEIR_TAKE;
    size_t present = flight->present;
    flight->first = NULL;
    flight->end = &flight->first;
    while (waiter) {
        struct hybrid_waiter *next = waiter->next;
        struct weir_decision decision;
        const int64_t cost = waiter_cost(waiter);
        const enum lease_answer answer = lease_decide(lease, now_us, cost, verb, &decision);
        const bool spent = answer == LEASE_SPENT && verb == WEIR_TAKE;
        const bool denied = answer == LEASE_DENIED || (answer == LEASE_ASK && present > 0 &&
                                                       lease_was_denied(lease, &flight->ask, flight->asked_us, now_us,
                                                                        cost, &flight->op.decision, &decision));
        if (spent || denied) {
            shard->lease_hits += spent;
            shard->denial_hits += denied;
            *waiter_out(waiter) = decision;
            end_waiter(ended, waiter);
        } else {
            join(flight, waiter);
            verb = WEIR_PEEK;
        }
        present -= present > 0;
        waiter = next;
    }
}

/* All behind the first ask for themselves, and leave with him. Returns their flights. */
static struct hybrid_flight *part(struct hybrid_flight *flight, uint64_t era, int64_t now_us)
{
    struct hybrid_flight *others = NULL, **end = &others;
    struct hybrid_waiter *waiter = flight->first->next;
    flight->first->next = NULL;
    flight->end = &flight->first->next;
    while (waiter) {
        struct hybrid_waiter *next = waiter->next;
        const struct lease_ask ask = { .era = era, .cost = waiter_cost(waiter), .whole = true };
        struct weir_backend_request request = flight->request;
        request.key = waiter_key(waiter);
        request.now_us = waiter->now_us;
        *end = flight_make_lone(flight->hybrid, &request, &ask, now_us, waiter);
        if (*end)
            end = &(*end)->next;
        else
            join(flight, waiter); /* no memory: he waits once more */
        waiter = next;
    }
    return others;
}

/* Ask for those who wait still: for all together if as much can be asked for ahead as the others need, or else for each
 * at once, for one after another the last would be too late. Returns the flights that leave beside this one. */
static struct hybrid_flight *ask_again(struct hybrid_flight *flight, int64_t now_us)
{
    struct lease *lease = &flight->account->lease;
    const struct lease_rules rules = hybrid_rules(flight->hybrid);
    const int64_t trip_us = atomic_load_explicit(&flight->hybrid->trip_us, memory_order_relaxed);
    int64_t waiting = 0;
    for (const struct hybrid_waiter *waiter = flight->first->next; waiter; waiter = waiter->next)
        waiting += waiter_cost(waiter);
    const struct lease_ask ask = lease_ask(lease, &rules, now_us, waiter_cost(flight->first), waiting, trip_us);
    struct hybrid_flight *others = NULL;
    if (ask.ahead < waiting)
        others = part(flight, ask.era, now_us);
    flight->deadline_us = INT64_MAX;
    flight->present = 0;
    for (const struct hybrid_waiter *waiter = flight->first; waiter; waiter = waiter->next) {
        flight->deadline_us = min_of(flight->deadline_us, waiter->deadline_us);
        flight->present++;
    }
    flight->request.now_us = flight->first->now_us;
    flight->is_led = true;
    flight_set(flight, &ask, now_us);
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
            struct hybrid_caller *caller = (struct hybrid_caller *)(void *)waiter;
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
static struct hybrid_flight *land(struct hybrid_flight *flight, int status)
{
    struct account_shard *shard = flight->shard;
    const int64_t now_us = hybrid_time(flight->hybrid, flight->request.now_us);
    struct ended ended = { .end = &ended.first };
    struct hybrid_flight *leaving = NULL;
    lock_take(&shard->mutex);
    struct account *account = flight->account ? flight->account : account_find(shard, &flight->request);
    if (account)
        account_keep_up(shard, account, &flight->request);
    if (status == WEIR_OK) {
        if (flight->request.now_us == WEIR_OWN_CLOCK)
            hybrid_note_trip(flight->hybrid, now_us - flight->asked_us);
        const struct lease_rules rules = hybrid_rules(flight->hybrid);
        account_land(shard, account, &rules, &flight->ask, flight->asked_us, now_us, &flight->op.decision);
        if (flight->is_led && (flight->ask.whole || !flight->op.decision.allowed))
            end_leader(flight, shard, account, now_us, &ended);
        if (flight->account)
            serve(flight, shard, now_us, &ended);
    } else {
        if (account)
            lease_ask_failed(&account->lease, &flight->ask);
        while (flight->first)
            end_waiter(&ended, leave(flight));
    }
    if (flight->first) {
        flight->next = ask_again(flight, now_us);
        leaving = flight;
    } else if (flight->account) {
        flight->account->flight = NULL;
    }
    lock_give(&shard->mutex);
    tell(shard, ended.first, status);
    if (!leaving)
        free(flight);
    return leaving;
}

void flight_launch(struct hybrid_flight *flight)
{
    while (flight) {
        struct weir_backend *remote = flight->hybrid->remote;
        struct hybrid_flight *next = flight->next;
        const struct weir_backend_request asked = hybrid_asked(&flight->request, &flight->ask);
        flight->next = NULL;
        const int status = remote->ops->submit(remote, &asked, flight->deadline_us, &flight->op);
        if (status != 1) {
            struct hybrid_flight *leaving = land(flight, status), **end = &leaving;
            while (*end)
                end = &(*end)->next;
            *end = next;
            next = leaving;
        }
        flight = next;
    }
}

int flight_launch_for(struct hybrid_flight *flight, struct weir_op *op)
{
    struct submitting own = { .op = op }, *outer = submitting;
    submitting = &own;
    flight_launch(flight);
    submitting = outer;
    return own.ended ? own.status : 1;
}

/* On a thread of the remote's. */
static void flight_landed(struct weir_op *op, int status)
{
    struct hybrid_flight *flight = (struct hybrid_flight *)(void *)op; /* its first member */
    flight_launch(land(flight, status));
}
