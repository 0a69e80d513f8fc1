/* fake.h - a backend that fails, waits, answers later and is shut as the test says. Any thread may use it. */
#ifndef WEIR_TESTS_FAKE_H
#define WEIR_TESTS_FAKE_H

#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <weir/backend.h>

enum { FAKE_QUEUE = 4096 };

struct fake {
    struct weir_backend base;
    struct weir_backend_ops ops; /* may be changed before the limiter is opened */
    _Atomic int answer;       /* of decide(), and of submit() if it answers at once; WEIR_OK admits whatever is asked */
    _Atomic int flaky;        /* n: every n-th decide() fails with WEIR_EIO */
    _Atomic bool later;       /* submit() answers later, by fake_answer() */
    _Atomic int64_t delay_us; /* of what it admits */
    _Atomic int calls, verbs[WEIR_RESET + 1];
    _Atomic bool destroyed;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* All below: under the mutex, or read by a test when nobody is in the backend. */
    struct weir_backend_request last;
    struct weir_plan last_plan;
    bool held;     /* decide() waits until it is let go, or the backend is shut */
    bool stubborn; /* or not even then */
    int inside;    /* calls that wait in decide() */
    bool was_shut;
    pthread_t shutter;
    struct weir_op *queue[FAKE_QUEUE];
    int queued, answered;
};

void fake_init(struct fake *fake);

/* Open a limiter over it: `options` may be NULL; clock and log are the scene's. */
void fake_open(struct fake *fake, struct scene *scene, const struct weir_options *options);

/* Let decide() wait, let it go on, and wait until so many calls are in it. */
void fake_hold(struct fake *fake, bool stubborn);
void fake_let_go(struct fake *fake);
void fake_await_inside(struct fake *fake, int calls);

/* Answer up to `most` of what was submitted, in order, on this thread; how many. */
int fake_answer(struct fake *fake, int status, int most);

#endif
