/* test_memory.c - what the memory backend promises about room: how much it holds, and which keys go and stay. */
#include "support.h"

#include "backends/memory/look.h"
#include "core/api/verbs.h"
#include "core/ground/arith.h"
#include "core/limiter/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Looking inside ---- */

static struct table *table_of(struct scene *scene)
{
    return &((struct memory *)scene->limiter->backend)->table;
}

static int64_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%*s %ld", &pages), 1);
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

enum { CHAIN_MOST = 45 }; /* a random secret makes longer ones less than once in a billion runs */

/* Return how full the shards are, and check the shape of each. */
struct shape {
    int64_t keys;
    unsigned longest_chain;
    double least_load, greatest_load; /* keys a bucket */
};

static struct shape shape_of(struct scene *scene)
{
    const struct table *table = table_of(scene);
    struct shape shape = { .least_load = 1e9 };
    for (size_t i = 0; i < table->shard_count; i++) {
        const UT_hash_table *hash_table = table->shards[i].first->hh.tbl;
        unsigned items = 0;
        ck_assert_uint_eq(hash_table->num_buckets, table->shards[i].buckets.count);
        ck_assert_ptr_eq(hash_table->buckets, table->shards[i].buckets.heads);
        for (unsigned b = 0; b < hash_table->num_buckets; b++) {
            unsigned chain = 0;
            for (const UT_hash_handle *h = hash_table->buckets[b].hh_head; h; h = h->hh_next)
                chain++;
            items += chain;
            shape.longest_chain = chain > shape.longest_chain ? chain : shape.longest_chain;
        }
        ck_assert_uint_eq(items, hash_table->num_items);
        double load = (double)(items - 1) / hash_table->num_buckets; /* the sentinel is not a key */
        shape.keys += items - 1;
        shape.least_load = load < shape.least_load ? load : shape.least_load;
        shape.greatest_load = load > shape.greatest_load ? load : shape.greatest_load;
    }
    ck_assert_int_eq(shape.keys, stats_of(scene->limiter).keys);
    return shape;
}

/* ---- Keys ---- */

/* A key of 16 bytes for each number, whatever the limit. */
struct wide_key {
    char bytes[17];
};

static struct wide_key wide_key(int64_t number)
{
    struct wide_key key;
    snprintf(key.bytes, sizeof key.bytes, "%016" PRIx64, (uint64_t)number);
    return key;
}

static struct weir_decision take_number(weir_limit *limit, int64_t number, int64_t cost)
{
    struct wide_key key = wide_key(number);
    struct weir_decision decision;
    must_succeed(weir_try(limit, weir_key(key.bytes, 16), cost, &decision));
    return decision;
}

static struct weir_decision peek_number(weir_limit *limit, int64_t number)
{
    struct wide_key key = wide_key(number);
    struct weir_decision decision;
    must_succeed(weir_peek(limit, weir_key(key.bytes, 16), 1, &decision));
    return decision;
}

/* ---- A flood of new keys ---- */

enum { FLOOD_ROOM = 100000, VICTIMS = 1000 };
static const int64_t victim_number = INT64_C(1) << 40;

/* Two million or WEIR_TEST_STEPS keys, but always more than fit. */
static int64_t flood_keys(void)
{
    return max_of(2 * FLOOD_ROOM, steps_or(2000000));
}

struct victims {
    struct weir_decision before[VICTIMS];
};

static void victims_use_some(struct victims *victims, weir_limit *limit)
{
    for (int i = 0; i < VICTIMS; i++) {
        must(take_number(limit, victim_number + i, 1 + i % 10).allowed, "a fresh key has ten permits");
        victims->before[i] = peek_number(limit, victim_number + i);
    }
}

/* Assert that their states have not changed for `later_us`, to the permit and the microsecond. */
static void assert_victims_are_as_before(const struct victims *victims, weir_limit *limit, int64_t later_us)
{
    for (int i = 0; i < VICTIMS; i++) {
        struct weir_decision expected = victims->before[i], now = peek_number(limit, victim_number + i);
        expected.reset_after_us -= later_us;
        if (!expected.allowed)
            expected.retry_after_us -= later_us;
        assert_decision_is(&now, &expected, "a live key, after the flood");
    }
}

static void assert_memory_is_bounded(struct scene *scene, int64_t resident_before)
{
    int64_t most = table_of(scene)->budget.max + table_of(scene)->rules.own.max;
    ck_assert_int_le(stats_of(scene->limiter).bytes, most);
    if (!INSTRUMENTED)
        ck_assert_int_le(resident_bytes() - resident_before, most + (INT64_C(8) << 20));
}

/* A new key inspects a bounded number of others. Among many live keys it may be refused although idle ones exist; that
 * must stay rare. */
static void assert_few_were_turned_away(struct scene *scene, int64_t new_keys)
{
    int64_t full = (int64_t)stats_of(scene->limiter).full;
    ck_assert_msg(full <= new_keys / 50, "%" PRId64 " of %" PRId64 " were turned away", full, new_keys);
}

/* The results of a flood's requests. */
struct flood {
    int64_t kept, full, full_allowed;
};

/* Request new keys, all of which stay live. */
static struct flood flood(weir_limit *limit, int64_t first, int64_t keys)
{
    struct flood flood = { 0 };
    for (int64_t i = 0; i < keys; i++) {
        struct weir_decision decision = take_number(limit, first + i, 1);
        must(decision.limit == 10, "the limit is that of a fresh key, however it is answered");
        if (decision.source != WEIR_BY_FULL) {
            must(decision.allowed && decision.remaining == 9, "a fresh key has ten permits");
            flood.kept++;
            continue;
        }
        flood.full++;
        flood.full_allowed += decision.allowed;
        must(decision.allowed ? decision.retry_after_us == 0 : decision.retry_after_us > 0,
             "a denial says when to come back");
    }
    return flood;
}

static struct flood flood_with(enum weir_on_full on_full, int64_t keys)
{
    static struct victims victims;
    struct scene scene;
    int64_t resident_before = resident_bytes();
    scene_open(&scene, OPTIONS(.max_keys = FLOOD_ROOM, .on_full = on_full));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    victims_use_some(&victims, limit);

    struct flood told = flood(limit, 0, keys);
    ck_assert_int_eq(told.kept, FLOOD_ROOM - VICTIMS);
    assert_victims_are_as_before(&victims, limit, 0);
    assert_memory_is_bounded(&scene, resident_before);

    struct weir_stats stats = stats_of(scene.limiter);
    ck_assert_int_eq(stats.keys, FLOOD_ROOM);
    ck_assert_int_eq((int64_t)stats.full, told.full);
    ck_assert_int_eq((int64_t)stats.allowed, VICTIMS + told.kept + told.full_allowed);
    ck_assert_int_eq((int64_t)stats.denied, told.full - told.full_allowed);
    ck_assert_uint_eq(stats.evictions, 0); /* no key was idle */
    ck_assert_uint_eq(stats.errors, 0);

    /* Keys in the table keep their entries and their own states. */
    struct weir_decision inside = take_number(limit, 0, 9);
    ck_assert(inside.allowed && inside.source == WEIR_BY_MEMORY && inside.remaining == 0);
    scene_close(&scene);
    return told;
}

TEST(a_flood_of_new_keys_is_denied_and_resets_no_existing_key, 60)
{
    struct flood told = flood_with(WEIR_FULL_DENY, flood_keys());
    ck_assert_int_eq(told.full, flood_keys() - (FLOOD_ROOM - VICTIMS));
    ck_assert_int_eq(told.full_allowed, 0);
}

TEST(with_on_full_allow_a_flood_of_new_keys_resets_no_existing_key, 60)
{
    struct flood told = flood_with(WEIR_FULL_ALLOW, 3 * FLOOD_ROOM);
    ck_assert_int_eq(told.full_allowed, 2 * FLOOD_ROOM + VICTIMS);
}

TEST(with_on_full_share_a_flood_of_new_keys_resets_no_existing_key, 60)
{
    struct flood told = flood_with(WEIR_FULL_SHARE, 3 * FLOOD_ROOM);
    ck_assert_int_eq(told.full, 2 * FLOOD_ROOM + VICTIMS);
    ck_assert_int_eq(told.full_allowed, 10);
}

TEST(a_flood_of_short_lived_keys_evicts_only_idle_keys, 60)
{
    static struct victims victims;
    int64_t resident_before = resident_bytes(), keys = flood_keys();
    OPEN_SCENE(scene, OPTIONS(.max_keys = FLOOD_ROOM));
    const int64_t start_us = scene.now_us;
    /* 1,000 keys a millisecond, each idle after 50 ms: half the room would suffice. */
    weir_limit *victim_limit = scene_define_text(&scene, "victims", "sliding_window limit=10 period=30d blocks=30");
    weir_limit *limit = scene_define_text(&scene, "hostile", "token_bucket limit=1 period=50ms");
    victims_use_some(&victims, victim_limit);
    for (int64_t i = 0; i < keys; i++) {
        scene.now_us += i % 1000 == 0 ? 1000 : 0;
        struct weir_decision decision = take_number(limit, i, 1);
        must(decision.allowed == (decision.source == WEIR_BY_MEMORY), "a fresh key is denied for want of room alone");
    }
    assert_victims_are_as_before(&victims, victim_limit, scene.now_us - start_us);
    assert_memory_is_bounded(&scene, resident_before);
    struct weir_stats stats = stats_of(scene.limiter);
    ck_assert_int_le(stats.keys, FLOOD_ROOM);
    ck_assert_int_eq(stats.keys, VICTIMS + keys - (int64_t)stats.evictions - (int64_t)stats.full);
    assert_few_were_turned_away(&scene, keys);
}

/* ---- When there is no room ---- */

/* Fill a table with `keys` live keys: key i has used i % 10 + 1 permits. */
static void fill(weir_limit *limit, int64_t keys)
{
    for (int64_t i = 0; i < keys; i++) {
        struct weir_decision decision = take_number(limit, i, 1 + i % 10);
        must(decision.allowed && decision.source == WEIR_BY_MEMORY, "there is room for max_keys keys");
    }
}

TEST(keys_without_room_share_a_state_per_limit, 30)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 10, .on_full = WEIR_FULL_SHARE));
    weir_limit *minute = scene_define_text(&scene, "minute", "token_bucket limit=10 period=1m");
    weir_limit *hour = scene_define_text(&scene, "hour", "fixed_window limit=3 period=1h");
    fill(minute, 10);

    static const struct {
        const char *key;
        bool hour, allowed;
        int64_t cost, remaining, retry_after_us;
    } steps[] = {
        { "a", false, true, 4, 6, 0 },
        { "b", false, true, 5, 1, 0 }, /* another key, the same state */
        { "a", false, false, 2, 1, 6 * WEIR_SECOND },
        { "a", true, true, 1, 2, 0 }, /* another limit, another state */
        { "c", true, true, 2, 0, 0 },
        { "d", true, false, 1, 0, WEIR_HOUR },
        { "d", false, true, 1, 0, 0 },
        { "d", false, false, 11, 0, WEIR_NEVER },
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct weir_decision decision = taken(steps[i].hour ? hour : minute, steps[i].key, steps[i].cost);
        ck_assert_int_eq(decision.allowed, steps[i].allowed);
        ck_assert_int_eq(decision.retry_after_us, steps[i].retry_after_us);
        if (steps[i].cost == 11)
            continue; /* denied by the policy: it needed no room */
        ck_assert_int_eq(decision.source, WEIR_BY_FULL);
        ck_assert_int_eq(decision.remaining, steps[i].remaining);
    }
    ck_assert_int_eq(stats_of(scene.limiter).keys, 10);
    ck_assert_uint_eq(stats_of(scene.limiter).full, 7);

    /* A minute later there is room: the key gets its own state and the shared one is unchanged. */
    scene.now_us += WEIR_MINUTE;
    struct weir_decision own = taken(minute, "a", 10);
    ck_assert(own.allowed && own.source == WEIR_BY_MEMORY);
}

TEST(with_on_full_allow_keys_without_room_are_not_counted, 30)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 10, .on_full = WEIR_FULL_ALLOW));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1m");
    fill(limit, 10);
    for (int i = 0; i < 100; i++) {
        struct weir_decision decision = taken(limit, "a", 10);
        ck_assert(decision.allowed && decision.source == WEIR_BY_FULL && decision.remaining == 0);
    }
    struct weir_decision never = taken(limit, "a", 11);
    ck_assert(!never.allowed && never.source == WEIR_BY_MEMORY && never.retry_after_us == WEIR_NEVER);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
    ck_assert_int_eq(stats_of(scene.limiter).keys, 10);
}

/* Wait for retry_after and ask again until there is room; return how often. */
static int tries_until_in(struct scene *scene, weir_limit *limit, int64_t number)
{
    for (int tries = 1;; tries++) {
        struct weir_decision decision = take_number(limit, number, 1000);
        if (decision.allowed) {
            ck_assert_int_eq(decision.source, WEIR_BY_MEMORY);
            return tries;
        }
        ck_assert(decision.source == WEIR_BY_FULL && decision.retry_after_us > 0 && decision.remaining == 0);
        must(tries < 100, "a key that does as it is told gets in");
        scene->now_us += decision.retry_after_us;
    }
}

TEST(a_key_refused_for_lack_of_room_is_admitted_after_its_retry_after, 30)
{
    /* In a large table the inspected keys may not be the idle ones: that takes a few more waits. */
    static const struct {
        int64_t room;
        int tries;
    } rows[] = { { 1, 2 }, { 2, 2 }, { 10, 2 }, { 100, 2 }, { 1000, 2 }, { 20000, 12 }, { 200000, 12 } };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        OPEN_SCENE(scene, OPTIONS(.max_keys = rows[r].room));
        struct chance chance = chance_make((uint64_t)r);
        weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=1000 period=10m");
        for (int64_t i = 0; i < rows[r].room; i++)
            must(take_number(limit, i, chance_between(&chance, 1, 1000)).allowed, "there is room");
        int waited = 0;
        for (int64_t i = 0; i < 100; i++) {
            int tries = tries_until_in(&scene, limit, rows[r].room + i);
            ck_assert_int_le(tries, rows[r].tries);
            waited += tries > 1;
        }
        ck_assert_int_gt(waited, 0);
        ck_assert_int_le(stats_of(scene.limiter).keys, rows[r].room);
    }
}

TEST(keys_are_evicted_once_they_are_idle_and_no_sooner, 30)
{
    static const char *const policies[] = {
        "token_bucket limit=10 period=1m", "token_bucket limit=10 period=1m refill=interval",
        "fixed_window limit=10 period=1m", "sliding_window limit=10 period=1m blocks=6",
        "leaky_bucket limit=10 period=1m",
    };
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        enum { ROOM = 5000 };
        OPEN_SCENE(scene, OPTIONS(.max_keys = ROOM));
        weir_limit *limit = scene_define_text(&scene, "limit", policies[p]);
        for (int64_t i = 0; i < ROOM; i++)
            take_number(limit, i, 10);
        const int64_t fresh_after_us = peek_number(limit, 0).reset_after_us;

        scene.now_us += fresh_after_us - 1;
        for (int64_t i = 0; i < ROOM; i++)
            must(take_number(limit, ROOM + i, 1).source == WEIR_BY_FULL, "no key is fresh a moment before");
        ck_assert_uint_eq(stats_of(scene.limiter).evictions, 0);
        ck_assert_uint_eq(stats_of(scene.limiter).full, ROOM);
        scene.now_us += 1;
        int64_t turned_away = 0;
        for (int64_t i = 0; i < ROOM; i++)
            turned_away += take_number(limit, ROOM + i, 1).source != WEIR_BY_MEMORY;
        ck_assert_int_le(turned_away, ROOM / 100);
        ck_assert_int_eq((int64_t)stats_of(scene.limiter).evictions, ROOM - turned_away);
        ck_assert_int_eq(stats_of(scene.limiter).keys, ROOM);
    }
}

TEST(a_full_table_finds_its_only_idle_key, 30)
{
    enum { ROOM = 2000 };
    OPEN_SCENE(scene, OPTIONS(.max_keys = ROOM));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    for (int64_t i = 0; i < ROOM; i++)
        take_number(limit, i, i == ROOM / 2 ? 1 : 10);
    scene.now_us += 6 * WEIR_MINUTE; /* when the key that took 1 is idle */
    ck_assert_int_eq(take_number(limit, ROOM, 1).source, WEIR_BY_MEMORY);
    ck_assert_int_eq(take_number(limit, ROOM + 1, 1).source, WEIR_BY_FULL);
    ck_assert_uint_eq(stats_of(scene.limiter).evictions, 1);
}

TEST(a_group_adds_all_of_its_new_keys_or_none, 30)
{
    for (enum weir_on_full on_full = WEIR_FULL_DENY; on_full <= WEIR_FULL_SHARE; on_full++) {
        OPEN_SCENE(scene, OPTIONS(.max_keys = 3, .on_full = on_full));
        weir_limit *first = scene_define_text(&scene, "first", "token_bucket limit=10 period=1m");
        weir_limit *second = scene_define_text(&scene, "second", "token_bucket limit=8 period=1m");
        ck_assert(taken(first, "old", 1).allowed);
        ck_assert(taken(second, "old", 1).allowed);
        /* One place is free; first:a and two keys of the second limit need three. */
        const struct weir_request requests[] = {
            { first, weir_key_text("a"), 3, 0 },
            { second, weir_key_text("b"), 2, 0 },
            { second, weir_key_text("c"), 2, 0 },
        };
        struct weir_decision decision;
        must_succeed(weir_try_all(scene.limiter, requests, 3, &decision));
        ck_assert_int_eq(decision.allowed, on_full != WEIR_FULL_DENY);
        if (on_full != WEIR_FULL_ALLOW) /* there the binding request is counted */
            ck_assert_int_eq(decision.source, WEIR_BY_FULL);
        ck_assert_int_eq(peeked(first, "old", 1).remaining, 9);
        ck_assert_int_eq(peeked(second, "old", 1).remaining, 7);
        if (on_full == WEIR_FULL_DENY) {
            ck_assert_int_gt(decision.retry_after_us, 0);
            ck_assert_int_eq(peeked(first, "a", 1).remaining, 10);
            ck_assert_int_eq(stats_of(scene.limiter).keys, 2);
        } else {
            ck_assert_int_eq(stats_of(scene.limiter).keys, 3);
            ck_assert_int_eq(peeked(first, "a", 1).remaining, 7);
        }
        if (on_full == WEIR_FULL_SHARE) {
            /* The two keys without room took four of the eight permits that all such keys share. */
            struct weir_decision later = taken(second, "d", 1);
            ck_assert(later.allowed && later.source == WEIR_BY_FULL);
            ck_assert_int_eq(later.remaining, 3);
            must_succeed(weir_try_all(scene.limiter, requests, 3, &decision));
            ck_assert(!decision.allowed && decision.retry_after_us > 0);
            ck_assert_int_eq(taken(second, "d", 3).remaining, 0);
            ck_assert_int_eq(peeked(first, "a", 1).remaining, 7);
        }
        ck_assert_uint_gt(stats_of(scene.limiter).full, 0);
    }
}

TEST(a_group_evicts_as_many_idle_keys_as_it_adds_new_ones, 30)
{
    enum { ROOM = 1000 };
    for (size_t n = 1; n <= WEIR_MAX_ALL; n = n < 8 ? n + 1 : n * 2) {
        OPEN_SCENE(scene, OPTIONS(.max_keys = ROOM));
        weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1m");
        fill(limit, ROOM);
        scene.now_us += WEIR_MINUTE; /* all keys are idle */
        for (int64_t call = 0; call < ROOM / (int64_t)n; call++) {
            struct wide_key keys[WEIR_MAX_ALL];
            struct weir_request requests[WEIR_MAX_ALL] = { 0 };
            struct weir_decision decision;
            for (size_t i = 0; i < n; i++) {
                keys[i] = wide_key(ROOM + call * (int64_t)n + (int64_t)i);
                requests[i] = (struct weir_request){ limit, weir_key(keys[i].bytes, 16), 1, 0 };
            }
            must_succeed(weir_try_all(scene.limiter, requests, n, &decision));
            if (!decision.allowed || decision.source != WEIR_BY_MEMORY)
                ck_abort_msg("call %d with %zu new keys found no room", (int)call, n);
        }
        ck_assert_int_eq(stats_of(scene.limiter).keys, ROOM);
        ck_assert_uint_eq(stats_of(scene.limiter).full, 0);
    }
}

/* ---- Idle keys ---- */

TEST(idle_keys_are_dropped_while_new_keys_arrive, 30)
{
    enum { IDLE = 50000 };
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    fill(limit, IDLE);
    scene.now_us += WEIR_MINUTE;
    int64_t last = stats_of(scene.limiter).keys;
    ck_assert_int_eq(last, IDLE);
    /* Each new key looks at two old ones. */
    for (int64_t i = 0; i < IDLE; i++) {
        take_number(limit, IDLE + i, 10);
        if (i % (IDLE / 10) == IDLE / 10 - 1 && last > i + IDLE / 10) {
            int64_t keys = stats_of(scene.limiter).keys;
            ck_assert_int_lt(keys, last);
            last = keys;
        }
    }
    ck_assert_int_le(stats_of(scene.limiter).keys, IDLE + IDLE / 100);
    ck_assert_uint_ge(stats_of(scene.limiter).evictions, IDLE - IDLE / 100);
}

static void check_collected_by_batches(size_t size)
{
    enum { IDLE = 5000, BUSY = 5000, MOST = 100 }; /* enough to reach every shard: one without traffic is not swept */
    struct weir_request requests[MOST];
    struct weir_decision decisions[MOST];
    int64_t keys[MOST], next = 0;
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=1000 period=1s");
    for (int64_t i = 0; i < IDLE; i++)
        take_number(limit, i, 1);
    scene.now_us += WEIR_MINUTE;
    for (int64_t taken = 0; taken < 2000000; taken += (int64_t)size) {
        scene.now_us += 10 * (int64_t)size;
        for (size_t i = 0; i < size; i++) {
            keys[i] = IDLE + next++ % BUSY;
            requests[i] = (struct weir_request){ .limit = limit, .key = weir_key(&keys[i], sizeof keys[i]), .cost = 1 };
        }
        must_succeed(weir_try_batch(scene.limiter, requests, size, decisions));
    }
    ck_assert_int_le(stats_of(scene.limiter).keys, BUSY + IDLE / 100);
}

TEST(idle_keys_are_dropped_while_no_new_key_arrives, 30)
{
    static const size_t sizes[] = { 1, 7, 32, 100 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_collected_by_batches(sizes[i]);
}

/* A step back beyond the slack makes entries idle earlier than expected. The sweep must notice, however the algorithm
 * stores time. */
static void check_collected_after_a_step_back(const char *policy)
{
    enum { IDLE = 1000, OTHERS = 4000 };
    OPEN_SCENE(scene, OPTIONS(.max_keys = 10000)); /* few shards: in one of many, too few other keys might sweep it */
    weir_limit *limit = scene_define_text(&scene, "limit", policy);
    const int64_t start_us = scene.now_us;
    scene.now_us = start_us + WEIR_HOUR;
    for (int64_t i = 0; i < IDLE; i++)
        take_number(limit, i, 1);
    scene.now_us = start_us;
    for (int64_t i = 0; i < IDLE; i++)
        take_number(limit, i, 1);
    scene.now_us = start_us + WEIR_MINUTE;
    for (int64_t i = 0; i < OTHERS; i++)
        take_number(limit, IDLE + i, 1);
    must(stats_of(scene.limiter).keys <= OTHERS + IDLE / 100, policy);
}

TEST(idle_keys_are_dropped_after_the_clock_has_stepped_back, 30)
{
    static const char *const policies[] = {
        "token_bucket limit=10 period=1s",
        "token_bucket limit=10 period=1s refill=interval",
        "leaky_bucket limit=10 period=1s",
        "fixed_window limit=10 period=1s",
        "sliding_window limit=10 period=1s",
        "sliding_window limit=10 period=1s blocks=1",
        "sliding_window limit=10 period=1s blocks=2",
    };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        check_collected_after_a_step_back(policies[i]);
}

TEST(groups_drop_idle_keys_too, 30)
{
    enum { IDLE = 20000 };
    OPEN_SCENE(scene, NULL);
    weir_limit *second = scene_define_text(&scene, "second", "token_bucket limit=10 period=1s");
    weir_limit *minute = scene_define_text(&scene, "minute", "token_bucket limit=100 period=1m");
    for (int64_t i = 0; i < 2 * IDLE; i++) {
        if (i == IDLE) { /* the earlier keys have long been idle */
            ck_assert_int_eq(stats_of(scene.limiter).keys, 2 * IDLE);
            scene.now_us += WEIR_HOUR;
        }
        const struct weir_request requests[] = {
            { second, weir_key(&i, sizeof i), 1, 0 },
            { minute, weir_key(&i, sizeof i), 1, 0 },
        };
        struct weir_decision decision;
        must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
        must(decision.allowed && decision.source == WEIR_BY_MEMORY, "there is room");
    }
    ck_assert_int_le(stats_of(scene.limiter).keys, 2 * IDLE + IDLE / 50);
    ck_assert_uint_ge(stats_of(scene.limiter).evictions, 2 * IDLE - IDLE / 50);
}

TEST(with_keep_idle_idle_keys_stay_until_new_keys_need_their_room, 30)
{
    enum { ROOM = 10000 };
    struct weir_options options = *OPTIONS(.max_keys = ROOM);
    options.keep_idle = true;
    OPEN_SCENE(scene, &options);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1s");
    fill(limit, ROOM / 2);
    scene.now_us += WEIR_HOUR;
    for (int64_t i = 0; i < ROOM / 2; i++)
        take_number(limit, ROOM + i, 1);
    for (int i = 0; i < 100000; i++)
        take_number(limit, ROOM, 1);
    ck_assert_int_eq(stats_of(scene.limiter).keys, ROOM);
    ck_assert_uint_eq(stats_of(scene.limiter).evictions, 0);

    scene.now_us -= WEIR_HOUR; /* and the keys of an hour ago have their old states */
    for (int64_t i = 0; i < ROOM / 2; i++)
        must(peek_number(limit, i).remaining == 10 - (1 + i % 10), "an idle key is kept");

    scene.now_us += WEIR_HOUR;
    for (int64_t i = 0; i < ROOM / 2; i++)
        take_number(limit, 2 * ROOM + i, 1);
    assert_few_were_turned_away(&scene, ROOM / 2);
    ck_assert_uint_eq(stats_of(scene.limiter).evictions, ROOM / 2 - stats_of(scene.limiter).full);
}

TEST(idle_keys_are_not_dropped_before_the_slack_has_passed, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1s");
    enum { KEYS = 1000 };
    for (int64_t i = 0; i < KEYS; i++)
        take_number(limit, i, 10);
    scene.now_us += WEIR_SECOND + WEIR_CLOCK_SLACK_US - 1;
    for (int64_t i = 0; i < 10 * KEYS; i++)
        take_number(limit, KEYS + i, 10);
    ck_assert_int_eq(stats_of(scene.limiter).keys, 11 * KEYS);
    scene.now_us -= WEIR_CLOCK_SLACK_US;
    for (int64_t i = 0; i < KEYS; i++)
        must(peek_number(limit, i).remaining == 9, "a key is as it was a microsecond before it was fresh");
}

/* ---- Bytes ---- */

static char long_key[WEIR_MAX_KEY_LEN];

/* Return a key of `len` bytes that begins with the number, truncated if necessary. */
static struct weir_decision take_long(weir_limit *limit, int64_t number, size_t len)
{
    struct weir_decision decision;
    memset(long_key, 'k', len);
    memcpy(long_key, &number, len < sizeof number ? len : sizeof number);
    must_succeed(weir_try(limit, weir_key(long_key, len), 1, &decision));
    return decision;
}

static size_t len_by_chance(struct chance *chance)
{
    return (size_t)chance_magnitude(chance, WEIR_MAX_KEY_LEN);
}

TEST(keys_of_all_sizes_stay_within_max_bytes, 60)
{
    static const int64_t most[] = { INT64_C(1) << 20, INT64_C(5) << 20, INT64_C(64) << 20 };
    for (size_t m = 0; m < sizeof most / sizeof most[0]; m++) {
        int64_t resident_before = resident_bytes();
        OPEN_SCENE(scene, OPTIONS(.max_bytes = most[m]));
        struct chance chance = chance_make(m);
        weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
        for (int64_t i = 0; i < (INSTRUMENTED ? 60000 : 200000); i++) {
            scene.now_us += i < 50000 ? 0 : WEIR_SECOND / 10;
            take_long(limit, i, len_by_chance(&chance));
            if (i % 100 == 0)
                ck_assert_int_le(stats_of(scene.limiter).bytes, most[m]);
        }
        assert_memory_is_bounded(&scene, resident_before);
        ck_assert_uint_gt(stats_of(scene.limiter).full, 0);
        ck_assert_uint_gt(stats_of(scene.limiter).evictions, 0);
        ck_assert_int_ge(stats_of(scene.limiter).bytes, most[m] / 2); /* and most of the room is used */
    }
}

TEST(redefinitions_stay_within_max_bytes, 60)
{
    static const char *const policies[] = {
        "sliding_window limit=10 period=1d blocks=1024", "token_bucket limit=10 period=1d",
        "sliding_window limit=5 period=1d blocks=100",   "leaky_bucket limit=10 period=1d",
        "sliding_window limit=5 period=1d blocks=1000",  "sliding_window limit=8 period=1d blocks=10",
    };
    const int64_t most = (INSTRUMENTED ? INT64_C(2) : INT64_C(8)) << 20;
    int64_t resident_before = resident_bytes();
    for (enum weir_on_full on_full = WEIR_FULL_DENY; on_full <= WEIR_FULL_SHARE; on_full++) {
        OPEN_SCENE(scene, OPTIONS(.max_bytes = most, .on_full = on_full));
        weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1d");
        int64_t keys = 0;
        while (take_number(limit, keys, 8).source == WEIR_BY_MEMORY)
            keys++;
        for (size_t p = 0; p < 2 * sizeof policies / sizeof policies[0]; p++) {
            scene_define_text(&scene, "limit", policies[p % (sizeof policies / sizeof policies[0])]);
            for (int64_t i = 0; i < keys; i++) {
                take_number(limit, i, 1);
                if (i % 100 == 0)
                    must(stats_of(scene.limiter).bytes <= most, "the cap holds at every moment");
            }
        }
        assert_memory_is_bounded(&scene, resident_before);
        ck_assert_uint_gt(stats_of(scene.limiter).full, 0);
        scene.now_us += 2 * WEIR_DAY; /* all keys are idle */
        int64_t in = 0;
        for (int64_t i = 0; i < keys; i++)
            in += take_number(limit, i, 1).source == WEIR_BY_MEMORY;
        ck_assert_int_gt(in, keys / 3); /* their entries are larger than before */
        ck_assert_int_le(stats_of(scene.limiter).bytes, most);
    }
}

/* Return how many small keys still fit. */
static int64_t small_keys_that_fit(struct scene *scene, weir_limit *limit)
{
    int64_t held = 0;
    for (int64_t i = 0, turned_away = 0; turned_away < 2000; i++) {
        bool fits = take_number(limit, (INT64_C(1) << 50) + i, 10).source == WEIR_BY_MEMORY;
        turned_away = fits ? 0 : turned_away + 1;
        held = stats_of(scene->limiter).keys;
    }
    return held;
}

TEST(small_keys_can_use_all_the_room_that_large_keys_leave, 60)
{
    static const size_t lens[] = { 40, 200, 500, 900, 5000, 65536 };
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.max_bytes = INT64_C(4) << 20;
    struct scene scene;
    scene_open(&scene, &options);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1m");
    const int64_t fit = small_keys_that_fit(&scene, limit);
    ck_assert_int_gt(fit, 4 * 1024 * 1024 / 134);
    scene_close(&scene);

    for (size_t l = 0; l < sizeof lens / sizeof lens[0]; l++) {
        scene_open(&scene, &options);
        limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1m");
        for (int64_t i = 0; i < (INSTRUMENTED ? 40000 : 100000); i++) /* more than fit */
            take_long(limit, i, lens[l]);
        ck_assert_uint_gt(stats_of(scene.limiter).full, 0);
        scene.now_us += WEIR_MINUTE;
        ck_assert_int_ge(small_keys_that_fit(&scene, limit), fit * 98 / 100);
        scene_close(&scene);
    }
}

/* ---- Another policy ---- */

TEST(a_decision_begun_before_a_redefinition_gives_no_second_burst, 30)
{
    static const enum weir_verb verbs[] = { WEIR_TAKE, WEIR_PEEK, WEIR_REFUND };
    for (size_t v = 0; v < sizeof verbs / sizeof verbs[0]; v++) {
        OPEN_SCENE(scene, NULL);
        weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1d");
        ck_assert(taken(limit, "key", 1).allowed);
        /* A thread makes its request at the limit of 10 and is held up, here. */
        const struct weir_backend_request late = {
            .limit = limit,
            .key = weir_key_text("key"),
            .hash = key_hash(limit, weir_key("key", 3)),
            .cost = 1,
            .now_us = scene.now_us,
            .plan_version = plan_cell_version(&limit->plan),
            .limit_id = limit->id,
            .verb = (uint8_t)verbs[v],
        };
        scene_define_text(&scene, "limit", "fixed_window limit=1000 period=1d");
        ck_assert(taken(limit, "key", 799).allowed);
        struct weir_backend *backend = scene.limiter->backend;
        struct weir_decision decision;
        must_succeed(backend->ops->decide(backend, &late, 1, false, INT64_MAX, &decision));
        int64_t used = verbs[v] == WEIR_TAKE ? 801 : verbs[v] == WEIR_PEEK ? 800 : 799;
        ck_assert(decision.allowed);
        ck_assert_int_eq(decision.remaining, 1000 - used);
        ck_assert_int_eq(peeked(limit, "key", 1).remaining, 1000 - used);
    }
}

TEST(a_limit_redefined_to_its_current_or_former_policy_keeps_its_keys, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "sliding_window limit=100 period=1h");
    for (int i = 0; i < 30; i++) {
        ck_assert_int_eq(taken(limit, "key", 3).remaining, 100 - 3 * (i + 1));
        if (i % 3 == 0) /* unchanged; otherwise another policy comes and goes, with or without a peek */
            scene_define_text(&scene, "limit", "sliding_window limit=100 period=1h");
        else
            scene_define_text(&scene, "limit", "token_bucket limit=200 period=30d");
        if (i % 3 == 2)
            ck_assert_int_eq(taken(limit, "key", 201).remaining, 200 - 3 * (i + 1));
        scene_define_text(&scene, "limit", "sliding_window limit=100 period=1h");
    }
    ck_assert_int_eq(stats_of(scene.limiter).keys, 1);
}

/* ---- The table ---- */

TEST(a_table_that_grows_to_a_million_keys_loses_none, 60)
{
    const int64_t keys = INSTRUMENTED ? 100000 : 1000000;
    int64_t resident_before = resident_bytes();
    OPEN_SCENE(scene, OPTIONS(.max_keys = keys));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    for (int64_t i = 0; i < keys; i++) {
        must(take_number(limit, i, 1 + i % 10).source == WEIR_BY_MEMORY, "there is room for max_keys keys");
        if ((i & (i - 1)) == 0) { /* at powers of two: the tables grow with their content */
            struct shape shape = shape_of(&scene);
            ck_assert_int_eq(shape.keys, i + 1);
            ck_assert(shape.greatest_load <= BUCKETS_KEYS);
        }
    }
    for (int64_t i = 0; i < keys; i++)
        must(peek_number(limit, i).remaining == 9 - i % 10, "a key is found again as it was left");
    struct shape shape = shape_of(&scene);
    ck_assert_int_eq(shape.keys, keys);
    ck_assert_msg(shape.least_load > 0.9 * BUCKETS_KEYS && shape.greatest_load <= BUCKETS_KEYS,
                  "loads run from %g to %g", shape.least_load, shape.greatest_load);
    ck_assert_uint_le(shape.longest_chain, CHAIN_MOST);
    int64_t bytes = stats_of(scene.limiter).bytes, resident = resident_bytes() - resident_before;
    ck_assert_msg(bytes <= 128 * keys, "%g bytes a key", (double)bytes / (double)keys);
    if (!INSTRUMENTED)
        ck_assert_msg(resident <= 128 * keys + (INT64_C(1) << 20), "%g resident bytes a key",
                      (double)resident / (double)keys);
}

/* Keys of 8 bytes that uthash's default hash puts into one bucket of a table of up to 4,096. */
TEST(keys_that_collide_under_the_default_hash_of_uthash_are_spread, 60)
{
    enum { COLLIDING = 20000, LOW_BITS = 4095 };
    static uint64_t keys[COLLIDING];
    size_t found = 0;
    for (uint64_t i = 0; found < (INSTRUMENTED ? COLLIDING / 10 : COLLIDING); i++) {
        unsigned hash;
        HASH_JEN(&i, sizeof i, hash);
        if ((hash & LOW_BITS) == 1234)
            keys[found++] = i;
    }
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    for (size_t i = 0; i < found; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(limit, weir_key(&keys[i], sizeof keys[i]), 1, &decision));
        must(decision.remaining == 9, "a fresh key has ten permits");
    }
    struct shape shape = shape_of(&scene);
    ck_assert_int_eq(shape.keys, (int64_t)found);
    ck_assert_uint_le(shape.longest_chain, CHAIN_MOST);
    ck_assert(shape.greatest_load <= BUCKETS_KEYS); /* the tables still grow */
    for (size_t i = 0; i < found; i++) {
        struct weir_decision decision;
        must_succeed(weir_peek(limit, weir_key(&keys[i], sizeof keys[i]), 1, &decision));
        must(decision.remaining == 9, "a key is found again");
    }
}

/* An attacker cannot know the secret; but even if keys collide, their table continues to grow. */
TEST(growth_is_not_switched_off_by_keys_that_share_a_bucket, 30)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1000000));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    const struct table *table = table_of(&scene);
    /* Keys of one shard whose hashes agree in the low bits, as an attacker who had the secret would choose them. */
    unsigned colliding = 0;
    for (int64_t i = 0; colliding < 200; i++) {
        struct wide_key key = wide_key(i);
        uint64_t hash = key_hash(limit, weir_key(key.bytes, 16));
        if (table_shard(table, hash)->number != 7 || (hash & 63) != 0)
            continue;
        take_number(limit, i, 1);
        colliding++;
    }
    for (int64_t i = INT64_C(1) << 32; table->shards[7].first->hh.tbl->num_items < 3000; i++) {
        struct wide_key key = wide_key(i);
        if (table_shard(table, key_hash(limit, weir_key(key.bytes, 16)))->number == 7)
            take_number(limit, i, 1);
    }
    ck_assert_uint_ge(table->shards[7].buckets.count, 3000 / BUCKETS_KEYS);
    ck_assert_uint_le(shape_of(&scene).longest_chain, 80);
}

TEST(the_same_key_under_two_limits_is_two_keys, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *first = scene_define_text(&scene, "first", "token_bucket limit=10 period=1h");
    weir_limit *second = scene_define_text(&scene, "second", "token_bucket limit=10 period=1h");
    for (int64_t i = 0; i < 1000; i++) {
        take_number(first, i, 3);
        take_number(second, i, 4);
    }
    for (int64_t i = 0; i < 1000; i++) {
        must(peek_number(first, i).remaining == 7, "the first limit has its own count");
        must(peek_number(second, i).remaining == 6, "and so has the second");
    }
    ck_assert_int_eq(stats_of(scene.limiter).keys, 2000);
}

TEST(a_fresh_key_takes_no_memory, 30)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    const int64_t empty = stats_of(scene.limiter).bytes;
    for (int64_t i = 0; i < 10000; i++) {
        struct wide_key key = wide_key(i);
        must(!take_number(limit, i, 11).allowed, "more than a fresh key has");
        must(peek_number(limit, i).allowed, "a peek leaves no trace");
        must_succeed(weir_refund(limit, weir_key(key.bytes, 16), 1));
        must_succeed(weir_reset(limit, weir_key(key.bytes, 16)));
    }
    ck_assert_int_eq(stats_of(scene.limiter).keys, 0);
    ck_assert_int_eq(stats_of(scene.limiter).bytes, empty);
    for (int64_t i = 0; i < 1000; i++)
        take_number(limit, i, 2);
    ck_assert_int_eq(stats_of(scene.limiter).keys, 1000);
    for (int64_t i = 0; i < 1000; i++) {
        struct wide_key key = wide_key(i);
        must_succeed(i % 2 ? weir_refund(limit, weir_key(key.bytes, 16), 2)
                           : weir_reset(limit, weir_key(key.bytes, 16)));
    }
    ck_assert_int_eq(stats_of(scene.limiter).keys, 0);
    ck_assert_uint_eq(stats_of(scene.limiter).evictions, 0); /* refunded keys, not evicted ones */
}
