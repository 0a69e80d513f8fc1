/* ask.c - charges after an outage that ask how long their key lay idle: lua/bucket_settle.lua. */
#include "backends/redis/flight/call.h"
#include "backends/redis/flight/key.h"
#include "core/ground/arith.h"

#include <string.h>

/* Write the name of the note beside a key: the key's, and ":i". */
static void ask_write_note(const char *prefix, const struct weir_backend_request *request, struct redis_bytes *out)
{
    static const char suffix[] = { ':', 'i' };
    const char *limit_name = weir_limit_name(request->limit);
    const size_t len = redis_key_len(prefix, limit_name, request->key) + sizeof suffix;
    redis_bytes_string_head(out, len);
    char *room = redis_bytes_room(out, len);
    if (room) {
        memcpy(room + redis_key_write(prefix, limit_name, request->key, room), suffix, sizeof suffix);
        out->len += len;
    }
    redis_bytes_add(out, "\r\n", 2);
}

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
    redis_bytes_command(out, 6);
    redis_bytes_text(out, "EVALSHA");
    redis_bytes_string(out, redis_scripts[call->script].sha1, 40);
    redis_bytes_number(out, 2);
    redis_call_write_key(prefix, request, out);
    ask_write_note(prefix, request, out);
    redis_bytes_string(out, argument, sizeof argument);
    return true;
}
