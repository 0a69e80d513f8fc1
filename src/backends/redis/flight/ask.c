/* ask.c - charges after an outage that ask how long their key lay idle: lua/settle.lua. */
#include "backends/redis/flight/call.h"
#include "core/ground/arith.h"

#define NOTE_SUFFIX ":i" /* of the name of the note beside a key */

bool redis_ask_write(const struct redis_flight *flight, struct redis_flight_call *call, const char *prefix,
                     struct redis_bytes *out)
{
    unsigned char stamp[REDIS_STAMP_MAX], charge[REDIS_ASK_SIZE];
    const struct redis_flight_key *key = &flight->keys[call->keys[0]];
    const struct weir_backend_request *request = &key->first->request;
    if (!call->limit || !redis_request_asks(request) || call->now_us != WEIR_OWN_CLOCK)
        return false;
    const uint32_t echo = redis_call_echo(flight, call);
    call->script = REDIS_SETTLE;
    redis_call_write_head(call, 2, 2, out);
    redis_call_write_key(prefix, request, "", out);
    redis_call_write_key(prefix, request, NOTE_SUFFIX, out);
    redis_bytes_string(out, stamp, redis_stamp_write(&key->plan, stamp));
    redis_ask_pack(request->ahead, min_of(request->cold_left, WEIR_MAX_TIME_US), &echo, charge);
    redis_bytes_string(out, charge, sizeof charge);
    return true;
}
