/* test_full.c - what a full table answers: peeks, refunds and keys whose states must grow. */
#include "support.h"

#include <stdio.h>

/* ---- Peeks ---- */

static const char *const policies[] = {
    "token_bucket limit=10 period=1m", "token_bucket limit=10 period=1m refill=interval",
    "fixed_window limit=10 period=1m", "sliding_window limit=10 period=1m blocks=6",
    "leaky_bucket limit=10 period=1m",
};

/* Peek, then take, and assert that both get the same answer. The peek must leave no trace. */
static struct weir_decision taken_as_peeked(struct scene *scene, weir_limit *limit, const char *key, int64_t cost)
{
    const struct weir_stats before = stats_of(scene->limiter);
    struct weir_decision told = peeked(limit, key, cost);
    const struct weir_stats after = stats_of(scene->limiter);
    must(after.full == before.full && after.evictions == before.evictions && after.keys == before.keys &&
             after.bytes == before.bytes,
         "a peek drops no key and is not counted");
    const struct weir_decision decision = taken(limit, key, cost);
    if (decision.allowed) {
        told.remaining -= cost;
        told.reset_after_us = decision.reset_after_us;
    }
    assert_decision_is(&decision, &told, key);
    return decision;
}

TEST_EACH(a_peek_says_what_a_full_table_would_answer, 3, 30)
{
    struct chance chance = chance_make((uint64_t)_i);
    int64_t full = 0, made_room = 0;
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        OPEN_SCENE(scene, OPTIONS(.max_keys = 6, .on_full = (enum weir_on_full)_i));
        weir_limit *limit = scene_define_text(&scene, "limit", policies[p]);
        for (int i = 0; i < 2000; i++) {
            char key[8];
            snprintf(key, sizeof key, "%d", (int)chance_between(&chance, 0, 11));
            full += taken_as_peeked(&scene, limit, key, chance_between(&chance, 1, 11)).source == WEIR_BY_FULL;
            if (chance_one_in(&chance, 4))
                must_succeed(weir_refund(limit, weir_key_text(key), chance_between(&chance, 1, 3)));
            scene.now_us += chance_one_in(&chance, 2) ? 0 : chance_magnitude(&chance, WEIR_MINUTE);
        }
        made_room += (int64_t)stats_of(scene.limiter).evictions;
        ck_assert_uint_le(stats_of(scene.limiter).full, (uint64_t)full);
    }
    ck_assert_int_gt(full, 1000);
    ck_assert_int_gt(made_room, 100);
}

TEST(a_peek_says_what_a_table_without_bytes_would_answer, 30)
{
    static const size_t lens[] = { 16, 2000 }; /* an entry of a page, and one that is too large */
    for (size_t l = 0; l < sizeof lens / sizeof lens[0]; l++) {
        OPEN_SCENE(scene, OPTIONS(.max_bytes = INT64_C(1) << 20));
        weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1m");
        char key[2001];
        for (int i = 0; i < 40000; i++) {
            snprintf(key, sizeof key, "%0*d", (int)lens[l], i);
            taken_as_peeked(&scene, limit, key, 1);
            scene.now_us += i == 20000 ? WEIR_MINUTE : 0;
        }
        ck_assert_uint_gt(stats_of(scene.limiter).full, 1000);
        ck_assert_uint_gt(stats_of(scene.limiter).evictions, 100);
    }
}

/* ---- Refunds to the shared state ---- */

TEST(a_refund_of_a_key_without_room_goes_to_the_state_that_it_shares, 30)
{
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        OPEN_SCENE(scene, OPTIONS(.max_keys = 1, .on_full = WEIR_FULL_SHARE));
        weir_limit *limit = scene_define_text(&scene, "limit", policies[p]);
        ck_assert(taken(limit, "inside", 1).allowed);
        ck_assert_int_eq(taken(limit, "a", 7).remaining, 3);
        must_succeed(weir_refund(limit, weir_key_text("a"), 4));
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 7);
        ck_assert_int_eq(peeked(limit, "b", 1).remaining, 7);
        must_succeed(weir_refund(limit, weir_key_text("b"), 100)); /* never above a fresh state */
        ck_assert_int_eq(taken(limit, "b", 10).remaining, 0);
        ck_assert_int_eq(peeked(limit, "inside", 1).remaining, 9);

        must_succeed(weir_reset(limit, weir_key_text("inside"))); /* now there is room */
        must_succeed(weir_refund(limit, weir_key_text("b"), 10));
        ck_assert_int_eq(taken(limit, "inside", 1).source, WEIR_BY_MEMORY);
        ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
        ck_assert_uint_eq(stats_of(scene.limiter).full, 2); /* the takes of `a` and `b` */
    }
}

TEST(an_acquire_that_is_denied_leaves_no_trace_in_the_shared_state, 30)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1, .on_full = WEIR_FULL_SHARE));
    weir_limit *limit = scene_define_text(&scene, "limit", "leaky_bucket limit=10 period=1m");
    ck_assert(taken(limit, "inside", 1).allowed);
    ck_assert(taken(limit, "a", 1).allowed);
    for (int i = 0; i < 20; i++) {
        struct weir_decision decision;
        must_succeed(weir_acquire(limit, weir_key_text("b"), 1, 0, &decision));
        ck_assert(!decision.allowed && decision.source == WEIR_BY_FULL);
        ck_assert_int_eq(decision.retry_after_us, 6 * WEIR_SECOND);
    }
    ck_assert_int_eq(peeked(limit, "c", 1).remaining, 9);
}
