/* test_machine_inspect.c - the inspector of a shared file lists its keys, while it is used and afterwards. */
#include "backends/machine/visit.h"
#include "core/limiter/limiter.h"
#include "shared_file.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MANY_KEYS = 20000, KEY_SIZE = 400 };

static int64_t inspect_clock(void *user)
{
    return *(const int64_t *)user;
}

static weir_inspector *inspector_of(int64_t *now_us)
{
    weir_inspector *inspector;
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = WEIR_MACHINE;
    options.shared = path;
    options.timeout_us = WEIR_HOUR;
    options.now_us = inspect_clock;
    options.user = now_us;
    options.quiet = true;
    must(weir_inspect_open(&options, &inspector) == WEIR_OK, weir_last_message());
    return inspector;
}

static void inspector_close(weir_inspector **inspector)
{
    weir_inspect_close(*inspector);
}

#define INSPECTOR(name, now_us) CLOSED_BY(inspector_close) weir_inspector *name = inspector_of(now_us)

/* Every seventh key is longer than a cell. */
static struct weir_key key_of(int number, char text[KEY_SIZE])
{
    const int len = snprintf(text, KEY_SIZE, "%d-%0*d", number, number % 7 ? 1 : KEY_SIZE / 2, 0);
    return weir_key(text, (size_t)len);
}

struct seen {
    int times[MANY_KEYS];
    int count, most, formers;
    char last_limit[WEIR_MAX_NAME_LEN + 1], last_key[64];
};

/* Note a key, and that it is whole. */
static int see(void *user, const struct weir_inspected *key)
{
    struct seen *seen = user;
    char text[KEY_SIZE];
    must(key->size == sizeof *key && key->found == WEIR_FOUND_STATE && !key->is_cut, "a key with its state");
    seen->count++;
    seen->formers += key->has_former;
    snprintf(seen->last_limit, sizeof seen->last_limit, "%s", key->limit);
    snprintf(seen->last_key, sizeof seen->last_key, "%.*s", key->key.len < 60 ? (int)key->key.len : 60,
             (const char *)key->key.data);
    const int number = atoi(seen->last_key);
    if (number >= 0 && number < MANY_KEYS && strcmp(key->limit, "many") == 0) {
        const struct weir_key expected = key_of(number, text);
        must(expected.len == key->key.len && memcmp(expected.data, key->key.data, expected.len) == 0,
             "the bytes of the key");
        must(key->state.used == number % 5 + 1, "the permits in use");
        seen->times[number]++;
    }
    return seen->most > 0 && seen->count == seen->most ? 7 : WEIR_OK;
}

static int walk(weir_inspector *inspector, const char *limit, const char *pattern, struct seen *seen)
{
    *seen = (struct seen){ .most = seen->most };
    return weir_inspect_keys(inspector, limit, pattern, see, seen);
}

static struct seen seen; /* large */

TEST(every_key_of_a_file_is_visited_once, 60)
{
    folder_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 2 * MANY_KEYS));
    weir_limit *many = scene_define_text(&scene, "many", "token_bucket limit=10 period=1h");
    must(((const struct machine *)scene.limiter->backend)->file.facts.stripes > 1, "several stripes");
    for (int i = 0; i < MANY_KEYS; i++) {
        char text[KEY_SIZE];
        must_succeed(weir_charge(many, key_of(i, text), i % 5 + 1));
    }
    weir_limit *other = scene_define_text(&scene, "other", "fixed_window limit=3 period=1h");
    ck_assert(taken(other, "10.0.0.1", 1).allowed && taken(other, "10.0.1.1", 3).allowed);
    INSPECTOR(inspector, &scene.now_us);
    must_succeed(walk(inspector, NULL, NULL, &seen));
    ck_assert_int_eq(seen.count, MANY_KEYS + 2);
    for (int i = 0; i < MANY_KEYS; i++)
        ck_assert_int_eq(seen.times[i], 1);
    must_succeed(walk(inspector, "other", NULL, &seen));
    ck_assert_int_eq(seen.count, 2);
    must_succeed(walk(inspector, NULL, "10.0.1.*", &seen));
    ck_assert_int_eq(seen.count, 1);
    ck_assert_str_eq(seen.last_limit, "other");
    ck_assert_str_eq(seen.last_key, "10.0.1.1");
    must_succeed(walk(inspector, "many", "10.0.1.1", &seen));
    ck_assert_int_eq(seen.count, 0);
    seen.most = 3;
    ck_assert_int_eq(walk(inspector, "many", "1*", &seen), 7);
    ck_assert_int_eq(seen.count, 3);
    seen = (struct seen){ .most = 0 };
    bool is_all = true;
    must_succeed(weir_inspect_some(inspector, NULL, NULL, 10, &is_all, see, &seen));
    ck_assert(!is_all && seen.count < MANY_KEYS);
    seen = (struct seen){ .most = 0 };
    must_succeed(weir_inspect_some(inspector, "other", NULL, INT64_MAX, &is_all, see, &seen));
    ck_assert(is_all && seen.count == 2);
    ck_assert_int_eq(weir_inspect_some(inspector, NULL, NULL, 0, &is_all, see, &seen), WEIR_EINVAL);
    seen.most = 0;
    scene.now_us += WEIR_HOUR; /* all are idle, and none is listed, though the file may still have them */
    must_succeed(walk(inspector, NULL, NULL, &seen));
    ck_assert_int_eq(seen.count, 0);
    folder_remove();
}

TEST(keys_of_a_file_without_a_running_process_are_listed, 20)
{
    folder_make();
    int64_t now_us;
    {
        OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 100));
        OPEN_SCENE(other, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 100));
        other.now_us = now_us = scene.now_us;
        ck_assert(taken(scene_define_text(&scene, "limit", "fixed_window limit=100 period=1d"), "a", 80).allowed);
        ck_assert(!taken(scene_define_text(&other, "limit", "sliding_window limit=50 period=1h"), "a", 1).allowed);
    }
    INSPECTOR(inspector, &now_us);
    must_succeed(walk(inspector, NULL, NULL, &seen));
    ck_assert_int_eq(seen.count, 1);
    ck_assert_int_eq(seen.formers, 1);
    ck_assert_str_eq(seen.last_limit, "limit");
    struct weir_inspected key = { .size = sizeof key };
    must_succeed(weir_inspect_key(inspector, "limit", weir_key_text("b"), &key));
    ck_assert_int_eq(key.found, WEIR_FOUND_NOTHING);
    ck_assert_int_eq(weir_inspect_key(inspector, "other", weir_key_text("b"), &key), WEIR_EINVAL);
    ck_assert(strstr(weir_last_message(), "the file knows no limit \"other\""));
    ck_assert_int_eq(weir_inspect_keys(inspector, "not a name", NULL, see, &seen), WEIR_EINVAL);
    ck_assert_int_eq(weir_inspect_keys(inspector, NULL, "a*b", see, &seen), WEIR_EINVAL);
    ck_assert_int_eq(weir_inspect_keys(inspector, NULL, NULL, NULL, &seen), WEIR_EINVAL);
    folder_remove();
}

TEST(the_state_shared_by_keys_without_room_is_not_listed_as_a_key, 20)
{
    folder_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1, .on_full = WEIR_FULL_SHARE));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    for (int i = 0; i < 2100; i++) {
        char key[24];
        snprintf(key, sizeof key, "key %d", i);
        taken(limit, key, 1);
    }
    INSPECTOR(inspector, &scene.now_us);
    must_succeed(walk(inspector, NULL, NULL, &seen));
    ck_assert_int_eq(seen.count, stats_of(scene.limiter).keys - 1);
    folder_remove();
}

TEST(a_damaged_stripe_is_repaired_and_listed, 20)
{
    folder_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 100));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    ck_assert(taken(limit, "a", 1).allowed && taken(limit, "b", 1).allowed);
    INSPECTOR(inspector, &scene.now_us);
    const struct machine *machine = (const struct machine *)scene.limiter->backend;
    struct machine_stripe *stripe = machine_stripe(machine, 0);
    uint32_t cell = 1;
    while (cell_kind(stripe_load(stripe, cell_at(&machine->shape, cell) + 1)) != CELL_KEY)
        cell++;
    stripe_store(stripe, cell_at(&machine->shape, cell), UINT64_MAX); /* where a key leads */
    must_succeed(walk(inspector, NULL, NULL, &seen));
    ck_assert_int_eq(seen.count, 2);
    must(stripe_check((struct machine *)scene.limiter->backend, stripe), "the stripe is sound");
    folder_remove();
}

static int see_slots(void *user, const struct weir_inspected *key)
{
    struct weir_inspected *copy = user;
    ck_assert_str_eq(key->limit, "flight");
    ck_assert_uint_eq(key->key.len, 1);
    *copy = *key;
    return WEIR_OK;
}

TEST(the_inspector_shows_slots_and_clears_them, 30)
{
    folder_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 100));
    weir_limit *limit = scene_define_text(&scene, "flight", "concurrency limit=5 hold=10s");
    struct weir_inspected found = { .size = sizeof found }, listed = { .size = 0 };
    scene.now_us = 1700000000 * WEIR_SECOND;
    taken(limit, "a", 2);
    scene.now_us += 3 * WEIR_SECOND;
    taken(limit, "a", 1);
    INSPECTOR(inspector, &scene.now_us);
    must_succeed(weir_inspect_key(inspector, "flight", weir_key_text("a"), &found));
    must_succeed(weir_inspect_keys(inspector, NULL, NULL, see_slots, &listed));
    for (int i = 0; i < 2; i++) {
        const struct weir_inspected *shown = i == 0 ? &found : &listed;
        ck_assert_int_eq(shown->found, WEIR_FOUND_STATE);
        ck_assert_int_eq(shown->slots, 2);
        ck_assert_int_eq(shown->state.used, 3);
        ck_assert_int_eq(shown->first_slot_us, 7 * WEIR_SECOND);
        ck_assert_int_eq(shown->state.decision.reset_after_us, 10 * WEIR_SECOND);
    }
    bool existed = false;
    must_succeed(weir_inspect_reset(inspector, "flight", weir_key_text("a"), &existed));
    ck_assert(existed);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 5);
}
