/* bytes.h - a buffer that grows, and Redis' way to write a command into it.
 *
 * A command is an array of strings, each with its length before it (RESP). hiredis has a formatter for that; it makes
 * a new string for each command, and a decision must not allocate. A buffer keeps its room.
 *
 * An allocation that fails is remembered: what is written after it is lost, and `failed` says so once, at the end.
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

/* Room for `more` bytes at the end, for the caller to fill and to add to `len`; NULL if there is no memory. */
char *redis_bytes_room(struct redis_bytes *bytes, size_t more);

void redis_bytes_add(struct redis_bytes *bytes, const void *data, size_t len);

/* The head of a command of `count` strings, and each of them. */
void redis_bytes_command(struct redis_bytes *bytes, size_t count);
void redis_bytes_string(struct redis_bytes *bytes, const void *data, size_t len);
void redis_bytes_text(struct redis_bytes *bytes, const char *text);
/* The head alone: the caller adds its `len` bytes, then CR LF. */
void redis_bytes_string_head(struct redis_bytes *bytes, size_t len);
void redis_bytes_number(struct redis_bytes *bytes, int64_t number);

/* Empty it, with all traces of what was in it if that is secret. The room stays. */
void redis_bytes_clear(struct redis_bytes *bytes, bool secret);

void redis_bytes_free(struct redis_bytes *bytes);

#endif
