/* decisions.c - the decision core against the naive model: any policies, shares, clocks and verbs, field by field.
 *
 * The input is a story. It chooses the instance's share, then steps of a few bytes each: define or redefine a limit,
 * perhaps with a former policy, also at the moment when the former use equals the present one; change the share; move
 * the clock, also back; take, peek, refund, reserve, settle, renew and reset; groups and batches. Each decision must
 * equal the model's to the last byte, and a policy must be refused exactly when the model refuses it.
 */
#include "fuzz.h"
#include "set_share.h"

#include "core/ground/arith.h"
#include "core/limiter/limiter.h"
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LIMITS = 3, KEYS = 3, EARLIER = 3, REQUESTS = 6, INSTANCES = 6, HELD = 3 };
static const char *const key_names[KEYS] = { "a", "another", "{third}" };

struct subject {
    weir_limit *limit; /* NULL: not defined yet */
    struct weir_policy policy, earlier[EARLIER];
    size_t earlier_count;
    struct model_rule rule;
    struct model_state states[KEYS];
    struct weir_reservation held[KEYS][HELD]; /* permits above 0: not settled yet */
};

static struct story {
    struct feed feed;
    weir *limiter;
    int64_t now_us;
    struct model_share share;
    int64_t weights[INSTANCES];
    bool steps_back;
    struct weir_decision last;
    struct subject subjects[LIMITS];
} story;

static int64_t story_clock(void *user)
{
    return ((struct story *)user)->now_us;
}

/* ---- Shares and policies ---- */

static struct model_share share_by_feed(int64_t weights[INSTANCES])
{
    const uint8_t shape = feed_byte(&story.feed);
    struct model_share share = { .instances = shape % INSTANCES + 1 };
    share.rank = feed_between(&story.feed, 0, share.instances - 1);
    for (int64_t i = 0; i < share.instances; i++) {
        weights[i] = shape & 8 ? feed_magnitude(&story.feed, SHARE_MAX_WEIGHT) : 1;
        share.total += weights[i];
    }
    share.weight = weights[share.rank];
    share.weights = (shape & 24) == 8 ? weights : NULL;
    return share;
}

/* Return false if it is refused; the limit is then unchanged. */
static bool define_as(struct subject *subject, const struct weir_policy *policy)
{
    static const char *const names[LIMITS] = { "api", "api-2", "login" };
    struct model_rule rule;
    bool right = model_rule_make(policy, &model_alone, &rule);
    fuzz_must(weir_policy_check(policy, NULL, 0) == (right ? WEIR_OK : WEIR_EINVAL),
              "a policy is refused exactly where the model refuses it");
    right = right && model_rule_make(policy, &story.share, &rule);
    const int error = weir_limit_define(story.limiter, names[subject - story.subjects], policy,
                                        right ? &subject->limit : NULL);
    fuzz_must(error == (right ? WEIR_OK : WEIR_EINVAL), "a share of a policy is refused exactly where the model does");
    if (!right)
        return false;
    subject->policy = *policy;
    subject->rule = rule;
    return true;
}

static void define(struct subject *subject)
{
    const uint8_t choice = feed_byte(&story.feed);
    struct weir_policy policy;
    if (choice % 2 == 1 && subject->earlier_count > 0)
        policy = subject->earlier[choice / 2 % subject->earlier_count];
    else
        policy = feed_policy(&story.feed);
    if (!define_as(subject, &policy))
        return;
    subject->earlier[choice % EARLIER] = policy;
    subject->earlier_count += subject->earlier_count < EARLIER && choice % EARLIER == subject->earlier_count;
}

/* Return the limit's policy, reduced, and slowed even more. */
static struct weir_policy smaller_policy(const struct subject *subject)
{
    struct weir_policy policy = subject->policy;
    const int64_t part = feed_byte(&story.feed) + 1, times = feed_byte(&story.feed) % 8 + 1;
    policy.period_us = min_of(WEIR_MAX_PERIOD_US, policy.period_us * times);
    int64_t *size = policy.algorithm == WEIR_TOKEN_BUCKET   ? &policy.burst
                    : policy.algorithm == WEIR_LEAKY_BUCKET ? &policy.capacity
                                                            : &policy.limit;
    *size = max_of(1, (*size > 0 ? *size : policy.limit) * part / 256);
    policy.debt = 0;
    return policy;
}

/* Use another share if every limit has exact arithmetic under it. test_shares.c covers the other case. */
static void another_share(void)
{
    int64_t weights[INSTANCES];
    struct model_share share = share_by_feed(weights);
    struct model_rule rules[LIMITS];
    for (int i = 0; i < LIMITS; i++)
        if (story.subjects[i].limit && !model_rule_make(&story.subjects[i].policy, &share, &rules[i]))
            return;
    memcpy(story.weights, weights, sizeof weights);
    if (share.weights)
        share.weights = story.weights;
    story.share = share;
    const struct share put = { .weight = share.weight,
                               .total = share.total,
                               .rank = share.rank,
                               .count = share.instances,
                               .weights = share.weights };
    fuzz_must(limiter_set_share(story.limiter, &put) == WEIR_OK, "a share can be put into force");
    for (int i = 0; i < LIMITS; i++)
        if (story.subjects[i].limit)
            story.subjects[i].rule = rules[i];
}

/* ---- Steps ---- */

static void pass_us(int64_t by_us)
{
    const int64_t to_us = story.now_us + by_us;
    story.now_us = to_us < 1 ? 1 : to_us > WEIR_MAX_TIME_US ? WEIR_MAX_TIME_US : to_us;
}

static void move_clock(int64_t period_us)
{
    int64_t by_us = 0;
    const uint8_t choice = feed_byte(&story.feed);
    switch (choice % 8) {
    case 0: by_us = feed_magnitude(&story.feed, 366 * WEIR_DAY); break;
    case 1: by_us = story.last.reset_after_us + feed_between(&story.feed, -1, 1); break;
    case 2: by_us = story.last.retry_after_us + feed_between(&story.feed, -1, 1); break;
    case 3: by_us = feed_between(&story.feed, 0, period_us); break;
    case 4: by_us = feed_byte(&story.feed) % 3 * period_us; break;
    case 5: by_us = feed_byte(&story.feed); break;
    case 6: by_us = -feed_magnitude(&story.feed, WEIR_CLOCK_SLACK_US + 1); break;
    default: by_us = -feed_magnitude(&story.feed, WEIR_MAX_PERIOD_US); break;
    }
    pass_us(by_us < 0 && !story.steps_back ? 0 : by_us);
}

static int64_t cost_for(const struct subject *subject)
{
    int64_t cost = 1;
    const uint8_t choice = feed_byte(&story.feed);
    switch (choice % 8) {
    case 0: cost = story.last.remaining; break;
    case 1: cost = story.last.remaining + 1; break;
    case 2: cost = subject->rule.size + feed_between(&story.feed, -1, 1); break;
    case 3: cost = feed_magnitude(&story.feed, WEIR_MAX_PERMITS); break;
    case 4: cost = subject->rule.size / 3; break;
    case 5: cost = choice / 8; break;
    default: break;
    }
    return cost < 1 ? 1 : cost > WEIR_MAX_PERMITS ? WEIR_MAX_PERMITS : cost;
}

static void compare(const struct subject *subject, const char *verb, const struct weir_decision *actual,
                    const struct weir_decision *expected)
{
    char policy[320] = "?", where[480];
    if (memcmp(actual, expected, sizeof *actual) != 0) {
        weir_policy_print(&subject->policy, policy, sizeof policy);
        snprintf(where, sizeof where, "%s, share %" PRId64 "/%" PRId64 ", at %" PRId64 " us, %s", policy,
                 story.share.weight, story.share.total, story.now_us, verb);
        fuzz_same_decision(actual, expected, where);
    }
    story.last = *actual;
}

/* Settle a reservation for less, renew it, or make one in its place. */
static void reservation_verb(struct subject *subject, int key, uint8_t choice)
{
    struct weir_reservation *held = &subject->held[key][choice % HELD];
    struct model_state *state = &subject->states[key];
    const struct weir_key name = weir_key_text(key_names[key]);
    const bool has_some = held->permits > 0 && held->at_us > 0, settles = choice & 8 && has_some;
    const int64_t since_us = held->at_us, permits = held->permits, cost = has_some ? permits : cost_for(subject);
    struct weir_decision actual, expected;
    memset(&actual, 0xa5, sizeof actual);
    if (settles) {
        const int64_t used = feed_between(&story.feed, 0, cost - 1);
        fuzz_must(weir_settle(subject->limit, name, held, used) == WEIR_OK, "a reservation is settled");
        held->permits = 0;
        model_return(state, &subject->rule, cost - used, since_us, story.now_us, &expected);
        model_decide(state, &subject->rule, MODEL_PEEK, 1, story.now_us, &expected);
        fuzz_must(weir_peek(subject->limit, name, 1, &actual) == WEIR_OK, "a peek is decided");
    } else {
        if (has_some)
            model_renew(state, &subject->rule, cost, since_us, story.now_us, &expected);
        else
            model_decide(state, &subject->rule, MODEL_TAKE, cost, story.now_us, &expected);
        fuzz_must(weir_renew(subject->limit, name, cost, &actual, held) == WEIR_OK, "a reservation is made or renewed");
        fuzz_must(held->permits == (expected.allowed ? cost : permits), "it has what it took, or had");
        fuzz_must(held->at_us == (expected.allowed ? model_noted_us(state, story.now_us) : since_us), "it knows when");
    }
    compare(subject, settles ? "settle" : has_some ? "renew" : "reserve", &actual, &expected);
}

static void one_verb(struct subject *subject, int key, uint8_t choice)
{
    if (choice >= 192) {
        reservation_verb(subject, key, choice);
        return;
    }
    static const enum model_verb verbs[] = { MODEL_TAKE,   MODEL_TAKE,  MODEL_TAKE,  MODEL_PEEK,
                                             MODEL_REFUND, MODEL_RESET, MODEL_CHARGE };
    const enum model_verb verb = verbs[choice % 7];
    const struct weir_key name = weir_key_text(key_names[key]);
    const int64_t cost = verb == MODEL_RESET ? 1 : cost_for(subject);
    struct weir_decision actual, expected;
    memset(&actual, 0xa5, sizeof actual);
    model_decide(&subject->states[key], &subject->rule, verb, cost, story.now_us, &expected);
    int error = WEIR_OK;
    struct weir_op op = { .request = { .limit = subject->limit, .key = name, .cost = cost } };
    switch (choice % 7) {
    case 0: error = weir_try(subject->limit, name, cost, &actual); break;
    case 1:
        error = weir_submit(story.limiter, &op);
        actual = op.decision;
        break;
    case 2: error = weir_try_batch(story.limiter, &op.request, 1, &actual); break;
    case 3: error = weir_peek(subject->limit, name, cost, &actual); break;
    case 4: error = weir_refund(subject->limit, name, cost); break;
    case 5: error = weir_reset(subject->limit, name); break;
    default: error = weir_charge(subject->limit, name, cost); break;
    }
    fuzz_must(error == WEIR_OK, "a request is decided");
    if (verb == MODEL_REFUND || verb == MODEL_RESET || verb == MODEL_CHARGE) {
        model_decide(&subject->states[key], &subject->rule, MODEL_PEEK, 1, story.now_us, &expected);
        fuzz_must(weir_peek(subject->limit, name, 1, &actual) == WEIR_OK, "a peek is decided");
    }
    compare(subject,
            verb == MODEL_RESET    ? "reset"
            : verb == MODEL_REFUND ? "refund"
            : verb == MODEL_CHARGE ? "charge"
                                   : "take or peek",
            &actual, &expected);
}

/* Make a group, or a batch whose requests may carry times. */
static void several(bool all)
{
    struct weir_request requests[REQUESTS];
    struct model_request model_requests[REQUESTS];
    struct weir_decision actual[REQUESTS], expected[REQUESTS];
    const struct subject *subjects[REQUESTS];
    const size_t n = (size_t)feed_between(&story.feed, 1, REQUESTS);
    for (size_t i = 0; i < n; i++) {
        const uint8_t choice = feed_byte(&story.feed);
        struct subject *subject = &story.subjects[choice % LIMITS];
        const int key = choice / LIMITS % KEYS;
        if (!subject->limit)
            return;
        subjects[i] = subject;
        requests[i] = (struct weir_request){ .limit = subject->limit,
                                             .key = weir_key_text(key_names[key]),
                                             .cost = cost_for(subject),
                                             .now_us = choice & 128 ? story.now_us : 0 };
        model_requests[i] = (struct model_request){ &subject->states[key], &subject->rule, requests[i].cost };
    }
    memset(actual, 0xa5, sizeof actual);
    if (all) {
        model_decide_all(model_requests, n, story.now_us, &expected[0]);
        fuzz_must(weir_try_all(story.limiter, requests, n, &actual[0]) == WEIR_OK, "several are decided");
        compare(subjects[0], "all or nothing", &actual[0], &expected[0]);
        return;
    }
    for (size_t i = 0; i < n; i++)
        model_decide(model_requests[i].state, model_requests[i].rule, MODEL_TAKE, model_requests[i].cost, story.now_us,
                     &expected[i]);
    fuzz_must(weir_try_batch(story.limiter, requests, n, actual) == WEIR_OK, "a batch is decided");
    for (size_t i = 0; i < n; i++)
        compare(subjects[i], "in a batch", &actual[i], &expected[i]);
}

/* Switch a key's limit to a smaller policy, then back when the use by both is equal, or after another request. */
static void there_and_back(struct subject *subject, int key)
{
    const struct weir_policy before = subject->policy;
    const struct weir_policy smaller = smaller_policy(subject);
    const uint8_t choice = feed_byte(&story.feed);
    one_verb(subject, key, choice & 7);
    define_as(subject, &smaller);
    one_verb(subject, key, choice / 8 & 7);
    pass_us(model_state_even_us(&subject->states[key], story.now_us) + (choice & 64 ? feed_byte(&story.feed) : 0));
    if (choice & 128)
        define(subject);
    else
        define_as(subject, &before);
    one_verb(subject, key, choice / 32);
}

static void step(void)
{
    const uint8_t choice = feed_byte(&story.feed);
    const int which = choice / 16 % LIMITS;
    struct subject *subject = &story.subjects[which];
    switch (choice % 16) {
    case 0: define(subject); return;
    case 1: another_share(); return;
    case 2:
    case 3:
    case 4:
    case 5: move_clock(subject->limit ? subject->policy.period_us : 1); return;
    case 6: several(true); return;
    case 7: several(false); return;
    default: break;
    }
    if (!subject->limit)
        define(subject);
    else if (choice % 16 == 8)
        there_and_back(subject, choice / 48 % KEYS);
    else
        one_verb(subject, choice / 48 % KEYS, feed_byte(&story.feed));
}

static void story_open(const uint8_t *data, size_t size)
{
    story.feed = feed_of(data, size);
    story.last = (struct weir_decision){ 0 };
    story.share = share_by_feed(story.weights);
    for (int i = 0; i < LIMITS; i++) {
        story.subjects[i].limit = NULL;
        story.subjects[i].earlier_count = 0;
        for (int key = 0; key < KEYS; key++)
            model_state_init(&story.subjects[i].states[key]);
        memset(story.subjects[i].held, 0, sizeof story.subjects[i].held);
    }
    const uint8_t choice = feed_byte(&story.feed);
    story.steps_back = choice & 1;
    story.now_us = choice & 2 ? feed_magnitude(&story.feed, WEIR_MAX_TIME_US) : INT64_C(1790000000123456);
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.now_us = story_clock;
    options.user = &story;
    options.keep_idle = story.steps_back;
    options.max_keys = 64;
    options.instances = story.share.instances;
    options.rank = story.share.rank;
    options.weight = story.share.weight;
    options.total_weight = story.share.total;
    options.weights = story.share.weights;
    fuzz_must(weir_open(&options, &story.limiter) == WEIR_OK, "a limiter opens");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    story_open(data, size);
    while (!feed_is_over(&story.feed))
        step();
    weir_close(story.limiter);
    return 0;
}
