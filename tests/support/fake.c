/* fake.c - a scripted backend: see fake.h. */
#include "fake.h"

static void decide_one(struct fake *fake, const struct weir_backend_request *request, struct weir_decision *out)
{
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    *out = (struct weir_decision){ .allowed = true,
                                   .source = WEIR_BY_BACKEND,
                                   .limit = plan.size,
                                   .remaining = plan.size,
                                   .delay_us = atomic_load(&fake->delay_us),
                                   .ahead = request->ahead };
}

static int fake_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                       int64_t deadline_us, struct weir_decision *out)
{
    struct fake *fake = (struct fake *)backend;
    int error = atomic_load(&fake->answer), every = atomic_load(&fake->flaky);
    must(deadline_us > 0, "a deadline");
    int call = atomic_fetch_add(&fake->calls, 1);
    atomic_fetch_add(&fake->verbs[requests[0].verb], 1);
    if (every > 0 && call % every == 0)
        error = WEIR_EIO;
    pthread_mutex_lock(&fake->mutex);
    fake->last = requests[n - 1];
    weir_request_plan(&fake->last, &fake->last_plan);
    fake->inside++;
    pthread_cond_broadcast(&fake->changed);
    while (fake->held && (fake->stubborn || !fake->was_shut))
        pthread_cond_wait(&fake->changed, &fake->mutex);
    fake->inside--;
    if (fake->was_shut)
        error = WEIR_ECLOSED;
    pthread_mutex_unlock(&fake->mutex);
    for (size_t i = 0; !error && i < n; i++)
        decide_one(fake, &requests[i], &out[i]);
    return error;
}

static int fake_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                       struct weir_op *op)
{
    struct fake *fake = (struct fake *)backend;
    if (!atomic_load(&fake->later))
        return fake_decide(backend, request, 1, false, deadline_us, &op->decision);
    pthread_mutex_lock(&fake->mutex);
    fake->last = *request;
    bool room = !fake->was_shut && fake->queued < FAKE_QUEUE;
    if (room) {
        for (int i = 2; i < 9; i++) /* these are the backend's */
            op->opaque[i] = UINT64_MAX;
        fake->queue[fake->queued++] = op;
    }
    int error = fake->was_shut ? WEIR_ECLOSED : room ? 1 : WEIR_EFULL;
    pthread_mutex_unlock(&fake->mutex);
    return error;
}

int fake_answer(struct fake *fake, int status, int most)
{
    int count = 0;
    for (; count < most; count++) {
        pthread_mutex_lock(&fake->mutex);
        struct weir_op *op = fake->answered < fake->queued ? fake->queue[fake->answered++] : NULL;
        pthread_mutex_unlock(&fake->mutex);
        if (!op)
            break;
        for (int i = 2; i < 9; i++)
            must(op->opaque[i] == UINT64_MAX, "the backend's words of an op are its own until it has answered");
        if (status == WEIR_OK)
            op->decision = (struct weir_decision){ .allowed = true, .source = WEIR_BY_BACKEND };
        op->done(op, status);
    }
    return count;
}

static void *answer_closed(void *argument)
{
    fake_answer(argument, WEIR_ECLOSED, FAKE_QUEUE);
    return NULL;
}

static void fake_shut(struct weir_backend *backend)
{
    struct fake *fake = (struct fake *)backend;
    pthread_mutex_lock(&fake->mutex);
    must(!fake->was_shut, "shut once at most");
    fake->was_shut = true;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->mutex);
    must(pthread_create(&fake->shutter, NULL, answer_closed, fake) == 0, "a thread");
}

static void fake_destroy(struct weir_backend *backend)
{
    struct fake *fake = (struct fake *)backend;
    if (fake->was_shut)
        pthread_join(fake->shutter, NULL);
    must(fake->inside == 0, "nobody is in the backend any more");
    must(fake->answered == fake->queued, "every op has its answer");
    atomic_store(&fake->destroyed, true);
}

void fake_init(struct fake *fake)
{
    memset(fake, 0, sizeof *fake);
    fake->ops = (struct weir_backend_ops){
        .size = sizeof fake->ops,
        .name = "fake",
        .decide = fake_decide,
        .submit = fake_submit,
        .shut = fake_shut,
        .destroy = fake_destroy,
    };
    fake->base.ops = &fake->ops;
    pthread_mutex_init(&fake->mutex, NULL);
    pthread_cond_init(&fake->changed, NULL);
}

void fake_open(struct fake *fake, struct scene *scene, const struct weir_options *options)
{
    struct weir_options own = WEIR_OPTIONS_INIT;
    if (options)
        own = *options;
    scene_init(scene, &own);
    scene->log_allowed = true;
    must_succeed(weir_open_backend(&own, &fake->base, &scene->limiter));
}

void fake_hold(struct fake *fake, bool stubborn)
{
    pthread_mutex_lock(&fake->mutex);
    fake->held = true;
    fake->stubborn = stubborn;
    pthread_mutex_unlock(&fake->mutex);
}

void fake_let_go(struct fake *fake)
{
    pthread_mutex_lock(&fake->mutex);
    fake->held = false;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->mutex);
}

void fake_await_inside(struct fake *fake, int calls)
{
    pthread_mutex_lock(&fake->mutex);
    while (fake->inside < calls)
        pthread_cond_wait(&fake->changed, &fake->mutex);
    pthread_mutex_unlock(&fake->mutex);
}
