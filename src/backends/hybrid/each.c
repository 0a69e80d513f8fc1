/* each.c - decides independent requests, alone or in a batch, for a thread that waits or for an op. */
#include "backends/hybrid/each.h"

#include "backends/hybrid/request.h"
#include "core/limiter/same_key.h"

#include <stdlib.h>

#define ROUNDS_MOST \
    4 /* rounds for a batch with many requests for one key; after that, one call asks for all the rest */
#define LACKING_TRIES \
    3 /* how often a request orders only the permits that its lease lacks, before it orders its whole cost */

/* ---- What happens next to a request ---- */

enum step_kind {
    STEP_LATER, /* begin again when an earlier request of the batch for the same key is decided */
    STEP_DECIDED,
    STEP_WAIT,
    STEP_ASK /* ask the remote for `order`, on this thread */
};

struct step {
    enum step_kind kind;
    struct lease_order order;
    int64_t asked_us;
    struct lease_call *call; /* to be sent, or NULL */
};

/* A request of a calling thread. */
struct pending {
    struct hybrid_thread_waiter waiter;
    struct step step;
};

/* Requests of one call, to be decided as if one after another. The arrays have room for n. */
struct batch {
    const struct weir_backend_request *requests;
    struct pending *pending;
    struct weir_backend_request *asked; /* what the remote is asked in one call */
    struct weir_decision *decisions;    /* its answers */
    struct weir_decision *out;
    size_t n;
    int round;
};

/* Return the permits that later requests of the batch need for the same key. */
static int64_t each_waiting_behind(const struct batch *batch, const struct weir_backend_request *request)
{
    int64_t waiting = 0;
    for (size_t k = batch ? (size_t)(request - batch->requests) + 1 : 0; batch && k < batch->n; k++)
        if (batch->pending[k].step.kind == STEP_LATER && same_key(&batch->requests[k], request))
            waiting += batch->requests[k].cost;
    return waiting;
}

/* Begin a request: decide it by the lease, queue it behind a lease call, or find what to order from Redis.
 * `batch` is NULL for a request that came alone. */
static struct step each_begin(struct hybrid *hybrid, const struct weir_backend_request *request,
                              const struct batch *batch, struct hybrid_waiter *waiter, struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    const bool can_wait = waiter->kind == WAITER_OP || !hybrid_is_answer_thread(hybrid);
    struct step step = { .kind = STEP_DECIDED, .asked_us = now_us };
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct account *account = request_enter(hybrid, shard, request, now_us);
    if (!account) {
        step.kind = STEP_ASK;
        step.order = (struct lease_order){ .cost = request->cost, .whole = true };
    } else {
        lease_count(&account->lease, now_us, request->cost);
        const bool queues = account->call && lease_call_has_waiters(account->call);
        if (!queues && request_decide(shard, account, now_us, request, out) != LEASE_UNDECIDED) {
            if (lease_runs_low(&account->lease))
                step.call = request_call_ahead(hybrid, shard, account, request, now_us);
        } else {
            waiter->deadline_us = hybrid_deadline_us(waiter->deadline_us);
            step.kind = STEP_WAIT;
            if (account->by_caller || !can_wait || !lease_call_join(account, request, waiter)) {
                step.order = request_make_order(hybrid, account, now_us, request->cost,
                                                each_waiting_behind(batch, request));
                const bool sends = waiter->kind == WAITER_OP ? account->by_caller || !step.order.alone
                                                             : can_wait && !step.order.alone && !account->by_caller;
                if (!account->call && sends)
                    step.call = lease_call_make(hybrid, shard, account, request, &step.order, now_us, waiter);
                if (!step.call)
                    step.kind = STEP_ASK;
            }
        }
    }
    lock_give(&shard->mutex);
    return step;
}

/* ---- Asking on this thread ---- */

/* Decide a request whose lease changed while the permits that it lacked were under way. */
static int each_ask_until_decided(struct hybrid *hybrid, const struct weir_backend_request *request,
                                  int64_t deadline_us, struct weir_decision *out)
{
    struct weir_backend *remote = hybrid->remote;
    for (int tries = 1;; tries++) {
        struct lease_order order = { .cost = request->cost, .whole = true };
        const int64_t now_us = hybrid_time(hybrid, request->now_us);
        struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
        enum lease_answer answer = LEASE_UNDECIDED;
        lock_take(&shard->mutex);
        struct account *account = request_account(hybrid, shard, request, now_us);
        if (account && tries < LACKING_TRIES) {
            answer = request_decide(shard, account, now_us, request, out);
            if (answer == LEASE_UNDECIDED)
                order = request_make_order(hybrid, account, now_us, request->cost, 0);
        }
        lock_give(&shard->mutex);
        if (answer != LEASE_UNDECIDED)
            return WEIR_OK;
        const struct weir_backend_request asked = hybrid_remote_request(request, &order);
        struct weir_decision decision;
        hybrid_look_around(hybrid, &asked);
        const int error = remote->ops->decide(remote, &asked, 1, false, deadline_us, &decision);
        if (error)
            request_failed(hybrid, request, &order);
        if (error || request_answered(hybrid, request, &order, now_us, &decision, out))
            return error;
    }
}

/* ---- Each by itself ---- */

/* Begin the i-th request of a batch after those before it. If an earlier one asks the remote for the same key,
 * this one is sent with it; but if that one brings a lease, this one waits for the answer. */
static struct step each_begin_in_batch(struct hybrid *hybrid, const struct batch *batch, size_t i)
{
    const struct weir_backend_request *request = &batch->requests[i];
    for (size_t k = 0; k < i; k++) {
        const struct step *step = &batch->pending[k].step;
        if ((step->kind != STEP_ASK && step->kind != STEP_LATER) || !same_key(&batch->requests[k], request))
            continue;
        const bool brings = step->kind == STEP_LATER || step->order.ahead > 0 || !step->order.whole;
        if (brings && batch->round < ROUNDS_MOST)
            return (struct step){ .kind = STEP_LATER };
        return (struct step){
            .kind = STEP_ASK,
            .order = { .cost = request->cost, .whole = true },
            .asked_us = hybrid_time(hybrid, request->now_us),
        };
    }
    return each_begin(hybrid, request, batch, &batch->pending[i].waiter.node, &batch->out[i]);
}

/* Mark a failed request by its source. */
static void each_mark_failed(int error, struct weir_decision *out)
{
    if (error)
        out->source = WEIR_BY_NOBODY;
}

/* Ask the remote, in one call, for all requests with STEP_ASK. Afterwards each is decided or has failed. */
static int each_ask_remote(struct hybrid *hybrid, const struct batch *batch, int64_t deadline_us)
{
    struct weir_backend *remote = hybrid->remote;
    size_t count = 0;
    for (size_t i = 0; i < batch->n; i++) {
        if (batch->pending[i].step.kind != STEP_ASK)
            continue;
        batch->asked[count] = hybrid_remote_request(&batch->requests[i], &batch->pending[i].step.order);
        batch->decisions[count++].source = WEIR_BY_NOBODY;
    }
    if (count == 0)
        return WEIR_OK;
    hybrid_look_around(hybrid, batch->asked);
    const int failed = remote->ops->decide(remote, batch->asked, count, false, deadline_us, batch->decisions);
    int error = failed;
    count = 0;
    for (size_t i = 0; i < batch->n; i++) {
        const struct weir_backend_request *request = &batch->requests[i];
        struct step *step = &batch->pending[i].step;
        if (step->kind != STEP_ASK)
            continue;
        step->kind = STEP_DECIDED;
        const struct weir_decision *decision = &batch->decisions[count++];
        int status = failed && decision->source == WEIR_BY_NOBODY ? failed : WEIR_OK;
        if (status)
            request_failed(hybrid, request, &step->order);
        else if (!request_answered(hybrid, request, &step->order, step->asked_us, decision, &batch->out[i]))
            status = each_ask_until_decided(hybrid, request, deadline_us, &batch->out[i]);
        each_mark_failed(status, &batch->out[i]);
        error = error ? error : status;
    }
    return error;
}

/* Decide a batch. The function never returns while a waiter is queued: its node is in the batch. A deadline given as a
 * span begins once it is known that the remote must be asked. */
static int each_decide(struct hybrid *hybrid, struct batch *batch, int64_t deadline_us)
{
    const struct weir_backend_request *requests = batch->requests;
    struct pending *pending = batch->pending;
    int error = WEIR_OK;
    size_t later = batch->n;
    for (size_t i = 0; i < batch->n; i++) {
        pending[i].step.kind = STEP_LATER;
        pending[i].waiter = (struct hybrid_thread_waiter){
            .node = { .kind = WAITER_THREAD, .deadline_us = deadline_us, .now_us = requests[i].now_us },
            .key = requests[i].key,
            .cost = requests[i].cost,
            .reservation = requests[i].reservation,
            .out = &batch->out[i],
        };
    }
    while (later > 0) {
        bool asks = false;
        later = 0;
        batch->round++;
        for (size_t i = 0; i < batch->n; i++) {
            struct step *step = &pending[i].step;
            if (step->kind != STEP_LATER)
                continue;
            *step = batch->n == 1 ? each_begin(hybrid, requests, NULL, &pending->waiter.node, batch->out)
                                  : each_begin_in_batch(hybrid, batch, i);
            if (batch->n == 1 && step->kind == STEP_WAIT && step->call) {
                hybrid_look_around(hybrid, requests);
                lease_call_run(step->call);
            } else {
                lease_call_send(step->call);
            }
            asks = asks || step->kind == STEP_ASK;
            later += step->kind == STEP_LATER;
        }
        if (asks) {
            deadline_us = hybrid_deadline_us(deadline_us);
            const int status = each_ask_remote(hybrid, batch, deadline_us);
            error = error ? error : status;
        }
    }
    for (size_t i = 0; i < batch->n; i++) {
        if (pending[i].step.kind != STEP_WAIT)
            continue;
        bell_await(&account_shard(&hybrid->accounts, requests[i].hash)->bell, &pending[i].waiter.done);
        int status = pending[i].waiter.status;
        if (status == WEIR_EFULL) /* too many ops are waiting; this thread can wait for its own call */
            status = each_ask_until_decided(hybrid, &requests[i], pending[i].waiter.node.deadline_us, &batch->out[i]);
        each_mark_failed(status, &batch->out[i]);
        if (!error)
            error = status;
    }
    return error;
}

/* ---- For a thread that waits ---- */

/* Decide the two common cases in few steps: spend leased permits, or repeat a denial. False: neither applies, and
 * nothing has changed. */
static bool each_decide_by_lease(struct hybrid *hybrid, const struct weir_backend_request *request,
                                 struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct lease_call *call = NULL;
    enum lease_answer answer = LEASE_UNDECIDED;
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account && account->lease.version >= request->plan_version &&
        account->by_caller == (request->now_us != WEIR_OWN_CLOCK) &&
        !(account->call && lease_call_has_waiters(account->call))) {
        answer = lease_hit(&account->lease, now_us, request->cost, out);
        shard->lease_hits += answer == LEASE_SPENT;
        shard->denial_hits += answer == LEASE_DENIED;
        if (answer == LEASE_SPENT)
            lease_note(&account->lease, now_us, request->cost, request->reservation);
        if (answer == LEASE_SPENT && lease_runs_low(&account->lease))
            call = request_call_ahead(hybrid, shard, account, request, now_us);
    }
    lock_give(&shard->mutex);
    lease_call_send(call);
    return answer != LEASE_UNDECIDED;
}

int hybrid_decide_one(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                      struct weir_decision *out)
{
    if (each_decide_by_lease(hybrid, request, out))
        return WEIR_OK;
    struct pending pending;
    struct weir_backend_request asked;
    struct weir_decision answer, decision; /* *out stays unchanged on an error */
    struct batch batch = { request, &pending, &asked, &answer, &decision, .n = 1 };
    const int error = each_decide(hybrid, &batch, deadline_us);
    if (!error)
        *out = decision;
    return error;
}

int hybrid_decide_batch(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n,
                        int64_t deadline_us, struct weir_decision *out)
{
    while (n > 0 && each_decide_by_lease(hybrid, requests, out))
        n--, requests++, out++;
    if (n == 0)
        return WEIR_OK;
    /* Not on the caller's stack, which may be small. */
    struct batch batch = { .requests = requests, .out = out, .n = n };
    batch.pending = malloc(n * (sizeof *batch.pending + sizeof *batch.asked + sizeof *batch.decisions));
    if (!batch.pending)
        return WEIR_ENOMEM;
    batch.asked = (struct weir_backend_request *)(void *)(batch.pending + n);
    batch.decisions = (struct weir_decision *)(void *)(batch.asked + n);
    const int error = each_decide(hybrid, &batch, deadline_us);
    free(batch.pending);
    return error;
}

/* ---- For an op ---- */

int hybrid_submit_one(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                      struct weir_op *op)
{
    if (each_decide_by_lease(hybrid, request, &op->decision))
        return WEIR_OK;
    struct hybrid_op_waiter *waiter = (struct hybrid_op_waiter *)(void *)&op->opaque[2];
    *waiter = (struct hybrid_op_waiter){
        .node = { .kind = WAITER_OP, .deadline_us = deadline_us, .now_us = request->now_us },
        .op = op,
    };
    struct step step = each_begin(hybrid, request, NULL, &waiter->node, &op->decision);
    if (step.kind == STEP_DECIDED) {
        lease_call_send(step.call);
        return WEIR_OK;
    }
    if (step.kind == STEP_ASK) { /* without room for an account, or with a deadline before that of the call under way */
        if (step.order.ahead == 0)
            request_failed(hybrid, request,
                           &step.order); /* cancel the order for the lacking permits: the whole cost is ordered */
        step.order.cost = request->cost;
        step.order.whole = true;
        step.call = lease_call_make_lone(hybrid, request, &step.order, step.asked_us, &waiter->node);
        if (!step.call) {
            request_failed(hybrid, request, &step.order);
            return WEIR_ENOMEM;
        }
    }
    if (!step.call)
        return 1;
    hybrid_look_around(hybrid, request);
    return lease_call_submit_for(step.call, op);
}
