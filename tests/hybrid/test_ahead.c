/* test_ahead.c - charges ahead of use, in the core and in memory: they equal one take after another. */
#include "core/algorithm/algorithm.h"
#include "core/api/verbs.h"
#include "core/ground/arith.h"
#include "core/limiter/limiter.h"
#include "core/policy/plan.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>

static struct weir_plan plan_by_chance(struct chance *chance, enum kind kind)
{
    const struct message none = { NULL, 0 };
    for (;;) {
        struct weir_policy policy = policy_by_chance(chance, kind);
        struct weir_plan plan;
        if (chance_one_in(chance, 2)) {
            policy.limit = chance_between(chance, 1, 30);
            policy.burst = policy.debt = policy.capacity = 0;
        }
        if (plan_make(&policy, &share_whole, &plan, none) == WEIR_OK)
            return plan;
    }
}

static int64_t ahead_by_chance(struct chance *chance, int64_t size)
{
    return min_of(WEIR_MAX_PERMITS, chance_one_in(chance, 4) ? chance_magnitude(chance, WEIR_MAX_PERMITS)
                                                             : chance_between(chance, 1, size));
}

static uint32_t spread_by_chance(struct chance *chance)
{
    if (chance_one_in(chance, 8))
        return (uint32_t)chance_between(chance, 1, WEIR_MAX_SPREAD);
    return (uint32_t)chance_between(chance, 1, chance_one_in(chance, 2) ? 1 : 20);
}

/* Move the clock forward by steps that matter to the plan, or back, within the slack and beyond. */
static int64_t time_by_chance(struct chance *chance, int64_t now_us, int64_t scale_us)
{
    switch (chance_between(chance, 0, 9)) {
    case 0: now_us -= chance_between(chance, 1, WEIR_CLOCK_SLACK_US); break;
    case 1: now_us -= chance_one_in(chance, 4) ? WEIR_CLOCK_SLACK_US + chance_between(chance, 0, scale_us) : 0; break;
    case 2:
    case 3: now_us += chance_between(chance, 0, scale_us); break;
    case 4: now_us += chance_magnitude(chance, 2 * scale_us); break;
    default: break;
    }
    return max_of(0, min_of(now_us, WEIR_MAX_TIME_US));
}

static int64_t scale_of(const struct weir_plan *plan)
{
    if (plan->p > 0)
        return div_up(plan->size * plan->q, plan->p) * plan->tick_us;
    return plan->period_us * (plan->blocks + 1);
}

/* ---- The expected result ---- */

/* Compute the expected answer with takes of a twin of the key. */
typedef void taker(void *twin, int64_t cost, struct weir_decision *out);

/* The number of each outcome. */
struct tally {
    int64_t denied, granted, whole, none;
};

static struct weir_decision expect(taker *take, void *twin, int64_t size, int64_t cost, int64_t ahead, uint32_t spread,
                                   struct tally *tally)
{
    struct weir_decision first, second;
    take(twin, cost > 0 ? cost : size + 1, &first);
    if (cost > 0 && !first.allowed) {
        tally->denied++;
        return first;
    }
    const int64_t granted = min_of(ahead, first.remaining / spread);
    tally->whole += granted == ahead;
    tally->none += granted == 0;
    if (granted == 0) {
        first.allowed = true;
        first.retry_after_us = 0;
        return first;
    }
    tally->granted++;
    take(twin, granted, &second);
    must(second.allowed, "what is left fits");
    if (cost > 0)
        second.delay_us = first.delay_us;
    second.ahead = granted;
    return second;
}

static void must_have_come_to_each(const struct tally *tally, int64_t least)
{
    must(tally->denied >= least && tally->granted >= least && tally->whole >= least && tally->none >= least,
         "hardly any of some outcome: the test says little");
}

/* ---- The core ---- */

struct core_twin {
    const struct weir_plan *plan;
    int64_t state[STATE_MAX_WORDS];
    int64_t now_us;
    bool changed;
};

static void core_take(void *user, int64_t cost, struct weir_decision *out)
{
    struct core_twin *twin = user;
    if (state_decide(twin->plan, twin->state, twin->now_us, cost, WEIR_TAKE, out))
        twin->changed = true;
}

TEST(charging_in_advance_equals_a_take_plus_a_second_take_of_what_fits, 60)
{
    struct chance chance = chance_make(1);
    struct tally tally = { 0 };
    const int64_t steps = steps_or(300000);
    struct weir_plan plan = { 0 };
    struct core_twin twin = { .plan = &plan };
    int64_t state[STATE_MAX_WORDS];
    char where[200];
    for (int64_t step = 0; step < steps; step++) {
        if (step % 60 == 0) {
            plan = plan_by_chance(&chance, (enum kind)(step / 60 % KIND_COUNT));
            twin.now_us = INT64_C(1790000000123456);
            state_charge(&plan, state, twin.now_us, 0);
        }
        const size_t bytes = state_words(&plan) * sizeof *state;
        const int64_t cost = chance_one_in(&chance, 3) ? 0 : chance_between(&chance, 1, plan.size + 1);
        const int64_t ahead = ahead_by_chance(&chance, plan.size);
        const uint32_t spread = spread_by_chance(&chance);
        struct weir_decision decision, expected;
        twin.now_us = time_by_chance(&chance, twin.now_us, scale_of(&plan));
        snprintf(where, sizeof where,
                 "step %" PRId64 ", size %" PRId64 ": cost %" PRId64 " ahead %" PRId64 " spread %" PRIu32, step,
                 plan.size, cost, ahead, spread);
        memcpy(twin.state, state, bytes);
        twin.changed = false;
        expected = expect(core_take, &twin, plan.size, cost, ahead, spread, &tally);
        expected.age_us = expected.allowed ? twin.now_us : 0;
        const bool changed = state_take_ahead(&plan, state, twin.now_us, cost, ahead, spread, &decision);
        assert_decision_is(&decision, &expected, where);
        must(changed == twin.changed, "it says whether the state was changed");
        must(memcmp(state, twin.state, bytes) == 0, "the states are the same");
        must(decision.allowed || decision.ahead == 0, "what is denied is granted nothing");
        int64_t at_us = twin.now_us;
        must(state_used(&plan, state, &at_us) <= plan.size, "never more than there is");
        if (chance_one_in(&chance, 8))
            state_decide(&plan, state, twin.now_us, chance_between(&chance, 1, plan.size), WEIR_REFUND, &decision);
    }
    must_have_come_to_each(&tally, steps / 100);
}

/* A step back beyond the slack rebases the state even without a charge; otherwise it would stand still. */
TEST(a_request_that_is_granted_nothing_still_moves_the_state_when_the_clock_does, 10)
{
    static const char *const texts[KIND_COUNT] = { "token_bucket limit=5 period=1h",
                                                   "token_bucket limit=5 period=1h refill=interval",
                                                   "fixed_window limit=5 period=1h", "sliding_window limit=5 period=1h",
                                                   "leaky_bucket limit=5 period=1h" };
    for (int i = 0; i < KIND_COUNT; i++) {
        const struct weir_policy policy = policy_of(texts[i]);
        const struct message none = { NULL, 0 };
        int64_t state[STATE_MAX_WORDS], then_us = 100 * WEIR_DAY, back_us = then_us - WEIR_DAY;
        struct weir_decision decision;
        struct weir_plan plan;
        must_succeed(plan_make(&policy, &share_whole, &plan, none));
        state_charge(&plan, state, then_us, 5);
        ck_assert(!state_take_ahead(&plan, state, then_us - WEIR_CLOCK_SLACK_US, 0, 3, 1, &decision));
        ck_assert(state_take_ahead(&plan, state, back_us, 0, 3, 1, &decision));
        ck_assert(decision.allowed && decision.ahead == 0 && decision.remaining == 0 && decision.delay_us == 0);
        ck_assert_int_le(state_fresh_at_us(&plan, state), back_us + 2 * WEIR_HOUR);
    }
}

/* ---- The memory backend ---- */

/* Lease from a key, and let its twin know only of the permits that are used. After the rest has gone back, the key must
 * never hold less than its twin: otherwise more could be used than the limit allows. */
TEST(giving_leased_permits_back_leaves_at_least_the_used_ones_charged, 60)
{
    struct chance chance = chance_make(7);
    int64_t returned = 0;
    for (int run = 0; run < 20000; run++) {
        /* Not interval refill: the twin's intervals begin at other times. */
        static const enum kind kinds[] = { KIND_GREEDY, KIND_FIXED, KIND_SLIDING };
        const struct weir_plan plan = plan_by_chance(&chance, kinds[run % 3]);
        struct weir_decision decision, unused;
        int64_t state[STATE_MAX_WORDS] = { 0 }, twin[STATE_MAX_WORDS] = { 0 };
        int64_t now_us = INT64_C(1790000000123456) + chance_between(&chance, 0, 10 * WEIR_SECOND);
        state_charge(&plan, state, now_us, 0);
        state_charge(&plan, twin, now_us, 0);
        const int64_t before = chance_between(&chance, 1, plan.size);
        if (state_decide(&plan, state, now_us, before, WEIR_TAKE, &unused))
            state_decide(&plan, twin, now_us, before, WEIR_TAKE, &unused);
        now_us += chance_between(&chance, 0, scale_of(&plan) / 4);
        state_take_ahead(&plan, state, now_us, 0, plan.size, spread_by_chance(&chance), &decision);
        const int64_t since_us = decision.age_us, used = chance_between(&chance, 0, decision.ahead);
        must(since_us == now_us, "it says when it has charged");
        if (used > 0)
            state_decide(&plan, twin, now_us, used, WEIR_TAKE, &unused);
        bool gives = decision.ahead > used;
        for (int step = 0; step < 12; step++) {
            now_us += chance_between(&chance, 0, scale_of(&plan) / chance_between(&chance, 1, 40));
            const int64_t cost = chance_between(&chance, 1, plan.size / 2 + 1);
            if (gives && chance_one_in(&chance, 3)) {
                state_return(&plan, state, NULL, now_us, since_us, decision.ahead - used, &unused);
                gives = false;
                returned++;
            } else if (state_decide(&plan, state, now_us, cost, WEIR_TAKE, &unused) && unused.allowed) {
                must(state_decide(&plan, twin, now_us, cost, WEIR_TAKE, &unused) && unused.allowed,
                     "what is admitted fits what was used");
            }
            int64_t at_us = now_us, twin_us = now_us;
            must(state_used(&plan, state, &at_us) >= state_used(&plan, twin, &twin_us), "no less than was used");
        }
    }
    ck_assert_int_gt(returned, 5000);
}

/* Two keys of one limiter: one is charged ahead, the other is its twin. */
struct pair {
    struct scene scene;
    struct weir_backend *memory;
    weir_limit *limit;
    int64_t cold_since_us;
};

static const char *const pair_keys[2] = { "asked", "twin" };

static struct weir_backend_request pair_request(const struct pair *pair, int key, int64_t cost, enum weir_verb verb)
{
    struct weir_backend_request request = backend_request(pair->limit, weir_key_text(pair_keys[key]), cost,
                                                          pair->scene.now_us, verb);
    request.cold_since_us = pair->cold_since_us;
    return request;
}

static void pair_decide(struct pair *pair, const struct weir_backend_request *request, struct weir_decision *out)
{
    must_succeed(pair->memory->ops->decide(pair->memory, request, 1, false, INT64_MAX, out));
}

static void pair_take(void *user, int64_t cost, struct weir_decision *out)
{
    const struct weir_backend_request request = pair_request(user, 1, cost, WEIR_TAKE);
    pair_decide(user, &request, out);
}

static void pair_define(struct pair *pair, struct chance *chance, enum kind kind)
{
    for (;;) {
        struct weir_policy policy = policy_by_chance(chance, kind);
        pair->scene.log_allowed = true;
        int error = weir_limit_define(pair->scene.limiter, "limit", &policy, &pair->limit);
        pair->scene.log_allowed = false;
        if (!error)
            return;
    }
}

static void pair_open(struct pair *pair)
{
    const struct weir_options options = { .size = sizeof options, .keep_idle = true };
    memset(pair, 0, sizeof *pair);
    scene_open(&pair->scene, &options);
    pair->memory = pair->scene.limiter->backend;
}

static void pair_step(struct pair *pair, struct chance *chance, struct tally *tally)
{
    struct weir_plan plan;
    struct weir_decision decision, expected;
    struct weir_backend_request request = pair_request(pair, 0, 0, WEIR_TAKE);
    weir_request_plan(&request, &plan);
    pair->scene.now_us = request.now_us = time_by_chance(chance, pair->scene.now_us, scale_of(&plan));
    if (chance_one_in(chance, 6)) {
        request.verb = (uint8_t)chance_between(chance, WEIR_PEEK, WEIR_RESET);
        request.cost = request.verb == WEIR_RESET ? 1 : chance_between(chance, 1, plan.size);
        pair_decide(pair, &request, &decision);
        request = pair_request(pair, 1, request.cost, request.verb);
        pair_decide(pair, &request, &expected);
    } else {
        request.cost = chance_one_in(chance, 3) ? 0 : chance_between(chance, 1, plan.size + 1);
        request.ahead = ahead_by_chance(chance, plan.size);
        request.spread = (uint16_t)spread_by_chance(chance);
        pair_decide(pair, &request, &decision);
        expected = expect(pair_take, pair, plan.size, request.cost, request.ahead, request.spread, tally);
        expected.age_us = expected.allowed ? request.now_us : 0;
    }
    assert_decision_is(&decision, &expected, "of a key that was charged ahead, and its twin");
    struct weir_stats stats = stats_of(pair->scene.limiter);
    must(stats.keys % 2 == 0, "both keys are there, or none");
}

TEST(memory_charges_existing_fresh_cold_and_replanned_keys_in_advance, 60)
{
    struct chance chance = chance_make(2);
    struct tally tally = { 0 };
    const int64_t steps = steps_or(200000);
    for (int64_t done = 0; done < steps;) {
        const enum kind kind = (enum kind)(done / 100 % KIND_COUNT);
        struct pair pair;
        pair_open(&pair);
        pair_define(&pair, &chance, kind);
        pair.cold_since_us = chance_one_in(&chance, 3) ? pair.scene.now_us : -1;
        for (int i = 0; i < 100; i++, done++) {
            if (chance_one_in(&chance, 30))
                pair_define(&pair, &chance, (enum kind)chance_between(&chance, 0, KIND_COUNT - 1));
            pair_step(&pair, &chance, &tally);
        }
        scene_close(&pair.scene);
    }
    must_have_come_to_each(&tally, steps / 100);
}

TEST(a_key_granted_nothing_takes_no_room_and_one_without_room_gets_no_permits, 10)
{
    const struct weir_options options = { .size = sizeof options, .max_keys = 1 };
    OPEN_SCENE(scene, &options);
    struct weir_backend *memory = scene.limiter->backend;
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    struct weir_backend_request request = backend_request(limit, weir_key_text("a"), 0, scene.now_us, WEIR_TAKE);
    struct weir_stats stats = { .size = sizeof stats };
    struct weir_decision decision;
    request.ahead = 5;
    request.spread = 11;
    must_succeed(memory->ops->decide(memory, &request, 1, false, INT64_MAX, &decision));
    ck_assert(decision.allowed && decision.ahead == 0 && decision.remaining == 10 && decision.reset_after_us == 0);
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_int_eq(stats.keys, 0);

    request.spread = 2;
    must_succeed(memory->ops->decide(memory, &request, 1, false, INT64_MAX, &decision));
    ck_assert(decision.allowed && decision.ahead == 5 && decision.remaining == 5);
    request = backend_request(limit, weir_key_text("b"), 0, scene.now_us, WEIR_TAKE);
    request.ahead = 5;
    request.spread = 1;
    must_succeed(memory->ops->decide(memory, &request, 1, false, INT64_MAX, &decision));
    ck_assert(decision.allowed && decision.ahead == 0 && decision.retry_after_us == 0);
    ck_assert_int_eq(decision.source, WEIR_BY_FULL);
    request.cost = 1;
    must_succeed(memory->ops->decide(memory, &request, 1, false, INT64_MAX, &decision));
    ck_assert(!decision.allowed && decision.ahead == 0 && decision.retry_after_us > 0);
}
