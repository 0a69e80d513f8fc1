/* keys.c - what identifies whose request a row is. */
#include "cli/replay/input/keys.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

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

/* Read one field with its prefix and its number. */
static bool part_read(struct key_part *part, struct span word, struct fault *fault)
{
    const size_t slash = span_find(word, '/');
    if (slash < word.len && is_prefix(span_slice(word, slash + 1, word.len))) {
        if (!bits_read(part, span_slice(word, slash + 1, word.len), fault))
            return false;
        word = span_slice(word, 0, slash);
    }
    const size_t hash = span_find_last(word, '#');
    if (hash < word.len) {
        struct span digits = span_slice(word, hash + 1, word.len);
        const bool is_from_end = digits.len && digits.data[0] == '-';
        int64_t number;
        if (!span_number(span_slice(digits, is_from_end, digits.len), &number) || number < 1 || number > 100)
            return fault_set(fault, "number", digits, "is not 1 to 100, or -1 to -100 from the end");
        part->pick = is_from_end ? -(int)number : (int)number;
        word = span_slice(word, 0, hash);
    }
    if (word.len == 0 || word.len >= sizeof part->name)
        return fault_say(fault, "has a field's name of %zu bytes, and 1 to %d are allowed", word.len,
                         KEYS_NAME_SIZE - 1);
    memcpy(part->name, word.data, word.len);
    return true;
}

bool key_spec_read(struct key_spec *spec, const char *text, struct fault *fault)
{
    *spec = (struct key_spec){ .text = text, .count = text ? 0 : 1 };
    struct span rest = span_of(text ? text : "");
    while (text && spec->count < KEYS_MAX_PARTS) {
        const size_t plus = span_find(rest, '+');
        if (!part_read(&spec->parts[spec->count++], span_slice(rest, 0, plus), fault))
            return false;
        if (plus == rest.len)
            return true;
        rest = span_slice(rest, plus + 1, rest.len);
    }
    return !text || fault_say(fault, "has more than %d fields", KEYS_MAX_PARTS);
}

/* ---- Addresses ---- */

static bool is_host_name(struct span word)
{
    for (size_t i = 0; i < word.len; i++) {
        char byte = word.data[i], letter = (char)(byte | 0x20);
        /* Names that a resolver returned also contain underscores and asterisks. */
        if (!(letter >= 'a' && letter <= 'z') && !(byte >= '0' && byte <= '9') && byte != '.' && byte != '-' &&
            byte != '_' && byte != '*')
            return false;
    }
    return word.len > 0;
}

/* Write the address that a text is, by its prefix; return its length, and 0 for other text. */
static size_t address_write(struct span text, int ipv4_bits, int ipv6_bits, char *out, size_t size)
{
    text = span_trim(text);
    const int len = weir_key_address_text(weir_key(text.data, text.len), ipv4_bits ? ipv4_bits : 32,
                                          ipv6_bits ? ipv6_bits : 128, out, size);
    return len > 0 ? (size_t)len : 0;
}

bool key_is_address(struct span text)
{
    return address_write(text, 0, 0, NULL, 0) > 0;
}

bool key_is_private(struct span text)
{
    char copy[KEYS_ADDRESS_SIZE];
    unsigned char at[16];
    const size_t len = address_write(span_slice(text, 0, span_find(text, '/')), 0, 0, copy, sizeof copy - 1);
    copy[len] = '\0';
    if (inet_pton(AF_INET, copy, at) == 1)
        return at[0] == 10 || at[0] == 127 || (at[0] == 172 && (at[1] & 0xf0) == 16) ||
               (at[0] == 192 && at[1] == 168) || (at[0] == 100 && (at[1] & 0xc0) == 64) ||
               (at[0] == 169 && at[1] == 254);
    return inet_pton(AF_INET6, copy, at) == 1 && ((at[0] & 0xfe) == 0xfc || (at[0] == 0xfe && (at[1] & 0xc0) == 0x80) ||
                                                  memcmp(at, &in6addr_loopback, 16) == 0);
}

/* Return element `pick` of a list with commas. Empty: there are fewer. */
static struct span list_pick(struct span text, int pick)
{
    size_t count = 1;
    for (size_t i = 0; i < text.len; i++)
        count += text.data[i] == ',';
    const size_t wanted = pick > 0 ? (size_t)pick : (size_t)-pick <= count ? count - (size_t)-pick + 1 : count + 1;
    for (size_t i = 1; i < wanted && text.len; i++) {
        const size_t comma = span_find(text, ',');
        text = span_slice(text, comma < text.len ? comma + 1 : comma, text.len);
    }
    return span_trim(span_slice(text, 0, span_find(text, ',')));
}

bool key_is_client(struct span text)
{
    const struct span first = list_pick(text, 1);
    return key_is_address(first) || (first.len == text.len && is_host_name(text)) || span_is(text, "unix:");
}

/* True for what can only be an IPv4 address as it is written usually, so that nothing needs to be changed in it. */
static bool is_usual(struct span text)
{
    if (text.len < 7 || text.len > 15)
        return false;
    for (size_t i = 0; i < text.len; i++)
        if ((text.data[i] < '0' || text.data[i] > '9') && text.data[i] != '.')
            return false;
    return true;
}

/* Make one part of a key: an address by its prefix, or any other text. `room` has KEYS_ADDRESS_SIZE bytes for it. */
static struct span part_make(const struct key_part *part, struct span value, char *room)
{
    struct span chosen = value;
    if (!part->ipv4_bits && !part->pick && is_usual(value))
        return value;
    if (part->pick || span_find(value, ',') < value.len)
        chosen = list_pick(value, part->pick ? part->pick : 1);
    const size_t len = address_write(chosen, part->ipv4_bits, part->ipv6_bits, room, KEYS_ADDRESS_SIZE);
    return len ? (struct span){ room, len } : part->pick ? chosen : value;
}

bool key_make(const struct key_spec *spec, const struct span *values, struct key_buffer *buffer, struct span *out)
{
    size_t room = KEYS_ADDRESS_SIZE, len = 0;
    for (size_t i = 0; i < spec->count; i++)
        room += 3 * values[spec->parts[i].field].len + KEYS_ADDRESS_SIZE;
    if (room > buffer->size) {
        char *grown = realloc(buffer->bytes, 2 * room);
        if (!grown)
            return false;
        *buffer = (struct key_buffer){ grown, 2 * room };
    }
    if (spec->count == 1)
        return *out = part_make(&spec->parts[0], values[spec->parts[0].field], buffer->bytes), true;
    for (size_t i = 0; i < spec->count; i++) {
        char address[KEYS_ADDRESS_SIZE];
        const struct span value = part_make(&spec->parts[i], values[spec->parts[i].field], address);
        if (i)
            buffer->bytes[len++] = ' ';
        for (size_t j = 0; j < value.len; j++) {
            if (value.data[j] == ' ')
                memcpy(buffer->bytes + len, "%20", 3), len += 3;
            else
                buffer->bytes[len++] = value.data[j];
        }
    }
    *out = (struct span){ buffer->bytes, len };
    return true;
}
