/* stage.c - hybrid mode over a scripted remote backend: see stage.h. */
#include "stage.h"

#include "backends/hybrid/hybrid.h"
#include "backends/memory/memory.h"
#include "core/api/life.h"
#include "core/limiter/limiter.h"
#include "core/limiter/options.h"
#include "core/limiter/own_ops.h"
#include "core/limiter/request.h"

/* ---- The remote ---- */

/* Needs the mutex. */
static int store_decide(struct stage_remote *remote, const struct weir_backend_request *requests, size_t n, bool all,
                        struct weir_decision *out)
{
    struct weir_backend_request timed[WEIR_MAX_ALL] = { 0 };
    if (remote->failure)
        return remote->failure;
    for (size_t i = 0; i < n; i++) {
        timed[i] = requests[i];
        if (timed[i].now_us == WEIR_OWN_CLOCK)
            timed[i].now_us = atomic_load(&remote->now_us);
    }
    int error = remote->store->ops->decide(remote->store, timed, n, all, INT64_MAX, out);
    for (size_t i = 0; i < n; i++)
        out[i].source = WEIR_BY_REDIS;
    return error;
}

int stage_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                 int64_t deadline_us, struct weir_decision *out)
{
    struct stage_remote *remote = (struct stage_remote *)backend;
    pthread_mutex_lock(&remote->mutex);
    remote->decided++;
    int error = remote->was_shut ? WEIR_ECLOSED : store_decide(remote, requests, n, all, out);
    pthread_mutex_unlock(&remote->mutex);
    return error;
}

static int remote_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op)
{
    struct stage_remote *remote = (struct stage_remote *)backend;
    pthread_mutex_lock(&remote->mutex);
    const bool closed = remote->was_shut;
    if (!closed) {
        must(remote->queued < STAGE_QUEUE, "room for what waits");
        remote->submitted++;
        remote->ahead = request->ahead;
        remote->queue[remote->queued++] = (struct stage_pending){ op, *request };
    }
    pthread_mutex_unlock(&remote->mutex);
    return closed ? WEIR_ECLOSED : 1;
}

/* The remote whose answers this thread delivers, while `done` runs. */
static _Thread_local const struct stage_remote *answering;

static int remote_answer(struct stage_remote *remote, int64_t late_us)
{
    int count = 0;
    for (;; count++) {
        pthread_mutex_lock(&remote->mutex);
        struct stage_pending pending = { .op = NULL };
        int status = WEIR_OK;
        if (remote->answered < remote->queued) {
            pending = remote->queue[remote->answered++];
            status = remote->was_shut ? WEIR_ECLOSED
                                      : store_decide(remote, &pending.request, 1, false, &pending.op->decision);
            if (remote->answered == remote->queued)
                remote->answered = remote->queued = 0;
        }
        pthread_mutex_unlock(&remote->mutex);
        if (!pending.op)
            return count;
        atomic_fetch_add(&remote->now_us, late_us);
        answering = remote;
        pending.op->done(pending.op, status);
        answering = NULL;
    }
}

static void remote_shut(struct weir_backend *backend)
{
    struct stage_remote *remote = (struct stage_remote *)backend;
    pthread_mutex_lock(&remote->mutex);
    remote->was_shut = true;
    pthread_mutex_unlock(&remote->mutex);
    remote_answer(remote, 0);
}

static void remote_destroy(struct weir_backend *backend)
{
    struct stage_remote *remote = (struct stage_remote *)backend;
    must(remote->queued == 0, "all was answered");
    remote->store->ops->destroy(remote->store);
    pthread_mutex_destroy(&remote->mutex);
}

static bool remote_is_here(struct weir_backend *backend)
{
    return answering == (struct stage_remote *)backend;
}

static const struct own_ops remote_ops = {
    .base = {
        .size = OWN_OPS_SIZE,
        .name = "remote",
        .own_clock = true,
        .shared = true,
        .decide = stage_decide,
        .submit = remote_submit,
        .shut = remote_shut,
        .destroy = remote_destroy,
        .slots = true,
    },
    .is_here = remote_is_here,
};

int stage_answer(struct stage *stage, int64_t late_us)
{
    return remote_answer(&stage->remote, late_us);
}

struct weir_backend_request stage_request(const struct stage *stage, const char *key, int64_t cost)
{
    return (struct weir_backend_request){
        .limit = stage->limit,
        .key = weir_key_text(key),
        .hash = key_hash(stage->limit, weir_key_text(key)),
        .cost = cost,
        .now_us = WEIR_OWN_CLOCK,
        .plan_version = plan_cell_version(&stage->limit->plan),
        .cold_since_us = -1,
        .verb = WEIR_TAKE,
    };
}

struct weir_decision stage_elsewhere(struct stage *stage, const char *key, enum weir_verb verb, int64_t cost)
{
    struct weir_backend_request request = stage_request(stage, key, cost);
    struct weir_decision decision;
    request.verb = (uint8_t)verb;
    pthread_mutex_lock(&stage->remote.mutex);
    must_succeed(store_decide(&stage->remote, &request, 1, false, &decision));
    pthread_mutex_unlock(&stage->remote.mutex);
    return decision;
}

int64_t stage_drain(struct stage *stage, const char *key)
{
    int64_t count = 0;
    while (stage_elsewhere(stage, key, WEIR_TAKE, 1).allowed)
        count++;
    return count;
}

/* ---- The stage ---- */

int64_t stage_now_us(void *stage)
{
    return atomic_load(&((struct stage *)stage)->remote.now_us);
}

void stage_pass(struct stage *stage, int64_t us)
{
    atomic_fetch_add(&stage->remote.now_us, us);
}

void stage_open_as(struct stage *stage, const char *policy, const struct stage_settings *settings)
{
    struct weir_options options = WEIR_OPTIONS_INIT, read;
    struct stage_remote *remote = &stage->remote;
    memset(stage, 0, sizeof *stage);
    options.mode = WEIR_HYBRID;
    options.redis_url = "unix:///not-used";
    options.on_failure = WEIR_FAIL_ERROR;
    options.lease_max = settings->lease_max;
    options.timeout_us = settings->timeout_us;
    must_succeed(options_read(&options, &read));
    remote->own = remote_ops;
    remote->base.ops = &remote->ops;
    remote->now_us = 1000 * WEIR_SECOND;
    pthread_mutex_init(&remote->mutex, NULL);
    must_succeed(memory_open(&read, &remote->store));
    const struct hybrid_settings own = {
        .leases = { .life_us = settings->life_us ? settings->life_us : STAGE_LIFE_US,
                    .excess = settings->excess ? settings->excess : 100,
                    .denial_us = 2 * WEIR_SECOND,
                    .max = read.lease_max,
                    .instances = 1 },
        .max_keys = settings->max_keys ? settings->max_keys : 1000,
        .max_bytes = settings->max_bytes ? settings->max_bytes : INT64_C(64) << 20,
        .timeout_us = read.timeout_us,
        .now_us = settings->now_us ? settings->now_us : stage_now_us,
        .user = stage,
    };
    must_succeed(hybrid_open(&own, &remote->base, &stage->hybrid));
    must_succeed(limiter_make(&read, stage->hybrid, NULL, NULL, &stage->limiter));
    stage->limit = limit_of(stage->limiter, "limit", policy);
}

void stage_open(struct stage *stage, const char *policy)
{
    const struct stage_settings usual = { 0 };
    stage_open_as(stage, policy, &usual);
}

void stage_close(struct stage *stage)
{
    stage->remote.own = remote_ops;
    weir_close(stage->limiter);
}

struct weir_limit_info stage_info(const struct stage *stage)
{
    struct weir_limit_info info = { .size = sizeof info };
    must_succeed(weir_limit_info(stage->limit, &info));
    return info;
}

/* ---- Submitted requests ---- */

void asked_done(struct weir_op *op, int status)
{
    struct asked *asked = (struct asked *)(void *)op;
    must(asked->done == 0, "done once");
    asked->done = ++asked->stage->finished;
    asked->status = status;
}

int stage_submit(struct stage *stage, struct asked *asked, const char *key, int64_t cost)
{
    memset(asked, 0, sizeof *asked);
    asked->stage = stage;
    asked->op.request = (struct weir_request){ .limit = stage->limit, .key = weir_key_text(key), .cost = cost };
    asked->op.done = asked_done;
    const int result = weir_submit(stage->limiter, &asked->op);
    if (result == WEIR_OK)
        asked_done(&asked->op, WEIR_OK);
    else
        must(result == 1 || result < 0, "a result");
    return result;
}

void stage_ask(struct stage *stage, struct asked *asked, const char *key, int64_t cost, int64_t late_us)
{
    stage_submit(stage, asked, key, cost);
    stage_answer(stage, late_us);
}

int64_t stage_spend(struct stage *stage, const char *key)
{
    struct asked asked;
    int64_t count = 0;
    while (stage_submit(stage, &asked, key, 1) == WEIR_OK && asked.op.decision.allowed &&
           asked.op.decision.source == WEIR_BY_LEASE)
        count++;
    stage_answer(stage, 0);
    return count;
}

void stage_warm_up(struct stage *stage, const char *key, int64_t gap_us)
{
    struct asked asked;
    for (int64_t spent_us = 0; spent_us < 3 * STAGE_LIFE_US; spent_us += gap_us) {
        stage_submit(stage, &asked, key, 1);
        stage_answer(stage, 0);
        must(asked.done > 0 && asked.op.decision.allowed, "admitted");
        stage_pass(stage, gap_us);
    }
    stage_pass(stage, STAGE_LIFE_US);
    stage->remote.submitted = stage->remote.decided = 0;
    stage->finished = 0;
}

struct warming {
    struct stage *stage;
    const char *key;
    int64_t gap_us;
};

static void *warms_up(void *user)
{
    const struct warming *warming = user;
    stage_warm_up(warming->stage, warming->key, warming->gap_us);
    return NULL;
}

void stage_warm_up_elsewhere(struct stage *stage, const char *key, int64_t gap_us)
{
    struct warming warming = { stage, key, gap_us };
    pthread_t thread;
    must(pthread_create(&thread, NULL, warms_up, &warming) == 0, "a thread");
    pthread_join(thread, NULL);
}
