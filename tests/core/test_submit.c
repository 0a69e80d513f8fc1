/* test_submit.c - submitted requests on an event loop, and waiting requests when a limiter closes. */
#include "fake.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { OPS = 64 };

/* A limiter over a backend that answers later, and ops that record the order of their answers. */
struct stage {
    struct fake fake;
    struct scene scene;
    weir_limit *limit;
    struct weir_op ops[OPS];
    _Atomic int done_count;
    struct weir_op *order[2 * OPS];
    int statuses[2 * OPS];
    pthread_t done_by; /* the thread of the last one */
};

static void write_down(struct weir_op *op, int status)
{
    struct stage *stage = op->user;
    int i = atomic_load(&stage->done_count);
    must(op->done == write_down, "the op is the caller's again");
    stage->order[i] = op;
    stage->statuses[i] = status;
    stage->done_by = pthread_self();
    atomic_store(&stage->done_count, i + 1);
}

static void stage_open(struct stage *stage, const struct weir_options *options)
{
    memset(stage, 0, sizeof *stage);
    fake_init(&stage->fake);
    atomic_store(&stage->fake.later, true);
    fake_open(&stage->fake, &stage->scene, options);
    stage->scene.now_us -= stage->scene.now_us % 64;
    stage->limit = scene_define_text(&stage->scene, "limit", "token_bucket limit=10 period=10s");
    for (int i = 0; i < OPS; i++)
        stage->ops[i] = (struct weir_op){ .request = { stage->limit, weir_key_text("a"), 1, 0 },
                                          .done = write_down,
                                          .user = stage };
}

static void stage_end(struct stage *stage)
{
    scene_close(&stage->scene);
}

/* Open a stage that is closed where its block ends. */
#define STAGE(name, ...)                    \
    CLOSED_BY(stage_end) struct stage name; \
    stage_open(&name, __VA_ARGS__)

static void submit(struct stage *stage, int first, int count)
{
    for (int i = first; i < first + count; i++)
        ck_assert_int_eq(weir_submit(stage->scene.limiter, &stage->ops[i]), 1);
}

static bool is_readable(int fd)
{
    struct pollfd look = { .fd = fd, .events = POLLIN };
    return poll(&look, 1, 0) == 1 && look.revents == POLLIN;
}

/* ---- Answers that come later ---- */

TEST(a_late_failure_of_a_submitted_request_is_answered_by_on_failure, 30)
{
    STAGE(stage, NULL);
    submit(&stage, 0, 3);
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_ETIME, 1), 1);
    ck_assert_int_eq(stage.statuses[0], WEIR_OK);
    ck_assert_int_eq(stage.ops[0].decision.source, WEIR_BY_FALLBACK);
    ck_assert_int_eq(stage.ops[0].decision.retry_after_us, WEIR_SECOND);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, 1);

    stage.scene.now_us += WEIR_SECOND;
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_EIO, 1), 1);
    ck_assert(stage.ops[1].decision.allowed && stage.ops[1].decision.source == WEIR_BY_FALLBACK);

    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_OK, 1), 1);
    ck_assert_int_eq(stage.ops[2].decision.source, WEIR_BY_BACKEND);
    ck_assert_str_eq(scene_heard(&stage.scene)->last_line, "backend fake answers again");
    const struct weir_stats stats = stats_of(stage.scene.limiter);
    ck_assert_uint_eq(stats.allowed, 2);
    ck_assert_uint_eq(stats.denied, 1);
    ck_assert_uint_eq(stats.fallbacks, 2);
    ck_assert_uint_eq(stats.errors, 0);
}

TEST(a_late_failure_is_decided_at_the_callers_time, 30)
{
    STAGE(stage, NULL);
    stage.ops[0].request.now_us = 64000000;
    stage.ops[1].request.now_us = 64000000 + WEIR_SECOND;
    submit(&stage, 0, 2);
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_EIO, 2), 2);
    ck_assert(!stage.ops[0].decision.allowed && stage.ops[0].decision.retry_after_us == WEIR_SECOND);
    ck_assert(stage.ops[1].decision.allowed);
}

TEST(other_late_errors_reach_done, 30)
{
    static const int errors[] = { WEIR_ESTATE, WEIR_ENOMEM };
    STAGE(stage, NULL);
    stage.ops[0].decision.limit = 4711;
    submit(&stage, 0, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(fake_answer(&stage.fake, errors[i], 1), 1);
        ck_assert_int_eq(stage.statuses[i], errors[i]);
    }
    ck_assert_int_eq(stage.ops[0].decision.limit, 4711);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).errors, 2);
}

TEST(a_refused_op_is_told_the_values_that_its_fields_may_have, 30)
{
    STAGE(stage, NULL);
    weir *limiter = stage.scene.limiter;
    struct weir_op *op = &stage.ops[0];
    stage.scene.log_allowed = true;
    op->verb = WEIR_OP_PEEK;
    op->request.now_us = 5;
    ck_assert_int_eq(weir_submit(limiter, op), WEIR_EINVAL);
    ck_assert_str_eq(scene_heard(&stage.scene)->last_line, "op->request.now_us must be 0, not 5");
    ck_assert_int_eq(weir_cancel(limiter, op), WEIR_EINVAL);
    ck_assert_str_eq(scene_heard(&stage.scene)->last_line, "op->verb must be 10, not 6");
    op->verb = WEIR_OP_ACQUIRE;
    op->request.now_us = 0;
    op->max_wait_us = -1;
    ck_assert_int_eq(weir_submit(limiter, op), WEIR_EINVAL);
    ck_assert_str_eq(scene_heard(&stage.scene)->last_line, "op->max_wait_us must be 0 or more, not -1");
}

TEST(weir_submit_leaves_a_refused_op_unchanged, 30)
{
    static struct stage stage;
    stage_open(&stage, NULL);
    stage.fake.queued = stage.fake.answered = FAKE_QUEUE; /* full */
    ck_assert_int_eq(weir_submit(stage.scene.limiter, &stage.ops[0]), WEIR_EFULL);
    ck_assert(stage.ops[0].done == write_down);
    atomic_store(&stage.fake.later, false);
    stage.scene.now_us = -1;
    ck_assert_int_eq(weir_submit(stage.scene.limiter, &stage.ops[0]), WEIR_EINVAL); /* the clock */
    ck_assert(stage.ops[0].done == write_down);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).errors, 2);
    scene_close(&stage.scene);
    ck_assert_int_eq(atomic_load(&stage.done_count), 0);
}

/* ---- On the caller's event loop ---- */

TEST(with_an_event_fd_done_runs_in_dispatch_alone_and_in_the_order_of_answers, 30)
{
    STAGE(stage, NULL);
    const int fd = weir_event_fd(stage.scene.limiter);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(weir_event_fd(stage.scene.limiter), fd);
    ck_assert(!is_readable(fd));
    ck_assert_int_eq(weir_dispatch(stage.scene.limiter), 0);

    submit(&stage, 0, 10);
    ck_assert(!is_readable(fd));
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_OK, 6), 6);
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_ESTATE, 1), 1);
    ck_assert_int_eq(atomic_load(&stage.done_count), 0);
    ck_assert(is_readable(fd));
    ck_assert_int_eq(weir_dispatch(stage.scene.limiter), 7);
    ck_assert(!is_readable(fd));
    for (int i = 0; i < 7; i++) {
        ck_assert_ptr_eq(stage.order[i], &stage.ops[i]);
        ck_assert_int_eq(stage.statuses[i], i < 6 ? WEIR_OK : WEIR_ESTATE);
    }
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_ETIME, 3), 3);
    ck_assert(is_readable(fd));
    ck_assert_uint_eq(stats_of(stage.scene.limiter).fallbacks, 3); /* already decided, not yet delivered */
    ck_assert_int_eq(weir_dispatch(stage.scene.limiter), 3);
    ck_assert_int_eq(stage.ops[9].decision.source, WEIR_BY_FALLBACK);
    ck_assert_int_eq(weir_dispatch(stage.scene.limiter), 0);
}

/* Free the op and submit another one while left_to_submit lasts. */
static int left_to_submit;

static void free_and_submit(struct weir_op *op, int status)
{
    struct stage *stage = op->user;
    must_succeed(status);
    atomic_fetch_add(&stage->done_count, 1);
    free(op);
    if (left_to_submit-- <= 0)
        return;
    struct weir_op *next = calloc(1, sizeof *next);
    ck_assert_ptr_nonnull(next);
    *next = stage->ops[0];
    next->done = free_and_submit;
    int result = weir_submit(stage->scene.limiter, next);
    must(result == 1, "submitted");
}

TEST(a_done_may_free_its_op_and_submit_another, 30)
{
    for (int with_fd = 0; with_fd < 2; with_fd++) {
        STAGE(stage, NULL);
        if (with_fd)
            ck_assert_int_ge(weir_event_fd(stage.scene.limiter), 0);
        left_to_submit = 20;
        for (int i = 0; i < 3; i++) {
            struct weir_op *op = calloc(1, sizeof *op);
            ck_assert_ptr_nonnull(op);
            *op = stage.ops[0];
            op->done = free_and_submit;
            ck_assert_int_eq(weir_submit(stage.scene.limiter, op), 1);
        }
        int rounds = 0;
        while (fake_answer(&stage.fake, WEIR_OK, OPS) > 0 && rounds++ < 100)
            weir_dispatch(stage.scene.limiter);
        ck_assert_int_eq(atomic_load(&stage.done_count), 23);
    }
}

TEST(in_local_mode_the_event_fd_exists_and_is_never_readable, 30)
{
    struct scene scene;
    scene_open(&scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=10s");
    struct weir_op op = { .request = { limit, weir_key_text("a"), 1, 0 }, .done = write_down };
    ck_assert_int_eq(weir_dispatch(scene.limiter), 0);
    const int fd = weir_event_fd(scene.limiter);
    ck_assert_int_ge(fd, 0);
    must_succeed(weir_submit(scene.limiter, &op));
    ck_assert(!is_readable(fd));
    ck_assert_int_eq(weir_dispatch(scene.limiter), 0);
    scene_close(&scene);
    char byte[8];
    ck_assert_int_eq(read(fd, byte, sizeof byte), -1);
    ck_assert_int_eq(errno, EBADF); /* the descriptor was the limiter's */
    ck_assert_int_eq(weir_event_fd(NULL), WEIR_EINVAL);
}

enum { MANY = 4000, ANSWERERS = 3 };

struct crowd {
    struct stage stage;
    struct weir_op ops[MANY];
    _Atomic int answered;
    int done_count; /* by one thread only */
    int statuses[WEIR_OK - WEIR_ECLOSED + 1];
    int times_done[MANY];
};

static void count_done(struct weir_op *op, int status)
{
    struct crowd *crowd = op->user;
    crowd->done_count++;
    crowd->statuses[-status]++;
    crowd->times_done[op - crowd->ops]++;
}

static struct crowd *crowd_open(void)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);
    ck_assert_ptr_nonnull(crowd);
    stage_open(&crowd->stage, NULL);
    for (int i = 0; i < MANY; i++) {
        crowd->ops[i] = crowd->stage.ops[0];
        crowd->ops[i].done = count_done;
        crowd->ops[i].user = crowd;
    }
    return crowd;
}

static void assert_each_was_done_once(const struct crowd *crowd)
{
    for (int i = 0; i < MANY; i++)
        must(crowd->times_done[i] == 1, "each op is done once");
}

static void *answer_in_part(void *argument)
{
    struct crowd *crowd = argument;
    for (int round = 0; atomic_load(&crowd->answered) < MANY; round++)
        atomic_fetch_add(&crowd->answered, fake_answer(&crowd->stage.fake, round % 2 ? WEIR_OK : WEIR_ESTATE, 5));
    return NULL;
}

enum { OPENERS = 4 };
static pthread_barrier_t all_there;

static void *open_event_fd(void *limiter)
{
    pthread_barrier_wait(&all_there);
    return (void *)(intptr_t)weir_event_fd(limiter);
}

TEST(threads_that_request_the_event_fd_concurrently_get_the_same_one, 60)
{
    for (int round = 0; round < 200; round++) {
        struct scene scene;
        pthread_t threads[OPENERS];
        scene_open(&scene, NULL);
        ck_assert_int_eq(pthread_barrier_init(&all_there, NULL, OPENERS), 0);
        const int free_before = dup(STDERR_FILENO);
        close(free_before);
        for (int i = 0; i < OPENERS; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, open_event_fd, scene.limiter), 0);
        for (int i = 0; i < OPENERS; i++) {
            void *fd;
            ck_assert_int_eq(pthread_join(threads[i], &fd), 0);
            ck_assert_int_eq((intptr_t)fd, weir_event_fd(scene.limiter));
        }
        scene_close(&scene);
        const int free_after = dup(STDERR_FILENO);
        close(free_after);
        ck_assert_int_eq(free_after, free_before);
        pthread_barrier_destroy(&all_there);
    }
}

TEST(answers_from_many_threads_wake_the_loop_and_none_is_lost, 60)
{
    struct crowd *crowd = crowd_open();
    weir *limiter = crowd->stage.scene.limiter;
    const int fd = weir_event_fd(limiter);
    struct crew threads;
    crew_start(&threads, ANSWERERS, answer_in_part, crowd);
    for (int submitted = 0; submitted < MANY || crowd->done_count < MANY;) {
        for (int i = 0; i < 8 && submitted < MANY; i++)
            ck_assert_int_eq(weir_submit(limiter, &crowd->ops[submitted++]), 1);
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        if (crowd->done_count < submitted)
            ck_assert_int_eq(poll(&wait, 1, 30000), 1); /* a lost wake-up would time out here */
        weir_dispatch(limiter);
    }
    crew_join(&threads);
    assert_each_was_done_once(crowd);
    const struct weir_stats stats = stats_of(limiter);
    ck_assert_uint_eq(stats.allowed, (uint64_t)crowd->statuses[-WEIR_OK]);
    ck_assert_uint_eq(stats.errors, (uint64_t)crowd->statuses[-WEIR_ESTATE]);
    scene_close(&crowd->stage.scene);
    free(crowd);
}

/* ---- The end ---- */

static void *close_limiter(void *argument)
{
    scene_close(&((struct stage *)argument)->scene);
    return NULL;
}

TEST(submitted_requests_end_as_closed_when_the_limiter_closes, 30)
{
    for (int with_fd = 0; with_fd < 2; with_fd++) {
        static struct stage stage;
        stage_open(&stage, NULL);
        if (with_fd)
            ck_assert_int_ge(weir_event_fd(stage.scene.limiter), 0);
        submit(&stage, 0, OPS);
        ck_assert_int_eq(fake_answer(&stage.fake, WEIR_OK, 5), 5); /* with an event fd these wait to be dispatched */
        scene_close(&stage.scene);
        ck_assert_int_eq(atomic_load(&stage.done_count), OPS);
        for (int i = 0; i < OPS; i++) {
            ck_assert_ptr_eq(stage.order[i], &stage.ops[i]);
            ck_assert_int_eq(stage.statuses[i], i < 5 ? WEIR_OK : WEIR_ECLOSED);
        }
        ck_assert_int_eq(pthread_equal(stage.done_by, pthread_self()) != 0, with_fd);
        ck_assert(atomic_load(&stage.fake.destroyed));
    }
}

/* A thread that makes one call, which the close ends. */
struct caller {
    struct stage *stage;
    int verb;
    int result;
};

static void *call_once(void *argument)
{
    struct caller *caller = argument;
    weir_limit *limit = caller->stage->limit;
    weir *limiter = caller->stage->scene.limiter;
    const struct weir_key key = weir_key_text("a");
    const struct weir_request request = { limit, key, 1, 0 };
    struct weir_decision decision;
    switch (caller->verb) {
    case 0: caller->result = weir_try(limit, key, 1, &decision); break;
    case 1: caller->result = weir_peek(limit, key, 1, &decision); break;
    case 2: caller->result = weir_refund(limit, key, 1); break;
    case 3: caller->result = weir_reset(limit, key); break;
    case 4: caller->result = weir_acquire(limit, key, 1, WEIR_HOUR, &decision); break;
    case 5: caller->result = weir_try_all(limiter, &request, 1, &decision); break;
    case 6: caller->result = weir_try_batch(limiter, &request, 1, &decision); break;
    default: caller->result = weir_submit(limiter, &caller->stage->ops[0]); break;
    }
    return NULL;
}

enum { VERBS = 8 };

TEST(closing_waits_for_calls_in_the_backend_which_return_closed, 30)
{
    static struct stage stage;
    struct caller callers[VERBS];
    pthread_t threads[VERBS];
    stage_open(&stage, NULL);
    atomic_store(&stage.fake.later, false);
    fake_hold(&stage.fake, false);
    for (int i = 0; i < VERBS; i++) {
        callers[i] = (struct caller){ .stage = &stage, .verb = i, .result = 1 };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call_once, &callers[i]), 0);
    }
    fake_await_inside(&stage.fake, VERBS);
    scene_close(&stage.scene);
    ck_assert(atomic_load(&stage.fake.destroyed));
    for (int i = 0; i < VERBS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(callers[i].result, WEIR_ECLOSED);
    }
}

TEST(calls_during_closing_return_closed_without_asking_the_backend, 30)
{
    static struct stage stage;
    struct caller slow = { .stage = &stage, .verb = 0, .result = 1 };
    pthread_t slow_thread, closer;
    stage_open(&stage, NULL);
    fake_hold(&stage.fake, true); /* keeps the limiter open until the calls have come */
    ck_assert_int_eq(pthread_create(&slow_thread, NULL, call_once, &slow), 0);
    fake_await_inside(&stage.fake, 1);
    struct stage closing = { .scene = stage.scene };
    ck_assert_int_eq(pthread_create(&closer, NULL, close_limiter, &closing), 0);
    pthread_mutex_lock(&stage.fake.mutex);
    while (!stage.fake.was_shut)
        pthread_cond_wait(&stage.fake.changed, &stage.fake.mutex);
    pthread_mutex_unlock(&stage.fake.mutex);

    const int calls = atomic_load(&stage.fake.calls);
    for (int i = 0; i < VERBS; i++) {
        struct caller late = { .stage = &stage, .verb = i, .result = 1 };
        call_once(&late);
        ck_assert_int_eq(late.result, WEIR_ECLOSED);
    }
    ck_assert_int_eq(atomic_load(&stage.fake.calls), calls);
    ck_assert(stage.ops[0].done == write_down);
    ck_assert(!atomic_load(&stage.fake.destroyed)); /* one is still inside */
    fake_let_go(&stage.fake);
    ck_assert_int_eq(pthread_join(closer, NULL), 0);
    ck_assert_int_eq(pthread_join(slow_thread, NULL), 0);
    ck_assert_int_eq(slow.result, WEIR_ECLOSED);
    ck_assert_int_eq(atomic_load(&stage.done_count), 0);
}

TEST(closing_wakes_a_caller_that_waits_for_permits_in_an_outage, 30)
{
    static struct stage stage;
    struct caller sleeper = { .stage = &stage, .verb = 4, .result = 1 };
    pthread_t thread;
    stage_open(&stage, NULL);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    weir_limit *slow = scene_define_text(&stage.scene, "slow", "token_bucket limit=1 period=30m");
    stage.limit = slow; /* cold: a permit in half an hour */
    ck_assert_int_eq(pthread_create(&thread, NULL, call_once, &sleeper), 0);
    while (stats_of(stage.scene.limiter).outages ==
           0) /* until its request is answered: then it sleeps or is about to */
        sched_yield();
    scene_close(&stage.scene);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(sleeper.result, WEIR_ECLOSED);
}

static void *submit_until_closed(void *argument)
{
    struct crowd *crowd = argument;
    for (int i = 0; i < MANY; i++) {
        int result = weir_submit(crowd->stage.scene.limiter, &crowd->ops[i]);
        must(result == 1 || result == WEIR_ECLOSED, "it waits, or the limiter is closed");
        if (result == WEIR_ECLOSED)
            return (void *)(intptr_t)i;
    }
    return (void *)(intptr_t)MANY;
}

TEST(every_request_has_its_answer_whenever_the_limiter_is_closed, 60)
{
    for (int round = 0; round < 20; round++) {
        struct crowd *crowd = crowd_open();
        struct caller slow = { .stage = &crowd->stage, .verb = 0, .result = 1 };
        pthread_t submitter, closer, holder;
        void *submitted;
        if (round % 2)
            ck_assert_int_ge(weir_event_fd(crowd->stage.scene.limiter), 0);
        fake_hold(&crowd->stage.fake, true); /* so that the submitter meets a closing limiter, not a freed one */
        ck_assert_int_eq(pthread_create(&holder, NULL, call_once, &slow), 0);
        fake_await_inside(&crowd->stage.fake, 1);
        struct stage closing = { .scene = crowd->stage.scene };
        ck_assert_int_eq(pthread_create(&submitter, NULL, submit_until_closed, crowd), 0);
        for (int i = 0; i < round * 5; i++)
            sched_yield();
        ck_assert_int_eq(pthread_create(&closer, NULL, close_limiter, &closing), 0);
        ck_assert_int_eq(pthread_join(submitter, &submitted), 0);
        fake_let_go(&crowd->stage.fake);
        ck_assert_int_eq(pthread_join(closer, NULL), 0);
        ck_assert_int_eq(pthread_join(holder, NULL), 0);
        ck_assert_int_eq(crowd->done_count, (int)(intptr_t)submitted);
        ck_assert_int_eq(crowd->statuses[-WEIR_ECLOSED], crowd->done_count);
        for (int i = 0; i < crowd->done_count; i++)
            must(crowd->times_done[i] == 1, "each op is done once");
        free(crowd);
    }
}
