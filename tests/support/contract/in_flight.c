/* in_flight.c - contract: limits on requests in flight, and renewals. */
#include "contract/parts.h"

/* Open a limiter on this backend at a time of whole seconds, and define "limit". */
static weir_limit *open_in_flight(struct scene *scene, int backend, const char *policy)
{
    open_backend(scene, backend);
    scene->now_us = 1700000000 * WEIR_SECOND;
    return scene_define_text(scene, "limit", policy);
}

CONTRACT_TEST(CONTRACT_TIME, requests_in_flight_are_limited_and_unreleased_permits_return_after_the_hold, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=3 hold=10s");
    weir_limit *rate = scene_define_text(&scene, "rate", "fixed_window limit=10 period=1h");
    struct weir_decision decision;
    struct weir_reservation slots[3], group[2];
    for (int i = 0; i < 3; i++) {
        slots[i] = reserved(limit, "a", 1, true);
        scene.now_us += 2 * WEIR_SECOND;
    }
    reserved(limit, "a", 1, false);
    const struct weir_request requests[] = { request_of(rate, "a", 1), request_of(limit, "a", 1) };
    must_succeed(weir_reserve_all(scene.limiter, requests, 2, &decision, group));
    ck_assert(!decision.allowed && decision.bound_by == 1);
    ck_assert_int_eq(peeked(rate, "a", 1).remaining, 10);
    must_succeed(weir_release(limit, weir_key_text("a"), &slots[1]));
    must_succeed(weir_reserve_all(scene.limiter, requests, 2, &decision, group));
    ck_assert(decision.allowed);
    reserved(limit, "a", 1, false);
    must_succeed(weir_release(limit, weir_key_text("a"), &group[1]));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);

    /* The first was taken at 0 s and the last at 4 s; neither is released. A block is a second. */
    scene.now_us = 1700000011 * WEIR_SECOND - 1;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    scene.now_us++;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    must_succeed(weir_release(limit, weir_key_text("a"), &slots[0])); /* too late: it has come back */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    scene.now_us += 4 * WEIR_SECOND;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
}

/* Renew a reservation of `cost` permits, and assert that it is allowed or denied. A denial leaves it as it was. */
static struct weir_decision renewed(weir_limit *limit, const char *key, int64_t cost,
                                    struct weir_reservation *reservation, bool allowed)
{
    const struct weir_reservation before = *reservation;
    struct weir_decision decision;
    must_succeed(weir_renew(limit, weir_key_text(key), cost, &decision, reservation));
    ck_assert_int_eq(decision.allowed, allowed);
    ck_assert(allowed == (decision.retry_after_us == 0));
    ck_assert(allowed || memcmp(reservation, &before, sizeof before) == 0);
    return decision;
}

/* Do that for one permit. The limit is no smaller, so a denial names a time. */
static void renew(weir_limit *limit, const char *key, struct weir_reservation *reservation, bool allowed)
{
    ck_assert_int_ne(renewed(limit, key, 1, reservation, allowed).retry_after_us, WEIR_NEVER);
}

CONTRACT_TEST(CONTRACT_TIME, a_renewed_request_in_flight_keeps_its_permit, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=2 hold=10s");
    struct weir_reservation renews = reserved(limit, "a", 1, true), dies = reserved(limit, "a", 1, true);
    for (int i = 0; i < 3; i++) {
        scene.now_us += 4 * WEIR_SECOND - 1;
        renew(limit, "a", &renews, true);
    }
    /* 12 s: the other one has come back, and another request takes it. */
    struct weir_reservation third = reserved(limit, "a", 1, true);
    reserved(limit, "a", 1, false);
    renew(limit, "a", &dies, false);
    must_succeed(weir_release(limit, weir_key_text("a"), &dies)); /* of nothing */
    renew(limit, "a", &dies, false);
    scene.now_us += 10 * WEIR_SECOND;
    renew(limit, "a", &renews, true);
    scene.now_us += 2 * WEIR_SECOND; /* the third has come back, too */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    renew(limit, "a", &dies, true);
    renew(limit, "a", &third, false);
    must_succeed(weir_release(limit, weir_key_text("a"), &renews));
    must_succeed(weir_release(limit, weir_key_text("a"), &dies));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    ck_assert_int_eq(peeked(limit, "a", 1).reset_after_us, 0);
    renew(limit, "a", &renews, true); /* a key with nothing in use */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
}

CONTRACT_TEST(CONTRACT_TIME, a_renewal_respects_a_reset_or_a_new_policy, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=2 hold=10s");
    struct weir_reservation slots[2] = { reserved(limit, "a", 1, true), reserved(limit, "a", 1, true) };
    scene.now_us += 2 * WEIR_SECOND;
    must_succeed(weir_reset(limit, weir_key_text("a")));
    renew(limit, "a", &slots[0], true);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    reserved(limit, "a", 1, true);
    renew(limit, "a", &slots[1], false);
    renew(limit, "a", &slots[0], true);

    scene_define_text(&scene, "limit", "concurrency limit=1 hold=10s");
    scene.now_us += 2 * WEIR_SECOND;
    renew(limit, "a", &slots[0], true);
    ck_assert(!peeked(limit, "a", 1).allowed);
    scene.now_us += 8 * WEIR_SECOND;
    renew(limit, "a", &slots[0], true);
    scene_define_text(&scene, "limit", "fixed_window limit=1 period=1h");
    renew(limit, "a", &slots[0], true);
    ck_assert(!peeked(limit, "a", 1).allowed);
    must_succeed(weir_release(limit, weir_key_text("a"), &slots[0]));
    ck_assert(peeked(limit, "a", 1).allowed);
}

CONTRACT_TEST(CONTRACT_TIME, a_renewal_takes_permits_again_that_have_already_refilled, 20)
{
    static const struct {
        const char *policy;
        int64_t left_early, left_late; /* of 10, after 8 are renewed 2 s later, and of 10 after 20 s */
    } cases[] = {
        { "token_bucket limit=10 period=10s", 2, 2 },
        { "leaky_bucket limit=10 period=10s", 2, 2 },
        { "token_bucket limit=10 period=10s refill=interval", 2, 2 },
        { "fixed_window limit=10 period=10s", 2, 2 },
        { "sliding_window limit=10 period=10s", 2, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        weir_limit *limit = open_in_flight(&scene, _i, cases[i].policy);
        struct weir_reservation held = reserved(limit, "a", 8, true);
        scene.now_us += 2 * WEIR_SECOND;
        ck_assert_int_eq(renewed(limit, "a", 8, &held, true).remaining, cases[i].left_early);
        charge(limit, "a", 5); /* the key is overdrawn: an immediate renewal needs no room */
        ck_assert_int_eq(renewed(limit, "a", 8, &held, true).remaining, 0);
        scene.now_us += 30 * WEIR_SECOND;
        ck_assert_int_eq(renewed(limit, "a", 8, &held, true).remaining, cases[i].left_late);
        scene.now_us += 30 * WEIR_SECOND;
        taken(limit, "a", 5);
        ck_assert_int_eq(renewed(limit, "a", 8, &held, false).remaining, 5);
    }
}

/* The holder of 3 permits renews them a second time by the reservation as it was, as after a lost answer. Then 2 of
 * another holder are all that this finds. */
CONTRACT_TEST(CONTRACT_TIME, a_denied_renewal_leaves_the_permits_of_all_holders_taken, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=5 hold=10s");
    struct weir_reservation three = reserved(limit, "a", 3, true), two = reserved(limit, "a", 2, true);
    struct weir_reservation stale = three;
    scene.now_us += 4 * WEIR_SECOND;
    ck_assert_int_eq(renewed(limit, "a", 3, &three, true).remaining, 0);
    scene.now_us += WEIR_SECOND;
    for (int i = 0; i < 2; i++) {
        const struct weir_decision denied = renewed(limit, "a", 3, &stale, false);
        ck_assert_int_eq(denied.remaining, 0);
        ck_assert_int_eq(denied.retry_after_us, 10 * WEIR_SECOND); /* the block of the 3 ends 15 s after the start */
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 0);
    }
    ck_assert_int_eq(renewed(limit, "a", 2, &two, true).remaining, 0);
    must_succeed(weir_release(limit, weir_key_text("a"), &two));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    must_succeed(weir_release(limit, weir_key_text("a"), &three));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 5);
}

/* The limit has become smaller than what is in flight. */
CONTRACT_TEST(CONTRACT_TIME, permits_whose_renewal_is_denied_can_still_be_released, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=5 hold=10s");
    struct weir_reservation held = reserved(limit, "a", 4, true);
    scene_define_text(&scene, "limit", "concurrency limit=3 hold=10s");
    ck_assert_int_eq(renewed(limit, "a", 4, &held, false).retry_after_us, WEIR_NEVER);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 0);
    must_succeed(weir_release(limit, weir_key_text("a"), &held));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
}
