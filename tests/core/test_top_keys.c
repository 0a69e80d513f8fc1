/* test_top_keys.c - the keys that are denied most: bounds of the counts, sampling, and which verbs count. */
#include "support.h"

#include "core/limiter/top_keys.h"

#include <stdio.h>
#include <string.h>

enum { KEYS = 1000, ROOM = 50, CALM = TOP_KEYS_CALM_US };

/* Open a scene with a sketch, and define a limit that denies every key from the second request on. */
#define TOP_SCENE(scene, keys, ...)                              \
    OPEN_SCENE(scene, OPTIONS(.top_keys = (keys), __VA_ARGS__)); \
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=1 period=1h")

static size_t top_of(weir *limiter, struct weir_top_key *out, size_t room)
{
    int n = weir_top_keys_read(limiter, out, room, false);
    ck_assert_int_ge(n, 0);
    return (size_t)n;
}

static void name_key(char name[16], int64_t number)
{
    snprintf(name, 16, "key-%d", (int)number);
}

/* Take once more of a key whose permits are all in use, `after_us` after the last call. */
static void deny(struct scene *scene, weir_limit *limit, const char *key, int64_t after_us)
{
    struct weir_decision decision;
    scene->now_us += after_us;
    must_succeed(weir_try(limit, weir_key_text(key), 1, &decision));
    must(!decision.allowed, "the key is denied");
}

TEST(counts_are_within_their_errors_and_no_frequent_key_is_missing, 60)
{
    TOP_SCENE(scene, ROOM, .top_keys_in_clear = true);
    struct chance chance = chance_make(1);
    static uint64_t exact[KEYS];
    struct weir_top_key top[ROOM];
    uint64_t total = 0;
    char name[16];
    for (int i = 0; i < KEYS; i++) {
        name_key(name, i);
        taken(api, name, 1);
    }
    for (int64_t step = steps_or(200000); step > 0; step--, total++) {
        const int64_t key = chance_magnitude(&chance, KEYS) - 1;
        name_key(name, key);
        deny(&scene, api, name, CALM);
        exact[key]++;
    }
    const size_t n = top_of(scene.limiter, top, ROOM);
    ck_assert_uint_eq(n, ROOM);
    for (size_t i = 0; i < n; i++) {
        int key;
        ck_assert_uint_lt(top[i].key_len, sizeof name);
        memcpy(name, top[i].key, top[i].key_len);
        name[top[i].key_len] = '\0';
        ck_assert_int_eq(sscanf(name, "key-%d", &key), 1);
        ck_assert_uint_le(exact[key], top[i].denied);
        ck_assert_uint_ge(exact[key], top[i].denied - top[i].error);
        ck_assert(i == 0 || top[i - 1].denied >= top[i].denied);
        ck_assert_ptr_eq(top[i].limit, api);
        exact[key] = 0; /* found */
    }
    for (int key = 0; key < KEYS; key++)
        ck_assert_uint_le(exact[key], total / ROOM);
}

TEST(denials_in_quick_succession_are_counted_by_sample, 60)
{
    enum { FAST_KEYS = 7 };
    TOP_SCENE(scene, FAST_KEYS, .mode = WEIR_LOCAL);
    struct weir_top_key top[FAST_KEYS];
    const int64_t steps = steps_or(700000) / FAST_KEYS * FAST_KEYS;
    char name[16];
    for (int i = 0; i < FAST_KEYS; i++) {
        name_key(name, i);
        taken(api, name, 1);
    }
    for (int64_t step = 0; step < steps; step++) {
        name_key(name, step % FAST_KEYS);
        deny(&scene, api, name, 0);
    }
    const size_t n = top_of(scene.limiter, top, FAST_KEYS);
    ck_assert_uint_eq(n, FAST_KEYS);
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_ge(top[i].denied, (uint64_t)(steps / FAST_KEYS * 9 / 10));
        ck_assert_uint_le(top[i].denied, (uint64_t)(steps / FAST_KEYS * 11 / 10));
        ck_assert_uint_eq(top[i].error, 0);
        ck_assert_uint_eq(top[i].key_len, 0); /* not in clear */
        for (size_t j = 0; j < i; j++)
            ck_assert_uint_ne(top[i].hash, top[j].hash);
    }
}

TEST(limits_are_counted_separately_and_long_keys_are_truncated, 10)
{
    TOP_SCENE(scene, 10, .top_keys_in_clear = true);
    weir_limit *other = scene_define_text(&scene, "other", "fixed_window limit=1 period=1h");
    scene_define_text(&scene, "other/vip*", "fixed_window limit=2 period=1h");
    struct weir_top_key top[10];
    char longest[3 * WEIR_TOP_KEY_SIZE + 1];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    taken(api, longest, 1);
    taken(other, longest, 1);
    taken(other, "vip", 2);
    for (int i = 0; i < 3; i++)
        deny(&scene, other, longest, CALM);
    for (int i = 0; i < 2; i++)
        deny(&scene, api, longest, CALM);
    deny(&scene, other, "vip", CALM);
    ck_assert_uint_eq(top_of(scene.limiter, top, 10), 3);
    ck_assert_ptr_eq(top[0].limit, other);
    ck_assert_ptr_eq(top[1].limit, api);
    ck_assert_ptr_eq(top[2].limit, other); /* not its override */
    ck_assert_uint_eq(top[0].denied, 3);
    ck_assert_uint_eq(top[0].key_len, sizeof longest - 1);
    ck_assert_mem_eq(top[0].key, longest, WEIR_TOP_KEY_SIZE);
    ck_assert_uint_eq(top[2].key_len, 3);
    ck_assert_uint_eq(top_of(scene.limiter, top, 1), 1);
    ck_assert_int_eq(weir_top_keys_read(scene.limiter, NULL, 0, true), 0); /* restarts */
    ck_assert_uint_eq(top_of(scene.limiter, top, 10), 0);
    deny(&scene, api, longest, CALM);
    ck_assert_uint_eq(top_of(scene.limiter, top, 10), 1);
    ck_assert_uint_eq(top[0].denied, 1);
}

TEST(every_verb_that_denies_is_counted, 10)
{
    TOP_SCENE(scene, 10, .top_keys_in_clear = true);
    weir_limit *wide = scene_define_text(&scene, "wide", "fixed_window limit=100 period=1h");
    weir_limit *ghost = scene_define_text(&scene, "ghost", "fixed_window limit=1 period=1h shadow");
    struct weir_top_key top[10];
    struct weir_decision decision, decisions[2];
    struct weir_reservation reservation;
    weir_handle *handle;
    const struct weir_key key = weir_key_text("k");
    taken(api, "k", 1);
    taken(ghost, "k", 1);
    struct weir_request group[] = { { .limit = wide, .key = key, .cost = 1 }, { .limit = api, .key = key, .cost = 1 } };
    struct weir_op op = { .request = { .limit = api, .key = key, .cost = 1 } };
    must_succeed(weir_key_resolve(api, key, &handle));
    must_succeed(weir_peek(api, key, 1, &decision)); /* counts nowhere */
    scene.now_us += CALM;
    must_succeed(weir_handle_try(handle, 1, 0, &decision));
    scene.now_us += CALM;
    must_succeed(weir_try_all(scene.limiter, group, 2, &decision));
    scene.now_us += CALM;
    must_succeed(weir_try_batch(scene.limiter, group, 2, decisions));
    scene.now_us += CALM;
    must_succeed(weir_reserve(api, key, 1, &decision, &reservation));
    scene.now_us += CALM;
    must_succeed(weir_submit(scene.limiter, &op));
    scene.now_us += CALM;
    must_succeed(weir_acquire(api, key, 1, 0, &decision));
    scene.now_us += CALM;
    must_succeed(weir_try(ghost, key, 1, &decision));
    weir_handle_free(handle);
    ck_assert_uint_eq(top_of(scene.limiter, top, 10), 2);
    ck_assert_ptr_eq(top[0].limit, api);
    ck_assert_uint_eq(top[0].denied, 6);
    ck_assert_ptr_eq(top[1].limit, ghost);
    ck_assert_uint_eq(top[1].denied, 1);
}

static void *deny_often(void *user)
{
    weir_limit *limit = user;
    struct weir_top_key top[4];
    for (int i = 0; i < 2000; i++) {
        char name[16];
        struct weir_decision decision;
        name_key(name, i % 16);
        must_succeed(weir_try_at(limit, weir_key_text(name), 2, WEIR_SECOND + i * CALM, &decision));
        if (i % 100 == 0)
            must(weir_top_keys_read(limit->limiter, top, 4, i % 1000 == 0) >= 0, "another thread reads");
    }
    return NULL;
}

TEST(threads_count_and_read_together, 60)
{
    TOP_SCENE(scene, 4, .top_keys_in_clear = true);
    struct crew crew;
    crew_start(&crew, 4, deny_often, api);
    crew_join(&crew);
    struct weir_top_key top[4];
    ck_assert_uint_le(top_of(scene.limiter, top, 4), 4);
}

TEST(weir_top_keys_read_requires_option_top_keys, 10)
{
    OPEN_SCENE(scene, NULL);
    struct weir_top_key top[1];
    scene.log_allowed = true;
    ck_assert_int_eq(weir_top_keys_read(scene.limiter, top, 1, false), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "weir_top_keys_read() needs the option top_keys");
    ck_assert_int_eq(weir_top_keys_read(NULL, top, 1, false), WEIR_EINVAL);
    for (int i = 0; i < 2; i++) {
        weir *limiter;
        struct weir_options options = WEIR_OPTIONS_INIT;
        options.top_keys = i == 0 ? -1 : WEIR_MAX_TOP_KEYS + 1;
        options.quiet = true;
        ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EINVAL);
        ck_assert_ptr_nonnull(strstr(weir_last_message(), "option top_keys must be 0 to 1024"));
    }
}
