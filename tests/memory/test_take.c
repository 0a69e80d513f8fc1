/* test_take.c - the short way to a decision (memory/take.c) leads where the
 * long one does.
 */
#include "support.h"

#include "backends/memory/look_take.h"
#include "backends/memory/memory.h"
#include "core/limiter/limiter.h"
#include "core/limiter/take.h"

#include <stdio.h>

/* ---- What is not for it ---- */

#define KEY "key-one"

struct stand {
    struct scene scene;
    struct table *table;
    weir_limit *limit;
    const char *key;
};

static struct memory *stand_memory(const struct stand *stand)
{
    return (struct memory *)stand->scene.limiter->backend;
}

/* One whose record is in a cell, and one whose record lies behind its entry. */
static const char *const keys[] = { KEY, "key-one of a length that no cell has room for" };
enum { STAND_KEYS = sizeof keys / sizeof keys[0] };

static void stand_open(struct stand *stand, const char *policy, const char *key)
{
    memset(stand, 0, sizeof *stand);
    scene_open(&stand->scene, OPTIONS(.max_keys = 1000));
    stand->table = &stand_memory(stand)->table;
    stand->limit = scene_define_text(&stand->scene, "own", policy);
    stand->key = key;
    must(taken(stand->limit, key, 1).allowed, "a fresh key has all permits");
}

static void stand_close(struct stand *stand)
{
    scene_close(&stand->scene);
}

static bool sees(struct stand *stand, weir_limit *limit, const char *key, const struct weir_backend_hint *hint,
                 struct look *look)
{
    const struct weir_key bytes = weir_key_text(key);
    const struct rule *rule = look_rule(stand->table, limit);
    const uint64_t hash = key_hash(limit, bytes);
    const struct look_groups at = look_fetch(stand->table, hash);
    return rule && look_for_take(stand->table, rule, bytes, hash, &at, hint, look);
}

static struct record *record_of(struct stand *stand)
{
    struct look look;
    must(sees(stand, stand->limit, stand->key, NULL, &look), "it is there");
    must(cells_has(&stand->table->cells, look.record) == cells_fit(GREEDY_WORDS, strlen(stand->key)),
         "a short one is in a cell");
    return look.record;
}

static struct weir_backend_hint hint_to(const struct stand *stand, struct record *record)
{
    struct weir_backend_hint hint = { { 0, 0 } };
    const void *entry = (const char *)record - offsetof(struct entry, own);
    const bool in_cell = cells_has(&stand->table->cells, record);
    const size_t bytes = entry_bytes(GREEDY_WORDS, strlen(stand->key));
    look_hint(stand->table, &hint, record, in_cell ? 0 : slab_place(&stand->table->slab, entry, bytes),
              slab_recast(&stand->table->slab));
    return hint;
}

TEST(a_take_sees_only_the_record_of_its_key, 10)
{
    for (int k = 0; k < STAND_KEYS; k++) {
        CLOSED_BY(stand_close) struct stand stand;
        stand_open(&stand, "token_bucket limit=10 period=365d", keys[k]);
        weir_limit *other = scene_define_text(&stand.scene, "other", "token_bucket limit=10 period=365d");
        must(taken(other, "others", 1).allowed, "a fresh key has all permits");
        struct record *record = record_of(&stand);
        const struct weir_backend_hint hint = hint_to(&stand, record), none = { { 0, 0 } };
        struct look look;
        for (size_t i = 0; i < strlen(keys[k]); i++) {
            char differs[64];
            snprintf(differs, sizeof differs, "%s", keys[k]);
            differs[i]++;
            ck_assert(!sees(&stand, stand.limit, differs, NULL, &look));
            ck_assert_msg(!sees(&stand, stand.limit, differs, &hint, &look), "%s", differs);
            differs[i] = 0;
            ck_assert_msg(!sees(&stand, stand.limit, differs, &hint, &look), "%s", differs);
            snprintf(differs, sizeof differs, "%s2", keys[k]);
            ck_assert_msg(!sees(&stand, stand.limit, differs, &hint, &look), "%s", differs);
        }
        ck_assert(sees(&stand, stand.limit, keys[k], &hint, &look) && look.record == record);
        ck_assert(!sees(&stand, stand.limit, keys[k], &none, &look));
        ck_assert(!sees(&stand, other, keys[k], &hint, &look));
    }
}

TEST(a_take_leaves_unexpected_records_alone, 10)
{
    for (int k = 0; k < STAND_KEYS; k++) {
        CLOSED_BY(stand_close) struct stand stand;
        const char *key = keys[k];
        stand_open(&stand, "token_bucket limit=10 period=365d", key);
        struct record *record = record_of(&stand);
        struct weir_backend_hint hint = hint_to(&stand, record);
        struct look look;

        uint64_t word = record_word(record);
        must(record_claim(record, &word), "nobody has claimed it");
        ck_assert(!sees(&stand, stand.limit, key, NULL, &look) && !sees(&stand, stand.limit, key, &hint, &look));
        record_release(record, word_next(word));
        ck_assert(sees(&stand, stand.limit, key, NULL, &look) && sees(&stand, stand.limit, key, &hint, &look));

        atomic_fetch_add(&stand.table->slab.recast, 1); /* its page may serve another size; a cell stays a cell */
        ck_assert(sees(&stand, stand.limit, key, &hint, &look) == cells_has(&stand.table->cells, record));
        hint = hint_to(&stand, record);
        ck_assert(sees(&stand, stand.limit, key, &hint, &look));

        scene_define_text(&stand.scene, "own", "token_bucket limit=9 period=365d");
        ck_assert(!sees(&stand, stand.limit, key, NULL, &look) && !sees(&stand, stand.limit, key, &hint, &look));
        ck_assert_int_eq(taken(stand.limit, key, 1).limit, 9);
        ck_assert(!sees(&stand, stand.limit, key, NULL, &look)); /* its state notes where it came from */

        must_succeed(weir_reset(stand.limit, weir_key_text(key)));
        ck_assert(!sees(&stand, stand.limit, key, NULL, &look) && !sees(&stand, stand.limit, key, &hint, &look));
    }
}

static bool sees_summary(const struct stand *stand, const char *key, struct look *look)
{
    const struct weir_key bytes = weir_key_text(key);
    const struct rule *rule = look_rule(stand->table, stand->limit);
    const uint64_t hash = key_hash(stand->limit, bytes);
    const struct look_groups at = look_fetch(stand->table, hash);
    return rule && look_for_summary(stand->table, rule, bytes, hash, &at, NULL, look);
}

TEST(a_take_by_a_summary_leaves_unexpected_records_alone, 10)
{
    static const struct {
        const char *policy, *key;
        bool has_summary;
    } cases[] = { { "sliding_window limit=10 period=365d", KEY, true },
                  { "sliding_window limit=10 period=365d", "key-one of a length that no cell has room for", false },
                  { "sliding_window limit=10 period=365d blocks=1", KEY, false }, /* its cell has all of the state */
                  { "token_bucket limit=10 period=365d", KEY, false } };
    struct look look;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLOSED_BY(stand_close) struct stand stand;
        stand_open(&stand, cases[i].policy, cases[i].key);
        ck_assert_int_eq(sees_summary(&stand, cases[i].key, &look), cases[i].has_summary);
        ck_assert(!sees_summary(&stand, "key-two", &look));
        if (!cases[i].has_summary)
            continue;
        uint64_t word = record_word(look.record);
        must(record_claim(look.record, &word), "nobody has claimed it");
        ck_assert(!sees_summary(&stand, KEY, &look));
        record_release(look.record, word_next(word));
        ck_assert(sees_summary(&stand, KEY, &look));
        scene_define_text(&stand.scene, "own", "sliding_window limit=9 period=365d");
        ck_assert(!sees_summary(&stand, KEY, &look));
        ck_assert_int_eq(taken(stand.limit, KEY, 1).limit, 9);
        ck_assert(sees_summary(&stand, KEY, &look));
        must_succeed(weir_reset(stand.limit, weir_key_text(KEY)));
        ck_assert(!sees_summary(&stand, KEY, &look));
    }
}

/* Behind the only entry of a table, memory is zero, as the rest of this key is.
 */
TEST(a_take_sees_no_key_of_a_length_that_no_word_holds, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    stand_open(&stand, "token_bucket limit=10 period=365d", KEY);
    static const char longest[SLAB_MAX_ENTRY + sizeof KEY] = KEY;
    const struct weir_key key = weir_key(longest, SLAB_MAX_ENTRY + strlen(KEY));
    const struct weir_backend_hint hint = hint_to(&stand, record_of(&stand));
    struct look look;
    const struct rule *rule = look_rule(stand.table, stand.limit);
    ck_assert_ptr_nonnull(rule);
    ck_assert(!look_for_take(stand.table, rule, key, key_hash(stand.limit, key), NULL, &hint, &look));
}

TEST(the_fast_take_decides_greedy_buckets_only, 10)
{
    static const char *const policies[] = { "token_bucket limit=10 period=365d refill=interval",
                                            "fixed_window limit=10 period=365d", "leaky_bucket limit=10 period=365d",
                                            "sliding_window limit=10 period=365d blocks=7" };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        CLOSED_BY(stand_close) struct stand stand;
        stand_open(&stand, policies[i], KEY);
        struct look look;
        ck_assert(!sees(&stand, stand.limit, KEY, NULL, &look));
        ck_assert_int_eq(taken(stand.limit, KEY, 1).remaining, 8);
    }
}

/* ---- Beside the long way ---- */

enum { KEYS = 40, STEPS = INSTRUMENTED ? 4000 : 40000 };

/* [0] has the short way, [1] has not. */
struct pair {
    enum kind kind; /* the usual one */
    struct scene scenes[2];
    weir_limit *limits[2], *others[2];
    weir_handle *handles[2][KEYS];
    struct weir_reservation open[2][KEYS]; /* not settled */
};

/* Return a key of 4 or of 16 bytes: the latter have their own version of the short way. */
static struct weir_key pair_key(int key)
{
    static unsigned char bytes[KEYS][16];
    memcpy(bytes[key], &key, sizeof key);
    return weir_key(bytes[key], key % 3 == 0 ? sizeof key : sizeof bytes[key]);
}

static void pair_define(struct pair *pair, struct chance *chance, const char *name)
{
    const enum kind kind = chance_one_in(chance, 3) ? (enum kind)chance_between(chance, 0, KIND_COUNT - 1) : pair->kind;
    const struct weir_policy policy = policy_by_chance(chance, kind);
    if (weir_policy_check(&policy, NULL, 0) != WEIR_OK)
        return;
    const bool ends = strchr(name, '/') && chance_one_in(chance, 2);
    for (int i = 0; i < 2; i++)
        must_succeed(weir_limit_define(pair->scenes[i].limiter, name, ends ? NULL : &policy, NULL));
}

static void pair_open(struct pair *pair, enum kind kind, int64_t top_keys, const char *other)
{
    const char *const own = kind == KIND_SLIDING ? "sliding_window limit=20 period=1s blocks=4"
                                                 : "token_bucket limit=20 period=1s burst=30 debt=3";
    memset(pair, 0, sizeof *pair);
    pair->kind = kind;
    for (int i = 0; i < 2 * KEYS; i++)
        pair->open[i / KEYS][i % KEYS].permits = -1;
    for (int i = 0; i < 2; i++) {
        scene_open(&pair->scenes[i], OPTIONS(.max_keys = 1000, .keep_idle = true, .top_keys = top_keys));
        pair->scenes[i].log_allowed = true; /* of what is refused */
        pair->limits[i] = scene_define_text(&pair->scenes[i], "own", own);
        pair->others[i] = scene_define_text(&pair->scenes[i], "other", other);
        for (int key = 0; key < KEYS; key++)
            must_succeed(weir_key_resolve(pair->limits[i], pair_key(key), &pair->handles[i][key]));
    }
    must(limit_takes(pair->limits[0]) != NULL, "local mode has the short way");
    pair->scenes[1].limiter->takes = NULL; /* of limits that are defined from now on, and of this one: */
    atomic_store(&pair->limits[1]->takes, NULL);
    atomic_store(&pair->others[1]->takes, NULL);
}

static void pair_close(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        for (int key = 0; key < KEYS; key++)
            weir_handle_free(pair->handles[i][key]);
        scene_close(&pair->scenes[i]);
    }
}

static void pair_ask(struct pair *pair, struct chance *chance)
{
    static const int64_t refused_costs[] = { 0, -1, WEIR_MAX_PERMITS + 1, INT64_MIN };
    const int key = (int)chance_between(chance, 0, KEYS - 1);
    const int64_t cost = chance_one_in(chance, 10)    ? 1 + chance_magnitude(chance, 1000)
                         : chance_one_in(chance, 500) ? refused_costs[chance_between(chance, 0, 3)]
                                                      : 1 + chance_between(chance, 0, 3);
    const int64_t way = chance_between(chance, 0, 3);
    const bool is_late = chance_one_in(chance, 500);
    struct weir_decision out[2];
    int errors[2];
    memset(out, 0x55, sizeof out);
    for (int i = 0; i < 2; i++) {
        const struct weir_key bytes = pair_key(key);
        const int64_t now_us = is_late ? WEIR_MAX_TIME_US : pair->scenes[i].now_us;
        if (way == 0)
            errors[i] = weir_try(pair->limits[i], bytes, cost, &out[i]);
        else if (way == 1)
            errors[i] = weir_try_at(pair->limits[i], bytes, cost, now_us + 1, &out[i]);
        else
            errors[i] = weir_handle_try(pair->handles[i][key], cost, way == 2 ? 0 : now_us + 1, &out[i]);
    }
    ck_assert_int_eq(errors[0], errors[1]);
    ck_assert(errors[0] == WEIR_OK || errors[0] == WEIR_EINVAL);
    ck_assert_mem_eq(&out[0], &out[1], sizeof out[0]);
}

/* Ask in a batch: for existing keys and others, some more than once, by the limit and by another one. */
static void pair_ask_many(struct pair *pair, struct chance *chance)
{
    enum { MOST = 70 };
    static const char far[] = "a key that no cell has room for, and that is there at times";
    struct weir_request requests[2][MOST];
    struct weir_decision out[2][MOST];
    const size_t n = (size_t)chance_between(chance, 0, MOST);
    memset(out, 0x55, sizeof out);
    for (size_t i = 0; i < n; i++) {
        const struct weir_key key = chance_one_in(chance, 10) ? weir_key(far, (size_t)chance_between(chance, 17, 59))
                                                              : pair_key((int)chance_between(chance, 0, KEYS - 1));
        const int64_t cost = chance_one_in(chance, 10) ? 1 + chance_magnitude(chance, 1000) : 1;
        const bool has_time = chance_one_in(chance, 3), is_other = chance_one_in(chance, 5);
        for (int k = 0; k < 2; k++)
            requests[k][i] = (struct weir_request){ .limit = is_other ? pair->others[k] : pair->limits[k],
                                                    .key = key,
                                                    .cost = cost,
                                                    .now_us = has_time ? pair->scenes[k].now_us + 1 : 0 };
    }
    for (int k = 0; k < 2; k++)
        must_succeed(weir_try_batch(pair->scenes[k].limiter, requests[k], n, out[k]));
    ck_assert_mem_eq(out[0], out[1], n * sizeof out[0][0]);
}

/* Settle what the key has reserved, for less or for more, and reserve anew. */
static void pair_reserve(struct pair *pair, struct chance *chance)
{
    const int key = (int)chance_between(chance, 0, KEYS - 1);
    const int64_t cost = 1 + chance_magnitude(chance, 40), actual = chance_between(chance, 0, 12);
    const struct weir_key bytes = pair_key(key);
    struct weir_decision out[2];
    memset(out, 0x55, sizeof out);
    for (int i = 0; i < 2; i++) {
        must_succeed(weir_settle(pair->limits[i], bytes, &pair->open[i][key], actual));
        must_succeed(weir_reserve(pair->limits[i], bytes, cost, &out[i], &pair->open[i][key]));
    }
    ck_assert_mem_eq(&out[0], &out[1], sizeof out[0]);
    ck_assert_mem_eq(&pair->open[0][key], &pair->open[1][key], sizeof pair->open[0][key]);
}

static void pair_do_else(struct pair *pair, struct chance *chance)
{
    static const char *const names[] = { "own", "own", "own/*", "own/\1\\*" };
    const int key = (int)chance_between(chance, 0, KEYS - 1);
    const int64_t what = chance_between(chance, 0, 40);
    if (what == 0)
        pair_define(pair, chance, names[chance_between(chance, 0, 2)]);
    const int64_t step_us = what == 1 ? -chance_magnitude(chance, 4 * WEIR_SECOND)
                                      : chance_magnitude(chance, WEIR_SECOND);
    for (int i = 0; i < 2; i++) {
        const struct weir_key bytes = pair_key(key);
        pair->scenes[i].now_us += what % 2 ? step_us : 0;
        if (what == 2)
            must_succeed(weir_reset(pair->limits[i], bytes));
        else if (what == 4)
            must_succeed(weir_refund(pair->limits[i], bytes, 2));
        else if (what == 6)
            must_succeed(weir_charge(pair->limits[i], bytes, 50));
    }
}

static void assert_counted_alike(weir_limit *const limits[2])
{
    struct weir_limit_stats stats[2] = { { .size = sizeof stats[0] }, { .size = sizeof stats[0] } };
    for (int i = 0; i < 2; i++)
        must_succeed(weir_limit_stats_read(limits[i], &stats[i]));
    ck_assert_mem_eq(&stats[0], &stats[1], sizeof stats[0]);
}

/* No entry is filed under a time after that at which it becomes idle. Return how many there are.
 * The scene's thread is the only one. */
static int assert_filed_in_time(struct scene *scene)
{
    struct table *table = &((struct memory *)scene->limiter->backend)->table;
    int count = 0;
    for (size_t number = 0; number < table->shard_count; number++) {
        const struct shard *shard = &table->shards[number];
        for (unsigned i = 0; i < shard->buckets.count; i++)
            for (UT_hash_handle *handle = shard->buckets.heads[i].hh_head; handle; handle = handle->hh_next) {
                const struct entry *entry = (const struct entry *)(const void *)handle;
                if (entry == shard->first)
                    continue;
                ck_assert(due_has(entry));
                ck_assert_int_le(atomic_load(&entry->due_us), entry_fresh_at_us(table, entry));
                count++;
            }
    }
    return count;
}

TEST_EACH(the_fast_take_decides_as_the_general_path, 2, 60)
{
    static const enum kind kinds[] = { KIND_GREEDY, KIND_SLIDING };
    for (int run = 0; run < 8; run++) {
        struct chance chance = chance_make((uint64_t)run);
        CLOSED_BY(pair_close) struct pair pair;
        pair_open(&pair, kinds[_i], 4, "token_bucket limit=3 period=1s");
        for (int step = 0; step < STEPS; step++) {
            pair_ask(&pair, &chance);
            if (chance_one_in(&chance, 2))
                pair_reserve(&pair, &chance);
            if (chance_one_in(&chance, 20))
                pair_ask_many(&pair, &chance);
            if (chance_one_in(&chance, 4))
                pair_do_else(&pair, &chance);
        }
        assert_counted_alike(pair.limits);
        assert_counted_alike(pair.others);
        ck_assert_int_gt(assert_filed_in_time(&pair.scenes[0]), 0);
        assert_filed_in_time(&pair.scenes[1]);
    }
}

TEST(a_fast_denial_counts_for_the_top_keys_and_a_shadow_turns_it_into_an_admission, 10)
{
    static const char *const policies[] = { "token_bucket limit=1 period=1h", "token_bucket limit=1 period=1h shadow",
                                            "sliding_window limit=1 period=1h",
                                            "sliding_window limit=1 period=1h shadow" };
    for (int i = 0; i < 4; i++) {
        OPEN_SCENE(scene, OPTIONS(.top_keys = 4));
        weir_limit *limit = scene_define_text(&scene, "own", policies[i]);
        struct weir_top_key denied[4];
        must(taken(limit, "key", 1).allowed, "a fresh key has all permits");
        for (int k = 0; k < 1000; k++) { /* of denials that follow each other closely, one in 32 is noted */
            const struct weir_decision decision = taken(limit, "key", 1);
            ck_assert_int_eq(decision.allowed, i % 2);
            ck_assert_int_eq(decision.would_deny, i % 2);
        }
        ck_assert_int_eq(weir_top_keys_read(scene.limiter, denied, 4, false), 1);
    }
}

/* Nothing is redefined here, so that the short way is never left for good. */
TEST(a_fast_batch_decides_as_the_general_path, 60)
{
    static const char *const others[] = { "token_bucket limit=3 period=1s", "token_bucket limit=3 period=1s shadow" };
    for (int run = 0; run < 4; run++) {
        struct chance chance = chance_make((uint64_t)run);
        CLOSED_BY(pair_close) struct pair pair;
        pair_open(&pair, KIND_GREEDY, run / 2 * 4, others[run % 2]);
        for (int step = 0; step < STEPS / 20; step++) {
            const int64_t step_us = chance_one_in(&chance, 50) ? -chance_magnitude(&chance, 4 * WEIR_SECOND)
                                                               : chance_magnitude(&chance, WEIR_SECOND / 2);
            for (int i = 0; i < 2; i++)
                pair.scenes[i].now_us += step_us;
            pair_ask_many(&pair, &chance);
        }
        struct weir_top_key denied[4];
        ck_assert(run < 2 || weir_top_keys_read(pair.scenes[0].limiter, denied, 4, false) > 0);
        assert_counted_alike(pair.limits);
        assert_counted_alike(pair.others);
    }
}

/* A batch chooses between a key's two groups without a branch. */
TEST(a_batch_finds_the_cell_that_a_single_request_finds, 10)
{
    enum { MANY = 1500, LARGE = 1000 };
    OPEN_SCENE(scene, OPTIONS(.max_keys = 2 * MANY));
    const struct table *table = &((struct memory *)scene.limiter->backend)->table;
    weir_limit *limit = scene_define_text(&scene, "own", "token_bucket limit=10 period=10s");
    struct weir_decision decision;
    int large = 0, in_second = 0, found = 0;
    for (int64_t number = 0; number < 2 * MANY; number++) { /* the latter half has no cells */
        const uint64_t hash = key_hash(limit, weir_key(&number, sizeof number));
        if (number < MANY)
            must_succeed(weir_try(limit, weir_key(&number, sizeof number), 1, &decision));
        const struct look_groups at = look_fetch(table, hash);
        const struct look_groups both = look_fetch_by(table, hash, true);
        struct record *one = NULL, *other = look_probable_cell(&both, hash);
        const bool is_there = look_first_cell(table, hash, &at, &one);
        ck_assert(both.first == at.first && both.second == look_second(table, hash, &at));
        ck_assert(is_there ? other == one : cells_has(&table->cells, other));
        found += is_there;
        large += at.second != NULL;
        in_second += at.second && is_there && cells_matches(at.first, cells_tag(hash)) == 0;
    }
    ck_assert_int_gt(found, LARGE);
    ck_assert_int_gt(large, LARGE);
    ck_assert_int_gt(in_second, 0);
}

TEST(a_batch_finds_the_first_cell_with_the_tag_in_either_group, 10)
{
    static const uint64_t tags[] = { 0, 1, 2, 0x7fff, 0x8000, 0xffff };
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        for (unsigned used = 0; used < 1u << 2 * CELLS_SLOTS; used++) { /* the cells with the tag */
            const uint64_t hash = UINT64_C(0x5a5a000012345678) | tags[i] << 32, tag = cells_tag(hash);
            const uint64_t free_or_other = i % 2 ? 0 : tag ^ 0x100;
            struct cell_group groups[2];
            struct record *expected = NULL;
            for (unsigned cell = 0, g = 0; g < 2; g++) {
                uint64_t head = CELLS_MARKED;
                for (unsigned slot = 0; slot < CELLS_SLOTS; slot++, cell++) {
                    const bool has_tag = (used >> cell & 1) != 0;
                    head |= (has_tag ? tag : free_or_other) << 16 * slot;
                    if (has_tag && !expected)
                        expected = cells_record(&groups[g], slot);
                }
                atomic_init(&groups[g].head, head);
            }
            const struct look_groups at = { .both = { &groups[0], &groups[1] } };
            if (!expected)
                expected = cells_record(&groups[1], CELLS_SLOTS - 1);
            ck_assert_ptr_eq(look_probable_cell(&at, hash), expected);
        }
}

/* Every request is checked before the first one is decided, in the first part of a batch and behind it. */
TEST(a_batch_with_a_wrong_argument_takes_nothing, 10)
{
    enum { MANY = FETCH_GROUP + 9 };
    static const char text[WEIR_MAX_KEY_LEN + 1];
    const struct weir_key key = weir_key_text(KEY), other = weir_key_text("another key");
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1000));
    OPEN_SCENE(another, OPTIONS(.max_keys = 1000));
    scene.log_allowed = true;
    weir_limit *limit = scene_define_text(&scene, "own", "token_bucket limit=1000000000 period=365d");
    weir_limit *foreign = scene_define_text(&another, "own", "token_bucket limit=1000000000 period=365d");
    const struct {
        struct weir_request request;
        bool is_valid;
    } cases[] = {
        { { limit, key, 1, 0 }, true },
        { { limit, key, INT64_C(1) << 29, WEIR_MAX_TIME_US }, true },
        { { limit, key, WEIR_MAX_PERMITS, 1 }, true },
        { { limit, weir_key(text, 1), 1, 0 }, true },
        { { limit, weir_key(text, WEIR_MAX_KEY_LEN), 1, 0 }, true },
        { { limit, key, 0, 0 }, false },
        { { limit, key, -1, 0 }, false },
        { { limit, key, WEIR_MAX_PERMITS + 1, 0 }, false },
        { { limit, key, INT64_MIN, 0 }, false },
        { { limit, key, 1, -1 }, false },
        { { limit, key, 1, WEIR_MAX_TIME_US + 1 }, false },
        { { limit, key, 1, INT64_MIN }, false },
        { { limit, weir_key(text, 0), 1, 0 }, false },
        { { limit, weir_key(text, WEIR_MAX_KEY_LEN + 1), 1, 0 }, false },
        { { limit, weir_key(NULL, 16), 1, 0 }, false },
        { { limit, weir_key(NULL, 3), 1, 0 }, false },
        { { NULL, key, 1, 0 }, false },
        { { foreign, key, 1, 0 }, false },
    };
    static const int places[] = { 0, 1, FETCH_GROUP - 1, FETCH_GROUP, MANY - 1 };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
            struct weir_request requests[MANY];
            struct weir_decision decisions[MANY], left;
            for (int i = 0; i < MANY; i++)
                requests[i] = (struct weir_request){ limit, other, 1, 0 };
            requests[places[p]] = cases[c].request;
            must_succeed(weir_reset(limit, other));
            ck_assert_int_eq(weir_try_batch(scene.limiter, requests, MANY, decisions),
                             cases[c].is_valid ? WEIR_OK : WEIR_EINVAL);
            must_succeed(weir_peek(limit, other, 1, &left));
            ck_assert_int_eq(left.limit - left.remaining, cases[c].is_valid ? MANY - 1 : 0);
        }
}
