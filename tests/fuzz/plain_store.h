/* plain_store.h - what the scripts do in a Redis server, written in C: stored bytes are parsed plainly and kept as
 * mirrors.
 *
 * script_state.c compares the scripts with it; client.c uses it as the correct server.
 */
#ifndef WEIR_TESTS_PLAIN_STORE_H
#define WEIR_TESTS_PLAIN_STORE_H

#include "backends/redis/flight/state.h"
#include "mirror.h"

/* Return the number in that many little-endian bytes. */
int64_t plain_number(const unsigned char *bytes, int width);

/* Return the whole number in the eight little-endian bytes of a double. */
int64_t plain_double(const unsigned char *bytes);

/* Read the plan of the fingerprint at the start of the bytes and store its length in *len; false if there is none. No
 * policy may lead to such a plan. */
bool plain_stamp_read(const unsigned char *bytes, size_t size, struct weir_plan *plan, size_t *len);

/* Read stored bytes as a mirror; false if they are not a state. */
bool plain_read(const unsigned char *bytes, size_t size, struct mirror *out);

enum { STORE_ITEMS_MAX = 1024 }; /* in a call */
enum { STORE_KEYS = 16, STORE_NAME_MAX = 128, STORE_ANSWER_MAX = REDIS_HEAD_SIZE + STORE_KEYS * REDIS_STATE_MAX + 4 };

struct plain_key {
    size_t name_len;
    char name[STORE_NAME_MAX];
    bool foreign;    /* not a state of weir's */
    int64_t charged; /* permits, since the store was cleared */
    struct mirror mirror;
};

struct plain_store {
    int64_t now_us;
    int n;
    struct plain_key keys[STORE_KEYS];
};

void plain_store_clear(struct plain_store *store, int64_t now_us);

/* A key that was requested before, or is now. */
struct plain_key *plain_store_key(struct plain_store *store, const char *name, size_t len);

/* Execute an EVALSHA of n words as the client sends it, without a time; return the answer's length. Ends the process
 * if weir would never send the call. */
size_t plain_store_call(struct plain_store *store, const char *const *words, const size_t *lens, size_t n,
                        unsigned char answer[STORE_ANSWER_MAX]);

#endif
