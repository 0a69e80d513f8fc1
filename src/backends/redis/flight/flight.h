/* flight.h - requests on their way to Redis and back: grouped into script calls, each reply turned into decisions.
 *
 * A flight is what one write carries. Requests for the same key share one place in a call, and keys of the same limit
 * share a call. Each request is decided in its order, as if it had been sent alone: the script gets the costs for each
 * key, moves the states, and returns the states that it found. The decisions are computed here from those, by the
 * core's own algorithms. An all-or-nothing call holds the requests of one caller only.
 *
 *     flight -> calls -> keys -> requests
 *
 * In a cluster each key has its own call: two keys rarely belong to one node, and a node may redirect a call.
 *
 * A call whose takes will probably all be denied (denials.h) runs no script. It reads the time and its only key's
 * value, from which the same decisions follow. If those deny, they stand; else the call flies again, by its script.
 *
 * If replicas must confirm what a call changed, a request that changed something is held when its call is answered; the
 * others end immediately. A flight passes through these steps:
 *
 *     written                  redis_flight_write()
 *     answered, call by call   redis_flight_reply(): REDIS_FLYING; after the last one
 *         nothing changed, or no replicas are required             REDIS_LANDED
 *         some requests are held                                   REDIS_HELD
 *     confirmed, or not        WAIT is written, its answer given to redis_flight_reply(): REDIS_LANDED
 *
 * A flight that changes nothing needs no WAIT. One WAIT covers all flights written before it on the same connection. It
 * blocks that connection for at most the milliseconds that it names. An otherwise idle server notices up to 100 ms late
 * that they are over, so the connection then nudges it.
 *
 * Bounds: as many requests as the flight was made for, REDIS_CALL_KEYS keys in a call. A flight belongs to one thread
 * at a time.
 */
#ifndef BACKENDS_REDIS_FLIGHT_FLIGHT_H
#define BACKENDS_REDIS_FLIGHT_FLIGHT_H

#include "backends/redis/wire/bytes.h"
#include "backends/redis/wire/wire.h"
#include "core/algorithm/algorithm.h"

#include <weir/backend.h>

/* How long a call may keep the server busy: 64 keys take about 150 us, this many blocks of sliding windows about 50. */
#define REDIS_CALL_KEYS 64
#define REDIS_CALL_BLOCKS 256

struct redis_denials;
struct redis_redirect;

/* A request aboard a flight. */
struct redis_flight_request {
    struct weir_backend_request request;
    struct weir_decision decision;
    struct weir_decision *out; /* written when the request ends with WEIR_OK */
    void *owner;               /* for the callback; NULL: the request has ended */
    int64_t deadline_us;
    struct redis_flight_request *next; /* the next one for the same key */
    bool changed;                      /* the server has answered that it changed a state */
};

/* True if the request asks how long its key lay idle: own_ops.idles. It has a call to itself. */
static inline bool redis_request_asks(const struct weir_backend_request *request)
{
    return request->verb == WEIR_TAKE && request->cost == 0 && request->cold_left > 0;
}

/* How requests are grouped into calls. */
struct redis_flight_rules {
    bool in_cluster;               /* one key per call, except for all or nothing; calls may be redirected */
    unsigned replicas;             /* how many must confirm a change before its request ends well; 0: none */
    struct redis_denials *denials; /* which takes need no script; NULL: each one runs its script */
};

struct redis_flight_key;
struct redis_flight_call;

struct redis_flight {
    size_t room; /* for requests; constant, as are the rules */
    struct redis_flight_rules rules;
    size_t request_count, key_count, call_count;
    struct redis_flight_request *requests;
    struct redis_flight_key *keys;
    struct redis_flight_call *calls;
    uint32_t *table; /* hash table of keys: index + 1 */
    uint32_t table_mask;
    uint32_t open_calls[64]; /* by limit: index + 1 of the call that takes its next key */

    unsigned loads; /* a bit for each script that SCRIPT LOAD sends before the calls; redis_flight_again() sets it */
    unsigned loads_due;       /* those of them that are unanswered */
    bool runs;                /* every call runs its script; redis_flight_again() sets it */
    bool asked;               /* the ASKING before the first unanswered call is answered */
    int64_t read_us;          /* the time that the first unanswered call has read; REDIS_UNREAD or REDIS_UNREADABLE */
    int64_t written_us;       /* when the flight was written, by clock_monotonic_us() */
    uint32_t first_echo;      /* of the calls, which have consecutive ones */
    size_t replied;           /* calls answered */
    int64_t deadline_us;      /* the earliest of its requests; INT64_MAX: none is left */
    int64_t changes_until_us; /* the latest deadline of a request that may change something; INT64_MIN: there is none */
    bool held;                /* some requests are held until WAIT is answered */
    bool unacknowledged;      /* too few replicas confirmed */
    int64_t left_us;          /* for the caller: when the flight left */
    unsigned not_loaded;      /* a bit for each script that the server did not know: its calls may be sent again */
    bool undecided;           /* a call that read has not been decided: it is to be sent again */
    unsigned tries;           /* how often scripts have been sent for these requests, this time included */
    bool read_only;           /* the server is a replica */
    char error_word[REDIS_WORD_SIZE]; /* the first word of the first error answered; "": none */
    char error_said[REDIS_SENTENCE_SIZE + WEIR_MAX_NAME_LEN + 48]; /* its sentence, the command and the limit */
    const char *foreign_limit;      /* the limit of a stored value that is not weir's; NULL: none */
    bool decided;                   /* the server is healthy: it has answered a request */
    int64_t state[STATE_MAX_WORDS]; /* of the key whose answer is being read */
};

/* Called once for each request that ends. `status` is WEIR_OK (`out` is written), a negative enum weir_error or, in a
 * cluster, one of these: the server has not executed the request. `redirect` is valid during the call. */
#define REDIS_MOVED 1     /* the node `redirect` serves the slot from now on */
#define REDIS_ASKING 2    /* the node `redirect` decides this one request, if ASKING comes before it */
#define REDIS_TRY_AGAIN 3 /* some of the keys are moving to another node; later one node will have them all */
typedef void redis_request_ended(struct redis_flight_request *aboard, int status,
                                 const struct redis_redirect *redirect);

/* NULL: out of memory. */
struct redis_flight *redis_flight_make(size_t room, struct redis_flight_rules rules);
void redis_flight_free(struct redis_flight *flight);

void redis_flight_clear(struct redis_flight *flight);

/* Add requests, independent or all or nothing. False: they do not all fit, and none is added. `requests` are
 * copied; the bytes of their keys must stay. `owner` is not NULL. `asking`: ASKING precedes their calls, which no other
 * request joins. */
bool redis_flight_add(struct redis_flight *flight, const struct weir_backend_request *requests, size_t n, bool all,
                      int64_t deadline_us, struct weir_decision *out, void *owner, bool asking);

/* End the requests whose deadline has passed with WEIR_ETIME; later answers to them are ignored. */
void redis_flight_expire(struct redis_flight *flight, int64_t now_us, redis_request_ended *ended);

/* Write the whole flight. `out` remembers a failure. */
void redis_flight_write(struct redis_flight *flight, const char *prefix, struct redis_bytes *out);

enum redis_progress {
    REDIS_FLYING,
    REDIS_HELD,   /* all calls are answered, and WAIT is to be written */
    REDIS_LANDED, /* from here on no more answers are due */
    REDIS_MISFIT  /* the reply does not fit the question: close the connection */
};

/* Take the next reply: to the calls or, if the flight is held, to WAIT. Requests to be sent again do not end. */
enum redis_progress redis_flight_reply(struct redis_flight *flight, const struct redis_reply *reply,
                                       redis_request_ended *ended);

/* End every remaining request with `status`. */
void redis_flight_fail(struct redis_flight *flight, int status, redis_request_ended *ended);

/* True if some requests of a flight that has landed are to be sent again. */
static inline bool redis_flight_goes_on(const struct redis_flight *flight)
{
    return flight->not_loaded != 0 || flight->undecided;
}

/* Move the requests to be sent again to an empty flight of at least the same room, which loads the missing scripts
 * first, and runs the scripts of all. Those whose script was missing REDIS_TRIES times end with WEIR_EIO. */
#define REDIS_TRIES 3
void redis_flight_again(struct redis_flight *flight, struct redis_flight *into, redis_request_ended *ended);

/* The WAIT of a connection. */
struct redis_wait {
    bool due; /* it is unanswered */
    int64_t left_us;
    int64_t nudge_us; /* when to nudge the server; INT64_MAX: never */
};
#define REDIS_NO_WAIT ((struct redis_wait){ .nudge_us = INT64_MAX })

/* Write a WAIT whose answer arrives before `until_us`. */
void redis_wait_write(struct redis_wait *wait, unsigned replicas, int64_t until_us, int64_t now_us,
                      struct redis_bytes *out);

/* If it is time, write an empty line. It is not a command, but makes the server look at its clock. */
void redis_wait_nudge(struct redis_wait *wait, int64_t now_us, struct redis_bytes *out);

#endif
