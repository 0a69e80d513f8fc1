/* test_serve.c - weir serve from the inside: one client on a socket pair, served turn by turn, without the loop. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/serve/client.h"
#include "fake.h"
#include "support.h"

/* main.c's, which these parts of the program call. */
void complain(const char *format, ...)
{
    (void)format;
}

int usage_error(const char *command, const char *format, ...)
{
    (void)command, (void)format;
    return EXIT_ERROR;
}

int option_error(const char *command, int result, char **argv)
{
    (void)command, (void)result, (void)argv;
    return EXIT_ERROR;
}

int output_finish(int code, int failure)
{
    (void)failure;
    return code;
}

bool output_failed(void)
{
    return false;
}

/* ---- One server and one client ---- */

struct stage {
    struct scene scene;
    struct fake fake;
    struct server server;
    int fd; /* the client's end */
};

static void stage_serve(struct stage *stage)
{
    for (int turns = 0; stage->server.due; turns++) {
        struct client *client = stage->server.due;
        must(turns < 100000, "the server comes to rest");
        stage->server.due = NULL;
        while (client) {
            struct client *next = client->next_due;
            client->is_due = false;
            client_serve(client);
            client = next;
        }
    }
}

static void stage_connect(struct stage *stage)
{
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    client_accept(&stage->server, ends[0], false, false);
    stage->fd = ends[1];
}

/* Open a stage in local mode with a limit of 3 an hour, or with a backend that answers later. */
static void stage_open(struct stage *stage, bool is_later)
{
    memset(stage, 0, sizeof *stage);
    if (is_later) {
        fake_init(&stage->fake);
        stage->fake.later = true;
        fake_open(&stage->fake, &stage->scene, NULL);
    } else {
        scene_open(&stage->scene, NULL);
    }
    scene_define_text(&stage->scene, "login", "fixed_window limit=3 period=1h");
    stage->server.limiter = stage->scene.limiter;
    stage->server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    stage->server.client_max = 10;
    stage->server.now_us = WEIR_SECOND;
    ck_assert_int_ge(stage->server.epoll_fd, 0);
    ck_assert(throttle_init(&stage->server.throttle));
    if (is_later)
        ck_assert_int_ge(weir_event_fd(stage->scene.limiter), 0);
    stage_connect(stage);
}

static void stage_close(struct stage *stage)
{
    if (stage->fd >= 0)
        close(stage->fd);
    scene_close(&stage->scene);
    while (stage->server.clients) {
        struct client *client = stage->server.clients;
        client_collect(client);
        if (client->watch.fd >= 0)
            close(client->watch.fd);
        client_free(client);
    }
    throttle_free(&stage->server.throttle);
    close(stage->server.epoll_fd);
}

#define STAGE(name, is_later)                 \
    CLOSED_BY(stage_close) struct stage name; \
    stage_open(&name, is_later)

/* Have epoll report what it would, until it reports nothing new. */
static void stage_turn(struct stage *stage)
{
    struct epoll_event events[4];
    int count;
    for (int turns = 0; (count = epoll_wait(stage->server.epoll_fd, events, 4, 0)) > 0; turns++) {
        must(turns < 100000, "the server does not spin");
        for (int i = 0; i < count; i++) {
            struct watch *watch = events[i].data.ptr;
            watch->ready(&stage->server, watch, events[i].events);
        }
        stage_serve(stage);
    }
}

static void say(struct stage *stage, const char *data, size_t len)
{
    const ssize_t sent = send(stage->fd, data, len, MSG_NOSIGNAL);
    ck_assert_msg(sent == (ssize_t)len, "%zd of %zu bytes: %s", sent, len, strerror(errno));
    stage_turn(stage);
}

/* Return what the client has got since the last call, in a static buffer. */
static const char *heard(struct stage *stage)
{
    static char text[1 << 20];
    size_t len = 0;
    ssize_t got;
    while ((got = recv(stage->fd, text + len, sizeof text - 1 - len, 0)) > 0) {
        len += (size_t)got;
        stage_turn(stage);
    }
    text[len] = '\0';
    return text;
}

static void assert_answers(struct stage *stage, const char *command, const char *answer)
{
    say(stage, command, strlen(command));
    ck_assert_str_eq(heard(stage), answer);
}

/* True if the server has closed the connection. */
static bool is_closed(struct stage *stage)
{
    char byte;
    return recv(stage->fd, &byte, 1, MSG_PEEK) == 0;
}

/* ---- Commands and replies ---- */

#define TRY_LOGIN "*3\r\n$8\r\nWEIR.TRY\r\n$5\r\nlogin\r\n$1\r\na\r\n"

TEST(commands_are_answered_alike_however_their_bytes_are_split, 10)
{
    static const char commands[] = "PING\r\n*0\r\n\r\n*2\r\n$4\r\nping\r\n$3\r\na\r\n\r\nPING b\r\n" TRY_LOGIN
                                   "*1\r\n$4\r\nNONE\r\nWEIR.PEEK login b 2\r\n";
    char whole[4096];
    for (size_t step = 0; step < sizeof commands; step++) {
        STAGE(stage, false);
        if (step == 0) {
            say(&stage, commands, sizeof commands - 1);
        } else {
            for (size_t at = 0; at < sizeof commands - 1; at += step)
                say(&stage, commands + at, at + step < sizeof commands ? step : sizeof commands - 1 - at);
        }
        const char *got = heard(&stage);
        if (step == 0)
            snprintf(whole, sizeof whole, "%s", got);
        ck_assert_str_eq(got, whole);
    }
    ck_assert_str_eq(
        whole, "+PONG\r\n$3\r\na\r\n\r\n$1\r\nb\r\n*8\r\n:1\r\n:3\r\n:2\r\n:0\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n"
               "-ERR unknown command 'NONE'\r\n*8\r\n:1\r\n:3\r\n:3\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
}

TEST(limits_answer_as_through_the_api, 10)
{
    STAGE(stage, false);
    scene_define_text(&stage.scene, "seen", "fixed_window limit=1 period=1h shadow");
    assert_answers(&stage, "WEIR.TRY login a 4\r\n", "*8\r\n:0\r\n:3\r\n:3\r\n:-1\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&stage, "WEIR.TRY login a 3\r\n", "*8\r\n:1\r\n:3\r\n:0\r\n:0\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&stage, "WEIR.TRY login a\r\n",
                   "*8\r\n:0\r\n:3\r\n:0\r\n:3600000000\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&stage, "WEIR.RESET login a\r\n", "+OK\r\n");
    assert_answers(&stage, "WEIR.CHARGE login a 5\r\n", "+OK\r\n");
    assert_answers(&stage, "WEIR.TRY login a\r\n",
                   "*8\r\n:0\r\n:3\r\n:0\r\n:3600000000\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&stage, "WEIR.RESET login a\r\n", "+OK\r\n");
    char settle[128], reserved[128];
    snprintf(reserved, sizeof reserved,
             "*10\r\n:1\r\n:3\r\n:0\r\n:0\r\n:3600000000\r\n:0\r\n:0\r\n:0\r\n:3\r\n:%" PRId64 "\r\n",
             stage.scene.now_us);
    assert_answers(&stage, "WEIR.RESERVE login a 3\r\n", reserved);
    snprintf(settle, sizeof settle, "WEIR.SETTLE login a 3 %" PRId64 " 0\r\n", stage.scene.now_us);
    assert_answers(&stage, settle, "+OK\r\n");
    assert_answers(&stage, "WEIR.SETTLE login a 3 x 0\r\n", "-ERR Couldn't parse as integer: x\r\n");
    assert_answers(&stage, "WEIR.SETTLE login a -2 1 0\r\n", "-ERR no reservation has these numbers\r\n");
    assert_answers(&stage, "WEIR.SETTLE login a 3 1 -1\r\n", "-ERR the cost must be 0 to 1000000000, not -1\r\n");
    assert_answers(&stage, "WEIR.TRYALL login a 1 login b 4\r\n",
                   "*8\r\n:0\r\n:3\r\n:3\r\n:-1\r\n:0\r\n:0\r\n:0\r\n:1\r\n");
    assert_answers(&stage, "WEIR.PEEK login a 3\r\n", "*8\r\n:1\r\n:3\r\n:3\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
    assert_answers(&stage, "weir.try seen a 2\r\n", "*8\r\n:1\r\n:1\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1\r\n:0\r\n");
    assert_answers(&stage, "WEIR.TRY none a\r\n", "-ERR there is no limit 'none'\r\n");
    assert_answers(&stage, "WEIR.TRY login a 0\r\n", "-ERR the cost must be 1 to 1000000000, not 0\r\n");
    assert_answers(&stage, "WEIR.TRY login a x\r\n", "-ERR Couldn't parse as integer: x\r\n");
    assert_answers(&stage, "*3\r\n$8\r\nWEIR.TRY\r\n$5\r\nlogin\r\n$0\r\n\r\n",
                   "-ERR the key must have 1 to 65536 bytes, not 0\r\n");
    assert_answers(&stage, "WEIR.TRYALL login a\r\n", "-ERR wrong number of arguments for 'WEIR.TRYALL' command\r\n");
    assert_answers(&stage, "WEIR.TRYALL login a 1 login\r\n",
                   "-ERR WEIR.TRYALL takes 1 to 64 times: limit key cost\r\n");
    say(&stage, "WEIR.STATS\r\n", 12);
    const char *stats = heard(&stage);
    ck_assert_ptr_nonnull(strstr(stats, "\nweir_limit_denied_total{limit=\"login\"} 4\n"));
    ck_assert_ptr_nonnull(strstr(stats, "\nweir_limit_would_deny_total{limit=\"seen\"} 1\n"));
}

/* The first two answers stand in redis-cell's README; the others follow from its source. */
TEST(cl_throttle_answers_as_redis_cell, 10)
{
    STAGE(stage, false);
    assert_answers(&stage, "CL.THROTTLE user123 15 30 60\r\n", "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
    assert_answers(&stage, "cl.throttle user123 15 30 60 1\r\n", "*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n:4\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 15 30 60 0\r\n", "*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n:4\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 15 30 60 15\r\n", "*5\r\n:1\r\n:16\r\n:14\r\n:2\r\n:4\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 15 30 60 17\r\n", "*5\r\n:1\r\n:16\r\n:14\r\n:-1\r\n:4\r\n");
    stage.scene.now_us += 500; /* less than a millisecond is dropped, more counts as a second */
    assert_answers(&stage, "CL.THROTTLE user123 15 30 60 0\r\n", "*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n:4\r\n");
    stage.scene.now_us += 1999000;
    assert_answers(&stage, "CL.THROTTLE user123 15 30 60 0\r\n", "*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n:2\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 0 1 1\r\n", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:1\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 a 1 1\r\n", "-ERR Couldn't parse as integer: a\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 1 1\r\n",
                   "-ERR Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 -1 1 1\r\n", "-ERR max_burst must be 0 to 999999999, not -1\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 1 0 1\r\n", "-ERR count must be 1 to 1000000000, not 0\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 1 1 0\r\n", "-ERR period must be 1 to 31622400, not 0\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 1 1 1 -1\r\n", "-ERR the cost must be 1 to 1000000000, not -1\r\n");
    assert_answers(&stage, "CL.THROTTLE user123 999999999 1 31622400\r\n",
                   "-ERR burst takes over 142 years to fill at this rate\r\n");
}

TEST(clients_cannot_use_up_the_limits_by_ever_new_parameters, 60)
{
    STAGE(stage, false);
    struct fault fault;
    for (int64_t i = 0; i < THROTTLE_MAX; i++)
        must(throttle_limit(&stage.server.throttle, stage.scene.limiter, i % 128, 1 + i / 128, 60, &fault) != NULL,
             "a new set of parameters becomes a limit");
    assert_answers(&stage, "CL.THROTTLE a 200 1 60\r\n",
                   "-ERR this server has seen 16384 different sets of parameters and takes no more\r\n");
    assert_answers(&stage, "CL.THROTTLE a 1 1 60\r\n", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n");
    ck_assert_ptr_nonnull(weir_limit_find(stage.scene.limiter, "cl.throttle.127.128.60"));
}

/* ---- Requests that wait ---- */

TEST(replies_come_in_the_order_of_the_commands_while_requests_wait, 10)
{
    STAGE(stage, true);
    assert_answers(&stage, TRY_LOGIN "PING\r\n" TRY_LOGIN "PING b\r\n", "");
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_OK, 1), 1);
    weir_dispatch(stage.scene.limiter);
    stage_serve(&stage);
    const char *first = heard(&stage);
    ck_assert_int_eq(strncmp(first, "*8\r\n:1\r\n", 8), 0);
    ck_assert_str_eq(first + strlen(first) - 7, "+PONG\r\n");
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_ESTATE, 1), 1);
    weir_dispatch(stage.scene.limiter);
    stage_serve(&stage);
    const char *second = heard(&stage);
    ck_assert_int_eq(strncmp(second, "-ERR ", 5), 0);
    ck_assert_str_eq(second + strlen(second) - 7, "$1\r\nb\r\n");
}

TEST(a_client_that_leaves_while_its_requests_wait_is_freed_when_they_are_answered, 10)
{
    STAGE(stage, true);
    say(&stage, TRY_LOGIN TRY_LOGIN, 2 * strlen(TRY_LOGIN));
    close(stage.fd);
    stage.fd = -1;
    stage_turn(&stage);
    ck_assert_ptr_nonnull(stage.server.clients);
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_OK, 2), 2);
    weir_dispatch(stage.scene.limiter);
    stage_serve(&stage);
    ck_assert_ptr_null(stage.server.clients);
    ck_assert_uint_eq(stage.server.client_count, 0);
}

TEST(a_client_with_too_many_waiting_requests_goes_on_when_they_are_answered, 30)
{
    enum { REQUESTS = CLIENT_WAITING_MAX + 500 };
    STAGE(stage, true);
    static char pipeline[REQUESTS * (sizeof TRY_LOGIN - 1) + 1];
    for (int i = 0; i < REQUESTS; i++)
        memcpy(pipeline + (size_t)i * strlen(TRY_LOGIN), TRY_LOGIN, strlen(TRY_LOGIN));
    say(&stage, pipeline, sizeof pipeline - 1); /* at once: a socket takes few small pieces */
    ck_assert_uint_eq(stage.server.clients->waiting_count, CLIENT_WAITING_MAX);
    int answered = 0, replies = 0;
    while (answered < REQUESTS) {
        answered += fake_answer(&stage.fake, WEIR_OK, 100);
        weir_dispatch(stage.scene.limiter);
        stage_serve(&stage);
        stage_turn(&stage);
        for (const char *at = heard(&stage); (at = strstr(at, "*8\r\n")); at += 4)
            replies++;
    }
    ck_assert_int_eq(replies, REQUESTS);
}

TEST(requests_that_wait_at_the_end_are_answered_and_freed, 10)
{
    STAGE(stage, true);
    say(&stage, TRY_LOGIN TRY_LOGIN, 2 * strlen(TRY_LOGIN)); /* stage_close() closes the limiter under them */
}

/* ---- Slow and hostile clients ---- */

TEST(a_client_that_reads_nothing_holds_a_bounded_part_of_the_memory, 30)
{
    STAGE(stage, false);
    char ping[1024], expected[1100];
    memset(ping, 'x', sizeof ping);
    int len = snprintf(expected, sizeof expected, "*2\r\n$4\r\nPING\r\n$1000\r\n%.1000s\r\n", ping);
    int sent = 0;
    while (send(stage.fd, expected, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) == len) {
        sent++;
        stage_turn(&stage);
        must(sent < 100000, "the socket fills up");
    }
    const struct client *client = stage.server.clients;
    ck_assert_uint_lt(client->output.end - client->output.begin, CLIENT_OUTPUT_HIGH + 2048);
    ck_assert_uint_le(client->input_size, RESP_COMMAND_MAX + (16 << 10));
    int replies = 0;
    for (int quiet = 0; quiet < 3; quiet++)
        for (const char *at = heard(&stage); (at = strstr(at, "$1000\r\n")); at += 7, quiet = 0)
            replies++;
    ck_assert_int_ge(replies, sent);
}

TEST(a_client_that_keeps_the_server_waiting_is_closed_and_an_idle_one_is_not, 10)
{
    for (int i = 0; i < 3; i++) {
        STAGE(stage, false);
        stage.server.password = i == 2 ? "secret" : NULL;
        close(stage.fd);
        stage_turn(&stage);
        stage_connect(&stage);
        if (i == 0)
            say(&stage, "*1\r\n$4\r\nPI", 10);
        stage.server.now_us += 29 * WEIR_SECOND;
        client_check_patience(stage.server.clients);
        if (i == 0)
            say(&stage, "N", 1); /* a byte now and then does not help */
        ck_assert(!is_closed(&stage));
        stage.server.now_us += 2 * WEIR_SECOND;
        client_check_patience(stage.server.clients);
        stage_serve(&stage);
        ck_assert_msg(is_closed(&stage) == (i != 1), "case %d", i);
    }
}

TEST(a_client_that_reads_a_byte_now_and_then_is_closed, 10)
{
    STAGE(stage, false);
    static char ping[1100];
    const int len = snprintf(ping, sizeof ping, "*2\r\n$4\r\nPING\r\n$1000\r\n%01000d\r\n", 0);
    for (int sent = 0; send(stage.fd, ping, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) == len; sent++) {
        stage_turn(&stage);
        must(sent < 100000, "the socket fills up");
    }
    bool is_open = true;
    for (int seconds = 0; is_open && seconds < 40; seconds += 5) {
        char few[1000]; /* less than CLIENT_OUTPUT_HIGH in PATIENCE_US */
        ck_assert_int_gt(recv(stage.fd, few, sizeof few, 0), 0);
        stage.server.now_us += 5 * WEIR_SECOND;
        client_check_patience(stage.server.clients);
        stage_turn(&stage);
        stage_serve(&stage);
        is_open = stage.server.clients != NULL;
    }
    ck_assert(!is_open);
}

TEST(keys_of_waiting_requests_hold_a_bounded_part_of_the_memory, 10)
{
    STAGE(stage, true);
    static char request[70000];
    const int len = snprintf(request, sizeof request, "*3\r\n$8\r\nWEIR.TRY\r\n$5\r\nlogin\r\n$60000\r\n%060000d\r\n",
                             0);
    for (int sent = 0; send(stage.fd, request, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) == len; sent++) {
        stage_turn(&stage);
        must(sent < 1000, "the socket fills up");
    }
    const struct client *client = stage.server.clients;
    ck_assert_uint_ge(client->waiting_bytes, CLIENT_WAITING_HIGH);
    ck_assert_uint_lt(client->waiting_bytes, CLIENT_WAITING_HIGH + 60001);
    for (size_t waiting = client->waiting_count; waiting > 0; waiting = client->waiting_count) {
        ck_assert_int_gt(fake_answer(&stage.fake, WEIR_OK, (int)waiting), 0);
        weir_dispatch(stage.scene.limiter);
        stage_serve(&stage);
        stage_turn(&stage);
        heard(&stage);
    }
    ck_assert_uint_eq(client->waiting_bytes, 0);
}

TEST(a_client_that_has_not_logged_in_cannot_send_long_commands, 10)
{
    STAGE(stage, false);
    static char command[CLIENT_STRANGER_MAX + 64];
    const int len = snprintf(command, sizeof command, "*2\r\n$4\r\nPING\r\n$100000\r\n%0*d", CLIENT_STRANGER_MAX, 0);
    say(&stage, command, (size_t)len);
    ck_assert_str_eq(heard(&stage), "");
    ck_assert(!is_closed(&stage));
    close(stage.fd);
    stage_turn(&stage);
    stage.server.password = "secret";
    stage_connect(&stage);
    say(&stage, command, (size_t)len);
    ck_assert_str_eq(heard(&stage), "-ERR Protocol error: unauthenticated bulk length\r\n");
    ck_assert(is_closed(&stage));
}

TEST(bytes_that_are_no_command_get_an_error_and_the_end, 10)
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
        STAGE(stage, false);
        assert_answers(&stage, table[i].bytes, table[i].error);
        ck_assert(is_closed(&stage));
        ck_assert_ptr_null(stage.server.clients);
    }
    STAGE(stage, false);
    static char line[RESP_LINE_MAX + 2];
    memset(line, 'a', sizeof line);
    say(&stage, line, sizeof line);
    ck_assert_str_eq(heard(&stage), "-ERR Protocol error: too big inline request\r\n");
    ck_assert(is_closed(&stage));
}

TEST(a_client_must_log_in_where_there_is_a_password, 10)
{
    STAGE(stage, false);
    assert_answers(&stage, "AUTH a\r\n", "-ERR AUTH called without any password configured for the server\r\n");
    close(stage.fd);
    stage_turn(&stage);
    stage.server.password = "se cret";
    stage_connect(&stage);
    assert_answers(&stage, "PING\r\n", "-NOAUTH Authentication required.\r\n");
    assert_answers(&stage, "NONE\r\n", "-NOAUTH Authentication required.\r\n");
    assert_answers(&stage, "HELLO 3\r\n", "-NOAUTH HELLO must be called with the client already authenticated\r\n");
    assert_answers(&stage, "*2\r\n$4\r\nAUTH\r\n$8\r\nse cretx\r\n",
                   "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_answers(&stage, "*2\r\n$4\r\nAUTH\r\n$0\r\n\r\n",
                   "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_answers(&stage, "*3\r\n$4\r\nAUTH\r\n$5\r\nadmin\r\n$7\r\nse cret\r\n",
                   "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_answers(&stage, "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$7\r\nse cret\r\n",
                   "%4\r\n$6\r\nserver\r\n$4\r\nweir\r\n$7\r\nversion\r\n$5\r\n" WEIR_VERSION
                   "\r\n$5\r\nproto\r\n:3\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n");
    assert_answers(&stage, "PING\r\n", "+PONG\r\n");
    assert_answers(&stage, "HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n");
    assert_answers(&stage, "QUIT\r\nPING\r\n", "+OK\r\n");
    ck_assert(is_closed(&stage));
}

TEST(what_a_client_sent_before_its_end_is_answered, 10)
{
    STAGE(stage, false);
    ck_assert_int_eq(send(stage.fd, "PING\r\nPING a\r\nPI", 16, MSG_NOSIGNAL), 16);
    shutdown(stage.fd, SHUT_WR);
    stage_turn(&stage);
    ck_assert_str_eq(heard(&stage), "+PONG\r\n$1\r\na\r\n");
    ck_assert(is_closed(&stage));
    ck_assert_ptr_null(stage.server.clients);
}

/* Begin to drain, as SIGTERM does. */
static void stage_drain(struct stage *stage)
{
    stage->server.is_draining = true;
    for (struct client *client = stage->server.clients; client; client = client->next)
        client_is_due(client);
    stage_serve(stage);
}

TEST(a_server_that_drains_answers_what_it_has_not_read_yet, 10)
{
    enum { REQUESTS = 4000 };
    STAGE(stage, false);
    static char pipeline[REQUESTS * (sizeof TRY_LOGIN - 1)];
    for (int i = 0; i < REQUESTS; i++)
        memcpy(pipeline + (size_t)i * strlen(TRY_LOGIN), TRY_LOGIN, strlen(TRY_LOGIN));
    ck_assert_int_eq(send(stage.fd, pipeline, sizeof pipeline, MSG_NOSIGNAL), (ssize_t)sizeof pipeline);
    stage_drain(&stage); /* epoll has not told of the bytes */
    int replies = 0;
    for (int quiet = 0; quiet < 3; quiet++, stage_turn(&stage))
        for (const char *at = heard(&stage); (at = strstr(at, "*8\r\n")); at += 4, quiet = 0)
            replies++;
    ck_assert_int_eq(replies, REQUESTS);
    ck_assert(is_closed(&stage));
    ck_assert_ptr_null(stage.server.clients);
}

TEST(a_server_that_drains_waits_for_requests_under_way_and_closes_idle_clients, 10)
{
    STAGE(stage, true);
    say(&stage, TRY_LOGIN, strlen(TRY_LOGIN));
    stage_drain(&stage);
    ck_assert(!is_closed(&stage));
    ck_assert_int_eq(fake_answer(&stage.fake, WEIR_OK, 1), 1);
    weir_dispatch(stage.scene.limiter);
    stage_serve(&stage);
    ck_assert_int_eq(strncmp(heard(&stage), "*8\r\n:1\r\n", 8), 0);
    ck_assert(is_closed(&stage));
    close(stage.fd);
    stage.server.is_draining = false;
    stage_connect(&stage);
    stage_drain(&stage);
    ck_assert(is_closed(&stage));
}

TEST(top_keys_are_told_if_they_are_counted, 10)
{
    STAGE(stage, false);
    assert_answers(&stage, "WEIR.TOP\r\n", "-ERR WEIR.TOP needs the option --top-keys\r\n");
    assert_answers(&stage, "WEIR.TOP 0\r\n", "-ERR the count must be a whole number from 1 to 1024\r\n");
    close(stage.fd);
    stage_turn(&stage);
    OPEN_SCENE(scene, OPTIONS(.top_keys = 2, .top_keys_in_clear = true));
    scene_define_text(&scene, "once", "fixed_window limit=1 period=1h");
    weir *before = stage.server.limiter;
    stage.server.limiter = scene.limiter;
    stage.server.counts_top_keys = true;
    stage_connect(&stage);
    assert_answers(&stage, "WEIR.TOP\r\n", "*0\r\n");
    for (int i = 0; i < 4; i++) {
        say(&stage, "WEIR.TRY once a\r\n", 17);
        heard(&stage);
        scene.now_us += WEIR_SECOND;
    }
    assert_answers(&stage, "WEIR.TOP 1\r\n", "*1\r\n*4\r\n$4\r\nonce\r\n$1\r\na\r\n:3\r\n:0\r\n");
    close(stage.fd);
    stage_turn(&stage);
    stage.server.limiter = before;
    stage_connect(&stage);
}

/* Connect as a client of the metrics port. */
static void stage_scrape(struct stage *stage, const char *request)
{
    int ends[2];
    close(stage->fd);
    stage_turn(stage);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    client_accept(&stage->server, ends[0], true, false);
    stage->fd = ends[1];
    say(stage, request, strlen(request));
}

TEST(the_metrics_port_answers_one_http_request, 10)
{
    STAGE(stage, false);
    static char large[9000];
    stage.server.password = "not asked for here";
    say(&stage, "WEIR.TRY login a\r\n", 18);
    stage_scrape(&stage, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    const char *page = heard(&stage);
    ck_assert_ptr_nonnull(
        strstr(page, "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: "));
    ck_assert_ptr_nonnull(strstr(page, "\r\n\r\n# HELP weir_allowed_total"));
    ck_assert_ptr_nonnull(strstr(page, "\nweir_limit_denied_total{limit=\"login\"} 0\n"));
    ck_assert(is_closed(&stage));
    stage_scrape(&stage, "GET /metrics?x=1 HTTP/1.1\n\n");
    ck_assert_ptr_nonnull(strstr(heard(&stage), "HTTP/1.0 200 OK"));
    stage_scrape(&stage, "GET /metric HTTP/1.1\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(heard(&stage), "HTTP/1.0 404 Not Found"));
    stage_scrape(&stage, "POST /metrics HTTP/1.1\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(heard(&stage), "HTTP/1.0 405 Method Not Allowed"));
    stage_scrape(&stage, "\n\n");
    ck_assert_ptr_nonnull(strstr(heard(&stage), "HTTP/1.0 405 Method Not Allowed"));
    memset(large, 'x', sizeof large - 1);
    stage_scrape(&stage, large);
    ck_assert_ptr_nonnull(strstr(heard(&stage), "HTTP/1.0 431 "));
    stage_scrape(&stage, "GET /metrics HTTP/1.1\r\nHost");
    ck_assert_str_eq(heard(&stage), ""); /* it waits for the rest */
    ck_assert(!is_closed(&stage));
    ck_assert_int_gt(stage.server.clients->began_us, 0);
    stage.server.now_us += WEIR_MINUTE;
    client_check_patience(stage.server.clients);
    stage_serve(&stage);
    ck_assert(is_closed(&stage));
    ck_assert_ptr_null(stage.server.clients);
}
