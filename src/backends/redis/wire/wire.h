/* wire.h - parses Redis' replies with hiredis' reader, without an allocation per reply.
 *
 * weir's scripts return a string, a status, an error or a number, and TIME a pair of short strings, which is joined.
 * Any other list, or more than REDIS_WIRE_MAX bytes without a complete reply, breaks the connection. Where lists are
 * expected, a visitor sees their elements as they arrive, and none is kept.
 */
#ifndef BACKENDS_REDIS_WIRE_WIRE_H
#define BACKENDS_REDIS_WIRE_WIRE_H

#include "backends/redis/wire/bytes.h"

#include <hiredis/read.h>

#define REDIS_WIRE_MAX (1 << 20) /* bytes; the longest answer, 64 sliding windows of 1024 blocks, takes a quarter */
#define REDIS_WIRE_LIST_MAX (1 << 15)   /* elements of a list; a map of slots has at most 16384 ranges */
#define REDIS_WIRE_LIST_BYTES (1 << 24) /* of a reply with lists: such a map, with 8 nodes in each range */
#define REDIS_WIRE_PAIR_MAX 32
#define REDIS_WIRE_DEPTH 4 /* nested lists; a map of slots uses four */

#define REDIS_WORD_SIZE 24      /* bytes of an error's first word, NUL included */
#define REDIS_SENTENCE_SIZE 160 /* bytes of what is repeated of an error */
#define REDIS_REASON_SIZE 224   /* bytes of why a connection is closed */

enum redis_reply_kind {
    REDIS_REPLY_IS_STRING,
    REDIS_REPLY_IS_STATUS,
    REDIS_REPLY_IS_ERROR,
    REDIS_REPLY_IS_NIL,
    REDIS_REPLY_IS_NUMBER,
    REDIS_REPLY_IS_LIST, /* the visitor has seen its elements; without one the text is a pair's, a blank between them */
    REDIS_REPLY_IS_OTHER
};

struct redis_reply {
    enum redis_reply_kind kind;
    const char *text; /* no NUL at the end; valid until the next reply is read */
    size_t len;
    long long number;   /* 0 unless it is a number */
    const char *secret; /* the password that this connection sent; NULL: none */
};

/* An element of a list, other than a list. If it is neither a number nor nil nor has text, it is of another type. */
struct redis_wire_scalar {
    size_t depth;                   /* how many lists enclose it: 1 to REDIS_WIRE_DEPTH */
    size_t place[REDIS_WIRE_DEPTH]; /* the index in each list, outermost first */
    bool is_number, is_nil;
    long long number;
    const char *text; /* of a string or a status; no NUL at the end; valid during the call */
    size_t len;
};

/* Visits each scalar in a list. False: the reply is malformed, and redis_wire_next() returns -1. An empty list is not
 * seen. The connection may break after any element. */
typedef bool redis_wire_visit(void *user, const struct redis_wire_scalar *scalar);

struct redis_wire {
    redisReader *reader;
    struct redis_bytes text; /* of the current reply */
    enum redis_reply_kind kind;
    long long number;
    size_t pending;          /* bytes since the last whole reply */
    redis_wire_visit *visit; /* NULL: lists are refused, except a pair of short strings */
    void *user;
    const char *secret; /* see redis_reply; the caller keeps it */
};

/* 0, or -1: out of memory. */
int redis_wire_init(struct redis_wire *wire);

/* Begin a new connection: forget what was read, and the visitor. 0, or -1: out of memory. */
int redis_wire_restart(struct redis_wire *wire);

/* From the next reply on, accept lists and show them to `visit`. NULL: accept only a pair of strings of up to
 * REDIS_WIRE_PAIR_MAX bytes, such as TIME's answer. */
void redis_wire_show_lists(struct redis_wire *wire, redis_wire_visit *visit, void *user);

void redis_wire_free(struct redis_wire *wire);

/* Take in received bytes. 0, or -1: too many without a complete reply, or out of memory. */
int redis_wire_feed(struct redis_wire *wire, const char *data, size_t len);

/* 1: *out is the next reply; 0: it has not arrived completely; -1: it is malformed. */
int redis_wire_next(struct redis_wire *wire, struct redis_reply *out);

/* True if the scalar is this text. */
bool redis_wire_is_text(const struct redis_wire_scalar *scalar, const char *text);

/* True if the reply is an error whose first word is this one. */
bool redis_reply_is_error(const struct redis_reply *reply, const char *word);

/* Copy an error's first word, which is a code; "ERR" if it has none, or if the text begins with the password. */
void redis_reply_word(const struct redis_reply *error, char out[REDIS_WORD_SIZE]);

/* Copy an error's sentence, its first word included, without what may hold a key or a secret: quoted text other than
 * the name of a command or an option, a command's arguments, the script's digest, and the connection's password. */
void redis_reply_sentence(const struct redis_reply *error, char out[REDIS_SENTENCE_SIZE]);

/* Write the reason for closing a connection whose server answers the command `what` with this error. */
void redis_reply_refusal(const struct redis_reply *error, const char *what, char *reason, size_t size);

#endif
