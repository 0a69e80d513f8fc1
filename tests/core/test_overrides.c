/* test_overrides.c - overrides: which policy a key has, what it keeps when that changes, and requests during the
 * change. */
#include "fake.h"
#include "remote.h"
#include "set_share.h"

#include "core/api/verbs.h"
#include "core/ground/arith.h"
#include "core/limiter/limits.h"
#include "core/outage/outage.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Windows of a year; the limit in a decision shows which policy made it. */
static struct weir_policy window_of(int64_t limit)
{
    return (struct weir_policy){ .algorithm = WEIR_FIXED_WINDOW, .limit = limit, .period_us = 365 * WEIR_DAY };
}

static void define(weir *limiter, const char *name, int64_t limit)
{
    const struct weir_policy policy = window_of(limit);
    weir_limit *defined = NULL;
    must_succeed(weir_limit_define(limiter, name, &policy, &defined));
    char of[WEIR_MAX_NAME_LEN + 1];
    snprintf(of, sizeof of, "%.*s", (int)strcspn(name, "/"), name);
    must(defined == weir_limit_find(limiter, of), "the handle is the limit's");
}

static void end(weir *limiter, const char *name)
{
    must_succeed(weir_limit_define(limiter, name, NULL, NULL));
}

/* Return the limit of the policy that decides for this key. */
static int64_t size_for(weir_limit *limit, const void *key, size_t len)
{
    struct weir_decision decision;
    must_succeed(weir_peek(limit, weir_key(key, len), 1, &decision));
    return decision.limit;
}

static int64_t size_of(weir_limit *limit, const char *key)
{
    return size_for(limit, key, strlen(key));
}

static weir_limit *open_limit(struct scene *scene, int64_t size)
{
    scene_open(scene, NULL);
    define(scene->limiter, "api", size);
    return weir_limit_find(scene->limiter, "api");
}

/* ---- Which policy a key has ---- */

TEST(an_exact_pattern_wins_over_the_longest_prefix_and_that_over_the_limit, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 10);
    ck_assert_int_eq(size_of(limit, "10.0.0.1"), 10);
    define(scene.limiter, "api/10.0.0.1", 11);
    define(scene.limiter, "api/10.*", 12);
    define(scene.limiter, "api/10.0.*", 13);
    define(scene.limiter, "api/10.0.0.1*", 14);
    ck_assert_int_eq(size_of(limit, "10.0.0.1"), 11);
    ck_assert_int_eq(size_of(limit, "10.0.0.12"), 14);
    ck_assert_int_eq(size_of(limit, "10.0.0.2"), 13);
    ck_assert_int_eq(size_of(limit, "10.0."), 13);
    ck_assert_int_eq(size_of(limit, "10.0"), 12);
    ck_assert_int_eq(size_of(limit, "10"), 10);
    ck_assert_int_eq(size_of(limit, "9"), 10);
    define(scene.limiter, "api/*", 15);
    ck_assert_int_eq(size_of(limit, "9"), 15);
    ck_assert_int_eq(size_of(limit, "10.0.0.1"), 11);
    end(scene.limiter, "api/10.0.0.1");
    ck_assert_int_eq(size_of(limit, "10.0.0.1"), 14);
    end(scene.limiter, "api/10.0.0.1*");
    end(scene.limiter, "api/10.*");
    ck_assert_int_eq(size_of(limit, "10.0.0.1"), 13);
    ck_assert_int_eq(size_of(limit, "10.1"), 15);
    end(scene.limiter, "api/*");
    end(scene.limiter, "api/*"); /* what has ended may be ended again */
    end(scene.limiter, "api/never-there");
    ck_assert_int_eq(size_of(limit, "10.1"), 10);
    define(scene.limiter, "api/10.0.0.1", 16);
    ck_assert_int_eq(size_of(limit, "10.0.0.1"), 16);
}

TEST(an_override_affects_only_its_limit_and_leaves_the_limits_policy, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 10);
    define(scene.limiter, "other", 20);
    define(scene.limiter, "api/a", 11);
    ck_assert_int_eq(size_of(weir_limit_find(scene.limiter, "other"), "a"), 20);
    struct weir_policy policy;
    must_succeed(weir_limit_policy(limit, &policy));
    ck_assert_int_eq(policy.limit, 10);
    must_succeed(weir_limit_policy_for(limit, weir_key_text("a"), &policy));
    ck_assert_int_eq(policy.limit, 11);
    must_succeed(weir_limit_policy_for(limit, weir_key_text("b"), &policy));
    ck_assert_int_eq(policy.limit, 10);
    ck_assert_int_eq(weir_limit_policy_for(NULL, weir_key_text("a"), &policy), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_policy_for(limit, weir_key_text("a"), NULL), WEIR_EINVAL);
    scene.log_allowed = true;
    ck_assert_int_eq(weir_limit_policy_for(limit, weir_key_text(""), &policy), WEIR_EINVAL);
    scene.log_allowed = false;
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "api/a"));
    define(scene.limiter, "api", 30);
    ck_assert_int_eq(size_of(limit, "a"), 11);
    ck_assert_int_eq(size_of(limit, "b"), 30);
    define(scene.limiter, "api/a", 12);
    ck_assert_int_eq(size_of(limit, "a"), 12);
}

TEST(a_pattern_is_equal_in_every_valid_escaping, 10)
{
    static const struct {
        const char *pattern;
        const char *key;
        size_t len;
    } cases[] = {
        { "%41%2a", "A*", 2 },
        { "%00%ff%0A", "\0\xff\n", 3 },
        { "a%20b%3D%23%25", "a b=#%", 6 },
        { "a/b//", "a/b//", 5 },
        { "/", "/", 1 },
        { "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f", 6 },
        { "%00*", "\0xyz", 4 },
        { "%2A*", "*", 1 },
        { "\"{}\\", "\"{}\\", 4 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        char name[100];
        weir_limit *limit = open_limit(&scene, 10);
        snprintf(name, sizeof name, "api/%s", cases[i].pattern);
        define(scene.limiter, name, 11);
        ck_assert_msg(size_for(limit, cases[i].key, cases[i].len) == 11, "%s", name);
        ck_assert_msg(size_for(limit, "a b", 3) == 10, "%s", name);
    }
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 10);
    define(scene.limiter, "api/A", 11);
    define(scene.limiter, "api/%41", 12); /* the same */
    ck_assert_int_eq(size_of(limit, "A"), 12);
    ck_assert_uint_eq(scene.limiter->pattern_count, 1);
    end(scene.limiter, "api/%41");
    ck_assert_int_eq(size_of(limit, "A"), 10);
}

TEST(an_invalid_override_name_is_refused_with_a_message, 10)
{
    static char longest[WEIR_MAX_PATTERN_LEN + 5] = "api/", too_long[WEIR_MAX_PATTERN_LEN + 6] = "api/";
    memset(longest + 4, 'x', WEIR_MAX_PATTERN_LEN);
    memset(too_long + 4, 'x', WEIR_MAX_PATTERN_LEN + 1);
    static const struct {
        const char *name, *sentence;
    } cases[] = {
        { "api/", "pattern must not be empty" },
        { "/a", "name must not be empty" },
        { "a b/c", "byte 2 is not a letter" },
        { "api/a b", "pattern: byte 2 must be written %20" },
        { "api/secret-key-1.2.3.4 b", "limit api: pattern: byte 19 must be written %20" },
        { "api/a\nb", "byte 2 must be written %0A" },
        { "api/a#", "byte 2 must be written %23" },
        { "api/a=b", "byte 2 must be written %3D" },
        { "api/\x7f", "byte 1 must be written %7F" },
        { "api/a*b", "byte 2 is a '*', which stands at the end or is written %2A" },
        { "api/**", "byte 1 is a '*'" },
        { "api/a%", "byte 2 is a '%' without two hexadecimal digits" },
        { "api/a%4", "byte 2 is a '%' without two hexadecimal digits" },
        { "api/%g0", "byte 1 is a '%' without two hexadecimal digits" },
        { "nobody/a", "there is no limit \"nobody\" to override" },
        { too_long, "limit api: pattern is longer than 512 bytes" },
    };
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 10);
    const struct weir_policy policy = window_of(11), bad = { .limit = 0 };
    scene.log_allowed = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_limit *out = limit;
        ck_assert_int_eq(weir_limit_define(scene.limiter, cases[i].name, &policy, &out), WEIR_EINVAL);
        ck_assert_msg(strstr(scene.last_line, cases[i].sentence) != NULL, "%s: %s", cases[i].name, scene.last_line);
        ck_assert_msg(strpbrk(scene.last_line, "\n\x7f") == NULL, "%s", scene.last_line);
        ck_assert_msg(!strstr(scene.last_line, "secret") && !strstr(scene.last_line, "xx"), "%s", scene.last_line);
        ck_assert_ptr_eq(out, limit);
    }
    ck_assert_int_eq(weir_limit_define(scene.limiter, "api/a", &bad, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(scene.limiter, "api", NULL, NULL), WEIR_EINVAL);
    ck_assert_uint_eq(scene.limiter->pattern_count, 0);
    scene.log_allowed = false;
    define(scene.limiter, longest, 11);
    ck_assert_int_eq(size_for(limit, longest + 4, WEIR_MAX_PATTERN_LEN), 11);
}

/* A naive model that compares all patterns one by one. */
enum { PATTERNS = 300, PATTERN_LEN = 9 };

struct plain_pattern {
    unsigned char bytes[PATTERN_LEN];
    size_t len;
    bool is_prefix;
    int64_t size; /* 0: not in force */
};

static size_t bytes_by_chance(struct chance *chance, unsigned char *bytes, size_t least)
{
    static const unsigned char alphabet[] = { 'a', 'b', '*', '%', 0, 0xff };
    const size_t len = (size_t)chance_between(chance, (int64_t)least, PATTERN_LEN);
    for (size_t i = 0; i < len; i++)
        bytes[i] = alphabet[chance_between(chance, 0, chance_one_in(chance, 4) ? 5 : 1)];
    return len;
}

static int64_t model_size(const struct plain_pattern *patterns, const unsigned char *key, size_t len)
{
    const struct plain_pattern *best = NULL;
    for (size_t i = 0; i < PATTERNS; i++) {
        const struct plain_pattern *pattern = &patterns[i];
        if (pattern->size == 0 || pattern->len > len || memcmp(pattern->bytes, key, pattern->len) != 0)
            continue;
        if (!pattern->is_prefix && pattern->len == len)
            return pattern->size;
        if (pattern->is_prefix && (!best || pattern->len > best->len))
            best = pattern;
    }
    return best ? best->size : 10;
}

static void pattern_name(const struct plain_pattern *pattern, char *name)
{
    name += sprintf(name, "api/");
    for (size_t i = 0; i < pattern->len; i++)
        name += pattern->bytes[i] == 'a' ? sprintf(name, "a") : sprintf(name, "%%%02x", pattern->bytes[i]);
    strcpy(name, pattern->is_prefix ? "*" : "");
}

static bool is_there(const struct plain_pattern *patterns, size_t n, const struct plain_pattern *like)
{
    for (size_t i = 0; i < n; i++)
        if (patterns[i].is_prefix == like->is_prefix && patterns[i].len == like->len &&
            memcmp(patterns[i].bytes, like->bytes, like->len) == 0)
            return true;
    return false;
}

TEST(keys_of_any_bytes_find_the_override_that_a_linear_search_finds, 60)
{
    static struct plain_pattern patterns[PATTERNS];
    struct chance chance = chance_make(1);
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 10);
    for (size_t i = 0; i < PATTERNS; i++) {
        struct plain_pattern *pattern = &patterns[i];
        do {
            *pattern = (struct plain_pattern){ .is_prefix = chance_one_in(&chance, 2) };
            pattern->len = bytes_by_chance(&chance, pattern->bytes, pattern->is_prefix ? 0 : 1);
        } while (is_there(patterns, i, pattern));
    }
    const int64_t steps = steps_or(60000);
    for (int64_t step = 0; step < steps; step++) {
        unsigned char key[PATTERN_LEN];
        if (chance_one_in(&chance, 20)) {
            struct plain_pattern *pattern = &patterns[chance_between(&chance, 0, PATTERNS - 1)];
            char name[8 + 3 * PATTERN_LEN];
            pattern_name(pattern, name);
            pattern->size = chance_one_in(&chance, 3) ? 0 : 11 + step;
            if (pattern->size == 0)
                end(scene.limiter, name);
            else
                define(scene.limiter, name, pattern->size);
        }
        const size_t len = bytes_by_chance(&chance, key, 1);
        const int64_t actual = size_for(limit, key, len), expected = model_size(patterns, key, len);
        if (actual != expected)
            ck_abort_msg("step %lld: %lld, not %lld", (long long)step, (long long)actual, (long long)expected);
    }
}

/* ---- The order of their plans: the rules of targets.c ---- */

static bool in_force(const struct override *override)
{
    return atomic_load(&override->in_force);
}

/* True if a key of `b` is one of `a`, too, and `b` is more specific. */
static bool is_below(const struct override *a, const struct override *b)
{
    return a != b && a->is_prefix && b->len >= a->len && memcmp(a->bytes, b->bytes, a->len) == 0 &&
           (b->len > a->len || !b->is_prefix);
}

static void assert_order(weir_limit *limit)
{
    const struct overrides *overrides = limit_overrides(limit);
    for (size_t i = 0; i < overrides->count; i++) {
        struct override *a = overrides->all[i];
        const uint64_t version = plan_cell_version(&a->limit->plan) >> 1;
        if (!in_force(a))
            continue;
        ck_assert_uint_gt(version, plan_cell_version(&limit->plan) >> 1);
        for (size_t j = 0; j < overrides->count; j++) {
            struct override *b = overrides->all[j];
            if (is_below(a, b) && in_force(b) && plan_cell_version(&b->limit->plan) >> 1 <= version)
                ck_abort_msg("%.*s is not before %.*s", (int)a->len, (const char *)a->bytes, (int)b->len,
                             (const char *)b->bytes);
        }
    }
}

TEST(the_more_specific_override_has_the_later_plan_whatever_changes, 60)
{
    OPEN_SCENE(scene, NULL);
    define(scene.limiter, "api", 9);
    weir_limit *limit = weir_limit_find(scene.limiter, "api");
    struct chance chance = chance_make(2);
    for (int step = 0; step < 600; step++) {
        char name[32] = "api/";
        size_t len = 4;
        const int letters = (int)chance_between(&chance, 0, 4);
        for (int i = 0; i < letters; i++)
            name[len++] = (char)('a' + chance_between(&chance, 0, 1));
        if (letters == 0 || chance_one_in(&chance, 2))
            name[len++] = '*';
        const int choice = (int)chance_between(&chance, 0, 9);
        if (choice == 0)
            define(scene.limiter, "api", 10 + step);
        else if (choice < 4)
            (void)weir_limit_define(scene.limiter, name, NULL, NULL); /* if there is one */
        else
            define(scene.limiter, name, 10 + step);
        if (limit_overrides(limit))
            assert_order(limit);
    }
}

TEST(setting_a_prefix_writes_only_the_plans_below_it, 60)
{
    OPEN_SCENE(scene, NULL);
    define(scene.limiter, "api", 9);
    weir_limit *limit = weir_limit_find(scene.limiter, "api");
    for (int i = 0; i < 3000; i++) {
        char name[32];
        snprintf(name, sizeof name, "api/user-%d", i);
        define(scene.limiter, name, 3);
    }
    ck_assert_uint_eq(limit_overrides(limit)->sorted, 3000); /* no later call sorts them all */
    const uint64_t before = limit->version;
    define(scene.limiter, "api/other*", 4);   /* itself */
    define(scene.limiter, "api/user-29*", 5); /* and user-29, user-290 to 299, user-2900 to 2999 */
    define(scene.limiter, "api/user-29*", 6);
    ck_assert_uint_eq(limit->version - before, 1 + 2 * (1 + 111));
}

TEST(one_pattern_too_many_is_refused_and_ended_overrides_still_count, 60)
{
    CLOSED_BY(scene_close) struct scene scene;
    char name[40];
    weir_limit *limit = open_limit(&scene, 10);
    define(scene.limiter, "other", 10);
    for (int i = 0; i < WEIR_MAX_LIMITS; i++) {
        snprintf(name, sizeof name, "%s/key-%d", i % 2 ? "api" : "other", i);
        define(scene.limiter, name, 11);
    }
    end(scene.limiter, "api/key-1");
    scene.log_allowed = true;
    const struct weir_policy policy = window_of(11);
    ck_assert_int_eq(weir_limit_define(scene.limiter, "api/more", &policy, NULL), WEIR_EFULL);
    ck_assert_msg(strstr(scene.last_line, "65536 patterns") != NULL, "%s", scene.last_line);
    scene.log_allowed = false;
    ck_assert_int_eq(size_of(limit, "more"), 10);
    ck_assert_int_eq(size_of(limit, "key-65535"), 11);
    define(scene.limiter, "api/key-1", 12); /* is known */
    ck_assert_int_eq(size_of(limit, "key-1"), 12);
}

/* ---- What a key has used ---- */

TEST(adding_and_removing_an_override_gives_no_second_burst, 10)
{
    static const char *const texts[] = {
        "token_bucket limit=10 period=365d", "token_bucket limit=10 period=365d refill=interval",
        "fixed_window limit=10 period=365d", "sliding_window limit=10 period=365d",
        "leaky_bucket limit=10 period=365d",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        OPEN_SCENE(scene, NULL);
        weir_limit *limit = scene_define_text(&scene, "api", texts[i]);
        struct weir_policy larger = policy_of(texts[i]);
        larger.limit = 20;
        ck_assert(taken(limit, "abc", 8).allowed);
        for (int64_t used = 8; used < 20; used++) {
            scene_define(&scene, "api/ab*", &larger);
            scene_define(&scene, "api/abc", &larger);
            ck_assert_int_eq(taken(limit, "abc", 1).remaining, 20 - used - 1);
            end(scene.limiter, used % 2 ? "api/ab*" : "api/abc");
            ck_assert_int_eq(peeked(limit, "abc", 1).remaining, 20 - used - 1);
            end(scene.limiter, used % 2 ? "api/abc" : "api/ab*");
            if (used < 10)
                ck_assert_int_eq(peeked(limit, "abc", 1).remaining, 10 - used - 1);
        }
        ck_assert(!taken(limit, "abc", 1).allowed);
    }
}

TEST(adding_and_removing_a_smaller_override_forgets_no_used_permit, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 100);
    ck_assert(taken(limit, "abc", 80).allowed);
    for (int64_t used = 80; used < 100; used++) {
        define(scene.limiter, used % 2 ? "api/ab*" : "api/abc", 5);
        ck_assert(!taken(limit, "abc", 1).allowed);
        end(scene.limiter, used % 2 ? "api/ab*" : "api/abc");
        ck_assert_int_eq(taken(limit, "abc", 1).remaining, 100 - used - 1);
    }
    ck_assert(!taken(limit, "abc", 1).allowed);
}

TEST(when_one_of_two_equal_overrides_ends_its_key_returns_to_the_limit, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 100);
    define(scene.limiter, "api/a", 200);
    define(scene.limiter, "api/b", 200);
    for (int round = 0; round < 50; round++) {
        ck_assert_int_eq(taken(limit, "a", 1).limit, 200);
        ck_assert_int_eq(taken(limit, "b", 1).remaining, 200 - 2 * round - 1);
        ck_assert_int_eq(taken(limit, "c", 1).remaining, 100 - 2 * round - 1);
        end(scene.limiter, "api/a");
        ck_assert_int_eq(taken(limit, "b", 1).remaining, 200 - 2 * round - 2);
        ck_assert_int_eq(taken(limit, "c", 1).remaining, 100 - 2 * round - 2);
        ck_assert_int_eq(taken(limit, "a", 1).remaining, 100 - 2 * round - 2);
        define(scene.limiter, "api/a", 200);
    }
}

/* ---- Every verb ---- */

TEST(every_verb_uses_the_override, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decision, decisions[3];
    weir_limit *limit = open_limit(&scene, 10);
    const struct weir_key key = weir_key_text("gold");
    define(scene.limiter, "wide", 50);
    weir_limit *wide = weir_limit_find(scene.limiter, "wide");
    define(scene.limiter, "api/go*", 100);
    must_succeed(weir_try(limit, key, 20, &decision));
    ck_assert(decision.allowed && decision.remaining == 80);
    must_succeed(weir_acquire(limit, key, 20, 0, &decision));
    ck_assert(decision.allowed && decision.remaining == 60);
    must_succeed(weir_peek(limit, key, 60, &decision));
    ck_assert(decision.allowed && decision.remaining == 60);
    must_succeed(weir_refund(limit, key, 10));
    ck_assert_int_eq(peeked(limit, "gold", 1).remaining, 70);

    const struct weir_request requests[] = {
        { limit, key, 15, 0 }, { wide, key, 30, 0 }, { limit, weir_key_text("lead"), 5, 0 }, { limit, key, 15, 0 }
    };
    must_succeed(weir_try_all(scene.limiter, requests, 4, &decision));
    ck_assert(decision.allowed);
    ck_assert_int_eq(peeked(limit, "gold", 1).remaining, 40);
    ck_assert_int_eq(peeked(limit, "lead", 1).remaining, 5);
    must_succeed(weir_try_all(scene.limiter, requests, 4, &decision));
    ck_assert(!decision.allowed && decision.bound_by == 1);
    must_succeed(weir_try_batch(scene.limiter, requests, 3, decisions));
    ck_assert(decisions[0].allowed && !decisions[1].allowed && decisions[2].allowed);
    ck_assert_int_eq(decisions[0].remaining, 25);
    struct weir_op op = { .request = { limit, key, 20, 0 } };
    must_succeed(weir_submit(scene.limiter, &op));
    ck_assert(op.decision.allowed && op.decision.remaining == 5);
    ck_assert_ptr_eq(op.request.limit, limit);
    must_succeed(weir_reset(limit, key));
    ck_assert_int_eq(peeked(limit, "gold", 1).remaining, 100);
}

static _Atomic int done_count;

static void count_done(struct weir_op *op, int status)
{
    must_succeed(status);
    must(op->request.limit == op->user, "the op's limit is the caller's again");
    atomic_fetch_add(&done_count, 1);
}

TEST(a_submitted_request_is_decided_by_the_override_and_reports_its_limit, 10)
{
    static struct fake fake;
    CLOSED_BY(scene_close) struct scene scene;
    fake_init(&fake);
    atomic_store(&fake.later, true);
    fake_open(&fake, &scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=10s");
    scene_define_text(&scene, "api/a", "token_bucket limit=20 period=10s");
    atomic_store(&done_count, 0);
    struct weir_op ops[] = { { .request = { limit, weir_key_text("a"), 1, 0 }, .done = count_done, .user = limit },
                             { .request = { limit, weir_key_text("b"), 1, 0 }, .done = count_done, .user = limit } };
    ck_assert_int_eq(weir_submit(scene.limiter, &ops[0]), 1);
    ck_assert_int_eq(weir_submit(scene.limiter, &ops[1]), 1);
    struct weir_limit *gold = fake.queue[0]->request.limit; /* the backend reads the limit from the op */
    struct weir_plan plan;
    plan_cell_read(&gold->plan, &plan);
    ck_assert_int_eq(plan.size, 20);
    ck_assert_str_eq(weir_limit_name(gold), "api");
    ck_assert_uint_eq(gold->id, limit->id);
    ck_assert_ptr_eq(fake.queue[1]->request.limit, limit);
    ck_assert_int_eq(fake_answer(&fake, WEIR_OK, 1), 1);
    scene.log_allowed = true;
    ck_assert_int_eq(fake_answer(&fake, WEIR_EIO, 1), 1); /* the fallback answers for the same limit */
    ck_assert_int_eq(ops[1].decision.source, WEIR_BY_FALLBACK);
    ck_assert_int_eq(atomic_load(&done_count), 2);
    atomic_store(&fake.later, false);
}

TEST(keys_without_room_share_a_state_per_override, 10)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1, .on_full = WEIR_FULL_SHARE));
    define(scene.limiter, "api", 10);
    weir_limit *limit = weir_limit_find(scene.limiter, "api");
    define(scene.limiter, "api/gold-*", 100);
    ck_assert_int_eq(taken(limit, "first", 1).source, WEIR_BY_MEMORY);
    ck_assert_int_eq(taken(limit, "gold-1", 30).source, WEIR_BY_FULL);
    ck_assert_int_eq(taken(limit, "gold-2", 30).remaining, 40);
    ck_assert_int_eq(taken(limit, "lead-1", 6).remaining, 4);
    ck_assert(!taken(limit, "lead-2", 6).allowed);
    const struct weir_request requests[] = { { limit, weir_key_text("gold-3"), 30, 0 },
                                             { limit, weir_key_text("lead-3"), 3, 0 } };
    struct weir_decision decision;
    must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
    ck_assert(decision.allowed);
    ck_assert_int_eq(taken(limit, "gold-4", 1).remaining, 9);
    ck_assert_int_eq(taken(limit, "lead-4", 1).remaining, 0);
}

/* ---- Shares ---- */

TEST(an_override_is_divided_into_shares_like_its_limit, 10)
{
    const struct share quarter = { .weight = 1, .total = 4, .rank = 0, .count = 4 };
    const struct share half = { .weight = 1, .total = 2, .rank = 0, .count = 2 };
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 100);
    define(scene.limiter, "api/a", 200);
    define(scene.limiter, "api/b*", 400);
    must_succeed(limiter_set_share(scene.limiter, &quarter));
    ck_assert_int_eq(size_of(limit, "a"), 50);
    ck_assert_int_eq(size_of(limit, "bb"), 100);
    ck_assert_int_eq(size_of(limit, "c"), 25);
    end(scene.limiter, "api/a");
    define(scene.limiter, "api/d", 80);
    ck_assert_int_eq(size_of(limit, "d"), 20);
    must_succeed(limiter_set_share(scene.limiter, &half));
    ck_assert_int_eq(size_of(limit, "a"), 50);
    ck_assert_int_eq(size_of(limit, "d"), 40);
    define(scene.limiter, "api/a", 200); /* the same as before, at another share */
    ck_assert_int_eq(size_of(limit, "a"), 100);
    ck_assert_int_eq(size_of(limit, "bb"), 200);
}

TEST(overrides_whose_share_is_raised_or_zero_are_counted_like_limits, 10)
{
    const struct share tenth = { .weight = 1, .total = 10, .rank = 9, .count = 10 };
    const struct share tiny = { .weight = 1, .total = 65535, .rank = 1, .count = 2 };
    struct weir_stats stats = { .size = sizeof stats };
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 100);
    must_succeed(limiter_set_share(scene.limiter, &tenth));
    scene_define_text(&scene, "api/none", "fixed_window limit=9 period=1m");
    scene_define_text(&scene, "api/lifted*", "token_bucket limit=100 period=1m burst=3");
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.share_lifts, 1);
    ck_assert_uint_eq(stats.share_zeros, 1);
    end(scene.limiter, "api/none");
    end(scene.limiter, "api/lifted*");
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.share_lifts + stats.share_zeros, 0);

    must_succeed(limiter_set_share(scene.limiter, &share_whole));
    scene_define_text(&scene, "api/hard", "token_bucket limit=1 period=366d burst=100");
    scene.log_allowed = true;
    must_succeed(limiter_set_share(scene.limiter, &tiny));
    ck_assert_str_eq(scene.last_line, "an override of limit api has no exact arithmetic at this instance's share: "
                                      "it is denied here");
    ck_assert_int_eq(taken(limit, "hard", 1).retry_after_us, WEIR_NEVER);
}

/* ---- Late threads ---- */

/* Make a request now and decide it later. */
static struct weir_backend_request request_now(struct scene *scene, weir_limit *limit, const char *key)
{
    return backend_request(limit, weir_key_text(key), 1, scene->now_us, WEIR_TAKE);
}

static void decide_late(struct scene *scene, const struct weir_backend_request *late)
{
    struct weir_decision decision;
    must_succeed(scene->limiter->backend->ops->decide(scene->limiter->backend, late, 1, false, INT64_MAX, &decision));
}

TEST(a_late_thread_with_an_old_plan_never_undoes_a_newer_one, 60)
{
    static const char *const keys[] = { "a", "ab", "abc", "b" };
    static const char *const names[] = { "api", "api/a*", "api/ab*", "api/abc", "api/a", "api/b" };
    enum { KEYS = 4, NAMES = 6, LATE = 8 };
    struct chance chance = chance_make(2);
    struct weir_backend_request late[KEYS][LATE];
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_limit(&scene, 1000000);
    const int64_t steps = steps_or(20000);
    for (size_t k = 0; k < KEYS; k++)
        for (size_t i = 0; i < LATE; i++)
            late[k][i] = request_now(&scene, limit, keys[k]);
    const int64_t step_us = min_of(WEIR_DAY, WEIR_MAX_TIME_US / 2 / steps);
    for (int64_t step = 1; step <= steps; step++) {
        const char *name = names[chance_between(&chance, 0, NAMES - 1)];
        for (size_t k = 0; k < KEYS; k++)
            late[k][chance_between(&chance, 0, LATE - 1)] = request_now(&scene, limit, keys[k]);
        if (name[3] && chance_one_in(&chance, 2))
            end(scene.limiter, name);
        else
            define(scene.limiter, name, 1000000 + chance_between(&chance, 1, 3));
        for (size_t k = 0; k < KEYS; k++) {
            struct weir_plan plan;
            const struct weir_backend_request now = request_now(&scene, limit, keys[k]);
            weir_request_plan(&now, &plan);
            if (chance_one_in(&chance, 2)) /* or the late thread sees the key first after the change */
                must(size_of(limit, keys[k]) == plan.size && taken(limit, keys[k], 1).limit == plan.size, keys[k]);
            decide_late(&scene, &late[k][chance_between(&chance, 0, LATE - 1)]);
            must(taken(limit, keys[k], 1).limit == plan.size, "a late request left its plan behind");
        }
        scene.now_us += step_us; /* so that nothing is used up */
    }
}

/* ---- Many threads ---- */

enum { READERS = 3, ROUNDS = 3000, RACE_KEYS = 4, RACE_SIZE = 3000 };
static const char *const race_keys[RACE_KEYS] = { "alpha", "alphabet", "beta", "gamma" };

struct race {
    weir *limiter;
    weir_limit *limit;
    atomic_bool is_over;
    _Atomic int64_t allowed[RACE_KEYS];
};

static void *read_on(void *user)
{
    struct race *race = user;
    struct weir_decision decisions[RACE_KEYS];
    while (!atomic_load(&race->is_over)) {
        struct weir_request requests[RACE_KEYS];
        for (size_t k = 0; k < RACE_KEYS; k++)
            requests[k] = (struct weir_request){ race->limit, weir_key_text(race_keys[k]), 1, 0 };
        must_succeed(weir_try_batch(race->limiter, requests, RACE_KEYS, decisions));
        for (size_t k = 0; k < RACE_KEYS; k++) {
            must(decisions[k].limit == RACE_SIZE, "a plan that was written");
            atomic_fetch_add(&race->allowed[k], decisions[k].allowed);
        }
        must_succeed(weir_try_all(race->limiter, requests, RACE_KEYS, &decisions[0]));
        for (size_t k = 0; k < RACE_KEYS; k++)
            atomic_fetch_add(&race->allowed[k], decisions[0].allowed);
    }
    return NULL;
}

TEST(decisions_continue_while_overrides_change, 60)
{
    static const char *const names[] = { "api/alpha", "api/al*", "api/alph*", "api/beta", "api/*", "api" };
    static const char *const texts[] = {
        "fixed_window limit=3000 period=365d",
        "fixed_window limit=3000 period=364d",
        "sliding_window limit=3000 period=365d",
        "token_bucket limit=3000 period=365d",
        "sliding_window limit=3000 period=365d blocks=20",
        "leaky_bucket limit=3000 period=365d",
    };
    struct chance chance = chance_make(3);
    CLOSED_BY(scene_close) struct scene scene;
    static struct race race;
    struct crew threads;
    memset(&race, 0, sizeof race);
    race.limit = open_limit(&scene, RACE_SIZE);
    race.limiter = scene.limiter;
    crew_start(&threads, READERS, read_on, &race);
    for (int round = 1; round <= ROUNDS; round++) {
        char name[32];
        const int64_t which = chance_between(&chance, 0, 6);
        const char *text = texts[chance_between(&chance, 0, 5)];
        snprintf(name, sizeof name, "api/passing-%d", round);
        if (which < 5 && chance_one_in(&chance, 2))
            end(scene.limiter, names[which]);
        else
            scene_define_text(&scene, which == 6 ? name : names[which], text); /* a passing name makes the table grow */
    }
    atomic_store(&race.is_over, true);
    crew_join(&threads);
    for (size_t k = 0; k < RACE_KEYS; k++)
        must(atomic_load(&race.allowed[k]) <= RACE_SIZE, "no change handed out a second burst");
    define(scene.limiter, "api", 5000);
    for (size_t i = 0; i < 5; i++)
        define(scene.limiter, names[i], 5001 + (int64_t)i);
    ck_assert_int_eq(taken(race.limit, "alpha", 1).limit, 5001);
    ck_assert_int_eq(taken(race.limit, "alphabet", 1).limit, 5003);
    ck_assert_int_eq(taken(race.limit, "beta", 1).limit, 5004);
    ck_assert_int_eq(taken(race.limit, "gamma", 1).limit, 5005);
}

/* ---- Outages ---- */

TEST(permits_admitted_by_an_override_in_an_outage_are_settled_by_it, 10)
{
    static struct remote remote;
    static struct cable cable;
    struct scene scene;
    struct weir_options options = WEIR_OPTIONS_INIT;
    remote_init(&remote);
    cable_init(&cable, &remote);
    scene_init(&scene, &options);
    scene.log_allowed = true;
    options.outage_cold = true;
    options.timeout_us = 10 * WEIR_SECOND;
    must_succeed(weir_open_backend(&options, &cable.base, &scene.limiter));
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=10s");
    scene_define_text(&scene, "api/gold*", "token_bucket limit=100 period=10s");
    cable_set(&cable, CABLE_CUT);
    ck_assert(!taken(limit, "gold-1", 1).allowed); /* an outage begins cold */
    ck_assert(!taken(limit, "lead", 1).allowed);
    scene.now_us += 5 * WEIR_SECOND;
    const struct weir_decision gold = taken(limit, "gold-1", 40);
    ck_assert(gold.allowed && gold.source == WEIR_BY_FALLBACK);
    ck_assert_int_eq(gold.limit, 100);
    ck_assert(taken(limit, "lead", 4).allowed);
    ck_assert(!taken(limit, "lead", 40).allowed);
    cable_set(&cable, CABLE_WELL);
    ck_assert_int_eq(remote.charged, 44);
    ck_assert_int_eq(peeked(limit, "gold-1", 1).remaining, 60);
    ck_assert_int_eq(peeked(limit, "lead", 1).remaining, 6);

    /* A change during the outage: weir charges the whole debt to the key's new policy. */
    cable_set(&cable, CABLE_CUT);
    ck_assert(!taken(limit, "lead", 1).allowed);
    scene.now_us += 10 * WEIR_SECOND;
    ck_assert(taken(limit, "lead", 8).allowed);
    scene_define_text(&scene, "api/lead", "token_bucket limit=20 period=20s");
    cable_set(&cable, CABLE_WELL);
    ck_assert_int_eq(peeked(limit, "lead", 1).limit, 20);
    ck_assert_int_eq(peeked(limit, "lead", 1).remaining, 12);
    ck_assert(!atomic_load(&scene.limiter->outage->settle.owes));
    scene_close(&scene);
    remote_free(&remote);
}
