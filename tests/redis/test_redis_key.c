/* test_redis_key.c - names of keys in Redis: no two keys share one, no key ends its hash tag early, and slots match
 * Redis's. */
#include "support.h"

#include "backends/redis/flight/key.h"

#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>

static char name[REDIS_KEY_MAX];

/* Return `len` bytes `x`, which the caller frees. */
static char *run_of(size_t len)
{
    char *key = malloc(len);
    ck_assert_ptr_nonnull(key);
    memset(key, 'x', len);
    return key;
}

static void assert_name_is(struct weir_key key, const char *expected, size_t expected_len)
{
    size_t len = redis_key_write("weir:", "api", key, name);
    ck_assert_msg(len == expected_len && memcmp(name, expected, len) == 0, "\"%.*s\" is not \"%.*s\"", (int)len, name,
                  (int)expected_len, expected);
}

TEST(key_names_are_the_prefix_the_limit_and_the_key_in_braces, 30)
{
    static const struct {
        const char *key;
        size_t len;
        const char *expected;
    } rows[] = {
        { "a", 1, "weir:api:{a}" },
        { "203.0.113.7", 11, "weir:api:{203.0.113.7}" },
        { "{}", 2, "weir:api:{%7B%7D}" },
        { "{a}{b}", 6, "weir:api:{%7Ba%7D%7Bb%7D}" },
        { "%", 1, "weir:api:{%25}" },
        { "%7B", 3, "weir:api:{%257B}" },
        { "%s%n", 4, "weir:api:{%25s%25n}" },
        { "a\r\nb", 4, "weir:api:{a\r\nb}" },
        { "*3\r\n$3\r\nDEL", 11, "weir:api:{*3\r\n$3\r\nDEL}" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_name_is(weir_key(rows[i].key, rows[i].len), rows[i].expected, strlen(rows[i].expected));
    assert_name_is(weir_key("\0", 1), "weir:api:{\0}", 12);
    assert_name_is(weir_key("\0\0\xff", 3), "weir:api:{\0\0\xff}", 14);
}

TEST(every_byte_except_percent_and_braces_is_written_unchanged, 30)
{
    for (int byte = 0; byte < 256; byte++) {
        const char key = (char)byte;
        const bool is_escaped = key == '%' || key == '{' || key == '}';
        char expected[16] = "weir:api:{";
        size_t len = 10;
        if (is_escaped)
            len += (size_t)snprintf(expected + len, sizeof expected - len, "%%%02X", (unsigned)byte);
        else
            expected[len++] = key;
        expected[len++] = '}';
        assert_name_is(weir_key(&key, 1), expected, len);
    }
}

/* FIPS 180-2's known answer for a million 'a' exceeds the longest key, so this one is of 513 'x', by coreutils:
 *     head -c 513 /dev/zero | tr '\0' x | sha256sum */
TEST(a_long_key_is_shortened_to_end_in_its_sha_256, 30)
{
    char *key = run_of(513);
    char expected[REDIS_KEY_MAX];
    int len = snprintf(expected, sizeof expected, "weir:api:{%.448s%%#%s}", key,
                       "35ade0090e64e74d6ad04204009c23a4e34b82bdf0f4f317fbcc5f26f9b10241");
    assert_name_is(weir_key(key, 513), expected, (size_t)len);
    free(key);

    /* the example of FIPS 180-2, appendix B.1, shows that libmd computes the same SHA-256 */
    char hex[SHA256_DIGEST_STRING_LENGTH];
    ck_assert_str_eq(SHA256Data((const uint8_t *)"abc", 3, hex),
                     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(lengths_are_bounded_and_change_form_at_513_bytes, 30)
{
    static const size_t lengths[] = { 1, 447, 448, 449, 511, 512, 513, 514, 4096, WEIR_MAX_KEY_LEN };
    char *plain = run_of(WEIR_MAX_KEY_LEN);
    char *braces = run_of(WEIR_MAX_KEY_LEN);
    memset(braces, '{', WEIR_MAX_KEY_LEN);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const size_t len = lengths[i];
        ck_assert_uint_eq(redis_key_write("weir:", "api", weir_key(plain, len), name),
                          11 + (len <= 512 ? len : 448 + 2 + 64));
        ck_assert_uint_eq(redis_key_write("weir:", "api", weir_key(braces, len), name),
                          11 + (len <= 512 ? 3 * len : 3 * 448 + 2 + 64));
    }

    /* The longest possible name fills its buffer to the last byte. */
    char prefix[REDIS_PREFIX_MAX + 1] = { 0 };
    char limit[WEIR_MAX_NAME_LEN + 1] = { 0 };
    memset(prefix, 'p', REDIS_PREFIX_MAX);
    memset(limit, 'l', WEIR_MAX_NAME_LEN);
    ck_assert_uint_eq(redis_key_write(prefix, limit, weir_key(braces, 512), name), REDIS_KEY_MAX);
    free(plain);
    free(braces);
}

TEST(each_byte_of_a_long_key_changes_its_name, 30)
{
    static char other[REDIS_KEY_MAX];
    char *key = run_of(WEIR_MAX_KEY_LEN);
    const size_t len = redis_key_write("weir:", "api", weir_key(key, WEIR_MAX_KEY_LEN), name);
    for (size_t i = 0; i < WEIR_MAX_KEY_LEN; i += i < 600 || i > WEIR_MAX_KEY_LEN - 64 ? 1 : 997) {
        key[i] = 'y';
        must(redis_key_write("weir:", "api", weir_key(key, WEIR_MAX_KEY_LEN), other) == len &&
                 memcmp(name, other, len) != 0,
             "another byte, another name");
        key[i] = 'x';
    }
    free(key);
}

/* A short key whose bytes equal a long key's written form must get a different name. */
TEST(no_short_key_is_written_like_a_shortened_one, 30)
{
    static char other[REDIS_KEY_MAX];
    char *key = run_of(513);
    const size_t len = redis_key_write("weir:", "api", weir_key(key, 513), name);
    const size_t inside = len - 11;
    const size_t other_len = redis_key_write("weir:", "api", weir_key(name + 10, inside), other);
    ck_assert(inside > 512 || memcmp(other + 10 + 448, "%25#", 4) == 0);
    ck_assert(other_len != len || memcmp(name, other, len) != 0);

    /* 446 bytes that look like a digest, short enough to be written in full. */
    char shorter[512];
    memcpy(shorter, name + 10, 440);
    memcpy(shorter + 440, name + 10 + 448, 66);
    const size_t shorter_len = redis_key_write("weir:", "api", weir_key(shorter, 506), other);
    ck_assert_uint_eq(shorter_len, 11 + 506 + 2);
    ck_assert_mem_eq(other + 10 + 440, "%25#", 4);
    free(key);
}

/* ---- Injective (fault F5): names are read back, and pairs are made to collide ---- */

static int hex_of(char c)
{
    return c >= 'A' ? c - 'A' + 10 : c - '0';
}

/* Return the key that a short name was made from, by reading the definition backwards. */
static size_t key_of(const char *text, size_t len, char *key)
{
    size_t key_len = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '%') {
            key[key_len++] = (char)(hex_of(text[i + 1]) * 16 + hex_of(text[i + 2]));
            i += 2;
        } else {
            key[key_len++] = text[i];
        }
    }
    return key_len;
}

/* Draw few different bytes, all dangerous ones, so that different keys are likely to be written alike. */
static size_t hostile_key(struct chance *chance, char *out, size_t most)
{
    static const char bytes[] = "%{}25B7D#:aA\r\n";
    const size_t len = (size_t)chance_between(chance, 1, (int64_t)most);
    for (size_t i = 0; i < len; i++)
        out[i] = bytes[chance_between(chance, 0, sizeof bytes - 1)]; /* the text's NUL is one of the bytes */
    return len;
}

TEST(two_pairs_of_limit_and_key_never_share_a_name, 60)
{
    static const char *const limits[] = { "a", "aa", "a.a", "b", "7B", "25", "a-25" };
    enum { LIMITS = sizeof limits / sizeof limits[0] };
    static char other[REDIS_KEY_MAX];
    char a[16], b[16], back[16];
    struct chance chance = chance_make(0);
    for (int64_t i = 0, pairs = steps_or(1000000); i < pairs; i++) {
        const char *limit_a = limits[chance_between(&chance, 0, LIMITS - 1)];
        const char *limit_b = limits[chance_between(&chance, 0, LIMITS - 1)];
        const size_t len_a = hostile_key(&chance, a, 6);
        size_t len_b = hostile_key(&chance, b, 6);
        if (chance_one_in(&chance, 4)) { /* a's own name, used as a key */
            const size_t inside = redis_key_write("", limit_a, weir_key(a, len_a), name) - strlen(limit_a) - 3;
            len_b = inside < sizeof b ? inside : sizeof b;
            memcpy(b, name + strlen(limit_a) + 2, len_b);
        }
        const bool is_same = strcmp(limit_a, limit_b) == 0 && len_a == len_b && memcmp(a, b, len_a) == 0;
        const size_t name_len = redis_key_write("w:", limit_a, weir_key(a, len_a), name);
        const size_t other_len = redis_key_write("w:", limit_b, weir_key(b, len_b), other);
        must((name_len == other_len && memcmp(name, other, name_len) == 0) == is_same, "equal pairs, equal names");

        const size_t before = 2 + strlen(limit_a) + 2;
        must(key_of(name + before, name_len - before - 1, back) == len_a && memcmp(back, a, len_a) == 0,
             "a name can be read back");
    }
}

/* Redis Cluster hashes the text between the first '{' and the next '}', unless it is empty. */
TEST(the_hash_tag_is_exactly_the_written_key, 60)
{
    static char tag[REDIS_KEY_MAX];
    static char key[1024];
    struct chance chance = chance_make(1);
    for (int64_t i = 0, keys = steps_or(1000000) / 50; i < keys; i++) {
        const size_t len = hostile_key(&chance, key, chance_one_in(&chance, 2) ? 8 : sizeof key);
        const size_t name_len = redis_key_write("weir:", "api", weir_key(key, len), name);
        const char *open = memchr(name, '{', name_len);
        must(open == name + 9, "the first brace is ours");
        const char *close = memchr(open, '}', name_len - 9);
        must(close == name + name_len - 1, "the first closing brace ends the name");
        must(close > open + 1, "the tag is not empty");

        /* The same key under another limit and prefix has the same tag, hence the same slot. */
        const size_t tag_len = redis_key_write("other/", "login.v2", weir_key(key, len), tag);
        const size_t shift = strlen("other/login.v2:{");
        must(tag_len - shift == name_len - 10 && memcmp(tag + shift, name + 10, name_len - 10) == 0, "the same tag");
    }
}

/* ---- Slots ---- */

/* Values from redis-cli CLUSTER KEYSLOT "weir:api:{...}" on Redis 7.0.15 in cluster mode. 123456789 gives the check
 * value of its CRC, 0x31C3. */
TEST(computed_slots_equal_those_of_the_server, 30)
{
    static const struct {
        const char *key;
        size_t len;
        unsigned slot;
    } rows[] = {
        { "123456789", 9, 0x31C3 % 16384 },
        { "a", 1, 15495 },
        { "203.0.113.7", 11, 8508 },
        { "{}", 2, 10163 },
        { "{a}{b}", 6, 10307 },
        { "%", 1, 10295 },
        { "%7B", 3, 12467 },
        { "\0", 1, 0 },
        { "\0\0\xff", 3, 7920 },
        { "a\r\nb", 4, 3608 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg(redis_key_slot(weir_key(rows[i].key, rows[i].len)) == rows[i].slot, "\"%s\": %u", rows[i].key,
                      redis_key_slot(weir_key(rows[i].key, rows[i].len)));
    char *key = run_of(513);
    ck_assert_uint_eq(redis_key_slot(weir_key(key, 512)), 3103);
    ck_assert_uint_eq(redis_key_slot(weir_key(key, 513)), 1481);
    free(key);
}

/* Compute the slot by its definition, one bit at a time, from the text that Redis Cluster finds between the braces. */
static unsigned slot_of_name(const char *text, size_t len)
{
    const char *open = memchr(text, '{', len);
    const char *close = memchr(open, '}', (size_t)(text + len - open));
    unsigned crc = 0;
    for (const char *at = open + 1; at < close; at++) {
        crc ^= (unsigned)(unsigned char)*at << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return crc % 16384;
}

TEST(slots_are_computed_from_the_written_names, 60)
{
    static const char *const limits[] = { "api", "login.v2", "-" };
    static char key[2048];
    struct chance chance = chance_make(2);
    for (int64_t i = 0, keys = steps_or(1000000) / 50; i < keys; i++) {
        size_t len;
        if (chance_one_in(&chance, 2)) {
            len = hostile_key(&chance, key, sizeof key);
        } else {
            len = (size_t)(chance_one_in(&chance, 2) ? chance_between(&chance, 505, 520)
                                                     : chance_between(&chance, 1, 64));
            for (size_t at = 0; at < len; at++)
                key[at] = (char)chance_next(&chance);
        }
        const unsigned slot = redis_key_slot(weir_key(key, len));
        for (size_t j = 0; j < sizeof limits / sizeof limits[0]; j++)
            must(slot_of_name(name, redis_key_write("weir:", limits[j], weir_key(key, len), name)) == slot,
                 "all limits of a key lie in its slot");
    }
}

/* Chi square over 64 equal ranges of slots is 63 on average, and exceeds 130 once in a million times. */
TEST(keys_spread_evenly_over_the_slots, 30)
{
    enum { KEYS = 64000, PARTS = 64 };
    static unsigned counts[PARTS];
    for (unsigned i = 0; i < KEYS; i++) {
        char key[32];
        const int len = snprintf(key, sizeof key, "10.%u.%u.%u", i % 7, i / 7 % 251, i / 7 / 251);
        counts[redis_key_slot(weir_key(key, (size_t)len)) / (16384 / PARTS)]++;
    }
    double sum = 0;
    for (size_t i = 0; i < PARTS; i++)
        sum += ((double)counts[i] - KEYS / PARTS) * ((double)counts[i] - KEYS / PARTS) / (KEYS / PARTS);
    ck_assert_msg(sum < 130, "chi square is %.0f", sum);
}
