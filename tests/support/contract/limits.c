/* limits.c - contract: limits have names, and can be defined again or overridden for some keys. */
#include "contract/parts.h"

#include <stdio.h>

CONTRACT_TEST(CONTRACT_COUNTS, a_limit_is_found_by_its_name_and_reports_its_policy, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_policy policy = policy_of("token_bucket limit=10 period=1m refill=interval debt=5"), read;
    open_backend(&scene, _i);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "api-read"));
    weir_limit *limit = scene_define(&scene, "api-read", &policy);
    weir_limit *other = scene_define(&scene, "api-rea", &policy);
    ck_assert_ptr_ne(limit, other);
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, "api-read"), limit);
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, "api-rea"), other);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "api-rea "));
    ck_assert_ptr_null(weir_limit_find(scene.limiter, NULL));
    ck_assert_ptr_null(weir_limit_find(NULL, "api-read"));
    ck_assert_str_eq(weir_limit_name(limit), "api-read");
    must_succeed(weir_limit_policy(limit, &read));
    ck_assert_int_eq(memcmp(&read, &policy, sizeof policy), 0);
    ck_assert_int_eq(weir_limit_policy(limit, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_policy(NULL, &read), WEIR_EINVAL);
}

CONTRACT_TEST(CONTRACT_COUNTS, names_are_letters_digits_dots_underscores_and_hyphens, 10)
{
    char longest[WEIR_MAX_NAME_LEN + 2];
    struct weir_policy policy = policy_of("fixed_window limit=3 period=1h");
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    memset(longest, 'x', sizeof longest);
    longest[WEIR_MAX_NAME_LEN] = '\0';
    scene_define(&scene, longest, &policy);
    scene_define(&scene, "Az09._-", &policy);
    scene.log_allowed = true;
    longest[WEIR_MAX_NAME_LEN] = 'x';
    longest[WEIR_MAX_NAME_LEN + 1] = '\0';
    ck_assert_int_eq(weir_limit_define(scene.limiter, longest, &policy, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(scene.limiter, "", &policy, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(scene.limiter, NULL, &policy, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(scene.limiter, "name", NULL, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(NULL, "name", &policy, NULL), WEIR_EINVAL);
    for (int byte = 1; byte < 256; byte++) {
        const char name[] = { 'a', (char)byte, '\0' };
        bool plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
                     byte == '.' || byte == '_' || byte == '-';
        int error = weir_limit_define(scene.limiter, name, &policy, NULL);
        ck_assert_msg(error == (plain ? WEIR_OK : WEIR_EINVAL), "byte %d: %s", byte, weir_strerror(error));
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, one_limit_too_many_is_refused_and_the_others_stay, 30)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_policy policy = policy_of("fixed_window limit=3 period=1h");
    char name[32];
    open_backend(&scene, _i);
    for (int i = 0; i < WEIR_MAX_LIMITS; i++) {
        snprintf(name, sizeof name, "limit-%d", i);
        must_succeed(weir_limit_define(scene.limiter, name, &policy, NULL));
    }
    scene.log_allowed = true;
    ck_assert_int_eq(weir_limit_define(scene.limiter, "one-more", &policy, NULL), WEIR_EFULL);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "one-more"));
    ck_assert_int_eq(weir_limit_define(scene.limiter, name, &policy, NULL), WEIR_OK);
    ck_assert(taken(weir_limit_find(scene.limiter, "limit-0"), "a", 3).allowed);
    ck_assert(taken(weir_limit_find(scene.limiter, name), "a", 3).allowed);
}

CONTRACT_TEST(CONTRACT_COUNTS, repeating_a_definition_keeps_the_limit_and_its_used_permits, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    taken(limit, "a", 4);
    struct weir_decision before = peeked(limit, "a", 7);
    ck_assert_ptr_eq(scene_define_text(&scene, "limit", "fixed_window limit=10 period=60m"), limit);
    struct weir_decision after = peeked(limit, "a", 7);
    assert_decision_is(&after, &before, "after the same definition");
    scene.log_allowed = true;
    struct weir_policy bad = { .limit = -1, .period_us = 1 };
    ck_assert_int_eq(weir_limit_define(scene.limiter, "limit", &bad, NULL), WEIR_EINVAL);
    after = peeked(limit, "a", 7);
    assert_decision_is(&after, &before, "after a definition that was refused");
}

CONTRACT_TEST(CONTRACT_COUNTS, an_override_decides_only_for_its_keys_which_keep_their_used_permits, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decisions[3];
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "api", "fixed_window limit=10 period=1d");
    ck_assert_int_eq(taken(limit, "gold-1", 4).remaining, 6);
    ck_assert_int_eq(taken(limit, "lead", 4).remaining, 6);
    scene_define_text(&scene, "api/gold-*", "fixed_window limit=20 period=1d");
    ck_assert_int_eq(peeked(limit, "gold-1", 4).remaining, 16); /* no lease that the next change would lose */
    scene_define_text(&scene, "api/gold-1", "fixed_window limit=40 period=1d");
    ck_assert_int_eq(taken(limit, "gold-1", 26).remaining, 10);
    const struct weir_request requests[] = { request_of(limit, "gold-1", 5), request_of(limit, "gold-2", 15),
                                             request_of(limit, "lead", 1) };
    must_succeed(weir_try_all(scene.limiter, requests, 3, &decisions[0]));
    ck_assert(decisions[0].allowed);
    must_succeed(weir_try_batch(scene.limiter, requests, 3, decisions));
    ck_assert(decisions[0].allowed && !decisions[1].allowed && decisions[2].allowed);
    ck_assert_int_eq(decisions[0].remaining, 0);
    ck_assert_int_eq(decisions[1].limit, 20);
    ck_assert_int_eq(decisions[2].remaining, 4);
    must_succeed(weir_limit_define(scene.limiter, "api/gold-*", NULL, NULL));
    ck_assert_int_eq(peeked(limit, "gold-1", 1).limit, 40);
    ck_assert_int_eq(peeked(limit, "gold-2", 1).limit, 10);
    must_succeed(weir_limit_define(scene.limiter, "api/gold-1", NULL, NULL));
    const struct weir_decision decision = peeked(limit, "gold-1", 1); /* used 40 of 10 */
    ck_assert(!decision.allowed && decision.limit == 10);
    ck_assert_int_eq(taken(limit, "lead", 4).remaining, 0);
    refund(limit, "lead", 3);
    must_succeed(weir_reset(limit, weir_key_text("gold-1")));
    ck_assert_int_eq(peeked(limit, "gold-1", 1).remaining, 10);
}
