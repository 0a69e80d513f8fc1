/* redis_key.c - writes the names of keys in Redis. */
#include "backends/redis_key.h"

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

static char *put_escaped(char *out, const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '%' || bytes[i] == '{' || bytes[i] == '}') {
            *out++ = '%';
            *out++ = hex_upper[bytes[i] >> 4];
            *out++ = hex_upper[bytes[i] & 15];
        } else {
            *out++ = (char)bytes[i];
        }
    }
    return out;
}

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

size_t redis_key_write(const char *prefix, const char *limit_name, struct weir_key key, char *out)
{
    assert(strlen(prefix) <= REDIS_PREFIX_MAX && strlen(limit_name) <= WEIR_MAX_NAME_LEN);
    assert(key.len >= 1 && key.len <= WEIR_MAX_KEY_LEN);
    const bool is_whole = key.len <= REDIS_KEY_WHOLE;
    char *at = put_text(put_text(out, prefix), limit_name);
    *at++ = ':';
    *at++ = '{';
    at = put_escaped(at, key.data, is_whole ? key.len : REDIS_KEY_BEGINNING);
    if (!is_whole)
        at = put_digest(at, key.data, key.len);
    *at++ = '}';
    return (size_t)(at - out);
}
