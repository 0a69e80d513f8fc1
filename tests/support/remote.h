/* remote.h - a store that several limiters share, each over its own cable, which can be cut and can lose messages.
 *
 * The store is a memory backend that does not distinguish limiters: it hashes keys itself, and all limiters must define
 * the same limits in the same order.
 */
#ifndef WEIR_TESTS_REMOTE_H
#define WEIR_TESTS_REMOTE_H

#include "support.h"

#include "core/limiter/own_ops.h"

#include <pthread.h>
#include <stdatomic.h>
#include <weir/backend.h>

enum { CABLE_QUEUE = 1024 };

struct remote {
    struct weir_backend *store;
    pthread_mutex_t mutex;
    int64_t charged, most_charged; /* by requests with `ahead`; the largest one */
    /* The answer to charges that ask how long their key was idle (own_ops.idles), and their number. */
    int64_t idle_us, ended_us;
    int asks;
};

enum cable_fault {
    CABLE_WELL,
    CABLE_CUT,           /* WEIR_EIO, immediately */
    CABLE_LOSES_REQUEST, /* WEIR_ETIME; the request does not reach the store */
    CABLE_LOSES_ANSWER   /* WEIR_ETIME; the store has decided */
};

/* A limiter's backend, destroyed with the limiter. */
struct cable {
    struct weir_backend base;
    union {
        struct weir_backend_ops ops; /* a test may change it before it opens the limiter */
        struct own_ops own;
    };
    const int64_t *clock_us; /* of the store, if the cable tells idle times */
    struct remote *remote;
    _Atomic int fault;
    _Atomic int error; /* of requests with `ahead`; WEIR_OK: none */
    atomic_bool later; /* submit() answers later, by cable_answer() */
    _Atomic int calls, submits, charges;

    void (*returned)(void *user);
    void *user;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex. */
    bool held, was_shut; /* decide() holds requests with `ahead` until cable_let_go() */
    int inside;          /* those that wait */
    struct {
        struct weir_op *op;
        struct weir_backend_request request;
    } queue[CABLE_QUEUE];
    int queued, answered;
    pthread_t shutter;
};

void remote_init(struct remote *remote);
void remote_free(struct remote *remote);

void cable_init(struct cable *cable, struct remote *remote);

/* Make the store tell how long keys lay idle: remote->idle_us. It decides by its clock. */
void cable_tell_idle(struct cable *cable, const int64_t *clock_us);

/* Set the fault. A cable that becomes well reports it if it has submit(). */
void cable_set(struct cable *cable, enum cable_fault fault);

/* Answer up to `most` submitted requests in order on this thread; return their number. */
int cable_answer(struct cable *cable, int most);

/* Make decide() hold requests with `ahead`; wait until it holds one; let all continue. */
void cable_hold(struct cable *cable);
void cable_await_held(struct cable *cable);
void cable_let_go(struct cable *cable);

#endif
