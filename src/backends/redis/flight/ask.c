/* ask.c - charges after an outage that ask how long their key lay idle: lua/bucket_settle.lua. */
#include "backends/redis/flight/call.h"
#include "core/ground/arith.h"

#define NOTE_SUFFIX ":i" /* of the name of the note beside a key */

bool redis_ask_write(const struct redis_flight *flight, struct redis_flight_call *call, const char *prefix,
                     struct redis_bytes *out)
{
    unsigned char argument[REDIS_SETTLE_SIZE];
    const struct redis_flight_key *key = &flight->keys[call->keys[0]];
    const struct weir_backend_request *request = &key->first->request;
    if (!call->limit || !redis_request_asks(request) || call->now_us != WEIR_OWN_CLOCK)
        return false;
    const uint32_t echo = redis_call_echo(flight, call);
    const int64_t ago_us = max_of(1, min_of(request->cold_left, WEIR_MAX_TIME_US)); /* 0 would leave it out */
    if (redis_settle_write(&key->plan, request->ahead, ago_us, &echo, argument) == 0)
        return false;
    call->script = REDIS_BUCKET_SETTLE;
    redis_call_write_head(call, 2, 1, out);
    redis_call_write_key(prefix, request, "", out);
    redis_call_write_key(prefix, request, NOTE_SUFFIX, out);
    redis_bytes_string(out, argument, sizeof argument);
    return true;
}
