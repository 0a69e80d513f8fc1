/* test_lease_calls.c - hybrid mode over a scripted remote: which requests wait for a lease call, and late answers. */
#include "backends/hybrid/accounts.h"
#include "backends/hybrid/hybrid.h"
#include "core/policy/plan.h"
#include "stage.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ASKERS = 8, EACH = 3000 };

TEST(requests_for_one_key_wait_for_one_lease_call_and_are_served_in_order, 10)
{
    static struct asked asked[20];
    STAGE(stage, STAGE_WIDE);
    stage_warm_up(&stage, "a", 1000);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(stage_submit(&stage, &asked[i], "a", 1), 1);
    ck_assert_int_eq(stage.remote.submitted, 1);
    stage_answer(&stage, 100);
    for (int i = 0; i < 20; i++) {
        ck_assert(asked[i].op.decision.allowed && asked[i].done == i + 1);
        ck_assert_int_eq(asked[i].op.decision.source, i == 0 ? WEIR_BY_REDIS : WEIR_BY_LEASE);
        ck_assert_int_eq(asked[i].op.decision.age_us, i == 0 ? 0 : 100);
    }
    ck_assert_int_eq(stage.remote.submitted, 1);
}

TEST(waiters_that_a_grant_does_not_cover_ask_again_and_all_are_answered, 10)
{
    static struct asked asked[60];
    STAGE(stage, "token_bucket limit=400 period=366d");
    stage_warm_up(&stage, "a", 2000); /* some 200 are left */
    const int64_t left = peeked(stage.limit, "a", 1).remaining;
    int64_t allowed = 0;
    for (int i = 0; i < 60; i++)
        stage_submit(&stage, &asked[i], "a", 7);
    while (stage_answer(&stage, 100) > 0)
        ;
    for (int i = 0; i < 60; i++) {
        ck_assert(asked[i].done > 0 && asked[i].status == WEIR_OK);
        allowed += asked[i].op.decision.allowed;
    }
    /* The lease and Redis may each hold too few of the last seven permits. */
    ck_assert_msg(allowed >= left / 7 - 1 && allowed <= left / 7, "%d of %d permits by sevens", (int)allowed,
                  (int)left);
    ck_assert_int_le(stage.remote.submitted, 60 + 2);
}

TEST(a_failed_lease_call_ends_all_of_its_waiters, 10)
{
    static struct asked asked[5];
    STAGE(stage, STAGE_WIDE);
    stage_warm_up(&stage, "a", 1000);
    for (int i = 0; i < 5; i++)
        stage_submit(&stage, &asked[i], "a", 1);
    stage.remote.failure = WEIR_ETIME;
    stage_answer(&stage, 0);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(asked[i].status, WEIR_ETIME);
    stage.remote.failure = WEIR_OK;
    stage_ask(&stage, &asked[0], "a", 1, 0);
    ck_assert_int_eq(asked[0].status, WEIR_OK);
}

TEST(a_request_with_an_earlier_deadline_than_the_lease_call_asks_separately, 10)
{
    CLOSED_BY(stage_close) struct stage stage;
    struct asked slow = { .stage = &stage, .op = { .request.cost = 1, .done = asked_done } }, fast = slow;
    stage_open(&stage, STAGE_WIDE);
    stage_warm_up(&stage, "a", 1000);
    const struct weir_backend_request request = stage_request(&stage, "a", 1);
    ck_assert_int_eq(stage.hybrid->ops->submit(stage.hybrid, &request, 2000, &slow.op), 1);
    ck_assert_int_eq(stage.hybrid->ops->submit(stage.hybrid, &request, 1000, &fast.op), 1);
    ck_assert_int_eq(stage.remote.submitted, 2);
    stage_answer(&stage, 0);
    ck_assert(slow.done && fast.done && fast.op.decision.source == WEIR_BY_REDIS);
}

TEST(a_lease_call_is_sent_before_the_last_leased_permit_is_spent, 10)
{
    static struct asked asked[5000];
    STAGE(stage, STAGE_WIDE);
    stage_warm_up(&stage, "a", 100);
    stage_ask(&stage, &asked[0], "a", 1, 2000); /* answers take as long as twenty requests */
    stage_pass(&stage, STAGE_LIFE_US);
    stage_ask(&stage, &asked[0], "a", 1, 0);
    stage.remote.submitted = 0;
    int waited = 0;
    for (int i = 0; i < 5000; i++) {
        waited += stage_submit(&stage, &asked[i], "a", 1) == 1;
        if (i % 20 == 19)
            stage_answer(&stage, 0);
        stage_pass(&stage, 100);
        if (i == 999) /* hybrid knows the load by now */
            stage.remote.submitted = 0;
    }
    ck_assert_msg(waited == 0, "%d of 5000 requests had to wait", waited);
    ck_assert_msg(stage.remote.submitted >= 4 && stage.remote.submitted <= 8, "asked %d times in four lives",
                  stage.remote.submitted);
    ck_assert_int_eq(stage.remote.decided, 0);
}

TEST(permits_that_arrive_after_the_lease_life_are_not_used, 10)
{
    struct asked asked[2];
    STAGE(stage, STAGE_WIDE);
    stage_warm_up(&stage, "a", 1000);
    stage_submit(&stage, &asked[0], "a", 1);
    ck_assert_int_gt(stage.remote.ahead, 10);
    stage_ask(&stage, &asked[1], "a", 1, STAGE_LIFE_US);
    ck_assert(asked[0].done && asked[1].done);
    ck_assert_int_eq(asked[1].op.decision.source, WEIR_BY_REDIS); /* the first answer's lease was too old for it */
    ck_assert_int_eq(stage.remote.submitted, 2);
    ck_assert_uint_ge(stats_of(stage.limiter).lease_lost, 10);
}

TEST(a_reset_or_new_policy_drops_leased_and_ordered_permits, 10)
{
    static struct stage stage;
    struct asked asked;
    for (int redefined = 0; redefined < 2; redefined++) {
        stage_open(&stage, STAGE_WIDE);
        stage_warm_up(&stage, "a", 1000);
        stage_submit(&stage, &asked, "a", 1);
        if (redefined) {
            limit_of(stage.limiter, "limit", "token_bucket limit=2000000 period=1s");
            ck_assert_int_eq(peeked(stage.limit, "a", 1).limit, 2000000);
        } else {
            must_succeed(weir_reset(stage.limit, weir_key_text("a")));
        }
        stage_answer(&stage, 0);
        ck_assert(asked.done);
        ck_assert_int_ne(peeked(stage.limit, "a", 1).source, WEIR_BY_LEASE);
        stage_close(&stage);
    }
}

TEST(a_refund_ends_a_denial, 10)
{
    struct asked asked;
    STAGE(stage, "fixed_window limit=3 period=1h");
    ck_assert(taken(stage.limit, "a", 3).allowed);
    ck_assert_int_eq(stage_submit(&stage, &asked, "a", 1), 1);
    stage_answer(&stage, 0);
    ck_assert(!asked.op.decision.allowed && asked.op.decision.source == WEIR_BY_REDIS);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_DENIAL);
    must_succeed(weir_refund(stage.limit, weir_key_text("a"), 1));
    ck_assert_int_eq(stage_submit(&stage, &asked, "a", 1), 1);
    stage_answer(&stage, 0);
    ck_assert(asked.op.decision.allowed);
}

TEST(a_group_denied_by_another_limit_gives_its_leased_permits_back, 10)
{
    struct weir_decision decision;
    STAGE(stage, STAGE_WIDE);
    weir_limit *narrow = limit_of(stage.limiter, "narrow", "fixed_window limit=1 period=1h");
    stage_warm_up(&stage, "a", 1000);
    struct asked asked;
    stage_ask(&stage, &asked, "a", 1, 0);
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
}

TEST(keys_without_an_account_ask_redis_one_by_one_and_waiting_accounts_stay, 10)
{
    CLOSED_BY(stage_close) struct stage stage;
    static struct asked asked[50];
    const struct stage_settings small = { .max_keys = 10 };
    stage_open_as(&stage, "fixed_window limit=1 period=1h", &small);
    for (int round = 0; round < 2; round++) {
        static char names[50][8];
        for (int i = 0; i < 50; i++) {
            snprintf(names[i], sizeof names[i], "key%d", i);
            ck_assert_int_eq(stage_submit(&stage, &asked[i], names[i], 1), round == 0 ? 1 : asked[i].done ? 0 : 1);
        }
        ck_assert_int_le(stats_of(stage.limiter).keys, 10);
        stage_answer(&stage, 0);
        for (int i = 0; i < 50; i++)
            ck_assert(asked[i].done && asked[i].op.decision.allowed == (round == 0));
    }
}

TEST(an_account_is_not_dropped_while_an_answer_may_be_under_way, 10)
{
    CLOSED_BY(stage_close) struct stage stage;
    struct asked asked;
    char other[16];
    const struct stage_settings slow = { .timeout_us = WEIR_SECOND };
    stage_open_as(&stage, "fixed_window limit=1 period=1h", &slow);
    ck_assert(taken(stage.limit, "a", 1).allowed);
    stage_pass(&stage, WEIR_SECOND); /* the key is not busy: no other request would wait for its call */
    ck_assert_int_eq(stage_submit(&stage, &asked, "a", 1), 1);
    stage_pass(&stage, WEIR_SECOND - 1);
    for (int i = 0; i < 500; i++) { /* each sweeps a few accounts of its shard */
        snprintf(other, sizeof other, "other%d", i);
        taken(stage.limit, other, 1);
    }
    stage_answer(&stage, 0);
    ck_assert(asked.done && !asked.op.decision.allowed);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_DENIAL);
}

/* Take the only permit of a new key, ask twice more, and return what the last decision was made by. */
static enum weir_source source_of_third(struct stage *stage, const char *key)
{
    ck_assert(taken(stage->limit, key, 1).allowed);
    ck_assert(!taken(stage->limit, key, 1).allowed);
    const struct weir_decision decision = taken(stage->limit, key, 1);
    ck_assert(!decision.allowed);
    return decision.source;
}

/* Accounts that are not idle, or wait for an answer, are moved when another size needs their page. */
TEST(accounts_of_one_size_never_block_those_of_another_size, 60)
{
    enum { KEPT = 60, ASKED = 20, LONG = 120 };
    CLOSED_BY(stage_close) struct stage stage;
    static struct asked asked[ASKED];
    char key[1000];
    const struct stage_settings small = { .max_keys = 100000, .max_bytes = 1 << 20 };
    stage_open_as(&stage, "fixed_window limit=1 period=1h", &small);
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "short%d", i);
        taken(stage.limit, key, 1);
    }
    stage_pass(&stage, 3 * STAGE_LIFE_US); /* they are idle */
    for (int i = 0; i < ASKED; i++) {
        static char names[ASKED][8];
        snprintf(names[i], sizeof names[i], "wait%d", i);
        ck_assert_int_eq(stage_submit(&stage, &asked[i], names[i], 1), 1);
    }
    for (int i = 0; i < KEPT; i++) {
        snprintf(key, sizeof key, "kept%d", i);
        ck_assert_int_eq(source_of_third(&stage, key), WEIR_BY_DENIAL);
    }
    for (int i = 0; i < LONG; i++) {
        for (int j = 0; j < 10; j++) {
            snprintf(key, sizeof key, "other%d.%d", i, j);
            taken(stage.limit, key, 1);
        }
        stage_pass(&stage, STAGE_LIFE_US / 20);
        snprintf(key, sizeof key, "%0*d", 50 + i / 10 * 80, i);
        ck_assert_int_eq(source_of_third(&stage, key), WEIR_BY_DENIAL);
    }
    stage_answer(&stage, 0);
    for (int i = 0; i < ASKED; i++)
        ck_assert(asked[i].done && asked[i].status == WEIR_OK && asked[i].op.decision.allowed);
    for (int i = 0; i < KEPT; i++) {
        snprintf(key, sizeof key, "kept%d", i);
        ck_assert_int_eq(taken(stage.limit, key, 1).source, WEIR_BY_DENIAL);
    }
}

TEST(closing_answers_every_waiter, 10)
{
    static struct stage stage;
    static struct asked asked[20];
    stage_open(&stage, STAGE_WIDE);
    stage_warm_up(&stage, "a", 1000);
    for (int i = 0; i < 20; i++)
        stage_submit(&stage, &asked[i], i % 2 ? "a" : "b", 1);
    stage_close(&stage);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(asked[i].status, WEIR_ECLOSED);
}

TEST(a_forked_child_does_not_spend_its_parents_lease, 10)
{
    struct asked asked;
    STAGE(stage, STAGE_WIDE);
    hybrid_watch_forks(stage.hybrid);
    stage_warm_up(&stage, "a", 1000);
    stage_ask(&stage, &asked, "a", 1, 0);
    stage_submit(&stage, &asked, "b", 1); /* its answer comes in the parent only */
    ck_assert_int_eq(peeked(stage.limit, "a", 1).source, WEIR_BY_LEASE);
    const pid_t child = fork();
    if (child == 0)
        _exit(peeked(stage.limit, "a", 1).source == WEIR_BY_LEASE);
    assert_child_succeeds(child);
    ck_assert_int_eq(peeked(stage.limit, "a", 1).source, WEIR_BY_LEASE);
    stage_answer(&stage, 0);
    ck_assert(asked.done);
}

TEST(decisions_at_given_times_are_reproducible, 10)
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
        ck_assert_uint_gt(stats_of(stage.limiter).lease_hits, 100);
        stage_close(&stage);
    }
    for (int i = 0; i < 3000; i++)
        assert_decision_is(&again[i], &first[i], "the second time");
}

/* ---- Threads ---- */

static atomic_bool all_asked;

static void *answers(void *user)
{
    struct stage *stage = user;
    while (!atomic_load(&all_asked)) {
        const struct timespec pause = { .tv_nsec = 20000 };
        stage_answer(stage, 0);
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
        stage_pass(stage, 1);
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

TEST(threads_that_share_lease_calls_admit_no_more_than_the_limit, 60)
{
    pthread_t answerer, threads[ASKERS];
    STAGE(stage, "fixed_window limit=9000 period=366d");
    ck_assert_int_eq(pthread_create(&answerer, NULL, answers, &stage), 0);
    for (int i = 0; i < ASKERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, asks, &stage), 0);
    int64_t allowed = 0;
    for (int i = 0; i < ASKERS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        allowed += (intptr_t)result;
    }
    atomic_store(&all_asked, true);
    pthread_join(answerer, NULL);
    stage_answer(&stage, 0);
    const struct weir_stats stats = stats_of(stage.limiter);
    ck_assert_int_le(allowed, 2 * 9000);
    ck_assert_int_ge(allowed + (int64_t)stats.lease_lost, 9000 + 9000 * 3 / 10);
    ck_assert_uint_gt(stats.lease_hits, 1000);
}

static void try_there(struct weir_op *op, int status)
{
    struct asked *asked = (struct asked *)(void *)op;
    struct weir_decision decision;
    must_succeed(status);
    asked->status = weir_try(op->request.limit, weir_key_text("b"), 1, &decision);
    asked->done = 1;
}

TEST(a_done_that_decides_for_a_busy_key_does_not_deadlock, 10)
{
    struct asked asked, other;
    STAGE(stage, STAGE_WIDE);
    stage_warm_up(&stage, "b", 1000);
    stage_submit(&stage, &other, "b", 1); /* on its way, and answered only after the next one */
    memset(&asked, 0, sizeof asked);
    asked.op.request = (struct weir_request){ .limit = stage.limit, .key = weir_key_text("c"), .cost = 1 };
    asked.op.done = try_there;
    ck_assert_int_eq(weir_submit(stage.limiter, &asked.op), 1);
    struct stage_pending *queue = stage.remote.queue;
    const struct stage_pending busy = queue[0];
    queue[0] = queue[1];
    queue[1] = busy;
    stage_answer(&stage, 0);
    ck_assert(asked.done && asked.status == WEIR_OK && other.done); /* this remote does not mind who asks */
}

/* ---- Answers, one by one ---- */

TEST(later_use_does_not_revive_a_lease_that_has_ended, 10)
{
    const int64_t start_us = WEIR_HOUR;
    const struct lease_rules rules = {
        .life_us = WEIR_HOUR, .excess = 3, .denial_us = WEIR_DAY, .max = WEIR_MAX_PERMITS, .instances = 1
    };
    const struct weir_policy policy = { .limit = 1000, .period_us = WEIR_SECOND };
    struct account_shard shard = { .lost = 0 };
    struct account account = { .by_caller = false };
    struct weir_plan plan;
    must_succeed(plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }));
    lock_init(&shard.mutex);
    lock_take(&shard.mutex);
    lease_renew(&account.lease, &rules, &plan, 1);
    const struct lease_order ahead = { .era = account.lease.era, .ahead = 20, .spread = 1 },
                             whole = { .era = account.lease.era, .cost = 500, .whole = true };
    struct weir_decision decision = { .allowed = true, .ahead = 20, .remaining = 900, .age_us = start_us };
    account_answered(&shard, &account, &rules, &ahead, start_us, start_us, &decision, true);
    must(lease_left(&account.lease, start_us) == 20, "it is leased");
    const int64_t later_us = start_us + 30000 + 25000; /* all of it would have refilled since the lease's end */
    decision = (struct weir_decision){ .allowed = true, .remaining = 400 };
    account_answered(&shard, &account, &rules, &whole, later_us, later_us, &decision, true);
    lock_give(&shard.mutex);
    ck_assert_int_eq(lease_left(&account.lease, later_us), 0);
    lock_destroy(&shard.mutex);
}
