/* test_hash.c - SipHash-1-3 agrees with another implementation.
 *
 * The vectors are CPython 3.11's hashes of bytes(range(n)), n = 1 to 64, which are SipHash-1-3 (sys.hash_info says
 * siphash13; the empty string is special there, and so is a hash of -1, which none of these is). For the first row
 * PYTHONHASHSEED was 0, which makes a secret of zeroes; for the second it was 2026, from which CPython makes the secret
 * by x = x * 214013 + 2531011 modulo 2^32, a byte (x >> 16) & 255 at a time:
 *
 *     PYTHONHASHSEED=0 python3 -c 'for n in range(1, 65): print(hex(hash(bytes(range(n))) & (2**64 - 1)))'
 */
#include "support.h"

#include "core/ground/hash.h"

#include <inttypes.h>
#include <stdlib.h>

enum { VECTORS = 64 };

static const struct {
    struct hash_secret secret;
    uint64_t hashes[VECTORS];
} rows[] = {
    { { 0, 0 },
      {
          UINT64_C(0x68a914128e01e473), UINT64_C(0x010bac45c41e3669), UINT64_C(0x4d4c9a4a8ef6e0ad),
          UINT64_C(0x7cc43f98813e4dbd), UINT64_C(0x5abe2169dff36275), UINT64_C(0xe3c25f87624f1cdb),
          UINT64_C(0x2f098ab0c751325a), UINT64_C(0xead411e67ebe2eea), UINT64_C(0x75927f9d95124362),
          UINT64_C(0xaf9f77a65ab51a1d), UINT64_C(0xfe64ce8b6617fcff), UINT64_C(0xa6baf4fb0f9fe1c2),
          UINT64_C(0xa0cf3211850f8e0d), UINT64_C(0x7f86049379fbfe67), UINT64_C(0xf30eb725bb91c9ea),
          UINT64_C(0x8972188433a5c5b7), UINT64_C(0x4883c49a2c009c1d), UINT64_C(0xadc2c0b63044067d),
          UINT64_C(0x091f4a3329f87d19), UINT64_C(0x639e355ae68c0100), UINT64_C(0xb17bef2cb5213239),
          UINT64_C(0xf8aeb1066236ccfe), UINT64_C(0x37332b1389daa4ff), UINT64_C(0x31185a47af932f3a),
          UINT64_C(0xebf352e82ae23e2f), UINT64_C(0xed36ff242fe478b2), UINT64_C(0x2454d97d299299df),
          UINT64_C(0x8cd57fe8130d0ac7), UINT64_C(0xbe98eb2faf0a0e85), UINT64_C(0xd427c34ee09470c6),
          UINT64_C(0x169739443111d49b), UINT64_C(0x31ef8061c910629b), UINT64_C(0x7fb71d24dfa4c9f6),
          UINT64_C(0x92771f49e836d389), UINT64_C(0x3c393cf6f0853bc3), UINT64_C(0xac77921fcc642bd3),
          UINT64_C(0x422a9751192ff266), UINT64_C(0xc680ae8a8c584ddf), UINT64_C(0x6c76b6d34bb6d26b),
          UINT64_C(0x95bc321ab41d8206), UINT64_C(0x908a3a97a6d37669), UINT64_C(0xfcaf3c64874dd0b4),
          UINT64_C(0xf689479b32b84a44), UINT64_C(0xd857641079efd1fd), UINT64_C(0x8b581578722633f7),
          UINT64_C(0x83cb09d35ea7bcd4), UINT64_C(0x8485f7f5ae725a0d), UINT64_C(0xfe1f2445ba50237f),
          UINT64_C(0x23cece041d7866b0), UINT64_C(0x416687480b336c09), UINT64_C(0xf15960da7e7f3892),
          UINT64_C(0xded6177b9826835a), UINT64_C(0xf80dae51668be6be), UINT64_C(0x17ecc6ee6647df18),
          UINT64_C(0x5220d642b4a52110), UINT64_C(0xa4f0cf4ba4adc016), UINT64_C(0xe5125bb26d1f2976),
          UINT64_C(0x851b0e75f580d256), UINT64_C(0x12605250a37e39ac), UINT64_C(0xd95a713568daebf1),
          UINT64_C(0xcdcf4a42ec0dd605), UINT64_C(0xa5c708712b617164), UINT64_C(0x385d3e39e5f37359),
          UINT64_C(0x75e05fd5bbc870c6),
      } },
    { { .k0 = UINT64_C(0x7acf78c71621b6fe), .k1 = UINT64_C(0xed62c1e85b536394) },
      {
          UINT64_C(0x48664e5965ef8061), UINT64_C(0x16d5d619a8bdad61), UINT64_C(0x31b3454649794267),
          UINT64_C(0x3bb63fa96486dd3c), UINT64_C(0x5ac65dbd44bd6693), UINT64_C(0xc498817cefe02e6a),
          UINT64_C(0x9346d6cdd9c99869), UINT64_C(0x1e365aefee8e7508), UINT64_C(0x0f7cc68f5d9f9c5f),
          UINT64_C(0x70d3336fb0b03ab2), UINT64_C(0xb8029f5930a041cf), UINT64_C(0x217d05c84c8d5cc6),
          UINT64_C(0x0b5098382c7dec11), UINT64_C(0xf92faabde9bb24cc), UINT64_C(0x6cab2bc554193e9d),
          UINT64_C(0x775c3704e16f6032), UINT64_C(0xc4d5e7bef8fc5c6a), UINT64_C(0x6fde444c534267a9),
          UINT64_C(0x429d5cd5d4ec9cdd), UINT64_C(0x8b648ba705a17d38), UINT64_C(0xe3ae00558a7c3d9c),
          UINT64_C(0x21f86f94ada1153a), UINT64_C(0x22f22d8086bf3880), UINT64_C(0xf2fb009caee90e77),
          UINT64_C(0xf0c8d369fde68cc4), UINT64_C(0x749fc087d557787e), UINT64_C(0x9aede9e51c1be080),
          UINT64_C(0x2d50713e5457d5ef), UINT64_C(0x51e980098d058606), UINT64_C(0xa6baecf515861d5d),
          UINT64_C(0xcc170a1ca420d7d2), UINT64_C(0x6625180184aa505a), UINT64_C(0x1f962a1ba926bd8c),
          UINT64_C(0x629218da81587c81), UINT64_C(0x384e8caa93c50e04), UINT64_C(0xf8d14e4c2bd62bce),
          UINT64_C(0x3df70a27b6b03fd4), UINT64_C(0x9c4aff8be6099a9f), UINT64_C(0x4e320a147c718dc4),
          UINT64_C(0xba9ce09d82949026), UINT64_C(0x90c1ffa10d4e9ad9), UINT64_C(0x086334c935a8d3ea),
          UINT64_C(0xdeb70f010feb1922), UINT64_C(0x043dc9671379f5a1), UINT64_C(0xf65bea5c799deacb),
          UINT64_C(0x7f13ce04a908bdea), UINT64_C(0xf140bc228cadaca2), UINT64_C(0x34f2dfb3457bbe2c),
          UINT64_C(0x9f76ec4139a6c041), UINT64_C(0x47ef94643764abd9), UINT64_C(0xaf147c15b42d08f5),
          UINT64_C(0x58385c1f17ad850e), UINT64_C(0xe765d24e0c728983), UINT64_C(0x13d2f39e2048104f),
          UINT64_C(0xd7695baecdc6577f), UINT64_C(0xfe63e0f16b915867), UINT64_C(0x1a9aff6897adefc0),
          UINT64_C(0x706b00e2f6b8709f), UINT64_C(0xb752283acff84286), UINT64_C(0xc151ca2a110c0cab),
          UINT64_C(0xa05ed222f5e77b10), UINT64_C(0x38cc04fede8d9741), UINT64_C(0x2f16238bf170b4c1),
          UINT64_C(0x4a1ff384691f1e3a),
      } },
};

TEST(hashes_are_those_of_an_independent_siphash_1_3, 30)
{
    unsigned char bytes[VECTORS + 8];
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        for (size_t offset = 0; offset < 8; offset++) { /* wherever in memory the key may lie */
            for (size_t i = 0; i < VECTORS; i++)
                bytes[offset + i] = (unsigned char)i;
            for (size_t len = 1; len <= VECTORS; len++) {
                uint64_t hash = siphash13(&rows[row].secret, bytes + offset, len);
                ck_assert_msg(hash == rows[row].hashes[len - 1], "row %zu, offset %zu, length %zu: %016" PRIx64, row,
                              offset, len, hash);
            }
        }
    }
}

TEST(the_empty_string_has_a_hash_that_depends_on_the_secret, 30)
{
    ck_assert_uint_ne(siphash13(&rows[0].secret, "", 0), siphash13(&rows[1].secret, "", 0));
    ck_assert_uint_eq(siphash13(&rows[0].secret, NULL, 0), siphash13(&rows[0].secret, "x", 0));
}

TEST(trailing_zeroes_of_a_key_change_its_hash, 30)
{
    static const unsigned char zeroes[64];
    for (size_t a = 0; a <= sizeof zeroes; a++)
        for (size_t b = 0; b < a; b++)
            must(siphash13(&rows[1].secret, zeroes, a) != siphash13(&rows[1].secret, zeroes, b), "a length is hashed");
}

TEST(each_drawn_hash_secret_is_different, 30)
{
    struct hash_secret secrets[16];
    for (size_t i = 0; i < 16; i++) {
        ck_assert_int_eq(hash_secret_draw(&secrets[i]), 0);
        ck_assert(secrets[i].k0 != 0 && secrets[i].k1 != 0 && secrets[i].k0 != secrets[i].k1);
        for (size_t j = 0; j < i; j++)
            ck_assert(secrets[i].k0 != secrets[j].k0 && secrets[i].k1 != secrets[j].k1);
    }
}

/* A long key is hashed to its last byte. */
TEST(every_byte_of_the_longest_key_changes_its_hash, 30)
{
    unsigned char *key = calloc(1, WEIR_MAX_KEY_LEN);
    ck_assert_ptr_nonnull(key);
    const uint64_t before = siphash13(&rows[1].secret, key, WEIR_MAX_KEY_LEN);
    for (size_t i = 0; i < WEIR_MAX_KEY_LEN; i += i < 64 || i >= WEIR_MAX_KEY_LEN - 64 ? 1 : 61) {
        key[i] = 1;
        must(siphash13(&rows[1].secret, key, WEIR_MAX_KEY_LEN) != before, "another byte, another hash");
        key[i] = 0;
    }
    ck_assert_uint_eq(siphash13(&rows[1].secret, key, WEIR_MAX_KEY_LEN), before);
    free(key);
}
