/* test_serve_clients.c - clients of weir serve that wait, are slow or hostile, or go; and the end of the server. */
#include "serve_session.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Requests that wait ---- */

TEST(replies_come_in_the_order_of_the_commands_while_requests_wait, 10)
{
    SESSION(session, true);
    assert_answers(&session, TRY_LOGIN "PING\r\n" TRY_LOGIN "PING b\r\n", "");
    ck_assert_int_eq(session_answer(&session, WEIR_OK, 1), 1);
    const char *first = session_heard(&session);
    ck_assert_int_eq(strncmp(first, "*8\r\n:1\r\n", 8), 0);
    ck_assert_str_eq(first + strlen(first) - 7, "+PONG\r\n");
    ck_assert_int_eq(session_answer(&session, WEIR_ESTATE, 1), 1);
    const char *second = session_heard(&session);
    ck_assert_int_eq(strncmp(second, "-ERR ", 5), 0);
    ck_assert_str_eq(second + strlen(second) - 7, "$1\r\nb\r\n");
}

TEST(a_client_that_leaves_while_its_requests_wait_is_freed_when_they_are_answered, 10)
{
    SESSION(session, true);
    session_say(&session, TRY_LOGIN TRY_LOGIN, 2 * strlen(TRY_LOGIN));
    close(session.fd);
    session.fd = -1;
    session_turn(&session);
    ck_assert_ptr_nonnull(session.server.clients);
    ck_assert_int_eq(session_answer(&session, WEIR_OK, 2), 2);
    ck_assert_ptr_null(session.server.clients);
    ck_assert_uint_eq(session.server.client_count, 0);
}

TEST(a_client_with_too_many_waiting_requests_resumes_once_they_are_answered, 30)
{
    enum { REQUESTS = CLIENT_WAITING_MAX + 500 };
    SESSION(session, true);
    static char pipeline[REQUESTS * (sizeof TRY_LOGIN - 1) + 1];
    for (int i = 0; i < REQUESTS; i++)
        memcpy(pipeline + (size_t)i * strlen(TRY_LOGIN), TRY_LOGIN, strlen(TRY_LOGIN));
    session_say(&session, pipeline, sizeof pipeline - 1); /* in one piece: a socket takes few small ones */
    ck_assert_uint_eq(session.server.clients->waiting_count, CLIENT_WAITING_MAX);
    int answered = 0, replies = 0;
    while (answered < REQUESTS) {
        answered += session_answer(&session, WEIR_OK, 100);
        session_turn(&session);
        for (const char *at = session_heard(&session); (at = strstr(at, "*8\r\n")); at += 4)
            replies++;
    }
    ck_assert_int_eq(replies, REQUESTS);
}

TEST(waiting_peeks_groups_and_resets_do_not_block_other_clients, 60)
{
    static const char commands[] = "WEIR.PEEK login a\r\nWEIR.TRYALL login a 1 login b 1\r\nWEIR.RESET login a\r\n"
                                   "CL.THROTTLE a 1 1 1 0\r\nPING b\r\n";
    SESSION(session, true);
    fake_hold(&session.fake, false);
    session_say(&session, commands, sizeof commands - 1);
    struct client *client = session.server.clients;
    ck_assert_str_eq(session_heard(&session), "");
    ck_assert_uint_eq(client->waiting_count, 5);
    const int first = session.fd;
    session_connect(&session);
    assert_answers(&session, "PING\r\n", "+PONG\r\n");
    close(session.fd);
    session.fd = first;
    session_turn(&session);
    fake_let_go(&session.fake);
    while (client->waiting_count > 0) {
        struct pollfd answers = { .fd = weir_event_fd(session.scene.limiter), .events = POLLIN };
        ck_assert_int_eq(poll(&answers, 1, 60000), 1);
        weir_dispatch(session.scene.limiter);
        session_serve(&session);
    }
    const char *got = session_heard(&session);
    ck_assert_int_eq(strncmp(got, "*8\r\n:1\r\n", 8), 0);
    const char *reset = strstr(got, "+OK\r\n*5\r\n:0\r\n");
    ck_assert_ptr_nonnull(reset);
    ck_assert_ptr_nonnull(strstr(got + 1, "*8\r\n:1\r\n"));
    ck_assert_str_eq(got + strlen(got) - 7, "$1\r\nb\r\n");
}

TEST(requests_that_wait_when_the_server_ends_are_answered_and_freed, 10)
{
    SESSION(session, true);
    session_say(&session, TRY_LOGIN TRY_LOGIN,
                2 * strlen(TRY_LOGIN)); /* session_close() closes the limiter under them */
}

/* ---- Slow and hostile clients ---- */

TEST(a_client_that_reads_nothing_uses_bounded_memory, 30)
{
    SESSION(session, false);
    char ping[1024], expected[1100];
    memset(ping, 'x', sizeof ping);
    int len = snprintf(expected, sizeof expected, "*2\r\n$4\r\nPING\r\n$1000\r\n%.1000s\r\n", ping);
    int sent = 0;
    while (send(session.fd, expected, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) == len) {
        sent++;
        session_turn(&session);
        must(sent < 100000, "the socket fills up");
    }
    const struct client *client = session.server.clients;
    ck_assert_uint_lt(client->output.end - client->output.begin, CLIENT_OUTPUT_HIGH + 2048);
    ck_assert_uint_le(client->input_size, RESP_COMMAND_MAX + (16 << 10));
    int replies = 0;
    for (int quiet = 0; quiet < 3; quiet++)
        for (const char *at = session_heard(&session); (at = strstr(at, "$1000\r\n")); at += 7, quiet = 0)
            replies++;
    ck_assert_int_ge(replies, sent);
}

TEST(a_client_with_a_partial_command_is_closed_and_an_idle_one_is_not, 10)
{
    for (int i = 0; i < 3; i++) {
        SESSION(session, false);
        session.server.password = i == 2 ? "secret" : NULL;
        close(session.fd);
        session_turn(&session);
        session_connect(&session);
        if (i == 0)
            session_say(&session, "*1\r\n$4\r\nPI", 10);
        session.server.now_us += 29 * WEIR_SECOND;
        client_check_patience(session.server.clients);
        if (i == 0)
            session_say(&session, "N", 1); /* a byte now and then does not help */
        ck_assert(!session_is_closed(&session));
        session.server.now_us += 2 * WEIR_SECOND;
        client_check_patience(session.server.clients);
        session_serve(&session);
        ck_assert_msg(session_is_closed(&session) == (i != 1), "case %d", i);
    }
}

TEST(a_client_that_reads_too_slowly_is_closed, 10)
{
    SESSION(session, false);
    static char ping[1100];
    const int len = snprintf(ping, sizeof ping, "*2\r\n$4\r\nPING\r\n$1000\r\n%01000d\r\n", 0);
    for (int sent = 0; send(session.fd, ping, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) == len; sent++) {
        session_turn(&session);
        must(sent < 100000, "the socket fills up");
    }
    bool is_open = true;
    for (int seconds = 0; is_open && seconds < 40; seconds += 5) {
        char few[1000]; /* less than CLIENT_OUTPUT_HIGH in PATIENCE_US */
        ck_assert_int_gt(recv(session.fd, few, sizeof few, 0), 0);
        session.server.now_us += 5 * WEIR_SECOND;
        client_check_patience(session.server.clients);
        session_turn(&session);
        session_serve(&session);
        is_open = session.server.clients != NULL;
    }
    ck_assert(!is_open);
}

TEST(keys_of_waiting_requests_use_bounded_memory, 10)
{
    SESSION(session, true);
    static char request[70000];
    const int len = snprintf(request, sizeof request, "*3\r\n$8\r\nWEIR.TRY\r\n$5\r\nlogin\r\n$60000\r\n%060000d\r\n",
                             0);
    for (int sent = 0; send(session.fd, request, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) == len; sent++) {
        session_turn(&session);
        must(sent < 1000, "the socket fills up");
    }
    const struct client *client = session.server.clients;
    ck_assert_uint_ge(client->waiting_bytes, CLIENT_WAITING_HIGH);
    ck_assert_uint_lt(client->waiting_bytes, CLIENT_WAITING_HIGH + 60001);
    for (size_t waiting = client->waiting_count; waiting > 0; waiting = client->waiting_count) {
        ck_assert_int_gt(session_answer(&session, WEIR_OK, (int)waiting), 0);
        session_turn(&session);
        session_heard(&session);
    }
    ck_assert_uint_eq(client->waiting_bytes, 0);
}

TEST(a_client_that_has_not_logged_in_cannot_send_long_commands, 10)
{
    SESSION(session, false);
    static char command[CLIENT_STRANGER_MAX + 64];
    const int len = snprintf(command, sizeof command, "*2\r\n$4\r\nPING\r\n$100000\r\n%0*d", CLIENT_STRANGER_MAX, 0);
    session_say(&session, command, (size_t)len);
    ck_assert_str_eq(session_heard(&session), "");
    ck_assert(!session_is_closed(&session));
    close(session.fd);
    session_turn(&session);
    session.server.password = "secret";
    session_connect(&session);
    session_say(&session, command, (size_t)len);
    ck_assert_str_eq(session_heard(&session), "-ERR Protocol error: unauthenticated bulk length\r\n");
    ck_assert(session_is_closed(&session));
}

TEST(commands_sent_before_a_client_disconnects_are_answered, 10)
{
    SESSION(session, false);
    ck_assert_int_eq(send(session.fd, "PING\r\nPING a\r\nPI", 16, MSG_NOSIGNAL), 16);
    shutdown(session.fd, SHUT_WR);
    session_turn(&session);
    ck_assert_str_eq(session_heard(&session), "+PONG\r\n$1\r\na\r\n");
    ck_assert(session_is_closed(&session));
    ck_assert_ptr_null(session.server.clients);
}

/* Begin to drain, as SIGTERM does. */
static void session_drain(struct session *session)
{
    session->server.is_draining = true;
    for (struct client *client = session->server.clients; client; client = client->next)
        client_is_due(client);
    session_serve(session);
}

TEST(a_draining_server_answers_commands_that_it_has_not_read_yet, 10)
{
    enum { REQUESTS = 4000 };
    SESSION(session, false);
    static char pipeline[REQUESTS * (sizeof TRY_LOGIN - 1)];
    for (int i = 0; i < REQUESTS; i++)
        memcpy(pipeline + (size_t)i * strlen(TRY_LOGIN), TRY_LOGIN, strlen(TRY_LOGIN));
    ck_assert_int_eq(send(session.fd, pipeline, sizeof pipeline, MSG_NOSIGNAL), (ssize_t)sizeof pipeline);
    session_drain(&session); /* epoll has not told of the bytes */
    int replies = 0;
    for (int quiet = 0; quiet < 3; quiet++, session_turn(&session))
        for (const char *at = session_heard(&session); (at = strstr(at, "*8\r\n")); at += 4, quiet = 0)
            replies++;
    ck_assert_int_eq(replies, REQUESTS);
    ck_assert(session_is_closed(&session));
    ck_assert_ptr_null(session.server.clients);
}

TEST(a_draining_server_waits_for_pending_requests_and_closes_idle_clients, 10)
{
    SESSION(session, true);
    session_say(&session, TRY_LOGIN, strlen(TRY_LOGIN));
    session_drain(&session);
    ck_assert(!session_is_closed(&session));
    ck_assert_int_eq(session_answer(&session, WEIR_OK, 1), 1);
    ck_assert_int_eq(strncmp(session_heard(&session), "*8\r\n:1\r\n", 8), 0);
    ck_assert(session_is_closed(&session));
    close(session.fd);
    session.server.is_draining = false;
    session_connect(&session);
    session_drain(&session);
    ck_assert(session_is_closed(&session));
}
