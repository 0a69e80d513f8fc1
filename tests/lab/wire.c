/* wire.c - one end of a connection whose bytes are sent at set times: see wire.h. */
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_SIZE = 16384 };

struct wire_chunk {
    struct wire_chunk *next;
    int64_t due_us;
    enum wire_end end; /* an action instead of bytes */
    bool repeats;
    size_t at, len;
    char bytes[];
};

int64_t wire_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* A test cannot continue without memory. */
static void *have(void *memory)
{
    if (memory == NULL) {
        perror("lab");
        abort();
    }
    return memory;
}

void wire_init(struct wire *wire, int fd)
{
    *wire = (struct wire){ .fd = fd };
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void drop_first(struct wire *wire)
{
    struct wire_chunk *first = wire->first;
    wire->first = first->next;
    if (wire->first == NULL)
        wire->last = NULL;
    free(first);
}

void wire_close(struct wire *wire, enum wire_end end)
{
    const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };
    if (wire->fd >= 0) {
        if (end == WIRE_RESETS)
            setsockopt(wire->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(wire->fd);
    }
    wire->fd = -1;
    while (wire->first != NULL)
        drop_first(wire);
    free(wire->in);
    wire->in = NULL;
    wire->in_len = wire->in_size = 0;
}

/* ---- Out ---- */

static struct wire_chunk *add_chunk(struct wire *wire, const void *bytes, size_t len, int64_t due_us)
{
    struct wire_chunk *chunk = have(malloc(sizeof *chunk + len));
    *chunk = (struct wire_chunk){ .due_us = due_us, .len = len };
    if (len > 0)
        memcpy(chunk->bytes, bytes, len);
    if (wire->last != NULL)
        wire->last->next = chunk;
    else
        wire->first = chunk;
    wire->last = chunk;
    return chunk;
}

void wire_add(struct wire *wire, const void *bytes, size_t len, int64_t due_us)
{
    if (wire->fd >= 0 && len > 0)
        add_chunk(wire, bytes, len, due_us);
}

void wire_drip(struct wire *wire, const void *bytes, size_t len, int64_t due_us, int64_t step_us)
{
    for (size_t i = 0; i < len; i++)
        wire_add(wire, (const char *)bytes + i, 1, due_us + (int64_t)i * step_us);
}

void wire_repeat(struct wire *wire, const void *bytes, size_t len)
{
    if (wire->fd >= 0 && len > 0)
        add_chunk(wire, bytes, len, 0)->repeats = true;
}

void wire_end_at(struct wire *wire, enum wire_end end, int64_t due_us)
{
    if (wire->fd >= 0)
        add_chunk(wire, NULL, 0, due_us)->end = end;
}

short wire_events(const struct wire *wire, int64_t now_us, int64_t *due_us)
{
    short events = wire->shut ? 0 : POLLIN;
    if (wire->first != NULL && wire->first->due_us <= now_us)
        events |= POLLOUT;
    else if (wire->first != NULL && wire->first->due_us < *due_us)
        *due_us = wire->first->due_us;
    return events;
}

/* True if the next chunk may be sent as well. */
static bool write_first(struct wire *wire)
{
    struct wire_chunk *first = wire->first;
    ssize_t sent = send(wire->fd, first->bytes + first->at, first->len - first->at, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (sent < 0) {
        wire_close(wire, WIRE_CLOSES);
        return false;
    }
    first->at += (size_t)sent;
    if (first->at < first->len)
        return false;
    if (!first->repeats) {
        drop_first(wire);
        return true;
    }
    first->at = 0;
    return false; /* lets others take a turn */
}

void wire_write(struct wire *wire, int64_t now_us)
{
    while (wire->fd >= 0 && wire->first != NULL && wire->first->due_us <= now_us) {
        enum wire_end end = wire->first->end;
        if (end == WIRE_SHUTS) {
            shutdown(wire->fd, SHUT_WR);
            drop_first(wire);
        } else if (end != WIRE_GOES_ON) {
            wire_close(wire, end);
        } else if (!write_first(wire)) {
            return;
        }
    }
}

/* ---- In ---- */

void wire_read(struct wire *wire)
{
    if (wire->in_size - wire->in_len < READ_SIZE) {
        wire->in_size = 2 * wire->in_size + READ_SIZE;
        wire->in = have(realloc(wire->in, wire->in_size));
    }
    ssize_t got = recv(wire->fd, wire->in + wire->in_len, wire->in_size - wire->in_len, 0);
    if (got > 0)
        wire->in_len += (size_t)got;
    else if (got == 0)
        wire->shut = true;
    else if (errno != EAGAIN && errno != EINTR)
        wire_close(wire, WIRE_CLOSES);
}

void wire_use(struct wire *wire, size_t len)
{
    wire->in_len -= len;
    memmove(wire->in, wire->in + len, wire->in_len);
}

/* ---- Messages ---- */

/* Return the length of the line at bytes[at..len) with its end, or 0 if it is incomplete; store its number in
 * *number. */
static size_t line_span(const char *bytes, size_t at, size_t len, long long *number)
{
    const char *end = memchr(bytes + at, '\n', len - at);
    *number = 0;
    if (end == NULL)
        return 0;
    bool negative = bytes + at < end && bytes[at + 1] == '-';
    for (size_t i = at + 1 + negative; bytes + i < end && bytes[i] >= '0' && bytes[i] <= '9'; i++)
        *number = *number < 1000000000 ? *number * 10 + (bytes[i] - '0') : *number;
    if (negative)
        *number = -*number;
    return (size_t)(end - bytes) + 1 - at;
}

ssize_t resp_span(const char *bytes, size_t len)
{
    size_t at = 0;
    for (long long pending = 1; pending > 0; pending--) {
        long long number;
        if (at >= len)
            return 0;
        size_t line = line_span(bytes, at, len, &number);
        char type = bytes[at];
        if (line == 0)
            return strchr("+-:_#,($=!*~>%", type) != NULL && type != '\0' ? 0 : -1;
        at += line;
        if (type == '$' || type == '=' || type == '!')
            at += number >= 0 ? (size_t)number + 2 : 0;
        else if (type == '*' || type == '~' || type == '>')
            pending += number > 0 ? number : 0;
        else if (type == '%')
            pending += number > 0 ? 2 * number : 0;
        else if (strchr("+-:_#,(", type) == NULL || type == '\0')
            return -1;
    }
    return at <= len ? (ssize_t)at : 0;
}

bool resp_is_empty_line(const char *bytes, size_t len)
{
    return len >= 2 && memcmp(bytes, "\r\n", 2) == 0;
}

size_t resp_words(const char *bytes, size_t len, size_t most, const char **words, size_t *lens)
{
    long long n, word_len;
    size_t at = line_span(bytes, 0, len, &n), found = 0;
    for (; found < most && (long long)found < n; found++) {
        at += line_span(bytes, at, len, &word_len);
        words[found] = bytes + at;
        lens[found] = (size_t)word_len;
        at += (size_t)word_len + 2;
    }
    return found;
}
