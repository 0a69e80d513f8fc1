/* link.h - one connection to Redis: opened, greeted, written to and read from; it never blocks.
 *
 *     closed -> connecting -> securing (with TLS) -> greeting -> up -> closed
 *
 * The owner polls `fd` for redis_link_events() and calls redis_link_step() when it is ready. A link belongs to one
 * thread at a time; only redis_link_hang_up() may be called from another.
 */
#ifndef BACKENDS_REDIS_WIRE_LINK_H
#define BACKENDS_REDIS_WIRE_LINK_H

#include "backends/redis/wire/greet.h"
#include "backends/redis/wire/tls.h"
#include "backends/shared/resolve.h"
#include "core/ground/lock.h"

#define REDIS_ADDRESSES 8 /* of a host; more are ignored */
#define REDIS_LINK_RECEIVE 16384

struct redis_addresses {
    size_t count;
    struct resolve_address list[REDIS_ADDRESSES];
};

/* Prepare to look up a host, whose name must stay valid. NULL: no host. */
void redis_addresses_seek(struct resolver *resolver, const char *host, int port);

/* Where a server was found, and the name or address that its certificate must match; "" with a path. */
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
    bool secret;     /* `out` holds a password */
    bool is_patient; /* redis_link_receive() waits */
    bool ends;       /* with TLS: the peer has closed, but unread data came before that */
    char *received;  /* REDIS_LINK_RECEIVE bytes: one receipt, and with TLS what is in it */
    struct redis_wire wire;
    struct redis_tls *tls;          /* NULL: none */
    struct redis_bytes out;         /* to send: owners append, redis_link_send() takes all of it */
    struct redis_bytes sealed;      /* with TLS: the same, encrypted */
    size_t sent;                    /* bytes sent of `sealed`, or without TLS of `out` */
    char reason[REDIS_REASON_SIZE]; /* why it is closed; logged, so it never holds a secret */
};

/* 0, or -1: out of memory. */
int redis_link_init(struct redis_link *link);
void redis_link_free(struct redis_link *link);

/* Begin to connect. If that fails immediately, the link is closed again and has a reason. */
void redis_link_open(struct redis_link *link, const struct redis_where *where, const struct redis_target *target,
                     enum redis_guest guest);

void redis_link_close(struct redis_link *link, const char *reason);

/* In the child of a fork, close the parent's descriptor. */
void redis_link_abandon(const struct redis_link *link);

/* Shut the connection down, which wakes the thread that waits for it. Any thread. */
void redis_link_hang_up(struct redis_link *link);

/* True if something remains to be sent. */
bool redis_link_has_output(const struct redis_link *link);

/* Return the events to poll for: POLLIN, POLLOUT or both. */
short redis_link_events(const struct redis_link *link);

/* Connect, send and receive as far as possible now. The link may be closed afterwards. redis_link_next() reads what
 * came.
 */
void redis_link_step(struct redis_link *link);

/* Let redis_link_receive() wait for about `us`; the system counts in milliseconds. If the system refuses, the link is
 * not patient. */
void redis_link_make_patient(struct redis_link *link, int64_t us);

/* Wait for data, if the link is patient; redis_link_next() reads it. Returns early on a signal. This saves a system
 * call over poll(), and the woken thread runs some 10 us sooner. */
void redis_link_receive(struct redis_link *link);

/* Send as much of `out` as possible now; the link may be closed afterwards. False: out of memory; nothing is sent, and
 * the link is closed. */
bool redis_link_send(struct redis_link *link);

/* Close the link because the server answers `what` with this error. */
void redis_link_refused(struct redis_link *link, const struct redis_reply *error, const char *what);

/* Read the next reply of a link that is up: 1, or 0 if none has arrived. The link is closed if a reply is malformed, or
 * if the peer has closed and every reply before that has been read. */
int redis_link_next(struct redis_link *link, struct redis_reply *out);

/* Nothing more is to be read now: close the link if the peer has closed. */
void redis_link_leave(struct redis_link *link);

/* True if a link that is up and was idle still stands, with nothing unread. Does not wait. */
bool redis_link_is_fresh(const struct redis_link *link);

#endif
