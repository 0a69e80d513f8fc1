/* redis_link.h - one connection to Redis: made, greeted, written to and read from, without ever blocking.
 *
 *     closed -> connecting -> greeting -> up -> closed
 *
 * A greeting is what a connection begins with: AUTH, SELECT, or else PING, and where asked for a SCRIPT LOAD of every
 * script. The
 * owner waits, by poll() on `fd` for what redis_link_events() says, and calls redis_link_step() when it is time.
 * A link belongs to one thread at a time; redis_link_hang_up() alone may come from another.
 */
#ifndef BACKENDS_REDIS_LINK_H
#define BACKENDS_REDIS_LINK_H

#include "backends/redis_bytes.h"
#include "backends/redis_scripts.h"
#include "backends/redis_url.h"
#include "backends/redis_wire.h"
#include "backends/resolve.h"
#include "core/lock.h"

enum redis_link_state { REDIS_LINK_CLOSED, REDIS_LINK_CONNECTING, REDIS_LINK_GREETING, REDIS_LINK_UP };

struct redis_link {
    enum redis_link_state state;
    int fd; /* -1: none; closed under fd_lock only */
    struct lock fd_lock;
    unsigned greetings; /* answers to the greeting still to come */
    unsigned loads;     /* the last of them are to SCRIPT LOAD */
    bool secret;        /* the output holds a password */
    struct redis_wire wire;
    struct redis_bytes out; /* written to from its end, sent from `sent` on */
    size_t sent;
    char reason[96]; /* why it is closed, for the log: never a secret, never a server's own words but the first */
};

/* 0, or -1: out of memory. */
int redis_link_init(struct redis_link *link);
void redis_link_free(struct redis_link *link);

/* Begin to connect; a link that fails at once is closed again, with its reason. */
void redis_link_open(struct redis_link *link, const struct resolve_address *address, const struct redis_target *target,
                     bool load_scripts);

void redis_link_close(struct redis_link *link, const char *reason);

/* Any thread: end the connection, so that who waits for it is woken and finds it gone. */
void redis_link_hang_up(struct redis_link *link);

/* What to wait for: POLLIN, POLLOUT or both. */
short redis_link_events(const struct redis_link *link);

/* Go on with connecting, sending and receiving as far as that goes now. The link may be closed afterwards. What came is
 * read by redis_link_next(). */
void redis_link_step(struct redis_link *link);

/* Let redis_link_receive() wait for `us` at most, more or less: the system counts in ticks of milliseconds. */
void redis_link_make_patient(struct redis_link *link, int64_t us);

/* Wait for what comes, if the link was made patient; it is read by redis_link_next(). Returns sooner on a signal. One
 * system call less than to wait by poll(), and a thread that is woken in it is there some 10 us sooner. */
void redis_link_receive(struct redis_link *link);

/* Send what `out` holds, as far as that goes now. */
void redis_link_send(struct redis_link *link);

/* The next reply, once the link is up: 1, or 0 if none is there. A link whose replies cannot be read is closed. */
int redis_link_next(struct redis_link *link, struct redis_reply *out);

/* Whether a link that is up and was idle is still there, with nothing unread: one look, no wait. */
bool redis_link_is_fresh(const struct redis_link *link);

#endif
