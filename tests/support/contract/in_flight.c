/* in_flight.c - contract: limits on requests in flight, and renewals. */
#include "contract/parts.h"

#include <stdio.h>
#include <stdlib.h>

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

    /* The first was taken at 0 s and the last at 4 s; neither is released. */
    scene.now_us = 1700000010 * WEIR_SECOND - 1;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    scene.now_us++;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    must_succeed(weir_release(limit, weir_key_text("a"), &slots[0])); /* too late: it has ended */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    scene.now_us += 4 * WEIR_SECOND;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
    ck_assert_int_eq(peeked(limit, "a", 1).reset_after_us, 0);
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

CONTRACT_TEST(CONTRACT_TIME, a_renewed_request_in_flight_keeps_its_slot, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=2 hold=10s");
    struct weir_reservation renews = reserved(limit, "a", 1, true), dies = reserved(limit, "a", 1, true);
    for (int i = 0; i < 3; i++) {
        scene.now_us += 4 * WEIR_SECOND - 1;
        renew(limit, "a", &renews, true);
    }
    /* 12 s: the other one has ended, and another request takes its place. */
    struct weir_reservation third = reserved(limit, "a", 1, true);
    reserved(limit, "a", 1, false);
    renew(limit, "a", &dies, false);
    must_succeed(weir_release(limit, weir_key_text("a"), &dies)); /* of nothing */
    renew(limit, "a", &dies, false);
    scene.now_us += 10 * WEIR_SECOND - 1;
    renew(limit, "a", &renews, true);
    renew(limit, "a", &dies, false); /* the third has a microsecond left */
    scene.now_us++;
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

CONTRACT_TEST(CONTRACT_TIME, a_renewal_that_is_repeated_moves_only_its_own_slot, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=5 hold=10s");
    struct weir_reservation three = reserved(limit, "a", 3, true), two = reserved(limit, "a", 2, true);
    struct weir_reservation stale = three;
    scene.now_us += 4 * WEIR_SECOND;
    ck_assert_int_eq(renewed(limit, "a", 3, &three, true).remaining, 0);
    scene.now_us += WEIR_SECOND;
    ck_assert_int_eq(renewed(limit, "a", 3, &stale, true).remaining, 0);
    scene.now_us += 5 * WEIR_SECOND; /* the two have ended, the three have 5 s left */
    const struct weir_decision left = peeked(limit, "a", 3);
    ck_assert(!left.allowed);
    ck_assert_int_eq(left.remaining, 2);
    ck_assert_int_eq(left.retry_after_us, 5 * WEIR_SECOND);
    ck_assert_int_eq(left.reset_after_us, 5 * WEIR_SECOND);
    must_succeed(weir_release(limit, weir_key_text("a"), &two));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    must_succeed(weir_release(limit, weir_key_text("a"), &three));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 5);
}

CONTRACT_TEST(CONTRACT_TIME, a_release_that_is_repeated_frees_no_other_slot, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=2 hold=10s");
    struct weir_reservation first = reserved(limit, "a", 1, true);
    reserved(limit, "a", 1, true);
    for (int i = 0; i < 3; i++) {
        must_succeed(weir_release(limit, weir_key_text("a"), &first));
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    }
    const struct weir_reservation never = { .permits = 1, .id = first.id ^ 1024 };
    must_succeed(weir_release(limit, weir_key_text("a"), &never));
    must_succeed(weir_release(limit, weir_key_text("b"), &never));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
}

/* The first is 20 of 20 in flight; then the hold, the limit, both, or the algorithm change and change back. */
CONTRACT_TEST(CONTRACT_TIME, slots_survive_a_new_policy, 20)
{
    static const char *const policies[] = { "concurrency limit=20 hold=30s", "concurrency limit=20 hold=5s",
                                            "concurrency limit=7 hold=20s", "concurrency limit=40 hold=1h",
                                            "token_bucket limit=5 period=1m" };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=20 hold=20s");
        struct weir_reservation slots[20];
        for (int k = 0; k < 20; k++)
            slots[k] = reserved(limit, "a", 1, true);
        scene.now_us += 5 * WEIR_SECOND;
        const struct weir_policy policy = policy_of(policies[i]);
        scene_define_text(&scene, "limit", policies[i]);
        if (policy.algorithm == WEIR_CONCURRENCY) {
            const struct weir_decision decision = peeked(limit, "a", 1);
            ck_assert_int_eq(decision.remaining, policy.limit > 20 ? policy.limit - 20 : 0);
            ck_assert_int_eq(decision.reset_after_us, 15 * WEIR_SECOND);
            renew(limit, "a", &slots[0], true);
            scene.now_us += 5 * WEIR_SECOND + policy.period_us % (5 * WEIR_SECOND); /* of a hold of 5 s: it is over */
            ck_assert_int_eq(peeked(limit, "a", 1).reset_after_us, policy.period_us > 15 * WEIR_SECOND
                                                                       ? policy.period_us - 5 * WEIR_SECOND
                                                                       : 10 * WEIR_SECOND);
        }
        for (int k = 0; k < 20; k++)
            must_succeed(weir_release(limit, weir_key_text("a"), &slots[k]));
        scene_define_text(&scene, "limit", "concurrency limit=20 hold=20s");
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 20);
    }
}

CONTRACT_TEST(CONTRACT_TIME, a_slot_keeps_what_its_holder_says_it_still_uses, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=1GB hold=10s");
    const struct weir_key key = weir_key_text("a");
    struct weir_reservation large = reserved(limit, "a", 700000000, true);
    reserved(limit, "a", 400000000, false);
    must_succeed(weir_settle(limit, key, &large, 100000000));
    must_succeed(weir_settle(limit, key, &large, 100000000));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 900000000);
    must_succeed(weir_settle(limit, key, &large, 200000000)); /* it does not grow again */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 900000000);
    struct weir_reservation one = reserved(limit, "a", 1, true);
    must_succeed(weir_settle(limit, key, &one, 51)); /* 50 more, until the hold is over */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 899999949);
    must_succeed(weir_release(limit, key, &large));
    must_succeed(weir_release(limit, key, &one));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 999999950);
    charge(limit, "a", 2000000000);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 0);
    scene.now_us += 10 * WEIR_SECOND;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1000000000);
}

CONTRACT_TEST(CONTRACT_TIME, what_names_no_slot_is_refused, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=3 hold=10s");
    const struct weir_request requests[] = { request_of(limit, "a", 1), request_of(limit, "a", 1) };
    struct weir_policy blocks = policy_of("concurrency limit=3 hold=10s");
    struct weir_reservation reservations[2];
    struct weir_decision decision;
    scene.log_allowed = true;
    taken(limit, "a", 1);
    ck_assert_int_eq(weir_refund(limit, weir_key_text("a"), 1), WEIR_EINVAL);
    ck_assert_int_eq(weir_reserve_all(scene.limiter, requests, 2, &decision, reservations), WEIR_EINVAL);
    must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
    ck_assert(decision.allowed && decision.remaining == 0);
    blocks.blocks = 4;
    ck_assert_int_eq(weir_limit_define(scene.limiter, "limit", &blocks, NULL), WEIR_EINVAL);
}

/* The limit has become smaller than what is in flight. */
CONTRACT_TEST(CONTRACT_TIME, a_slot_is_renewed_and_released_under_a_limit_that_it_exceeds, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=5 hold=10s");
    struct weir_reservation held = reserved(limit, "a", 4, true);
    scene_define_text(&scene, "limit", "concurrency limit=3 hold=10s");
    scene.now_us += 9 * WEIR_SECOND;
    renewed(limit, "a", 4, &held, true);
    scene.now_us += 9 * WEIR_SECOND;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 0);
    must_succeed(weir_release(limit, weir_key_text("a"), &held));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
    scene.now_us += 10 * WEIR_SECOND;
    ck_assert_int_eq(renewed(limit, "a", 4, &held, false).retry_after_us, WEIR_NEVER);
}

/* ---- By chance ---- */

/* A slot as its definition has it. */
struct model_slot {
    struct weir_reservation reservation; /* permits -1: a charge's, which nothing names */
    int key;
    int64_t cost, end_us;
};

struct model_slots {
    struct model_slot slots[4096];
    int n;
    int64_t limit, hold_us;
};

static const char *const slot_keys[] = { "a", "b",
                                         "a key of more than sixty-four bytes, so that it does not fit its record" };

static int by_end(const void *a, const void *b)
{
    const int64_t one = ((const struct model_slot *)a)->end_us, other = ((const struct model_slot *)b)->end_us;
    return (one > other) - (one < other);
}

/* Return what a decision about `cost` must be, before (allowed) or after it has been made. */
static struct weir_decision model_look(const struct model_slots *model, int key, int64_t cost, int64_t now_us,
                                       const bool *allowed)
{
    static struct model_slot held[4096];
    struct weir_decision decision = { .limit = model->limit };
    int64_t used = 0, freed = 0;
    int n = 0;
    for (int i = 0; i < model->n; i++)
        if (model->slots[i].key == key && model->slots[i].end_us > now_us && model->slots[i].cost > 0)
            held[n++] = model->slots[i];
    qsort(held, (size_t)n, sizeof *held, by_end);
    for (int i = 0; i < n; i++)
        used += held[i].cost;
    decision.allowed = allowed ? *allowed : used + cost <= model->limit;
    decision.remaining = used < model->limit ? model->limit - used : 0;
    decision.reset_after_us = n > 0 ? held[n - 1].end_us - now_us : 0;
    if (decision.allowed)
        return decision;
    decision.retry_after_us = cost > model->limit ? WEIR_NEVER : decision.reset_after_us;
    for (int i = 0; i < n && i < 64 && cost <= model->limit; i++) {
        freed += held[i].cost;
        if (used - freed + cost > model->limit)
            continue;
        decision.retry_after_us = held[i].end_us - now_us;
        break;
    }
    return decision;
}

static void model_add(struct model_slots *model, struct weir_reservation reservation, int key, int64_t cost,
                      int64_t now_us)
{
    must(model->n < 4096, "the model has room");
    model->slots[model->n++] = (struct model_slot){ reservation, key, cost, now_us + model->hold_us };
}

static void must_be(const struct weir_decision *decision, struct weir_decision expected, const char *what)
{
    expected.source = decision->source;
    assert_decision_is(decision, &expected, what);
}

CONTRACT_TEST(CONTRACT_TIME, slots_are_decided_as_a_list_of_them_says, 120)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct chance chance = chance_make((uint64_t)_i + 470);
    static struct model_slots model;
    weir_limit *limit = open_in_flight(&scene, _i, "concurrency limit=20 hold=10s");
    model = (struct model_slots){ .limit = 20, .hold_us = 10 * WEIR_SECOND };
    for (int64_t step = steps_or(3000); step > 0; step--) {
        const int key = (int)chance_between(&chance, 0, 2);
        const struct weir_key name = weir_key_text(slot_keys[key]);
        const int64_t cost = chance_one_in(&chance, 3) ? chance_between(&chance, 1, 9) : 1;
        struct model_slot *slot = model.n > 0 ? &model.slots[chance_between(&chance, 0, model.n - 1)] : NULL;
        struct weir_decision decision;
        struct weir_reservation made;
        scene.now_us += chance_one_in(&chance, 4) ? chance_between(&chance, 0, 2 * WEIR_SECOND) : 0;
        const int64_t now_us = scene.now_us;
        switch (chance_between(&chance, 0, 9)) {
        case 0:
        case 1:
        case 2: {
            const struct weir_decision before = model_look(&model, key, cost, now_us, NULL);
            must_succeed(weir_reserve(limit, name, cost, &decision, &made));
            if (before.allowed)
                model_add(&model, made, key, cost, now_us);
            must_be(&decision, model_look(&model, key, cost, now_us, &before.allowed), "reserve");
            break;
        }
        case 3:
        case 4:
        case 5: {
            if (!slot || slot->reservation.permits < 0)
                break;
            const int64_t actual = chance_one_in(&chance, 4) ? chance_between(&chance, 0, slot->reservation.permits - 1)
                                                             : 0;
            must_succeed(weir_settle(limit, weir_key_text(slot_keys[slot->key]), &slot->reservation, actual));
            slot->cost = slot->cost < actual ? slot->cost : actual;
            break;
        }
        case 6: {
            if (!slot || slot->reservation.permits < 0)
                break;
            const bool is_held = slot->end_us > now_us && slot->cost > 0;
            const int64_t permits = slot->reservation.permits;
            struct weir_decision before = model_look(&model, slot->key, permits, now_us, NULL);
            before.allowed = before.allowed || is_held;
            must_succeed(
                weir_renew(limit, weir_key_text(slot_keys[slot->key]), permits, &decision, &slot->reservation));
            if (before.allowed) {
                slot->cost = is_held ? slot->cost : permits;
                slot->end_us = now_us + model.hold_us;
            }
            must_be(&decision, model_look(&model, slot->key, permits, now_us, &before.allowed), "renew");
            break;
        }
        case 7:
        case 8: {
            const struct weir_decision expected = model_look(&model, key, cost, now_us, NULL);
            must_succeed(weir_peek(limit, name, cost, &decision));
            must_be(&decision, expected, "peek");
            break;
        }
        default:
            if (chance_one_in(&chance, 10)) {
                must_succeed(weir_reset(limit, name));
                for (int i = 0; i < model.n; i++)
                    model.slots[i].cost = model.slots[i].key == key ? 0 : model.slots[i].cost;
            } else if (chance_one_in(&chance, 5)) {
                char text[64];
                model.limit = chance_between(&chance, 1, 30);
                model.hold_us = chance_between(&chance, 1, 20) * WEIR_SECOND;
                snprintf(text, sizeof text, "concurrency limit=%d hold=%ds", (int)model.limit,
                         (int)(model.hold_us / WEIR_SECOND));
                scene_define_text(&scene, "limit", text);
            } else if (chance_one_in(&chance, 5)) {
                must_succeed(weir_charge(limit, name, cost));
                model_add(&model, (struct weir_reservation){ .permits = -1 }, key, cost, now_us);
            }
        }
        for (int i = 0; model.n > 4000 && i < model.n; i++) /* forget some that are over */
            if (model.slots[i].end_us <= now_us)
                model.slots[i--] = model.slots[--model.n];
    }
}
