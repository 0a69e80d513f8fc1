/* test_plan.c - refused policies, arithmetic at its limits, and shares that add up. */
#include "model.h"
#include "support.h"

#include "core/ground/arith.h"
#include "core/ground/log.h"
#include "core/policy/plan.h"
#include "core/policy/share.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Numbers whose products overflow if they can, and the ends of the ranges. */
static const int64_t corners[] = { 0,
                                   1,
                                   2,
                                   999999999,
                                   WEIR_MAX_PERMITS - 1,
                                   WEIR_MAX_PERMITS,
                                   WEIR_MAX_PERMITS + 1,
                                   UINT32_MAX,
                                   INT64_C(4294967296),
                                   366 * WEIR_DAY - 1,
                                   366 * WEIR_DAY,
                                   366 * WEIR_DAY + 1,
                                   INT64_C(1) << 52,
                                   (INT64_C(1) << 53) - 1,
                                   INT64_C(1) << 53,
                                   (INT64_C(1) << 53) + 1,
                                   INT64_MAX,
                                   -1,
                                   INT64_MIN };
enum { CORNERS = sizeof corners / sizeof corners[0] };

static struct weir_policy corner_policy(enum kind kind, int64_t limit, int64_t period_us, int64_t size, int64_t more)
{
    struct weir_policy policy = { .limit = limit, .period_us = period_us };
    switch (kind) {
    case KIND_GREEDY:
    case KIND_INTERVAL:
        policy.refill = kind == KIND_INTERVAL ? WEIR_INTERVAL : WEIR_GREEDY;
        policy.burst = size;
        policy.debt = more;
        break;
    case KIND_FIXED:
        policy.algorithm = WEIR_FIXED_WINDOW;
        policy.align = more == 0 ? WEIR_ALIGN_FIRST : WEIR_ALIGN_EPOCH;
        break;
    case KIND_SLIDING:
        policy.algorithm = WEIR_SLIDING_WINDOW;
        policy.blocks = size > INT32_MAX ? INT32_MAX : size < INT32_MIN ? INT32_MIN : (int32_t)size;
        break;
    case KIND_LEAKY:
    case KIND_COUNT:
        policy.algorithm = WEIR_LEAKY_BUCKET;
        policy.capacity = size;
        break;
    }
    return policy;
}

/* Take twice and wait, at corner times and costs, and compare with the model. */
static void decide_at_corners(struct scene *scene, weir_limit *limit, const struct model_rule *rule)
{
    static struct model_state state;
    for (int t = 0; t < CORNERS; t++) {
        if (corners[t] < 1 || corners[t] > WEIR_MAX_TIME_US)
            continue;
        model_state_init(&state);
        must_succeed(weir_reset(limit, weir_key_text("a")));
        for (int c = 0; c < CORNERS; c++) {
            if (corners[c] < 1 || corners[c] > WEIR_MAX_PERMITS)
                continue;
            for (int again = 0; again < 3; again++) {
                const struct weir_request request = { .limit = limit,
                                                      .key = weir_key_text("a"),
                                                      .cost = corners[c],
                                                      .now_us = again < 2 ? corners[t] : WEIR_MAX_TIME_US };
                struct weir_decision actual, expected;
                must_succeed(weir_try_batch(scene->limiter, &request, 1, &actual));
                model_decide(&state, rule, MODEL_TAKE, request.cost, request.now_us, &expected);
                assert_decision_is(&actual, &expected, "at the corners of arithmetic");
            }
        }
    }
}

static void refuse_or_decide(enum kind kind)
{
    OPEN_SCENE(scene, OPTIONS(.keep_idle = true));
    scene.log_allowed = true;
    int64_t defined = 0, refused = 0;
    const int step = INSTRUMENTED ? 7 : 1; /* no divisor of CORNERS: every corner still comes, in fewer company */
    for (int i = 0; i < CORNERS * CORNERS * CORNERS * CORNERS; i += step) {
        struct weir_policy policy = corner_policy(kind, corners[i % CORNERS], corners[i / CORNERS % CORNERS],
                                                  corners[i / CORNERS / CORNERS % CORNERS],
                                                  corners[i / CORNERS / CORNERS / CORNERS]);
        struct model_rule rule;
        weir_limit *limit = NULL;
        bool right = model_rule_make(&policy, &model_alone, &rule);
        int error = weir_limit_define(scene.limiter, "corner", &policy, &limit);
        if (error != (right ? WEIR_OK : WEIR_EINVAL))
            ck_abort_msg("%s limit %" PRId64 " period %" PRId64 ": %s", kind_names[kind], policy.limit,
                         policy.period_us, weir_strerror(error));
        if (right)
            decide_at_corners(&scene, limit, &rule);
        defined += right;
        refused += !right;
    }
    ck_assert_int_gt(defined, 0);
    ck_assert_int_gt(refused, 0);
}

TEST(greedy_bucket_is_refused_or_exact_at_every_corner, 120)
{
    refuse_or_decide(KIND_GREEDY);
}

TEST(interval_bucket_is_refused_or_exact_at_every_corner, 120)
{
    refuse_or_decide(KIND_INTERVAL);
}

TEST(fixed_window_is_refused_or_exact_at_every_corner, 120)
{
    refuse_or_decide(KIND_FIXED);
}

TEST(sliding_window_is_refused_or_exact_at_every_corner, 120)
{
    refuse_or_decide(KIND_SLIDING);
}

TEST(leaky_bucket_is_refused_or_exact_at_every_corner, 120)
{
    refuse_or_decide(KIND_LEAKY);
}

TEST(costs_and_times_at_corners_are_decided_in_range_and_refused_outside, 10)
{
    OPEN_SCENE(scene, NULL);
    scene.log_allowed = true;
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    for (int i = 0; i < CORNERS * CORNERS; i++) {
        const struct weir_request request = {
            .limit = limit, .key = weir_key_text("a"), .cost = corners[i % CORNERS], .now_us = corners[i / CORNERS]
        };
        struct weir_decision decision = { .limit = 4711 };
        bool right = request.cost >= 1 && request.cost <= WEIR_MAX_PERMITS && request.now_us >= 0 &&
                     request.now_us <= WEIR_MAX_TIME_US;
        int error = weir_try_batch(scene.limiter, &request, 1, &decision);
        ck_assert_int_eq(error, right ? WEIR_OK : WEIR_EINVAL);
        ck_assert_int_eq(decision.limit, right ? 10 : 4711);
    }
}

TEST(limits_up_to_2_to_the_43rd_work_with_periods_that_people_name, 10)
{
    static const int64_t periods_us[] = { WEIR_SECOND,  WEIR_MINUTE,   WEIR_HOUR,     WEIR_DAY,
                                          7 * WEIR_DAY, 30 * WEIR_DAY, 365 * WEIR_DAY };
    static const int64_t limits[] = { 50000000,     UINT32_MAX,           INT64_C(1) << 32, 99999999977,
                                      100000000000, WEIR_MAX_PERMITS - 1, WEIR_MAX_PERMITS };
    const enum weir_algorithm last = WEIR_CONCURRENCY;
    for (size_t i = 0; i < sizeof periods_us / sizeof periods_us[0]; i++)
        for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++)
            for (int algorithm = 0; algorithm <= (int)last; algorithm++) {
                struct weir_policy policy = { .algorithm = (enum weir_algorithm)algorithm,
                                              .limit = limits[k],
                                              .period_us = periods_us[i] };
                must_succeed(weir_policy_check(&policy, NULL, 0));
                policy.refill = algorithm == WEIR_TOKEN_BUCKET ? WEIR_INTERVAL : WEIR_GREEDY;
                must_succeed(weir_policy_check(&policy, NULL, 0));
            }
}

static struct weir_plan plan_of_text(const char *text)
{
    struct weir_policy policy;
    struct weir_plan plan;
    must_succeed(weir_policy_parse(text, &policy, NULL, 0));
    must_succeed(plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }));
    return plan;
}

TEST(the_tick_is_the_finest_that_keeps_a_full_bucket_below_2_to_the_53rd, 10)
{
    static const struct {
        const char *policy;
        int64_t tick_us;
    } table[] = {
        { "token_bucket limit=100GB period=30d", 1 },
        { "token_bucket limit=100GiB period=30d", 1000 },
        { "token_bucket limit=50MB period=1h", 1 },
        { "token_bucket limit=99999999977 period=30d", WEIR_MINUTE },
        { "token_bucket limit=8796093022207 period=1s", 1000 },
        { "leaky_bucket limit=8796093022207 period=1m", 100000 },
        { "token_bucket limit=8796093022207 period=1h", 10 * WEIR_SECOND },
        { "leaky_bucket limit=8796093022207 period=1d", 10 * WEIR_MINUTE },
        { "token_bucket limit=8796093022207 period=30d", WEIR_HOUR },
        { "token_bucket limit=8796093022207 period=365d", WEIR_DAY },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct weir_plan plan = plan_of_text(table[i].policy);
        ck_assert_msg(plan.tick_us == table[i].tick_us && plan.size <= EXACT_MAX / plan.q, "%s: %" PRId64,
                      table[i].policy, plan.tick_us);
    }
    /* A prime period has no coarser tick: a permit is 1048573 units, and (2^53 - 1) / 1048573 of them fit. */
    struct weir_policy policy = { .limit = 3, .period_us = 1048573, .burst = EXACT_MAX / 1048573 };
    char sentence[256] = "";
    must_succeed(weir_policy_check(&policy, NULL, 0));
    policy.burst++;
    ck_assert_int_eq(weir_policy_check(&policy, sentence, sizeof sentence), WEIR_EINVAL);
    ck_assert_str_eq(sentence, "burst 8589959169 has no exact arithmetic with limit 3 and period 1048573us: "
                               "take a smaller one, or a rounder limit or period");
}

/* Numbers with which published limiters overflowed and admitted everything. */
TEST(numbers_that_overflow_other_limiters_are_refused_or_exact, 10)
{
    static const int64_t numbers[] = { 86400, 1, 200000000 };
    OPEN_SCENE(scene, NULL);
    scene.log_allowed = true;
    for (int i = 0; i < 2 * 3 * 3 * 3; i++) {
        struct weir_policy policy = { .limit = numbers[i % 3],
                                      .period_us = numbers[i / 3 % 3] * (i / 27 ? WEIR_SECOND : 1),
                                      .burst = numbers[i / 9 % 3] };
        struct model_rule rule;
        weir_limit *limit;
        bool right = model_rule_make(&policy, &model_alone, &rule);
        ck_assert_int_eq(weir_limit_define(scene.limiter, "vector", &policy, &limit), right ? WEIR_OK : WEIR_EINVAL);
        if (!right)
            continue;
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, policy.burst);
        ck_assert(taken(limit, "a", policy.burst).allowed);
        ck_assert(!taken(limit, "a", policy.burst).allowed);
        must_succeed(weir_reset(limit, weir_key_text("a")));
    }
    /* 2^54 KiB a second is 2^64 bytes a second: refused, not 0. */
    struct weir_policy policy = { .limit = INT64_C(1) << 54, .period_us = WEIR_SECOND };
    ck_assert_int_eq(weir_limit_define(scene.limiter, "vector", &policy, NULL), WEIR_EINVAL);
}

TEST(periods_that_people_name_work_with_every_rate_that_fills_within_142_years, 30)
{
    static const int64_t periods_us[] = {
        WEIR_SECOND, WEIR_MINUTE, WEIR_HOUR, WEIR_DAY, 30 * WEIR_DAY, 365 * WEIR_DAY
    };
    struct chance chance = chance_make(1);
    int64_t refused = 0;
    for (int i = 0; i < 200000; i++) {
        struct weir_policy policy = { .limit = permits_by_chance(&chance),
                                      .period_us = periods_us[i % 6],
                                      .burst = permits_by_chance(&chance),
                                      .debt = permits_by_chance(&chance) };
        policy.burst = policy.burst < WEIR_MAX_PERMITS - policy.debt ? policy.burst : WEIR_MAX_PERMITS / 2;
        policy.debt = policy.debt < WEIR_MAX_PERMITS - policy.burst ? policy.debt : WEIR_MAX_PERMITS / 2;
        bool fills = (wide)(policy.burst + policy.debt) * policy.period_us <= (wide)WEIR_MAX_FILL_US * policy.limit;
        must(weir_policy_check(&policy, NULL, 0) == (fills ? WEIR_OK : WEIR_EINVAL), "a period that people name");
        policy.burst = policy.debt = 0;
        must_succeed(weir_policy_check(&policy, NULL, 0));
        refused += !fills;
    }
    ck_assert_int_gt(refused, 0);
}

TEST(a_refusal_names_the_field_and_what_is_wrong_with_it, 10)
{
    static const struct {
        struct weir_policy policy;
        const char *field, *range;
    } table[] = {
        { { .period_us = 1 }, "limit", "1 to 8796093022208" },
        { { .limit = 8796093022209, .period_us = 1 }, "limit", "1 to 8796093022208" },
        { { .limit = -1, .period_us = 1 }, "limit", "1 to 8796093022208" },
        { { .limit = 1 }, "period", "1 to 31622400000000" },
        { { .limit = 1, .period_us = WEIR_MAX_PERIOD_US + 1 }, "period", "1 to 31622400000000" },
        { { .limit = 1, .period_us = 1, .burst = -1 }, "burst", "1 to 8796093022208" },
        { { .limit = 1, .period_us = 1, .debt = 8796093022209 }, "debt", "0 to 8796093022208" },
        { { .limit = 1, .period_us = 1, .capacity = 1 }, "capacity", "token_bucket" },
        { { .limit = 1, .period_us = 1, .blocks = 1 }, "blocks", "token_bucket" },
        { { .limit = 1, .period_us = 1, .align = WEIR_ALIGN_EPOCH }, "align", "refill=interval" },
        { { .limit = 1, .period_us = 1, .align = (enum weir_align)7, .refill = WEIR_INTERVAL }, "align", "0 to 1" },
        { { .limit = 1, .period_us = 1, .refill = (enum weir_refill)2 }, "refill", "0 to 1" },
        { { .limit = 1, .period_us = 1, .algorithm = (enum weir_algorithm)7 }, "algorithm", "0 to 6" },
        { { .limit = 1, .period_us = 1, .algorithm = WEIR_FIXED_WINDOW, .burst = 1 }, "burst", "fixed_window" },
        { { .limit = 1, .period_us = 1, .algorithm = WEIR_SLIDING_WINDOW, .blocks = 1025 }, "blocks", "1 to 1024" },
        { { .limit = INT64_C(1) << 32, .period_us = 1, .algorithm = WEIR_SLIDING_WINDOW, .blocks = 513 },
          "blocks",
          "1 to 512 with a limit of 2^32 or more" },
        { { .limit = 1, .period_us = 1, .algorithm = WEIR_LEAKY_BUCKET, .capacity = -5 },
          "capacity",
          "1 to 8796093022208" },
        { { .limit = 1, .algorithm = WEIR_CONCURRENCY }, "hold", "1 to 31622400000000" },
        { { .limit = 1, .period_us = 1, .algorithm = WEIR_CONCURRENCY, .align = WEIR_ALIGN_EPOCH },
          "align",
          "concurrency" },
        { { .limit = 1, .period_us = 366 * WEIR_DAY, .burst = 1000 }, "burst", "142 years" },
        { { .limit = 999999937, .period_us = 365 * WEIR_DAY - 1, .burst = 1000000 }, "burst", "exact" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char message[256] = "";
        char tiny[8] = "";
        ck_assert_int_eq(weir_policy_check(&table[i].policy, message, sizeof message), WEIR_EINVAL);
        ck_assert_msg(strstr(message, table[i].field) && strstr(message, table[i].range), "%zu: \"%s\" says not %s, %s",
                      i, message, table[i].field, table[i].range);
        ck_assert_int_eq(weir_policy_check(&table[i].policy, tiny, sizeof tiny), WEIR_EINVAL);
        ck_assert_int_eq(strncmp(tiny, message, sizeof tiny - 1), 0);
        ck_assert_int_eq(tiny[sizeof tiny - 1], '\0');
        ck_assert_int_eq(weir_policy_check(&table[i].policy, NULL, 0), WEIR_EINVAL);
    }
    ck_assert_int_eq(weir_policy_check(NULL, NULL, 0), WEIR_EINVAL);
}

/* ---- Shares ---- */

static weir_limit *open_share(struct scene *scene, int64_t instances, int64_t rank, const int64_t *weights,
                              const char *policy)
{
    scene_open(scene, OPTIONS(.max_keys = 1, .instances = instances, .rank = rank, .weights = weights));
    return scene_define_text(scene, "limit", policy);
}

static int64_t sum_of_limits(int64_t instances, const int64_t *weights, const char *policy)
{
    int64_t sum = 0;
    for (int64_t rank = 0; rank < instances; rank++) {
        CLOSED_BY(scene_close) struct scene scene;
        sum += peeked(open_share(&scene, instances, rank, weights, policy), "a", 1).limit;
    }
    return sum;
}

TEST(whole_permits_add_up_over_all_instances, 60)
{
    static const int64_t instances[] = { 1, 2, 3, 5, 7, 10, 33, 100, 1000 };
    static const int64_t wholes[] = { 1, 2, 3, 7, 10, 49, 50, 999, 1000000, 999999937, 1000000000 };
    struct chance chance = chance_make(2);
    for (size_t n = 0; n < sizeof instances / sizeof instances[0]; n++) {
        int64_t *weights = malloc((size_t)instances[n] * sizeof *weights);
        ck_assert_ptr_nonnull(weights);
        for (int64_t i = 0; i < instances[n]; i++)
            weights[i] = chance_between(&chance, 1, i % 2 ? 3 : 65535);
        const size_t step = instances[n] > 100 ? 4 : 1; /* many take long */
        for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i += step) {
            char window[80], bucket[80];
            snprintf(window, sizeof window, "fixed_window limit=%" PRId64 " period=1s", wholes[i]);
            snprintf(bucket, sizeof bucket, "token_bucket limit=1000000000 period=1s burst=1 debt=%" PRId64, wholes[i]);
            ck_assert_int_eq(sum_of_limits(instances[n], NULL, window), wholes[i]);
            ck_assert_int_eq(sum_of_limits(instances[n], weights, window), wholes[i]);
            /* a burst of 1 is lifted to 1 everywhere; the debt adds up */
            ck_assert_int_eq(sum_of_limits(instances[n], weights, bucket), instances[n] + wholes[i]);
        }
        free(weights);
    }
}

TEST(rates_add_up_over_all_instances, 10)
{
    static const int64_t weights[] = { 3, 1, 7, 2 }; /* 13 in all */
    static const char *const policies[] = {
        "token_bucket limit=5 period=1s burst=1000",
        "token_bucket limit=20 period=1s burst=1000 refill=interval",
        "token_bucket limit=65 period=1s burst=1000 refill=interval align=epoch",
        "leaky_bucket limit=1 period=1s capacity=1000",
    };
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        int64_t regained = 0;
        for (int64_t rank = 0; rank < 4; rank++) {
            CLOSED_BY(scene_close) struct scene scene;
            weir_limit *limit = open_share(&scene, 4, rank, weights, policies[p]);
            scene.now_us -= scene.now_us % WEIR_SECOND;
            struct weir_decision all = taken(limit, "a", peeked(limit, "a", 1).limit);
            ck_assert(all.allowed && all.remaining == 0);
            scene.now_us += 13 * WEIR_SECOND;
            regained += peeked(limit, "a", 1).remaining;
        }
        ck_assert_int_eq(regained, 13 * policy_of(policies[p]).limit);
    }
}

TEST(an_empty_share_is_raised_to_one_for_buckets_and_zero_for_windows, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_stats stats = { .size = sizeof stats };
    weir_limit *bucket = open_share(&scene, 3, 2, NULL, "token_bucket limit=2 period=1s");
    weir_limit *interval = scene_define_text(&scene, "interval", "token_bucket limit=2 period=1s refill=interval");
    weir_limit *leaky = scene_define_text(&scene, "leaky", "leaky_bucket limit=2 period=1s");
    weir_limit *fixed = scene_define_text(&scene, "fixed", "fixed_window limit=2 period=1s");
    weir_limit *sliding = scene_define_text(&scene, "sliding", "sliding_window limit=2 period=1s");
    scene_define_text(&scene, "enough", "fixed_window limit=3 period=1s");
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.share_lifts, 3);
    ck_assert_uint_eq(stats.share_zeros, 2);
    ck_assert_int_eq(stats.share_weight, 1);
    ck_assert_int_eq(stats.share_total, 3);
    ck_assert_int_eq(taken(bucket, "a", 1).limit, 1);
    ck_assert_int_eq(taken(bucket, "a", 1).retry_after_us, 1500000);
    ck_assert_int_eq(taken(interval, "a", 1).limit, 1);
    ck_assert_int_eq(taken(interval, "a", 1).retry_after_us, 1500000);
    ck_assert_int_eq(taken(leaky, "a", 1).limit, 1);
    weir_limit *const windows[] = { fixed, sliding };
    for (int i = 0; i < 2; i++) {
        const struct weir_decision none = { .retry_after_us = WEIR_NEVER };
        struct weir_decision decision = taken(windows[i], "a", 1);
        assert_decision_is(&decision, &none, "a window whose part is 0");
    }
}

TEST(shares_without_a_known_weight_list_are_rounded_down, 10)
{
    int64_t sum = 0;
    for (int64_t rank = 0; rank < 3; rank++) {
        static const int64_t weights[] = { 5, 1, 1 };
        struct weir_options options = WEIR_OPTIONS_INIT;
        options.instances = 3;
        options.rank = rank;
        options.weight = weights[rank];
        options.total_weight = 7;
        OPEN_SCENE(scene, &options);
        int64_t part = peeked(scene_define_text(&scene, "limit", "fixed_window limit=10 period=1s"), "a", 1).limit;
        ck_assert_int_eq(part, 10 * weights[rank] / 7);
        sum += part;
    }
    ck_assert_int_eq(sum, 9);
}

TEST(holding_back_permits_changes_the_plans_fingerprint, 10)
{
    const struct weir_policy policy = { .limit = 10, .period_us = WEIR_SECOND };
    struct weir_plan whole, held, again;
    char sentence[200];
    const struct message message = { sentence, sizeof sentence };
    must_succeed(plan_make(&policy, &share_whole, &whole, message));
    held = again = whole;
    plan_hold_back(&held, 3);
    plan_hold_back(&again, 3);
    ck_assert_int_eq(held.size, 7);
    ck_assert_int_eq(held.reserve, 3);
    ck_assert_int_ne(held.fingerprint, whole.fingerprint);
    ck_assert_int_eq(held.fingerprint, again.fingerprint);
}

TEST(plans_of_zero_permits_differ_if_their_policies_differ, 10)
{
    const struct share tiny = { .weight = 1, .total = 65535, .rank = 1, .count = 2 };
    const struct weir_policy policies[] = {
        { .limit = 1, .period_us = 366 * WEIR_DAY, .burst = 100 },
        { .limit = 1, .period_us = 366 * WEIR_DAY, .burst = 100, .refill = WEIR_INTERVAL }
    };
    struct weir_plan plans[2];
    for (int i = 0; i < 2; i++) { /* they have no exact arithmetic at that share */
        plan_at_share(&policies[i], &tiny, &plans[i]);
        ck_assert_int_eq(plans[i].size, 0);
        ck_assert_int_ne(plans[i].fingerprint, 0);
    }
    ck_assert_int_ne(plans[0].fingerprint, plans[1].fingerprint);
}

TEST(an_impossible_share_is_refused_by_its_options_name, 10)
{
    static const int64_t weights[] = { 1, 0, 3 }, good_weights[] = { 1, 2, 3 };
    static const struct {
        struct weir_options options;
        const char *option;
    } table[] = {
        { { .instances = -1 }, "instances" },
        { { .instances = 10001 }, "instances" },
        { { .instances = 3, .rank = 3 }, "rank" },
        { { .rank = 1 }, "rank" },
        { { .rank = -1 }, "rank" },
        { { .weight = 65536 }, "weight" },
        { { .weight = -1 }, "weight" },
        { { .instances = 3, .total_weight = 2 }, "total_weight" },
        { { .instances = 2, .weight = 5, .total_weight = 5 + 65536 }, "total_weight" },
        { { .instances = 3, .weights = weights }, "weights" },
        { { .instances = 3, .weights = good_weights, .weight = 7 }, "weight" },
        { { .instances = 3, .weights = good_weights, .total_weight = 7 }, "total_weight" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct weir_options options = table[i].options;
        struct scene scene;
        weir *limiter = NULL;
        scene_init(&scene, &options);
        options.size = sizeof options;
        scene.log_allowed = true;
        ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EINVAL);
        ck_assert_ptr_null(limiter);
        ck_assert_msg(strstr(scene.last_line, table[i].option) != NULL, "%zu: %s", i, scene.last_line);
    }
}
