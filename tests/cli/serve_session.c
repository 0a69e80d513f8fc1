/* serve_session.c - one client of weir serve on a socket pair. */
#include "serve_session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"

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

void session_serve(struct session *session)
{
    for (int turns = 0; session->server.due; turns++) {
        struct client *client = session->server.due;
        must(turns < 100000, "the server comes to rest");
        session->server.due = NULL;
        while (client) {
            struct client *next = client->next_due;
            client->is_due = false;
            client_serve(client);
            client = next;
        }
    }
}

void session_connect(struct session *session)
{
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "a pair of sockets");
    client_accept(&session->server, ends[0], false, false);
    session->fd = ends[1];
}

void session_open(struct session *session, bool is_later)
{
    memset(session, 0, sizeof *session);
    if (is_later) {
        fake_init(&session->fake);
        session->fake.later = true;
        fake_open(&session->fake, &session->scene, NULL);
    } else {
        scene_open(&session->scene, NULL);
    }
    scene_define_text(&session->scene, "login", "fixed_window limit=3 period=1h");
    session->server.limiter = session->scene.limiter;
    session->server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    session->server.client_max = 10;
    session->server.now_us = WEIR_SECOND;
    must(session->server.epoll_fd >= 0, "an epoll descriptor");
    must(throttle_init(&session->server.throttle, !is_later), "memory");
    if (is_later)
        must(weir_event_fd(session->scene.limiter) >= 0, "an event descriptor");
    session_connect(session);
}

void session_close(struct session *session)
{
    if (session->fd >= 0)
        close(session->fd);
    scene_close(&session->scene);
    while (session->server.clients) {
        struct client *client = session->server.clients;
        client_collect(client);
        if (client->watch.fd >= 0)
            close(client->watch.fd);
        client_free(client);
    }
    throttle_free(&session->server.throttle);
    close(session->server.epoll_fd);
}

void session_turn(struct session *session)
{
    struct epoll_event events[4];
    int count;
    for (int turns = 0; (count = epoll_wait(session->server.epoll_fd, events, 4, 0)) > 0; turns++) {
        must(turns < 100000, "the server does not spin");
        for (int i = 0; i < count; i++) {
            struct watch *watch = events[i].data.ptr;
            watch->ready(&session->server, watch, events[i].events);
        }
        session_serve(session);
    }
}

int session_answer(struct session *session, int status, int most)
{
    const int answered = fake_answer(&session->fake, status, most);
    weir_dispatch(session->scene.limiter);
    session_serve(session);
    return answered;
}

void session_say(struct session *session, const char *data, size_t len)
{
    const ssize_t sent = send(session->fd, data, len, MSG_NOSIGNAL);
    ck_assert_msg(sent == (ssize_t)len, "%zd of %zu bytes: %s", sent, len, strerror(errno));
    session_turn(session);
}

const char *session_heard(struct session *session)
{
    static char text[1 << 20]; /* more than a server keeps unsent */
    size_t len = 0;
    ssize_t got;
    while ((got = recv(session->fd, text + len, sizeof text - 1 - len, 0)) > 0) {
        len += (size_t)got;
        session_turn(session);
    }
    text[len] = '\0';
    return text;
}

void assert_answers(struct session *session, const char *command, const char *answer)
{
    session_say(session, command, strlen(command));
    ck_assert_str_eq(session_heard(session), answer);
}

bool session_is_closed(struct session *session)
{
    char byte;
    return recv(session->fd, &byte, 1, MSG_PEEK) == 0;
}
