/* test_redis_flight_replicas.c - requests that change something end once replicas acknowledge them. */
#include "hangar.h"

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
        { WEIR_TAKE, 1, 0, "OOM command not allowed", false, WEIR_EIO_UNDONE },
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
    fly_two_calls();
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
