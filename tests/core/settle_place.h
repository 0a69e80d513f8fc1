/* settle_place.h - instances beside a shared store whose cables can be cut, and the debts that outages leave.
 *
 * support/remote.h has the store and the cables. The clock of all instances is now_us.
 */
#ifndef WEIR_TESTS_SETTLE_PLACE_H
#define WEIR_TESTS_SETTLE_PLACE_H

#include "remote.h"

#include "core/api/verbs.h"
#include "core/limiter/inside.h"
#include "core/limiter/limiter.h"

/* An instance at the end of its cable. The first of a test also owns the store. */
struct place {
    struct remote remote;
    struct cable cable;
    weir *limiter;
    weir_limit *limit; /* "limit" */
};

enum way {
    EAGER, /* the cable reports that it works again, and answers submitted requests immediately */
    LATER, /* it answers them when the test says so, and reports nothing */
    LAZY,  /* it can do neither */
    EAGER_TELLING,
    LAZY_TELLING /* the same, and it tells how long keys lay idle */
};

extern int64_t now_us;
extern const char *const ten; /* ten permits, one a second */

/* Open one instance with its store; close both where the block ends. */
#define CLOSED_PLACE CLOSED_BY(place_end) struct place
#define PLACE(name, ...) CLOSED_PLACE *name = place_open(__VA_ARGS__)
struct place *place_open(enum way way, const struct weir_options *options, const char *policy);
void place_close(struct place *place);
void place_end(struct place **place);

/* Another instance, for place_join(); its limiter is closed where the block ends. */
#define OTHER(name) CLOSED_BY(place_leave) struct place name = { 0 }
void place_join(struct place *place, struct remote *remote, const struct weir_options *options, const char *policy);
void place_leave(struct place *place);

void cable_by(struct cable *cable, struct remote *remote, enum way way);

struct weir_decision try_in(struct place *place, const char *key, int64_t cost);

/* Take one permit each of the keys "0", "1", and so on. */
void keys_admit(struct place *place, int count);

/* Cut the cable, let `wait_us` pass, and take `cost` permits of the key from the fallback, which has them. */
void outage_admits(struct place *place, const char *key, int64_t wait_us, int64_t cost);

/* The same, after which the cable is well again. */
void outage_passes(struct place *place, const char *key, int64_t wait_us, int64_t cost);

/* ---- Submitted requests, and callers in threads ---- */

struct asked {
    struct weir_op op;
    int done, status;
};

int submit_in(struct place *place, const char *key, struct asked *asked);

struct caller {
    struct place *place;
    struct weir_decision decision;
    int error;
    pthread_t thread;
};

/* Start a thread that takes one permit of "a". */
void caller_start(struct caller *caller, struct place *place);

#endif
