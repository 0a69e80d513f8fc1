/* script_host.h - the scripts of lua/ run in this process: Lua 5.1, a few keys, and what they call of Redis doubled.
 *
 * It is Redis as far as the scripts see it: TIME, GET, MGET, PSETEX, DEL, error_reply and the struct library, with its
 * errors. What they do beyond that ends the process, as does an error of Lua's own.
 */
#ifndef WEIR_TESTS_SCRIPT_HOST_H
#define WEIR_TESTS_SCRIPT_HOST_H

#include "backends/redis/wire/scripts.h"
#include "backends/redis/flight/state.h"

enum { HOST_KEYS = 4, HOST_WORDS = 8, HOST_VALUE_MAX = 2 * REDIS_STATE_MAX + 64 };

enum host_kind { HOST_NOTHING, HOST_STRING, HOST_LIST };

struct host_key {
    enum host_kind kind;
    size_t len;
    int64_t life_ms; /* as of the last write */
    unsigned writes; /* PSETEX and DEL, since this was set to 0 */
    unsigned char value[HOST_VALUE_MAX];
};

struct host_word {
    const void *bytes;
    size_t len;
};

/* What a script returns: a string, or the text of an error. Until the next call. */
struct host_answer {
    bool is_error;
    const char *bytes;
    size_t len;
};

/* Key i is called by the i-th letter. */
extern struct host_key host_keys[HOST_KEYS];
extern int64_t host_now_us; /* what TIME says */

/* Call a script for the keys whose numbers are in keys[0..n_keys), none of them twice. */
struct host_answer host_call(enum redis_script_id script, const int *keys, int n_keys, const struct host_word *words,
                             int n_words);

/* Give back what the calls have left in memory: one that grows looks like a leak to libFuzzer, which then looks for it. */
void host_tidy(void);

#endif
