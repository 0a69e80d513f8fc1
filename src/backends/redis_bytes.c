/* redis_bytes.c - a buffer that grows, and Redis' way to write a command into it. */
#include "backends/redis_bytes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 4096
#define HEAD_MAX 24 /* '$' or '*', a length of up to 20 digits, CR, LF */

char *redis_bytes_room(struct redis_bytes *bytes, size_t more)
{
    if (bytes->failed)
        return NULL;
    if (bytes->room - bytes->len < more) {
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

static size_t digits_write(char *out, uint64_t number)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (size_t i = 0; i < count; i++)
        out[i] = digits[count - 1 - i];
    return count;
}

static void head(struct redis_bytes *bytes, char kind, size_t number)
{
    char *at = redis_bytes_room(bytes, HEAD_MAX);
    if (!at)
        return;
    at[0] = kind;
    size_t len = 1 + digits_write(at + 1, number);
    at[len++] = '\r';
    at[len++] = '\n';
    bytes->len += len;
}

void redis_bytes_command(struct redis_bytes *bytes, size_t count)
{
    head(bytes, '*', count);
}

void redis_bytes_string_head(struct redis_bytes *bytes, size_t len)
{
    head(bytes, '$', len);
}

void redis_bytes_string(struct redis_bytes *bytes, const void *data, size_t len)
{
    redis_bytes_string_head(bytes, len);
    redis_bytes_add(bytes, data, len);
    redis_bytes_add(bytes, "\r\n", 2);
}

void redis_bytes_text(struct redis_bytes *bytes, const char *text)
{
    redis_bytes_string(bytes, text, strlen(text));
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
