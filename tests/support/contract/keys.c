/* keys.c - contract: keys are bytes, and different keys are counted apart. */
#include "contract/parts.h"

static struct weir_decision taken_by(weir_limit *limit, const void *data, size_t len)
{
    struct weir_decision decision;
    must_succeed(weir_try(limit, weir_key(data, len), 1, &decision));
    return decision;
}

CONTRACT_TEST(CONTRACT_COUNTS, keys_of_every_byte_value_are_kept_apart, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1 period=1h");
    for (int round = 0; round < 2; round++) {
        for (int byte = 0; byte < 256; byte++) {
            const char key[] = { (char)byte, 'x', (char)byte };
            for (size_t len = 1; len <= 3; len++)
                ck_assert_msg(taken_by(limit, key, len).allowed == (round == 0), "byte %d, length %zu", byte, len);
        }
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, keys_of_every_length_are_kept_apart_and_copied, 10)
{
    static char key[WEIR_MAX_KEY_LEN];
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1 period=1h");
    for (int round = 0; round < 2; round++) {
        for (size_t len = 1; len <= sizeof key; len = len < 130 ? len + 1 : len + len / 5) {
            memset(key, 'k', sizeof key); /* each is a prefix of the next */
            ck_assert_msg(taken_by(limit, key, len).allowed == (round == 0), "length %zu", len);
            memset(key, '?', sizeof key);
        }
        memset(key, 'k', sizeof key);
        ck_assert(taken_by(limit, key, sizeof key).allowed == (round == 0));
        key[sizeof key - 1] = 'l';
        ck_assert(taken_by(limit, key, sizeof key).allowed == (round == 0));
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, keys_with_nul_braces_and_line_ends_are_only_bytes, 10)
{
    static const struct {
        const char *data;
        size_t len;
    } keys[] = { { "\0", 1 },  { "\0\0", 2 },     { "a\0b", 3 },     { "a\0c", 3 },   { "a", 1 },
                 { "{", 1 },   { "}", 1 },        { "{}", 2 },       { "{a}{b}", 6 }, { "\r\n", 2 },
                 { "\n", 1 },  { "%s%n", 4 },     { "%7B", 3 },      { "%", 1 },      { ":", 1 },
                 { "a:b", 3 }, { "\xff\xfe", 2 }, { "\xc3\x28", 2 }, { " ", 1 },      { "*3\r\n$3\r\n", 8 } };
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1 period=1h");
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
            ck_assert_msg(taken_by(limit, keys[i].data, keys[i].len).allowed == (round == 0), "key %zu", i);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_key_under_another_limit_is_another_key, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *ab = scene_define_text(&scene, "ab", "fixed_window limit=1 period=1h");
    weir_limit *a = scene_define_text(&scene, "a", "fixed_window limit=1 period=1h");
    ck_assert(taken(ab, "c", 1).allowed);
    ck_assert(taken(a, "c", 1).allowed);
    ck_assert(taken(a, "bc", 1).allowed);
    ck_assert(!taken(ab, "c", 1).allowed);
    must_succeed(weir_reset(ab, weir_key_text("c")));
    ck_assert(taken(ab, "c", 1).allowed);
    ck_assert(!taken(a, "c", 1).allowed);
}
