/* test_limit_rename.c - a limit that becomes another one. */
#include "settle_place.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const hourly = "fixed_window limit=3 period=1h";

static int64_t left_of(weir_limit *limit, const char *key)
{
    struct weir_decision decision;
    must_succeed(weir_peek(limit, weir_key_text(key), 1, &decision));
    return decision.remaining;
}

TEST(a_renamed_limit_has_the_new_policy_and_fresh_keys, 10)
{
    OPEN_SCENE(scene, OPTIONS(.top_keys = 4));
    const struct weir_policy policy = policy_of("token_bucket limit=7 period=1s");
    weir_limit *other = scene_define_text(&scene, "other", hourly);
    weir_limit *limit = scene_define_text(&scene, "before", hourly);
    struct weir_decision decision;
    struct weir_top_key top[4];
    for (int i = 0; i < 4; i++) {
        must_succeed(weir_try(limit, weir_key_text("a"), 1, &decision));
        scene.now_us += WEIR_SECOND;
        must_succeed(weir_try(other, weir_key_text("a"), 1, &decision));
        scene.now_us += WEIR_SECOND;
    }
    must_succeed(weir_limit_rename(limit, "after", &policy));
    ck_assert_str_eq(weir_limit_name(limit), "after");
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, "after"), limit);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "before"));
    ck_assert_int_eq(left_of(limit, "a"), 7);
    ck_assert_int_eq(left_of(other, "a"), 0);

    struct weir_limit_stats figures = { .size = sizeof figures };
    struct weir_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(limit, &figures));
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(figures.allowed + figures.denied, 0);
    ck_assert_uint_eq(stats.allowed, 6);
    ck_assert_uint_eq(stats.denied, 2);
    ck_assert_int_eq(weir_top_keys_read(scene.limiter, top, 4, false), 1);
    ck_assert_ptr_eq(top[0].limit, other);

    must_succeed(weir_try(limit, weir_key_text("a"), 7, &decision));
    must_succeed(weir_limit_stats_read(limit, &figures));
    ck_assert_uint_eq(figures.allowed, 1);
    const struct weir_policy first = policy_of(hourly);
    weir_limit *again = scene_define(&scene, "before", &first); /* the name is free */
    ck_assert_ptr_ne(again, limit);
    ck_assert_int_eq(left_of(again, "a"), 3);
    ck_assert_int_eq(left_of(limit, "a"), 0);
}

TEST(limits_can_be_renamed_more_often_than_a_limiter_has_room, 60)
{
    OPEN_SCENE(scene, NULL);
    const struct weir_policy policy = policy_of(hourly);
    weir_limit *limit = scene_define(&scene, "limit-0", &policy);
    scene_define(&scene, "other", &policy);
    char name[32];
    for (int i = 1; i <= 2 * WEIR_MAX_LIMITS; i++) {
        snprintf(name, sizeof name, "limit-%d", i);
        must_succeed(weir_limit_rename(limit, name, &policy));
    }
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, name), limit);
    int count = 0;
    for (const weir_limit *next = NULL; (next = weir_limit_next(scene.limiter, next));)
        count++;
    ck_assert_int_eq(count, 2);
}

TEST(a_rename_is_refused_for_bad_arguments_and_limits_with_overrides, 10)
{
    OPEN_SCENE(scene, NULL);
    scene.log_allowed = true;
    const struct weir_policy policy = policy_of(hourly), bad = { .limit = -1, .period_us = 1 };
    weir_limit *limit = scene_define_text(&scene, "limit", hourly), *override;
    ck_assert_int_eq(weir_limit_rename(NULL, "new", &policy), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_rename(limit, NULL, &policy), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_rename(limit, "new", NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_rename(limit, "new", &bad), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_rename(limit, "new name", &policy), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_rename(limit, "limit/a", &policy), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_rename(limit, "limit", &policy), WEIR_EINVAL);
    must_succeed(weir_limit_define(scene.limiter, "limit/a", &policy, &override));
    ck_assert_int_eq(weir_limit_rename(limit, "new", &policy), WEIR_EINVAL);
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, "limit"), limit);
    ck_assert_int_eq(left_of(limit, "a"), 3);
}

TEST(a_refused_policy_file_removes_only_its_own_limits, 10)
{
    OPEN_SCENE(scene, NULL);
    const struct weir_policy policy = policy_of(hourly);
    weir_limit *limit = scene_define(&scene, "a", &policy);
    scene_define(&scene, "b", &policy);
    must_succeed(weir_limit_rename(limit, "c", &policy)); /* now the last of the table */
    char path[] = "/tmp/weir-rename-XXXXXX", message[256];
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    dprintf(fd, "d = %s\nnone/a = %s\n", hourly, hourly);
    close(fd);
    ck_assert_int_eq(weir_limits_load(scene.limiter, path, message, sizeof message), WEIR_EINVAL);
    remove(path);
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, "c"), limit);
    ck_assert_ptr_nonnull(weir_limit_find(scene.limiter, "b"));
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "d"));
    ck_assert_ptr_nonnull(scene_define(&scene, "e", &policy));
    ck_assert_int_eq(left_of(weir_limit_find(scene.limiter, "e"), "a"), 3);
}

TEST(a_limit_is_not_renamed_while_permits_of_an_outage_are_owed, 10)
{
    PLACE(place, EAGER, NULL, ten);
    const struct weir_policy policy = policy_of(ten);
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    ck_assert_int_eq(weir_limit_rename(place->limit, "after", &policy), WEIR_EFULL);
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 10 - 3 - 1);
    must_succeed(weir_limit_rename(place->limit, "after", &policy));
    const struct weir_stats stats = stats_of(place->limiter);
    ck_assert_uint_eq(stats.allowed, 2);
    ck_assert_uint_eq(stats.unsettled, 0);
}
