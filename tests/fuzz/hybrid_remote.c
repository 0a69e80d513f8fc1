/* hybrid_remote.c - the store of fuzz target `hybrid` and the links to it: see hybrid_remote.h. */
#include "hybrid_remote.h"

#include "core/ground/arith.h"
#include "core/limiter/limiter.h"
#include "core/limiter/own_ops.h"

#include <string.h>

const char *const key_names[KEYS] = { "a", "b" };
struct world world;

/* ---- The store ---- */

static int key_of(const struct weir_backend_request *request)
{
    for (int i = 0; i < KEYS; i++)
        if (request->key.len == strlen(key_names[i]) && memcmp(request->key.data, key_names[i], request->key.len) == 0)
            return i;
    fuzz_fail("the key is one of the story's");
}

static void execute(const struct weir_backend_request *request, struct weir_decision *out)
{
    struct mirror *mirror = &world.store[request->limit_id][key_of(request)];
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    fuzz_must(request->cost > 0 || request->ahead > 0, "something is asked for");
    if (request->ahead > 0 && request->verb == WEIR_REFUND)
        mirror_return(mirror, &plan, request->cost, request->ahead, world.now_us, out);
    else if (request->ahead > 0)
        mirror_take_ahead(mirror, &plan, request->cost, request->ahead, request->spread, world.now_us, out);
    else
        mirror_decide(mirror, &plan, request->verb, request->cost, world.now_us, out);
    fuzz_must(out->ahead <= request->ahead, "no more is charged ahead than is asked for");
    out->source = WEIR_BY_REDIS;
}

/* Decide a group: each decision is its limit's own, or a peek's if any limit denies. */
static void execute_all(const struct weir_backend_request *requests, size_t n, struct weir_decision *out)
{
    bool allowed = true;
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < n; i++) {
            struct weir_backend_request request = requests[i];
            request.verb = round == 0 ? WEIR_PEEK : WEIR_TAKE;
            if (round == 0 || allowed)
                execute(&request, &out[i]);
            allowed = allowed && out[i].allowed;
        }
    }
}

static void count_charged(struct remote *remote, const struct weir_backend_request *request,
                          const struct weir_decision *decision)
{
    const int key = key_of(request);
    const int64_t permits = (decision->allowed ? request->cost : 0) + decision->ahead;
    if (request->verb != WEIR_TAKE || permits == 0)
        return;
    remote->charged[request->limit_id][key] += permits;
    remote->charged_us[request->limit_id][key] = max_of(remote->charged_us[request->limit_id][key], world.executed_us);
}

/* ---- The way there, and back ---- */

void remote_execute(struct pending *pending)
{
    if (!pending->op || pending->executed)
        return;
    pending->executed = true;
    pending->executed_us = world.now_us;
    execute(&pending->request, &pending->decision);
}

void remote_answer(struct remote *remote, struct pending *pending, int status)
{
    struct weir_op *op = pending->op;
    if (!op || (status == WEIR_OK && !pending->executed))
        return;
    const int64_t outer_us = world.executed_us;
    world.executed_us = pending->executed_us;
    if (status == WEIR_OK) {
        op->decision = pending->decision;
        count_charged(remote, &pending->request, &pending->decision);
    }
    for (int i = 2; i < 9; i++)
        fuzz_must(op->opaque[i] == UINT64_MAX, "the backend's words of an op are its own until it has answered");
    pending->op = NULL;
    const bool outer = world.answering;
    world.answering = true;
    op->done(op, status);
    world.answering = outer;
    world.executed_us = outer_us;
}

static void answer_due(void)
{
    for (struct remote *remote = world.remotes; remote < world.remotes + INSTANCES; remote++)
        for (int i = 0; i < PENDING_MOST; i++)
            if (remote->pending[i].op && remote->pending[i].deadline_us <= world.now_us)
                remote_answer(remote, &remote->pending[i], WEIR_ETIME);
}

void world_pass(int64_t us)
{
    world.now_us = min_of(world.now_us + us, WEIR_MAX_TIME_US / 2);
    answer_due();
}

/* In place of core/ground/clock.c's: deadlines are by the story's clock. */
int64_t __wrap_clock_monotonic_us(void);
int64_t __wrap_clock_monotonic_us(void)
{
    return world.now_us;
}

/* ---- The vtable ---- */

/* Choose how a call ends: executed and answered, or with an error on the way there or back. */
static int way_by_feed(bool *executed)
{
    const uint8_t choice = world.fails ? feed_byte(&world.feed) : 0;
    *executed = choice < 224 || choice >= 240;
    return choice < 224 ? WEIR_OK : choice % 2 ? WEIR_EIO : WEIR_ETIME;
}

static int remote_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out)
{
    struct remote *remote = (struct remote *)backend;
    struct weir_decision lost[WEIR_MAX_ALL];
    bool executed;
    int error = WEIR_OK;
    fuzz_must(deadline_us > 0 && n >= 1 && n <= WEIR_MAX_ALL, "a call has a deadline and requests");
    if (remote->was_shut)
        return WEIR_ECLOSED;
    world.executed_us = world.now_us;
    for (size_t i = 0; i < n; i = all ? n : i + 1) {
        const int way = way_by_feed(&executed);
        const size_t part = all ? n : 1;
        struct weir_decision *answers = way == WEIR_OK ? out + i : lost;
        if (executed && all)
            execute_all(requests, n, answers);
        else if (executed)
            execute(&requests[i], answers);
        bool allowed = true;
        for (size_t k = 0; all && way == WEIR_OK && k < n; k++)
            allowed = allowed && out[k].allowed;
        for (size_t k = i; way == WEIR_OK && allowed && k < i + part; k++)
            count_charged(remote, &requests[k], &out[k]);
        error = error ? error : way;
    }
    if (n == 1) /* with several requests their execution times would be unknown */
        world_pass(feed_byte(&world.feed) % 16 == 15 ? feed_magnitude(&world.feed, WEIR_SECOND) : 0);
    return error;
}

static int remote_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op)
{
    struct remote *remote = (struct remote *)backend;
    struct pending *pending = remote->pending;
    bool executed;
    fuzz_must(op->request.cost == request->cost && op->request.limit == request->limit, "the op tells of its request");
    if (remote->was_shut)
        return WEIR_ECLOSED;
    while (pending < remote->pending + PENDING_MOST && pending->op)
        pending++;
    if (pending == remote->pending + PENDING_MOST)
        return WEIR_EFULL;
    const int way = way_by_feed(&executed);
    if (way != WEIR_OK)
        return way;
    if (world.in_call || deadline_us <= world.now_us) {
        world.executed_us = world.now_us;
        execute(request, &op->decision);
        count_charged(remote, request, &op->decision);
        return WEIR_OK;
    }
    *pending = (struct pending){ .op = op, .request = *request, .deadline_us = deadline_us };
    pending->request.key = op->request.key; /* its bytes stay valid until `done` runs */
    for (int i = 2; i < 9; i++)
        op->opaque[i] = UINT64_MAX;
    return 1;
}

static void remote_shut(struct weir_backend *backend)
{
    struct remote *remote = (struct remote *)backend;
    remote->was_shut = true;
    for (int i = 0; i < PENDING_MOST; i++)
        remote_answer(remote, &remote->pending[i], WEIR_ECLOSED);
}

static void remote_destroy(struct weir_backend *backend)
{
    const struct remote *remote = (struct remote *)backend;
    for (int i = 0; i < PENDING_MOST; i++)
        fuzz_must(!remote->pending[i].op, "all has its answer");
}

/* There is only one thread, which must not wait while it delivers an answer. */
static bool remote_is_here(struct weir_backend *backend)
{
    const struct remote *remote = (struct remote *)backend;
    bool here = world.answering;
    for (int i = 0; i < PENDING_MOST; i++)
        here = here || remote->pending[i].op;
    return here;
}

void remote_make(struct remote *remote)
{
    static const struct own_ops ops = {
        .base = {
            .size = OWN_OPS_SIZE,
            .name = "remote",
            .own_clock = true,
            .shared = true,
            .decide = remote_decide,
            .submit = remote_submit,
            .shut = remote_shut,
            .destroy = remote_destroy,
        },
        .is_here = remote_is_here,
    };
    memset(remote, 0, sizeof *remote);
    remote->base.ops = &ops.base;
}
