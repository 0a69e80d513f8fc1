/* asker.c - one blocking connection to a Redis server: see asker.h. */
#include "asker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { WORDS_MOST = 64, NESTED_MOST = 8 };

static int fail(struct asker *asker, const char *what)
{
    char why[sizeof asker->error];
    snprintf(why, sizeof why, "%s: %s", what, strerror(errno));
    asker_close(asker);
    memcpy(asker->error, why, sizeof why);
    return -1;
}

static int asker_connect(struct asker *asker, const struct sockaddr *address, socklen_t len)
{
    const struct timeval patience = { .tv_sec = ASKER_PATIENCE_MS / 1000 };
    *asker = (struct asker){ .fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    if (asker->fd < 0)
        return fail(asker, "socket");
    setsockopt(asker->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(asker->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(asker->fd, address, len) != 0)
        return fail(asker, "connect");
    return 0;
}

int asker_open(struct asker *asker, const char *socket_path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(socket_path) >= sizeof address.sun_path) {
        *asker = (struct asker){ .fd = -1 };
        errno = ENAMETOOLONG;
        return fail(asker, socket_path);
    }
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    return asker_connect(asker, (const struct sockaddr *)&address, sizeof address);
}

int asker_open_port(struct asker *asker, int port)
{
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)port),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    return asker_connect(asker, (const struct sockaddr *)&address, sizeof address);
}

void asker_close(struct asker *asker)
{
    if (asker->fd >= 0)
        close(asker->fd);
    asker->fd = -1;
    asker->at = asker->held = 0;
}

/* ---- Requests ---- */

static int send_all(struct asker *asker, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(asker->fd, bytes, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return fail(asker, "send");
        bytes += sent;
        len -= (size_t)sent;
    }
    return 0;
}

static int send_words(struct asker *asker, size_t n, const char *const *words, const size_t *lens)
{
    size_t size = 32, at;
    for (size_t i = 0; i < n; i++)
        size += lens[i] + 32;
    char *request = malloc(size);
    if (request == NULL)
        return fail(asker, "malloc");
    at = (size_t)sprintf(request, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        at += (size_t)sprintf(request + at, "$%zu\r\n", lens[i]);
        memcpy(request + at, words[i], lens[i]);
        memcpy(request + at + lens[i], "\r\n", 2);
        at += lens[i] + 2;
    }
    int error = send_all(asker, request, at);
    free(request);
    return error;
}

/* ---- Replies ---- */

/* Where a reply is written; bytes that do not fit are only counted. */
struct page {
    char *text;
    size_t size, len;
};

static void page_add(struct page *page, const char *bytes, size_t len)
{
    if (page->len + 1 < page->size) {
        size_t room = page->size - 1 - page->len;
        memcpy(page->text + page->len, bytes, len < room ? len : room);
    }
    page->len += len;
}

static int next_byte(struct asker *asker)
{
    if (asker->at == asker->held) {
        ssize_t got;
        do
            got = recv(asker->fd, asker->buffer, sizeof asker->buffer, 0);
        while (got < 0 && errno == EINTR);
        if (got == 0)
            errno = ECONNRESET;
        if (got <= 0)
            return fail(asker, "recv");
        asker->at = 0;
        asker->held = (size_t)got;
    }
    return (unsigned char)asker->buffer[asker->at++];
}

static int next_line(struct asker *asker, char *line, size_t size)
{
    size_t len = 0;
    for (int byte; (byte = next_byte(asker)) != '\n';) {
        if (byte < 0)
            return -1;
        if (byte != '\r' && len + 1 < size)
            line[len++] = (char)byte;
    }
    line[len] = '\0';
    return 0;
}

static int read_bulk(struct asker *asker, long len, struct page *page)
{
    for (long i = 0; i < len + 2; i++) {
        int byte = next_byte(asker);
        if (byte < 0)
            return -1;
        if (i < len)
            page_add(page, &(char){ (char)byte }, 1);
    }
    return 0;
}

/* Read it recursively; servers here send little nesting. */
static int read_reply(struct asker *asker, struct page *page, int depth)
{
    char line[1024];
    if (next_line(asker, line, sizeof line) != 0)
        return -1;
    long number = strtol(line + 1, NULL, 10);
    switch (line[0]) {
    case '-': page_add(page, line, strlen(line)); return 0;
    case '+':
    case ':': page_add(page, line + 1, strlen(line + 1)); return 0;
    case '$':
        if (number >= 0)
            return read_bulk(asker, number, page);
        page_add(page, "(nil)", 5);
        return 0;
    case '*':
        for (long i = 0; i < number; i++) {
            if (depth == NESTED_MOST) {
                errno = EPROTO;
                return fail(asker, "a reply nested too deeply");
            }
            if (read_reply(asker, page, depth + 1) != 0)
                return -1;
            page_add(page, "\n", 1);
        }
        return 0;
    default: errno = EPROTO; return fail(asker, line);
    }
}

ssize_t asker_ask_words(struct asker *asker, char *reply, size_t size, size_t n, const char *const *words,
                        const size_t *lens)
{
    struct page page = { .text = reply, .size = size };
    if (asker->fd < 0) {
        errno = ENOTCONN;
        return fail(asker, "ask");
    }
    if (send_words(asker, n, words, lens) != 0 || read_reply(asker, &page, 0) != 0)
        return -1;
    if (size > 0)
        reply[page.len < size ? page.len : size - 1] = '\0';
    return (ssize_t)page.len;
}

static ssize_t ask_list(struct asker *asker, char *reply, size_t size, va_list list)
{
    const char *words[WORDS_MOST];
    size_t lens[WORDS_MOST], n = 0;
    for (const char *word; n < WORDS_MOST && (word = va_arg(list, const char *)) != NULL; n++) {
        words[n] = word;
        lens[n] = strlen(word);
    }
    return asker_ask_words(asker, reply, size, n, words, lens);
}

ssize_t asker_ask(struct asker *asker, char *reply, size_t size, ...)
{
    va_list list;
    va_start(list, size);
    ssize_t len = ask_list(asker, reply, size, list);
    va_end(list);
    return len;
}

int64_t asker_count(struct asker *asker, ...)
{
    char reply[32] = "", *end;
    va_list list;
    va_start(list, asker);
    ssize_t len = ask_list(asker, reply, sizeof reply, list);
    va_end(list);
    long long count = strtoll(reply, &end, 10);
    return len > 0 && *end == '\0' ? count : -1;
}
