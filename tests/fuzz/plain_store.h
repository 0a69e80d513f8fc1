/* plain_store.h - the scripts' part of a Redis server, in C: what is stored is read plainly and kept in mirrors.
 *
 * It is what a right server does, for the targets that need one: script_state.c holds the scripts against it, and
 * client.c a client against what it answers.
 */
#ifndef WEIR_TESTS_PLAIN_STORE_H
#define WEIR_TESTS_PLAIN_STORE_H

#include "backends/redis/flight/state.h"
#include "mirror.h"

/* The number of so many bytes, little-endian. */
int64_t plain_number(const unsigned char *bytes, int width);

/* The plan of the stamp that the bytes begin with, of which *len are used; false: they begin with none. It may be one
 * that no policy comes to. */
bool plain_stamp_read(const unsigned char *bytes, size_t size, struct weir_plan *plan, size_t *len);

/* What is stored as a mirror; false: it is no state. */
bool plain_read(const unsigned char *bytes, size_t size, struct mirror *out);

enum { STORE_KEYS = 16, STORE_NAME_MAX = 128, STORE_ANSWER_MAX = REDIS_HEAD_SIZE + STORE_KEYS * REDIS_STATE_MAX + 4 };

struct plain_key {
    size_t name_len;
    char name[STORE_NAME_MAX];
    bool foreign;    /* not a state of ours */
    int64_t charged; /* permits, since the store was cleared */
    struct mirror mirror;
};

struct plain_store {
    int64_t now_us;
    int n;
    struct plain_key keys[STORE_KEYS];
};

void plain_store_clear(struct plain_store *store, int64_t now_us);

/* A key that has been asked for, or now is. */
struct plain_key *plain_store_key(struct plain_store *store, const char *name, size_t len);

/* Execute an EVALSHA of n words as the client sends them, without a time; the answer's length. Ends the process if it is
 * not one that a client of ours sends. */
size_t plain_store_call(struct plain_store *store, const char *const *words, const size_t *lens, size_t n,
                        unsigned char answer[STORE_ANSWER_MAX]);

#endif
