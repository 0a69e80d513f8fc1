/* record.c - a line as named values: the members of a JSON object, the pairs of logfmt, or the fields of a table. */
#include "cli/replay/input/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    struct record *record;
    const char *begin, *at, *end;
    struct fault *fault;
};

static bool value_scan(struct scan *scan, struct span name, uint32_t parent, unsigned depth);

void record_free(struct record *record)
{
    free(record->bytes);
    record->bytes = NULL;
}

bool record_start(struct record *record, size_t len)
{
    record->count = record->used = 0;
    record->object_count = 1;
    record->objects[0] = (struct member){ .name = { "", 0 } };
    if (len <= record->size)
        return true;
    char *grown = realloc(record->bytes, 2 * len);
    if (!grown)
        return false;
    record->bytes = grown;
    record->size = 2 * len;
    return true;
}

bool record_add(struct record *record, struct span name, struct span value, uint32_t parent)
{
    if (record->count == RECORD_MAX)
        return false;
    record->all[record->count++] = (struct member){ name, value, parent };
    return true;
}

/* ---- JSON, by RFC 8259 ---- */

static bool scan_fails(struct scan *scan, const char *wrong)
{
    return fault_say(scan->fault, "JSON: %s at byte %zu", wrong, (size_t)(scan->at - scan->begin) + 1);
}

static inline char blank_skip(struct scan *scan)
{
    if (scan->at < scan->end && (unsigned char)*scan->at > ' ')
        return *scan->at;
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t' || *scan->at == '\n' || *scan->at == '\r'))
        scan->at++;
    return scan->at < scan->end ? *scan->at : '\0';
}

/* Read four hexadecimal digits; -1 if there are none. */
static int hex_scan(struct scan *scan)
{
    int value = 0;
    for (int i = 0; i < 4; i++, scan->at++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *found = scan->at < scan->end && *scan->at ? strchr(digits, *scan->at) : NULL;
        if (!found)
            return -1;
        value = value * 16 + (int)((found - digits) % 16);
    }
    return value;
}

/* Append a character as UTF-8. It is never longer than its escape. */
static void character_add(struct record *record, unsigned code)
{
    static const unsigned char leads[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    const unsigned len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (unsigned i = 0; i < len; i++) {
        const unsigned bits = code >> 6 * (len - 1 - i);
        record->bytes[record->used++] = (char)(i == 0 ? leads[len < 2 ? 0 : len] | bits : 0x80 | (bits & 0x3f));
    }
}

/* Read the escape behind a backslash. */
static bool escape_scan(struct scan *scan)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char letter = scan->at < scan->end ? *scan->at++ : '\0';
    const char *found = letter ? strchr(letters, letter) : NULL;
    if (found) {
        scan->record->bytes[scan->record->used++] = meanings[found - letters];
        return true;
    }
    int code = letter == 'u' ? hex_scan(scan) : -1;
    if (code >= 0xd800 && code < 0xdc00 && scan->end - scan->at > 1 && scan->at[0] == '\\' && scan->at[1] == 'u') {
        scan->at += 2;
        const int low = hex_scan(scan);
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    if (code < 0 || (code >= 0xd800 && code < 0xe000))
        return scan_fails(scan, "a wrong escape");
    character_add(scan->record, (unsigned)code);
    return true;
}

/* Return a bit for each of eight bytes that is a quotation mark, a backslash or a control character; 0: none is. Reading
 * them byte by byte took a third of the time of a JSON log. */
static uint64_t special_mask(const char *at)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    const uint64_t quote = bytes ^ ones * '"', backslash = bytes ^ ones * '\\';
    return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((bytes - ones * 0x20) & ~bytes)) & highs;
}

/* Read a string that begins at its quotation mark. */
static bool string_scan(struct scan *scan, struct span *out)
{
    const char *from = ++scan->at, *text = from;
    const size_t begin = scan->record->used;
    bool has_escape = false;
    for (;; from = scan->at) {
        uint64_t mask = 0;
        while (scan->end - scan->at >= 8 && !(mask = special_mask(scan->at)))
            scan->at += 8;
        if (mask && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
            scan->at += __builtin_ctzll(mask) / 8; /* the lowest bit is exact, those above it need not be */
        while (scan->at < scan->end && *scan->at != '"' && *scan->at != '\\' && (unsigned char)*scan->at >= 0x20)
            scan->at++;
        if (scan->at == scan->end || (unsigned char)*scan->at < 0x20)
            return scan_fails(scan, "a string that is not closed");
        const size_t len = (size_t)(scan->at - from);
        const bool is_end = *scan->at++ == '"';
        if (is_end && !has_escape)
            return *out = (struct span){ text, len }, true;
        has_escape = true;
        memcpy(scan->record->bytes + scan->record->used, from, len);
        scan->record->used += len;
        if (is_end)
            return *out = (struct span){ scan->record->bytes + begin, scan->record->used - begin }, true;
        if (!escape_scan(scan))
            return false;
    }
}

static bool object_scan(struct scan *scan, struct span name, uint32_t parent, unsigned depth)
{
    struct record *record = scan->record;
    uint32_t own = parent;
    if (depth > 0 && parent != UINT32_MAX) {
        if (record->object_count == RECORD_MAX)
            return scan_fails(scan, "too many objects");
        own = (uint32_t)record->object_count++;
        record->objects[own] = (struct member){ name, { "", 0 }, parent };
    }
    scan->at++;
    for (char next = blank_skip(scan); next != '}'; next = blank_skip(scan)) {
        struct span key;
        if (next != '"' || !string_scan(scan, &key))
            return next == '"' ? false : scan_fails(scan, "no name");
        if (blank_skip(scan) != ':')
            return scan_fails(scan, "no colon");
        scan->at++;
        if (!value_scan(scan, key, own, depth + 1))
            return false;
        if ((next = blank_skip(scan)) == '}')
            break;
        if (next != ',')
            return scan_fails(scan, "no comma");
        scan->at++;
        if (blank_skip(scan) == '}')
            return scan_fails(scan, "no name");
    }
    scan->at++;
    return true;
}

static bool array_scan(struct scan *scan, struct span name, uint32_t parent, unsigned depth)
{
    scan->at++;
    if (blank_skip(scan) == ']')
        return scan->at++, true;
    for (bool is_first = true;; is_first = false) {
        const char next = blank_skip(scan);
        const bool is_scalar = next != '{' && next != '[';
        if (!value_scan(scan, name, is_first && is_scalar ? parent : UINT32_MAX, depth + 1))
            return false;
        const char end = blank_skip(scan);
        if (end != ',' && end != ']')
            return scan_fails(scan, "no comma");
        scan->at++;
        if (end == ']')
            return true;
    }
}

/* Read a value, and add it to the object `parent`; UINT32_MAX: only read it. */
static bool value_scan(struct scan *scan, struct span name, uint32_t parent, unsigned depth)
{
    static const struct span words[] = { { "true", 4 }, { "false", 5 }, { "null", 4 } };
    const char first = blank_skip(scan), *begin = scan->at;
    struct span value = { begin, 0 };
    if (depth > RECORD_DEPTH)
        return scan_fails(scan, "too many objects within each other");
    if (first == '{')
        return object_scan(scan, name, parent, depth);
    if (first == '[')
        return array_scan(scan, name, parent, depth);
    if (first == '"') {
        if (!string_scan(scan, &value))
            return false;
    } else if (first == '-' || (first >= '0' && first <= '9')) {
        while (scan->at < scan->end && ((*scan->at >= '0' && *scan->at <= '9') || *scan->at == '.' ||
                                        *scan->at == '-' || *scan->at == '+' || (*scan->at | 0x20) == 'e'))
            scan->at++;
        value.len = (size_t)(scan->at - begin);
    } else {
        for (size_t i = 0; i < 3 && value.len == 0; i++)
            if ((size_t)(scan->end - begin) >= words[i].len && memcmp(begin, words[i].data, words[i].len) == 0)
                value.len = words[i].len;
        scan->at += value.len;
        if (value.len == 0)
            return scan_fails(scan, "no value");
        if (first == 'n')
            return true;
    }
    return parent == UINT32_MAX || record_add(scan->record, name, value, parent) ||
           scan_fails(scan, "too many members");
}

bool record_json(struct record *record, struct span line, struct fault *fault)
{
    struct scan scan = { record, line.data, line.data, line.data + line.len, fault };
    if (!record_start(record, line.len))
        return fault_say(fault, "out of memory");
    if (blank_skip(&scan) != '{')
        return fault_say(fault, "JSON: no object");
    if (!value_scan(&scan, span_of(""), 0, 0))
        return false;
    (void)blank_skip(&scan);
    return scan.at == scan.end || scan_fails(&scan, "something behind the object");
}

/* ---- logfmt ---- */

static bool is_name(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           (byte && strchr("_.-@/", byte));
}

bool record_logfmt(struct record *record, struct span line, struct fault *fault)
{
    struct scan scan = { record, line.data, line.data, line.data + line.len, fault };
    if (!record_start(record, line.len))
        return fault_say(fault, "out of memory");
    while (blank_skip(&scan), scan.at < scan.end) {
        const char *begin = scan.at;
        struct span value;
        while (scan.at < scan.end && is_name(*scan.at))
            scan.at++;
        const struct span name = { begin, (size_t)(scan.at - begin) };
        if (scan.at == scan.end || *scan.at != '=' || name.len == 0) { /* a word between the pairs */
            while (scan.at < scan.end && *scan.at != ' ')
                scan.at++;
            continue;
        }
        begin = ++scan.at;
        if (scan.at < scan.end && *scan.at == '"') {
            if (!string_scan(&scan, &value))
                return fault_say(fault, "a quoted value is not closed");
        } else {
            while (scan.at < scan.end && *scan.at != ' ' && *scan.at != '\t')
                scan.at++;
            value = (struct span){ begin, (size_t)(scan.at - begin) };
        }
        if (!record_add(record, name, value, 0))
            return fault_say(fault, "has more than %d pairs", RECORD_MAX);
    }
    return record->count >= 3 || fault_say(fault, "has %zu pairs name=value", record->count);
}

/* ---- Members ---- */

static bool name_is(struct span name, const char *text, size_t len)
{
    return name.len == len && memcmp(name.data, text, len) == 0;
}

/* True if the path is that of the member. Names may contain points. */
static bool path_is(const struct record *record, const struct member *member, const char *path, size_t len)
{
    while (member->parent) {
        const size_t name_len = member->name.len;
        if (name_len + 1 >= len || path[len - name_len - 1] != '.' ||
            !name_is(member->name, path + len - name_len, name_len))
            return false;
        len -= name_len + 1;
        member = &record->objects[member->parent];
    }
    return name_is(member->name, path, len);
}

size_t record_find(const struct record *record, const char *path, size_t hint)
{
    const size_t len = strlen(path);
    if (hint < record->count && path_is(record, &record->all[hint], path, len))
        return hint;
    for (size_t i = 0; i < record->count; i++)
        if (path_is(record, &record->all[i], path, len))
            return i;
    return RECORD_NONE;
}

void record_path(const struct record *record, size_t member, char *out, size_t size)
{
    const struct member *chain[RECORD_DEPTH + 2];
    size_t count = 0, len = 0;
    for (const struct member *at = &record->all[member];; at = &record->objects[at->parent]) {
        chain[count++] = at;
        if (!at->parent)
            break;
    }
    out[0] = '\0';
    while (count-- && len < size)
        len += (size_t)snprintf(out + len, size - len, "%s%.*s", len ? "." : "", (int)chain[count]->name.len,
                                chain[count]->name.data);
}
