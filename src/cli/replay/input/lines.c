/* lines.c - an input line by line, of any length. */
#include "cli/replay/input/lines.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define FIRST_SIZE ((size_t)1 << 18)

static int find_end(struct lines *lines, size_t from, struct span *out);
static bool lines_fill(struct lines *lines);

void lines_start(struct lines *lines, struct bytes *bytes, const char *name)
{
    *lines = (struct lines){ .bytes = bytes, .name = name };
}

void lines_free(struct lines *lines)
{
    free(lines->buffer);
}

int lines_next(struct lines *lines, struct span *out)
{
    lines->line = lines->next;
    int result = find_end(lines, 0, out);
    if (result == 1) {
        if (lines->last_number == 0 && out->len >= 3 && memcmp(out->data, "\xef\xbb\xbf", 3) == 0) {
            lines->line += 3; /* the byte order mark that some programs write first */
            *out = span_slice(*out, 3, out->len);
        }
        lines->first_next = lines->next;
        lines->number = ++lines->last_number;
    }
    return result;
}

int lines_extend(struct lines *lines, struct span *out)
{
    int result = find_end(lines, lines->next - lines->line, out);
    if (result == 1)
        lines->last_number++;
    return result;
}

void lines_retract(struct lines *lines)
{
    lines->next = lines->first_next;
    lines->last_number = lines->number;
}

void lines_mark(struct lines *lines)
{
    lines->mark = lines->line;
    lines->mark_number = lines->number;
    lines->is_marked = true;
}

void lines_rewind(struct lines *lines)
{
    lines->next = lines->mark;
    lines->last_number = lines->mark_number - 1;
    lines->is_marked = false;
}

/* Return the current line up to the first line feed that is at least `from` bytes into it. */
static int find_end(struct lines *lines, size_t from, struct span *out)
{
    size_t scanned = from;
    for (;;) {
        size_t len = lines->filled - lines->line;
        char *begin = lines->buffer ? lines->buffer + lines->line : NULL;
        char *feed = len > scanned ? memchr(begin + scanned, '\n', len - scanned) : NULL;
        if (feed || (lines->ended && len > from)) {
            size_t end = feed ? (size_t)(feed - begin) : len;
            lines->next = lines->line + end + (feed ? 1 : 0);
            bool has_return = end > from && begin[end - 1] == '\r';
            *out = (struct span){ begin, has_return ? end - 1 : end };
            return 1;
        }
        scanned = len;
        if (lines->ended)
            return 0;
        if (!lines_fill(lines))
            return -1;
    }
}

/* Append more input. The marked line, or else the current one, moves to the front first. The buffer grows if it is
 * still full. */
static bool lines_fill(struct lines *lines)
{
    size_t kept = lines->is_marked ? lines->mark : lines->line;
    if (lines->filled == lines->size && kept > 0) {
        memmove(lines->buffer, lines->buffer + kept, lines->filled - kept);
        lines->filled -= kept;
        lines->next -= kept;
        lines->first_next = lines->first_next > kept ? lines->first_next - kept : 0;
        lines->line -= kept;
        lines->mark = 0;
    }
    if (lines->filled == lines->size) {
        size_t size = lines->size ? lines->size * 2 : FIRST_SIZE;
        char *buffer = size <= LINES_MAX_LEN ? realloc(lines->buffer, size) : NULL;
        if (!buffer) {
            complain("%s:%lld: %s", lines->name, (long long)lines->last_number + 1,
                     size > LINES_MAX_LEN ? "the line is too long" : "out of memory");
            return false;
        }
        lines->buffer = buffer;
        lines->size = size;
    }
    ssize_t got = bytes_read(lines->bytes, lines->buffer + lines->filled, lines->size - lines->filled);
    if (got < 0)
        return false;
    lines->filled += (size_t)got;
    lines->ended = got == 0;
    return true;
}
