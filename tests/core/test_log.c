/* test_log.c - lines that are queued for a log hook: their order, their loss, and that no caller waits for the hook. */
#include "core/ground/hook_queue.h"
#include "fake.h"
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A hook that does not return before it may. */
struct slow {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool may_return, is_called; /* under the mutex */
    int lines, lost;
    bool in_order;
};

static struct slow slow = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .in_order = true };

static void hear(void *user, enum weir_log_level level, const char *line)
{
    struct slow *hook = user;
    int number;
    pthread_mutex_lock(&hook->mutex);
    hook->is_called = true;
    pthread_cond_broadcast(&hook->changed);
    while (!hook->may_return)
        pthread_cond_wait(&hook->changed, &hook->mutex);
    if (sscanf(line, "line %d", &number) == 1)
        hook->in_order = hook->in_order && number == hook->lines++;
    else
        ck_assert_int_eq(sscanf(line, "the log hook is too slow: %d lines are lost", &hook->lost), 1);
    pthread_mutex_unlock(&hook->mutex);
}

static void await_call(void)
{
    pthread_mutex_lock(&slow.mutex);
    while (!slow.is_called)
        pthread_cond_wait(&slow.changed, &slow.mutex);
    pthread_mutex_unlock(&slow.mutex);
}

static void let_return(void)
{
    pthread_mutex_lock(&slow.mutex);
    slow.may_return = true;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.mutex);
}

static const struct log to_slow = { hear, &slow };

TEST(no_caller_waits_for_a_log_hook_and_its_lines_keep_their_order, 30)
{
    for (int i = 0; i < HOOK_QUEUE_LINES; i++) /* the test ends here if one of them waits */
        log_later(&to_slow, WEIR_LOG_WARNING, "line %d", i);
    ck_assert_str_eq(weir_last_message(), "line 63");
    await_call();
    let_return();
    hook_queue_settle(&to_slow);
    ck_assert_int_eq(slow.lines, HOOK_QUEUE_LINES);
    ck_assert(slow.in_order && slow.lost == 0);
}

TEST(lines_without_room_are_lost_and_counted, 30)
{
    log_later(&to_slow, WEIR_LOG_WARNING, "line 0");
    await_call(); /* the queue is empty again, and its thread busy */
    for (int i = 1; i <= HOOK_QUEUE_LINES + 7; i++)
        log_later(&to_slow, WEIR_LOG_INFO, "line %d", i);
    let_return();
    hook_queue_settle(&to_slow);
    ck_assert_int_eq(slow.lines, 1 + HOOK_QUEUE_LINES);
    ck_assert(slow.in_order);
    ck_assert_int_eq(slow.lost, 7);
    log_later(&to_slow, WEIR_LOG_INFO, "line %d", 1 + HOOK_QUEUE_LINES);
    hook_queue_settle(&to_slow);
    ck_assert(slow.in_order && slow.lines == 2 + HOOK_QUEUE_LINES);
}

static void count_line(void *user, enum weir_log_level level, const char *line)
{
    atomic_fetch_add((_Atomic int *)user, 1);
}

TEST(draining_the_log_queue_waits_for_one_hook_only, 30)
{
    _Atomic int count = 0;
    const struct log other = { count_line, &count };
    hook_queue_settle(&other);
    log_later(&other, WEIR_LOG_WARNING, "one");
    hook_queue_settle(&other);
    ck_assert_int_eq(atomic_load(&count), 1);
    log_later(&to_slow, WEIR_LOG_WARNING, "line 0");
    await_call();
    hook_queue_settle(&other);
    log_later(&(struct log){ NULL, NULL }, WEIR_LOG_ERROR, "no hook");
    ck_assert_str_eq(weir_last_message(), "no hook");
    let_return();
    hook_queue_settle(&to_slow);
}

#if !defined(UNDER_TSAN) /* ThreadSanitizer does not support threads in a forked child */
TEST(a_forked_child_has_a_working_empty_log_queue, 30)
{
    log_later(&to_slow, WEIR_LOG_WARNING, "line 0");
    log_later(&to_slow, WEIR_LOG_WARNING, "line 1");
    await_call();
    const pid_t child = fork();
    if (child == 0) {
        _Atomic int count = 0;
        const struct log own = { count_line, &count };
        hook_queue_settle(&to_slow);
        log_later(&own, WEIR_LOG_WARNING, "own");
        hook_queue_settle(&own);
        _exit(atomic_load(&count) == 1 ? 0 : 1);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    let_return();
    hook_queue_settle(&to_slow);
    ck_assert_int_eq(slow.lines, 2);
}
#endif

/* Wait as a hook until it may return, whatever the line. */
static void hear_anything(void *user, enum weir_log_level level, const char *line)
{
    struct slow *hook = user;
    pthread_mutex_lock(&hook->mutex);
    hook->is_called = true;
    pthread_cond_broadcast(&hook->changed);
    while (!hook->may_return)
        pthread_cond_wait(&hook->changed, &hook->mutex);
    hook->lines++;
    pthread_mutex_unlock(&hook->mutex);
}

TEST(an_outage_can_end_while_the_log_hook_still_handles_its_start, 30)
{
    struct fake fake;
    weir *limiter;
    fake_init(&fake);
    must_succeed(weir_open_backend(OPTIONS(.log = hear_anything, .user = &slow), &fake.base, &limiter));
    weir_limit *limit = limit_of(limiter, "limit", "fixed_window limit=10 period=366d");
    atomic_store(&fake.answer, WEIR_EIO);
    ck_assert_int_eq(taken(limit, "a", 1).source, WEIR_BY_FALLBACK);
    await_call();
    ck_assert_int_eq(taken(limit, "a", 1).source, WEIR_BY_FALLBACK);
    atomic_store(&fake.answer, WEIR_OK);
    ck_assert_int_eq(taken(limit, "a", 1).source, WEIR_BY_BACKEND);
    let_return();
    weir_close(limiter); /* which waits for the lines */
    ck_assert_int_eq(slow.lines, 2);
}

static weir *closing;

static void close_it(void *user, enum weir_log_level level, const char *line)
{
    weir_close(closing);
}

TEST(a_log_hook_that_closes_its_limiter_ends_the_program_with_a_message, 30)
{
    int ends[2];
    char said[256] = "";
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct fake fake;
        struct weir_decision decision;
        dup2(ends[1], STDERR_FILENO);
        fake_init(&fake);
        must_succeed(weir_open_backend(OPTIONS(.log = close_it), &fake.base, &closing));
        weir_limit *limit = limit_of(closing, "limit", "fixed_window limit=10 period=366d");
        atomic_store(&fake.answer, WEIR_EIO);
        weir_try(limit, weir_key_text("a"), 1, &decision);
        for (;;)
            pause();
    }
    int status = 0;
    close(ends[1]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(read(ends[0], said, sizeof said - 1) > 0);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    ck_assert_str_eq(said, "weir: weir_close() was called from a hook for which it waits\n");
    close(ends[0]);
}
