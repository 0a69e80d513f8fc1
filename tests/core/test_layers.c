/* test_layers.c - policies from code, from a file and from Consul: which one is in force, for every order in which they
 * come and go, and what happens to wrong ones.
 */
#include "set_share.h"
#include "support.h"

#include "core/api/limit_file.h"
#include "core/follow/layers.h"
#include "core/limiter/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct weir_policy window_of(int64_t limit)
{
    return (struct weir_policy){ .algorithm = WEIR_FIXED_WINDOW, .limit = limit, .period_us = 365 * WEIR_DAY };
}

static void define(weir *limiter, const char *name, int64_t limit)
{
    const struct weir_policy policy = window_of(limit);
    must_succeed(weir_limit_define(limiter, name, &policy, NULL));
}

static int64_t size_of(weir *limiter, const char *key)
{
    return peeked(weir_limit_find(limiter, "api"), key, 1).limit;
}

static struct policy_entry entry_of(const char *name, const char *pattern, int64_t limit)
{
    return (struct policy_entry){ .name = name, .pattern = pattern, .policy = window_of(limit), .where = "here" };
}

static struct layers_result apply(weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n)
{
    struct layers_result result;
    must_succeed(layers_apply(limiter, what, entries, n, &result));
    return result;
}

static struct layers_result apply_one(weir *limiter, enum weir_followed what, const char *pattern, int64_t limit)
{
    const struct policy_entry entry = entry_of("api", pattern, limit);
    return apply(limiter, what, &entry, 1);
}

/* ---- Which is in force ---- */

TEST(consul_overrides_the_file_and_the_file_overrides_code_in_every_order, 60)
{
    static const char *const patterns[] = { NULL, "a", "a*" };
    static const char *const keys[] = { "z", "a", "ab" };
    enum { TARGETS = 3 };
    struct chance chance = chance_make(1);
    int64_t sizes[TARGETS][LAYERS] = { { 0 } }; /* 0: undefined */
    OPEN_SCENE(scene, NULL);
    define(scene.limiter, "api", sizes[0][LAYER_CODE] = 10);
    const int64_t steps = steps_or(20000);
    for (int64_t step = 11; step < steps; step++) {
        const int target = (int)chance_between(&chance, 0, TARGETS - 1), layer = (int)chance_between(&chance, 0, 2);
        int64_t *size = &sizes[target][layer];
        *size = chance_one_in(&chance, 2) && target + layer > 0 ? 0 : step;
        if (layer == LAYER_CODE) {
            char name[16];
            const struct weir_policy policy = window_of(step);
            snprintf(name, sizeof name, patterns[target] ? "api/%s" : "api", patterns[target]);
            must_succeed(weir_limit_define(scene.limiter, name, *size ? &policy : NULL, NULL));
        } else {
            struct policy_entry entries[TARGETS];
            size_t n = 0;
            for (int t = 0; t < TARGETS; t++)
                if (sizes[t][layer])
                    entries[n++] = entry_of("api", patterns[t], sizes[t][layer]);
            struct layers_result result = apply(
                scene.limiter, layer == LAYER_FILE ? WEIR_FOLLOW_POLICY_FILE : WEIR_FOLLOW_CONSUL_POLICIES, entries, n);
            must(result.refused == 0 && result.changes <= 1, "one thing has changed, or none");
        }
        int64_t expected = 0;
        for (int t = 0; t < TARGETS; t++) {
            for (int i = LAYERS; i-- > 0;)
                if (sizes[t][i]) {
                    expected = sizes[t][i];
                    break;
                }
            if (t == 2 && !sizes[2][0] && !sizes[2][1] &&
                !sizes[2][2]) /* no override matches "ab": the limit decides */
                expected = size_of(scene.limiter, "z");
            if (t == 1 && !sizes[1][0] && !sizes[1][1] && !sizes[1][2])
                continue;
            must(size_of(scene.limiter, keys[t]) == expected, "the highest layer that is there");
        }
    }
}

TEST(a_later_definition_by_code_applies_once_consul_no_longer_defines_the_limit, 10)
{
    OPEN_SCENE(scene, NULL);
    ck_assert_uint_eq(apply_one(scene.limiter, WEIR_FOLLOW_CONSUL_POLICIES, NULL, 30).changes, 1);
    ck_assert_int_eq(size_of(scene.limiter, "a"), 30); /* the only source of the limit */
    define(scene.limiter, "api", 10);
    ck_assert_int_eq(size_of(scene.limiter, "a"), 30);
    ck_assert_uint_eq(apply(scene.limiter, WEIR_FOLLOW_CONSUL_POLICIES, NULL, 0).changes, 1);
    ck_assert_int_eq(size_of(scene.limiter, "a"), 10);
    ck_assert_uint_eq(apply(scene.limiter, WEIR_FOLLOW_CONSUL_POLICIES, NULL, 0).changes, 0);
}

TEST(an_override_in_a_layer_waits_for_its_limit, 10)
{
    OPEN_SCENE(scene, NULL);
    scene.log_allowed = true;
    ck_assert_uint_eq(apply_one(scene.limiter, WEIR_FOLLOW_POLICY_FILE, "a", 30).changes, 1);
    ck_assert_msg(strstr(scene.last_line, "limit api has overrides, but is not defined yet") != NULL, "%s",
                  scene.last_line);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "api"));
    struct weir_stats stats = stats_of(scene.limiter);
    ck_assert_uint_eq(stats.share_zeros + stats.share_lifts, 0);
    const struct share half = { .weight = 1, .total = 2, .rank = 0, .count = 2 };
    must_succeed(limiter_set_share(scene.limiter, &half));
    scene.log_allowed = false;
    ck_assert_uint_eq(apply_one(scene.limiter, WEIR_FOLLOW_POLICY_FILE, "a", 30).changes, 0);
    define(scene.limiter, "api", 10);
    ck_assert_int_eq(size_of(scene.limiter, "a"), 15);
    ck_assert_int_eq(size_of(scene.limiter, "b"), 5);
}

TEST(a_limit_that_no_source_defines_keeps_its_last_policy_and_is_logged, 10)
{
    OPEN_SCENE(scene, NULL);
    const struct policy_entry entries[] = { entry_of("api", NULL, 30), entry_of("api", "a", 40) };
    apply(scene.limiter, WEIR_FOLLOW_CONSUL_POLICIES, entries, 2);
    weir_limit *limit = weir_limit_find(scene.limiter, "api");
    ck_assert(taken(limit, "b", 5).allowed);
    scene.log_allowed = true;
    ck_assert_uint_eq(apply(scene.limiter, WEIR_FOLLOW_CONSUL_POLICIES, NULL, 0).changes, 2);
    ck_assert_int_eq(scene.log_lines, 1);
    ck_assert_msg(strstr(scene.last_line, "limit api: no source defines it any more") != NULL, "%s", scene.last_line);
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, "api"), limit);
    ck_assert_int_eq(size_of(scene.limiter, "a"), 30); /* an override has an end */
    ck_assert_int_eq(peeked(limit, "b", 1).remaining, 25);
    ck_assert_uint_eq(apply(scene.limiter, WEIR_FOLLOW_CONSUL_POLICIES, NULL, 0).changes, 0);
    ck_assert_int_eq(scene.log_lines, 1);
    apply_one(scene.limiter, WEIR_FOLLOW_POLICY_FILE, NULL, 20);
    ck_assert_int_eq(size_of(scene.limiter, "a"), 20);
}

/* ---- What is wrong ---- */

TEST(a_bad_entry_keeps_the_previous_policy_and_does_not_block_other_entries, 10)
{
    OPEN_SCENE(scene, NULL);
    define(scene.limiter, "api", 10);
    struct policy_entry entries[] = {
        entry_of("api", NULL, 20),   entry_of("api", "a", 21),  entry_of("api", "b*", 22),
        entry_of("other", NULL, 23), entry_of("a b", NULL, 24), entry_of("api", "c=", 25),
        entry_of("api", "%61", 26),  entry_of("new", NULL, 27), entry_of("new", "k", 28)
    };
    enum { ENTRIES = sizeof entries / sizeof entries[0] };
    struct layers_result result = apply(scene.limiter, WEIR_FOLLOW_CONSUL_POLICIES, entries, 4);
    ck_assert_uint_eq(result.changes, 4);
    ck_assert_uint_eq(result.refused, 0);
    ck_assert_str_eq(result.sentence, "");

    entries[0].error = "column 3: what is this?";
    entries[0].where = "Consul's weir/api";
    entries[1].policy.limit = 0;
    entries[2].policy.limit = 32;
    entries[3].error = entries[7].error = "not understood";
    scene.log_allowed = true;
    result = apply(scene.limiter, WEIR_FOLLOW_CONSUL_POLICIES, entries, ENTRIES);
    ck_assert_uint_eq(result.changes, 2); /* "b*" and, waiting, "new/k" */
    ck_assert_uint_eq(result.refused, 7); /* "%61" stands twice, though what stood first was refused */
    ck_assert_int_eq(size_of(scene.limiter, "z"), 20);
    ck_assert_int_eq(size_of(scene.limiter, "a"), 21);
    ck_assert_int_eq(size_of(scene.limiter, "bb"), 32);
    ck_assert_int_eq(peeked(weir_limit_find(scene.limiter, "other"), "a", 1).limit, 23);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "new"));

    result = apply(scene.limiter, WEIR_FOLLOW_CONSUL_POLICIES, entries, 1);
    ck_assert_str_eq(result.sentence, "Consul's weir/api: column 3: what is this?");
    ck_assert_int_eq(size_of(scene.limiter, "a"), 20); /* the others are gone */
    ck_assert_int_eq(size_of(scene.limiter, "z"), 20);
}

TEST(the_error_of_a_bad_entry_names_its_source_and_fault, 10)
{
    static const struct {
        const char *name, *pattern;
        int64_t limit;
        const char *sentence;
    } cases[] = {
        { "a b", NULL, 1, "here: name \"a \": byte 2 is not a letter" },
        { "", NULL, 1, "here: name must not be empty" },
        { "api", "", 1, "here: pattern must not be empty" },
        { "api", "x y", 1, "here: pattern: byte 2 must be written %20" },
        { "api", NULL, 0, "here: limit must be 1 to 8796093022208, not 0" },
        { "api", "x", WEIR_MAX_PERMITS + 1, "here: limit must be 1 to 8796093022208, not 8796093022209" },
    };
    OPEN_SCENE(scene, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct policy_entry entry = entry_of(cases[i].name, cases[i].pattern, cases[i].limit);
        const struct layers_result result = apply(scene.limiter, WEIR_FOLLOW_POLICY_FILE, &entry, 1);
        ck_assert_uint_eq(result.refused, 1);
        ck_assert_uint_eq(result.changes, 0);
        ck_assert_msg(strstr(result.sentence, cases[i].sentence) == result.sentence, "%s", result.sentence);
    }
    const struct policy_entry twice[] = { entry_of("api", "a", 1), entry_of("api", "%61", 2) };
    scene.log_allowed = true;
    const struct layers_result result = apply(scene.limiter, WEIR_FOLLOW_POLICY_FILE, twice, 2);
    ck_assert_uint_eq(result.refused, 1);
    ck_assert_str_eq(result.sentence, "here: it stands twice");
}

TEST(a_layer_with_one_limit_too_many_defines_the_others, 60)
{
    char name[32];
    OPEN_SCENE(scene, NULL);
    for (int i = 0; i < WEIR_MAX_LIMITS - 1; i++) {
        snprintf(name, sizeof name, "limit-%d", i);
        define(scene.limiter, name, 10);
    }
    const struct policy_entry entries[] = { entry_of("limit-0", NULL, 20), entry_of("api", NULL, 21),
                                            entry_of("more", NULL, 22), entry_of("api", "a", 23) };
    const struct layers_result result = apply(scene.limiter, WEIR_FOLLOW_POLICY_FILE, entries, 4);
    ck_assert_uint_eq(result.changes, 3);
    ck_assert_uint_eq(result.refused, 1);
    ck_assert_str_eq(result.sentence, "here: 65536 limits are defined already");
    ck_assert_int_eq(size_of(scene.limiter, "a"), 23);
    ck_assert_int_eq(peeked(weir_limit_find(scene.limiter, "limit-0"), "a", 1).limit, 20);
}

/* ---- Files ---- */

struct file {
    char path[64];
};

static struct file file_of(const char *text)
{
    struct file file;
    snprintf(file.path, sizeof file.path, "/tmp/weir-test-layers-XXXXXX");
    int descriptor = mkstemp(file.path);
    ck_assert_int_ge(descriptor, 0);
    ck_assert_int_eq((int)write(descriptor, text, strlen(text)), (int)strlen(text));
    close(descriptor);
    return file;
}

static int load(weir *limiter, const char *text, char *message, size_t size)
{
    struct file file = file_of(text);
    int result = weir_limits_load(limiter, file.path, message, size);
    unlink(file.path);
    return result;
}

TEST(overrides_in_a_file_are_loaded_whole_or_not_at_all, 10)
{
    char message[300] = "";
    OPEN_SCENE(scene, NULL);
    define(scene.limiter, "api", 10);
    define(scene.limiter, "api/a", 11);
    ck_assert_int_eq(load(scene.limiter,
                          "api/a = fixed_window limit=21 period=1h\napi = fixed_window limit=20 period=1h\n"
                          "new/b = fixed_window limit=22 period=1h\nnobody/c = fixed_window limit=23 period=1h\n"
                          "new = fixed_window limit=24 period=1h\n",
                          message, sizeof message),
                     WEIR_EINVAL);
    ck_assert_msg(strstr(message, ":4: there is no limit \"nobody\" to override") != NULL, "%s", message);
    ck_assert_int_eq(size_of(scene.limiter, "a"), 11);
    ck_assert_int_eq(size_of(scene.limiter, "b"), 10);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "new"));
    ck_assert_uint_eq(scene.limiter->pattern_count, 1);
    define(scene.limiter, "next", 1);
    ck_assert_uint_eq(weir_limit_find(scene.limiter, "next")->id, 1); /* the undone definitions use no number */

    must_succeed(load(scene.limiter,
                      "new/b* = fixed_window limit=22 period=1h # before its limit\n"
                      "api/a  = fixed_window limit=21 period=1h\nnew = fixed_window limit=24 period=1h\n"
                      "new/%41%20b = fixed_window limit=25 period=1h",
                      message, sizeof message));
    weir_limit *new = weir_limit_find(scene.limiter, "new");
    ck_assert_int_eq(size_of(scene.limiter, "a"), 21);
    ck_assert_int_eq(size_of(scene.limiter, "b"), 10);
    ck_assert_int_eq(peeked(new, "bb", 1).limit, 22);
    ck_assert_int_eq(peeked(new, "A b", 1).limit, 25);
    ck_assert_int_eq(peeked(new, "c", 1).limit, 24);
}

TEST(a_followed_file_overrides_code_from_the_start, 10)
{
    static const char text[] = "api = fixed_window limit=20 period=365d\napi/a = fixed_window limit=21 period=365d\n"
                               "later/a = fixed_window limit=22 period=365d\n";
    const struct policy_entry entries[] = { entry_of("api", NULL, 20), entry_of("api", "a", 21),
                                            entry_of("later", "a", 22) };
    struct file file = file_of(text);
    char sentence[300] = "";
    struct scene scene;
    scene_open(&scene, NULL);
    must_succeed(limits_load(scene.limiter, file.path, LAYER_FILE, (struct message){ sentence, sizeof sentence }));
    define(scene.limiter, "api", 10);
    ck_assert_int_eq(size_of(scene.limiter, "b"), 20);
    define(scene.limiter, "later", 30);
    ck_assert_int_eq(peeked(weir_limit_find(scene.limiter, "later"), "a", 1).limit, 22);
    ck_assert_uint_eq(apply(scene.limiter, WEIR_FOLLOW_POLICY_FILE, entries, 3).changes, 0);
    ck_assert_uint_eq(apply(scene.limiter, WEIR_FOLLOW_POLICY_FILE, NULL, 0).changes, 3);
    ck_assert_int_eq(size_of(scene.limiter, "a"), 10);
    scene_close(&scene);

    scene_open(&scene, NULL);
    ck_assert_int_eq(weir_limits_load(scene.limiter, file.path, sentence, sizeof sentence), WEIR_EINVAL);
    ck_assert_msg(strstr(sentence, ":3: there is no limit \"later\" to override") != NULL, "%s", sentence);
    scene_close(&scene);
    unlink(file.path);
}
