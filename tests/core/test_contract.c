/* test_contract.c - run the backend contract on memory and on a tiny test backend, and check what the vtable promises
 * to the author of a backend. */
#include "contract/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <weir/backend.h>

static const struct contract_backend memory = { "memory", CONTRACT_ALL, weir_open, .sources_vary = false };

/* ---- A tiny backend: a list of keys whose permits never come back by time ---- */

enum { TINY_KEYS = 2000 };

struct tiny_key {
    uint32_t limit_id;
    uint64_t hash;
    size_t len;
    char *data;
    int64_t used;
};

struct tiny {
    struct weir_backend base;
    struct tiny_key keys[TINY_KEYS];
    int64_t count;
    int64_t calls, alls, requests, verbs[WEIR_RENEW + 1]; /* by kind of request */
    struct weir_backend_request last;
    struct weir_plan last_plan;
    int64_t last_deadline_us;
    int error; /* what to answer with; WEIR_OK: decide */
    int *destroyed;
};

static struct tiny_key *tiny_find(struct tiny *tiny, const struct weir_backend_request *request)
{
    for (int64_t i = 0; i < tiny->count; i++) {
        struct tiny_key *key = &tiny->keys[i];
        if (key->limit_id == request->limit_id && key->len == request->key.len &&
            memcmp(key->data, request->key.data, key->len) == 0) {
            must(key->hash == request->hash, "a key has one hash under a limit");
            return key;
        }
    }
    must(tiny->count < TINY_KEYS, "the tiny backend has room");
    struct tiny_key *key = &tiny->keys[tiny->count++];
    *key = (struct tiny_key){
        .limit_id = request->limit_id, .hash = request->hash, .len = request->key.len, .data = malloc(request->key.len)
    };
    must(key->data != NULL, "there is memory");
    memcpy(key->data, request->key.data, key->len);
    return key;
}

/* What backend.h says of every request. */
static void tiny_check(const struct weir_backend_request *request)
{
    struct weir_plan plan;
    const uint64_t version = weir_request_plan(request, &plan);
    must(version >= request->plan_version && request->plan_version >= 1 && plan.size >= 0 && plan.fingerprint >= 1 &&
             plan.fingerprint < INT64_C(1) << 53,
         "a plan");
    must(weir_limit_name(request->limit) != NULL && request->key.data != NULL, "a name and a key");
    must(request->key.len >= 1 && request->key.len <= WEIR_MAX_KEY_LEN, "a key's length");
    must(request->cost >= 1 && (request->verb != WEIR_RESET || request->cost == 1), "a cost");
    must(request->cold_since_us == -1, "nobody stands in for it");
    must(request->now_us == WEIR_OWN_CLOCK || (request->now_us >= 0 && request->now_us <= WEIR_MAX_TIME_US), "a time");
}

static int64_t tiny_size(const struct weir_backend_request *request)
{
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    return plan.size;
}

static bool tiny_fits(struct tiny *tiny, const struct weir_backend_request *request)
{
    return tiny_find(tiny, request)->used + request->cost <= tiny_size(request);
}

static void tiny_decide_one(struct tiny *tiny, const struct weir_backend_request *request, bool charged,
                            struct weir_decision *out)
{
    struct tiny_key *key = tiny_find(tiny, request);
    const int64_t size = tiny_size(request), before = key->used;
    const bool takes = request->verb == WEIR_TAKE || request->verb == WEIR_RENEW;
    bool allowed = true;
    if (request->verb == WEIR_REFUND || request->verb == WEIR_RENEW)
        key->used = key->used > request->cost ? key->used - request->cost : 0;
    if (request->verb == WEIR_RESET)
        key->used = 0;
    else if (request->verb == WEIR_RENEW)
        allowed = request->cost <= size && key->used + request->cost <= (before > size ? before : size);
    else if (request->verb == WEIR_TAKE || request->verb == WEIR_PEEK)
        allowed = tiny_fits(tiny, request);
    if (request->verb == WEIR_RENEW && !allowed)
        key->used = before;
    if (request->verb == WEIR_CHARGE || (takes && allowed && charged))
        key->used += request->cost;
    if (request->reservation && takes && allowed)
        request->reservation->at_us = 1; /* permits never come back by themselves */
    *out = (struct weir_decision){
        .allowed = allowed,
        .source = WEIR_BY_BACKEND,
        .limit = size,
        .remaining = size > key->used ? size - key->used : 0,
        .retry_after_us = allowed                ? 0
                          : request->cost > size ? WEIR_NEVER
                                                 : WEIR_DAY,
        .reset_after_us = key->used > 0 ? WEIR_DAY : 0,
    };
}

static int tiny_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                       int64_t deadline_us, struct weir_decision *out)
{
    struct tiny *tiny = (struct tiny *)backend;
    bool charged = true;
    must(n >= 1 && (!all || n <= WEIR_MAX_ALL), "between one request and the most");
    tiny->calls++;
    tiny->alls += all;
    tiny->requests += (int64_t)n;
    tiny->last_deadline_us = deadline_us;
    for (size_t i = 0; i < n; i++) {
        tiny_check(&requests[i]);
        tiny->verbs[requests[i].verb]++;
        tiny->last = requests[i];
        weir_request_plan(&requests[i], &tiny->last_plan);
        charged = charged && (!all || tiny_fits(tiny, &requests[i]));
        for (size_t j = 0; all && j < i; j++)
            must(tiny_find(tiny, &requests[i]) != tiny_find(tiny, &requests[j]), "no limit and key twice");
    }
    if (tiny->error != WEIR_OK)
        return tiny->error;
    for (size_t i = 0; i < n; i++)
        tiny_decide_one(tiny, &requests[i], charged, &out[i]);
    return WEIR_OK;
}

static void tiny_stats(struct weir_backend *backend, struct weir_stats *add)
{
    struct tiny *tiny = (struct tiny *)backend;
    add->keys += tiny->count;
    add->bytes += (int64_t)sizeof *tiny;
    add->evictions += 7;
    add->full += 8;
}

static void tiny_destroy(struct weir_backend *backend)
{
    struct tiny *tiny = (struct tiny *)backend;
    if (tiny->destroyed != NULL)
        (*tiny->destroyed)++;
    for (int64_t i = 0; i < tiny->count; i++)
        free(tiny->keys[i].data);
    free(tiny);
}

static const struct weir_backend_ops tiny_ops = {
    .size = sizeof tiny_ops, .name = "tiny", .decide = tiny_decide, .stats = tiny_stats, .destroy = tiny_destroy
};

static struct tiny *tiny_make(const struct weir_backend_ops *ops, int *destroyed)
{
    struct tiny *tiny = calloc(1, sizeof *tiny);
    ck_assert_ptr_nonnull(tiny);
    tiny->base.ops = ops;
    tiny->destroyed = destroyed;
    return tiny;
}

static int tiny_open(const struct weir_options *options, weir **out)
{
    return weir_open_backend(options, &tiny_make(&tiny_ops, NULL)->base, out);
}

/* The same, but as far as weir knows it blocks. Its decisions are cancellation points under a mutex. */
static pthread_mutex_t blocking = PTHREAD_MUTEX_INITIALIZER;

static int blocking_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                           bool all, int64_t deadline_us, struct weir_decision *out)
{
    pthread_mutex_lock(&blocking);
    pthread_testcancel();
    const int error = tiny_decide(backend, requests, n, all, deadline_us, out);
    pthread_mutex_unlock(&blocking);
    return error;
}

static void blocking_stats(struct weir_backend *backend, struct weir_stats *add)
{
    pthread_testcancel();
    tiny_stats(backend, add);
}

static void blocking_shut(struct weir_backend *backend)
{
    pthread_testcancel();
}

static int blocking_open(const struct weir_options *options, weir **out)
{
    static const struct weir_backend_ops ops = {
        .size = sizeof ops,
        .name = "blocking",
        .decide = blocking_decide,
        .stats = blocking_stats,
        .shut = blocking_shut,
        .destroy = tiny_destroy,
    };
    return weir_open_backend(options, &tiny_make(&ops, NULL)->base, out);
}

static const struct contract_backend blocking_backend = { "blocking", CONTRACT_COUNTS, blocking_open,
                                                          .sources_vary = false };
static const struct contract_backend tiny_backend = { "tiny", CONTRACT_COUNTS, tiny_open, .sources_vary = false };

/* ---- What the vtable promises ---- */

static struct tiny *open_tiny(struct scene *scene, const struct weir_backend_ops *ops, int *destroyed)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct tiny *tiny = tiny_make(ops, destroyed);
    options.on_failure = WEIR_FAIL_ERROR;
    scene_init(scene, &options);
    must_succeed(weir_open_backend(&options, &tiny->base, &scene->limiter));
    return tiny;
}

TEST(each_verb_is_one_backend_call_with_the_callers_arguments, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct tiny *tiny = open_tiny(&scene, &tiny_ops, NULL);
    weir_limit *first = scene_define_text(&scene, "first", "fixed_window limit=9 period=1h");
    weir_limit *second = scene_define_text(&scene, "second", "sliding_window limit=4 period=1s blocks=5");
    ck_assert_int_eq(tiny->calls, 0);

    ck_assert(taken(first, "a", 2).source == WEIR_BY_BACKEND);
    ck_assert_int_eq(tiny->calls, 1);
    ck_assert_int_eq(tiny->verbs[WEIR_TAKE], 1);
    ck_assert_int_eq(tiny->last.cost, 2);
    ck_assert_int_eq(tiny->last.now_us, scene.now_us);
    ck_assert_uint_eq(tiny->last.limit_id, 0);
    ck_assert_str_eq(weir_limit_name(tiny->last.limit), "first");
    ck_assert_int_eq(tiny->last_plan.algorithm, WEIR_FIXED_WINDOW);
    ck_assert_int_eq(tiny->last_plan.size, 9);
    ck_assert_int_eq(tiny->last_plan.period_us, WEIR_HOUR);
    uint64_t hash = tiny->last.hash;

    peeked(second, "a", 3);
    ck_assert_int_eq(tiny->calls, 2);
    ck_assert_int_eq(tiny->verbs[WEIR_PEEK], 1);
    ck_assert_uint_eq(tiny->last.limit_id, 1);
    ck_assert(tiny->last.hash != hash);
    ck_assert_int_eq(tiny->last_plan.blocks, 5);
    ck_assert_int_eq(tiny->last_plan.period_us, 200000);

    must_succeed(weir_refund(first, weir_key_text("a"), 3));
    ck_assert_int_eq(tiny->verbs[WEIR_REFUND], 1);
    ck_assert_int_eq(tiny->last.cost, 3);
    must_succeed(weir_reset(first, weir_key_text("a")));
    ck_assert_int_eq(tiny->verbs[WEIR_RESET], 1);
    ck_assert_int_eq(tiny->calls, 4);
}

TEST(a_backend_with_its_own_clock_receives_only_times_that_the_caller_gave, 10)
{
    struct weir_backend_ops ops = tiny_ops;
    ops.own_clock = true;
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decision;
    struct tiny *tiny = open_tiny(&scene, &ops, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=9 period=1h");
    struct weir_request request = { .limit = limit, .key = weir_key_text("a"), .cost = 1 };
    taken(limit, "a", 1);
    ck_assert_int_eq(tiny->last.now_us, WEIR_OWN_CLOCK);
    must_succeed(weir_try_all(scene.limiter, &request, 1, &decision));
    ck_assert_int_eq(tiny->last.now_us, WEIR_OWN_CLOCK);
    must_succeed(weir_try_batch(scene.limiter, &request, 1, &decision));
    ck_assert_int_eq(tiny->last.now_us, WEIR_OWN_CLOCK);
    request.now_us = 77;
    must_succeed(weir_try_batch(scene.limiter, &request, 1, &decision));
    ck_assert_int_eq(tiny->last.now_us, 77);
}

TEST(a_group_is_one_backend_call_with_equal_keys_merged, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct tiny *tiny = open_tiny(&scene, &tiny_ops, NULL);
    struct weir_decision decision;
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=9 period=1h");
    struct weir_request requests[3] = { { .limit = limit, .key = weir_key_text("a"), .cost = 2, .now_us = 1234 },
                                        { .limit = limit, .key = weir_key_text("b"), .cost = 1, .now_us = 99 },
                                        { .limit = limit, .key = weir_key_text("a"), .cost = 3 } };
    must_succeed(weir_try_all(scene.limiter, requests, 3, &decision));
    ck_assert(decision.allowed);
    ck_assert_int_eq(decision.remaining, 4);
    ck_assert_int_eq(tiny->calls, 1);
    ck_assert_int_eq(tiny->alls, 1);
    ck_assert_int_eq(tiny->requests, 2);
    ck_assert_int_eq(tiny->last.now_us, 1234); /* all are decided at the first request's time */
}

TEST(a_batch_reaches_the_backend_whole_and_in_order, 10)
{
    enum { MANY = 300 };
    static struct weir_request requests[MANY];
    static struct weir_decision decisions[MANY];
    CLOSED_BY(scene_close) struct scene scene;
    struct tiny *tiny = open_tiny(&scene, &tiny_ops, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=299 period=1h");
    for (int i = 0; i < MANY; i++)
        requests[i] = (struct weir_request){ .limit = limit, .key = weir_key_text("a"), .cost = 1, .now_us = 1000 + i };
    must_succeed(weir_try_batch(scene.limiter, requests, MANY, decisions));
    ck_assert_int_eq(tiny->requests, MANY);
    ck_assert_int_eq(tiny->verbs[WEIR_TAKE], MANY);
    ck_assert_int_eq(tiny->alls, 0);
    ck_assert_int_lt(tiny->calls, MANY / 2); /* the purpose of a batch: fewer calls than requests */
    ck_assert_int_eq(tiny->last.now_us, 1000 + MANY - 1);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(decisions[i].remaining, i < 299 ? 298 - i : 0);
}

TEST(a_backends_error_reaches_the_caller_is_counted_and_writes_nothing, 10)
{
    static const int errors[] = { WEIR_ETIME, WEIR_EIO, WEIR_ESTATE, WEIR_ENOMEM };
    CLOSED_BY(scene_close) struct scene scene;
    struct tiny *tiny = open_tiny(&scene, &tiny_ops, NULL);
    struct weir_stats stats = { .size = sizeof stats };
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=9 period=1h");
    struct weir_key key = weir_key_text("a");
    for (int i = 0; i < 4; i++) {
        struct weir_decision untouched, decision;
        memset(&untouched, 0x5a, sizeof untouched);
        decision = untouched;
        struct weir_request request = { .limit = limit, .key = key, .cost = 1 };
        tiny->error = errors[i];
        ck_assert_int_eq(weir_try(limit, key, 1, &decision), errors[i]);
        ck_assert_int_eq(weir_peek(limit, key, 1, &decision), errors[i]);
        ck_assert_int_eq(weir_acquire(limit, key, 1, WEIR_HOUR, &decision), errors[i]);
        ck_assert_int_eq(weir_refund(limit, key, 1), errors[i]);
        ck_assert_int_eq(weir_reset(limit, key), errors[i]);
        ck_assert_int_eq(weir_try_all(scene.limiter, &request, 1, &decision), errors[i]);
        ck_assert_int_eq(memcmp(&decision, &untouched, sizeof decision), 0);
        ck_assert_int_eq(weir_try_batch(scene.limiter, &request, 1, &decision), errors[i]);
    }
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.errors, 4 * 4); /* try, acquire, try_all, batch; not peeks, refunds and resets */
    ck_assert_uint_eq(stats.allowed + stats.denied, 0);
}

TEST(a_backends_numbers_are_added_to_the_stats, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_stats stats = { .size = sizeof stats };
    open_tiny(&scene, &tiny_ops, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=9 period=1h");
    taken(limit, "a", 1);
    taken(limit, "b", 1);
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_int_eq(stats.keys, 2);
    ck_assert_int_eq(stats.bytes, (int64_t)sizeof(struct tiny));
    ck_assert_uint_eq(stats.evictions, 7);
    ck_assert_uint_eq(stats.full, 8);
    ck_assert_uint_eq(stats.allowed, 2);
}

static struct weir_op *submitted;

static int hold_submitted(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                          struct weir_op *op)
{
    struct tiny *tiny = (struct tiny *)backend;
    tiny_check(request);
    tiny->last_deadline_us = deadline_us;
    submitted = op;
    return request->cost == 1 ? 1 : tiny_decide(backend, request, 1, false, deadline_us, &op->decision);
}

static void tiny_shut(struct weir_backend *backend)
{
    (void)backend; /* what was submitted has been answered */
}

static void count_done(struct weir_op *op, int status)
{
    *(int *)op->user += status == WEIR_OK ? 1 : 100;
}

TEST(a_backend_can_answer_a_submitted_request_later, 10)
{
    const struct weir_backend_ops ops = {
        .size = sizeof ops,
        .name = "slow",
        .decide = tiny_decide,
        .submit = hold_submitted,
        .shut = tiny_shut,
        .destroy = tiny_destroy,
    };
    CLOSED_BY(scene_close) struct scene scene;
    struct tiny *tiny = open_tiny(&scene, &ops, NULL);
    int runs = 0;
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=9 period=1h");
    struct weir_op op = { .request = { .limit = limit, .key = weir_key_text("a"), .cost = 1 },
                          .done = count_done,
                          .user = &runs };
    ck_assert_int_eq(weir_submit(scene.limiter, &op), 1);
    ck_assert_ptr_eq(submitted, &op);
    ck_assert_int_eq(runs, 0);
    submitted->done(submitted, WEIR_OK);
    ck_assert_int_eq(runs, 1);
    op.request.cost = 2;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_OK);
    ck_assert_int_eq(op.decision.remaining, 7);
    tiny->error = WEIR_EIO;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EIO);
    ck_assert_int_eq(runs, 1);
    ck_assert_int_gt(tiny->last_deadline_us, 0);
}

TEST(a_limiter_owns_its_backend_only_after_opening_succeeded, 10)
{
    struct scene scene;
    struct weir_options options = WEIR_OPTIONS_INIT;
    int destroyed = 0;
    open_tiny(&scene, &tiny_ops, &destroyed);
    ck_assert_int_eq(destroyed, 0);
    scene_close(&scene);
    ck_assert_int_eq(destroyed, 1);

    struct weir_backend_ops no_decide = tiny_ops, no_destroy = tiny_ops, no_name = tiny_ops, no_size = tiny_ops;
    no_decide.decide = NULL;
    no_destroy.destroy = NULL;
    no_name.name = NULL;
    no_size.size = 0;
    const struct weir_backend_ops *const bad[] = { NULL, &no_decide, &no_destroy, &no_name, &no_size };
    scene_init(&scene, &options);
    scene.log_allowed = true;
    struct tiny *tiny = tiny_make(&tiny_ops, &destroyed);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tiny->base.ops = bad[i];
        ck_assert_int_eq(weir_open_backend(&options, &tiny->base, &scene.limiter), WEIR_EINVAL);
    }
    tiny->base.ops = &tiny_ops;
    ck_assert_int_eq(weir_open_backend(&options, NULL, &scene.limiter), WEIR_EINVAL);
    ck_assert_int_eq(weir_open_backend(&options, &tiny->base, NULL), WEIR_EINVAL);
    options.policy_file = "/nonexistent/limits";
    ck_assert_int_eq(weir_open_backend(&options, &tiny->base, &scene.limiter), WEIR_EIO);
    ck_assert_int_eq(destroyed, 1);
    tiny_destroy(&tiny->base);
}

int main(void)
{
    contract_add(tests(), &memory);
    contract_add(tests(), &tiny_backend);
    contract_add(tests(), &blocking_backend);
    return suite_run(tests());
}
