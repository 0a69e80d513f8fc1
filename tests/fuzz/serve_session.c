/* serve_session.c - a client of weir serve: all that it sends, through the reader and the commands, to the replies.
 *
 * The first byte of the input chooses: bit 0, whether there is a password; bit 1, whether requests wait for their
 * answers; the rest, in how large pieces the bytes come. The others are what the client sends. Properties:
 *
 *     - the server comes to rest, keeps within its bounds, and frees the client when it has gone
 *     - each command gets one well-formed reply, in order; none comes after QUIT, or after a line or bytes of another protocol
 *     - however the bytes are split, the replies are the same (as far as no figures depend on when answers come)
 *     - before a client has logged in it gets errors only
 */
#include "fuzz.h"

#include "../cli/serve_session.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES_MAX = 8192, HEARD_MAX = 4 << 20 };

struct replies {
    char *text;
    size_t len, count;
};

/* ---- What is expected ---- */

/* Count the replies that these bytes get. */
static size_t count_replies(const char *data, size_t size)
{
    static struct resp_command command;
    size_t count = 0;
    enum resp_result result;
    while ((result = resp_read((struct span){ data, size }, &command)) == RESP_COMMAND) {
        if (command.count > 0 && command_is_foreign(&command))
            return count;
        count += command.count > 0;
        if (command.count > 0 && span_is_like(command.words[0], "QUIT"))
            return count;
        data += command.bytes;
        size -= command.bytes;
    }
    return count + (result == RESP_BROKEN);
}

/* Return the end of the line at `at`. */
static const char *line_end(const char *at, const char *end)
{
    const char *feed = memchr(at, '\n', (size_t)(end - at));
    fuzz_must(feed && feed > at && feed[-1] == '\r', "a reply's lines end with CR LF");
    return feed + 1;
}

/* Return the end of the reply at `at`. */
static const char *reply_end(const char *at, const char *end)
{
    const char mark = *at;
    const char *next = line_end(at, end);
    fuzz_must(strchr("+-:$*%_", mark) && mark, "a reply has a known mark");
    if (mark == '$' && at[1] == '-') {
        fuzz_must(memcmp(at, "$-1\r\n", 5) == 0, "no string has that length");
    } else if (mark == '$') {
        const long len = strtol(at + 1, NULL, 10);
        fuzz_must(len >= 0 && len + 2 <= end - next && memcmp(next + len, "\r\n", 2) == 0,
                  "a string ends where it says");
        return next + len + 2;
    }
    long elements = mark == '*' || mark == '%' ? strtol(at + 1, NULL, 10) : 0;
    for (elements *= mark == '%' ? 2 : 1; elements > 0; elements--) {
        fuzz_must(next < end, "an array is whole");
        next = reply_end(next, end);
    }
    return next;
}

static void check_replies(struct replies *replies, bool has_password)
{
    const char *at = replies->text, *end = at + replies->len;
    bool is_logged_in = !has_password;
    for (; at < end; replies->count++) {
        is_logged_in = is_logged_in || *at == '+' || *at == '*' || *at == '%';
        fuzz_must(is_logged_in || *at == '-', "a stranger gets errors only");
        at = reply_end(at, end);
    }
}

/* ---- One session ---- */

static void check_bounds(const struct session *session)
{
    const struct client *client = session->server.clients;
    if (!client)
        return;
    fuzz_must(client->waiting_count <= 2 * CLIENT_WAITING_MAX, "few replies wait, even to a whole transaction");
    fuzz_must(client->queued_count <= CLIENT_WAITING_MAX, "a transaction has a bound");
    fuzz_must(client->input_size <= RESP_COMMAND_MAX + (16 << 10), "the input has a bound");
    fuzz_must(client->output.end - client->output.begin < CLIENT_OUTPUT_HIGH + (1 << 20), "so has the output");
}

/* Let some of the requests that wait be answered: by the fake, or by a thread of the limiter. False: none waits. */
static bool answer_some(struct session *session)
{
    const struct client *client = session->server.clients;
    if (!client || client->waiting_count == 0)
        return false;
    if (session->fake.queued == session->fake.answered) {
        struct pollfd answers = { .fd = weir_event_fd(session->scene.limiter), .events = POLLIN };
        fuzz_must(poll(&answers, 1, 60000) == 1, "a request is answered");
    }
    session_answer(session, WEIR_OK, 7);
    return true;
}

/* Take what has come, until nothing more comes. */
static void hear(struct session *session, struct replies *replies)
{
    for (ssize_t got = 1; got > 0;) {
        got = recv(session->fd, replies->text + replies->len, HEARD_MAX - replies->len, 0);
        replies->len += got > 0 ? (size_t)got : 0;
        fuzz_must(replies->len < HEARD_MAX, "a client gets no more than it asked for");
        session_turn(session);
        if (got <= 0)
            got = answer_some(session);
        check_bounds(session);
    }
}

static void run_session(const char *data, size_t size, size_t piece, bool has_password, bool is_later,
                        struct replies *out)
{
    struct session session;
    session_open(&session, is_later);
    if (has_password) {
        close(session.fd);
        session_turn(&session);
        session.server.password = "pw";
        session_connect(&session);
    }
    for (size_t at = 0; at < size; at += piece) {
        if (send(session.fd, data + at, size - at < piece ? size - at : piece, MSG_NOSIGNAL) < 0)
            break; /* the server has closed the connection */
        session_turn(&session);
        check_bounds(&session);
        if (piece % 2)
            hear(&session, out);
    }
    hear(&session, out);
    check_replies(out, has_password);
    fuzz_must(out->count == count_replies(data, size), "%zu replies to %zu commands", out->count,
              count_replies(data, size));
    close(session.fd);
    session.fd = -1;
    session_turn(&session);
    fuzz_must(!session.server.clients && session.server.client_count == 0, "a client that has gone is freed");
    session_close(&session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char heard[2][HEARD_MAX];
    if (size < 1)
        return 0;
    const uint8_t choice = *data++;
    size = size - 1 < BYTES_MAX ? size - 1 : BYTES_MAX;
    const bool has_password = choice & 1, is_later = choice & 2;
    struct replies whole = { .text = heard[0] }, split = { .text = heard[1] };
    run_session((const char *)data, size, BYTES_MAX, has_password, is_later, &whole);
    run_session((const char *)data, size, 1 + (choice >> 2), has_password, is_later, &split);
    fuzz_must(is_later || (whole.len == split.len && memcmp(heard[0], heard[1], whole.len) == 0),
              "the replies do not depend on how the bytes are split");
    return 0;
}
