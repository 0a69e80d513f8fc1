/* hybrid.c - the hybrid backend: permits of busy keys are leased from a remote backend ahead of use.
 *
 * The path of a request:
 *
 *     the lease has permits for it      spend them, no I/O
 *     denied until later                deny, no I/O
 *     the key is asked for seldom       ask the remote for this request alone, on this thread
 *     somebody asks for this key now    wait for what he gets
 *     else                              ask, for this request and permits ahead of the next ones (hybrid_flight.h)
 *
 * A request that brings its own time is decided by it, its leases last by it, and it is asked for on its own thread: no
 * other thread's haste changes what becomes of it, and a replay comes out the same each time.
 *
 * What is leased, for how long, and when it is asked for is core/lease.c's. What becomes of failures is the core's, as
 * for every backend.
 */
#include "backends/hybrid.h"

#include "backends/hybrid_flight.h"
#include "core/arith.h"
#include "core/clock.h"
#include "core/forks.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GROUP_MAX WEIR_MAX_ALL
#define LACKING_TRIES 3 /* how often a request asks for what its lease lacks, before it asks for all it costs */

/* ---- Under the shard's mutex ---- */

/* The account of a request as it stands: under the plan in force, by the clock that the request has. NULL: there is none. */
static struct account *account_current(struct hybrid *hybrid, struct account_shard *shard,
                                       const struct weir_backend_request *request, bool make, int64_t now_us)
    REQUIRES(shard->mutex)
{
    const bool by_caller = request->now_us != WEIR_OWN_CLOCK;
    struct account *account = account_find(shard, request);
    if (!account) {
        const struct lease_rules rules = hybrid_rules(hybrid);
        return make ? account_add(&hybrid->accounts, shard, &rules, request, now_us) : NULL;
    }
    if (account->lease.version < request->plan_version) {
        struct weir_plan plan;
        const uint64_t version = weir_request_plan(request, &plan);
        lease_renew(&account->lease, &plan, version);
        account_count_lost(shard, account);
        flight_disown(account);
    }
    if (account->by_caller != by_caller) { /* one clock says nothing about times by the other */
        account_forget_lease(shard, account);
        account->lease.turn_us = 0;
        account->by_caller = by_caller;
        flight_disown(account);
    }
    return account;
}

static enum lease_answer decide_here(struct account_shard *shard, struct account *account, int64_t now_us, int64_t cost,
                                     struct weir_decision *out) REQUIRES(shard->mutex)
{
    const enum lease_answer answer = lease_decide(&account->lease, now_us, cost, WEIR_TAKE, out);
    shard->lease_hits += answer == LEASE_SPENT;
    shard->denial_hits += answer == LEASE_DENIED;
    return answer;
}

static struct lease_ask ask_for(const struct hybrid *hybrid, struct account *account, int64_t now_us, int64_t cost,
                                int64_t waiting)
{
    const struct lease_rules rules = hybrid_rules(hybrid);
    const int64_t trip_us = account->by_caller ? 0 : atomic_load_explicit(&hybrid->trip_us, memory_order_relaxed);
    return lease_ask(&account->lease, &rules, now_us, cost, waiting, trip_us);
}

/* A flight for permits ahead of any request. NULL: there is no need or no memory for one. */
static struct hybrid_flight *flight_ahead(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                          const struct weir_backend_request *request, int64_t now_us)
    REQUIRES(shard->mutex)
{
    if (account->flight || account->by_caller)
        return NULL;
    const struct lease_ask ask = ask_for(hybrid, account, now_us, 0, 0);
    if (ask.ahead == 0)
        return NULL;
    const int64_t deadline_us = clock_monotonic_us() + hybrid->timeout_us;
    return flight_make_ahead(hybrid, shard, account, request, &ask, now_us, deadline_us);
}

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
    struct lease_ask ask;
    int64_t asked_us;
    struct hybrid_flight *leaves; /* to be launched; or NULL */
};

/* What a caller of several requests keeps of each. */
struct asking {
    struct hybrid_caller caller;
    struct course course;
};

/* Requests that came together, to be decided as if one by one. */
struct batch {
    const struct weir_backend_request *requests;
    struct asking *askings;
    size_t n;
};

static bool same_key(const struct weir_backend_request *a, const struct weir_backend_request *b)
{
    return a->hash == b->hash && a->limit == b->limit && a->key.len == b->key.len &&
           memcmp(a->key.data, b->key.data, a->key.len) == 0;
}

/* What the others that will be decided after the request ask for of its key. */
static int64_t waiting_behind(const struct batch *batch, const struct weir_backend_request *request)
{
    int64_t waiting = 0;
    for (size_t k = batch ? (size_t)(request - batch->requests) + 1 : 0; batch && k < batch->n; k++)
        if (batch->askings[k].course.what == LATER && same_key(&batch->requests[k], request))
            waiting += batch->requests[k].cost;
    return waiting;
}

/* A span of time to wait begins when it is known that there is something to wait for. */
static int64_t deadline_of(int64_t deadline_or_span_us)
{
    return deadline_or_span_us < 0 ? clock_monotonic_us() - deadline_or_span_us : deadline_or_span_us;
}

/* The request is one of the batch; NULL: it came alone. */
static struct course plot(struct hybrid *hybrid, const struct weir_backend_request *request, const struct batch *batch,
                          struct hybrid_waiter *waiter, struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    const bool can_wait = waiter->op || !flight_lands_here(hybrid);
    struct course course = { .what = DECIDED, .asked_us = now_us };
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_current(hybrid, shard, request, true, now_us);
    if (!account) {
        course.what = ASKS;
        course.ask = (struct lease_ask){ .cost = request->cost, .whole = true };
    } else {
        lease_count(&account->lease, &hybrid->rules, now_us, request->cost);
        const bool queues = account->flight && flight_has_waiters(account->flight);
        if (!queues && decide_here(shard, account, now_us, request->cost, out) != LEASE_ASK) {
            if (lease_runs_low(&account->lease))
                course.leaves = flight_ahead(hybrid, shard, account, request, now_us);
        } else {
            waiter->deadline_us = deadline_of(waiter->deadline_us);
            course.what = WAITS;
            if (account->by_caller || !can_wait || !flight_join(account, waiter, request->cost)) {
                course.ask = ask_for(hybrid, account, now_us, request->cost, waiting_behind(batch, request));
                const bool leaves = waiter->op ? account->by_caller || !course.ask.alone
                                               : can_wait && !course.ask.alone && !account->by_caller;
                if (!account->flight && leaves)
                    course.leaves = flight_make(hybrid, shard, account, request, &course.ask, now_us, waiter);
                if (!course.leaves)
                    course.what = ASKS;
            }
        }
    }
    lock_give(&shard->mutex);
    return course;
}

/* ---- Asking on this thread ---- */

/* Take in what the remote has decided. False: the request's lease has not what it takes even with that. */
static bool land_here(struct hybrid *hybrid, const struct weir_backend_request *request, const struct lease_ask *ask,
                      int64_t asked_us, const struct weir_decision *decision, struct weir_decision *out)
{
    const bool lacks = !ask->whole && decision->allowed; /* what it lacked has come: it is decided by the lease */
    struct weir_decision by_lease = *decision;
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    bool decided = !lacks;
    if (request->now_us == WEIR_OWN_CLOCK)
        hybrid_note_trip(hybrid, now_us - asked_us);
    *out = *decision;
    out->ahead = 0;
    lock_take(&shard->mutex);
    shard->leased += (uint64_t)decision->ahead;
    struct account *account = account_current(hybrid, shard, request, false, now_us);
    if (account) {
        const struct lease_rules rules = hybrid_rules(hybrid);
        lease_land(&account->lease, &rules, ask, asked_us, now_us, decision);
        const int64_t left = lease_left(&account->lease, now_us);
        if (lacks || (!decision->allowed && left >= request->cost)) { /* others may have brought it meanwhile */
            decided = decide_here(shard, account, now_us, request->cost, &by_lease) == LEASE_SPENT;
            *out = by_lease;
        } else {
            out->remaining += left;
        }
        account_count_lost(shard, account);
    } else {
        shard->lost += (uint64_t)decision->ahead;
    }
    lock_give(&shard->mutex);
    return decided;
}

/* Nothing comes of what was asked for. */
static void note_failure(struct hybrid *hybrid, const struct weir_backend_request *request, const struct lease_ask *ask)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account)
        lease_ask_failed(&account->lease, ask);
    lock_give(&shard->mutex);
}

/* One request whose lease has changed while it was asked for what it lacked. */
static int ask_again(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                     struct weir_decision *out)
{
    struct weir_backend *remote = hybrid->remote;
    for (int tries = 1;; tries++) {
        struct lease_ask ask = { .cost = request->cost, .whole = true };
        const int64_t now_us = hybrid_time(hybrid, request->now_us);
        struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
        enum lease_answer answer = LEASE_ASK;
        lock_take(&shard->mutex);
        struct account *account = account_current(hybrid, shard, request, false, now_us);
        if (account && tries < LACKING_TRIES) {
            answer = decide_here(shard, account, now_us, request->cost, out);
            if (answer == LEASE_ASK)
                ask = ask_for(hybrid, account, now_us, request->cost, 0);
        }
        lock_give(&shard->mutex);
        if (answer != LEASE_ASK)
            return WEIR_OK;
        const struct weir_backend_request asked = hybrid_asked(request, &ask);
        struct weir_decision decision;
        const int error = remote->ops->decide(remote, &asked, 1, false, deadline_us, &decision);
        if (error)
            note_failure(hybrid, request, &ask);
        if (error || land_here(hybrid, request, &ask, now_us, &decision, out))
            return error;
    }
}

/* ---- Each by itself ---- */

static void wait_for(struct hybrid *hybrid, const struct weir_backend_request *request, struct hybrid_caller *caller)
{
    struct bell *bell = &account_shard(&hybrid->accounts, request->hash)->bell;
    for (;;) {
        const uint32_t rings = bell_rings(bell);
        if (atomic_load_explicit(&caller->done, memory_order_acquire))
            return;
        bell_wait(bell, rings);
    }
}

/* The course of the i-th request, after those before it: they are decided as if one by one. What others ask for of its
 * key is let go before it, if that is all that is asked for; if it brings a lease, it is waited for. */
static struct course plot_in_turn(struct hybrid *hybrid, const struct batch *batch, size_t i, struct weir_decision *out)
{
    const struct weir_backend_request *request = &batch->requests[i];
    for (size_t k = 0; k < i; k++) {
        const struct course *course = &batch->askings[k].course;
        if ((course->what != ASKS && course->what != LATER) || !same_key(&batch->requests[k], request))
            continue;
        if (course->what == LATER || course->ask.ahead > 0 || !course->ask.whole)
            return (struct course){ .what = LATER };
        return (struct course){
            .what = ASKS,
            .ask = { .cost = request->cost, .whole = true },
            .asked_us = hybrid_time(hybrid, request->now_us),
        };
    }
    return plot(hybrid, request, batch, &batch->askings[i].caller.waiter, &out[i]);
}

/* Ask the remote for those that are to be, together. Afterwards they are decided, or all has failed. */
static int ask_here(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n,
                    struct asking *askings, int64_t deadline_us, struct weir_decision *out)
{
    struct weir_backend_request asked[GROUP_MAX];
    struct weir_decision decisions[GROUP_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (askings[i].course.what == ASKS)
            asked[count++] = hybrid_asked(&requests[i], &askings[i].course.ask);
    if (count == 0)
        return WEIR_OK;
    int error = hybrid->remote->ops->decide(hybrid->remote, asked, count, false, deadline_us, decisions);
    const bool failed = error != WEIR_OK;
    count = 0;
    for (size_t i = 0; i < n; i++) {
        struct course *course = &askings[i].course;
        if (course->what != ASKS)
            continue;
        course->what = DECIDED;
        if (failed)
            note_failure(hybrid, &requests[i], &course->ask);
        else if (!land_here(hybrid, &requests[i], &course->ask, course->asked_us, &decisions[count++], &out[i]) &&
                 !error)
            error = ask_again(hybrid, &requests[i], deadline_us, &out[i]);
    }
    return error;
}

/* Who waits is waited for whatever happens: his node is on this stack. A deadline that is a span begins when it is known
 * that the remote must be asked. */
static int decide_each(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n,
                       int64_t deadline_us, struct asking *askings, struct weir_decision *out)
{
    const struct batch batch = { requests, askings, n };
    int error = WEIR_OK;
    size_t later = n;
    for (size_t i = 0; i < n; i++) {
        askings[i].course.what = LATER;
        askings[i].caller = (struct hybrid_caller){
            .waiter = { .deadline_us = deadline_us, .now_us = requests[i].now_us },
            .cost = requests[i].cost,
            .out = &out[i],
        };
    }
    while (!error && later > 0) {
        bool asks = false;
        later = 0;
        for (size_t i = 0; i < n; i++) {
            struct course *course = &askings[i].course;
            if (course->what != LATER)
                continue;
            *course = n == 1 ? plot(hybrid, requests, NULL, &askings->caller.waiter, out)
                             : plot_in_turn(hybrid, &batch, i, out);
            if (course->leaves)
                flight_launch(course->leaves);
            asks = asks || course->what == ASKS;
            later += course->what == LATER;
        }
        if (asks) {
            deadline_us = deadline_of(deadline_us);
            error = ask_here(hybrid, requests, n, askings, deadline_us, out);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (askings[i].course.what != WAITS)
            continue;
        wait_for(hybrid, &requests[i], &askings[i].caller);
        if (!error)
            error = askings[i].caller.status;
    }
    return error;
}

/* ---- Other verbs ---- */

static int peek(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct weir_backend_request asked = *request;
    enum lease_answer answer = LEASE_ASK;
    int64_t left = 0;
    lock_take(&shard->mutex);
    struct account *account = account_current(hybrid, shard, request, false, now_us);
    if (account) {
        answer = lease_decide(&account->lease, now_us, request->cost, WEIR_PEEK, out);
        left = lease_left(&account->lease, now_us);
        if (account->lease.plan.algorithm != WEIR_LEAKY_BUCKET && request->cost <= account->lease.plan.size)
            asked.cost -= left;
    }
    lock_give(&shard->mutex);
    if (answer != LEASE_ASK)
        return WEIR_OK;
    const int error = hybrid->remote->ops->decide(hybrid->remote, &asked, 1, false, deadline_us, out);
    if (!error)
        out->remaining += left;
    return error;
}

/* Before the remote is asked and after: what was leased or denied in between is as old as what was before. */
static void forget(struct hybrid *hybrid, const struct weir_backend_request *request)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account) {
        account_forget_lease(shard, account);
        flight_disown(account);
        account->forgotten_us = hybrid_time(hybrid, WEIR_OWN_CLOCK);
    }
    lock_give(&shard->mutex);
}

static void note_refund(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t asked_us,
                        const struct weir_decision *decision)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account)
        lease_refunded(&account->lease, asked_us, decision);
    lock_give(&shard->mutex);
}

static int decide_otherwise(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                            struct weir_decision *out)
{
    const int64_t asked_us = hybrid_time(hybrid, request->now_us);
    if (request->verb == WEIR_PEEK)
        return peek(hybrid, request, deadline_us, out);
    if (request->verb == WEIR_RESET)
        forget(hybrid, request);
    const int error = hybrid->remote->ops->decide(hybrid->remote, request, 1, false, deadline_us, out);
    if (request->verb == WEIR_RESET)
        forget(hybrid, request);
    else if (!error && request->verb == WEIR_REFUND)
        note_refund(hybrid, request, asked_us, out);
    return error;
}

/* What somebody else has reckoned is for the remote. */
static bool is_plain_take(const struct weir_backend_request *request)
{
    return request->verb == WEIR_TAKE && request->ahead == 0;
}

/* ---- All or nothing ---- */

/* What a member of a group comes to before the remote is asked. */
struct member {
    enum lease_answer answer;
    int64_t asked_us;
};

static struct member member_decide(struct hybrid *hybrid, const struct weir_backend_request *request,
                                   struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct member member = { .answer = LEASE_ASK, .asked_us = now_us };
    lock_take(&shard->mutex);
    struct account *account = account_current(hybrid, shard, request, true, now_us);
    if (account) {
        lease_count(&account->lease, &hybrid->rules, now_us, request->cost);
        const bool spends = account->lease.plan.algorithm != WEIR_LEAKY_BUCKET; /* slots cannot be given back */
        if (spends || lease_decide(&account->lease, now_us, request->cost, WEIR_PEEK, out) == LEASE_DENIED)
            member.answer = decide_here(shard, account, now_us, request->cost, out);
    }
    lock_give(&shard->mutex);
    if (member.answer == LEASE_SPENT)
        member.asked_us = now_us - out->age_us;
    return member;
}

/* The group was denied, or has failed: a member's permits go back to its lease, and its decision is that of a peek. */
static void member_give_back(struct hybrid *hybrid, const struct weir_backend_request *request,
                             const struct member *member, struct weir_decision *out)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account) {
        lease_give_back(&account->lease, member->asked_us, request->cost);
        account_count_lost(shard, account);
    }
    lock_give(&shard->mutex);
    out->remaining += request->cost;
}

/* Those that cannot be told here, of the remote: all or nothing, or as a peek if the group is denied already. */
static int ask_members(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n,
                       const struct member *members, bool denied, int64_t deadline_us, struct weir_decision *out)
{
    struct weir_backend_request asked[GROUP_MAX];
    struct weir_decision decisions[GROUP_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (members[i].answer != LEASE_ASK)
            continue;
        asked[count] = requests[i];
        asked[count++].verb = denied ? WEIR_PEEK : WEIR_TAKE;
    }
    if (count == 0)
        return WEIR_OK;
    const int error = hybrid->remote->ops->decide(hybrid->remote, asked, count, !denied, deadline_us, decisions);
    count = 0;
    for (size_t i = 0; !error && i < n; i++) {
        if (members[i].answer != LEASE_ASK)
            continue;
        const struct lease_ask ask = { .cost = requests[i].cost, .whole = true };
        const struct weir_decision *decision = &decisions[count++];
        land_here(hybrid, &requests[i], &ask, members[i].asked_us, decision, &out[i]);
    }
    return error;
}

static int decide_all(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n, int64_t deadline_us,
                      struct weir_decision *out)
{
    struct member members[GROUP_MAX];
    bool denied = false;
    assert(n <= GROUP_MAX);
    for (size_t i = 0; i < n; i++) {
        members[i] = member_decide(hybrid, &requests[i], &out[i]);
        denied = denied || members[i].answer == LEASE_DENIED;
    }
    const int error = ask_members(hybrid, requests, n, members, denied, deadline_us, out);
    for (size_t i = 0; !error && i < n; i++)
        denied = denied || !out[i].allowed;
    for (size_t i = 0; (error || denied) && i < n; i++)
        if (members[i].answer == LEASE_SPENT)
            member_give_back(hybrid, &requests[i], &members[i], &out[i]);
    return error;
}

/* ---- The vtable ---- */

/* The common case, in as few steps as can be: spend what is leased. False: it is another, and nothing has happened. */
static inline bool decide_by_lease(struct hybrid *hybrid, const struct weir_backend_request *request,
                                   struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct hybrid_flight *leaves = NULL;
    bool hit = false;
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account && account->lease.version >= request->plan_version &&
        account->by_caller == (request->now_us != WEIR_OWN_CLOCK) &&
        !(account->flight && flight_has_waiters(account->flight)) &&
        lease_hit(&account->lease, &hybrid->rules, now_us, request->cost, out)) {
        hit = true;
        shard->lease_hits++;
        if (lease_runs_low(&account->lease))
            leaves = flight_ahead(hybrid, shard, account, request, now_us);
    }
    lock_give(&shard->mutex);
    if (leaves)
        flight_launch(leaves);
    return hit;
}

static int hybrid_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    if (n == 1 && is_plain_take(requests)) { /* all or nothing, too */
        if (decide_by_lease(hybrid, requests, out))
            return WEIR_OK;
        struct asking asking;
        struct weir_decision decision; /* *out stays as it is on an error */
        const int error = decide_each(hybrid, requests, 1, deadline_us, &asking, &decision);
        if (!error)
            *out = decision;
        return error;
    }
    deadline_us = deadline_of(deadline_us);
    if (all)
        return decide_all(hybrid, requests, n, deadline_us, out);
    struct asking askings[GROUP_MAX];
    int error = WEIR_OK;
    for (size_t i = 0, part; !error && i < n; i += part) {
        for (part = 0; part < GROUP_MAX && i + part < n && is_plain_take(&requests[i + part]); part++)
            ;
        if (part > 0) {
            error = decide_each(hybrid, requests + i, part, deadline_us, askings, out + i);
        } else {
            error = decide_otherwise(hybrid, &requests[i], deadline_us, &out[i]);
            part = 1;
        }
    }
    return error;
}

static int hybrid_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    if (!is_plain_take(request))
        return hybrid->remote->ops->submit(hybrid->remote, request, deadline_us, op);
    struct hybrid_waiter *waiter = (struct hybrid_waiter *)(void *)&op->opaque[2];
    *waiter = (struct hybrid_waiter){ .op = op, .deadline_us = deadline_us, .now_us = request->now_us };
    struct course course = plot(hybrid, request, NULL, waiter, &op->decision);
    if (course.what == DECIDED && course.leaves)
        flight_launch(course.leaves);
    if (course.what == DECIDED)
        return WEIR_OK;
    if (course.what == ASKS) { /* by itself: there is no room for an account, or its flight would be too late */
        course.leaves = flight_make_lone(hybrid, request, waiter);
        if (!course.leaves)
            return WEIR_ENOMEM;
    }
    if (course.leaves)
        flight_launch(course.leaves);
    return 1;
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
    struct weir_backend *remote = ((struct hybrid *)backend)->remote;
    remote->ops->shut(remote);
}

static int64_t hybrid_reachable_us(struct weir_backend *backend)
{
    struct weir_backend *remote = ((struct hybrid *)backend)->remote;
    return remote->ops->reachable_us ? remote->ops->reachable_us(remote) : 0;
}

static void hybrid_watch(struct weir_backend *backend, void (*returned)(void *user), void *user)
{
    struct weir_backend *remote = ((struct hybrid *)backend)->remote;
    if (remote->ops->watch)
        remote->ops->watch(remote, returned, user);
}

/* The remote goes first: what is on its way for an account lands before it is gone. */
static void hybrid_destroy(struct weir_backend *backend)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    if (hybrid->forks.told)
        forks_forget(&hybrid->forks);
    hybrid->remote->ops->destroy(hybrid->remote);
    accounts_free(&hybrid->accounts);
    free(hybrid);
}

/* ---- Life ---- */

/* The locks are known to be held in the child by their taking before. */
static void told_of_fork(struct forks_watcher *watcher, enum forks_moment moment) UNCHECKED
{
    struct hybrid *hybrid = (struct hybrid *)((char *)watcher - offsetof(struct hybrid, forks));
    for (size_t i = 0; i < HYBRID_SHARDS; i++) {
        struct account_shard *shard = &hybrid->accounts.shards[i];
        if (moment == FORKS_BEFORE) {
            lock_take(&shard->mutex);
            continue;
        }
        struct account *account = moment == FORKS_IN_CHILD ? shard->accounts : NULL;
        for (; account; account = account->hh.next) { /* the parent spends them */
            account_forget_lease(shard, account);
            flight_forget(account);
        }
        lock_give(&shard->mutex);
    }
    if (moment == FORKS_BEFORE)
        lock_take(&hybrid->accounts.slab.mutex);
    else
        lock_give(&hybrid->accounts.slab.mutex);
}

void hybrid_watch_forks(struct weir_backend *backend)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    hybrid->forks.told = told_of_fork;
    forks_watch(&hybrid->forks);
}

void hybrid_set_instances(struct weir_backend *backend, int64_t instances)
{
    struct hybrid *hybrid = (struct hybrid *)backend;
    atomic_store_explicit(&hybrid->instances, instances, memory_order_relaxed);
}

static int64_t boottime_us(void *user)
{
    struct timespec time;
    (void)user;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (int64_t)time.tv_sec * WEIR_SECOND + time.tv_nsec / 1000;
}

static const struct weir_backend_ops hybrid_ops = {
    .size = sizeof hybrid_ops,
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
};

int hybrid_open(const struct hybrid_settings *settings, struct weir_backend *remote, struct weir_backend **out)
{
    assert(remote->ops->submit && remote->ops->shut && remote->ops->shared);
    struct hybrid *hybrid = aligned_alloc(_Alignof(struct hybrid), sizeof *hybrid);
    if (!hybrid)
        return WEIR_ENOMEM;
    memset(hybrid, 0, sizeof *hybrid);
    hybrid->backend.ops = &hybrid_ops;
    hybrid->remote = remote;
    hybrid->rules = settings->leases;
    hybrid->instances = settings->leases.instances;
    hybrid->timeout_us = settings->timeout_us;
    hybrid->now_us = settings->now_us ? settings->now_us : boottime_us;
    hybrid->user = settings->user;
    accounts_init(&hybrid->accounts, settings->max_keys, settings->max_bytes);
    hybrid->accounts.keep_idle = settings->keep_idle;
    *out = &hybrid->backend;
    return WEIR_OK;
}
