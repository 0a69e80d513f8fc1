/* test_machine_rehome.c - keys that are used often move to their homes, and nothing else about them changes. */
#include "homes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PLENTY = 20000 }; /* decisions, of which one in 256 takes a rival's place */

static char rival_text[64];

/* Add two keys with the same home. */
static weir_limit *two_keys(struct scene *scene, const char *policy, const char *first)
{
    weir_limit *limit = scene_define_text(scene, "limit", policy);
    const struct weir_key key = weir_key_text(first);
    snprintf(rival_text, sizeof rival_text, "rival/%u", (unsigned)rival_number(limit, key, "rival"));
    taken(limit, first, 3);
    taken(limit, rival_text, 5);
    ck_assert_uint_eq(cell_of(limit, key), home_of(limit, key));
    return limit;
}

static bool is_home(const weir_limit *limit, const char *text)
{
    return cell_of(limit, weir_key_text(text)) == home_of(limit, weir_key_text(text));
}

static void check_stripes(const weir_limit *limit)
{
    struct machine *machine = machine_of(limit);
    for (uint64_t i = 0; i < machine->file.facts.stripes; i++)
        ck_assert(stripe_check(machine, machine_stripe(machine, i)));
    ck_assert_uint_eq(machine_damages(machine), 0);
}

static const char *const policies[] = { "token_bucket limit=1000000 period=366d",
                                        "token_bucket limit=1000000 period=366d refill=interval",
                                        "fixed_window limit=1000000 period=366d",
                                        "leaky_bucket limit=1000000 period=366d" };

TEST_EACH(a_busy_key_takes_the_place_of_its_rival, sizeof policies / sizeof *policies, 20)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 100));
    weir_limit *limit = two_keys(&scene, policies[_i], "first");
    ck_assert(!is_home(limit, rival_text));
    for (int i = 0; i < PLENTY; i++)
        ck_assert_int_eq(taken(limit, rival_text, 1).remaining, 1000000 - 5 - 1 - i);
    ck_assert(is_home(limit, rival_text));
    ck_assert(!is_home(limit, "first"));
    ck_assert_int_eq(peeked(limit, "first", 1).remaining, 1000000 - 3);
    ck_assert_int_eq(stats_of(scene.limiter).keys, 2);
    check_stripes(limit);
}

TEST(a_key_moves_home_when_its_home_is_free, 20)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 100));
    weir_limit *limit = two_keys(&scene, policies[0], "first");
    must_succeed(weir_reset(limit, weir_key_text("first")));
    ck_assert(!is_home(limit, rival_text));
    for (int i = 0; i < 1000; i++)
        taken(limit, rival_text, 1);
    ck_assert(is_home(limit, rival_text));
    ck_assert_int_eq(peeked(limit, rival_text, 1).remaining, 1000000 - 1005);
    check_stripes(limit);
}

static const char *const strict[] = { "token_bucket limit=5 period=366d",
                                      "token_bucket limit=5 period=366d refill=interval",
                                      "fixed_window limit=5 period=366d", "leaky_bucket limit=5 period=366d",
                                      "sliding_window limit=5 period=366d" };

/* Otherwise processes would take the key's line from each other while they deny. */
TEST_EACH(denials_move_and_write_nothing, sizeof strict / sizeof *strict, 20)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 100));
    weir_limit *limit = two_keys(&scene, strict[_i], "first");
    const struct machine *machine = machine_of(limit);
    unsigned char *before = malloc(machine->file.facts.size);
    ck_assert_ptr_nonnull(before);
    ck_assert(!taken(limit, rival_text, 5).allowed);
    memcpy(before, machine->file.map, machine->file.facts.size);
    for (int i = 0; i < PLENTY; i++) {
        ck_assert(!taken(limit, rival_text, 5).allowed);
        scene.now_us += 1000;
    }
    must(memcmp(before, machine->file.map, machine->file.facts.size) == 0, "the file is as it was");
    free(before);
}

TEST(a_key_of_two_cells_keeps_its_home, 20)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 100));
    weir_limit *limit = two_keys(&scene, policies[0], "a first key of two cells: 01234567890123");
    for (int i = 0; i < PLENTY; i++)
        taken(limit, rival_text, 1);
    ck_assert(!is_home(limit, rival_text));
    check_stripes(limit);
}

/* ---- A full file ---- */

enum { CROWD = 40000, CROWD_STEPS = 10 * CROWD };

static struct weir_key crowd_key(char text[24], int64_t number)
{
    snprintf(text, 24, "client %09" PRId64, number);
    return weir_key(text, 16);
}

/* Most keys are busy only now and then, and all lie in a file that is full. */
TEST(many_keys_are_decided_as_in_local_mode_while_keys_move, 60)
{
    struct chance chance = chance_make(7);
    struct scene local;
    char text[24];
    int homes = 0;
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = CROWD, .keep_idle = true));
    scene_open(&local, OPTIONS(.max_keys = 4 * CROWD, .keep_idle = true));
    weir_limit *limits[2] = { scene_define_text(&local, "limit", "token_bucket limit=90 period=1d"),
                              scene_define_text(&scene, "limit", "token_bucket limit=90 period=1d") };
    ck_assert(machine_of(limits[1])->is_crowded);
    for (int64_t i = 0; i < CROWD + CROWD_STEPS; i++) {
        struct weir_decision decisions[2];
        const int64_t number = i < CROWD ? i : chance_between(&chance, 0, CROWD - 1);
        const struct weir_key key = crowd_key(text, number);
        scene.now_us = local.now_us += chance_between(&chance, 0, 2000);
        for (int twin = 0; twin < 2; twin++) {
            memset(&decisions[twin], 0, sizeof decisions[twin]);
            must_succeed(weir_try(limits[twin], key, 1 + number % 3, &decisions[twin]));
        }
        must(memcmp(&decisions[0], &decisions[1], sizeof decisions[0]) == 0, "both decide the same");
    }
    for (int i = 0; i < CROWD; i++) {
        const struct weir_key key = crowd_key(text, i);
        homes += cell_of(limits[1], key) == home_of(limits[1], key);
    }
    printf("%.1f %% of the keys are at home\n", 100.0 * homes / CROWD);
    must(homes > CROWD * 0.57, "keys have moved to their homes");
    check_stripes(limits[1]);
    scene_close(&local);
}

int main(void)
{
    return suite_run(tests());
}
