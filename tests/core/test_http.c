/* test_http.c - decisions as header fields: their values, their syntax, and that a client that obeys them is admitted.
 */
#include "fake.h"

#include "core/limiter/limiter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;

enum { CASES = 100000, FRESH_LIMITS = 64 };
enum { EVERY = WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_RATELIMIT_POLICY | WEIR_HTTP_RATELIMIT | WEIR_HTTP_X_RATELIMIT };

static struct weir_request request_of(weir_limit *limit, const char *key)
{
    return (struct weir_request){ .limit = limit, .key = weir_key_text(key), .cost = 1 };
}

/* All fields as lines, "Name: value\n" each. */
static const char *lines_of(const struct weir_request *request, const struct weir_decision *decision, unsigned which,
                            char *text, size_t size)
{
    struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS];
    int n = weir_http_fields(request, decision, which, fields, WEIR_HTTP_MAX_FIELDS);
    if (n < 0)
        ck_abort_msg("fields 0x%x: %s", which, weir_strerror(n));
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        must(fields[i].name_len == strlen(fields[i].name), "a name is as long as it is");
        must(fields[i].value_len == strlen(fields[i].value), "a value is as long as it is");
        must(strstr(fields[i].value, request->key.data) == NULL, "no field tells the key");
        size_t len = strlen(text);
        snprintf(text + len, size - len, "%s: %s\n", fields[i].name, fields[i].value);
    }
    return text;
}

static void assert_lines(weir_limit *limit, const struct weir_decision *decision, unsigned which, const char *expected)
{
    char text[1024];
    const struct weir_request request = request_of(limit, "key");
    ck_assert_str_eq(lines_of(&request, decision, which, text, sizeof text), expected);
}

/* ---- What each field holds ---- */

static const struct {
    const char *policy, *quota;
} quotas[] = {
    { "token_bucket limit=100 period=1s", ";q=100;w=1" },
    { "token_bucket limit=5 period=1m", ";q=5;w=60" },
    { "token_bucket limit=100 period=1s burst=200", ";q=200;w=2" },
    { "token_bucket limit=100 period=1s burst=150", ";q=150;w=2" }, /* 1.5 s */
    { "token_bucket limit=100 period=1s burst=50", ";q=50;w=1" },   /* half a second */
    { "token_bucket limit=100 period=1s burst=100 debt=50", ";q=150;w=2" },
    { "token_bucket limit=10 period=100ms", ";q=10;w=1" },
    { "token_bucket limit=1 period=1us", ";q=1;w=1" },
    { "token_bucket limit=3 period=1s burst=4", ";q=4;w=2" }, /* 1.33.. s */
    { "token_bucket limit=10 period=1m refill=interval", ";q=10;w=60" },
    { "token_bucket limit=10 period=1m refill=interval burst=21", ";q=21;w=180" }, /* after three refills */
    { "token_bucket limit=10 period=1m refill=interval burst=20 debt=5", ";q=25;w=180" },
    { "fixed_window limit=1000 period=1h", ";q=1000;w=3600" },
    { "fixed_window limit=1 period=366d align=epoch", ";q=1;w=31622400" },
    { "fixed_window limit=1000000000 period=1500ms", ";q=1000000000;w=2" },
    { "sliding_window limit=20 period=1m blocks=7", ";q=20;w=60" },
    { "sliding_window limit=20 period=1ms", ";q=20;w=1" },
    { "leaky_bucket limit=50 period=1s", ";q=50;w=1" },
    { "leaky_bucket limit=50 period=1s capacity=101", ";q=101;w=3" }, /* 2.02 s */
    { "leaky_bucket limit=1 period=1d capacity=1000", ";q=1000;w=86400000" },
    { "concurrency limit=2 hold=10m", ";q=2;qu=\"concurrent-requests\"" },
};

TEST(ratelimit_policy_gives_a_fresh_keys_permits_and_their_refill_time, 30)
{
    struct weir_decision decision = { .allowed = true };
    OPEN_SCENE(scene, NULL);
    for (size_t i = 0; i < sizeof quotas / sizeof quotas[0]; i++) {
        char expected[256];
        weir_limit *limit = scene_define_text(&scene, "a.limit_of-9", quotas[i].policy);
        snprintf(expected, sizeof expected, "RateLimit-Policy: \"a.limit_of-9\"%s\n", quotas[i].quota);
        assert_lines(limit, &decision, WEIR_HTTP_RATELIMIT_POLICY, expected);
    }
}

TEST(ratelimit_policy_excludes_permits_that_strict_mode_holds_back, 10)
{
    static const struct {
        const char *name, *policy, *quota;
        int64_t most;
    } rows[] = {
        { "limit", "token_bucket limit=1000 period=1s", ";q=900;w=1", 900 },
        { "limit", "token_bucket limit=1000 period=1s burst=2000 debt=500", ";q=2400;w=3", 2400 },
        { "limit", "token_bucket limit=1000 period=1s burst=150", ";q=150;w=1",
          150 }, /* too small to hold permits back */
        { "limit", "token_bucket limit=1000 period=1s refill=interval", ";q=1000;w=1", 1000 },
        { "limit", "fixed_window limit=1000 period=1s", ";q=1000;w=1", 1000 },
        { "limit/ke*", "token_bucket limit=2000 period=1s", ";q=1800;w=1", 1800 },
    };
    OPEN_SCENE(scene, NULL);
    scene.limiter->leases = (struct lease_rules){
        .life_us = 100000, .excess = 100, .max = 100, .instances = 1, .strict = true
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char expected[256];
        weir_limit *limit = scene_define_text(&scene, rows[i].name, rows[i].policy);
        snprintf(expected, sizeof expected, "RateLimit-Policy: \"limit\"%s\n", rows[i].quota);
        must_succeed(weir_reset(limit, weir_key_text("key")));
        ck_assert_int_eq(peeked(limit, "key", rows[i].most + 1).retry_after_us, WEIR_NEVER);
        const struct weir_decision decision = taken(limit, "key", rows[i].most);
        ck_assert(decision.allowed);
        assert_lines(limit, &decision, WEIR_HTTP_RATELIMIT_POLICY, expected);
    }
}

/* Of a limit of 10 a minute, bursts of 20. */
static const struct {
    const char *about;
    struct weir_decision decision;
    const char *lines;
} answers[] = {
    { "admitted",
      { .allowed = true, .remaining = 19, .reset_after_us = 6000000 },
      "RateLimit-Policy: \"api\";q=20;w=120\nRateLimit: \"api\";r=19;t=6\n"
      "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 19\nX-RateLimit-Reset: 6\n" },
    { "a time is rounded up",
      { .allowed = true, .remaining = 19, .reset_after_us = 6000001 },
      "RateLimit-Policy: \"api\";q=20;w=120\nRateLimit: \"api\";r=19;t=7\n"
      "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 19\nX-RateLimit-Reset: 7\n" },
    { "an idle key",
      { .allowed = true, .remaining = 20 },
      "RateLimit-Policy: \"api\";q=20;w=120\nRateLimit: \"api\";r=20\n"
      "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 20\n" },
    { "denied",
      { .retry_after_us = 5999999, .reset_after_us = 119999999 },
      "Retry-After: 6\nRateLimit-Policy: \"api\";q=20;w=120\nRateLimit: \"api\";r=0;t=6\n"
      "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 6\n" },
    { "denied, though less would be admitted",
      { .remaining = 3, .retry_after_us = 12000000, .reset_after_us = 102000000 },
      "Retry-After: 12\nRateLimit-Policy: \"api\";q=20;w=120\nRateLimit: \"api\";r=0;t=12\n"
      "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 12\n" },
    { "a microsecond is a second",
      { .retry_after_us = 1, .reset_after_us = 1 },
      "Retry-After: 1\nRateLimit-Policy: \"api\";q=20;w=120\nRateLimit: \"api\";r=0;t=1\n"
      "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1\n" },
    { "denied, and due at once",
      { .reset_after_us = 1 },
      "Retry-After: 1\nRateLimit-Policy: \"api\";q=20;w=120\nRateLimit: \"api\";r=0;t=1\n"
      "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1\n" },
    { "can never be admitted, which leaves the others what was left",
      { .remaining = 15, .retry_after_us = WEIR_NEVER, .reset_after_us = 30000000 },
      "RateLimit-Policy: \"api\";q=20;w=120\nRateLimit: \"api\";r=15;t=30\n"
      "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 15\nX-RateLimit-Reset: 30\n" },
    { "nothing is ever admitted, as with a share of nothing",
      { .retry_after_us = WEIR_NEVER },
      "RateLimit-Policy: \"api\";q=20;w=120\nRateLimit: \"api\";r=0\n"
      "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 0\n" },
};

TEST(http_fields_give_a_decision_in_whole_seconds_rounded_up, 30)
{
    char text[1024];
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=1m burst=20");
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        const struct weir_request request = request_of(limit, "key");
        lines_of(&request, &answers[i].decision, EVERY, text, sizeof text);
        if (strcmp(text, answers[i].lines) != 0)
            ck_abort_msg("%s:\n%sis not\n%s", answers[i].about, text, answers[i].lines);
    }
}

TEST(only_the_requested_http_fields_are_written, 30)
{
    const struct weir_decision denied = { .retry_after_us = 1500000 }, allowed = { .allowed = true, .remaining = 1 };
    struct weir_http_field fields[1];
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "fixed_window limit=3 period=10s");
    assert_lines(limit, &denied, WEIR_HTTP_RETRY_AFTER, "Retry-After: 2\n");
    assert_lines(limit, &denied, WEIR_HTTP_RATELIMIT_POLICY, "RateLimit-Policy: \"api\";q=3;w=10\n");
    assert_lines(limit, &denied, WEIR_HTTP_RATELIMIT, "RateLimit: \"api\";r=0;t=2\n");
    assert_lines(limit, &denied, WEIR_HTTP_X_RATELIMIT,
                 "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2\n");
    assert_lines(limit, &denied, WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_RATELIMIT,
                 "Retry-After: 2\nRateLimit: \"api\";r=0;t=2\n");
    assert_lines(limit, &allowed, WEIR_HTTP_RETRY_AFTER, "");
    const struct weir_request request = request_of(limit, "key");
    ck_assert_int_eq(weir_http_fields(&request, &allowed, WEIR_HTTP_RETRY_AFTER, fields, 0), 0);
    ck_assert_int_eq(weir_http_fields(&request, &denied, WEIR_HTTP_RETRY_AFTER, fields, 1), 1);
}

TEST(a_reset_in_unix_time_is_rounded_up_from_the_time_of_the_request, 30)
{
    const struct weir_decision denied = { .retry_after_us = 1500000 };
    char text[1024];
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "fixed_window limit=3 period=10s");
    scene.now_us = INT64_C(1790000000500000);
    assert_lines(limit, &denied, WEIR_HTTP_X_RATELIMIT_UNIX,
                 "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1790000002\n");
    scene.now_us++;
    assert_lines(limit, &denied, WEIR_HTTP_X_RATELIMIT_UNIX | WEIR_HTTP_RATELIMIT,
                 "RateLimit: \"api\";r=0;t=2\n"
                 "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1790000003\n");
    struct weir_request request = request_of(limit, "key");
    request.now_us = 7 * WEIR_SECOND;
    ck_assert_str_eq(lines_of(&request, &denied, WEIR_HTTP_X_RATELIMIT_UNIX, text, sizeof text),
                     "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 9\n");

    struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS];
    request.now_us = 0;
    scene.now_us = -1;
    scene.log_allowed = true;
    ck_assert_int_eq(weir_http_fields(&request, &denied, WEIR_HTTP_X_RATELIMIT_UNIX, fields, 6), WEIR_EINVAL);
    ck_assert_ptr_nonnull(strstr(scene.last_line, "the clock"));
    ck_assert_int_eq(weir_http_fields(&request, &denied, WEIR_HTTP_X_RATELIMIT, fields, 6), 3); /* needs no clock */
}

/* ---- Whose numbers they are ---- */

/* One item of an RFC 9651 list: a string with integer parameters. */
struct item {
    char name[WEIR_MAX_NAME_LEN + 1];
    int64_t q, w, r, t; /* -1: not there */
};

static struct item parsed(const char *value);

/* Return t of a decision's RateLimit. */
static int64_t t_of(const struct weir_request *request, const struct weir_decision *decision)
{
    struct weir_http_field field;
    ck_assert_int_eq(weir_http_fields(request, decision, WEIR_HTTP_RATELIMIT, &field, 1), 1);
    return parsed(field.value).t;
}

TEST(the_answer_that_takes_the_last_permit_gives_the_wait_that_the_next_denial_gives, 30)
{
    static const char *const policies[] = {
        "token_bucket limit=100 period=1h",
        "token_bucket limit=100 period=1h burst=20 debt=5",
        "token_bucket limit=10 period=1h burst=100 refill=interval",
        "fixed_window limit=100 period=1h",
        "fixed_window limit=100 period=1h align=epoch",
        "sliding_window limit=100 period=1h",
        "leaky_bucket limit=50 period=1h capacity=100",
    };
    enum { INSTANCES = 3 };
    for (int64_t spread_us = 0; spread_us <= 20 * WEIR_SECOND; spread_us += 20 * WEIR_SECOND) {
        for (int64_t instances = 1; instances <= INSTANCES; instances += INSTANCES - 1) {
            OPEN_SCENE(scene, OPTIONS(.instances = instances));
            for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
                char name[16];
                snprintf(name, sizeof name, "limit%zu", i);
                const struct weir_request request = request_of(scene_define_text(&scene, name, policies[i]), "key");
                struct weir_decision last = { .remaining = 1 };
                for (int taken_now = 0; last.remaining > 0; taken_now++) {
                    ck_assert_int_lt(taken_now, 1000);
                    scene.now_us += spread_us;
                    last = taken(request.limit, "key", 1);
                }
                ck_assert(last.allowed);
                const int64_t t_s = t_of(&request, &last);
                const struct weir_decision denied = taken(request.limit, "key", 1);
                ck_assert(!denied.allowed);
                if (t_s != t_of(&request, &denied))
                    ck_abort_msg("%s: t=%" PRId64 " and then %" PRId64, policies[i], t_s, t_of(&request, &denied));
            }
        }
    }
}

TEST(the_wait_for_one_permit_follows_from_a_decision_by_redis, 10)
{
    static const struct {
        const char *policy;
        int64_t size, reset_s, t_s;
    } rows[] = {
        { "token_bucket limit=1000 period=1h", 1000, 3600, 4 },
        { "token_bucket limit=1000 period=1h burst=100 debt=20", 120, 432, 4 },
        { "token_bucket limit=10 period=1m burst=25 refill=interval", 25, 130, 10 },
        { "leaky_bucket limit=1000 period=1h capacity=100", 100, 360, 4 },
        { "fixed_window limit=1000 period=1h", 1000, 1800, 1800 },
        { "sliding_window limit=1000 period=1h", 1000, 3700, 3700 },
    };
    OPEN_SCENE(scene, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct weir_request request = request_of(scene_define_text(&scene, "api", rows[i].policy), "key");
        const struct weir_decision decision = { .allowed = true,
                                                .source = WEIR_BY_REDIS,
                                                .limit = rows[i].size,
                                                .reset_after_us = rows[i].reset_s * WEIR_SECOND };
        ck_assert_int_eq(t_of(&request, &decision), rows[i].t_s);
    }
}

TEST(http_fields_of_a_limit_on_requests_in_flight_give_no_time, 10)
{
    struct weir_decision decision;
    struct weir_reservation reservation;
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "export", "concurrency limit=2 hold=10m");
    for (int i = 0; i < 3; i++)
        must_succeed(weir_reserve(limit, weir_key_text("key"), 1, &decision, &reservation));
    ck_assert(!decision.allowed);
    assert_lines(limit, &decision, EVERY,
                 "RateLimit-Policy: \"export\";q=2;qu=\"concurrent-requests\"\nRateLimit: \"export\";r=0\n"
                 "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 0\n");
    const struct weir_decision admitted = { .allowed = true, .remaining = 1, .reset_after_us = WEIR_MINUTE };
    assert_lines(limit, &admitted, WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_RATELIMIT | WEIR_HTTP_X_RATELIMIT_UNIX,
                 "RateLimit: \"export\";r=1\nX-RateLimit-Limit: 2\nX-RateLimit-Remaining: 1\n");
}

TEST(the_reset_of_an_aligned_window_does_not_depend_on_the_clock_that_decided, 10)
{
    static const char *const policies[] = { "fixed_window limit=10 period=1h align=epoch",
                                            "token_bucket limit=10 period=1h refill=interval align=epoch",
                                            "sliding_window limit=10 period=1h blocks=1",
                                            "sliding_window limit=10 period=10h" }; /* of 10 blocks */
    struct weir_http_field fields[3];
    OPEN_SCENE(scene, NULL);
    const int64_t decided_us = 490000 * WEIR_HOUR + 50 * WEIR_MINUTE;
    const struct weir_decision decision = {
        .allowed = true, .source = WEIR_BY_REDIS, .limit = 10, .remaining = 9, .reset_after_us = 10 * WEIR_MINUTE
    };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        const struct weir_request request = request_of(scene_define_text(&scene, "api", policies[i]), "key");
        for (int64_t later_us = -WEIR_MINUTE; later_us < 10 * WEIR_MINUTE; later_us += 1 + WEIR_SECOND / 7) {
            scene.now_us = decided_us + later_us;
            ck_assert_int_eq(weir_http_fields(&request, &decision, WEIR_HTTP_X_RATELIMIT_UNIX, fields, 3), 3);
            ck_assert_int_eq(strtoll(fields[2].value, NULL, 10), 490001 * INT64_C(3600));
        }
    }
}

TEST(a_reset_in_unix_time_does_not_depend_on_when_it_is_written, 20)
{
    static const char *const policies[] = {
        "token_bucket limit=10 period=1h",
        "token_bucket limit=10 period=1h refill=interval",
        "token_bucket limit=10 period=1h refill=interval align=epoch",
        "fixed_window limit=10 period=1h",
        "fixed_window limit=10 period=1h align=epoch",
        "sliding_window limit=10 period=1h",
        "leaky_bucket limit=10 period=1h",
    };
    enum { REQUESTS = 11 }; /* some are left, none is left, denied */
    struct weir_http_field fields[3];
    OPEN_SCENE(scene, NULL);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        const struct weir_request request = request_of(scene_define_text(&scene, "api", policies[i]), "key");
        must_succeed(weir_reset(request.limit, request.key));
        scene.now_us = 490000 * WEIR_HOUR + 123456789;
        for (int n = 1; n <= REQUESTS; n++) {
            const int64_t decided_us = scene.now_us;
            const struct weir_decision decision = taken(request.limit, "key", 1);
            ck_assert_int_eq(decision.allowed, n < REQUESTS);
            int64_t first = 0;
            for (int64_t later_us = 0; later_us < 5 * WEIR_SECOND; later_us += WEIR_SECOND / 7) {
                scene.now_us = decided_us + later_us;
                ck_assert_int_eq(weir_http_fields(&request, &decision, WEIR_HTTP_X_RATELIMIT_UNIX, fields, 3), 3);
                const int64_t reset = strtoll(fields[2].value, NULL, 10);
                if (later_us > 0 && reset != first)
                    ck_abort_msg("%s, request %d: %" PRId64 " and then %" PRId64, policies[i], n, first, reset);
                first = reset;
            }
            scene.now_us = decided_us + WEIR_SECOND / 1000;
        }
    }
}

TEST(an_instance_with_a_share_reports_the_whole_policy_and_its_own_remaining_permits, 30)
{
    OPEN_SCENE(scene, OPTIONS(.instances = 4));
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=100 period=1s");
    struct weir_decision decision = taken(limit, "key", 1);
    ck_assert_int_eq(decision.limit, 25);
    assert_lines(limit, &decision, EVERY,
                 "RateLimit-Policy: \"api\";q=100;w=1\nRateLimit: \"api\";r=24;t=1\n"
                 "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 24\nX-RateLimit-Reset: 1\n");
}

TEST(http_fields_for_a_group_report_the_binding_limit_and_every_policy, 30)
{
    struct weir_decision decision;
    char text[1024];
    OPEN_SCENE(scene, NULL);
    weir_limit *burst = scene_define_text(&scene, "burst", "fixed_window limit=10 period=1s");
    weir_limit *daily = scene_define_text(&scene, "daily", "fixed_window limit=12 period=1d");
    const struct weir_request requests[] = { { .limit = burst, .key = weir_key_text("key"), .cost = 6 },
                                             { .limit = daily, .key = weir_key_text("key"), .cost = 6 } };
    must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
    ck_assert_uint_eq(decision.bound_by, 0);
    ck_assert_str_eq(lines_of(&requests[0], &decision, WEIR_HTTP_RATELIMIT, text, sizeof text),
                     "RateLimit: \"burst\";r=4;t=86400\n"); /* both limits are full a day from now */
    scene.now_us += WEIR_SECOND;
    must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
    ck_assert_uint_eq(decision.bound_by, 1);
    must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
    ck_assert(!decision.allowed && decision.bound_by == 1);
    ck_assert_str_eq(lines_of(&requests[decision.bound_by], &decision, EVERY, text, sizeof text),
                     "Retry-After: 86399\nRateLimit-Policy: \"daily\";q=12;w=86400\nRateLimit: \"daily\";r=0;t=86399\n"
                     "X-RateLimit-Limit: 12\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 86399\n");
    ck_assert_str_eq(lines_of(&requests[0], &decision, WEIR_HTTP_RATELIMIT_POLICY, text, sizeof text),
                     "RateLimit-Policy: \"burst\";q=10;w=1\n");
}

/* Assert the lines of one decision while the backend fails. */
static void assert_lines_of_an_outage(enum weir_on_failure on_failure, const char *expected)
{
    struct fake fake;
    CLOSED_BY(scene_close) struct scene scene;
    fake_init(&fake);
    fake.ops.shared = true;
    fake_open(&fake, &scene, OPTIONS(.on_failure = on_failure, .instances = 2, .outage_retry_us = 5 * WEIR_SECOND));
    scene.now_us -= scene.now_us % 64; /* an outage's beginning is rounded up to this */
    scene.log_allowed = true;
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=10s");
    atomic_store(&fake.answer, WEIR_ETIME);
    const struct weir_decision decision = taken(limit, "key", 1);
    ck_assert_int_ge(decision.source, WEIR_BY_FALLBACK);
    assert_lines(limit, &decision, WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_RATELIMIT | WEIR_HTTP_RATELIMIT_POLICY, expected);
}

TEST(http_fields_report_a_fallback_decision_like_any_other, 30)
{
    assert_lines_of_an_outage(WEIR_FAIL_LOCAL, /* all taken, half of the rate */
                              "Retry-After: 2\nRateLimit-Policy: \"api\";q=10;w=10\nRateLimit: \"api\";r=0;t=2\n");
    assert_lines_of_an_outage(WEIR_FAIL_OPEN, "RateLimit-Policy: \"api\";q=10;w=10\nRateLimit: \"api\";r=10\n");
    assert_lines_of_an_outage(WEIR_FAIL_CLOSED,
                              "Retry-After: 5\nRateLimit-Policy: \"api\";q=10;w=10\nRateLimit: \"api\";r=0;t=5\n");
}

TEST(http_fields_report_a_redefined_policy, 30)
{
    const struct weir_decision decision = { .allowed = true };
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "fixed_window limit=3 period=10s");
    assert_lines(limit, &decision, WEIR_HTTP_RATELIMIT_POLICY, "RateLimit-Policy: \"api\";q=3;w=10\n");
    scene_define_text(&scene, "api", "leaky_bucket limit=4 period=2s");
    assert_lines(limit, &decision, WEIR_HTTP_RATELIMIT_POLICY, "RateLimit-Policy: \"api\";q=4;w=2\n");
}

/* ---- Syntax ---- */

static bool read_string(const char **at, char *out)
{
    if (*(*at)++ != '"')
        return false;
    size_t len = 0;
    for (; **at != '"'; (*at)++) {
        if (**at == '\\' && *++*at != '"' && **at != '\\')
            return false;
        if (**at < 0x20 || **at > 0x7e || len == WEIR_MAX_NAME_LEN)
            return false;
        out[len++] = **at;
    }
    out[len] = '\0';
    (*at)++;
    return true;
}

static bool read_integer(const char **at, int64_t *out)
{
    size_t digits = strspn(*at, "0123456789");
    if (digits < 1 || digits > 15)
        return false;
    *out = strtoll(*at, NULL, 10);
    *at += digits;
    return true;
}

static struct item parsed(const char *value)
{
    struct item item = { .q = -1, .w = -1, .r = -1, .t = -1 };
    const char *at = value;
    bool good = read_string(&at, item.name);
    while (good && *at) {
        int64_t *number = at[1] == 'q' ? &item.q : at[1] == 'w' ? &item.w : at[1] == 'r' ? &item.r : &item.t;
        good = at[0] == ';' && at[1] && strchr("qwrt", at[1]) && at[2] == '=' && *number == -1;
        at += 3;
        good = good && read_integer(&at, number);
    }
    if (!good)
        ck_abort_msg("not an item with integers: %s", value);
    return item;
}

TEST(every_valid_limit_name_appears_unchanged_in_http_fields, 30)
{
    const struct weir_decision decision = { .allowed = true };
    const struct weir_policy policy = { .limit = 1, .period_us = 1 };
    int names = 0;
    OPEN_SCENE(scene, NULL);
    scene.log_allowed = true;
    for (int byte = 1; byte < 256; byte++) {
        const char name[] = { 'a', (char)byte, 'b', '\0' };
        struct weir_http_field fields[2];
        struct weir_request request = request_of(NULL, "key");
        if (weir_limit_define(scene.limiter, name, &policy, &request.limit) != WEIR_OK)
            continue;
        names++;
        ck_assert_int_eq(
            weir_http_fields(&request, &decision, WEIR_HTTP_RATELIMIT | WEIR_HTTP_RATELIMIT_POLICY, fields, 2), 2);
        for (int i = 0; i < 2; i++)
            ck_assert_str_eq(parsed(fields[i].value).name, name);
    }
    ck_assert_int_eq(names, 26 + 26 + 10 + 3);
}

TEST(http_fields_report_the_policy_of_the_keys_override, 30)
{
    struct weir_http_field field;
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=100 period=1s");
    scene_define_text(&scene, "api/10.0.*", "token_bucket limit=7 period=1m");
    struct weir_request request = { .limit = limit, .key = weir_key_text("10.0.0.1"), .cost = 1 };
    struct weir_decision decision = taken(limit, "10.0.0.1", 1);
    ck_assert_int_eq(weir_http_fields(&request, &decision, WEIR_HTTP_RATELIMIT_POLICY, &field, 1), 1);
    ck_assert_str_eq(field.value, "\"api\";q=7;w=60");
    request.key = weir_key_text("10.1.0.1");
    decision = taken(limit, "10.1.0.1", 1);
    ck_assert_int_eq(weir_http_fields(&request, &decision, WEIR_HTTP_RATELIMIT_POLICY, &field, 1), 1);
    ck_assert_str_eq(field.value, "\"api\";q=100;w=1");
}

TEST(the_longest_http_field_values_are_not_truncated, 30)
{
    struct weir_policy policy = { .limit = WEIR_MAX_PERMITS,
                                  .period_us = WEIR_MAX_PERIOD_US,
                                  .refill = WEIR_INTERVAL,
                                  .burst = WEIR_MAX_PERMITS,
                                  .debt = WEIR_MAX_PERMITS };
    const struct weir_decision decision = { .allowed = true,
                                            .remaining = 2 * WEIR_MAX_PERMITS,
                                            .reset_after_us = WEIR_MAX_TIME_US };
    char name[WEIR_MAX_NAME_LEN + 1] = "";
    struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS];
    memset(name, 'n', WEIR_MAX_NAME_LEN);
    OPEN_SCENE(scene, NULL);
    struct weir_request request = request_of(scene_define(&scene, name, &policy), "key");
    request.now_us = WEIR_MAX_TIME_US;
    const unsigned which = WEIR_HTTP_RATELIMIT_POLICY | WEIR_HTTP_RATELIMIT | WEIR_HTTP_X_RATELIMIT_UNIX;
    ck_assert_int_eq(weir_http_fields(&request, &decision, which, fields, WEIR_HTTP_MAX_FIELDS), 5);
    struct item item = parsed(fields[0].value);
    ck_assert_str_eq(item.name, name);
    ck_assert_int_eq(item.q, 2 * WEIR_MAX_PERMITS);
    ck_assert_int_eq(item.w, 2 * 366 * 86400);
    item = parsed(fields[1].value);
    ck_assert_int_eq(item.r, 2 * WEIR_MAX_PERMITS);
    ck_assert_int_eq(item.t, INT64_C(9007199255)); /* 2^53 us */
    ck_assert_str_eq(fields[4].value, "18014398510");
}

/* ---- Clients that obey the fields are admitted ---- */

/* Return the field's value; fail the test if it is missing. */
static const char *value_of(const struct weir_http_field *fields, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(fields[i].name, name) == 0)
            return fields[i].value;
    ck_abort_msg("no %s", name);
}

/* Define a random limit under one of few names, so that the number of limits stays bounded. */
static weir_limit *limit_by_chance(struct scene *scene, struct chance *chance, struct weir_policy *policy)
{
    char name[16];
    do
        *policy = policy_by_chance(chance, (enum kind)chance_between(chance, 0, KIND_COUNT - 1));
    while (weir_policy_check(policy, NULL, 0) != WEIR_OK);
    snprintf(name, sizeof name, "limit%" PRId64, chance_between(chance, 1, FRESH_LIMITS));
    return scene_define(scene, name, policy);
}

/* Take permits, and move the clock sometimes, until a temporary denial or for some turns. */
static struct weir_decision spend(struct scene *scene, struct chance *chance, const struct weir_policy *policy,
                                  struct weir_request *request)
{
    struct weir_decision decision = peeked(request->limit, request->key.data, 1);
    const int64_t size = decision.limit;
    const int64_t turns = chance_between(chance, 0, 12);
    for (int64_t turn = 0; turn < turns && (decision.allowed || decision.retry_after_us == WEIR_NEVER); turn++) {
        request->cost = chance_one_in(chance, 3) ? chance_magnitude(chance, WEIR_MAX_PERMITS)
                                                 : chance_between(chance, 1, size < WEIR_MAX_PERMITS ? size : 1000);
        if (chance_one_in(chance, 3))
            scene->now_us += chance_magnitude(chance, 2 * policy->period_us);
        must_succeed(weir_try(request->limit, request->key, request->cost, &decision));
    }
    return decision;
}

static void check_denied(struct scene *scene, const struct weir_request *request, const struct weir_http_field *fields,
                         int n)
{
    struct weir_decision decision;
    const int64_t seconds = strtoll(value_of(fields, n, "Retry-After"), NULL, 10);
    must(seconds >= 1, "Retry-After is a second or more");
    must(parsed(value_of(fields, n, "RateLimit")).t == seconds, "Retry-After and t are the same");
    must(parsed(value_of(fields, n, "RateLimit")).r == 0, "a denial leaves nothing");
    scene->now_us += (seconds - 1) * WEIR_SECOND;
    must_succeed(weir_peek(request->limit, request->key, request->cost, &decision));
    must(!decision.allowed, "a second earlier would have been too early");
    scene->now_us += WEIR_SECOND;
    must_succeed(weir_try(request->limit, request->key, request->cost, &decision));
    must(decision.allowed, "who waits for Retry-After is admitted");
}

static void check_left(struct scene *scene, const struct weir_request *request, bool was_allowed,
                       const struct weir_http_field *fields, int n)
{
    struct weir_decision decision;
    const struct item left = parsed(value_of(fields, n, "RateLimit"));
    const struct item policy = parsed(value_of(fields, n, "RateLimit-Policy"));
    must(left.r <= policy.q && policy.w >= 1, "no more is left than there is");
    if (left.r > 0 && left.r <= WEIR_MAX_PERMITS) {
        must_succeed(weir_peek(request->limit, request->key, left.r, &decision));
        must(decision.allowed, "what is left can be taken");
    }
    if (was_allowed && left.r == 0 && left.t > 0) {
        scene->now_us += (left.t - 1) * WEIR_SECOND;
        must_succeed(weir_peek(request->limit, request->key, 1, &decision));
        must(!decision.allowed, "a second before t nothing is left");
        scene->now_us += WEIR_SECOND;
        must_succeed(weir_peek(request->limit, request->key, 1, &decision));
        must(decision.allowed, "after t a permit is back");
        return;
    }
    scene->now_us += left.t > 0 ? left.t * WEIR_SECOND : 0;
    must_succeed(weir_peek(request->limit, request->key, 1, &decision));
    must(decision.reset_after_us == 0 && decision.remaining == policy.q, "after t all of q is back");
}

TEST(a_request_is_admitted_after_retry_after_and_not_a_second_earlier, 60)
{
    struct chance chance = chance_make(1);
    int64_t denied = 0, left = 0;
    OPEN_SCENE(scene, NULL);
    const int64_t start_us = scene.now_us;
    for (int64_t i = 0, cases = steps_or(CASES); i < cases; i++) {
        char key[32];
        struct weir_policy policy;
        struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS];
        snprintf(key, sizeof key, "%" PRId64, i);
        scene.now_us = start_us + chance_between(&chance, 0, WEIR_DAY);
        struct weir_request request = request_of(limit_by_chance(&scene, &chance, &policy), key);
        const struct weir_decision decision = spend(&scene, &chance, &policy, &request);
        const int n = weir_http_fields(&request, &decision, EVERY, fields, WEIR_HTTP_MAX_FIELDS);
        must(n > 0, "there are fields");
        if (decision.allowed || decision.retry_after_us == WEIR_NEVER)
            left++, check_left(&scene, &request, decision.allowed, fields, n);
        else
            denied++, check_denied(&scene, &request, fields, n);
        must_succeed(weir_reset(request.limit, request.key));
    }
    ck_assert_int_gt(denied, steps_or(CASES) / 4);
    ck_assert_int_gt(left, steps_or(CASES) / 20);
}

TEST(a_client_that_follows_ratelimit_policy_never_exceeds_the_rate, 60)
{
    const struct weir_decision decision = { .allowed = true };
    struct chance chance = chance_make(2);
    OPEN_SCENE(scene, NULL);
    for (int64_t i = 0, cases = steps_or(CASES); i < cases; i++) {
        struct weir_policy policy;
        struct weir_http_field field;
        const struct weir_request request = request_of(limit_by_chance(&scene, &chance, &policy), "key");
        must(weir_http_fields(&request, &decision, WEIR_HTTP_RATELIMIT_POLICY, &field, 1) == 1, "there is a policy");
        const struct item item = parsed(field.value);
        must(item.q == peeked(request.limit, "key", 1).limit, "q is what a fresh key admits");
        const wide needed = (wide)item.q * (wide)policy.period_us;
        const wide given = (wide)policy.limit * (wide)(item.w * WEIR_SECOND);
        must(needed <= given, "q in w is not above the rate");
        if (kind_of(&policy) != KIND_INTERVAL && item.w > 1) /* there q comes in whole refills */
            must(needed > given - (wide)policy.limit * (wide)WEIR_SECOND, "nor needlessly below");
    }
}

/* ---- What is refused ---- */

TEST(bad_arguments_for_http_fields_are_refused_by_name, 30)
{
    OPEN_SCENE(scene, NULL);
    scene.log_allowed = true;
    const struct weir_request good = request_of(scene_define_text(&scene, "api", "fixed_window limit=3 period=10s"),
                                                "k");
    const struct weir_decision denied = { .retry_after_us = 1 };
    const struct {
        const char *what;
        struct weir_request request;
        struct weir_decision decision;
        unsigned which;
        size_t room;
    } bad[] = {
        { "which", good, denied, 0, 6 },
        { "which", good, denied, 32, 6 },
        { "which", good, denied, EVERY | 1u << 31, 6 },
        { "which", good, denied, WEIR_HTTP_X_RATELIMIT | WEIR_HTTP_X_RATELIMIT_UNIX, 6 },
        { "room", good, denied, EVERY, 5 },
        { "room", good, denied, WEIR_HTTP_RETRY_AFTER, 0 },
        { "cost", { .limit = good.limit, .key = good.key }, denied, EVERY, 6 },
        { "key.len", { .limit = good.limit, .cost = 1 }, denied, EVERY, 6 },
        { "request->now_us", { .limit = good.limit, .key = good.key, .cost = 1, .now_us = -1 }, denied, EVERY, 6 },
        { "decision->remaining", good, { .allowed = true, .remaining = -1 }, EVERY, 6 },
        { "decision->remaining", good, { .allowed = true, .remaining = 2 * WEIR_MAX_PERMITS + 1 }, EVERY, 6 },
        { "decision->retry_after_us", good, { .retry_after_us = -2 }, EVERY, 6 },
        { "decision->retry_after_us", good, { .retry_after_us = INT64_MAX }, EVERY, 6 },
        { "decision->reset_after_us", good, { .allowed = true, .reset_after_us = -1 }, EVERY, 6 },
        { "decision->reset_after_us", good, { .allowed = true, .reset_after_us = WEIR_MAX_TIME_US + 1 }, EVERY, 6 },
    };
    struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS], before[WEIR_HTTP_MAX_FIELDS];
    memset(fields, 0x5a, sizeof fields);
    memcpy(before, fields, sizeof fields);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        scene.last_line[0] = '\0';
        ck_assert_int_eq(weir_http_fields(&bad[i].request, &bad[i].decision, bad[i].which, fields, bad[i].room),
                         WEIR_EINVAL);
        if (strncmp(scene.last_line, bad[i].what, strlen(bad[i].what)) != 0)
            ck_abort_msg("case %zu: \"%s\" does not begin with %s", i, scene.last_line, bad[i].what);
    }
    ck_assert_int_eq(weir_http_fields(&good, NULL, EVERY, fields, 6), WEIR_EINVAL);
    ck_assert_int_eq(weir_http_fields(&good, &denied, EVERY, NULL, 6), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "fields must not be NULL");
    ck_assert_int_eq(weir_http_fields(NULL, &denied, EVERY, fields, 6), WEIR_EINVAL);
    const struct weir_request none = request_of(NULL, "k");
    ck_assert_int_eq(weir_http_fields(&none, &denied, EVERY, fields, 6), WEIR_EINVAL);
    ck_assert_mem_eq(fields, before, sizeof fields);
}
