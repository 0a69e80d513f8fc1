/* test_shares.c - the instances' parts add up to the limit for all weights. */
#include "set_share.h"
#include "support.h"

#include "core/limiter/limiter.h"
#include "core/policy/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    COUNT_STEP = INSTRUMENTED ? 13 : 1,
    DRAWS = INSTRUMENTED ? 200 : 2000
}; /* fewer instance counts when instrumented */

enum { INSTANCES_MOST = 1000, LIMIT_MOST = 50, PERIOD_US = 1000000 };

static struct share alike(int64_t count, int64_t rank)
{
    return (struct share){ .weight = 1, .total = count, .rank = rank, .count = count };
}

static struct weir_plan plan_of(const struct weir_policy *policy, const struct share *share)
{
    struct weir_plan plan;
    char message[256] = "";
    if (plan_make(policy, share, &plan, (struct message){ message, sizeof message }) != WEIR_OK)
        ck_abort_msg("weight %" PRId64 " of %" PRId64 ": %s", share->weight, share->total, message);
    return plan;
}

/* ---- All weigh the same ---- */

TEST(equal_parts_add_up_to_the_whole_and_differ_by_one_at_most, 60)
{
    for (int64_t count = 1; count <= INSTANCES_MOST; count += COUNT_STEP) {
        for (int64_t whole = 1; whole <= LIMIT_MOST; whole++) {
            int64_t sum = 0;
            for (int64_t rank = 0; rank < count; rank++) {
                const struct share share = alike(count, rank);
                int64_t part = share_permits(&share, whole);
                must(part == whole / count || part == whole / count + 1, "a part is the quotient or one more");
                must(rank == 0 || part <= whole / count + (rank < whole % count), "those first in order get the rest");
                sum += part;
            }
            if (sum != whole)
                ck_abort_msg("%" PRId64 " over %" PRId64 " instances: %" PRId64, whole, count, sum);
        }
    }
}

static const int64_t some_limits[] = { 1, 2, 7, 50 };
enum { SOME_LIMITS = sizeof some_limits / sizeof some_limits[0] };

TEST(equal_rates_are_exact_and_none_is_zero, 60)
{
    for (int64_t count = 1; count <= INSTANCES_MOST; count += COUNT_STEP) {
        for (int i = 0; i < SOME_LIMITS; i++) {
            const struct weir_policy policy = { .limit = some_limits[i], .period_us = PERIOD_US };
            for (int64_t rank = 0; rank < count; rank += 1 + count / 10) {
                const struct share share = alike(count, rank);
                struct weir_plan plan = plan_of(&policy, &share);
                must(plan.p > 0 && plan.q > 0 && plan.size >= 1, "an instance has a rate and a permit");
                /* p/q permits a tick, times `count`, are limit permits a period. */
                must(plan.p * (PERIOD_US / plan.tick_us) * count == policy.limit * plan.q, "the rates add up");
            }
        }
    }
}

TEST(equal_interval_refills_never_add_up_to_more_than_the_limit, 60)
{
    for (int64_t count = 1; count <= INSTANCES_MOST; count += COUNT_STEP) {
        for (int i = 0; i < SOME_LIMITS; i++) {
            const struct weir_policy policy = { .refill = WEIR_INTERVAL,
                                                .limit = some_limits[i],
                                                .period_us = PERIOD_US };
            int64_t sum = 0;
            for (int64_t rank = 0; rank < count; rank++) {
                const struct share share = alike(count, rank);
                struct weir_plan plan = plan_of(&policy, &share);
                must(plan.limit >= 1 && plan.period_us >= PERIOD_US && plan.size >= 1, "an instance has a rate");
                sum += plan.limit;
                if (policy.limit >= count)
                    must(plan.period_us == PERIOD_US, "a part of one permit or more comes every period");
                else /* count * 1 / period' <= limit / period, and the next shorter period would be too short */
                    must(plan.limit == 1 && count * PERIOD_US <= policy.limit * plan.period_us &&
                             count * PERIOD_US > policy.limit * (plan.period_us - 1),
                         "a part of less than one permit comes in a longer period");
            }
            must(policy.limit < count || sum == policy.limit, "the refills add up to the limit");
        }
    }
}

/* ---- Weights ---- */

static void draw_weights(struct chance *chance, int64_t *weights, int64_t count, struct share *share)
{
    *share = (struct share){ .count = count, .weights = weights };
    for (int64_t i = 0; i < count; i++) {
        weights[i] = chance_one_in(chance, 2) ? chance_magnitude(chance, SHARE_MAX_WEIGHT)
                                              : chance_between(chance, 1, SHARE_MAX_WEIGHT);
        share->total += weights[i];
    }
}

static void be_instance(struct share *share, int64_t rank)
{
    share->rank = rank;
    share->weight = share->weights[rank];
}

TEST(parts_by_a_list_of_weights_add_up_to_the_whole, 60)
{
    struct chance chance = chance_make(1);
    for (int draw = 0; draw < DRAWS; draw++) {
        int64_t weights[60], sum = 0;
        struct share share;
        draw_weights(&chance, weights, chance_between(&chance, 1, 60), &share);
        int64_t whole = chance_magnitude(&chance, 2 * WEIR_MAX_PERMITS);
        for (int64_t rank = 0; rank < share.count; rank++) {
            be_instance(&share, rank);
            int64_t part = share_permits(&share, whole), floor = whole * share.weight / share.total;
            must(part == floor || part == floor + 1, "a part is its quotient or one more");
            sum += part;
        }
        if (sum != whole)
            ck_abort_msg("%" PRId64 " over %" PRId64 " instances: %" PRId64, whole, share.count, sum);
    }
}

TEST(shares_by_weight_classes_equal_those_by_the_weight_list, 60)
{
    struct chance chance = chance_make(5);
    for (int draw = 0; draw < DRAWS; draw++) {
        int64_t weights[60];
        struct share_class classes[60];
        struct share share;
        draw_weights(&chance, weights, chance_between(&chance, 1, 60), &share);
        const int64_t different = chance_between(&chance, 1, share.count);
        for (int64_t i = 0; i < share.count; i++) {
            share.total += weights[i % different] - weights[i];
            weights[i] = weights[i % different];
        }
        be_instance(&share, chance_between(&chance, 0, share.count - 1));
        struct share by_class = share;
        by_class.class_count = share_classes(&share, classes);
        by_class.classes = classes;
        by_class.weights = NULL;
        must(by_class.class_count <= different, "no more than there are weights");
        for (int i = 0; i < 20; i++) {
            const int64_t whole = chance_magnitude(&chance, 2 * WEIR_MAX_PERMITS);
            must(share_permits(&by_class, whole) == share_permits(&share, whole), "the same part");
            must(share_refill(&by_class, whole) == share_refill(&share, whole), "the same refill");
        }
    }
}

TEST(parts_of_unequal_weights_without_the_list_are_rounded_down, 60)
{
    struct chance chance = chance_make(2);
    for (int draw = 0; draw < DRAWS; draw++) {
        int64_t weights[60], sum = 0;
        struct share share;
        draw_weights(&chance, weights, chance_between(&chance, 2, 60), &share);
        share.weights = NULL;
        int64_t whole = chance_magnitude(&chance, WEIR_MAX_PERMITS);
        for (int64_t rank = 0; rank < share.count; rank++) {
            share.rank = rank;
            share.weight = weights[rank];
            int64_t part = share_permits(&share, whole);
            int64_t floor = whole * share.weight / share.total;
            /* An instance of average weight cannot tell that the others are not. */
            bool may_think_alike = share.weight * share.count == share.total;
            must(part == floor || (may_think_alike && part == floor + 1), "a part is rounded down");
            sum += may_think_alike ? floor : part;
        }
        must(sum <= whole, "parts that are rounded down do not add up to more");
    }
}

/* The refills of all instances, in permits a period of the whole limit. */
static double refills(const struct weir_policy *policy, struct share *share)
{
    double sum = 0;
    for (int64_t rank = 0; rank < share->count; rank++) {
        be_instance(share, rank);
        struct weir_plan plan = plan_of(policy, share);
        must(plan.limit >= 1, "an instance has a rate");
        sum += (double)plan.limit * (double)policy->period_us / (double)plan.period_us;
    }
    return sum;
}

TEST(interval_refills_by_weight_are_within_one_permit_of_the_limit_and_never_above, 60)
{
    struct chance chance = chance_make(3);
    for (int draw = 0; draw < DRAWS; draw++) {
        int64_t weights[60];
        struct share share;
        draw_weights(&chance, weights, chance_between(&chance, 1, 60), &share);
        const struct weir_policy policy = {
            .refill = WEIR_INTERVAL,
            .limit = chance_magnitude(&chance, 1000000),
            .period_us = WEIR_MINUTE,
        };
        double sum = refills(&policy, &share), limit = (double)policy.limit;
        ck_assert_msg(sum <= limit * (1 + 1e-12) && sum > limit - 1.001, "%g of %g", sum, limit);
    }
}

TEST(sizes_by_weight_add_up_except_those_raised_to_one, 60)
{
    static const char *const policies[] = {
        "token_bucket limit=100 period=1m burst=250 debt=77",
        "token_bucket limit=100 period=1m burst=37",
        "token_bucket limit=90 period=1m refill=interval",
        "leaky_bucket limit=100 period=1m capacity=61",
        "fixed_window limit=101 period=1m",
        "sliding_window limit=29 period=1m",
    };
    struct chance chance = chance_make(4);
    for (int draw = 0; draw < DRAWS; draw++) {
        const struct weir_policy policy = policy_of(policies[draw % 6]);
        int64_t whole = policy_get(&policy, plan_size_field(&policy)) + policy.debt;
        int64_t weights[60], sum = 0, lifted = 0;
        struct share share;
        draw_weights(&chance, weights, chance_between(&chance, 1, 60), &share);
        for (int64_t rank = 0; rank < share.count; rank++) {
            be_instance(&share, rank);
            struct weir_plan plan = plan_of(&policy, &share);
            enum plan_part part = plan_part(&policy, &share);
            bool is_window = policy.algorithm == WEIR_FIXED_WINDOW || policy.algorithm == WEIR_SLIDING_WINDOW;
            must(is_window || plan.size >= 1, "where a rate bounds the sum an instance has a permit");
            must((part == PLAN_PART_ZERO) == (plan.size == 0), "a window's part may be none, and that is told");
            must(part != PLAN_PART_LIFTED || !is_window, "a window's part is not lifted");
            sum += plan.size;
            lifted += part == PLAN_PART_LIFTED;
        }
        must(sum == whole + lifted, "sizes add up");
    }
}

/* ---- Options ---- */

TEST(a_share_that_contradicts_itself_is_refused_by_name, 30)
{
    static const int64_t good[] = { 5, 3, 2 }, low[] = { 5, 0, 2 }, high[] = { 5, 3, 65536 };
    static const struct {
        int64_t instances, rank, weight, total_weight;
        const int64_t *weights;
        const char *says;
    } rows[] = {
        { -1, 0, 0, 0, NULL, "instances must be 1 to 10000, not -1" },
        { 10001, 0, 0, 0, NULL, "instances must be 1 to 10000, not 10001" },
        { 3, 3, 0, 0, NULL, "rank must be 0 to instances-1, which is 2, not 3" },
        { 3, -1, 0, 0, NULL, "rank must be 0 to instances-1, which is 2, not -1" },
        { 0, 1, 0, 0, NULL, "rank must be 0 to instances-1, which is 0, not 1" },
        { 3, 0, -1, 0, NULL, "weight must be 1 to 65535, not -1" },
        { 3, 0, 65536, 0, NULL, "weight must be 1 to 65535, not 65536" },
        { 3, 0, 10, 11, NULL, "total_weight must be 12 to 131080 with weight 10 and 3 instances, not 11" },
        { 3, 0, 10, 131081, NULL, "total_weight must be 12 to 131080" },
        { 1, 0, 10, 11, NULL, "total_weight must be 10 to 10 with weight 10 and 1 instances, not 11" },
        { 3, 0, 0, 0, low, "weights[1] must be 1 to 65535, not 0" },
        { 3, 0, 0, 0, high, "weights[2] must be 1 to 65535, not 65536" },
        { 3, 1, 5, 0, good, "weight is 5 but weights[rank] is 3" },
        { 3, 1, 3, 11, good, "total_weight is 11 but weights add up to 10" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        struct scene scene;
        scene_init(&scene, &options);
        scene.log_allowed = true;
        options.instances = rows[i].instances;
        options.rank = rows[i].rank;
        options.weight = rows[i].weight;
        options.total_weight = rows[i].total_weight;
        options.weights = rows[i].weights;
        ck_assert_int_eq(weir_open(&options, &scene.limiter), WEIR_EINVAL);
        ck_assert_int_eq(scene.log_lines, 1);
        ck_assert_msg(strstr(scene.last_line, rows[i].says) != NULL, "row %zu: %s", i, scene.last_line);
    }
}

TEST(the_share_in_the_options_is_the_share_in_force, 30)
{
    static const int64_t listed[] = { 5, 3, 2 };
    static const struct {
        int64_t instances, rank, weight, total_weight;
        const int64_t *weights;
        int64_t in_force, of, part_of_100;
    } rows[] = {
        { 0, 0, 0, 0, NULL, 1, 1, 100 },         { 3, 0, 0, 0, NULL, 1, 3, 34 },
        { 3, 2, 0, 0, NULL, 1, 3, 33 },          { 3, 0, 7, 0, NULL, 7, 21, 34 },
        { 3, 0, 1, 10, NULL, 1, 10, 10 },        { 3, 1, 0, 0, listed, 3, 10, 30 },
        { 3, 2, 2, 10, listed, 2, 10, 20 },      { 10000, 99, 0, 0, NULL, 1, 10000, 1 },
        { 10000, 100, 0, 0, NULL, 1, 10000, 0 }, { 1, 0, 65535, 65535, NULL, 65535, 65535, 100 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        struct weir_stats stats = { .size = sizeof stats };
        options.instances = rows[i].instances;
        options.rank = rows[i].rank;
        options.weight = rows[i].weight;
        options.total_weight = rows[i].total_weight;
        options.weights = rows[i].weights;
        OPEN_SCENE(scene, &options);
        weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=100 period=1m");
        must_succeed(weir_stats_read(scene.limiter, &stats));
        ck_assert_int_eq(stats.share_weight, rows[i].in_force);
        ck_assert_int_eq(stats.share_total, rows[i].of);
        ck_assert_int_eq(peeked(limit, "key", 1).limit, rows[i].part_of_100);
        ck_assert_int_eq(peeked(limit, "key", 1).allowed, rows[i].part_of_100 > 0);
    }
}

TEST(shares_that_are_raised_or_zero_are_counted, 30)
{
    struct weir_stats stats = { .size = sizeof stats };
    OPEN_SCENE(scene, OPTIONS(.instances = 10, .rank = 9));
    scene_define_text(&scene, "whole", "token_bucket limit=10 period=1m");
    scene_define_text(&scene, "lifted", "token_bucket limit=9 period=1m");
    scene_define_text(&scene, "lifted-burst", "token_bucket limit=100 period=1m burst=3");
    weir_limit *queue = scene_define_text(&scene, "lifted-queue", "leaky_bucket limit=5 period=1m");
    weir_limit *none = scene_define_text(&scene, "none", "fixed_window limit=9 period=1m");
    scene_define_text(&scene, "none-too", "sliding_window limit=1 period=1m");
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.share_lifts, 3);
    ck_assert_uint_eq(stats.share_zeros, 2);

    struct weir_decision denied = taken(none, "key", 1);
    ck_assert(!denied.allowed && denied.limit == 0 && denied.retry_after_us == WEIR_NEVER);
    ck_assert(taken(queue, "key", 1).allowed);
    ck_assert(!taken(queue, "key", 1).allowed);

    scene_define_text(&scene, "none", "fixed_window limit=10 period=1m"); /* redefined, it no longer counts */
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.share_zeros, 1);
}

/* ---- A share that changes ---- */

static const char *const unrefilled[] = {
    "fixed_window limit=100 period=30d", "sliding_window limit=100 period=30d",
    "token_bucket limit=100 period=30d", "token_bucket limit=100 period=30d refill=interval",
    "leaky_bucket limit=100 period=30d",
};
enum { UNREFILLED = sizeof unrefilled / sizeof unrefilled[0] };

TEST(used_permits_stay_used_when_the_share_changes, 30)
{
    static const struct {
        int64_t count, remaining;
    } steps[] = { { 1, 70 }, { 2, 20 }, { 1, 70 }, { 3, 4 }, { 2, 20 }, { 1, 70 } }; /* 30 are used */
    for (int p = 0; p < UNREFILLED; p++) {
        OPEN_SCENE(scene, NULL);
        weir_limit *limit = scene_define_text(&scene, "limit", unrefilled[p]);
        ck_assert(taken(limit, "key", 30).allowed);
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            const struct share share = alike(steps[i].count, 0);
            must_succeed(limiter_set_share(scene.limiter, &share));
            /* By a peek, and by a take that carries the state over. */
            ck_assert_int_eq(peeked(limit, "key", 1).remaining, steps[i].remaining);
            ck_assert(!taken(limit, "key", steps[i].remaining + 1).allowed);
            ck_assert_int_eq(peeked(limit, "key", 1).remaining, steps[i].remaining);
            ck_assert_int_eq(peeked(limit, "new", 1).limit, (100 + steps[i].count - 1) / steps[i].count);
        }
    }
}

TEST(a_share_smaller_than_the_used_permits_denies, 30)
{
    for (int p = 0; p < UNREFILLED; p++) {
        const struct share half = alike(2, 1);
        OPEN_SCENE(scene, NULL);
        weir_limit *limit = scene_define_text(&scene, "limit", unrefilled[p]);
        ck_assert(taken(limit, "key", 80).allowed);
        must_succeed(limiter_set_share(scene.limiter, &half));
        ck_assert_int_eq(peeked(limit, "key", 1).remaining, 0);
        ck_assert(!taken(limit, "key", 1).allowed);
        ck_assert(taken(limit, "other", 50).allowed);
        ck_assert(!taken(limit, "other", 1).allowed);
        /* Back at the whole, all used permits stay used, including those that the half could not hold. */
        must_succeed(limiter_set_share(scene.limiter, &share_whole));
        ck_assert_int_eq(peeked(limit, "key", 1).remaining, 20);
        ck_assert_int_eq(peeked(limit, "other", 1).remaining, 50);
    }
}

TEST(a_limit_without_exact_arithmetic_at_a_share_denies_and_is_logged, 30)
{
    struct weir_stats stats = { .size = sizeof stats };
    OPEN_SCENE(scene, NULL);
    weir_limit *easy = scene_define_text(&scene, "easy", "fixed_window limit=100 period=1m");
    weir_limit *hard = scene_define_text(&scene, "hard", "token_bucket limit=1 period=366d burst=100");
    const struct share tiny = { .weight = 1, .total = 65535, .rank = 1, .count = 2 };
    scene.log_allowed = true;
    must_succeed(limiter_set_share(scene.limiter, &tiny));
    ck_assert_int_eq(scene.log_lines, 1);
    ck_assert_str_eq(scene.last_line, "limit hard has no exact arithmetic at this instance's share: it is denied here");
    ck_assert_int_eq(peeked(easy, "key", 1).limit, 0);
    struct weir_decision denied = taken(hard, "key", 1);
    ck_assert(!denied.allowed && denied.limit == 0 && denied.remaining == 0 && denied.retry_after_us == WEIR_NEVER);
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_int_eq(stats.share_total, 65535);
    ck_assert_uint_eq(stats.share_zeros, 2);
    must_succeed(limiter_set_share(scene.limiter, &share_whole));
    ck_assert_int_eq(peeked(hard, "key", 1).limit, 100);
}

TEST(a_new_share_is_copied_with_its_weights, 30)
{
    OPEN_SCENE(scene, NULL);
    int64_t weights[] = { 1, 2, 3 };
    const struct share share = { .weight = 3, .total = 6, .rank = 2, .count = 3, .weights = weights };
    must_succeed(limiter_set_share(scene.limiter, &share));
    memset(weights, 0, sizeof weights);
    ck_assert(!scene.limiter->share.weights && scene.limiter->share.class_count == 3);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=101 period=1m");
    ck_assert_int_eq(peeked(limit, "key", 1).limit, 50); /* 50.5; the permit left over goes to the first */
}
