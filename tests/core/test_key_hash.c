/* test_key_hash.c - the hash of keys is the one that key_hash.h defines, and spreads keys.
 *
 * The vectors are of bytes(range(n)), n = 1 to 20, as computed from the definition by Python, whose numbers have no
 * width. The secrets are those of test_hash.c.
 */
#include "support.h"

#include "core/ground/key_hash.h"

#include <inttypes.h>
#include <stdio.h>

enum { VECTORS = 20 };

static const struct {
    struct hash_secret secret;
    uint64_t hashes[VECTORS];
} rows[] = {
    { { UINT64_C(0x0000000000000000), UINT64_C(0x0000000000000000) },
      {
          UINT64_C(0x57df8191a196f039), UINT64_C(0x48f75c8bee83f0b4), UINT64_C(0x824dce4d8d3fb614),
          UINT64_C(0x3dd263b10fe6a93a), UINT64_C(0x38f730d75b4269b1), UINT64_C(0xb7388a0b7b0df145),
          UINT64_C(0xbf25f9958482ff2c), UINT64_C(0x5bf9f5696f885e56), UINT64_C(0x4e172feccab58a7d),
          UINT64_C(0xc982bb89eb09aa24), UINT64_C(0x52ca5c34bbe61695), UINT64_C(0x78e08953666a3937),
          UINT64_C(0xb9891c0f6e6f1002), UINT64_C(0xd9b211ae87e0a059), UINT64_C(0x29d0002be6cf4dcb),
          UINT64_C(0xc1580ccea95c7cce), UINT64_C(0x4883c49a2c009c1d), UINT64_C(0xadc2c0b63044067d),
          UINT64_C(0x091f4a3329f87d19), UINT64_C(0x639e355ae68c0100),
      } },
    { { UINT64_C(0x7acf78c71621b6fe), UINT64_C(0xed62c1e85b536394) },
      {
          UINT64_C(0x5a4351c544040b74), UINT64_C(0xfc8d7931e6b09e34), UINT64_C(0x88d62931c4d45d16),
          UINT64_C(0xcbb35675cca7e7db), UINT64_C(0xfdccbdaf3ab7f6b8), UINT64_C(0x72f622a7ebad47c2),
          UINT64_C(0x49d088ebd99e88ad), UINT64_C(0xea6d9c48ea84b146), UINT64_C(0x78d6b2682707ab6d),
          UINT64_C(0x7ee939a14415496e), UINT64_C(0x6b9c79b9a67b5c55), UINT64_C(0x0b1de3592aa5f716),
          UINT64_C(0xbda406606d72c4bf), UINT64_C(0xa11f27c9acd93381), UINT64_C(0x05707e478ea2bed7),
          UINT64_C(0x49df97f6320bfb12), UINT64_C(0xc4d5e7bef8fc5c6a), UINT64_C(0x6fde444c534267a9),
          UINT64_C(0x429d5cd5d4ec9cdd), UINT64_C(0x8b648ba705a17d38),
      } },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

struct hasher {
    struct key_hash hash;
    struct key_hash_rest rest;
};

static struct hasher hasher_of(uint64_t k0, uint64_t k1)
{
    struct hasher made;
    key_hash_make(&(struct hash_secret){ k0, k1 }, &made.hash, &made.rest);
    return made;
}

static uint64_t hashed(const struct hasher *by, const void *data, size_t len)
{
    return key_hash_any(&by->hash, &by->rest, data, len);
}

TEST(hashes_of_keys_follow_their_definition, 30)
{
    unsigned char bytes[VECTORS + 8];
    for (size_t row = 0; row < ROWS; row++) {
        const struct hasher by = hasher_of(rows[row].secret.k0, rows[row].secret.k1);
        for (size_t offset = 0; offset < 8; offset++) { /* wherever in memory the key may lie */
            for (size_t i = 0; i < VECTORS; i++)
                bytes[offset + i] = (unsigned char)i;
            for (size_t len = 1; len <= VECTORS; len++) {
                const uint64_t hash = hashed(&by, bytes + offset, len);
                ck_assert_msg(hash == rows[row].hashes[len - 1], "row %zu, offset %zu, length %zu: %016" PRIx64, row,
                              offset, len, hash);
                ck_assert_uint_eq(key_hash_by(&rows[row].secret, bytes + offset, len), hash);
            }
            ck_assert_uint_eq(key_hash_16(&by.hash, bytes + offset), rows[row].hashes[15]);
        }
    }
}

TEST(trailing_zeroes_of_a_key_change_its_table_hash, 30)
{
    static const unsigned char zeroes[40];
    const struct hasher by = hasher_of(1, 2);
    for (size_t a = 1; a <= sizeof zeroes; a++)
        for (size_t b = 1; b < a; b++)
            must(hashed(&by, zeroes, a) != hashed(&by, zeroes, b), "a length is hashed");
}

TEST(every_bit_of_a_key_changes_its_hash, 30)
{
    const struct hasher by = hasher_of(3, 4);
    for (size_t len = 1; len <= 40; len++) {
        unsigned char key[40] = { 0 };
        const uint64_t before = hashed(&by, key, len);
        for (size_t bit = 0; bit < len * 8; bit++) {
            key[bit / 8] = (unsigned char)(1u << bit % 8);
            must(hashed(&by, key, len) != before, "another bit, another hash");
            key[bit / 8] = 0;
        }
        ck_assert_uint_eq(hashed(&by, key, len), before);
    }
}

/* ---- Keys at regular distances ---- */

enum { FAMILY = 4096, PLACES = 1024, SECRETS = 64, KINDS = 6 };

/* Write the n-th key of a family: 16 bytes. */
static void write_key(int kind, uint64_t n, char key[40])
{
    uint64_t words[2] = { 0, 0 };
    if (kind == 0) {
        snprintf(key, 40, "%016" PRIu64, n);
    } else if (kind == 1) {
        snprintf(key, 40, "user-%06" PRIu64 "-read", n);
    } else {
        words[kind % 2] = kind < 4 ? n : n << 48;
        memcpy(key, words, sizeof words);
    }
}

/* The parts of a hash that tables use: the upper bits for a shard, the lower half for a group, bits between them for a
 * tag, and the lowest bits for a bucket. */
static size_t place_of(int part, uint64_t hash)
{
    return part == 0   ? (size_t)(hash >> 54)
           : part == 1 ? (size_t)(((hash & UINT32_MAX) * PLACES) >> 32)
           : part == 2 ? (size_t)(hash >> 32) % PLACES
                       : (size_t)hash % PLACES;
}

/* Random keys have (FAMILY - 1) / PLACES * FAMILY / 2 pairs in the same place, which is the average over all secrets
 * for any keys. Regular ones mostly have fewer. Returns the pairs, in percent of that. */
static uint64_t pairs_percent(const struct hasher *by, int kind, int part)
{
    static uint32_t counts[PLACES];
    uint64_t pairs = 0;
    memset(counts, 0, sizeof counts);
    for (uint64_t n = 0; n < FAMILY; n++) {
        char key[40];
        write_key(kind, n, key);
        pairs += counts[place_of(part, key_hash_16(&by->hash, key))]++;
    }
    return pairs * 100 * PLACES * 2 / ((uint64_t)FAMILY * (FAMILY - 1));
}

TEST(keys_at_regular_distances_are_spread_like_random_ones, 60)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int part = 0; part < 4; part++) {
            uint64_t worst = 0, sum = 0;
            for (uint64_t i = 0; i < SECRETS; i++) {
                const struct hasher by = hasher_of(i, 0);
                const uint64_t percent = pairs_percent(&by, kind, part);
                worst = percent > worst ? percent : worst;
                sum += percent;
            }
            ck_assert_msg(sum / SECRETS < 110 && worst < 120,
                          "kind %d, part %d: %" PRIu64 " %% of the pairs, worst %" PRIu64, kind, part, sum / SECRETS,
                          worst);
        }
}
