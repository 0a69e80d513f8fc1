/* talk.h - a connection to one server on which the caller waits for each answer.
 *
 * The link itself never blocks; this waits for it with poll(). Deadlines are monotonic. One thread at a time.
 */
#ifndef BACKENDS_REDIS_INSPECT_TALK_H
#define BACKENDS_REDIS_INSPECT_TALK_H

#include "backends/redis/wire/link.h"
#include "backends/redis/wire/node.h"

struct redis_talk {
    const struct redis_target *target; /* (c) */
    int64_t patience_us;               /* (c) for a connection, and for each answer */
    struct redis_link link;
    struct redis_node_name with; /* the server at its other end; host "" with a path */
};

/* WEIR_OK or WEIR_ENOMEM. */
int redis_talk_init(struct redis_talk *talk, const struct redis_target *target, int64_t patience_us);
void redis_talk_free(struct redis_talk *talk);

/* Connect to a host, or with NULL to the target's path; an earlier connection ends. WEIR_OK, WEIR_EIO or WEIR_ETIME;
 * `why` then begins with the server's name. */
int redis_talk_open(struct redis_talk *talk, const char *host, int port, enum redis_guest guest, struct message why);

/* Send the commands in talk->link.out, and wait for the next answer, which is valid until the one after it. `what` is
 * the command that it answers, for `why`. An error from the server is an answer, too. WEIR_OK; or WEIR_EIO or
 * WEIR_ETIME, and the connection is closed. */
int redis_talk_hear(struct redis_talk *talk, const char *what, struct redis_reply *reply, struct message why);

/* The same, but an answer of any other kind than `kind` is an error as well. */
int redis_talk_hear_kind(struct redis_talk *talk, const char *what, enum redis_reply_kind kind,
                         struct redis_reply *reply, struct message why);

#endif
