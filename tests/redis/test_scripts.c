/* test_scripts.c - the text of the scripts, and how they treat calls and states that are not weir's. */
#include "backends/redis/flight/state.h"
#include "core/ground/arith.h"
#include "mirror.h"
#include "scripts.h"
#include "support.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const enum redis_script_id each_scripts[KIND_COUNT] = { [KIND_GREEDY] = REDIS_TOKEN_BUCKET,
                                                               [KIND_LEAKY] = REDIS_LEAKY_BUCKET,
                                                               [KIND_INTERVAL] = REDIS_INTERVAL_BUCKET,
                                                               [KIND_FIXED] = REDIS_FIXED_WINDOW,
                                                               [KIND_SLIDING] = REDIS_SLIDING_WINDOW };

/* ---- The text ---- */

static int times_in(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word))
        n++;
    return n;
}

static bool is_bucket(enum redis_script_id script)
{
    return script == REDIS_TOKEN_BUCKET || script == REDIS_LEAKY_BUCKET || script == REDIS_BUCKET_SINGLE;
}

/* When Lua converts a number to text it keeps 14 digits, but a time in microseconds has 16. So scripts convert only
 * by struct.pack and by the '%d' of PSETEX; table.concat and ".." get values that already are text. */
TEST(no_script_converts_a_number_to_text_or_reads_the_time_twice, 10)
{
    for (int i = 0; i < REDIS_SCRIPT_COUNT; i++) {
        const char *text = redis_scripts[i].text;
        if (i == REDIS_SLOTS) { /* ends are scores, which are text */
            ck_assert_int_eq(times_in(text, "'TIME'"), 1);
            ck_assert_int_eq(times_in(text, "tostring"), 0);
            ck_assert_int_eq(times_in(text, ".."), times_in(text, "'(' .."));
            ck_assert_int_eq(times_in(text, "format("), times_in(text, "format('%.0f', ") + 1);
            ck_assert_int_eq(times_in(text, "string.format('%d', (left + -left % 1000) / 1000 + grace)"), 1);
            continue;
        }
        const bool single = i == REDIS_BUCKET_SINGLE, asks = i == REDIS_SETTLE;
        const bool group = i == REDIS_TRY_ALL; /* this one and settle.lua have separate steps */
        /* copies of the part "anew" of lua/level.lua, of writes beside the common one, and of those that stay */
        const int anew = 2 * is_bucket((enum redis_script_id)i) + single;
        ck_assert_uint_eq(strlen(text), redis_scripts[i].len);
        ck_assert(i > 0 || redis_scripts[i].len < 16384); /* see scripts.h */
        const int ways = 1 + single; /* a return asks for the time only if its state is not plain */
        ck_assert_int_eq(times_in(text, "'TIME'"), ways);
        ck_assert_int_eq(times_in(text, "call('TIME')"), ways);
        ck_assert_int_eq(times_in(text, "return state .. clock[1] .. ' ' .. clock[2] .. echo\n"), single);
        ck_assert_int_eq(times_in(text, "return bytes .. echo\n"), 3 * single);
        ck_assert_int_eq(times_in(text, ", anchor) .. echo\n"), 2 * single);
        ck_assert_int_eq(times_in(text, "double .. bytes"), anew);
        ck_assert_int_eq(times_in(text, "'<' .. string.rep('dd', "), anew > 0);
        const int origins = 3 * times_in(text, "own .. bytes, left") + times_in(text, "whence_met .. state or state");
        ck_assert_int_eq(times_in(text, ".."), anew + (anew > 0) + 9 * single + 2 * group + origins);
        ck_assert_int_eq(times_in(text, "tostring"), 0);
        ck_assert_int_eq(times_in(text, "format"), 1 + anew + asks + 6 * group /* lua/slots_of.lua, so below */);
        ck_assert_int_eq(times_in(text, "string.format('%d', (left + -left % 1000) / 1000 + grace)"), 1 + anew + group);
        ck_assert_int_eq(times_in(text, "concat("), !asks);
        ck_assert_int_eq(times_in(text, group ? "concat(found)" : "concat(got)"), !asks);
        ck_assert_int_eq(times_in(text, "call('SETRANGE', key, offset, bytes)"), !group && !asks);
        ck_assert_int_eq(times_in(text, "call('SETRANGE', key, '26', bytes)"), (anew > 0) + 2 * single);
        ck_assert_int_eq(times_in(text, "call('SETRANGE', names[i], '26', pack('<I7I7', level, fresh))"), anew > 0);
        ck_assert_int_eq(times_in(text, "call('SETRANGE', names[i], '26', pack('<I7', used - back))"), anew > 0);
        ck_assert_int_eq(times_in(text, "call('SETRANGE', key, '26', pack('<I7', used - units))"), anew > 0);
        ck_assert_int_eq(times_in(text, "bytes = struct.pack('<I7I7', level, now)"), single);
        ck_assert_int_eq(times_in(text, "bytes = struct.pack('<I7I7', used - units, anchor)"), single);
        ck_assert_int_eq(times_in(text, "pcall('"), 2 * ways + group); /* MGET, GET; of settle.lua two GET */
        ck_assert_int_eq(times_in(text, "call('PSETEX'"), 1 + anew + asks);
        const int commands = 5 + !group + anew + 6 * (anew > 0) + 6 * single + 19 * group;
        ck_assert_int_eq(times_in(text, "call('"), commands); /* also TIME, DEL */
    }
}

/* ---- Calls ---- */

static size_t item_put(unsigned char *items, size_t at, int verb, int64_t cost)
{
    redis_item_write(items + at, verb, false, cost, 1);
    return at + REDIS_ITEM_SIZE;
}

/* Send one item for each of n keys "<name><0..n-1>", by the server's time or by `now_us` if that is not 0. */
static void decide_send(struct scripts *scripts, const struct weir_plan *plan, const char *name, int n,
                        enum weir_verb verb, int64_t cost, int64_t now_us)
{
    static struct call call;
    unsigned char stamp[REDIS_STAMP_MAX], items[CALL_KEYS * REDIS_ITEM_SIZE];
    char key[32];
    size_t at = 0;
    call_begin(&call, redis_script_of(plan), n);
    for (int i = 0; i < n; i++) {
        call_word(&call, key, (size_t)snprintf(key, sizeof key, "%s%d", name, i));
        at = item_put(items, at, (int)verb, cost);
    }
    call_word(&call, stamp, redis_stamp_write(plan, stamp));
    call_items(&call, items, at);
    if (now_us != 0)
        call_number(&call, now_us);
    call_send(scripts, &call);
}

static redisReply *decide(struct scripts *scripts, const struct weir_plan *plan, const char *name, int n,
                          enum weir_verb verb, int64_t cost, int64_t now_us)
{
    decide_send(scripts, plan, name, n, verb, cost, now_us);
    return reply_next(scripts);
}

TEST(a_key_expires_when_it_is_fresh_plus_the_slack, 30)
{
    CLOSED_BY(scripts_close) struct scripts scripts;
    struct weir_plan plan = { .algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_us = 100 * WEIR_SECOND, .size = 5 };
    scripts_open(&scripts);
    for (int told = 0; told < 2; told++) {
        int64_t expected_ms = 102000 + told * 7 * WEIR_DAY / 1000, most_ms = 0;
        for (int i = 0; i < 50; i++) { /* the best of 50, because the machine may be busy */
            freeReplyObject(decide(&scripts, &plan, "key", 1, WEIR_RESET, 1, 0));
            freeReplyObject(decide(&scripts, &plan, "key", 1, WEIR_TAKE, 1, told ? 1790000000123456 : 0));
            redisReply *life = ASK(&scripts, "PTTL", "key0");
            ck_assert_int_le(life->integer, expected_ms);
            most_ms = max_of(most_ms, life->integer);
            freeReplyObject(life);
        }
        ck_assert_int_ge(most_ms, expected_ms - 100);
    }
}

/* Return a key's life in milliseconds, -2 if it does not exist. */
static int64_t life_ms(struct scripts *scripts, const char *key)
{
    redisReply *reply = ASK(scripts, "PTTL", key);
    const int64_t life = reply->integer;
    freeReplyObject(reply);
    return life;
}

TEST(a_key_expires_only_once_its_former_state_is_fresh_too, 30)
{
    CLOSED_BY(scripts_close) struct scripts scripts;
    const struct weir_plan slow = { .algorithm = WEIR_FIXED_WINDOW, .period_us = WEIR_DAY, .size = 50 };
    const struct weir_plan quick = { .algorithm = WEIR_FIXED_WINDOW, .period_us = WEIR_SECOND, .size = 5 };
    const int64_t day_ms = WEIR_DAY / 1000;
    static const struct {
        enum weir_verb verb;
        int64_t cost;
    } asked[] = { { WEIR_TAKE, 1 }, { WEIR_REFUND, 3 }, { WEIR_TAKE, 2 }, { WEIR_REFUND, 5 }, { WEIR_REFUND, 1 } };
    scripts_open(&scripts);
    freeReplyObject(decide(&scripts, &slow, "key", 1, WEIR_TAKE, 10, 0));
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) { /* lowered, partly refunded, then refunded */
        freeReplyObject(decide(&scripts, &quick, "key", 1, asked[i].verb, asked[i].cost, 0));
        ck_assert_int_gt(life_ms(&scripts, "key0"), day_ms / 2);
        ck_assert_int_le(life_ms(&scripts, "key0"), day_ms + 2000);
    }
    freeReplyObject(decide(&scripts, &quick, "key", 1, WEIR_RESET, 1, 0));
    ck_assert_int_eq(life_ms(&scripts, "key0"), -2);
    freeReplyObject(decide(&scripts, &quick, "key", 1, WEIR_TAKE, 1, 0));
    ck_assert_int_gt(life_ms(&scripts, "key0"), 0);
    ck_assert_int_le(life_ms(&scripts, "key0"), 3000);
}

/* ---- Invalid calls ---- */

/* Compute a digest of all keys and values (without times to live). */
static void digest(struct scripts *scripts, char out[64])
{
    redisReply *reply = ASK(scripts, "DEBUG", "DIGEST");
    snprintf(out, 64, "%s", reply->str);
    freeReplyObject(reply);
}

/* Make text that tonumber() would accept, or bytes. */
static void word_by_chance(struct chance *chance, struct call *call)
{
    static const char *const texts[] = { "",     "0",       "1e3",
                                         "0x10", " 7 ",     "-1",
                                         "nan",  "inf",     "1.5",
                                         "1e99", "1790000", "T",
                                         "S",    "\xff",    "true",
                                         "nil",  "-0",      "9007199254740992",
                                         "0.1",  "1 ",      "99999999999999999999" };
    unsigned char bytes[64];
    size_t len = (size_t)chance_between(chance, 0, chance_one_in(chance, 3) ? 63 : 24);
    if (chance_one_in(chance, 3)) {
        const char *text = texts[chance_between(chance, 0, sizeof texts / sizeof texts[0] - 1)];
        call_word(call, text, strlen(text));
        return;
    }
    for (size_t i = 0; i < len; i++)
        bytes[i] = chance_one_in(chance, 3) ? (unsigned char)chance_next(chance) : 0;
    call_word(call, bytes, len);
}

/* Make a call that is right except for a word or two: cut, extended, with other bytes, or replaced. */
static void call_by_chance(struct chance *chance, struct call *call, bool *right)
{
    static struct call made;
    unsigned char stamp[REDIS_STAMP_MAX], items[CALL_KEYS * REDIS_ITEM_SIZE];
    char key[32];
    bool all = chance_one_in(chance, 4);
    int kind = (int)chance_between(chance, 0, KIND_COUNT - 1), n = (int)chance_between(chance, 1, 4);
    struct weir_plan plan = plan_by_chance(chance, kind);
    enum redis_script_id script = all ? REDIS_TRY_ALL : each_scripts[kind];
    size_t at = 0;
    call_begin(&made, script, n);
    for (int i = 0; i < n; i++) {
        call_word(&made, key, (size_t)snprintf(key, sizeof key, "key%d", (int)chance_between(chance, 0, 3) * 4 + i));
        int verb = all || chance_one_in(chance, 2) ? WEIR_TAKE : (int)chance_between(chance, 0, REDIS_LEASE_IF_TAKEN);
        at = item_put(items, at, verb, chance_magnitude(chance, WEIR_MAX_PERMITS));
    }
    for (int i = 0; i < (all ? n : 1); i++)
        call_word(&made, stamp, redis_stamp_write(&plan, stamp));
    (all ? call_tail : call_items)(&made, items, at);
    if (chance_one_in(chance, 2))
        call_number(&made, chance_between(chance, 0, WEIR_MAX_TIME_US));
    int spoilt = (int)chance_between(chance, 3 + n, made.n - 1);
    call_begin(call, script, n);
    *right = chance_one_in(chance, 10);
    for (int i = 3; i < made.n; i++) {
        unsigned char bytes[REDIS_COUNTS_SIZE + CALL_KEYS * REDIS_ITEM_SIZE + REDIS_ECHO_SIZE + 1];
        size_t len = made.lens[i];
        memcpy(bytes, made.words[i], len);
        if (i == spoilt && !*right) {
            switch (chance_between(chance, 0, 4)) {
            case 0: word_by_chance(chance, call); continue;
            case 1: continue; /* left out */
            case 2: len = (size_t)chance_between(chance, 0, (int64_t)len); break;
            case 3: bytes[len++] = (unsigned char)chance_next(chance); break;
            default: bytes[chance_between(chance, 0, (int64_t)len - 1)] = (unsigned char)chance_next(chance); break;
            }
        }
        call_word(call, bytes, len);
    }
    while (!*right && chance_one_in(chance, 10) && call->n < CALL_WORDS)
        word_by_chance(chance, call);
}

/* True for a reply of the right form: numbers, then a byte or a state for each of `keys` keys. */
static bool is_answer(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING && reply->len > REDIS_HEAD_SIZE + REDIS_ECHO_SIZE;
}

static int64_t charged_of(const redisReply *reply)
{
    int64_t charged = 0;
    for (int i = 6; i >= 0; i--)
        charged = charged * 256 + (unsigned char)reply->str[7 + i];
    return charged;
}

TEST(an_invalid_call_is_refused_and_changes_nothing, 60.0 + (double)steps_or(1000000) / 5000)
{
    static struct call call;
    static struct scripts scripts;
    struct chance chance = chance_make(1);
    int64_t refused = 0, answered = 0, steps = steps_or(100000);
    scripts_open(&scripts);
    char before[64], after[64];
    digest(&scripts, before);
    for (int64_t step = 0; step < steps; step++) {
        bool right;
        call_by_chance(&chance, &call, &right);
        call_send(&scripts, &call);
        redisReply *reply = reply_next(&scripts);
        if (reply->type == REDIS_REPLY_ERROR) {
            if (strncmp(reply->str, "WEIR bad ", 9) != 0)
                ck_abort_msg("refused in other words: %s", reply->str);
            must(!right, "a right call was refused");
            refused++;
            if (refused % 16 == 0) { /* checks the calls since the last answer as well */
                digest(&scripts, after);
                must(strcmp(before, after) == 0, "a refused call changed something");
            }
        } else {
            must(is_answer(reply), "neither an answer nor an error");
            answered++;
            digest(&scripts, before);
        }
        freeReplyObject(reply);
    }
    must(refused > steps / 10 && answered > steps / 10, "nearly all calls had one end: the test says little");
    redisReply *keys = ASK(&scripts, "KEYS", "*");
    must(keys->elements > 0, "nothing was stored");
    for (size_t i = 0; i < keys->elements; i++) {
        redisReply *life = ASK(&scripts, "PTTL", keys->element[i]->str);
        ck_assert_int_gt(life->integer, 0);
        freeReplyObject(life);
    }
    freeReplyObject(keys);
    scripts_close(&scripts);
}

/* Take one permit of each of `n` keys, with another item for key number `odd`. */
static redisReply *decide_with(struct scripts *scripts, const struct weir_plan *plan, bool all, int n, int odd,
                               int verb, int64_t times)
{
    static struct call call;
    unsigned char stamp[REDIS_STAMP_MAX], items[CALL_KEYS * REDIS_ITEM_SIZE];
    char key[32];
    call_begin(&call, all ? REDIS_TRY_ALL : redis_script_of(plan), n);
    for (int i = 0; i < n; i++) {
        call_word(&call, key, (size_t)snprintf(key, sizeof key, "odd%d", i));
        redis_item_write(items + (size_t)i * REDIS_ITEM_SIZE, i == odd ? verb : WEIR_TAKE, false, 1,
                         i == odd ? times : 1);
    }
    for (int i = 0; i < (all ? n : 1); i++)
        call_word(&call, stamp, redis_stamp_write(plan, stamp));
    (all ? call_tail : call_items)(&call, items, (size_t)n * REDIS_ITEM_SIZE);
    call_send(scripts, &call);
    return reply_next(scripts);
}

TEST(an_unknown_verb_or_an_empty_lease_is_refused_before_any_write, 30)
{
    static const struct {
        int verb;
        int64_t times;
    } bad[] = { { REDIS_RETURN + 1, 1 }, { REDIS_MORE - 1, 1 }, { REDIS_LEASE, 0 }, { REDIS_LEASE_IF_TAKEN, 0 } };
    static struct scripts scripts;
    struct chance chance = chance_make(6);
    scripts_open(&scripts);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        const struct weir_plan plan = plan_by_chance(&chance, kind);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            for (int n = 1; n <= 3; n++) {
                redisReply *reply = decide_with(&scripts, &plan, false, n, n - 1, bad[i].verb, bad[i].times);
                ck_assert_int_eq(reply->type, REDIS_REPLY_ERROR);
                ck_assert_str_eq(reply->str, "WEIR bad items");
                freeReplyObject(reply);
            }
        }
        for (int verb = REDIS_LEASE; verb <= REDIS_LEASE_IF_TAKEN; verb++) {
            redisReply *reply = decide_with(&scripts, &plan, true, 2, 1, verb, 1);
            ck_assert_int_eq(reply->type, REDIS_REPLY_ERROR);
            freeReplyObject(reply);
        }
    }
    redisReply *keys = ASK(&scripts, "DBSIZE");
    ck_assert_int_eq(keys->integer, 0);
    freeReplyObject(keys);
    scripts_close(&scripts);
}

/* Check the stamp of what is stored at "odd0". */
static void assert_stamp(struct scripts *scripts, const unsigned char *stamp)
{
    redisReply *stored = ASK(scripts, "GET", "odd0");
    ck_assert_uint_eq(stored->len, REDIS_BUCKET_STATE_SIZE);
    ck_assert_mem_eq(stored->str, stamp, REDIS_STAMP_MAX);
    freeReplyObject(stored);
}

TEST(a_group_keeps_the_room_that_a_take_added_to_a_buckets_state, 30)
{
    static struct scripts scripts;
    const struct weir_plan plan = { .algorithm = WEIR_TOKEN_BUCKET, .p = 1, .q = 100000, .tick_us = 1, .size = 10 };
    unsigned char stamp[REDIS_STAMP_MAX], roomy[REDIS_TAKE_SIZE];
    redis_stamp_write(&plan, stamp);
    redis_take_write(&plan, 1, "echo", roomy);
    scripts_open(&scripts);
    for (int i = 0; i < 2; i++) {
        freeReplyObject(decide_with(&scripts, &plan, true, 1, -1, 0, 1));
        assert_stamp(&scripts, stamp);
    }
    freeReplyObject(decide(&scripts, &plan, "odd", 1, WEIR_TAKE, 1, 0));
    assert_stamp(&scripts, roomy);
    redisReply *reply = decide_with(&scripts, &plan, true, 1, -1, 0, 1);
    ck_assert(is_answer(reply) && charged_of(reply) == 1);
    freeReplyObject(reply);
    assert_stamp(&scripts, roomy);
    redisReply *life = ASK(&scripts, "PTTL", "odd0");
    ck_assert_int_gt(life->integer, 0);
    freeReplyObject(life);
    scripts_close(&scripts);
}

TEST(a_lease_that_depends_on_a_take_grants_nothing_without_one, 30)
{
    static struct scripts scripts;
    struct chance chance = chance_make(7);
    scripts_open(&scripts);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        const struct weir_plan plan = plan_by_chance(&chance, kind);
        for (int verb = REDIS_LEASE; verb <= REDIS_LEASE_IF_TAKEN; verb++) {
            freeReplyObject(ASK(&scripts, "FLUSHALL"));
            redisReply *reply = decide_with(&scripts, &plan, false, 1, 0, verb, 1);
            ck_assert(is_answer(reply));
            ck_assert_int_eq(charged_of(reply), verb == REDIS_LEASE);
            freeReplyObject(reply);
            redisReply *keys = ASK(&scripts, "DBSIZE");
            ck_assert_int_eq(keys->integer, verb == REDIS_LEASE);
            freeReplyObject(keys);
        }
    }
    scripts_close(&scripts);
}

TEST(scripts_answer_or_refuse_random_arguments, 60.0 + (double)steps_or(1000000) / 5000)
{
    static struct call call;
    static struct scripts scripts;
    struct chance chance = chance_make(2);
    scripts_open(&scripts);
    for (int64_t step = 0; step < steps_or(100000); step++) {
        int64_t n = chance_between(&chance, 0, 4);
        call_begin(&call, (enum redis_script_id)chance_between(&chance, 0, REDIS_SCRIPT_COUNT - 1), n);
        for (int64_t i = n + chance_between(&chance, 0, 6); i > 0; i--)
            word_by_chance(&chance, &call);
        call_send(&scripts, &call);
        redisReply *reply = reply_next(&scripts);
        bool refused = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "WEIR bad ", 9) == 0;
        if (!refused && !is_answer(reply))
            ck_abort_msg("neither an answer nor a refusal: %s", reply->str);
        freeReplyObject(reply);
    }
    scripts_close(&scripts);
}

/* ---- Stored bytes that are no state ---- */

enum { FOREIGN_MAX = MIRROR_BYTES_MAX + 1024 };

/* Make a state under `plan`, perhaps an unused one, and a former state under any plan, at now_us. */
static struct mirror mirror_by_chance(struct chance *chance, const struct weir_plan *plan, int64_t now_us)
{
    struct mirror mirror = { .stored = true, .has_former = true, .until_us = now_us + 1 };
    struct under_plan *own = &mirror.own, *former = &mirror.former;
    own->plan = *plan;
    former->plan = plan_by_chance(chance, (int)chance_between(chance, 0, KIND_COUNT - 1));
    state_charge(plan, own->state, now_us, chance_one_in(chance, 4) ? 0 : chance_between(chance, 1, plan->size));
    state_charge(&former->plan, former->state, now_us, chance_between(chance, 1, former->plan.size));
    return mirror;
}

/* Write its bytes with others before, within or after them, or with some missing. */
static size_t former_by_chance(struct chance *chance, const struct weir_plan *plan, unsigned char *bytes)
{
    const struct mirror mirror = mirror_by_chance(chance, plan, INT64_C(1790000000123456));
    size_t len = mirror_bytes(&mirror, bytes);
    switch (chance_between(chance, 0, 5)) {
    case 0: return (size_t)chance_between(chance, 0, (int64_t)len);
    case 1: bytes[len] = (unsigned char)chance_next(chance); return len + 1;
    case 2: bytes[chance_between(chance, 0, 9)] = (unsigned char)chance_next(chance); return len;
    case 3:
        for (size_t i = 10 + (size_t)bytes[8] + 256 * (size_t)bytes[9]; i < len; i++)
            bytes[i] = (unsigned char)chance_next(chance);
        return len;
    case 4: bytes[chance_between(chance, 10, (int64_t)len - 1)] = (unsigned char)chance_next(chance); return len;
    default: return len;
    }
}

/* Store bytes under "key1": a damaged state, one with a former state, a tag and bytes, or any bytes. Return their
 * length. */
static size_t foreign_by_chance(struct chance *chance, const struct weir_plan *plan, const redisReply *state,
                                unsigned char bytes[FOREIGN_MAX])
{
    size_t len = (size_t)chance_between(chance, 0, chance_one_in(chance, 8) ? 1024 : 48);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)chance_next(chance);
    switch (chance_between(chance, 0, 5)) {
    case 0: break;
    case 1:
        if (len > 0)
            bytes[0] = (unsigned char)"TLIFS+"[chance_between(chance, 0, 5)];
        break;
    case 2: {
        size_t stamp_len = redis_stamp_write(plan, bytes);
        len = stamp_len > len ? stamp_len : len;
        break;
    }
    case 3: return former_by_chance(chance, plan, bytes);
    default:
        if (state->type == REDIS_REPLY_STRING && state->len > 0) {
            len = (size_t)state->len;
            memcpy(bytes, state->str, len);
            bytes[chance_between(chance, 0, (int64_t)len - 1)] = (unsigned char)chance_next(chance);
            len -= chance_one_in(chance, 3);
        }
    }
    return len;
}

/* Decide "key0" to "key2" by the server's time; "key0" and "key2" are served whatever "key1" is. Return the reply's
 * bytes for key1, or NULL if it is foreign. */
static const unsigned char *answer_about_key1(const struct weir_plan *plan, const redisReply *reply)
{
    int64_t state[STATE_MAX_WORDS];
    enum redis_found found;
    const unsigned char *bytes = (const unsigned char *)reply->str, *about = NULL;
    size_t at = 14;
    must(is_answer(reply), "no answer");
    for (int i = 0; i < 3; i++) {
        struct origin origin;
        const size_t before = redis_origin_read(bytes + at, answer_len(reply) - at, &origin);
        at += before;
        int len = redis_state_read(plan, bytes + at, answer_len(reply) - at, state, &found);
        must(len > 0, "not an answer");
        if (i == 1)
            about = found == REDIS_FOREIGN ? NULL : bytes + at;
        else
            must(found == REDIS_FRESH, "another key found something");
        at += (size_t)len;
    }
    must(at == answer_len(reply), "the answer is longer");
    return about;
}

TEST(foreign_bytes_are_reported_and_left_unchanged, 60.0 + (double)steps_or(1000000) / 5000)
{
    static struct scripts scripts;
    static unsigned char bytes[FOREIGN_MAX];
    struct chance chance = chance_make(3);
    int64_t foreign = 0, steps = steps_or(100000);
    struct weir_plan plan = { 0 };
    scripts_open(&scripts);
    for (int64_t step = 0; step < steps; step++) {
        if (step % 8 == 0)
            plan = plan_by_chance(&chance, (int)(step / 8 % KIND_COUNT));
        bool fresh = step % 8 == 0, list = chance_one_in(&chance, 50);
        const struct weir_plan before = plan;
        if (fresh) {
            freeReplyObject(ASK(&scripts, "DEL", "key1"));
            freeReplyObject(decide(&scripts, &before, "key", 2, WEIR_TAKE, 1, 0));
        }
        redisReply *state = ASK(&scripts, "GET", "key1");
        size_t len = foreign_by_chance(&chance, &plan, state, bytes);
        freeReplyObject(state);
        words_send(&scripts, 4, (const char *[]){ "DEL", "key0", "key1", "key2" });
        if (list) {
            words_send(&scripts, 3, (const char *[]){ "LPUSH", "key1", "a" });
        } else {
            const char *words[] = { "SET", "key1", (const char *)bytes };
            const size_t lens[] = { 3, 4, len };
            must(redisAppendCommandArgv(scripts.redis, 3, words, lens) == REDIS_OK, "no memory");
        }
        decide_send(&scripts, &plan, "key", 3, WEIR_TAKE, 1, 0);
        freeReplyObject(reply_next(&scripts));
        freeReplyObject(reply_next(&scripts));
        redisReply *reply = reply_next(&scripts);
        const unsigned char *about = answer_about_key1(&plan, reply);
        if (about == NULL) {
            foreign++;
            must(charged_of(reply) == 2, "a foreign key was charged, or another was not");
            redisReply *kept = list ? ASK(&scripts, "LRANGE", "key1", "0", "-1") : ASK(&scripts, "GET", "key1");
            must(list ? kept->elements == 1
                      : kept->type == REDIS_REPLY_STRING && (size_t)kept->len == len &&
                            memcmp(kept->str, bytes, len) == 0,
                 "what is not ours was written");
            freeReplyObject(kept);
        } else {
            /* It is a state after all, or one of another plan: then at most the limit is left. */
            must(!list, "a list was taken for a state");
            must(charged_of(reply) >= 2 && charged_of(reply) <= 3, "more was charged than asked");
        }
        freeReplyObject(reply);
    }
    must(foreign > steps / 2, "nearly all bytes were a state: the test says little");
    scripts_close(&scripts);
}

static void put_key0(struct scripts *scripts, const unsigned char *bytes, size_t len)
{
    const char *words[] = { "SET", "key0", (const char *)bytes };
    const size_t lens[] = { 3, 4, len };
    must(redisAppendCommandArgv(scripts->redis, 3, words, lens) == REDIS_OK, "no memory");
    freeReplyObject(reply_next(scripts));
}

/* True if a take accepts key0; otherwise it must be unchanged. */
static bool is_ours(struct scripts *scripts, const struct weir_plan *plan, const unsigned char *bytes, size_t len,
                    int64_t now_us)
{
    put_key0(scripts, bytes, len);
    redisReply *reply = decide(scripts, plan, "key", 1, WEIR_TAKE, 1, now_us);
    must(is_answer(reply), "no answer");
    const bool ours = answer_len(reply) != REDIS_HEAD_SIZE + 1 || reply->str[REDIS_HEAD_SIZE] != 1;
    freeReplyObject(reply);
    if (!ours) {
        redisReply *kept = ASK(scripts, "GET", "key0");
        must(kept->len == len && memcmp(kept->str, bytes, len) == 0, "what is not ours was written");
        freeReplyObject(kept);
    }
    return ours;
}

TEST(a_damaged_former_state_makes_the_value_foreign, 60)
{
    static struct scripts scripts;
    static unsigned char bytes[FOREIGN_MAX];
    struct chance chance = chance_make(8);
    const int64_t now_us = INT64_C(1790000000123456);
    scripts_open(&scripts);
    for (int step = 0; step < 40 * KIND_COUNT; step++) {
        const struct weir_plan plan = plan_by_chance(&chance, step % KIND_COUNT);
        /* Under the limit's plan, or under an earlier plan. */
        const struct weir_plan written = step % 2 == 0 ? plan : plan_by_chance(&chance, (step / 2) % KIND_COUNT);
        struct mirror mirror = mirror_by_chance(&chance, &written, now_us);
        const size_t len = mirror_bytes(&mirror, bytes), own_len = (size_t)bytes[8] + 256 * (size_t)bytes[9];
        must(is_ours(&scripts, &plan, bytes, len, now_us), "a state and a former one were refused");
        unsigned char stamp[REDIS_STAMP_MAX];
        const size_t unused = 10 + own_len + redis_stamp_write(&mirror.former.plan, stamp);
        for (size_t cut = 0; cut < len; cut += len < 200 ? 1 : 17)
            must(is_ours(&scripts, &plan, bytes, cut, now_us) == (cut == unused), "a part of them was taken");
        bytes[len] = 0;
        must(!is_ours(&scripts, &plan, bytes, len + 1, now_us), "a byte behind was taken");
        /* A former state that has a former state itself. */
        const size_t at = 10 + own_len;
        memmove(bytes + 2 * at, bytes + at, len - at);
        memcpy(bytes + at, bytes, at);
        must(!is_ours(&scripts, &plan, bytes, len + at, now_us), "a former one of a former one was taken");
        size_t stamp_len = redis_stamp_write(&written, bytes);
        must(!is_ours(&scripts, &plan, bytes, stamp_len, now_us), "a stamp alone was taken");
    }
    scripts_close(&scripts);
}

TEST(a_group_with_a_foreign_value_charges_nothing, 60)
{
    static struct call call;
    static struct scripts scripts;
    struct chance chance = chance_make(4);
    scripts_open(&scripts);
    for (int step = 0; step < 2000; step++) {
        struct weir_plan plan = plan_by_chance(&chance, step % KIND_COUNT);
        unsigned char stamp[REDIS_STAMP_MAX], items[3 * REDIS_ITEM_SIZE];
        size_t at = 0;
        freeReplyObject(ASK(&scripts, "FLUSHALL"));
        int odd = (int)chance_between(&chance, 0, 2);
        char name[] = { 'k', (char)('0' + odd), '\0' };
        switch (chance_between(&chance, 0, 2)) {
        case 0: freeReplyObject(ASK(&scripts, "LPUSH", name, "a")); break;
        case 1: freeReplyObject(ASK(&scripts, "SET", name, "+xyz")); break;
        default: freeReplyObject(ASK(&scripts, "SET", name, "Txyz")); break;
        }
        call_begin(&call, REDIS_TRY_ALL, 3);
        for (int i = 0; i < 3; i++)
            call_word(&call, i == 0 ? "k0" : i == 1 ? "k1" : "k2", 2);
        for (int i = 0; i < 3; i++) {
            call_word(&call, stamp, redis_stamp_write(&plan, stamp));
            at = item_put(items, at, WEIR_TAKE, 1);
        }
        call_tail(&call, items, at);
        call_send(&scripts, &call);
        redisReply *reply = reply_next(&scripts);
        must(is_answer(reply) && answer_len(reply) == 17 && charged_of(reply) == 0, "charged, or no answer");
        for (int i = 0; i < 3; i++)
            must(reply->str[14 + i] == (i == odd), "told of the wrong key");
        freeReplyObject(reply);
        redisReply *keys = ASK(&scripts, "DBSIZE");
        must(keys->integer == 1, "something was written");
        freeReplyObject(keys);
    }
    scripts_close(&scripts);
}

/* ---- The worst cases' cost: printed, not asserted, because machines differ ---- */

static double script_us(struct scripts *scripts)
{
    redisReply *reply = ASK(scripts, "INFO", "commandstats");
    const char *line = strstr(reply->str, "cmdstat_evalsha:");
    const char *field = line != NULL ? strstr(line, "usec_per_call=") : NULL;
    double us = field != NULL ? strtod(field + strlen("usec_per_call="), NULL) : 0.0;
    freeReplyObject(reply);
    freeReplyObject(ASK(scripts, "CONFIG", "RESETSTAT"));
    return us;
}

/* Time a sliding window with every block charged that is charged at a new block each time: all counts move. */
static double sliding_us(struct scripts *scripts, int blocks, int keys)
{
    struct weir_plan plan = { .algorithm = WEIR_SLIDING_WINDOW,
                              .blocks = blocks,
                              .limit = UINT32_MAX,
                              .period_us = WEIR_SECOND,
                              .size = UINT32_MAX };
    int64_t now_us = INT64_C(1790000000123456);
    for (int i = 0; i < blocks + 10; i++, now_us += WEIR_SECOND)
        freeReplyObject(decide(scripts, &plan, "s", keys, WEIR_TAKE, 1, now_us));
    freeReplyObject(ASK(scripts, "CONFIG", "RESETSTAT"));
    for (int i = 0; i < 200; i++, now_us += WEIR_SECOND)
        freeReplyObject(decide(scripts, &plan, "s", keys, WEIR_TAKE, 1, now_us));
    freeReplyObject(ASK(scripts, "FLUSHALL"));
    return script_us(scripts);
}

/* Time a token bucket with a former state: a sliding window of that many blocks, or none if 0. */
static double former_us(struct scripts *scripts, int blocks)
{
    static unsigned char bytes[MIRROR_BYTES_MAX];
    const int64_t now_us = INT64_C(1790000000123456);
    struct mirror mirror = { .stored = true, .has_former = blocks > 0, .until_us = now_us + WEIR_SECOND };
    struct under_plan *own = &mirror.own, *former = &mirror.former;
    own->plan = (struct weir_plan){ .p = 1, .q = 1, .tick_us = 1, .size = WEIR_MAX_PERMITS };
    former->plan = (struct weir_plan){ .algorithm = WEIR_SLIDING_WINDOW,
                                       .blocks = blocks > 0 ? blocks : 1,
                                       .period_us = WEIR_SECOND,
                                       .size = UINT32_MAX };
    state_charge(&own->plan, own->state, now_us, 1);
    state_charge(&former->plan, former->state, now_us - (blocks - 1) * WEIR_SECOND, 1);
    put_key0(scripts, bytes, mirror_bytes(&mirror, bytes));
    freeReplyObject(decide(scripts, &own->plan, "key", 1, WEIR_TAKE, 1, now_us));
    freeReplyObject(ASK(scripts, "CONFIG", "RESETSTAT"));
    for (int i = 0; i < 1000; i++)
        freeReplyObject(decide(scripts, &own->plan, "key", 1, WEIR_TAKE, 1, now_us));
    freeReplyObject(ASK(scripts, "FLUSHALL"));
    return script_us(scripts);
}

static double try_all_us(struct scripts *scripts, int n, bool redefined)
{
    static struct call call;
    struct chance chance = chance_make(5);
    freeReplyObject(ASK(scripts, "CONFIG", "RESETSTAT"));
    for (int step = 0; step < 400; step++) {
        unsigned char stamp[REDIS_STAMP_MAX], items[CALL_KEYS * REDIS_ITEM_SIZE];
        char name[16];
        size_t at = 0;
        call_begin(&call, REDIS_TRY_ALL, n);
        for (int i = 0; i < n; i++)
            call_word(&call, name, (size_t)snprintf(name, sizeof name, "all%d", i));
        for (int i = 0; i < n; i++) {
            struct weir_plan plan = { .algorithm = WEIR_SLIDING_WINDOW,
                                      .blocks = 60,
                                      .limit = 1000000 + (redefined ? step : 0),
                                      .period_us = WEIR_SECOND,
                                      .size = 1000000 + (redefined ? step : 0) };
            call_word(&call, stamp, redis_stamp_write(&plan, stamp));
            at = item_put(items, at, WEIR_TAKE, 1);
        }
        call_tail(&call, items, at);
        call_number(&call, INT64_C(1790000000123456) + step * WEIR_SECOND + chance_between(&chance, 0, 9));
        call_send(scripts, &call);
        redisReply *reply = reply_next(scripts);
        must(is_answer(reply), "no answer");
        freeReplyObject(reply);
    }
    freeReplyObject(ASK(scripts, "FLUSHALL"));
    return script_us(scripts);
}

TEST(the_slowest_script_calls_are_timed, 60)
{
    static struct scripts scripts;
    scripts_open(&scripts);
    printf("server time of one call, microseconds:\n");
    printf("  sliding window,   60 blocks,  1 key   %7.1f\n", sliding_us(&scripts, 60, 1));
    printf("  sliding window,   60 blocks, 64 keys  %7.1f\n", sliding_us(&scripts, 60, 64));
    printf("  sliding window, 1024 blocks,  1 key   %7.1f\n", sliding_us(&scripts, 1024, 1));
    printf("  token bucket, no former state             %7.1f\n", former_us(&scripts, 0));
    printf("  token bucket, a former state of 1 block   %7.1f\n", former_us(&scripts, 1));
    printf("  token bucket, a former state of 60 blocks %7.1f\n", former_us(&scripts, 60));
    printf("  all or nothing, 8 sliding windows of 60 blocks            %7.1f\n", try_all_us(&scripts, 8, false));
    printf("  all or nothing, 8 sliding windows, redefined each time    %7.1f\n", try_all_us(&scripts, 8, true));
    scripts_close(&scripts);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
