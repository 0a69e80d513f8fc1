/* policy_file.c - policy files with names, patterns and escapes, and limits loaded from them.
 *
 * The input is a file. Properties:
 *
 *     - exactly the lines with more than blanks before a '#' are visited, in order
 *     - a line is good exactly if a naive reader accepts it: the name before the first '=', the pattern after its
 *       first '/', and the policy by weir_policy_parse(); and if no earlier good line names the same keys
 *     - the file is good exactly if each visited line is
 *     - when loaded, either all of the file is defined and each key gets the policy of the most specific pattern, or
 *       nothing is defined and the error names the line
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 64, NAME_ROOM = WEIR_MAX_NAME_LEN + 1, PATTERN_ROOM = WEIR_MAX_PATTERN_LEN + 1 };

struct good_line {
    char name[NAME_ROOM];
    bool is_override, is_prefix;
    unsigned char bytes[PATTERN_ROOM];
    size_t len;
    struct weir_policy policy;
};

static struct reading {
    const char *text, *at, *end; /* `at`: in the line to be visited next */
    int number;
    bool any_bad;
    size_t good, kept;
    struct good_line lines[LINES];
} reading;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Find the next line with content: from *begin up to its comment or end. */
static bool next_line(const char **begin, size_t *len)
{
    while (reading.at < reading.end) {
        const char *line = reading.at;
        const char *feed = memchr(line, '\n', (size_t)(reading.end - line));
        reading.at = feed ? feed + 1 : reading.end;
        reading.number++;
        const size_t whole = (size_t)((feed ? feed : reading.end) - line);
        const char *comment = memchr(line, '#', whole);
        *begin = line;
        *len = memchr(line, '\0', whole) || !comment ? whole : (size_t)(comment - line);
        for (size_t i = 0; i < *len; i++)
            if (!is_blank(line[i]))
                return true;
    }
    return false;
}

/* Decode a pattern's bytes; false if it is invalid. */
static bool decode(const char *pattern, struct good_line *line)
{
    line->is_override = true;
    if (!*pattern || strlen(pattern) > WEIR_MAX_PATTERN_LEN)
        return false;
    for (; *pattern; pattern++) {
        unsigned byte = (unsigned char)*pattern;
        if (byte == '*') {
            line->is_prefix = true;
            return pattern[1] == '\0';
        }
        if (byte <= ' ' || byte == 0x7f)
            return false;
        if (byte == '%') {
            if (strspn(pattern + 1, "0123456789abcdefABCDEF") < 2)
                return false;
            const char digits[] = { pattern[1], pattern[2], '\0' };
            byte = (unsigned)strtoul(digits, NULL, 16);
            pattern += 2;
        }
        line->bytes[line->len++] = (unsigned char)byte;
    }
    return true;
}

static bool is_same_name(const struct good_line *a, const struct good_line *b)
{
    return strcmp(a->name, b->name) == 0 && a->is_override == b->is_override && a->is_prefix == b->is_prefix &&
           a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* True if the line is valid and no earlier line names the same keys; stores its parts. */
static bool naive_read(const char *begin, size_t len, struct good_line *line)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *equals = memchr(begin, '=', len);
    *line = (struct good_line){ .len = 0 };
    if (!equals || memchr(begin, '\0', len))
        return false;
    const char *from = begin, *to = equals;
    while (is_blank(*from))
        from++;
    while (to > from && is_blank(to[-1]))
        to--;
    char *name = fuzz_text(from, (size_t)(to - from));
    char *policy = fuzz_text(equals + 1, (size_t)(begin + len - equals - 1));
    char *slash = strchr(name, '/');
    const size_t name_len = slash ? (size_t)(slash - name) : strlen(name);
    bool is_right = name_len > 0 && name_len <= WEIR_MAX_NAME_LEN && strspn(name, plain) == name_len;
    if (is_right)
        memcpy(line->name, name, name_len);
    is_right = is_right && (!slash || decode(slash + 1, line));
    is_right = is_right && weir_policy_parse(policy, &line->policy, NULL, 0) == WEIR_OK;
    for (size_t i = 0; i < reading.kept; i++)
        is_right = is_right && !is_same_name(&reading.lines[i], line);
    free(policy);
    free(name);
    return is_right;
}

/* Check that name and pattern are as written, trimmed. */
static void check_name(const char *begin, const struct weir_policy_line *line)
{
    char name[NAME_ROOM + PATTERN_ROOM + 1];
    while (is_blank(*begin))
        begin++;
    snprintf(name, sizeof name, "%s%s%s", line->name, line->pattern ? "/" : "", line->pattern ? line->pattern : "");
    fuzz_must(memcmp(name, begin, strlen(name)) == 0, "line %d has the name \"%s\"", line->number, name);
}

static int visit(void *user, const struct weir_policy_line *line)
{
    const char *begin;
    size_t len;
    fuzz_must(user == &reading && next_line(&begin, &len), "there is a line to be visited");
    fuzz_must(line->number == reading.number, "line %d is visited, not %d", reading.number, line->number);
    struct good_line good;
    const bool is_right = naive_read(begin, len, &good);
    fuzz_must(is_right == !line->error || reading.good > reading.kept, "line %d is %s: %s", line->number,
              is_right ? "good" : "bad", line->error ? line->error : "");
    if (line->error) {
        fuzz_must(!line->name && !line->policy && *line->error, "a bad line has a sentence and nothing else");
        fuzz_clean(line->error);
        reading.any_bad = true;
        return 0;
    }
    check_name(begin, line);
    fuzz_must(strcmp(line->name, good.name) == 0 && !line->pattern == !good.is_override &&
                  fuzz_same_policy(line->policy, &good.policy),
              "line %d says what it says", line->number);
    reading.good++;
    if (reading.kept < LINES)
        reading.lines[reading.kept++] = good;
    return 0;
}

/* ---- Loaded ---- */

/* Return how specific a pattern is if it matches the key: a prefix's length plus 1, or the maximum for an exact one. */
static size_t weight_for(const struct good_line *line, const unsigned char *key, size_t len)
{
    if (line->len > len || memcmp(line->bytes, key, line->len) != 0)
        return 0;
    return line->is_prefix ? line->len + 1 : line->len == len ? SIZE_MAX : 0;
}

/* Check that a pattern's key, or for a prefix one that begins with it, gets the most specific pattern's policy. */
static void check_key(weir *limiter, const struct good_line *line)
{
    unsigned char key[PATTERN_ROOM + 1];
    size_t len = line->len, best = 0;
    memcpy(key, line->bytes, len);
    if (line->is_prefix || len == 0)
        key[len++] = '+';
    int64_t size = 0;
    for (size_t i = 0; i < reading.kept; i++) {
        const struct good_line *other = &reading.lines[i];
        const struct weir_policy *policy = &other->policy;
        const size_t weight = other->is_override ? weight_for(other, key, len) : 1;
        const bool is_base = !other->is_override && best == 0;
        if (strcmp(other->name, line->name) != 0 || weight == 0 || !(is_base || (other->is_override && weight >= best)))
            continue;
        best = other->is_override ? weight : best;
        size = (policy->burst ? policy->burst : policy->capacity ? policy->capacity : policy->limit) + policy->debt;
    }
    struct weir_decision decision;
    weir_limit *limit = weir_limit_find(limiter, line->name);
    fuzz_must(limit, "limit \"%s\" is there", line->name);
    fuzz_must(weir_peek(limit, weir_key(key, len), 1, &decision) == WEIR_OK && decision.limit == size,
              "a key of \"%s\" has the policy of the most special pattern", line->name);
}

static bool has_limit(const char *name)
{
    for (size_t i = 0; i < reading.kept; i++)
        if (!reading.lines[i].is_override && strcmp(reading.lines[i].name, name) == 0)
            return true;
    return false;
}

static void check_load(const char *path)
{
    weir *limiter;
    char sentence[256] = "";
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 64;
    fuzz_must(weir_open(&options, &limiter) == WEIR_OK, "a limiter opens");
    bool is_right = !reading.any_bad;
    for (size_t i = 0; i < reading.kept; i++)
        is_right = is_right && has_limit(reading.lines[i].name);
    const int error = weir_limits_load(limiter, path, sentence, sizeof sentence);
    fuzz_must(error == (is_right ? WEIR_OK : WEIR_EINVAL), "a file that is %s: %s", is_right ? "right" : "bad",
              sentence);
    fuzz_clean(sentence);
    fuzz_must(is_right || strncmp(sentence, path, strlen(path)) == 0, "\"%s\" names the file", sentence);
    for (size_t i = 0; i < reading.kept; i++) {
        if (is_right)
            check_key(limiter, &reading.lines[i]);
        else
            fuzz_must(!weir_limit_find(limiter, reading.lines[i].name), "of a bad file nothing is defined");
    }
    weir_close(limiter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size), *begin;
    size_t len;
    reading.text = reading.at = (const char *)data;
    reading.end = reading.text + size;
    reading.number = 0;
    reading.any_bad = false;
    reading.good = reading.kept = 0;
    char sentence[256] = "";
    const int error = weir_policy_file_read(path, visit, &reading, sentence, sizeof sentence);
    fuzz_must(!next_line(&begin, &len), "line %d is visited, too", reading.number);
    fuzz_must(error == (reading.any_bad ? WEIR_EINVAL : WEIR_OK), "a file is as good as its lines");
    fuzz_must(!error == !*sentence, "there is a sentence exactly if it is refused");
    if (reading.good == reading.kept)
        check_load(path);
    return 0;
}
