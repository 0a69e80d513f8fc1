/* remote.c - a store that several limiters share over cables that can be cut: see remote.h. */
#include "remote.h"

#include "backends/memory/memory.h"
#include "core/limiter/limiter.h"
#include "core/limiter/options.h"

#include <stdlib.h>

void remote_init(struct remote *remote)
{
    struct weir_options options;
    memset(remote, 0, sizeof *remote);
    must_succeed(options_read(NULL, &options));
    must_succeed(memory_open(&options, &remote->store));
    pthread_mutex_init(&remote->mutex, NULL);
}

void remote_free(struct remote *remote)
{
    remote->store->ops->destroy(remote->store);
    pthread_mutex_destroy(&remote->mutex);
}

static struct weir_backend_request as_any_limiters(const struct weir_backend_request *request)
{
    static const struct hash_secret secret = { 1, 2 };
    struct weir_backend_request any = *request;
    any.hash = siphash13(&secret, request->key.data, request->key.len);
    return any;
}

static int carry(struct cable *cable, const struct weir_backend_request *requests, size_t n, bool all,
                 struct weir_decision *out)
{
    struct weir_backend_request any[WEIR_MAX_ALL];
    struct remote *remote = cable->remote;
    struct weir_decision lost[WEIR_MAX_ALL];
    const int fault = atomic_load(&cable->fault), error = atomic_load(&cable->error);
    for (size_t i = 0; i < n; i++) {
        any[i] = as_any_limiters(&requests[i]);
        any[i].cold_left = 0;
        if (any[i].now_us == WEIR_OWN_CLOCK)
            any[i].now_us = *cable->clock_us;
    }
    if (fault == CABLE_CUT)
        return WEIR_EIO;
    if (fault == CABLE_LOSES_REQUEST)
        return WEIR_ETIME;
    if (error && requests[0].ahead > 0)
        return error;
    struct weir_decision *answers = fault == CABLE_LOSES_ANSWER ? lost : out;
    pthread_mutex_lock(&remote->mutex);
    must_succeed(remote->store->ops->decide(remote->store, any, n, all, INT64_MAX, answers));
    for (size_t i = 0; i < n; i++) {
        const bool asks = any[i].cost == 0 && requests[i].cold_left > 0;
        must(any[i].cost > 0 || any[i].ahead > 0 || asks, "nobody asks for nothing");
        remote->asks += asks;
        if (asks) {
            answers[i].age_us = remote->idle_us;
            answers[i].retry_after_us = remote->ended_us;
        }
        must(answers[i].ahead <= any[i].ahead, "no more is charged ahead than was asked for");
        remote->charged += answers[i].ahead;
        if (answers[i].ahead > remote->most_charged)
            remote->most_charged = answers[i].ahead;
        answers[i].source = WEIR_BY_BACKEND;
    }
    pthread_mutex_unlock(&remote->mutex);
    return fault == CABLE_LOSES_ANSWER ? WEIR_ETIME : WEIR_OK;
}

static int cable_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                        int64_t deadline_us, struct weir_decision *out)
{
    struct cable *cable = (struct cable *)backend;
    atomic_fetch_add(&cable->calls, 1);
    atomic_fetch_add(&cable->charges, requests[0].ahead > 0);
    bool was_shut = false;
    if (requests[0].ahead > 0) {
        pthread_mutex_lock(&cable->mutex);
        cable->inside++;
        pthread_cond_broadcast(&cable->changed);
        while (cable->held && !cable->was_shut)
            pthread_cond_wait(&cable->changed, &cable->mutex);
        cable->inside--;
        was_shut = cable->was_shut;
        pthread_mutex_unlock(&cable->mutex);
    }
    return was_shut ? WEIR_ECLOSED : carry(cable, requests, n, all, out);
}

static int cable_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                        struct weir_op *op)
{
    struct cable *cable = (struct cable *)backend;
    atomic_fetch_add(&cable->submits, 1);
    must(op->request.cost == request->cost && op->request.limit == request->limit, "the op tells of its request");
    if (!atomic_load(&cable->later))
        return carry(cable, request, 1, false, &op->decision);
    if (atomic_load(&cable->fault) == CABLE_CUT)
        return WEIR_EIO;
    for (int i = 2; i < 9; i++)
        op->opaque[i] = UINT64_MAX; /* these are the backend's */
    pthread_mutex_lock(&cable->mutex);
    int result = cable->was_shut ? WEIR_ECLOSED : cable->queued < CABLE_QUEUE ? 1 : WEIR_EFULL;
    if (result == 1) {
        cable->queue[cable->queued].op = op;
        cable->queue[cable->queued].request = *request;
        cable->queue[cable->queued++].request.key = op->request.key; /* whose bytes stay until `done` runs */
    }
    pthread_mutex_unlock(&cable->mutex);
    return result;
}

int cable_answer(struct cable *cable, int most)
{
    int count = 0;
    for (; count < most; count++) {
        pthread_mutex_lock(&cable->mutex);
        const bool was_shut = cable->was_shut;
        const int next = cable->answered;
        const bool any = next < cable->queued;
        struct weir_op *op = any ? cable->queue[next].op : NULL;
        struct weir_backend_request request = cable->queue[any ? next : 0].request;
        if (any && ++cable->answered == cable->queued)
            cable->queued = cable->answered = 0;
        pthread_mutex_unlock(&cable->mutex);
        if (!any)
            break;
        int status = was_shut ? WEIR_ECLOSED : carry(cable, &request, 1, false, &op->decision);
        for (int i = 2; i < 9; i++)
            must(op->opaque[i] == UINT64_MAX, "the backend's words of an op are its own until it has answered");
        op->done(op, status);
    }
    return count;
}

static void *answer_closed(void *argument)
{
    cable_answer(argument, CABLE_QUEUE);
    return NULL;
}

static void cable_shut(struct weir_backend *backend)
{
    struct cable *cable = (struct cable *)backend;
    pthread_mutex_lock(&cable->mutex);
    must(!cable->was_shut, "shut once at most");
    cable->was_shut = true;
    pthread_cond_broadcast(&cable->changed);
    pthread_mutex_unlock(&cable->mutex);
    must(pthread_create(&cable->shutter, NULL, answer_closed, cable) == 0, "a thread");
}

static void cable_destroy(struct weir_backend *backend)
{
    struct cable *cable = (struct cable *)backend;
    if (cable->was_shut)
        pthread_join(cable->shutter, NULL);
    must(cable->inside == 0 && cable->answered == cable->queued, "nobody is in the backend any more");
    pthread_cond_destroy(&cable->changed);
    pthread_mutex_destroy(&cable->mutex);
}

static void cable_watch(struct weir_backend *backend, void (*returned)(void *user), void *user)
{
    struct cable *cable = (struct cable *)backend;
    must(!cable->returned, "watched once at most");
    cable->returned = returned;
    cable->user = user;
}

void cable_init(struct cable *cable, struct remote *remote)
{
    memset(cable, 0, sizeof *cable);
    cable->remote = remote;
    cable->ops = (struct weir_backend_ops){
        .size = sizeof cable->ops,
        .name = "cable",
        .shared = true,
        .decide = cable_decide,
        .submit = cable_submit,
        .shut = cable_shut,
        .destroy = cable_destroy,
        .watch = cable_watch,
        .slots = true,
    };
    cable->base.ops = &cable->ops;
    pthread_mutex_init(&cable->mutex, NULL);
    pthread_cond_init(&cable->changed, NULL);
}

void cable_tell_idle(struct cable *cable, const int64_t *clock_us)
{
    cable->ops.size = OWN_OPS_SIZE;
    cable->ops.own_clock = true;
    cable->own.idles = true;
    cable->clock_us = clock_us;
}

void cable_set(struct cable *cable, enum cable_fault fault)
{
    const int before = atomic_exchange(&cable->fault, (int)fault);
    if (fault == CABLE_WELL && before != CABLE_WELL && cable->returned)
        cable->returned(cable->user);
}

void cable_hold(struct cable *cable)
{
    pthread_mutex_lock(&cable->mutex);
    cable->held = true;
    pthread_mutex_unlock(&cable->mutex);
}

void cable_await_held(struct cable *cable)
{
    pthread_mutex_lock(&cable->mutex);
    while (cable->inside == 0)
        pthread_cond_wait(&cable->changed, &cable->mutex);
    pthread_mutex_unlock(&cable->mutex);
}

void cable_let_go(struct cable *cable)
{
    pthread_mutex_lock(&cable->mutex);
    cable->held = false;
    pthread_cond_broadcast(&cable->changed);
    pthread_mutex_unlock(&cable->mutex);
}
