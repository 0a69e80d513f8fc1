/* stack_depth.h - how much of a thread's stack a call of weir takes, from a painted stack; no timing is involved. */
#ifndef WEIR_TESTS_STACK_DEPTH_H
#define WEIR_TESTS_STACK_DEPTH_H

#include "support.h"

#include <stdatomic.h>

/* What weir.h promises. */
enum { STACK_SINGLE_MOST = 8 * 1024, STACK_GROUP_MOST = 17 * 1024 };

/* A sanitizer enlarges frames, and so does a build without optimisation. */
#if INSTRUMENTED || !defined(__OPTIMIZE__)
#define STACK_CAN_BE_MEASURED 0
#else
#define STACK_CAN_BE_MEASURED 1
#endif

#define STACK_LARGE "sliding_window limit=1000 period=1h blocks=1024"
#define STACK_SMALL "sliding_window limit=500 period=1h blocks=16"
#define STACK_BUCKET "token_bucket limit=900 period=1h"

/* The arguments of the measured calls: a request for each of several limits. */
enum { STACK_KEYS = WEIR_MAX_ALL, STACK_KEY_SIZE = 640 /* too long to be written to Redis in full */ };
struct stack_ask {
    weir *limiter;
    weir_limit *limits[STACK_KEYS];
    char keys[STACK_KEYS][STACK_KEY_SIZE];
    struct weir_request requests[STACK_KEYS]; /* single verbs ask for the first one */
    struct weir_decision decisions[STACK_KEYS];
    struct weir_handle *handle; /* of the first key */
    struct weir_op op;
    atomic_bool done; /* the op */
    int64_t now_us;   /* the time of verbs that bring one; 0: that of the clock */
    int status;       /* of the last call */
    size_t others;    /* bytes that other libraries may take besides what weir.h promises */
};

void stack_ask_begin(struct stack_ask *ask, weir *limiter);
void stack_ask_end(struct stack_ask *ask);

/* Define all limits by this policy, for the first time or anew. */
void stack_ask_define(struct stack_ask *ask, const char *policy);

/* Take of each key alone, at ask->now_us. Failures are ignored. */
void stack_ask_use(struct stack_ask *ask, int64_t cost);

/* The verbs. Only the last two ask for all keys. */
struct stack_verb {
    const char *name;
    void (*call)(void *argument); /* with a struct stack_ask, whose status tells the result */
    bool is_group;
};
enum { STACK_VERBS = 10 };
extern const struct stack_verb stack_verbs[STACK_VERBS];

/* The policies that keys have been used under one after another; the last but one excepted, and the last is new. */
struct stack_history {
    const char *name;
    const char *policies[4];
};
enum { STACK_HISTORIES = 8 };
extern const struct stack_history stack_histories[STACK_HISTORIES];

/* Run `call` on a thread whose stack is painted, and return how many bytes below the caller it has touched. */
size_t stack_depth(void (*call)(void *argument), void *argument);

/* Call a verb. Fail the test if it takes more stack than weir.h promises. Prints what it takes. */
void assert_stack(const struct stack_verb *verb, struct stack_ask *ask, const char *when);

/* Call a verb on a thread with the smallest stack that the system allows and what weir.h promises, above a page that
 * cannot be touched. */
void stack_run_small(const struct stack_verb *verb, struct stack_ask *ask);

#endif
