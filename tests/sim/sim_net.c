/* sim_net.c - an instance's remote backend: requests take time to reach the store, and may get lost.
 *
 * As over Redis, an unanswered request ends with WEIR_ETIME at its deadline by the instance's clock, whatever the
 * store did. After BREAKER_TIMEOUTS in a row, calls end with WEIR_EIO without being sent until a probe succeeds; then
 * `returned` is called.
 */
#include "sim.h"

#include <stdlib.h>

enum { BREAKER_TIMEOUTS = 3, PROBE_FIRST_US = 20000, PROBE_MOST_US = 200000 };

struct flight {
    struct instance *instance;
    struct remote *remote;
    struct weir_op *op;
    struct flight *next, **from;
    struct asked asked;
    int64_t asked_us, executed_us, store_us; /* store_us: the execution's, by the store's clock */
    uint64_t executed_order;
    struct weir_decision decision;
    bool is_answered;
};

static void answer(struct sim *sim, struct flight *flight, int status)
{
    flight->is_answered = true;
    *flight->from = flight->next;
    if (flight->next)
        flight->next->from = flight->from;
    struct weir_op *op = flight->op;
    if (status == WEIR_OK) {
        op->decision = flight->decision;
        if (((op->verb == WEIR_OP_RESERVE && flight->asked.verb == WEIR_TAKE) || flight->asked.verb == WEIR_RENEW) &&
            flight->decision.allowed)
            op->reservation.at_us = flight->store_us;
        sim->executed_us = flight->executed_us;
        sim->executed_order = flight->executed_order;
        sim->executed_remaining = flight->decision.remaining;
        audit_delivered(sim, flight->instance, &flight->asked, flight->asked_us, &flight->decision);
    }
    op->done(op, status);
    if (status == WEIR_OK)
        audit_landed(sim, flight->instance, &flight->asked);
}

/* ---- The breaker ---- */

static void probe(struct sim *sim, void *what);

static void breaker_open(struct sim *sim, struct remote *remote)
{
    if (remote->is_open)
        return;
    trace(sim, "instance %d: breaker opens", remote->instance->number);
    remote->is_open = true;
    remote->probe_us = PROBE_FIRST_US;
    remote->reachable_us = instance_clock_us(remote->instance, sim->now_us);
    events_add(sim, sim->now_us + random_in(sim, 1, remote->probe_us), remote->instance, probe, remote);
}

static void breaker_close(struct sim *sim, struct remote *remote)
{
    trace(sim, "instance %d: the store is back", remote->instance->number);
    remote->is_open = false;
    remote->failures = 0;
    clocks_of(sim, remote->instance);
    if (remote->returned)
        remote->returned(remote->user);
}

static void probe_back(struct sim *sim, void *what)
{
    struct remote *remote = what;
    if (remote->is_open && !remote->is_cut) {
        breaker_close(sim, remote);
    } else if (remote->is_open) {
        remote->probe_us = min_of(2 * remote->probe_us, PROBE_MOST_US);
        events_add(sim, sim->now_us + random_in(sim, remote->probe_us / 2, remote->probe_us), remote->instance, probe,
                   remote);
    }
}

static void probe(struct sim *sim, void *what)
{
    struct remote *remote = what;
    const bool lost = remote->is_cut || sim->store.stands_until_us > sim->now_us ||
                      random_chance(sim, sim->lose_permille);
    const int64_t trip_us = random_in(sim, sim->up_min_us + sim->down_min_us, sim->up_max_us + sim->down_max_us);
    if (!lost) {
        events_add(sim, sim->now_us + trip_us, remote->instance, probe_back, remote);
        return;
    }
    remote->probe_us = min_of(2 * remote->probe_us, PROBE_MOST_US);
    events_add(sim, sim->now_us + sim->timeout_us + random_in(sim, remote->probe_us / 2, remote->probe_us),
               remote->instance, probe, remote);
}

static void connection_lost(struct sim *sim, void *what)
{
    struct remote *remote = what;
    if (!remote->is_cut)
        return;
    clocks_of(sim, remote->instance);
    breaker_open(sim, remote);
    while (remote->flights) /* an answered caller may ask again, and is refused */
        answer(sim, remote->flights, WEIR_EIO);
}

void remote_cut(struct sim *sim, struct remote *remote, bool refuses)
{
    trace(sim, "instance %d: cut off%s", remote->instance->number, refuses ? ", refused" : "");
    remote->is_cut = true;
    remote->was_cut = true;
    remote->refuses = refuses;
    if (refuses)
        events_add(sim, sim->now_us, remote->instance, connection_lost, remote);
}

void remote_mend(struct sim *sim, struct remote *remote)
{
    trace(sim, "instance %d: can reach the store", remote->instance->number);
    remote->is_cut = false;
}

/* ---- A request's way ---- */

static void reply_arrives(struct sim *sim, void *what)
{
    struct flight *flight = what;
    if (flight->is_answered || flight->remote->is_cut)
        return;
    flight->remote->failures = 0;
    clocks_of(sim, flight->instance);
    answer(sim, flight, WEIR_OK);
}

static void deadline_comes(struct sim *sim, void *what)
{
    struct flight *flight = what;
    if (flight->is_answered)
        return;
    clocks_of(sim, flight->instance);
    if (++flight->remote->failures >= BREAKER_TIMEOUTS)
        breaker_open(sim, flight->remote);
    answer(sim, flight, WEIR_ETIME);
}

static void execute(struct sim *sim, struct flight *flight)
{
    flight->executed_us = sim->now_us;
    flight->store_us = store_now_us(sim);
    store_decide(sim, &flight->asked, &flight->decision);
    audit_executed(sim, flight->instance, &flight->asked, &flight->decision);
    flight->executed_order = sim->order++;
}

static void request_arrives(struct sim *sim, void *what)
{
    struct flight *flight = what;
    if (sim->store.stands_until_us > sim->now_us) {
        events_add(sim, sim->store.stands_until_us, NULL, request_arrives, flight);
        return;
    }
    if (flight->remote->is_cut)
        return;
    execute(sim, flight);
    if (random_chance(sim, sim->lose_permille)) {
        trace(sim, "instance %d: a reply is lost", flight->instance->number);
        return;
    }
    int64_t down_us = random_in(sim, sim->down_min_us, sim->down_max_us);
    if (random_chance(sim, sim->late_permille))
        down_us += random_in(sim, 0, 2 * sim->timeout_us);
    events_add(sim, sim->now_us + down_us, flight->instance, reply_arrives, flight);
}

static struct asked asked_of(const struct weir_backend_request *request)
{
    struct asked asked = {
        .limit = weir_limit_name(request->limit)[5] - '0',
        .key = ((const char *)request->key.data)[3] - '0',
        .cost = request->cost,
        .ahead = request->ahead,
        .ago_us = request->cost == 0 ? request->cold_left : 0,
        .spread = request->spread,
        .verb = request->verb,
    };
    weir_request_plan(request, &asked.plan);
    return asked;
}

static struct sim *the_sim; /* one run at a time */

static int remote_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op)
{
    struct remote *remote = (struct remote *)backend;
    struct sim *sim = the_sim;
    struct instance *instance = remote->instance;
    if (instance->is_dead)
        return WEIR_ECLOSED;
    if (remote->is_cut && remote->refuses)
        breaker_open(sim, remote);
    if (remote->is_open)
        return WEIR_EIO;
    struct flight *flight = sim_take(sim, sizeof *flight);
    *flight = (struct flight){
        .instance = instance,
        .remote = remote,
        .op = op,
        .next = remote->flights,
        .from = &remote->flights,
        .asked = asked_of(request),
        .asked_us = sim->now_us,
    };
    if (op == sim->settling) {
        flight->asked.settles = true;
        sim->settling_sent = request->cost;
    }
    if (flight->next)
        flight->next->from = &flight->next;
    remote->flights = flight;
    audit_submitted(sim, instance, &flight->asked);
    trace(sim, "instance %d: limit%d key%d asks for %lld, ahead %lld over %u, within %lld us", instance->number,
          flight->asked.limit, flight->asked.key, (long long)request->cost, (long long)request->ahead, request->spread,
          (long long)(deadline_us - instance_clock_us(instance, sim->now_us)));
    events_add(sim, instance_true_us(sim, instance, deadline_us), instance, deadline_comes, flight);
    if (remote->is_cut || random_chance(sim, sim->lose_permille))
        trace(sim, "instance %d: a request is lost", instance->number);
    else
        events_add(sim, sim->now_us + random_in(sim, sim->up_min_us, sim->up_max_us), NULL, request_arrives, flight);
    return 1;
}

/* Refunds, resets and other verbs take no time. */
static int remote_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out)
{
    struct remote *remote = (struct remote *)backend;
    struct sim *sim = the_sim;
    assert(!all);
    (void)all;
    (void)deadline_us;
    if (remote->instance->is_dead)
        return WEIR_ECLOSED;
    if (remote->is_cut || remote->is_open)
        return WEIR_EIO;
    for (size_t i = 0; i < n; i++) {
        struct flight flight = { .instance = remote->instance, .asked = asked_of(&requests[i]) };
        if (flight.asked.verb == WEIR_TAKE || flight.asked.ahead > 0)
            audit_submitted(sim, remote->instance, &flight.asked);
        execute(sim, &flight);
        sim->executed_us = flight.executed_us;
        sim->executed_order = flight.executed_order;
        sim->executed_remaining = flight.decision.remaining;
        audit_delivered(sim, remote->instance, &flight.asked, sim->now_us, &flight.decision);
        out[i] = flight.decision;
    }
    return WEIR_OK;
}

static void remote_shut(struct weir_backend *backend)
{
    struct remote *remote = (struct remote *)backend;
    while (remote->flights)
        answer(the_sim, remote->flights, WEIR_ECLOSED);
}

static int64_t remote_reachable_us(struct weir_backend *backend, const struct weir_key *key)
{
    (void)key;
    const struct remote *remote = (const struct remote *)backend;
    return remote->is_open ? remote->reachable_us : instance_clock_us(remote->instance, the_sim->now_us);
}

static void remote_watch(struct weir_backend *backend, void (*returned)(void *user), void *user)
{
    struct remote *remote = (struct remote *)backend;
    remote->returned = returned;
    remote->user = user;
}

static void remote_destroy(struct weir_backend *backend)
{
    (void)backend; /* it is the run's memory */
}

static const struct weir_backend_ops remote_ops = {
    .size = sizeof remote_ops,
    .name = "simulated",
    .own_clock = true,
    .shared = true,
    .decide = remote_decide,
    .submit = remote_submit,
    .shut = remote_shut,
    .destroy = remote_destroy,
    .reachable_us = remote_reachable_us,
    .watch = remote_watch,
};

struct remote *remote_make(struct sim *sim, struct instance *instance)
{
    struct remote *remote = sim_take(sim, sizeof *remote);
    *remote = (struct remote){ .backend = { &remote_ops }, .instance = instance };
    the_sim = sim;
    return remote;
}
