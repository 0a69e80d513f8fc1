/* test_fixed.c - `unlimited` and `deny`: every verb and mode decides by them without a state and without the backend. */
#include "fake.h"

#include "core/limiter/limits.h"

#include <stdio.h>
#include <string.h>

/* ---- What they answer ---- */

static void assert_answer(const struct weir_decision *decision, bool admits, const char *where)
{
    const struct weir_decision expected = {
        .allowed = admits,
        .source = WEIR_BY_POLICY,
        .limit = admits ? WEIR_MAX_PERMITS : 0,
        .remaining = admits ? WEIR_MAX_PERMITS : 0,
        .retry_after_us = admits ? 0 : WEIR_NEVER,
    };
    assert_decision_is(decision, &expected, where);
}

static void assert_reservation(const struct weir_reservation *reservation, bool admits, int64_t permits)
{
    ck_assert_int_eq(reservation->permits, admits ? permits : -1);
    ck_assert_int_eq(reservation->at_us, 0);
}

/* Use the verbs that a thread waits for. */
static void assert_verbs(weir_limit *limit, struct weir_key key, bool admits)
{
    struct weir_decision decision;
    struct weir_reservation reservation = { .permits = 0 };
    weir_handle *handle;
    for (int i = 0; i < 3; i++) {
        must_succeed(weir_try(limit, key, WEIR_MAX_PERMITS, &decision));
        assert_answer(&decision, admits, "weir_try");
    }
    must_succeed(weir_try_at(limit, key, 1, WEIR_DAY, &decision));
    assert_answer(&decision, admits, "weir_try_at");
    must_succeed(weir_key_resolve(limit, key, &handle));
    for (int i = 0; i < 3; i++) {
        must_succeed(weir_handle_try(handle, 7, 0, &decision));
        assert_answer(&decision, admits, "weir_handle_try");
    }
    weir_handle_free(handle);
    must_succeed(weir_peek(limit, key, 5, &decision));
    assert_answer(&decision, admits, "weir_peek");
    must_succeed(weir_acquire(limit, key, 5, WEIR_HOUR, &decision));
    assert_answer(&decision, admits, "weir_acquire");
    must_succeed(weir_reserve(limit, key, 5, &decision, &reservation));
    assert_answer(&decision, admits, "weir_reserve");
    assert_reservation(&reservation, admits, 5);
    must_succeed(weir_settle(limit, key, &reservation, 2));
    must_succeed(weir_settle(limit, key, &reservation, 9));
    must_succeed(weir_renew(limit, key, 5, &decision, &reservation));
    assert_answer(&decision, admits, "weir_renew");
    must_succeed(weir_release(limit, key, &reservation));
    must_succeed(weir_charge(limit, key, 1000));
    must_succeed(weir_refund(limit, key, 3));
    must_succeed(weir_reset(limit, key));
    must_succeed(weir_peek(limit, key, 1, &decision));
    assert_answer(&decision, admits, "weir_peek, again");
}

static void must_not_be_done(struct weir_op *op, int status)
{
    (void)op;
    (void)status;
    must(false, "an op that needs no backend is answered at once");
}

/* Submit the verbs that do not go to a thread. */
static void assert_ops(weir_limit *limit, struct weir_key key, bool admits)
{
    static const enum weir_op_verb verbs[] = { WEIR_OP_TRY,    WEIR_OP_RESERVE, WEIR_OP_RENEW,
                                               WEIR_OP_SETTLE, WEIR_OP_REFUND,  WEIR_OP_CHARGE };
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        struct weir_op op = { .request = { limit, key, 5, 0 }, .verb = verbs[i], .done = must_not_be_done };
        op.reservation = (struct weir_reservation){ .permits = 5, .at_us = 1 };
        if (verbs[i] == WEIR_OP_SETTLE)
            op.reservation.permits = 4;
        must_succeed(weir_submit(limit->limiter, &op));
        ck_assert_ptr_eq(op.request.limit, limit);
        if (verbs[i] == WEIR_OP_TRY || verbs[i] == WEIR_OP_RESERVE || verbs[i] == WEIR_OP_RENEW)
            assert_answer(&op.decision, admits, "weir_submit");
        if (verbs[i] == WEIR_OP_RESERVE)
            assert_reservation(&op.reservation, admits, 5);
    }
}

static void assert_fixed(weir_limit *limit)
{
    static const char *const free_keys[] = { "free-1", "free", "free-sixteen-byt", "free-and-longer-than-sixteen" };
    for (size_t i = 0; i < sizeof free_keys / sizeof *free_keys; i++) {
        assert_verbs(limit, weir_key_text(free_keys[i]), true);
        assert_ops(limit, weir_key_text(free_keys[i]), true);
    }
    assert_verbs(limit, weir_key_text("banned"), false);
    assert_ops(limit, weir_key_text("banned"), false);

    struct weir_policy policy;
    char text[160];
    must_succeed(weir_limit_policy_for(limit, weir_key_text("free-2"), &policy));
    must_succeed(weir_policy_print(&policy, text, sizeof text));
    ck_assert_str_eq(text, "unlimited");
}

static void define_fixed(weir *limiter)
{
    limit_of(limiter, "api/free*", "unlimited");
    limit_of(limiter, "api/banned", "deny");
}

/* ---- Modes ---- */

TEST(every_verb_decides_by_them_in_local_and_machine_mode, 60)
{
    static const char *const policies[] = {
        "token_bucket limit=1 period=1h", "sliding_window limit=1 period=1h",
        "fixed_window limit=1 period=1h", "token_bucket limit=1 period=1h refill=interval",
        "leaky_bucket limit=1 period=1h", "concurrency limit=1 hold=1h",
    };
    for (int mode = WEIR_LOCAL; mode <= WEIR_MACHINE; mode += WEIR_MACHINE - WEIR_LOCAL)
        for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
            OPEN_SCENE(scene, OPTIONS(.mode = (enum weir_mode)mode));
            weir_limit *limit = scene_define_text(&scene, "api", policies[i]);
            define_fixed(scene.limiter);
            assert_fixed(limit);
            ck_assert(taken(limit, "other", 1).allowed);
            ck_assert(!taken(limit, "other", 1).allowed);
            ck_assert_int_eq(stats_of(scene.limiter).keys, 1); /* they keep no state */
        }
}

TEST(a_limit_itself_may_be_unlimited_or_deny, 10)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *free_for_all = scene_define_text(&scene, "all", "unlimited");
    weir_limit *closed = scene_define_text(&scene, "none", "deny");
    scene_define_text(&scene, "none/open*", "fixed_window limit=2 period=1h");
    assert_verbs(free_for_all, weir_key_text("a"), true);
    assert_verbs(closed, weir_key_text("a"), false);
    ck_assert_int_eq(taken(closed, "open-1", 1).remaining, 1);
    struct weir_limit_info info = { .size = sizeof info };
    must_succeed(weir_limit_info(free_for_all, &info));
    ck_assert_int_eq(info.limit, WEIR_MAX_PERMITS);
    ck_assert_int_eq(info.over_max, 0);
    must_succeed(weir_limit_info(closed, &info));
    ck_assert_int_eq(info.limit, 0);
}

TEST(no_backend_is_asked_for_them, 30)
{
    static struct fake fake;
    fake_init(&fake);
    CLOSED_BY(scene_close) struct scene scene;
    fake_open(&fake, &scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=1h");
    define_fixed(scene.limiter);
    atomic_store(&fake.answer, WEIR_EIO); /* not even an outage matters */
    assert_fixed(limit);
    ck_assert_int_eq(atomic_load(&fake.calls), 0);
    atomic_store(&fake.answer, WEIR_OK);
    ck_assert(taken(limit, "other", 1).source == WEIR_BY_BACKEND);
    ck_assert_int_eq(atomic_load(&fake.calls), 1);
}

/* ---- Several requests ---- */

TEST(a_banned_member_denies_its_group_before_the_backend_is_asked, 30)
{
    static struct fake fake;
    fake_init(&fake);
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decision;
    fake_open(&fake, &scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=1h");
    define_fixed(scene.limiter);
    const struct weir_request requests[] = { { limit, weir_key_text("free-1"), 5, 0 },
                                             { limit, weir_key_text("a"), 1, 0 },
                                             { limit, weir_key_text("b"), 1, 0 },
                                             { limit, weir_key_text("banned"), 1, 0 } };
    struct weir_reservation reservations[4];
    must_succeed(weir_reserve_all(scene.limiter, requests, 4, &decision, reservations));
    ck_assert(!decision.allowed && decision.retry_after_us == WEIR_NEVER && decision.limit == 0);
    ck_assert_uint_eq(decision.bound_by, 3);
    ck_assert_int_eq(decision.source, WEIR_BY_POLICY);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(reservations[i].permits, -1);
    ck_assert_int_eq(atomic_load(&fake.calls), 0);

    must_succeed(weir_reserve_all(scene.limiter, requests, 3, &decision, reservations)); /* without the banned one */
    ck_assert(decision.allowed);
    ck_assert_int_eq(atomic_load(&fake.calls), 1);
    assert_reservation(&reservations[0], true, 5);
    ck_assert_int_eq(reservations[1].permits, 1);
    must_succeed(weir_try_all(scene.limiter, requests, 1, &decision));
    assert_answer(&decision, true, "alone");
    ck_assert_int_eq(atomic_load(&fake.calls), 1);
}

TEST(a_batch_asks_once_for_the_others_and_keeps_the_order, 30)
{
    enum { N = 100 };
    static struct fake fake;
    fake_init(&fake);
    for (int local = 0; local < 2; local++) {
        CLOSED_BY(scene_close) struct scene scene;
        struct weir_request requests[N];
        struct weir_decision decisions[N];
        static char keys[N][16];
        if (local)
            scene_open(&scene, NULL);
        else
            fake_open(&fake, &scene, NULL);
        weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=1h");
        define_fixed(scene.limiter);
        for (int i = 0; i < N; i++) {
            snprintf(keys[i], sizeof keys[i], i % 7 == 0 ? "free-%d" : i % 5 == 3 ? "banned" : "key-%d", i);
            requests[i] = (struct weir_request){ limit, weir_key_text(keys[i]), 1, 0 };
        }
        must_succeed(weir_try_batch(scene.limiter, requests, N, decisions));
        for (int i = 0; i < N; i++) {
            const bool is_free = i % 7 == 0, is_banned = !is_free && i % 5 == 3;
            if (is_free || is_banned)
                assert_answer(&decisions[i], is_free, keys[i]);
            else
                ck_assert_int_ne(decisions[i].source, WEIR_BY_POLICY);
        }
        if (!local)
            ck_assert_int_le(atomic_load(&fake.calls), 2); /* as many as of other keys */
    }
}

/* ---- Figures, shadows, fields ---- */

TEST(their_figures_are_those_of_the_override, 10)
{
    OPEN_SCENE(scene, OPTIONS(.top_keys = 4));
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=1h");
    define_fixed(scene.limiter);
    for (int i = 0; i < 5; i++) {
        taken(limit, "free-1", 7);
        taken(limit, "banned", 7);
    }
    struct weir_limit_stats stats = { .size = sizeof stats };
    const weir_limit *target = weir_limit_next(scene.limiter, limit);
    must_succeed(weir_limit_stats_read(target, &stats));
    ck_assert_uint_eq(stats.allowed, 5);
    ck_assert_uint_eq(stats.permits, 35);
    ck_assert_uint_eq(stats.near, 0);
    ck_assert_uint_eq(stats.by_source[WEIR_BY_POLICY], 5);
    target = weir_limit_next(scene.limiter, target);
    must_succeed(weir_limit_stats_read(target, &stats));
    ck_assert_uint_eq(stats.denied, 5);
    ck_assert_uint_eq(stats.permits, 0);
    const struct weir_stats all = stats_of(scene.limiter);
    ck_assert_uint_eq(all.allowed, 5);
    ck_assert_uint_eq(all.denied, 5);
    ck_assert_uint_eq(all.fallbacks, 0);
}

TEST(a_ban_in_shadow_counts_what_it_would_deny, 10)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=1h");
    scene_define_text(&scene, "api/soon*", "deny shadow");
    const struct weir_decision decision = taken(limit, "soon-1", 3);
    ck_assert(decision.allowed && decision.would_deny);
    const struct weir_request requests[] = { { limit, weir_key_text("a"), 1, 0 },
                                             { limit, weir_key_text("soon-2"), 1, 0 } };
    struct weir_decision whole;
    must_succeed(weir_try_all(scene.limiter, requests, 2, &whole));
    ck_assert(whole.allowed && whole.would_deny);
    ck_assert_uint_eq(whole.would_deny_by, 1);
}

TEST(http_fields_name_no_quota_of_the_unlimited_and_none_left_of_the_banned, 10)
{
    OPEN_SCENE(scene, NULL);
    struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS];
    const unsigned which = WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_RATELIMIT_POLICY | WEIR_HTTP_RATELIMIT |
                           WEIR_HTTP_X_RATELIMIT;
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=1h");
    define_fixed(scene.limiter);
    struct weir_request request = { limit, weir_key_text("free-1"), 1, 0 };
    struct weir_decision decision = taken(limit, "free-1", 1);
    ck_assert_int_eq(weir_http_fields(&request, &decision, which, fields, WEIR_HTTP_MAX_FIELDS), 0);
    request.key = weir_key_text("banned");
    decision = taken(limit, "banned", 1);
    ck_assert_int_eq(weir_http_fields(&request, &decision, which, fields, WEIR_HTTP_MAX_FIELDS), 4);
    ck_assert_str_eq(fields[0].name, "RateLimit-Policy");
    ck_assert_str_eq(fields[0].value, "\"api\";q=0");
    ck_assert_str_eq(fields[1].value, "\"api\";r=0");
    ck_assert_str_eq(fields[2].value, "0");
    ck_assert_str_eq(fields[3].value, "0");
}

/* ---- Changes ---- */

TEST(what_a_key_had_used_before_it_was_exempt_is_still_used_after, 10)
{
    for (int mode = WEIR_LOCAL; mode <= WEIR_MACHINE; mode += WEIR_MACHINE - WEIR_LOCAL) {
        OPEN_SCENE(scene, OPTIONS(.mode = (enum weir_mode)mode));
        weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=365d");
        for (int round = 0; round < 3; round++) {
            ck_assert_int_eq(taken(limit, "key", 2).remaining, 8 - 2 * round);
            scene_define_text(&scene, "api/key", round % 2 ? "deny" : "unlimited");
            for (int i = 0; i < 20; i++)
                ck_assert_int_eq(taken(limit, "key", 5).allowed, round % 2 == 0);
            must_succeed(weir_limit_define(scene.limiter, "api/key", NULL, NULL));
        }
        scene_define_text(&scene, "api", "unlimited");
        ck_assert(taken(limit, "key", 1000).allowed);
        scene_define_text(&scene, "api", "token_bucket limit=10 period=365d");
        ck_assert_int_eq(peeked(limit, "key", 1).remaining, 4);
    }
}

TEST(a_reservation_from_before_or_during_an_exemption_gives_nothing_back_twice, 10)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "token_bucket limit=10 period=365d");
    struct weir_reservation during;
    struct weir_decision decision;
    const struct weir_key key = weir_key_text("key");
    scene_define_text(&scene, "api/key", "unlimited");
    must_succeed(weir_reserve(limit, key, 8, &decision, &during));
    must_succeed(weir_limit_define(scene.limiter, "api/key", NULL, NULL));
    taken(limit, "key", 5);
    must_succeed(weir_settle(limit, key, &during, 0)); /* nothing was charged, so nothing comes back */
    ck_assert_int_eq(peeked(limit, "key", 1).remaining, 5);
}
