/* fake.h - a scripted backend that fails, waits and answers later on demand. Any thread may use it. */
#ifndef WEIR_TESTS_FAKE_H
#define WEIR_TESTS_FAKE_H

#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <weir/backend.h>

enum { FAKE_QUEUE = 4096 };

struct fake {
    struct weir_backend base;
    struct weir_backend_ops ops; /* a test may change it before it opens the limiter */
    _Atomic int answer;          /* of decide() and of an immediate submit(); WEIR_OK admits every request */
    _Atomic int flaky;           /* if not 0, every n-th decide() fails with WEIR_EIO */
    _Atomic bool later;          /* submit() answers later, by fake_answer() */
    _Atomic int64_t delay_us;    /* in its decisions */
    _Atomic int calls, verbs[WEIR_RENEW + 1];
    _Atomic bool destroyed;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Below: protected by the mutex; a test may read them while no call is in the backend. */
    struct weir_backend_request last;
    struct weir_plan last_plan;
    bool held;     /* decide() waits for fake_let_go() or the shutdown */
    bool stubborn; /* decide() waits even after the shutdown */
    int inside;    /* calls in decide() */
    bool was_shut;
    pthread_t shutter;
    struct weir_op *queue[FAKE_QUEUE];
    int queued, answered;
};

void fake_init(struct fake *fake);

/* Open a limiter over the backend. `options` may be NULL; the clock and the log are the scene's. */
void fake_open(struct fake *fake, struct scene *scene, const struct weir_options *options);

/* Make decide() wait; let it continue; wait until that many calls are in it. */
void fake_hold(struct fake *fake, bool stubborn);
void fake_let_go(struct fake *fake);
void fake_await_inside(struct fake *fake, int calls);

/* Answer up to `most` submitted requests in order on this thread; return their number. */
int fake_answer(struct fake *fake, int status, int most);

#endif
