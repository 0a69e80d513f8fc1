/* test_acquire.c - the lines of those who wait for permits: threads and submitted requests. */
#include "fake.h"

#include "core/api/errands.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPS = 64, PERIOD_US = 20000 };

/* A limiter whose clock the test moves while others read it, and submitted requests that note their end. */
struct stage {
    _Atomic int64_t now_us;
    weir *limiter;
    weir_limit *limit; /* a permit a period */
    struct waiting {
        struct weir_op op;
        atomic_int status; /* 1: not done */
    } waiting[OPS];
    _Atomic int done_count;
};

static int64_t stage_time(void *user)
{
    return atomic_load(&((struct stage *)user)->now_us);
}

static void note_end(struct weir_op *op, int status)
{
    struct waiting *waiting = (struct waiting *)(void *)op;
    atomic_store(&waiting->status, status);
    atomic_fetch_add(&((struct stage *)op->user)->done_count, 1); /* last: the test reads the status after it */
}

static void stage_open(struct stage *stage, const char *policy)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    memset(stage, 0, sizeof *stage);
    stage->now_us = 1000 * WEIR_SECOND;
    options.now_us = stage_time;
    options.user = stage;
    must_succeed(weir_open(&options, &stage->limiter));
    stage->limit = limit_of(stage->limiter, "limit", policy);
    for (int i = 0; i < OPS; i++) {
        stage->waiting[i].op = (struct weir_op){ .request = { stage->limit, weir_key_text("a"), 1, 0 },
                                                 .verb = WEIR_OP_ACQUIRE,
                                                 .max_wait_us = INT64_MAX,
                                                 .done = note_end,
                                                 .user = stage };
        atomic_store(&stage->waiting[i].status, 1);
    }
}

static void stage_close(struct stage *stage)
{
    weir_close(stage->limiter);
}

#define STAGE(name, policy)                   \
    CLOSED_BY(stage_close) struct stage name; \
    stage_open(&name, policy)

#define A_PERIOD "token_bucket limit=1 period=20ms"
#define AN_HOUR "token_bucket limit=1 period=1h"

static void submit(struct stage *stage, int i, int result)
{
    ck_assert_int_eq(weir_submit(stage->limiter, &stage->waiting[i].op), result);
}

static void await_count(const _Atomic int *count, int least)
{
    while (atomic_load(count) < least)
        sched_yield();
}

static void await_joined(struct stage *stage, size_t joined)
{
    while (atomic_load(&stage->limiter->errands->lines.count) < joined)
        sched_yield();
}

/* Wait until the only line's first waiter has been denied and waits for the time. */
static void await_denied(struct stage *stage)
{
    struct errands *errands = stage->limiter->errands;
    for (bool is_denied = false; !is_denied; sched_yield()) {
        lock_take(&errands->mutex);
        for (size_t i = 0; i < LINE_BUCKETS; i++) {
            const struct line_waiter *first = errands->lines.buckets[i];
            is_denied = is_denied || (first && first->due_us > 0);
        }
        lock_give(&errands->mutex);
    }
}

/* ---- Order ---- */

/* A clock by which a second passes before an acquire gives back its permit, and another caller fills the queue. */
struct slow_refund {
    int readings; /* until then, or less */
    int64_t now_us;
    weir_limit *limit;
};

static int64_t slow_refund_time(void *user)
{
    struct slow_refund *slow = user;
    if (slow->readings-- == 0) {
        struct weir_decision filled;
        slow->now_us += WEIR_SECOND;
        must_succeed(weir_try(slow->limit, weir_key_text("a"), 10, &filled));
        ck_assert(filled.allowed);
    }
    return slow->now_us;
}

TEST(a_permit_that_has_drained_is_not_given_back_by_an_acquire, 30)
{
    struct slow_refund slow = { .readings = -1, .now_us = 1000 * WEIR_SECOND };
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_decision decision;
    options.now_us = slow_refund_time;
    options.user = &slow;
    weir *limiter;
    must_succeed(weir_open(&options, &limiter));
    slow.limit = limit_of(limiter, "limit", "leaky_bucket limit=10 period=1s capacity=10");
    must_succeed(weir_try(slow.limit, weir_key_text("a"), 1, &decision));
    slow.readings = 1; /* the take is the first */
    must_succeed(weir_acquire(slow.limit, weir_key_text("a"), 1, 0, &decision));
    ck_assert(!decision.allowed); /* it would have to wait for 100 ms */
    must_succeed(weir_peek(slow.limit, weir_key_text("a"), 1, &decision));
    ck_assert_int_lt(slow.readings, 0); /* the second was the refund's */
    ck_assert_int_eq(decision.remaining, 0);
    weir_close(limiter);
}

TEST(submitted_acquires_are_served_in_order_of_arrival, 60)
{
    STAGE(stage, "token_bucket limit=1 period=20ms burst=5");
    struct chance chance = chance_make(1);
    taken(stage.limit, "a", 5);
    for (int i = 0; i < 20; i++) {
        stage.waiting[i].op.request.cost = chance_between(&chance, 1, 5);
        submit(&stage, i, 1);
    }
    for (int i = 0; i < 20; i++) {
        const int64_t cost = stage.waiting[i].op.request.cost;
        atomic_fetch_add(&stage.now_us, cost * PERIOD_US - 1);
        ck_assert_int_eq(atomic_load(&stage.done_count), i); /* smaller costs behind it must wait, too */
        atomic_fetch_add(&stage.now_us, 1);
        await_count(&stage.done_count, i + 1);
        ck_assert_int_eq(atomic_load(&stage.waiting[i].status), WEIR_OK);
        ck_assert(stage.waiting[i].op.decision.allowed && stage.waiting[i].op.decision.remaining == 0);
    }
}

struct sleeper {
    struct stage *stage;
    int64_t cost, max_wait_us;
    struct weir_decision decision;
    int result;
    _Atomic int done;
};

static void *acquire_once(void *argument)
{
    struct sleeper *sleeper = argument;
    sleeper->result = weir_acquire(sleeper->stage->limit, weir_key_text("a"), sleeper->cost, sleeper->max_wait_us,
                                   &sleeper->decision);
    atomic_store(&sleeper->done, 1);
    return NULL;
}

TEST(threads_and_submitted_acquires_wait_in_the_same_line, 60)
{
    STAGE(stage, A_PERIOD);
    struct sleeper sleepers[3];
    pthread_t threads[3];
    taken(stage.limit, "a", 1);
    for (int i = 0; i < 6; i++) {
        struct sleeper *sleeper = &sleepers[i / 2];
        if (i % 2) {
            submit(&stage, i / 2, 1);
        } else {
            *sleeper = (struct sleeper){ .stage = &stage, .cost = 1, .max_wait_us = WEIR_HOUR };
            ck_assert_int_eq(pthread_create(&threads[i / 2], NULL, acquire_once, sleeper), 0);
            await_joined(&stage, (size_t)i + 1);
        }
    }
    for (int i = 0; i < 6; i++) {
        atomic_fetch_add(&stage.now_us, PERIOD_US);
        if (i % 2)
            await_count(&stage.done_count, i / 2 + 1);
        else
            await_count(&sleepers[i / 2].done, 1);
        ck_assert_int_eq(atomic_load(&stage.done_count), (i + 1) / 2);
        for (int k = i / 2 + 1; k < 3; k++)
            ck_assert_int_eq(atomic_load(&sleepers[k].done), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        ck_assert(sleepers[i].result == WEIR_OK && sleepers[i].decision.allowed);
    }
}

TEST(each_key_has_a_separate_line, 30)
{
    STAGE(stage, A_PERIOD);
    taken(stage.limit, "a", 1);
    submit(&stage, 0, 1);
    stage.waiting[1].op.request.key = weir_key_text("b");
    submit(&stage, 1, WEIR_OK);
    ck_assert(stage.waiting[1].op.decision.allowed);
    stage.waiting[2].op.request.limit = limit_of(stage.limiter, "other", A_PERIOD);
    submit(&stage, 2, WEIR_OK);
    ck_assert(stage.waiting[2].op.decision.allowed);
    ck_assert(taken(stage.limit, "c", 1).allowed);
}

/* ---- Denials ---- */

TEST(an_acquire_that_would_exceed_its_longest_wait_is_denied_immediately, 30)
{
    STAGE(stage, AN_HOUR);
    taken(stage.limit, "a", 1);
    stage.waiting[0].op.max_wait_us = WEIR_HOUR - WEIR_MINUTE;
    submit(&stage, 0, WEIR_OK);
    ck_assert(!stage.waiting[0].op.decision.allowed);
    ck_assert_int_eq(stage.waiting[0].op.decision.retry_after_us, WEIR_HOUR);
    submit(&stage, 1, 1);
    submit(&stage, 0, WEIR_OK); /* behind it */
    ck_assert(!stage.waiting[0].op.decision.allowed);
    ck_assert_int_le(stage.waiting[0].op.decision.retry_after_us, WEIR_HOUR);
    stage.waiting[2].op.request.cost = 2;
    stage.waiting[2].op.request.key = weir_key_text("b");
    submit(&stage, 2, WEIR_OK); /* never */
    ck_assert_int_eq(stage.waiting[2].op.decision.retry_after_us, WEIR_NEVER);
    ck_assert_int_eq(atomic_load(&stage.done_count), 0);
    ck_assert_uint_eq(stats_of(stage.limiter).denied, 3);
}

TEST(a_waiter_is_denied_after_its_longest_wait, 60)
{
    STAGE(stage, A_PERIOD); /* its clock stands still */
    struct sleeper sleeper = { .stage = &stage, .cost = 1, .max_wait_us = 3 * PERIOD_US };
    pthread_t thread;
    taken(stage.limit, "a", 1);
    submit(&stage, 0, 1);
    stage.waiting[1].op.max_wait_us = 3 * PERIOD_US;
    ck_assert_int_ge(weir_submit(stage.limiter, &stage.waiting[1].op), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, acquire_once, &sleeper), 0);
    pthread_join(thread, NULL);
    ck_assert(sleeper.result == WEIR_OK && !sleeper.decision.allowed && sleeper.decision.retry_after_us > 0);
    while (stats_of(stage.limiter).denied < 2)
        sched_yield();
    ck_assert_uint_eq(stats_of(stage.limiter).allowed, 1);
}

TEST(a_smaller_cost_does_not_overtake_a_larger_one_in_line, 60)
{
    STAGE(stage, "token_bucket limit=1 period=1h burst=3");
    struct weir_decision decision;
    taken(stage.limit, "a", 1);
    stage.waiting[0].op.request.cost = 3;
    submit(&stage, 0, 1); /* two are left */
    must_succeed(weir_acquire(stage.limit, weir_key_text("a"), 1, 0, &decision));
    ck_assert(!decision.allowed && decision.remaining == 2 && decision.retry_after_us > WEIR_MINUTE);
    submit(&stage, 1, 1);
    ck_assert(taken(stage.limit, "a", 1).allowed); /* a try does not stand in line */
}

TEST(a_shadow_limit_admits_every_acquire, 30)
{
    STAGE(stage, "token_bucket limit=1 period=1h shadow");
    for (int i = 0; i < 3; i++) {
        submit(&stage, i, WEIR_OK);
        ck_assert(stage.waiting[i].op.decision.allowed && stage.waiting[i].op.decision.would_deny == (i > 0));
    }
}

/* ---- A queue that admits with a delay ---- */

TEST(a_submitted_acquire_waits_out_the_delay_of_a_leaky_bucket, 60)
{
    STAGE(stage, "leaky_bucket limit=1 period=20ms capacity=5");
    submit(&stage, 0, WEIR_OK);
    for (int i = 1; i < 5; i++)
        submit(&stage, i, 1); /* each has its time of departure immediately */
    stage.waiting[5].op.max_wait_us = PERIOD_US / 2;
    submit(&stage, 5, WEIR_OK);
    ck_assert(!stage.waiting[5].op.decision.allowed && stage.waiting[5].op.decision.retry_after_us > 0);
    await_count(&stage.done_count, 4);
    for (int i = 1; i < 5; i++) {
        while (atomic_load(&stage.waiting[i].status) == 1)
            sched_yield();
        ck_assert(stage.waiting[i].op.decision.allowed && stage.waiting[i].op.decision.delay_us == 0);
    }
}

/* ---- Cancelling ---- */

TEST(a_cancelled_acquire_ends_and_the_next_in_line_moves_up, 60)
{
    STAGE(stage, AN_HOUR);
    taken(stage.limit, "a", 1);
    for (int i = 0; i < 3; i++)
        submit(&stage, i, 1);
    must_succeed(weir_cancel(stage.limiter, &stage.waiting[1].op));
    await_count(&stage.done_count, 1);
    must_succeed(weir_cancel(stage.limiter, &stage.waiting[0].op));
    await_count(&stage.done_count, 2);
    while (atomic_load(&stage.waiting[0].status) == 1)
        sched_yield();
    ck_assert_int_eq(atomic_load(&stage.waiting[0].status), WEIR_ECANCELED);
    ck_assert_int_eq(atomic_load(&stage.waiting[1].status), WEIR_ECANCELED);
    ck_assert_int_eq(atomic_load(&stage.waiting[2].status), 1);
    must_succeed(weir_cancel(stage.limiter, &stage.waiting[0].op)); /* it is done: nothing happens */
    await_denied(&stage);
    atomic_fetch_add(&stage.now_us, WEIR_HOUR);
    submit(&stage, 3, 1); /* stands behind it, but would be admitted */
    must_succeed(weir_cancel(stage.limiter, &stage.waiting[2].op));
    await_count(&stage.done_count, 4);
    while (atomic_load(&stage.waiting[3].status) == 1)
        sched_yield();
    ck_assert_int_eq(atomic_load(&stage.waiting[3].status), WEIR_OK);
    ck_assert(stage.waiting[3].op.decision.allowed);
}

TEST(a_cancelled_delay_gives_its_permits_back, 60)
{
    STAGE(stage, "leaky_bucket limit=1 period=1h capacity=3");
    submit(&stage, 0, WEIR_OK);
    submit(&stage, 1, 1);
    ck_assert_int_eq(peeked(stage.limit, "a", 1).remaining, 1);
    must_succeed(weir_cancel(stage.limiter, &stage.waiting[1].op));
    await_count(&stage.done_count, 1);
    while (atomic_load(&stage.waiting[1].status) == 1)
        sched_yield();
    ck_assert_int_eq(atomic_load(&stage.waiting[1].status), WEIR_ECANCELED);
    ck_assert_int_eq(peeked(stage.limit, "a", 1).remaining, 2);
}

/* ---- An event loop, the end, bounds ---- */

/* ---- Permits that come back before a denial has foreseen it ---- */

struct thread_acquire {
    pthread_t thread;
    weir_limit *limit;
    struct weir_decision decision;
};

static void *acquire_for_an_hour(void *argument)
{
    struct thread_acquire *acquire = argument;
    must_succeed(weir_acquire(acquire->limit, weir_key_text("a"), 1, WEIR_HOUR, &acquire->decision));
    return NULL;
}

static void await_in_line(const struct stage *stage, size_t count)
{
    while (atomic_load(&stage->limiter->errands->lines.count) < count)
        usleep(1000);
}

TEST(a_release_wakes_the_first_waiter_in_line, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    struct weir_decision decision;
    struct weir_reservation slot;
    stage_open(&stage, "concurrency limit=1 hold=24h"); /* its clock stands still: no permit comes back by itself */
    must_succeed(weir_reserve(stage.limit, weir_key_text("a"), 1, &decision, &slot));
    ck_assert(decision.allowed);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(weir_submit(stage.limiter, &stage.waiting[i].op), 1);
    struct thread_acquire acquire = { .limit = stage.limit };
    await_in_line(&stage, 2);
    must(pthread_create(&acquire.thread, NULL, acquire_for_an_hour, &acquire) == 0, "a thread");
    await_in_line(&stage, 3);
    must_succeed(weir_release(stage.limit, weir_key_text("a"), &slot));
    while (atomic_load(&stage.waiting[0].status) == 1)
        usleep(1000);
    ck_assert_int_eq(atomic_load(&stage.waiting[0].status), WEIR_OK);
    ck_assert(stage.waiting[0].op.decision.allowed);
    must_succeed(weir_reset(stage.limit, weir_key_text("a")));
    while (atomic_load(&stage.waiting[1].status) == 1)
        usleep(1000);
    ck_assert(stage.waiting[1].op.decision.allowed);
    must_succeed(weir_reset(stage.limit, weir_key_text("a")));
    pthread_join(acquire.thread, NULL);
    ck_assert(acquire.decision.allowed);
}

TEST(with_an_event_fd_acquires_end_in_dispatch, 60)
{
    STAGE(stage, A_PERIOD);
    const int fd = weir_event_fd(stage.limiter);
    ck_assert_int_ge(fd, 0);
    taken(stage.limit, "a", 1);
    for (int i = 0; i < 3; i++)
        submit(&stage, i, 1);
    for (int i = 0; i < 3; i++) {
        struct pollfd readable = { .fd = fd, .events = POLLIN };
        atomic_fetch_add(&stage.now_us, PERIOD_US);
        ck_assert_int_eq(poll(&readable, 1, -1), 1);
        ck_assert_int_eq(atomic_load(&stage.done_count), i);
        while (weir_dispatch(stage.limiter) == 0)
            ck_assert_int_eq(poll(&readable, 1, -1), 1);
        ck_assert_int_eq(atomic_load(&stage.waiting[i].status), WEIR_OK);
    }
}

TEST(closing_a_limiter_ends_its_waiting_acquires, 60)
{
    for (int with_fd = 0; with_fd < 2; with_fd++) {
        static struct stage stage;
        stage_open(&stage, AN_HOUR);
        struct sleeper sleeper = { .stage = &stage, .cost = 1, .max_wait_us = INT64_MAX };
        pthread_t thread;
        if (with_fd)
            ck_assert_int_ge(weir_event_fd(stage.limiter), 0);
        taken(stage.limit, "a", 1);
        for (int i = 0; i < OPS; i++) {
            submit(&stage, i, 1);
        }
        ck_assert_int_eq(pthread_create(&thread, NULL, acquire_once, &sleeper), 0);
        await_joined(&stage, OPS + 1);
        weir_close(stage.limiter);
        pthread_join(thread, NULL);
        ck_assert_int_eq(sleeper.result, WEIR_ECLOSED);
        ck_assert_int_eq(atomic_load(&stage.done_count), OPS);
        for (int i = 0; i < OPS; i++)
            ck_assert_int_eq(atomic_load(&stage.waiting[i].status), WEIR_ECLOSED);
    }
}

TEST(a_cancelled_acquire_says_so_though_the_limiter_closes, 60)
{
    for (int round = 0; round < 50; round++) { /* its thread may be faster than this one */
        static struct stage stage;
        stage_open(&stage, AN_HOUR);
        taken(stage.limit, "a", 1);
        submit(&stage, 0, 1);
        must_succeed(weir_cancel(stage.limiter, &stage.waiting[0].op));
        weir_close(stage.limiter);
        ck_assert_int_eq(atomic_load(&stage.waiting[0].status), WEIR_ECANCELED);
    }
}

TEST(submitted_acquires_are_limited_to_the_documented_number, 120)
{
    static struct waiting many[WEIR_MAX_SUBMITTED + 1];
    STAGE(stage, AN_HOUR);
    taken(stage.limit, "a", 1);
    for (int i = 0; i <= WEIR_MAX_SUBMITTED; i++) {
        many[i].op = stage.waiting[0].op;
        must(weir_submit(stage.limiter, &many[i].op) == (i < WEIR_MAX_SUBMITTED ? 1 : WEIR_EFULL), "a bound");
    }
    must_succeed(weir_cancel(stage.limiter, &many[7].op));
    await_count(&stage.done_count, 1);
    ck_assert_int_eq(weir_submit(stage.limiter, &many[WEIR_MAX_SUBMITTED].op), 1);
}

/* ---- A backend that does not answer ---- */

static void fake_stage_open(struct stage *stage, struct fake *fake)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    stage_open(stage, A_PERIOD);
    weir_close(stage->limiter);
    fake_init(fake);
    must_succeed(weir_open_backend(&options, &fake->base, &stage->limiter));
    stage->limit = limit_of(stage->limiter, "limit", "fixed_window limit=1000 period=1h");
    for (int i = 0; i < OPS; i++)
        stage->waiting[i].op.request.limit = stage->limit;
}

static const enum weir_op_verb waiting_verbs[] = { WEIR_OP_PEEK, WEIR_OP_RESET, WEIR_OP_TRY_ALL, WEIR_OP_RESERVE_ALL,
                                                   WEIR_OP_ACQUIRE };

TEST(weir_submit_returns_though_the_backend_does_not_answer, 60)
{
    static struct fake fake;
    static struct stage stage;
    static struct weir_reservation reservations[OPS];
    fake_stage_open(&stage, &fake);
    fake_hold(&fake, false);
    for (int i = 0; i < OPS; i++) {
        struct weir_op *op = &stage.waiting[i].op;
        op->verb = waiting_verbs[i % 5];
        op->requests = &op->request;
        op->reservations = &reservations[i];
        op->n = 1;
        submit(&stage, i, 1);
    }
    fake_await_inside(&fake, 1); /* and the calls have returned all the same */
    ck_assert_int_eq(atomic_load(&stage.done_count), 0);
    fake_let_go(&fake);
    await_count(&stage.done_count, OPS);
    stage_close(&stage);
    for (int i = 0; i < OPS; i++) {
        ck_assert_int_eq(atomic_load(&stage.waiting[i].status), WEIR_OK);
        ck_assert(i % 5 == 1 || stage.waiting[i].op.decision.allowed);
    }
}

TEST(ops_that_wait_for_a_silent_backend_end_when_the_limiter_closes, 60)
{
    static struct fake fake;
    static struct stage stage;
    fake_stage_open(&stage, &fake);
    fake_hold(&fake, false);
    for (int i = 0; i < OPS; i++) {
        stage.waiting[i].op.verb = i % 2 ? WEIR_OP_PEEK : WEIR_OP_ACQUIRE;
        submit(&stage, i, 1);
    }
    fake_await_inside(&fake, 1);
    stage_close(&stage);
    ck_assert_int_eq(atomic_load(&stage.done_count), OPS);
    for (int i = 0; i < OPS; i++)
        ck_assert_int_eq(atomic_load(&stage.waiting[i].status), WEIR_ECLOSED);
}

TEST(an_acquire_cancelled_during_the_backend_call_ends_with_its_answer, 60)
{
    static struct fake fake;
    static struct stage stage;
    fake_stage_open(&stage, &fake);
    fake_hold(&fake, false);
    submit(&stage, 0, 1);
    fake_await_inside(&fake, 1);
    must_succeed(weir_cancel(stage.limiter, &stage.waiting[0].op));
    fake_let_go(&fake);
    await_count(&stage.done_count, 1);
    stage_close(&stage);
    ck_assert_int_eq(atomic_load(&stage.waiting[0].status), WEIR_OK); /* the permits were taken */
}

/* A `done` that goes on until all other threads of the limiter have nothing to do. */
static void end_slowly(struct weir_op *op, int status)
{
    struct stage *stage = op->user;
    struct errands *errands = stage->limiter->errands;
    for (bool is_alone = false; !is_alone; sched_yield()) {
        lock_take(&errands->mutex);
        is_alone = errands->count == 0 && errands->idle == errands->threads - 1;
        lock_give(&errands->mutex);
    }
    must(atomic_load(&stage->done_count) == 0, "`done` runs in the order of the line");
    note_end(op, status);
}

TEST(a_later_acquire_ends_after_those_before_it, 60)
{
    static struct fake fake;
    static struct stage stage;
    fake_stage_open(&stage, &fake);
    fake_hold(&fake, false);
    stage.waiting[0].op.done = end_slowly;
    for (int i = 0; i < 3; i++)
        submit(&stage, i, 1);
    fake_await_inside(&fake, 3); /* three threads ask at the same time */
    fake_let_go(&fake);
    await_count(&stage.done_count, 3);
    stage_close(&stage);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(atomic_load(&stage.waiting[i].status), WEIR_OK);
}

/* ThreadSanitizer counts the locks that a fork holds, and gives up at 64. */
#if defined(UNDER_TSAN)
enum { FORKS = 0 };
#else
enum { FORKS = 1 };
#endif

TEST_EACH(a_forked_child_has_separate_threads_and_lines, FORKS, 60)
{
    static struct fake fake;
    static struct stage stage;
    fake_stage_open(&stage, &fake);
    fake_hold(&fake, false);
    submit(&stage, 0, 1);
    fake_await_inside(&fake, 1);
    fake_let_go(&fake);
    await_count(&stage.done_count, 1);
    const pid_t child = fork();
    if (child == 0) {
        stage.waiting[1].op.verb = WEIR_OP_PEEK;
        if (weir_submit(stage.limiter, &stage.waiting[1].op) == 1 &&
            weir_submit(stage.limiter, &stage.waiting[2].op) == 1)
            await_count(&stage.done_count, 3);
        _exit(atomic_load(&stage.done_count) == 3 ? 0 : 1);
    }
    assert_child_succeeds(child);
    submit(&stage, 3, 1);
    await_count(&stage.done_count, 2);
    stage_close(&stage);
}
