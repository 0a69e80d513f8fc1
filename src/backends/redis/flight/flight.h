/* flight.h - requests on their way to Redis and back: made into script calls, each reply made into decisions.
 *
 * A flight is what goes out in one write. Requests for the same key share one place in a call, keys of the same limit
 * share a call, and each request is decided in its order as if it had been sent alone: the script is told the costs of
 * each key, moves the states, and answers with those it found; what that means for each request is computed here, by
 * the core's own algorithms. A call that is all or nothing holds the requests of one caller only.
 *
 *     flight -> calls -> keys -> asks                 an ask is one request
 *
 * In a cluster each key has a call of its own, for two keys are rarely of one node, and a server may answer that a call
 * is for another to execute.
 *
 * Where replicas must have what a call has changed before anybody may rely on it, an ask that changed something is held
 * when its call is answered; all others are told at once. A flight is, one after the other:
 *
 *     written                  redis_flight_write()
 *     answered, call by call   redis_flight_reply(): REDIS_FLYING; after the last one
 *         nothing was changed, or no replicas are asked for              REDIS_LANDED
 *         held: some asks were told nothing yet                          REDIS_HELD
 *     acknowledged, or not     WAIT is written, its answer given to redis_flight_reply(): REDIS_LANDED
 *
 * So who changes nothing has no WAIT. One is for all flights that are written before it on the same connection. It
 * blocks that connection up to the milliseconds that it names, and a server that has nothing else to do sees that they
 * are over up to 100 ms late: then it is nudged.
 *
 * Bounds: as many asks as the flight was made with, REDIS_CALL_KEYS keys in a call. A flight belongs to one thread at a
 * time.
 */
#ifndef BACKENDS_REDIS_FLIGHT_FLIGHT_H
#define BACKENDS_REDIS_FLIGHT_FLIGHT_H

#include "backends/redis/wire/bytes.h"
#include "backends/redis/wire/scripts.h"
#include "backends/redis/wire/wire.h"

#include <weir/backend.h>

/* What a call may keep the server busy with: 64 keys are about 150 us; of sliding windows so many blocks, about 50. */
#define REDIS_CALL_KEYS 64
#define REDIS_CALL_BLOCKS 256

struct redis_redirect;

struct redis_ask {
    struct weir_backend_request request;
    struct weir_decision decision;
    struct weir_decision *out; /* written when the ask ends well */
    void *owner;               /* whose it is; NULL: it has ended */
    int64_t deadline_us;
    struct redis_ask *next;                /* for the same key, later */
    unsigned tries;                        /* how often it has been sent */
    bool changed;                          /* the server has answered that it changed a state */
    const struct redis_redirect *redirect; /* REDIS_MOVED, REDIS_ASKING: to where; valid while it is told */
};

/* How requests are made into calls. */
struct redis_flight_rules {
    bool in_cluster;   /* a key a call, but for all or nothing; and calls end as below */
    unsigned replicas; /* that must have acknowledged what an ask has changed before it is told so; 0: none need */
};

struct redis_flight_key;
struct redis_flight_call;

struct redis_flight {
    size_t room; /* for asks; never changes, nor do the rules */
    struct redis_flight_rules rules;
    size_t ask_count, key_count, call_count;
    struct redis_ask *asks;
    struct redis_flight_key *keys;
    struct redis_flight_call *calls;
    uint32_t *table; /* hash table of keys: index + 1 */
    uint32_t table_mask;
    uint32_t open_calls[64]; /* by limit: index + 1 of the call that takes its next key */

    unsigned loads;      /* scripts whose SCRIPT LOAD goes before the calls: a bit each; set by redis_flight_again() */
    unsigned loads_due;  /* of them unanswered */
    bool asked;          /* the ASKING of the first call unanswered is answered */
    uint32_t first_echo; /* of its calls, which have one after the other */
    size_t replied;      /* calls answered */
    int64_t deadline_us; /* the first of its asks'; INT64_MAX: none is left */
    int64_t changes_until_us; /* the last of those that may change something; INT64_MIN: there is none */
    bool held;                /* some asks are, until WAIT is answered */
    bool unacknowledged;      /* it was, by too few replicas */
    int64_t left_us;          /* the caller's own: when it left */
    unsigned not_loaded;      /* scripts that the server did not know: a bit each */
    size_t again;             /* asks that were not executed for that, and may be sent again */
    bool read_only;           /* the server is a replica */
    char error_word[24];      /* the first error that it answered with: its first word; or "" */
    uint64_t decided;         /* asks that a server that is well has answered */
};

/* Who is told of each ask that has ended: WEIR_OK (ask->out is written), a negative enum weir_error, or, in a cluster,
 * that the server has not executed it, but: */
#define REDIS_MOVED 1     /* ask->redirect says who does, from now on, for each key of the slot */
#define REDIS_ASKING 2    /* ask->redirect says who does, this time, if asked with ASKING */
#define REDIS_TRY_AGAIN 3 /* of its keys some are on their way to another server: later one will have them all */
typedef void redis_ask_ended(struct redis_ask *ask, int status);

/* NULL: out of memory. */
struct redis_flight *redis_flight_make(size_t room, struct redis_flight_rules rules);
void redis_flight_free(struct redis_flight *flight);

void redis_flight_clear(struct redis_flight *flight);

/* Put requests on board, each by itself or all or nothing; false: there is no room for them all, and none is on board.
 * `requests` are copied, the bytes of their keys must stay. `owner` is not NULL. `asking`: their calls have ASKING before
 * them, and nobody joins them. */
bool redis_flight_add(struct redis_flight *flight, const struct weir_backend_request *requests, size_t n, bool all,
                      int64_t deadline_us, struct weir_decision *out, void *owner, bool asking);

/* End the asks whose deadline has come with WEIR_ETIME; what is answered to them later is passed over. */
void redis_flight_expire(struct redis_flight *flight, int64_t now_us, redis_ask_ended *ended);

/* Write it all. Failure is remembered in `out`. */
void redis_flight_write(struct redis_flight *flight, const char *prefix, struct redis_bytes *out);

enum redis_progress {
    REDIS_FLYING,
    REDIS_HELD,   /* all calls are answered, and WAIT is to be written */
    REDIS_LANDED, /* this, or more, and nothing is to come */
    REDIS_MISFIT  /* the reply is not one to what was asked: the connection is of no more use */
};

/* Take the next reply: to the calls, or, of a flight that is held, to WAIT. Asks that are to be sent again are not told
 * of. */
enum redis_progress redis_flight_reply(struct redis_flight *flight, const struct redis_reply *reply,
                                       redis_ask_ended *ended);

/* Tell every ask that has not ended that it ends with `status`. */
void redis_flight_fail(struct redis_flight *flight, int status, redis_ask_ended *ended);

/* Move the asks that are to be sent again to an empty flight of at least the same room, which loads their scripts
 * first. Those sent REDIS_TRIES times end with WEIR_EIO. */
#define REDIS_TRIES 3
void redis_flight_again(struct redis_flight *flight, struct redis_flight *into, redis_ask_ended *ended);

/* The WAIT of a connection. */
struct redis_wait {
    bool due;         /* it is unanswered */
    int64_t left_us;  /* when it left */
    int64_t nudge_us; /* when the server is to be nudged; INT64_MAX: it is not */
};
#define REDIS_NO_WAIT ((struct redis_wait){ .nudge_us = INT64_MAX })

/* Write one, by which what waits for it is told before `until_us`. */
void redis_wait_write(struct redis_wait *wait, unsigned replicas, int64_t until_us, int64_t now_us,
                      struct redis_bytes *out);

/* If it is time, write what has the server look at its clock, and is no command: an empty line. */
void redis_wait_nudge(struct redis_wait *wait, int64_t now_us, struct redis_bytes *out);

#endif
