/* key_hash.h - the keyed hash of a limit's keys.
 *
 * Every decision by key computes one, so it is short for keys of up to 16 bytes. With a key's two words x and y, padded
 * with zeros, and secret numbers A, B, C and D of 128 bits each:
 *
 *     sum  = (A + x) * (B + y) + C + D * length     modulo 2^128
 *     hash = the upper half of sum, mixed by a bijection
 *
 * The upper half is strongly universal (Lemire and Kaser, "Strongly universal string hashing is fast", 2014,
 * Multilinear-HM): over all secrets, the hashes of any two keys are uniform and independent of each other. The same
 * holds for any bits of them. So keys that were chosen without the secret have, on average, as many pairs in the same
 * place of a table as random keys. The bijection breaks up the regular distances that keys at regular distances would
 * have.
 *
 * SipHash-1-3 (hash.h) takes four times as many instructions and promises more: it hides the secret even from a party
 * that sees hashes. No caller sees the hash of a key. SECURITY.md says what a party can do that measures times. Longer
 * keys have SipHash-1-3.
 */
#ifndef CORE_GROUND_KEY_HASH_H
#define CORE_GROUND_KEY_HASH_H

#include "core/ground/arith.h"
#include "core/ground/hash.h"

/* Numbers derived from a limit's secret: for keys of 16 bytes, ... */
struct key_hash {
    arith_wide a, b;
    arith_wide c; /* C + D * 16 */
    uint64_t factor;
};

/* ... and for others. */
struct key_hash_rest {
    arith_wide d;
    struct sip begun;
};

/* Make both of a secret. */
void key_hash_make(const struct hash_secret *secret, struct key_hash *hash, struct key_hash_rest *rest);

/* Return the hash of a key of any length. */
uint64_t key_hash_any(const struct key_hash *hash, const struct key_hash_rest *rest, const void *data, size_t len);

/* Return it if only the secret is known. Takes ten times as long. */
uint64_t key_hash_by(const struct hash_secret *secret, const void *data, size_t len);

static inline uint64_t key_hash_words(const struct key_hash *hash, arith_wide c, uint64_t x, uint64_t y)
{
    const arith_wide sum = (hash->a + x) * (hash->b + y) + c;
    uint64_t upper = (uint64_t)(sum >> 64);
    upper = (upper ^ upper >> 32) * hash->factor;
    return upper ^ upper >> 32;
}

/* Return the hash of a key of 16 bytes. */
static inline uint64_t key_hash_16(const struct key_hash *hash, const void *data)
{
    const unsigned char *bytes = data;
    return key_hash_words(hash, hash->c, word_at(bytes), word_at(bytes + 8));
}

#endif
