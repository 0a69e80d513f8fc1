/* fproxy.h - a proxy before a Redis server that does to its connections what networks and dying servers do.
 *
 * It listens on a port of 127.0.0.1 and makes one connection to the server for each that comes. It knows where requests
 * and replies begin and end, and which reply answers which request, so that a fault can be aimed at one of them. All
 * happens on one thread of its own; every function may be called from any thread, at any time between start and stop.
 */
#ifndef WEIR_LAB_FPROXY_H
#define WEIR_LAB_FPROXY_H

#include <stdbool.h>
#include <stdint.h>

enum fproxy_fault {
    FPROXY_NONE,
    /* The request does not reach the server. */
    FPROXY_CUT_REQUEST,   /* half of it does, then both connections are closed */
    FPROXY_RESET_REQUEST, /* the client gets an RST at once */
    FPROXY_LOSE_REQUEST,  /* it is swallowed, and so is all that follows on that connection */
    /* The request is delivered. */
    FPROXY_DROP_REPLY,  /* its reply is swallowed; those after it pass */
    FPROXY_STALL,       /* its reply and all that follow are swallowed */
    FPROXY_CLOSE_REPLY, /* the connection is closed in place of the reply */
    FPROXY_RESET_REPLY, /* reset in place of the reply */
    FPROXY_CUT_REPLY,   /* half of the reply, then closed */
    FPROXY_HALF_CLOSE,  /* the reply, then no more bytes; the connection stays and is read */
    FPROXY_GARBAGE,     /* bytes that are no message, in place of the reply */
    FPROXY_TWICE,       /* the reply comes twice */
    FPROXY_SWAP,        /* the reply is kept back until after the next one */
    FPROXY_DRIP         /* the reply comes one byte at a time, fproxy_pace() apart */
};

enum fproxy_door {
    FPROXY_OPEN,
    FPROXY_REFUSE, /* nobody listens */
    FPROXY_HOLD    /* connections are accepted, and that is all; those held stay held */
};

struct fproxy_counts {
    int64_t connections; /* made to it while the door was open or on hold */
    int64_t requests;    /* that came whole, of the kind aimed at */
    int64_t delivered;   /* of those, handed to the server whole */
    int64_t replies;     /* to those, handed to the client whole and once */
    int64_t faults;      /* done */
};

struct fproxy;

/* To the server at that Unix socket. NULL if it cannot be had (a perror line says why). */
struct fproxy *fproxy_start(const char *server_socket);
void fproxy_stop(struct fproxy *proxy); /* closes all; NULL is ignored */

int fproxy_port(const struct fproxy *proxy);

/* Do this to every `every`th request of this command from now on ("EVALSHA"; NULL: of any), `times` times in all
 * (-1: for ever). Sets the kind that fproxy_counts() counts, and does not set counters back. */
void fproxy_fault(struct fproxy *proxy, enum fproxy_fault fault, const char *command, int64_t every, int64_t times);

/* From now on requests and replies take so long; `drip_us` is between the bytes of FPROXY_DRIP (default 1 ms). */
void fproxy_pace(struct fproxy *proxy, int64_t request_us, int64_t reply_us, int64_t drip_us);

void fproxy_door(struct fproxy *proxy, enum fproxy_door door);

/* Close, or reset, all connections that there are now. Returns once it is done. */
void fproxy_cut(struct fproxy *proxy, bool reset);

/* From now on bytes pass as they come, at the pace that is set: for what is not requests and replies, such as the
 * connection of a replica. No fault is done, and no request counted. */
void fproxy_pass_bytes(struct fproxy *proxy);

/* Take nothing and give nothing, as a peer behind a dead link; the door's backlog still takes connections. */
void fproxy_freeze(struct fproxy *proxy, bool frozen);

struct fproxy_counts fproxy_counts(struct fproxy *proxy);

/* CLOCK_MONOTONIC times in microseconds of the latest connections, oldest first; how many, at most `most` and 8192. */
int fproxy_connection_times(struct fproxy *proxy, int64_t *times_us, int most);

#endif
