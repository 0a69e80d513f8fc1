/* redis_wire.h - replies of Redis, read by hiredis' reader without an allocation for each.
 *
 * weir's scripts are answered by a string, a status, an error or a number; a list, or more than REDIS_WIRE_MAX bytes
 * that make no whole reply, are not answers to anything they were asked, and break the connection. Where lists are
 * allowed, the first strings of one are kept, and all else in it is read and dropped.
 */
#ifndef BACKENDS_REDIS_WIRE_H
#define BACKENDS_REDIS_WIRE_H

#include "backends/redis_bytes.h"

#include <hiredis/read.h>

#define REDIS_WIRE_MAX (1 << 20) /* bytes; the longest answer, 64 sliding windows of 1024 blocks, is a quarter of it */
#define REDIS_WIRE_ITEMS 4       /* of a list that are kept */
#define REDIS_WIRE_ITEM_MAX 1024 /* bytes of one that is kept */
#define REDIS_WIRE_LIST_MAX \
    1024 /* elements of a list, and of one in it; lists stand in lists three deep, as for ROLE */

enum redis_reply_kind {
    REDIS_REPLY_IS_STRING,
    REDIS_REPLY_IS_STATUS,
    REDIS_REPLY_IS_ERROR,
    REDIS_REPLY_IS_NIL,
    REDIS_REPLY_IS_LIST, /* see redis_wire_item() */
    REDIS_REPLY_IS_OTHER
};

struct redis_reply {
    enum redis_reply_kind kind;
    const char *text; /* not ended by a NUL; valid until the next reply is read */
    size_t len;
};

struct redis_wire {
    redisReader *reader;
    struct redis_bytes text; /* of the reply at hand; of a list the strings kept, one after the other */
    enum redis_reply_kind kind;
    unsigned kept; /* of a list at hand, which of its first elements are strings: a bit each */
    struct {
        size_t at, len;
    } items[REDIS_WIRE_ITEMS];
};

/* 0, or -1: out of memory. */
int redis_wire_init(struct redis_wire *wire);

/* Forget what was read: a new connection begins, without lists. 0, or -1: out of memory. */
int redis_wire_restart(struct redis_wire *wire);

/* Whether a list is an answer from now on, between two replies. */
void redis_wire_allow_lists(struct redis_wire *wire, bool allowed);

void redis_wire_free(struct redis_wire *wire);

/* Take in what came from the connection: 0, or -1: too much without a whole reply, or out of memory. */
int redis_wire_feed(struct redis_wire *wire, const char *data, size_t len);

/* 1: *out is the next reply; 0: there is no whole one yet; -1: what came is none. */
int redis_wire_next(struct redis_wire *wire, struct redis_reply *out);

/* Element `i` of the list that was read last, valid as long as it, no NUL after it; NULL if it has none or that is no
 * string. */
const char *redis_wire_item(const struct redis_wire *wire, size_t i, size_t *len);

/* Whether that element is this text. */
bool redis_wire_item_is(const struct redis_wire *wire, size_t i, const char *text);

/* Whether the reply is an error of this kind, which is its first word. */
bool redis_reply_is_error(const struct redis_reply *reply, const char *word);

#endif
