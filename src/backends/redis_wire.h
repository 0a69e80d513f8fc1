/* redis_wire.h - replies of Redis, read by hiredis' reader without an allocation for each.
 *
 * weir's commands are answered by a string, a status, an error or a number; an array, a nested one, or more than
 * REDIS_WIRE_MAX bytes that make no whole reply are not answers to anything weir asked, and break the connection.
 */
#ifndef BACKENDS_REDIS_WIRE_H
#define BACKENDS_REDIS_WIRE_H

#include "backends/redis_bytes.h"

#include <hiredis/read.h>

#define REDIS_WIRE_MAX (1 << 20) /* bytes; the longest answer, 64 sliding windows of 1024 blocks, is a quarter of it */

enum redis_reply_kind { REDIS_REPLY_IS_STRING, REDIS_REPLY_IS_STATUS, REDIS_REPLY_IS_ERROR, REDIS_REPLY_IS_OTHER };

struct redis_reply {
    enum redis_reply_kind kind;
    const char *text; /* not ended by a NUL; valid until the next reply is read */
    size_t len;
};

struct redis_wire {
    redisReader *reader;
    struct redis_bytes text; /* of the reply at hand */
    enum redis_reply_kind kind;
};

/* 0, or -1: out of memory. */
int redis_wire_init(struct redis_wire *wire);

/* Forget what was read: a new connection begins. 0, or -1: out of memory. */
int redis_wire_restart(struct redis_wire *wire);

void redis_wire_free(struct redis_wire *wire);

/* Take in what came from the connection: 0, or -1: too much without a whole reply, or out of memory. */
int redis_wire_feed(struct redis_wire *wire, const char *data, size_t len);

/* 1: *out is the next reply; 0: there is no whole one yet; -1: what came is none. */
int redis_wire_next(struct redis_wire *wire, struct redis_reply *out);

/* Whether the reply is an error of this kind, which is its first word. */
bool redis_reply_is_error(const struct redis_reply *reply, const char *word);

#endif
