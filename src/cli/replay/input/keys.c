/* keys.c - what identifies whose request a row is. */
#include "cli/replay/input/keys.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read the bits of a prefix: up to 32 for IPv4, more for IPv6; of two numbers the first is IPv4's. */
static bool bits_read(struct key_part *part, struct span text, struct fault *fault)
{
    size_t slash = span_find(text, '/');
    int64_t first, second = 0;
    bool are_two = slash < text.len;
    if (!span_number(span_slice(text, 0, slash), &first) || first < 1 || first > (are_two ? 32 : 128) ||
        (are_two && (!span_number(span_slice(text, slash + 1, text.len), &second) || second < 1 || second > 128)))
        return fault_set(fault, "prefix", text, "is not 1 to 32 bits of IPv4, 33 to 128 of IPv6, or both as in 24/64");
    part->ipv4_bits = are_two || first <= 32 ? (int)first : 0;
    part->ipv6_bits = are_two ? (int)second : first > 32 ? (int)first : 0;
    return true;
}

/* True if everything after the slash consists of digits and slashes, so that it is not a part of a name. */
static bool is_prefix(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] != '/' && (text.data[i] < '0' || text.data[i] > '9'))
            return false;
    return text.len > 0;
}

bool key_spec_read(struct key_spec *spec, const char *text, struct fault *fault)
{
    *spec = (struct key_spec){ .text = text, .count = text ? 0 : 1 };
    struct span rest = span_of(text ? text : "");
    while (text && spec->count < KEYS_MAX_PARTS) {
        struct key_part *part = &spec->parts[spec->count++];
        size_t plus = span_find(rest, '+');
        struct span word = span_slice(rest, 0, plus);
        size_t slash = span_find(word, '/');
        if (slash < word.len && is_prefix(span_slice(word, slash + 1, word.len))) {
            if (!bits_read(part, span_slice(word, slash + 1, word.len), fault))
                return false;
            word = span_slice(word, 0, slash);
        }
        if (word.len == 0 || word.len >= sizeof part->name)
            return fault_say(fault, "has a field's name of %zu bytes, and 1 to %d are allowed", word.len,
                             KEYS_NAME_SIZE - 1);
        memcpy(part->name, word.data, word.len);
        if (plus == rest.len)
            return true;
        rest = span_slice(rest, plus + 1, rest.len);
    }
    return !text || fault_say(fault, "has more than %d fields", KEYS_MAX_PARTS);
}

/* Keep the first `bits` of an address. */
static void address_cut(unsigned char *bytes, size_t len, int bits)
{
    for (size_t i = 0; i < len; i++) {
        int kept = bits - 8 * (int)i;
        if (kept < 8)
            bytes[i] = (unsigned char)(kept <= 0 ? 0 : bytes[i] & (0xff00 >> kept));
    }
}

/* Write an address as its prefix, such as 2001:db8::/64. Other text stays as it is. */
static size_t prefix_print(const struct key_part *part, struct span value, char *out, size_t size)
{
    char text[INET6_ADDRSTRLEN], shown[INET6_ADDRSTRLEN];
    unsigned char bytes[16];
    size_t len = span_find(value, '%'); /* a zone does not count */
    if (len < sizeof text) {
        memcpy(text, value.data, len);
        text[len] = '\0';
        if (part->ipv4_bits && strlen(text) == len && inet_pton(AF_INET, text, bytes) == 1) {
            address_cut(bytes, 4, part->ipv4_bits);
            inet_ntop(AF_INET, bytes, shown, sizeof shown);
            return (size_t)snprintf(out, size, "%s/%d", shown, part->ipv4_bits);
        }
        if (part->ipv6_bits && strlen(text) == len && inet_pton(AF_INET6, text, bytes) == 1) {
            address_cut(bytes, 16, part->ipv6_bits);
            inet_ntop(AF_INET6, bytes, shown, sizeof shown);
            return (size_t)snprintf(out, size, "%s/%d", shown, part->ipv6_bits);
        }
    }
    memcpy(out, value.data, value.len);
    return value.len;
}

bool key_make(const struct key_spec *spec, const struct span *values, struct key_buffer *buffer, struct span *out)
{
    const struct key_part *first = &spec->parts[0];
    if (spec->count == 1 && !first->ipv4_bits && !first->ipv6_bits) {
        *out = values[first->field];
        return true;
    }
    size_t room = 0, len = 0;
    for (size_t i = 0; i < spec->count; i++)
        room += 3 * values[spec->parts[i].field].len + INET6_ADDRSTRLEN + 8;
    if (room > buffer->size) {
        char *grown = realloc(buffer->bytes, room);
        if (!grown)
            return false;
        *buffer = (struct key_buffer){ grown, room };
    }
    for (size_t i = 0; i < spec->count; i++) {
        struct span value = values[spec->parts[i].field];
        if (i)
            buffer->bytes[len++] = ' ';
        if (spec->parts[i].ipv4_bits || spec->parts[i].ipv6_bits) {
            len += prefix_print(&spec->parts[i], value, buffer->bytes + len, room - len);
            continue;
        }
        for (size_t j = 0; j < value.len; j++) {
            if (value.data[j] == ' ' && spec->count > 1)
                memcpy(buffer->bytes + len, "%20", 3), len += 3;
            else
                buffer->bytes[len++] = value.data[j];
        }
    }
    *out = (struct span){ buffer->bytes, len };
    return true;
}
