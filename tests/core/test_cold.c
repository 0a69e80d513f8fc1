/* test_cold.c - compare the fallback with the exact model: in an outage every key is a bucket of its limit's size and
 * rate, and starts cold, as if all its permits had been taken when the outage began. */
#include "fake.h"
#include "model.h"

#include "core/limiter/limiter.h"
#include "core/limiter/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* An outage's beginning is rounded up to this by the core. */
enum { KEYS = 3, STREAM_LENGTH = 400, SINCE_UNIT_US = 64 };
static const char *const key_names[KEYS] = { "a", "b", "c" };

struct cold_key {
    struct model_state *state;
    bool is_there; /* otherwise cold, and *state means nothing */
};

struct stream {
    struct chance chance;
    struct fake fake;
    struct scene scene;
    struct model_share share;
    weir_limit *limit;
    struct weir_policy policy, earlier[2];
    struct model_rule rule; /* of the bucket that the fallback decides by */
    int64_t whole_size;
    struct cold_key keys[KEYS];
    int64_t since_us;
    struct weir_decision last;
    int64_t admitted, denied;
    int64_t splits; /* outages that a redefinition has ended */
    char where[512];
};

static const char *where(struct stream *stream, const char *verb, int key, int64_t cost)
{
    char policy[160] = "?";
    weir_policy_print(&stream->policy, policy, sizeof policy);
    snprintf(stream->where, sizeof stream->where,
             "%s, share %" PRId64 "/%" PRId64 ", cold since %" PRId64 ": %s %" PRId64 " of key %s at %" PRId64, policy,
             stream->share.weight, stream->share.total, stream->since_us, verb, cost, key_names[key],
             stream->scene.now_us);
    return stream->where;
}

/* Return the bucket of the same size and rate; where the model has no exact numbers for it, a little slower. */
static struct model_rule bucket_rule(const struct weir_policy *policy, const struct model_share *share)
{
    struct model_rule rule;
    struct weir_policy bucket = { .limit = policy->limit, .burst = policy->burst, .debt = policy->debt };
    if (policy->algorithm == WEIR_LEAKY_BUCKET) {
        bucket.algorithm = WEIR_LEAKY_BUCKET;
        bucket.capacity = policy->capacity;
    }
    static const int64_t ticks_us[] = { 1,       10,       100,      1000,      10000,      100000,
                                        1000000, 10000000, 60000000, 600000000, 3600000000, 86400000000 };
    for (size_t i = 0; i < sizeof ticks_us / sizeof *ticks_us; i++) {
        bucket.period_us = (policy->period_us + ticks_us[i] - 1) / ticks_us[i] * ticks_us[i];
        if (model_rule_make(&bucket, share, &rule))
            return rule;
    }
    ck_abort_msg("every policy has a bucket");
}

/* Define a random policy, sometimes an earlier one. */
static void define_by_chance(struct stream *stream, enum kind kind)
{
    for (;;) {
        struct weir_policy policy = policy_by_chance(&stream->chance, kind);
        if (stream->earlier[1].limit > 0 && !chance_one_in(&stream->chance, 3))
            policy = stream->earlier[chance_between(&stream->chance, 0, 1)];
        struct model_rule whole, rule;
        bool right = model_rule_make(&policy, &model_alone, &whole) && model_rule_make(&policy, &stream->share, &rule);
        int error = weir_limit_define(stream->scene.limiter, "limit", &policy, &stream->limit);
        must(error == (right ? WEIR_OK : WEIR_EINVAL), "refused unless both the whole and the share are possible");
        if (!right)
            continue;
        stream->earlier[1] = stream->earlier[0];
        stream->earlier[0] = stream->policy;
        stream->policy = policy;
        stream->rule = bucket_rule(&policy, &stream->share);
        stream->whole_size = whole.size;
        return;
    }
}

static void stream_open(struct stream *stream, uint64_t number, enum kind kind, bool keep_idle)
{
    static const struct model_share shares[] = { { 1, 0, 1, 1, NULL }, { 3, 1, 1, 3, NULL }, { 7, 6, 1, 7, NULL } };
    struct weir_options options = WEIR_OPTIONS_INIT;
    memset(stream, 0, sizeof *stream);
    stream->chance = chance_make(number);
    stream->share = shares[number % 3];
    options.keep_idle = keep_idle;
    options.outage_retry_us = WEIR_DAY;
    options.max_keys = 64;
    options.instances = stream->share.instances;
    options.rank = stream->share.rank;
    fake_init(&stream->fake);
    stream->fake.ops.shared = true;
    stream->fake.answer = WEIR_ETIME;
    fake_open(&stream->fake, &stream->scene, &options);
    stream->scene.now_us = chance_between(&stream->chance, 1, INT64_C(1) << 50);
    define_by_chance(stream, kind);
    for (int i = 0; i < KEYS; i++) {
        stream->keys[i].state = calloc(1, sizeof *stream->keys[i].state);
        ck_assert_ptr_nonnull(stream->keys[i].state);
    }
}

static void stream_close(struct stream *stream)
{
    scene_close(&stream->scene);
    for (int i = 0; i < KEYS; i++)
        free(stream->keys[i].state);
}

/* Open a stream that is closed where its block ends. */
#define STREAM(name, ...)                       \
    CLOSED_BY(stream_close) struct stream name; \
    stream_open(&name, __VA_ARGS__)

/* Return the model's state of a key before a request. */
static struct model_state *state_of(struct stream *stream, struct cold_key *key)
{
    int64_t now_us = stream->scene.now_us;
    if (stream->since_us == 0 || stream->since_us - now_us > WEIR_CLOCK_SLACK_US)
        stream->since_us = (now_us + SINCE_UNIT_US - 1) / SINCE_UNIT_US * SINCE_UNIT_US;
    /* After a redefinition an idle key counts as unknown. */
    if (key->is_there && !model_rule_same(&key->state->own.rule, &stream->rule) &&
        model_state_is_idle(key->state, now_us))
        key->is_there = false;
    if (!key->is_there)
        model_state_cool(key->state, &stream->rule, stream->since_us);
    return key->state;
}

/* `most_cost`: the greatest cost asked of one key. */
static void expect(struct stream *stream, const struct weir_decision *decision, struct weir_decision *expected,
                   const char *verb, int key, int64_t cost, int64_t most_cost)
{
    const bool is_never = expected->retry_after_us == WEIR_NEVER;
    if (is_never ? most_cost <= stream->whole_size : expected->retry_after_us > WEIR_DAY)
        expected->retry_after_us = WEIR_DAY;
    if (!expected->allowed) /* of two that wait a day, either may be named */
        expected->bound_by = decision->bound_by;
    expected->source = WEIR_BY_FALLBACK;
    expected->age_us = stream->scene.now_us > stream->since_us ? stream->scene.now_us - stream->since_us : 0;
    assert_decision_is(decision, expected, where(stream, verb, key, cost));
    stream->last = *decision;
}

static void take_and_compare(struct stream *stream, int i, int64_t cost)
{
    struct cold_key *key = &stream->keys[i];
    struct weir_decision decision, expected;
    struct model_state *state = state_of(stream, key);
    must_succeed(weir_try(stream->limit, weir_key_text(key_names[i]), cost, &decision));
    model_decide(state, &stream->rule, MODEL_TAKE, cost, stream->scene.now_us, &expected);
    expect(stream, &decision, &expected, "take", i, cost, cost);
    key->is_there = key->is_there || decision.allowed;
    stream->admitted += decision.allowed;
    stream->denied += !decision.allowed;
}

static void peek_and_compare(struct stream *stream, int i, int64_t cost)
{
    struct weir_decision decision, expected;
    static struct model_state before; /* a peek changes nothing, even where a take would drop the key */
    const bool was_there = stream->keys[i].is_there;
    before = *stream->keys[i].state;
    struct model_state *state = state_of(stream, &stream->keys[i]);
    must_succeed(weir_peek(stream->limit, weir_key_text(key_names[i]), cost, &decision));
    model_decide(state, &stream->rule, MODEL_PEEK, cost, stream->scene.now_us, &expected);
    expect(stream, &decision, &expected, "peek", i, cost, cost);
    *state = before;
    stream->keys[i].is_there = was_there;
}

/* Ask the fallback directly for what no caller can request from it. */
static struct weir_decision ask_memory(struct stream *stream, int i, int64_t cost, enum weir_verb verb)
{
    struct weir_backend *memory = stream->scene.limiter->fallback;
    struct weir_decision decision;
    const struct weir_backend_request request = {
        .limit = stream->limit,
        .key = weir_key_text(key_names[i]),
        .hash = key_hash(stream->limit, weir_key_text(key_names[i])),
        .cost = cost,
        .now_us = stream->scene.now_us,
        .plan_version = plan_cell_version(&stream->limit->local_plan),
        .cold_since_us = stream->since_us,
        .limit_id = stream->limit->id | (uint32_t)(1 + stream->splits) << 16, /* which outage it is */
        .verb = (uint8_t)verb,
    };
    must_succeed(memory->ops->decide(memory, &request, 1, false, INT64_MAX, &decision));
    return decision;
}

static void refund_and_compare(struct stream *stream, int i, int64_t cost)
{
    struct cold_key *key = &stream->keys[i];
    struct model_state *state = state_of(stream, key);
    struct weir_decision decision = ask_memory(stream, i, cost, WEIR_REFUND), expected;
    model_decide(state, &stream->rule, MODEL_REFUND, cost, stream->scene.now_us, &expected);
    assert_decision_is(&decision, &expected, where(stream, "refund", i, cost));
    key->is_there = !state->own.fresh || model_state_has_former(state); /* an idle key is dropped and is cold again */
}

static void reset_and_compare(struct stream *stream, int i)
{
    stream->keys[i].is_there = false;
    struct model_state *state = state_of(stream, &stream->keys[i]);
    struct weir_decision decision = ask_memory(stream, i, 1, WEIR_RESET), expected;
    model_decide(state, &stream->rule, MODEL_PEEK, 1, stream->scene.now_us, &expected);
    assert_decision_is(&decision, &expected, where(stream, "reset", i, 1));
}

static int64_t cost_by_chance(struct stream *stream)
{
    struct chance *chance = &stream->chance;
    int64_t cost = 1;
    switch (chance_between(chance, 0, 5)) {
    case 0: cost = stream->last.remaining; break;
    case 1: cost = stream->last.remaining + 1; break;
    case 2: cost = chance_magnitude(chance, stream->policy.limit); break;
    case 3: cost = chance_between(chance, 1, 5); break;
    default: break;
    }
    return cost < 1 ? 1 : cost > WEIR_MAX_PERMITS ? WEIR_MAX_PERMITS : cost;
}

static void move_clock_by_chance(struct stream *stream, bool steps_back)
{
    struct chance *chance = &stream->chance;
    int64_t by_us = 0;
    switch (chance_between(chance, 0, 11)) {
    case 0: by_us = steps_back ? -chance_magnitude(chance, 3 * WEIR_CLOCK_SLACK_US / 2) : 0; break;
    case 1: by_us = chance_magnitude(chance, stream->policy.period_us); break;
    case 2: by_us = stream->last.reset_after_us + chance_between(chance, -1, 1); break;
    case 3:
    case 4:
    case 5:
        by_us = stream->last.retry_after_us > 0 ? stream->last.retry_after_us + chance_between(chance, -1, 1) : 0;
        break;
    case 6: by_us = chance_between(chance, 0, stream->policy.period_us / (2 * stream->policy.limit) + 1); break;
    case 7: by_us = chance_between(chance, 0, 3); break;
    default: break;
    }
    int64_t now_us = stream->scene.now_us;
    stream->scene.now_us = by_us > WEIR_MAX_TIME_US - now_us ? WEIR_MAX_TIME_US
                           : now_us + by_us < 1              ? 1
                                                             : now_us + by_us;
}

TEST(a_cold_fallback_decides_as_the_model_with_every_algorithm, 120)
{
    int64_t streams = steps_or(400000) / STREAM_LENGTH, compared[2] = { 0, 0 };
    static struct stream stream;
    for (int64_t number = 0; number < streams; number++) {
        stream_open(&stream, (uint64_t)number, (enum kind)(number % KIND_COUNT), number % 2);
        for (int step = 0; step < STREAM_LENGTH; step++) {
            int key = (int)chance_between(&stream.chance, 0, KEYS - 1);
            if (chance_one_in(&stream.chance, 3))
                peek_and_compare(&stream, key, cost_by_chance(&stream));
            else
                take_and_compare(&stream, key, cost_by_chance(&stream));
            move_clock_by_chance(&stream, number % 2); /* beyond the slack the sweep matters: see keep_idle */
        }
        compared[0] += stream.denied;
        compared[1] += stream.admitted;
        ck_assert_uint_eq(stats_of(stream.scene.limiter).outages, 1);
        stream_close(&stream);
    }
    must(compared[0] > streams && compared[1] > streams, "both answers were compared often");
}

/* A policy with another plan ends the outage. The next one begins with the next request, cold. */
static void redefine_by_chance(struct stream *stream)
{
    struct weir_plan old, plan;
    if (stream->scene.now_us > WEIR_MAX_TIME_US - SINCE_UNIT_US) /* too late for another outage */
        return;
    plan_cell_read(&stream->limit->local_plan, &old);
    define_by_chance(stream, (enum kind)chance_between(&stream->chance, 0, KIND_COUNT - 1));
    plan_cell_read(&stream->limit->local_plan, &plan);
    if (plan.fingerprint == old.fingerprint)
        return;
    for (int i = 0; i < KEYS; i++)
        stream->keys[i].is_there = false;
    stream->since_us = 0;
    stream->splits++;
    peek_and_compare(stream, 0, 1);
}

/* A refund can leave a key idle before a cold key would be. Whether it still exists then depends on the sweep, so this
 * test keeps idle keys. */
TEST(refunds_and_redefinitions_in_an_outage_follow_the_model, 120)
{
    int64_t streams = steps_or(400000) / STREAM_LENGTH, admitted = 0, splits = 0;
    static struct stream stream;
    for (int64_t number = 0; number < streams; number++) {
        stream_open(&stream, 1000000 + (uint64_t)number, (enum kind)(number % KIND_COUNT), true);
        for (int step = 0; step < STREAM_LENGTH; step++) {
            int key = (int)chance_between(&stream.chance, 0, KEYS - 1);
            int what = (int)chance_between(&stream.chance, 0, 59);
            if (step == 0 || what > 30)
                take_and_compare(&stream, key, cost_by_chance(&stream));
            else if (what > 10)
                refund_and_compare(&stream, key, cost_by_chance(&stream));
            else if (what > 4)
                peek_and_compare(&stream, key, cost_by_chance(&stream));
            else if (what > 2)
                reset_and_compare(&stream, key);
            else
                redefine_by_chance(&stream);
            move_clock_by_chance(&stream, false);
        }
        admitted += stream.admitted;
        splits += stream.splits;
        ck_assert_uint_eq(stats_of(stream.scene.limiter).outages, 1 + (uint64_t)stream.splits);
        stream_close(&stream);
    }
    must(admitted > streams, "permits were taken often");
    must(splits > streams, "and limits redefined");
}

TEST(a_refund_without_room_is_lost_without_an_error, 30)
{
    STREAM(stream, 0, KIND_GREEDY, false);
    const struct weir_policy policy = policy_of("token_bucket limit=100 period=1h");
    must_succeed(weir_limit_define(stream.scene.limiter, "limit", &policy, &stream.limit));
    stream.rule = bucket_rule(&policy, &stream.share);
    taken(stream.limit, "a", 1);
    stream.since_us = stream.scene.now_us;
    stream.scene.now_us += WEIR_HOUR / 2 + SINCE_UNIT_US;
    for (int i = 0; i < 64; i++) { /* all the room there is */
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        must(taken(stream.limit, key, 1).allowed, "there is room");
    }
    struct weir_decision decision = ask_memory(&stream, 0, 10, WEIR_REFUND);
    ck_assert(decision.allowed && decision.source == WEIR_BY_MEMORY);
    ck_assert_int_eq(stats_of(stream.scene.limiter).keys, 64);
    ck_assert_uint_eq(stats_of(stream.scene.limiter).full, 0);
}

TEST(a_cold_fallback_decides_groups_as_the_model, 120)
{
    int64_t streams = steps_or(200000) / STREAM_LENGTH, allowed = 0, denied = 0;
    static struct stream stream;
    for (int64_t number = 0; number < streams; number++) {
        stream_open(&stream, 2000000 + (uint64_t)number, (enum kind)(number % KIND_COUNT), number % 2);
        for (int step = 0; step < STREAM_LENGTH; step++) {
            struct weir_request requests[KEYS + 1];
            struct model_request model_requests[KEYS + 1];
            struct weir_decision decision, expected;
            size_t n = (size_t)chance_between(&stream.chance, 1, KEYS + 1);
            int64_t costs[KEYS] = { 0 }, most_cost = 0;
            for (size_t i = 0; i < n; i++) {
                int key = (int)chance_between(&stream.chance, 0, KEYS - 1);
                int64_t cost = cost_by_chance(&stream);
                cost = cost > WEIR_MAX_PERMITS / 8 ? WEIR_MAX_PERMITS / 8 : cost;
                costs[key] += cost;
                most_cost = costs[key] > most_cost ? costs[key] : most_cost;
                requests[i] = (struct weir_request){ stream.limit, weir_key_text(key_names[key]), cost, 0 };
                model_requests[i] = (struct model_request){ state_of(&stream, &stream.keys[key]), &stream.rule, cost };
            }
            must_succeed(weir_try_all(stream.scene.limiter, requests, n, &decision));
            model_decide_all(model_requests, n, stream.scene.now_us, &expected);
            expect(&stream, &decision, &expected, "all", 0, (int64_t)n, most_cost);
            for (size_t i = 0; decision.allowed && i < n; i++)
                for (int key = 0; key < KEYS; key++)
                    if (stream.keys[key].state == model_requests[i].state)
                        stream.keys[key].is_there = true;
            allowed += decision.allowed;
            denied += !decision.allowed;
            move_clock_by_chance(&stream, false);
        }
        stream_close(&stream);
    }
    must(allowed > streams && denied > streams, "both answers were compared often");
}
