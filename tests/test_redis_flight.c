/* test_redis_flight.c - which requests share a call, in which order they are decided, and what becomes of each when an
 * answer is an error, or none. No server: the answers are made here. */
#include "backends/redis_flight.h"
#include "backends/redis_state.h"
#include "core/verbs.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

enum { ASKS = 200 };

/* A limiter in memory has the limits; the flight is told by hand. */
struct hangar {
    struct scene scene;
    struct redis_flight *flight, *again;
    struct redis_bytes out;
    struct weir_decision decisions[ASKS];
    int statuses[ASKS]; /* 1: not ended */
};

static void hangar_open(struct hangar *hangar, size_t room)
{
    scene_open(&hangar->scene, NULL);
    hangar->flight = redis_flight_make(room);
    hangar->again = redis_flight_make(room);
    ck_assert_ptr_nonnull(hangar->flight);
    ck_assert_ptr_nonnull(hangar->again);
    redis_flight_clear(hangar->flight);
    redis_flight_clear(hangar->again);
    hangar->out = (struct redis_bytes){ 0 };
    for (int i = 0; i < ASKS; i++)
        hangar->statuses[i] = 1;
}

static void hangar_close(struct hangar *hangar)
{
    redis_flight_free(hangar->flight);
    redis_flight_free(hangar->again);
    redis_bytes_free(&hangar->out);
    scene_close(&hangar->scene);
}

static struct weir_backend_request take(weir_limit *limit, const char *key, int64_t cost)
{
    return backend_request(limit, weir_key_text(key), cost, WEIR_OWN_CLOCK, WEIR_TAKE);
}

static bool add(struct hangar *hangar, int i, struct weir_backend_request request)
{
    return redis_flight_add(hangar->flight, &request, 1, false, 1000 + i, &hangar->decisions[i], &hangar->statuses[i]);
}

static void ended(struct redis_ask *ask, int status)
{
    int *told = ask->owner;
    ck_assert_int_eq(*told, 1); /* once */
    *told = status;
}

/* How often `text` stands in what would be sent. */
static int count_of(const struct hangar *hangar, const char *text)
{
    int count = 0;
    size_t len = strlen(text);
    for (size_t i = 0; i + len <= hangar->out.len; i++)
        count += memcmp(hangar->out.data + i, text, len) == 0;
    return count;
}

static void write_out(struct hangar *hangar)
{
    redis_bytes_clear(&hangar->out, false);
    redis_flight_write(hangar->flight, "weir:", &hangar->out);
    ck_assert(!hangar->out.failed);
}

/* An answer: the time, the permits charged, and `fresh` keys that were not there. */
struct answer {
    char bytes[14 + REDIS_CALL_KEYS + 4];
    struct redis_reply reply;
};

static void number(char *out, int64_t value)
{
    for (int i = 0; i < 7; i++)
        out[i] = (char)((uint64_t)value >> 8 * i);
}

static const struct redis_reply *answer(const struct redis_flight *flight, struct answer *answer, int64_t charged,
                                        size_t fresh)
{
    const uint32_t echo = flight->first_echo + (uint32_t)flight->replied;
    number(answer->bytes, INT64_C(1790000000000000));
    number(answer->bytes + 7, charged);
    memset(answer->bytes + 14, 0, fresh);
    memcpy(answer->bytes + 14 + fresh, &echo, sizeof echo);
    answer->reply = (struct redis_reply){ REDIS_REPLY_IS_STRING, answer->bytes, 14 + fresh + sizeof echo };
    return &answer->reply;
}

static struct redis_reply error_reply(const char *text)
{
    return (struct redis_reply){ REDIS_REPLY_IS_ERROR, text, strlen(text) };
}

START_TEST(requests_for_a_key_share_its_place_and_are_decided_in_order)
{
    struct hangar hangar;
    struct answer reply;
    hangar_open(&hangar, 16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=5 period=1h");
    for (int i = 0; i < 4; i++)
        ck_assert(add(&hangar, i, take(limit, "a", 2)));
    ck_assert(add(&hangar, 4, take(limit, "a", 1)));
    write_out(&hangar);
    ck_assert_int_eq(count_of(&hangar, "EVALSHA"), 1);
    ck_assert_int_eq(count_of(&hangar, "weir:limit:{a}"), 1);
    ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &reply, 5, 1), ended), REDIS_LANDED);
    static const int64_t remaining[] = { 3, 1, 1, 1, 0 };
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(hangar.statuses[i], WEIR_OK);
        ck_assert_int_eq(hangar.decisions[i].remaining, remaining[i]);
        ck_assert(hangar.decisions[i].allowed == (i != 2 && i != 3));
        ck_assert_int_eq(hangar.decisions[i].source, WEIR_BY_REDIS);
    }
    hangar_close(&hangar);
}
END_TEST

static struct weir_backend_request lease(weir_limit *limit, const char *key, int64_t cost, int64_t ahead,
                                         uint32_t spread)
{
    struct weir_backend_request request = take(limit, key, cost);
    request.ahead = ahead;
    request.spread = spread;
    return request;
}

/* Whether the one call of what would be sent has these items, of 9 bytes each. */
static bool has_items(const struct hangar *hangar, const unsigned char (*items)[REDIS_ITEM_SIZE], size_t n)
{
    char head[16];
    size_t head_len = (size_t)snprintf(head, sizeof head, "$%zu\r\n", n * REDIS_ITEM_SIZE + REDIS_ECHO_SIZE);
    size_t len = n * REDIS_ITEM_SIZE;
    for (size_t i = 0; i + head_len + len <= hangar->out.len; i++)
        if (memcmp(hangar->out.data + i, head, head_len) == 0 &&
            memcmp(hangar->out.data + i + head_len, items, len) == 0)
            return true;
    return false;
}

START_TEST(requests_that_charge_ahead_are_items_of_their_own_and_share_the_place_of_their_key)
{
    static const unsigned char items[][REDIS_ITEM_SIZE] = {
        { WEIR_TAKE, 1, 1, 0, 0, 0, 0, 1, 0 },            /* one that is plain */
        { WEIR_TAKE, 1, 1, 0, 0, 0, 0, 1, 0 },            /* equal but for what it charges ahead, */
        { REDIS_LEASE_IF_TAKEN, 1, 4, 0, 0, 0, 0, 4, 0 }, /* which is this */
        { WEIR_TAKE, 1, 1, 0, 0, 0, 0, 1, 0 },            /* the same again */
        { REDIS_LEASE_IF_TAKEN, 1, 4, 0, 0, 0, 0, 4, 0 },
        { WEIR_TAKE, 1, 1, 0, 0, 0, 0, 2, 0 }, /* two plain ones */
        { REDIS_LEASE, 1, 9, 0, 0, 0, 0, 1, 0 },
        { WEIR_TAKE, 1, 1, 0, 0, 0, 0, 1, 0 }, /* denied, and so is what it would have charged ahead */
        { REDIS_LEASE_IF_TAKEN, 0, 1, 0, 0, 0, 0, 1, 0 },
    };
    static const int64_t remaining[] = { 19, 14, 10, 9, 8, 0, 0 }, ahead[] = { 0, 4, 3, 0, 0, 8, 0 };
    struct hangar hangar;
    struct answer reply;
    hangar_open(&hangar, 16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=20 period=1h");
    ck_assert(add(&hangar, 0, take(limit, "a", 1)));
    ck_assert(add(&hangar, 1, lease(limit, "a", 1, 4, 4)));
    ck_assert(add(&hangar, 2, lease(limit, "a", 1, 4, 4)));
    ck_assert(add(&hangar, 3, take(limit, "a", 1)));
    ck_assert(add(&hangar, 4, take(limit, "a", 1)));
    ck_assert(add(&hangar, 5, lease(limit, "a", 0, 9, 1)));
    ck_assert(add(&hangar, 6, lease(limit, "a", 1, 1, 1)));
    write_out(&hangar);
    ck_assert_int_eq(count_of(&hangar, "EVALSHA"), 1);
    ck_assert(has_items(&hangar, items, sizeof items / sizeof items[0]));
    for (int64_t charged = 19; charged <= 21; charged += 2) /* another sum than what they come to */
        ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &reply, charged, 1), ended),
                         REDIS_MISFIT);
    ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &reply, 20, 1), ended), REDIS_LANDED);
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(hangar.statuses[i], WEIR_OK);
        ck_assert_int_eq(hangar.decisions[i].remaining, remaining[i]);
        ck_assert_int_eq(hangar.decisions[i].ahead, ahead[i]);
        ck_assert(hangar.decisions[i].allowed == (i != 6));
        ck_assert_int_eq(hangar.decisions[i].source, WEIR_BY_REDIS);
    }
    hangar_close(&hangar);
}
END_TEST

START_TEST(keys_of_a_limit_share_a_call_and_limits_do_not)
{
    struct hangar hangar;
    char name[16];
    hangar_open(&hangar, ASKS);
    weir_limit *first = scene_define_text(&hangar.scene, "first", "token_bucket limit=5 period=1s");
    weir_limit *second = scene_define_text(&hangar.scene, "second", "token_bucket limit=5 period=1s");
    for (int i = 0; i < 65; i++) {
        static char names[65][16];
        snprintf(names[i], sizeof names[i], "key%d", i);
        ck_assert(add(&hangar, i, take(first, names[i], 1)));
    }
    write_out(&hangar);
    ck_assert_int_eq(count_of(&hangar, "EVALSHA"), 2); /* REDIS_CALL_KEYS, and one more */
    ck_assert(add(&hangar, 65, take(second, "key0", 1)));
    write_out(&hangar);
    ck_assert_int_eq(count_of(&hangar, "EVALSHA"), 3);
    for (int i = 0; i < 65; i++) {
        snprintf(name, sizeof name, "{key%d}", i);
        ck_assert_int_eq(count_of(&hangar, name), i == 0 ? 2 : 1);
    }
    redis_flight_fail(hangar.flight, WEIR_EIO, ended);
    hangar_close(&hangar);
}
END_TEST

START_TEST(a_call_has_fewer_keys_where_each_takes_the_server_longer)
{
    static const struct {
        const char *policy;
        int calls; /* for 64 keys */
    } cases[] = {
        { "leaky_bucket limit=5 period=1s", 1 },
        { "sliding_window limit=5 period=1s blocks=3", 1 },
        { "sliding_window limit=5 period=1s", 3 },
        { "sliding_window limit=5 period=1s blocks=60", 16 },
        { "sliding_window limit=5 period=1s blocks=1024", 64 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hangar hangar;
        char names[64][16];
        hangar_open(&hangar, ASKS);
        weir_limit *limit = scene_define_text(&hangar.scene, "limit", cases[i].policy);
        for (int k = 0; k < 64; k++) {
            snprintf(names[k], sizeof names[k], "key%d", k);
            ck_assert(add(&hangar, k, take(limit, names[k], 1)));
        }
        write_out(&hangar);
        ck_assert_int_eq(count_of(&hangar, "EVALSHA"), cases[i].calls);
        redis_flight_fail(hangar.flight, WEIR_EIO, ended);
        hangar_close(&hangar);
    }
}
END_TEST

START_TEST(a_key_decided_by_another_time_gets_a_later_call)
{
    struct hangar hangar;
    hangar_open(&hangar, 16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    static const int64_t times[] = { 111111, 222222, 111111 };
    for (int i = 0; i < 3; i++) {
        struct weir_backend_request request = take(limit, "a", 1);
        request.now_us = times[i];
        ck_assert(add(&hangar, i, request));
    }
    write_out(&hangar);
    ck_assert_int_eq(count_of(&hangar, "EVALSHA"), 3);
    ck_assert_int_eq(count_of(&hangar, "111111"), 2);
    redis_flight_fail(hangar.flight, WEIR_EIO, ended);
    hangar_close(&hangar);
}
END_TEST

START_TEST(a_full_flight_takes_all_of_a_group_or_none)
{
    struct hangar hangar;
    hangar_open(&hangar, 4);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    const struct weir_backend_request three[3] = { take(limit, "a", 1), take(limit, "b", 1), take(limit, "c", 1) };
    ck_assert(redis_flight_add(hangar.flight, three, 3, false, 1000, hangar.decisions, &hangar.statuses[0]));
    ck_assert(!redis_flight_add(hangar.flight, three, 2, true, 1000, hangar.decisions, &hangar.statuses[1]));
    ck_assert_uint_eq(hangar.flight->ask_count, 3);
    ck_assert(add(&hangar, 2, take(limit, "d", 1)));
    ck_assert(!add(&hangar, 3, take(limit, "d", 1)));
    hangar_close(&hangar);
}
END_TEST

START_TEST(a_script_that_was_not_loaded_is_sent_again_with_it_and_at_most_three_times)
{
    struct hangar hangar;
    struct answer reply;
    const struct redis_reply not_there = error_reply("NOSCRIPT No matching script. Please use EVAL.");
    hangar_open(&hangar, 16);
    weir_limit *bucket = scene_define_text(&hangar.scene, "bucket", "token_bucket limit=5 period=1s");
    weir_limit *window = scene_define_text(&hangar.scene, "window", "fixed_window limit=5 period=1s");
    ck_assert(add(&hangar, 0, take(bucket, "a", 1)));
    ck_assert(add(&hangar, 1, take(window, "a", 1)));
    write_out(&hangar);
    ck_assert_int_eq(redis_flight_reply(hangar.flight, &not_there, ended), REDIS_FLYING);
    ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &reply, 1, 1), ended), REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[0], 1);
    ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
    for (int i = 2; i <= REDIS_TRIES; i++) {
        ck_assert_uint_eq(hangar.flight->again, 1);
        redis_flight_clear(hangar.again);
        redis_flight_again(hangar.flight, hangar.again, ended);
        struct redis_flight *landed = hangar.flight;
        hangar.flight = hangar.again;
        hangar.again = landed;
        write_out(&hangar);
        ck_assert_int_eq(count_of(&hangar, "EVALSHA"), 1);
        ck_assert_int_eq(count_of(&hangar, "\r\nSCRIPT\r\n"), 1);
        const struct redis_reply loaded = { REDIS_REPLY_IS_STRING, redis_scripts[REDIS_TOKEN_BUCKET].sha1, 40 };
        ck_assert_int_eq(redis_flight_reply(hangar.flight, &loaded, ended), REDIS_FLYING);
        ck_assert_int_eq(redis_flight_reply(hangar.flight, &not_there, ended), REDIS_LANDED);
    }
    redis_flight_clear(hangar.again);
    redis_flight_again(hangar.flight, hangar.again, ended);
    ck_assert_uint_eq(hangar.again->ask_count, 0);
    ck_assert_int_eq(hangar.statuses[0], WEIR_EIO);
    hangar_close(&hangar);
}
END_TEST

START_TEST(all_or_nothing_stays_one_call_when_it_is_sent_again)
{
    struct hangar hangar;
    struct answer reply;
    const struct redis_reply not_there = error_reply("NOSCRIPT");
    hangar_open(&hangar, 16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    const struct weir_backend_request two[2] = { take(limit, "a", 2), take(limit, "b", 3) };
    ck_assert(redis_flight_add(hangar.flight, two, 2, true, 1000, hangar.decisions, &hangar.statuses[0]));
    write_out(&hangar);
    ck_assert_int_eq(redis_flight_reply(hangar.flight, &not_there, ended), REDIS_LANDED);
    redis_flight_again(hangar.flight, hangar.again, ended);
    ck_assert_uint_eq(hangar.again->call_count, 1);
    ck_assert_uint_eq(hangar.again->ask_count, 2);
    hangar.again->loads = 0;
    redis_bytes_clear(&hangar.out, false);
    redis_flight_write(hangar.again, "weir:", &hangar.out);
    ck_assert_int_eq(count_of(&hangar, "EVALSHA"), 1);
    hangar.statuses[0] = 1;
    int told = 1;
    for (size_t i = 0; i < 2; i++)
        hangar.again->asks[i].owner = i == 0 ? &told : &hangar.statuses[0];
    ck_assert_int_eq(redis_flight_reply(hangar.again, answer(hangar.again, &reply, 5, 2), ended), REDIS_LANDED);
    ck_assert_int_eq(told, WEIR_OK);
    ck_assert_int_eq(hangar.decisions[0].remaining, 3);
    ck_assert_int_eq(hangar.decisions[1].remaining, 2);
    hangar_close(&hangar);
}
END_TEST

START_TEST(an_error_ends_its_call_and_no_other)
{
    static const struct {
        const char *text, *word;
    } errors[] = {
        { "READONLY You can't write against a read only replica.", "READONLY" },
        { "ERR Error running script (call to f_bcebee83e8aa3710d342baf745ce9aa0b1e1e1c0): @user_script:9: @user_script: 9: "
          "-READONLY You can't write against a read only replica. ",
          "READONLY" }, /* Redis 6.0 */
        { "ERR Error running script (call to f_bcebee83): @user_script:9: @user_script: 9: -OOM secret", "OOM" },
        { "ERR Error running script (call to f_bcebee83): @user_script:9: secret", "ERR" },
        { "ERR Error running script ", "ERR" },
        { "ERR Error running script : -", "ERR" },
        { "ERR said somebody: -READONLY", "ERR" },
        { "ERR Error running script (call to f_bcebee83): @user_script:9: @user_script: 9: The user executing the script "
          "can't run this command or subcommand",
          "NOPERM" }, /* Redis 6.0 */
        { "@user_script: 9: The user executing the script can't run this command or subcommand", "NOPERM" },
        { "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
          "NOPERM" }, /* Redis 7.0 */
        { "ERR ACL failure in script: User weir has no permissions to run the 'get' command", "NOPERM" },
        { "NOPERM User weir has no permissions to run the 'evalsha' command", "NOPERM" },
        { "LOADING Redis is loading the dataset in memory", "LOADING" },
        { "OOM command not allowed when used memory > 'maxmemory'.", "OOM" },
        { "ERR secret", "ERR" },
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        struct hangar hangar;
        struct answer reply;
        const struct redis_reply error = error_reply(errors[i].text);
        hangar_open(&hangar, 16);
        weir_limit *bucket = scene_define_text(&hangar.scene, "bucket", "token_bucket limit=5 period=1s");
        weir_limit *window = scene_define_text(&hangar.scene, "window", "fixed_window limit=5 period=1s");
        ck_assert(add(&hangar, 0, take(bucket, "a", 1)));
        ck_assert(add(&hangar, 1, take(window, "a", 1)));
        write_out(&hangar);
        ck_assert_int_eq(redis_flight_reply(hangar.flight, &error, ended), REDIS_FLYING);
        ck_assert_int_eq(hangar.statuses[0], WEIR_EIO);
        ck_assert_int_eq(hangar.statuses[1], 1);
        ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &reply, 1, 1), ended), REDIS_LANDED);
        ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
        ck_assert_str_eq(hangar.flight->error_word, errors[i].word);
        ck_assert(hangar.flight->read_only == (strcmp(errors[i].word, "READONLY") == 0));
        hangar_close(&hangar);
    }
}
END_TEST

START_TEST(an_answer_that_does_not_fit_is_no_decision)
{
    struct hangar hangar;
    struct answer good, bad;
    hangar_open(&hangar, 16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    ck_assert(add(&hangar, 0, take(limit, "a", 1)));
    ck_assert(add(&hangar, 1, take(limit, "b", 1)));
    write_out(&hangar);
    answer(hangar.flight, &good, 2, 2);
    for (size_t len = 0; len < good.reply.len; len++) { /* cut short */
        bad = good;
        bad.reply.text = bad.bytes;
        bad.reply.len = len;
        ck_assert_int_eq(redis_flight_reply(hangar.flight, &bad.reply, ended), REDIS_MISFIT);
    }
    ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &bad, 2, 3), ended),
                     REDIS_MISFIT); /* too long */
    ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &bad, 1, 2), ended),
                     REDIS_MISFIT); /* another sum */
    ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &bad, 3, 2), ended), REDIS_MISFIT);
    for (int i = 0; i < 4; i++) { /* another's */
        bad = good;
        bad.reply.text = bad.bytes;
        bad.bytes[16 + i] ^= 1;
        ck_assert_int_eq(redis_flight_reply(hangar.flight, &bad.reply, ended), REDIS_MISFIT);
    }
    bad = good;
    bad.reply.text = bad.bytes;
    bad.bytes[14] = 'T'; /* a state that is not there */
    ck_assert_int_eq(redis_flight_reply(hangar.flight, &bad.reply, ended), REDIS_MISFIT);
    bad.reply = good.reply;
    bad.reply.kind = REDIS_REPLY_IS_STATUS;
    ck_assert_int_eq(redis_flight_reply(hangar.flight, &bad.reply, ended), REDIS_MISFIT);
    bad.reply.kind = REDIS_REPLY_IS_OTHER;
    ck_assert_int_eq(redis_flight_reply(hangar.flight, &bad.reply, ended), REDIS_MISFIT);
    ck_assert_int_eq(hangar.statuses[0], 1);
    ck_assert_int_eq(redis_flight_reply(hangar.flight, &good.reply, ended), REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[0], WEIR_OK);
    hangar_close(&hangar);
}
END_TEST

START_TEST(what_is_answered_too_late_is_passed_over_and_the_rest_is_not)
{
    struct hangar hangar;
    struct answer reply;
    hangar_open(&hangar, 16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=5 period=1h");
    for (int i = 0; i < 3; i++) /* until 1000, 1001 and 1002 */
        ck_assert(add(&hangar, i, take(limit, "a", 1)));
    ck_assert_int_eq(hangar.flight->deadline_us, 1000);
    write_out(&hangar);
    memset(&hangar.decisions[0], 0x5a, sizeof hangar.decisions[0]);
    redis_flight_expire(hangar.flight, 999, ended);
    ck_assert_int_eq(hangar.statuses[0], 1);
    redis_flight_expire(hangar.flight, 1000, ended);
    ck_assert_int_eq(hangar.statuses[0], WEIR_ETIME);
    ck_assert_int_eq(hangar.statuses[1], 1);
    ck_assert_int_eq(hangar.flight->deadline_us, 1001);
    ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &reply, 3, 1), ended), REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[0], WEIR_ETIME);
    ck_assert_int_eq(hangar.decisions[0].limit, INT64_C(0x5a5a5a5a5a5a5a5a));
    ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
    ck_assert_int_eq(hangar.decisions[1].remaining, 3); /* the first was charged all the same */
    ck_assert_int_eq(hangar.decisions[2].remaining, 2);
    hangar_close(&hangar);
}
END_TEST

START_TEST(a_state_that_is_not_weirs_ends_its_key_alone_or_all_of_an_all_or_nothing)
{
    struct hangar hangar;
    struct answer reply;
    hangar_open(&hangar, 16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    ck_assert(add(&hangar, 0, take(limit, "a", 1)));
    ck_assert(add(&hangar, 1, take(limit, "b", 1)));
    const struct weir_backend_request two[2] = { take(limit, "a", 1), take(limit, "c", 1) };
    int both = 1;
    ck_assert(redis_flight_add(hangar.flight, two, 2, true, 1000, &hangar.decisions[2], &both));
    write_out(&hangar);
    answer(hangar.flight, &reply, 1, 2);
    reply.bytes[14] = 1;
    ck_assert_int_eq(redis_flight_reply(hangar.flight, &reply.reply, ended), REDIS_FLYING);
    ck_assert_int_eq(hangar.statuses[0], WEIR_ESTATE);
    ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
    for (size_t i = 2; i < 4; i++)
        hangar.flight->asks[i].owner = &hangar.statuses[i];
    answer(hangar.flight, &reply, 0, 2);
    reply.bytes[15] = 1;
    ck_assert_int_eq(redis_flight_reply(hangar.flight, &reply.reply, ended), REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[2], WEIR_ESTATE);
    ck_assert_int_eq(hangar.statuses[3], WEIR_ESTATE);
    hangar_close(&hangar);
}
END_TEST

/* Found by fuzzing: the first text of a connection had no memory behind it, and arithmetic on NULL is undefined. */
START_TEST(an_empty_reply_is_a_text_of_no_bytes)
{
    static const char bytes[] = "$0\r\n\r\n";
    struct redis_wire wire;
    struct redis_reply reply;
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    ck_assert_int_eq(redis_wire_feed(&wire, bytes, sizeof bytes - 1), 0);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), 1);
    ck_assert_int_eq(reply.kind, REDIS_REPLY_IS_STRING);
    ck_assert_uint_eq(reply.len, 0);
    ck_assert_ptr_nonnull(reply.text);
    redis_wire_free(&wire);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_flight");
    suite_test(suite, requests_for_a_key_share_its_place_and_are_decided_in_order, 10);
    suite_test(suite, requests_that_charge_ahead_are_items_of_their_own_and_share_the_place_of_their_key, 10);
    suite_test(suite, keys_of_a_limit_share_a_call_and_limits_do_not, 10);
    suite_test(suite, a_call_has_fewer_keys_where_each_takes_the_server_longer, 10);
    suite_test(suite, a_key_decided_by_another_time_gets_a_later_call, 10);
    suite_test(suite, a_full_flight_takes_all_of_a_group_or_none, 10);
    suite_test(suite, a_script_that_was_not_loaded_is_sent_again_with_it_and_at_most_three_times, 10);
    suite_test(suite, all_or_nothing_stays_one_call_when_it_is_sent_again, 10);
    suite_test(suite, an_error_ends_its_call_and_no_other, 10);
    suite_test(suite, an_answer_that_does_not_fit_is_no_decision, 10);
    suite_test(suite, what_is_answered_too_late_is_passed_over_and_the_rest_is_not, 10);
    suite_test(suite, a_state_that_is_not_weirs_ends_its_key_alone_or_all_of_an_all_or_nothing, 10);
    suite_test(suite, an_empty_reply_is_a_text_of_no_bytes, 10);
    return suite_run(suite);
}
