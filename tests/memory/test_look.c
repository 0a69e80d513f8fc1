/* test_look.c - nothing that happens between the steps of a decision without a mutex does harm.
 *
 * The tests take the steps of memory/look.h one by one and do between two of them what another thread could do. So they
 * meet each order with certainty. test_look_load.c tries the remaining orders with threads.
 */
#include "support.h"

#include "backends/memory/look_take.h"
#include "backends/memory/memory.h"
#include "core/api/verbs.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = INSTRUMENTED ? 300 : 3000 };

enum { SIZE = 10 };

/* ---- A table at hand ---- */

struct stand {
    struct scene scene;
    struct table *table;
    weir_limit *own, *other;
    size_t own_words, other_words;
};

static size_t words_of(weir_limit *limit)
{
    struct weir_plan plan;
    plan_cell_read(&limit->plan, &plan);
    return state_words(&plan);
}

static void stand_open(struct stand *stand, const char *own, const char *other)
{
    scene_open(&stand->scene, OPTIONS(.max_keys = 1000)); /* few shards */
    stand->table = &((struct memory *)stand->scene.limiter->backend)->table;
    stand->own = scene_define_text(&stand->scene, "own", own);
    stand->other = scene_define_text(&stand->scene, "other", other);
    stand->own_words = words_of(stand->own);
    stand->other_words = words_of(stand->other);
}

static void stand_close(struct stand *stand)
{
    scene_close(&stand->scene);
}

static struct weir_backend_request ask(struct stand *stand, weir_limit *limit, const char *key, int64_t cost,
                                       enum weir_verb verb)
{
    return backend_request(limit, weir_key_text(key), cost, stand->scene.now_us, verb);
}

static struct look look_for(struct stand *stand, const struct weir_backend_request *request)
{
    struct look look = look_guess(stand->table, request);
    must(look_by_cells(stand->table, request, &look), "the key is found by the index");
    must(rule_is_current(look.rule, request), "the key is under the plan in force");
    return look;
}

/* ---- What another thread may do between two steps ---- */

/* The key, whose record lies in a cell, is divided between a cell and its entry, or lies behind its entry. */
static const char *const keys[] = { "key-one", "key-one of so many bytes that no cell holds it" };
enum { KEYS = sizeof keys / sizeof keys[0] };
static const char *the_key = "key-one";
#define KEY the_key

/* The writable part of a cell, or of an entry of 128 bytes. */
enum { WORDS = 8 };

struct picture {
    uint64_t word;
    int64_t words[WORDS], apart[WORDS];
};

static struct picture picture_of(const struct stand *stand, const struct record *record)
{
    struct picture picture = { .word = record_word(record) };
    const bool in_cell = cells_has(&stand->table->cells, record);
    const struct entry *entry = look_entry(stand->table, record);
    record_read(record, 0, picture.words, in_cell ? CELL_WORDS : WORDS);
    if (in_cell && entry && entry_is_apart(entry))
        entry_read(entry, 0, picture.apart, SUMMARY_WORDS + 1); /* the shortest state that lies there */
    return picture;
}

static void let_go(struct record *record)
{
    record_release(record, word_next(record_held_word(record)));
}

/* Write a key of `len` digits that is in one shard with the own limit's KEY. A shard has one group at first, so that a
 * key takes the cell that another one has left. */
static void same_shard(struct stand *stand, weir_limit *limit, int len, char *out)
{
    const struct shard *shard = table_shard(stand->table, key_hash(stand->own, weir_key_text(KEY)));
    for (int i = 0; i == 0 || table_shard(stand->table, key_hash(limit, weir_key(out, (size_t)len))) != shard; i++)
        sprintf(out, "%0*d", len, i);
}

static void takes_too(struct stand *stand, struct record *record)
{
    must(taken(stand->own, KEY, 1).allowed, "there are permits left");
}

static void gives_back(struct stand *stand, struct record *record)
{
    must_succeed(weir_refund(stand->own, weir_key_text(KEY), 1));
}

static void takes_of_two(struct stand *stand, struct record *record)
{
    struct weir_decision decision;
    const struct weir_request both[2] = { { stand->own, weir_key_text(KEY), 1, 0 },
                                          { stand->other, weir_key_text(KEY), 1, 0 } };
    must_succeed(weir_try_all(stand->scene.limiter, both, 2, &decision));
    must(decision.allowed, "there are permits left");
}

static void asks_for_too_many_of_two(struct stand *stand, struct record *record)
{
    struct weir_decision decision;
    const struct weir_request both[2] = { { stand->own, weir_key_text(KEY), 1, 0 },
                                          { stand->other, weir_key_text(KEY), SIZE + 1, 0 } };
    must_succeed(weir_try_all(stand->scene.limiter, both, 2, &decision));
    must(!decision.allowed, "one of them denies");
}

static void forgets(struct stand *stand, struct record *record)
{
    must_succeed(weir_reset(stand->own, weir_key_text(KEY)));
    ck_assert_uint_eq(word_rule(record_word(record)), 0);
}

static void assert_is_at(struct stand *stand, weir_limit *limit, const char *key, const struct record *record)
{
    const struct weir_backend_request request = ask(stand, limit, key, 1, WEIR_PEEK);
    ck_assert_ptr_eq(look_for(stand, &request).record, record);
}

static void forgets_and_makes_again(struct stand *stand, struct record *record)
{
    forgets(stand, record);
    must(taken(stand->own, KEY, 2).allowed, "it is fresh");
    assert_is_at(stand, stand->own, KEY, record);
}

/* The same use as before: only the count of changes differs. */
static void forgets_and_makes_equal(struct stand *stand, struct record *record)
{
    forgets(stand, record);
    must(taken(stand->own, KEY, 4).allowed, "it is fresh");
    assert_is_at(stand, stand->own, KEY, record);
}

static void makes_another_key_of_it(struct stand *stand, struct record *record)
{
    forgets(stand, record);
    char key[64];
    same_shard(stand, stand->own, (int)strlen(KEY), key);
    must(taken(stand->own, key, 4).allowed, "it is fresh");
    assert_is_at(stand, stand->own, key, record);
}

/* Of a length by which the entry is as large, or by which it fits into a cell, too. */
static void makes_another_limits_key_of_it(struct stand *stand, struct record *record)
{
    char key[256];
    const bool in_cell = cells_has(&stand->table->cells, record);
    const size_t all_words = record_words(stand->own_words, strlen(KEY));
    const size_t words = all_words > stand->other_words ? all_words - stand->other_words : 1;
    const bool in_cell_too = cells_fit(stand->other_words, words * 8) || cells_divide(stand->other_words, words * 8);
    same_shard(stand, stand->other, (int)(words * 8), key);
    forgets(stand, record);
    must(taken(stand->other, key, 3).allowed, "it is fresh");
    const struct weir_backend_request request = ask(stand, stand->other, key, 1, WEIR_PEEK);
    if (in_cell == in_cell_too && (in_cell || all_words > stand->other_words))
        ck_assert_ptr_eq(look_for(stand, &request).record, record);
}

static void redefines(struct stand *stand, struct record *record)
{
    scene_define_text(&stand->scene, "own", "fixed_window limit=10 period=364d");
    must(taken(stand->own, KEY, 1).allowed, "there are permits left");
}

static void overrides(struct stand *stand, struct record *record)
{
    scene_define_text(&stand->scene, "own/key*", "token_bucket limit=10 period=364d");
    must(taken(stand->own, KEY, 1).allowed, "there are permits left");
}

static void claims(struct stand *stand, struct record *record)
{
    uint64_t word = record_word(record);
    must(record_claim(record, &word), "nobody has claimed it");
}

static void claims_and_lets_go(struct stand *stand, struct record *record)
{
    claims(stand, record);
    let_go(record);
}

static const struct {
    const char *name;
    void (*happen)(struct stand *stand, struct record *record);
    int used; /* of KEY, if a decision for it may go on by its entry; -1: not */
} events[] = {
    { "takes too", takes_too, 5 },
    { "gives back", gives_back, 3 },
    { "takes of two", takes_of_two, 5 },
    { "asks for too many of two", asks_for_too_many_of_two, 4 },
    { "claims and lets go", claims_and_lets_go, 4 },
    { "forgets and makes again", forgets_and_makes_again, 2 },
    { "forgets and makes equal", forgets_and_makes_equal, 4 },
    { "forgets", forgets, -1 },
    { "makes another key of it", makes_another_key_of_it, -1 },
    { "makes another limit's key of it", makes_another_limits_key_of_it, -1 },
    { "redefines", redefines, -1 },
    { "overrides", overrides, -1 },
    { "claims", claims, -1 },
};
enum { EVENTS = sizeof events / sizeof events[0] };

static const struct {
    enum weir_verb verb;
    int64_t cost;
} asked[] = { { WEIR_TAKE, 1 }, { WEIR_TAKE, SIZE }, { WEIR_PEEK, 1 }, { WEIR_PEEK, SIZE } };
enum { ASKED = sizeof asked / sizeof asked[0] };

/* The numbers in one's state are nonsense in another's, and may not be multiplied even. */
static const char *const policies[] = {
    "token_bucket limit=10 period=365d",
    "token_bucket limit=10 period=365d refill=interval",
    "fixed_window limit=10 period=365d",
    "sliding_window limit=10 period=365d blocks=1",
    "sliding_window limit=10 period=365d blocks=7",
    "sliding_window limit=10 period=10us blocks=10",
    "leaky_bucket limit=10 period=365d",
};
enum { POLICIES = sizeof policies / sizeof policies[0] };

static void assert_decided_after(const struct weir_decision *decision, int64_t used, int64_t cost, enum weir_verb verb,
                                 const char *where)
{
    const bool allowed = used + cost <= SIZE;
    const int64_t left = SIZE - used - (allowed && verb == WEIR_TAKE ? cost : 0);
    ck_assert_msg(decision->allowed == allowed && decision->remaining == left && decision->limit == SIZE,
                  "%s: allowed %d, %lld left of %lld; %d and %lld of %d it should be", where, decision->allowed,
                  (long long)decision->remaining, (long long)decision->limit, allowed, (long long)left, SIZE);
}

enum way { AS_ANY, AS_GREEDY, AS_TAKE, AS_RETURN, WAYS };

static enum look_end look_by(const struct stand *stand, enum way way, const struct look *look,
                             const struct weir_backend_request *request, struct weir_decision *out)
{
    if (way == AS_ANY)
        return look_any(stand->table, look->record, look->rule, look->word, request, out);
    if (way == AS_RETURN)
        return look_greedy_back(stand->table, look, request->now_us, request->now_us, 1);
    if (way == AS_TAKE) {
        struct level level;
        bool allowed;
        const enum look_end end = look_take(look, request->now_us, request->cost, &level, &allowed);
        if (end == LOOK_DONE)
            level_tell(&look->rule->plan, &level, request->now_us, request->cost, allowed, out);
        return end;
    }
    return look_greedy(look, request->now_us, request->cost, request->verb, out);
}

/* Permits of a sliding window that were taken `step_us` ago may be in an older block. */
static void event_between(const char *own, const char *other, int64_t step_us, int e, int a, enum way way)
{
    struct stand stand;
    char where[256];
    snprintf(where, sizeof where, "%s, %s, another %s, verb %d of %d", own, other, events[e].name, (int)asked[a].verb,
             (int)asked[a].cost);
    stand_open(&stand, own, other);
    stand.scene.now_us -= stand.scene.now_us % (365 * WEIR_DAY);
    must(taken(stand.own, KEY, 4).allowed, "a fresh key has all permits");
    stand.scene.now_us += step_us;
    const struct weir_backend_request request = ask(&stand, stand.own, KEY, asked[a].cost, asked[a].verb);
    struct look look = look_for(&stand, &request);
    if (way != AS_ANY && (!rule_is_greedy(look.rule) || (way == AS_TAKE && request.verb != WEIR_TAKE))) {
        stand_close(&stand);
        return;
    }

    const struct look_groups at = look_fetch(stand.table, request.hash);
    if (way == AS_TAKE)
        must(look_for_take(stand.table, look.rule, request.key, request.hash, &at, NULL, &look), "it is found, too");
    events[e].happen(&stand, look.record);
    const struct picture after = picture_of(&stand, look.record);
    const struct weir_decision untouched = { .limit = -7, .remaining = -8 };
    struct weir_decision decision = untouched;
    const enum look_end end = look_by(&stand, way, &look, &request, &decision);
    ck_assert_msg(end != LOOK_DONE, "%s: decided by a state that was not there", where);
    struct picture now = picture_of(&stand, look.record);
    ck_assert_msg(memcmp(&now, &after, sizeof now) == 0, "%s: written to what had changed", where);

    decision = untouched;
    const bool decided = look_retry(stand.table, look, &request, &decision);
    ck_assert_msg(decided == (events[e].used >= 0), "%s: decided is %d", where, decided);
    if (decided) {
        assert_decided_after(&decision, events[e].used, request.cost, request.verb, where);
        const int64_t taken_now = decision.allowed && request.verb == WEIR_TAKE ? request.cost : 0;
        ck_assert_int_eq(peeked(stand.own, KEY, 1).remaining, SIZE - events[e].used - taken_now);
    } else {
        now = picture_of(&stand, look.record);
        ck_assert_msg(memcmp(&now, &after, sizeof now) == 0, "%s: written to what is another's", where);
        ck_assert_msg(memcmp(&decision, &untouched, sizeof decision) == 0, "%s: the answer is half written", where);
    }
    if (word_rule(now.word) != 0 && (record_word(look.record) & WORD_BUSY) != 0)
        let_go(look.record);
    stand_close(&stand);
}

/* Instrumented code plays every fifth: each event meets each pair of policies for another key or way. */
enum { EACH = INSTRUMENTED ? 5 : 1 };

TEST_EACH(a_look_notices_any_change_between_its_steps, KEYS, 60)
{
    the_key = keys[_i];
    for (int own = 0; own < POLICIES; own++)
        for (int other = 0; other < POLICIES; other++)
            for (int i = (own + other) % EACH; i < EVENTS * ASKED * WAYS; i += EACH)
                event_between(policies[own], policies[other], 0, i / WAYS % EVENTS, i / WAYS / EVENTS,
                              (enum way)(i % WAYS));
}

TEST_EACH(a_look_that_moves_to_another_block_notices_any_change, KEYS, 60)
{
    the_key = keys[_i];
    for (int other = 0; other < POLICIES; other++)
        for (int i = other % EACH; i < EVENTS * ASKED; i += EACH)
            event_between("sliding_window limit=10 period=365d blocks=7", policies[other], 60 * WEIR_DAY, i % EVENTS,
                          i / EVENTS, AS_ANY);
}

/* A tag or a hint may lead to any record. */
TEST(a_look_tells_records_of_different_keys_and_limits_apart, 10)
{
    for (int p = 0; p < POLICIES; p++) {
        static const char bytes[3][8] = { "key-one", "key-onE", "Key-one" }; /* each with a terminating zero */
        static const struct {
            int key;
            size_t len;
            bool is_other_limit, is_it;
        } asks[] = { { 0, 7, false, true },  { 0, 7, true, false },  { 0, 8, false, false },
                     { 0, 6, false, false }, { 1, 7, false, false }, { 2, 7, false, false } };
        CLOSED_BY(stand_close) struct stand stand;
        stand_open(&stand, policies[p], policies[p]);
        must(taken(stand.own, KEY, 1).allowed && taken(stand.other, "another", 1).allowed, "fresh");
        const struct weir_backend_request own = ask(&stand, stand.own, KEY, 1, WEIR_PEEK);
        struct record *record = look_for(&stand, &own).record;
        for (size_t i = 0; i < 2 * sizeof asks / sizeof asks[0]; i++) {
            weir_limit *limit = asks[i / 2].is_other_limit ? stand.other : stand.own;
            const struct weir_backend_request request = backend_request(
                limit, weir_key(bytes[asks[i / 2].key], asks[i / 2].len), 1, stand.scene.now_us, WEIR_TAKE);
            struct look look = { .whose = LOOK_UNGUESSED };
            if (i % 2)
                look = look_guess(stand.table, &request);
            ck_assert_msg(look_at(stand.table, record, &request, &look) == asks[i / 2].is_it, "%s, %d", policies[p],
                          (int)i);
        }
        must_succeed(weir_reset(stand.own, weir_key_text(KEY)));
        struct look look = { .whose = LOOK_UNGUESSED };
        ck_assert(!look_at(stand.table, record, &own, &look)); /* nobody's */
    }
}

TEST(a_look_leaves_a_claimed_entry_alone, 10)
{
    for (int p = 0; p < POLICIES; p++)
        for (int a = 0; a < ASKED; a++) {
            CLOSED_BY(stand_close) struct stand stand;
            stand_open(&stand, policies[p], policies[0]);
            must(taken(stand.own, KEY, 4).allowed, "a fresh key has all permits");
            const struct weir_backend_request request = ask(&stand, stand.own, KEY, asked[a].cost, asked[a].verb);
            struct record *record = look_for(&stand, &request).record;
            claims(&stand, record);
            const struct picture before = picture_of(&stand, record);
            struct weir_decision decision = { .limit = -7 };
            ck_assert(!look_and_decide(stand.table, &request, NULL, true, &decision));
            const struct picture after = picture_of(&stand, record);
            ck_assert_int_eq(memcmp(&before, &after, sizeof before), 0);
            ck_assert_int_eq(decision.limit, -7);
            let_go(record);
            if (look_and_decide(stand.table, &request, NULL, true, &decision))
                assert_decided_after(&decision, 4, request.cost, request.verb, policies[p]);
            else
                ck_abort_msg("%s: nobody has claimed it any more", policies[p]);
        }
}

/* Before a new entry's state is written, its memory holds the state of another key without permits. */
TEST(an_entry_is_claimed_while_it_is_created_or_moved, 10)
{
    for (int p = 0; p < POLICIES; p++)
        for (int moved = 0; moved <= 2; moved++) { /* 2: only if necessary */
            static const char *const others[] = { "token_bucket limit=10 period=365d",
                                                  "sliding_window limit=10 period=365d blocks=40",
                                                  "fixed_window limit=10 period=300d" };
            struct stand stand;
            char same[16];
            stand_open(&stand, policies[p], others[moved]);
            same_shard(&stand, stand.own, 7, same);
            must(taken(stand.own, moved ? KEY : same, SIZE).allowed, "a fresh key has all permits");
            if (!moved)
                must_succeed(weir_reset(stand.own, weir_key_text(same)));
            const struct weir_backend_request request = ask(&stand, stand.own, KEY, 1, WEIR_TAKE);
            struct shard *shard = table_shard(stand.table, request.hash);
            struct weir_backend_request renewing = request;
            struct weir_plan plan, wide;
            struct entry *entry;
            int64_t state[STATE_MAX_WORDS];
            const uint64_t version = weir_request_plan(&request, &plan);
            plan_cell_read(&stand.other->plan, &wide);
            lock_take(&shard->mutex);
            if (moved) {
                entry = shard_find(stand.table, shard, &request);
                renewing.plan_version = version + 2;
                struct rule *rule;
                struct entry *narrow = entry;
                must(shard_rule(stand.table, shard, &request, &wide, version + 2, NULL, 0, &rule) == TABLE_OK &&
                         entry_make(stand.table, shard, rule, &request, &entry) == TABLE_OK,
                     "there is memory");
                entry_drop(stand.table, shard, narrow);
                state_charge(&wide, state, request.now_us, 1);
            } else {
                must(shard_add(stand.table, shard, &request, &plan, version, &entry) == TABLE_OK, "there is memory");
                state_charge(&plan, state, request.now_us, 1);
            }
            struct weir_decision decision = { .limit = -7 };
            ck_assert((entry_word(entry) & WORD_BUSY) != 0);
            ck_assert(!look_and_decide(stand.table, &renewing, NULL, true, &decision));
            ck_assert_int_eq(decision.limit, -7);
            entry_write(entry, 0, state, moved ? stand.other_words : stand.own_words);
            entry_let_go(stand.table, entry);
            lock_give(&shard->mutex);
            ck_assert(look_and_decide(stand.table, &renewing, NULL, true, &decision));
            assert_decided_after(&decision, 1, 1, WEIR_TAKE, policies[p]);
            stand_close(&stand);
        }
}

/* Undisturbed lookups, with states of all sizes around the largest one that they support. A summary decides for any. */
TEST_EACH(a_look_decides_as_the_mutex_does, KEYS, 10)
{
    static const char *const more[] = { "sliding_window limit=10 period=365d blocks=92",
                                        "sliding_window limit=10 period=365d blocks=93",
                                        "sliding_window limit=10 period=365d blocks=94",
                                        "sliding_window limit=10 period=365d blocks=95" };
    int decided = 0, left = 0;
    the_key = keys[_i];
    for (int i = 0; i < POLICIES + 4; i++) {
        CLOSED_BY(stand_close) struct stand stand;
        stand_open(&stand, i < POLICIES ? policies[i] : more[i - POLICIES], policies[0]);
        must(taken(stand.own, KEY, 1).allowed, "a fresh key has all permits");
        for (int used = 1; used < SIZE; used++) {
            const struct weir_backend_request request = ask(&stand, stand.own, KEY, 1, WEIR_TAKE);
            const bool fits = stand.own_words <= LOOK_WORDS || strlen(KEY) <= 16;
            struct weir_decision decision = { .limit = -7 };
            ck_assert_int_eq(look_and_decide(stand.table, &request, NULL, true, &decision), fits);
            if (fits)
                assert_decided_after(&decision, used, 1, WEIR_TAKE, "by a look");
            else
                ck_assert_int_eq(decision.limit, -7);
            if (!fits)
                decision = taken(stand.own, KEY, 1);
            assert_decided_after(&decision, used, 1, WEIR_TAKE, "by a look or not");
            decided += fits;
            left += !fits;
        }
    }
    ck_assert_int_gt(decided, 0);
    ck_assert_int_eq(left > 0, _i > 0);
}

/* A lookup leaves decisions that need the mutex alone: it changes and answers nothing. */
TEST(a_look_leaves_decisions_that_need_the_mutex_alone, 10)
{
    static const struct {
        int64_t step_us; /* of the clock, before the take */
        bool is_left;
    } steps[] = { { 0, false }, { WEIR_SECOND, false }, { -WEIR_SECOND, false }, { -3 * WEIR_SECOND, true } };
    for (int p = 0; p < POLICIES; p++)
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            struct stand stand;
            if (p == 5)
                continue; /* of 10 us: used up and idle at the same time */
            stand_open(&stand, policies[p], policies[0]);
            stand.scene.now_us = INT64_C(1790000000123456) / (366 * WEIR_DAY) * (366 * WEIR_DAY) + WEIR_DAY;
            must(taken(stand.own, KEY, 4).allowed, "a fresh key has all permits");
            stand.scene.now_us += steps[i].step_us;
            const struct weir_backend_request request = ask(&stand, stand.own, KEY, 1, WEIR_TAKE);
            struct look look = look_for(&stand, &request);
            const struct picture before = picture_of(&stand, look.record);
            struct weir_decision decision = { .limit = -7 };
            const bool decided = look_and_decide(stand.table, &request, NULL, true, &decision);
            const struct picture after = picture_of(&stand, look.record);
            /* A level's tick, and a block, may be longer than that step. */
            if (decided) {
                int64_t before_time = before.words[stand.own_words == 2 ? 1 : 0];
                ck_assert_int_ge(after.words[stand.own_words == 2 ? 1 : 0], before_time);
                assert_decided_after(&decision, 4, 1, WEIR_TAKE, policies[p]);
            } else {
                ck_assert_msg(steps[i].is_left, "%s: left to the mutex", policies[p]);
                ck_assert_int_eq(memcmp(&before, &after, sizeof before), 0);
                ck_assert_int_eq(decision.limit, -7);
                ck_assert_int_eq(taken(stand.own, KEY, 1).remaining, 5);
            }
            stand_close(&stand);
        }
}

TEST(verbs_that_a_look_cannot_decide_take_the_mutex, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    stand_open(&stand, policies[0], policies[1]);
    struct weir_backend_request request = ask(&stand, stand.own, KEY, 1, WEIR_TAKE);
    static const char long_key[1024];
    ck_assert(look_may(&request));
    request.ahead = 1;
    ck_assert(!look_may(&request));
    request.ahead = 0;
    request.verb = WEIR_PEEK;
    ck_assert(look_may(&request));
    request.verb = WEIR_REFUND;
    ck_assert(!look_may(&request));
    request.verb = WEIR_RESET;
    ck_assert(!look_may(&request));
    request.verb = WEIR_TAKE;
    request.key = weir_key(long_key, 1023);
    ck_assert(look_may(&request));
    request.key = weir_key(long_key, 1024);
    ck_assert(!look_may(&request));
}

/* A word has 10 bits for a key's length: longer keys must not match shorter ones. */
TEST(keys_too_long_for_the_length_in_a_word_stay_distinct, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    static char bytes[70000];
    stand_open(&stand, policies[0], policies[1]);
    static const size_t lens[] = { 7, 8, 1023, 1024, 1024 + 7, 2048, 2048 + 8, 65536 };
    enum { LENS = sizeof lens / sizeof lens[0] };
    for (int round = 1; round <= 3; round++)
        for (int i = 0; i < LENS; i++) {
            struct weir_decision decision;
            must_succeed(weir_try(stand.own, weir_key(bytes, lens[i]), 1, &decision));
            ck_assert_int_eq(decision.remaining, SIZE - round);
        }
}

/* ---- Handles ---- */

enum { IMITATION = 400 };

enum { FIRST_ENTRY = 64, IMITATED = 128 };

/* Of a length by which its record lies behind its entry, and both have 104 bytes. */
#define LONG_KEY "a key of twenty-four by."
_Static_assert(sizeof LONG_KEY - 1 == 24, "of that length");

/* Write a key whose bytes imitate the entry of this record at its address, if the key's entry is the first of its page.
 * The first 16 bytes are free. */
static void imitate(const struct record *record, char *imitation)
{
    const char *entry = (const char *)record - offsetof(struct entry, own);
    const size_t offset = (uintptr_t)entry % SLAB_SMALL_PAGE;
    ck_assert_uint_eq(offset, FIRST_ENTRY + IMITATED);
    memset(imitation, 1, IMITATION);
    memcpy(imitation + IMITATED - entry_bytes(GREEDY_WORDS, 0), entry, IMITATED);
}

static void assert_imitated(struct stand *stand, const char *imitation, const struct record *record, size_t key_len)
{
    const struct weir_backend_request request = backend_request(stand->own, weir_key(imitation, IMITATION), 1,
                                                                stand->scene.now_us, WEIR_PEEK);
    const struct look look = look_for(stand, &request);
    ck_assert_uint_eq((uintptr_t)look.record % SLAB_SMALL_PAGE, FIRST_ENTRY + offsetof(struct entry, own));
    ck_assert_uint_eq((uintptr_t)look.record / SLAB_SMALL_PAGE, (uintptr_t)record / SLAB_SMALL_PAGE);
    ck_assert_uint_eq(record_word(record) & WORD_WHOSE, word_whose(look.rule->number, key_len));
}

/* A page of 128-byte entries, the second of which is the handle's, becomes a page of larger entries. The key of its
 * first entry imitates an entry of the handle's key without permits. */
TEST(a_key_whose_bytes_imitate_an_entry_is_not_taken_for_one, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    weir_handle *handle;
    struct weir_decision decision;
    char imitation[IMITATION], holder[200];
    stand_open(&stand, policies[0], policies[1]);
    memset(holder, 'h', sizeof holder);
    must_succeed(weir_try(stand.own, weir_key(holder, sizeof holder), 1, &decision)); /* the rule lives on */
    taken(stand.own, "the first of that length", 1);
    must_succeed(weir_key_resolve(stand.own, weir_key_text(LONG_KEY), &handle));
    must_succeed(weir_handle_try(handle, SIZE, 0, &decision));
    must_succeed(weir_handle_try(handle, 1, 0, &decision)); /* the handle has a hint now */
    ck_assert(!decision.allowed);
    const struct weir_backend_request request = ask(&stand, stand.own, LONG_KEY, 1, WEIR_PEEK);
    const struct record *record = look_for(&stand, &request).record;
    imitate(record, imitation);

    must_succeed(weir_reset(stand.own, weir_key_text("the first of that length")));
    must_succeed(weir_reset(stand.own, weir_key_text(LONG_KEY)));
    must_succeed(weir_try(stand.own, weir_key(imitation, sizeof imitation), 1, &decision));
    assert_imitated(&stand, imitation, record, request.key.len);

    must_succeed(weir_handle_try(handle, 1, 0, &decision));
    ck_assert(decision.allowed); /* it is a fresh key */
    ck_assert_int_eq(decision.remaining, SIZE - 1);
    weir_handle_free(handle);
}

/* ---- Batches ---- */

static size_t shard_of(const struct stand *stand, struct weir_key key)
{
    return (size_t)(key_hash(stand->own, key) >> stand->table->shard_shift);
}

/* The same within a batch: it has located its second key when its first key, a new one, sweeps the shard and gets the
 * page. */
TEST(a_place_is_not_kept_while_a_batch_takes_a_mutex, 10)
{
    CLOSED_BY(stand_close) struct stand stand;
    struct weir_decision decisions[2];
    char imitation[IMITATION], first[32];
    stand_open(&stand, "token_bucket limit=10 period=1s", policies[1]);
    for (int i = 0; i == 0 || shard_of(&stand, weir_key_text(first)) != shard_of(&stand, weir_key_text(LONG_KEY)); i++)
        snprintf(first, sizeof first, "%024d", i);
    taken(stand.own, first, 1);
    must(taken(stand.own, LONG_KEY, SIZE).allowed, "a fresh key has all permits");
    const struct weir_backend_request request = ask(&stand, stand.own, LONG_KEY, 1, WEIR_PEEK);
    const struct look look = look_for(&stand, &request);
    imitate(look.record, imitation);

    stand.scene.now_us += 10 * WEIR_SECOND; /* both keys are idle, and the imitation is used up */
    const int64_t tick = stand.scene.now_us / look.rule->plan.tick_us;
    memcpy(imitation + IMITATED + sizeof tick, &tick, sizeof tick);
    for (int i = 0; i == 0 || shard_of(&stand, weir_key(imitation, IMITATION)) != shard_of(&stand, request.key); i++)
        memcpy(imitation, &i, sizeof i);
    const uint32_t recast = slab_recast(&stand.table->slab);
    const struct weir_request requests[2] = { { stand.own, weir_key(imitation, IMITATION), 1, 0 },
                                              { stand.own, weir_key_text(LONG_KEY), 1, 0 } };
    must_succeed(weir_try_batch(stand.scene.limiter, requests, 2, decisions));
    ck_assert_uint_eq(slab_recast(&stand.table->slab), recast + 1);
    assert_imitated(&stand, imitation, look.record, request.key.len);
    for (int i = 0; i < 2; i++) {
        ck_assert(decisions[i].allowed);
        ck_assert_int_eq(decisions[i].remaining, SIZE - 1);
    }
}

enum { CALLERS_KEYS = 300, CALLERS_MOST = 100 };

/* Keys of several lengths: some too long for an entry with a place, some too long for a word's length. */
static struct weir_key key_of_number(char *bytes, int64_t number)
{
    const int width = number % 20 == 0 ? 1100 : 4 + (int)(number % 37);
    return weir_key(bytes, (size_t)sprintf(bytes, "%0*d", width, (int)number));
}

/* Batches of existing and unknown keys, larger than one prefetch, with repeated keys, changed plans, and keys that are
 * swept during the batch. */
TEST(a_batch_of_looks_decides_as_single_calls_do, 60)
{
    static char bytes[CALLERS_MOST][1200];
    static struct weir_request requests[CALLERS_MOST];
    static struct weir_decision decisions[CALLERS_MOST];
    struct stand batches, singles;
    struct chance chance = chance_make(3);
    stand_open(&batches, "token_bucket limit=10 period=10s", "sliding_window limit=10 period=10s");
    stand_open(&singles, "token_bucket limit=10 period=10s", "sliding_window limit=10 period=10s");
    int64_t latest_us = batches.scene.now_us;
    for (int round = 0; round < 3000; round++) {
        const size_t n = (size_t)chance_between(&chance, 0, CALLERS_MOST);
        const bool is_other = chance_one_in(&chance, 4);
        if (chance_one_in(&chance, 3))
            latest_us += chance_between(&chance, 0, chance_one_in(&chance, 20) ? 20 : 5) * WEIR_SECOND;
        batches.scene.now_us = latest_us - chance_between(&chance, 0, WEIR_CLOCK_SLACK_US);
        if (chance_one_in(&chance, 100)) {
            const struct weir_policy policy = policy_of(chance_one_in(&chance, 2) ? policies[0] : policies[6]);
            must_succeed(weir_limit_define(batches.scene.limiter, "own", &policy, NULL));
            must_succeed(weir_limit_define(singles.scene.limiter, "own", &policy, NULL));
        }
        singles.scene.now_us = batches.scene.now_us;
        for (size_t i = 0; i < n; i++)
            requests[i] = (struct weir_request){
                .limit = is_other && i % 2 ? batches.other : batches.own,
                .key = key_of_number(bytes[i], chance_between(&chance, 0, round % 100 < 50 ? 20 : CALLERS_KEYS)),
                .cost = chance_between(&chance, 1, 12),
            };
        must_succeed(weir_try_batch(batches.scene.limiter, requests, n, decisions));
        for (size_t i = 0; i < n; i++) {
            struct weir_decision alone;
            weir_limit *limit = requests[i].limit == batches.own ? singles.own : singles.other;
            must_succeed(weir_try(limit, requests[i].key, requests[i].cost, &alone));
            assert_decision_is(&decisions[i], &alone, "in a batch, and alone");
        }
    }
    ck_assert_uint_gt(table_evictions(batches.table), 0);
    stand_close(&batches);
    stand_close(&singles);
}

/* ---- Waiting for readers ---- */

struct waiting {
    struct stand stand;
    struct readers *readers;
    atomic_bool done;
};

static void *recasts(void *argument)
{
    struct waiting *waiting = argument;
    char key[300];
    memset(key, 'k', sizeof key);
    struct weir_decision decision;
    must_succeed(weir_reset(waiting->stand.own, weir_key_text(KEY)));
    must_succeed(weir_try(waiting->stand.own, weir_key(key, sizeof key), 1, &decision));
    atomic_store(&waiting->done, true);
    return NULL;
}

/* Define and end limits until unused rules are forgotten. */
static void *forgets_rules(void *argument)
{
    struct waiting *waiting = argument;
    for (int i = 0; i < RULES_IDLE + 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "limit-%d", i);
        weir_limit *limit = scene_define_text(&waiting->stand.scene, name, policies[0]);
        taken(limit, "same", 1); /* a shard remembers its last rule: one key uses few shards */
        must_succeed(weir_reset(limit, weir_key_text("same")));
        for (int j = 0; j < 200; j++) { /* every shard remembers another rule */
            char key[32];
            snprintf(key, sizeof key, "%d", j);
            taken(waiting->stand.other, key, 1);
            must_succeed(weir_reset(waiting->stand.other, weir_key_text(key)));
        }
    }
    atomic_store(&waiting->done, true);
    return NULL;
}

static void *shuts(void *argument)
{
    struct waiting *waiting = argument;
    readers_shut(waiting->readers);
    atomic_store(&waiting->done, true);
    return NULL;
}

static void *forks(void *argument)
{
    struct waiting *waiting = argument;
    const pid_t child = fork();
    if (child == 0)
        _exit(readers_enter(waiting->readers) ? 0 : 1); /* it can look */
    assert_child_succeeds(child);
    atomic_store(&waiting->done, true);
    return NULL;
}

/* Words of cells whose memory goes back to the system begin to count anew. */
static void *narrows(void *argument)
{
    struct waiting *waiting = argument;
    struct table *table = waiting->stand.table;
    struct shard *shard = &table->shards[0];
    lock_take(&shard->mutex);
    while (cells_groups(&table->cells, shard->number) <= CELLS_CHUNK)
        must(cells_widen(&table->cells, shard->number), "there is memory");
    cells_narrow(&table->cells, shard->number, 0, waiting->readers);
    lock_give(&shard->mutex);
    atomic_store(&waiting->done, true);
    return NULL;
}

static void *(*const waits[])(void *) = { recasts, forgets_rules, narrows, shuts, forks };
enum { WAITS = sizeof waits / sizeof waits[0] };

TEST(memory_is_reclaimed_only_after_all_looks_have_ended, 60)
{
    for (int i = 0; i < 2 * WAITS; i++) {
        struct waiting waiting;
        pthread_t thread;
        memset(&waiting, 0, sizeof waiting);
        stand_open(&waiting.stand, policies[0], policies[1]);
        waiting.readers = &waiting.stand.table->readers;
        if (i >= WAITS) /* as on a system without membarrier(2) */
            atomic_fetch_or(&waiting.readers->care, READERS_FENCES);
        taken(waiting.stand.own, KEY, 1);
        memory_watch_forks(waiting.stand.scene.limiter->backend);
        const uint32_t recast = slab_recast(&waiting.stand.table->slab);
        _Atomic uint64_t *turn = readers_enter(waiting.readers);
        ck_assert_ptr_nonnull(turn);
        ck_assert_int_eq(pthread_create(&thread, NULL, waits[i % WAITS], &waiting), 0);
        for (int j = 0; j < 100; j++)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        while (waits[i % WAITS] == recasts && slab_recast(&waiting.stand.table->slab) == recast)
            sched_yield(); /* a lookup that begins now already knows */
        ck_assert_msg(!atomic_load(&waiting.done), "%d has not waited", i);
        readers_leave(turn);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert(atomic_load(&waiting.done));
        if (waits[i % WAITS] == shuts) {
            ck_assert_ptr_null(readers_enter(waiting.readers));
            taken(waiting.stand.own, KEY, 1); /* the call finds another way */
            readers_open(waiting.readers);
        }
        turn = readers_enter(waiting.readers);
        ck_assert_ptr_nonnull(turn);
        readers_leave(turn);
        stand_close(&waiting.stand);
    }
}

/* One thread retires an object, waits for readers and reuses it. Another reads in a loop: an object that it finds at
 * the start of a lookup must not be reused before the end. */
struct dekker {
    struct readers readers;
    alignas(64) _Atomic int gone;
    alignas(64) _Atomic int reused;
    alignas(64) atomic_bool done;
};

static void *looks(void *argument)
{
    struct dekker *dekker = argument;
    for (unsigned i = 0; !atomic_load_explicit(&dekker->done, memory_order_relaxed); i++) {
        _Atomic uint64_t *turn = readers_enter(&dekker->readers);
        const int gone = atomic_load_explicit(&dekker->gone, memory_order_relaxed);
        wait_pause(i % 8);
        must(atomic_load_explicit(&dekker->reused, memory_order_relaxed) <= gone, "who looks is waited for");
        readers_leave(turn);
    }
    return NULL;
}

TEST(memory_is_never_reused_while_a_look_reads_it, 60)
{
    for (int fences = 0; fences < 2; fences++) {
        static struct dekker dekker;
        pthread_t thread;
        memset(&dekker, 0, sizeof dekker);
        readers_init(&dekker.readers);
        if (fences)
            atomic_fetch_or(&dekker.readers.care, READERS_FENCES);
        ck_assert_int_eq(pthread_create(&thread, NULL, looks, &dekker), 0);
        for (int round = 1; round <= ROUNDS; round++) {
            atomic_store_explicit(&dekker.gone, round, memory_order_release);
            readers_wait(&dekker.readers);
            atomic_store_explicit(&dekker.reused, round, memory_order_release);
            wait_pause((unsigned)round % 64);
        }
        atomic_store(&dekker.done, true);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
    }
}

enum { CROWD = 100 };

struct crowd {
    struct readers readers;
    pthread_barrier_t barrier;
    atomic_int looking;
};

static void *looks_in_a_crowd(void *argument)
{
    struct crowd *crowd = argument;
    const unsigned stripe = stats_stripe();
    pthread_barrier_wait(&crowd->barrier); /* all threads have started */
    _Atomic uint64_t *turn = readers_enter(&crowd->readers);
    must((turn == NULL) == (stripe == STATS_SHARED_STRIPE), "a thread without a stripe cannot look");
    atomic_fetch_add(&crowd->looking, turn != NULL);
    must(!turn || atomic_load(turn) == 1, "nobody else is in it");
    pthread_barrier_wait(&crowd->barrier);
    if (turn)
        ck_assert_uint_eq(readers_leave(turn), 1);
    return NULL;
}

TEST(threads_beyond_the_last_stripe_cannot_look, 30)
{
    static struct crowd crowd;
    struct crew threads;
    readers_init(&crowd.readers);
    pthread_barrier_init(&crowd.barrier, NULL, CROWD);
    crew_start(&threads, CROWD, looks_in_a_crowd, &crowd);
    crew_join(&threads);
    pthread_barrier_destroy(&crowd.barrier);
    ck_assert_int_ge(atomic_load(&crowd.looking), STATS_STRIPES - 2); /* this thread may use one stripe */
    ck_assert_int_lt(atomic_load(&crowd.looking), STATS_STRIPES);
}
