/* test_denied.c - what a thread remembers of its last denial by a handle (memory/denied.h) says what would be computed,
 * and ends with whatever changes the answer.
 */
#include "support.h"

#include "backends/memory/denied.h"
#include "core/limiter/limiter.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define KEY "a-key-of-16-byte"
#define BEGIN_US INT64_C(1000000)
#define HOUR_US INT64_C(3600000000)

/* Ask by the handle. True if the answer is the remembered one: nothing else has the mark. */
static bool asked(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    const int64_t size = denied_own.size;
    denied_own.size = -1;
    must_succeed(weir_handle_try(handle, cost, now_us, out));
    const bool is_remembered = out->limit == -1;
    if (is_remembered)
        out->limit = size;
    if (denied_own.size == -1)
        denied_own.size = size;
    return is_remembered;
}

struct stand {
    struct scene scene;
    weir_limit *limit;
    weir_handle *handle;
};

static weir_handle *handle_to(weir_limit *limit, const char *key)
{
    weir_handle *handle;
    must_succeed(weir_key_resolve(limit, weir_key_text(key), &handle));
    return handle;
}

static void stand_open(struct stand *stand, const char *policy, int64_t top_keys)
{
    memset(stand, 0, sizeof *stand);
    scene_open(&stand->scene, OPTIONS(.max_keys = 1000, .top_keys = top_keys));
    stand->scene.now_us = BEGIN_US;
    stand->limit = scene_define_text(&stand->scene, "own", policy);
    stand->handle = handle_to(stand->limit, KEY);
}

static void stand_close(struct stand *stand)
{
    weir_handle_free(stand->handle);
    scene_close(&stand->scene);
}

/* Take the permits, of which there are few, and have a denial remembered: the second one that the short way finds.
 * Return how many were denied. */
static int stand_deny(struct stand *stand)
{
    struct weir_decision decision;
    bool is_remembered = false;
    int denied = 0;
    for (int i = 0; i < 10 && !is_remembered; i++) {
        is_remembered = asked(stand->handle, 1, stand->scene.now_us, &decision);
        denied += !decision.allowed;
    }
    must(is_remembered && !decision.allowed, "a denial is remembered once it has been repeated");
    return denied;
}

/* ---- The same answers ---- */

/* Move the clock: usually little, and often to where a denial ends. */
static void step(struct scene *scene, struct chance *chance, const struct weir_decision *last)
{
    const int64_t what = chance_between(chance, 0, 11);
    if (what < 5)
        scene->now_us += chance_between(chance, 0, 400);
    else if (what < 7)
        scene->now_us += last->retry_after_us + chance_between(chance, -1, 1);
    else if (what == 7)
        scene->now_us += chance_magnitude(chance, last->retry_after_us + 1);
    else if (what == 8)
        scene->now_us -= chance_magnitude(chance, 3 * WEIR_CLOCK_SLACK_US);
    if (scene->now_us < 1 || scene->now_us > WEIR_MAX_TIME_US)
        scene->now_us = BEGIN_US;
}

/* A denial changes nothing, so weir_try_at() finds it again. */
static bool ask_and_compare(struct stand *stand, int64_t cost)
{
    struct weir_decision decision, computed;
    const bool is_allowed = peeked(stand->limit, KEY, cost).allowed;
    const bool is_remembered = asked(stand->handle, cost, stand->scene.now_us, &decision);
    ck_assert(decision.allowed == is_allowed);
    if (decision.allowed)
        return false;
    must_succeed(weir_try_at(stand->limit, weir_key_text(KEY), cost, stand->scene.now_us, &computed));
    assert_decision_is(&decision, &computed, "remembered");
    return is_remembered;
}

TEST(a_remembered_denial_is_what_would_be_computed, 60)
{
    struct chance chance = chance_make(22);
    int64_t remembered = 0, denied = 0;
    for (int64_t left = steps_or(200); left > 0; left--) {
        struct weir_policy policy = policy_by_chance(&chance, KIND_GREEDY);
        if (weir_policy_check(&policy, NULL, 0) != WEIR_OK || policy.shadow != 0)
            continue;
        CLOSED_BY(stand_close) struct stand stand;
        stand_open(&stand, "token_bucket limit=1 period=1s", 0);
        stand.limit = scene_define(&stand.scene, "own", &policy);
        stand.scene.now_us += chance_magnitude(&chance, HOUR_US);
        struct weir_decision last = { .limit = taken(stand.limit, KEY, 1).limit };
        for (int i = 0; i < 200; i++) {
            const int64_t what = chance_between(&chance, 0, 20), all = min_of(last.limit, WEIR_MAX_PERMITS);
            if (what == 0)
                must_succeed(weir_charge(stand.limit, weir_key_text(KEY), chance_magnitude(&chance, all)));
            else if (what == 1)
                must_succeed(weir_refund(stand.limit, weir_key_text(KEY), chance_magnitude(&chance, all)));
            else if (what == 2)
                must_succeed(weir_reset(stand.limit, weir_key_text(KEY)));
            else if (what == 3)
                must_succeed(weir_try(stand.limit, weir_key_text(KEY), all, &last));
            last = peeked(stand.limit, KEY, 1);
            if (what > 3)
                remembered += ask_and_compare(&stand, what == 4 ? 2 : 1);
            denied += !last.allowed;
            step(&stand.scene, &chance, &last);
        }
    }
    ck_assert_int_gt(remembered, 100);
    ck_assert_int_gt(denied, remembered);
}

TEST(a_remembered_denial_is_counted, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    struct weir_limit_stats stats = { .size = sizeof stats };
    struct weir_decision decision;
    stand_open(&stand, "token_bucket limit=2 period=1h", 0);
    const int denied = stand_deny(&stand);
    for (int i = 0; i < 100; i++)
        ck_assert(asked(stand.handle, 1, BEGIN_US + i, &decision));
    must_succeed(weir_limit_stats_read(stand.limit, &stats));
    ck_assert_uint_eq(stats.allowed, 2);
    ck_assert_uint_eq(stats.denied, (uint64_t)denied + 100);
    ck_assert_uint_eq(stats.permits, 2);
}

/* ---- What ends it ---- */

static void nothing(struct stand *stand)
{
    (void)stand;
}

static void more_permits(struct stand *stand)
{
    scene_define_text(&stand->scene, "own", "token_bucket limit=3 period=1h");
}

static void fewer_permits(struct stand *stand)
{
    scene_define_text(&stand->scene, "own", "token_bucket limit=1 period=1h");
}

static void shadow(struct stand *stand)
{
    scene_define_text(&stand->scene, "own", "token_bucket limit=2 period=1h shadow");
}

static void override(struct stand *stand)
{
    scene_define_text(&stand->scene, "own/a-key*", "token_bucket limit=5 period=1h");
}

/* That of one key alone does not give the limit's plan another version. */
static void override_of_key(struct stand *stand)
{
    scene_define_text(&stand->scene, "own/" KEY, "token_bucket limit=5 period=1h");
}

static void reset(struct stand *stand)
{
    must_succeed(weir_reset(stand->limit, weir_key_text(KEY)));
}

static void refund(struct stand *stand)
{
    must_succeed(weir_refund(stand->limit, weir_key_text(KEY), 1));
}

static void charge(struct stand *stand)
{
    must_succeed(weir_charge(stand->limit, weir_key_text(KEY), 1));
}

static void drop_and_take_again(struct stand *stand)
{
    reset(stand);
    must(taken(stand->limit, KEY, 1).allowed, "a fresh key has all permits");
}

/* Put a new handle at the address of the old one. */
static void replace_handle(struct stand *stand, weir_handle *other)
{
    memcpy(stand->handle, other, offsetof(struct weir_handle, bytes) + sizeof KEY - 1);
    stand->handle->key.data = stand->handle->bytes;
    weir_handle_free(other);
}

static void rename_limit(struct stand *stand)
{
    const struct weir_policy policy = policy_of("token_bucket limit=2 period=1h");
    must_succeed(weir_limit_rename(stand->limit, "new", &policy));
    replace_handle(stand, handle_to(stand->limit, KEY));
}

static void other_key(struct stand *stand)
{
    replace_handle(stand, handle_to(stand->limit, "a-key-of-16-Byte"));
}

static void longer_key(struct stand *stand)
{
    replace_handle(stand, handle_to(stand->limit, KEY "s"));
    stand->handle->key.data = KEY "s"; /* there is room for the first 16 */
}

static void other_limit(struct stand *stand)
{
    weir_limit *other = scene_define_text(&stand->scene, "other", "token_bucket limit=2 period=1h");
    replace_handle(stand, handle_to(other, KEY));
}

static void reopened(struct stand *stand)
{
    const uint64_t lost = atomic_load(&cells_lost);
    weir_handle *handle = stand->handle;
    scene_close(&stand->scene);
    ck_assert_uint_gt(atomic_load(&cells_lost), lost);
    stand_open(stand, "token_bucket limit=2 period=1h", 0);
    denied_own.limit = stand->limit; /* whether or not malloc() has chosen the same address */
    denied_own.record = NULL;        /* and whether or not anything is where the cells were */
    weir_handle *other = stand->handle;
    stand->handle = handle;
    replace_handle(stand, other);
}

static void cells_go(struct stand *stand)
{
    (void)stand;
    atomic_fetch_add(&cells_lost, 1);
}

static void later(struct stand *stand)
{
    stand->scene.now_us += DENIED_MOST_US;
}

static void earlier(struct stand *stand)
{
    stand->scene.now_us--;
}

TEST(a_remembered_denial_ends_with_what_changes_the_answer, 10)
{
    static const struct {
        void (*event)(struct stand *stand);
        bool remembered, allowed;
    } cases[] = {
        { nothing, true, false },        { more_permits, false, true },
        { fewer_permits, false, false }, { shadow, false, true },
        { override, false, true },       { override_of_key, false, true },
        { reset, false, true },          { refund, false, true },
        { charge, false, false },        { drop_and_take_again, false, true },
        { rename_limit, false, true },   { other_key, false, true },
        { longer_key, false, true },     { other_limit, false, true },
        { reopened, false, true },       { cells_go, false, false },
        { later, false, false },         { earlier, false, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLOSED_BY(stand_close) struct stand stand;
        struct weir_decision decision;
        stand_open(&stand, "token_bucket limit=2 period=1h", 0);
        stand_deny(&stand);
        cases[i].event(&stand);
        const bool is_remembered = asked(stand.handle, 1, stand.scene.now_us, &decision);
        ck_assert_msg(is_remembered == cases[i].remembered, "case %zu", i);
        ck_assert_msg(decision.allowed == cases[i].allowed, "case %zu", i);
    }
}

TEST(a_remembered_denial_is_of_one_permit, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    struct weir_decision decision;
    stand_open(&stand, "token_bucket limit=2 period=1h", 0);
    stand_deny(&stand);
    stand.scene.log_allowed = true; /* of what is refused */
    ck_assert(!asked(stand.handle, 2, BEGIN_US, &decision));
    ck_assert_int_eq(decision.retry_after_us, HOUR_US);
    ck_assert(asked(stand.handle, 1, BEGIN_US, &decision));
    ck_assert_int_eq(decision.retry_after_us, HOUR_US / 2);
    ck_assert_int_eq(weir_handle_try(stand.handle, 0, BEGIN_US, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_handle_try(stand.handle, 1, -1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_handle_try(stand.handle, 1, BEGIN_US, NULL), WEIR_EINVAL);
}

/* What is remembered must not admit a time that is refused. */
TEST(no_denial_is_remembered_at_the_end_of_time, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    struct weir_decision decision;
    stand_open(&stand, "token_bucket limit=1 period=365d", 0);
    for (int i = 0; i < 8; i++)
        ck_assert(!asked(stand.handle, 1, WEIR_MAX_TIME_US - 1, &decision));
    stand.scene.log_allowed = true;
    ck_assert_int_eq(weir_handle_try(stand.handle, 1, WEIR_MAX_TIME_US + 1, &decision), WEIR_EINVAL);
}

TEST(no_denial_is_remembered_that_may_be_among_the_top_keys, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    struct weir_decision decision;
    stand_open(&stand, "token_bucket limit=1 period=1h", 4);
    for (int i = 0; i < 8; i++)
        ck_assert(!asked(stand.handle, 1, BEGIN_US, &decision));
}

TEST(memory_of_cells_that_goes_back_ends_it, 10)
{
    enum { MANY = 5000 };
    OPEN_SCENE(scene, OPTIONS(.max_keys = MANY));
    weir_limit *limit = scene_define_text(&scene, "own", "token_bucket limit=1 period=1ms");
    const uint64_t lost = atomic_load(&cells_lost);
    struct weir_decision decision;
    for (int64_t number = 0; number < 2 * MANY; number++) { /* the latter half comes while the former one is dropped */
        scene.now_us += number < MANY ? 0 : WEIR_CLOCK_SLACK_US;
        must_succeed(weir_try(limit, weir_key(&number, sizeof number), 1, &decision));
        ck_assert(number != MANY || atomic_load(&cells_lost) == lost);
    }
    ck_assert_uint_gt(atomic_load(&cells_lost), lost);
}

TEST(a_child_denies_and_admits_by_its_own_state, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    struct weir_decision decision;
    stand_open(&stand, "token_bucket limit=1 period=1h", 0);
    stand_deny(&stand);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const bool is_remembered = asked(stand.handle, 1, BEGIN_US, &decision) && !decision.allowed;
        reset(&stand);
        _exit(!asked(stand.handle, 1, BEGIN_US, &decision) && decision.allowed && is_remembered ? 0 : 1);
    }
    assert_child_succeeds(child);
    ck_assert(asked(stand.handle, 1, BEGIN_US, &decision) && !decision.allowed);
}

/* ---- Two threads ---- */

enum { ROUNDS = 500 };

struct meeting {
    struct stand stand;
    _Atomic int resets, admissions;
    atomic_bool is_over;
};

/* Reset the key, and wait until the other thread has been admitted once. */
static void *meeting_resets(void *argument)
{
    struct meeting *meeting = argument;
    for (int i = 1; i <= ROUNDS; i++) {
        reset(&meeting->stand);
        atomic_store(&meeting->resets, i);
        while (atomic_load(&meeting->admissions) < i)
            sched_yield();
    }
    atomic_store(&meeting->is_over, true);
    return NULL;
}

TEST(a_reset_by_another_thread_admits_the_next_request_and_only_that, 60)
{
    struct meeting meeting = { .resets = 0 };
    struct crew crew;
    int64_t now_us = BEGIN_US;
    int admitted = 0;
    struct weir_decision decision;
    stand_open(&meeting.stand, "token_bucket limit=1 period=365d", 0);
    stand_deny(&meeting.stand);
    crew_start(&crew, 1, meeting_resets, &meeting);
    while (!atomic_load(&meeting.is_over)) {
        const int resets = atomic_load(&meeting.resets);
        asked(meeting.stand.handle, 1, now_us++, &decision);
        admitted += decision.allowed;
        must(admitted >= resets, "a request after a reset is admitted");
        atomic_store(&meeting.admissions, admitted);
        if (now_us % 16 == 0) /* several denials after each admission, so that one is remembered */
            sched_yield();
    }
    crew_join(&crew);
    ck_assert_int_eq(admitted, ROUNDS);
    stand_close(&meeting.stand);
}
