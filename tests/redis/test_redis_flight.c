/* test_redis_flight.c - which requests share a call, and in which order they are decided; redirects in a cluster. */
#include "hangar.h"

#include <stdio.h>

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

/* An item with numbers of one byte. */
#define ITEM(verb, cost, times)                               \
    {                                                         \
        verb, cost, 0, 0, 0, 0, 0, 0, times, 0, 0, 0, 0, 0, 0 \
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

/* ---- Charges that settle ---- */

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
    ck_assert_int_eq(count_of("$1\r\n2\r\n$14\r\nweir:limit:{a}\r\n$16\r\nweir:limit:{a}:i\r\n$26\r\n"), 1);
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
        { "CLUSTERDOWN The cluster is down", WEIR_EIO_UNDONE, NULL, 0, "CLUSTERDOWN" },
        { "CROSSSLOT Keys in request don't hash to the same slot", WEIR_EIO, NULL, 0, "CROSSSLOT" },
        { "ERR Error running script (call to f_bcebee83): @user_script:9: @user_script: 9: -MOVED 3999 127.0.0.1:6381",
          WEIR_EIO, NULL, 0, "MOVED" },
    };
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof cases[0]); i++) {
        struct answer reply;
        struct told told[3] = { { .status = NOT_TOLD }, { .status = NOT_TOLD }, { .status = NOT_TOLD } };
        const bool in_cluster = i % 2 == 0;
        const struct redis_reply error = error_reply(cases[i / 2].text);
        const int status = in_cluster || cases[i / 2].status == WEIR_EIO_UNDONE ? cases[i / 2].status : WEIR_EIO;
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
        ck_assert_int_eq(hangar.statuses[i], WEIR_EIO_UNDONE);
    hangar_close();
}
