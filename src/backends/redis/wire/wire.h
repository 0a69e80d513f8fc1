/* wire.h - replies of Redis, read by hiredis' reader without an allocation for each.
 *
 * weir's scripts are answered by a string, a status, an error or a number; a list, or more than REDIS_WIRE_MAX bytes
 * that make no whole reply, are not answers to anything they were asked, and break the connection. Where lists are
 * expected, what stands in one is shown to a visitor as it comes, and nothing of it is kept.
 */
#ifndef BACKENDS_REDIS_WIRE_WIRE_H
#define BACKENDS_REDIS_WIRE_WIRE_H

#include "backends/redis/wire/bytes.h"

#include <hiredis/read.h>

#define REDIS_WIRE_MAX (1 << 20) /* bytes; the longest answer, 64 sliding windows of 1024 blocks, is a quarter of it */
#define REDIS_WIRE_LIST_MAX (1 << 15) /* elements of a list; a map of slots has a range for each of 16384 at worst */
#define REDIS_WIRE_LIST_BYTES \
    (1 << 24)              /* of a reply where lists are expected: such a map, with 8 nodes in each range */
#define REDIS_WIRE_DEPTH 4 /* lists in lists; a map of slots has what a node says of itself in the fourth */

#define REDIS_WORD_SIZE 24 /* bytes of an error's first word, NUL included */

enum redis_reply_kind {
    REDIS_REPLY_IS_STRING,
    REDIS_REPLY_IS_STATUS,
    REDIS_REPLY_IS_ERROR,
    REDIS_REPLY_IS_NIL,
    REDIS_REPLY_IS_NUMBER,
    REDIS_REPLY_IS_LIST, /* which the visitor has seen */
    REDIS_REPLY_IS_OTHER
};

struct redis_reply {
    enum redis_reply_kind kind;
    const char *text; /* not ended by a NUL; valid until the next reply is read */
    size_t len;
    long long number; /* 0 if it is none */
};

/* What stands in a list and is no list itself. Neither number nor nil and without text it is something else. */
struct redis_wire_scalar {
    size_t depth;                   /* in how many lists it stands: 1 to REDIS_WIRE_DEPTH */
    size_t place[REDIS_WIRE_DEPTH]; /* its index, or its list's, in the outermost list, in the one in that, ... */
    bool is_number, is_nil;
    long long number;
    const char *text; /* of a string or a status, not ended by a NUL; valid during the call */
    size_t len;
};

/* False: this is no answer, and redis_wire_next() returns -1. Lists show themselves by their scalars alone: an empty one
 * is not seen. A reply may break off after any of them. */
typedef bool redis_wire_visit(void *user, const struct redis_wire_scalar *scalar);

struct redis_wire {
    redisReader *reader;
    struct redis_bytes text; /* of the reply at hand */
    enum redis_reply_kind kind;
    long long number;
    size_t pending;          /* bytes since the last whole reply */
    redis_wire_visit *visit; /* NULL: a list is no answer */
    void *user;
};

/* 0, or -1: out of memory. */
int redis_wire_init(struct redis_wire *wire);

/* Forget what was read: a new connection begins, without lists. 0, or -1: out of memory. */
int redis_wire_restart(struct redis_wire *wire);

/* From now on, between two replies, lists are answers and are shown to `visit`; NULL: no more. */
void redis_wire_show_lists(struct redis_wire *wire, redis_wire_visit *visit, void *user);

void redis_wire_free(struct redis_wire *wire);

/* Take in what came from the connection: 0, or -1: too much without a whole reply, or out of memory. */
int redis_wire_feed(struct redis_wire *wire, const char *data, size_t len);

/* 1: *out is the next reply; 0: there is no whole one yet; -1: what came is none. */
int redis_wire_next(struct redis_wire *wire, struct redis_reply *out);

/* Whether the scalar is this text. */
bool redis_wire_is_text(const struct redis_wire_scalar *scalar, const char *text);

/* True if the reply is an error whose first word is this one. */
bool redis_reply_is_error(const struct redis_reply *reply, const char *word);

/* Copy an error's first word, which is a code; "ERR" if it has none. */
void redis_reply_word(const struct redis_reply *error, char out[REDIS_WORD_SIZE]);

/* Write the reason for closing a connection whose server answers `what` with this error. Of the server's words it repeats
 * the code only: an error may quote anything. */
void redis_reply_refusal(const struct redis_reply *error, const char *what, char *reason, size_t size);

#endif
