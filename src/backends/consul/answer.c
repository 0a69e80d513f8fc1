/* answer.c - reads what Consul's agent answers: see consul/answer.h. */
#include "backends/consul/answer.h"

#include "core/policy/policy.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_TOO_MANY 19 /* of which an int64_t holds some only */
#define QUOTED_MAX 64      /* bytes of an id or a key that a sentence shows */

/* What came from outside, as a sentence may show it. */
static const char *quoted(const char *text, char *room, size_t size)
{
    size_t i = 0;
    for (; i < size - 1 && text[i]; i++) {
        const unsigned char c = (unsigned char)text[i], before = i > 0 ? (unsigned char)text[i - 1] : 0;
        room[i] = c >= ' ' && c != 0x7f ? text[i] : '?';
        if (before == 0xc2 && c >= 0x80 && c < 0xa0) /* U+0080 to U+009F are controls as well */
            room[i - 1] = room[i] = '?';
    }
    room[i] = '\0';
    return room;
}

static int no_memory(struct message message)
{
    message_write(message, "out of memory");
    return WEIR_ENOMEM;
}

/* ---- JSON ---- */

static int check_shape(const char *body, size_t len, struct message message)
{
    size_t depth = 0, containers = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string && body[i] == '\\') {
            i++;
        } else if (body[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && (body[i] == '{' || body[i] == '[')) {
            if (++depth > CONSUL_NESTING_MAX)
                return message_refuse(message, "the answer nests deeper than %d", CONSUL_NESTING_MAX);
            if (++containers > CONSUL_CONTAINERS_MAX)
                return message_refuse(message, "the answer has more than %d objects and arrays", CONSUL_CONTAINERS_MAX);
        } else if (!in_string && (body[i] == '}' || body[i] == ']') && depth > 0) {
            depth--;
        }
    }
    return WEIR_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* From a number's first digit, `at`, to behind the number. One that does not fit an int64_t or a double, for which
 * jansson would refuse the whole answer wherever it stands, becomes one that does and has as many bytes: "1e999" 1e000,
 * and 19 digits, which may be too many, d.dddd..., whatever follows them. Neither is an integer, so it is refused where
 * it is read. */
static size_t fit_number(char *text, size_t at, size_t len)
{
    const size_t begin = at;
    while (at < len && is_digit(text[at]))
        at++;
    const bool has_point = at < len && text[at] == '.';
    const bool is_number = !has_point || (at + 1 < len && is_digit(text[at + 1]));
    if (is_number && at - begin >= DIGITS_TOO_MANY && text[begin] != '0') {
        text[begin + 1] = '.';
        if (has_point)
            text[at] = '0';
    }
    if (has_point)
        for (at++; at < len && is_digit(text[at]); at++)
            ;
    if (at < len && (text[at] == 'e' || text[at] == 'E'))
        for (at++; at < len && (is_digit(text[at]) || text[at] == '+' || text[at] == '-'); at++)
            if (is_digit(text[at]))
                text[at] = '0';
    return at;
}

static void fit_numbers(char *text, size_t len)
{
    bool in_string = false;
    for (size_t at = 0; at < len; at++) {
        if (in_string && text[at] == '\\')
            at++;
        else if (text[at] == '"')
            in_string = !in_string;
        else if (!in_string && is_digit(text[at]))
            at = fit_number(text, at, len) - 1;
    }
}

/* False: no memory for it. Of two fields with one name the latter counts, as Go's decoder has it. NUL: an agent gives
 * "\u0000" for what somebody's check has put out. */
static bool parse(const char *body, size_t len, json_t **out, json_error_t *error)
{
    char *text = malloc(len + 1);
    if (!text)
        return false;
    memcpy(text, body, len);
    fit_numbers(text, len);
    *out = json_loadb(text, len, JSON_ALLOW_NUL, error);
    free(text);
    return true;
}

/* jansson says nothing at all where it found no memory for what it makes, and else that this was why. */
static bool is_for_memory(const json_error_t *error)
{
    return error->text[0] == '\0' || json_error_code(error) == json_error_out_of_memory;
}

/* An array, or an error. jansson's own words quote the text, which may be anything. */
static int load(const char *body, size_t len, json_t **out, struct message message)
{
    json_error_t error;
    int refused = check_shape(body, len, message);
    if (refused)
        return refused;
    json_t *root = NULL;
    if (!parse(body, len, &root, &error) || (!root && is_for_memory(&error)))
        return no_memory(message);
    if (!root && (json_error_code(&error) == json_error_premature_end_of_input || len == 0))
        return message_refuse(message, "the answer ends before its JSON does");
    if (!root)
        return message_refuse(message, "the answer is not JSON, see line %d, column %d", error.line, error.column);
    if (!json_is_array(root)) {
        json_decref(root);
        return message_refuse(message, "the answer is not an array");
    }
    *out = root;
    return WEIR_OK;
}

/* NULL also for text with a NUL: what comes after it must not be lost unseen. */
static const char *text_of(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

/* A field that may be missing or null, in both cases NULL. */
static json_t *optional(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

/* ---- Peers ---- */

static int refuse_peer(const char *id, const char *what, struct message message)
{
    char room[QUOTED_MAX + 1];
    return message_refuse(message, "of the instance \"%s\" %s", quoted(id, room, sizeof room), what);
}

static int read_passing(const json_t *service, struct weir_peer *peer, struct message message)
{
    const json_t *weights = optional(service, "Weights");
    if (weights && !json_is_object(weights))
        return refuse_peer(peer->id, "Service.Weights is not an object", message);
    const json_t *passing = weights ? optional(weights, "Passing") : NULL;
    if (!passing)
        return WEIR_OK;
    peer->weight = json_is_integer(passing) ? json_integer_value(passing) : 0;
    if (peer->weight < 1 || peer->weight > SHARE_MAX_WEIGHT)
        return refuse_peer(peer->id, "Service.Weights.Passing is not a whole number from 1 to 65535", message);
    return WEIR_OK;
}

static int read_meta(const json_t *service, const char *name, struct weir_peer *peer, struct message message)
{
    char what[LOG_LINE_SIZE], room[QUOTED_MAX + 1];
    const json_t *meta = optional(service, "Meta");
    if (meta && !json_is_object(meta))
        return refuse_peer(peer->id, "Service.Meta is not an object", message);
    const json_t *value = meta ? json_object_get(meta, name) : NULL;
    if (!value)
        return WEIR_OK;
    const char *text = text_of(value);
    size_t digits = text ? strspn(text, "0123456789") : 0;
    peer->weight = digits > 0 && digits <= 5 && !text[digits] ? strtol(text, NULL, 10) : 0;
    if (peer->weight >= 1 && peer->weight <= SHARE_MAX_WEIGHT)
        return WEIR_OK;
    snprintf(what, sizeof what, "Service.Meta \"%s\" is not a whole number from 1 to 65535",
             quoted(name, room, sizeof room));
    return refuse_peer(peer->id, what, message);
}

static int read_peer(const json_t *entry, size_t number, const char *weight_meta, struct weir_peer *out,
                     struct message message)
{
    const json_t *service = json_object_get(entry, "Service"); /* NULL if `entry` is no object */
    if (!json_is_object(service))
        return message_refuse(message, "entry %zu of the answer has no object Service", number);
    const json_t *id_field = json_object_get(service, "ID");
    const char *id = text_of(id_field);
    if (!id && json_is_string(id_field))
        return message_refuse(message, "entry %zu of the answer has a NUL in Service.ID", number);
    if (!id || !*id)
        return message_refuse(message, "entry %zu of the answer has no text Service.ID", number);
    *out = (struct weir_peer){ .id = id, .weight = 1 };
    return weight_meta ? read_meta(service, weight_meta, out, message) : read_passing(service, out, message);
}

int consul_peers_read(const char *body, size_t len, const char *weight_meta, struct consul_peers *out,
                      struct message message)
{
    struct consul_peers read = { 0 };
    int error = load(body, len, &read.root, message);
    if (error)
        return error;
    size_t n = json_array_size(read.root);
    read.peers = calloc(n ? n : 1, sizeof *read.peers);
    error = read.peers ? WEIR_OK : no_memory(message);
    for (; !error && read.n < n; read.n++)
        error = read_peer(json_array_get(read.root, read.n), read.n + 1, weight_meta, &read.peers[read.n], message);
    if (error)
        consul_peers_free(&read);
    else
        *out = read;
    return error;
}

void consul_peers_free(struct consul_peers *peers)
{
    json_decref(peers->root);
    free(peers->peers);
    *peers = (struct consul_peers){ 0 };
}

/* ---- Policies ---- */

/* What a key holds, as far as it has been read. */
struct value {
    const char *name, *pattern;
    const char *error; /* NULL: none so far */
    struct weir_policy policy;
    char sentence[LOG_LINE_SIZE];
};

static int sextet(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Base64 (RFC 4648, section 4) into `out`, which has room for 3 bytes for every 4: how many, or -1 if it is none. */
static ssize_t decode_base64(const char *text, size_t len, char *out)
{
    char *at = out;
    if (len % 4 != 0)
        return -1;
    for (size_t i = 0; i < len; i += 4) {
        bool is_last = i + 4 == len;
        int padding = is_last && text[i + 3] == '=' ? text[i + 2] == '=' ? 2 : 1 : 0;
        unsigned bits = 0;
        for (int j = 0; j < 4 - padding; j++) {
            int six = sextet(text[i + (size_t)j]);
            if (six < 0)
                return -1;
            bits |= (unsigned)six << (18 - 6 * j);
        }
        for (int j = 0; j < 3 - padding; j++)
            *at++ = (char)(bits >> (16 - 8 * j));
    }
    return at - out;
}

/* The policy in `text`, which is `len` bytes with a NUL behind. */
static void read_policy(struct value *value, const char *text, size_t len)
{
    struct message message = { value->sentence, sizeof value->sentence };
    size_t to_nul = strlen(text);
    int error = to_nul < len ? message_refuse(message, "column %zu: a NUL byte", to_nul + 1)
                             : policy_read(text, 1, &value->policy, message);
    if (error)
        value->error = value->sentence;
}

/* WEIR_OK, whatever it may be, as long as it is Consul's: WEIR_EINVAL, WEIR_ENOMEM. */
static int read_value(const json_t *entry, struct value *value, struct message message)
{
    json_t *encoded = json_object_get(entry, "Value");
    if (value->error)
        return WEIR_OK;
    if (json_is_null(encoded)) {
        value->error = "there is no policy";
        return WEIR_OK;
    }
    if (!json_is_string(encoded))
        return message_refuse(message, "a Value is not text");
    size_t len = json_string_length(encoded);
    char *text = malloc(len / 4 * 3 + 1);
    if (!text)
        return no_memory(message);
    ssize_t decoded = decode_base64(json_string_value(encoded), len, text);
    if (decoded >= 0) {
        text[decoded] = '\0';
        read_policy(value, text, (size_t)decoded);
    }
    free(text);
    return decoded >= 0 ? WEIR_OK : message_refuse(message, "a Value is not base64");
}

static char *put(char **at, const char *text)
{
    char *begin = *at;
    *at = stpcpy(begin, text) + 1;
    return begin;
}

/* The same for what goes into sentences. */
static char *put_quoted(char **at, const char *text)
{
    char *begin = *at;
    quoted(text, put(at, text), strlen(text) + 1);
    return begin;
}

/* An entry's texts are one block, which begins with its name. */
static int keep(const struct value *value, const char *key, struct policy_entry *out, struct message message)
{
    static const char beginning[] = "Consul's ";
    size_t room = strlen(value->name) + 1 + sizeof beginning + strlen(key);
    room += value->pattern ? strlen(value->pattern) + 1 : 0;
    room += value->error ? strlen(value->error) + 1 : 0;
    char *at = malloc(room);
    if (!at)
        return no_memory(message);
    *out = (struct policy_entry){ .name = put(&at, value->name), .policy = value->policy };
    out->pattern = value->pattern ? put(&at, value->pattern) : NULL;
    out->error = value->error ? put_quoted(&at, value->error) : NULL;
    out->where = at;
    at = stpcpy(at, beginning);
    put_quoted(&at, key);
    return WEIR_OK;
}

/* `key` without prefix and '/': the limit's name, and what may be behind another '/'. */
static int read_entry(const json_t *entry, const char *key, const char *rest, struct policy_entry *out,
                      struct message message)
{
    const char *slash = strchr(rest, '/');
    char *name = slash ? strndup(rest, (size_t)(slash - rest)) : strdup(rest);
    if (!name)
        return no_memory(message);
    struct value value = { .name = name, .pattern = slash ? slash + 1 : NULL };
    if (policy_name_check(name, (struct message){ value.sentence, sizeof value.sentence }) != WEIR_OK)
        value.error = value.sentence;
    int error = read_value(entry, &value, message);
    if (!error)
        error = keep(&value, key, out, message);
    free(name);
    return error;
}

/* Consul's user interface makes folders so. With a value it is a pattern that ends in '/', of a key as any other. */
static bool is_folder(const json_t *entry, const char *key)
{
    const json_t *value = json_object_get(entry, "Value");
    const bool is_empty = json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0);
    return is_empty && key[strlen(key) - 1] == '/';
}

static int read_entries(const json_t *root, const char *prefix, struct consul_policies *read, struct message message)
{
    /* Under a name that is no limit's, so that it says nothing of any. */
    static const struct value cut_short = { .name = "?", .error = "the key has a NUL, and more after it" };
    size_t prefix_len = strlen(prefix);
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *entry = json_array_get(root, i);
        const char *key = json_string_value(json_object_get(entry, "Key"));
        if (!key)
            return message_refuse(message, "entry %zu of the answer has no text Key", i + 1);
        if (strncmp(key, prefix, prefix_len) != 0 || key[prefix_len] != '/')
            return message_refuse(message, "entry %zu of the answer is not under %s/", i + 1, prefix);
        const char *rest = key + prefix_len + 1;
        const bool is_whole = strlen(key) == json_string_length(json_object_get(entry, "Key"));
        if (is_whole && is_folder(entry, key))
            continue;
        int error = is_whole ? read_entry(entry, key, rest, &read->entries[read->n], message)
                             : keep(&cut_short, key, &read->entries[read->n], message);
        if (error)
            return error;
        read->n++;
    }
    return WEIR_OK;
}

int consul_policies_read(const char *body, size_t len, const char *prefix, struct consul_policies *out,
                         struct message message)
{
    struct consul_policies read = { 0 };
    json_t *root = NULL;
    int error = load(body, len, &root, message);
    if (error)
        return error;
    size_t n = json_array_size(root);
    read.entries = calloc(n ? n : 1, sizeof *read.entries);
    error = read.entries ? read_entries(root, prefix, &read, message) : no_memory(message);
    json_decref(root);
    if (error)
        consul_policies_free(&read);
    else
        *out = read;
    return error;
}

void consul_policies_free(struct consul_policies *policies)
{
    for (size_t i = 0; i < policies->n; i++)
        free((char *)policies->entries[i].name);
    free(policies->entries);
    *policies = (struct consul_policies){ 0 };
}
