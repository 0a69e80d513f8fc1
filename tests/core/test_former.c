/* test_former.c - a limit whose policy or share changes back and forth admits no permit twice. */
#include "set_share.h"
#include "support.h"

#include "backends/memory/parts.h"
#include "core/limiter/limiter.h"
#include "core/limiter/own_ops.h"
#include "core/limiter/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Policies of one form and several sizes ---- */

enum { GREEDY, INTERVAL, FIXED, SLIDING, LEAKY, INTERVAL_GRID, FIXED_GRID, FORMS };
static const char *const forms[FORMS] = {
    [GREEDY] = "token_bucket limit=%d period=%s",
    [INTERVAL] = "token_bucket limit=%d period=%s refill=interval",
    [FIXED] = "fixed_window limit=%d period=%s",
    [SLIDING] = "sliding_window limit=%d period=%s",
    [LEAKY] = "leaky_bucket limit=%d period=%s",
    [INTERVAL_GRID] = "token_bucket limit=%d period=%s refill=interval align=epoch",
    [FIXED_GRID] = "fixed_window limit=%d period=%s align=epoch",
};

static weir_limit *define(struct scene *scene, const char *name, int form, int permits, const char *period)
{
    char text[128];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, forms[form], permits, period);
#pragma GCC diagnostic pop
    return scene_define_text(scene, name, text);
}

static int64_t remaining(weir_limit *limit)
{
    return peeked(limit, "key", 1).remaining;
}

/* Use all 100 permits of a limit, lower it to 50 and request the key once. */
static weir_limit *lowered(struct scene *scene, int form, const char *period)
{
    weir_limit *limit = define(scene, "limit", form, 100, period);
    must(taken(limit, "key", 100).allowed, "a fresh key has all its permits");
    define(scene, "limit", form, 50, period);
    must(!taken(limit, "key", 1).allowed && peeked(limit, "key", 1).limit == 50, "it holds less, and that is used");
    return limit;
}

/* ---- Looking inside ---- */

static struct weir_backend_request request_of(struct scene *scene, weir_limit *limit, int64_t cost)
{
    return (struct weir_backend_request){
        .limit = limit,
        .key = weir_key_text("key"),
        .hash = key_hash(limit, weir_key("key", 3)),
        .cost = cost,
        .now_us = scene->now_us,
        .plan_version = plan_cell_version(&limit->plan),
        .cold_since_us = -1,
        .limit_id = limit->id,
        .verb = WEIR_TAKE,
    };
}

static struct weir_decision decided(struct scene *scene, const struct weir_backend_request *request)
{
    struct weir_backend *backend = scene->limiter->backend;
    struct weir_decision decision;
    must_succeed(backend->ops->decide(backend, request, 1, false, INT64_MAX, &decision));
    return decision;
}

/* True if the key has an entry. An entry with a former state is never current. */
static bool is_there(struct scene *scene, weir_limit *limit, bool *has_former)
{
    const struct weir_backend_request request = request_of(scene, limit, 1);
    struct table *table = &((struct memory *)scene->limiter->backend)->table;
    struct shard *shard = table_shard(table, request.hash);
    lock_take(&shard->mutex);
    struct entry *entry = shard_find(table, shard, &request);
    const struct weir_plan *behind = entry ? rule_former(entry_rule(table, entry)) : NULL;
    *has_former = behind && behind_has_former(behind);
    const bool is_current = entry && rule_is_current(entry_rule(table, entry), &request);
    if (entry)
        entry_let_go(table, entry);
    lock_give(&shard->mutex);
    must(!*has_former || !is_current, "an entry with a former state is never current");
    return entry != NULL;
}

static bool has_former(struct scene *scene, weir_limit *limit)
{
    bool it_has;
    return is_there(scene, limit, &it_has) && it_has;
}

/* ---- Back and forth ---- */

/* Take all permits one by one. The meter, which always has the larger policy, must admit each of them. */
static int64_t take_all_metered(weir_limit *limit, weir_limit *meter)
{
    int64_t admitted = 0;
    for (; taken(limit, "key", 1).allowed; admitted++)
        must(taken(meter, "key", 1).allowed, "the larger policy alone would not have admitted this");
    return admitted;
}

static const int64_t flip_every_us[] = { 1000, 7000, 100000, 333333, WEIR_SECOND, 1500000, 2500000 };
enum { FLIPS = 1000, RATES = sizeof flip_every_us / sizeof flip_every_us[0], ASKS = 20 };

TEST_EACH(a_thousand_policy_flips_admit_no_more_than_the_larger_policy_alone, FORMS, 60)
{
    for (int rate = 0; rate < RATES; rate++) {
        int64_t admitted = 0;
        OPEN_SCENE(scene, NULL);
        weir_limit *meter = define(&scene, "meter", _i, 100, "1s"), *limit = NULL;
        for (int flip = 0; flip < FLIPS; flip++) {
            limit = define(&scene, "limit", _i, flip % 2 ? 50 : 100, "1s");
            for (int i = 0; i < ASKS; i++) {
                admitted += take_all_metered(limit, meter);
                scene.now_us += flip_every_us[rate] / ASKS;
            }
        }
        /* Each flip rounds up the used permits or reopens a window, so only slow flips leave permits. */
        must(admitted >= (flip_every_us[rate] > WEIR_SECOND ? 20 * FLIPS : 100), "it goes on admitting");
    }
}

TEST_EACH(windows_end_even_if_a_limit_flips_rapidly, FORMS, 60)
{
    int64_t admitted = 0;
    OPEN_SCENE(scene, NULL);
    for (int flip = 0; flip < 1000; flip++, scene.now_us += 160000) {
        weir_limit *limit = define(&scene, "limit", _i, flip % 2 ? 50 : 100, "1s");
        while (taken(limit, "key", 1).allowed)
            admitted++;
    }
    must(admitted >= 160 * 50, "the smaller policy alone would have admitted more");
}

TEST(three_alternating_policies_admit_no_more_than_the_largest_alone, 60)
{
    static const int permits[] = { 100, 60, 17 };
    for (int form = 0; form < FORMS; form++) {
        for (uint64_t number = 0; number < 20; number++) {
            struct chance chance = chance_make(number);
            OPEN_SCENE(scene, NULL);
            weir_limit *meter = define(&scene, "meter", form, 100, "1s");
            for (int flip = 0; flip < 300; flip++) {
                const int which = number % 2 ? flip % 3 : (int)chance_between(&chance, 0, 2);
                weir_limit *limit = define(&scene, "limit", form, permits[which], "1s");
                for (int64_t i = chance_between(&chance, 0, 5); i > 0; i--) {
                    take_all_metered(limit, meter);
                    scene.now_us += chance_magnitude(&chance, 400000);
                }
            }
        }
    }
}

/* Return the most that a policy admits in any window of `window_ms`. */
static int64_t most_in(int form, int64_t limit, int64_t window_ms)
{
    const int64_t begun = (window_ms + 999) / 1000;
    switch (form) {
    case GREEDY:
    case LEAKY: return limit + limit * window_ms / 1000;
    case SLIDING: return limit * begun;
    default: return limit * (begun + 1);
    }
}

enum { MOST_MS = INSTRUMENTED ? 8000 : 40000 };

/* Write the permits admitted in each millisecond while the limit alternates between two forms. */
static void admit(int larger, int smaller, int flip_ms, int *admitted)
{
    OPEN_SCENE(scene, NULL);
    scene.now_us = scene.now_us / WEIR_SECOND * WEIR_SECOND + 700000; /* not on the grid */
    weir_limit *limit = NULL;
    for (int ms = 0; ms < MOST_MS; ms++) {
        if (ms % flip_ms == 0)
            limit = define(&scene, "limit", ms / flip_ms % 2 ? smaller : larger, ms / flip_ms % 2 ? 50 : 100, "1s");
        admitted[ms] = 0;
        while (taken(limit, "key", 1).allowed)
            admitted[ms]++;
        scene.now_us += 1000;
    }
}

/* A full former state denies nothing. So with different forms the smaller policy may admit its permits on top of the
 * larger one's, but never a burst for each flip. */
TEST(flipping_between_algorithms_never_admits_more_than_both_policies_together, 120)
{
    static const int windows_ms[] = { 1, 10, 100, 500, 1000, 2000, 5000, 20000 }, flips_ms[] = { 1, 40, 333, 1500 };
    static int admitted[MOST_MS];
    for (int larger = 0; larger < FORMS; larger++) {
        for (int smaller = 0; smaller < FORMS; smaller++) {
            for (size_t f = 0; f < sizeof flips_ms / sizeof flips_ms[0]; f++) {
                admit(larger, smaller, flips_ms[f], admitted);
                for (size_t w = 0; w < sizeof windows_ms / sizeof windows_ms[0]; w++) {
                    int64_t most = most_in(larger, 100, windows_ms[w]), in_window = 0;
                    most += larger == smaller ? 0 : most_in(smaller, 50, windows_ms[w]);
                    for (int ms = 0; ms < MOST_MS; ms++) {
                        in_window += admitted[ms] - (ms >= windows_ms[w] ? admitted[ms - windows_ms[w]] : 0);
                        if (in_window > most)
                            ck_abort_msg("%s, %s, %d ms each: %" PRId64 " permits in %d ms, not %" PRId64,
                                         forms[larger], forms[smaller], flips_ms[f], in_window, windows_ms[w], most);
                    }
                }
            }
        }
    }
}

TEST_EACH(returning_to_the_former_policy_gives_no_fresh_burst, FORMS, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = lowered(&scene, _i, "1h");
    ck_assert(has_former(&scene, limit));
    for (int i = 0; i < 10; i++) {
        define(&scene, "limit", _i, 100, "1h");
        ck_assert_int_eq(remaining(limit), 0);
        ck_assert(!taken(limit, "key", 1).allowed);
        ck_assert(!has_former(&scene, limit));
        define(&scene, "limit", _i, 50, "1h");
        ck_assert_int_eq(remaining(limit), 0);
        ck_assert(!taken(limit, "key", 1).allowed);
        ck_assert(has_former(&scene, limit));
    }
    define(&scene, "limit", _i, 107, "1h");
    ck_assert_int_eq(remaining(limit), 7);
}

TEST_EACH(permits_that_fit_into_the_new_policy_leave_no_former_state, FORMS, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = define(&scene, "limit", _i, 100, "1h");
    ck_assert(taken(limit, "key", 50).allowed);
    define(&scene, "limit", _i, 51, "1h");
    ck_assert(taken(limit, "key", 1).allowed);
    ck_assert(!has_former(&scene, limit));
    define(&scene, "limit", _i, 50, "1h");
    ck_assert(!taken(limit, "key", 1).allowed);
    ck_assert(has_former(&scene, limit));
}

TEST(of_two_former_states_with_equal_use_the_older_one_is_kept, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=100 period=1h");
    ck_assert(taken(limit, "key", 100).allowed);
    scene_define_text(&scene, "limit", "fixed_window limit=50 period=1d");
    ck_assert(!taken(limit, "key", 1).allowed);
    scene.now_us += WEIR_HOUR / 2; /* each state has 50 permits in use */
    scene_define_text(&scene, "limit", "fixed_window limit=20 period=1d");
    ck_assert(!taken(limit, "key", 1).allowed);
    scene.now_us += WEIR_HOUR / 2; /* the first state is empty now */
    scene_define_text(&scene, "limit", "fixed_window limit=100 period=1d");
    ck_assert_int_eq(remaining(limit), 80);
}

/* The two cases below are the text of weir_limit_define() on redefinition. */
TEST(permits_that_fit_into_the_new_policy_refill_at_its_rate, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=100 period=100m");
    ck_assert(taken(limit, "key", 50).allowed);
    scene_define_text(&scene, "limit", "token_bucket limit=50 period=50s");
    ck_assert(!taken(limit, "key", 1).allowed);
    scene.now_us += 20 * WEIR_SECOND;
    ck_assert_int_eq(remaining(limit), 20);
    scene_define_text(&scene, "limit", "token_bucket limit=100 period=100m");
    ck_assert_int_eq(taken(limit, "key", 1).remaining, 69); /* the 30 still in use, not the 50 from before */
    scene.now_us += WEIR_MINUTE;
    ck_assert_int_eq(remaining(limit), 70);
}

TEST(clipped_permits_return_at_the_old_policys_rate, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=100 period=100m");
    ck_assert(taken(limit, "key", 90).allowed);
    scene_define_text(&scene, "limit", "token_bucket limit=50 period=50s");
    ck_assert(!taken(limit, "key", 1).allowed);
    scene.now_us += WEIR_MINUTE;
    ck_assert_int_eq(remaining(limit), 50); /* the new policy alone decides */
    ck_assert(taken(limit, "key", 5).allowed);
    scene_define_text(&scene, "limit", "token_bucket limit=100 period=100m");
    ck_assert_int_eq(remaining(limit), 6); /* of 90, one has returned in the minute, and five came */
    scene_define_text(&scene, "limit", "token_bucket limit=200 period=1h");
    ck_assert_int_eq(remaining(limit), 106); /* under a third policy, too */
}

/* ---- It denies nothing ---- */

/* Compare with another key that has taken all permits of the smaller policy at the change: every field must agree. */
TEST_EACH(a_lowered_limit_decides_as_if_the_key_had_used_exactly_all_its_permits, FORMS, 30)
{
    OPEN_SCENE(scene, NULL);
    struct chance chance = chance_make((uint64_t)_i);
    weir_limit *limit = define(&scene, "limit", _i, 1000, "1m");
    ck_assert(taken(limit, "busy", 1000).allowed);
    define(&scene, "limit", _i, 10, "1m");
    ck_assert(taken(limit, "other", 10).allowed);
    int64_t admitted = 0;
    for (int i = 0; i < 2000; i++) {
        const int64_t cost = chance_between(&chance, 1, 3);
        const struct weir_decision busy = taken(limit, "busy", cost), other = taken(limit, "other", cost);
        assert_decision_is(&busy, &other, forms[_i]);
        admitted += busy.allowed;
        scene.now_us += busy.allowed ? chance_between(&chance, 0, WEIR_SECOND) : busy.retry_after_us;
    }
    ck_assert_int_gt(admitted, 500);
}

TEST_EACH(a_former_state_without_used_permits_is_dropped, FORMS, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = lowered(&scene, _i, "1s");
    ck_assert(has_former(&scene, limit));
    scene.now_us += 2 * WEIR_SECOND;
    ck_assert(taken(limit, "key", 1).allowed); /* finds the former state empty */
    ck_assert(taken(limit, "key", 1).allowed); /* and drops it */
    ck_assert(!has_former(&scene, limit));
    ck_assert_int_eq(remaining(limit), 48);
    define(&scene, "limit", _i, 100, "1s");
    ck_assert_int_eq(remaining(limit), 98);
}

/* ---- The other verbs ---- */

TEST_EACH(a_reset_forgets_both_states, FORMS, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = lowered(&scene, _i, "1h");
    must_succeed(weir_reset(limit, weir_key_text("key")));
    ck_assert_int_eq(stats_of(scene.limiter).keys, 0);
    ck_assert_int_eq(remaining(limit), 50);
    define(&scene, "limit", _i, 100, "1h");
    ck_assert_int_eq(remaining(limit), 100);
}

TEST_EACH(a_refund_changes_both_states, FORMS, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = lowered(&scene, _i, "1h");
    must_succeed(weir_refund(limit, weir_key_text("key"), 20));
    ck_assert_int_eq(remaining(limit), 20);
    must_succeed(weir_refund(limit, weir_key_text("key"), 70));
    ck_assert_int_eq(remaining(limit), 50);
    ck_assert_int_eq(peeked(limit, "key", 1).reset_after_us, 0);
    ck_assert(has_former(&scene, limit)); /* the own state is empty, the former one is not */
    define(&scene, "limit", _i, 100, "1h");
    ck_assert_int_eq(taken(limit, "key", 89).remaining, 1);

    define(&scene, "limit", _i, 50, "1h");
    ck_assert(!taken(limit, "key", 1).allowed);
    ck_assert(has_former(&scene, limit));
    must_succeed(weir_refund(limit, weir_key_text("key"), 100)); /* both states are empty */
    ck_assert_int_eq(stats_of(scene.limiter).keys, 0);
}

TEST_EACH(a_denial_and_a_peek_charge_nothing_to_the_former_state, FORMS, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = define(&scene, "limit", _i, 100, "1h");
    ck_assert(taken(limit, "key", 70).allowed);
    define(&scene, "limit", _i, 50, "1h");
    for (int i = 0; i < 20; i++) {
        ck_assert(!taken(limit, "key", 1 + i % 60).allowed);
        ck_assert(!peeked(limit, "key", 1).allowed);
    }
    ck_assert(has_former(&scene, limit));
    define(&scene, "limit", _i, 100, "1h");
    ck_assert_int_eq(remaining(limit), 30);
}

TEST(permits_charged_in_advance_are_charged_to_the_former_state_too, 30)
{
    for (int cost = 0; cost <= 5; cost += 5) {
        OPEN_SCENE(scene, NULL);
        weir_limit *limit = lowered(&scene, GREEDY, "1h");
        scene.now_us += WEIR_HOUR / 5; /* 10 permits of the smaller one's, 20 of the larger one's */
        struct weir_backend_request request = request_of(&scene, limit, cost);
        request.ahead = 100;
        request.spread = 1;
        const struct weir_decision decision = decided(&scene, &request);
        ck_assert(decision.allowed);
        ck_assert_int_eq(decision.ahead, 10 - cost);
        define(&scene, "limit", GREEDY, 100, "1h");
        ck_assert_int_eq(remaining(limit), 10);
    }
}

TEST_EACH(a_group_charges_both_states_or_neither, FORMS, 30)
{
    struct weir_decision decision;
    OPEN_SCENE(scene, NULL);
    weir_limit *gate = scene_define_text(&scene, "gate", "fixed_window limit=5 period=30d");
    weir_limit *limit = define(&scene, "limit", _i, 100, "1h");
    ck_assert(taken(limit, "key", 60).allowed);
    define(&scene, "limit", _i, 50, "1h");
    must_succeed(weir_refund(limit, weir_key_text("key"), 10));
    ck_assert(has_former(&scene, limit) && remaining(limit) == 10);
    for (int i = 0; i < 3; i++) {
        const struct weir_request requests[] = {
            { limit, weir_key_text("key"), 3, 0 },
            { gate, weir_key_text("key"), 4, 0 },
        };
        must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
        ck_assert_int_eq(decision.allowed, i == 0);
        ck_assert_int_eq(remaining(limit), 7);
    }
    define(&scene, "limit", _i, 100, "1h");
    ck_assert_int_eq(remaining(limit), 47);
}

TEST(the_fallback_owes_by_the_current_state_and_paying_drops_the_former_one, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = define(&scene, "limit", GREEDY, 100, "1h");
    struct weir_backend *memory = scene.limiter->backend;
    struct weir_backend_request request = request_of(&scene, limit, 100);
    request.cold_since_us = scene.now_us - WEIR_HOUR; /* a cold key has drained by now */
    ck_assert(decided(&scene, &request).allowed);
    define(&scene, "limit", GREEDY, 50, "1h");
    request.plan_version = plan_cell_version(&limit->plan);
    ck_assert(!decided(&scene, &request).allowed);
    ck_assert(has_former(&scene, limit));
    ck_assert_int_eq(own_ops(memory)->debt(memory, &request), 50);
    ck_assert_int_eq(own_ops(memory)->pay(memory, &request, 20), 30);
    ck_assert(has_former(&scene, limit));
    ck_assert_int_eq(own_ops(memory)->debt(memory, &request), 30);
    ck_assert_int_eq(own_ops(memory)->pay(memory, &request, 30), 0);
    ck_assert_int_eq(stats_of(scene.limiter).keys, 0);
}

/* ---- Room ---- */

TEST(a_key_is_not_evicted_before_its_former_state_is_idle, 30)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=1000 period=1h");
    ck_assert(taken(limit, "key", 1000).allowed);
    scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    ck_assert(!taken(limit, "key", 1).allowed);
    scene.now_us += WEIR_MINUTE;
    ck_assert_int_eq(peeked(limit, "key", 1).reset_after_us, 0);

    struct weir_decision other = taken(limit, "other", 1);
    ck_assert(!other.allowed && other.source == WEIR_BY_FULL);
    ck_assert_int_eq(other.retry_after_us, 59 * WEIR_MINUTE);
    for (int i = 0; i < 1000; i++) { /* the sweep meets the key */
        must(!taken(limit, "other", 1).allowed, "there is room for one key");
        must(taken(limit, "key", 1).allowed, "which has ten permits a second");
        scene.now_us += WEIR_SECOND;
    }
    ck_assert(has_former(&scene, limit));
    scene_define_text(&scene, "limit", "token_bucket limit=1000 period=1h");
    ck_assert(!taken(limit, "key", 1).allowed);
    scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    ck_assert(!taken(limit, "key", 1).allowed);

    scene.now_us += WEIR_HOUR - WEIR_SECOND - 1; /* it was full a second ago */
    ck_assert_int_eq(taken(limit, "other", 1).source, WEIR_BY_FULL);
    scene.now_us += 1;
    ck_assert(taken(limit, "other", 1).allowed);
    ck_assert_uint_eq(stats_of(scene.limiter).evictions, 1);
}

TEST(a_key_with_a_former_state_is_dropped_once_both_states_are_idle, 30)
{
    enum { KEYS = 2000 };
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "sliding_window limit=100 period=1m");
    for (int64_t i = 0; i < KEYS; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(limit, weir_key(&i, sizeof i), 100, &decision));
    }
    scene_define_text(&scene, "limit", "fixed_window limit=50 period=1s");
    for (int64_t i = 0; i < KEYS; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(limit, weir_key(&i, sizeof i), 1, &decision));
        must(!decision.allowed, "all is used");
    }
    for (int wave = 0; wave < 2; wave++) { /* others come: after half a minute, and after two */
        scene.now_us += wave ? 90 * WEIR_SECOND : 30 * WEIR_SECOND;
        for (int64_t i = 0; i < 2 * KEYS; i++) {
            const int64_t key = (wave + 1) * INT64_C(1000000) + i;
            struct weir_decision decision;
            must_succeed(weir_try(limit, weir_key(&key, sizeof key), 1, &decision));
        }
        if (wave == 0)
            ck_assert_uint_eq(stats_of(scene.limiter).evictions, 0);
    }
    ck_assert_uint_ge(stats_of(scene.limiter).evictions, KEYS);
}

TEST_EACH(the_state_shared_by_keys_without_room_has_a_former_state_too, FORMS, 30)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1, .on_full = WEIR_FULL_SHARE));
    weir_limit *limit = define(&scene, "limit", _i, 100, "1h");
    ck_assert(taken(limit, "inside", 1).allowed);
    ck_assert(taken(limit, "a", 100).allowed);
    for (int i = 0; i < 6; i++) {
        define(&scene, "limit", _i, i % 2 ? 100 : 50, "1h");
        struct weir_decision decision;
        const struct weir_request requests[] = {
            /* the shared state of both keys moves at its first use */
            { limit, weir_key_text("b"), 1, 0 },
            { limit, weir_key_text("c"), 1, 0 },
        };
        must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
        ck_assert(!decision.allowed);
        decision = taken(limit, "d", 1);
        ck_assert(!decision.allowed && decision.source == WEIR_BY_FULL);
    }
}

/* ---- Shares, and late threads ---- */

TEST(a_share_that_shrinks_and_grows_again_admits_no_extra_permit, 60)
{
    static const struct share half = { .weight = 1, .total = 2, .rank = 1, .count = 2, .weights = NULL };
    static const struct share third = { .weight = 1, .total = 3, .rank = 2, .count = 3, .weights = NULL };
    const struct share *const shares[] = { &share_whole, &half, &third, &half };
    for (int form = 0; form < FORMS; form++) {
        for (int permits = 1; permits <= 101; permits += 50) { /* a window of 1 has a share of 0 */
            struct scene scene, metered;
            scene_open(&scene, NULL);
            scene_open(&metered, NULL);
            weir_limit *limit = define(&scene, "limit", form, permits, "1m");
            weir_limit *meter = define(&metered, "limit", form, permits, "1m");
            int64_t admitted = 0;
            for (int i = 0; i < FLIPS; i++) {
                must_succeed(limiter_set_share(scene.limiter, shares[i % 4]));
                admitted += take_all_metered(limit, meter);
                scene.now_us += 77777 * (i % 7);
                metered.now_us = scene.now_us;
            }
            ck_assert_int_ge(admitted, permits);
            scene_close(&metered);
            scene_close(&scene);
        }
    }
}

TEST(a_thread_with_an_older_plan_leaves_the_states_under_the_newer_plan, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = define(&scene, "limit", GREEDY, 100, "1h");
    ck_assert(taken(limit, "key", 100).allowed);
    /* The request of a thread that has read the limit and has not decided yet. */
    struct weir_limit *seen = malloc(sizeof *seen);
    ck_assert_ptr_nonnull(seen);
    memcpy(seen, limit, sizeof *seen);
    struct weir_backend_request late = request_of(&scene, seen, 10);

    define(&scene, "limit", GREEDY, 50, "1h");
    ck_assert(!taken(limit, "key", 1).allowed);
    struct weir_decision decision = decided(&scene, &late);
    ck_assert(!decision.allowed && decision.limit == 50 && decision.remaining == 0);
    ck_assert(has_former(&scene, limit));

    scene.now_us += WEIR_HOUR / 5; /* 10 permits of the smaller one's, 20 of the larger one's */
    late.now_us = scene.now_us;
    late.verb = WEIR_PEEK;
    decision = decided(&scene, &late);
    ck_assert(decision.allowed && decision.limit == 50 && decision.remaining == 10);
    late.verb = WEIR_TAKE;
    decision = decided(&scene, &late);
    ck_assert(decision.allowed && decision.limit == 50 && decision.remaining == 0);
    ck_assert(has_former(&scene, limit));
    ck_assert_int_eq(remaining(limit), 0);
    define(&scene, "limit", GREEDY, 100, "1h");
    ck_assert_int_eq(remaining(limit), 10);
    free(seen);
}

/* The plan that the next `calls` calls see. */
static struct {
    int calls;
    struct weir_plan plan;
    uint64_t version;
} stale;

uint64_t __real_weir_request_plan(const struct weir_backend_request *request, struct weir_plan *out);
uint64_t __wrap_weir_request_plan(const struct weir_backend_request *request, struct weir_plan *out);
uint64_t __wrap_weir_request_plan(const struct weir_backend_request *request, struct weir_plan *out)
{
    if (stale.calls == 0)
        return __real_weir_request_plan(request, out);
    stale.calls--;
    *out = stale.plan;
    return stale.version;
}

/* Two keys share a state because there is no room. The first request runs before the limit is lowered and the second
 * after it, so the state moves in between. */
TEST_EACH(a_shared_state_that_moves_within_a_group_is_found_again, FORMS, 30)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1, .on_full = WEIR_FULL_SHARE));
    weir_limit *limit = define(&scene, "limit", _i, 100, "1h");
    ck_assert(taken(limit, "inside", 1).allowed);
    ck_assert(taken(limit, "a", 60).allowed);
    struct weir_backend_request requests[] = { request_of(&scene, limit, 1), request_of(&scene, limit, 1) };
    stale.version = plan_cell_read(&limit->plan, &stale.plan);
    define(&scene, "limit", _i, 50, "1h");
    requests[1].key = weir_key_text("yek");
    requests[1].plan_version = plan_cell_version(&limit->plan);

    struct weir_backend *backend = scene.limiter->backend;
    struct weir_decision decisions[2];
    stale.calls = 5; /* two attempts, in which first one key, then the other finds no room: a missing key reads the
                      * plan to peek, and the one without room once more */
    must_succeed(backend->ops->decide(backend, requests, 2, true, INT64_MAX, decisions));
    for (int i = 0; i < 2; i++)
        ck_assert(!decisions[i].allowed && decisions[i].limit == 50);
    define(&scene, "limit", _i, 100, "1h");
    ck_assert_int_eq(taken(limit, "b", 40).remaining, 0);
    ck_assert_int_eq(stale.calls, 0);
}

TEST_EACH(a_clock_that_steps_back_moves_neither_state, FORMS, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = lowered(&scene, _i, "1h");
    scene.now_us -= WEIR_SECOND; /* within the slack: held */
    define(&scene, "limit", _i, 100, "1h");
    ck_assert(!taken(limit, "key", 1).allowed);
    scene.now_us -= WEIR_DAY; /* beyond it: what was used stays used */
    define(&scene, "limit", _i, 50, "1h");
    ck_assert(!taken(limit, "key", 1).allowed);
    scene.now_us -= WEIR_DAY;
    define(&scene, "limit", _i, 100, "1h");
    ck_assert_int_eq(remaining(limit), 0);
    ck_assert(!taken(limit, "key", 1).allowed);
}
