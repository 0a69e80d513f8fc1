/* fproxy.h - a proxy before a Redis server that injects the faults of networks and dying servers.
 *
 * It listens on a port of 127.0.0.1 and makes one connection to the server per client. It knows the limits of
 * requests and replies and which reply belongs to which request, so a fault can be aimed at one of them. It runs on a
 * dedicated thread; between start and stop any thread may call these functions.
 */
#ifndef WEIR_LAB_FPROXY_H
#define WEIR_LAB_FPROXY_H

#include <stdbool.h>
#include <stdint.h>

enum fproxy_fault {
    FPROXY_NONE,
    /* The request does not reach the server. */
    FPROXY_CUT_REQUEST,   /* half of it does, then both connections are closed */
    FPROXY_RESET_REQUEST, /* the client gets an RST immediately */
    FPROXY_LOSE_REQUEST,  /* it is dropped, and so is all that follows on the connection */
    /* The request is delivered. */
    FPROXY_DROP_REPLY,  /* its reply is dropped; later ones pass */
    FPROXY_STALL,       /* its reply and all that follow are dropped */
    FPROXY_CLOSE_REPLY, /* the connection is closed instead of the reply */
    FPROXY_RESET_REPLY, /* reset instead of the reply */
    FPROXY_CUT_REPLY,   /* half of the reply, then closed */
    FPROXY_HALF_CLOSE,  /* the reply, then no more bytes; the connection stays open and is read */
    FPROXY_GARBAGE,     /* bytes that are not a message, instead of the reply */
    FPROXY_TWICE,       /* the reply comes twice */
    FPROXY_SWAP,        /* the reply comes after the next one */
    FPROXY_DRIP         /* the reply comes one byte at a time, fproxy_pace() apart */
};

enum fproxy_door {
    FPROXY_OPEN,
    FPROXY_REFUSE, /* nothing listens */
    FPROXY_HOLD    /* connections are accepted and ignored, also after the door opens */
};

struct fproxy_counts {
    int64_t connections; /* made while the door was open or on hold */
    int64_t requests;    /* complete ones of the kind aimed at */
    int64_t delivered;   /* of those, forwarded whole */
    int64_t replies;     /* to those, forwarded whole and once */
    int64_t faults;      /* injected */
};

struct fproxy;

/* Forward to the server at that Unix socket. Return NULL on failure, with a perror line. */
struct fproxy *fproxy_start(const char *server_socket);
void fproxy_stop(struct fproxy *proxy); /* closes all; NULL is ignored */

int fproxy_port(const struct fproxy *proxy);

/* Inject this fault into every `every`th request of this command ("EVALSHA"; NULL: any), `times` times in all (-1:
 * forever). It also sets the kind that fproxy_counts() counts, without resetting the counts. */
void fproxy_fault(struct fproxy *proxy, enum fproxy_fault fault, const char *command, int64_t every, int64_t times);

/* Delay requests and replies by this much; `drip_us` separates the bytes of FPROXY_DRIP (default 1 ms). */
void fproxy_pace(struct fproxy *proxy, int64_t request_us, int64_t reply_us, int64_t drip_us);

void fproxy_door(struct fproxy *proxy, enum fproxy_door door);

/* Close or reset all current connections, and return when that is done. */
void fproxy_cut(struct fproxy *proxy, bool reset);

/* Forward bytes as they come, at the set pace: for other streams than requests and replies, such as a replica's. No
 * fault is injected and no request counted. */
void fproxy_pass_bytes(struct fproxy *proxy);

/* Neither read nor write, like a peer behind a dead link; the backlog still accepts connections. */
void fproxy_freeze(struct fproxy *proxy, bool frozen);

struct fproxy_counts fproxy_counts(struct fproxy *proxy);

/* Copy the CLOCK_MONOTONIC times in microseconds of the latest connections, oldest first; return how many, at most
 * `most` and 8192. */
int fproxy_connection_times(struct fproxy *proxy, int64_t *times_us, int most);

#endif
