/* call.h - the parts of a flight: calls and their keys. flight.c fills and writes them, items.c what they ask for, and
 * read.c those that run no script. answer.c takes the replies, and errors.c says what is wrong with one. */
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
    bool reads;  /* it sends TIME and GET instead of its script */
    bool answered;
    int64_t permits; /* the most that its requests charge: at most EXACT_MAX, because a script adds up what they do */
    uint32_t key_count;
    uint32_t keys[REDIS_CALL_KEYS]; /* their indices, which need not be consecutive */
};

/* Return the bytes that the answer must end with. Of this process's last 2^32 calls no two have the same echo, so a
 * late, doubled or stray answer is never taken for this call's. */
static inline uint32_t redis_call_echo(const struct redis_flight *flight, const struct redis_flight_call *call)
{
    return flight->first_echo + (uint32_t)(call - flight->calls);
}

/* flight->read_us of a call that reads before TIME is answered, and after it has been answered with an error. */
#define REDIS_UNREAD (-1)
#define REDIS_UNREADABLE (-2)

/* True if the key's only request is a take of permits for itself. */
bool redis_key_takes(const struct redis_flight_key *key);

/* Put the keys of a call of one limit into the order in which its items are fewest: those that have one equal take each
 * come first, and those that have one return each next. See redis_items_pack(). */
void redis_call_order(const struct redis_flight *flight, struct redis_flight_call *call);

/* Write the name of a key, and `suffix`, in place: it is too long for the caller's stack. */
void redis_call_write_key(const char *prefix, const struct weir_backend_request *request, const char *suffix,
                          struct redis_bytes *out);

/* Write what a command begins with that runs the call's script with `keys` keys and `arguments` arguments. */
void redis_call_write_head(const struct redis_flight_call *call, size_t keys, size_t arguments,
                           struct redis_bytes *out);

/* Write the items of a call and its echo, packed unless it is all or nothing. */
void redis_call_write_items(const struct redis_flight *flight, const struct redis_flight_call *call,
                            struct redis_bytes *out);

/* Write a call of lua/slots.lua. */
void redis_slots_write(const struct redis_flight *flight, struct redis_flight_call *call, const char *prefix,
                       struct redis_bytes *out);

/* Read its answer into the decision of its request. False: it is malformed. */
bool redis_slots_read(const struct redis_flight *flight, const struct redis_flight_call *call,
                      const struct redis_reply *reply, bool *is_foreign);

/* The members of a group that are slots: how many there are, all keys of the group, a member's stamp, and its part of
 * the answer, of which redis_slots_member() returns the length, or 0 if it is malformed. */
size_t redis_slots_in_group(const struct redis_flight *flight, const struct redis_flight_call *call);
void redis_slots_write_names(const struct redis_flight *flight, const struct redis_flight_call *call,
                             const char *prefix, struct redis_bytes *out);
size_t redis_slots_stamp(const struct redis_flight_key *key, unsigned char out[REDIS_STAMP_MAX]);
size_t redis_slots_member(const struct redis_flight_key *key, const unsigned char *bytes, size_t len, bool takes);

/* If the call's request asks how long its key lay idle, write the script for it and return true. */
bool redis_ask_write(const struct redis_flight *flight, struct redis_flight_call *call, const char *prefix,
                     struct redis_bytes *out);

/* If the call's takes will probably all be denied, write the commands that read, and return true: see denials.h. */
bool redis_read_write(const struct redis_flight *flight, struct redis_flight_call *call, const char *prefix,
                      struct redis_bytes *out);

/* Take the reply to each of them. Return false if it does not fit. *is_plain: flight->state is the key's state at
 * flight->read_us, and a script that denies would change nothing; else only the script can decide. */
bool redis_read_time(struct redis_flight *flight, const struct redis_reply *reply);
bool redis_read_value(struct redis_flight *flight, const struct redis_flight_call *call,
                      const struct redis_reply *reply, bool *is_plain);

/* Leave the key of a call that reads to its script for a while. */
void redis_read_doubt(const struct redis_flight *flight, const struct redis_flight_call *call);

/* Note the first error of a flight: of a call to this script for this limit, or NULL. */
void redis_flight_note_error(struct redis_flight *flight, const struct redis_reply *reply, const char *command,
                             const char *limit);

/* End a call that was answered with an error, or note that its script is missing. */
void redis_call_failed(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                       redis_request_ended *ended);

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
