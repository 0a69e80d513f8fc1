/* test_redis_ahead.c - permits charged in advance in Redis give the same results as in memory, on every path of a
 * request. */
#include "backends/redis/process.h"
#include "core/api/verbs.h"
#include "core/ground/arith.h"
#include "core/limiter/limiter.h"
#include "lab/redis_server.h"
#include "support.h"

#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

enum { GROUP = 12, KEYS = 3 };

/* The paths of a request. */
enum way { BY_CALLER, BY_THREAD, SUBMITTED, WAYS };
static const char *const way_names[WAYS] = { "by the caller", "by the thread", "submitted" };

/* One limiter in memory and one in Redis, with the same clock and the same limit. */
struct two {
    struct scene memory, redis;
    weir_limit *limits[2];
    enum way way;
    int64_t ahead, asked; /* requests that were granted permits in advance, and all requests */
};

static struct redis_server server;

static void two_open(struct two *two, enum way way)
{
    static int opened;
    char prefix[WEIR_MAX_NAME_LEN];
    const struct weir_options memory_options = { .size = sizeof memory_options, .keep_idle = true };
    snprintf(prefix, sizeof prefix, "weir:ahead-%d-%d:", (int)getpid(), opened++);
    struct weir_options options = { .size = sizeof options,
                                    .mode = WEIR_DISTRIBUTED,
                                    .redis_url = server.url,
                                    .redis_prefix = prefix,
                                    .on_failure = WEIR_FAIL_ERROR,
                                    .timeout_us = 20 * WEIR_SECOND,
                                    .by_local_clock = true };
    memset(two, 0, sizeof *two);
    two->way = way;
    scene_open(&two->memory, &memory_options);
    scene_open(&two->redis, &options);
    struct redis *redis = (struct redis *)two->redis.limiter->backend;
    while (way == BY_THREAD && redis_lane_take(atomic_load(&redis->current)->engine) != NULL)
        ; /* take all lanes, so that only the thread is left */
}

static void two_close(struct two *two)
{
    scene_close(&two->redis);
    scene_close(&two->memory);
}

static void two_define(struct two *two, struct chance *chance, enum kind kind)
{
    for (;;) {
        struct weir_policy policy = policy_by_chance(chance, kind);
        if (chance_one_in(chance, 2)) {
            policy.limit = chance_between(chance, 1, 50);
            policy.burst = policy.debt = policy.capacity = 0;
        }
        if (weir_policy_check(&policy, NULL, 0) != WEIR_OK)
            continue;
        two->limits[0] = scene_define(&two->memory, "limit", &policy);
        two->limits[1] = scene_define(&two->redis, "limit", &policy);
        return;
    }
}

struct submitted {
    struct weir_op op;
    int status;
    sem_t *done;
};

static void submitted_done(struct weir_op *op, int status)
{
    struct submitted *submitted = op->user;
    submitted->status = status;
    sem_post(submitted->done);
}

/* The op's cost differs from the request's: of the op's own request only the limit and the key count. */
static void submit(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                   struct weir_decision *out)
{
    struct submitted ops[GROUP];
    sem_t done;
    must(sem_init(&done, 0, 0) == 0, "a semaphore");
    for (size_t i = 0; i < n; i++) {
        ops[i] = (struct submitted){ .op = { .request = { requests[i].limit, requests[i].key, 4711, 0 },
                                             .done = submitted_done,
                                             .user = &ops[i] },
                                     .done = &done };
        must(backend->ops->submit(backend, &requests[i], clock_monotonic_us() + 20 * WEIR_SECOND, &ops[i].op) == 1,
             "it is answered later");
    }
    for (size_t i = 0; i < n; i++)
        while (sem_wait(&done) != 0)
            ;
    for (size_t i = 0; i < n; i++) {
        must_succeed(ops[i].status);
        out[i] = ops[i].op.decision;
    }
    sem_destroy(&done);
}

static void ask(struct two *two, int which, struct weir_backend_request *requests, size_t n, struct weir_decision *out)
{
    struct weir_backend *backend = (which == 0 ? &two->memory : &two->redis)->limiter->backend;
    for (size_t i = 0; i < n; i++) {
        const struct weir_backend_request *request = &requests[i];
        struct weir_backend_request own = backend_request(two->limits[which], request->key, request->cost,
                                                          request->now_us, request->verb);
        own.ahead = request->ahead;
        own.spread = request->spread;
        requests[i] = own;
    }
    if (which == 1 && two->way == SUBMITTED)
        submit(backend, requests, n, out);
    else
        must_succeed(backend->ops->decide(backend, requests, n, false, clock_monotonic_us() + 20 * WEIR_SECOND, out));
}

static struct weir_backend_request request_by_chance(const struct two *two, struct chance *chance, int64_t size,
                                                     int64_t now_us)
{
    static const char *const keys[KEYS] = { "a", "b", "c" };
    struct weir_backend_request request = { .key = weir_key_text(keys[chance_between(chance, 0, KEYS - 1)]),
                                            .cost = chance_between(chance, 1, min_of(size, 10)),
                                            .now_us = now_us,
                                            .verb = WEIR_TAKE };
    if (chance_one_in(chance, 2)) {
        request.cost = chance_one_in(chance, 2) ? 0 : chance_between(chance, 1, size);
        request.ahead = chance_one_in(chance, 4) ? 2 * WEIR_MAX_PERMITS : chance_between(chance, 1, size);
        request.spread = (uint16_t)chance_between(chance, 1, chance_one_in(chance, 8) ? WEIR_MAX_SPREAD : 6);
    } else if (two->way != SUBMITTED && chance_one_in(chance, 3)) { /* only takes can be submitted */
        request.verb = (uint8_t)chance_between(chance, WEIR_PEEK, WEIR_RESET);
        request.cost = request.verb == WEIR_RESET ? 1 : request.cost;
    }
    return request;
}

static void two_ask(struct two *two, struct chance *chance)
{
    struct weir_backend_request requests[GROUP], copies[GROUP];
    struct weir_decision in_memory[GROUP], in_redis[GROUP];
    const size_t n = (size_t)chance_between(chance, 1, GROUP);
    struct weir_plan plan;
    requests[0] = backend_request(two->limits[1], weir_key_text("a"), 1, 0, WEIR_PEEK);
    weir_request_plan(&requests[0], &plan);
    for (size_t i = 0; i < n; i++)
        copies[i] = requests[i] = request_by_chance(two, chance, plan.size, two->memory.now_us);
    ask(two, 0, requests, n, in_memory);
    ask(two, 1, copies, n, in_redis);
    for (size_t i = 0; i < n; i++) {
        char where[160];
        in_memory[i].source = WEIR_BY_REDIS;
        snprintf(where, sizeof where, "%s, %zu of %zu: verb %d cost %" PRId64 " ahead %" PRId64 " spread %" PRIu32,
                 way_names[two->way], i, n, (int)requests[i].verb, requests[i].cost, requests[i].ahead,
                 requests[i].spread);
        assert_decision_is(&in_redis[i], &in_memory[i], where);
        two->ahead += in_redis[i].ahead > 0;
        two->asked++;
    }
}

TEST(memory_and_redis_charge_the_same_in_advance_on_every_path, 120)
{
    struct chance chance = chance_make(1);
    const int64_t steps = steps_or(30000);
    must(redis_server_start(&server, REDIS_SERVER_UNIX, NULL) == 0, server.daemon.error);
    for (int way = 0; way < WAYS; way++) {
        int64_t ahead = 0;
        for (int64_t asked = 0, round = 0; asked < steps; round++) {
            struct two two;
            two_open(&two, (enum way)way);
            two_define(&two, &chance, (enum kind)(round % KIND_COUNT));
            const int64_t change = chance_between(&chance, 0, 39); /* once: the next could find another former state */
            for (int i = 0; i < 40; i++) {
                if (i == change)
                    two_define(&two, &chance, (enum kind)chance_between(&chance, 0, KIND_COUNT - 1));
                two_ask(&two, &chance);
                two.memory.now_us += chance_magnitude(&chance, WEIR_MINUTE);
            }
            asked += two.asked;
            ahead += two.ahead;
            two_close(&two);
        }
        must(ahead > steps / 20, "hardly anything was charged ahead: the test says little");
    }
    redis_server_stop(&server);
}

/* Many threads submit requests for a limit that binds; no more is admitted than the limit. */
TEST(charges_in_advance_add_up_to_the_limit, 60)
{
    struct two two;
    int64_t sum = 0;
    must(redis_server_start(&server, REDIS_SERVER_UNIX, NULL) == 0, server.daemon.error);
    two_open(&two, SUBMITTED);
    weir_limit *limit = scene_define_text(&two.redis, "limit", "fixed_window limit=1000 period=1d");
    for (int round = 0; round < 40; round++) {
        struct weir_backend_request requests[GROUP];
        struct weir_decision decisions[GROUP];
        for (int i = 0; i < GROUP; i++) {
            requests[i] = backend_request(limit, weir_key_text("a"), (i + round) % 3, two.redis.now_us, WEIR_TAKE);
            requests[i].ahead = 1 + (i * 7 + round) % 20;
            requests[i].spread = round < 20 ? 8 : 1;
        }
        submit(two.redis.limiter->backend, requests, GROUP, decisions);
        for (int i = 0; i < GROUP; i++) {
            must(decisions[i].ahead <= requests[i].ahead, "no more than it asked for");
            sum += decisions[i].ahead + (decisions[i].allowed ? requests[i].cost : 0);
            must(decisions[i].remaining == 1000 - sum, "what is left is what was not charged");
        }
    }
    ck_assert_int_eq(sum, 1000);
    two_close(&two);
    redis_server_stop(&server);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
