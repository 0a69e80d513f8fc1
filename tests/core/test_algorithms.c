/* test_algorithms.c - compare every algorithm with the exact model and with its documented promises. */
#include "core/algorithm/algorithm.h"
#include "core/policy/plan.h"
#include "model.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A stream of random requests, decided by the library and by the model ---- */

enum { KEYS = 3, STREAM_LENGTH = 2000 };
static const char *const key_names[KEYS] = { "a", "b", "c" };

struct stream {
    struct chance chance;
    struct scene scene;
    struct model_share share;
    weir_limit *limit;
    bool restless; /* change the policy every few requests, not every few hundred */
    struct weir_policy policy, earlier[2];
    struct model_rule rule;
    struct model_state *states; /* one a key */
    struct weir_decision last;
    int64_t decisions[KIND_COUNT]; /* compared under a policy of that kind */
    int64_t with_former;           /* of them with a former use */
    int64_t waits_checked;
    char where[512];
};

static const char *where(struct stream *stream, const char *verb, int key, int64_t cost)
{
    char policy[160] = "?";
    weir_policy_print(&stream->policy, policy, sizeof policy);
    snprintf(stream->where, sizeof stream->where,
             "%s, share %" PRId64 "/%" PRId64 ": %s %" PRId64 " of key %s at %" PRId64, policy, stream->share.weight,
             stream->share.total, verb, cost, key_names[key], stream->scene.now_us);
    return stream->where;
}

/* Define a policy that this share can enforce, sometimes an earlier one. The library and the model must agree on those
 * that are refused. */
static void define_by_chance(struct stream *stream, enum kind kind)
{
    for (;;) {
        struct weir_policy policy = policy_by_chance(&stream->chance, kind);
        if (stream->earlier[1].limit > 0 && chance_one_in(&stream->chance, 2))
            policy = stream->earlier[chance_between(&stream->chance, 0, 1)];
        struct model_rule rule;
        bool right = model_rule_make(&policy, &model_alone, &rule);
        must(weir_policy_check(&policy, NULL, 0) == (right ? WEIR_OK : WEIR_EINVAL), "refused unlike the model");
        right = right && model_rule_make(&policy, &stream->share, &rule);
        stream->scene.log_allowed = !right;
        int error = weir_limit_define(stream->scene.limiter, "limit", &policy, &stream->limit);
        must(error == (right ? WEIR_OK : WEIR_EINVAL), "a share of it refused unlike the model");
        stream->scene.log_allowed = false;
        if (!right)
            continue;
        stream->earlier[1] = stream->earlier[0];
        stream->earlier[0] = stream->policy;
        stream->policy = policy;
        stream->rule = rule;
        return;
    }
}

static void stream_open(struct stream *stream, uint64_t number, const struct model_share *share, bool keep_idle)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    memset(stream, 0, sizeof *stream);
    stream->chance = chance_make(number);
    stream->share = *share;
    stream->restless = chance_one_in(&stream->chance, 3);
    options.keep_idle = keep_idle;
    options.max_keys = 64;
    options.instances = share->instances;
    options.rank = share->rank;
    options.weight = share->weight;
    options.total_weight = share->total;
    options.weights = share->weights;
    scene_open(&stream->scene, &options);
    if (chance_one_in(&stream->chance, 3))
        stream->scene.now_us = chance_magnitude(&stream->chance, WEIR_MAX_TIME_US);
    stream->states = calloc(KEYS, sizeof *stream->states);
    ck_assert_ptr_nonnull(stream->states);
    for (int i = 0; i < KEYS; i++)
        model_state_init(&stream->states[i]);
}

static void stream_close(struct stream *stream)
{
    scene_close(&stream->scene);
    free(stream->states);
}

/* Open a stream that is closed where its block ends. */
#define STREAM(name, ...)                       \
    CLOSED_BY(stream_close) struct stream name; \
    stream_open(&name, __VA_ARGS__)

/* ---- One step ---- */

static void move_clock(struct stream *stream, int64_t by_us)
{
    int64_t now_us = stream->scene.now_us;
    if (by_us > 0)
        stream->scene.now_us = by_us > WEIR_MAX_TIME_US - now_us ? WEIR_MAX_TIME_US : now_us + by_us;
    else
        stream->scene.now_us = now_us + by_us < 1 ? 1 : now_us + by_us;
}

static int64_t step_back_by_chance(struct chance *chance)
{
    switch (chance_between(chance, 0, 4)) {
    case 0: return 1;
    case 1: return WEIR_CLOCK_SLACK_US + chance_between(chance, -1, 1);
    case 2: return chance_magnitude(chance, WEIR_MAX_PERIOD_US);
    default: return chance_magnitude(chance, WEIR_CLOCK_SLACK_US);
    }
}

/* Keep, creep, wait about as long as the last decision said, leap, or sometimes step back. */
static void move_clock_by_chance(struct stream *stream, bool steps_back)
{
    struct chance *chance = &stream->chance;
    int64_t period_us = (int64_t)stream->rule.period_us > 0 ? stream->policy.period_us : 1;
    switch (chance_between(chance, 0, 15)) {
    case 0:
        if (steps_back)
            move_clock(stream, -step_back_by_chance(chance));
        break;
    case 1: move_clock(stream, chance_magnitude(chance, 366 * WEIR_DAY)); break;
    case 2: move_clock(stream, stream->last.reset_after_us + chance_between(chance, -1, 1)); break;
    case 3:
    case 4:
        if (stream->last.retry_after_us > 0)
            move_clock(stream, stream->last.retry_after_us + chance_between(chance, -1, 1));
        break;
    case 5: move_clock(stream, chance_magnitude(chance, period_us)); break;
    case 6: move_clock(stream, chance_between(chance, 0, 2) * period_us); break;
    case 7: move_clock(stream, chance_between(chance, 0, 3)); break;
    case 8:
    case 9: move_clock(stream, chance_between(chance, 0, period_us / (2 * stream->policy.limit) + 1)); break;
    case 10: move_clock(stream, chance_between(chance, 0, period_us)); break;
    default: break;
    }
}

static int64_t cost_by_chance(struct stream *stream)
{
    struct chance *chance = &stream->chance;
    int64_t cost = 1;
    switch (chance_between(chance, 0, 9)) {
    case 0: cost = stream->last.remaining; break;
    case 1: cost = stream->last.remaining + 1; break;
    case 2: cost = stream->rule.size + chance_between(chance, -1, 1); break;
    case 3: cost = permits_by_chance(chance); break;
    case 4:
    case 5: cost = chance_between(chance, 1, stream->rule.size / 3 + 1); break;
    case 6: cost = chance_between(chance, 1, 3); break;
    default: break;
    }
    return cost < 1 ? 1 : cost > WEIR_MAX_PERMITS ? WEIR_MAX_PERMITS : cost;
}

static void compare(struct stream *stream, const char *verb, int key, int64_t cost, const struct weir_decision *actual,
                    const struct weir_decision *expected)
{
    if (memcmp(actual, expected, sizeof *actual) != 0)
        assert_decision_is(actual, expected, where(stream, verb, key, cost));
    stream->decisions[kind_of(&stream->policy)]++;
    stream->with_former += model_state_has_former(&stream->states[key]);
    stream->last = *actual;
}

static void take(struct stream *stream, int key, int64_t cost)
{
    struct weir_decision actual, expected;
    const struct weir_request request = {
        .limit = stream->limit, .key = weir_key_text(key_names[key]), .cost = cost, .now_us = stream->scene.now_us
    };
    memset(&actual, 0xa5, sizeof actual);
    model_decide(&stream->states[key], &stream->rule, MODEL_TAKE, cost, stream->scene.now_us, &expected);
    if (chance_one_in(&stream->chance, 2))
        must_succeed(weir_try(stream->limit, request.key, cost, &actual));
    else
        must_succeed(weir_try_batch(stream->scene.limiter, &request, 1, &actual));
    compare(stream, "take", key, cost, &actual, &expected);
}

static void peek(struct stream *stream, int key, int64_t cost)
{
    struct weir_decision actual, expected;
    memset(&actual, 0xa5, sizeof actual);
    model_decide(&stream->states[key], &stream->rule, MODEL_PEEK, cost, stream->scene.now_us, &expected);
    must_succeed(weir_peek(stream->limit, weir_key_text(key_names[key]), cost, &actual));
    compare(stream, "peek", key, cost, &actual, &expected);
}

static void refund(struct stream *stream, int key, int64_t cost)
{
    struct weir_decision unused;
    model_decide(&stream->states[key], &stream->rule, MODEL_REFUND, cost, stream->scene.now_us, &unused);
    must_succeed(weir_refund(stream->limit, weir_key_text(key_names[key]), cost));
    peek(stream, key, 1);
}

static void charge(struct stream *stream, int key, int64_t cost)
{
    struct weir_decision decision;
    model_decide(&stream->states[key], &stream->rule, MODEL_CHARGE, cost, stream->scene.now_us, &decision);
    must_succeed(weir_charge(stream->limit, weir_key_text(key_names[key]), cost));
    peek(stream, key, 1);
}

static void reset(struct stream *stream, int key)
{
    struct weir_decision unused;
    model_decide(&stream->states[key], &stream->rule, MODEL_RESET, 1, stream->scene.now_us, &unused);
    must_succeed(weir_reset(stream->limit, weir_key_text(key_names[key])));
    peek(stream, key, 1);
}

static void step(struct stream *stream, enum kind home, bool steps_back)
{
    struct chance *chance = &stream->chance;
    int key = chance_one_in(chance, 4) ? (int)chance_between(chance, 1, KEYS - 1) : 0;
    move_clock_by_chance(stream, steps_back);
    int64_t verb = chance_between(chance, 0, 199);
    if (verb == 0 || (stream->restless && chance_one_in(chance, 12)))
        define_by_chance(stream,
                         chance_one_in(chance, 2) ? home : (enum kind)chance_between(chance, 0, KIND_COUNT - 1));
    else if (verb == 1)
        reset(stream, key);
    else if (verb < 15)
        refund(stream, key, cost_by_chance(stream));
    else if (verb < 19) /* seldom much: an overdrawn key denies for long */
        charge(stream, key,
               chance_one_in(chance, 10)
                   ? cost_by_chance(stream)
                   : chance_between(chance, 1, min_of(stream->rule.size, WEIR_MAX_PERMITS / 2) + 1));
    else if (verb < 45)
        peek(stream, key, cost_by_chance(stream));
    else
        take(stream, key, cost_by_chance(stream));
}

/* ---- Each algorithm against the model ---- */

static void decide_as_the_model(enum kind kind)
{
    int64_t goal = steps_or(1000000);
    int64_t decided = 0, with_former = 0;
    for (uint64_t number = 0; decided < goal; number++) {
        STREAM(stream, number * KIND_COUNT + (uint64_t)kind, &model_alone, true);
        define_by_chance(&stream, kind);
        for (int i = 0; i < STREAM_LENGTH; i++)
            step(&stream, kind, true);
        decided += stream.decisions[kind];
        with_former += stream.with_former;
    }
    ck_assert_int_ge(decided, goal);
    ck_assert_int_gt(with_former, goal / 50);
}

TEST(greedy_token_bucket_decides_as_the_model, 120)
{
    decide_as_the_model(KIND_GREEDY);
}

TEST(interval_token_bucket_decides_as_the_model, 120)
{
    decide_as_the_model(KIND_INTERVAL);
}

TEST(fixed_window_decides_as_the_model, 120)
{
    decide_as_the_model(KIND_FIXED);
}

TEST(sliding_window_decides_as_the_model, 120)
{
    decide_as_the_model(KIND_SLIDING);
}

TEST(leaky_bucket_decides_as_the_model, 120)
{
    decide_as_the_model(KIND_LEAKY);
}

/* Return a random share: with equal weights, known weights, or one weight of an unknown total. */
static struct model_share share_by_chance(struct chance *chance, int64_t *weights)
{
    struct model_share share = { .instances = chance_between(chance, 1, 6), .weight = 1 };
    bool unequal = chance_one_in(chance, 3), unknown = chance_one_in(chance, 3);
    share.rank = chance_between(chance, 0, share.instances - 1);
    for (int64_t i = 0; i < share.instances; i++) {
        weights[i] = unequal ? chance_between(chance, 1, chance_one_in(chance, 2) ? 5 : 65535) : 1;
        share.total += weights[i];
    }
    share.weight = weights[share.rank];
    share.weights = unequal && !unknown ? weights : NULL;
    return share;
}

TEST(a_share_of_any_limit_decides_as_the_model, 120)
{
    int64_t goal = steps_or(500000);
    int64_t decided = 0, with_former = 0;
    for (uint64_t number = 0; decided < goal; number++) {
        struct chance chance = chance_make(1000000 + number);
        int64_t weights[6];
        struct model_share share = share_by_chance(&chance, weights);
        enum kind kind = (enum kind)(number % KIND_COUNT);
        STREAM(stream, 1000000 + number, &share, true);
        define_by_chance(&stream, kind);
        for (int i = 0; i < STREAM_LENGTH / 4; i++)
            step(&stream, kind, true);
        for (int i = 0; i < KIND_COUNT; i++)
            decided += stream.decisions[i];
        with_former += stream.with_former;
    }
    ck_assert_int_ge(decided, goal);
    ck_assert_int_gt(with_former, goal / 50);
}

/* The model keeps every key for ever. No decision may reveal that the limiter drops idle keys. */
TEST(keys_that_are_dropped_change_no_decision, 120)
{
    int64_t goal = steps_or(250000);
    int64_t decided = 0, with_former = 0;
    uint64_t evictions = 0;
    for (uint64_t number = 0; decided < goal; number++) {
        char other[32];
        enum kind kind = (enum kind)(number % KIND_COUNT);
        STREAM(stream, 2000000 + number, &model_alone, false);
        define_by_chance(&stream, kind);
        for (int i = 0; i < STREAM_LENGTH; i++) {
            step(&stream, kind, false);
            snprintf(other, sizeof other, "passer-by %d", i); /* takes room and is soon idle */
            struct weir_decision decision;
            must_succeed(weir_try(stream.limit, weir_key_text(other), 1, &decision));
            must_succeed(weir_refund(stream.limit, weir_key_text(other), 1));
        }
        struct weir_stats stats = stats_of(stream.scene.limiter);
        evictions += stats.evictions;
        for (int i = 0; i < KIND_COUNT; i++)
            decided += stream.decisions[i];
        with_former += stream.with_former;
    }
    ck_assert_uint_gt(evictions, 0);
    ck_assert_int_gt(with_former, goal / 50);
}

/* ---- Several limits at once ---- */

enum { LIMITS = 4, POLICIES = 3, REQUESTS_MOST = 6 };

/* Return the number of keys with a former use. */
static int try_several(struct stream *streams, struct scene *scene, struct chance *chance)
{
    struct weir_request requests[REQUESTS_MOST];
    struct model_request model_requests[REQUESTS_MOST];
    size_t n = (size_t)chance_between(chance, 1, REQUESTS_MOST);
    for (size_t i = 0; i < n; i++) {
        struct stream *stream = &streams[chance_between(chance, 0, LIMITS - 1)];
        int key = (int)chance_between(chance, 0, KEYS - 1);
        int64_t cost = chance_one_in(chance, 8) ? permits_by_chance(chance) : chance_between(chance, 1, 3);
        requests[i] = (struct weir_request){ .limit = stream->limit,
                                             .key = weir_key_text(key_names[key]),
                                             .cost = cost };
        model_requests[i] = (struct model_request){ &stream->states[key], &stream->rule, cost };
    }
    struct weir_decision actual, expected;
    memset(&actual, 0xa5, sizeof actual);
    model_decide_all(model_requests, n, scene->now_us, &expected);
    must_succeed(weir_try_all(scene->limiter, requests, n, &actual));
    assert_decision_is(&actual, &expected, "several limits at once");
    int with_former = 0;
    for (size_t i = 0; i < n; i++)
        with_former += model_state_has_former(model_requests[i].state);
    return with_former;
}

/* Return one of the three policies between which the limit alternates. */
static void another_policy(struct stream *stream, const struct weir_policy *policies, struct scene *scene,
                           struct chance *chance)
{
    stream->policy = policies[chance_between(chance, 0, POLICIES - 1)];
    must(model_rule_make(&stream->policy, &model_alone, &stream->rule), "a policy that was tried");
    scene_define(scene, weir_limit_name(stream->limit), &stream->policy);
}

TEST(groups_over_several_limits_decide_as_the_model, 60)
{
    int64_t goal = steps_or(100000), with_former = 0;
    for (uint64_t number = 0; goal > 0; number++) {
        struct chance chance = chance_make(3000000 + number);
        struct stream streams[LIMITS];
        stream_open(&streams[0], 4000000 + number, &model_alone, true);
        struct scene *scene = &streams[0].scene;
        struct weir_policy policies[LIMITS][POLICIES];
        for (int i = 0; i < LIMITS; i++) {
            char name[32];
            snprintf(name, sizeof name, "limit-%d", i);
            if (i > 0) {
                streams[i] = (struct stream){ .states = calloc(KEYS, sizeof(struct model_state)) };
                for (int key = 0; key < KEYS; key++)
                    model_state_init(&streams[i].states[key]);
            }
            for (int p = 0; p < POLICIES; p++) {
                do {
                    policies[i][p] = policy_by_chance(&chance, (enum kind)chance_between(&chance, 0, KIND_COUNT - 1));
                } while (!model_rule_make(&policies[i][p], &model_alone, &streams[i].rule));
            }
            streams[i].limit = scene_define(scene, name, &policies[i][POLICIES - 1]);
        }
        for (int i = 0; i < 500; i++, goal--) {
            if (chance_one_in(&chance, 2))
                scene->now_us += chance_magnitude(&chance, chance_one_in(&chance, 5) ? WEIR_DAY : WEIR_SECOND);
            if (chance_one_in(&chance, 20)) /* within the clock's slack and beyond */
                scene->now_us -= chance_magnitude(&chance, 3 * WEIR_CLOCK_SLACK_US);
            scene->now_us = scene->now_us > WEIR_MAX_TIME_US ? WEIR_MAX_TIME_US : scene->now_us < 1 ? 1 : scene->now_us;
            if (number % 2 == 0 && chance_one_in(&chance, 5)) {
                int which = (int)chance_between(&chance, 0, LIMITS - 1);
                another_policy(&streams[which], policies[which], scene, &chance);
            }
            with_former += try_several(streams, scene, &chance);
        }
        for (int i = LIMITS - 1; i > 0; i--)
            free(streams[i].states);
        stream_close(&streams[0]);
    }
    ck_assert_int_gt(with_former, steps_or(100000) / 50);
}

/* ---- Waits against their definition ---- */

static struct weir_decision peek_after(struct stream *stream, int64_t wait_us, int64_t cost)
{
    struct weir_decision decision;
    stream->scene.now_us += wait_us;
    must_succeed(weir_peek(stream->limit, weir_key_text(key_names[0]), cost, &decision));
    stream->scene.now_us -= wait_us;
    return decision;
}

/* Assert that the key is admitted at retry_after and fresh at reset_after, and not one microsecond earlier. */
static void check_waits(struct stream *stream, int64_t cost)
{
    const struct weir_decision last = stream->last;
    const int64_t longest_us = WEIR_MAX_TIME_US - stream->scene.now_us;
    bool right = true;
    if (!last.allowed && last.retry_after_us != WEIR_NEVER && last.retry_after_us <= longest_us) {
        right = last.retry_after_us > 0 && !peek_after(stream, last.retry_after_us - 1, cost).allowed &&
                peek_after(stream, last.retry_after_us, cost).allowed;
        stream->waits_checked++;
    }
    if (last.reset_after_us > 0 && last.reset_after_us <= longest_us) {
        struct weir_decision before = peek_after(stream, last.reset_after_us - 1, cost);
        struct weir_decision then = peek_after(stream, last.reset_after_us, cost);
        right = right && before.remaining < before.limit && before.reset_after_us == 1 &&
                then.remaining == then.limit && then.reset_after_us == 0;
    }
    if (!right)
        ck_abort_msg("told to wait %" PRId64 " us, and %" PRId64 " us until it is new: %s", last.retry_after_us,
                     last.reset_after_us, where(stream, "take", 0, cost));
}

static void wait_exactly(enum kind kind)
{
    int64_t goal = steps_or(100000);
    int64_t checked = 0;
    for (uint64_t number = 0; checked < goal; number++) {
        STREAM(stream, 5000000 + number * KIND_COUNT + (uint64_t)kind, &model_alone, true);
        define_by_chance(&stream, kind);
        for (int i = 0; i < STREAM_LENGTH; i++) {
            int64_t cost = cost_by_chance(&stream);
            move_clock_by_chance(&stream, true);
            must_succeed(weir_try(stream.limit, weir_key_text("a"), cost, &stream.last));
            check_waits(&stream, cost);
        }
        checked += stream.waits_checked;
    }
    ck_assert_int_ge(checked, goal);
}

TEST(greedy_token_bucket_gives_the_wait_to_the_microsecond, 60)
{
    wait_exactly(KIND_GREEDY);
}

TEST(interval_token_bucket_gives_the_wait_to_the_microsecond, 60)
{
    wait_exactly(KIND_INTERVAL);
}

TEST(fixed_window_gives_the_wait_to_the_microsecond, 60)
{
    wait_exactly(KIND_FIXED);
}

TEST(sliding_window_gives_the_wait_to_the_microsecond, 60)
{
    wait_exactly(KIND_SLIDING);
}

TEST(leaky_bucket_gives_the_wait_to_the_microsecond, 60)
{
    wait_exactly(KIND_LEAKY);
}

/* ---- Documented promises ---- */

/* A bucket that never fills admits exactly its size plus rate times time. */
TEST(greedy_bucket_loses_no_permit_in_a_thousand_million_periods, 60)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit",
                                          "token_bucket limit=1000003 period=999983us burst=500000000");
    struct chance chance = chance_make(7);
    const int64_t start_us = scene.now_us;
    int64_t admitted = 0;
    for (int i = 0; i < 4000000; i++) {
        struct weir_decision there = peeked(limit, "a", 1);
        if (there.remaining > 0) {
            must(taken(limit, "a", there.remaining).allowed, "what remains is admitted");
            admitted += there.remaining;
        }
        scene.now_us += chance_between(&chance, 0, 499000000);
    }
    scene.now_us += 1; /* less than one tick: the last peek shows what the loop left */
    const wide elapsed_us = scene.now_us - start_us;
    admitted += peeked(limit, "a", 1).remaining;
    ck_assert_int_gt((int64_t)(elapsed_us / 999983), 900000000);
    ck_assert_int_eq(admitted, (int64_t)(500000000 + elapsed_us * 1000003 / 999983));
}

struct admission {
    int64_t now_us, cost;
};

TEST(a_sliding_window_never_admits_more_than_its_limit_in_any_period, 30)
{
    static const char *const policies[] = { "sliding_window limit=10 period=1s",
                                            "sliding_window limit=7 period=997us blocks=3",
                                            "sliding_window limit=1000 period=1m blocks=60",
                                            "sliding_window limit=5 period=10us blocks=1",
                                            "sliding_window limit=100 period=1s blocks=1024" };
    enum { TRIES = 20000 };
    static struct admission admissions[TRIES];
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        struct weir_policy policy = policy_of(policies[p]);
        struct chance chance = chance_make(100 + p);
        OPEN_SCENE(scene, NULL);
        weir_limit *limit = scene_define(&scene, "limit", &policy);
        int64_t in_window = 0, busiest = 0;
        size_t count = 0, oldest = 0;
        for (int i = 0; i < TRIES; i++) {
            scene.now_us += chance_one_in(&chance, 2 * policy.limit)
                                ? chance_between(&chance, 0, policy.period_us)
                                : chance_between(&chance, 0, policy.period_us / policy.limit);
            int64_t cost = chance_between(&chance, 1, 3);
            if (!taken(limit, "a", cost).allowed)
                continue;
            admissions[count++] = (struct admission){ scene.now_us, cost };
            in_window += cost;
            while (admissions[oldest].now_us <= scene.now_us - policy.period_us)
                in_window -= admissions[oldest++].cost;
            busiest = in_window > busiest ? in_window : busiest;
        }
        ck_assert_int_eq(busiest, policy.limit);
    }
}

/* The policies refill 10 permits a second and hold at most 100. A jumping clock may bring back the rate times the sum
 * of its forward steps; a clock that trembles within the slack, the rate times its highest reading. */
static void mint_nothing(const char *const *texts, size_t count, bool trembles)
{
    for (uint64_t number = 0; number < 200; number++) {
        struct chance chance = chance_make(200 + number);
        OPEN_SCENE(scene, OPTIONS(.keep_idle = true));
        weir_limit *limit = scene_define_text(&scene, "limit", texts[0]);
        const int64_t start_us = scene.now_us - WEIR_CLOCK_SLACK_US;
        int64_t admitted = 0, forward_us = WEIR_CLOCK_SLACK_US;
        for (int i = 0; i < 2000; i++) {
            int64_t most_us = trembles ? WEIR_SECOND : chance_one_in(&chance, 9) ? WEIR_HOUR : 5 * WEIR_SECOND;
            int64_t by_us = chance_magnitude(&chance, most_us);
            bool back = !trembles && chance_one_in(&chance, 2);
            forward_us += back ? 0 : by_us;
            scene.now_us += back ? -by_us : by_us;
            if (trembles)
                scene.now_us = start_us + forward_us - chance_between(&chance, 0, WEIR_CLOCK_SLACK_US);
            if (chance_one_in(&chance, 4))
                limit = scene_define_text(&scene, "limit", texts[chance_between(&chance, 0, (int64_t)count - 1)]);
            int64_t cost = chance_between(&chance, 1, 40);
            admitted += taken(limit, "a", cost).allowed ? cost : 0;
        }
        must(admitted <= 100 + forward_us / 100000, "a clock that steps back mints permits");
    }
}

TEST(a_clock_step_back_admits_no_extra_permit, 60)
{
    static const char *const greedy[] = { "token_bucket limit=10 period=1s burst=100" };
    static const char *const interval[] = { "token_bucket limit=1 period=100ms refill=interval burst=100" };
    static const char *const leaky[] = { "leaky_bucket limit=10 period=1s capacity=100" };
    for (int trembles = 0; trembles < 2; trembles++) {
        mint_nothing(greedy, 1, trembles != 0);
        mint_nothing(interval, 1, trembles != 0);
        mint_nothing(leaky, 1, trembles != 0);
    }
}

TEST(a_redefinition_while_the_clock_is_held_admits_no_extra_permit, 30)
{
    static const char *const policies[] = { "token_bucket limit=10 period=1s burst=100",
                                            "leaky_bucket limit=10 period=1s capacity=100",
                                            "token_bucket limit=10 period=1s burst=90 debt=9" };
    mint_nothing(policies, 3, false);
    mint_nothing(policies, 3, true);
}

TEST(an_empty_bucket_is_full_exactly_when_its_reset_after_says, 30)
{
    static const char *const policies[] = {
        "token_bucket limit=1 period=366d",
        "token_bucket limit=1 period=1us",
        "leaky_bucket limit=3 period=7us",
        "token_bucket limit=1000000000 period=1us",
        "leaky_bucket limit=999999937 period=1d capacity=1000000",
        "token_bucket limit=5 period=1m refill=interval burst=12 debt=3",
        "fixed_window limit=9 period=1h align=epoch",
        "sliding_window limit=9 period=1d blocks=24",
        "token_bucket limit=7 period=13s burst=1000000 debt=1000000",
        "token_bucket limit=86400 period=1s burst=200000000",
        "leaky_bucket limit=1 period=86400s capacity=10000",
    };
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        OPEN_SCENE(scene, OPTIONS(.keep_idle = true));
        weir_limit *limit = scene_define_text(&scene, "limit", policies[p]);
        int64_t size = peeked(limit, "a", 1).limit;
        int64_t first = size < WEIR_MAX_PERMITS ? size : WEIR_MAX_PERMITS;
        struct weir_decision used = taken(limit, "a", first);
        ck_assert_msg(used.allowed && used.remaining == size - first && used.reset_after_us > 0, "%s", policies[p]);
        const int64_t start_us = scene.now_us;
        for (int64_t idle_us = 1; idle_us <= 366 * WEIR_DAY; idle_us = idle_us * 3 / 2 + 1) {
            scene.now_us = start_us + idle_us;
            struct weir_decision then = peeked(limit, "a", 1);
            bool is_new = then.remaining == size && then.reset_after_us == 0;
            ck_assert_msg(is_new == (idle_us >= used.reset_after_us), "%s after %" PRId64 " us", policies[p], idle_us);
        }
    }
}

/* ---- States alone: what the sweep and a change of policy read from them ---- */

/* Peek at `now_us`, which lies before the state's latest time only if `is_held`. */
static void state_tells(const struct weir_plan *plan, const int64_t *state, int64_t now_us, bool is_held)
{
    int64_t copy[STATE_MAX_WORDS], at_us = now_us;
    struct weir_decision told, again;
    memcpy(copy, state, state_words(plan) * sizeof *state);
    must(!state_decide(plan, copy, now_us, 1, WEIR_PEEK, &told), "a peek changes nothing");
    must(memcmp(copy, state, state_words(plan) * sizeof *state) == 0, "nor does it write");
    const int64_t used = state_used(plan, state, &at_us);
    must(used == plan->size - told.remaining, "what is used is what does not remain");
    must(is_held ? at_us >= now_us && at_us <= now_us + WEIR_CLOCK_SLACK_US : at_us == now_us,
         "only a clock that is held moves the time of it, and by no more than the slack");
    if (!is_held && used > 0)
        must(state_fresh_at_us(plan, state) == now_us + told.reset_after_us, "it is as new when it says so");
    if (!is_held && used == 0)
        must(told.reset_after_us == 0 && state_fresh_at_us(plan, state) <= now_us, "it is as new already");
    state_charge(plan, copy, at_us, used);
    state_decide(plan, copy, now_us, 1, WEIR_PEEK, &again);
    must(again.remaining == told.remaining && again.allowed == told.allowed, "one charged with that has used as much");
}

TEST(a_state_tells_its_use_and_its_idle_time_as_decisions_do, 30)
{
    const int64_t goal = steps_or(100000);
    int64_t held = 0;
    struct chance chance = chance_make(3000000);
    for (int64_t steps = 0; steps < goal;) {
        const struct weir_policy policy = policy_by_chance(&chance,
                                                           (enum kind)chance_between(&chance, 0, KIND_COUNT - 1));
        struct weir_plan plan;
        int64_t state[STATE_MAX_WORDS], now_us = INT64_C(1790000000123456), latest_us = now_us;
        struct weir_decision out;
        if (plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }) != WEIR_OK)
            continue;
        state_charge(&plan, state, now_us, 0);
        must(state_fresh_at_us(&plan, state) == 0, "nothing used, nothing to wait for");
        state_charge(&plan, state, now_us, chance_one_in(&chance, 2) ? 0 : permits_by_chance(&chance));
        for (int i = 0; i < 200; i++, steps++) {
            const bool is_held = now_us < latest_us;
            state_tells(&plan, state, now_us, is_held);
            held += is_held;
            if (is_held) {
                now_us = latest_us; /* forward again: the unchanged state is compared at its own time */
                continue;
            }
            const enum weir_verb verb = chance_one_in(&chance, 8) ? WEIR_REFUND : WEIR_TAKE;
            state_decide(&plan, state, now_us, chance_magnitude(&chance, plan.size), verb, &out);
            const bool steps_back = state_fresh_at_us(&plan, state) > now_us && chance_one_in(&chance, 8);
            now_us += steps_back ? -chance_between(&chance, 1, WEIR_CLOCK_SLACK_US)
                                 : chance_magnitude(&chance, 2 * policy.period_us);
            latest_us = steps_back ? latest_us : now_us;
        }
    }
    ck_assert_int_gt(held, goal / 50);
}

/* For every algorithm: after a step back by the slack time stands still; after a larger one the state is rebased. */
TEST(a_clock_that_stepped_back_by_the_slack_is_held_and_by_more_is_not, 10)
{
    static const char *const policies[] = { "token_bucket limit=10 period=1s", "leaky_bucket limit=10 period=1s",
                                            "token_bucket limit=10 period=1s refill=interval",
                                            "fixed_window limit=10 period=1s",
                                            "sliding_window limit=10 period=500ms blocks=1" };
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        const struct weir_policy policy = policy_of(policies[p]);
        const int64_t then_us = 1000 * WEIR_SECOND, held_us = then_us - WEIR_CLOCK_SLACK_US;
        struct weir_plan plan;
        struct weir_decision out;
        must_succeed(plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }));
        for (int64_t more_us = 0; more_us < 2; more_us++) {
            int64_t state[STATE_MAX_WORDS], at_us = held_us - more_us;
            state_charge(&plan, state, then_us, plan.size);
            ck_assert_int_eq(state_used(&plan, state, &at_us), plan.size);
            ck_assert_msg(at_us == (more_us ? held_us - 1 : then_us), "%s", policies[p]);
            const bool changed = state_decide(&plan, state, held_us - more_us, 1, WEIR_TAKE, &out);
            ck_assert(!out.allowed && changed == (more_us > 0));
            at_us = held_us - more_us;
            ck_assert_int_eq(state_used(&plan, state, &at_us), plan.size);
            ck_assert_msg(at_us == (more_us ? held_us - 1 : then_us), "%s", policies[p]);
        }
    }
}

/* Two keys get the same takes. One of them also leases permits and returns them while their block counts: afterwards
 * no request can tell it from the other. */
TEST(a_sliding_window_that_got_a_lease_back_is_as_if_it_had_never_been_charged, 30)
{
    enum { EPISODES = 300, ACTS = 12 };
    struct chance chance = chance_make(31);
    for (int episode = 0; episode < EPISODES; episode++) {
        const struct weir_policy policy = { .algorithm = WEIR_SLIDING_WINDOW,
                                            .limit = 1000,
                                            .period_us = 1000,
                                            .blocks = (int32_t)chance_between(&chance, 1, 10) };
        int64_t leased[STATE_MAX_WORDS], plain[STATE_MAX_WORDS], now_us = 1000000, at_us[ACTS], permits[ACTS];
        struct weir_decision out;
        struct weir_plan plan;
        must_succeed(plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }));
        state_charge(&plan, leased, now_us, 0);
        state_charge(&plan, plain, now_us, 0);
        for (int i = 0; i < ACTS; i++) {
            now_us += chance_between(&chance, 0, plan.period_us / 2);
            const int64_t cost = chance_between(&chance, 1, 20);
            state_decide(&plan, leased, now_us, cost, WEIR_TAKE, &out);
            state_decide(&plan, plain, now_us, cost, WEIR_TAKE, &out);
            at_us[i] = now_us;
            permits[i] = chance_between(&chance, 0, 20);
            state_decide(&plan, leased, now_us, permits[i], WEIR_TAKE, &out);
        }
        for (int i = 0; i < ACTS; i++)
            state_return(&plan, leased, NULL, now_us, at_us[i], permits[i], &out);
        for (int i = 0; i < 50; i++, now_us += plan.period_us / 3) {
            int64_t held_us = now_us;
            ck_assert_int_eq(state_used(&plan, leased, &held_us), state_used(&plan, plain, &held_us));
            ck_assert_int_eq(state_fresh_at_us(&plan, leased), state_fresh_at_us(&plan, plain));
        }
    }
}

/* A return whose block has fewer permits than it brings, or counts no longer, gives back no permit of a newer block. */
TEST(a_sliding_window_gives_a_lease_back_from_its_block_and_older_ones, 10)
{
    const struct weir_policy policy = policy_of("sliding_window limit=100 period=1s blocks=4");
    int64_t state[STATE_MAX_WORDS], block_us = 250 * 1000, start_us = 1000 * WEIR_SECOND;
    struct weir_plan plan;
    struct weir_decision out;
    must_succeed(plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }));
    state_charge(&plan, state, start_us, 10);
    state_decide(&plan, state, start_us + block_us, 20, WEIR_TAKE, &out);
    state_decide(&plan, state, start_us + 2 * block_us, 30, WEIR_TAKE, &out);
    ck_assert(state_return(&plan, state, NULL, start_us + 2 * block_us, start_us + block_us, 25, &out));
    ck_assert_int_eq(out.remaining, 100 - (10 - 5) - 30);
    state_return(&plan, state, NULL, start_us + 2 * block_us, start_us + 3 * block_us, 25,
                 &out); /* a clock that went back */
    ck_assert_int_eq(out.remaining, 100 - (10 - 5) - 30);
    state_return(&plan, state, NULL, start_us + 5 * block_us, start_us, 25, &out); /* come back by themselves */
    ck_assert_int_eq(out.remaining, 100 - 30);
    state_return(&plan, state, NULL, start_us + 6 * block_us, start_us + 2 * block_us, 30, &out);
    ck_assert(out.allowed && out.remaining == 100 && out.reset_after_us == 0);
}
