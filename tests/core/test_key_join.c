/* test_key_join.c - keys of several parts: different parts never make the same key. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

static void assert_joined(const char *expected, size_t n, const struct weir_key *parts)
{
    char key[64];
    int len = weir_key_join(parts, n, key, sizeof key);
    ck_assert_int_eq(len, (int)strlen(expected));
    ck_assert_mem_eq(key, expected, (size_t)len);
    ck_assert_int_eq(weir_key_join(parts, n, NULL, 0), len);
    char small[64] = "untouched";
    ck_assert_int_eq(weir_key_join(parts, n, small, (size_t)len - 1), len);
    ck_assert_str_eq(small, "untouched");
}

TEST(weir_key_join_writes_netstrings, 30)
{
    struct weir_key parts[] = { weir_key_text("192.0.2.7"), weir_key_text("/api"), weir_key_text("") };
    assert_joined("192.0.2.7", 1, parts);
    assert_joined("9:192.0.2.7,4:/api,", 2, parts);
    assert_joined("9:192.0.2.7,4:/api,0:,", 3, parts);
    assert_joined("0:,0:,", 2, (struct weir_key[]){ weir_key(NULL, 0), weir_key(NULL, 0) });
}

/* Every pair of texts of up to three bytes out of an alphabet that contains what the encoding itself uses. */
TEST(different_pairs_make_different_keys, 30)
{
    static const char alphabet[] = "1:,";
    enum { TEXTS = 1 + 3 + 9 + 27, PAIRS = TEXTS * TEXTS };
    static char texts[TEXTS][4], keys[PAIRS][16];
    size_t count = 1;
    for (size_t i = 0; count < TEXTS; i++)
        for (size_t j = 0; j < 3; j++)
            snprintf(texts[count++], sizeof texts[0], "%.2s%c", texts[i], alphabet[j]);
    for (size_t i = 0; i < PAIRS; i++) {
        struct weir_key parts[] = { weir_key_text(texts[i / TEXTS]), weir_key_text(texts[i % TEXTS]) };
        int len = weir_key_join(parts, 2, keys[i], sizeof keys[i] - 1);
        ck_assert_int_lt(len, (int)sizeof keys[i]);
        keys[i][len] = '\0';
    }
    qsort(keys, PAIRS, sizeof keys[0], (int (*)(const void *, const void *))strcmp);
    for (size_t i = 1; i < PAIRS; i++)
        ck_assert_str_ne(keys[i - 1], keys[i]);
}

TEST(keys_out_of_range_are_refused, 30)
{
    char *large = calloc(1, WEIR_MAX_KEY_LEN + 1);
    ck_assert_ptr_nonnull(large);
    struct weir_key part = weir_key(large, WEIR_MAX_KEY_LEN), empty = weir_key("", 0);
    ck_assert_int_eq(weir_key_join(&part, 1, NULL, 0), WEIR_MAX_KEY_LEN);
    part.len++;
    ck_assert_int_eq(weir_key_join(&part, 1, NULL, 0), WEIR_EINVAL);
    part.len = SIZE_MAX;
    ck_assert_int_eq(weir_key_join((struct weir_key[]){ part, part }, 2, NULL, 0), WEIR_EINVAL);
    /* "65528:" and "," make it one byte too long with "0:," behind it, and one less is the longest. */
    part.len = WEIR_MAX_KEY_LEN - 9;
    ck_assert_int_eq(weir_key_join((struct weir_key[]){ part, empty }, 2, NULL, 0), WEIR_EINVAL);
    part.len--;
    ck_assert_int_eq(weir_key_join((struct weir_key[]){ part, empty }, 2, NULL, 0), WEIR_MAX_KEY_LEN);
    ck_assert_int_eq(weir_key_join(&empty, 1, NULL, 0), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_join(&part, 0, NULL, 0), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_join(NULL, 1, NULL, 0), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_join(&part, 1, NULL, 5), WEIR_EINVAL);
    char room[16];
    ck_assert_int_eq(weir_key_join((struct weir_key[]){ empty, { NULL, 5 } }, 2, room, sizeof room), WEIR_EINVAL);
    free(large);
}
