/* hybrid_remote.h - the store of the target `hybrid`, and for each instance a remote backend on the way to it.
 *
 * The store decides by mirrors. What an instance submits waits until it is executed, and then until it is answered, each
 * when the input says so, in any order; it may be refused at once, lost on the way there or back, or answered when its
 * deadline comes. What decide() is asked for is executed within the call, or lost.
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

/* One for each instance; its first member is what hybrid_open() gets. */
struct remote {
    struct weir_backend base;
    bool was_shut;
    struct pending pending[PENDING_MOST];
    int64_t charged[LIMITS][KEYS];    /* by answers that have come */
    int64_t charged_us[LIMITS][KEYS]; /* when the latest of them was executed */
};

/* What instances, remotes and the clock have in common. */
struct world {
    struct feed feed;
    int64_t now_us;
    bool fails;          /* the input may let anything be lost */
    bool in_call;        /* the one thread there is waits: it is answered at once */
    bool answering;      /* `done` runs */
    int64_t executed_us; /* when what is answered now was executed */
    struct mirror store[LIMITS][KEYS];
    struct remote remotes[INSTANCES];
};
extern struct world world;

void remote_make(struct remote *remote);

/* Execute, or answer with its decision or an error, what is pending at the place; nothing, if there is nothing. */
void remote_execute(struct pending *pending);
void remote_answer(struct remote *remote, struct pending *pending, int status);

/* Let the clock go on, and answer what is due. */
void world_pass(int64_t us);

#endif
