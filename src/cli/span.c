/* span.c - a range of bytes that the span does not own. */
#include "cli/span.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct span span_of(const char *text)
{
    return (struct span){ text, strlen(text) };
}

static bool span_is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

struct span span_trim(struct span span)
{
    while (span.len && span_is_blank(span.data[0]))
        span.data++, span.len--;
    while (span.len && span_is_blank(span.data[span.len - 1]))
        span.len--;
    return span;
}

bool span_is(struct span span, const char *text)
{
    return span.len == strlen(text) && memcmp(span.data, text, span.len) == 0;
}

static char lower(char byte)
{
    return byte >= 'A' && byte <= 'Z' ? (char)(byte - 'A' + 'a') : byte;
}

bool span_is_like(struct span span, const char *text)
{
    if (span.len != strlen(text))
        return false;
    for (size_t i = 0; i < span.len; i++)
        if (lower(span.data[i]) != lower(text[i]))
            return false;
    return true;
}

size_t span_find(struct span span, char byte)
{
    const char *found = span.len ? memchr(span.data, byte, span.len) : NULL;
    return found ? (size_t)(found - span.data) : span.len;
}

size_t span_find_last(struct span span, char byte)
{
    for (size_t i = span.len; i > 0; i--)
        if (span.data[i - 1] == byte)
            return i - 1;
    return span.len;
}

bool span_number(struct span span, int64_t *out)
{
    const size_t safe = 18; /* digits that always fit */
    int64_t value = 0;
    for (size_t i = 0; i < span.len; i++) {
        int digit = span.data[i] - '0';
        if (digit < 0 || digit > 9 || (i >= safe && value > (INT64_MAX - digit) / 10))
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return span.len > 0;
}

size_t span_character(struct span span)
{
    static const unsigned least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (!span.len)
        return 0;
    unsigned char first = (unsigned char)span.data[0];
    size_t len = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (len < 2 || len > span.len)
        return len == 1 ? 1 : 0;
    unsigned code = first & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        unsigned char byte = (unsigned char)span.data[i];
        if ((byte & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (byte & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < least[len] || code > 0x10ffff || is_surrogate ? 0 : len;
}

bool span_is_utf8(struct span span)
{
    for (size_t i = 0, len; i < span.len; i += len)
        if ((len = span_character(span_slice(span, i, span.len))) == 0)
            return false;
    return true;
}

/* True for C0 and C1 controls and DEL, which a terminal may obey. */
static bool is_control(const unsigned char *character, size_t len)
{
    return len == 1 ? character[0] < 0x20 || character[0] == 0x7f : character[0] == 0xc2 && character[1] < 0xa0;
}

void span_show(struct span span, char *out, size_t size)
{
    size_t used = 0, kept = 0; /* `kept`: how much stays if "..." has to follow */
    for (size_t i = 0; i < span.len;) {
        const unsigned char *at = (const unsigned char *)span.data + i;
        size_t len = span_character(span_slice(span, i, span.len));
        char piece[16];
        size_t piece_len;
        if (len == 0 || is_control(at, len)) {
            len = len ? len : 1;
            piece_len = 0;
            for (size_t j = 0; j < len; j++)
                piece_len += (size_t)snprintf(piece + piece_len, sizeof piece - piece_len, "\\x%02x", at[j]);
        } else {
            piece_len = *at == '\\' ? 2 : len;
            memcpy(piece, *at == '\\' ? "\\\\" : span.data + i, piece_len);
        }
        if (used + piece_len >= size) {
            memcpy(out + kept, "...", 3);
            used = kept + 3;
            break;
        }
        memcpy(out + used, piece, piece_len);
        used += piece_len;
        i += len;
        if (used + 4 <= size)
            kept = used;
    }
    out[used] = '\0';
}

struct shown span_shown(struct span span)
{
    struct shown shown;
    span_show(span, shown.text, sizeof shown.text);
    return shown;
}

bool fault_set(struct fault *fault, const char *what, struct span value, const char *wrong)
{
    char shown[72];
    span_show(value, shown, sizeof shown);
    return fault_say(fault, "%s '%s' %s", what, shown, wrong);
}

bool fault_say(struct fault *fault, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
    return false;
}
