/* failing_play.c - see failing_play.h. */
#include "failing_play.h"

#include "core/ground/clock.h"
#include "support.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEY_SIZE = 64, DRAIN_MOST = 100000 };
#define RECOVERY_MOST_US (20 * WEIR_SECOND)
#define FOLLOWED_MOST_US (WEIR_SECOND / 2) /* longest wait for followed sources while calls fail */

struct tally {
    struct failing_run *run;
    const struct failing_mode *mode;
    weir *limiter;
    weir_limit *limit, *other;
    char key[KEY_SIZE];
    int64_t admitted, unknown;  /* permits; `unknown`: charged perhaps, but not admitted */
    int64_t given, maybe_given; /* back */
    int64_t to_explain;         /* errors and fallbacks that the log must explain */
};

/* ---- Answers ---- */

/* Blame an error that the call may not return. */
static void take_error(struct tally *tally, const char *verb, int status)
{
    tally->run->errors++;
    if (status != WEIR_ENOMEM &&
        !(INSTRUMENTED &&
          status == WEIR_ETIME)) /* an instrumented call may be late without a failure, and logs nothing */
        tally->to_explain++;
    if (status != WEIR_EIO && status != WEIR_ETIME && status != WEIR_ENOMEM)
        run_blame(tally->run, "%s ends with \"%s\"", verb, weir_strerror(status));
}

static bool is_fallback(enum weir_source source)
{
    return source == WEIR_BY_FALLBACK || source == WEIR_BY_FAIL_OPEN || source == WEIR_BY_FAIL_CLOSED;
}

static bool is_right_source(const struct tally *tally, enum weir_source source)
{
    switch (tally->mode->options.mode) {
    case WEIR_LOCAL: return source == WEIR_BY_MEMORY;
    case WEIR_DISTRIBUTED: return source == WEIR_BY_REDIS;
    default: return source == WEIR_BY_REDIS || source == WEIR_BY_LEASE || source == WEIR_BY_DENIAL;
    }
}

static void look_at_source(struct tally *tally, const char *verb, enum weir_source source)
{
    static const enum weir_source stand_ins[] = {
        [WEIR_FAIL_LOCAL] = WEIR_BY_FALLBACK,
        [WEIR_FAIL_OPEN] = WEIR_BY_FAIL_OPEN,
        [WEIR_FAIL_CLOSED] = WEIR_BY_FAIL_CLOSED,
    };
    const enum weir_on_failure on_failure = tally->mode->options.on_failure;
    const bool is_stand_in = is_fallback(source) && on_failure != WEIR_FAIL_ERROR && source == stand_ins[on_failure];
    tally->run->fallbacks += is_fallback(source);
    tally->to_explain += is_fallback(source);
    if (!is_right_source(tally, source) && !is_stand_in)
        run_blame(tally->run, "%s is decided by source %d", verb, (int)source);
}

/* A take of `cost`. */
static void take_answer(struct tally *tally, const char *verb, int status, const struct weir_decision *decision,
                        int64_t cost)
{
    if (status != WEIR_OK) {
        take_error(tally, verb, status);
        if (tally->mode->options.on_failure != WEIR_FAIL_ERROR && status != WEIR_ENOMEM &&
            tally->mode->options.mode != WEIR_LOCAL)
            run_blame(tally->run, "%s ends with \"%s\", and not by the fallback", verb, weir_strerror(status));
        tally->unknown += cost;
        return;
    }
    look_at_source(tally, verb, (enum weir_source)decision->source);
    if (decision->source != WEIR_BY_FAIL_OPEN) /* which charges nothing */
        tally->admitted += decision->allowed ? cost : 0;
    tally->unknown += is_fallback((enum weir_source)decision->source) ? cost : 0;
}

/* ---- The ways to ask ---- */

static struct weir_request request_of(const struct tally *tally, weir_limit *limit, int64_t cost)
{
    return (struct weir_request){ .limit = limit, .key = weir_key_text(tally->key), .cost = cost };
}

static void take(struct tally *tally, const char *verb)
{
    struct weir_decision decision;
    const int status = weir_try(tally->limit, weir_key_text(tally->key), 1, &decision);
    take_answer(tally, verb, status, &decision, 1);
}

static void take_batch(struct tally *tally)
{
    enum { N = 3 };
    struct weir_request requests[N];
    struct weir_decision decisions[N];
    for (int i = 0; i < N; i++)
        requests[i] = request_of(tally, tally->limit, 1);
    const int status = weir_try_batch(tally->limiter, requests, N, decisions);
    for (int i = 0; i < N; i++)
        take_answer(tally, "weir_try_batch", status, &decisions[i], 1);
}

static void take_all(struct tally *tally)
{
    const struct weir_request requests[] = { request_of(tally, tally->limit, 2), request_of(tally, tally->other, 1) };
    struct weir_decision decision;
    const int status = weir_try_all(tally->limiter, requests, 2, &decision);
    take_answer(tally, "weir_try_all", status, &decision, 2);
}

static void take_by_handle(struct tally *tally)
{
    struct weir_decision decision;
    weir_handle *handle;
    int status = weir_key_resolve(tally->limit, weir_key_text(tally->key), &handle);
    if (status != WEIR_OK)
        run_blame(tally->run, "weir_key_resolve ends with \"%s\"", weir_strerror(status));
    status = weir_handle_try(handle, 1, 0, &decision);
    take_answer(tally, "weir_handle_try", status, &decision, 1);
    weir_handle_free(handle);
}

static void acquire(struct tally *tally)
{
    struct weir_decision decision;
    const int status = weir_acquire(tally->limit, weir_key_text(tally->key), 1, WEIR_SECOND / 10, &decision);
    take_answer(tally, "weir_acquire", status, &decision, 1);
}

static void look_and_give_back(struct tally *tally)
{
    struct weir_decision decision;
    int status = weir_peek(tally->limit, weir_key_text(tally->key), 1, &decision);
    take_answer(tally, "weir_peek", status, &decision, 0);
    if (tally->admitted > 0) {
        status = weir_refund(tally->limit, weir_key_text(tally->key), 1);
        if (status != WEIR_OK)
            take_error(tally, "weir_refund", status);
        *(status == WEIR_OK ? &tally->given : &tally->maybe_given) += 1;
    }
    status = weir_reset(tally->other, weir_key_text(tally->key));
    if (status != WEIR_OK)
        take_error(tally, "weir_reset", status);
}

/* ---- Submitted ---- */

struct submitted {
    struct weir_op op;
    int result, status; /* of weir_submit(); of `done` */
    atomic_bool is_done;
};

static void done(struct weir_op *op, int status)
{
    struct submitted *submitted = op->user;
    submitted->status = status;
    atomic_store(&submitted->is_done, true);
}

/* The caller's op, as in an event loop. */
static void await(struct tally *tally, struct submitted *submitted, int event_fd)
{
    struct pollfd ready = { .fd = event_fd, .events = POLLIN };
    while (!atomic_load(&submitted->is_done)) {
        calls_pause();
        poll(&ready, 1, event_fd >= 0 ? -1 : 1);
        calls_resume();
        weir_dispatch(tally->limiter);
    }
}

static void submit(struct tally *tally)
{
    enum { N = 3 };
    struct submitted submitted[N];
    const int event_fd = tally->mode->has_event_fd ? weir_event_fd(tally->limiter) : -1;
    if (event_fd < 0 && tally->mode->has_event_fd)
        take_error(tally, "weir_event_fd", event_fd);
    for (int i = 0; i < N; i++) {
        submitted[i].op = (struct weir_op){ .request = request_of(tally, tally->limit, 1), .done = done };
        submitted[i].op.user = &submitted[i];
        atomic_init(&submitted[i].is_done, false);
        submitted[i].result = weir_submit(tally->limiter, &submitted[i].op);
    }
    for (int i = 0; i < N; i++) {
        if (submitted[i].result == 1)
            await(tally, &submitted[i], event_fd);
        const int status = submitted[i].result == 1 ? submitted[i].status : submitted[i].result;
        take_answer(tally, "weir_submit", status, &submitted[i].op.decision, 1);
    }
}

/* ---- Before and after ---- */

static void open_limiter(struct tally *tally, const struct weir_options *options)
{
    int status = weir_open(options, &tally->limiter);
    if (status == WEIR_OK)
        return;
    take_error(tally, "weir_open", status);
    if (status != WEIR_ENOMEM && atomic_load(&tally->run->lines) == 0)
        run_blame(tally->run, "weir_open ends with \"%s\", and the log does not say why", weir_strerror(status));
    calls_relent();
    status = weir_open(options, &tally->limiter);
    if (status != WEIR_OK)
        run_blame(tally->run, "weir_open ends with \"%s\" once the failure is over", weir_strerror(status));
}

static void define(struct tally *tally, const char *name, const char *text, weir_limit **out)
{
    struct weir_policy policy;
    char message[200];
    if (weir_policy_parse(text, &policy, message, sizeof message) != WEIR_OK)
        run_blame(tally->run, "%s: %s", text, message);
    const int status = weir_limit_define(tally->limiter, name, &policy, out);
    if (status != WEIR_OK)
        run_blame(tally->run, "weir_limit_define ends with \"%s\"", weir_strerror(status));
}

static void a_moment(void)
{
    calls_pause();
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    calls_resume();
}

static int64_t size_of_limit(struct tally *tally)
{
    struct weir_limit_info info = { .size = sizeof info };
    weir_limit_info(tally->limit, &info);
    return info.limit;
}

static bool await_limit(struct tally *tally, int64_t most_us)
{
    const int64_t until_us = clock_monotonic_us() + most_us;
    const int64_t limit = tally->mode->limit;
    while (limit != 0 && size_of_limit(tally) != limit && clock_monotonic_us() < until_us)
        a_moment();
    return limit == 0 || size_of_limit(tally) == limit;
}

static void recover(struct tally *tally)
{
    const int64_t until_us = clock_monotonic_us() + RECOVERY_MOST_US;
    struct weir_decision decision = { 0 };
    int status = weir_await_ready(tally->limiter, RECOVERY_MOST_US);
    if (status != WEIR_OK)
        run_blame(tally->run, "what is followed is not known after the failure: %s", weir_strerror(status));
    if (!await_limit(tally, until_us - clock_monotonic_us()))
        run_blame(tally->run, "the limit after the failure is %lld", (long long)size_of_limit(tally));
    do {
        status = weir_peek(tally->other, weir_key_text(tally->key), 1, &decision); /* this key has no lease */
        if (status == WEIR_OK && is_right_source(tally, (enum weir_source)decision.source))
            return;
        a_moment();
    } while (clock_monotonic_us() < until_us);
    run_blame(tally->run, "after the failure it is not decided right again: %s, source %d", weir_strerror(status),
              decision.source);
}

/* Take all permits that are left and compare the total with the limit. */
static void drain(struct tally *tally)
{
    const int64_t limit = size_of_limit(tally) + tally->given;
    struct weir_decision decision;
    int64_t asked = 0;
    do {
        const int status = weir_try(tally->limit, weir_key_text(tally->key), 1, &decision);
        if (status != WEIR_OK || !is_right_source(tally, (enum weir_source)decision.source))
            run_blame(tally->run, "after the failure: %s, source %d", weir_strerror(status), decision.source);
        tally->admitted += decision.allowed;
    } while (decision.allowed && ++asked < DRAIN_MOST);
    if (tally->admitted > limit + tally->maybe_given)
        run_blame(tally->run, "%lld permits were admitted, of %lld", (long long)tally->admitted,
                  (long long)(limit + tally->maybe_given));
    struct weir_stats stats = { .size = sizeof stats };
    weir_stats_read(tally->limiter, &stats);
    if (tally->mode->leases && stats.lease_hits == 0)
        run_blame(tally->run, "nothing was leased");
    if (tally->mode->leases && atomic_load(&tally->run->lines) > 0)
        return; /* a lost answer may have carried a lease */
    tally->unknown += (int64_t)stats.lease_lost;
    if (tally->admitted < limit - tally->unknown)
        run_blame(tally->run, "%lld permits were admitted, where %lld at least were there", (long long)tally->admitted,
                  (long long)(limit - tally->unknown));
}

static void ask(struct tally *tally)
{
    struct weir_stats stats = { .size = sizeof stats };
    weir_await_ready(tally->limiter, FOLLOWED_MOST_US);
    for (int i = 0; i < tally->mode->begins_with; i++)
        take(tally, "weir_try");
    take_batch(tally);
    take_all(tally);
    take_by_handle(tally);
    submit(tally);
    acquire(tally);
    look_and_give_back(tally);
    if (weir_stats_read(tally->limiter, &stats) != WEIR_OK)
        run_blame(tally->run, "weir_stats_read fails");
}

/* All requests between the limiter's opening and closing. */
static void use(struct tally *tally)
{
    const struct failing_mode *mode = tally->mode;
    ask(tally);
    if (mode->change) {
        calls_pause();
        mode->change(tally->run);
        calls_resume();
        await_limit(tally, FOLLOWED_MOST_US);
    }
    calls_relent();
    recover(tally);
    drain(tally);
    calls_go_on();
}

/* Blame missing and forbidden log lines. */
static void look_at_log(const struct tally *tally)
{
    struct failing_run *run = tally->run;
    if (tally->to_explain > 0 && atomic_load(&run->lines) == 0)
        run_blame(run, "the log tells nothing of it");
    if (run->number > 0 && !call_forms[run->plan.form].is_memory && strstr(run->log, "memory"))
        run_blame(run, "the log tells of memory");
    if (run->number == 0 && run->errors + run->fallbacks > 0)
        run_blame(run, "something fails of itself");
}

/* The child puts its blame into the shared memory. */
static void use_in_child(struct tally *tally)
{
    if (tally->mode->has_event_fd)
        weir_event_fd(tally->limiter);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        use(tally);
        weir_close(tally->limiter);
        look_at_log(tally);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        run_blame(tally->run, "the child ended with status %#x", status);
}

static void play(struct failing_run *run)
{
    const struct failing_mode *mode = run->scene->user;
    struct tally tally = { .run = run, .mode = mode };
    struct weir_options options = mode->options;
    options.log = run_log;
    options.user = run;
    snprintf(tally.key, sizeof tally.key, "run-%d-of-%s", run->number, run->scene->name);
    calls_pause();
    if (mode->begin)
        mode->begin(run, &options);
    calls_resume();

    open_limiter(&tally, &options);
    if (mode->policy)
        define(&tally, "api", mode->policy, &tally.limit);
    else if (!(tally.limit = weir_limit_find(tally.limiter, "api")))
        run_blame(run, "there is no such limit");
    define(&tally, "other", "token_bucket limit=1000 period=1m", &tally.other);
    if (mode->in_child)
        use_in_child(&tally);
    else
        use(&tally);
    weir_close(tally.limiter);

    calls_pause();
    if (mode->end)
        mode->end(run);
    calls_resume();
    look_at_log(&tally);
}

void failing_play_mode(const char *name, const struct failing_mode *mode, struct failing_sum *out)
{
    const struct failing_scene scene = {
        .name = name,
        .play = play,
        .user = mode,
        .at_once = INSTRUMENTED ? 8 : 32, /* they mostly wait */
        .seconds_most = 60,
    };
    failing_play(&scene, false, out);
    ck_assert_int_eq(out->blamed, 0);
    ck_assert_int_gt(out->reached, 0);
}
