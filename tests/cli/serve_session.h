/* serve_session.h - weir serve from the inside: one client on a socket pair, served turn by turn, without the loop. */
#ifndef WEIR_TESTS_SERVE_SESSION_H
#define WEIR_TESTS_SERVE_SESSION_H

#include "cli/serve/client.h"
#include "fake.h"
#include "support.h"

struct session {
    struct scene scene;
    struct fake fake;
    struct server server;
    int fd; /* the client's end */
};

/* Open a server in local mode with the limit `login`, 3 an hour, or on a backend that answers by fake_answer(); and a
 * client. */
void session_open(struct session *session, bool is_later);
void session_close(struct session *session);

#define SESSION(name, is_later)                   \
    CLOSED_BY(session_close) struct session name; \
    session_open(&name, is_later)

/* Connect a client, in place of one that has been closed. */
void session_connect(struct session *session);

/* Serve the clients that are due until none is. */
void session_serve(struct session *session);

/* Have epoll report what it would, and serve, until it reports nothing new. */
void session_turn(struct session *session);

/* Answer up to `most` waiting requests in order, and serve. Return how many there were. */
int session_answer(struct session *session, int status, int most);

/* Send bytes as the client, and let the server take them. */
void session_say(struct session *session, const char *data, size_t len);

/* Return what the client has got since the last call, in a static buffer. */
const char *session_heard(struct session *session);

/* True if the server has closed the connection. */
bool session_is_closed(struct session *session);

void assert_answers(struct session *session, const char *command, const char *answer);

#define TRY_LOGIN "*3\r\n$8\r\nWEIR.TRY\r\n$5\r\nlogin\r\n$1\r\na\r\n"

#endif
