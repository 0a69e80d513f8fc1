/* redis_key.c - the names of keys in Redis.
 *
 * The input is two names of limits and two keys. Properties:
 *
 *     - a name can be split into prefix, limit and key; or, for a long key, its beginning and its digest by another
 *       library. So no two pairs share a name
 *     - the hash tag, as Redis Cluster finds it, is the whole key part, is not empty, and does not depend on the limit
 *     - the slot is that of this tag
 *     - no name exceeds REDIS_KEY_MAX
 */
#include "fuzz.h"

#include "backends/redis/flight/key.h"

#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name {
    char text[REDIS_KEY_MAX + 1];
    size_t len;
};

static struct name name_of(const char *prefix, const char *limit, const char *key, size_t len)
{
    struct name name;
    memset(name.text, '?', sizeof name.text);
    name.len = redis_key_write(prefix, limit, weir_key(key, len), name.text);
    fuzz_must(name.len <= REDIS_KEY_MAX && name.text[name.len] == '?', "a name stays in its room");
    return name;
}

/* Find the text between the first '{' and the next '}', which Redis Cluster hashes. */
static size_t tag_of(const struct name *name, const char **out)
{
    const char *open = memchr(name->text, '{', name->len);
    fuzz_must(open, "there is a hash tag");
    const char *close = memchr(open, '}', (size_t)(name->text + name->len - open));
    fuzz_must(close && close > open + 1, "it is closed, and not empty");
    fuzz_must(close + 1 == name->text + name->len, "it goes on to the end");
    *out = open + 1;
    return (size_t)(close - open - 1);
}

/* Compute the slot by its definition, one bit at a time. */
static unsigned slot_of(const char *tag, size_t len)
{
    unsigned crc = 0;
    for (size_t i = 0; i < len; i++) {
        crc ^= (unsigned)(unsigned char)tag[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return crc % REDIS_CLUSTER_SLOTS;
}

/* Decode the tag into its key; of a long key decode the beginning, and leave the digest in *rest. */
static size_t unescape(const char *tag, size_t len, unsigned char *key, const char **rest)
{
    size_t n = 0;
    *rest = NULL;
    for (size_t i = 0; i < len; i++) {
        if (tag[i] == '%' && i + 1 < len && tag[i + 1] == '#') {
            *rest = tag + i + 2;
            fuzz_must(len - i - 2 == 64, "a digest has 64 digits, and is the last");
            return n;
        }
        if (tag[i] == '%') {
            char digits[3] = { 0 };
            fuzz_must(i + 2 < len, "an escape is whole");
            memcpy(digits, tag + i + 1, 2);
            key[n++] = (unsigned char)strtoul(digits, NULL, 16);
            i += 2;
        } else {
            key[n++] = (unsigned char)tag[i];
        }
    }
    return n;
}

static void check(const char *prefix, const char *limit, const char *key, size_t len, const struct name *name)
{
    unsigned char decoded[REDIS_KEY_MAX];
    const char *tag, *digest;
    const size_t tag_len = tag_of(name, &tag);
    const size_t prefix_len = strlen(prefix), limit_len = strlen(limit);
    fuzz_must(tag == name->text + prefix_len + limit_len + 2 && memcmp(name->text, prefix, prefix_len) == 0 &&
                  memcmp(name->text + prefix_len, limit, limit_len) == 0 &&
                  memcmp(name->text + prefix_len + limit_len, ":{", 2) == 0,
              "prefix and limit stand before the tag");
    fuzz_must(redis_key_slot(weir_key(key, len)) == slot_of(tag, tag_len), "the slot is the tag's");
    const size_t n = unescape(tag, tag_len, decoded, &digest);
    fuzz_must(memcmp(decoded, key, n) == 0, "the key comes back");
    if (!digest) {
        fuzz_must(n == len, "all of it");
        return;
    }
    char hex[SHA256_DIGEST_STRING_LENGTH];
    fuzz_must(len > REDIS_KEY_WHOLE && n == REDIS_KEY_BEGINNING, "a long key's beginning");
    fuzz_must(SHA256Data((const uint8_t *)key, len, hex) && memcmp(hex, digest, 64) == 0, "its digest");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const limits[] = { "api", "a", "-._", "login-2" };
    static const char *const prefixes[] = { "weir:", "", "p" };
    struct feed feed = feed_of(data, size);
    const uint8_t choice = feed_byte(&feed);
    const char *prefix = prefixes[choice % 3], *limit = limits[choice / 4 % 4], *other = limits[choice / 16 % 4];
    const uint8_t repeats = feed_byte(&feed);
    size_t lens[2];
    char *keys[2] = { feed_bytes(&feed, WEIR_MAX_KEY_LEN, &lens[0]), feed_bytes(&feed, WEIR_MAX_KEY_LEN, &lens[1]) };
    for (int i = 0; i < 2; i++) { /* a few bytes make a long key */
        const size_t times = choice & 64 ? (size_t)repeats + 1 : 1;
        if (lens[i] == 0 || lens[i] * times > WEIR_MAX_KEY_LEN)
            continue;
        char *longer = malloc(lens[i] * times);
        fuzz_must(longer, "there is memory");
        for (size_t j = 0; j < times; j++)
            memcpy(longer + j * lens[i], keys[i], lens[i]);
        free(keys[i]);
        keys[i] = longer;
        lens[i] *= times;
    }
    if (lens[0] > 0 && lens[1] > 0) {
        const struct name first = name_of(prefix, limit, keys[0], lens[0]);
        const struct name second = name_of(prefix, other, keys[1], lens[1]);
        const struct name third = name_of(prefix, other, keys[0], lens[0]);
        const char *tag, *other_tag;
        check(prefix, limit, keys[0], lens[0], &first);
        check(prefix, other, keys[1], lens[1], &second);
        const bool is_same = strcmp(limit, other) == 0 && lens[0] == lens[1] && memcmp(keys[0], keys[1], lens[0]) == 0;
        fuzz_must(is_same == (first.len == second.len && memcmp(first.text, second.text, first.len) == 0),
                  "two pairs share a name exactly if they are one");
        const size_t len = tag_of(&first, &tag);
        fuzz_must(len == tag_of(&third, &other_tag) && memcmp(tag, other_tag, len) == 0,
                  "all limits of a key lie in one slot");
    }
    free(keys[0]);
    free(keys[1]);
    return 0;
}
