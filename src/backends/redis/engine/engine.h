/* engine.h - carries requests to one Redis server and back: an I/O thread with a shared connection, and lanes.
 *
 * A lone caller is fastest if it writes and reads on its own thread: no thread has to be woken. Many callers are served
 * best together: one write carries all their requests, and equal keys share a place in it. So the first REDIS_LANES
 * callers each take a lane, a connection that its caller works alone. A caller that finds all lanes taken declares a
 * crowd: from then on every caller uses the I/O thread, until that thread has had at most REDIS_LANES waiters for a
 * while. Ops always use the I/O thread.
 *
 * In a cluster each primary has an engine (redis/cluster/cluster.h). It is aimed at one node by name, and may be aimed
 * at another later.
 *
 * The gate tells callers what to expect. It follows the I/O thread's connection:
 *
 *     up      the connection stands
 *     wait    the I/O thread is connecting, for the first time or again. Callers wait, within their deadline.
 *     down    connecting has failed, or REDIS_BREAK_TIMEOUTS answers in a row were late. Callers do not wait. The I/O
 *             thread tries again, one try at a time, after pauses that grow.
 *
 * A request is written once. It is written again only if the server said that it has not executed it.
 *
 * Locks: address_lock, each link's fd_lock. Nothing waits or takes another lock while it holds one of them; a cluster's
 * lock may be held around them.
 */
#ifndef BACKENDS_REDIS_ENGINE_ENGINE_H
#define BACKENDS_REDIS_ENGINE_ENGINE_H

#include "backends/redis/engine/waiter.h"
#include "backends/redis/flight/key.h"
#include "backends/redis/wire/link.h"
#include "backends/shared/bell.h"
#include "core/ground/log.h"

#include <pthread.h>

#define REDIS_LANES 8
#define REDIS_LANE_REQUESTS 256 /* of a batch; batches are usually smaller, so a lane begins with less room */
#define REDIS_BREAK_TIMEOUTS 3
#define REDIS_BELLS 4 /* a power of two; flights that share a bell wake some threads in vain */

/* Why Redis could not be used the last time. (w) mutex */
struct redis_words {
    struct lock mutex;
    char text[LOG_LINE_SIZE / 2]; /* (w) "": nothing has failed */
};

/* (c) constant after open */
struct redis_config {
    struct redis_target target;
    char prefix[REDIS_PREFIX_MAX + 1];
    int64_t timeout_us; /* the longest that a call may take */
    int64_t gather_us;  /* the shortest time between two flights; 0: see io.c */
    struct redis_flight_rules rules;
    struct log log;
    struct redis_words *words;            /* NULL: none are kept */
    void (*_Atomic returned)(void *user); /* called each time that the gate goes up; NULL: not set yet */
    void *returned_user;                  /* release with `returned` */
};

/* The services of a cluster to its engines. */
struct redis_router {
    /* The map is out of date: ask for a new one soon. Any thread. */
    void (*look)(struct redis_router *router);

    /* Hand a redirected op of `from` to the engine of another node, or end it. On the I/O thread of `from`. */
    void (*send_on)(struct redis_router *router, const struct redis_engine *from, struct redis_op_waiter *waiter,
                    int status, const struct redis_redirect *redirect);
};

/* A connection for one caller at a time; belongs to the caller that took its bit out of engine->free_lanes. */
struct redis_lane {
    struct redis_link link;
    struct redis_flight *flight, *again;
    unsigned generation; /* the engine's when the link was opened */
    int64_t last_used_us;
};

enum redis_gate { REDIS_GATE_UP, REDIS_GATE_WAIT, REDIS_GATE_DOWN };

/* (a) atomic, (i) the I/O thread's alone, (l) address_lock, (c) constant once made */
struct redis_engine {
    const struct redis_config *config; /* (c) */
    struct redis_router *router;       /* (c) NULL: not in a cluster */
    pthread_t thread;                  /* (c) */

    struct redis_queue queue;          /* (a) */
    atomic_bool closing;               /* (a) */
    atomic_bool renew;                 /* (a) a lane met a replica: find out again which server is the primary */
    atomic_int gate;                   /* (a) enum redis_gate */
    _Atomic int64_t closed_us;         /* (a) when the gate last stopped being up */
    atomic_uint late;                  /* (a) answers in a row that were late */
    _Atomic int64_t doubt_us;          /* (a) since when the server may be unhealthy; 0: it is healthy */
    _Atomic int64_t failed_us;         /* (a) the last failure */
    atomic_bool refuses;               /* (a) that failure was an answer: the server refuses to charge */
    _Atomic int64_t retry_us;          /* (a) when the I/O thread reports that it may do so again; 0: not */
    atomic_bool crowd;                 /* (a) */
    atomic_uint generation;            /* (a) goes up when the connection is lost: lanes then reconnect */
    atomic_uint free_lanes;            /* (a) a bit each */
    _Atomic int64_t no_lanes_until_us; /* (a) after a lane failed to connect, none tries until then */
    _Atomic int64_t said_us;           /* (a) the last line in the log about an error, */
    _Atomic int64_t unacknowledged_us; /* (a) about replicas, */
    _Atomic int64_t lost_us;           /* (a) about a lane's connection, */
    _Atomic int64_t foreign_us;        /* (a) about a value that is not weir's */
    atomic_size_t submitted;           /* (a) waiting ops */
    atomic_uint boarding;              /* (a) number of the flight that new waiters will probably be aboard */
    struct bell bells[REDIS_BELLS];    /* (a) for flights, by number */
    struct redis_lane lanes[REDIS_LANES];

    struct lock address_lock;
    struct redis_where where;   /* (l) where the I/O thread has connected */
    struct redis_node_name aim; /* (l) in a cluster, the node to connect to; port 0: none */
    atomic_uint aims;           /* (a) goes up when `aim` changes */

    struct redis_io *io; /* (i) */

    struct redis_counts {
        _Atomic uint64_t requests, calls, timeouts, connections, breaks;
    } counts; /* (a) relaxed: only sums */
};

/* Start an engine and its thread; `router` is NULL outside a cluster. WEIR_OK, WEIR_ENOMEM, or WEIR_EIO: the system has
 * no thread or descriptor left. */
int redis_engine_start(const struct redis_config *config, struct redis_router *router, struct redis_engine **out);

/* End everything that waits, and whatever comes later, with WEIR_ECLOSED. Does not wait. */
void redis_engine_shut(struct redis_engine *engine);

/* Stop the thread, then free; no caller is inside any more. Shut or not. Engines of a cluster hand requests to one
 * another, so stop all before freeing any. */
void redis_engine_stop(struct redis_engine *engine);
void redis_engine_free(struct redis_engine *engine);

/* In the child of a fork, close the parent's descriptors. The memory may be in any state. */
void redis_engine_abandon(struct redis_engine *engine);

/* ---- Decisions ---- */

/* Run ops->decide() or ops->submit(). A job comes with `error` WEIR_OK; its error is returned. Not on I/O threads. */
int redis_engine_decide(struct redis_engine *engine, struct redis_job *job);
int redis_engine_submit(struct redis_engine *engine, const struct weir_backend_request *request, int64_t deadline_us,
                        struct weir_op *op);

/* Run a job on the I/O thread in two steps. Only after begin() has returned WEIR_OK may the caller await it. */
int redis_thread_waiter_begin(struct redis_thread_waiter *thread, struct redis_engine *engine, struct redis_job *job);
void redis_thread_waiter_await(struct redis_thread_waiter *thread, struct redis_engine *engine);

/* Take over an op that another server has not executed. Returns as redis_engine_submit(). */
int redis_engine_take_over(struct redis_engine *engine, struct redis_op_waiter *waiter);

/* Connect to this node of the cluster. NULL: the node has left, or none is known; callers then do not wait. */
void redis_engine_aim(struct redis_engine *engine, const struct redis_node_name *node);

/* Return the engine whose I/O thread this is; NULL: none. That thread must not wait for its own cluster. */
const struct redis_engine *redis_engine_here(void);

static inline void redis_count(_Atomic uint64_t *count, uint64_t more)
{
    atomic_fetch_add_explicit(count, more, memory_order_relaxed);
}

/* ---- lane.c: the callers' own connections ---- */

int redis_lanes_init(struct redis_engine *engine); /* 0, or -1: out of memory */
void redis_lanes_free(struct redis_engine *engine);
struct redis_lane *redis_lane_take(struct redis_engine *engine); /* NULL: all are taken */
void redis_lane_give(struct redis_engine *engine, struct redis_lane *lane);

/* Run a job on a lane's connection. False: connecting failed, and nothing was sent. */
bool redis_lane_run(struct redis_engine *engine, struct redis_lane *lane, struct redis_job *job);

#endif
