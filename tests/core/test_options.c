/* test_options.c - options as text: each value that an option allows is taken, each other is refused by name. */
#include "support.h"

#include <stdio.h>
#include <string.h>

static struct weir_options set_of(const char *name, const char *value)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    char message[256] = "untouched";
    ck_assert_msg(weir_options_set(&options, name, value, message, sizeof message) == WEIR_OK, "%s=%s: %s", name, value,
                  message);
    return options;
}

static void assert_set_refused(const char *name, const char *value, const char *expected)
{
    struct weir_options options = WEIR_OPTIONS_INIT, before = options;
    char message[256] = "";
    ck_assert_int_eq(weir_options_set(&options, name, value, message, sizeof message), WEIR_EINVAL);
    ck_assert_str_eq(message, expected);
    ck_assert_int_eq(weir_options_set(&options, name, value, NULL, 0), WEIR_EINVAL);
    ck_assert_int_eq(memcmp(&options, &before, sizeof options), 0);
}

TEST(an_option_is_set_by_its_name_and_a_value_as_in_policies, 10)
{
    ck_assert_int_eq(set_of("mode", "hybrid").mode, WEIR_HYBRID);
    ck_assert_int_eq(set_of("mode", "local").mode, WEIR_LOCAL);
    ck_assert_int_eq(set_of("mode", "machine").mode, WEIR_MACHINE);
    ck_assert_int_eq(set_of("on_failure", "error").on_failure, WEIR_FAIL_ERROR);
    ck_assert_int_eq(set_of("on_full", "share").on_full, WEIR_FULL_SHARE);
    ck_assert_int_eq(set_of("timeout", "20ms").timeout_us, 20000);
    ck_assert_int_eq(set_of("timeout", "1h").timeout_us, WEIR_HOUR);
    ck_assert_int_eq(set_of("redis_gather", "0").redis_gather_us, 0);
    ck_assert_int_eq(set_of("max_keys", "2k").max_keys, 2000);
    ck_assert_int_eq(set_of("max_bytes", "64MiB").max_bytes, INT64_C(64) << 20);
    ck_assert_int_eq(set_of("rank", "0").rank, 0);
    ck_assert(set_of("strict", "on").strict && !set_of("strict", "off").strict);
    ck_assert_uint_eq(set_of("percent_seed", "18446744073709551615").percent_seed, UINT64_MAX);
    ck_assert_str_eq(set_of("redis", "redis://db").redis_url, "redis://db");
    ck_assert_str_eq(set_of("shared", "name").shared, "name");
}

TEST(a_value_that_an_option_does_not_allow_is_refused_by_name, 10)
{
    assert_set_refused("max_kays", "1", "there is no option \"max_kays\"");
    assert_set_refused("redis_url", "redis://db", "there is no option \"redis_url\"");
    assert_set_refused("mode", "fast", "mode must be local, distributed, hybrid or machine, not \"fast\"");
    assert_set_refused("strict", "yes", "strict must be on or off, not \"yes\"");
    assert_set_refused("timeout", "soon", "timeout must be a time, 1us to 1h, not \"soon\"");
    assert_set_refused("timeout", "50", "timeout must be a time, 1us to 1h, not \"50\"");
    assert_set_refused("timeout", "0", "timeout must be a time, 1us to 1h, not \"0\"");
    assert_set_refused("timeout", "61m", "timeout must be a time, 1us to 1h, not \"61m\"");
    assert_set_refused("timeout", "20ms ", "timeout must be a time, 1us to 1h, not \"20ms \"");
    assert_set_refused("lease_excess", "101", "lease_excess must be a whole number, 1 to 100, not \"101\"");
    assert_set_refused("lease_excess", "-1", "lease_excess must be a whole number, 1 to 100, not \"-1\"");
    assert_set_refused("lease_excess", "", "lease_excess must be a whole number, 1 to 100, not \"\"");
    assert_set_refused("rank", "99999999999999999999", "rank must be a whole number, 0 to 9999, not "
                                                       "\"99999999999999999999\"");
    assert_set_refused("percent_seed", "0", "percent_seed must be a whole number, 1 to 18446744073709551615, not \"0\"");
    assert_set_refused("percent_seed", "18446744073709551616",
                       "percent_seed must be a whole number, 1 to 18446744073709551615, not \"18446744073709551616\"");
    assert_set_refused("shared", "", "shared must be a text that is not empty, not \"\"");
    ck_assert_int_eq(weir_options_set(NULL, "mode", "local", NULL, 0), WEIR_EINVAL);
}

/* weir_open() and weir_options_set() agree about every bound. */
TEST(every_bound_is_the_one_of_weir_open, 30)
{
    int bounds = 0;
    for (size_t i = 0; weir_option_at(i); i++) {
        const struct weir_option *option = weir_option_at(i);
        char values[128], first[32], last[32], message[256];
        const size_t len = weir_option_values(option, values, sizeof values);
        ck_assert_uint_eq(len, strlen(values));
        ck_assert_uint_gt(strlen(option->text), 5);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(option->name, weir_option_at(j)->name);
        if (sscanf(values, "a time, %31s to %31s", first, last) != 2 &&
            sscanf(values, "a whole number, %31s to %31s", first, last) != 2)
            continue;
        for (int b = 0; b < 2; b++) {
            struct weir_options options = WEIR_OPTIONS_INIT;
            weir *limiter = NULL;
            options.quiet = true;
            options.mode = option->modes & 1u << WEIR_LOCAL ? WEIR_LOCAL : WEIR_HYBRID;
            options.redis_url = "unix:///nowhere";
            options.timeout_us = WEIR_HOUR / 4;
            if (strcmp(option->name, "max_keys") == 0)
                options.max_bytes = 1 << 20;
            ck_assert_msg(weir_options_set(&options, option->name, b ? last : first, message, sizeof message) == WEIR_OK,
                          "%s", message);
            if (weir_open(&options, &limiter) != WEIR_OK) /* for what belongs together */
                ck_assert_msg(strstr(weir_last_message(), " must be ") == NULL || strstr(weir_last_message(), "rank") ||
                                  strstr(weir_last_message(), "total_weight"),
                              "%s=%s: %s", option->name, b ? last : first, weir_last_message());
            else
                weir_close(limiter);
            bounds++;
        }
    }
    ck_assert_int_gt(bounds, 30);
    ck_assert_ptr_null(weir_option_at(SIZE_MAX));
}

TEST(a_text_sets_several_options_or_none, 10)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    char message[256];
    char text[] = "mode=hybrid\n\tredis=\"unix:///a b\"  timeout=20ms strict=on";
    ck_assert_int_eq(weir_options_parse(&options, text, message, sizeof message), WEIR_OK);
    ck_assert_int_eq(options.mode, WEIR_HYBRID);
    ck_assert_str_eq(options.redis_url, "unix:///a b");
    ck_assert_int_eq(options.timeout_us, 20000);
    ck_assert(options.strict);
    char nothing[] = " \n";
    ck_assert_int_eq(weir_options_parse(&options, nothing, NULL, 0), WEIR_OK);

    static const struct {
        const char *text, *expected;
    } bad[] = {
        { "max_keys=5 mode", "\"mode\": name=value is expected" },
        { "max_keys=5 max_keys=6", "max_keys is given twice" },
        { "max_keys=5 timeout=x", "timeout must be a time, 1us to 1h, not \"x\"" },
        { "max_keys=5 redis=\"a b", "\"redis=a b\": the second double quote is missing" },
        { "max_keys=5 =6", "there is no option \"\"" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char copy[64];
        const struct weir_options before = options;
        snprintf(copy, sizeof copy, "%s", bad[i].text);
        ck_assert_int_eq(weir_options_parse(&options, copy, message, sizeof message), WEIR_EINVAL);
        ck_assert_str_eq(message, bad[i].expected);
        ck_assert_int_eq(memcmp(&options, &before, sizeof options), 0);
    }
}
