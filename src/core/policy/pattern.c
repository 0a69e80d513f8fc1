/* pattern.c - reads patterns and the names that contain them.
 *
 * Some bytes mean something else where patterns are written, in policy files and in Consul's keys: control characters,
 * blanks, '%', '*', '#' and '='. They must be escaped. Any other byte may be escaped, so one pattern can be written in
 * several ways; its bytes are what counts.
 */
#include "core/policy/pattern.h"

#include "core/policy/policy.h"

#include <stdio.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Return the byte that "%XX" stands for, or -1. */
static int read_escape(const char *text)
{
    const int high = hex_digit(text[1]);
    const int low = high < 0 ? -1 : hex_digit(text[2]);
    return low < 0 ? -1 : high * 16 + low;
}

static bool must_be_escaped(unsigned char c)
{
    return c <= ' ' || c == 0x7f || c == '%' || c == '*' || c == '#' || c == '=';
}

/* Refuse a pattern because of one of its bytes. The sentence goes to the log, so it contains nothing of the pattern,
 * which is part of a key. */
static int refuse_byte(size_t i, const char *fault, struct message message)
{
    return message_refuse(message, "pattern: byte %zu %s", i + 1, fault);
}

int pattern_read(const char *text, struct pattern *out, struct message message)
{
    const size_t len = strnlen(text, WEIR_MAX_PATTERN_LEN + 1);
    struct pattern pattern = { .len = 0 };
    if (len == 0)
        return message_refuse(message, "pattern must not be empty");
    for (size_t i = 0; i < len && pattern.len < sizeof pattern.bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        int byte = c;
        if (c == '*' && i == len - 1) {
            pattern.is_prefix = true;
            break;
        }
        if (c == '*')
            return refuse_byte(i, "is a '*', which stands at the end or is written %2A", message);
        if (c == '%') {
            byte = read_escape(text + i);
            if (byte < 0)
                return refuse_byte(i, "is a '%' without two hexadecimal digits", message);
            i += 2;
        } else if (must_be_escaped(c)) {
            char fault[40];
            snprintf(fault, sizeof fault, "must be written %%%02X", (unsigned)c);
            return refuse_byte(i, fault, message);
        }
        pattern.bytes[pattern.len++] = (unsigned char)byte;
    }
    if (len > WEIR_MAX_PATTERN_LEN)
        return message_refuse(message, "pattern is longer than %d bytes", WEIR_MAX_PATTERN_LEN);
    *out = pattern;
    return WEIR_OK;
}

bool pattern_matches(const struct pattern *pattern, struct weir_key key, bool is_cut)
{
    if (!pattern->is_prefix)
        return !is_cut && key.len == pattern->len && memcmp(key.data, pattern->bytes, pattern->len) == 0;
    const size_t len = is_cut && pattern->len > key.len ? key.len : pattern->len;
    return key.len >= len && memcmp(key.data, pattern->bytes, len) == 0;
}

/* It is no longer than what pattern_read() has read: escapes only what must be. */
size_t pattern_print(const unsigned char *bytes, size_t len, bool is_prefix, char *out)
{
    static const char digits[] = "0123456789ABCDEF";
    char *at = out;
    for (size_t i = 0; i < len; i++) {
        const bool escapes = must_be_escaped(bytes[i]);
        *at++ = escapes ? '%' : (char)bytes[i];
        if (escapes) {
            *at++ = digits[bytes[i] >> 4];
            *at++ = digits[bytes[i] & 15];
        }
    }
    if (is_prefix)
        *at++ = '*';
    return (size_t)(at - out);
}

int limit_name_make(const char *limit, const char *pattern, struct limit_name *out, struct message message)
{
    struct limit_name name = { .is_override = pattern != NULL };
    int error = policy_name_check(limit, message);
    if (!error && pattern)
        error = pattern_read(pattern, &name.pattern, message);
    if (error)
        return error;
    memcpy(name.limit, limit, strlen(limit) + 1);
    *out = name;
    return WEIR_OK;
}

int limit_name_read(const char *text, struct limit_name *out, struct message message)
{
    char limit[WEIR_MAX_NAME_LEN + 2]; /* with room for one byte too many, so that it is refused */
    const char *slash = strchr(text, '/');
    if (!slash)
        return limit_name_make(text, NULL, out, message);
    size_t len = (size_t)(slash - text);
    if (len >= sizeof limit)
        len = sizeof limit - 1;
    memcpy(limit, text, len);
    limit[len] = '\0';
    return limit_name_make(limit, slash + 1, out, message);
}
