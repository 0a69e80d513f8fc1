/* call.h - the parts of a flight: calls and their keys. flight.c fills and writes them, items.c what they ask for,
 * and answer.c reads the replies. */
#ifndef BACKENDS_REDIS_FLIGHT_CALL_H
#define BACKENDS_REDIS_FLIGHT_CALL_H

#include "backends/redis/flight/flight.h"
#include "backends/redis/flight/state.h"

struct redis_flight_key {
    struct weir_plan plan;
    struct redis_flight_request *first, *last;
    uint32_t call; /* its index */
};

struct redis_flight_call {
    weir_limit *limit; /* of its keys; NULL: all or nothing */
    int64_t now_us;    /* WEIR_OWN_CLOCK, or the time that its requests bring */
    uint64_t version;  /* of the limit's plan */
    enum redis_script_id script;
    bool asking; /* the server executes it only after ASKING */
    bool answered;
    uint32_t key_count;
    uint32_t keys[REDIS_CALL_KEYS]; /* their indices, which need not be consecutive */
};

/* Return the bytes that the answer must end with. Of this process's last 2^32 calls no two have the same echo, so a
 * late, doubled or stray answer is never taken for this call's. */
static inline uint32_t redis_call_echo(const struct redis_flight *flight, const struct redis_flight_call *call)
{
    return flight->first_echo + (uint32_t)(call - flight->calls);
}

/* True if the key's only request is a take of permits for itself. */
bool redis_key_takes(const struct redis_flight_key *key);

/* Put the keys of a call of one limit into the order in which its items are fewest: those that have one equal take each
 * come first, and those that have one return each next. See redis_items_pack(). */
void redis_call_order(const struct redis_flight *flight, struct redis_flight_call *call);

/* Write the items of a call and its echo, packed unless it is all or nothing. */
void redis_call_write_items(const struct redis_flight *flight, const struct redis_flight_call *call,
                            struct redis_bytes *out);

/* End a request, unless it has ended. */
static inline void redis_flight_request_end(struct redis_flight_request *aboard, int status,
                                            const struct redis_redirect *redirect, redis_request_ended *ended)
{
    if (aboard->owner) {
        ended(aboard, status, redirect);
        aboard->owner = NULL;
    }
}

/* End the requests of a call. */
void redis_call_end(struct redis_flight *flight, struct redis_flight_call *call, int status,
                    const struct redis_redirect *redirect, redis_request_ended *ended);

#endif
