/* key_hash.c - hashes keys of any length, and makes of a secret what that takes. */
#include "core/ground/key_hash.h"

/* Derive a number from the secret alone: SipHash-1-3 of a string of one byte, which is not the hash of any key. */
static uint64_t drawn(const struct hash_secret *secret, unsigned char number)
{
    return siphash13(secret, &number, 1);
}

static arith_wide drawn_wide(const struct hash_secret *secret, unsigned char number)
{
    return (arith_wide)drawn(secret, number) << 64 | drawn(secret, number + 1);
}

void key_hash_make(const struct hash_secret *secret, struct key_hash *hash, struct key_hash_rest *rest)
{
    *rest = (struct key_hash_rest){ .d = drawn_wide(secret, 6), .begun = sip_begin(secret) };
    *hash = (struct key_hash){
        .a = drawn_wide(secret, 0),
        .b = drawn_wide(secret, 2),
        .c = drawn_wide(secret, 4) + rest->d * 16,
        .factor = drawn(secret, 8) | 1,
    };
}

uint64_t key_hash_any(const struct key_hash *hash, const struct key_hash_rest *rest, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    if (len > 16)
        return siphash13_from(&rest->begun, bytes, len);
    const arith_wide c = hash->c - rest->d * (16 - len);
    if (len < 8)
        return key_hash_words(hash, c, rest_of(bytes, len), 0);
    return key_hash_words(hash, c, word_at(bytes), len == 16 ? word_at(bytes + 8) : rest_of(bytes, len));
}

uint64_t key_hash_by(const struct hash_secret *secret, const void *data, size_t len)
{
    struct key_hash hash;
    struct key_hash_rest rest;
    key_hash_make(secret, &hash, &rest);
    return key_hash_any(&hash, &rest, data, len);
}
