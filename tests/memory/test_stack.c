/* test_stack.c - how much stack a call takes in local mode, when all that it may have to do comes together. */
#include "stack_depth.h"

#include <stdio.h>

/* Define the limits by one policy after another, and leave the last to the call. `uses` permits are taken of each key
 * at first, so that more than 500 leave former states behind. */
static void play(struct scene *scene, struct stack_ask *ask, const char *const policies[4], int64_t uses)
{
    stack_ask_begin(ask, scene->limiter);
    for (size_t p = 0; p < 4 && policies[p]; p++) {
        if (p > 0)
            stack_ask_use(ask, p == 1 ? uses : 1);
        stack_ask_define(ask, policies[p]);
        scene->now_us += WEIR_SECOND;
    }
}

/* Measure each call after each history. */
static void measure_all(const struct weir_options *options, int64_t uses, bool overridden)
{
    static struct stack_ask ask;
    for (int i = 0; i < STACK_HISTORIES * STACK_VERBS; i++) {
        const struct stack_history *history = &stack_histories[i / STACK_VERBS];
        const struct stack_verb *verb = &stack_verbs[i % STACK_VERBS];
        OPEN_SCENE(scene, options);
        scene_define_text(&scene, "limit0", STACK_LARGE);
        if (overridden)
            scene_define_text(&scene, "limit0/key*", STACK_LARGE);
        play(&scene, &ask, history->policies, uses);
        assert_stack(verb, &ask, history->name);
        must_succeed(ask.status);
        stack_ask_end(&ask);
    }
}

TEST(every_verb_stays_within_its_stack_bound_after_any_redefinition, 60)
{
    measure_all(NULL, 1, false);
    measure_all(NULL, 800, false);
}

TEST(every_verb_stays_within_its_stack_bound_under_overrides, 60)
{
    measure_all(NULL, 800, true);
}

TEST_EACH(a_full_table_uses_no_more_stack, 3, 60)
{
    static const enum weir_on_full on_full[] = { WEIR_FULL_DENY, WEIR_FULL_SHARE, WEIR_FULL_ALLOW };
    measure_all(OPTIONS(.max_keys = 1, .on_full = on_full[_i]), 1, false);
}

TEST(calls_run_on_the_smallest_stack, 60)
{
    static struct stack_ask ask;
    for (int i = 0; STACK_CAN_BE_MEASURED && i < STACK_VERBS; i++) {
        OPEN_SCENE(scene, NULL);
        play(&scene, &ask, stack_histories[6].policies, 800);
        stack_run_small(&stack_verbs[i], &ask);
        must_succeed(ask.status);
        stack_ask_end(&ask);
    }
}
