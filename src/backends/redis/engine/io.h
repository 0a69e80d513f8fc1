/* io.h - the I/O thread's own: what redis/engine/io.c, redis/engine/ready.c and redis/engine/connect.c share. Nobody else looks in. */
#ifndef BACKENDS_REDIS_ENGINE_IO_H
#define BACKENDS_REDIS_ENGINE_IO_H

#include "backends/redis/engine/engine.h"
#include "backends/redis/engine/sentinel.h"
#include "backends/redis/wire/pause.h"

#define REDIS_AIR_MAX 8 /* flights under way */

struct redis_io {
    struct redis_engine *engine;
    struct redis_link link;
    struct resolver resolver;
    struct redis_addresses addresses;
    size_t address;       /* the one to try next */
    bool resolving;       /* the addresses are being found */
    bool linked;          /* the link was opened, and its loss has not been dealt with */
    bool known_bad;       /* a line in the log has said that it does not work */
    int64_t said_us;      /* when that line was written */
    int64_t give_up_us;   /* when to stop connecting or resolving */
    int64_t try_again_us; /* closed: when to connect */
    int64_t up_since_us;  /* 0: the link is not up */
    bool proven;          /* it has brought a decision since */
    struct redis_pauses pauses;

    struct redis_where where;        /* the server that the link is, or will be, connected to: the URL's, or the one */
    int port;                        /* that the sentinels have named, or the cluster */
    struct redis_sentinel *sentinel; /* NULL: none */
    unsigned aims;                   /* engine->aims as it was when it was looked at last */
    bool asking;                     /* the sentinels are asked for it, or the cluster is to aim at another */
    bool told;                       /* they need not be asked before the next connection, for they have told */
    bool misled;                     /* the last one that was named could not be used */
    int64_t followed_us;             /* when news of another one last cut a connection; 0: never */

    struct redis_waiter *ready, **ready_end; /* taken from the queue, not yet on board: the oldest first */
    int64_t ready_due_us;                    /* no later than the first of their deadlines; INT64_MAX: none is there */
    struct redis_flight *air[REDIS_AIR_MAX]; /* under way, the oldest first */
    size_t air_count;
    int64_t left_us;                          /* when the last of them left */
    struct redis_flight *held[REDIS_AIR_MAX]; /* answered, until WAIT is */
    size_t held_count;
    struct redis_wait wait;   /* under way: then nothing leaves, for the server would not take it */
    int64_t wait_from_us;     /* when that is to leave; of meaning while some are held, and none is under way */
    int64_t acknowledging_us; /* how long the last one took; 0: too few have acknowledged it */
    struct redis_flight *spare[REDIS_AIR_MAX + 1]; /* not in use */
    size_t spare_count;
    struct redis_flight
        *again[REDIS_AIR_MAX]; /* landed, but to be flown once more; with those in the air, or held, at most
                                * REDIS_AIR_MAX */
    size_t again_count;

    unsigned bells;       /* to be rung: a bit each */
    size_t waiting, peak; /* waiters that this thread has; the most of them lately */
    unsigned calm;        /* flights since that is counted */
};

/* The I/O thread's own; others: NULL. */
extern _Thread_local struct redis_io *redis_io_here;

/* redis/engine/io.c: end all that is under way and of which nobody knows what became. */
void redis_io_fail_air(struct redis_io *io, int status);

/* redis/engine/ready.c. */

/* Take those who are in the queue; `last`: who comes later gets WEIR_ECLOSED. */
void redis_ready_take(struct redis_io *io, bool last);

/* The oldest, of whom there is one. */
struct redis_waiter *redis_ready_pop(struct redis_io *io);

/* Put one on board; false: there is no room. */
bool redis_ready_board(struct redis_flight *flight, struct redis_waiter *waiter);

/* A redis_ask_ended, on the I/O thread. It wakes nobody until the bells are rung. */
void redis_ready_told(struct redis_ask *ask, int status);
void redis_ready_ring(struct redis_io *io);

/* End all that waits to be sent, or those whose time has come. */
void redis_ready_end(struct redis_io *io, int status);
void redis_ready_end_overdue(struct redis_io *io, int64_t now_us);

/* redis/engine/connect.c. */

/* 0, or -1: out of memory; to be freed in either case. */
int redis_connect_init(struct redis_io *io);
void redis_connect_free(struct redis_io *io);

/* Connect to what the cluster has aimed at, if that is another now. */
void redis_connect_aim(struct redis_io *io, int64_t now_us);

/* Connect if there is no connection and it is time to try. */
void redis_connect_when_due(struct redis_io *io, int64_t now_us);

/* Look whether there is an answer to the question where the server is, and connect to it. */
void redis_connect_resolve(struct redis_io *io);

/* Go on asking or listening to the sentinels, of whom there are some. */
void redis_connect_sentinels(struct redis_io *io, int64_t now_us);

/* Whatever has become of the link, up or closed, is dealt with here. */
void redis_connect_look(struct redis_io *io);

/* Give the connection up; what is under way ends with `status`. */
void redis_connect_lose(struct redis_io *io, const char *reason, int status);

#endif
