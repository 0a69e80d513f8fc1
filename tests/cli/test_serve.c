/* test_serve.c - what weir serve answers: commands, replies, and the end. */
#include "serve_session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Commands and replies ---- */

TEST(commands_are_answered_alike_however_their_bytes_are_split, 10)
{
    static const char commands[] = "PING\r\n*0\r\n\r\n*2\r\n$4\r\nping\r\n$3\r\na\r\n\r\nPING b\r\n" TRY_LOGIN
                                   "*1\r\n$4\r\nNONE\r\nWEIR.PEEK login b 2\r\n";
    char whole[4096];
    for (size_t step = 0; step < sizeof commands; step++) {
        SESSION(session, false);
        if (step == 0) {
            session_say(&session, commands, sizeof commands - 1);
        } else {
            for (size_t at = 0; at < sizeof commands - 1; at += step)
                session_say(&session, commands + at, at + step < sizeof commands ? step : sizeof commands - 1 - at);
        }
        const char *got = session_heard(&session);
        if (step == 0)
            snprintf(whole, sizeof whole, "%s", got);
        ck_assert_str_eq(got, whole);
    }
    ck_assert_str_eq(
        whole, "+PONG\r\n$3\r\na\r\n\r\n$1\r\nb\r\n*8\r\n:1\r\n:3\r\n:2\r\n:0\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n"
               "-ERR unknown command 'NONE'\r\n*8\r\n:1\r\n:3\r\n:3\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
}

TEST(weir_commands_answer_as_the_api_does, 10)
{
    SESSION(session, false);
    scene_define_text(&session.scene, "seen", "fixed_window limit=1 period=1h shadow");
    assert_answers(&session, "WEIR.TRY login a 4\r\n", "*8\r\n:0\r\n:3\r\n:3\r\n:-1\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&session, "WEIR.TRY login a 3\r\n",
                   "*8\r\n:1\r\n:3\r\n:0\r\n:0\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&session, "WEIR.TRY login a\r\n",
                   "*8\r\n:0\r\n:3\r\n:0\r\n:3600000000\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&session, "WEIR.RESET login a\r\n", "+OK\r\n");
    assert_answers(&session, "WEIR.CHARGE login a 5\r\n", "+OK\r\n");
    assert_answers(&session, "WEIR.TRY login a\r\n",
                   "*8\r\n:0\r\n:3\r\n:0\r\n:3600000000\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&session, "WEIR.RESET login a\r\n", "+OK\r\n");
    char settle[128], renew[128], reserved[128];
    snprintf(reserved, sizeof reserved,
             "*9\r\n:1\r\n:3\r\n:0\r\n:0\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n$20\r\n3:%" PRId64 ":0\r\n",
             session.scene.now_us);
    assert_answers(&session, "WEIR.RESERVE login a 3\r\n", reserved);
    snprintf(settle, sizeof settle, "WEIR.SETTLE login a 3:%" PRId64 ":0 0\r\n", session.scene.now_us);
    snprintf(renew, sizeof renew, "WEIR.RENEW login a 3:%" PRId64 ":0\r\n", session.scene.now_us);
    assert_answers(&session, renew, reserved);
    assert_answers(&session, settle, "+OK\r\n");
    snprintf(reserved, sizeof reserved,
             "*9\r\n:1\r\n:3\r\n:2\r\n:0\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n$20\r\n1:%" PRId64 ":0\r\n",
             session.scene.now_us);
    assert_answers(&session, "WEIR.RENEW login r -1:0:0\r\n", reserved);
    assert_answers(&session, "WEIR.RENEW login r 4:1:0\r\n",
                   "*9\r\n:0\r\n:3\r\n:2\r\n:-1\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n$5\r\n4:1:0\r\n");
    static const char *const bad[] = { "-2:1:0", "1:1", "x", "3:1:", "3:1:0 ", "03:1:0", "3:1:00", "3:1:0:1" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char command[64];
        snprintf(command, sizeof command, "WEIR.RENEW login r \"%s\"\r\n", bad[i]);
        assert_answers(&session, command, "-ERR that is no reservation of WEIR.RESERVE\r\n");
    }
    assert_answers(&session, "WEIR.SETTLE login a 3:1:0 x\r\n", "-ERR Couldn't parse as integer: x\r\n");
    assert_answers(&session, "WEIR.SETTLE login a 3:1:0 -1\r\n", "-ERR the cost must be 0 or more, not -1\r\n");
    scene_define_text(&session.scene, "flight", "concurrency limit=1 hold=1m");
    assert_answers(&session, "WEIR.RELEASE flight a 1:0:ffffffffffffffff\r\n", "+OK\r\n");
    assert_answers(&session, "WEIR.TRYALL login a 1 login b 4\r\n",
                   "*8\r\n:0\r\n:3\r\n:3\r\n:-1\r\n:0\r\n:0\r\n:0\r\n:1\r\n");
    assert_answers(&session, "WEIR.PEEK login a 3\r\n", "*8\r\n:1\r\n:3\r\n:3\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&session, "weir.try seen a 2\r\n", "*8\r\n:1\r\n:1\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1\r\n:0\r\n");
    assert_answers(&session, "WEIR.TRY none a\r\n", "-ERR there is no limit 'none'\r\n");
    assert_answers(&session, "WEIR.TRY login a 0\r\n", "-ERR the cost must be 1 to 8796093022208, not 0\r\n");
    assert_answers(&session, "WEIR.TRY login a x\r\n", "-ERR Couldn't parse as integer: x\r\n");
    assert_answers(&session, "*3\r\n$8\r\nWEIR.TRY\r\n$5\r\nlogin\r\n$0\r\n\r\n",
                   "-ERR the key must have 1 to 65536 bytes, not 0\r\n");
    assert_answers(&session, "WEIR.TRYALL login a\r\n", "-ERR wrong number of arguments for 'WEIR.TRYALL' command\r\n");
    assert_answers(&session, "WEIR.TRYALL login a 1 login\r\n",
                   "-ERR WEIR.TRYALL takes 1 to 64 times: limit key cost\r\n");
    session_say(&session, "WEIR.STATS\r\n", 12);
    const char *stats = session_heard(&session);
    ck_assert_ptr_nonnull(strstr(stats, "\nweir_limit_denied_total{limit=\"login\"} 4\n"));
    ck_assert_ptr_nonnull(strstr(stats, "\nweir_limit_would_deny_total{limit=\"seen\"} 1\n"));
}

TEST(a_line_may_have_quoted_words_as_in_redis, 10)
{
    SESSION(session, false);
    assert_answers(&session, "ECHO \"a b\"\r\n", "$3\r\na b\r\n");
    assert_answers(&session, "ECHO \"\\x41\\n\\\"\\q\\xg\"\r\n", "$6\r\nA\n\"qxg\r\n");
    assert_answers(&session, "ECHO 'it\\'s \\n'\r\n", "$7\r\nit's \\n\r\n");
    assert_answers(&session, "  'PING'\t\"\" \r\n", "$0\r\n\r\n");
    assert_answers(&session, "ECHO a\"b c\"\r\n", "$4\r\nab c\r\n");
    session_say(&session, "PING\r\nECHO \"a\"b\r\nPING\r\n", 24);
    ck_assert_str_eq(session_heard(&session), "+PONG\r\n-ERR Protocol error: unbalanced quotes in request\r\n");
    ck_assert(session_is_closed(&session));
    close(session.fd);
    session_turn(&session);
    session_connect(&session);
    session_say(&session, "ECHO 'a\r\n", 9);
    ck_assert_str_eq(session_heard(&session), "-ERR Protocol error: unbalanced quotes in request\r\n");
}

/* A page in a browser can have it send such requests to a port of this machine. */
TEST(http_closes_the_connection_before_its_body_is_read, 10)
{
    static const char *const requests[] = {
        "POST / HTTP/1.1\r\nHost: x\r\n\r\nWEIR.RESET login a\r\n",
        "post /\r\nWEIR.RESET login a\r\n",
        "GET /x HTTP/1.1\r\nWEIR.RESET login a\r\n",
        "OPTIONS * HTTP/1.0\r\nWEIR.RESET login a\r\n",
        "X\r\nHost: x\r\n\r\nWEIR.RESET login a\r\n",
        "*1\r\n$4\r\nPOST\r\nWEIR.RESET login a\r\n",
        "MULTI\r\nHost: x\r\nWEIR.RESET login a\r\nEXEC\r\n",
        "Host:x\r\nWEIR.RESET login a\r\n",
        "GET /\r\nContent-Type: text/plain\r\n\r\nWEIR.RESET login a\r\n",
        "\x16\x03\x01\x02\n\r\nWEIR.RESET login a\r\n", /* TLS: its session ticket may be a command */
        "\x01\x02\x03\x04\nWEIR.RESET login a\r\n",
    };
    SESSION(session, false);
    session_say(&session, "WEIR.TRY login a 3\r\n", 20);
    session_heard(&session);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        session_say(&session, requests[i], strlen(requests[i]));
        session_heard(&session);
        ck_assert_msg(session_is_closed(&session), "%s", requests[i]);
        close(session.fd);
        session_turn(&session);
        session_connect(&session);
        assert_answers(&session, "WEIR.PEEK login a\r\n",
                       "*8\r\n:0\r\n:3\r\n:0\r\n:3600000000\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n");
    }
    assert_answers(&session, "PING HTTP\r\n", "$4\r\nHTTP\r\n");
}

#define TRIED_2 "*8\r\n:1\r\n:3\r\n:1\r\n:0\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n"
#define TRIED_1 "*8\r\n:1\r\n:3\r\n:0\r\n:0\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n"

TEST(a_transaction_runs_at_exec_in_order, 10)
{
    SESSION(session, false);
    assert_answers(&session, "EXEC\r\n", "-ERR EXEC without MULTI\r\n");
    assert_answers(&session, "DISCARD\r\n", "-ERR DISCARD without MULTI\r\n");
    assert_answers(&session, "MULTI\r\nEXEC\r\n", "+OK\r\n*0\r\n");
    assert_answers(&session, "WATCH a\r\nUNWATCH\r\n", "+OK\r\n+OK\r\n");
    assert_answers(&session, "MULTI\r\nWEIR.TRY login a 2\r\nECHO x\r\nMULTI\r\nWATCH a\r\nWEIR.TRY none a\r\n",
                   "+OK\r\n+QUEUED\r\n+QUEUED\r\n-ERR MULTI calls can not be nested\r\n"
                   "-ERR WATCH inside MULTI is not allowed\r\n+QUEUED\r\n");
    assert_answers(&session, "EXEC\r\n", "*3\r\n" TRIED_2 "$1\r\nx\r\n-ERR there is no limit 'none'\r\n");
    assert_answers(&session, "MULTI\r\nWEIR.RESET login a\r\nDISCARD\r\n", "+OK\r\n+QUEUED\r\n+OK\r\n");
    assert_answers(&session, "WEIR.TRY login a 1\r\n", TRIED_1);
}

TEST(a_refused_command_aborts_its_transaction, 10)
{
    static const char *const refused[][2] = {
        { "NONE", "unknown command 'NONE'" },
        { "WEIR.TRY login", "wrong number of arguments for 'WEIR.TRY' command" },
        { "WEIR.STATS", "WEIR.STATS is not allowed in a transaction" },
        { "INFO", "INFO is not allowed in a transaction" },
    };
    SESSION(session, false);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char commands[128], answer[256];
        snprintf(commands, sizeof commands, "MULTI\r\nWEIR.TRY login a\r\n%s\r\nEXEC\r\n", refused[i][0]);
        snprintf(answer, sizeof answer,
                 "+OK\r\n+QUEUED\r\n-ERR %s\r\n-EXECABORT Transaction discarded because of previous errors.\r\n",
                 refused[i][1]);
        assert_answers(&session, commands, answer);
    }
    assert_answers(&session, "WEIR.TRY login a 2\r\n", TRIED_2); /* nothing was taken */
}

TEST(a_transaction_has_a_bound, 10)
{
    SESSION(session, false);
    assert_answers(&session, "MULTI\r\n", "+OK\r\n");
    for (int i = 0; i < CLIENT_WAITING_MAX; i++)
        assert_answers(&session, "PING\r\n", "+QUEUED\r\n");
    assert_answers(&session, "PING\r\n", "-ERR a transaction has at most 1024 commands and 256 KiB\r\n");
    assert_answers(&session, "EXEC\r\n", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    assert_answers(&session, "PING\r\n", "+PONG\r\n");
}

TEST(a_transaction_whose_requests_wait_is_answered_as_one, 10)
{
    SESSION(session, true);
    session_say(&session, "MULTI\r\nWEIR.TRY login a\r\nPING\r\nWEIR.TRY login a\r\nEXEC\r\nPING after\r\n", 67);
    ck_assert_str_eq(session_heard(&session), "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n");
    ck_assert_int_eq(session_answer(&session, WEIR_OK, 7), 2);
    const char *got = session_heard(&session);
    ck_assert_ptr_nonnull(strstr(got, "+PONG\r\n*8\r\n"));
    ck_assert_ptr_nonnull(strstr(got, "$5\r\nafter\r\n"));
}

TEST(commands_about_the_connection_answer_as_in_redis, 10)
{
    SESSION(session, false);
    assert_answers(&session, "ECHO hello\r\n", "$5\r\nhello\r\n");
    assert_answers(&session, "SELECT 0\r\n", "+OK\r\n");
    assert_answers(&session, "SELECT 1\r\n", "-ERR DB index is out of range\r\n");
    assert_answers(&session, "SELECT x\r\n", "-ERR value is not an integer or out of range\r\n");
    assert_answers(&session, "CLIENT ID\r\n", ":1\r\n");
    assert_answers(&session, "CLIENT GETNAME\r\n", "$-1\r\n");
    assert_answers(&session, "CLIENT SETNAME worker-1\r\nclient getname\r\n", "+OK\r\n$8\r\nworker-1\r\n");
    assert_answers(&session, "CLIENT SETNAME 'a b'\r\n",
                   "-ERR Client names cannot contain spaces, newlines or special characters.\r\n");
    assert_answers(&session, "CLIENT SETINFO LIB-NAME x\r\nCLIENT SETINFO lib-ver 1\r\n", "+OK\r\n+OK\r\n");
    assert_answers(&session, "CLIENT SETINFO other x\r\n", "-ERR Unrecognized option 'other'\r\n");
    assert_answers(&session, "CLIENT NO-EVICT on\r\nCLIENT NO-TOUCH off\r\n", "+OK\r\n+OK\r\n");
    assert_answers(&session, "CLIENT NO-TOUCH maybe\r\n", "-ERR syntax error\r\n");
    static const char *const unknown[] = { "LIST", "INFO", "TRACKING", "REPLY", "MAINT_NOTIFICATIONS", "NOSUCH" };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char command[64], answer[128];
        snprintf(command, sizeof command, "CLIENT %s\r\n", unknown[i]);
        snprintf(answer, sizeof answer, "-ERR unknown subcommand or wrong number of arguments for '%s'\r\n",
                 unknown[i]);
        assert_answers(&session, command, answer);
    }
    assert_answers(&session, "COMMAND COUNT\r\n", ":26\r\n");
    assert_answers(&session, "COMMAND INFO ping none\r\n",
                   "*2\r\n*6\r\n$4\r\nping\r\n:-1\r\n*0\r\n:0\r\n:0\r\n:0\r\n$-1\r\n");
    assert_answers(&session, "COMMAND DOCS\r\n", "*0\r\n");
    assert_answers(&session, "COMMAND NOSUCH\r\n",
                   "-ERR unknown subcommand or wrong number of arguments for 'NOSUCH'\r\n");
    session_say(&session, "COMMAND\r\n", 9);
    ck_assert_int_eq(strncmp(session_heard(&session), "*26\r\n*6\r\n$11\r\ncl.throttle\r\n:-5\r\n", 32), 0);
    assert_answers(&session, "INFO replication\r\n",
                   "$48\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n");
    assert_answers(&session, "INFO nothing\r\n", "$0\r\n\r\n");
    session_say(&session, "INFO default\r\n", 14);
    ck_assert_ptr_nonnull(strstr(session_heard(&session), "\r\nrole:master\r\n"));
    session_say(&session, "HELLO 3 SETNAME again\r\n", 23);
    ck_assert_ptr_nonnull(strstr(session_heard(&session), "$4\r\nrole\r\n$6\r\nmaster\r\n"));
    assert_answers(&session, "CLIENT GETNAME\r\nCLIENT SETNAME ''\r\nCLIENT GETNAME\r\nCOMMAND DOCS\r\n",
                   "$5\r\nagain\r\n+OK\r\n_\r\n%0\r\n");
}

TEST(a_silent_client_is_disconnected_after_the_idle_timeout, 10)
{
    SESSION(session, false);
    session.server.idle_us = 2 * WEIR_MINUTE;
    for (int i = 0; i < 3; i++) { /* one that speaks stays */
        session.server.now_us += WEIR_MINUTE + WEIR_SECOND;
        assert_answers(&session, "PING\r\n", "+PONG\r\n");
        client_check_patience(session.server.clients);
        session_serve(&session);
    }
    ck_assert(!session_is_closed(&session));
    session.server.now_us += 2 * WEIR_MINUTE;
    client_check_patience(session.server.clients);
    session_serve(&session);
    ck_assert(!session_is_closed(&session));
    session.server.now_us++;
    client_check_patience(session.server.clients);
    session_serve(&session);
    ck_assert(session_is_closed(&session));
}

/* What redis-cell documents, with its key: https://github.com/brandur/redis-cell. */
TEST(cl_throttle_answers_as_redis_cell_documents, 10)
{
    static const struct {
        int64_t after_us;
        const char *command, *answer;
    } table[] = {
        /* README.md, and by the same rule with its other key names */
        { 0, "CL.THROTTLE user123 15 30 60", "0 16 15 -1 2" },
        { 0, "CL.THROTTLE user123 15 30 60 1", "0 16 14 -1 4" },
        { 0, "CL.THROTTLE user123-read-rate 15 30 60", "0 16 15 -1 2" },
        { 0, "CL.THROTTLE user123-write-rate 5 10 60", "0 6 5 -1 6" },
        /* tests/e2e.rs, it_works */
        { 0, "CL.THROTTLE user123 0 1 2 1", "0 1 0 -1 2" },
        { 0, "CL.THROTTLE user123 0 1 2 1", "1 1 0 2 2" },
        { 2000000, "CL.THROTTLE user123 0 1 2 1", "0 1 0 -1 2" },
        /* src/cell/mod.rs, it_rate_limits, with times rounded as src/lib.rs does */
        { 0, "CL.THROTTLE foo 4 1 1 6", "1 5 5 -1 0" },
        { 0, "CL.THROTTLE foo 4 1 1 1", "0 5 4 -1 1" },
        { 0, "CL.THROTTLE foo 4 1 1 1", "0 5 3 -1 2" },
        { 0, "CL.THROTTLE foo 4 1 1 1", "0 5 2 -1 3" },
        { 0, "CL.THROTTLE foo 4 1 1 1", "0 5 1 -1 4" },
        { 0, "CL.THROTTLE foo 4 1 1 1", "0 5 0 -1 5" },
        { 0, "CL.THROTTLE foo 4 1 1 1", "1 5 0 1 5" },
        { 3000000, "CL.THROTTLE foo 4 1 1 1", "0 5 2 -1 3" },
        { 100000, "CL.THROTTLE foo 4 1 1 1", "0 5 1 -1 4" },
        { 900000, "CL.THROTTLE foo 4 1 1 1", "0 5 1 -1 4" },
        { 4000000, "CL.THROTTLE foo 4 1 1 1", "0 5 4 -1 1" },
        { 1500000, "CL.THROTTLE foo 4 1 1 1", "0 5 4 -1 1" },
        { 0, "CL.THROTTLE foo 4 1 1 0", "0 5 4 -1 1" },
        { 0, "CL.THROTTLE foo 4 1 1 2", "0 5 2 -1 3" },
        { 0, "CL.THROTTLE foo 4 1 1 5", "1 5 2 3 3" },
        /* less than a millisecond is dropped, more counts as a second */
        { 500, "CL.THROTTLE foo 4 1 1 0", "0 5 2 -1 3" },
        { 500, "CL.THROTTLE foo 4 1 1 0", "0 5 2 -1 3" },
        { 999000, "CL.THROTTLE foo 4 1 1 0", "0 5 3 -1 2" },
        { 0, "cl.throttle foo 4 +1 1 0", "0 5 3 -1 2" },
    };
    SESSION(session, false);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char command[128], answer[128];
        int a, b, c, d, e;
        session.scene.now_us += table[i].after_us;
        ck_assert_int_eq(sscanf(table[i].answer, "%d %d %d %d %d", &a, &b, &c, &d, &e), 5);
        snprintf(command, sizeof command, "%s\r\n", table[i].command);
        snprintf(answer, sizeof answer, "*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", a, b, c, d, e);
        assert_answers(&session, command, answer);
    }
}

TEST(cl_throttle_refuses_as_redis_cell_does, 10)
{
    SESSION(session, false);
#define CELL "-Cell error: Store error: "
    assert_answers(&session, "CL.THROTTLE user123 a 1 1\r\n", CELL "Couldn't parse as integer: a\r\n");
    assert_answers(&session, "CL.THROTTLE user123 1 1\r\n",
                   CELL "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\r\n");
    assert_answers(&session, "CL.THROTTLE user123 1 0 1\r\n", CELL "Zero rates are not supported\r\n");
    assert_answers(&session, "CL.THROTTLE user123 1 1 0\r\n", CELL "Zero rates are not supported\r\n");
    /* the rest it takes, or panics */
    assert_answers(&session, "CL.THROTTLE user123 -1 1 1\r\n", "-ERR max_burst must be 0 to 8796093022207, not -1\r\n");
    assert_answers(&session, "CL.THROTTLE user123 1 -1 1\r\n", "-ERR count must be 1 to 8796093022208, not -1\r\n");
    assert_answers(&session, "CL.THROTTLE user123 1 1 -1\r\n", "-ERR period must be 1 to 31622400, not -1\r\n");
    assert_answers(&session, "CL.THROTTLE user123 1 1 1 -1\r\n",
                   "-ERR the quantity must be 1 to 8796093022208, not -1\r\n");
    assert_answers(&session, "CL.THROTTLE user123 999999999 1 31622400\r\n",
                   "-ERR burst takes over 142 years to fill at this rate\r\n");
}

/* Let CL.THROTTLE be called with as many sets of parameters as there is room for. */
static void use_up_sets(struct session *session)
{
    struct fault fault;
    for (int64_t i = 0; i < THROTTLE_MAX; i++)
        must(throttle_get(&session->server.throttle, session->scene.limiter, i % 128, 1 + i / 128, 3600,
                          session->server.now_us, &fault) != NULL,
             "a new set of parameters becomes a limit");
}

TEST(clients_cannot_exhaust_limits_with_ever_new_parameters, 60)
{
    SESSION(session, false);
    struct fault fault;
    for (int64_t i = 1; i <= 5 * THROTTLE_MAX; i++) {
        must(throttle_get(&session.server.throttle, session.scene.limiter, 1, 1, i, session.server.now_us, &fault) !=
                 NULL,
             "a new set of parameters has a limit");
        session.server.now_us += WEIR_SECOND;
    }
    assert_answers(&session, "CL.THROTTLE a 1 1 81921\r\n", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:81921\r\n");
    ck_assert_uint_eq(session.server.throttle.used, THROTTLE_MAX);
    ck_assert_ptr_nonnull(weir_limit_find(session.scene.limiter, "cl.throttle.1.1.81920"));
}

TEST(an_idle_set_of_parameters_is_replaced_before_one_in_use, 60)
{
    SESSION(session, false);
    use_up_sets(&session);
    session.server.now_us += WEIR_HOUR; /* as long as some sets need to be idle, but not those with a burst */
    session.scene.now_us += WEIR_HOUR;
    assert_answers(&session, "CL.THROTTLE a 127 1 3600 128\r\n", "*5\r\n:0\r\n:128\r\n:0\r\n:-1\r\n:460800\r\n");
    session.server.now_us += 1000 * WEIR_HOUR;
    assert_answers(&session, "CL.THROTTLE b 127 1 3600\r\n", "*5\r\n:0\r\n:128\r\n:127\r\n:-1\r\n:3600\r\n");
    for (int i = 1; i < THROTTLE_MAX; i++) {
        char command[64];
        snprintf(command, sizeof command, "CL.THROTTLE a 0 1 %d\r\n", 5000 + i);
        session_say(&session, command, strlen(command));
        must(strncmp(session_heard(&session), "*5\r\n:0\r\n", 8) == 0, "it is admitted");
    }
    assert_answers(&session, "CL.THROTTLE a 127 1 3600\r\n",
                   "*5\r\n:1\r\n:128\r\n:0\r\n:3600\r\n:460800\r\n"); /* every other set has been replaced */
}

/* A set with leased permits gives its limit away only when the leases have ended: others must not spend them. */
TEST(a_set_of_parameters_with_leases_is_not_replaced_before_it_is_idle, 60)
{
    static struct throttle throttle;
    struct fault fault;
    weir *limiter;
    struct weir_options options = WEIR_OPTIONS_INIT;
    int64_t now_us = WEIR_SECOND;
    options.mode = WEIR_HYBRID;
    options.redis_url = "unix:///nowhere/redis.sock";
    options.quiet = true;
    if (weir_open(&options, &limiter) != WEIR_OK) /* a build without Redis */
        return;
    must(throttle_init(&throttle, false), "memory");
    for (int64_t i = 1; i <= THROTTLE_MAX; i++)
        must(throttle_get(&throttle, limiter, 5, 1, i, now_us, &fault) != NULL, "there is room");
    ck_assert_int_gt(throttle.sets[0].idle_us, 0);
    ck_assert_ptr_null(throttle_get(&throttle, limiter, 6, 1, 1, now_us + throttle.sets[0].idle_us, &fault));
    ck_assert_str_eq(fault.text, "16384 sets of parameters are in use");
    for (int64_t i = 1; i <= THROTTLE_MAX; i++)
        now_us = now_us > throttle.sets[i - 1].idle_us ? now_us : throttle.sets[i - 1].idle_us;
    ck_assert_ptr_nonnull(throttle_get(&throttle, limiter, 6, 1, 1, 2 * WEIR_SECOND + now_us, &fault));
    throttle_free(&throttle);
    weir_close(limiter);
}

TEST(a_set_of_parameters_with_pending_requests_is_not_replaced, 60)
{
    SESSION(session, true);
    session_say(&session, "CL.THROTTLE a 0 7 7\r\n", 21);
    use_up_sets(&session);
    session.server.now_us += 1000 * WEIR_HOUR;
    use_up_sets(&session);
    ck_assert_ptr_nonnull(weir_limit_find(session.scene.limiter, "cl.throttle.0.7.7"));
    ck_assert_int_eq(session_answer(&session, WEIR_OK, 1), 1);
    session_heard(&session);
    for (int64_t i = 0; i < THROTTLE_MAX; i++) {
        struct fault fault;
        must(throttle_get(&session.server.throttle, session.scene.limiter, 1, 1, 1 + i, session.server.now_us,
                          &fault) != NULL,
             "a set replaces another");
    }
    ck_assert_ptr_null(weir_limit_find(session.scene.limiter, "cl.throttle.0.7.7"));
}

TEST(bytes_that_are_no_command_get_an_error_and_close_the_connection, 10)
{
    static const struct {
        const char *bytes, *error;
    } table[] = {
        { "*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n" },
        { "*-1\r\n", "-ERR Protocol error: invalid multibulk length\r\n" },
        { "*257\r\n", "-ERR Protocol error: invalid multibulk length\r\n" },
        { "*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n" },
        { "*1\r\n:4\r\n", "-ERR Protocol error: invalid bulk length\r\n" },
        { "*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n" },
        { "*1\r\n$163841\r\n", "-ERR Protocol error: invalid bulk length\r\n" },
        { "*1\r\n$163840\r\n", "-ERR Protocol error: the command is too long\r\n" },
        { "*1\r\n$4\r\nPINGxx", "-ERR Protocol error: a bulk string does not end where it says\r\n" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        SESSION(session, false);
        assert_answers(&session, table[i].bytes, table[i].error);
        ck_assert(session_is_closed(&session));
        ck_assert_ptr_null(session.server.clients);
    }
    SESSION(session, false);
    static char line[RESP_LINE_MAX + 2];
    memset(line, 'a', sizeof line);
    session_say(&session, line, sizeof line);
    ck_assert_str_eq(session_heard(&session), "-ERR Protocol error: too big inline request\r\n");
    ck_assert(session_is_closed(&session));
}

TEST(a_client_must_log_in_if_a_password_is_configured, 10)
{
    SESSION(session, false);
    assert_answers(&session, "AUTH a\r\n", "-ERR AUTH called without any password configured for the server\r\n");
    close(session.fd);
    session_turn(&session);
    session.server.password = "se cret";
    session_connect(&session);
    assert_answers(&session, "PING\r\n", "-NOAUTH Authentication required.\r\n");
    assert_answers(&session, "NONE\r\n", "-NOAUTH Authentication required.\r\n");
    assert_answers(&session, "HELLO 3\r\n", "-NOAUTH HELLO must be called with the client already authenticated\r\n");
    assert_answers(&session, "*2\r\n$4\r\nAUTH\r\n$8\r\nse cretx\r\n",
                   "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_answers(&session, "*2\r\n$4\r\nAUTH\r\n$0\r\n\r\n",
                   "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_answers(&session, "*3\r\n$4\r\nAUTH\r\n$5\r\nadmin\r\n$7\r\nse cret\r\n",
                   "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_answers(&session, "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$7\r\nse cret\r\n",
                   "%6\r\n$6\r\nserver\r\n$4\r\nweir\r\n$7\r\nversion\r\n$5\r\n" WEIR_VERSION
                   "\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n"
                   "$4\r\nrole\r\n$6\r\nmaster\r\n");
    assert_answers(&session, "PING\r\n", "+PONG\r\n");
    assert_answers(&session, "HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n");
    assert_answers(&session, "QUIT\r\nPING\r\n", "+OK\r\n");
    ck_assert(session_is_closed(&session));
}

TEST(weir_top_lists_keys_only_with_option_top_keys, 10)
{
    SESSION(session, false);
    assert_answers(&session, "WEIR.TOP\r\n", "-ERR WEIR.TOP needs the option --top-keys\r\n");
    assert_answers(&session, "WEIR.TOP 0\r\n", "-ERR the count must be a whole number from 1 to 1024\r\n");
    close(session.fd);
    session_turn(&session);
    OPEN_SCENE(scene, OPTIONS(.top_keys = 2, .top_keys_in_clear = true));
    scene_define_text(&scene, "once", "fixed_window limit=1 period=1h");
    weir *before = session.server.limiter;
    session.server.limiter = scene.limiter;
    session.server.counts_top_keys = true;
    session_connect(&session);
    assert_answers(&session, "WEIR.TOP\r\n", "*0\r\n");
    for (int i = 0; i < 4; i++) {
        session_say(&session, "WEIR.TRY once a\r\n", 17);
        session_heard(&session);
        scene.now_us += WEIR_SECOND;
    }
    assert_answers(&session, "WEIR.TOP 1\r\n", "*1\r\n*4\r\n$4\r\nonce\r\n$1\r\na\r\n:3\r\n:0\r\n");
    close(session.fd);
    session_turn(&session);
    session.server.limiter = before;
    session_connect(&session);
}

/* Connect as a client of the metrics port. */
static void session_scrape(struct session *session, const char *request)
{
    int ends[2];
    close(session->fd);
    session_turn(session);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    client_accept(&session->server, ends[0], true, false);
    session->fd = ends[1];
    session_say(session, request, strlen(request));
}

TEST(the_metrics_port_answers_one_http_request, 10)
{
    SESSION(session, false);
    static char large[9000];
    session.server.password = "not asked for here";
    session_say(&session, "WEIR.TRY login a\r\n", 18);
    session_scrape(&session, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    const char *page = session_heard(&session);
    ck_assert_ptr_nonnull(
        strstr(page, "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: "));
    ck_assert_ptr_nonnull(strstr(page, "\r\n\r\n# HELP weir_build_info"));
    ck_assert_ptr_nonnull(strstr(page, "\nweir_limit_denied_total{limit=\"login\"} 0\n"));
    ck_assert(session_is_closed(&session));
    session_scrape(&session, "GET /metrics?x=1 HTTP/1.1\n\n");
    ck_assert_ptr_nonnull(strstr(session_heard(&session), "HTTP/1.0 200 OK"));
    session_scrape(&session, "GET /metric HTTP/1.1\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(session_heard(&session), "HTTP/1.0 404 Not Found"));
    session_scrape(&session, "POST /metrics HTTP/1.1\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(session_heard(&session), "HTTP/1.0 405 Method Not Allowed"));
    session_scrape(&session, "\n\n");
    ck_assert_ptr_nonnull(strstr(session_heard(&session), "HTTP/1.0 405 Method Not Allowed"));
    memset(large, 'x', sizeof large - 1);
    session_scrape(&session, large);
    ck_assert_ptr_nonnull(strstr(session_heard(&session), "HTTP/1.0 431 "));
    session_scrape(&session, "GET /metrics HTTP/1.1\r\nHost");
    ck_assert_str_eq(session_heard(&session), ""); /* it waits for the rest */
    ck_assert(!session_is_closed(&session));
    ck_assert_int_gt(session.server.clients->began_us, 0);
    session.server.now_us += WEIR_MINUTE;
    client_check_patience(session.server.clients);
    session_serve(&session);
    ck_assert(session_is_closed(&session));
    session_scrape(&session, ""); /* one that says nothing must not keep its place */
    session.server.now_us += WEIR_MINUTE;
    client_check_patience(session.server.clients);
    session_serve(&session);
    ck_assert(session_is_closed(&session));
    ck_assert_ptr_null(session.server.clients);
}
