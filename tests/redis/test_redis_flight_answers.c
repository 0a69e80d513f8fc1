/* test_redis_flight_answers.c - how requests end whose script is missing, or whose answer is an error, late or odd. */
#include "hangar.h"

/* ---- Scripts ---- */

TEST(a_missing_script_is_loaded_and_its_call_resent_at_most_three_times, 10)
{
    hangar_open(16);
    fly_two_calls();
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
    ck_assert_int_eq(hangar.statuses[0], WEIR_EIO_UNDONE);
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

/* Write a flight of one group: of two keys of a token bucket. */
static void fly_a_group(int64_t first_cost, int64_t second_cost)
{
    weir_limit *limit = scene_define_text(&hangar.scene, "limit", "token_bucket limit=5 period=1s");
    const struct weir_backend_request two[2] = { take(limit, "a", first_cost), take(limit, "b", second_cost) };
    ck_assert(redis_flight_add(hangar.flight, two, 2, true, 1000, hangar.decisions, &hangar.statuses[0], false));
    write_out();
}

TEST(a_group_stays_one_call_when_it_is_resent, 10)
{
    struct answer reply;
    hangar_open(16);
    fly_a_group(2, 3);
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

/* ---- Errors ---- */

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
        fly_two_calls();
        assert_reply(&error, REDIS_FLYING);
        /* A proxy may answer anything else though Redis has executed the call. */
        const char *word = errors[i].word;
        const bool is_refusal = strcmp(word, "READONLY") == 0 || strcmp(word, "OOM") == 0 ||
                                strcmp(word, "NOPERM") == 0 || strcmp(word, "LOADING") == 0;
        ck_assert_int_eq(hangar.statuses[0], is_refusal ? WEIR_EIO_UNDONE : WEIR_EIO);
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
    ck_assert(hangar.flight->read_only && hangar.statuses[0] == WEIR_EIO_UNDONE &&
              hangar.statuses[1] == WEIR_EIO_UNDONE);
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

/* ---- Answers ---- */

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

TEST(an_answer_to_a_group_fits_as_a_whole, 10)
{
    struct answer reply;
    hangar_open(16);
    fly_a_group(1, 1);
    hangar.flight->requests[1].owner = &hangar.statuses[1];
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

/* ---- Short answers ---- */

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
