/* link.h - one connection to Redis: made, greeted, written to and read from, without ever blocking.
 *
 *     closed -> connecting -> securing (with TLS) -> greeting -> up -> closed
 *
 * A greeting is what a connection begins with: AUTH, SELECT, to a server that a sentinel has named ROLE, or else PING,
 * and where asked for a SCRIPT LOAD of every script. A server that is named and does not say that it is a primary is
 * not used. The owner waits, by poll() on `fd` for what redis_link_events() says, and calls redis_link_step() when it
 * is time.
 * A link belongs to one thread at a time; redis_link_hang_up() alone may come from another.
 */
#ifndef BACKENDS_REDIS_WIRE_LINK_H
#define BACKENDS_REDIS_WIRE_LINK_H

#include "backends/redis/wire/greet.h"
#include "backends/redis/wire/tls.h"
#include "backends/shared/resolve.h"
#include "core/ground/lock.h"

#define REDIS_ADDRESSES 8 /* of a host; further ones are left out */

struct redis_addresses {
    size_t count;
    struct resolve_address list[REDIS_ADDRESSES];
};

/* Make ready to find the addresses of a host, whose name stays the caller's. NULL: of none. */
void redis_addresses_seek(struct resolver *resolver, const char *host, int port);

/* Where a server was found, and by what name or address, which its certificate must be for; "" where the URL has a
 * path. */
struct redis_where {
    struct resolve_address address;
    char host[REDIS_HOST_MAX + 1];
};

enum redis_link_state {
    REDIS_LINK_CLOSED,
    REDIS_LINK_CONNECTING,
    REDIS_LINK_SECURING,
    REDIS_LINK_GREETING,
    REDIS_LINK_UP
};

struct redis_link {
    enum redis_link_state state;
    int fd; /* -1: none; closed under fd_lock only */
    struct lock fd_lock;
    struct redis_greeting greeting;
    bool secret;     /* the output holds a password */
    bool is_patient; /* redis_link_receive() waits */
    bool ends;       /* with TLS: its end came behind what has not been read yet */
    struct redis_wire wire;
    struct redis_tls *tls;     /* NULL: none */
    struct redis_bytes out;    /* what is to be said: others add to its end, redis_link_send() takes it all */
    struct redis_bytes sealed; /* with TLS: the same as it goes over the wire */
    size_t sent;               /* of what goes over the wire, which without TLS is `out` */
    char reason[96]; /* why it is closed, for the log: never a secret, never a server's own words but the first */
};

/* 0, or -1: out of memory. */
int redis_link_init(struct redis_link *link);
void redis_link_free(struct redis_link *link);

/* Begin to connect; a link that fails at once is closed again, with its reason. */
void redis_link_open(struct redis_link *link, const struct redis_where *where, const struct redis_target *target,
                     enum redis_guest guest);

void redis_link_close(struct redis_link *link, const char *reason);

/* Let go, in the child of a fork, of a link that is the parent's: of the descriptor only. */
void redis_link_abandon(const struct redis_link *link);

/* Any thread: end the connection, so that who waits for it is woken and finds it gone. */
void redis_link_hang_up(struct redis_link *link);

/* Whether there is something to send that did not go yet. */
bool redis_link_has_output(const struct redis_link *link);

/* What to wait for: POLLIN, POLLOUT or both. */
short redis_link_events(const struct redis_link *link);

/* Go on with connecting, sending and receiving as far as that goes now. The link may be closed afterwards. What came is
 * read by redis_link_next(). */
void redis_link_step(struct redis_link *link);

/* Let redis_link_receive() wait for `us` at most, more or less: the system counts in ticks of milliseconds. Where the
 * system does not allow that, the link is not patient. */
void redis_link_make_patient(struct redis_link *link, int64_t us);

/* Wait for what comes, if the link was made patient; it is read by redis_link_next(). Returns sooner on a signal. One
 * system call less than to wait by poll(), and a thread that is woken in it is there some 10 us sooner. */
void redis_link_receive(struct redis_link *link);

/* Send what `out` holds, as far as that goes now; the link may be closed afterwards. False: there was no memory for all
 * of it, so nothing is sent, and the link is closed. */
bool redis_link_send(struct redis_link *link);

/* Close the link because the server answers `what` with this error. */
void redis_link_refused(struct redis_link *link, const struct redis_reply *error, const char *what);

/* The next reply, once the link is up: 1, or 0 if none is there. A link whose replies cannot be read is closed, and so
 * is one whose end has come, but when all that came before it has been read. */
int redis_link_next(struct redis_link *link, struct redis_reply *out);

/* Nothing more is to be read now: close it if its end has come. */
void redis_link_leave(struct redis_link *link);

/* Whether a link that is up and was idle is still there, with nothing unread: one look, no wait. */
bool redis_link_is_fresh(const struct redis_link *link);

#endif
