/* test_hybrid_edges.c - hybrid mode where two things meet: a lease call and another policy, a group and a lease. */
#include "stage.h"

#include "core/limiter/limiter.h"

#include <stdio.h>
#include <string.h>

/* ---- The bound ---- */

TEST(a_request_above_the_largest_lease_goes_to_redis_as_a_whole, 10)
{
    CLOSED_BY(stage_close) struct stage stage;
    struct asked asked;
    const struct stage_settings settings = { .lease_max = 2 };
    stage_open_as(&stage, "token_bucket limit=10000 period=1s burst=1000", &settings);
    const int64_t over_max = stage_info(&stage).over_max;
    stage_warm_up(&stage, "a", 5000);
    stage_ask(&stage, &asked, "a", 1, 0);
    ck_assert_int_eq(asked.op.decision.source, WEIR_BY_REDIS);
    stage_pass(&stage, 1000);
    ck_assert_int_eq(peeked(stage.limit, "a", 1).source, WEIR_BY_LEASE); /* one or two permits are left */
    ck_assert_int_eq(stage_submit(&stage, &asked, "a", 1000), 1);
    stage_answer(&stage, 90000);
    /* With 998 leased, they would be used when Redis has as many again. */
    const int64_t by_lease = asked.op.decision.source == WEIR_BY_LEASE && asked.op.decision.allowed ? 1000 : 0;
    const int64_t spent = stage_spend(&stage, "a"), drained = stage_drain(&stage, "a");
    ck_assert_int_le(by_lease + spent + drained, 1000 + over_max);
}

TEST(missing_permits_that_are_no_longer_needed_do_not_enlarge_the_lease, 10)
{
    CLOSED_BY(stage_close) struct stage stage;
    struct asked asked;
    struct weir_decision decision;
    const struct stage_settings settings = { .lease_max = 2 };
    stage_open_as(&stage, "token_bucket limit=10000 period=1s burst=1000", &settings);
    const struct weir_limit_info info = stage_info(&stage);
    stage_warm_up(&stage, "a", 5000);
    stage_ask(&stage, &asked, "a", 1, 0);
    stage_pass(&stage, 1000);
    ck_assert_int_eq(stage_submit(&stage, &asked, "a", 1000), 1);
    const int64_t cost = stage.remote.queue[0].request.cost;
    const struct weir_request group[] = { { .limit = stage.limit, .key = weir_key_text("a"), .cost = 1 },
                                          { .limit = stage.limit, .key = weir_key_text("z"), .cost = 1 } };
    must_succeed(weir_try_all(stage.limiter, group, 2, &decision)); /* it takes what is left here */
    ck_assert(decision.allowed);
    while (stage_elsewhere(&stage, "a", WEIR_PEEK, 1).remaining > cost) /* others leave exactly the cost */
        ck_assert(stage_elsewhere(&stage, "a", WEIR_TAKE, 1).allowed);
    stage_answer(&stage, 0);
    stage_pass(&stage, STAGE_LIFE_US - 2000);
    const int64_t by_lease = stage_spend(&stage, "a");
    ck_assert_int_le(by_lease, info.lease_max);
    ck_assert_int_le(by_lease + stage_drain(&stage, "a"), 1000 + info.over_max); /* at one moment */
}

TEST(a_request_and_the_lease_granted_with_it_stay_within_the_bound_together, 10)
{
    struct asked asked;
    STAGE(stage, "token_bucket limit=5000 period=1s burst=100");
    const int64_t over_max = stage_info(&stage).over_max;
    stage_warm_up(&stage, "a", 1000);
    stage_ask(&stage, &asked, "a", 1, 0);
    stage_pass(&stage, 20000); /* the bucket is full again */
    while (peeked(stage.limit, "a", 52).source == WEIR_BY_LEASE && peeked(stage.limit, "a", 52).allowed)
        stage_submit(&stage, &asked, "a", 1);
    ck_assert_int_eq(stage_submit(&stage, &asked, "a", 100), 1);
    stage_answer(&stage, 70000);
    ck_assert(asked.done);
    const int64_t by_lease = asked.op.decision.source == WEIR_BY_LEASE && asked.op.decision.allowed ? 100 : 0;
    const int64_t spent = stage_spend(&stage, "a"), drained = stage_drain(&stage, "a");
    ck_assert_int_le(by_lease + spent + drained, 100 + over_max);
}

/* ---- Groups ---- */

static struct stage group_stage;
static struct asked group_other;

static bool group_resets;

/* While the group waits for Redis, another request leases for its key, perhaps after a reset. */
static int decide_late(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                       int64_t deadline_us, struct weir_decision *out)
{
    if (all) {
        group_stage.remote.ops.decide = stage_decide;
        if (group_resets)
            must_succeed(weir_reset(group_stage.limit, weir_key_text("a")));
        stage_ask(&group_stage, &group_other, "a", 1, 0);
    }
    return stage_decide(backend, requests, n, all, deadline_us, out);
}

typedef int decide_function(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                            bool all, int64_t deadline_us, struct weir_decision *out);

/* Let a group take leased permits and be denied for its other key; the remote decides it by `decide`. Returns the stats
 * before the group. */
static struct weir_stats group_denied(const struct stage_settings *settings, decide_function *decide)
{
    struct stage *stage = &group_stage;
    struct asked asked;
    struct weir_decision decision;
    stage_open_as(stage, "token_bucket limit=100000 period=1s burst=20000", settings);
    weir_limit *narrow = limit_of(stage->limiter, "narrow", "fixed_window limit=1 period=1h");
    must_succeed(weir_try(narrow, weir_key_text("n"), 1, &decision));
    stage_warm_up(stage, "a", 200);
    stage_ask(stage, &asked, "a", 1, 0);
    const struct weir_request both[] = { { .limit = stage->limit, .key = weir_key_text("a"), .cost = 95 },
                                         { .limit = narrow, .key = weir_key_text("n"), .cost = 1 } };
    const struct weir_stats before = stats_of(stage->limiter);
    stage->remote.ops.decide = decide;
    must_succeed(weir_try_all(stage->limiter, both, 2, &decision));
    ck_assert(!decision.allowed);
    return before;
}

/* Return how many leased permits are left after a denied group that had taken some of them. */
static int64_t spent_after_group(bool resets, uint64_t *leased_meanwhile)
{
    struct stage *stage = &group_stage;
    const struct stage_settings settings = { .lease_max = resets ? 1000 : 100 };
    group_resets = resets;
    const uint64_t before = group_denied(&settings, decide_late).leased;
    ck_assert(group_other.done);
    *leased_meanwhile = stats_of(stage->limiter).leased - before;
    const int64_t spent = stage_spend(stage, "a");
    stage_close(stage);
    return spent;
}

TEST(permits_returned_by_a_denied_group_never_exceed_the_largest_lease, 10)
{
    uint64_t leased;
    const int64_t spent = spent_after_group(false, &leased);
    ck_assert_uint_gt(leased, 5);
    ck_assert_msg(spent > 0 && spent <= 100, "%d by leases of 100 at most", (int)spent);
}

TEST(permits_returned_by_a_denied_group_are_lost_after_a_reset, 10)
{
    uint64_t leased;
    const int64_t spent = spent_after_group(true, &leased);
    ck_assert_uint_gt(leased, 5);
    ck_assert_int_eq(spent, (int64_t)leased);
}

/* While the group waits for Redis, requests for many other keys evict its own key. */
static int decide_crowded(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                          int64_t deadline_us, struct weir_decision *out)
{
    if (all) {
        group_stage.remote.ops.decide = stage_decide;
        for (int i = 0; i < 1000; i++) {
            char key[16];
            snprintf(key, sizeof key, "other %d", i);
            taken(group_stage.limit, key, 1);
        }
    }
    return stage_decide(backend, requests, n, all, deadline_us, out);
}

TEST(permits_returned_by_a_denied_group_are_lost_if_its_account_was_evicted, 10)
{
    const struct stage_settings settings = { .max_keys = 2 };
    const struct weir_stats before = group_denied(&settings, decide_crowded), after = stats_of(group_stage.limiter);
    ck_assert_uint_eq(after.lease_hits, before.lease_hits + 1); /* the group's lease hit, which was in vain */
    ck_assert_uint_le(after.leased - before.lease_hits - after.lease_lost, 2 * 8); /* the two last keys hold these */
    stage_close(&group_stage);
}

/* After a denial, hybrid peeks at the other members of the group in one batch. */
static int decide_batch_undecided(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                                  bool all, int64_t deadline_us, struct weir_decision *out)
{
    must(!all && n == 3, "a batch");
    for (size_t i = 0; i < n; i++)
        must(requests[i].verb == WEIR_PEEK && out[i].source == WEIR_BY_NOBODY, "nobody has decided yet");
    return stage_decide(backend, requests, n, all, deadline_us, out);
}

TEST(a_group_denied_by_the_deny_cache_only_peeks_at_its_other_members, 10)
{
    static const char *const keys[] = { "d", "c", "b", "a" };
    struct weir_decision decision;
    STAGE(stage, "fixed_window limit=1 period=1h");
    ck_assert(taken(stage.limit, "a", 1).allowed);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_REDIS);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_DENIAL);
    struct weir_request group[4];
    for (int i = 0; i < 4; i++)
        group[i] = (struct weir_request){ .limit = stage.limit, .key = weir_key_text(keys[i]), .cost = 1 };
    stage.remote.ops.decide = decide_batch_undecided;
    must_succeed(weir_try_all(stage.limiter, group, 4, &decision));
    stage.remote.ops.decide = stage_decide;
    ck_assert(!decision.allowed && decision.bound_by == 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(peeked(stage.limit, keys[i], 1).remaining, 1); /* nothing was charged */
}

/* ---- Redefinitions, refunds and peeks while a call is in flight ---- */

TEST(permits_granted_under_another_policy_are_not_used, 10)
{
    struct asked asked;
    STAGE(stage, "token_bucket limit=100 period=1h refill=interval");
    for (int i = 0; i < 8; i++) {
        if (i == 5)
            stage_pass(&stage, 2 * STAGE_LIFE_US);
        stage_ask(&stage, &asked, "a", 1, 0);
        stage_pass(&stage, i < 5 ? 1000 : 0);
    }
    stage_pass(&stage, STAGE_LIFE_US);
    ck_assert_int_eq(stage_submit(&stage, &asked, "a", 1), 1);
    ck_assert_int_gt(stage.remote.ahead, 0);
    struct weir_policy policy = policy_of("token_bucket limit=100000 period=1h refill=interval");
    must_succeed(weir_limit_define(stage.limiter, "limit", &policy, NULL));
    /* A backend reads the policy when it writes the request. */
    stage.remote.queue[0].request.plan_version = plan_cell_version(&stage.limit->plan);
    stage_answer(&stage, 0);
    ck_assert(asked.done && asked.status == WEIR_OK);
    const struct weir_stats stats = stats_of(stage.limiter);
    ck_assert_uint_gt(stats.leased, 1);
    ck_assert_uint_eq(stats.leased, stats.lease_hits + stats.lease_lost); /* so no lease is held */
    ck_assert_int_ne(peeked(stage.limit, "a", 1).source, WEIR_BY_LEASE);
}

static struct weir_decision answered(struct stage *stage, const char *key, int64_t cost)
{
    struct asked asked;
    stage_ask(stage, &asked, key, cost, 0);
    must(asked.done && asked.status == WEIR_OK, "it is decided");
    return asked.op.decision;
}

TEST(an_override_of_other_keys_leaves_a_lease_as_it_is, 10)
{
    STAGE(stage, STAGE_WIDE);
    for (int own = 0; own < 2; own++) { /* then one of the key itself */
        stage_warm_up(&stage, "a", 1000);
        struct asked asked;
        stage_ask(&stage, &asked, "a", 1, 0);
        ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_LEASE);
        const uint64_t lost = stats_of(stage.limiter).lease_lost;
        limit_of(stage.limiter, own ? "limit/a" : "limit/b*", "token_bucket limit=10 period=1s");
        const struct weir_decision decision = answered(&stage, "a", 1);
        ck_assert_int_eq(decision.source == WEIR_BY_LEASE, !own);
        ck_assert_int_eq(decision.limit, own ? 10 : 1000000);
        ck_assert(own || stats_of(stage.limiter).lease_lost == lost);
        stage_answer(&stage, 0);
    }
}

static void override(const struct stage *stage, const char *name, const char *policy)
{
    const struct weir_policy read = policy_of(policy ? policy : STAGE_WIDE);
    must_succeed(weir_limit_define(stage->limiter, name, policy ? &read : NULL, NULL));
}

TEST(a_reset_or_refund_under_an_override_ends_earlier_denials, 10)
{
    static struct stage stage;
    for (int refunds = 0; refunds < 2; refunds++) {
        for (int asks = 0; asks < 2; asks++) { /* under the override, too */
            stage_open(&stage, "fixed_window limit=3 period=1h");
            ck_assert(answered(&stage, "a", 3).allowed);
            ck_assert(!answered(&stage, "a", 1).allowed);
            ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_DENIAL);
            override(&stage, "limit/a*", "fixed_window limit=7 period=1h");
            ck_assert_int_eq(stats_of(stage.limiter).keys, 1);
            if (asks)
                ck_assert(!answered(&stage, "a", 5).allowed);
            ck_assert_int_eq(stats_of(stage.limiter).keys, 1);
            must_succeed(refunds ? weir_refund(stage.limit, weir_key_text("a"), 3)
                                 : weir_reset(stage.limit, weir_key_text("a")));
            override(&stage, "limit/a*", NULL);
            const struct weir_decision decision = answered(&stage, "a", 3);
            ck_assert(decision.allowed);
            ck_assert_int_eq(decision.limit, 3);
            stage_close(&stage);
        }
    }
}

TEST(a_new_override_ends_leases_and_denials_only_if_its_plan_differs, 10)
{
    static struct stage stage;
    for (int same = 0; same < 2; same++) {
        stage_open(&stage, STAGE_WIDE);
        stage_warm_up(&stage, "a", 1000);
        answered(&stage, "a", 1);
        ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_LEASE);
        const int64_t lost = (int64_t)stats_of(stage.limiter).lease_lost;
        override(&stage, "limit/a", same ? STAGE_WIDE : "token_bucket limit=2000000 period=1s");
        ck_assert_int_eq(answered(&stage, "a", 1).source == WEIR_BY_LEASE, same);
        override(&stage, "limit/a", NULL);
        ck_assert_int_eq(answered(&stage, "a", 1).source == WEIR_BY_LEASE, same);
        ck_assert_int_eq((int64_t)stats_of(stage.limiter).lease_lost > lost, !same);
        stage_close(&stage);
    }
}

TEST(a_request_under_an_override_does_not_wait_for_an_answer_under_its_limit, 10)
{
    struct asked before, after, behind;
    STAGE(stage, STAGE_WIDE);
    stage_warm_up(&stage, "a", 1000);
    ck_assert_int_eq(stage_submit(&stage, &before, "a", 1), 1);
    const int submitted = stage.remote.submitted;
    override(&stage, "limit/a", "token_bucket limit=7 period=1s");
    ck_assert_int_eq(stage_submit(&stage, &after, "a", 1), 1);
    ck_assert_int_eq(stage_submit(&stage, &behind, "a", 8), 1);
    ck_assert_int_eq(stage.remote.submitted, submitted + 2); /* each for itself */
    stage_answer(&stage, 0);
    ck_assert(before.done && after.done && behind.done);
    ck_assert_int_eq(before.op.decision.limit, 1000000);
    ck_assert_int_eq(after.op.decision.limit, 7);
    ck_assert_int_eq(behind.op.decision.limit, 7);
    ck_assert(!behind.op.decision.allowed);
    ck_assert_int_eq(answered(&stage, "a", 1).limit, 7);
    const struct weir_stats stats = stats_of(stage.limiter);
    ck_assert_int_eq(stats.keys, 1);
}

/* A thread looks for its key's override before it exists, and continues after another thread has leased under it. */
TEST(an_answer_under_an_older_plan_decides_but_grants_no_lease, 10)
{
    CLOSED_BY(stage_close) struct stage stage;
    const struct stage_settings settings = { .lease_max = 100 };
    stage_open_as(&stage, STAGE_WIDE, &settings);
    struct weir_backend_request late = stage_request(&stage, "a", 500000); /* more than is leased */
    struct asked asked = { .stage = &stage, .op = { .done = asked_done, .request.cost = 500000 } };
    asked.op.request.key = late.key;
    override(&stage, "limit/a", "token_bucket limit=2000000 period=1s");
    stage_warm_up(&stage, "a", 1000);
    answered(&stage, "a", 1);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_LEASE);
    ck_assert_int_eq(stage.hybrid->ops->submit(stage.hybrid, &late, INT64_MAX, &asked.op), 1);
    stage_answer(&stage, 0);
    ck_assert(asked.done && asked.op.decision.allowed);
    const struct weir_stats stats = stats_of(stage.limiter);
    ck_assert_uint_eq(stats.leased, stats.lease_hits + stats.lease_lost); /* so no lease is held */
    const struct weir_decision decision = answered(&stage, "a", 1);
    ck_assert_int_eq(decision.source, WEIR_BY_REDIS);
    ck_assert_int_eq(decision.limit, 2000000);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_LEASE);
    ck_assert_int_eq(taken(stage.limit, "a", 1).limit, 2000000);
}

static struct stage redefined_stage;
static bool is_redefined_back;

#define A_HUNDRED "token_bucket limit=100 period=1h refill=interval"

static int redefine_before(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                           bool all, int64_t deadline_us, struct weir_decision *out)
{
    struct weir_backend_request request = *requests;
    redefined_stage.remote.ops.decide = stage_decide;
    limit_of(redefined_stage.limiter, "limit", "token_bucket limit=100000 period=1h refill=interval");
    must(n == 1 && request.ahead > 0, "permits are asked for ahead of use");
    request.plan_version = plan_cell_version(&redefined_stage.limit->plan);
    const int error = stage_decide(backend, &request, n, all, deadline_us, out);
    if (is_redefined_back)
        limit_of(redefined_stage.limiter, "limit", A_HUNDRED);
    return error;
}

TEST_EACH(an_answer_under_another_policy_than_asked_decides_but_grants_no_lease, 2, 10)
{
    struct stage *stage = &redefined_stage;
    struct weir_request request = { .key = weir_key_text("a"), .cost = 1 };
    struct weir_decision decision;
    is_redefined_back = _i == 1; /* before the answer arrives */
    stage_open(stage, A_HUNDRED);
    request.limit = stage->limit;
    for (int i = 0; i < 50; i++) {
        stage_pass(stage, 1000);
        request.now_us = stage_now_us(stage);
        must_succeed(weir_try_batch(stage->limiter, &request, 1, &decision));
    }
    stage->remote.ops.decide = redefine_before;
    for (int i = 0; i < 50 && decision.limit == 100; i++)
        must_succeed(weir_try_batch(stage->limiter, &request, 1, &decision));
    ck_assert(decision.allowed && decision.source == WEIR_BY_REDIS && decision.limit == 100000);
    const struct weir_stats stats = stats_of(stage->limiter);
    ck_assert_uint_eq(stats.leased, stats.lease_hits + stats.lease_lost);
    stage_close(stage);
}

static struct stage refund_stage;

/* Another thread refunds permits before the asking thread continues. */
static int refund_after(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                        int64_t deadline_us, struct weir_decision *out)
{
    const int error = stage_decide(backend, requests, n, all, deadline_us, out);
    if (requests->verb == WEIR_TAKE && !out->allowed) {
        refund_stage.remote.ops.decide = stage_decide;
        must_succeed(weir_refund(refund_stage.limit, weir_key_text("a"), 3));
    }
    return error;
}

TEST(a_denial_received_after_a_concurrent_refund_is_not_cached, 10)
{
    struct stage *stage = &refund_stage;
    stage_open(stage, "fixed_window limit=3 period=1h");
    ck_assert(taken(stage->limit, "a", 3).allowed);
    stage->remote.ops.decide = refund_after;
    stage_pass(stage, WEIR_SECOND);
    ck_assert(!taken(stage->limit, "a", 1).allowed);
    stage_pass(stage, 30 * WEIR_MINUTE); /* the window is open for as long again */
    const struct weir_decision decision = taken(stage->limit, "a", 1);
    ck_assert_msg(decision.allowed, "denied, source %d, for %d s more", decision.source,
                  (int)(decision.retry_after_us / WEIR_SECOND));
    stage_close(stage);
}

TEST(a_refund_at_another_clocks_time_leaves_later_denials_in_force, 10)
{
    struct weir_decision decision;
    STAGE(stage, "fixed_window limit=3 period=1h");
    struct weir_request request = { .limit = stage.limit, .key = weir_key_text("a"), .cost = 3 };
    request.now_us = stage_now_us(&stage) - 900 * WEIR_SECOND;
    must_succeed(weir_try_batch(stage.limiter, &request, 1, &decision));
    ck_assert(decision.allowed);
    must_succeed(weir_refund(stage.limit, weir_key_text("a"), 1)); /* 900 s later by every other clock */
    request.cost = 1;
    const int sources[] = { WEIR_BY_REDIS, WEIR_BY_REDIS, WEIR_BY_DENIAL };
    for (int i = 0; i < 3; i++) {
        request.now_us += 1000;
        must_succeed(weir_try_batch(stage.limiter, &request, 1, &decision));
        ck_assert_int_eq(decision.allowed, i == 0);
        ck_assert_int_eq(decision.source, sources[i]);
    }
}

static int64_t since_boot_us(void *stage)
{
    return stage_now_us(stage) - 990 * WEIR_SECOND;
}

static int64_t allowed_of_4000(bool peeks, uint64_t *lost)
{
    static struct stage stage;
    struct weir_decision decision;
    int64_t allowed = 0;
    const struct stage_settings settings = { .now_us = since_boot_us };
    stage_open_as(&stage, "fixed_window limit=2000 period=1h", &settings);
    for (int i = 0; i < 4000; i++) {
        stage_pass(&stage, 1000);
        const struct weir_request request = {
            .limit = stage.limit,
            .key = weir_key_text("a"),
            .cost = 1,
            .now_us = stage_now_us(&stage),
        };
        must_succeed(weir_try_batch(stage.limiter, &request, 1, &decision));
        allowed += decision.allowed;
        if (peeks && i % 20 == 0)
            peeked(stage.limit, "a", 1);
    }
    *lost = stats_of(stage.limiter).lease_lost;
    stage_close(&stage);
    return allowed;
}

TEST(a_peek_at_another_clocks_time_takes_nothing_from_a_lease, 10)
{
    uint64_t lost, lost_with_peeks;
    ck_assert_int_eq(allowed_of_4000(false, &lost), allowed_of_4000(true, &lost_with_peeks));
    ck_assert_uint_eq(lost, lost_with_peeks);
}

TEST(an_answer_at_one_clocks_time_adds_nothing_to_a_lease_at_anothers, 10)
{
    CLOSED_BY(stage_close) struct stage stage;
    static struct asked asked[20];
    struct weir_decision decision;
    const struct stage_settings settings = { .now_us = since_boot_us };
    stage_open_as(&stage, "fixed_window limit=100 period=1s align=epoch", &settings);
    for (int i = 0; i < 20; i++) {
        stage_ask(&stage, &asked[0], "a", 1, 0);
        stage_pass(&stage, 10000);
    }
    atomic_store(&stage.remote.now_us, 1001 * WEIR_SECOND - 30000);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(stage_submit(&stage, &asked[i], "a", 1), 1); /* for one answer */
    for (int i = 0; i < 30; i++) { /* requests with their own times: a lease in the ending window */
        const struct weir_request request = {
            .limit = stage.limit,
            .key = weir_key_text("a"),
            .cost = 1,
            .now_us = stage_now_us(&stage) + i,
        };
        must_succeed(weir_try_batch(stage.limiter, &request, 1, &decision));
    }
    atomic_store(&stage.remote.now_us, 1001 * WEIR_SECOND + 10000); /* in the next window */
    while (stage_answer(&stage, 0) > 0)
        ;
    int64_t allowed = 0;
    for (int i = 0; i < 20; i++)
        allowed += asked[i].op.decision.allowed;
    ck_assert_int_eq(allowed, 20);
    allowed += stage_drain(&stage, "a");
    ck_assert_msg(allowed <= 100, "%d admitted in a window of 100", (int)allowed);
}

TEST(no_decision_reports_more_permits_than_the_limit, 10)
{
    struct asked asked;
    STAGE(stage, "token_bucket limit=10000 period=1s burst=1000");
    for (int i = 0; i < 600; i++) {
        stage_ask(&stage, &asked, "a", i < 300 ? 1 : 20, 0);
        must(asked.op.decision.remaining <= asked.op.decision.limit, "what is decided");
        must(peeked(stage.limit, "a", i < 300 ? 1 : 900).remaining <= 1000, "what is seen");
        must(peeked(stage.limit, "a", 1000).remaining <= 1000, "what is asked of Redis to be seen");
        stage_pass(&stage, 3000);
    }
    ck_assert_uint_gt(stats_of(stage.limiter).lease_hits, 200);
}

/* ---- A remote that refuses ---- */

static int refuse(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                  struct weir_op *op)
{
    return WEIR_EIO;
}

static int refuse_for_now(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                          struct weir_op *op)
{
    return WEIR_EFULL;
}

TEST(weir_submit_returns_an_immediate_refusal_and_never_calls_done, 10)
{
    static struct stage stage;
    struct asked asked;
    for (int busy = 0; busy < 2; busy++) {
        stage_open(&stage, STAGE_WIDE);
        if (busy)
            stage_warm_up(&stage, "a", 1000);
        stage.remote.ops.submit = refuse;
        ck_assert_int_eq(stage_submit(&stage, &asked, "a", 1), WEIR_EIO);
        ck_assert_int_eq(asked.done, 0);
        stage_close(&stage);
        ck_assert_int_eq(asked.done, 0);
    }
}

enum { DEEPEST = 1000 };

struct chain {
    struct weir_op op;
    weir *limiter;
    int depth, deepest, last;
};

static void submit_next(struct weir_op *op, int status)
{
    struct chain *chain = (struct chain *)(void *)op;
    if (++chain->depth > chain->deepest)
        chain->deepest = chain->depth;
    if (chain->deepest < DEEPEST)
        chain->last = weir_submit(chain->limiter, op);
    chain->depth--;
}

TEST(a_done_that_submits_another_request_is_never_called_recursively, 10)
{
    STAGE(stage, "token_bucket limit=10 period=1s");
    struct chain chain = { .limiter = stage.limiter };
    chain.op.request = (struct weir_request){ .limit = stage.limit, .key = weir_key_text("a"), .cost = 1 };
    chain.op.done = submit_next;
    ck_assert_int_eq(weir_submit(stage.limiter, &chain.op), 1);
    stage.remote.ops.submit = refuse;
    stage_answer(&stage, 0);
    ck_assert_msg(chain.deepest == 1, "%d within one another", chain.deepest);
    ck_assert_int_eq(chain.last, WEIR_EIO);
}

TEST(a_full_queue_of_ops_does_not_refuse_a_blocking_caller, 10)
{
    struct weir_decision decision;
    STAGE(stage, STAGE_WIDE);
    stage_warm_up_elsewhere(&stage, "b", 1000);
    stage.remote.ops.submit = refuse_for_now;
    must_succeed(weir_try(stage.limit, weir_key_text("b"), 1, &decision));
    ck_assert(decision.allowed && decision.source == WEIR_BY_REDIS);
    ck_assert_int_eq(stage.remote.decided, 1);
}

/* ---- Threads that deliver answers ---- */

static void try_busy_key(struct weir_op *op, int status)
{
    struct asked *asked = (struct asked *)(void *)op;
    struct weir_decision decision;
    must_succeed(status);
    asked->status = weir_try(asked->stage->limit, weir_key_text("b"), 1, &decision);
    asked->done = 1;
}

TEST(a_thread_that_delivers_its_first_answer_never_waits_for_another, 10)
{
    STAGE(stage, STAGE_WIDE);
    struct asked asked = { .stage = &stage, .op.done = try_busy_key };
    stage_warm_up_elsewhere(&stage, "b", 1000);
    /* A charge that was computed elsewhere, like an outage's debt, bypasses all leases. */
    struct weir_backend_request request = stage_request(&stage, "c", 0);
    request.ahead = 5;
    request.spread = 1;
    ck_assert_int_eq(stage.hybrid->ops->submit(stage.hybrid, &request, 1000, &asked.op), 1);
    stage_answer(&stage, 0);
    ck_assert(asked.done && asked.status == WEIR_OK);
}

/* ---- Batches ---- */

enum { BATCH = 64 };

/* Return the calls to the remote for one batch for one key with the callers' time; costs fall from `most` by `step`. */
static int calls_of_batch(struct stage *stage, int64_t most, int64_t step, struct weir_decision *out)
{
    struct weir_request requests[BATCH];
    for (int i = 0; i < BATCH; i++)
        requests[i] = (struct weir_request){
            .limit = stage->limit,
            .key = weir_key_text("a"),
            .cost = most - i * step,
            .now_us = stage_now_us(stage),
        };
    stage->remote.decided = 0;
    must_succeed(weir_try_batch(stage->limiter, requests, BATCH, out));
    return stage->remote.decided;
}

TEST(a_batch_for_a_used_up_key_makes_at_most_four_calls, 10)
{
    struct weir_decision decisions[BATCH];
    STAGE(stage, "fixed_window limit=100 period=1h");
    for (int round = 0; round < 5; round++) {
        stage_pass(&stage, 1000);
        const int calls = calls_of_batch(&stage, BATCH, 1, decisions); /* no denial answers the next request */
        ck_assert_msg(calls <= 4, "%d calls", calls);
    }
}

TEST(a_batch_for_one_busy_key_makes_at_most_two_calls, 10)
{
    struct weir_decision decisions[BATCH];
    STAGE(stage, STAGE_WIDE);
    for (int round = 0; round < 50; round++) {
        stage_pass(&stage, 10000);
        const int calls = calls_of_batch(&stage, 1, 0, decisions);
        ck_assert_msg(calls <= 2, "%d calls in round %d", calls, round);
        for (int i = 0; i < BATCH; i++)
            ck_assert(decisions[i].allowed);
    }
}

/* ---- A remote of parts ---- */

/* Fail requests whose key begins with 'a'. */
static int decide_but_a(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                        int64_t deadline_us, struct weir_decision *out)
{
    int error = WEIR_OK;
    for (size_t i = 0; i < n; i++) {
        must(!all && (n == 1 || out[i].source == WEIR_BY_NOBODY), "nobody has decided yet");
        const int status = *(const char *)requests[i].key.data == 'a'
                               ? WEIR_EIO
                               : stage_decide(backend, &requests[i], 1, false, deadline_us, &out[i]);
        error = error ? error : status;
    }
    return error;
}

TEST(in_a_batch_only_requests_for_the_failing_part_stay_undecided, 30)
{
    STAGE(stage, STAGE_WIDE);
    stage.remote.ops.decide = decide_but_a;
    static const char *const keys[] = { "b", "b", "a", "b", "c", "a" };
    for (int round = 0; round < 3; round++) {
        struct weir_backend_request requests[6];
        struct weir_decision out[6];
        for (int i = 0; i < 6; i++) {
            requests[i] = stage_request(&stage, keys[i], 1);
            requests[i].now_us = stage_now_us(
                &stage); /* by the caller's clock what the first brings the others await */
            out[i].source = WEIR_BY_NOBODY;
        }
        ck_assert_int_eq(stage.hybrid->ops->decide(stage.hybrid, requests, 6, false, INT64_MAX, out), WEIR_EIO);
        for (int i = 0; i < 6; i++) {
            ck_assert_int_eq(out[i].source == WEIR_BY_NOBODY, keys[i][0] == 'a');
            ck_assert(keys[i][0] == 'a' || out[i].allowed);
        }
        stage_pass(&stage, 1000);
    }
    stage.remote.ops.decide = stage_decide;
}
