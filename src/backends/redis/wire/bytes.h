/* bytes.h - a buffer that grows, and the commands of Redis written into it.
 *
 * A command is an array of strings, each preceded by its length (RESP). hiredis can format commands, but it allocates a
 * string for each, and a decision must not allocate. This buffer keeps its memory.
 *
 * A failed allocation is remembered in `failed`: later writes are lost, and the caller checks once, at the end.
 */
#ifndef BACKENDS_REDIS_WIRE_BYTES_H
#define BACKENDS_REDIS_WIRE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redis_bytes {
    char *data;
    size_t len, room;
    bool failed;
};

/* Make room at the end: the caller fills up to `more` bytes and adds their number to `len`. NULL: out of memory. */
char *redis_bytes_room(struct redis_bytes *bytes, size_t more);

void redis_bytes_add(struct redis_bytes *bytes, const void *data, size_t len);

/* Write the head of a command of `count` strings, or one of its strings. */
void redis_bytes_command(struct redis_bytes *bytes, size_t count);
void redis_bytes_string(struct redis_bytes *bytes, const void *data, size_t len);
void redis_bytes_text(struct redis_bytes *bytes, const char *text);
void redis_bytes_number(struct redis_bytes *bytes, int64_t number);

/* Write a string's head only: the caller adds the `len` bytes and CR LF. */
void redis_bytes_string_head(struct redis_bytes *bytes, size_t len);

/* Write a command that begins with these words, the last argument being NULL; the caller writes `more` strings after
 * it. */
void redis_bytes_words(struct redis_bytes *bytes, size_t more, ...) __attribute__((sentinel));

/* Empty the buffer, which keeps its memory. `secret`: overwrite what was in it. */
void redis_bytes_clear(struct redis_bytes *bytes, bool secret);

void redis_bytes_free(struct redis_bytes *bytes);

#endif
