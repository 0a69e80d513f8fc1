/* test_stack.c - how much stack a call takes in local mode, when all that it may have to do comes together. */
#include "stack_depth.h"

#include <stdio.h>
#include <string.h>

#define LARGE "sliding_window limit=1000 period=1h blocks=1024"
#define SMALL "sliding_window limit=500 period=1h blocks=16"
#define BUCKET "token_bucket limit=900 period=1h"

enum { KEYS = WEIR_MAX_ALL };

/* What a call is made with. */
struct ask {
    weir *limiter;
    weir_limit *limit, *limits[KEYS];
    struct weir_request requests[KEYS];
    char keys[KEYS][8];
    size_t n;
    struct weir_decision decisions[KEYS];
    struct weir_handle *handle;
};

static void ask_fill(struct ask *ask, weir *limiter)
{
    *ask = (struct ask){ .limiter = limiter, .n = KEYS };
    for (size_t i = 0; i < KEYS; i++)
        snprintf(ask->keys[i], sizeof ask->keys[i], "key%zu", i);
}

static void ask_limits(struct ask *ask)
{
    for (size_t i = 0; i < KEYS; i++)
        ask->requests[i] = (struct weir_request){ .limit = ask->limits[i],
                                                  .key = weir_key_text(ask->keys[i]),
                                                  .cost = 1 };
    ask->limit = ask->limits[0];
}

static void define_all(struct scene *scene, struct ask *ask, const char *policy)
{
    char name[16];
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(name, sizeof name, "limit%zu", i);
        ask->limits[i] = scene_define_text(scene, name, policy);
    }
    ask_limits(ask);
}

/* ---- The calls ---- */

static void call_try(void *argument)
{
    struct ask *ask = argument;
    must_succeed(weir_try(ask->limit, weir_key_text("key0"), 1, ask->decisions));
}

static void call_try_at(void *argument)
{
    struct ask *ask = argument;
    int64_t now_us;
    must_succeed(weir_clock(ask->limiter, &now_us));
    must_succeed(weir_try_at(ask->limit, weir_key_text("key0"), 1, now_us, ask->decisions));
}

static void call_peek(void *argument)
{
    struct ask *ask = argument;
    must_succeed(weir_peek(ask->limit, weir_key_text("key0"), 1, ask->decisions));
}

static void call_refund(void *argument)
{
    struct ask *ask = argument;
    must_succeed(weir_refund(ask->limit, weir_key_text("key0"), 1));
}

static void call_reset(void *argument)
{
    struct ask *ask = argument;
    must_succeed(weir_reset(ask->limit, weir_key_text("key0")));
}

static void call_acquire(void *argument)
{
    struct ask *ask = argument;
    must_succeed(weir_acquire(ask->limit, weir_key_text("key0"), 1, 1, ask->decisions));
}

static void call_handle(void *argument)
{
    struct ask *ask = argument;
    must_succeed(weir_handle_try(ask->handle, 1, 0, ask->decisions));
}

static void call_all(void *argument)
{
    struct ask *ask = argument;
    must_succeed(weir_try_all(ask->limiter, ask->requests, ask->n, ask->decisions));
}

static void call_batch(void *argument)
{
    struct ask *ask = argument;
    must_succeed(weir_try_batch(ask->limiter, ask->requests, ask->n, ask->decisions));
}

static const struct {
    const char *name;
    void (*call)(void *argument);
    bool is_group;
} calls[] = {
    { "weir_try", call_try, false },           { "weir_try_at", call_try_at, false },
    { "weir_peek", call_peek, false },         { "weir_refund", call_refund, false },
    { "weir_reset", call_reset, false },       { "weir_acquire", call_acquire, false },
    { "weir_handle_try", call_handle, false }, { "weir_try_all", call_all, true },
    { "weir_try_batch", call_batch, true },
};
enum { CALLS = sizeof calls / sizeof *calls };

static const struct {
    const char *name;
    const char *policies[4]; /* the keys are used under each, the last but one excepted; then the call is measured */
} histories[] = {
    { "a new key", { BUCKET } },
    { "a new key of a large window", { LARGE } },
    { "a known key of a large window", { LARGE, LARGE } },
    { "to a large window", { BUCKET, LARGE } },
    { "from a large window", { LARGE, BUCKET } },
    { "from a large window to a smaller one", { LARGE, SMALL } },
    { "to a smaller window and back", { LARGE, SMALL, LARGE } },
    { "to a bucket, a smaller window and a large one", { BUCKET, SMALL, LARGE } },
};
enum { HISTORIES = sizeof histories / sizeof *histories };

/* Go through the history, and leave the last policy to the call. `uses` permits are taken of each key. */
static void play(struct scene *scene, struct ask *ask, int history, int64_t uses)
{
    struct weir_decision decision;
    for (size_t p = 0; p < 4 && histories[history].policies[p]; p++) {
        for (size_t i = 0; p > 0 && i < KEYS; i++)
            must_succeed(weir_try(ask->limits[i], ask->requests[i].key, p == 1 ? uses : 1, &decision));
        define_all(scene, ask, histories[history].policies[p]);
        scene->now_us += WEIR_SECOND;
    }
}

/* Measure each call after each history. `uses` above 500 leave former states behind. */
static void measure_all(const struct weir_options *options, int64_t uses, bool overridden)
{
    static struct ask ask;
    char what[128];
    for (int history = 0; history < HISTORIES; history++) {
        for (int i = 0; i < CALLS; i++) {
            OPEN_SCENE(scene, options);
            ask_fill(&ask, scene.limiter);
            define_all(&scene, &ask, histories[history].policies[0]);
            if (overridden)
                scene_define_text(&scene, "limit0/key*", LARGE);
            play(&scene, &ask, history, uses);
            must_succeed(weir_key_resolve(ask.limit, weir_key_text("key0"), &ask.handle));
            snprintf(what, sizeof what, "%s, %s", calls[i].name, histories[history].name);
            assert_stack(what, calls[i].call, &ask, calls[i].is_group ? STACK_GROUP_MOST : STACK_SINGLE_MOST);
            weir_handle_free(ask.handle);
        }
    }
}

TEST(every_verb_keeps_to_its_stack_after_any_redefinition, 60)
{
    measure_all(NULL, 1, false);
    measure_all(NULL, 800, false);
}

TEST(every_verb_keeps_to_its_stack_under_overrides, 60)
{
    measure_all(NULL, 800, true);
}

TEST_EACH(a_full_table_takes_no_more_stack, 3, 60)
{
    static const enum weir_on_full on_full[] = { WEIR_FULL_DENY, WEIR_FULL_SHARE, WEIR_FULL_ALLOW };
    measure_all(OPTIONS(.max_keys = 1, .on_full = on_full[_i]), 1, false);
}

TEST(calls_run_on_the_smallest_stack, 60)
{
    static struct ask ask;
    for (int i = 0; STACK_CAN_BE_MEASURED && i < CALLS; i++) {
        OPEN_SCENE(scene, NULL);
        ask_fill(&ask, scene.limiter);
        define_all(&scene, &ask, LARGE);
        play(&scene, &ask, 6, 800);
        must_succeed(weir_key_resolve(ask.limit, weir_key_text("key0"), &ask.handle));
        stack_run_small(calls[i].call, &ask, calls[i].is_group ? STACK_GROUP_MOST - STACK_SINGLE_MOST : 0);
        weir_handle_free(ask.handle);
    }
}
