/* bytes.c - a buffer that grows, and the commands of Redis written into it. */
#include "backends/redis/wire/bytes.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 4096
#define HEAD_MAX 24 /* '$' or '*', a length of up to 20 digits, CR, LF */

char *redis_bytes_room(struct redis_bytes *bytes, size_t more)
{
    if (bytes->failed)
        return NULL;
    if (!bytes->data || bytes->room - bytes->len < more) { /* also if more == 0: data is never NULL afterwards */
        size_t room = bytes->room ? bytes->room : FIRST_ROOM;
        while (room - bytes->len < more)
            room *= 2;
        char *data = realloc(bytes->data, room);
        if (!data) {
            bytes->failed = true;
            return NULL;
        }
        bytes->data = data;
        bytes->room = room;
    }
    return bytes->data + bytes->len;
}

void redis_bytes_add(struct redis_bytes *bytes, const void *data, size_t len)
{
    char *at = redis_bytes_room(bytes, len);
    if (!at || len == 0)
        return;
    memcpy(at, data, len);
    bytes->len += len;
}

/* Most lengths have one digit or two. */
static inline size_t digits_write(char *out, uint64_t number)
{
    size_t count = number < 10 ? 1 : 2;
    for (uint64_t left = number / 100; left > 0; left /= 10)
        count++;
    for (size_t i = count; i-- > 0; number /= 10)
        out[i] = (char)('0' + number % 10);
    return count;
}

static inline size_t head_write(char *out, char kind, uint64_t number)
{
    out[0] = kind;
    size_t len = 1 + digits_write(out + 1, number);
    out[len++] = '\r';
    out[len++] = '\n';
    return len;
}

static void bytes_add_head(struct redis_bytes *bytes, char kind, uint64_t number)
{
    char *at = redis_bytes_room(bytes, HEAD_MAX);
    if (at)
        bytes->len += head_write(at, kind, number);
}

void redis_bytes_command(struct redis_bytes *bytes, size_t count)
{
    bytes_add_head(bytes, '*', count);
}

void redis_bytes_string_head(struct redis_bytes *bytes, size_t len)
{
    bytes_add_head(bytes, '$', len);
}

void redis_bytes_string(struct redis_bytes *bytes, const void *data, size_t len)
{
    char *at = redis_bytes_room(bytes, HEAD_MAX + len + 2);
    if (!at)
        return;
    size_t head_len = head_write(at, '$', len);
    memcpy(at + head_len, data, len);
    memcpy(at + head_len + len, "\r\n", 2);
    bytes->len += head_len + len + 2;
}

void redis_bytes_text(struct redis_bytes *bytes, const char *text)
{
    redis_bytes_string(bytes, text, strlen(text));
}

void redis_bytes_words(struct redis_bytes *bytes, size_t more, ...)
{
    va_list words, counted;
    va_start(words, more);
    va_copy(counted, words);
    while (va_arg(counted, const char *))
        more++;
    va_end(counted);
    redis_bytes_command(bytes, more);
    for (const char *word; (word = va_arg(words, const char *));)
        redis_bytes_text(bytes, word);
    va_end(words);
}

void redis_bytes_number(struct redis_bytes *bytes, int64_t number)
{
    char digits[20];
    assert(number >= 0);
    redis_bytes_string(bytes, digits, digits_write(digits, (uint64_t)number));
}

void redis_bytes_clear(struct redis_bytes *bytes, bool secret)
{
    if (secret && bytes->len > 0)
        explicit_bzero(bytes->data, bytes->len);
    bytes->len = 0;
    bytes->failed = false;
}

void redis_bytes_free(struct redis_bytes *bytes)
{
    redis_bytes_clear(bytes, true);
    free(bytes->data);
    *bytes = (struct redis_bytes){ 0 };
}
