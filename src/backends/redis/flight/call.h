/* call.h - what a flight is made of: its calls, and their keys. redis/flight/flight.c fills them and writes them,
 * redis/flight/answer.c reads what comes back.
 */
#ifndef BACKENDS_REDIS_FLIGHT_CALL_H
#define BACKENDS_REDIS_FLIGHT_CALL_H

#include "backends/redis/flight/flight.h"
#include "backends/redis/flight/state.h"

struct redis_flight_key {
    struct weir_plan plan;
    struct redis_ask *first, *last;
    uint32_t call; /* its index */
};

/* Its keys need not stand side by side: they are found through the first asks, in the order of their coming. */
struct redis_flight_call {
    weir_limit *limit; /* of its keys; NULL if it is all or nothing */
    int64_t now_us;    /* WEIR_OWN_CLOCK, or the time that its requests bring */
    uint64_t version;  /* of the limit's plan */
    enum redis_script_id script;
    bool asking; /* the server executes it only if ASKING comes before it */
    bool answered;
    uint32_t key_count;
    uint32_t keys[REDIS_CALL_KEYS]; /* their indices */
};

/* What the answer must end with: no two calls of this process, of the last 2^32, have it in common. So an answer that
 * is late, doubled or another's is never taken for this one's. */
static inline uint32_t redis_call_echo(const struct redis_flight *flight, const struct redis_flight_call *call)
{
    return flight->first_echo + (uint32_t)(call - flight->calls);
}

/* Tell an ask that has not ended that it has, once. */
static inline void redis_call_end_ask(struct redis_ask *ask, int status, redis_ask_ended *ended)
{
    if (ask->owner) {
        ended(ask, status);
        ask->owner = NULL;
    }
}

/* Tell each ask of a call that it has ended. */
void redis_call_end(struct redis_flight *flight, struct redis_flight_call *call, int status, redis_ask_ended *ended);

#endif
