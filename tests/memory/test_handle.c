/* test_handle.c - handles and the caller's times lead to the same decisions as keys and the limiter's clock.
 *
 * Two limits have the same history. The test asks one mostly by handles and the other by key only. All that can happen
 * to a key happens to both, so their decisions must be equal in every field.
 */
#include "fake.h"

#include "core/limiter/limiter.h"
#include "core/limiter/request.h"

#include <stdio.h>

enum { KEYS = 12, STEPS = 40000, THREADS = 6, ROUNDS = 4000 };

/* ---- By handle and by key ---- */

struct pair {
    struct scene scene;
    weir_limit *handled, *plain;
    weir_handle *handles[KEYS];
    enum kind kind;
    int64_t latest_us; /* that the clock has shown */
    bool keeps_idle;
};

static struct weir_key key_of(const int *number)
{
    return weir_key(number, sizeof *number);
}

static void redefine(struct pair *pair, struct chance *chance, const char *pattern)
{
    char names[2][32];
    struct weir_policy policy = policy_by_chance(chance, (enum kind)chance_between(chance, 0, KIND_COUNT - 1));
    const bool ends = *pattern && chance_one_in(chance, 2);
    if (weir_policy_check(&policy, NULL, 0) != WEIR_OK)
        return;
    snprintf(names[0], sizeof names[0], "handled%s", pattern);
    snprintf(names[1], sizeof names[1], "plain%s", pattern);
    for (int i = 0; i < 2; i++)
        must_succeed(weir_limit_define(pair->scene.limiter, names[i], ends ? NULL : &policy, NULL));
}

/* Permits are few, so that keys are used up, and come back in about one step of the clock. */
static void define_both(struct pair *pair, enum kind kind)
{
    static const char *const policies[KIND_COUNT] = {
        [KIND_GREEDY] = "token_bucket limit=20 period=1s burst=30 debt=3",
        [KIND_INTERVAL] = "token_bucket limit=20 period=1s burst=30 refill=interval",
        [KIND_FIXED] = "fixed_window limit=20 period=1s",
        [KIND_SLIDING] = "sliding_window limit=20 period=1s blocks=7",
        [KIND_LEAKY] = "leaky_bucket limit=20 period=1s capacity=25",
    };
    pair->handled = scene_define_text(&pair->scene, "handled", policies[kind]);
    pair->plain = scene_define_text(&pair->scene, "plain", policies[kind]);
}

/* Step back beyond the slack only if no key is dropped: chance decides when, and then the histories differ. */
static void step_back(struct pair *pair, struct chance *chance)
{
    const int64_t most_us = pair->keeps_idle ? 4 * WEIR_SECOND
                                             : WEIR_CLOCK_SLACK_US - (pair->latest_us - pair->scene.now_us);
    pair->scene.now_us -= chance_between(chance, 0, most_us);
}

static void disturb(struct pair *pair, struct chance *chance, int number)
{
    const struct weir_key key = key_of(&number);
    switch (chance_between(chance, 0, 9)) {
    case 0:
        must_succeed(weir_reset(pair->handled, key));
        must_succeed(weir_reset(pair->plain, key));
        break;
    case 1:
        must_succeed(weir_refund(pair->handled, key, 1 + number));
        must_succeed(weir_refund(pair->plain, key, 1 + number));
        break;
    case 2: pair->scene.now_us += chance_between(chance, 0, 20 * WEIR_SECOND); break; /* idle keys are dropped */
    case 3: step_back(pair, chance); break;
    case 4: define_both(pair, (enum kind)chance_between(chance, 0, KIND_COUNT - 1)); break;
    case 5: redefine(pair, chance, ""); break;
    case 6: redefine(pair, chance, "/%03%00%00%00"); break; /* the key of number 3 */
    case 7: redefine(pair, chance, "/%05*"); break;
    case 8:
        weir_handle_free(pair->handles[number]);
        must_succeed(weir_key_resolve(pair->handled, key, &pair->handles[number]));
        break;
    default:
        for (int i = 0; i < 50; i++) { /* new keys sweep out idle ones */
            const int other = 1000 + (int)chance_between(chance, 0, 100000);
            struct weir_decision decision;
            must_succeed(
                weir_try(chance_one_in(chance, 2) ? pair->handled : pair->plain, key_of(&other), 1, &decision));
        }
    }
}

/* Sometimes ask by key, or with the caller's time, which must make no difference. */
static void compare(struct pair *pair, struct chance *chance, int number)
{
    const int64_t cost = chance_between(chance, 1, 6);
    const int64_t now_us = chance_one_in(chance, 2) ? pair->scene.now_us : 0;
    struct weir_decision by_handle, by_key;
    if (chance_one_in(chance, 8))
        must_succeed(weir_try_at(pair->handled, key_of(&number), cost, now_us, &by_handle));
    else
        must_succeed(weir_handle_try(pair->handles[number], cost, now_us, &by_handle));
    must_succeed(weir_try(pair->plain, key_of(&number), cost, &by_key));
    assert_decision_is(&by_handle, &by_key, kind_names[pair->kind]);
}

static void run_pair(enum kind kind, uint64_t stream, bool keep_idle)
{
    struct chance chance = chance_make(stream);
    struct pair pair = { .kind = kind, .keeps_idle = keep_idle };
    scene_open(&pair.scene, OPTIONS(.max_keys = 1000000, .keep_idle = keep_idle));
    define_both(&pair, kind);
    for (int i = 0; i < KEYS; i++)
        must_succeed(weir_key_resolve(pair.handled, key_of(&i), &pair.handles[i]));
    const int64_t steps = steps_or(STEPS);
    for (int64_t step = 0; step < steps; step++) {
        const int number = (int)chance_between(&chance, 0, KEYS - 1);
        pair.scene.now_us += chance_between(&chance, 0, 40000);
        if (pair.latest_us < pair.scene.now_us)
            pair.latest_us = pair.scene.now_us;
        if (chance_one_in(&chance, 40))
            disturb(&pair, &chance, number);
        compare(&pair, &chance, number);
    }
    for (int i = 0; i < KEYS; i++)
        weir_handle_free(pair.handles[i]);
    scene_close(&pair.scene);
}

TEST(a_handle_decides_as_its_key_in_every_situation, 120)
{
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        run_pair((enum kind)kind, (uint64_t)kind, false);
        run_pair((enum kind)kind, (uint64_t)kind + 100, true);
    }
}

TEST(a_handle_whose_key_finds_no_room_uses_the_shared_state, 10)
{
    weir_handle *handle;
    struct weir_decision decision;
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1, .on_full = WEIR_FULL_SHARE));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    ck_assert(taken(limit, "first", 1).allowed);
    must_succeed(weir_key_resolve(limit, weir_key_text("second"), &handle));
    for (int i = 0; i < 5; i++) {
        must_succeed(weir_handle_try(handle, 1, 0, &decision));
        ck_assert_int_eq(decision.source, WEIR_BY_FULL);
        ck_assert_int_eq(decision.remaining, 10 - 2 * i - 1);
        ck_assert_int_eq(taken(limit, "third", 1).remaining, 10 - 2 * i - 2);
    }
    must_succeed(weir_reset(limit, weir_key_text("first"))); /* now there is room */
    must_succeed(weir_handle_try(handle, 1, 0, &decision));
    ck_assert_int_eq(decision.source, WEIR_BY_MEMORY);
    ck_assert_int_eq(decision.remaining, 9);
    weir_handle_free(handle);
}

/* A handle's hint leads to the key's old place, while the table has forgotten both the key and its rule, which goes
 * when many rules have no key. */
TEST(a_handle_decides_for_a_fresh_key_once_its_key_and_rule_are_dropped, 10)
{
    enum { LIMITS = 200, LONG_KEYS = 64 };
    weir_handle *handle;
    struct weir_decision decision;
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1000)); /* few shards: each remembers its last rule */
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    weir_limit *other = scene_define_text(&scene, "other", "token_bucket limit=10 period=1s");
    must(taken(other, "stays", 1).allowed, "the page that both keys are in goes on serving their size");
    must_succeed(weir_key_resolve(limit, weir_key_text("comes"), &handle));
    for (int i = 0; i < 2; i++) /* the second call finds the entry by the index and keeps the hint */
        must_succeed(weir_handle_try(handle, 1, 0, &decision));
    must_succeed(weir_reset(limit, weir_key_text("comes")));
    for (int i = 0; i < LIMITS; i++) {
        char name[32], key[80];
        snprintf(name, sizeof name, "limit-%d", i);
        weir_limit *passing = scene_define_text(&scene, name, "token_bucket limit=10 period=1s");
        for (int j = 0; j < LONG_KEYS; j++) {
            snprintf(key, sizeof key, "%079d", j);
            must(taken(passing, key, 1).allowed, "it is fresh");
            must_succeed(weir_reset(passing, weir_key_text(key)));
        }
    }
    must_succeed(weir_handle_try(handle, 4, 0, &decision));
    must(decision.allowed && decision.remaining == 6, "it is fresh");
    weir_handle_free(handle);
}

TEST(a_handle_copies_its_keys_bytes_and_creates_no_key, 10)
{
    struct scene scene;
    struct weir_stats stats = { .size = sizeof stats };
    char key[200];
    weir_handle *handle;
    struct weir_decision decision;
    scene_open(&scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    memset(key, 'k', sizeof key);
    must_succeed(weir_key_resolve(limit, weir_key(key, sizeof key), &handle));
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_int_eq(stats.keys, 0);
    memset(key, 'x', sizeof key);
    must_succeed(weir_handle_try(handle, 3, 0, &decision));
    memset(key, 'k', sizeof key);
    must_succeed(weir_peek(limit, weir_key(key, sizeof key), 1, &decision));
    ck_assert_int_eq(decision.remaining, 7);
    scene_close(&scene);
    weir_handle_free(handle); /* the limiter may be gone by then */
    weir_handle_free(NULL);
}

TEST(decisions_by_handle_are_counted, 10)
{
    struct weir_stats stats = { .size = sizeof stats };
    weir_handle *handle;
    struct weir_decision decision;
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=2 period=1h");
    must_succeed(weir_key_resolve(limit, weir_key_text("a"), &handle));
    for (int i = 0; i < 5; i++)
        must_succeed(weir_handle_try(handle, 1, 0, &decision));
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.allowed, 2);
    ck_assert_uint_eq(stats.denied, 3);
    weir_handle_free(handle);
}

/* ---- The caller's times ---- */

TEST(a_time_given_by_the_caller_decides_like_the_limiters_clock, 10)
{
    struct weir_decision decision;
    int64_t now_us = 0;
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3 period=1s");
    must_succeed(weir_clock(scene.limiter, &now_us));
    ck_assert_int_eq(now_us, scene.now_us);
    must_succeed(weir_try_at(limit, weir_key_text("a"), 3, now_us, &decision));
    ck_assert(decision.allowed);
    must_succeed(weir_try_at(limit, weir_key_text("a"), 1, now_us + 999999, &decision));
    ck_assert(!decision.allowed);
    ck_assert_int_eq(decision.retry_after_us, 1);
    must_succeed(weir_try_at(limit, weir_key_text("a"), 1, now_us + WEIR_SECOND, &decision));
    ck_assert(decision.allowed);
    ck_assert_int_eq(decision.reset_after_us, WEIR_SECOND);
    scene.now_us += 10 * WEIR_SECOND;
    must_succeed(weir_try_at(limit, weir_key_text("a"), 2, 0, &decision)); /* the limiter's */
    ck_assert_int_eq(decision.remaining, 1);
    ck_assert(!taken(limit, "a", 2).allowed);
}

TEST(the_default_clock_can_be_read, 10)
{
    weir *limiter;
    int64_t first = 0, second = 0;
    must_succeed(weir_open(NULL, &limiter));
    must_succeed(weir_clock(limiter, &first));
    must_succeed(weir_clock(limiter, &second));
    ck_assert_int_gt(first, INT64_C(1500000000000000)); /* July 2017 */
    ck_assert_int_ge(second, first);
    weir_close(limiter);
}

TEST(handles_and_times_out_of_range_are_refused_with_a_log_line, 10)
{
    struct weir_decision decision = { .limit = 4711 };
    weir_handle *handle = NULL, *other = NULL;
    int64_t now_us = 4711;
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    const struct weir_key key = weir_key_text("a");
    must_succeed(weir_key_resolve(limit, key, &handle));
    scene.log_allowed = true;
    const struct {
        int status;
        const char *names;
    } refused[] = {
        { weir_key_resolve(limit, weir_key("", 0), &other), "key.len" },
        { weir_key_resolve(limit, weir_key(NULL, 1), &other), "key.data" },
        { weir_key_resolve(limit, key, NULL), "out" },
        { weir_handle_try(handle, 0, 0, &decision), "cost" },
        { weir_handle_try(handle, WEIR_MAX_PERMITS + 1, 0, &decision), "cost" },
        { weir_handle_try(handle, 1, -1, &decision), "now_us" },
        { weir_handle_try(handle, 1, WEIR_MAX_TIME_US + 1, &decision), "now_us" },
        { weir_handle_try(handle, 1, 0, NULL), "out" },
        { weir_try_at(limit, key, 0, 1, &decision), "cost" },
        { weir_try_at(limit, key, 1, -1, &decision), "now_us" },
        { weir_try_at(limit, key, 1, 1, NULL), "out" },
        { weir_clock(scene.limiter, NULL), "now_us" },
    };
    const int count = (int)(sizeof refused / sizeof refused[0]);
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(refused[i].status, WEIR_EINVAL);
    ck_assert_int_eq(scene.log_lines, count);
    ck_assert_ptr_nonnull(strstr(scene.last_line, refused[count - 1].names));
    ck_assert_int_eq(weir_try_at(limit, key, 1, WEIR_MAX_TIME_US + 1, &decision), WEIR_EINVAL);
    ck_assert_ptr_nonnull(strstr(scene.last_line, "now_us must be 0 to 9007199254740991"));
    ck_assert_int_eq(weir_key_resolve(NULL, key, &other), WEIR_EINVAL);
    ck_assert_int_eq(weir_handle_try(NULL, 1, 0, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_at(NULL, key, 1, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_clock(NULL, &now_us), WEIR_EINVAL);
    scene.now_us = -1;
    ck_assert_int_eq(weir_clock(scene.limiter, &now_us), WEIR_EINVAL);
    ck_assert_ptr_nonnull(strstr(scene.last_line, "the clock"));
    ck_assert_int_eq(weir_handle_try(handle, 1, 0, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_handle_try(handle, 1, WEIR_SECOND, &decision), WEIR_OK); /* needs no clock */
    ck_assert_ptr_null(other);
    ck_assert_int_eq(now_us, 4711);
    weir_handle_free(handle);
}

/* ---- A backend that can fail ---- */

TEST(the_fallback_never_writes_to_a_handles_hint, 10)
{
    struct fake fake;
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decision;
    weir_handle *handle;
    fake_init(&fake);
    fake_open(&fake, &scene, &(struct weir_options){ .size = sizeof(struct weir_options), .outage_cold = true });
    scene.log_allowed = true;
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=10s");
    must_succeed(weir_key_resolve(limit, weir_key_text("a"), &handle));
    must_succeed(weir_handle_try(handle, 2, scene.now_us + 7, &decision));
    ck_assert_int_eq(fake.last.now_us, scene.now_us + 7);
    ck_assert_int_eq(fake.last.cost, 2);
    ck_assert_mem_eq(fake.last.key.data, "a", 1);
    ck_assert_uint_eq(fake.last.hash, key_hash(limit, weir_key("a", 1)));
    ck_assert_ptr_null(fake.last.hint);

    atomic_store(&fake.answer, WEIR_EIO); /* each key is cold at first and gets a permit a second */
    for (int outage = 0; outage < 3; outage++) {
        must_succeed(weir_handle_try(handle, 1, 0, &decision));
        ck_assert_int_eq(decision.source, WEIR_BY_FALLBACK);
        ck_assert(!decision.allowed);
        scene.now_us += 3 * WEIR_SECOND;
        for (int i = 0; i < 4; i++) {
            must_succeed(weir_handle_try(handle, 1, 0, &decision));
            ck_assert_int_eq(decision.allowed, i < 3);
        }
        atomic_store(&fake.answer, WEIR_OK);
        must_succeed(weir_handle_try(handle, 1, 0, &decision));
        ck_assert_int_ne(decision.source, WEIR_BY_FALLBACK);
        atomic_store(&fake.answer, WEIR_EIO);
    }
    weir_handle_free(handle);
}

/* ---- Many threads ---- */

struct crowd {
    struct scene scene;
    weir_limit *counted, *passing;
    weir_handle *handle; /* one for all of them */
    _Atomic int64_t admitted;
    _Atomic bool done;
};

static void *ask_for_it(void *argument)
{
    struct crowd *crowd = argument;
    const int64_t now_us = crowd->scene.now_us;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_decision decision;
        if (i % 4 == 0)
            must_succeed(weir_try_at(crowd->counted, weir_key_text("one"), 1, now_us, &decision));
        else
            must_succeed(weir_handle_try(crowd->handle, 1, now_us, &decision));
        atomic_fetch_add(&crowd->admitted, decision.allowed);
    }
    return NULL;
}

/* Disturb the key: others that are idle after two seconds push one another out of all shards, and the policy changes,
 * which moves the key's state without returning permits. */
static void *disturb_it(void *argument)
{
    static const char *const policies[] = { "fixed_window limit=5000 period=1d", "sliding_window limit=5000 period=1d",
                                            "leaky_bucket limit=1 period=1d capacity=5000" };
    struct crowd *crowd = argument;
    for (int i = 0; !atomic_load(&crowd->done); i++) {
        struct weir_decision decision;
        const int64_t later_us = crowd->scene.now_us + (int64_t)i * 3 * WEIR_SECOND % WEIR_HOUR;
        must_succeed(weir_try_at(crowd->passing, key_of(&i), 1, later_us, &decision));
        if (i % 64 == 0) {
            const struct weir_policy policy = policy_of(policies[i / 64 % 3]);
            must_succeed(weir_limit_define(crowd->scene.limiter, "counted", &policy, NULL));
        }
    }
    return NULL;
}

TEST(threads_that_share_a_handle_take_exactly_the_limit, 120)
{
    struct crowd crowd = { .admitted = 0 };
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct crew askers;
    pthread_t disturber;
    struct weir_decision decision;
    options.max_keys = 64;
    options.on_full = WEIR_FULL_ALLOW; /* for the passing keys: the counted key exists from the start */
    scene_open(&crowd.scene, &options);
    crowd.counted = scene_define_text(&crowd.scene, "counted", "fixed_window limit=5000 period=1d");
    crowd.passing = scene_define_text(&crowd.scene, "passing", "token_bucket limit=1 period=1s");
    must_succeed(weir_key_resolve(crowd.counted, weir_key_text("one"), &crowd.handle));
    must_succeed(weir_handle_try(crowd.handle, 1, crowd.scene.now_us, &decision));
    ck_assert_int_eq(pthread_create(&disturber, NULL, disturb_it, &crowd), 0);
    crew_start(&askers, THREADS, ask_for_it, &crowd);
    crew_join(&askers);
    atomic_store(&crowd.done, true);
    ck_assert_int_eq(pthread_join(disturber, NULL), 0);
    ck_assert_int_eq(atomic_load(&crowd.admitted), 5000 - 1);
    weir_handle_free(crowd.handle);
    scene_close(&crowd.scene);
}
