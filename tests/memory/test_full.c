/* test_full.c - what a full table answers: peeks, refunds and keys whose states must grow. */
#include "support.h"

#include "backends/memory/parts.h"
#include "core/limiter/limiter.h"
#include "core/limiter/request.h"

#include <inttypes.h>
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

TEST_EACH(a_peek_answers_as_a_try_on_a_full_table_would, 3, 30)
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

TEST(a_peek_answers_as_a_try_on_a_table_without_memory_would, 30)
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

TEST(a_refund_of_a_key_without_room_changes_the_shared_state, 30)
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

/* ---- The cost of being turned away ---- */

static uint64_t entries_tried(struct scene *scene)
{
    const struct table *table = &((struct memory *)scene->limiter->backend)->table;
    uint64_t tried = 0;
    for (size_t i = 0; i < table->shard_count; i++)
        tried += table->shards[i].tried;
    return tried;
}

static struct weir_decision take_number(weir_limit *limit, int64_t number, int64_t cost)
{
    char key[17];
    snprintf(key, sizeof key, "%016" PRIx64, (uint64_t)number);
    return taken(limit, key, cost);
}

/* An attacker uses each of its keys just before it becomes idle, and asks for new ones in between. A look at a key that
 * is not idle must be paid for by a decision for that key. */
TEST(a_full_table_of_live_keys_examines_few_of_them, 60)
{
    enum { KEYS = 20000, ROUNDS = 4 };
    static const int64_t margins_us[] = { 1, 1000, WEIR_SECOND };
    for (size_t m = 0; m < sizeof margins_us / sizeof margins_us[0]; m++) {
        OPEN_SCENE(scene, OPTIONS(.max_keys = KEYS));
        weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=1000 period=1h");
        const int64_t lap_us = 1800 * WEIR_SECOND - margins_us[m]; /* 500 permits return in 1,800 s */
        for (int64_t i = 0; i < ROUNDS * KEYS; i++) {
            scene.now_us += lap_us / KEYS + (i % KEYS < lap_us % KEYS);
            must(take_number(limit, i % KEYS, 500).allowed, "its permits are back, or nearly");
            for (int64_t k = 0; i >= KEYS && k < 4; k++)
                must(take_number(limit, (k + 1) * 1000 * 1000 + i, 1).source == WEIR_BY_FULL, "no key is idle");
        }
        const uint64_t tried = entries_tried(&scene);
        ck_assert_uint_gt(tried, KEYS);
        ck_assert_uint_lt(tried, 5 * ROUNDS * KEYS);
        ck_assert_uint_eq(stats_of(scene.limiter).evictions, 0);
    }
}

/* Keys that are used again and again hide the idle ones among them, but not for long. */
TEST(a_new_key_finds_idle_keys_among_many_that_seemed_idle, 60)
{
    enum { KEYS = 50000, IDLE = 100 };
    OPEN_SCENE(scene, OPTIONS(.max_keys = KEYS));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1m");
    for (int64_t i = 0; i < KEYS; i++)
        must(take_number(limit, i, 1).allowed, "there is room");
    scene.now_us += 5 * WEIR_SECOND;
    for (int64_t i = IDLE; i < KEYS; i++)
        must(take_number(limit, i, 9).allowed, "it has nine permits and more");
    scene.now_us += 2 * WEIR_SECOND; /* all look idle by what is known of them */
    int64_t in = 0, asked = 0;
    for (; in < IDLE; asked++) {
        must(asked < IDLE + 10 * KEYS / 512, "all idle keys are found in a few turns");
        in += take_number(limit, KEYS + asked, 10).source == WEIR_BY_MEMORY;
    }
    ck_assert_int_eq(take_number(limit, -1, 10).source, WEIR_BY_FULL);
    ck_assert_uint_eq(stats_of(scene.limiter).evictions, IDLE);
}

/* ---- States that must grow ---- */

static const char *const sizes[] = {
    /* 2 to 514 words; a lower limit leaves a former state */
    "token_bucket limit=100 period=365d",
    "sliding_window limit=100 period=365d blocks=1024",
    "fixed_window limit=50 period=365d",
    "sliding_window limit=50 period=365d blocks=10",
    "sliding_window limit=100 period=365d blocks=100",
    "sliding_window limit=20 period=365d blocks=1000",
    "leaky_bucket limit=100 period=365d",
};

/* True if the key is under the limit's policy, or has no entry. */
static bool is_up_to_date(struct scene *scene, weir_limit *limit, const char *key)
{
    struct table *table = &((struct memory *)scene->limiter->backend)->table;
    const struct weir_backend_request request = {
        .key = weir_key_text(key),
        .hash = key_hash(limit, weir_key_text(key)),
        .limit_id = limit->id,
    };
    struct shard *shard = table_shard(table, request.hash);
    struct weir_plan plan;
    plan_cell_read(&limit->plan, &plan);
    lock_take(&shard->mutex);
    struct entry *entry = shard_find(table, shard, &request);
    const bool is_current = !entry || entry_rule(table, entry)->plan.fingerprint == plan.fingerprint;
    if (entry)
        entry_let_go(table, entry);
    lock_give(&shard->mutex);
    return is_current;
}

/* Two tables get the same requests, and only one of them is full. Where that one finds room, both decide alike. */
TEST(a_key_whose_state_cannot_grow_keeps_it, 60)
{
    struct chance chance = chance_make(0);
    OPEN_SCENE(tight, OPTIONS(.max_bytes = INT64_C(1) << 20));
    OPEN_SCENE(wide, NULL);
    weir_limit *limit = scene_define_text(&tight, "limit", sizes[0]);
    weir_limit *twin = scene_define_text(&wide, "limit", sizes[0]);
    char key[32];
    int64_t keys = 0, full = 0, decided = 0;
    for (bool room = true; room; keys += room) {
        snprintf(key, sizeof key, "%016d", (int)keys);
        const int64_t cost = chance_between(&chance, 1, 100);
        room = taken(limit, key, cost).source == WEIR_BY_MEMORY;
        if (room)
            taken(twin, key, cost);
    }
    for (int i = 0; i < (INSTRUMENTED ? 20000 : 200000); i++) {
        if (i % 2000 == 0) {
            const char *policy = sizes[chance_between(&chance, 0, sizeof sizes / sizeof sizes[0] - 1)];
            scene_define_text(&tight, "limit", policy);
            scene_define_text(&wide, "limit", policy);
        }
        tight.now_us = wide.now_us += chance_magnitude(&chance, WEIR_SECOND);
        snprintf(key, sizeof key, "%016d", (int)chance_between(&chance, 0, keys - 1));
        if (chance_one_in(&chance, 8)) {
            const int64_t cost = chance_between(&chance, 1, 10);
            if (peeked(limit, key, 1).allowed) { /* a key that cannot move has it under the old policy */
                must_succeed(weir_refund(limit, weir_key_text(key), cost));
                must_succeed(weir_refund(twin, weir_key_text(key), cost));
            }
            continue;
        }
        const int64_t cost = chance_between(&chance, 1, 5);
        const struct weir_decision decision = taken_as_peeked(&tight, limit, key, cost);
        if (decision.source == WEIR_BY_FULL) {
            must(!decision.allowed && peeked(twin, key, cost).allowed, "only an admission needs room");
            full++;
            continue;
        }
        decided++;
        const bool has_moved = is_up_to_date(&tight, limit, key); /* a denied one need not have */
        const struct weir_decision expected = has_moved ? taken(twin, key, cost) : peeked(twin, key, cost);
        assert_decision_is(&decision, &expected, key);
        must(has_moved || !decision.allowed, "an admission is by the policy in force");
    }
    ck_assert_int_gt(full, 1000);
    ck_assert_int_gt(decided, 1000);
    ck_assert_uint_eq(stats_of(tight.limiter).full, 1 + (uint64_t)full);
}

TEST_EACH(a_group_with_a_key_whose_state_cannot_grow_is_answered_by_on_full, 3, 30)
{
    OPEN_SCENE(scene, OPTIONS(.max_bytes = INT64_C(1) << 20, .on_full = (enum weir_on_full)_i));
    weir_limit *first = scene_define_text(&scene, "first", sizes[0]);
    weir_limit *second = scene_define_text(&scene, "second", sizes[0]);
    ck_assert(taken(first, "a", 1).allowed && taken(second, "a", 1).allowed && taken(second, "b", 60).allowed);
    char key[1100] = "key"; /* entries too large for a page leave the least room */
    for (int i = 0; taken(second, key, 1).source == WEIR_BY_MEMORY; i++)
        snprintf(key, sizeof key, "%01099d", i);
    const uint64_t full = stats_of(scene.limiter).full;
    scene_define_text(&scene, "second", "sliding_window limit=50 period=365d blocks=1024");
    struct weir_decision decision;
    struct weir_request requests[] = { { first, weir_key_text("a"), 1, 0 }, { second, weir_key_text("b"), 1, 0 } };
    must_succeed(weir_try_all(scene.limiter, requests, 2, &decision)); /* what it used fills the new policy */
    ck_assert(!decision.allowed && decision.source == WEIR_BY_MEMORY);
    ck_assert_uint_eq(stats_of(scene.limiter).full, full);
    requests[1].key = weir_key_text("a");
    must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
    ck_assert_int_eq(decision.allowed, _i != WEIR_FULL_DENY);
    ck_assert_uint_eq(stats_of(scene.limiter).full, full + 1);
    ck_assert_int_eq(peeked(first, "a", 1).remaining, _i == WEIR_FULL_DENY ? 99 : 98);
    if (_i == WEIR_FULL_SHARE) {
        for (int i = 0; i < 60; i++)
            must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
        ck_assert(!decision.allowed && decision.source == WEIR_BY_FULL);
    }
    scene_define_text(&scene, "second", sizes[0]);
    ck_assert_int_eq(peeked(second, "a", 1).remaining, 99);
    ck_assert_int_eq(peeked(second, "b", 1).remaining, 40);
}

TEST(states_that_keys_share_stay_within_max_bytes, 30)
{
    enum { LIMITS = 500 };
    const int64_t most = INT64_C(1) << 20;
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1, .max_bytes = most, .on_full = WEIR_FULL_SHARE));
    weir_limit *limits[LIMITS];
    int shared = 0;
    for (int i = 0; i < LIMITS; i++) {
        char name[16];
        snprintf(name, sizeof name, "limit-%d", i);
        limits[i] = scene_define_text(&scene, name, "token_bucket limit=10 period=1d");
    }
    ck_assert(taken(limits[0], "inside", 1).allowed);
    for (int i = 0; i < LIMITS; i++) {
        const struct weir_decision decision = taken_as_peeked(&scene, limits[i], "key", 1);
        must(decision.source == WEIR_BY_FULL, "there is no room");
        shared += decision.allowed; /* a limit without a shared state denies */
        must(stats_of(scene.limiter).bytes <= most, "the cap holds at every moment");
    }
    ck_assert_int_gt(shared, 50);
    ck_assert_int_lt(shared, LIMITS);
    for (int i = 0; i < LIMITS; i++) {
        char name[16];
        snprintf(name, sizeof name, "limit-%d", i);
        scene_define_text(&scene, name, "sliding_window limit=10 period=1d blocks=1024");
        taken_as_peeked(&scene, limits[i], "key", 1);
        const struct weir_request requests[] = { { limits[i], weir_key_text("a"), 1, 0 },
                                                 { limits[i], weir_key_text("b"), 1, 0 } };
        struct weir_decision decision;
        must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
        must(stats_of(scene.limiter).bytes <= most, "the cap holds at every moment");
    }
    ck_assert(!taken(limits[LIMITS - 1], "key", 1).allowed);
    scene.now_us += 3 * WEIR_DAY; /* the shared states are idle, and go as others come */
    ck_assert_int_eq(taken(limits[0], "inside", 1).source, WEIR_BY_MEMORY);
    int tries = 1;
    while (!taken(limits[LIMITS - 1], "key", 1).allowed)
        must(++tries < LIMITS, "each new one drops idle ones");
}
