/* stage.h - hybrid mode over a scripted remote backend: the test sets the clock and delivers the answers.
 *
 * The remote decides whole limits like a memory backend, by the stage's clock. Submitted requests wait in order until
 * stage_answer(); decide() answers immediately. remote.h has another stand-in: a store that several limiters share over
 * cables that fail.
 */
#ifndef WEIR_TESTS_STAGE_H
#define WEIR_TESTS_STAGE_H

#include "support.h"

#include "core/limiter/own_ops.h"

#include <pthread.h>
#include <stdatomic.h>
#include <weir/backend.h>

enum { STAGE_LIFE_US = 100000, STAGE_QUEUE = 4096 };

#define STAGE_WIDE "token_bucket limit=1000000 period=1s" /* denies nothing in these tests */

/* The backend behind hybrid. */
struct stage_remote {
    struct weir_backend base;
    union { /* may be changed while no thread is in it; the test puts it back before the stage closes */
        struct weir_backend_ops ops;
        struct own_ops own;
    };
    struct weir_backend *store;
    pthread_mutex_t mutex;
    _Atomic int64_t now_us; /* the time of all clocks; starts at 1,000 s */
    int failure;            /* the result of decisions; normally WEIR_OK */
    bool was_shut;
    int decided, submitted; /* calls */
    int64_t ahead;          /* of the last submitted request */
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
    int finished;      /* submitted requests that are done */
};

/* Settings; 0 means the default in the comment. */
struct stage_settings {
    int64_t max_keys;               /* 1000 */
    int64_t max_bytes;              /* 64 MiB */
    int64_t lease_max;              /* no bound */
    int64_t life_us;                /* STAGE_LIFE_US */
    int64_t excess;                 /* 100 */
    int64_t timeout_us;             /* of WEIR_OPTIONS_INIT */
    int64_t (*now_us)(void *stage); /* the clock of leases: the stage's; `stage` is the stage */
};

void stage_open(struct stage *stage, const char *policy);
void stage_open_as(struct stage *stage, const char *policy, const struct stage_settings *settings);

/* Restore the remote's ops, answer all waiting requests and close. */
void stage_close(struct stage *stage);

/* Open a stage that is closed where its block ends. */
#define STAGE(name, policy)                   \
    CLOSED_BY(stage_close) struct stage name; \
    stage_open(&name, policy)

int64_t stage_now_us(void *stage);
void stage_pass(struct stage *stage, int64_t us);
struct weir_limit_info stage_info(const struct stage *stage);

/* ---- The remote ---- */

/* Decide submitted requests in order, and answer each `late_us` later, until none waits. Return their number. */
int stage_answer(struct stage *stage, int64_t late_us);

/* The remote's original ops->decide(). */
int stage_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                 int64_t deadline_us, struct weir_decision *out);

/* Return a request as the core passes it to a backend that has its own clock. */
struct weir_backend_request stage_request(const struct stage *stage, const char *key, int64_t cost);

/* Decide another instance's request in the store, past this instance and all waiting requests. */
struct weir_decision stage_elsewhere(struct stage *stage, const char *key, enum weir_verb verb, int64_t cost);

/* Take permits for other instances one by one until none is left; return their number. */
int64_t stage_drain(struct stage *stage, const char *key);

/* ---- Submitted requests ---- */

struct asked {
    struct weir_op op;
    struct stage *stage;
    int done, status; /* done: 1, 2, ... in the order of answers; 0: waiting */
};

/* The `done` of an op that is the first member of a struct asked. */
void asked_done(struct weir_op *op, int status);

/* Call weir_submit(). An immediate decision counts as done, too. */
int stage_submit(struct stage *stage, struct asked *asked, const char *key, int64_t cost);

/* Submit, then answer all that waits `late_us` later. */
void stage_ask(struct stage *stage, struct asked *asked, const char *key, int64_t cost, int64_t late_us);

/* Take leased permits one by one until a request waits or is not decided by the lease. Answers only after that. Return
 * the number of permits. */
int64_t stage_spend(struct stage *stage, const char *key);

/* Make the key busy: take a permit every `gap_us` for three lives, with immediate answers. Then let the lease expire
 * and reset the counters of calls. */
void stage_warm_up(struct stage *stage, const char *key, int64_t gap_us);

/* The same on another thread, so that this one has delivered no answer yet. */
void stage_warm_up_elsewhere(struct stage *stage, const char *key, int64_t gap_us);

#endif
