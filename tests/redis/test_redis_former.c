/* test_redis_former.c - limits in Redis whose plan changes and changes back: no used permit is forgotten, and a
 * former state never makes the current plan deny. */
#include "core/algorithm/algorithm.h"
#include "core/api/verbs.h"
#include "core/ground/arith.h"
#include "core/limiter/limiter.h"
#include "core/policy/plan.h"
#include "lab/redis_server.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static struct redis_server server;

/* Open a limiter that runs on the test's clock and shares its keys with those of the same number. */
static void redis_open_as(struct scene *scene, int number)
{
    char prefix[WEIR_MAX_NAME_LEN];
    snprintf(prefix, sizeof prefix, "weir:former-%d-%d:", (int)getpid(), number);
    const struct weir_options options = { .size = sizeof options,
                                          .mode = WEIR_DISTRIBUTED,
                                          .redis_url = server.url,
                                          .redis_prefix = prefix,
                                          .on_failure = WEIR_FAIL_ERROR,
                                          .timeout_us = 20 * WEIR_SECOND,
                                          .by_local_clock = true };
    scene_open(scene, &options);
}

static int opened;

static void redis_open(struct scene *scene)
{
    redis_open_as(scene, opened++);
}

static void server_open(void)
{
    must(redis_server_start(&server, REDIS_SERVER_UNIX, NULL) == 0, server.daemon.error);
}

/* ---- Every kind of plan, and back from every kind ---- */

/* Large plans refill nothing within the test's seconds; small ones refill completely in two of them. */
static const char *const large[KIND_COUNT] = { "token_bucket limit=100 period=1d",
                                               "token_bucket limit=100 period=1d refill=interval",
                                               "fixed_window limit=100 period=1d", "sliding_window limit=100 period=1d",
                                               "leaky_bucket limit=100 period=1d" };
static const char *const small[KIND_COUNT] = { "token_bucket limit=50 period=1s",
                                               "token_bucket limit=50 period=1s refill=interval",
                                               "fixed_window limit=50 period=1s", "sliding_window limit=50 period=1s",
                                               "leaky_bucket limit=50 period=1s" };

/* A limit whose large plan had 60 of 100 permits in use; its current small plan is full. */
struct lowered {
    struct scene scene;
    weir_limit *limit, *other;
    const char *large;
};

static void lowered_open(struct lowered *lowered, const char *from, const char *to)
{
    memset(lowered, 0, sizeof *lowered);
    redis_open(&lowered->scene);
    lowered->large = from;
    lowered->other = scene_define_text(&lowered->scene, "other", "fixed_window limit=10 period=1h");
    lowered->limit = scene_define_text(&lowered->scene, "limit", from);
    must(taken(lowered->limit, "key", 60).remaining == 40, "60 of 100 are in use");
    scene_define_text(&lowered->scene, "limit", to);
    must(!taken(lowered->limit, "key", 1).allowed, "the small plan is full");
}

/* Give the limit its large plan again; return the remaining permits. */
static int64_t raised_again(struct lowered *lowered)
{
    scene_define_text(&lowered->scene, "limit", lowered->large);
    const int64_t left = peeked(lowered->limit, "key", 1).remaining;
    must(taken(lowered->limit, "key", left + 1).allowed == false, "a peek said less than there is");
    must(left == 0 || taken(lowered->limit, "key", left).allowed, "a peek said more than there is");
    return left;
}

static void nothing(struct lowered *lowered)
{
    lowered->scene.now_us += 2 * WEIR_SECOND;
}

static void take_20(struct lowered *lowered)
{
    nothing(lowered);
    must(taken(lowered->limit, "key", 20).remaining == 30, "the small plan had forgotten its own");
}

static void take_more_than_the_large_one_holds(struct lowered *lowered)
{
    for (int i = 0; i < 3; i++) {
        nothing(lowered);
        must(taken(lowered->limit, "key", 50).allowed, "the former state denies nothing");
    }
}

static void be_denied(struct lowered *lowered)
{
    nothing(lowered);
    must(!taken(lowered->limit, "key", 51).allowed, "more than the small plan holds");
    must(peeked(lowered->limit, "key", 50).allowed, "a denial was charged");
}

static void take_20_and_give_them_back(struct lowered *lowered)
{
    take_20(lowered);
    must_succeed(weir_refund(lowered->limit, weir_key_text("key"), 20));
    must(peeked(lowered->limit, "key", 1).remaining == 50, "they were given back");
    must(peeked(lowered->limit, "key", 1).reset_after_us == 0, "nothing is used, except in the former state");
}

static void take_20_after_50_were_given_back(struct lowered *lowered)
{
    must_succeed(weir_refund(lowered->limit, weir_key_text("key"), 50));
    must(taken(lowered->limit, "key", 20).remaining == 30, "all was given back");
}

static void reset(struct lowered *lowered)
{
    must_succeed(weir_reset(lowered->limit, weir_key_text("key")));
    must(peeked(lowered->limit, "key", 1).remaining == 50, "it was forgotten");
}

static void lease_20(struct lowered *lowered)
{
    struct weir_backend *backend = lowered->scene.limiter->backend;
    struct weir_decision decision;
    nothing(lowered);
    struct weir_backend_request request = backend_request(lowered->limit, weir_key_text("key"), 5,
                                                          lowered->scene.now_us, WEIR_TAKE);
    request.ahead = 15;
    request.spread = 1;
    must_succeed(backend->ops->decide(backend, &request, 1, false, clock_monotonic_us() + 20 * WEIR_SECOND, &decision));
    must(decision.allowed && decision.ahead == 15, "it was granted");
}

static void lease_20_without_a_take(struct lowered *lowered)
{
    struct weir_backend *backend = lowered->scene.limiter->backend;
    struct weir_decision decision;
    nothing(lowered);
    struct weir_backend_request request = backend_request(lowered->limit, weir_key_text("key"), 0,
                                                          lowered->scene.now_us, WEIR_TAKE);
    request.ahead = 20;
    request.spread = 2;
    must_succeed(backend->ops->decide(backend, &request, 1, false, clock_monotonic_us() + 20 * WEIR_SECOND, &decision));
    must(decision.ahead == 20, "it was granted");
}

static void take_all(struct lowered *lowered, int64_t of_other, bool allowed)
{
    struct weir_decision decision;
    const struct weir_request requests[] = { { lowered->limit, weir_key_text("key"), 20, 0 },
                                             { lowered->other, weir_key_text("key"), of_other, 0 } };
    must_succeed(weir_try_all(lowered->scene.limiter, requests, 2, &decision));
    must(decision.allowed == allowed, "it is held against both limits");
}

static void take_20_and_of_another_limit(struct lowered *lowered)
{
    nothing(lowered);
    take_all(lowered, 10, true);
}

static void be_denied_by_another_limit(struct lowered *lowered)
{
    nothing(lowered);
    take_all(lowered, 11, false);
}

static void take_20_in_a_batch(struct lowered *lowered)
{
    struct weir_decision decisions[3];
    const struct weir_request requests[] = { { lowered->limit, weir_key_text("key"), 15, 0 },
                                             { lowered->limit, weir_key_text("another"), 15, 0 },
                                             { lowered->limit, weir_key_text("key"), 5, 0 } };
    nothing(lowered);
    must_succeed(weir_try_batch(lowered->scene.limiter, requests, 3, decisions));
    must(decisions[2].allowed && decisions[2].remaining == 30, "both were admitted");
}

/* Switch to an even smaller plan, when nothing is left in use under the small one. */
static void be_lowered_once_more(struct lowered *lowered)
{
    take_20(lowered);
    scene_define_text(&lowered->scene, "limit", "fixed_window limit=5 period=1s");
    nothing(lowered);
    must(taken(lowered->limit, "key", 1).allowed == false, "the smallest plan is full");
    nothing(lowered);
    must(taken(lowered->limit, "key", 5).allowed, "it was full for a second");
}

static void be_forgotten(struct lowered *lowered)
{
    lowered->scene.now_us += 3 * WEIR_DAY;
    must(taken(lowered->limit, "key", 20).allowed, "nothing is used");
}

static void assert_left(const char *after, void (*what)(struct lowered *lowered), int64_t expected)
{
    for (int from = 0; from < KIND_COUNT; from++) {
        for (int to = 0; to < KIND_COUNT; to++) {
            struct lowered lowered;
            lowered_open(&lowered, large[from], small[to]);
            what(&lowered);
            const int64_t left = raised_again(&lowered);
            if (left != expected)
                ck_abort_msg("%s, then %s, %s: %" PRId64 " left", large[from], small[to], after, left);
            scene_close(&lowered.scene);
        }
    }
}
#define ASSERT_LEFT(what, expected) assert_left(#what, what, expected)

TEST(a_limit_that_returns_to_its_former_policy_has_forgotten_nothing, 60)
{
    server_open();
    ASSERT_LEFT(nothing, 40);
    ASSERT_LEFT(take_20, 20);
    ASSERT_LEFT(take_more_than_the_large_one_holds, 0);
    ASSERT_LEFT(take_20_in_a_batch, 20);
    ASSERT_LEFT(take_20_and_of_another_limit, 20);
    redis_server_stop(&server);
}

TEST(a_denial_leaves_the_former_state_unchanged_and_a_refund_changes_both, 60)
{
    server_open();
    ASSERT_LEFT(be_denied, 40);
    ASSERT_LEFT(be_denied_by_another_limit, 40);
    ASSERT_LEFT(take_20_and_give_them_back, 40);
    ASSERT_LEFT(take_20_after_50_were_given_back, 70);
    redis_server_stop(&server);
}

TEST(a_reset_forgets_both_states, 60)
{
    server_open();
    ASSERT_LEFT(reset, 100);
    redis_server_stop(&server);
}

TEST(a_lease_charges_both_states, 60)
{
    server_open();
    ASSERT_LEFT(lease_20, 20);
    ASSERT_LEFT(lease_20_without_a_take, 20);
    redis_server_stop(&server);
}

TEST(a_third_plan_charges_both_states_too, 60)
{
    server_open();
    ASSERT_LEFT(be_lowered_once_more, 15);
    redis_server_stop(&server);
}

TEST(of_three_plans_the_least_recently_used_is_forgotten, 60)
{
    struct scene scene;
    server_open();
    redis_open(&scene);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=100 period=1d");
    must(taken(limit, "key", 60).allowed, "it is fresh");
    scene_define_text(&scene, "limit", "fixed_window limit=40 period=1d");
    must(!taken(limit, "key", 1).allowed, "it is full");
    scene_define_text(&scene, "limit", "fixed_window limit=5 period=1d");
    must(!taken(limit, "key", 1).allowed, "it is full");
    scene_define_text(&scene, "limit", "fixed_window limit=100 period=1d");
    ck_assert_int_eq(peeked(limit, "key", 1).remaining, 60);
    scene_close(&scene);
    redis_server_stop(&server);
}

TEST(an_idle_former_state_is_forgotten, 60)
{
    server_open();
    ASSERT_LEFT(be_forgotten, 80);
    redis_server_stop(&server);
}

/* ---- Back and forth ---- */

enum { FLIPS = 1000, DEMANDS = 8 };

/* While a limit alternates between two plans, the larger plan alone must also have admitted all that is admitted, so
 * no window exceeds it. Yet more is admitted than by the smaller plan: a change must not restart windows, or they
 * would never end. */
static void flip(const char *larger, const char *smaller, struct chance *chance)
{
    struct scene redis, memory;
    int64_t admitted = 0, denied = 0;
    redis_open(&redis);
    scene_open(&memory, NULL);
    weir_limit *limit = scene_define_text(&redis, "limit", larger);
    weir_limit *witness = scene_define_text(&memory, "limit", larger);
    const int64_t start_us = memory.now_us = redis.now_us;
    for (int i = 0; i < FLIPS; i++) {
        scene_define_text(&redis, "limit", i % 2 == 0 ? smaller : larger);
        for (int j = 0; j < DEMANDS; j++) {
            memory.now_us = redis.now_us += chance_between(chance, 0, 40000);
            const int64_t cost = chance_between(chance, 1, 20);
            if (!taken(limit, "key", cost).allowed) {
                denied++;
                continue;
            }
            admitted += cost;
            if (!taken(witness, "key", cost).allowed)
                ck_abort_msg("%s and %s, flip %d: more than the larger one admits", larger, smaller, i);
        }
    }
    must(admitted > 50 * ((redis.now_us - start_us) / WEIR_SECOND), "the smaller one alone would have admitted more");
    must(denied > FLIPS, "hardly anything was denied: the test says little");
    scene_close(&memory);
    scene_close(&redis);
}

TEST(a_limit_that_flips_admits_no_more_than_its_larger_plan, 120)
{
    static const char *const pairs[][2] = {
        { "token_bucket limit=100 period=1s", "token_bucket limit=50 period=1s" },
        { "token_bucket limit=100 period=1s refill=interval align=epoch",
          "token_bucket limit=50 period=1s refill=interval align=epoch" },
        { "fixed_window limit=100 period=1s align=epoch", "fixed_window limit=50 period=1s align=epoch" },
        { "sliding_window limit=100 period=1s", "sliding_window limit=50 period=1s" },
        { "leaky_bucket limit=100 period=1s", "leaky_bucket limit=50 period=1s" },
        { "token_bucket limit=100 period=1s", "leaky_bucket limit=50 period=1s" },
    };
    struct chance chance = chance_make(1);
    server_open();
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        flip(pairs[i][0], pairs[i][1], &chance);
    redis_server_stop(&server);
}

/* ---- Instances that disagree ---- */

/* Two instances of one limit, each with a plan. */
struct pair {
    struct scene scenes[2];
    weir_limit *limits[2];
};

static void pair_open(struct pair *pair, const char *one, const char *other)
{
    const char *const texts[2] = { one, other };
    const int number = opened++;
    for (int i = 0; i < 2; i++) {
        redis_open_as(&pair->scenes[i], number);
        pair->limits[i] = scene_define_text(&pair->scenes[i], "limit", texts[i]);
        pair->scenes[i].now_us = pair->scenes[0].now_us;
    }
}

static void pair_pass(struct pair *pair, int64_t by_us)
{
    pair->scenes[1].now_us = pair->scenes[0].now_us += by_us;
}

static void pair_close(struct pair *pair)
{
    scene_close(&pair->scenes[0]);
    scene_close(&pair->scenes[1]);
}

TEST(instances_with_different_plans_admit_all_traffic_below_both_limits, 60)
{
    static const char *const plans[][2] = {
        { "sliding_window limit=100 period=1s", "sliding_window limit=100 period=1s blocks=20" },
        { "token_bucket limit=100 period=1s", "token_bucket limit=120 period=1s burst=100" },
        { "leaky_bucket limit=100 period=1s", "token_bucket limit=100 period=1s" },
        { "fixed_window limit=100 period=1s", "sliding_window limit=100 period=1s" },
        { "fixed_window limit=6000 period=1m align=epoch", "token_bucket limit=100 period=1s" },
        { "token_bucket limit=100 period=1s refill=interval", "fixed_window limit=100 period=1s" },
    };
    server_open();
    for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
        for (int every = 2; every <= 10; every += 8) { /* half of the fleet, or a canary */
            struct pair pair;
            struct chance chance = chance_make(p);
            pair_open(&pair, plans[p][0], plans[p][1]);
            for (int i = 0; i < 423; i++) {
                if (!taken(pair.limits[i % every == 0], "key", 1).allowed)
                    ck_abort_msg("%s and %s, one in %d: request %d was denied at half the demand", plans[p][0],
                                 plans[p][1], every, i);
                pair_pass(&pair, chance_between(&chance, 10000, 30000));
            }
            pair_close(&pair);
        }
    }
    redis_server_stop(&server);
}

/* Charge every permit that either plan admits to a state under each. In the test no window ends, and the demand is so
 * high that no bucket drains: each plan stays known from its first request on. */
static void disagree(const char *const texts[2], struct chance *chance)
{
    struct pair pair;
    struct weir_plan plans[2];
    int64_t states[2][STATE_MAX_WORDS], admitted[2] = { 0, 0 };
    pair_open(&pair, texts[0], texts[1]);
    for (int i = 0; i < 2; i++) {
        const struct weir_policy policy = policy_of(texts[i]);
        must_succeed(plan_make(&policy, &share_whole, &plans[i], (struct message){ NULL, 0 }));
        state_charge(&plans[i], states[i], pair.scenes[0].now_us, 0);
    }
    for (int step = 0; step < 1500; step++) {
        const int who = step < 2 || chance_one_in(chance, 4) ? step % 2 : (int)chance_between(chance, 0, 1);
        const int64_t now_us = pair.scenes[0].now_us, cost = step < 2 ? 1 : chance_between(chance, 1, 12);
        const struct weir_decision actual = taken(pair.limits[who], "key", cost);
        struct weir_decision expected;
        state_decide(&plans[who], states[who], now_us, cost, WEIR_TAKE, &expected);
        expected.source = actual.source;
        if (memcmp(&actual, &expected, sizeof actual) != 0) {
            fprintf(stderr, "%s and %s, step %d\n", texts[0], texts[1], step);
            assert_decision_is(&actual, &expected, texts[who]);
        }
        if (actual.allowed)
            state_fill(&plans[1 - who], states[1 - who], now_us, cost);
        admitted[who] += actual.allowed ? cost : 0;
        if (step > 60)
            pair_pass(&pair, chance_between(chance, 0, 40000));
    }
    must(admitted[0] > 0 && admitted[1] > 0, "each plan admitted something");
    pair_close(&pair);
}

TEST(each_of_two_plans_decides_as_if_it_had_seen_all_requests, 120)
{
    static const char *const texts[] = {
        "token_bucket limit=100 period=1s",    "token_bucket limit=120 period=1s burst=300 debt=7",
        "leaky_bucket limit=90 period=1s",     "leaky_bucket limit=7000 period=1m capacity=30",
        "fixed_window limit=3000 period=1h",   "token_bucket limit=2000 period=1h refill=interval",
        "sliding_window limit=2500 period=1h", "sliding_window limit=3000 period=1h blocks=60",
        "fixed_window limit=2500 period=1d",
    };
    enum { TEXTS = sizeof texts / sizeof texts[0] };
    struct chance chance = chance_make(2);
    server_open();
    for (int i = 0; i < TEXTS; i++)
        for (int j = i + 1; j < TEXTS; j++)
            disagree((const char *const[2]){ texts[i], texts[j] }, &chance);
    redis_server_stop(&server);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
