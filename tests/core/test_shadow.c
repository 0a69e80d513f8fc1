/* test_shadow.c - shadow limits: they decide as an enforced twin, and percent=N chooses keys. That their denials bind
 * nothing in any mode is in support/contract. */
#include "support.h"

#include <stdio.h>
#include <string.h>

/* Ask both limits the same; the shadow must decide as its twin and only hide it. */
static void ask_both(weir_limit *shadow, weir_limit *twin, const char *key, int64_t cost)
{
    const struct weir_decision here = taken(shadow, key, cost), there = taken(twin, key, cost);
    must(here.allowed && here.would_deny == !there.allowed, "the shadow reports its twin's verdict");
    must(here.retry_after_us == 0 && here.delay_us == 0, "a shadow makes nobody wait");
    must(here.remaining == there.remaining && here.reset_after_us == there.reset_after_us && here.limit == there.limit,
         "and holds the same state");
}

TEST_EACH(a_shadow_limit_decides_as_its_enforced_twin, KIND_COUNT, 30)
{
    struct chance chance = chance_make((uint64_t)_i);
    OPEN_SCENE(scene, NULL);
    struct weir_policy policy;
    do
        policy = policy_by_chance(&chance, (enum kind)_i);
    while (weir_policy_check(&policy, NULL, 0) != WEIR_OK);
    weir_limit *twin = scene_define(&scene, "twin", &policy);
    policy.shadow = 1;
    weir_limit *shadow = scene_define(&scene, "shadow", &policy);
    for (int64_t i = 0; i < steps_or(2000); i++) {
        char key[8];
        snprintf(key, sizeof key, "%d", (int)chance_between(&chance, 0, 3));
        scene.now_us += chance_between(&chance, 0, 1 + policy.period_us / 10);
        ask_both(shadow, twin, key, chance_magnitude(&chance, 2 * policy.limit));
    }
    struct weir_limit_stats hidden = { .size = sizeof hidden }, bound = { .size = sizeof bound };
    must_succeed(weir_limit_stats_read(shadow, &hidden));
    must_succeed(weir_limit_stats_read(twin, &bound));
    ck_assert_uint_eq(hidden.would_deny, bound.denied);
    ck_assert_uint_eq(hidden.allowed, bound.allowed + bound.denied);
    ck_assert_uint_eq(hidden.permits, bound.permits);
    ck_assert_uint_eq(hidden.near, bound.near);
    ck_assert_uint_eq(hidden.denied, 0);
}

TEST(an_acquire_of_a_shadow_limit_never_waits, 10)
{
    struct weir_decision decision;
    OPEN_SCENE(scene, NULL);
    weir_limit *leaky = scene_define_text(&scene, "leaky", "leaky_bucket limit=1 period=1h capacity=2 shadow");
    for (int i = 0; i < 4; i++) {
        must_succeed(weir_acquire(leaky, weir_key_text("a"), 1, WEIR_HOUR * 5, &decision));
        ck_assert(decision.allowed && decision.would_deny == (i >= 2));
        ck_assert_int_eq(decision.delay_us, 0);
    }
}

TEST(an_override_may_be_a_shadow_and_its_limit_not, 10)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=1 period=1h");
    scene_define_text(&scene, "api/vip*", "fixed_window limit=1 period=1h shadow");
    taken(api, "a", 1), taken(api, "vip", 1);
    ck_assert(!taken(api, "a", 1).allowed);
    ck_assert(taken(api, "vip", 1).would_deny);
    weir_handle *handle;
    struct weir_decision decision;
    must_succeed(weir_key_resolve(api, weir_key_text("vip"), &handle));
    must_succeed(weir_handle_try(handle, 1, 0, &decision));
    weir_handle_free(handle);
    ck_assert(decision.allowed && decision.would_deny);
}

/* ---- percent=N ---- */

enum { KEYS = 4000 };

/* Fill in which keys a limit of one permit enforces at this percentage, and return how many. */
static int enforced(struct scene *scene, const char *name, int percent, bool *is_enforced)
{
    char text[96], key[16];
    int count = 0;
    snprintf(text, sizeof text, "fixed_window limit=1 period=1h percent=%d", percent);
    weir_limit *limit = scene_define_text(scene, name, text);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        taken(limit, key, 1);
        const struct weir_decision second = taken(limit, key, 1);
        must(second.allowed == second.would_deny, "the second request is denied, or would be");
        is_enforced[i] = !second.allowed;
        count += is_enforced[i];
    }
    return count;
}

TEST(more_percent_add_keys_and_keep_the_former_ones, 30)
{
    static const int percents[] = { 1, 10, 50, 90, 99, 100 };
    static bool before[KEYS], now[KEYS];
    OPEN_SCENE(scene, OPTIONS(.percent_seed = 42));
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        const int count = enforced(&scene, "api", percents[i], now);
        /* Six standard deviations of a binomial distribution are at most 190 keys. The seed is fixed: no chance. */
        ck_assert_int_le(count, KEYS * percents[i] / 100 + 190);
        ck_assert_int_ge(count, KEYS * percents[i] / 100 - 190);
        for (int key = 0; key < KEYS; key++)
            must(!before[key] || now[key], "an enforced key stays enforced");
        memcpy(before, now, sizeof before);
    }
    for (int key = 0; key < KEYS; key++)
        must(now[key], "100 percent are all keys");
}

TEST(the_same_seed_chooses_the_same_keys_and_each_limit_others, 30)
{
    static bool first[KEYS], again[KEYS], other[KEYS], seeded[KEYS];
    OPEN_SCENE(scene, OPTIONS(.percent_seed = 7));
    OPEN_SCENE(twin, OPTIONS(.percent_seed = 7));
    OPEN_SCENE(stranger, OPTIONS(.percent_seed = 8));
    enforced(&scene, "api", 50, first);
    enforced(&twin, "api", 50, again);
    enforced(&twin, "login", 50, other);
    enforced(&stranger, "api", 50, seeded);
    int like_other = 0, like_seeded = 0;
    for (int key = 0; key < KEYS; key++) {
        must(first[key] == again[key], "a restart changes nothing");
        like_other += first[key] == other[key];
        like_seeded += first[key] == seeded[key];
    }
    ck_assert_int_lt(like_other, KEYS / 2 + 190);
    ck_assert_int_gt(like_other, KEYS / 2 - 190);
    ck_assert_int_lt(like_seeded, KEYS / 2 + 190);
    ck_assert_int_gt(like_seeded, KEYS / 2 - 190);
}

TEST(a_shadow_is_printed_and_read_back, 10)
{
    static const char *const texts[] = { "fixed_window limit=1 period=1h shadow",
                                         "token_bucket limit=1 period=1h burst=5 percent=25" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char printed[160];
        const struct weir_policy policy = policy_of(texts[i]);
        must_succeed(weir_policy_print(&policy, printed, sizeof printed));
        ck_assert_str_eq(printed, texts[i]);
    }
    struct weir_policy both = policy_of(texts[1]);
    char message[128];
    both.shadow = 1;
    ck_assert_int_eq(weir_policy_check(&both, message, sizeof message), WEIR_EINVAL);
    ck_assert_str_eq(message, "percent does not apply to a shadow");
    both = policy_of(texts[0]);
    both.shadow = 2;
    ck_assert_int_eq(weir_policy_check(&both, message, sizeof message), WEIR_EINVAL);
    ck_assert_str_eq(message, "shadow must be 0 to 1, not 2");
}
