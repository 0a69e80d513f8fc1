/* scripts.h - the scripts of lua/, each under its name; the build generates redis_scripts.c from them. */
#ifndef BACKENDS_REDIS_WIRE_SCRIPTS_H
#define BACKENDS_REDIS_WIRE_SCRIPTS_H

#include <stddef.h>

struct redis_script {
    const char *name, *sha1; /* sha1: of the text, 40 hex digits, for EVALSHA */
    const char *text;
    size_t len;
};

/* In the order in which a new connection loads them. The shortest comes first: a server that wants a password says
 * so only in answer to arguments of up to 16 KiB. */
enum redis_script_id {
    REDIS_SLOTS, /* one request about the slots of a key */
    REDIS_TRY_ALL,
    REDIS_TOKEN_BUCKET,
    REDIS_LEAKY_BUCKET,
    REDIS_INTERVAL_BUCKET,
    REDIS_FIXED_WINDOW,
    REDIS_SLIDING_WINDOW,
    REDIS_BUCKET_SINGLE, /* one take from one token or leaky bucket, one return to it, or one charge */
    REDIS_SETTLE,        /* one charge after an outage, which asks how long the key lay idle */
    REDIS_SCRIPT_COUNT
};

extern const struct redis_script redis_scripts[REDIS_SCRIPT_COUNT];

#endif
