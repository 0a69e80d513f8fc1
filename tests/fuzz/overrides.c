/* overrides.c - patterns and the choice of a key's override, against a linear search.
 *
 * The input is a story: patterns are defined and ended, as text or spelled from bytes, and keys are looked up. Each
 * override has a different limit, by which a peek identifies it. Properties:
 *
 *     - a pattern is accepted exactly if a naive decoder accepts it, and matches the same keys
 *     - a key is decided by the exact pattern, else by the longest prefix, else by the limit itself
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERNS = 48, LEN_MAX = WEIR_MAX_PATTERN_LEN };

struct naive {
    bool is_prefix;
    size_t len;
    unsigned char bytes[LEN_MAX];
    int64_t limit; /* 0: not in force */
};

static struct {
    struct feed feed;
    weir *limiter;
    weir_limit *limit;
    struct naive all[PATTERNS];
    size_t count;
    int64_t next;
} story;

static bool naive_decode(const char *text, struct naive *out)
{
    *out = (struct naive){ .len = 0 };
    if (!*text || strlen(text) > LEN_MAX)
        return false;
    while (*text) {
        unsigned byte = (unsigned char)*text++;
        if (byte == '*' && !*text) {
            out->is_prefix = true;
        } else if (byte == '%') {
            char digits[3] = { text[0], text[0] ? text[1] : '\0', '\0' };
            if (strspn(digits, "0123456789abcdefABCDEF") != 2)
                return false;
            out->bytes[out->len++] = (unsigned char)strtoul(digits, NULL, 16);
            text += 2;
        } else if (byte <= ' ' || byte == 0x7f || strchr("*#=", (int)byte)) {
            return false;
        } else {
            out->bytes[out->len++] = (unsigned char)byte;
        }
    }
    return true;
}

static struct naive *naive_same(const struct naive *pattern)
{
    for (size_t i = 0; i < story.count; i++)
        if (story.all[i].is_prefix == pattern->is_prefix && story.all[i].len == pattern->len &&
            memcmp(story.all[i].bytes, pattern->bytes, pattern->len) == 0)
            return &story.all[i];
    return NULL;
}

static int64_t naive_limit_of(const unsigned char *key, size_t len)
{
    int64_t limit = 1;
    size_t best = 0;
    for (size_t i = 0; i < story.count; i++) {
        const struct naive *pattern = &story.all[i];
        if (pattern->limit == 0 || pattern->len > len || memcmp(pattern->bytes, key, pattern->len) != 0)
            continue;
        const size_t weight = pattern->is_prefix ? pattern->len + 1 : pattern->len == len ? SIZE_MAX : 0;
        if (weight > best) {
            best = weight;
            limit = pattern->limit;
        }
    }
    return limit;
}

/* ---- Steps ---- */

static void look_up(const unsigned char *key, size_t len)
{
    struct weir_decision decision;
    if (len == 0)
        return;
    fuzz_must(weir_peek(story.limit, weir_key(key, len), 1, &decision) == WEIR_OK, "a peek is decided");
    fuzz_must(decision.limit == naive_limit_of(key, len), "a key of %zu bytes is asked of the right override", len);
}

/* Look up the key that equals the pattern's bytes, and its neighbours. */
static void look_around(const struct naive *pattern)
{
    unsigned char key[LEN_MAX + 1];
    memcpy(key, pattern->bytes, pattern->len);
    look_up(key, pattern->len);
    key[pattern->len] = feed_byte(&story.feed);
    look_up(key, pattern->len + 1);
    if (pattern->len > 1)
        look_up(key, pattern->len - 1);
}

static void define(const char *text, bool ends)
{
    char name[2 * LEN_MAX + 16];
    struct naive pattern;
    const bool is_right = naive_decode(text, &pattern);
    struct naive *known = is_right ? naive_same(&pattern) : NULL;
    if (is_right && !known && story.count == PATTERNS)
        return;
    snprintf(name, sizeof name, "api/%s", text);
    const struct weir_policy policy = { .algorithm = WEIR_FIXED_WINDOW, .limit = ++story.next, .period_us = 1 };
    weir_limit *out = NULL;
    const int error = weir_limit_define(story.limiter, name, ends ? NULL : &policy, ends ? NULL : &out);
    fuzz_must(error == (is_right ? WEIR_OK : WEIR_EINVAL), "the pattern \"%s\" is %s", text,
              is_right ? "taken" : "refused");
    fuzz_must(!is_right || ends || out == story.limit, "the handle is the limit's");
    if (is_right && !known && !ends) {
        known = &story.all[story.count++];
        *known = pattern;
    }
    if (known)
        known->limit = ends ? 0 : story.next;
    if (is_right)
        look_around(&pattern);
}

/* Define a pattern from bytes, escaped where necessary or where the input says. */
static void define_bytes(const unsigned char *bytes, size_t len, bool ends)
{
    char text[3 * LEN_MAX + 2] = "";
    size_t at = 0;
    const uint8_t style = feed_byte(&story.feed);
    for (size_t i = 0; i < len && i < LEN_MAX / 3; i++) {
        const bool must = bytes[i] <= ' ' || bytes[i] == 0x7f || strchr("%*#=", bytes[i]);
        if (must || style % 4 == 0)
            at += (size_t)snprintf(text + at, sizeof text - at, style & 4 ? "%%%02x" : "%%%02X", bytes[i]);
        else
            text[at++] = (char)bytes[i];
        text[at] = '\0';
    }
    if (style & 8)
        memcpy(text + at, "*", 2);
    define(text, ends);
}

static void step(void)
{
    const uint8_t choice = feed_byte(&story.feed);
    size_t len;
    char *bytes = feed_bytes(&story.feed, choice & 128 ? LEN_MAX + 8 : 8, &len);
    switch (choice % 8) {
    case 0: define(bytes, false); break;
    case 1: define(bytes, true); break;
    case 2: define_bytes((unsigned char *)bytes, len, true); break;
    case 3:
    case 4:
    case 5: define_bytes((unsigned char *)bytes, len, false); break;
    case 6:
        if (story.count > 0)
            look_around(&story.all[choice / 8 % story.count]);
        break;
    default: look_up((unsigned char *)bytes, len); break;
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    const struct weir_policy policy = { .algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_us = 1 };
    options.max_keys = 64;
    story.feed = feed_of(data, size);
    story.count = 0;
    story.next = 1;
    fuzz_must(weir_open(&options, &story.limiter) == WEIR_OK, "a limiter opens");
    fuzz_must(weir_limit_define(story.limiter, "api", &policy, &story.limit) == WEIR_OK, "a limit is defined");
    while (!feed_is_over(&story.feed))
        step();
    for (size_t i = 0; i < story.count; i++)
        look_around(&story.all[i]);
    weir_close(story.limiter);
    return 0;
}
