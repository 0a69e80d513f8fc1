/* test_figures.c - figures per limit: where they count, how they are found, and how they are printed. The tests in
 * support/contract check the counts of each verb in every mode. */
#include "failing_alloc.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct weir_limit_stats figures_of(const weir_limit *limit)
{
    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(limit, &stats));
    return stats;
}

/* Return the limit or override that weir_limit_define() knows by this name. */
static weir_limit *target_of(weir *limiter, const char *name)
{
    char found[WEIR_MAX_NAME_LEN + WEIR_MAX_PATTERN_LEN + 2];
    for (weir_limit *target = NULL; (target = weir_limit_next(limiter, target));)
        if (weir_limit_print_name(target, found, sizeof found) == (int)strlen(name) && strcmp(found, name) == 0)
            return target;
    return NULL;
}

TEST(an_override_is_counted_separately_from_its_limit, 10)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=2 period=1h");
    scene_define_text(&scene, "api/vip*", "fixed_window limit=5 period=1h");
    for (int i = 0; i < 6; i++) {
        taken(api, "any", 1);
        taken(api, "vip-1", 1);
    }
    const struct weir_limit_stats own = figures_of(api), vip = figures_of(target_of(scene.limiter, "api/vip*"));
    ck_assert_uint_eq(own.allowed, 2);
    ck_assert_uint_eq(own.denied, 4);
    ck_assert_uint_eq(vip.allowed, 5);
    ck_assert_uint_eq(vip.denied, 1);
    ck_assert_uint_eq(vip.by_source[WEIR_BY_MEMORY], 6);
    ck_assert_uint_eq(stats_of(scene.limiter).allowed, 7);
    ck_assert_uint_eq(stats_of(scene.limiter).denied, 5);
}

TEST(an_answer_by_on_full_is_counted_under_that_source, 10)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1, .on_full = WEIR_FULL_DENY));
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=2 period=1h");
    taken(api, "a", 1);
    ck_assert(!taken(api, "b", 1).allowed);
    const struct weir_limit_stats stats = figures_of(api);
    ck_assert_uint_eq(stats.by_source[WEIR_BY_MEMORY], 1);
    ck_assert_uint_eq(stats.by_source[WEIR_BY_FULL], 1);
    ck_assert_uint_eq(stats.denied, 1);
}

TEST(answers_are_counted_even_without_memory_for_a_stats_block, 10)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=100 period=1h");
    weir_limit *other = scene_define_text(&scene, "other", "fixed_window limit=100 period=1h");
    taken(api, "a", 1); /* the table, and this thread's block of `api`, exist */
    taken(other, "a", 101);
    weir_limit *late = scene_define_text(&scene, "late", "fixed_window limit=100 period=1h");
    alloc_watch(1, true); /* Check itself allocates, so it is called after alloc_failed() only */
    const bool allowed = taken(late, "a", 101).allowed; /* a denial needs no memory but the block's */
    const bool failed = alloc_failed();
    ck_assert(!allowed && failed);
    ck_assert(!taken(late, "a", 102).allowed);
    ck_assert_uint_eq(figures_of(late).denied, 2);
    ck_assert_uint_eq(stats_of(scene.limiter).denied, 3);
}

/* ---- To find limits ---- */

TEST(limits_and_overrides_are_listed_in_order_of_creation, 10)
{
    static const char *const names[] = { "b", "a/x", "a", "c", "b/%25%2A%20*", "a/x*" };
    OPEN_SCENE(scene, NULL);
    ck_assert_ptr_null(weir_limit_next(scene.limiter, NULL));
    scene_define_text(&scene, "b", "fixed_window limit=1 period=1h");
    scene_define_text(&scene, "a", "fixed_window limit=1 period=1h");
    scene_define_text(&scene, "a/x", "fixed_window limit=1 period=1h");
    scene_define_text(&scene, "c", "fixed_window limit=1 period=1h");
    scene_define_text(&scene, "b/%25%2a%20*", "fixed_window limit=1 period=1h");
    scene_define_text(&scene, "a/x*", "fixed_window limit=1 period=1h");
    const int order[] = { 0, 2, 1, 3, 4, 5 };
    weir_limit *target = NULL;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        char name[64];
        target = weir_limit_next(scene.limiter, target);
        ck_assert_int_eq(weir_limit_print_name(target, name, sizeof name), (int)strlen(names[order[i]]));
        ck_assert_str_eq(name, names[order[i]]);
    }
    ck_assert_ptr_null(weir_limit_next(scene.limiter, target));
    must_succeed(weir_limit_define(scene.limiter, "a/x", NULL, NULL)); /* the override ends */
    ck_assert_ptr_null(target_of(scene.limiter, "a/x"));
    ck_assert_ptr_nonnull(target_of(scene.limiter, "c"));
}

TEST(a_refused_file_defines_no_limit, 10)
{
    OPEN_SCENE(scene, NULL);
    char path[] = "/tmp/weir-figures-XXXXXX", message[256];
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=1 period=1h");
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    FILE *file = fdopen(fd, "w");
    /* The last line passes by itself, but there is no limit for its pattern to override. */
    fprintf(file, "new = fixed_window limit=1 period=1h\nnew/a = fixed_window limit=2 period=1h\n"
                  "api/b = fixed_window limit=2 period=1h\nnone/c = fixed_window limit=1 period=1h\n");
    fclose(file);
    const int error = weir_limits_load(scene.limiter, path, message, sizeof message);
    remove(path);
    if (error) {
        ck_assert_ptr_null(target_of(scene.limiter, "new"));
        ck_assert_ptr_null(target_of(scene.limiter, "new/a"));
    }
    ck_assert_ptr_eq(weir_limit_next(scene.limiter, NULL), api);
    scene_define_text(&scene, "after", "fixed_window limit=1 period=1h");
    ck_assert_ptr_nonnull(target_of(scene.limiter, "after"));
}

TEST(stats_calls_with_bad_arguments_are_refused, 10)
{
    OPEN_SCENE(scene, NULL);
    OPEN_SCENE(stranger, NULL);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=1 period=1h");
    struct weir_limit_stats wrong = { .size = sizeof wrong - 8 };
    char name[4] = "xyz";
    ck_assert_int_eq(weir_limit_stats_read(api, &wrong), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_stats_read(api, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_stats_read(NULL, &wrong), WEIR_EINVAL);
    ck_assert_ptr_null(weir_limit_next(NULL, NULL));
    ck_assert_ptr_null(weir_limit_next(stranger.limiter, api));
    ck_assert_int_eq(weir_limit_print_name(NULL, name, sizeof name), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_print_name(api, NULL, 1), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_print_name(api, NULL, 0), 3);
    ck_assert_int_eq(weir_limit_print_name(api, name, 3), 3);
    ck_assert_str_eq(name, "");
    ck_assert_int_eq(weir_limit_print_name(api, name, 4), 3);
    ck_assert_str_eq(name, "api");
}

/* ---- As text ---- */

TEST(the_text_has_a_sample_of_each_limit_with_the_overrides_added, 10)
{
    static const struct weir_label labels[] = { { "instance", "a\"b" } };
    static const char *const samples[] = {
        "\nweir_limit_allowed_total{limit=\"api\",instance=\"a\\\"b\"} 3\n",
        "\nweir_limit_denied_total{limit=\"api\",instance=\"a\\\"b\"} 1\n",
        "\nweir_limit_permits_total{limit=\"api\",instance=\"a\\\"b\"} 3\n",
        "\nweir_limit_near_total{limit=\"api\",instance=\"a\\\"b\"} 2\n",
        "\nweir_limit_fallbacks_total{limit=\"api\",instance=\"a\\\"b\"} 0\n",
        "\nweir_limit_allowed_total{limit=\"login\",instance=\"a\\\"b\"} 2\n",
        "\nweir_limit_denied_total{limit=\"login\",instance=\"a\\\"b\"} 0\n",
        "\nweir_limit_would_deny_total{limit=\"login\",instance=\"a\\\"b\"} 1\n",
    };
    OPEN_SCENE(scene, NULL);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=1 period=1h");
    scene_define_text(&scene, "api/vip", "fixed_window limit=2 period=1h");
    weir_limit *login = scene_define_text(&scene, "login", "fixed_window limit=1 period=1h shadow");
    for (int i = 0; i < 2; i++) {
        taken(api, "a", 1);
        taken(api, "vip", 1);
        taken(login, "a", 1);
    }
    must_succeed(weir_limit_define(scene.limiter, "api/vip", NULL, NULL)); /* what it counted stays */
    static char text[8192];
    const int len = weir_limit_stats_print(scene.limiter, labels, 1, text, sizeof text);
    ck_assert_uint_eq((size_t)len, strlen(text));
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        ck_assert_msg(strstr(text, samples[i]) != NULL, "no %s in %s", samples[i], text);
    ck_assert_ptr_null(strstr(text, "vip"));

    static char part[8192] = "x";
    ck_assert_int_eq(weir_limit_stats_print(scene.limiter, labels, 1, part, (size_t)len), len);
    ck_assert_str_eq(part, "");
    ck_assert_int_eq(weir_limit_stats_print(scene.limiter, labels, 1, NULL, 0), len);
    static const struct weir_label taken_name[] = { { "limit", "mine" } };
    ck_assert_int_eq(weir_limit_stats_print(scene.limiter, taken_name, 1, part, sizeof part), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_stats_print(NULL, NULL, 0, part, sizeof part), WEIR_EINVAL);
    alloc_watch(1, true);
    const int error = weir_limit_stats_print(scene.limiter, NULL, 0, part, sizeof part);
    const bool failed = alloc_failed();
    ck_assert(failed);
    ck_assert_int_eq(error, WEIR_ENOMEM);
}
