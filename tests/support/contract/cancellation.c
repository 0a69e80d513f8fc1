/* cancellation.c - contract: no call is a cancellation point. */
#include "contract/parts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct cancelled_calls {
    struct scene scene;
    weir *another; /* to be closed */
    weir_limit *limit;
    struct completion completion;
    struct weir_op op;
    int submitted;
    pid_t child;
    const char *policy_file;
};

static int64_t cancellable_clock(void *user)
{
    const struct cancelled_calls *calls = user;
    pthread_testcancel();
    return calls->scene.now_us;
}

static void cancellable_log(void *user, enum weir_log_level level, const char *line)
{
    pthread_testcancel();
}

static int cancellable_visit(void *user, const struct weir_policy_line *line)
{
    pthread_testcancel();
    return 0;
}

static void cancellable_done(struct weir_op *op, int status)
{
    pthread_testcancel();
    complete(op, status);
}

static weir *open_for_cancellation(struct cancelled_calls *calls, int backend)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir *limiter;
    options.now_us = cancellable_clock;
    options.log = cancellable_log;
    options.user = calls;
    must_succeed(contract_backend(backend)->open(&options, &limiter));
    return limiter;
}

static void call_everything(void *user)
{
    struct cancelled_calls *calls = user;
    weir *limiter = calls->scene.limiter;
    weir_limit *limit = calls->limit, *other;
    const struct weir_key key = weir_key_text("a");
    const struct weir_request requests[] = { request_of(limit, "a", 1), request_of(limit, "b", 1) };
    struct weir_stats stats = { .size = sizeof stats };
    struct weir_decision decisions[2];
    weir_handle *handle;
    int64_t now_us;
    must_succeed(weir_try(limit, key, 1, decisions));
    must(weir_try(limit, key, 0, decisions) == WEIR_EINVAL, "the log gets a line");
    must_succeed(weir_try_at(limit, key, 1, calls->scene.now_us, decisions));
    must_succeed(weir_acquire(limit, key, 1, 0, decisions));
    must_succeed(weir_peek(limit, key, 1, decisions));
    must_succeed(weir_refund(limit, key, 1));
    must_succeed(weir_reset(limit, key));
    must_succeed(weir_try_all(limiter, requests, 2, decisions));
    must_succeed(weir_try_batch(limiter, requests, 2, decisions));
    must_succeed(weir_key_resolve(limit, key, &handle));
    must_succeed(weir_handle_try(handle, 1, 0, decisions));
    weir_handle_free(handle);
    must_succeed(weir_clock(limiter, &now_us));
    must_succeed(weir_stats_read(limiter, &stats));
    must_succeed(weir_ping(limiter, WEIR_MINUTE, NULL, 0));
    must_succeed(weir_await_ready(limiter, WEIR_MINUTE));
    const struct weir_policy policy = policy_of("fixed_window limit=9 period=1h");
    must_succeed(weir_limit_define(limiter, "other", &policy, &other));
    must_succeed(weir_limits_load(limiter, calls->policy_file, NULL, 0));
    must_succeed(weir_policy_file_read(calls->policy_file, cancellable_visit, NULL, NULL, 0));
    must(weir_event_fd(limiter) >= 0, "an event fd");
    weir_dispatch(limiter);
    calls->submitted = weir_submit(limiter, &calls->op);
    weir_close(calls->another);
    must_succeed(weir_open(NULL, &calls->another));
    weir_close(calls->another);
    calls->child = fork();
    if (calls->child == 0)
        _exit(0);
}

CONTRACT_TEST(CONTRACT_COUNTS, no_call_is_a_cancellation_point, 60)
{
    static struct cancelled_calls calls;
    char path[] = "/tmp/weir-cancel-XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(dprintf(fd, "filed = fixed_window limit=9 period=1h\n"), 39);
    close(fd);
    calls = (struct cancelled_calls){ .policy_file = path };
    calls.scene.now_us = INT64_C(1790000000123456);
    calls.scene.limiter = open_for_cancellation(&calls, _i);
    calls.another = open_for_cancellation(&calls, _i);
    calls.limit = limit_of(calls.scene.limiter, "limit", "fixed_window limit=90 period=1h");
    calls.op = (struct weir_op){ .request = request_of(calls.limit, "a", 1),
                                 .done = cancellable_done,
                                 .user = &calls.completion };
    const bool all_returned = ends_uncancelled(call_everything, &calls);
    remove(path);
    ck_assert(all_returned);
    assert_child_succeeds(calls.child);
    ck_assert_int_ge(calls.submitted, 0);
    while (calls.submitted == 1 && weir_dispatch(calls.scene.limiter) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    ck_assert_int_eq(atomic_load(&calls.completion.runs), calls.submitted);
    weir_close(calls.scene.limiter);
}
