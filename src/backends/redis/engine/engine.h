/* engine.h - what moves requests to Redis and back: a thread that does I/O for all, and connections of their own
 * for the first few callers.
 *
 * One caller at a time is best served if it writes and reads for itself: no thread has to be woken twice. Many callers
 * are best served together: one write carries what all of them ask, equal keys share a place in it. So the first
 * REDIS_LANES callers each take a lane, with a connection that its caller works alone; once a caller finds them all
 * taken there is a crowd, and all go by the I/O thread until it has seen no more than that many at once for a while.
 * What is submitted always goes by the I/O thread.
 *
 * An engine serves one server. In a cluster each primary has an engine (redis/cluster/cluster.h); it is aimed at that by the
 * cluster's address of it, and may be aimed at another later.
 *
 * The gate says what a caller may expect. The I/O thread's connection is what it goes by:
 *
 *     up      it stands
 *     wait    it is being made, for the first time or once more: wait for it, within the deadline
 *     down    it could not be made, or REDIS_BREAK_TIMEOUTS answers in a row were late: do not wait. The I/O thread
 *             tries again after a pause, one try at a time, and the pauses grow
 *
 * A request is written once. It is written again only if the server said that it was not executed.
 *
 * Locks, none held while another is taken but the cluster's, and none while anything is waited for: address_lock, each
 * link's fd_lock.
 */
#ifndef BACKENDS_REDIS_ENGINE_ENGINE_H
#define BACKENDS_REDIS_ENGINE_ENGINE_H

#include "backends/redis/flight/redirect.h"
#include "backends/redis/flight/flight.h"
#include "backends/redis/flight/key.h"
#include "backends/redis/wire/link.h"
#include "backends/shared/bell.h"
#include "core/ground/log.h"

#include <weir/backend.h>

#include <pthread.h>
#include <stdatomic.h>

#define REDIS_LANES 8
#define REDIS_LANE_ASKS WEIR_MAX_ALL
#define REDIS_BREAK_TIMEOUTS 3
#define REDIS_BELLS 4 /* a power of two; where two flights share one, some are woken for nothing */

/* (c) constant after open */
struct redis_config {
    struct redis_target target;
    char prefix[REDIS_PREFIX_MAX + 1];
    int64_t timeout_us; /* the longest that a call may take */
    struct redis_flight_rules rules;
    struct log log;
    void (*_Atomic returned)(void *user); /* told each time that the gate goes up; NULL: nobody is yet */
    void *returned_user;                  /* release with `returned` */
};

/* One who waits for the I/O thread. A submitted request keeps it in the words of its op that are the backend's, with
 * all of the request but for its limit and key, which are to be had from the op. */
struct redis_waiter {
    struct redis_waiter *next;
    int64_t deadline_us;
    uint64_t hash;
    int64_t now_us; /* REDIS_CALLER: this is the head of a struct redis_caller, and what follows means nothing */
    int64_t cost;
    uint32_t ahead;  /* no more than the size of a limit, which is limit + debt at most */
    uint16_t spread; /* WEIR_MAX_SPREAD at most */
    bool asking;     /* the next server is to be told ASKING */
    uint8_t hops;    /* how often it has been sent on to another server */
} __attribute__((may_alias));
_Static_assert(sizeof(struct redis_waiter) <= 6 * sizeof(uint64_t), "it fits the words of an op");
_Static_assert(2 * WEIR_MAX_PERMITS <= UINT32_MAX, "so does what is charged ahead");
#define REDIS_CALLER INT64_MIN

/* What a caller asks for at once, and what comes of it. */
struct redis_errand {
    const struct weir_backend_request *requests;
    size_t n;
    bool all, asking;
    int64_t deadline_us;
    struct weir_decision *out;
    int error; /* the first that any of them has ended with; of one alone, or all or nothing, also a positive end of
                * redis/flight/flight.h */
    struct redis_redirect *redirect; /* where to write what goes with that; NULL outside a cluster */
    struct redis_engine *engine;     /* a lane's, while it runs there */
};

/* In a cluster, of several that each stand alone: the source of one that another server decides. */
#define REDIS_ELSEWHERE (WEIR_BY_NOBODY - 1)

/* A thread that waits, on its stack. */
struct redis_caller {
    struct redis_waiter waiter;
    struct redis_errand *errand;
    size_t left;      /* of its requests, not ended */
    unsigned bell;    /* that it waits at */
    atomic_bool done; /* release: what is above, and the decisions; it may be gone from then on */
};

/* A connection for one caller at a time; belongs to whoever took its bit out of engine->free_lanes. */
struct redis_lane {
    struct redis_link link;
    struct redis_flight *flight, *again;
    unsigned generation; /* of the engine when the link was opened */
    int64_t last_used_us;
};

enum redis_gate { REDIS_GATE_UP, REDIS_GATE_WAIT, REDIS_GATE_DOWN };

/* (a) atomic, (i) the I/O thread's alone, (l) address_lock, (c) constant once made */
struct redis_engine {
    const struct redis_config *config; /* (c) */
    struct redis_cluster *cluster;     /* (c) that it is part of; NULL: the server stands alone */
    pthread_t thread;                  /* (c) */
    int wake_fd;                       /* (c) wakes the I/O thread */

    _Atomic(struct redis_waiter *) queue; /* (a) the newest first */
    atomic_bool asleep;                   /* (a) the I/O thread waits, or is about to */
    atomic_bool closing;                  /* (a) */
    atomic_bool renew;                    /* (a) a lane found a replica: look again who the primary is */
    atomic_int gate;                      /* (a) enum redis_gate */
    _Atomic int64_t closed_us;            /* (a) when the gate last was up and then was not */
    atomic_uint late;                     /* (a) answers in a row that were late */
    _Atomic int64_t doubt_us;             /* (a) since when there has been reason to think it is not well; 0: none */
    _Atomic int64_t failed_us;            /* (a) when something last failed */
    atomic_bool refuses;                  /* (a) and that was because the server charges nobody */
    atomic_bool crowd;                    /* (a) */
    atomic_uint generation;               /* (a) goes up when the connection is lost: then lanes connect anew */
    atomic_uint free_lanes;               /* (a) a bit each */
    _Atomic int64_t no_lanes_until_us;    /* (a) a lane's connection was not to be had: for a while none tries */
    _Atomic int64_t said_us;              /* (a) when the log last had a line about an error */
    _Atomic int64_t unacknowledged_us;    /* (a) when it last had one about replicas */
    _Atomic int64_t lost_us;              /* (a) when it last had one about a caller's own connection */
    atomic_size_t submitted;              /* (a) waiting ops */
    atomic_uint boarding;                 /* (a) number of the flight that who comes now will be on, most likely */
    struct bell bells[REDIS_BELLS];       /* (a) for flights by their number */
    struct redis_lane lanes[REDIS_LANES];

    struct lock address_lock;
    struct redis_where where;   /* (l) where the I/O thread has connected */
    struct redis_node_name aim; /* (l) in a cluster: what it is to be connected to; port 0: nothing */
    atomic_uint aims;           /* (a) goes up when that is changed */

    struct redis_io *io; /* (i) */

    struct redis_counts {
        _Atomic uint64_t requests, calls, timeouts, connections, breaks;
    } counts; /* (a) relaxed: sums only */
};

/* Begin, with a thread of its own; `cluster` is NULL where there is none. WEIR_OK, WEIR_ENOMEM, or WEIR_EIO: no thread
 * or descriptor to be had. */
int redis_engine_start(const struct redis_config *config, struct redis_cluster *cluster, struct redis_engine **out);

/* End all that waits and comes with WEIR_ECLOSED. Does not wait. */
void redis_engine_shut(struct redis_engine *engine);

/* Nobody is in it any more; shut or not. The engines of a cluster hand things on to one another: first all of them are
 * stopped. */
void redis_engine_stop(struct redis_engine *engine);
void redis_engine_free(struct redis_engine *engine);

/* Let go, in a child, of what belongs to the parent: descriptors only, for memory may be as any thread left it. */
void redis_engine_abandon(struct redis_engine *engine);

/* ---- Decisions ---- */

/* ops->decide() and ops->submit(), by an errand whose `error` is WEIR_OK: which is what it returns. Not on the I/O
 * thread. */
int redis_engine_decide(struct redis_engine *engine, struct redis_errand *errand);
int redis_engine_submit(struct redis_engine *engine, const struct weir_backend_request *request, int64_t deadline_us,
                        struct weir_op *op);

/* Whether it answers WEIR_EIO at once. */
static inline bool redis_engine_is_down(const struct redis_engine *engine)
{
    return atomic_load_explicit(&engine->gate, memory_order_acquire) == REDIS_GATE_DOWN;
}

/* The first by the I/O thread, in two parts: begin() is WEIR_OK or an error, and only then is there something to
 * await. */
int redis_caller_begin(struct redis_caller *caller, struct redis_engine *engine, struct redis_errand *errand);
void redis_caller_await(struct redis_caller *caller, struct redis_engine *engine);

/* Hand a submitted one that another server did not execute to this one's I/O thread: as redis_engine_submit(). */
int redis_engine_take_over(struct redis_engine *engine, struct redis_waiter *waiter);

/* The op that a waiter is kept in which is no caller's. */
struct weir_op *redis_waiter_op(struct redis_waiter *waiter);

/* ops->reachable_us() and ops->well_us() of its server, ops->stats(). */
int64_t redis_engine_reachable_us(const struct redis_engine *engine);
int64_t redis_engine_well_us(const struct redis_engine *engine);
void redis_engine_stats(const struct redis_engine *engine, struct weir_stats *add);

/* ---- In a cluster ---- */

/* Connect to this node; NULL: to none, for there is none to be had or the node has left, and nobody is to wait. */
void redis_engine_aim(struct redis_engine *engine, const struct redis_node_name *node);

/* ---- For its parts ---- */

/* Note how an ask has ended. */
void redis_errand_ended(struct redis_errand *errand, struct redis_ask *ask, int status);

/* Hand one over to the I/O thread: WEIR_OK or WEIR_ECLOSED. */
int redis_engine_queue(struct redis_engine *engine, struct redis_waiter *waiter);

/* All that is in the queue, the oldest first. `last`: and whoever comes later gets WEIR_ECLOSED. */
struct redis_waiter *redis_engine_take_queue(struct redis_engine *engine, bool last);

/* Wake the I/O thread, whatever it waits for. */
void redis_engine_wake(struct redis_engine *engine);

/* Any thread. */
void redis_engine_set_gate(struct redis_engine *engine, enum redis_gate gate);

/* An answer was late. Any thread. */
void redis_engine_late(struct redis_engine *engine);

/* Write a flight to this link, and send it as far as that goes now. False: there was no memory for it, and the link is
 * closed. On the thread that has the link. */
bool redis_engine_take_off(struct redis_engine *engine, struct redis_flight *flight, struct redis_link *link);

/* A flight has landed: note what its answers tell of the server, and tell the log of an error, a line a second at most,
 * or of missing replicas. Whose connection it is deals with flight->read_only. Any thread. */
void redis_engine_landed(struct redis_engine *engine, const struct redis_flight *flight);

/* Whether a line is due that may come once a second, and was last said at *at_us; then it has been now. */
bool redis_line_is_due(_Atomic int64_t *at_us);

/* Tell the log, a line a second at most, that too few replicas have what was charged. */
void redis_engine_say_unacknowledged(struct redis_engine *engine);

/* Likewise, why a caller's own connection was lost, with what was under way on it. */
void redis_engine_say_lost(struct redis_engine *engine, const char *reason);

/* A request has failed, or been decided: by that the engine tells whether the server is well. One that charges nobody may
 * deny and show all the same: only a charge shows the contrary. Any thread. */
void redis_engine_failed(struct redis_engine *engine);
void redis_engine_decided(struct redis_engine *engine, bool has_charged);

static inline void redis_engine_ended(struct redis_engine *engine, const struct redis_ask *ask, int status)
{
    const struct weir_decision *decision = &ask->decision;
    if (status == WEIR_EIO || status == WEIR_ETIME)
        redis_engine_failed(engine);
    else if (status == WEIR_OK && atomic_load_explicit(&engine->doubt_us, memory_order_relaxed) != 0)
        redis_engine_decided(engine, ask->request.verb == WEIR_TAKE ? decision->allowed || decision->ahead > 0
                                                                    : ask->request.verb != WEIR_PEEK);
}

static inline void redis_count(_Atomic uint64_t *count, uint64_t more)
{
    atomic_fetch_add_explicit(count, more, memory_order_relaxed);
}

/* The engine whose I/O thread this is, which must not wait for itself, nor for another of its cluster; NULL: none's. */
const struct redis_engine *redis_engine_here(void);

/* redis/engine/io.c: the thread. */
void *redis_io_run(void *user);
struct redis_io *redis_io_make(struct redis_engine *engine); /* NULL: out of memory */
void redis_io_free(struct redis_io *io);
void redis_io_abandon(struct redis_io *io);

/* redis/engine/lane.c: the callers' own connections. */
int redis_lanes_init(struct redis_engine *engine); /* 0, or -1: out of memory */
void redis_lanes_free(struct redis_engine *engine);
struct redis_lane *redis_lane_take(struct redis_engine *engine); /* NULL: all are taken */
void redis_lane_give(struct redis_engine *engine, struct redis_lane *lane);

/* Run an errand by a lane's connection; false: it could not be made, and nothing was sent. */
bool redis_lane_run(struct redis_engine *engine, struct redis_lane *lane, struct redis_errand *errand);

#endif
