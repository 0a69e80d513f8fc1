/* io.h - the state of an I/O thread, shared by io.c, air.c, ready.c and connect.c. */
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
    bool resolving;       /* the addresses are being looked up */
    bool linked;          /* the link was opened, and its loss has not been handled */
    bool known_bad;       /* the log has a line that it does not work, */
    int64_t said_us;      /* written at this time */
    int64_t give_up_us;   /* when to stop connecting or resolving */
    int64_t try_again_us; /* when to connect a closed link */
    int64_t up_since_us;  /* 0: the link is not up */
    bool proven;          /* it has brought a decision since then */
    struct redis_pauses pauses;

    struct redis_where where;        /* the server to connect to: the URL's, or the one that the sentinels or the */
    int port;                        /* cluster have named */
    struct redis_sentinel *sentinel; /* NULL: none */
    unsigned aims;                   /* engine->aims when last looked at */
    bool asking;                     /* waiting for the sentinels, or the cluster, to name a server */
    bool told;                       /* they have named one for the next connection */
    bool misled;                     /* the last one they named could not be used */
    int64_t followed_us;             /* when a newly named server last replaced a connection; 0: never */

    struct redis_waiter *ready, **ready_end; /* taken from the queue, not yet aboard a flight; oldest first */
    int64_t ready_due_us;                    /* no later than their first deadline; INT64_MAX: the list is empty */
    struct redis_flight *air[REDIS_AIR_MAX]; /* under way, oldest first */
    size_t air_count;
    int64_t left_us;                          /* when the latest of them left */
    struct redis_flight *held[REDIS_AIR_MAX]; /* answered, but held until WAIT is */
    size_t held_count;
    struct redis_wait wait;   /* while it is due nothing leaves: the server would not read it */
    int64_t wait_from_us;     /* when to write the next one; meaningful while flights are held and none is due */
    int64_t acknowledging_us; /* how long the last one took; 0: too few replicas confirmed */
    struct redis_flight *spare[REDIS_AIR_MAX + 1]; /* not in use */
    size_t spare_count;
    struct redis_flight *again[REDIS_AIR_MAX]; /* to be flown once more; at most REDIS_AIR_MAX with `air` and `held` */
    size_t again_count;

    unsigned bells;       /* to ring: a bit each */
    size_t waiting, peak; /* the thread's waiters, and the most lately */
    unsigned calm;        /* flights since `peak` was reset */
};

/* This thread's own; NULL unless it is an I/O thread. */
extern _Thread_local struct redis_io *redis_io_here;

/* ---- io.c ---- */

struct redis_io *redis_io_make(struct redis_engine *engine); /* NULL: out of memory */
void *redis_io_run(void *engine);
void redis_io_free(struct redis_io *io);
void redis_io_abandon(struct redis_io *io); /* as redis_engine_abandon() */

/* ---- connect.c: the connection ---- */

/* 0, or -1: out of memory. Free it in either case. */
int redis_connect_init(struct redis_io *io);
void redis_connect_free(struct redis_io *io);

/* If the cluster has aimed at another node, connect to that. */
void redis_connect_aim(struct redis_io *io, int64_t now_us);

/* If the link is closed and it is time to try, connect. */
void redis_connect_when_due(struct redis_io *io, int64_t now_us);

/* If the addresses are known now, connect to the first. */
void redis_connect_resolve(struct redis_io *io);

/* Go on asking the sentinels or listening to them; there are some. */
void redis_connect_sentinels(struct redis_io *io, int64_t now_us);

/* Handle a link that has come up or been closed. */
void redis_connect_look(struct redis_io *io);

/* Give the connection up; requests under way end with `status`. */
void redis_connect_lose(struct redis_io *io, const char *reason, int status);

/* ---- air.c: the flights ---- */

/* True if a flight may leave now. Nothing leaves behind a WAIT; with it or before it is allowed. */
bool redis_air_may_leave(const struct redis_io *io, int64_t now_us);

/* Until when waiters gather for the next flight; in the past if it may leave as soon as one comes. */
int64_t redis_air_gathers_until_us(const struct redis_io *io);

/* Send the ready waiters; then WAIT, if it is time for one. */
void redis_air_take_off(struct redis_io *io, int64_t now_us);
void redis_air_ask_replicas(struct redis_io *io, int64_t now_us);

/* Take the replies that have come. */
void redis_air_read(struct redis_io *io);

/* End the requests whose deadline has passed. */
void redis_air_expire(struct redis_io *io, int64_t now_us);

/* When to give up the connection: the next answer has been due for as long as a call may take. Requests that boarded
 * with less time left expire sooner. INT64_MAX: no answer is due. */
int64_t redis_air_hang_up_us(const struct redis_io *io);

/* When the flights or their WAIT next need this thread, answers aside. */
int64_t redis_air_due_us(const struct redis_io *io);

/* End everything under way; its outcome is unknown. */
void redis_air_fail(struct redis_io *io, int status);

/* ---- ready.c: the waiters ---- */

/* Take the waiters in the queue. `last`: later ones get WEIR_ECLOSED. */
void redis_ready_take(struct redis_io *io, bool last);

/* Put a waiter aboard. False: it does not fit. */
bool redis_ready_board(struct redis_flight *flight, struct redis_waiter *waiter);

/* Remove the oldest of the ready waiters; there is one. */
void redis_ready_pop(struct redis_io *io);

/* A redis_request_ended. It wakes no thread until the bells ring. */
void redis_ready_request_ended(struct redis_flight_request *aboard, int status, const struct redis_redirect *redirect);
void redis_ready_ring(struct redis_io *io);

/* End all waiters that are ready, or those whose deadline has passed. */
void redis_ready_end(struct redis_io *io, int status);
void redis_ready_end_overdue(struct redis_io *io, int64_t now_us);

#endif
