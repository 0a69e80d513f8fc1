/* slots.c - requests about slots: the calls of lua/slots.lua, and the members of lua/try_all.lua that are slots.
 *
 * Each has a key of its own in its flight, and unless it is a member of a group a call of its own. The script decides;
 * here its answer is read.
 */
#include "backends/redis/flight/call.h"
#include "backends/redis/flight/key.h"
#include "core/algorithm/algorithm.h"
#include "core/ground/arith.h"

#define ASK_SIZE (1 + 8 + 4 * 7 + REDIS_ECHO_SIZE)
#define ANSWER_SIZE (7 + 1 + 4 * 7 + REDIS_ECHO_SIZE)

static int64_t hold_us(const struct redis_flight_key *key, const struct weir_backend_request *request)
{
    const bool brings = request->verb == WEIR_CHARGE && request->ahead > 0;
    return brings ? request->ahead : max_of(1, key->plan.period_us);
}

void redis_slots_write(const struct redis_flight *flight, struct redis_flight_call *call, const char *prefix,
                       struct redis_bytes *out)
{
    unsigned char ask[ASK_SIZE];
    const struct redis_flight_key *key = &flight->keys[call->keys[0]];
    const struct weir_backend_request *request = &key->first->request;
    const uint32_t echo = redis_call_echo(flight, call);
    const bool timed = call->now_us != WEIR_OWN_CLOCK, returns = request->verb == WEIR_REFUND;
    unsigned char *at = redis_put_number(ask, 1, request->verb);
    at = redis_put_number(at, 8, (int64_t)request->slot);
    at = redis_put_number(at, 7, request->cost);
    at = redis_put_number(at, 7, key->plan.size);
    at = redis_put_number(at, 7, hold_us(key, request));
    at = redis_put_number(at, 7, returns ? min_of(request->ahead, EXACT_MAX) : 0);
    memcpy(at, &echo, REDIS_ECHO_SIZE);
    redis_call_write_head(call, 2, 1 + (size_t)timed, out);
    redis_call_write_key(prefix, request, REDIS_SLOTS_SUFFIX, out);
    redis_call_write_key(prefix, request, REDIS_COSTS_SUFFIX, out);
    redis_bytes_string(out, ask, sizeof ask);
    if (timed)
        redis_bytes_number(out, call->now_us);
}

size_t redis_slots_in_group(const struct redis_flight *flight, const struct redis_flight_call *call)
{
    size_t count = 0;
    for (uint32_t i = 0; i < call->key_count; i++)
        count += flight->keys[call->keys[i]].first->request.slot != 0;
    return count;
}

void redis_slots_write_names(const struct redis_flight *flight, const struct redis_flight_call *call,
                             const char *prefix, struct redis_bytes *out)
{
    for (uint32_t i = 0; i < call->key_count; i++) {
        const struct weir_backend_request *request = &flight->keys[call->keys[i]].first->request;
        redis_call_write_key(prefix, request, request->slot ? REDIS_SLOTS_SUFFIX : "", out);
    }
    for (uint32_t i = 0; i < call->key_count; i++) {
        const struct weir_backend_request *request = &flight->keys[call->keys[i]].first->request;
        if (request->slot)
            redis_call_write_key(prefix, request, REDIS_COSTS_SUFFIX, out);
    }
}

size_t redis_slots_stamp(const struct redis_flight_key *key, unsigned char out[REDIS_STAMP_MAX])
{
    unsigned char *at = redis_put_number(out, 1, 'C');
    at = redis_put_number(at, 8, (int64_t)key->first->request.slot);
    at = redis_put_number(at, 7, key->plan.size);
    return (size_t)(redis_put_number(at, 7, hold_us(key, &key->first->request)) - out);
}

/* Fill a decision from the fields that both scripts answer with. */
static void slots_read(const struct redis_flight_key *key, const struct redis_flight_request *aboard, bool allowed,
                       const unsigned char **at, struct weir_decision *out)
{
    const int64_t remaining = redis_get_number(at, 7), retry_after_us = redis_get_number(at, 7),
                  reset_after_us = redis_get_number(at, 7);
    *out = (struct weir_decision){
        .allowed = allowed,
        .source = WEIR_BY_REDIS,
        .limit = key->plan.size,
        .remaining = remaining,
        .retry_after_us = allowed                                 ? 0
                          : aboard->request.cost > key->plan.size ? WEIR_NEVER
                                                                  : retry_after_us,
        .reset_after_us = reset_after_us,
    };
}

/* Note the slot in the reservation. */
static void slots_note(const struct redis_flight_request *aboard)
{
    const struct weir_backend_request *request = &aboard->request;
    if (aboard->owner && aboard->decision.allowed && request->reservation &&
        (request->verb == WEIR_TAKE || request->verb == WEIR_RENEW))
        request->reservation->id = request->slot;
}

size_t redis_slots_member(const struct redis_flight_key *key, const unsigned char *bytes, size_t len, bool takes)
{
    struct redis_flight_request *aboard = key->first;
    const unsigned char *at = bytes;
    if (len < 1 + 3 * 7 || bytes[0] > 1)
        return 0;
    const bool allowed = redis_get_number(&at, 1) == 1;
    slots_read(key, aboard, allowed, &at, &aboard->decision);
    aboard->changed = takes && allowed;
    if (takes)
        slots_note(aboard);
    return (size_t)(at - bytes);
}

bool redis_slots_read(const struct redis_flight *flight, const struct redis_flight_call *call,
                      const struct redis_reply *reply, bool *is_foreign)
{
    const struct redis_flight_key *key = &flight->keys[call->keys[0]];
    struct redis_flight_request *aboard = key->first;
    const uint32_t echo = redis_call_echo(flight, call);
    const unsigned char *at = (const unsigned char *)reply->text;
    if (reply->kind != REDIS_REPLY_IS_STRING || reply->len != ANSWER_SIZE ||
        memcmp(at + ANSWER_SIZE - REDIS_ECHO_SIZE, &echo, REDIS_ECHO_SIZE) != 0)
        return false;
    redis_get_number(&at, 7); /* the time */
    const int64_t answer = redis_get_number(&at, 1);
    *is_foreign = answer == 2;
    if (answer > 2)
        return false;
    slots_read(key, aboard, answer == 1, &at, &aboard->decision);
    aboard->decision.ahead = redis_get_number(&at, 7);
    aboard->changed = answer == 1 && aboard->request.verb != WEIR_PEEK;
    slots_note(aboard);
    return true;
}
