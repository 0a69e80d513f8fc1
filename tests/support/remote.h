/* remote.h - a store that several limiters share, each by a cable of its own that can be cut and lose what it carries.
 *
 * The store is a memory backend. It is not told which limiter asks: keys are hashed anew, and the limits of all must be
 * defined alike and in the same order.
 */
#ifndef WEIR_TESTS_REMOTE_H
#define WEIR_TESTS_REMOTE_H

#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <weir/backend.h>

enum { CABLE_QUEUE = 1024 };

struct remote {
    struct weir_backend *store;
    pthread_mutex_t mutex;
    int64_t charged, most_charged; /* by requests with `ahead`; the most at once */
};

enum cable_fault {
    CABLE_WELL,
    CABLE_CUT,           /* WEIR_EIO, at once */
    CABLE_LOSES_REQUEST, /* WEIR_ETIME, and the store knows nothing of it */
    CABLE_LOSES_ANSWER   /* WEIR_ETIME, and the store has done it */
};

/* A limiter's backend: freed with it. */
struct cable {
    struct weir_backend base;
    struct weir_backend_ops ops; /* may be changed before the limiter is opened */
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
    bool held, was_shut; /* requests with `ahead` that are decided wait until they are let go */
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

/* From now on; a cable that is well again tells so if it has submit(). */
void cable_set(struct cable *cable, enum cable_fault fault);

/* Answer up to `most` of what was submitted, in order, on this thread; how many. */
int cable_answer(struct cable *cable, int most);

/* Let decide() hold requests with `ahead`; wait until one is held; let go. */
void cable_hold(struct cable *cable);
void cable_await_held(struct cable *cable);
void cable_let_go(struct cable *cable);

#endif
