/* scripts.h - the scripts of lua/, each under its name there; redis/scripts.c is made of them by the build. */
#ifndef BACKENDS_REDIS_SCRIPTS_H
#define BACKENDS_REDIS_SCRIPTS_H

#include <weir/backend.h>

#include <stddef.h>

struct redis_script {
    const char *name, *sha1; /* sha1: of the text, 40 hex digits, as EVALSHA wants it */
    const char *text;
    size_t len;
};

enum redis_script_id {
    REDIS_TOKEN_BUCKET,
    REDIS_LEAKY_BUCKET,
    REDIS_INTERVAL_BUCKET,
    REDIS_FIXED_WINDOW,
    REDIS_SLIDING_WINDOW,
    REDIS_TRY_ALL,
    REDIS_SCRIPT_COUNT
};

extern const struct redis_script redis_scripts[REDIS_SCRIPT_COUNT];

/* The script that decides requests under this plan one by one. The algorithms of the greedy token bucket and the leaky
 * bucket are one in Redis, so those two scripts have one text and one SHA-1. */
enum redis_script_id redis_script_of(const struct weir_plan *plan);

#endif
