/* script_host.h - runs the scripts of lua/ in this process: Lua 5.1, a few keys, and stand-ins for Redis's functions.
 *
 * A script sees TIME, GET, MGET, PSETEX, SETRANGE, DEL, error_reply and the struct library, with their errors. Anything
 * else ends the process, as does an error of Lua's.
 */
#ifndef WEIR_TESTS_SCRIPT_HOST_H
#define WEIR_TESTS_SCRIPT_HOST_H

#include "backends/redis/flight/state.h"
#include "backends/redis/wire/scripts.h"

enum { HOST_KEYS = 4, HOST_WORDS = 8, HOST_VALUE_MAX = 2 * (REDIS_ORIGIN_SIZE + REDIS_STATE_MAX) + 64 };

enum host_kind { HOST_NOTHING, HOST_STRING, HOST_LIST };

struct host_key {
    enum host_kind kind;
    size_t len;
    int64_t life_ms;      /* of the last PSETEX; 0: unknown */
    int64_t life_from_us; /* when that was, by TIME */
    unsigned writes;      /* PSETEX, SETRANGE and DEL calls since this was set to 0 */
    unsigned lives;       /* PSETEX calls since this was set to 0 */
    unsigned char value[HOST_VALUE_MAX];
};

struct host_word {
    const void *bytes;
    size_t len;
};

/* What a script returns: a string or an error's text, valid until the next call. */
struct host_answer {
    bool is_error;
    const char *bytes;
    size_t len;
};

/* The i-th letter names key i. */
extern struct host_key host_keys[HOST_KEYS];
extern int64_t host_now_us; /* TIME's answer */

/* Call a script for the keys with the numbers keys[0..n_keys), all different. */
struct host_answer host_call(enum redis_script_id script, const int *keys, int n_keys, const struct host_word *words,
                             int n_words);

/* Collect Lua's garbage. libFuzzer takes growing memory for a leak and searches for it. */
void host_tidy(void);

#endif
