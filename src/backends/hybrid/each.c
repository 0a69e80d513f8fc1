/* each.c - requests that are decided each by itself, alone or in a batch, by a caller that waits or by none. */
#include "backends/hybrid/each.h"

#include "backends/hybrid/request.h"
#include "core/limiter/same_key.h"

#include <assert.h>

#define ROUNDS_MOST 4   /* of a batch with many requests for a key; then all are asked for at once */
#define LACKING_TRIES 3 /* how often a request asks for what its lease lacks, before it asks for all it costs */

/* ---- A request's course ---- */

/* What a request comes to. */
enum what {
    LATER, /* it is looked at once more when another for its key, before it in the batch, is decided */
    DECIDED,
    WAITS,
    ASKS /* the remote, for `ask`, on this thread */
};

struct course {
    enum what what;
    struct lease_order order;
    int64_t asked_us;
    struct lease_call *leaves; /* to be launched; or NULL */
};

/* What a caller of several requests keeps of each. */
struct asking {
    struct hybrid_thread_waiter caller;
    struct course course;
};

/* Requests that came together, to be decided as if one by one. */
struct batch {
    const struct weir_backend_request *requests;
    struct asking *askings;
    size_t n;
    int round;
};

/* What the others that will be decided after the request ask for of its key. */
static int64_t waiting_behind(const struct batch *batch, const struct weir_backend_request *request)
{
    int64_t waiting = 0;
    for (size_t k = batch ? (size_t)(request - batch->requests) + 1 : 0; batch && k < batch->n; k++)
        if (batch->askings[k].course.what == LATER && same_key(&batch->requests[k], request))
            waiting += batch->requests[k].cost;
    return waiting;
}

/* The request is one of the batch; NULL: it came alone. */
static struct course plot(struct hybrid *hybrid, const struct weir_backend_request *request, const struct batch *batch,
                          struct hybrid_waiter *waiter, struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    const bool can_wait = waiter->op || !hybrid_is_answer_thread(hybrid);
    struct course course = { .what = DECIDED, .asked_us = now_us };
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = request_account(hybrid, shard, request, true, now_us);
    if (!account) {
        course.what = ASKS;
        course.order = (struct lease_order){ .cost = request->cost, .whole = true };
    } else {
        lease_count(&account->lease, &hybrid->rules, now_us, request->cost);
        const bool queues = account->call && lease_call_has_waiters(account->call);
        if (!queues && request_decide(shard, account, now_us, request->cost, out) != LEASE_UNDECIDED) {
            if (lease_runs_low(&account->lease))
                course.leaves = request_call_ahead(hybrid, shard, account, request, now_us);
        } else {
            waiter->deadline_us = hybrid_deadline_us(waiter->deadline_us);
            course.what = WAITS;
            if (account->by_caller || !can_wait || !lease_call_join(account, request, waiter)) {
                course.order = request_make_order(hybrid, account, now_us, request->cost,
                                                  waiting_behind(batch, request));
                const bool leaves = waiter->op ? account->by_caller || !course.order.alone
                                               : can_wait && !course.order.alone && !account->by_caller;
                if (!account->call && leaves)
                    course.leaves = lease_call_make(hybrid, shard, account, request, &course.order, now_us, waiter);
                if (!course.leaves)
                    course.what = ASKS;
            }
        }
    }
    lock_give(&shard->mutex);
    return course;
}

/* ---- Asking on this thread ---- */

/* One request whose lease has changed while it was asked for what it lacked. */
static int ask_until_decided(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                             struct weir_decision *out)
{
    struct weir_backend *remote = hybrid->remote;
    for (int tries = 1;; tries++) {
        struct lease_order order = { .cost = request->cost, .whole = true };
        const int64_t now_us = hybrid_time(hybrid, request->now_us);
        struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
        enum lease_answer answer = LEASE_UNDECIDED;
        lock_take(&shard->mutex);
        struct account *account = request_account(hybrid, shard, request, false, now_us);
        if (account && tries < LACKING_TRIES) {
            answer = request_decide(shard, account, now_us, request->cost, out);
            if (answer == LEASE_UNDECIDED)
                order = request_make_order(hybrid, account, now_us, request->cost, 0);
        }
        lock_give(&shard->mutex);
        if (answer != LEASE_UNDECIDED)
            return WEIR_OK;
        const struct weir_backend_request asked = hybrid_remote_request(request, &order);
        struct weir_decision decision;
        const int error = remote->ops->decide(remote, &asked, 1, false, deadline_us, &decision);
        if (error)
            request_failed(hybrid, request, &order);
        if (error || request_answered(hybrid, request, &order, now_us, &decision, out))
            return error;
    }
}

/* ---- Each by itself ---- */

/* The course of the i-th request, after those before it: they are decided as if one by one. What others ask for of its
 * key is let go before it, if that is all that is asked for; if it brings a lease, it is waited for. */
static struct course plot_in_turn(struct hybrid *hybrid, const struct batch *batch, size_t i, struct weir_decision *out)
{
    const struct weir_backend_request *request = &batch->requests[i];
    for (size_t k = 0; k < i; k++) {
        const struct course *course = &batch->askings[k].course;
        if ((course->what != ASKS && course->what != LATER) || !same_key(&batch->requests[k], request))
            continue;
        const bool brings = course->what == LATER || course->order.ahead > 0 || !course->order.whole;
        if (brings && batch->round < ROUNDS_MOST)
            return (struct course){ .what = LATER };
        return (struct course){
            .what = ASKS,
            .order = { .cost = request->cost, .whole = true },
            .asked_us = hybrid_time(hybrid, request->now_us),
        };
    }
    return plot(hybrid, request, batch, &batch->askings[i].caller.waiter, &out[i]);
}

/* One of several that has failed is told by its source. */
static void leave_undecided(int error, size_t n, struct weir_decision *out)
{
    if (error && n > 1)
        out->source = WEIR_BY_NOBODY;
}

/* Ask the remote for those that are to be, together. Afterwards they are decided, or have failed. */
static int ask_here(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n,
                    struct asking *askings, int64_t deadline_us, struct weir_decision *out)
{
    struct weir_backend_request asked[HYBRID_GROUP_MAX];
    struct weir_decision decisions[HYBRID_GROUP_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (askings[i].course.what != ASKS)
            continue;
        asked[count] = hybrid_remote_request(&requests[i], &askings[i].course.order);
        decisions[count++].source = WEIR_BY_NOBODY;
    }
    if (count == 0)
        return WEIR_OK;
    const int failed = hybrid->remote->ops->decide(hybrid->remote, asked, count, false, deadline_us, decisions);
    int error = failed;
    count = 0;
    for (size_t i = 0; i < n; i++) {
        struct course *course = &askings[i].course;
        if (course->what != ASKS)
            continue;
        course->what = DECIDED;
        const struct weir_decision *decision = &decisions[count++];
        int status = failed && decision->source == WEIR_BY_NOBODY ? failed : WEIR_OK;
        if (status)
            request_failed(hybrid, &requests[i], &course->order);
        else if (!request_answered(hybrid, &requests[i], &course->order, course->asked_us, decision, &out[i]))
            status = ask_until_decided(hybrid, &requests[i], deadline_us, &out[i]);
        leave_undecided(status, n, &out[i]);
        error = error ? error : status;
    }
    return error;
}

/* Who waits is waited for whatever happens: his node is on this stack. A deadline that is a span begins when it is
 * known that the remote must be asked. */
static int decide_each(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n,
                       int64_t deadline_us, struct asking *askings, struct weir_decision *out)
{
    struct batch batch = { .requests = requests, .askings = askings, .n = n };
    int error = WEIR_OK;
    size_t later = n;
    for (size_t i = 0; i < n; i++) {
        askings[i].course.what = LATER;
        askings[i].caller = (struct hybrid_thread_waiter){
            .waiter = { .deadline_us = deadline_us, .now_us = requests[i].now_us },
            .key = requests[i].key,
            .cost = requests[i].cost,
            .out = &out[i],
        };
    }
    while (later > 0) {
        bool asks = false;
        later = 0;
        batch.round++;
        for (size_t i = 0; i < n; i++) {
            struct course *course = &askings[i].course;
            if (course->what != LATER)
                continue;
            *course = n == 1 ? plot(hybrid, requests, NULL, &askings->caller.waiter, out)
                             : plot_in_turn(hybrid, &batch, i, out);
            lease_call_send(course->leaves);
            asks = asks || course->what == ASKS;
            later += course->what == LATER;
        }
        if (asks) {
            deadline_us = hybrid_deadline_us(deadline_us);
            const int status = ask_here(hybrid, requests, n, askings, deadline_us, out);
            error = error ? error : status;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (askings[i].course.what != WAITS)
            continue;
        bell_await(&account_shard(&hybrid->accounts, requests[i].hash)->bell, &askings[i].caller.done);
        int status = askings[i].caller.status;
        if (status == WEIR_EFULL) /* of those that are submitted: this one can wait by itself */
            status = ask_until_decided(hybrid, &requests[i], askings[i].caller.waiter.deadline_us, &out[i]);
        leave_undecided(status, n, &out[i]);
        if (!error)
            error = status;
    }
    return error;
}

/* ---- A caller's one or several ---- */

/* The common cases, in as few steps as can be: spend what is leased, or deny what is denied. False: it is neither, and
 * nothing has happened. */
static bool decide_by_lease(struct hybrid *hybrid, const struct weir_backend_request *request,
                            struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct lease_call *leaves = NULL;
    enum lease_answer answer = LEASE_UNDECIDED;
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account && account->lease.version >= request->plan_version &&
        account->by_caller == (request->now_us != WEIR_OWN_CLOCK) &&
        !(account->call && lease_call_has_waiters(account->call))) {
        answer = lease_hit(&account->lease, &hybrid->rules, now_us, request->cost, out);
        shard->lease_hits += answer == LEASE_SPENT;
        shard->denial_hits += answer == LEASE_DENIED;
        if (answer == LEASE_SPENT && lease_runs_low(&account->lease))
            leaves = request_call_ahead(hybrid, shard, account, request, now_us);
    }
    lock_give(&shard->mutex);
    lease_call_send(leaves);
    return answer != LEASE_UNDECIDED;
}

int hybrid_decide_one(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                      struct weir_decision *out)
{
    if (decide_by_lease(hybrid, request, out))
        return WEIR_OK;
    struct asking asking;
    struct weir_decision decision; /* *out stays as it is on an error */
    const int error = decide_each(hybrid, request, 1, deadline_us, &asking, &decision);
    if (!error)
        *out = decision;
    return error;
}

int hybrid_decide_batch(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n,
                        int64_t deadline_us, struct weir_decision *out)
{
    struct asking askings[HYBRID_GROUP_MAX];
    assert(n <= HYBRID_GROUP_MAX);
    return decide_each(hybrid, requests, n, deadline_us, askings, out);
}

/* ---- Without waiting ---- */

int hybrid_submit_one(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                      struct weir_op *op)
{
    if (decide_by_lease(hybrid, request, &op->decision))
        return WEIR_OK;
    struct hybrid_waiter *waiter = (struct hybrid_waiter *)(void *)&op->opaque[2];
    *waiter = (struct hybrid_waiter){ .op = op, .deadline_us = deadline_us, .now_us = request->now_us };
    struct course course = plot(hybrid, request, NULL, waiter, &op->decision);
    if (course.what == DECIDED) {
        lease_call_send(course.leaves);
        return WEIR_OK;
    }
    if (course.what == ASKS) { /* alone: for lack of room for an account, or of time to wait for its flight */
        if (course.order.ahead == 0)
            request_failed(hybrid, request, &course.order); /* what it lacks is not asked for: all of it is */
        course.order.cost = request->cost;
        course.order.whole = true;
        course.leaves = lease_call_make_lone(hybrid, request, &course.order, course.asked_us, waiter);
        if (!course.leaves) {
            request_failed(hybrid, request, &course.order);
            return WEIR_ENOMEM;
        }
    }
    return course.leaves ? lease_call_send_for(course.leaves, op) : 1;
}
