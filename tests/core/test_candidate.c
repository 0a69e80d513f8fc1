/* test_candidate.c - a policy's second half: its text, and that it decides as a limit beside the first one would. What it
 * does in each mode is in support/contract. */
#include "support.h"

#include "core/ground/arith.h"

#include <stdio.h>
#include <string.h>

TEST(a_candidate_is_printed_as_it_is_read, 10)
{
    static const char *const texts[][2] = {
        { "token_bucket limit=10 period=1h, candidate limit=5", NULL },
        { "token_bucket limit=10 period=1h,candidate   limit=5 percent=20",
          "token_bucket limit=10 period=1h, candidate limit=5 percent=20" },
        { "token_bucket period=1h limit=10 , candidate token_bucket limit=5 period=1h",
          "token_bucket limit=10 period=1h, candidate limit=5" },
        { "token_bucket limit=10 period=1h burst=20, candidate limit=5", NULL },
        { "token_bucket limit=10 period=1h burst=20, candidate token_bucket limit=5 period=1h", NULL },
        { "token_bucket limit=10 period=1h, candidate sliding_window limit=5 period=1h blocks=6", NULL },
        { "fixed_window limit=10 period=1h align=epoch, candidate period=2h percent=100", NULL },
        { "token_bucket limit=10 period=1h, candidate limit=10",
          "token_bucket limit=10 period=1h, candidate token_bucket limit=10 period=1h" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct weir_policy policy, again;
        char message[256] = "", printed[320], short_text[320];
        const char *expected = texts[i][1] ? texts[i][1] : texts[i][0];
        ck_assert_msg(weir_policy_parse(texts[i][0], &policy, message, sizeof message) == WEIR_OK, "%s: %s",
                      texts[i][0], message);
        must_succeed(weir_policy_print(&policy, printed, sizeof printed));
        ck_assert_str_eq(printed, expected);
        must_succeed(weir_policy_parse(printed, &again, NULL, 0));
        ck_assert_mem_eq(&policy, &again, sizeof policy);
        ck_assert_int_eq(weir_policy_print(&policy, short_text, strlen(printed)), WEIR_EINVAL);
        must_succeed(weir_policy_print(&policy, short_text, strlen(printed) + 1));
    }
}

TEST(the_longest_policy_with_a_candidate_fits_its_room, 10)
{
    char text[320];
    struct weir_policy policy = policy_of(
        "token_bucket limit=8000000000001 period=31622399999999us burst=8000000000003 "
        "debt=8000000000003 refill=interval align=epoch, candidate token_bucket "
        "limit=8000000000003 period=31622399999997us burst=8000000000007 "
        "debt=8000000000009 refill=interval align=epoch percent=100");
    must_succeed(weir_policy_print(&policy, text, sizeof text));
}

TEST(a_wrong_candidate_is_refused_at_its_column, 10)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        { "token_bucket limit=10 period=1h,", "column 33: \"\": the word candidate is expected after a comma" },
        { "token_bucket limit=10,5 period=1h", "column 14: \"limit=10,5\": a whole number" },
        { "token_bucket limit=10 period=1h, limit=5", "column 34: \"limit=5\": the word candidate is expected" },
        { "token_bucket limit=10 period=1h candidate limit=5", "column 33: \"candidate\": a comma is expected" },
        { "token_bucket limit=10 period=1h, candidate", "column 43: a candidate's policy, or the fields" },
        { "token_bucket limit=10 period=1h,limit=5", "column 23: \"period=1h,limit=5\": a whole number" },
        { "token_bucket limit=10 period=1h, candidate speed=5",
          "column 44: \"speed=5\" is not known to a token_bucket" },
        { "token_bucket limit=10 period=1h, candidate limit=0", "column 44: \"limit=0\": a whole number" },
        { "token_bucket limit=10 period=1h, candidate limit=5 limit=6",
          "column 52: \"limit=6\": limit stands already" },
        { "token_bucket limit=10 period=1h, candidate fixed_window limit=5", "column 64: period=... is missing" },
        { "token_bucket limit=10 period=1h, candidate limit=5 shadow",
          "column 52: \"shadow\": a candidate is a shadow" },
        { "token_bucket limit=10 period=1h, candidate limit=5 percent=101", "column 52: \"percent=101\"" },
        { "token_bucket limit=10 period=1h shadow, candidate limit=5", "column 33: \"shadow\" cannot stand before" },
        { "token_bucket limit=10 period=1h percent=5, candidate limit=5",
          "column 33: \"percent\" cannot stand before" },
        { "token_bucket limit=10 period=1h, candidate limit=5, candidate limit=4",
          "column 51: \",\": a policy has one" },
        { "token_bucket limit=10 period=1h, candidate deny", "column 34: \"candidate\": neither unlimited nor deny" },
        { "token_bucket limit=10 period=1h, candidate unlimited",
          "column 34: \"candidate\": neither unlimited nor deny" },
        { "unlimited, candidate token_bucket limit=5 period=1h",
          "column 12: \"candidate\": a policy with a candidate is" },
        { "concurrency limit=5 hold=1m, candidate limit=4", "column 30: \"candidate\": a policy with a candidate is" },
        { "leaky_bucket limit=5 period=1m, candidate limit=4",
          "column 33: \"candidate\": a policy with a candidate is" },
        { "token_bucket limit=5 period=1m, candidate concurrency limit=5 hold=1m",
          "column 33: \"candidate\": a policy" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct weir_policy policy = { .limit = 77 };
        char message[256] = "";
        ck_assert_int_eq(weir_policy_parse(wrong[i].text, &policy, message, sizeof message), WEIR_EINVAL);
        ck_assert_msg(strncmp(message, wrong[i].says, strlen(wrong[i].says)) == 0, "%s: %s", wrong[i].text, message);
        ck_assert_int_eq(policy.limit, 77);
    }
}

TEST(a_wrong_candidate_in_code_is_refused, 10)
{
    char message[256];
    struct weir_policy policy = policy_of("token_bucket limit=10 period=1h, candidate limit=5"), bad = policy;
    bad.shadow = 1;
    ck_assert_int_eq(weir_policy_check(&bad, message, sizeof message), WEIR_EINVAL);
    ck_assert_str_eq(message, "shadow does not apply to a policy with a candidate");
    bad = policy, bad.candidate.percent = 101;
    ck_assert_int_eq(weir_policy_check(&bad, message, sizeof message), WEIR_EINVAL);
    ck_assert_str_eq(message, "candidate: percent must be 0 to 100, not 101");
    bad = policy, bad.candidate.limit = 0;
    ck_assert_int_eq(weir_policy_check(&bad, message, sizeof message), WEIR_EINVAL);
    ck_assert_ptr_nonnull(strstr(message, "candidate: limit must be 1 to"));
    bad = policy, bad.candidate.blocks = 3;
    ck_assert_int_eq(weir_policy_check(&bad, message, sizeof message), WEIR_EINVAL);
    ck_assert_ptr_nonnull(strstr(message, "candidate: blocks does not apply"));
}

TEST(a_limit_with_a_candidate_has_a_name_that_leaves_room, 10)
{
    OPEN_SCENE(scene, NULL);
    const struct weir_policy policy = policy_of("fixed_window limit=10 period=1h, candidate limit=5");
    char name[WEIR_MAX_NAME_LEN + 1];
    memset(name, 'x', sizeof name);
    name[WEIR_MAX_NAME_LEN] = '\0';
    scene.log_allowed = true;
    ck_assert_int_eq(weir_limit_define(scene.limiter, name, &policy, NULL), WEIR_EINVAL);
    name[WEIR_MAX_NAME_LEN - 1] = '\0';
    weir_limit *limit;
    must_succeed(weir_limit_define(scene.limiter, name, &policy, &limit));
    ck_assert_int_eq(weir_limit_rename(limit, "other", &policy), WEIR_EINVAL);
    weir_limit *plain = scene_define_text(&scene, "plain", "fixed_window limit=10 period=1h");
    ck_assert_int_eq(weir_limit_rename(plain, "other", &policy), WEIR_EINVAL);
}

/* Whatever policies the halves are, they decide as two limits, of which the second is asked if the first admits. */
TEST_EACH(a_candidate_decides_as_a_limit_behind_the_first, 40, 30)
{
    struct chance chance = chance_make((uint64_t)_i);
    OPEN_SCENE(scene, NULL);
    struct weir_policy first, second, both;
    do {
        first = policy_by_chance(&chance, (enum kind)(_i % KIND_COUNT));
        second = policy_by_chance(&chance, (enum kind)(_i / KIND_COUNT % KIND_COUNT));
        first.shadow = first.percent = second.shadow = second.percent = 0;
        both = first;
        both.candidate = (struct weir_candidate){ .algorithm = second.algorithm,
                                                  .refill = second.refill,
                                                  .align = second.align,
                                                  .blocks = second.blocks,
                                                  .limit = second.limit,
                                                  .period_us = second.period_us,
                                                  .burst = second.burst,
                                                  .debt = second.debt,
                                                  .percent = _i % 3 == 2 ? 100 : 0 };
        if (first.algorithm > WEIR_SLIDING_WINDOW || second.algorithm > WEIR_SLIDING_WINDOW)
            return; /* refused */
    } while (weir_policy_check(&both, NULL, 0) != WEIR_OK);
    const bool swaps = both.candidate.percent == 100;
    weir_limit *halves = scene_define(&scene, "halves", &both);
    weir_limit *before = scene_define(&scene, "before", swaps ? &second : &first);
    weir_limit *behind = scene_define(&scene, "behind", swaps ? &first : &second);
    for (int64_t i = 0; i < steps_or(2000); i++) {
        char key[8];
        snprintf(key, sizeof key, "%d", (int)chance_between(&chance, 0, 3));
        scene.now_us += chance_between(&chance, 0, 1 + min_of(first.period_us, second.period_us) / 10);
        const int64_t cost = chance_magnitude(&chance, max_of(first.limit, second.limit));
        struct weir_decision expected = taken(before, key, cost);
        const struct weir_decision other = expected.allowed ? taken(behind, key, cost) : expected;
        expected.would_deny = !swaps && expected.allowed && !other.allowed;
        const struct weir_decision decision = taken(halves, key, cost);
        assert_decision_is(&decision, &expected, "the half that binds decides");
    }
}

TEST(http_fields_are_of_the_half_that_binds_the_key, 10)
{
    OPEN_SCENE(scene, NULL);
    static const struct {
        const char *policy, *says;
    } halves[] = { { "fixed_window limit=10 period=1h, candidate limit=3 period=1m", "\"api\";q=10;w=3600" },
                   { "fixed_window limit=10 period=1h, candidate limit=3 period=1m percent=100", "\"api\";q=3;w=60" } };
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS];
        weir_limit *limit = scene_define_text(&scene, "api", halves[i].policy);
        const struct weir_decision decision = taken(limit, "a", 1);
        const struct weir_request request = { .limit = limit, .key = weir_key_text("a"), .cost = 1 };
        const int n = weir_http_fields(&request, &decision, WEIR_HTTP_RATELIMIT_POLICY, fields, WEIR_HTTP_MAX_FIELDS);
        bool is_said = false;
        for (int j = 0; j < n; j++)
            is_said = is_said || strcmp(fields[j].value, halves[i].says) == 0;
        ck_assert(is_said);
    }
}
