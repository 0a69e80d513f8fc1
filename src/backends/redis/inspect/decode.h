/* decode.h - reads a name and a value of Redis as a key and its states, without knowing the limit's policy. */
#ifndef BACKENDS_REDIS_INSPECT_DECODE_H
#define BACKENDS_REDIS_INSPECT_DECODE_H

#include "backends/redis/flight/key.h"
#include "backends/redis/flight/state.h"

/* The most bytes that a key's value takes: a head, and two states. */
#define REDIS_VALUE_MAX (1 + 7 + 2 + 2 * REDIS_STATE_MAX)

/* Read a key's value at the server's time `now_us` into the states of *out. False: it is not weir's; the states then
 * mean nothing. */
bool redis_value_decode(const unsigned char *bytes, size_t len, int64_t now_us, struct weir_inspected *out);

/* Read a name that redis_key_write() may have written under this prefix. `room` receives the key, up to
 * REDIS_KEY_WHOLE bytes, and out->key points to it. False: it is another program's. */
bool redis_name_decode(const char *name, size_t len, const char *prefix, unsigned char room[REDIS_KEY_WHOLE],
                       struct weir_inspected *out);

#endif
