/* ask.c - one question to a control socket, and its answer taken apart. */
#include "cli/live/live.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/cli.h"

#define PATIENCE_S 10
#define REQUEST_MAX 8000 /* bytes that the other side takes */

/* ---- The connection ---- */

static int live_connect(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const struct timeval patience = { .tv_sec = PATIENCE_S };
    if (strlen(path) == 0 || strlen(path) >= sizeof address.sun_path) {
        complain("the path '%s' must have 1 to %zu bytes", path, sizeof address.sun_path - 1);
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        complain("cannot ask at %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return fd;
}

/* Write the request; false: it is too long. */
static bool request_make(const char *request, const char *key, char out[REQUEST_MAX + 4])
{
    size_t len = (size_t)snprintf(out, REQUEST_MAX, key ? "%s " : "%s", request);
    if (len >= REQUEST_MAX)
        return false;
    for (const unsigned char *at = (const unsigned char *)key; key && *at && len < REQUEST_MAX; at++) {
        const bool is_plain = *at > ' ' && *at <= '~' && *at != '%';
        len += (size_t)sprintf(out + len, is_plain ? "%c" : "%%%02X", *at);
    }
    if (len >= REQUEST_MAX)
        return false;
    memcpy(out + len, "\n", 2);
    return true;
}

static bool send_all(int fd, const char *text)
{
    size_t len = strlen(text);
    while (len > 0) {
        const ssize_t sent = send(fd, text, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        text += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* Read up to the end of the connection. */
static bool receive_all(int fd, struct live_answer *out)
{
    size_t room = 0;
    for (;;) {
        if (room - out->len < 2) {
            room = room ? 2 * room : 65536;
            char *text = room <= LIVE_TEXT_MAX ? realloc(out->text, room) : NULL;
            if (!text)
                return false;
            out->text = text;
        }
        const ssize_t got = recv(fd, out->text + out->len, room - out->len - 1, 0);
        if (got < 0)
            return false;
        out->len += (size_t)got;
        out->text[out->len] = '\0';
        if (got == 0)
            return true;
    }
}

/* Complain unless the answer is whole and no error; otherwise end its lines with NULs. */
static int answer_check(const char *path, struct live_answer *answer)
{
    char shown[400];
    if (answer->len > 6 && strncmp(answer->text, "error ", 6) == 0) {
        span_show((struct span){ answer->text + 6, strcspn(answer->text + 6, "\n") }, shown, sizeof shown);
        complain("%s", shown);
        return EXIT_FAILED;
    }
    if (answer->len < 4 || memcmp(answer->text + answer->len - 4, "end\n", 4) != 0) {
        complain("the answer at %s is cut off: too many ask there, or the process has ended", path);
        return EXIT_FAILED;
    }
    for (size_t i = 0; i < answer->len; i++)
        if (answer->text[i] == '\n')
            answer->text[i] = '\0';
    return EXIT_OK;
}

int live_ask(const char *path, const char *request, const char *key, struct live_answer *out)
{
    char line[REQUEST_MAX + 4];
    *out = (struct live_answer){ .text = NULL };
    if (!request_make(request, key, line)) {
        complain("the limit and the key are too long to ask at a socket");
        return EXIT_FAILED;
    }
    const int fd = live_connect(path);
    if (fd < 0)
        return EXIT_FAILED;
    const bool is_done = send_all(fd, line) && receive_all(fd, out);
    close(fd);
    if (is_done)
        return answer_check(path, out);
    complain("there is no answer at %s", path);
    return EXIT_FAILED;
}

void live_free(struct live_answer *answer)
{
    free(answer->text);
    answer->text = NULL;
}

/* ---- Lines and fields ---- */

const char *live_next(const struct live_answer *answer, const char *previous, const char *kind)
{
    const char *line = previous ? previous + strlen(previous) + 1 : answer->text;
    const size_t len = strlen(kind);
    for (; line < answer->text + answer->len; line += strlen(line) + 1)
        if (strncmp(line, kind, len) == 0 && line[len] == ' ')
            return line;
    return NULL;
}

const char *live_rest(const char *line, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = line; (at = strchr(at, ' ')); at++)
        if (strncmp(at + 1, name, len) == 0 && at[1 + len] == '=')
            return at + 1 + len + 1;
    return "";
}

struct span live_field(const char *line, const char *name)
{
    const char *value = live_rest(line, name);
    return (struct span){ value, strcspn(value, " ") };
}

uint64_t live_number(const char *line, const char *name)
{
    return strtoull(live_rest(line, name), NULL, 10);
}

struct span live_decode(char *text, struct span field)
{
    size_t len = 0;
    for (size_t i = 0; i < field.len; i++) {
        if (field.data[i] == '%' && i + 2 < field.len && isxdigit((unsigned char)field.data[i + 1]) &&
            isxdigit((unsigned char)field.data[i + 2])) {
            const char digits[] = { field.data[i + 1], field.data[i + 2], '\0' };
            text[len++] = (char)strtoul(digits, NULL, 16);
            i += 2;
        } else {
            text[len++] = field.data[i];
        }
    }
    return (struct span){ text, len };
}
