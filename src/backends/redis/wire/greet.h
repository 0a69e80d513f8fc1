/* greet.h - the first commands on a connection: AUTH, SELECT, ROLE or PING, and a SCRIPT LOAD for each script.
 *
 * ROLE is sent to a server that a sentinel has named: unless it says that it is a primary, it is not used.
 */
#ifndef BACKENDS_REDIS_WIRE_GREET_H
#define BACKENDS_REDIS_WIRE_GREET_H

#include "backends/redis/wire/scripts.h"
#include "backends/redis/wire/url.h"
#include "backends/redis/wire/wire.h"

enum redis_guest {
    REDIS_GREET_SENTINEL,
    REDIS_GREET_SERVER,
    REDIS_GREET_WITH_SCRIPTS /* a server, which is to load the scripts */
};

struct redis_greeting {
    unsigned due;                        /* answers that are still to come */
    unsigned loads;                      /* the last of them, which answer SCRIPT LOAD */
    bool logs_in, selects;               /* AUTH comes first, then SELECT */
    bool asks_role;                      /* the one before those answers ROLE */
    bool is_primary;                     /* it says so */
    bool not_primary;                    /* the greeting failed because it does not */
    char password[REDIS_SECRET_MAX + 1]; /* sent in AUTH; overwritten once the greeting is over */
};

/* Write the greeting. Return true if `out` holds a password now. */
bool redis_greet_write(struct redis_greeting *greeting, const struct redis_target *target, enum redis_guest guest,
                       struct redis_wire *wire, struct redis_bytes *out);

/* Take the next answer. False: the server refuses the greeting, or is not a primary; `reason` says why. */
bool redis_greet_take(struct redis_greeting *greeting, const struct redis_reply *reply, char *reason, size_t size);

/* Write a SCRIPT LOAD. */
void redis_script_load(const struct redis_script *script, struct redis_bytes *out);

#endif
