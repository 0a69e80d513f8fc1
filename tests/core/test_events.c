/* test_events.c - what weir_options.event reports: keys, policies, outages, shares; on which thread, and what is
 * lost. */
#include "fake.h"

#include "core/ground/hook_queue.h"
#include "core/limiter/limiter.h"

#include <pthread.h>
#include <stdio.h>

/* ---- What the hook has heard, under a mutex: it runs on another thread ---- */

enum { HEARD_MAX = 1024 };

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct weir_event events[HEARD_MAX];
    size_t count;
    pthread_t thread;    /* that called the hook last */
    bool is_held, is_in; /* the hook does not return while it is held */
} heard = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void hear(void *user, const struct weir_event *event)
{
    pthread_mutex_lock(&heard.mutex);
    if (heard.count < HEARD_MAX)
        heard.events[heard.count] = *event;
    heard.count++;
    heard.thread = pthread_self();
    heard.is_in = true;
    pthread_cond_broadcast(&heard.changed);
    while (heard.is_held)
        pthread_cond_wait(&heard.changed, &heard.mutex);
    heard.is_in = false;
    pthread_mutex_unlock(&heard.mutex);
}

static void heard_hold(bool holds)
{
    pthread_mutex_lock(&heard.mutex);
    heard.is_held = holds;
    pthread_cond_broadcast(&heard.changed);
    pthread_mutex_unlock(&heard.mutex);
}

/* Wait until `n` events have come. */
static void heard_await(size_t n)
{
    pthread_mutex_lock(&heard.mutex);
    while (heard.count < n)
        pthread_cond_wait(&heard.changed, &heard.mutex);
    pthread_mutex_unlock(&heard.mutex);
}

static void heard_forget(struct scene *scene)
{
    hook_queue_settle_events(&(struct event_hook){ hear, scene });
    heard.count = 0;
}

/* Return the only event since heard_forget(). */
static const struct weir_event *the_event(struct scene *scene, enum weir_event_kind kind)
{
    hook_queue_settle_events(&(struct event_hook){ hear, scene });
    ck_assert_uint_eq(heard.count, 1);
    ck_assert_int_eq(heard.events[0].kind, kind);
    return &heard.events[0];
}

static void assert_silence(struct scene *scene)
{
    hook_queue_settle_events(&(struct event_hook){ hear, scene });
    ck_assert_uint_eq(heard.count, 0);
}

#define EVENT_SCENE(scene, policy, ...)                           \
    OPEN_SCENE(scene, OPTIONS(.event = hear, __VA_ARGS__));       \
    weir_limit *api = scene_define_text(&scene, "api", (policy)); \
    heard_forget(&scene)

/* ---- Keys ---- */

TEST(key_is_reported_when_it_is_denied_and_then_once_a_minute_after_an_admission, 30)
{
    EVENT_SCENE(scene, "fixed_window limit=1 period=1s", .mode = WEIR_LOCAL);
    ck_assert(taken(api, "a", 1).allowed);
    heard_forget(&scene); /* the near mark */
    for (int i = 0; i < 3; i++)
        ck_assert(!taken(api, "a", 1).allowed);
    const struct weir_event *event = the_event(&scene, WEIR_EVENT_DENIED);
    ck_assert_ptr_eq(event->key.limit, api);
    ck_assert_int_eq(event->at_us, scene.now_us);
    ck_assert_int_eq(event->key.cost, 1);
    ck_assert(!event->key.decision.allowed && event->key.decision.retry_after_us > 0);
    ck_assert_uint_eq(event->key.key_len, 0); /* not in clear */
    const uint64_t hash = event->key.hash;

    heard_forget(&scene);
    scene.now_us += WEIR_SECOND;
    ck_assert(taken(api, "a", 1).allowed);
    ck_assert(!taken(api, "a", 1).allowed); /* within a minute */
    assert_silence(&scene);
    scene.now_us += WEIR_EVENT_GAP_US;
    ck_assert(!taken(api, "a", 2).allowed); /* denied all along */
    assert_silence(&scene);
    ck_assert(taken(api, "a", 1).allowed);
    heard_forget(&scene);
    ck_assert(!taken(api, "a", 1).allowed);
    ck_assert_uint_eq(the_event(&scene, WEIR_EVENT_DENIED)->key.hash, hash);
}

TEST(key_is_reported_when_an_admission_crosses_the_near_mark, 30)
{
    EVENT_SCENE(scene, "token_bucket limit=100 period=100s", .events_in_clear = true);
    taken(api, "key", 90); /* a tenth is left */
    assert_silence(&scene);
    taken(api, "key", 1);
    const struct weir_event *event = the_event(&scene, WEIR_EVENT_NEAR);
    ck_assert_int_eq(event->key.decision.remaining, 9);
    ck_assert_uint_eq(event->key.key_len, 3);
    ck_assert_mem_eq(event->key.key, "key", 3);
    heard_forget(&scene);
    taken(api, "key", 1); /* was near before */
    scene.now_us += 10 * WEIR_SECOND;
    taken(api, "key", 10); /* crosses again, within a minute */
    assert_silence(&scene);
}

TEST(keys_and_limits_are_reported_separately_and_peeks_are_not, 30)
{
    EVENT_SCENE(scene, "fixed_window limit=1 period=1h", .mode = WEIR_LOCAL);
    weir_limit *other = scene_define_text(&scene, "other", "fixed_window limit=1 period=1h");
    scene_define_text(&scene, "other/b", "fixed_window limit=2 period=1h");
    heard_forget(&scene);
    for (int i = 0; i < 3; i++) {
        peeked(api, "a", 2);
        ck_assert(!taken(api, "a", 2).allowed);
        ck_assert(!taken(other, "a", 3).allowed);
        ck_assert(!taken(other, "b", 3).allowed);
    }
    hook_queue_settle_events(&(struct event_hook){ hear, &scene });
    ck_assert_uint_eq(heard.count, 3);
    ck_assert_ptr_eq(heard.events[0].key.limit, api);
    ck_assert_ptr_eq(heard.events[1].key.limit, other);
    char name[32];
    weir_limit_print_name(heard.events[2].key.limit, name, sizeof name);
    ck_assert_str_eq(name, "other/b");
}

TEST(shadow_limits_groups_batches_handles_and_reservations_report_their_keys, 30)
{
    EVENT_SCENE(scene, "fixed_window limit=1 period=1h", .mode = WEIR_LOCAL);
    weir_limit *shadow = scene_define_text(&scene, "shadow", "fixed_window limit=1 period=1h shadow");
    struct weir_decision decisions[2];
    struct weir_reservation reservation;
    weir_handle *handle;
    heard_forget(&scene);
    ck_assert(taken(shadow, "a", 2).would_deny);
    const struct weir_event *event = the_event(&scene, WEIR_EVENT_DENIED);
    ck_assert(event->key.decision.allowed && event->key.decision.would_deny);

    heard_forget(&scene);
    const struct weir_request requests[] = { { api, weir_key_text("b"), 2, 0 }, { api, weir_key_text("c"), 2, 0 } };
    must_succeed(weir_try_all(scene.limiter, requests, 1, decisions));
    the_event(&scene, WEIR_EVENT_DENIED);
    must_succeed(weir_try_batch(scene.limiter, requests, 2, decisions));
    must_succeed(weir_reserve(api, weir_key_text("d"), 2, decisions, &reservation));
    must_succeed(weir_key_resolve(api, weir_key_text("e"), &handle));
    must_succeed(weir_handle_try(handle, 2, 0, decisions));
    weir_handle_free(handle);
    hook_queue_settle_events(&(struct event_hook){ hear, &scene });
    ck_assert_uint_eq(heard.count, 4); /* b, c, d, e */
}

/* ---- Policies, outages, shares ---- */

TEST(changes_of_policies_are_reported_and_repetitions_are_not, 30)
{
    EVENT_SCENE(scene, "fixed_window limit=1 period=1h", .mode = WEIR_LOCAL);
    scene_define_text(&scene, "api", "fixed_window limit=1 period=1h");
    assert_silence(&scene);
    scene_define_text(&scene, "api", "fixed_window limit=2 period=1h");
    const struct weir_event *event = the_event(&scene, WEIR_EVENT_POLICY);
    ck_assert_ptr_eq(event->policy.limit, api);
    ck_assert_int_eq(event->policy.policy.limit, 2);
    ck_assert(!event->policy.has_ended);
    heard_forget(&scene);
    scene_define_text(&scene, "api/x*", "fixed_window limit=3 period=1h");
    char name[32];
    weir_limit_print_name(the_event(&scene, WEIR_EVENT_POLICY)->policy.limit, name, sizeof name);
    ck_assert_str_eq(name, "api/x*");
    heard_forget(&scene);
    must_succeed(weir_limit_define(scene.limiter, "api/x*", NULL, NULL));
    event = the_event(&scene, WEIR_EVENT_POLICY);
    ck_assert(event->policy.has_ended);
    ck_assert_int_eq(event->policy.policy.limit, 3);
}

TEST(beginning_and_end_of_an_outage_are_reported, 30)
{
    struct fake fake;
    CLOSED_BY(scene_close) struct scene scene;
    fake_init(&fake);
    fake_open(&fake, &scene, OPTIONS(.event = hear));
    scene.log_allowed = true;
    weir_limit *api = scene_define_text(&scene, "api", "token_bucket limit=10 period=10s");
    heard_forget(&scene);
    scene.now_us -= scene.now_us % 64; /* an outage's beginning is rounded up to this */
    atomic_store(&fake.answer, WEIR_ETIME);
    weir_peek(api, weir_key_text("a"), 1, &(struct weir_decision){ .limit = 0 });
    ck_assert_int_eq(the_event(&scene, WEIR_EVENT_OUTAGE_BEGAN)->outage.error, WEIR_ETIME);
    heard_forget(&scene);
    scene.now_us += 7 * WEIR_SECOND;
    atomic_store(&fake.answer, WEIR_OK);
    weir_peek(api, weir_key_text("a"), 1, &(struct weir_decision){ .limit = 0 });
    ck_assert_int_eq(the_event(&scene, WEIR_EVENT_OUTAGE_ENDED)->outage.lasted_us, 7 * WEIR_SECOND);
}

static int64_t list_two(void *user, struct weir_peer *peers, size_t room)
{
    ck_assert_uint_ge(room, 2);
    peers[0] = (struct weir_peer){ "a", 1 };
    peers[1] = (struct weir_peer){ "b", 3 };
    return 2;
}

TEST(new_share_is_reported, 30)
{
    const struct weir_peers peers = {
        .size = sizeof peers, .list = list_two, .id = "b", .poll_us = 100000, .hold_down_us = 100000
    };
    OPEN_SCENE(scene, OPTIONS(.event = hear, .peers = &peers));
    heard_await(1);
    hook_queue_settle_events(&(struct event_hook){ hear, &scene });
    ck_assert_int_eq(heard.events[0].kind, WEIR_EVENT_SHARE);
    ck_assert_int_eq(heard.events[0].share.weight, 3);
    ck_assert_int_eq(heard.events[0].share.total, 4);
}

/* ---- The queue ---- */

TEST(a_blocking_event_hook_delays_no_caller_and_lost_events_are_counted, 30)
{
    EVENT_SCENE(scene, "fixed_window limit=1 period=1h", .events_in_clear = true);
    enum { MORE = 9 };
    char key[16];
    heard_hold(true);
    ck_assert(!taken(api, "first", 2).allowed);
    heard_await(1); /* the queue is empty again, and its thread in the hook */
    for (int i = 0; i < WEIR_EVENTS_QUEUED + MORE; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        ck_assert(!taken(api, key, 2).allowed); /* the test ends here if this waits */
    }
    const uint64_t lost = stats_of(scene.limiter).events_lost;
    ck_assert_uint_eq(lost, MORE);
    heard_hold(false);
    hook_queue_settle_events(&(struct event_hook){ hear, &scene });
    ck_assert_uint_eq(heard.count, 1 + WEIR_EVENTS_QUEUED);
    for (int i = 0; i < WEIR_EVENTS_QUEUED; i++) { /* in order */
        snprintf(key, sizeof key, "key-%d", i);
        ck_assert_mem_eq(heard.events[1 + i].key.key, key, strlen(key));
    }
    ck_assert(!pthread_equal(heard.thread, pthread_self()));
}

/* The hook takes every lock that a call of weir could hold. */
static void hear_and_ask(void *user, const struct weir_event *event)
{
    struct scene *scene = user;
    struct weir_policy policy;
    hear(user, event);
    if (!scene->limiter)
        return;
    ck_assert_uint_eq(stats_of(scene->limiter).events_lost, 0);
    for (weir_limit *limit = NULL; (limit = weir_limit_next(scene->limiter, limit));)
        must_succeed(weir_limit_policy(limit, &policy));
}

TEST(immediate_events_run_on_the_deciding_thread_without_locks, 30)
{
    OPEN_SCENE(scene, OPTIONS(.event = hear_and_ask, .events_at_once = true));
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=1 period=1h");
    ck_assert_uint_eq(heard.count, 1);
    ck_assert(!taken(api, "a", 2).allowed);
    ck_assert_uint_eq(heard.count, 2);
    ck_assert(pthread_equal(heard.thread, pthread_self()));
    ck_assert_int_eq(heard.events[1].kind, WEIR_EVENT_DENIED);
}

/* ---- Threads ---- */

static void *take_many(void *argument)
{
    weir_limit *limit = argument;
    struct chance chance = chance_make((uint64_t)(uintptr_t)&chance);
    struct weir_decision decision;
    char key[16];
    for (int64_t i = steps_or(20000); i > 0; i--) {
        snprintf(key, sizeof key, "%d", (int)chance_between(&chance, 0, 99));
        must_succeed(weir_try(limit, weir_key_text(key), chance_between(&chance, 1, 2), &decision));
    }
    return NULL;
}

TEST(threads_report_every_denied_key_and_lose_no_event, 60)
{
    EVENT_SCENE(scene, "token_bucket limit=1000 period=1h burst=1", .mode = WEIR_LOCAL);
    struct crew crew;
    crew_start(&crew, 4, take_many, api);
    crew_join(&crew);
    hook_queue_settle_events(&(struct event_hook){ hear, &scene });
    ck_assert_uint_ge(heard.count, 100); /* each key is denied */
    ck_assert_uint_eq(stats_of(scene.limiter).events_lost, 0);
}
