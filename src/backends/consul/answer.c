/* answer.c - reads the answers of Consul's agent: see consul/answer.h. */
#include "backends/consul/answer.h"

#include "core/policy/policy.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_TOO_MANY 19 /* not every number with this many digits fits an int64_t */
#define QUOTED_MAX 64      /* bytes of an id or a key that a message shows */

/* Copy text from outside in a form that is safe to print. */
static const char *quoted(const char *text, char *room, size_t size)
{
    size_t i = 0;
    for (; i < size - 1 && text[i]; i++) {
        const unsigned char c = (unsigned char)text[i], before = i > 0 ? (unsigned char)text[i - 1] : 0;
        room[i] = c >= ' ' && c != 0x7f ? text[i] : '?';
        if (before == 0xc2 && c >= 0x80 && c < 0xa0) /* U+0080 to U+009F are control characters, too */
            room[i - 1] = room[i] = '?';
    }
    room[i] = '\0';
    return room;
}

static int answer_no_memory(struct message message)
{
    message_write(message, "out of memory");
    return WEIR_ENOMEM;
}

/* ---- JSON ---- */

static int answer_check_shape(const char *body, size_t len, struct message message)
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

static bool answer_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Replace a number that an int64_t or double cannot hold by one of the same length, and return the position
 * behind it. Otherwise jansson would refuse the whole answer because of one number in any field. "1e999" becomes
 * 1e000, and a number of 19 or more digits becomes d.ddd. Neither result is an integer, so a field that must be
 * one is refused. */
static size_t fit_number(char *text, size_t at, size_t len)
{
    const size_t begin = at;
    while (at < len && answer_is_digit(text[at]))
        at++;
    const bool has_point = at < len && text[at] == '.';
    const bool is_number = !has_point || (at + 1 < len && answer_is_digit(text[at + 1]));
    if (is_number && at - begin >= DIGITS_TOO_MANY && text[begin] != '0') {
        text[begin + 1] = '.';
        if (has_point)
            text[at] = '0';
    }
    if (has_point)
        for (at++; at < len && answer_is_digit(text[at]); at++)
            ;
    if (at < len && (text[at] == 'e' || text[at] == 'E'))
        for (at++; at < len && (answer_is_digit(text[at]) || text[at] == '+' || text[at] == '-'); at++)
            if (answer_is_digit(text[at]))
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
        else if (!in_string && answer_is_digit(text[at]))
            at = fit_number(text, at, len) - 1;
    }
}

/* Parse the answer. False: out of memory. Of two fields with one name the later counts, as in Go's decoder. NUL
 * is allowed: an agent passes on "\u0000" from the output of any service's check. */
static bool answer_parse(const char *body, size_t len, json_t **out, json_error_t *error)
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

/* True if jansson failed for lack of memory: its error is then empty or has that code. */
static bool is_for_memory(const json_error_t *error)
{
    return error->text[0] == '\0' || json_error_code(error) == json_error_out_of_memory;
}

/* Parse an answer that must be an array. The messages are weir's own, because jansson's quote the text, which may
 * be anything. */
static int answer_load(const char *body, size_t len, json_t **out, struct message message)
{
    json_error_t error;
    int refused = answer_check_shape(body, len, message);
    if (refused)
        return refused;
    json_t *root = NULL;
    if (!answer_parse(body, len, &root, &error) || (!root && is_for_memory(&error)))
        return answer_no_memory(message);
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

/* Return a string's text, or NULL if it contains a NUL: the part after it must not be lost unnoticed. */
static const char *text_of(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

/* Return a field, or NULL if it is missing or null. */
static json_t *optional(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

/* ---- Peers ---- */

static int refuse_peer(const char *id, const char *what, struct message message)
{
    char room[QUOTED_MAX + 1];
    return message_refuse(message, "instance \"%s\": %s", quoted(id, room, sizeof room), what);
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
    int error = answer_load(body, len, &read.root, message);
    if (error)
        return error;
    size_t n = json_array_size(read.root);
    read.peers = calloc(n ? n : 1, sizeof *read.peers);
    error = read.peers ? WEIR_OK : answer_no_memory(message);
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

/* A key of Consul's KV store, as far as it has been read. */
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

/* Decode base64 (RFC 4648, section 4) into `out`, which has room for 3 bytes for every 4. Returns their number, or -1
 * if the text is not base64. */
static ssize_t decode_base64(const char *text, size_t len, char *out)
{
    char *at = out;
    if (len % 4 != 0)
        return -1;
    for (size_t i = 0; i < len; i += 4) {
        const int padding = i + 4 < len || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
        unsigned bits = 0;
        for (int j = 0; j < 4; j++) {
            const int six = j < 4 - padding ? sextet(text[i + (size_t)j]) : 0;
            if (six < 0)
                return -1;
            bits = bits << 6 | (unsigned)six;
        }
        for (int j = 0; j < 3 - padding; j++)
            *at++ = (char)(bits >> (16 - 8 * j));
    }
    return at - out;
}

/* Read the policy in `text`: `len` bytes and a NUL. */
static void read_policy(struct value *value, const char *text, size_t len)
{
    struct message message = { value->sentence, sizeof value->sentence };
    size_t to_nul = strlen(text);
    int error = to_nul < len ? message_refuse(message, "column %zu: a NUL byte", to_nul + 1)
                             : policy_read(text, 1, &value->policy, message);
    if (error)
        value->error = value->sentence;
}

/* Read the policy of a key. WEIR_OK also for a bad policy, which becomes the value's error; WEIR_EINVAL for an
 * answer that cannot be Consul's; WEIR_ENOMEM. */
static int answer_read_value(const json_t *entry, struct value *value, struct message message)
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
    const size_t len = json_string_length(encoded);
    char *text = malloc(len / 4 * 3 + 1);
    if (!text)
        return answer_no_memory(message);
    const ssize_t decoded = decode_base64(json_string_value(encoded), len, text);
    if (decoded >= 0) {
        text[decoded] = '\0';
        read_policy(value, text, (size_t)decoded);
    }
    free(text);
    return decoded >= 0 ? WEIR_OK : message_refuse(message, "a Value is not base64");
}

static char *answer_put(char **at, const char *text)
{
    char *begin = *at;
    *at = stpcpy(begin, text) + 1;
    return begin;
}

/* Put text in a form that is safe to print. */
static char *answer_put_quoted(char **at, const char *text)
{
    char *begin = *at;
    quoted(text, answer_put(at, text), strlen(text) + 1);
    return begin;
}

/* Make an entry. Its texts share one block, which begins with its name. */
static int answer_keep(const struct value *value, const char *key, struct policy_entry *out, struct message message)
{
    static const char beginning[] = "Consul's ";
    size_t room = strlen(value->name) + 1 + sizeof beginning + strlen(key);
    room += value->pattern ? strlen(value->pattern) + 1 : 0;
    room += value->error ? strlen(value->error) + 1 : 0;
    char *at = malloc(room);
    if (!at)
        return answer_no_memory(message);
    *out = (struct policy_entry){ .name = answer_put(&at, value->name), .policy = value->policy };
    out->pattern = value->pattern ? answer_put(&at, value->pattern) : NULL;
    out->error = value->error ? answer_put_quoted(&at, value->error) : NULL;
    out->where = at;
    at = stpcpy(at, beginning);
    answer_put_quoted(&at, key);
    return WEIR_OK;
}

/* Read an entry. `rest` is the key without prefix and '/': a limit's name, perhaps followed by '/' and a pattern. */
static int read_entry(const json_t *entry, const char *key, const char *rest, struct policy_entry *out,
                      struct message message)
{
    const char *slash = strchr(rest, '/');
    char *name = slash ? strndup(rest, (size_t)(slash - rest)) : strdup(rest);
    if (!name)
        return answer_no_memory(message);
    struct value value = { .name = name, .pattern = slash ? slash + 1 : NULL };
    if (policy_name_check(name, (struct message){ value.sentence, sizeof value.sentence }) != WEIR_OK)
        value.error = value.sentence;
    int error = answer_read_value(entry, &value, message);
    if (!error)
        error = answer_keep(&value, key, out, message);
    free(name);
    return error;
}

/* True if the key is a folder as Consul's user interface makes them. A key with a value that ends in '/' is not:
 * its pattern ends in '/'. */
static bool is_folder(const json_t *entry, const char *key)
{
    const json_t *value = json_object_get(entry, "Value");
    const bool is_empty = json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0);
    return is_empty && key[strlen(key) - 1] == '/';
}

static int read_entries(const json_t *root, const char *prefix, struct consul_policies *read, struct message message)
{
    /* The name "?" is not a limit's, so the error concerns no limit. */
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
                             : answer_keep(&cut_short, key, &read->entries[read->n], message);
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
    int error = answer_load(body, len, &root, message);
    if (error)
        return error;
    size_t n = json_array_size(root);
    read.entries = calloc(n ? n : 1, sizeof *read.entries);
    error = read.entries ? read_entries(root, prefix, &read, message) : answer_no_memory(message);
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
