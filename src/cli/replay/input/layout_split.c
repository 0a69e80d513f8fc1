/* layout_split.c - splits lines by a compiled format.
 *
 * A virtual host or a syslog prefix before the client would become the client of every row. So a client is a host name
 * or an address, and an ident and a user follow it without another client among them.
 */
#include "cli/replay/input/layout.h"

#include <string.h>

#include "cli/replay/input/keys.h"

#define STAMP_LEN 15 /* Nov 10 06:00:00 */

/* Return the end of a literal that stands at `at`; 0 if it does not. The literal is not empty. */
static size_t literal_end(const struct layout *layout, size_t literal, size_t len, struct span line, size_t at)
{
    const char *bytes = layout->text + literal;
    for (size_t i = 0; i < len; i++) {
        if (at == line.len || line.data[at] != bytes[i])
            return 0;
        at++;
        while (bytes[i] == ' ' && at < line.len && line.data[at] == ' ')
            at++;
    }
    return at;
}

static bool is_dash(struct span word)
{
    return word.len == 1 && word.data[0] == '-';
}

static bool is_digits(struct span word, size_t least, size_t most)
{
    if (word.len < least || word.len > most)
        return false;
    for (size_t i = 0; i < word.len; i++)
        if (word.data[i] < '0' || word.data[i] > '9')
            return false;
    return true;
}

bool layout_time(const struct layout *layout, struct span text, enum time_unit unit, int64_t *out_us,
                 const char **wrong)
{
    return layout->time_format ? time_read_by(text, layout->time_format, out_us, wrong)
                               : time_read(text, unit, out_us, wrong);
}

static bool is_code(struct span word)
{
    for (size_t i = 0; i < word.len; i++)
        if (word.data[i] != '_' && (word.data[i] < 'A' || word.data[i] > 'Z') &&
            (word.data[i] < '0' || word.data[i] > '9'))
            return false;
    return word.len > 0;
}

/* True for the name or the address of a server, perhaps with a port. */
static bool is_host(struct span word)
{
    const size_t colon = span_find(word, ':');
    return key_is_client(span_slice(word, 0, colon)) || key_is_address(word);
}

/* True if these are an ident and a user, rather than the end of a prefix, a client, an ident and a user. A user may
 * have several words, but then none of them is "-", and the ident is "-". */
static bool are_ident_and_user(struct span ident, struct span user)
{
    size_t end = span_find(user, ' ');
    if (end == user.len)
        return user.len > 0 && (is_dash(ident) || !key_is_address(ident));
    for (; user.len; user = span_trim(span_slice(user, end, user.len)), end = span_find(user, ' '))
        if (span_is(span_slice(user, 0, end), "-"))
            return false;
    return is_dash(ident);
}

/* Check a value by its kind, and cut it to what it means. The values before it are there. */
static bool value_check(const struct layout *layout, size_t i, struct span *values)
{
    struct span value = values[i];
    switch (layout->fields[i].kind) {
    case LAYOUT_TEXT:
    case LAYOUT_TIME: return true;
    case LAYOUT_WORD:
    case LAYOUT_IDENT: return value.len > 0 && span_find(value, ' ') == value.len;
    case LAYOUT_HOST: return is_host(value);
    case LAYOUT_CODE: return is_code(value);
    case LAYOUT_DATA: return true;
    case LAYOUT_CLIENT: return key_is_client(value);
    case LAYOUT_CLIENT_PORT: return key_is_address(value);
    case LAYOUT_CLIENT_AND_PORT: {
        const size_t colon = span_find_last(value, ':');
        const struct span before = span_slice(value, 0, colon);
        if (colon < value.len && is_digits(span_slice(value, colon + 1, value.len), 1, 5) &&
            (key_is_address(before) || span_is(before, "unix")))
            values[i] = before;
        return key_is_address(values[i]) || span_is(before, "unix");
    }
    case LAYOUT_CLIENTS: {
        size_t comma = span_find_last(value, ',');
        values[i] = span_trim(span_slice(value, comma < value.len ? comma + 1 : 0, value.len));
        return key_is_client(values[i]) && !is_dash(values[i]);
    }
    case LAYOUT_USER:
        values[i] = value = span_trim(value);
        /* A name before an address is a virtual host and its client, not a client and its user. */
        if (i > 1 && layout->fields[i - 2].kind == LAYOUT_CLIENT && key_is_address(value) &&
            !key_is_address(values[i - 2]))
            return false;
        return i > 0 && layout->fields[i - 1].kind == LAYOUT_IDENT ? are_ident_and_user(values[i - 1], value)
                                                                   : value.len > 0;
    case LAYOUT_STATUS: return is_dash(value) || is_digits(value, 3, 3);
    case LAYOUT_NUMBER: return is_dash(value) || is_digits(value, 1, 18);
    case LAYOUT_STAMP: return value.len == STAMP_LEN;
    }
    return false;
}

static bool is_number(enum layout_kind kind)
{
    return kind == LAYOUT_STATUS || kind == LAYOUT_NUMBER;
}

/* Return the end of a word that stands at `at`. */
static size_t word_end(struct span line, size_t at)
{
    return at + span_find(span_slice(line, at, line.len), ' ');
}

/* Return where the literal before field `i`, or the tail, ends if it begins at `at`; 0 if it is not there. */
static size_t next_literal(const struct layout *layout, size_t i, struct span line, size_t at)
{
    size_t literal = i < layout->count ? layout->fields[i].literal : layout->tail;
    size_t len = i < layout->count ? layout->fields[i].literal_len : layout->tail_len;
    at = len ? literal_end(layout, literal, len, line, at) : at;
    if (i < layout->count || !at)
        return at;
    return at == line.len || line.data[at] == ' ' || line.data[at] == '\t' ? at : 0;
}

/* True if the status and the numbers from field `i` on fit the line from `at` on. */
static bool numbers_fit(const struct layout *layout, size_t i, struct span line, size_t at)
{
    for (; i < layout->count && is_number(layout->fields[i].kind); i++) {
        size_t end = at;
        while (end < line.len && ((line.data[end] >= '0' && line.data[end] <= '9') || line.data[end] == '-'))
            end++;
        struct span value = span_slice(line, at, end);
        bool is_status = layout->fields[i].kind == LAYOUT_STATUS;
        if (!is_dash(value) && !is_digits(value, is_status ? 3 : 1, is_status ? 3 : 18))
            return false;
        at = next_literal(layout, i + 1, line, end);
        if (at == 0)
            return false;
    }
    return true;
}

/* Return the end of the longest text of up to five words from `at` on that is a time, or else of the first word. */
static size_t time_end(const struct layout *layout, const struct layout_field *field, struct span line, size_t at)
{
    size_t best = word_end(line, at), end = best;
    for (int words = 1; words < 5 && end < line.len; words++) {
        const char *wrong;
        int64_t time_us;
        end = word_end(line, end + 1);
        if (layout_time(layout, span_slice(line, at, end), field->unit, &time_us, &wrong))
            best = end;
    }
    return best;
}

/* Return the end of the structured data at `at`: "-", or elements in brackets. */
static size_t data_end(struct span line, size_t at)
{
    if (at < line.len && line.data[at] == '-')
        return at + 1;
    while (at < line.len && line.data[at] == '[') {
        bool is_quoted = false;
        for (at++; at < line.len && (is_quoted || line.data[at] != ']'); at++) {
            is_quoted ^= line.data[at] == '"';
            at += line.data[at] == '\\';
        }
        at += at < line.len;
    }
    return at < line.len ? at : line.len;
}

/* Find where field `i` ends and what comes after the literal behind it. */
static bool field_end(const struct layout *layout, size_t i, struct span line, size_t at, size_t *out_end,
                      size_t *out_next)
{
    bool is_last = i + 1 == layout->count, is_text = layout->fields[i].kind == LAYOUT_TEXT;
    size_t literal = is_last ? layout->tail : layout->fields[i + 1].literal;
    size_t len = is_last ? layout->tail_len : layout->fields[i + 1].literal_len;
    const enum layout_kind kind = layout->fields[i].kind;
    const bool ends_at_space = len == 0 || layout->text[literal] == ' ';
    if (kind == LAYOUT_DATA || (kind == LAYOUT_STAMP && line.len - at >= STAMP_LEN) ||
        (kind == LAYOUT_TIME && ends_at_space)) {
        *out_end = kind == LAYOUT_DATA   ? data_end(line, at)
                   : kind == LAYOUT_TIME ? time_end(layout, &layout->fields[i], line, at)
                                         : at + STAMP_LEN;
        *out_next = next_literal(layout, i + 1, line, *out_end);
        return *out_next != 0 || (is_last && *out_end == line.len);
    }
    if (len == 0) {
        *out_end = *out_next = is_text ? line.len : word_end(line, at);
        return is_last;
    }
    while (at < line.len) {
        const char *found = memchr(line.data + at, layout->text[literal], line.len - at);
        if (!found)
            return false;
        size_t end = (size_t)(found - line.data), next = next_literal(layout, i + 1, line, end);
        if (kind == LAYOUT_CLIENT && end > at && line.data[end - 1] == ',') /* another client follows */
            next = 0;
        if (next && numbers_fit(layout, i + 1, line, next))
            return *out_end = end, *out_next = next, true;
        at = end + 1;
    }
    return false;
}

static bool refuse(const struct layout *layout, size_t i, const struct span *values, struct fault *fault)
{
    const struct layout_field *field = &layout->fields[i];
    if (!fault)
        return false;
    if (strcmp(field->name, "client") == 0)
        return fault_set(fault, "client", values[i], "is not a host name or an address");
    if (field->kind == LAYOUT_USER && i > 1 && layout->fields[i - 2].kind == LAYOUT_CLIENT)
        return fault_set(fault, "client", values[i - 2],
                         "is followed by more than an ident and a user, so it is not the client");
    return fault_set(fault, field->name, values[i], "does not fit the format");
}

bool layout_split(const struct layout *layout, struct span line, struct span *values, struct fault *fault)
{
    size_t at = layout->fields[0].literal_len ? next_literal(layout, 0, line, 0) : 0;
    if (layout->fields[0].literal_len && at == 0)
        return fault && fault_say(fault, "does not begin as its format does");
    for (size_t i = 0; i < layout->count; i++) {
        size_t end, next;
        if (!field_end(layout, i, line, at, &end, &next)) {
            bool is_at_end = i + 1 == layout->count;
            return fault && fault_say(fault, "does not fit the format: no %s%s after the %s",
                                      is_at_end ? "end" : layout->fields[i + 1].name,
                                      !is_at_end && is_number(layout->fields[i + 1].kind) ? " that is a number" : "",
                                      layout->fields[i].name);
        }
        values[i] = span_slice(line, at, end);
        if (!value_check(layout, i, values))
            return refuse(layout, i, values, fault);
        at = next;
    }
    return true;
}

bool layout_find(const struct layout *layout, const char *name, size_t *out_field, enum layout_part *out_part)
{
    struct span wanted = span_of(name);
    *out_part = LAYOUT_WHOLE;
    for (size_t i = 0; i < layout->count; i++)
        if (span_is_like(wanted, layout->fields[i].name))
            return *out_field = i, *out_part = strcmp(name, "path") == 0 ? LAYOUT_NO_QUERY : LAYOUT_WHOLE, true;
    *out_part = strcmp(name, "method") == 0 ? LAYOUT_METHOD : LAYOUT_PATH;
    for (size_t i = 0; i < layout->count; i++)
        if (strcmp(layout->fields[i].name, "request") == 0)
            return *out_field = i, strcmp(name, "method") == 0 || strcmp(name, "path") == 0;
    return false;
}

/* Return a path without the scheme and the host before it, and without the query after it. */
static struct span path_only(struct span path)
{
    static const char *const schemes[] = { "http://", "https://" };
    for (size_t i = 0; i < 2; i++) {
        size_t len = strlen(schemes[i]);
        if (path.len > len && memcmp(path.data, schemes[i], len) == 0) {
            path = span_slice(path, len, path.len);
            path = span_slice(path, span_find(path, '/'), path.len);
        }
    }
    return span_slice(path, 0, span_find(path, '?'));
}

struct span layout_part(struct span value, enum layout_part part)
{
    size_t method_end = span_find(value, ' ');
    if (part == LAYOUT_METHOD)
        value = span_slice(value, 0, method_end);
    if (part == LAYOUT_PATH) {
        value = span_slice(value, method_end < value.len ? method_end + 1 : method_end, value.len);
        size_t last = span_find_last(value, ' ');
        if (last < value.len && value.len - last > 6 && memcmp(value.data + last, " HTTP/", 6) == 0)
            value = span_slice(value, 0, last);
    }
    if (part == LAYOUT_PATH || part == LAYOUT_NO_QUERY)
        value = path_only(value);
    return value.len ? value : span_of("-");
}
