/* key.c - writes the names of keys in Redis and computes their slots. */
#include "backends/redis/flight/key.h"

#include <assert.h>
#include <sha2.h>

static const char hex_upper[] = "0123456789ABCDEF";
static const char hex_lower[] = "0123456789abcdef";

static char *put_text(char *out, const char *text)
{
    size_t len = strlen(text);
    memcpy(out, text, len);
    return out + len;
}

static bool is_escaped(unsigned char byte)
{
    return byte == '%' || byte == '{' || byte == '}';
}

static char *put_escaped(char *out, const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (is_escaped(bytes[i])) {
            *out++ = '%';
            *out++ = hex_upper[bytes[i] >> 4];
            *out++ = hex_upper[bytes[i] & 15];
        } else {
            *out++ = (char)bytes[i];
        }
    }
    return out;
}

#define DIGEST_LEN (2 + 2 * SHA256_DIGEST_LENGTH)

static char *put_digest(char *out, const unsigned char *bytes, size_t len)
{
    SHA2_CTX context;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256Init(&context);
    SHA256Update(&context, bytes, len);
    SHA256Final(digest, &context);
    *out++ = '%';
    *out++ = '#';
    for (size_t i = 0; i < sizeof digest; i++) {
        *out++ = hex_lower[digest[i] >> 4];
        *out++ = hex_lower[digest[i] & 15];
    }
    return out;
}

/* Write the text between the braces. */
static char *put_tag(char *out, struct weir_key key)
{
    assert(key.len >= 1 && key.len <= WEIR_MAX_KEY_LEN);
    if (key.len <= REDIS_KEY_WHOLE)
        return put_escaped(out, key.data, key.len);
    return put_digest(put_escaped(out, key.data, REDIS_KEY_BEGINNING), key.data, key.len);
}

size_t redis_key_len(const char *prefix, const char *limit_name, struct weir_key key)
{
    const unsigned char *bytes = key.data;
    const bool is_whole = key.len <= REDIS_KEY_WHOLE;
    const size_t written = is_whole ? key.len : REDIS_KEY_BEGINNING;
    size_t len = strlen(prefix) + strlen(limit_name) + 3 + written + (is_whole ? 0 : DIGEST_LEN);
    for (size_t i = 0; i < written; i++)
        len += is_escaped(bytes[i]) ? 2 : 0;
    return len;
}

size_t redis_key_write(const char *prefix, const char *limit_name, struct weir_key key, char *out)
{
    assert(strlen(prefix) <= REDIS_PREFIX_MAX && strlen(limit_name) <= WEIR_MAX_NAME_LEN);
    char *at = put_text(put_text(out, prefix), limit_name);
    *at++ = ':';
    *at++ = '{';
    at = put_tag(at, key);
    *at++ = '}';
    return (size_t)(at - out);
}

/* ---- Slots ---- */

/* CRC16 of a byte, with XMODEM's polynomial x^16 + x^12 + x^5 + 1. The CRC of a xor is the xor of the CRCs, so those of
 * the eight bits give all 256. */
#define IF(byte, bit, crc) ((byte) & (bit) ? (crc) : 0)
#define CRC(byte)                                                                                        \
    (IF(byte, 0x01, 0x1021) ^ IF(byte, 0x02, 0x2042) ^ IF(byte, 0x04, 0x4084) ^ IF(byte, 0x08, 0x8108) ^ \
     IF(byte, 0x10, 0x1231) ^ IF(byte, 0x20, 0x2462) ^ IF(byte, 0x40, 0x48C4) ^ IF(byte, 0x80, 0x9188))
#define CRC_4(byte) CRC(byte), CRC((byte) + 1), CRC((byte) + 2), CRC((byte) + 3)
#define CRC_16(byte) CRC_4(byte), CRC_4((byte) + 4), CRC_4((byte) + 8), CRC_4((byte) + 12)
#define CRC_64(byte) CRC_16(byte), CRC_16((byte) + 16), CRC_16((byte) + 32), CRC_16((byte) + 48)

static const uint16_t crcs[256] = { CRC_64(0), CRC_64(64), CRC_64(128), CRC_64(192) };

unsigned redis_key_slot(struct weir_key key)
{
    char tag[REDIS_TAG_MAX];
    const char *end = put_tag(tag, key);
    uint16_t crc = 0;
    for (const char *at = tag; at < end; at++)
        crc = (uint16_t)(crc << 8 ^ crcs[crc >> 8 ^ (unsigned char)*at]);
    return crc % REDIS_CLUSTER_SLOTS;
}
