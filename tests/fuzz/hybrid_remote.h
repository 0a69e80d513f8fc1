/* hybrid_remote.h - the store of fuzz target `hybrid`, and for each instance a remote backend that reaches it.
 *
 * The store decides by mirrors. A submitted request waits until the input says to execute it, and then until the
 * input says to answer it, in any order. It may be refused immediately, lost on the way there or back, or answered at
 * its deadline. A call of decide() is executed within the call, or lost.
 */
#ifndef WEIR_TESTS_HYBRID_REMOTE_H
#define WEIR_TESTS_HYBRID_REMOTE_H

#include "fuzz.h"
#include "mirror.h"

#include <weir/backend.h>

enum { LIMITS = 2, KEYS = 2, INSTANCES = 3, PENDING_MOST = 16 };
extern const char *const key_names[KEYS];

struct pending {
    struct weir_op *op; /* NULL: nothing */
    struct weir_backend_request request;
    int64_t deadline_us;
    bool executed;
    int64_t executed_us;
    struct weir_decision decision;
};

/* One per instance; hybrid_open() gets its first member. */
struct remote {
    struct weir_backend base;
    bool was_shut;
    struct pending pending[PENDING_MOST];
    int64_t charged[LIMITS][KEYS];    /* by received answers */
    int64_t charged_us[LIMITS][KEYS]; /* when the latest of them was executed */
};

/* The state that instances, links and the clock share. */
struct world {
    struct feed feed;
    int64_t now_us;
    bool fails;          /* the input may lose messages */
    bool in_call;        /* the only thread is in a call, so answers are immediate */
    bool answering;      /* `done` is running */
    int64_t executed_us; /* execution time of the answer being delivered */
    struct mirror store[LIMITS][KEYS];
    struct remote remotes[INSTANCES];
};
extern struct world world;

void remote_make(struct remote *remote);

/* Execute the pending request at this place, or answer it with its decision or an error. Does nothing if the place is
 * empty. */
void remote_execute(struct pending *pending);
void remote_answer(struct remote *remote, struct pending *pending, int status);

/* Advance the clock and deliver the answers that are due. */
void world_pass(int64_t us);

#endif
