/* test_redis_flight.c - which requests share a call, in which order they are decided, and what happens to each on an
 * error or without an answer. There is no server: the test makes the replies. */
#include "backends/redis/flight/flight.h"
#include "backends/redis/flight/redirect.h"
#include "backends/redis/flight/state.h"
#include "core/api/verbs.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

enum { ASKS = 200 };

/* A memory limiter supplies the limits; the test drives the flight by hand. */
static struct hangar {
    struct scene scene;
    struct redis_flight *flight, *again;
    struct redis_bytes out;
    struct weir_decision decisions[ASKS];
    int statuses[ASKS]; /* 1: not finished */
} hangar;

static void hangar_open_by(size_t room, struct redis_flight_rules rules)
{
    scene_open(&hangar.scene, NULL);
    hangar.flight = redis_flight_make(room, rules);
    hangar.again = redis_flight_make(room, rules);
    ck_assert_ptr_nonnull(hangar.flight);
    ck_assert_ptr_nonnull(hangar.again);
    redis_flight_clear(hangar.flight);
    redis_flight_clear(hangar.again);
    hangar.out = (struct redis_bytes){ 0 };
    for (int i = 0; i < ASKS; i++)
        hangar.statuses[i] = 1;
}
#define hangar_open(room) hangar_open_by(room, (struct redis_flight_rules){ 0 })
#define hangar_open_in_cluster(room) hangar_open_by(room, (struct redis_flight_rules){ .in_cluster = true })
#define hangar_open_durable(room) hangar_open_by(room, (struct redis_flight_rules){ .replicas = 2 })

static void hangar_close(void)
{
    redis_flight_free(hangar.flight);
    redis_flight_free(hangar.again);
    redis_bytes_free(&hangar.out);
    scene_close(&hangar.scene);
}

static struct weir_backend_request take(weir_limit *limit, const char *key, int64_t cost)
{
    return backend_request(limit, weir_key_text(key), cost, WEIR_OWN_CLOCK, WEIR_TAKE);
}

static bool add_by(int i, struct weir_backend_request request, bool asking)
{
    return redis_flight_add(hangar.flight, &request, 1, false, 1000 + i, &hangar.decisions[i], &hangar.statuses[i],
                            asking);
}

static bool add(int i, struct weir_backend_request request)
{
    return add_by(i, request, false);
}

static void ended(struct redis_flight_request *aboard, int status, const struct redis_redirect *redirect)
{
    (void)redirect;
    int *told = aboard->owner;
    ck_assert_int_eq(*told, 1); /* exactly once */
    *told = status;
}

/* Count the occurrences of `text` in the bytes to be sent. */
static int count_of(const char *text)
{
    int count = 0;
    size_t len = strlen(text);
    for (size_t i = 0; i + len <= hangar.out.len; i++)
        count += memcmp(hangar.out.data + i, text, len) == 0;
    return count;
}

static void write_out(void)
{
    redis_bytes_clear(&hangar.out, false);
    redis_flight_write(hangar.flight, "weir:", &hangar.out);
    ck_assert(!hangar.out.failed);
}

/* A reply: the time, the permits charged, and `fresh` keys without a state. */
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
    answer->reply = (struct redis_reply){ .kind = REDIS_REPLY_IS_STRING,
                                          .text = answer->bytes,
                                          .len = 14 + fresh + sizeof echo };
    return &answer->reply;
}

static struct redis_reply digest_reply(enum redis_script_id script)
{
    return (struct redis_reply){ .kind = REDIS_REPLY_IS_STRING, .text = redis_scripts[script].sha1, .len = 40 };
}

static struct redis_reply error_reply(const char *text)
{
    return (struct redis_reply){ .kind = REDIS_REPLY_IS_ERROR, .text = text, .len = strlen(text) };
}

/* Put the requests that are sent again into hangar.flight, and write it. */
static void fly_again(void)
{
    redis_flight_clear(hangar.again);
    redis_flight_again(hangar.flight, hangar.again, ended);
    struct redis_flight *landed = hangar.flight;
    hangar.flight = hangar.again;
    hangar.again = landed;
    write_out();
}

#define NO_SCRIPT "NOSCRIPT No matching script. Please use EVAL."
static const struct redis_reply not_there = { .kind = REDIS_REPLY_IS_ERROR,
                                              .text = NO_SCRIPT,
                                              .len = sizeof NO_SCRIPT - 1 };
static const struct redis_reply ok = { .kind = REDIS_REPLY_IS_STATUS, .text = "OK", .len = 2 };
static const struct redis_reply none = { .kind = REDIS_REPLY_IS_NUMBER, .text = "" };
static const struct redis_reply two_replicas = { .kind = REDIS_REPLY_IS_NUMBER, .text = "", .number = 2 };

#define assert_reply(reply, progress) ck_assert_int_eq(redis_flight_reply(hangar.flight, reply, ended), progress)

/* The same for a script's answer. */
#define assert_answer(charged, fresh, progress) \
    assert_reply(answer(hangar.flight, &(struct answer){ .bytes = "" }, charged, fresh), progress)

TEST(requests_for_a_key_share_its_place_and_are_decided_in_order, 10)
{
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=5 period=1h");
    for (int i = 0; i < 4; i++)
        ck_assert(add(i, take(limit, "a", 2)));
    ck_assert(add(4, take(limit, "a", 1)));
    write_out();
    ck_assert_int_eq(count_of("EVALSHA"), 1);
    ck_assert_int_eq(count_of("weir:limit:{a}"), 1);
    assert_answer(5, 1, REDIS_LANDED);
    static const int64_t remaining[] = { 3, 1, 1, 1, 0 };
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(hangar.statuses[i], WEIR_OK);
        ck_assert_int_eq(hangar.decisions[i].remaining, remaining[i]);
        ck_assert(hangar.decisions[i].allowed == (i != 2 && i != 3));
        ck_assert_int_eq(hangar.decisions[i].source, WEIR_BY_REDIS);
    }
    hangar_close();
}

static struct weir_backend_request lease(weir_limit *limit, const char *key, int64_t cost, int64_t ahead,
                                         uint32_t spread)
{
    struct weir_backend_request request = take(limit, key, cost);
    request.ahead = ahead;
    request.spread = (uint16_t)spread;
    return request;
}

/* An item with numbers of one byte. */
#define ITEM(verb, cost, times)                         \
    {                                                   \
        verb, cost, 0, 0, 0, 0, times, 0, 0, 0, 0, 0, 0 \
    }

/* True if the only call in the bytes to be sent has these items, packed with as many copies of the first. */
static bool has_items(size_t copies, const unsigned char (*items)[REDIS_ITEM_SIZE], size_t n)
{
    unsigned char word[32 + REDIS_COUNTS_SIZE + 16 * REDIS_RETURN_SIZE], *packed = word + 32;
    unsigned char *at = packed + REDIS_COUNTS_SIZE;
    must(copies + n <= 16, "room for the items");
    for (size_t i = 0; i < copies; i++, at += REDIS_ITEM_SIZE)
        memcpy(at, items[0], REDIS_ITEM_SIZE);
    memcpy(at, items, n * REDIS_ITEM_SIZE);
    const size_t len = redis_items_pack(packed, copies + n);
    const size_t head_len = (size_t)snprintf((char *)word, 32, "$%zu\r\n", len + REDIS_ECHO_SIZE);
    memmove(word + head_len, packed, len);
    return memmem(hangar.out.data, hangar.out.len, word, head_len + len) != NULL;
}

TEST(keys_with_equal_takes_share_an_item_and_returns_follow_them, 10)
{
    static const unsigned char items[][REDIS_ITEM_SIZE] = {
        ITEM(WEIR_TAKE, 2, 1),              /* of b, c and f */
        ITEM(REDIS_RETURN, 1, 9),           /* of a */
        ITEM(REDIS_RETURN, 1, 8),           /* of e */
        ITEM(WEIR_TAKE, 3, 1),              /* of d */
        ITEM(WEIR_TAKE + REDIS_MORE, 2, 1), /* of g */
        ITEM(REDIS_RETURN, 1, 7),           /* of g */
    };
    static const struct {
        const char *key;
        int64_t cost, since_us; /* since_us > 0: a return */
    } requests[] = { { "a", 1, 9 }, { "b", 2, 0 }, { "c", 2, 0 }, { "d", 3, 0 },
                     { "e", 1, 8 }, { "f", 2, 0 }, { "g", 2, 0 }, { "g", 1, 7 } };
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=20 period=1h");
    for (int i = 0; i < 8; i++) {
        struct weir_backend_request request = take(limit, requests[i].key, requests[i].cost);
        request.verb = requests[i].since_us > 0 ? WEIR_REFUND : WEIR_TAKE;
        request.ahead = requests[i].since_us;
        ck_assert(add(i, request));
    }
    write_out();
    ck_assert_int_eq(count_of("EVALSHA"), 1);
    ck_assert(has_items(2, items, sizeof items / sizeof items[0]));
    static const char order[] = "bcfaedg"; /* of the keys */
    const char *last = hangar.out.data;
    for (int i = 0; i < 7; i++) {
        char name[] = { '{', order[i], '}', '\0' };
        const char *at = memmem(hangar.out.data, hangar.out.len, name, 3);
        ck_assert(at != NULL && at > last);
        last = at;
    }
    assert_answer(2 + 2 + 3 + 2 + 2, 7, REDIS_LANDED);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(hangar.statuses[i], WEIR_OK);
        ck_assert_int_eq(hangar.decisions[i].remaining,
                         requests[i].since_us > 0 ? (i == 7 ? 18 : 20) : 20 - requests[i].cost);
    }
    hangar_close();
}

TEST(requests_that_lease_are_separate_items_in_their_keys_place, 10)
{
    static const unsigned char items[][REDIS_ITEM_SIZE] = {
        ITEM(WEIR_TAKE + REDIS_MORE, 1, 1),            /* a plain take */
        ITEM(WEIR_TAKE + REDIS_MORE, 1, 1),            /* the same cost, but it also charges in advance, */
        ITEM(REDIS_LEASE_IF_TAKEN + REDIS_MORE, 4, 4), /* by this item */
        ITEM(WEIR_TAKE + REDIS_MORE, 1, 1),            /* the same again */
        ITEM(REDIS_LEASE_IF_TAKEN + REDIS_MORE, 4, 4),
        ITEM(WEIR_TAKE + REDIS_MORE, 1, 2), /* two plain takes */
        ITEM(REDIS_LEASE + REDIS_MORE, 9, 1),
        ITEM(WEIR_TAKE + REDIS_MORE, 1, 1), /* denied, and with it the permits in advance */
        ITEM(REDIS_LEASE_IF_TAKEN, 1, 1),
    };
    static const int64_t remaining[] = { 19, 14, 10, 9, 8, 0, 0 }, ahead[] = { 0, 4, 3, 0, 0, 8, 0 };
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=20 period=1h");
    ck_assert(add(0, take(limit, "a", 1)));
    ck_assert(add(1, lease(limit, "a", 1, 4, 4)));
    ck_assert(add(2, lease(limit, "a", 1, 4, 4)));
    ck_assert(add(3, take(limit, "a", 1)));
    ck_assert(add(4, take(limit, "a", 1)));
    ck_assert(add(5, lease(limit, "a", 0, 9, 1)));
    ck_assert(add(6, lease(limit, "a", 1, 1, 1)));
    write_out();
    ck_assert_int_eq(count_of("EVALSHA"), 1);
    ck_assert(has_items(0, items, sizeof items / sizeof items[0]));
    for (int64_t charged = 19; charged <= 21; charged += 2) /* sums other than the correct one */
        assert_answer(charged, 1, REDIS_MISFIT);
    assert_answer(20, 1, REDIS_LANDED);
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(hangar.statuses[i], WEIR_OK);
        ck_assert_int_eq(hangar.decisions[i].remaining, remaining[i]);
        ck_assert_int_eq(hangar.decisions[i].ahead, ahead[i]);
        ck_assert(hangar.decisions[i].allowed == (i != 6));
        ck_assert_int_eq(hangar.decisions[i].source, WEIR_BY_REDIS);
    }
    hangar_close();
}

TEST(keys_of_a_limit_share_a_call_and_limits_do_not, 10)
{
    char name[16];
    hangar_open(ASKS);
    weir_limit *first = scene_define_text(&hangar.scene, "first", "token_bucket limit=5 period=1s");
    weir_limit *second = scene_define_text(&hangar.scene, "second", "token_bucket limit=5 period=1s");
    for (int i = 0; i < 65; i++) {
        static char names[65][16];
        snprintf(names[i], sizeof names[i], "key%d", i);
        ck_assert(add(i, take(first, names[i], 1)));
    }
    write_out();
    ck_assert_int_eq(count_of("EVALSHA"), 2); /* one more than REDIS_CALL_KEYS */
    ck_assert(add(65, take(second, "key0", 1)));
    write_out();
    ck_assert_int_eq(count_of("EVALSHA"), 3);
    for (int i = 0; i < 65; i++) {
        snprintf(name, sizeof name, "{key%d}", i);
        ck_assert_int_eq(count_of(name), i == 0 ? 2 : 1);
    }
    redis_flight_fail(hangar.flight, WEIR_EIO, ended);
    hangar_close();
}

TEST(a_call_carries_fewer_keys_if_each_costs_redis_more_time, 10)
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
        char names[64][16];
        hangar_open(ASKS);
        weir_limit *limit = scene_define_text(&hangar.scene, "limit", cases[i].policy);
        for (int k = 0; k < 64; k++) {
            snprintf(names[k], sizeof names[k], "key%d", k);
            ck_assert(add(k, take(limit, names[k], 1)));
        }
        write_out();
        ck_assert_int_eq(count_of("EVALSHA"), cases[i].calls);
        redis_flight_fail(hangar.flight, WEIR_EIO, ended);
        hangar_close();
    }
}

TEST(a_key_decided_by_another_time_gets_a_later_call, 10)
{
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    static const int64_t times[] = { 111111, 222222, 111111 };
    for (int i = 0; i < 3; i++) {
        struct weir_backend_request request = take(limit, "a", 1);
        request.now_us = times[i];
        ck_assert(add(i, request));
    }
    write_out();
    ck_assert_int_eq(count_of("EVALSHA"), 3);
    ck_assert_int_eq(count_of("111111"), 2);
    redis_flight_fail(hangar.flight, WEIR_EIO, ended);
    hangar_close();
}

TEST(a_full_flight_takes_all_of_a_group_or_none, 10)
{
    hangar_open(4);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    const struct weir_backend_request three[3] = { take(limit, "a", 1), take(limit, "b", 1), take(limit, "c", 1) };
    ck_assert(redis_flight_add(hangar.flight, three, 3, false, 1000, hangar.decisions, &hangar.statuses[0], false));
    ck_assert(!redis_flight_add(hangar.flight, three, 2, true, 1000, hangar.decisions, &hangar.statuses[1], false));
    ck_assert_uint_eq(hangar.flight->request_count, 3);
    ck_assert(add(2, take(limit, "d", 1)));
    ck_assert(!add(3, take(limit, "d", 1)));
    hangar_close();
}

TEST(a_missing_script_is_loaded_and_its_call_resent_at_most_three_times, 10)
{
    hangar_open(16);
    weir_limit *bucket = scene_define_text(&hangar.scene, "bucket", "token_bucket limit=5 period=1s");
    weir_limit *window = scene_define_text(&hangar.scene, "window", "fixed_window limit=5 period=1s");
    ck_assert(add(0, take(bucket, "a", 1)));
    ck_assert(add(1, take(window, "a", 1)));
    write_out();
    assert_reply(&not_there, REDIS_FLYING);
    assert_answer(1, 1, REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[0], 1);
    ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
    for (int i = 2; i <= REDIS_TRIES; i++) {
        ck_assert_uint_ne(hangar.flight->not_loaded, 0);
        fly_again();
        ck_assert_int_eq(count_of("EVALSHA"), 1);
        ck_assert_int_eq(count_of("\r\nSCRIPT\r\n"), 1);
        const struct redis_reply loaded = digest_reply(REDIS_BUCKET_SINGLE);
        assert_reply(&loaded, REDIS_FLYING);
        assert_reply(&not_there, REDIS_LANDED);
    }
    redis_flight_clear(hangar.again);
    redis_flight_again(hangar.flight, hangar.again, ended);
    ck_assert_uint_eq(hangar.again->request_count, 0);
    ck_assert_int_eq(hangar.statuses[0], WEIR_EIO);
    hangar_close();
}

TEST(script_load_is_answered_by_the_scripts_digest_or_an_error, 10)
{
    static const char other[] = "0123456789012345678901234567890123456789";
    const char *sha1 = redis_scripts[REDIS_BUCKET_SINGLE].sha1;
    const struct {
        struct redis_reply reply;
        enum redis_progress progress;
    } cases[] = {
        { { .kind = REDIS_REPLY_IS_STRING, .text = sha1, .len = 40 }, REDIS_FLYING },
        { { .kind = REDIS_REPLY_IS_ERROR, .text = "NOPERM no", .len = 9 }, REDIS_FLYING },
        { { .kind = REDIS_REPLY_IS_STRING, .text = sha1, .len = 39 }, REDIS_MISFIT },
        { { .kind = REDIS_REPLY_IS_STRING, .text = other, .len = 40 }, REDIS_MISFIT },
        { { .kind = REDIS_REPLY_IS_STATUS, .text = sha1, .len = 40 }, REDIS_MISFIT },
        { { .kind = REDIS_REPLY_IS_NIL, .text = "", .len = 0 }, REDIS_MISFIT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hangar_open(16);
        weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
        ck_assert(add(0, take(limit, "a", 1)));
        write_out();
        assert_reply(&not_there, REDIS_LANDED);
        fly_again();
        assert_reply(&cases[i].reply, cases[i].progress);
        ck_assert_str_eq(hangar.flight->error_word, cases[i].reply.kind == REDIS_REPLY_IS_ERROR ? "NOPERM" : "");
        ck_assert_int_eq(hangar.statuses[0], 1);
        redis_flight_fail(hangar.flight, WEIR_EIO, ended);
        hangar_close();
    }
}

TEST(a_group_stays_one_call_when_it_is_resent, 10)
{
    struct answer reply;
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    const struct weir_backend_request two[2] = { take(limit, "a", 2), take(limit, "b", 3) };
    ck_assert(redis_flight_add(hangar.flight, two, 2, true, 1000, hangar.decisions, &hangar.statuses[0], false));
    write_out();
    assert_reply(&not_there, REDIS_LANDED);
    redis_flight_again(hangar.flight, hangar.again, ended);
    ck_assert_uint_eq(hangar.again->call_count, 1);
    ck_assert_uint_eq(hangar.again->request_count, 2);
    hangar.again->loads = 0;
    redis_bytes_clear(&hangar.out, false);
    redis_flight_write(hangar.again, "weir:", &hangar.out);
    ck_assert_int_eq(count_of("EVALSHA"), 1);
    hangar.statuses[0] = 1;
    int told = 1;
    for (size_t i = 0; i < 2; i++)
        hangar.again->requests[i].owner = i == 0 ? &told : &hangar.statuses[0];
    ck_assert_int_eq(redis_flight_reply(hangar.again, answer(hangar.again, &reply, 5, 2), ended), REDIS_LANDED);
    ck_assert_int_eq(told, WEIR_OK);
    ck_assert_int_eq(hangar.decisions[0].remaining, 3);
    ck_assert_int_eq(hangar.decisions[1].remaining, 2);
    hangar_close();
}

TEST(an_error_ends_its_call_and_no_other, 10)
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
        { "A_WORD_OF_MANY_MORE_LETTERS_THAN_ANY_THAT_REDIS_HAS", "A_WORD_OF_MANY_MORE_LET" },
        { "secret", "ERR" },
        { "{SECRET}", "ERR" },
        { "_secret", "_" },
        { "", "ERR" },
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        const struct redis_reply error = error_reply(errors[i].text);
        hangar_open(16);
        weir_limit *bucket = scene_define_text(&hangar.scene, "bucket", "token_bucket limit=5 period=1s");
        weir_limit *window = scene_define_text(&hangar.scene, "window", "fixed_window limit=5 period=1s");
        ck_assert(add(0, take(bucket, "a", 1)));
        ck_assert(add(1, take(window, "a", 1)));
        write_out();
        assert_reply(&error, REDIS_FLYING);
        ck_assert_int_eq(hangar.statuses[0], WEIR_EIO);
        ck_assert_int_eq(hangar.statuses[1], 1);
        assert_answer(1, 1, REDIS_LANDED);
        ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
        ck_assert_str_eq(hangar.flight->error_word, errors[i].word);
        ck_assert(hangar.flight->read_only == (strcmp(errors[i].word, "READONLY") == 0));
        hangar_close();
    }
}

TEST(an_error_is_logged_with_its_command_and_limit_but_without_keys_or_secrets, 10)
{
    static const struct {
        const char *text, *said;
    } errors[] = {
        { "OOM command not allowed when used memory > 'maxmemory'. script: e0820cb0, on @user_script:2.",
          "OOM command not allowed when used memory > 'maxmemory'. (to EVALSHA for limit bucket)" },
        { "NOPERM User weir has no permissions to access the 'weir:limit:{secret}' key",
          "NOPERM User weir has no permissions to access the '...' key (to EVALSHA for limit bucket)" },
        { "ERR unknown command 'EVALSHA', with args beginning with: 'secret' ",
          "ERR unknown command '...' (to EVALSHA for limit bucket)" },
        { "ERR a quote without an end 'secret", "ERR a quote without an end '...' (to EVALSHA for limit bucket)" },
        { "ERR ACL failure in script: User weir has no permissions to run the 'mget' command script: e0, on x:1.",
          "NOPERM User weir has no permissions to run the 'mget' command (to EVALSHA for limit bucket)" },
        { "ERR The user executing the script can't run this command or subcommand",
          "NOPERM the user can't run 'get' (to EVALSHA for limit bucket)" },
        { "ERR The user executing the script can't run this command or subcommand script: e0, on @user_script:99999.",
          "NOPERM the user can't run 'get' (to EVALSHA for limit bucket)" },
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        const struct redis_reply error = error_reply(errors[i].text);
        hangar_open(16);
        ck_assert(add(0, take(scene_define_text(&hangar.scene, "bucket", "token_bucket limit=5 period=1s"), "a", 1)));
        write_out();
        assert_reply(&error, REDIS_LANDED);
        ck_assert_str_eq(hangar.flight->error_said, errors[i].said);
        hangar_close();
    }
}

TEST(an_answer_that_does_not_fit_is_no_decision, 10)
{
    struct answer good, bad;
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    ck_assert(add(0, take(limit, "a", 1)));
    ck_assert(add(1, take(limit, "b", 1)));
    write_out();
    answer(hangar.flight, &good, 2, 2);
    for (size_t len = 0; len < good.reply.len; len++) { /* too short */
        bad = good;
        bad.reply.text = bad.bytes;
        bad.reply.len = len;
        assert_reply(&bad.reply, REDIS_MISFIT);
    }
    assert_answer(2, 3, REDIS_MISFIT); /* too long */
    assert_answer(1, 2, REDIS_MISFIT); /* a wrong sum */
    assert_answer(3, 2, REDIS_MISFIT);
    for (int i = 0; i < 4; i++) { /* another call's echo */
        bad = good;
        bad.reply.text = bad.bytes;
        bad.bytes[16 + i] ^= 1;
        assert_reply(&bad.reply, REDIS_MISFIT);
    }
    bad = good;
    bad.reply.text = bad.bytes;
    bad.bytes[14] = 'T'; /* an unknown tag */
    assert_reply(&bad.reply, REDIS_MISFIT);
    bad.reply = good.reply;
    bad.reply.kind = REDIS_REPLY_IS_STATUS;
    assert_reply(&bad.reply, REDIS_MISFIT);
    bad.reply.kind = REDIS_REPLY_IS_OTHER;
    assert_reply(&bad.reply, REDIS_MISFIT);
    ck_assert_int_eq(hangar.statuses[0], 1);
    assert_reply(&good.reply, REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[0], WEIR_OK);
    hangar_close();
}

/* Return the argument of the flight's only call, of `size` bytes. */
static const char *argument_of(size_t size)
{
    return hangar.out.data + hangar.out.len - 2 - size;
}

/* Make the short denial of the flight's take: the state that it met, `text` instead of a time, and the echo. */
static struct redis_reply short_denial(char *bytes, const char *text, int64_t used_halves)
{
    const char *argument = argument_of(REDIS_TAKE_SIZE);
    const size_t len = strlen(text);
    memcpy(bytes, argument, REDIS_STAMP_MAX);
    number(bytes + REDIS_STAMP_MAX, used_halves);
    number(bytes + REDIS_STAMP_MAX + 7, INT64_C(1790000000000000));
    memcpy(bytes + REDIS_BUCKET_STATE_SIZE, text, len);
    memcpy(bytes + REDIS_BUCKET_STATE_SIZE + len, argument + REDIS_TAKE_SIZE - REDIS_ECHO_SIZE, REDIS_ECHO_SIZE);
    return (struct redis_reply){ .kind = REDIS_REPLY_IS_STRING,
                                 .text = bytes,
                                 .len = REDIS_BUCKET_STATE_SIZE + len + REDIS_ECHO_SIZE };
}

/* Check that the reply fits only with its echo, and what becomes of it then. */
static void assert_short(struct redis_reply *reply, char *bytes, enum redis_progress progress, int status)
{
    bytes[reply->len - 1] ^= 1; /* another call's echo */
    assert_reply(reply, REDIS_MISFIT);
    bytes[reply->len - 1] ^= 1;
    assert_reply(reply, progress);
    ck_assert_int_eq(hangar.statuses[0], status);
}

static const int64_t half = WEIR_SECOND * 2; /* half units of a permit: 5 in 5 s, of which a unit comes back each us */

TEST(a_short_denial_must_agree_with_its_state, 10)
{
    static const char denies[] = "1790000000 0", admits[] = "1790000000+0";
    static const struct {
        const char *text;
        int64_t used; /* of 5 permits, in tenths */
        int64_t odd;  /* half units more */
        enum redis_progress progress;
        int status;
    } cases[] = {
        { denies, 40, 0, REDIS_LANDED, WEIR_OK },     { denies, 30, 0, REDIS_MISFIT, 1 },
        { admits, 40, 0, REDIS_MISFIT, 1 },           { denies, 0, 0, REDIS_LANDED, WEIR_ESTATE },
        { denies, 40, 1, REDIS_LANDED, WEIR_ESTATE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char bytes[256];
        hangar_open(16);
        weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=5s");
        ck_assert(add(0, take(limit, "a", 2)));
        write_out();
        struct redis_reply reply = short_denial(bytes, cases[i].text, cases[i].used * half / 10 + cases[i].odd);
        assert_short(&reply, bytes, cases[i].progress, cases[i].status);
        if (cases[i].status == WEIR_OK)
            ck_assert(!hangar.decisions[0].allowed);
        hangar_close();
    }
}

TEST(only_a_take_may_be_answered_by_a_short_denial, 10)
{
    char bytes[256];
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=5s");
    struct weir_backend_request request = take(limit, "a", 2);
    ck_assert(add(0, request));
    write_out();
    struct redis_reply reply = short_denial(bytes, "1790000000 0", 4 * half);
    redis_flight_clear(hangar.flight);
    request.verb = WEIR_REFUND;
    request.ahead = INT64_C(1790000000000000);
    ck_assert(add(0, request));
    write_out();
    memcpy(bytes + reply.len - REDIS_ECHO_SIZE, argument_of(REDIS_SETTLE_SIZE) + REDIS_TAKE_SIZE - REDIS_ECHO_SIZE,
           REDIS_ECHO_SIZE);
    assert_short(&reply, bytes, REDIS_MISFIT, 1);
    hangar_close();
}

/* A request for 2 permits of 5 at 1,790,000,000 s. A return gives back what was charged up to 2 s before, and may leave
 * nothing. */
TEST(a_decision_from_the_new_state_equals_one_from_the_old_state, 10)
{
    static const struct {
        uint8_t verb; /* enum weir_verb */
        int64_t since_s;
        int64_t left; /* of 5 permits, in tenths */
        int64_t odd;  /* half units more */
        enum redis_progress progress;
        int64_t remaining;
    } cases[] = {
        { WEIR_TAKE, 0, 20, 0, REDIS_LANDED, 3 },   { WEIR_TAKE, 0, 50, 0, REDIS_LANDED, 0 },
        { WEIR_TAKE, 0, 51, 0, REDIS_MISFIT, 0 },   { WEIR_TAKE, 0, 19, 0, REDIS_MISFIT, 0 },
        { WEIR_TAKE, 0, 30, 1, REDIS_MISFIT, 0 },   { WEIR_CHARGE, 0, 25, 0, REDIS_LANDED, 2 },
        { WEIR_CHARGE, 0, 19, 0, REDIS_MISFIT, 0 }, { WEIR_REFUND, 0, 1, 0, REDIS_LANDED, 4 },
        { WEIR_REFUND, 1, 45, 0, REDIS_LANDED, 0 }, { WEIR_REFUND, 3, 10, 0, REDIS_LANDED, 4 },
        { WEIR_REFUND, 0, 0, 0, REDIS_LANDED, 5 },  { WEIR_REFUND, 0, 1, 1, REDIS_MISFIT, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char bytes[REDIS_LEFT_SIZE + REDIS_ECHO_SIZE];
        hangar_open(16);
        weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=5s");
        struct weir_backend_request request = take(limit, "a", 2);
        request.verb = cases[i].verb;
        if (cases[i].verb == WEIR_REFUND)
            request.ahead = (INT64_C(1790000000) - cases[i].since_s) * WEIR_SECOND;
        ck_assert(add(0, request));
        write_out();
        const char *argument = argument_of(cases[i].verb == WEIR_TAKE     ? REDIS_TAKE_SIZE
                                           : cases[i].verb == WEIR_CHARGE ? REDIS_CHARGE_SIZE
                                                                          : REDIS_SETTLE_SIZE);
        number(bytes, cases[i].left * half / 10 + cases[i].odd);
        number(bytes + 7, INT64_C(1790000000000000));
        memcpy(bytes + REDIS_LEFT_SIZE, argument + REDIS_TAKE_SIZE - REDIS_ECHO_SIZE, REDIS_ECHO_SIZE);
        struct redis_reply reply = { .kind = REDIS_REPLY_IS_STRING, .text = bytes, .len = sizeof bytes };
        assert_short(&reply, bytes, cases[i].progress, cases[i].progress == REDIS_LANDED ? WEIR_OK : 1);
        if (cases[i].progress == REDIS_LANDED) {
            ck_assert(hangar.decisions[0].allowed);
            ck_assert_int_eq(hangar.decisions[0].remaining, cases[i].remaining);
        }
        hangar_close();
    }
}

TEST(only_single_takes_and_settlements_by_redis_time_use_the_short_script, 10)
{
    hangar_open(16);
    weir_limit *bucket = scene_define_text(&hangar.scene, "bucket", "token_bucket limit=5 period=1s");
    weir_limit *window = scene_define_text(&hangar.scene, "window", "fixed_window limit=5 period=1s");
    enum { TAKE, RETURN, CHARGE, PEEK, REFUND, TIMED, LEASE, WINDOW, LARGE, CASES };
    struct weir_backend_request requests[CASES];
    for (int i = 0; i < CASES; i++)
        requests[i] = take(i == WINDOW ? window : bucket, "a", 1);
    requests[RETURN].verb = requests[REFUND].verb = WEIR_REFUND;
    requests[RETURN].ahead = 1790000000000000;
    requests[CHARGE].verb = requests[LARGE].verb = WEIR_CHARGE;
    requests[LARGE].cost = 6;
    requests[PEEK].verb = WEIR_PEEK;
    requests[TIMED].now_us = 1790000000000000;
    requests[LEASE].ahead = 5;
    requests[LEASE].spread = 1;
    for (int i = 0; i < CASES; i++) {
        redis_flight_clear(hangar.flight);
        ck_assert(add(i, requests[i]));
        write_out();
        ck_assert_int_eq(count_of(redis_scripts[REDIS_BUCKET_SINGLE].sha1), i == TAKE || i == RETURN || i == CHARGE);
    }
    for (int second = TAKE; second <= RETURN; second++) {
        redis_flight_clear(hangar.flight);
        ck_assert(add(0, requests[second]) && add(1, requests[second])); /* of one key */
        write_out();
        ck_assert_int_eq(count_of(redis_scripts[REDIS_TOKEN_BUCKET].sha1), 1);
        requests[second].key = (struct weir_key){ "b", 1 };
        redis_flight_clear(hangar.flight);
        ck_assert(add(0, requests[TIMED - 1]) && add(1, requests[second]));
        write_out();
        ck_assert_int_eq(count_of(redis_scripts[REDIS_TOKEN_BUCKET].sha1), 1);
    }
    hangar_close();
}

/* The answer to a charge that asks: how long the key lay idle, how long ago that ended, and a script's answer. */
static struct redis_reply idle_answer(char *bytes, int64_t idle_us, int64_t ended_us, int64_t charged)
{
    struct answer rest = { .bytes = "" };
    const struct redis_reply *reply = answer(hangar.flight, &rest, charged, 1);
    number(bytes, idle_us);
    number(bytes + 7, ended_us);
    memcpy(bytes + 14, reply->text, reply->len);
    return (struct redis_reply){ .kind = REDIS_REPLY_IS_STRING, .text = bytes, .len = 14 + reply->len };
}

static struct weir_backend_request ask(weir_limit *limit, const char *key, int64_t ahead)
{
    struct weir_backend_request request = lease(limit, key, 0, ahead, 1);
    request.cold_left = 5 * WEIR_SECOND;
    return request;
}

TEST(a_settling_charge_is_a_separate_call_in_order_and_names_the_note, 10)
{
    char bytes[64];
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    ck_assert(add(0, take(limit, "a", 1)) && add(1, ask(limit, "a", 2)) && add(2, take(limit, "a", 1)) &&
              add(3, take(limit, "b", 1)) && add(4, ask(limit, "c", 0)));
    write_out();
    ck_assert_int_eq(count_of("EVALSHA"), 4);
    ck_assert_int_eq(count_of(redis_scripts[REDIS_SETTLE].sha1), 2);
    ck_assert_int_eq(count_of("$1\r\n2\r\n$14\r\nweir:limit:{a}\r\n$16\r\nweir:limit:{a}:i\r\n$22\r\n"), 1);
    assert_answer(1, 1, REDIS_FLYING);
    struct redis_reply reply = idle_answer(bytes, 3 * WEIR_SECOND, 7, 2);
    assert_reply(&reply, REDIS_FLYING);
    ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
    ck_assert_int_eq(hangar.statuses[2], 1);
    ck_assert_int_eq(hangar.decisions[1].ahead, 2);
    ck_assert_int_eq(hangar.decisions[1].age_us, 3 * WEIR_SECOND);
    ck_assert_int_eq(hangar.decisions[1].retry_after_us, 7);
    assert_answer(2, 2, REDIS_FLYING);
    reply = idle_answer(bytes, 0, 0, 0);
    assert_reply(&reply, REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[4], WEIR_OK);
    ck_assert_int_eq(hangar.decisions[4].age_us, 0);
    hangar_close();
}

TEST(a_settling_charge_with_a_time_gets_no_idle_time, 10)
{
    hangar_open(16);
    weir_limit *window = scene_define_text(&hangar.scene, "window", "fixed_window limit=5 period=1h");
    struct weir_backend_request request = ask(window, "a", 2);
    request.now_us = INT64_C(1790000000000000);
    ck_assert(add(0, request));
    write_out();
    ck_assert_int_eq(count_of(redis_scripts[REDIS_SETTLE].sha1), 0);
    ck_assert_int_eq(count_of(redis_scripts[REDIS_FIXED_WINDOW].sha1), 1);
    assert_answer(2, 1, REDIS_LANDED);
    ck_assert_int_eq(hangar.decisions[0].ahead, 2);
    ck_assert_int_eq(hangar.decisions[0].age_us, 0);
    ck_assert_int_eq(hangar.decisions[0].retry_after_us, 0);
    hangar_close();
}

TEST(an_answer_too_short_for_an_idle_time_does_not_fit, 10)
{
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    ck_assert(add(0, ask(limit, "a", 2)));
    write_out();
    assert_answer(2, 1, REDIS_MISFIT);
    redis_flight_fail(hangar.flight, WEIR_EIO, ended);
    hangar_close();
}

TEST(an_answer_to_a_group_fits_as_a_whole, 10)
{
    struct answer reply;
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    const struct weir_backend_request two[2] = { take(limit, "a", 1), take(limit, "b", 1) };
    ck_assert(redis_flight_add(hangar.flight, two, 2, true, 1000, hangar.decisions, &hangar.statuses[0], false));
    hangar.flight->requests[1].owner = &hangar.statuses[1];
    write_out();
    for (int64_t charged = 1; charged <= 3; charged += 2) /* sums other than that of both */
        assert_answer(charged, 2, REDIS_MISFIT);
    for (size_t fresh = 1; fresh <= 3; fresh += 2) /* one key too few or too many */
        assert_answer(2, fresh, REDIS_MISFIT);
    answer(hangar.flight, &reply, 2, 2);
    reply.bytes[15] = 'T'; /* an unknown tag */
    assert_reply(&reply.reply, REDIS_MISFIT);
    answer(hangar.flight, &reply, 0, 2);
    reply.bytes[14] = 1; /* the first is foreign, the second is not */
    assert_reply(&reply.reply, REDIS_LANDED);
    ck_assert(hangar.statuses[0] == WEIR_ESTATE && hangar.statuses[1] == WEIR_ESTATE);
    hangar_close();
}

TEST(an_answer_must_have_the_requested_time, 10)
{
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    for (int i = 0; i < 2; i++) {
        const int64_t now_us = INT64_C(1790000000000000) + 1 - i; /* the second time is answer()'s */
        ck_assert(add(i, backend_request(limit, weir_key_text("a"), 1, now_us, WEIR_TAKE)));
        write_out();
        assert_answer(1, 1, i == 0 ? REDIS_MISFIT : REDIS_LANDED);
        if (i == 0)
            redis_flight_fail(hangar.flight, WEIR_EIO, ended);
        redis_flight_clear(hangar.flight);
    }
    ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
    hangar_close();
}

TEST(repeated_readonly_errors_report_one_replica, 10)
{
    const struct redis_reply replica = error_reply("READONLY You can't write against a read only replica.");
    hangar_open(16);
    for (int i = 0; i < 2; i++)
        ck_assert(add(i, take(scene_define_text(&hangar.scene, i ? "other" : "limit", "fixed_window limit=5 period=1s"),
                              "a", 1)));
    write_out();
    assert_reply(&replica, REDIS_FLYING);
    assert_reply(&replica, REDIS_LANDED);
    ck_assert(hangar.flight->read_only && hangar.statuses[0] == WEIR_EIO && hangar.statuses[1] == WEIR_EIO);
    hangar_close();
}

TEST(a_late_answer_ends_only_the_requests_that_have_expired, 10)
{
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=5 period=1h");
    for (int i = 0; i < 3; i++) /* the deadlines are 1000, 1001 and 1002 */
        ck_assert(add(i, take(limit, "a", 1)));
    ck_assert_int_eq(hangar.flight->deadline_us, 1000);
    write_out();
    memset(&hangar.decisions[0], 0x5a, sizeof hangar.decisions[0]);
    redis_flight_expire(hangar.flight, 999, ended);
    ck_assert_int_eq(hangar.statuses[0], 1);
    redis_flight_expire(hangar.flight, 1000, ended);
    ck_assert_int_eq(hangar.statuses[0], WEIR_ETIME);
    ck_assert_int_eq(hangar.statuses[1], 1);
    ck_assert_int_eq(hangar.flight->deadline_us, 1001);
    assert_answer(3, 1, REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[0], WEIR_ETIME);
    ck_assert_int_eq(hangar.decisions[0].limit, INT64_C(0x5a5a5a5a5a5a5a5a));
    ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
    ck_assert_int_eq(hangar.decisions[1].remaining, 3); /* the first request was charged all the same */
    ck_assert_int_eq(hangar.decisions[2].remaining, 2);
    hangar_close();
}

TEST(a_foreign_value_fails_only_its_key_or_its_whole_group, 10)
{
    struct answer reply;
    hangar_open(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    ck_assert(add(0, take(limit, "a", 1)));
    ck_assert(add(1, take(limit, "b", 1)));
    const struct weir_backend_request two[2] = { take(limit, "a", 1), take(limit, "c", 1) };
    int both = 1;
    ck_assert(redis_flight_add(hangar.flight, two, 2, true, 1000, &hangar.decisions[2], &both, false));
    write_out();
    answer(hangar.flight, &reply, 1, 2);
    reply.bytes[14] = 1;
    assert_reply(&reply.reply, REDIS_FLYING);
    ck_assert_int_eq(hangar.statuses[0], WEIR_ESTATE);
    ck_assert_int_eq(hangar.statuses[1], WEIR_OK);
    for (size_t i = 2; i < 4; i++)
        hangar.flight->requests[i].owner = &hangar.statuses[i];
    answer(hangar.flight, &reply, 0, 2);
    reply.bytes[15] = 1;
    assert_reply(&reply.reply, REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[2], WEIR_ESTATE);
    ck_assert_int_eq(hangar.statuses[3], WEIR_ESTATE);
    hangar_close();
}

/* ---- In a cluster ---- */

TEST(in_a_cluster_each_key_has_a_separate_call_that_its_requests_share, 10)
{
    hangar_open_in_cluster(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=5 period=1h");
    static const char *const keys[] = { "a", "b", "a", "c", "b" };
    for (int i = 0; i < 5; i++)
        ck_assert(add(i, take(limit, keys[i], 1)));
    const struct weir_backend_request two[2] = { take(limit, "{x}a", 2), take(limit, "{x}b", 3) };
    ck_assert(redis_flight_add(hangar.flight, two, 2, true, 1000, &hangar.decisions[5], &hangar.statuses[5], false));
    write_out();
    ck_assert_int_eq(count_of("EVALSHA"), 4);
    ck_assert_int_eq(count_of("ASKING"), 0);
    ck_assert_int_eq(count_of("weir:limit:{a}"), 1);
    for (int call = 0; call < 3; call++)
        assert_answer(call < 2 ? 2 : 1, 1, REDIS_FLYING);
    static const int64_t remaining[] = { 4, 4, 3, 4, 3 };
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(hangar.statuses[i], WEIR_OK);
        ck_assert_int_eq(hangar.decisions[i].remaining, remaining[i]);
    }
    hangar.flight->requests[6].owner = &hangar.statuses[6]; /* each has its own status */
    assert_answer(5, 2, REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[5], WEIR_OK);
    ck_assert_int_eq(hangar.statuses[6], WEIR_OK);
    hangar_close();
}

/* The status of an ended request, and its redirect. */
struct told {
    int status; /* NOT_TOLD */
    struct redis_redirect redirect;
};
enum { NOT_TOLD = 99 };

static void told_of(struct redis_flight_request *aboard, int status, const struct redis_redirect *redirect)
{
    struct told *told = aboard->owner;
    ck_assert_int_eq(told->status, NOT_TOLD);
    told->status = status;
    ck_assert((redirect != NULL) == (status == REDIS_MOVED || status == REDIS_ASKING));
    if (redirect)
        told->redirect = *redirect;
}

TEST(a_redirect_gives_the_node_to_ask_and_only_in_a_cluster, 10)
{
    static const struct {
        const char *text;
        int status; /* in a cluster */
        const char *host;
        int port;
        const char *word; /* outside a cluster; inside one, of the errors only */
    } cases[] = {
        { "MOVED 3999 127.0.0.1:6381", REDIS_MOVED, "127.0.0.1", 6381, "MOVED" },
        { "MOVED 3999 :6381", REDIS_MOVED, "", 6381, "MOVED" },
        { "ASK 3999 ::1:6381", REDIS_ASKING, "::1", 6381, "ASK" },
        { "TRYAGAIN Multiple keys request during rehashing of slot", REDIS_TRY_AGAIN, NULL, 0, "TRYAGAIN" },
        { "MOVED 3999 ?:6381", WEIR_EIO, NULL, 0, "MOVED" },
        { "ASK", WEIR_EIO, NULL, 0, "ASK" },
        { "CLUSTERDOWN The cluster is down", WEIR_EIO, NULL, 0, "CLUSTERDOWN" },
        { "CROSSSLOT Keys in request don't hash to the same slot", WEIR_EIO, NULL, 0, "CROSSSLOT" },
        { "ERR Error running script (call to f_bcebee83): @user_script:9: @user_script: 9: -MOVED 3999 127.0.0.1:6381",
          WEIR_EIO, NULL, 0, "MOVED" },
    };
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof cases[0]); i++) {
        struct answer reply;
        struct told told[3] = { { .status = NOT_TOLD }, { .status = NOT_TOLD }, { .status = NOT_TOLD } };
        const bool in_cluster = i % 2 == 0;
        const struct redis_reply error = error_reply(cases[i / 2].text);
        const int status = in_cluster ? cases[i / 2].status : WEIR_EIO;
        hangar_open_by(16, (struct redis_flight_rules){ .in_cluster = in_cluster });
        weir_limit *bucket = scene_define_text(&hangar.scene, "bucket", "token_bucket limit=5 period=1s");
        weir_limit *window = scene_define_text(&hangar.scene, "window", "fixed_window limit=5 period=1s");
        const struct weir_backend_request requests[] = { take(bucket, "a", 1), take(bucket, "a", 2),
                                                         take(window, "a", 1) };
        for (int k = 0; k < 3; k++)
            ck_assert(
                redis_flight_add(hangar.flight, &requests[k], 1, false, 1000, &hangar.decisions[k], &told[k], false));
        write_out();
        ck_assert_int_eq(redis_flight_reply(hangar.flight, &error, told_of), REDIS_FLYING);
        for (int k = 0; k < 2; k++) {
            ck_assert_msg(told[k].status == status, "%s: %d", cases[i / 2].text, told[k].status);
            if (status == REDIS_MOVED || status == REDIS_ASKING) {
                ck_assert_str_eq(told[k].redirect.to.host, cases[i / 2].host);
                ck_assert_int_eq(told[k].redirect.to.port, cases[i / 2].port);
                ck_assert_uint_eq(told[k].redirect.slot, 3999);
            }
        }
        ck_assert_str_eq(hangar.flight->error_word, status < 0 ? cases[i / 2].word : "");
        ck_assert(hangar.flight->decided == (status > 0));
        ck_assert_int_eq(redis_flight_reply(hangar.flight, answer(hangar.flight, &reply, 1, 1), told_of), REDIS_LANDED);
        ck_assert_int_eq(told[2].status, WEIR_OK);
        ck_assert_uint_eq(hangar.flight->not_loaded, 0);
        hangar_close();
    }
}

TEST(a_request_redirected_by_ask_has_a_separate_call_right_after_asking, 10)
{
    hangar_open_in_cluster(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=9 period=1h");
    static const bool asking[] = { false, true, true, false, false };
    for (int i = 0; i < 5; i++)
        ck_assert(add_by(i, take(limit, "a", 1), asking[i]));
    write_out();
    ck_assert_int_eq(count_of("EVALSHA"), 4);
    ck_assert_int_eq(count_of("*1\r\n$6\r\nASKING\r\n*"), 2);
    for (int call = 0; call < 4; call++) {
        if (call == 1 || call == 2)
            assert_reply(&ok, REDIS_FLYING);
        ck_assert_int_eq(hangar.statuses[call], 1);
        assert_answer(call == 3 ? 2 : 1, 1, call == 3 ? REDIS_LANDED : REDIS_FLYING);
        ck_assert_int_eq(hangar.statuses[call], WEIR_OK);
    }
    ck_assert_int_eq(hangar.statuses[4], WEIR_OK);
    hangar_close();
}

TEST(asking_is_answered_by_ok_or_an_error_and_its_call_follows, 10)
{
    static const struct {
        struct redis_reply reply;
        enum redis_progress progress;
    } cases[] = {
        { { .kind = REDIS_REPLY_IS_STATUS, .text = "OK", .len = 2 }, REDIS_FLYING },
        { { .kind = REDIS_REPLY_IS_ERROR, .text = "NOPERM this user has no permissions", .len = 35 }, REDIS_FLYING },
        { { .kind = REDIS_REPLY_IS_STATUS, .text = "QUEUED", .len = 6 }, REDIS_MISFIT },
        { { .kind = REDIS_REPLY_IS_STATUS, .text = "NO", .len = 2 }, REDIS_MISFIT },
        { { .kind = REDIS_REPLY_IS_STATUS, .text = "", .len = 0 }, REDIS_MISFIT },
        { { .kind = REDIS_REPLY_IS_STRING, .text = "OK", .len = 2 }, REDIS_MISFIT },
        { { .kind = REDIS_REPLY_IS_NIL, .text = "", .len = 0 }, REDIS_MISFIT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct redis_reply moved = error_reply("MOVED 3999 127.0.0.1:6381");
        hangar_open_in_cluster(16);
        weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=9 period=1h");
        ck_assert(add_by(0, take(limit, "a", 1), true));
        write_out();
        assert_reply(&cases[i].reply, cases[i].progress);
        ck_assert_int_eq(hangar.statuses[0], 1);
        if (cases[i].progress == REDIS_FLYING) {
            assert_reply(&moved, REDIS_LANDED);
            ck_assert_int_eq(hangar.statuses[0], REDIS_MOVED);
        }
        ck_assert_str_eq(hangar.flight->error_word, cases[i].reply.kind == REDIS_REPLY_IS_ERROR ? "NOPERM" : "");
        hangar_close();
    }
}

TEST(asking_is_resent_with_its_call_after_loading_a_script_and_tries_are_counted, 10)
{
    const struct redis_reply loaded = digest_reply(REDIS_FIXED_WINDOW);
    const struct redis_reply all_loaded = digest_reply(REDIS_TRY_ALL);
    hangar_open_in_cluster(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=9 period=1h");
    const struct weir_backend_request two[2] = { take(limit, "{x}a", 2), take(limit, "{x}b", 3) };
    ck_assert(add_by(0, take(limit, "a", 1), true));
    ck_assert(add(1, take(limit, "b", 1)));
    ck_assert(redis_flight_add(hangar.flight, two, 2, true, 1000, &hangar.decisions[2], &hangar.statuses[2], true));
    hangar.flight->requests[3].owner = &hangar.statuses[3];
    write_out();
    for (int times = 1; times <= REDIS_TRIES; times++) {
        ck_assert_int_eq(count_of("EVALSHA"), 3);
        ck_assert_int_eq(count_of("*1\r\n$6\r\nASKING\r\n*"), 2);
        for (int loads = 0; times > 1 && loads < 2; loads++)
            assert_reply(loads == 0 ? &all_loaded : &loaded, REDIS_FLYING); /* in the order of their numbers */
        assert_reply(&ok, REDIS_FLYING);
        assert_reply(&not_there, REDIS_FLYING);
        assert_reply(&not_there, REDIS_FLYING);
        assert_reply(&ok, REDIS_FLYING);
        assert_reply(&not_there, REDIS_LANDED);
        ck_assert_uint_eq(hangar.flight->tries, (unsigned)times);
        fly_again();
    }
    ck_assert_uint_eq(hangar.flight->request_count, 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(hangar.statuses[i], WEIR_EIO);
    hangar_close();
}

/* ---- Acknowledged by replicas ---- */

static struct weir_backend_request verb(weir_limit *limit, const char *key, int64_t cost, enum weir_verb verb)
{
    return backend_request(limit, weir_key_text(key), cost, WEIR_OWN_CLOCK, verb);
}

TEST(wait_lasts_three_quarters_of_the_remaining_time_and_at_least_a_millisecond, 10)
{
    static const struct {
        int64_t left_us;
        const char *wait;
    } cases[] = {
        { 50000, "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$2\r\n37\r\n" },
        { 4000, "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n3\r\n" },
        { 1999, "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n1\r\n" },
        { 3, "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n1\r\n" }, /* 0 would mean forever */
        { -5000, "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n1\r\n" },
        { WEIR_HOUR, "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$7\r\n2700000\r\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t now_us = INT64_C(1000000000);
        CLOSED_BY(redis_bytes_free) struct redis_bytes out = { 0 };
        struct redis_wait wait = REDIS_NO_WAIT;
        ck_assert(!wait.due && wait.nudge_us == INT64_MAX);
        redis_wait_write(&wait, 2, now_us + cases[i].left_us, now_us, &out);
        ck_assert(!out.failed && out.len == strlen(cases[i].wait));
        ck_assert_msg(memcmp(out.data, cases[i].wait, out.len) == 0, "not %s", cases[i].wait);
        ck_assert(wait.due && wait.left_us == now_us && wait.nudge_us > now_us);
    }
}

TEST(wait_lasts_until_the_last_deadline_of_a_changing_request, 10)
{
    hangar_open_durable(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=5 period=1h");
    static const int64_t deadlines[] = { 100, 80000, 2000, 90000 };
    for (int i = 0; i < 4; i++) {
        const struct weir_backend_request request = i == 3 ? verb(limit, "a", 1, WEIR_PEEK) : take(limit, "a", 1);
        ck_assert(redis_flight_add(hangar.flight, &request, 1, false, deadlines[i], &hangar.decisions[i],
                                   &hangar.statuses[i], false));
    }
    ck_assert_int_eq(hangar.flight->changes_until_us, 80000);
    hangar_close();
}

/* A flight with everything: a take, a denied take, a peek, a refund, a reset, and a lease that gets nothing. */
enum { MIXED = 6 };
static const bool mixed_is_held[MIXED] = { true, false, false, true, true, false };

static void fly_mixed(void)
{
    hangar_open_durable(16);
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=5 period=1h");
    ck_assert(add(0, take(limit, "a", 5)));
    ck_assert(add(1, take(limit, "a", 1)));
    ck_assert(add(2, verb(limit, "a", 1, WEIR_PEEK)));
    ck_assert(add(3, verb(limit, "b", 1, WEIR_REFUND)));
    ck_assert(add(4, verb(limit, "c", 1, WEIR_RESET)));
    ck_assert(add(5, lease(limit, "a", 0, 3, 1)));
    memset(hangar.decisions, 0x5a, sizeof hangar.decisions);
    write_out();
    assert_answer(5, 3, REDIS_HELD);
    ck_assert(hangar.flight->held);
    ck_assert_int_eq(count_of("WAIT"), 0); /* WAIT is written only once it is known to be needed */
    for (int i = 0; i < MIXED; i++) {
        ck_assert_msg(hangar.statuses[i] == (mixed_is_held[i] ? 1 : WEIR_OK), "request %d: %d", i, hangar.statuses[i]);
        if (mixed_is_held[i])
            ck_assert_int_eq(hangar.decisions[i].limit, INT64_C(0x5a5a5a5a5a5a5a5a));
    }
    ck_assert(!hangar.decisions[1].allowed && !hangar.decisions[2].allowed && hangar.decisions[5].ahead == 0);
}

TEST(changing_requests_end_once_replicas_acknowledge_them_and_others_immediately, 10)
{
    static const struct {
        enum redis_reply_kind kind;
        const char *text;
        long long number;
        int status; /* of the held requests; 1: the reply is no answer */
        const char *word;
        bool unacknowledged;
    } cases[] = {
        { REDIS_REPLY_IS_NUMBER, "", 2, WEIR_OK, "", false },
        { REDIS_REPLY_IS_NUMBER, "", 3, WEIR_OK, "", false },
        { REDIS_REPLY_IS_NUMBER, "", 1, WEIR_EIO, "", true },
        { REDIS_REPLY_IS_NUMBER, "", 0, WEIR_EIO, "", true },
        { REDIS_REPLY_IS_NUMBER, "", -1, 1, "", false },
        { REDIS_REPLY_IS_ERROR, "NOPERM this user has no permissions to run the 'wait' command", 0, WEIR_EIO, "NOPERM",
          false },
        { REDIS_REPLY_IS_ERROR, "ERR WAIT cannot be used with replica instances.", 2, WEIR_EIO, "ERR", false },
        { REDIS_REPLY_IS_STRING, "2", 0, 1, "", false },
        { REDIS_REPLY_IS_STATUS, "OK", 0, 1, "", false },
        { REDIS_REPLY_IS_NIL, "", 0, 1, "", false },
        { REDIS_REPLY_IS_OTHER, "", 2, 1, "", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct redis_reply reply = {
            .kind = cases[i].kind, .text = cases[i].text, .len = strlen(cases[i].text), .number = cases[i].number
        };
        fly_mixed();
        assert_reply(&reply, cases[i].status == 1 ? REDIS_MISFIT : REDIS_LANDED);
        for (int k = 0; k < MIXED; k++) {
            ck_assert_int_eq(hangar.statuses[k], mixed_is_held[k] ? cases[i].status : WEIR_OK);
            if (mixed_is_held[k] && cases[i].status != WEIR_OK)
                ck_assert_int_eq(hangar.decisions[k].limit, INT64_C(0x5a5a5a5a5a5a5a5a));
        }
        if (cases[i].status == WEIR_OK)
            ck_assert(hangar.decisions[0].allowed && hangar.decisions[0].remaining == 0);
        ck_assert_str_eq(hangar.flight->error_word, cases[i].word);
        ck_assert(hangar.flight->unacknowledged == cases[i].unacknowledged);
        ck_assert(hangar.flight->decided); /* the server works */
        hangar_close();
    }
}

TEST(a_connection_lost_before_waits_answer_fails_the_changing_requests, 10)
{
    fly_mixed();
    redis_flight_fail(hangar.flight, WEIR_EIO, ended);
    for (int i = 0; i < MIXED; i++)
        ck_assert_int_eq(hangar.statuses[i], mixed_is_held[i] ? WEIR_EIO : WEIR_OK);
    ck_assert(!hangar.flight->held);
    hangar_close();
}

TEST(a_deadline_before_the_acknowledgement_ends_only_its_request, 10)
{
    fly_mixed();
    ck_assert_int_eq(hangar.flight->deadline_us, 1000);
    redis_flight_expire(hangar.flight, 1003, ended);
    ck_assert_int_eq(hangar.statuses[0], WEIR_ETIME);
    ck_assert_int_eq(hangar.statuses[3], WEIR_ETIME);
    ck_assert_int_eq(hangar.statuses[4], 1);
    ck_assert_int_eq(hangar.flight->deadline_us, 1004);
    assert_reply(&two_replicas, REDIS_LANDED);
    ck_assert_int_eq(hangar.decisions[0].limit, INT64_C(0x5a5a5a5a5a5a5a5a));
    ck_assert_int_eq(hangar.statuses[4], WEIR_OK);
    ck_assert(!hangar.flight->held);
    hangar_close();
}

/* Each of these used to be followed by a WAIT that delayed the next caller. */
TEST(a_request_that_changes_nothing_waits_for_no_replica, 10)
{
    static const struct {
        enum weir_verb verb;
        int64_t cost, ahead;
        const char *error; /* the server's error; NULL: it decides */
        bool is_late;      /* the caller has already given up */
        int status;
    } cases[] = {
        { WEIR_TAKE, 6, 0, NULL, false, WEIR_OK },
        { WEIR_TAKE, 6, 3, NULL, false, WEIR_OK },
        { WEIR_PEEK, 1, 0, NULL, false, WEIR_OK },
        { WEIR_TAKE, 1, 0, NULL, true, WEIR_ETIME },
        { WEIR_TAKE, 1, 0, "OOM command not allowed", false, WEIR_EIO },
        { WEIR_TAKE, 1, 0, "NOSCRIPT No matching script. Please use EVAL.", false, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct answer decided;
        hangar_open_durable(16);
        weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=5 period=1h");
        ck_assert(add(0, cases[i].ahead > 0 ? lease(limit, "a", cases[i].cost, cases[i].ahead, 1)
                                            : verb(limit, "a", cases[i].cost, cases[i].verb)));
        write_out();
        if (cases[i].is_late)
            redis_flight_expire(hangar.flight, 2000, ended);
        const struct redis_reply reply = cases[i].error ? error_reply(cases[i].error)
                                                        : *answer(hangar.flight, &decided, cases[i].is_late ? 1 : 0, 1);
        assert_reply(&reply, REDIS_LANDED);
        ck_assert(!hangar.flight->held);
        ck_assert_int_eq(hangar.statuses[0], cases[i].status);
        hangar_close();
    }
}

TEST(an_allowed_group_waits_for_replicas_as_a_whole, 10)
{
    for (int64_t cost = 1; cost <= 6; cost += 5) { /* 5 is allowed by both keys, 6 is denied by the second */
        const bool allowed = cost == 1;
        struct answer reply;
        hangar_open_durable(16);
        weir_limit *limit = scene_define_text(&hangar.scene, "limit", "fixed_window limit=5 period=1h");
        const struct weir_backend_request requests[2] = { take(limit, "a", 1), take(limit, "b", cost) };
        ck_assert(
            redis_flight_add(hangar.flight, requests, 2, true, 1000, hangar.decisions, &hangar.statuses[0], false));
        hangar.flight->requests[1].owner = &hangar.statuses[1];
        write_out();
        answer(hangar.flight, &reply, allowed ? 2 : 0, 2);
        assert_reply(&reply.reply, allowed ? REDIS_HELD : REDIS_LANDED);
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(hangar.statuses[i], allowed ? 1 : WEIR_OK);
        if (allowed)
            assert_reply(&two_replicas, REDIS_LANDED);
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(hangar.statuses[i], WEIR_OK);
        hangar_close();
    }
}

TEST(a_resent_call_has_a_separate_wait_for_replicas, 10)
{
    const struct redis_reply loaded = digest_reply(REDIS_BUCKET_SINGLE);
    hangar_open_durable(16);
    weir_limit *bucket = scene_define_text(&hangar.scene, "bucket", "token_bucket limit=5 period=1s");
    weir_limit *window = scene_define_text(&hangar.scene, "window", "fixed_window limit=5 period=1s");
    ck_assert(add(0, take(bucket, "a", 1)));
    ck_assert(add(1, take(window, "a", 1)));
    write_out();
    assert_reply(&not_there, REDIS_FLYING);
    assert_answer(1, 1, REDIS_HELD);
    assert_reply(&none, REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[0], 1);
    ck_assert_int_eq(hangar.statuses[1], WEIR_EIO);
    ck_assert_uint_ne(hangar.flight->not_loaded, 0);
    fly_again();
    ck_assert_uint_eq(hangar.flight->request_count, 1);
    ck_assert(!hangar.flight->held);
    assert_reply(&loaded, REDIS_FLYING);
    assert_answer(1, 1, REDIS_HELD);
    ck_assert_int_eq(hangar.statuses[0], 1);
    assert_reply(&two_replicas, REDIS_LANDED);
    ck_assert_int_eq(hangar.statuses[0], WEIR_OK);
    hangar_close();
}

TEST(an_empty_line_is_sent_when_a_wait_is_overdue, 10)
{
    CLOSED_BY(redis_bytes_free) struct redis_bytes out = { 0 };
    struct redis_wait wait = REDIS_NO_WAIT;
    redis_wait_nudge(&wait, INT64_MAX - 1, &out);
    ck_assert_uint_eq(out.len, 0);
    redis_wait_write(&wait, 2, 8000, 0, &out);
    const int64_t due_us = wait.nudge_us;
    ck_assert_int_eq(due_us, 7000); /* 6 ms and one more */
    redis_bytes_clear(&out, false);
    redis_wait_nudge(&wait, due_us - 1, &out);
    ck_assert_uint_eq(out.len, 0);
    redis_wait_nudge(&wait, due_us, &out);
    redis_wait_nudge(&wait, due_us + 1, &out);
    ck_assert_uint_eq(out.len, 2);
    ck_assert_int_eq(memcmp(out.data, "\r\n", 2), 0);
    ck_assert_int_gt(wait.nudge_us, due_us);
}

/* Found by fuzzing: a new connection's first empty reply had a NULL pointer, on which arithmetic is undefined. */
TEST(an_empty_reply_is_a_string_of_zero_bytes, 10)
{
    static const char bytes[] = "$0\r\n\r\n";
    CLOSED_BY(redis_wire_free) struct redis_wire wire;
    struct redis_reply reply;
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    ck_assert_int_eq(redis_wire_feed(&wire, bytes, sizeof bytes - 1), 0);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), 1);
    ck_assert_int_eq(reply.kind, REDIS_REPLY_IS_STRING);
    ck_assert_uint_eq(reply.len, 0);
    ck_assert_ptr_nonnull(reply.text);
}
