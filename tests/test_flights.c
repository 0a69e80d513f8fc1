/* test_flights.c - hybrid mode over a remote backend in hand: who waits for whom, and what becomes of what comes late. */
#include "backends/hybrid.h"
#include "backends/memory.h"
#include "core/clock.h"
#include "core/limiter.h"
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIFE_US = 100000, QUEUE = 4096, ASKERS = 8, EACH = 3000 };

/* A backend of whole limits: memory's decisions, by its own clock, answered when the test says. */
struct remote {
    struct weir_backend base;
    struct weir_backend *store;
    pthread_mutex_t mutex;
    _Atomic int64_t now_us; /* the time everywhere */
    int failure;            /* what decisions end with; WEIR_OK */
    bool was_shut;
    int decided, submitted;
    int64_t ahead; /* of the last request */
    struct pending {
        struct weir_op *op;
        struct weir_backend_request request;
    } queue[QUEUE];
    int queued, answered;
    atomic_bool ends;     /* for the thread that answers */
    _Atomic bool answers; /* some thread runs `done`: */
    pthread_t answerer;   /* this one */
};

static int store_decide(struct remote *remote, const struct weir_backend_request *requests, size_t n, bool all,
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

static int remote_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out)
{
    struct remote *remote = (struct remote *)backend;
    (void)deadline_us;
    pthread_mutex_lock(&remote->mutex);
    remote->decided++;
    int error = remote->was_shut ? WEIR_ECLOSED : store_decide(remote, requests, n, all, out);
    pthread_mutex_unlock(&remote->mutex);
    return error;
}

static int remote_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op)
{
    struct remote *remote = (struct remote *)backend;
    (void)deadline_us;
    pthread_mutex_lock(&remote->mutex);
    const bool closed = remote->was_shut;
    if (!closed) {
        must(remote->queued < QUEUE, "room for what waits");
        remote->submitted++;
        remote->ahead = request->ahead;
        remote->queue[remote->queued++] = (struct pending){ op, *request };
    }
    pthread_mutex_unlock(&remote->mutex);
    return closed ? WEIR_ECLOSED : 1;
}

/* Decide what was submitted, in its order, now, and answer `late_us` later. Returns how many. */
static int remote_answer(struct remote *remote, int64_t late_us)
{
    int count = 0;
    for (;; count++) {
        pthread_mutex_lock(&remote->mutex);
        struct pending pending = { .op = NULL };
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
        remote->answerer = pthread_self();
        atomic_store(&remote->answers, true);
        pending.op->done(pending.op, status);
        atomic_store(&remote->answers, false);
    }
}

static void remote_shut(struct weir_backend *backend)
{
    struct remote *remote = (struct remote *)backend;
    pthread_mutex_lock(&remote->mutex);
    remote->was_shut = true;
    pthread_mutex_unlock(&remote->mutex);
    remote_answer(remote, 0);
}

static void remote_destroy(struct weir_backend *backend)
{
    struct remote *remote = (struct remote *)backend;
    must(remote->queued == 0, "all was answered");
    remote->store->ops->destroy(remote->store);
}

static int64_t remote_now_us(void *user)
{
    return atomic_load(&((struct remote *)user)->now_us);
}

static bool remote_is_here(struct weir_backend *backend)
{
    struct remote *remote = (struct remote *)backend;
    return atomic_load(&remote->answers) && pthread_equal(remote->answerer, pthread_self());
}

static const struct weir_backend_ops remote_ops = {
    .size = sizeof remote_ops,
    .name = "remote",
    .own_clock = true,
    .shared = true,
    .decide = remote_decide,
    .submit = remote_submit,
    .shut = remote_shut,
    .destroy = remote_destroy,
    .is_here = remote_is_here,
};

struct stage {
    struct remote remote;
    struct weir_backend *hybrid;
    weir *limiter;
    weir_limit *limit;
};

static void stage_open_for(struct stage *stage, const char *policy, int64_t max_keys)
{
    struct weir_options options = WEIR_OPTIONS_INIT, read;
    struct remote *remote = &stage->remote;
    memset(stage, 0, sizeof *stage);
    options.mode = WEIR_HYBRID;
    options.redis_url = "unix:///not-used";
    options.on_failure = WEIR_FAIL_ERROR;
    must_succeed(options_read(&options, &read));
    remote->base.ops = &remote_ops;
    remote->now_us = 1000 * WEIR_SECOND;
    pthread_mutex_init(&remote->mutex, NULL);
    must_succeed(memory_open(&read, &remote->store));
    const struct hybrid_settings settings = {
        .leases = { .life_us = LIFE_US, .max = WEIR_MAX_PERMITS, .instances = 1 },
        .max_keys = max_keys,
        .max_bytes = INT64_C(64) << 20,
        .timeout_us = WEIR_SECOND,
        .now_us = remote_now_us,
        .user = remote,
    };
    must_succeed(hybrid_open(&settings, &remote->base, &stage->hybrid));
    must_succeed(limiter_make(&read, stage->hybrid, NULL, &stage->limiter));
    struct weir_policy parsed = policy_of(policy);
    must_succeed(weir_limit_define(stage->limiter, "limit", &parsed, &stage->limit));
}

static void stage_open(struct stage *stage, const char *policy)
{
    stage_open_for(stage, policy, 1000);
}

static struct weir_stats stage_stats(const struct stage *stage)
{
    struct weir_stats stats = { .size = sizeof stats };
    must_succeed(weir_stats_read(stage->limiter, &stats));
    return stats;
}

/* ---- Submitted requests ---- */

struct asked {
    struct weir_op op;
    int done, status;
};

static int finished; /* how many, in the order of their ending */

static void note_done(struct weir_op *op, int status)
{
    struct asked *asked = (struct asked *)(void *)op;
    must(asked->done == 0, "done once");
    asked->done = ++finished;
    asked->status = status;
}

static int submit(struct stage *stage, struct asked *asked, const char *key, int64_t cost)
{
    memset(asked, 0, sizeof *asked);
    asked->op.request = (struct weir_request){ .limit = stage->limit, .key = weir_key_text(key), .cost = cost };
    asked->op.done = note_done;
    const int result = weir_submit(stage->limiter, &asked->op);
    if (result == WEIR_OK)
        note_done(&asked->op, WEIR_OK);
    else
        must(result == 1 || result < 0, "a result");
    return result;
}

/* Ask for a permit every `gap_us` for three lives, with answers at once; then let what is leased go by. */
static void warm_up(struct stage *stage, const char *key, int64_t gap_us)
{
    struct asked asked;
    for (int64_t spent_us = 0; spent_us < 3 * LIFE_US; spent_us += gap_us) {
        submit(stage, &asked, key, 1);
        remote_answer(&stage->remote, 0);
        must(asked.done > 0 && asked.op.decision.allowed, "admitted");
        atomic_fetch_add(&stage->remote.now_us, gap_us);
    }
    atomic_fetch_add(&stage->remote.now_us, LIFE_US);
    stage->remote.submitted = stage->remote.decided = 0;
    finished = 0;
}

#define WIDE "token_bucket limit=1000000 period=1s"

START_TEST(those_who_ask_for_the_same_key_wait_for_one_request_and_are_served_in_order)
{
    static struct stage stage;
    static struct asked asked[20];
    stage_open(&stage, WIDE);
    warm_up(&stage, "a", 1000);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(submit(&stage, &asked[i], "a", 1), 1);
    ck_assert_int_eq(stage.remote.submitted, 1);
    remote_answer(&stage.remote, 100);
    for (int i = 0; i < 20; i++) {
        ck_assert(asked[i].op.decision.allowed && asked[i].done == i + 1);
        ck_assert_int_eq(asked[i].op.decision.source, i == 0 ? WEIR_BY_REDIS : WEIR_BY_LEASE);
        ck_assert_int_eq(asked[i].op.decision.age_us, i == 0 ? 0 : 100);
    }
    ck_assert_int_eq(stage.remote.submitted, 1);
    weir_close(stage.limiter);
}
END_TEST

START_TEST(those_who_come_out_short_ask_once_more_and_all_get_an_answer)
{
    static struct stage stage;
    static struct asked asked[60];
    stage_open(&stage, "token_bucket limit=400 period=366d");
    warm_up(&stage, "a", 2000); /* some 200 are left */
    const int64_t left = peeked(stage.limit, "a", 1).remaining;
    int64_t allowed = 0;
    for (int i = 0; i < 60; i++)
        submit(&stage, &asked[i], "a", 7);
    while (remote_answer(&stage.remote, 100) > 0)
        ;
    for (int i = 0; i < 60; i++) {
        ck_assert(asked[i].done > 0 && asked[i].status == WEIR_OK);
        allowed += asked[i].op.decision.allowed;
    }
    /* What the lease and Redis have of the last seven may be too little in each. */
    ck_assert_msg(allowed >= left / 7 - 1 && allowed <= left / 7, "%d of %d permits by sevens", (int)allowed,
                  (int)left);
    ck_assert_int_le(stage.remote.submitted, 60 + 2);
    weir_close(stage.limiter);
}
END_TEST

START_TEST(a_failure_ends_all_who_wait_for_the_answer)
{
    static struct stage stage;
    static struct asked asked[5];
    stage_open(&stage, WIDE);
    warm_up(&stage, "a", 1000);
    for (int i = 0; i < 5; i++)
        submit(&stage, &asked[i], "a", 1);
    stage.remote.failure = WEIR_ETIME;
    remote_answer(&stage.remote, 0);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(asked[i].status, WEIR_ETIME);
    stage.remote.failure = WEIR_OK;
    submit(&stage, &asked[0], "a", 1);
    remote_answer(&stage.remote, 0);
    ck_assert_int_eq(asked[0].status, WEIR_OK);
    weir_close(stage.limiter);
}
END_TEST

START_TEST(who_must_have_an_answer_sooner_than_it_may_come_asks_by_himself)
{
    static struct stage stage;
    struct weir_op slow = { .request.cost = 1 }, fast = slow;
    stage_open(&stage, WIDE);
    warm_up(&stage, "a", 1000);
    struct weir_backend_request request = {
        .limit = stage.limit,
        .key = weir_key_text("a"),
        .hash = siphash13(&stage.limit->secret, "a", 1),
        .cost = 1,
        .now_us = WEIR_OWN_CLOCK,
        .plan_version = 1,
        .cold_since_us = -1,
        .verb = WEIR_TAKE,
    };
    slow.done = fast.done = note_done;
    struct asked first, second;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    first.op = slow;
    second.op = fast;
    ck_assert_int_eq(stage.hybrid->ops->submit(stage.hybrid, &request, 2000, &first.op), 1);
    ck_assert_int_eq(stage.hybrid->ops->submit(stage.hybrid, &request, 1000, &second.op), 1);
    ck_assert_int_eq(stage.remote.submitted, 2);
    remote_answer(&stage.remote, 0);
    ck_assert(first.done && second.done && second.op.decision.source == WEIR_BY_REDIS);
    weir_close(stage.limiter);
}
END_TEST

START_TEST(permits_are_asked_for_before_the_last_is_spent)
{
    static struct stage stage;
    static struct asked asked[5000];
    stage_open(&stage, WIDE);
    warm_up(&stage, "a", 100);
    submit(&stage, &asked[0], "a", 1);
    remote_answer(&stage.remote, 2000); /* answers take as long as twenty requests */
    atomic_fetch_add(&stage.remote.now_us, LIFE_US);
    submit(&stage, &asked[0], "a", 1);
    remote_answer(&stage.remote, 0);
    stage.remote.submitted = 0;
    int waited = 0;
    for (int i = 0; i < 5000; i++) {
        waited += submit(&stage, &asked[i], "a", 1) == 1;
        if (i % 20 == 19)
            remote_answer(&stage.remote, 0);
        atomic_fetch_add(&stage.remote.now_us, 100);
        if (i == 999) /* it is known by now how much is asked for */
            stage.remote.submitted = 0;
    }
    ck_assert_msg(waited == 0, "%d of 5000 requests had to wait", waited);
    ck_assert_msg(stage.remote.submitted >= 4 && stage.remote.submitted <= 8, "asked %d times in four lives",
                  stage.remote.submitted);
    ck_assert_int_eq(stage.remote.decided, 0);
    weir_close(stage.limiter);
}
END_TEST

START_TEST(what_comes_later_than_a_lease_lasts_is_not_used)
{
    static struct stage stage;
    struct asked asked[2];
    stage_open(&stage, WIDE);
    warm_up(&stage, "a", 1000);
    submit(&stage, &asked[0], "a", 1);
    ck_assert_int_gt(stage.remote.ahead, 10);
    submit(&stage, &asked[1], "a", 1);
    remote_answer(&stage.remote, LIFE_US);
    ck_assert(asked[0].done && asked[1].done);
    ck_assert_int_eq(asked[1].op.decision.source, WEIR_BY_REDIS); /* what came with the first was too old for it */
    ck_assert_int_eq(stage.remote.submitted, 2);
    ck_assert_uint_ge(stage_stats(&stage).lease_lost, 10);
    weir_close(stage.limiter);
}
END_TEST

START_TEST(a_reset_or_another_policy_drops_what_is_leased_and_what_is_on_its_way)
{
    static struct stage stage;
    struct asked asked;
    for (int redefined = 0; redefined < 2; redefined++) {
        stage_open(&stage, WIDE);
        warm_up(&stage, "a", 1000);
        submit(&stage, &asked, "a", 1);
        if (redefined) {
            struct weir_policy policy = policy_of("token_bucket limit=2000000 period=1s");
            must_succeed(weir_limit_define(stage.limiter, "limit", &policy, NULL));
            ck_assert_int_eq(peeked(stage.limit, "a", 1).limit, 2000000);
        } else {
            must_succeed(weir_reset(stage.limit, weir_key_text("a")));
        }
        remote_answer(&stage.remote, 0);
        ck_assert(asked.done);
        ck_assert_int_ne(peeked(stage.limit, "a", 1).source, WEIR_BY_LEASE);
        weir_close(stage.limiter);
    }
}
END_TEST

START_TEST(a_refund_ends_a_denial)
{
    static struct stage stage;
    struct asked asked;
    stage_open(&stage, "fixed_window limit=3 period=1h");
    ck_assert(taken(stage.limit, "a", 3).allowed);
    ck_assert_int_eq(submit(&stage, &asked, "a", 1), 1);
    remote_answer(&stage.remote, 0);
    ck_assert(!asked.op.decision.allowed && asked.op.decision.source == WEIR_BY_REDIS);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_DENIAL);
    must_succeed(weir_refund(stage.limit, weir_key_text("a"), 1));
    ck_assert_int_eq(submit(&stage, &asked, "a", 1), 1);
    remote_answer(&stage.remote, 0);
    ck_assert(asked.op.decision.allowed);
    weir_close(stage.limiter);
}
END_TEST

START_TEST(a_denial_elsewhere_gives_leased_permits_back)
{
    static struct stage stage;
    struct weir_decision decision;
    weir_limit *narrow;
    struct weir_policy policy = policy_of("fixed_window limit=1 period=1h");
    stage_open(&stage, WIDE);
    must_succeed(weir_limit_define(stage.limiter, "narrow", &policy, &narrow));
    warm_up(&stage, "a", 1000);
    struct asked asked;
    submit(&stage, &asked, "a", 1);
    remote_answer(&stage.remote, 0);
    const struct weir_request both[] = { { .limit = stage.limit, .key = weir_key_text("a"), .cost = 5 },
                                         { .limit = narrow, .key = weir_key_text("a"), .cost = 1 } };
    must_succeed(weir_try_all(stage.limiter, both, 2, &decision));
    ck_assert(decision.allowed);
    const int64_t left = peeked(stage.limit, "a", 1).remaining;
    for (int i = 0; i < 3; i++) {
        stage.remote.decided = 0;
        must_succeed(weir_try_all(stage.limiter, both, 2, &decision));
        ck_assert(!decision.allowed && decision.bound_by == 1);
        ck_assert_int_eq(decision.source, i == 0 ? WEIR_BY_REDIS : WEIR_BY_DENIAL);
        ck_assert_int_eq(stage.remote.decided, i == 0 ? 1 : 0);
        ck_assert_int_eq(peeked(stage.limit, "a", 1).remaining, left);
    }
    weir_close(stage.limiter);
}
END_TEST

START_TEST(keys_without_room_are_asked_for_one_by_one_and_those_that_wait_stay)
{
    static struct stage stage;
    static struct asked asked[50];
    stage_open_for(&stage, "fixed_window limit=1 period=1h", 10);
    for (int round = 0; round < 2; round++) {
        static char names[50][8];
        for (int i = 0; i < 50; i++) {
            snprintf(names[i], sizeof names[i], "key%d", i);
            ck_assert_int_eq(submit(&stage, &asked[i], names[i], 1), round == 0 ? 1 : asked[i].done ? 0 : 1);
        }
        ck_assert_int_le(stage_stats(&stage).keys, 10);
        remote_answer(&stage.remote, 0);
        for (int i = 0; i < 50; i++)
            ck_assert(asked[i].done && asked[i].op.decision.allowed == (round == 0));
    }
    weir_close(stage.limiter);
}
END_TEST

START_TEST(closing_answers_all_who_wait)
{
    static struct stage stage;
    static struct asked asked[20];
    stage_open(&stage, WIDE);
    warm_up(&stage, "a", 1000);
    for (int i = 0; i < 20; i++)
        submit(&stage, &asked[i], i % 2 ? "a" : "b", 1);
    weir_close(stage.limiter);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(asked[i].status, WEIR_ECLOSED);
}
END_TEST

START_TEST(a_child_of_a_fork_does_not_spend_its_parents_lease)
{
    static struct stage stage;
    struct asked asked;
    stage_open(&stage, WIDE);
    hybrid_watch_forks(stage.hybrid);
    warm_up(&stage, "a", 1000);
    submit(&stage, &asked, "a", 1);
    remote_answer(&stage.remote, 0);
    submit(&stage, &asked, "b", 1); /* its answer comes in the parent only */
    ck_assert_int_eq(peeked(stage.limit, "a", 1).source, WEIR_BY_LEASE);
    const pid_t child = fork();
    if (child == 0)
        _exit(peeked(stage.limit, "a", 1).source == WEIR_BY_LEASE);
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_eq(peeked(stage.limit, "a", 1).source, WEIR_BY_LEASE);
    remote_answer(&stage.remote, 0);
    ck_assert(asked.done);
    weir_close(stage.limiter);
}
END_TEST

START_TEST(a_caller_that_brings_the_time_is_decided_by_it_the_same_each_time)
{
    static struct stage stage;
    static struct weir_decision first[3000], again[3000];
    for (int round = 0; round < 2; round++) {
        stage_open(&stage, "token_bucket limit=50 period=1s");
        for (int i = 0; i < 3000; i++) {
            const struct weir_request request = {
                .limit = stage.limit,
                .key = weir_key_text(i % 3 ? "a" : "b"),
                .cost = 1 + i % 2,
                .now_us = 5000 * WEIR_SECOND + i * 7919,
            };
            must_succeed(weir_try_batch(stage.limiter, &request, 1, round ? &again[i] : &first[i]));
        }
        ck_assert_int_eq(stage.remote.submitted, 0);
        ck_assert_uint_gt(stage_stats(&stage).lease_hits, 100);
        weir_close(stage.limiter);
    }
    for (int i = 0; i < 3000; i++)
        assert_decision_is(&again[i], &first[i], "the second time");
}
END_TEST

/* ---- Threads ---- */

static void *answers(void *user)
{
    struct remote *remote = user;
    while (!atomic_load(&remote->ends)) {
        const struct timespec pause = { .tv_nsec = 20000 };
        remote_answer(remote, 0);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void *asks(void *user)
{
    struct stage *stage = user;
    const char *const keys[] = { "a", "a", "a", "b" };
    int64_t allowed = 0;
    for (int i = 0; i < EACH; i++) {
        struct weir_request requests[4];
        struct weir_decision decisions[4];
        atomic_fetch_add(&stage->remote.now_us, 1);
        if (i % 5) {
            allowed += taken(stage->limit, keys[i % 4], 1).allowed;
            continue;
        }
        for (int k = 0; k < 4; k++)
            requests[k] = (struct weir_request){ .limit = stage->limit, .key = weir_key_text(keys[k]), .cost = 1 };
        must_succeed(weir_try_batch(stage->limiter, requests, 4, decisions));
        for (int k = 0; k < 4; k++)
            allowed += decisions[k].allowed;
    }
    return (void *)(intptr_t)allowed;
}

START_TEST(threads_that_wait_for_one_another_admit_no_more_than_the_limit)
{
    static struct stage stage;
    pthread_t answerer, threads[ASKERS];
    stage_open(&stage, "fixed_window limit=9000 period=366d");
    ck_assert_int_eq(pthread_create(&answerer, NULL, answers, &stage.remote), 0);
    for (int i = 0; i < ASKERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, asks, &stage), 0);
    int64_t allowed = 0;
    for (int i = 0; i < ASKERS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        allowed += (intptr_t)result;
    }
    atomic_store(&stage.remote.ends, true);
    pthread_join(answerer, NULL);
    remote_answer(&stage.remote, 0);
    const struct weir_stats stats = stage_stats(&stage);
    ck_assert_int_le(allowed, 2 * 9000);
    ck_assert_int_ge(allowed + (int64_t)stats.lease_lost, 9000 + 9000 * 3 / 10);
    ck_assert_uint_gt(stats.lease_hits, 1000);
    weir_close(stage.limiter);
}
END_TEST

static void try_there(struct weir_op *op, int status)
{
    struct asked *asked = (struct asked *)(void *)op;
    struct weir_decision decision;
    must_succeed(status);
    asked->status = weir_try(op->request.limit, weir_key_text("b"), 1, &decision);
    asked->done = 1;
}

START_TEST(a_done_that_asks_for_a_busy_key_does_not_wait_for_itself)
{
    static struct stage stage;
    struct asked asked, other;
    stage_open(&stage, WIDE);
    warm_up(&stage, "b", 1000);
    submit(&stage, &other, "b", 1); /* on its way, and never answered before the next one */
    memset(&asked, 0, sizeof asked);
    asked.op.request = (struct weir_request){ .limit = stage.limit, .key = weir_key_text("c"), .cost = 1 };
    asked.op.done = try_there;
    ck_assert_int_eq(weir_submit(stage.limiter, &asked.op), 1);
    struct pending *queue = stage.remote.queue;
    const struct pending busy = queue[0];
    queue[0] = queue[1];
    queue[1] = busy;
    remote_answer(&stage.remote, 0);
    ck_assert(asked.done && asked.status == WEIR_OK && other.done); /* this remote does not mind who asks */
    weir_close(stage.limiter);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flights");
    suite_test(suite, those_who_ask_for_the_same_key_wait_for_one_request_and_are_served_in_order, 10);
    suite_test(suite, those_who_come_out_short_ask_once_more_and_all_get_an_answer, 10);
    suite_test(suite, a_failure_ends_all_who_wait_for_the_answer, 10);
    suite_test(suite, who_must_have_an_answer_sooner_than_it_may_come_asks_by_himself, 10);
    suite_test(suite, permits_are_asked_for_before_the_last_is_spent, 10);
    suite_test(suite, what_comes_later_than_a_lease_lasts_is_not_used, 10);
    suite_test(suite, a_reset_or_another_policy_drops_what_is_leased_and_what_is_on_its_way, 10);
    suite_test(suite, a_refund_ends_a_denial, 10);
    suite_test(suite, a_denial_elsewhere_gives_leased_permits_back, 10);
    suite_test(suite, keys_without_room_are_asked_for_one_by_one_and_those_that_wait_stay, 10);
    suite_test(suite, closing_answers_all_who_wait, 10);
    suite_test(suite, a_child_of_a_fork_does_not_spend_its_parents_lease, 10);
    suite_test(suite, a_caller_that_brings_the_time_is_decided_by_it_the_same_each_time, 10);
    suite_test(suite, threads_that_wait_for_one_another_admit_no_more_than_the_limit, 60);
    suite_test(suite, a_done_that_asks_for_a_busy_key_does_not_wait_for_itself, 10);
    return suite_run(suite);
}
