/* hybrid_flight.c - flights: made, launched, landed, and those who wait served. */
#include "backends/hybrid_flight.h"

#include "core/arith.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TRIP_WEIGHT 8 /* the average moves by an eighth of the difference */

struct hybrid_flight {
    struct weir_op op; /* the remote's */
    struct hybrid *hybrid;
    struct account_shard *shard;
    struct account *account;             /* stays while this is on its way; NULL: a request alone */
    struct weir_backend_request request; /* of the first who waits; its key is the account's */
    struct lease_ask ask;
    int64_t asked_us, deadline_us;
    bool is_led;  /* what is asked for is the first waiter's request */
    bool is_void; /* the key was reset meanwhile */
    struct hybrid_waiter *first, **end;
    int64_t waiting;            /* what all but the first ask for */
    int64_t present;            /* how many of them waited when it left: what it finds out holds for these */
    struct hybrid_flight *next; /* of those that part from another */
};

static int64_t waiter_cost(const struct hybrid_waiter *waiter)
{
    return waiter->op ? waiter->op->request.cost : ((const struct hybrid_caller *)(const void *)waiter)->cost;
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

/* ---- Under the shard's mutex ---- */

bool flight_join(struct account *account, struct hybrid_waiter *waiter, int64_t cost)
{
    struct hybrid_flight *flight = account->flight;
    if (!flight || flight->deadline_us > waiter->deadline_us)
        return false;
    waiter->next = NULL;
    *flight->end = waiter;
    flight->end = &waiter->next;
    flight->waiting += cost;
    return true;
}

bool flight_has_waiters(const struct hybrid_flight *flight)
{
    return flight->first != NULL;
}

void flight_disown(struct account *account)
{
    if (account->flight)
        account->flight->is_void = true;
}

void flight_forget(struct account *account)
{
    free(account->flight);
    account->flight = NULL;
}

static void flight_set(struct hybrid_flight *flight, const struct lease_ask *ask, int64_t asked_us)
{
    flight->ask = *ask;
    flight->asked_us = asked_us;
    flight->is_void = false;
    flight->op.request = (struct weir_request){
        .limit = flight->request.limit,
        .key = flight->request.key,
        .cost = ask->cost,
        .now_us = flight->request.now_us == WEIR_OWN_CLOCK ? 0 : flight->request.now_us,
    };
}

static void flight_landed(struct weir_op *op, int status);

static _Thread_local const struct hybrid *lands_here;

bool flight_lands_here(const struct hybrid *hybrid)
{
    return lands_here == hybrid;
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

/* Whose request it is that the flight asks for. */
static void lead(struct hybrid_flight *flight, struct hybrid_waiter *waiter)
{
    waiter->next = NULL;
    flight->first = waiter;
    flight->end = &waiter->next;
    flight->is_led = true;
    flight->present = 1;
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
    if (flight)
        lead(flight, waiter);
    return flight;
}

struct hybrid_flight *flight_make_lone(struct hybrid *hybrid, const struct weir_backend_request *request,
                                       struct hybrid_waiter *waiter)
{
    const struct lease_ask ask = { .cost = request->cost, .whole = true };
    struct hybrid_flight *flight = make(hybrid, request, waiter->deadline_us);
    if (flight) {
        flight_set(flight, &ask, hybrid_time(hybrid, request->now_us));
        lead(flight, waiter);
    }
    return flight;
}

static struct hybrid_waiter *pop(struct hybrid_flight *flight)
{
    struct hybrid_waiter *waiter = flight->first;
    flight->first = waiter->next;
    flight->present = max_of(0, flight->present - 1);
    if (!flight->first)
        flight->end = &flight->first;
    else
        flight->waiting -= waiter_cost(flight->first);
    return waiter;
}

struct ended {
    struct hybrid_waiter *first, **end;
};

static void end_waiter(struct ended *ended, struct hybrid_waiter *waiter)
{
    waiter->next = NULL;
    *ended->end = waiter;
    ended->end = &waiter->next;
}

/* The request that led the flight was decided by Redis itself. */
static void end_leader(struct hybrid_flight *flight, struct ended *ended, int64_t now_us)
{
    struct hybrid_waiter *leader = pop(flight);
    struct weir_decision *out = waiter_out(leader);
    *out = flight->op.decision;
    out->ahead = 0;
    if (flight->account)
        out->remaining += lease_left(&flight->account->lease, now_us);
    flight->is_led = false;
    end_waiter(ended, leader);
}

/* Whether the first who waits did so when the flight left, and it has shown that there is nothing for him. */
static bool was_denied(struct hybrid_flight *flight, int64_t now_us, struct weir_decision *out)
    REQUIRES(flight->shard->mutex)
{
    return flight->present > 0 && !flight->is_void &&
           lease_was_denied(&flight->account->lease, &flight->ask, flight->asked_us, now_us, waiter_cost(flight->first),
                            &flight->op.decision, out);
}

/* Serve those who wait, in their order, until there is one that Redis must be asked for. */
static void serve(struct hybrid_flight *flight, struct ended *ended, int64_t now_us) REQUIRES(flight->shard->mutex)
{
    struct account_shard *shard = flight->shard;
    while (flight->first) {
        struct weir_decision decision;
        const enum lease_answer answer = lease_decide(&flight->account->lease, now_us, waiter_cost(flight->first),
                                                      WEIR_TAKE, &decision);
        if (answer == LEASE_ASK && !was_denied(flight, now_us, &decision))
            return;
        shard->lease_hits += answer == LEASE_SPENT;
        shard->denial_hits += answer != LEASE_SPENT;
        struct hybrid_waiter *waiter = pop(flight);
        *waiter_out(waiter) = decision;
        end_waiter(ended, waiter);
    }
}

/* Those behind the first for whom the next answer will not be enough, `served` permits beside his, ask for themselves and
 * at once: one after another the last would be served when it is too late. Callers' threads stay, for the key's bytes are
 * not known here. */
static struct hybrid_flight *part(struct hybrid_flight *flight, int64_t served, int64_t now_us, struct ended *ended)
    REQUIRES(flight->shard->mutex)
{
    struct hybrid_flight *parted = NULL, **end = &parted;
    struct hybrid_waiter **place = &flight->first->next;
    while (*place) {
        struct hybrid_waiter *waiter = *place, *next = waiter->next;
        struct weir_backend_request request = flight->request;
        struct hybrid_flight *lone = NULL;
        struct weir_decision decision;
        if (lease_decide(&flight->account->lease, now_us, waiter_cost(waiter), WEIR_PEEK, &decision) == LEASE_DENIED) {
            flight->shard->denial_hits++;
            flight->waiting -= waiter_cost(waiter);
            *place = next;
            *waiter_out(waiter) = decision;
            end_waiter(ended, waiter);
            continue;
        }
        const bool denied = lease_denies(&flight->account->lease, now_us, waiter_cost(waiter)); /* but for a lease */
        if (waiter->op && waiter_cost(waiter) > served && !denied) {
            request.key = waiter->op->request.key;
            request.cost = waiter_cost(waiter);
            request.now_us = waiter->now_us;
            lone = flight_make_lone(flight->hybrid, &request, waiter);
        }
        if (lone) {
            flight->waiting -= request.cost;
            *place = next;
            *end = lone;
            end = &lone->next;
        } else {
            served = max_of(0, served - waiter_cost(waiter));
            place = &waiter->next;
        }
    }
    flight->end = place;
    return parted;
}

/* For those who still wait. It must end by the earliest of their deadlines. Returns those that part from it. */
static struct hybrid_flight *ask_again(struct hybrid_flight *flight, const struct lease_rules *rules, int64_t now_us,
                                       struct ended *ended) REQUIRES(flight->shard->mutex)
{
    struct lease *lease = &flight->account->lease;
    const struct lease_ask ask = lease_ask(lease, rules, now_us, waiter_cost(flight->first), flight->waiting,
                                           atomic_load_explicit(&flight->hybrid->trip_us, memory_order_relaxed));
    struct hybrid_flight *parted = ask.ahead < flight->waiting ? part(flight, ask.ahead, now_us, ended) : NULL;
    flight->present = 0;
    flight->deadline_us = INT64_MAX;
    for (const struct hybrid_waiter *waiter = flight->first; waiter; waiter = waiter->next) {
        flight->deadline_us = min_of(flight->deadline_us, waiter->deadline_us);
        flight->present++;
    }
    flight->request.now_us = flight->first->now_us;
    flight->is_led = true;
    flight_set(flight, &ask, now_us);
    return parted;
}

/* ---- No lock is held ---- */

static void tell(struct hybrid_flight *flight, struct hybrid_waiter *waiter, int status)
{
    bool rings = false;
    struct bell *bell = &flight->shard->bell;
    while (waiter) { /* who was told may be gone at once */
        struct hybrid_waiter *next = waiter->next;
        struct weir_op *op = waiter->op;
        if (op) {
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
        bell_ring(bell);
}

/* A request alone leases nothing, but what is denied is denied for all. */
static void lone_landed(struct hybrid_flight *flight, const struct lease_rules *rules, int64_t now_us)
    REQUIRES(flight->shard->mutex)
{
    struct account *account = account_find(flight->shard, &flight->request);
    if (!account || account->by_caller || flight->request.now_us != WEIR_OWN_CLOCK ||
        account->lease.version != flight->request.plan_version || flight->asked_us <= account->forgotten_us)
        return;
    lease_land(&account->lease, rules, &flight->ask, flight->asked_us, now_us, &flight->op.decision);
}

/* Take in what the flight has brought. Returns whether it has to leave once more. */
static bool land(struct hybrid_flight *flight, int status)
{
    struct hybrid *hybrid = flight->hybrid;
    struct account_shard *shard = flight->shard;
    const struct lease_rules rules = hybrid_rules(hybrid);
    const int64_t now_us = hybrid_time(hybrid, flight->request.now_us);
    struct ended ended = { .end = &ended.first };
    struct hybrid_flight *parted = NULL;
    lock_take(&shard->mutex);
    struct account *account = flight->account;
    if (status == WEIR_OK) {
        hybrid_note_trip(hybrid, now_us - flight->asked_us);
        if (!account)
            lone_landed(flight, &rules, now_us);
        if (account && !flight->is_void) {
            lease_land(&account->lease, &rules, &flight->ask, flight->asked_us, now_us, &flight->op.decision);
            shard->leased += (uint64_t)flight->op.decision.ahead;
            account_count_lost(shard, account);
        }
        if (flight->is_led && (flight->ask.whole || !flight->op.decision.allowed))
            end_leader(flight, &ended, now_us);
        serve(flight, &ended, now_us);
    } else {
        if (account && !flight->is_void)
            lease_ask_failed(&account->lease, &flight->ask);
        while (flight->first)
            end_waiter(&ended, pop(flight));
    }
    const bool again = flight->first != NULL;
    if (again)
        parted = ask_again(flight, &rules, now_us, &ended);
    else if (account)
        account->flight = NULL;
    lock_give(&shard->mutex);
    tell(flight, ended.first, status);
    while (parted) {
        struct hybrid_flight *next = parted->next;
        flight_launch(parted);
        parted = next;
    }
    return again;
}

void flight_launch(struct hybrid_flight *flight)
{
    struct weir_backend *remote = flight->hybrid->remote;
    for (;;) {
        const struct weir_backend_request asked = hybrid_asked(&flight->request, &flight->ask);
        const int status = remote->ops->submit(remote, &asked, flight->deadline_us, &flight->op);
        if (status == 1)
            return;
        if (!land(flight, status))
            break;
    }
    free(flight);
}

/* On a thread of the remote's. */
static void flight_landed(struct weir_op *op, int status)
{
    struct hybrid_flight *flight = (struct hybrid_flight *)(void *)op; /* its first member */
    lands_here = flight->hybrid;
    if (land(flight, status))
        flight_launch(flight);
    else
        free(flight);
}
