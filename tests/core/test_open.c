/* test_open.c - options that weir_open() takes and refuses, its messages, and user backends. */
#include "support.h"

#include "core/limiter/limiter.h"
#include "core/limiter/options.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Open with these options, which must fail with `error` and one line that says `says`. */
static void assert_refused(struct weir_options options, int error, const char *says)
{
    struct scene scene;
    scene_init(&scene, &options);
    scene.log_allowed = true;
    ck_assert_msg(weir_open(&options, &scene.limiter) == error, "%s", says);
    ck_assert_ptr_null(scene.limiter);
    ck_assert_msg(scene.log_lines == 1 && strstr(scene.last_line, says), "\"%s\" does not say \"%s\"", scene.last_line,
                  says);
    ck_assert_str_eq(weir_last_message(), scene.last_line);
}

/* These options are taken, and one line says `says`. */
static void assert_ignored(struct weir_options options, const char *says)
{
    struct weir_options read;
    struct scene scene;
    scene_init(&scene, &options);
    scene.log_allowed = true;
    ck_assert_msg(options_read(&options, &read) == WEIR_OK, "%s", says);
    ck_assert_int_eq(scene.log_lines, 1);
    ck_assert_str_eq(scene.last_line, says);
}

/* ---- Options ---- */

TEST(options_out_of_range_are_refused_by_name_and_range, 30)
{
    static const struct {
        size_t offset;
        int64_t value;
        const char *says;
    } rows[] = {
        { offsetof(struct weir_options, max_keys), -1, "max_keys must be 1 to 2147483648, not -1" },
        { offsetof(struct weir_options, max_keys), 2147483649, "max_keys must be 1 to 2147483648, not 2147483649" },
        { offsetof(struct weir_options, max_bytes), -1, "max_bytes must be 1048576 to " },
        { offsetof(struct weir_options, max_bytes), 1048575, "max_bytes must be 1048576 to " },
        { offsetof(struct weir_options, max_bytes), INT64_MAX, "max_bytes must be 1048576 to " },
        { offsetof(struct weir_options, timeout_us), -1, "timeout_us must be 1 to 3600000000, not -1" },
        { offsetof(struct weir_options, timeout_us), WEIR_HOUR + 1, "timeout_us must be 1 to 3600000000" },
        { offsetof(struct weir_options, instances), -1, "instances must be 1 to 10000, not -1" },
        { offsetof(struct weir_options, rank), 1, "rank must be 0 to instances-1" },
        { offsetof(struct weir_options, weight), 65536, "weight must be 1 to 65535, not 65536" },
        { offsetof(struct weir_options, total_weight), 2, "total_weight must be 1 to 1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        memcpy((char *)&options + rows[i].offset, &rows[i].value, sizeof rows[i].value);
        assert_refused(options, WEIR_EINVAL, rows[i].says);
    }
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.on_full = (enum weir_on_full)3;
    assert_refused(options, WEIR_EINVAL, "on_full must be 0 to 2, not 3");
    options = (struct weir_options)WEIR_OPTIONS_INIT;
    options.mode = (enum weir_mode)4;
    assert_refused(options, WEIR_EINVAL, "option mode must be 0 to 3, not 4");
    options.mode = WEIR_LOCAL;
    options.on_failure = (enum weir_on_failure)4;
    assert_refused(options, WEIR_EINVAL, "option on_failure must be 0 to 3, not 4");
}

TEST(options_of_redis_are_named_and_ignored_in_local_mode, 30)
{
    static const struct {
        const char *name;
        struct weir_options options;
    } rows[] = {
        { "redis_url", { .redis_url = "redis://127.0.0.1" } },
        { "redis_password_file", { .redis_password_file = "/etc/hostname" } },
        { "redis_sentinel_user", { .redis_sentinel_user = "watcher" } },
        { "redis_sentinel_password_file", { .redis_sentinel_password_file = "/etc/hostname" } },
        { "redis_prefix", { .redis_prefix = "weir:" } },
        { "by_local_clock", { .by_local_clock = true } },
        { "redis_replicas", { .redis_replicas = 1 } },
        { "redis_gather_us", { .redis_gather_us = 1000 } },
        { "shared", { .shared = "limits" } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = rows[i].options;
        char says[96];
        options.size = sizeof options;
        snprintf(says, sizeof says, "mode WEIR_LOCAL does not use these options: %s", rows[i].name);
        assert_ignored(options, says);
    }
}

TEST(options_of_leases_are_named_and_ignored_in_other_modes, 30)
{
    static const struct {
        const char *name;
        struct weir_options options;
    } rows[] = {
        { "lease_life_us", { .lease_life_us = 100000 } }, { "lease_life_us", { .lease_life_us = -1 } },
        { "lease_excess", { .lease_excess = 1 } },        { "lease_max", { .lease_max = 1 } },
        { "denial_life_us", { .denial_life_us = 1000 } }, { "strict", { .strict = true } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = rows[i].options;
        char says[96];
        options.size = sizeof options;
        snprintf(says, sizeof says, "mode WEIR_LOCAL does not use these options: %s", rows[i].name);
        assert_ignored(options, says);
        options.mode = WEIR_DISTRIBUTED;
        options.redis_url = "redis://127.0.0.1";
        snprintf(says, sizeof says, "mode WEIR_DISTRIBUTED does not use these options: %s", rows[i].name);
        assert_ignored(options, says);
    }
}

TEST(options_of_leases_have_ranges_and_defaults, 30)
{
    static const struct {
        int64_t life_us, max, excess, denial_us;
        const char *says; /* NULL: they are taken */
    } rows[] = {
        { 999, 0, 0, 0, "option lease_life_us must be 1000 to 31622400000000, not 999" },
        { -1, 0, 0, 0, "option lease_life_us must be 1000 to 31622400000000, not -1" },
        { 31622400000001, 0, 0, 0, "option lease_life_us must be 1000 to 31622400000000, not 31622400000001" },
        { 0, -1, 0, 0, "option lease_max must be 1 to 8796093022208, not -1" },
        { 0, 8796093022209, 0, 0, "option lease_max must be 1 to 8796093022208, not 8796093022209" },
        { 0, 0, 101, 0, "option lease_excess must be 1 to 100, not 101" },
        { 0, 0, 0, 999, "option denial_life_us must be 1000 to 31622400000000, not 999" },
        { 1000, 1, 1, 1000, NULL },
        { 31622400000000, 1000000000, 100, 31622400000000, NULL },
        { 0, 0, 0, 0, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT, read;
        options.mode = WEIR_HYBRID;
        options.redis_url = "redis://127.0.0.1";
        options.lease_life_us = rows[i].life_us;
        options.lease_max = rows[i].max;
        options.lease_excess = rows[i].excess;
        options.denial_life_us = rows[i].denial_us;
        if (rows[i].says) {
            assert_refused(options, WEIR_EINVAL, rows[i].says);
            continue;
        }
        must_succeed(options_read(&options, &read));
        ck_assert_int_eq(read.lease_life_us, rows[i].life_us ? rows[i].life_us : WEIR_MAX_PERIOD_US);
        ck_assert_int_eq(read.lease_excess, rows[i].excess ? rows[i].excess : 5);
        ck_assert_int_eq(read.denial_life_us, rows[i].denial_us ? rows[i].denial_us : 2 * WEIR_SECOND);
        ck_assert_int_eq(read.lease_max, rows[i].max ? rows[i].max : WEIR_MAX_PERMITS);
        ck_assert(!read.strict);
        ck_assert_str_eq(read.redis_prefix, "weir:");
    }
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = WEIR_HYBRID;
    assert_refused(options, WEIR_EINVAL, "option redis_url is required in mode WEIR_HYBRID");
    options.redis_url = "";
    assert_refused(options, WEIR_EINVAL, "option redis_url is required in mode WEIR_HYBRID");
}

TEST(redis_replicas_defaults_to_0_and_allows_up_to_16, 10)
{
    static const enum weir_mode modes[] = { WEIR_DISTRIBUTED, WEIR_HYBRID };
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT, read;
        options.mode = modes[i];
        options.redis_url = "redis://127.0.0.1";
        must_succeed(options_read(&options, &read));
        ck_assert_int_eq(read.redis_replicas, 0);
        options.redis_replicas = 16;
        must_succeed(options_read(&options, &read));
        ck_assert_int_eq(read.redis_replicas, 16);
        options.redis_replicas = 17;
        assert_refused(options, WEIR_EINVAL, "option redis_replicas must be 0 to 16, not 17");
        options.redis_replicas = -1;
        assert_refused(options, WEIR_EINVAL, "option redis_replicas must be 0 to 16, not -1");
    }
}

TEST(redis_gather_us_is_at_most_10_ms_and_a_quarter_of_the_timeout, 10)
{
    struct weir_options options = WEIR_OPTIONS_INIT, read;
    options.mode = WEIR_DISTRIBUTED;
    options.redis_url = "redis://127.0.0.1";
    must_succeed(options_read(&options, &read));
    ck_assert_int_eq(read.redis_gather_us, 0);
    options.redis_gather_us = WEIR_MAX_GATHER_US;
    must_succeed(options_read(&options, &read));
    ck_assert_int_eq(read.redis_gather_us, 10000);
    options.redis_gather_us++;
    assert_refused(options, WEIR_EINVAL, "option redis_gather_us must be 0 to 10000, not 10001");
    options.redis_gather_us = -1;
    assert_refused(options, WEIR_EINVAL, "option redis_gather_us must be 0 to 10000, not -1");
    options.timeout_us = 8000;
    options.redis_gather_us = 2001;
    assert_refused(options, WEIR_EINVAL,
                   "option redis_gather_us must be at most a quarter of timeout_us, 2000, not 2001");
}

TEST(open_for_applies_only_with_on_failure_open, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT, read;
    options.open_for_us = 1;
    assert_ignored(options, "option open_for_us is used with on_failure WEIR_FAIL_OPEN only");
    options.on_failure = WEIR_FAIL_OPEN;
    must_succeed(options_read(&options, &read));
    options.open_for_us = WEIR_DAY;
    must_succeed(options_read(&options, &read));
    ck_assert_int_eq(read.open_for_us, WEIR_DAY);
    options.open_for_us = WEIR_DAY + 1;
    assert_refused(options, WEIR_EINVAL, "option open_for_us must be 0 to 86400000000, not 86400000001");
    options.open_for_us = -1;
    assert_refused(options, WEIR_EINVAL, "option open_for_us must be 0 to 86400000000, not -1");
}

TEST(distributed_mode_requires_a_url_and_a_printable_prefix, 30)
{
    static const char *const bad[] = { "", " ", "a b", "weir{", "}", "tab\t", "\x7f", "ma\xc3\xb1" };
    char long_prefix[66];
    struct scene scene;
    struct weir_options options = WEIR_OPTIONS_INIT, read;
    options.mode = WEIR_DISTRIBUTED;
    assert_refused(options, WEIR_EINVAL, "option redis_url is required in mode WEIR_DISTRIBUTED");
    options.redis_url = "redis://127.0.0.1";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        options.redis_prefix = bad[i];
        assert_refused(options, WEIR_EINVAL, "option redis_prefix must be 1 to 64 printable bytes");
    }
    memset(long_prefix, '~', sizeof long_prefix);
    long_prefix[65] = '\0';
    options.redis_prefix = long_prefix;
    assert_refused(options, WEIR_EINVAL, "option redis_prefix must be 1 to 64 printable bytes");
    long_prefix[64] = '\0';
    scene_init(&scene, &options);
    must_succeed(options_read(&options, &read));
    ck_assert_ptr_eq(read.redis_prefix, long_prefix);
    options.redis_prefix = "!";
    must_succeed(options_read(&options, &read));
    options.redis_prefix = NULL;
    options.by_local_clock = true;
    options.max_keys = 5;
    options.on_full = WEIR_FULL_SHARE;
    must_succeed(options_read(&options, &read));
    ck_assert_str_eq(read.redis_prefix, "weir:");
    ck_assert(read.by_local_clock && read.max_keys == 5 && read.on_full == WEIR_FULL_SHARE);
    ck_assert_int_eq(read.on_failure, WEIR_FAIL_LOCAL);
    ck_assert_int_eq(read.timeout_us, 50000);
}

#ifndef WEIR_REDIS
TEST(a_build_without_redis_says_so, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = WEIR_DISTRIBUTED;
    options.redis_url = "redis://127.0.0.1";
    assert_refused(options, WEIR_EINVAL, "this build of weir has no Redis");
    options.mode = WEIR_HYBRID;
    assert_refused(options, WEIR_EINVAL, "this build of weir has no Redis");
}
#endif

TEST(options_at_the_ends_of_their_ranges_are_accepted, 30)
{
    static const struct weir_options rows[] = {
        { .max_keys = 1 },
        { .max_keys = INT64_C(1) << 31 },
        { .max_bytes = INT64_C(1) << 20 },
        { .max_bytes = INT64_C(1) << 50 },
        { .timeout_us = 1 },
        { .timeout_us = WEIR_HOUR },
        { .on_full = WEIR_FULL_ALLOW },
        { .on_failure = WEIR_FAIL_LOCAL },
        { .on_failure = WEIR_FAIL_ERROR },
        { .on_full = WEIR_FULL_SHARE, .keep_idle = true },
        { .instances = 10000, .rank = 9999 },
        { .weight = 65535 },
        { .instances = 2, .weight = 1, .total_weight = 65536 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = rows[i];
        options.size = sizeof options;
        OPEN_SCENE(scene, &options);
        weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=70000 period=1s");
        ck_assert(taken(limit, "key", 1).allowed);
    }
}

TEST(option_defaults_are_those_in_the_header, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT, read;
    must_succeed(options_read(&options, &read));
    ck_assert_int_eq(read.max_keys, 1000000);
    ck_assert_int_eq(read.max_bytes, 256 * 1000000);
    ck_assert_int_eq(read.timeout_us, 50000);
    ck_assert_int_eq(read.on_full, WEIR_FULL_DENY);
    ck_assert(!read.keep_idle && !read.policy_file && !read.now_us && read.log == log_to_stderr);
    ck_assert_int_eq(read.mode, WEIR_LOCAL);
    ck_assert_int_eq(read.on_failure, WEIR_FAIL_LOCAL);
    ck_assert(!read.redis_url && !read.redis_password_file && !read.redis_prefix && !read.by_local_clock);
    ck_assert(!read.lease_life_us && !read.lease_max && !read.strict && !read.open_for_us);
    must_succeed(options_read(NULL, &read));
    ck_assert_int_eq(read.max_keys, 1000000);
    options.max_keys = 10;
    must_succeed(options_read(&options, &read));
    ck_assert_int_eq(read.max_bytes, 1 << 20); /* at least 1 MiB */
    options.max_keys = 5000;
    must_succeed(options_read(&options, &read));
    ck_assert_int_eq(read.max_bytes, 256 * 5000);
}

/* ---- weir_limit_info() ---- */

static struct weir_limit_info info_of(weir_limit *limit)
{
    struct weir_limit_info info = { .size = sizeof info };
    must_succeed(weir_limit_info(limit, &info));
    return info;
}

static void assert_info(const struct weir_options *options, const char *policy, struct weir_limit_info expected)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_options given = *options;
    scene_init(&scene, &given);
    scene.log_allowed = true; /* about the missing Redis */
    must_succeed(weir_open(&given, &scene.limiter));
    struct weir_limit_info info = info_of(scene_define_text(&scene, "limit", policy));
    ck_assert_msg(info.limit == expected.limit, "%s: limit %" PRId64, policy, info.limit);
    ck_assert_msg(info.lease_life_us == expected.lease_life_us, "%s: life %" PRId64, policy, info.lease_life_us);
    ck_assert_msg(info.lease_max == expected.lease_max, "%s: lease %" PRId64, policy, info.lease_max);
    ck_assert_msg(info.over_max == expected.over_max, "%s: over %" PRId64, policy, info.over_max);
}

TEST(weir_limit_info_gives_the_instances_share_in_local_mode, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    assert_info(&options, "token_bucket limit=100 period=1s burst=40 debt=2", (struct weir_limit_info){ .limit = 42 });
    options.instances = 4;
    assert_info(&options, "token_bucket limit=100 period=1s burst=40", (struct weir_limit_info){ .limit = 10 });

    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=7 period=1s");
    struct weir_limit_info info = { .size = sizeof info - 1 };
    ck_assert_int_eq(weir_limit_info(limit, &info), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_info(limit, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_info(NULL, &info), WEIR_EINVAL);
    ck_assert_int_eq(info_of(limit).limit, 7);
    scene_define_text(&scene, "limit", "fixed_window limit=9 period=1s");
    ck_assert_int_eq(info_of(limit).limit, 9);
}

#ifdef WEIR_REDIS
TEST(weir_limit_info_gives_the_largest_lease_and_the_possible_excess, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = WEIR_DISTRIBUTED;
    options.redis_url = "unix:///weir-has-no-server-here";
    options.instances = 8;
    assert_info(&options, "token_bucket limit=1000 period=1s burst=500", (struct weir_limit_info){ .limit = 500 });

    options.mode = WEIR_HYBRID; /* two grants of a 16th each; over: 5 % of the burst, which comes back in 25 ms */
    assert_info(&options, "token_bucket limit=1000 period=1s burst=500",
                (struct weir_limit_info){ .limit = 500, .lease_life_us = 25000, .lease_max = 62, .over_max = 25 });
    assert_info(
        &options, "token_bucket limit=1000 period=1h",
        (struct weir_limit_info){ .limit = 1000, .lease_life_us = 3 * WEIR_MINUTE, .lease_max = 124, .over_max = 50 });
    assert_info(&options, "token_bucket limit=100000 period=1s burst=500", /* a life below a millisecond */
                (struct weir_limit_info){ .limit = 500 });
    assert_info(&options, "token_bucket limit=1000 period=1s burst=15", (struct weir_limit_info){ .limit = 15 });
    assert_info(&options, "token_bucket limit=1000 period=1s refill=interval",
                (struct weir_limit_info){ .limit = 1000, .lease_life_us = WEIR_SECOND, .lease_max = 124 });
    assert_info(&options, "fixed_window limit=400 period=1h",
                (struct weir_limit_info){ .limit = 400, .lease_life_us = WEIR_HOUR, .lease_max = 50 });
    assert_info(&options, "sliding_window limit=400 period=1s",
                (struct weir_limit_info){ .limit = 400, .lease_life_us = 100000, .lease_max = 50 });
    assert_info(&options, "leaky_bucket limit=50 period=1s capacity=400",
                (struct weir_limit_info){ .limit = 400, .lease_life_us = 8 * WEIR_SECOND, .lease_max = 50 });

    options.strict = true; /* holds back what returns in a lease's life; if that is too much, leases nothing */
    assert_info(&options, "token_bucket limit=1000 period=1s burst=500",
                (struct weir_limit_info){ .limit = 475, .lease_life_us = 25000, .lease_max = 58 });
    assert_info(&options, "fixed_window limit=400 period=1s",
                (struct weir_limit_info){ .limit = 400, .lease_life_us = WEIR_SECOND, .lease_max = 50 });
    options.lease_excess = 60;
    assert_info(&options, "token_bucket limit=1000 period=1s burst=500", (struct weir_limit_info){ .limit = 500 });

    options.strict = false;
    options.lease_life_us = 10000;
    options.lease_max = 7;
    assert_info(&options, "token_bucket limit=1000 period=1s burst=500",
                (struct weir_limit_info){ .limit = 500, .lease_life_us = 10000, .lease_max = 7, .over_max = 10 });
}
#endif

TEST(options_of_any_other_struct_size_are_refused, 60)
{
    for (size_t size = 0; size < 2 * sizeof(struct weir_options); size++) {
        unsigned char bytes[2 * sizeof(struct weir_options)];
        struct weir_options options = WEIR_OPTIONS_INIT;
        weir *limiter = NULL;
        memset(bytes, 0xff, sizeof bytes); /* whatever is read of it leads nowhere */
        memcpy(bytes, &size, sizeof size);
        if (size != sizeof options)
            ck_assert_int_eq(weir_open((const struct weir_options *)(const void *)bytes, &limiter), WEIR_EINVAL);
        options.quiet = true;
        options.peers = (const struct weir_peers *)(const void *)bytes;
        if (size != sizeof(struct weir_peers))
            ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EINVAL);
        options.peers = NULL;
        options.consul = (const struct weir_consul *)(const void *)bytes;
        if (size != sizeof(struct weir_consul))
            ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EINVAL);
        ck_assert_ptr_null(limiter);
    }
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.size = SIZE_MAX;
    weir *limiter = NULL;
    ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EINVAL);
}

TEST(null_options_give_all_defaults, 30)
{
    weir *limiter = NULL;
    weir_limit *limit;
    struct weir_decision decision;
    must_succeed(weir_open(NULL, &limiter));
    limit = limit_of(limiter, "limit", "token_bucket limit=2 period=1h");
    for (int i = 0; i < 3; i++) {
        must_succeed(weir_try(limit, weir_key_text("key"), 1, &decision));
        ck_assert_int_eq(decision.allowed, i < 2);
    }
    weir_close(limiter);
    weir_close(NULL);
    ck_assert_int_eq(weir_open(NULL, NULL), WEIR_EINVAL);
}

TEST(weir_open_refuses_a_null_out_pointer, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct scene scene;
    scene_init(&scene, &options);
    scene.log_allowed = true;
    ck_assert_int_eq(weir_open(&options, NULL), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "out must not be NULL");
}

/* ---- Without a log hook ---- */

/* Get the text that weir writes to stderr if it opens twice with these options, whether they are refused or not. */
static void stderr_of(const struct weir_options *options, char *text, size_t size)
{
    FILE *file = tmpfile();
    weir *limiter = NULL;
    ck_assert_ptr_nonnull(file);
    fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    for (int i = 0; i < 2; i++, limiter = NULL) {
        weir_open(options, &limiter);
        weir_close(limiter);
    }
    ck_assert_int_ge(dup2(kept, STDERR_FILENO), 0);
    close(kept);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

TEST(without_a_hook_an_error_goes_to_stderr_once_a_minute_unless_quiet, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    char text[1024];
    options.max_keys = -1;
    stderr_of(&options, text, sizeof text);
    ck_assert_str_eq(text, "weir: error: option max_keys must be 1 to 2147483648, not -1\n");
    options.max_keys = -2; /* of the same kind */
    stderr_of(&options, text, sizeof text);
    ck_assert_str_eq(text, "");
    options.max_keys = 0;
    options.timeout_us = -1;
    stderr_of(&options, text, sizeof text);
    ck_assert_str_eq(text, "weir: error: option timeout_us must be 1 to 3600000000, not -1\n");
    options.timeout_us = 0;
    options.rank = 1;
    options.quiet = true;
    stderr_of(&options, text, sizeof text);
    ck_assert_str_eq(text, "");
    options.rank = 0;
    options.quiet = false;
    options.strict = true; /* ignored in local mode: a line for hooks only */
    stderr_of(&options, text, sizeof text);
    ck_assert_str_eq(text, "");
}

/* ---- The policy file ---- */

static void write_file(char *path, size_t size, const char *text)
{
    snprintf(path, size, "/tmp/weir-test-XXXXXX");
    int descriptor = mkstemp(path);
    ck_assert_int_ge(descriptor, 0);
    ck_assert_int_eq(write(descriptor, text, strlen(text)), (ssize_t)strlen(text));
    close(descriptor);
}

TEST(weir_open_loads_the_policy_file_or_fails, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct scene scene;
    char path[64], says[256];
    write_file(path, sizeof path,
               "# two limits\nlogin = token_bucket limit=5 period=1m burst=10\n\nread=fixed_window limit=9 period=1h");
    options.policy_file = path;
    scene_open(&scene, &options);
    ck_assert_int_eq(peeked(weir_limit_find(scene.limiter, "login"), "key", 1).limit, 10);
    ck_assert_int_eq(peeked(weir_limit_find(scene.limiter, "read"), "key", 1).limit, 9);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "two"));
    scene_close(&scene);
    unlink(path);

    snprintf(says, sizeof says, "%s: ", path);
    assert_refused(options, WEIR_EIO, says);

    write_file(path, sizeof path, "login = token_bucket limit=5 period=1m\nread = fixed_window limit=0 period=1h\n");
    snprintf(says, sizeof says, "%s:2: ", path);
    assert_refused(options, WEIR_EINVAL, says);
    unlink(path);
}

/* ---- The clock ---- */

TEST(a_clock_out_of_range_is_an_error_that_is_logged_and_counted, 30)
{
    static const int64_t bad[] = { -1, INT64_MIN, WEIR_MAX_TIME_US + 1, INT64_MAX };
    struct weir_stats stats = { .size = sizeof stats };
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=5 period=1m");
    const int64_t good_us = scene.now_us;
    ck_assert(taken(limit, "key", 1).allowed);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct weir_decision decision = { .limit = 4711 };
        const struct weir_request request = { limit, weir_key_text("key"), 1, 0 };
        scene.now_us = bad[i];
        scene.log_allowed = true;
        ck_assert_int_eq(weir_try(limit, weir_key_text("key"), 1, &decision), WEIR_EINVAL);
        ck_assert_int_eq(weir_try_all(scene.limiter, &request, 1, &decision), WEIR_EINVAL);
        ck_assert_int_eq(weir_peek(limit, weir_key_text("key"), 1, &decision), WEIR_EINVAL);
        ck_assert_int_eq(decision.limit, 4711); /* untouched */
        ck_assert_msg(strstr(scene.last_line, "clock must be 0 to 9007199254740991, not ") != NULL, "%s",
                      scene.last_line);
        ck_assert_int_eq(scene.log_lines, 3 * (int)(i + 1));
    }
    /* A request that has its own time needs no clock. */
    const struct weir_request timed = { limit, weir_key_text("key"), 1, good_us };
    struct weir_decision decision;
    must_succeed(weir_try_batch(scene.limiter, &timed, 1, &decision));
    ck_assert_int_eq(decision.remaining, 3);
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.errors, 2 * sizeof bad / sizeof bad[0]);
    ck_assert_uint_eq(stats.allowed, 2);
}

TEST(the_smallest_and_the_largest_time_are_accepted, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=5 period=1m");
    scene.now_us = 0;
    ck_assert_int_eq(taken(limit, "key", 5).remaining, 0);
    scene.now_us = WEIR_MAX_TIME_US;
    ck_assert_int_eq(taken(limit, "key", 5).remaining, 0);
    ck_assert_int_eq(taken(limit, "key", 5).retry_after_us, WEIR_MINUTE);
}

TEST(the_default_clock_is_unix_time, 30)
{
    weir *limiter;
    weir_limit *limit;
    struct weir_decision decision;
    must_succeed(weir_open(NULL, &limiter));
    limit = limit_of(limiter, "limit", "fixed_window limit=5 period=1d align=epoch");
    const int64_t day = WEIR_DAY / WEIR_SECOND, before = (int64_t)time(NULL) % day;
    must_succeed(weir_try(limit, weir_key_text("key"), 1, &decision));
    /* The window ends at midnight UTC: within a minute, the day around. */
    int64_t told = day - decision.reset_after_us / WEIR_SECOND, apart = (told - before + 2 * day) % day;
    ck_assert_msg(apart <= 60 || apart >= day - 60, "%" PRId64 " s apart", apart);
    weir_close(limiter);
}

/* ---- The log ---- */

struct lines {
    int count;
    bool bad; /* empty, or not one line, or with a key in it */
};

static void look_at_line(void *user, enum weir_log_level level, const char *line)
{
    struct lines *lines = user;
    lines->count++;
    lines->bad = lines->bad || !*line || strchr(line, '\n') || strstr(line, "very-secret") || level < WEIR_LOG_ERROR ||
                 level > WEIR_LOG_INFO;
}

TEST(a_refused_call_is_logged_in_one_line_without_the_key, 30)
{
    struct lines lines = { 0 };
    weir *limiter, *another;
    weir_limit *limit, *foreign;
    struct weir_decision decision;
    struct weir_policy policy = policy_of("token_bucket limit=5 period=1m");
    must_succeed(weir_open(OPTIONS(.log = look_at_line, .user = &lines), &limiter));
    must_succeed(weir_open(NULL, &another));
    must_succeed(weir_limit_define(limiter, "limit", &policy, &limit));
    must_succeed(weir_limit_define(another, "limit", &policy, &foreign));
    ck_assert_int_eq(lines.count, 0);

    const struct weir_key key = weir_key_text("very-secret");
    const struct weir_request of_another = { foreign, key, 1, 0 }, at_no_time = { limit, key, 1, -1 };
    ck_assert_int_eq(weir_try(limit, key, 0, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try(limit, key, WEIR_MAX_PERMITS + 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try(limit, weir_key("very-secret", 0), 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try(limit, weir_key("very-secret", WEIR_MAX_KEY_LEN + 1), 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try(limit, weir_key(NULL, 5), 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try(limit, key, 1, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_acquire(limit, key, 1, -1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_all(limiter, &of_another, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_batch(limiter, &at_no_time, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_submit(limiter, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(limiter, "no spaces", &policy, NULL), WEIR_EINVAL);
    policy.limit = 0;
    ck_assert_int_eq(weir_limit_define(limiter, "limit", &policy, NULL), WEIR_EINVAL);
    ck_assert_int_eq(lines.count, 12);
    ck_assert(!lines.bad);
    weir_close(another);
    weir_close(limiter);
}

TEST(every_error_code_has_a_distinct_message, 30)
{
    for (int a = WEIR_ECANCELED - 1; a <= WEIR_OK + 1; a++) {
        ck_assert_str_ne(weir_strerror(a), "");
        for (int b = WEIR_ECANCELED; b < a && a <= WEIR_OK; b++)
            ck_assert_str_ne(weir_strerror(a), weir_strerror(b));
    }
    ck_assert_str_eq(weir_version(), WEIR_VERSION);
}

/* ---- A user's backend ---- */

/* One bucket of ten permits for all keys that never refills. The cost of a submitted request selects an immediate
 * answer, one from another thread, or none. */
enum { AT_ONCE = 1, LATER = 2, LATER_AN_ERROR = 3, AN_ERROR = 4 };

struct tiny {
    struct weir_backend backend; /* first */
    pthread_mutex_t mutex;
    int64_t left, decided;
    int answers_with; /* decide() answers so */
    struct weir_op *queue[100];
    int64_t costs[100];
    int queued;
    bool destroyed;
    int64_t last_deadline_us;
};

static void tiny_take(struct tiny *tiny, int64_t cost, struct weir_decision *out)
{
    pthread_mutex_lock(&tiny->mutex);
    bool allowed = tiny->left >= cost;
    tiny->left -= allowed ? cost : 0;
    tiny->decided++;
    *out = (struct weir_decision){
        .allowed = allowed, .source = WEIR_BY_BACKEND, .limit = 10, .remaining = tiny->left
    };
    pthread_mutex_unlock(&tiny->mutex);
}

static int tiny_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                       int64_t deadline_us, struct weir_decision *out)
{
    struct tiny *tiny = (struct tiny *)backend;
    tiny->last_deadline_us = deadline_us;
    if (tiny->answers_with)
        return tiny->answers_with;
    for (size_t i = 0; i < n; i++)
        tiny_take(tiny, requests[i].cost, &out[i]);
    return WEIR_OK;
}

static int tiny_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                       struct weir_op *op)
{
    struct tiny *tiny = (struct tiny *)backend;
    tiny->last_deadline_us = deadline_us;
    if (request->cost == AN_ERROR)
        return WEIR_EIO;
    if (request->cost == AT_ONCE) {
        tiny_take(tiny, 1, &op->decision);
        return WEIR_OK;
    }
    op->opaque[2] = op->opaque[5] = (uint64_t)request->cost; /* these words are the backend's */
    pthread_mutex_lock(&tiny->mutex);
    tiny->costs[tiny->queued] = request->cost;
    tiny->queue[tiny->queued++] = op;
    pthread_mutex_unlock(&tiny->mutex);
    return 1;
}

static void *tiny_answer(void *argument)
{
    struct tiny *tiny = argument;
    for (int i = 0; i < tiny->queued; i++) {
        struct weir_op *op = tiny->queue[i];
        must(op->opaque[2] == (uint64_t)tiny->costs[i] && op->opaque[5] == op->opaque[2], "its words are untouched");
        if (tiny->costs[i] == LATER)
            tiny_take(tiny, 1, &op->decision);
        op->done(op, tiny->costs[i] == LATER ? WEIR_OK : WEIR_ETIME);
    }
    return NULL;
}

static void tiny_destroy(struct weir_backend *backend)
{
    ((struct tiny *)backend)->destroyed = true;
}

static void tiny_shut(struct weir_backend *backend)
{
    (void)backend; /* what waits has been answered */
}

static const struct weir_backend_ops tiny_ops = {
    .size = sizeof tiny_ops,
    .name = "tiny",
    .decide = tiny_decide,
    .submit = tiny_submit,
    .shut = tiny_shut,
    .destroy = tiny_destroy,
};

static const struct weir_backend_ops tiny_blocking_ops = {
    .size = sizeof tiny_ops,
    .name = "tiny",
    .decide = tiny_decide,
    .destroy = tiny_destroy,
};

static void tiny_init(struct tiny *tiny, const struct weir_backend_ops *ops)
{
    memset(tiny, 0, sizeof *tiny);
    tiny->backend.ops = ops;
    tiny->left = 10;
    pthread_mutex_init(&tiny->mutex, NULL);
}

static void tiny_open(struct tiny *tiny, const struct weir_backend_ops *ops, struct scene *scene, weir_limit **limit)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.on_failure = WEIR_FAIL_ERROR;
    tiny_init(tiny, ops);
    scene_init(scene, &options);
    must_succeed(weir_open_backend(&options, &tiny->backend, &scene->limiter));
    *limit = scene_define_text(scene, "limit", "token_bucket limit=10 period=1m");
}

TEST(a_users_backend_decides_and_the_core_counts, 30)
{
    struct tiny tiny;
    struct scene scene;
    weir_limit *limit;
    struct weir_stats stats = { .size = sizeof stats };
    tiny_open(&tiny, &tiny_blocking_ops, &scene, &limit);
    for (int i = 0; i < 13; i++) {
        struct weir_decision decision = taken(limit, i % 2 ? "a" : "b", 1);
        ck_assert_int_eq(decision.allowed, i < 10);
        ck_assert_int_eq(decision.source, WEIR_BY_BACKEND);
        ck_assert_int_eq(decision.remaining, i < 10 ? 9 - i : 0);
    }
    struct weir_decision decision = { .limit = 4711 };
    tiny.answers_with = WEIR_ESTATE;
    ck_assert_int_eq(weir_try(limit, weir_key_text("a"), 1, &decision), WEIR_ESTATE);
    ck_assert_int_eq(weir_refund(limit, weir_key_text("a"), 1), WEIR_ESTATE);
    ck_assert_int_eq(decision.limit, 4711);
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.allowed, 10);
    ck_assert_uint_eq(stats.denied, 3);
    ck_assert_uint_eq(stats.errors, 1);
    ck_assert_int_eq(stats.keys, 0);
    ck_assert(!tiny.destroyed);
    scene_close(&scene);
    ck_assert(tiny.destroyed);
}

TEST(a_backend_without_a_required_function_is_refused, 30)
{
    struct weir_backend_ops ops[6];
    for (int i = 0; i < 6; i++)
        ops[i] = tiny_ops;
    ops[0].size--;
    ops[1].name = NULL;
    ops[2].decide = NULL;
    ops[3].destroy = NULL;
    ops[4].size = 0;
    ops[5].shut = NULL; /* nothing could end submitted requests */
    for (int i = 0; i < 6 + 1; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        struct tiny tiny;
        struct scene scene;
        tiny_init(&tiny, i < 6 ? &ops[i] : NULL);
        scene_init(&scene, &options);
        scene.log_allowed = true;
        ck_assert_int_eq(weir_open_backend(&options, &tiny.backend, &scene.limiter), WEIR_EINVAL);
        ck_assert_int_eq(scene.log_lines, 1);
        ck_assert_msg(strstr(scene.last_line, "backend") != NULL, "%s", scene.last_line);
        ck_assert(!tiny.destroyed && !scene.limiter); /* still the caller's */
    }
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct tiny tiny;
    struct scene scene;
    tiny_init(&tiny, &tiny_ops);
    scene_init(&scene, &options);
    scene.log_allowed = true;
    ck_assert_int_eq(weir_open_backend(&options, NULL, &scene.limiter), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "backend must not be NULL");
    ck_assert_int_eq(weir_open_backend(&options, &tiny.backend, NULL), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "out must not be NULL");
    options.size = 0;
    ck_assert_int_eq(weir_open_backend(&options, &tiny.backend, &scene.limiter), WEIR_EINVAL);
    must_succeed(weir_open_backend(NULL, &tiny.backend, &scene.limiter));
    weir_close(scene.limiter);
}

TEST(a_users_backend_requires_local_mode, 30)
{
    static const struct weir_options rows[] = {
        { .mode = WEIR_DISTRIBUTED, .redis_url = "redis://127.0.0.1" },
        { .mode = WEIR_HYBRID, .redis_url = "redis://127.0.0.1" },
    };
    static const char *const names[] = { "mode", "mode" };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = rows[i];
        struct tiny tiny;
        struct scene scene;
        options.size = sizeof options;
        tiny_init(&tiny, &tiny_ops);
        scene_init(&scene, &options);
        scene.log_allowed = true;
        ck_assert_int_eq(weir_open_backend(&options, &tiny.backend, &scene.limiter), WEIR_EINVAL);
        ck_assert_msg(strstr(scene.last_line, names[i]) != NULL, "%s", scene.last_line);
        ck_assert(!tiny.destroyed);
    }
}

/* ---- Submitted ---- */

struct done {
    struct weir_op op;
    int calls, status;
    bool function_was_ours;
};

static void on_done(struct weir_op *op, int status)
{
    struct done *done = op->user;
    done->calls++;
    done->status = status;
    done->function_was_ours = op->done == on_done && op == &done->op;
}

static void done_init(struct done *done, weir_limit *limit, int64_t cost)
{
    *done = (struct done){ .op = { .request = { limit, weir_key_text("key"), cost, 0 }, .done = on_done } };
    done->op.user = done;
}

TEST(a_submitted_request_is_answered_once_and_counted_once, 30)
{
    static const struct {
        int64_t cost;
        int submitted, status;
    } kinds[] = {
        { AT_ONCE, WEIR_OK, 0 }, { LATER, 1, WEIR_OK }, { LATER_AN_ERROR, 1, WEIR_ETIME }, { AN_ERROR, WEIR_EIO, 0 }
    };
    enum { OPS = 40 };
    struct tiny tiny;
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit;
    struct weir_stats stats = { .size = sizeof stats };
    static struct done dones[OPS];
    pthread_t thread;
    tiny_open(&tiny, &tiny_ops, &scene, &limit);
    for (int i = 0; i < OPS; i++) {
        done_init(&dones[i], limit, kinds[i % 4].cost);
        ck_assert_int_eq(weir_submit(scene.limiter, &dones[i].op), kinds[i % 4].submitted);
        ck_assert_int_eq(dones[i].calls, 0);
        if (kinds[i % 4].submitted != 1)
            ck_assert(dones[i].op.done == on_done && dones[i].op.user == &dones[i]);
    }
    must_succeed(
        weir_stats_read(scene.limiter, &stats)); /* ten immediate answers, ten errors; later ones do not count */
    ck_assert_uint_eq(stats.allowed, 10);
    ck_assert_uint_eq(stats.denied, 0);
    ck_assert_uint_eq(stats.errors, 10);

    tiny.left = 4;
    ck_assert_int_eq(pthread_create(&thread, NULL, tiny_answer, &tiny), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    int allowed = 0;
    for (int i = 0; i < OPS; i++) {
        bool later = kinds[i % 4].submitted == 1;
        ck_assert_int_eq(dones[i].calls, later);
        if (!later)
            continue;
        ck_assert(dones[i].function_was_ours && dones[i].op.done == on_done);
        ck_assert_int_eq(dones[i].status, kinds[i % 4].status);
        allowed += dones[i].status == WEIR_OK && dones[i].op.decision.allowed;
    }
    ck_assert_int_eq(allowed, 4);
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.allowed, 10 + 4);
    ck_assert_uint_eq(stats.denied, 6);
    ck_assert_uint_eq(stats.errors, 10 + 10);
}

TEST(a_bad_op_is_refused_and_its_done_is_never_called, 30)
{
    struct tiny tiny;
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit;
    struct done done;
    tiny_open(&tiny, &tiny_ops, &scene, &limit);
    scene.log_allowed = true;
    done_init(&done, limit, LATER);
    done.op.done = NULL;
    ck_assert_int_eq(weir_submit(scene.limiter, &done.op), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "op->done must not be NULL");
    done_init(&done, limit, 0);
    ck_assert_int_eq(weir_submit(scene.limiter, &done.op), WEIR_EINVAL);
    done_init(&done, NULL, 1);
    ck_assert_int_eq(weir_submit(scene.limiter, &done.op), WEIR_EINVAL);
    ck_assert_int_eq(weir_submit(NULL, &done.op), WEIR_EINVAL);
    ck_assert_int_eq(done.calls, 0);
    ck_assert_int_eq(tiny.queued, 0);
}

TEST(in_local_mode_a_submitted_request_is_decided_immediately, 30)
{
    struct done done;
    struct weir_stats stats = { .size = sizeof stats };
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=3 period=1m");
    for (int i = 0; i < 5; i++) {
        done_init(&done, limit, 1);
        if (i % 2)
            done.op.done = NULL; /* never called, so it may be NULL */
        must_succeed(weir_submit(scene.limiter, &done.op));
        ck_assert_int_eq(done.op.decision.allowed, i < 3);
        ck_assert_int_eq(done.calls, 0);
    }
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.allowed, 3);
    ck_assert_uint_eq(stats.denied, 2);
}

TEST(a_backend_that_can_block_receives_a_deadline, 30)
{
    struct tiny tiny;
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir_limit *limit;
    tiny_init(&tiny, &tiny_ops);
    scene_init(&scene, &options);
    options.timeout_us = WEIR_HOUR;
    must_succeed(weir_open_backend(&options, &tiny.backend, &scene.limiter));
    limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1m");
    int64_t before_us = clock_monotonic_us();
    ck_assert(taken(limit, "key", 1).allowed);
    ck_assert_int_ge(tiny.last_deadline_us, before_us + WEIR_HOUR);
    ck_assert_int_le(tiny.last_deadline_us, clock_monotonic_us() + WEIR_HOUR);
}

/* ---- The last message ---- */

static void *read_last_message(void *user)
{
    (void)user;
    ck_assert_str_eq(weir_last_message(), ""); /* another thread's failure is not this one's */
    return NULL;
}

TEST(weir_last_message_gives_the_error_of_the_calling_thread, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    const struct weir_policy none = { .limit = 0, .period_us = WEIR_SECOND };
    const struct weir_policy good = { .limit = 1, .period_us = WEIR_SECOND };
    pthread_t thread;
    weir *limiter;
    options.quiet = true; /* no hook, and nothing on stderr */
    options.max_keys = -1;
    ck_assert_str_eq(weir_last_message(), "");
    ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EINVAL);
    ck_assert_str_eq(weir_last_message(), "option max_keys must be 1 to 2147483648, not -1");
    ck_assert_int_eq(pthread_create(&thread, NULL, read_last_message, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);

    options.max_keys = 10;
    must_succeed(weir_open(&options, &limiter));
    ck_assert_int_eq(weir_limit_define(limiter, "api", &none, NULL), WEIR_EINVAL);
    ck_assert_msg(strstr(weir_last_message(), "limit api: ") && strstr(weir_last_message(), "1 to 8796093022208"), "%s",
                  weir_last_message());
    ck_assert_int_eq(weir_limit_define(limiter, "a b", &good, NULL), WEIR_EINVAL);
    ck_assert_msg(strstr(weir_last_message(), "limit a: ") != NULL, "%s", weir_last_message());
    ck_assert_int_eq(weir_limit_define(NULL, "api", &good, NULL), WEIR_EINVAL);
    ck_assert_str_eq(weir_last_message(), "limit api: w must not be NULL");
    weir_close(limiter);
}
