/* resp.c - reads commands and writes replies. */
#include "cli/serve/resp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Commands ---- */

static enum resp_result resp_broken(struct resp_command *out, const char *fault)
{
    out->fault = fault;
    return RESP_BROKEN;
}

/* Read the line at `at`, without its end, and move *at behind it. RESP_PARTIAL: its end has not come. */
static enum resp_result read_line(struct span input, size_t *at, struct span *out)
{
    const struct span rest = span_slice(input, *at, input.len);
    const size_t len = span_find(rest, '\n');
    if (len == rest.len)
        return len > RESP_LINE_MAX ? RESP_BROKEN : RESP_PARTIAL;
    *out = span_slice(rest, 0, len > 0 && rest.data[len - 1] == '\r' ? len - 1 : len);
    *at += len + 1;
    return out->len > RESP_LINE_MAX ? RESP_BROKEN : RESP_COMMAND;
}

/* Read a line that is a mark and a number from 0 to `most`. */
static enum resp_result read_count(struct span input, size_t *at, char mark, int64_t most, int64_t *out)
{
    struct span line;
    if (*at < input.len && input.data[*at] != mark)
        return RESP_BROKEN;
    const enum resp_result result = read_line(input, at, &line);
    if (result != RESP_COMMAND)
        return result;
    return span_number(span_slice(line, 1, line.len), out) && *out <= most ? RESP_COMMAND : RESP_BROKEN;
}

static enum resp_result read_array(struct span input, struct resp_command *out)
{
    size_t at = 0;
    int64_t count, len;
    enum resp_result result = read_count(input, &at, '*', RESP_WORDS_MAX, &count);
    if (result != RESP_COMMAND)
        return result == RESP_PARTIAL ? result : resp_broken(out, "invalid multibulk length");
    for (int64_t i = 0; i < count; i++) {
        result = read_count(input, &at, '$', RESP_COMMAND_MAX, &len);
        if (result != RESP_COMMAND)
            return result == RESP_PARTIAL ? result : resp_broken(out, "invalid bulk length");
        if (at + (size_t)len + 2 > RESP_COMMAND_MAX)
            return resp_broken(out, "the command is too long");
        if (input.len < at + (size_t)len + 2)
            return RESP_PARTIAL;
        if (memcmp(input.data + at + len, "\r\n", 2) != 0)
            return resp_broken(out, "a bulk string does not end where it says");
        out->words[out->count++] = span_slice(input, at, at + (size_t)len);
        at += (size_t)len + 2;
    }
    out->bytes = at;
    return RESP_COMMAND;
}

/* Return the value of a hexadecimal digit, or -1. */
static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Read what follows a backslash in double quotes, at `at`, and return the number of its bytes. */
static size_t read_escape(struct span line, size_t at, char *out)
{
    static const char names[] = "nrtba", values[] = "\n\r\t\b\a";
    if (line.data[at] == 'x' && at + 2 < line.len && hex_digit(line.data[at + 1]) >= 0 &&
        hex_digit(line.data[at + 2]) >= 0) {
        *out = (char)(hex_digit(line.data[at + 1]) * 16 + hex_digit(line.data[at + 2]));
        return 3;
    }
    const char *name = memchr(names, line.data[at], sizeof names - 1);
    *out = name ? values[name - names] : line.data[at];
    return 1;
}

/* Read a word of a line at *at into `to`, as redis-server does: in double quotes a backslash escapes, in single quotes it
 * only makes a quote a part of the word, and a closing quote ends the word. Return its end; NULL: the quotes are wrong. */
static char *read_word(struct span line, size_t *at, char *to)
{
    char quote = '\0';
    for (; *at < line.len; (*at)++) {
        const char c = line.data[*at];
        if (quote == '"' && c == '\\' && *at + 1 < line.len)
            *at += read_escape(line, *at + 1, to++);
        else if (quote == '\'' && c == '\\' && *at + 1 < line.len && line.data[*at + 1] == '\'')
            *to++ = line.data[++*at];
        else if (quote && c == quote) {
            (*at)++;
            return *at == line.len || memchr(" \t\r\v\f", line.data[*at], 5) ? to : NULL;
        } else if (!quote && (c == '"' || c == '\''))
            quote = c;
        else if (!quote && memchr(" \t\r\v\f", c, 5))
            break;
        else
            *to++ = c;
    }
    return quote ? NULL : to;
}

static enum resp_result read_inline(struct span input, struct resp_command *out)
{
    struct span line;
    size_t at = 0, end = 0;
    char *to = out->text;
    const enum resp_result result = read_line(input, &at, &line);
    if (result != RESP_COMMAND)
        return result == RESP_PARTIAL ? result : resp_broken(out, "too big inline request");
    out->is_inline = true;
    for (;;) {
        while (end < line.len && memchr(" \t\r\v\f", line.data[end], 5))
            end++;
        if (end == line.len)
            break;
        if (out->count == RESP_WORDS_MAX)
            return resp_broken(out, "too many words");
        char *word_end = read_word(line, &end, to);
        if (!word_end)
            return resp_broken(out, "unbalanced quotes in request");
        out->words[out->count++] = (struct span){ to, (size_t)(word_end - to) };
        to = word_end;
    }
    out->bytes = at;
    return RESP_COMMAND;
}

enum resp_result resp_read(struct span input, struct resp_command *out)
{
    out->count = 0;
    out->is_inline = false;
    if (input.len == 0)
        return RESP_PARTIAL;
    return input.data[0] == '*' ? read_array(input, out) : read_inline(input, out);
}

/* ---- Replies ---- */

void output_free(struct output *output)
{
    free(output->data);
    *output = (struct output){ NULL, 0, 0, 0, false };
}

void output_put(struct output *output, const char *data, size_t len)
{
    if (output->begin == output->end)
        output->begin = output->end = 0;
    if (output->size - output->end < len && output->begin > 0) {
        memmove(output->data, output->data + output->begin, output->end - output->begin);
        output->end -= output->begin;
        output->begin = 0;
    }
    if (output->size - output->end < len) {
        size_t size = output->size ? output->size : 512;
        while (size - output->end < len)
            size *= 2;
        char *grown = realloc(output->data, size);
        if (!grown) {
            output->failed = true;
            return;
        }
        output->data = grown;
        output->size = size;
    }
    memcpy(output->data + output->end, data, len);
    output->end += len;
}

void output_text(struct output *output, const char *text)
{
    output_put(output, text, strlen(text));
}

static void output_count(struct output *output, char mark, int64_t count)
{
    char line[24]; /* written from its end: snprintf() would take most of the time that a reply takes */
    size_t at = sizeof line;
    uint64_t left = count < 0 ? 0 - (uint64_t)count : (uint64_t)count;
    line[--at] = '\n';
    line[--at] = '\r';
    do {
        line[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (count < 0)
        line[--at] = '-';
    line[--at] = mark;
    output_put(output, line + at, sizeof line - at);
}

void output_simple(struct output *output, const char *text)
{
    output_text(output, "+"), output_text(output, text), output_text(output, "\r\n");
}

void output_integer(struct output *output, int64_t value)
{
    output_count(output, ':', value);
}

void output_bulk(struct output *output, struct span bytes)
{
    output_count(output, '$', (int64_t)bytes.len);
    output_put(output, bytes.data, bytes.len);
    output_text(output, "\r\n");
}

void output_array(struct output *output, size_t count)
{
    output_count(output, '*', (int64_t)count);
}

void output_map(struct output *output, size_t pairs, int version)
{
    if (version == 3)
        output_count(output, '%', (int64_t)pairs);
    else
        output_array(output, 2 * pairs);
}

void output_null(struct output *output, int version)
{
    output_text(output, version == 3 ? "_\r\n" : "$-1\r\n");
}

void output_error(struct output *output, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(line, sizeof line - 2, format, arguments);
    va_end(arguments);
    if (len < 0 || len > (int)sizeof line - 3)
        len = (int)sizeof line - 3;
    for (int i = 0; i < len; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = ' ';
    output_text(output, "-");
    output_put(output, line, (size_t)len);
    output_text(output, "\r\n");
}
