/* test_redis.c - the backend contract on Redis, with callers that do their own I/O and with all requests through the
 * I/O thread; how simultaneous requests share calls. */
#include "backends/redis/engine/io.h"
#include "backends/redis/process.h"
#include "contract/contract.h"
#include "core/ground/clock.h"
#include "core/limiter/limiter.h"
#include "lab/redis_server.h"

#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct redis_server server;

/* Give each limiter its own key prefix, so that tests do not affect each other. */
static int open_on(const char *url, const struct weir_options *options, weir **out)
{
    static int opened;
    char prefix[WEIR_MAX_NAME_LEN];
    struct weir_options own = *options;
    snprintf(prefix, sizeof prefix, "weir:test-%d-%d:", (int)getpid(), opened++);
    own.mode = WEIR_DISTRIBUTED;
    own.redis_url = url;
    own.redis_prefix = prefix;
    own.on_failure = WEIR_FAIL_ERROR;
    own.timeout_us = 20 * WEIR_SECOND; /* long enough for a busy machine */
    own.by_local_clock = own.now_us != NULL;
    return weir_open(&own, out);
}

static int open_redis(const struct weir_options *options, weir **out)
{
    return open_on(server.url, options, out);
}

static struct redis_engine *engine_of(const weir *limiter)
{
    return atomic_load(&((struct redis *)limiter->backend)->current)->engine;
}

/* Take all lanes, so that every request uses the I/O thread. */
static int open_by_thread(const struct weir_options *options, weir **out)
{
    int error = open_redis(options, out);
    while (!error && redis_lane_take(engine_of(*out)) != NULL)
        ;
    return error;
}

static const struct contract_backend by_caller = { "redis", CONTRACT_ALL, open_redis, .sources_vary = false };
static const struct contract_backend by_thread = { "redis by its thread", CONTRACT_ALL, open_by_thread,
                                                   .sources_vary = false };

static void open_scene(struct scene *scene, int (*open)(const struct weir_options *options, weir **out))
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    scene_init(scene, &options);
    must_succeed(open(&options, &scene->limiter));
}

/* ---- Many at once ---- */

enum { THREADS = 32, EACH = 100 };

struct taker {
    weir_limit *limit;
    int64_t allowed;
};

static void *ask(void *user)
{
    struct taker *taker = user;
    for (int i = 0; i < EACH; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(taker->limit, weir_key_text("hot"), 1, &decision));
        must(decision.source == WEIR_BY_REDIS, "Redis decides");
        taker->allowed += decision.allowed;
    }
    return NULL;
}

static int64_t ask_at_once(weir_limit *limit)
{
    struct taker takers[THREADS];
    pthread_t threads[THREADS];
    int64_t allowed = 0;
    for (int i = 0; i < THREADS; i++) {
        takers[i] = (struct taker){ limit, 0 };
        must(pthread_create(&threads[i], NULL, ask, &takers[i]) == 0, "a thread");
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        allowed += takers[i].allowed;
    }
    return allowed;
}

TEST(waiting_requests_share_script_calls_and_admit_exactly_the_limit, 60)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_scene(&scene, open_by_thread);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1000 period=1d");
    ck_assert_int_eq(ask_at_once(limit), 1000);
    struct weir_stats stats = stats_of(scene.limiter);
    ck_assert_uint_eq(stats.store_requests, THREADS * EACH);
    ck_assert_uint_lt(stats.store_calls, THREADS * EACH / 2); /* requests gather while a flight is under way */
    ck_assert_uint_eq(stats.store_connections, 1);
}

TEST(many_callers_use_the_engines_thread_and_a_lone_caller_its_own_connection, 60)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_scene(&scene, open_redis);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1000 period=1d");
    struct redis_engine *engine = engine_of(scene.limiter);
    atomic_store(&engine->crowd, true);
    for (int i = 0; i < 1000 && atomic_load(&engine->crowd); i++)
        taken(limit, "lone", 1);
    ck_assert(!atomic_load(&engine->crowd));
    uint64_t connections = stats_of(scene.limiter).store_connections;
    taken(limit, "lone", 1);
    ck_assert_uint_eq(stats_of(scene.limiter).store_connections, connections + 1); /* this call's own connection */
    taken(limit, "lone", 1);
    ck_assert_uint_eq(stats_of(scene.limiter).store_connections, connections + 1);
}

TEST(a_batch_of_distinct_keys_is_one_call, 60)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_request requests[64];
    struct weir_decision decisions[64];
    char keys[64][16];
    open_scene(&scene, open_redis);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    taken(limit, "first", 1); /* make the connection first */
    uint64_t calls = stats_of(scene.limiter).store_calls;
    for (int i = 0; i < 64; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", i);
        requests[i] = (struct weir_request){ .limit = limit, .key = weir_key_text(keys[i]), .cost = 1 + i % 10 };
    }
    must_succeed(weir_try_batch(scene.limiter, requests, 64, decisions));
    for (int i = 0; i < 64; i++)
        ck_assert_int_eq(decisions[i].remaining, 10 - (1 + i % 10));
    ck_assert_uint_eq(stats_of(scene.limiter).store_calls, calls + 1);
}

TEST(batches_of_all_sizes_are_decided_key_by_key, 60)
{
    enum { MANY = 600 };
    static const size_t sizes[] = { 3, 256, 64, MANY, 257, 1 };
    CLOSED_BY(scene_close) struct scene scene;
    static struct weir_request requests[MANY];
    static struct weir_decision decisions[MANY];
    static char keys[MANY][16];
    open_scene(&scene, open_redis);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1d");
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", i);
        requests[i] = (struct weir_request){ .limit = limit, .key = weir_key_text(keys[i]), .cost = 1 };
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        must_succeed(weir_try_batch(scene.limiter, requests, sizes[i], decisions));
        for (size_t k = 0; k < sizes[i]; k++) {
            int64_t taken_so_far = 0;
            for (size_t j = 0; j <= i; j++)
                taken_so_far += k < sizes[j];
            ck_assert_int_eq(decisions[k].remaining, 10 - taken_so_far);
        }
    }
}

/* ---- A done that waits ---- */

struct waiting_done {
    weir_limit *limit;
    int result;
    sem_t ran;
};

static void wait_in_done(struct weir_op *op, int status)
{
    struct waiting_done *waiting = op->user;
    struct weir_decision decision;
    must_succeed(status);
    waiting->result = weir_try(waiting->limit, weir_key_text("other"), 1, &decision);
    sem_post(&waiting->ran);
}

TEST(a_blocking_call_inside_done_gets_an_error, 60)
{
    struct scene scene;
    struct waiting_done waiting = { .result = 1 };
    open_scene(&scene, open_by_thread);
    scene.log_allowed = true;
    waiting.limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    sem_init(&waiting.ran, 0, 0);
    struct weir_op op = { .request = { .limit = waiting.limit, .key = weir_key_text("a"), .cost = 1 },
                          .done = wait_in_done,
                          .user = &waiting };
    ck_assert_int_eq(weir_submit(scene.limiter, &op), 1);
    while (sem_wait(&waiting.ran) != 0 && errno == EINTR)
        ;
    ck_assert_int_eq(waiting.result, WEIR_EINVAL);
    scene_close(&scene);
    ck_assert_int_eq(scene.log_lines, 1);
}

/* ---- Too many ---- */

static void count_answer(struct weir_op *op, int status)
{
    must_succeed(status);
    atomic_fetch_add((atomic_int *)op->user, 1);
}

TEST(submitted_requests_beyond_the_queue_are_refused_and_none_is_lost, 60)
{
    static struct weir_op ops[WEIR_MAX_SUBMITTED + 1];
    CLOSED_BY(scene_close) struct scene scene;
    atomic_int answers = 0;
    open_scene(&scene, open_by_thread);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1000000 period=1d");
    taken(limit, "a", 1); /* make the connection first */
    redis_server_pause(&server);
    for (int i = 0; i <= WEIR_MAX_SUBMITTED; i++) {
        ops[i] = (struct weir_op){ .request = { .limit = limit, .key = weir_key_text("a"), .cost = 1 },
                                   .done = count_answer,
                                   .user = &answers };
        must(weir_submit(scene.limiter, &ops[i]) == (i < WEIR_MAX_SUBMITTED ? 1 : WEIR_EFULL), "as many as may wait");
    }
    redis_server_resume(&server);
    while (atomic_load(&answers) < WEIR_MAX_SUBMITTED)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1000000 - 1 - WEIR_MAX_SUBMITTED);
    struct weir_stats stats = stats_of(scene.limiter);
    ck_assert_uint_eq(stats.allowed, 1 + WEIR_MAX_SUBMITTED);
    ck_assert_uint_eq(stats.errors, 1);
}

TEST(requests_that_exceed_the_socket_buffer_do_not_accumulate, 60)
{
    enum { OPS = 20000 };
    static struct weir_op ops[OPS];
    static char keys[OPS][112];
    CLOSED_BY(scene_close) struct scene scene;
    atomic_int answers = 0;
    open_scene(&scene, open_by_thread);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    taken(limit, "first", 1);
    for (int round = 0; round < 5; round++) {
        atomic_store(&answers, 0);
        for (int i = 0; i < OPS; i++) {
            int len = snprintf(keys[i], sizeof keys[i], "%0100d", i);
            ops[i] = (struct weir_op){ .request = { .limit = limit, .key = weir_key(keys[i], (size_t)len), .cost = 1 },
                                       .done = count_answer,
                                       .user = &answers };
            must(weir_submit(scene.limiter, &ops[i]) == 1, "submitted");
        }
        while (atomic_load(&answers) < OPS)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    ck_assert_uint_lt(engine_of(scene.limiter)->io->link.out.room, 4 << 20);
}

/* The thread has its full number of requests under way, and a new caller has less time than they have. */
TEST(a_short_timeout_does_not_wait_for_longer_ones, 60)
{
    static struct weir_op ops[REDIS_AIR_MAX];
    CLOSED_BY(scene_close) struct scene scene;
    atomic_int answers = 0;
    open_scene(&scene, open_by_thread); /* a call may take 20 s here */
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    struct redis_engine *engine = engine_of(scene.limiter);
    taken(limit, "first", 1);
    redis_server_pause(&server);
    for (int i = 0; i < REDIS_AIR_MAX; i++) {
        const unsigned boarding = atomic_load(&engine->boarding);
        ops[i] = (struct weir_op){ .request = { limit, weir_key_text("late"), 1, 0 },
                                   .done = count_answer,
                                   .user = &answers };
        must(weir_submit(scene.limiter, &ops[i]) == 1, "submitted");
        while (atomic_load(&engine->boarding) == boarding)
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
    struct weir_decision decision;
    const struct weir_backend_request request = {
        .limit = limit,
        .key = weir_key_text("soon"),
        .cost = 1,
        .now_us = WEIR_OWN_CLOCK,
        .plan_version = plan_cell_version(&limit->plan),
        .cold_since_us = -1,
        .verb = WEIR_PEEK,
    };
    const int64_t before_us = clock_monotonic_us();
    struct redis_job job = { .requests = &request, .n = 1, .deadline_us = before_us + 50000, .out = &decision };
    ck_assert_int_eq(redis_engine_decide(engine, &job), WEIR_ETIME);
    ck_assert_int_lt(clock_monotonic_us() - before_us, 5 * WEIR_SECOND);
    redis_server_resume(&server);
    while (atomic_load(&answers) < REDIS_AIR_MAX)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* A full server says so after accepting a connection. That must not pass for the answer to a decision. */
TEST(a_server_without_room_for_a_connection_is_used_over_the_existing_one, 60)
{
    CLOSED_BY(redis_server_stop) struct redis_server full;
    CLOSED_BY(scene_close) struct scene scene;
    static const char *const config[] = { "--maxclients", "2", NULL };
    must(redis_server_start(&full, REDIS_SERVER_UNIX, config) == 0, full.daemon.error);
    struct weir_options options = WEIR_OPTIONS_INIT;
    scene_init(&scene, &options);
    must_succeed(open_on(full.url, &options, &scene.limiter));
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3000 period=1d");
    ck_assert_int_eq(ask_at_once(limit), 3000); /* Redis decides all of them */
    ck_assert_uint_lt(stats_of(scene.limiter).store_connections, 200);
}

/* ---- redis_gather_us ---- */

#define GATHER_US INT64_C(10000)

static int open_gathering(const struct weir_options *options, weir **out)
{
    struct weir_options own = *options;
    own.redis_gather_us = GATHER_US;
    return open_redis(&own, out);
}

TEST(with_a_gather_time_two_calls_are_at_least_that_time_apart, 60)
{
    enum { CALLS = 20 };
    CLOSED_BY(scene_close) struct scene scene;
    open_scene(&scene, open_gathering);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1000 period=1d");
    taken(limit, "a", 1); /* make the connection first */
    const int64_t begin_us = clock_monotonic_us();
    for (int i = 0; i < CALLS; i++)
        ck_assert(taken(limit, "a", 1).allowed);
    /* Each waits for its answer, so none shares a call. The first may leave immediately. */
    ck_assert_int_ge(clock_monotonic_us() - begin_us, (CALLS - 1) * GATHER_US);
    const struct weir_stats stats = stats_of(scene.limiter);
    ck_assert_uint_eq(stats.store_calls, 1 + CALLS);
    ck_assert_uint_eq(stats.store_connections, 1);
}

TEST(an_answer_does_not_end_the_gather_time, 60)
{
    struct weir_op ops[2];
    CLOSED_BY(scene_close) struct scene scene;
    atomic_int answers = 0;
    open_scene(&scene, open_gathering);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1d");
    struct redis_engine *engine = engine_of(scene.limiter);
    const int64_t begin_us = clock_monotonic_us();
    taken(limit, "first", 1);
    redis_server_pause(&server);
    for (int i = 0; i < 2; i++) {
        const unsigned boarding = atomic_load(&engine->boarding);
        ops[i] = (struct weir_op){ .request = { .limit = limit, .key = weir_key_text("a"), .cost = 1 },
                                   .done = count_answer,
                                   .user = &answers };
        must(weir_submit(scene.limiter, &ops[i]) == 1, "submitted");
        while (i == 0 && atomic_load(&engine->boarding) == boarding)
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
    redis_server_resume(&server); /* the second request has waited since before the first answer */
    while (atomic_load(&answers) < 2)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    ck_assert_int_ge(clock_monotonic_us() - begin_us, 2 * GATHER_US);
}

TEST(requests_that_come_within_the_gather_time_share_a_call, 60)
{
    enum { OPS = 240, ROUND = 8 };
    static struct weir_op ops[OPS];
    static char keys[OPS][16];
    CLOSED_BY(scene_close) struct scene scene;
    atomic_int answers = 0;
    open_scene(&scene, open_gathering);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1d");
    taken(limit, "first", 1);
    const uint64_t calls_before = stats_of(scene.limiter).store_calls;
    const int64_t begin_us = clock_monotonic_us();
    for (int i = 0; i < OPS; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", i);
        ops[i] = (struct weir_op){ .request = { .limit = limit, .key = weir_key_text(keys[i]), .cost = 1 },
                                   .done = count_answer,
                                   .user = &answers };
        must(weir_submit(scene.limiter, &ops[i]) == 1, "submitted");
        if (i % ROUND == ROUND - 1) /* spread them over some 20 ms */
            nanosleep(&(struct timespec){ .tv_nsec = 600000 }, NULL);
    }
    while (atomic_load(&answers) < OPS)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    const int64_t took_us = clock_monotonic_us() - begin_us;
    const uint64_t calls = stats_of(scene.limiter).store_calls - calls_before;
    /* However slow the machine is, they leave once in a gather time, up to 64 keys in a call. */
    const int64_t most = 1 + took_us / GATHER_US + OPS / REDIS_CALL_KEYS;
    ck_assert_msg((int64_t)calls <= most, "%d calls in %d us", (int)calls, (int)took_us);
}

/* ---- Where it is ---- */

TEST(a_server_is_found_by_its_host_name, 60)
{
    CLOSED_BY(redis_server_stop) struct redis_server by_port;
    CLOSED_BY(scene_close) struct scene scene;
    char url[128];
    static const char *const uses[] = { "db", NULL };
    must(redis_server_start_for(&by_port, REDIS_SERVER_UNIX_AND_PORT, NULL, uses) == 0, by_port.daemon.error);
    snprintf(url, sizeof url, "redis://%slocalhost:%d/3", by_port.login, by_port.port);
    struct weir_options options = WEIR_OPTIONS_INIT;
    scene_init(&scene, &options);
    must_succeed(open_on(url, &options, &scene.limiter));
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3 period=1d");
    for (int64_t i = 1; i <= 4; i++)
        ck_assert(taken(limit, "a", 1).allowed == (i <= 3));
}

TEST(a_host_name_without_an_address_is_an_error_within_the_timeout, 60)
{
    struct scene scene;
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_decision decision;
    scene_init(&scene, &options);
    scene.log_allowed = true;
    must_succeed(open_on("redis://no-such-host.invalid", &options, &scene.limiter));
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3 period=1d");
    int error = weir_try(limit, weir_key_text("a"), 1, &decision);
    ck_assert(error == WEIR_EIO || error == WEIR_ETIME);
    scene_close(&scene);
    ck_assert_msg(strstr(scene.last_line, "name is not resolved"), "%s", scene.last_line);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    if (redis_server_start(&server, REDIS_SERVER_UNIX, NULL) != 0) {
        puts(server.daemon.error);
        return 1;
    }
    Suite *suite = tests();
    contract_add(suite, &by_caller);
    contract_add(suite, &by_thread);
    int status = suite_run(suite);
    redis_server_stop(&server);
    return status;
}
