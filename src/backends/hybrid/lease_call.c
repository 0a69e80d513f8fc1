/* lease_call.c - makes lease calls, and queues their waiters. */
#include "backends/hybrid/lease_call.h"

#include "core/limiter/own_ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TRIP_WEIGHT 8 /* the average moves by an eighth of the difference */

struct weir_backend_request hybrid_remote_request(const struct weir_backend_request *request,
                                                  const struct lease_order *order)
{
    struct weir_backend_request asked = *request;
    asked.verb = WEIR_TAKE;
    asked.cost = order->cost;
    asked.ahead = order->ahead;
    asked.spread = (uint16_t)order->spread;
    return asked;
}

void hybrid_note_trip(struct hybrid *hybrid, int64_t trip_us)
{
    const int64_t known = atomic_load_explicit(&hybrid->trip_us, memory_order_relaxed);
    const int64_t moved = known == 0 ? trip_us : known + (trip_us - known) / TRIP_WEIGHT;
    atomic_store_explicit(&hybrid->trip_us, moved, memory_order_relaxed);
}

/* ---- Making calls ---- */

bool hybrid_is_answer_thread(const struct hybrid *hybrid)
{
    struct weir_backend *remote = hybrid->remote;
    const struct own_ops *own = own_ops(remote);
    return own && own->is_here && own->is_here(remote);
}

void lease_call_set_order(struct lease_call *call, const struct lease_order *order, int64_t asked_us)
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

static struct lease_call *lease_call_new(struct hybrid *hybrid, const struct weir_backend_request *request,
                                         int64_t deadline_us)
{
    struct lease_call *call = calloc(1, sizeof *call + request->key.len);
    if (!call)
        return NULL;
    call->hybrid = hybrid;
    call->shard = account_shard(&hybrid->accounts, request->hash);
    call->request = *request;
    call->request.key = weir_key(call->key, request->key.len);
    call->request.reservation = NULL;
    memcpy(call->key, request->key.data, request->key.len);
    call->deadline_us = deadline_us;
    call->end = &call->first;
    return call;
}

void lease_call_add(struct lease_call *call, struct hybrid_waiter *waiter)
{
    waiter->next = NULL;
    *call->end = waiter;
    call->end = &waiter->next;
}

void lease_call_set_reservation(struct lease_call *call)
{
    const bool reserves = waiter_reservation(call->first) != NULL;
    call->op.verb = reserves ? WEIR_OP_RESERVE : WEIR_OP_TRY;
    call->op.reservation = (struct weir_reservation){ .permits = -1 };
    call->request.reservation = reserves ? &call->op.reservation : NULL;
}

/* Make the waiter's request the one that the call asks for. */
static void lease_call_lead(struct lease_call *call, struct hybrid_waiter *waiter)
{
    lease_call_add(call, waiter);
    lease_call_set_reservation(call);
    call->is_led = true;
    call->present = 1;
}

struct lease_call *lease_call_make_ahead(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                         const struct weir_backend_request *request, const struct lease_order *order,
                                         int64_t asked_us, int64_t deadline_us)
{
    assert(!account->call && shard == account_shard(&hybrid->accounts, request->hash));
    struct lease_call *call = lease_call_new(hybrid, request, deadline_us);
    if (call) {
        lease_call_set_order(call, order, asked_us);
        account->call = call;
    }
    (void)shard; /* used by the lock analysis */
    return call;
}

struct lease_call *lease_call_make(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                   const struct weir_backend_request *request, const struct lease_order *order,
                                   int64_t asked_us, struct hybrid_waiter *waiter)
{
    struct lease_call *call = lease_call_make_ahead(hybrid, shard, account, request, order, asked_us,
                                                    waiter->deadline_us);
    if (call) {
        lease_call_lead(call, waiter);
    }
    return call;
}

struct lease_call *lease_call_make_lone(struct hybrid *hybrid, const struct weir_backend_request *request,
                                        const struct lease_order *order, int64_t asked_us, struct hybrid_waiter *waiter)
{
    assert(order->whole);
    struct lease_call *call = lease_call_new(hybrid, request, waiter->deadline_us);
    if (call) {
        call->is_lone = true;
        lease_call_set_order(call, order, asked_us);
        lease_call_lead(call, waiter);
    }
    return call;
}

/* ---- Waiters ---- */

/* A request that brings its time does not wait for another's call: its time stands still, and permits leased by
 * that call may have ended on its clock. */
bool lease_call_join(struct account *account, const struct weir_backend_request *request, struct hybrid_waiter *waiter)
{
    struct lease_call *call = account->call;
    if (!call || call->request.now_us != WEIR_OWN_CLOCK || call->deadline_us > waiter->deadline_us ||
        call->request.limit != request->limit)
        return false;
    lease_call_add(call, waiter);
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

struct hybrid_waiter *lease_call_take_first(struct lease_call *call)
{
    struct hybrid_waiter *waiter = call->first;
    call->present -= call->present > 0;
    call->first = waiter->next;
    if (!call->first)
        call->end = &call->first;
    return waiter;
}
