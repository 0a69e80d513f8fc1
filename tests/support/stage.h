/* stage.h - hybrid mode over a remote backend in hand: a clock that is set, and answers that come when the test says.
 *
 * The remote decides as a memory backend does, whole limits, by the stage's clock. What is submitted to it waits, in
 * order, until stage_answer(); what calls decide() is answered at once. tests/support/remote.h is the other one: a store that
 * several limiters share, whose cables fail.
 */
#ifndef WEIR_TESTS_STAGE_H
#define WEIR_TESTS_STAGE_H

#include "support.h"

#include "core/limiter/own_ops.h"

#include <pthread.h>
#include <stdatomic.h>
#include <weir/backend.h>

enum { STAGE_LIFE_US = 100000, STAGE_QUEUE = 4096 };

#define STAGE_WIDE "token_bucket limit=1000000 period=1s" /* a policy that denies nothing here */

/* The limiter's backend, or rather the one behind it. */
struct stage_remote {
    struct weir_backend base;
    union { /* may be changed while no thread is in it; the test puts it back before the stage closes */
        struct weir_backend_ops ops;
        struct own_ops own;
    };
    struct weir_backend *store;
    pthread_mutex_t mutex;
    _Atomic int64_t now_us; /* the time everywhere; it begins 1,000 s after zero */
    int failure;            /* what decisions end with; WEIR_OK */
    bool was_shut;
    int decided, submitted; /* calls */
    int64_t ahead;          /* of what was submitted last */
    struct stage_pending {
        struct weir_op *op;
        struct weir_backend_request request;
    } queue[STAGE_QUEUE];
    int queued, answered;
};

struct stage {
    struct stage_remote remote;
    struct weir_backend *hybrid;
    weir *limiter;
    weir_limit *limit; /* "limit" */
    int finished;      /* how many of the submitted */
};

/* What may be other than usual; 0: as usual. */
struct stage_settings {
    int64_t max_keys;               /* 1000 */
    int64_t lease_max;              /* no bound of its own */
    int64_t (*now_us)(void *stage); /* what leases are held by: the stage's clock; `stage`: the stage */
};

void stage_open(struct stage *stage, const char *policy);
void stage_open_as(struct stage *stage, const char *policy, const struct stage_settings *settings);

/* With the remote as it was, and whatever waits answered. */
void stage_close(struct stage *stage);

/* Open a stage that is closed where its block ends. */
#define STAGE(name, policy)                   \
    CLOSED_BY(stage_close) struct stage name; \
    stage_open(&name, policy)

int64_t stage_now_us(void *stage);
void stage_pass(struct stage *stage, int64_t us);
struct weir_limit_info stage_info(const struct stage *stage);

/* ---- The remote ---- */

/* Decide what was submitted, in its order, now, and answer `late_us` later, until nothing waits. Returns how many. */
int stage_answer(struct stage *stage, int64_t late_us);

/* The remote's ops->decide() as it is before a test changes it. */
int stage_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                 int64_t deadline_us, struct weir_decision *out);

/* A request of the limit as the core passes it on, by the backend's own clock. */
struct weir_backend_request stage_request(const struct stage *stage, const char *key, int64_t cost);

/* Another instance's request, decided in the store beside this instance and all that waits. */
struct weir_decision stage_elsewhere(struct stage *stage, const char *key, enum weir_verb verb, int64_t cost);

/* How many permits other instances get now, one by one, until there are none. */
int64_t stage_drain(struct stage *stage, const char *key);

/* ---- Submitted requests ---- */

struct asked {
    struct weir_op op;
    struct stage *stage;
    int done, status; /* done: 1, 2, ... in the order of their ending; 0: it waits */
};

/* An op's `done`, of an op that is the first member of a struct asked. */
void asked_done(struct weir_op *op, int status);

/* weir_submit(); what is decided at once counts as done, too. */
int stage_submit(struct stage *stage, struct asked *asked, const char *key, int64_t cost);

/* How many permits this instance spends of its lease, one by one, until a request has to wait or comes to something
 * else; nothing is answered meanwhile, and then everything. */
int64_t stage_spend(struct stage *stage, const char *key);

/* Ask for a permit every `gap_us` for three lives, with answers at once; then let what is leased go by, and count calls
 * from zero. The key is a busy one now. */
void stage_warm_up(struct stage *stage, const char *key, int64_t gap_us);

/* The same on another thread, so that this one has never brought an answer. */
void stage_warm_up_elsewhere(struct stage *stage, const char *key, int64_t gap_us);

#endif
