/* read.c - calls that read: takes that will be denied, decided from the time and the key's value without a script.
 *
 * TIME is sent first, then GET, and Redis runs them one after the other. Should another client's command run between
 * the two, a bucket's state is younger than the time, and only the script decides. A window's state does not show when
 * it changed. A denial by it is true after that change, and its waits are counted from the time before.
 */
#include "backends/redis/flight/call.h"
#include "backends/redis/flight/denials.h"

/* Decide whether a call reads: it has one key, and each of its requests is a take that will probably be denied. */
static bool call_reads(const struct redis_flight *flight, const struct redis_flight_call *call)
{
    struct redis_denials *denials = flight->rules.denials;
    if (!denials || call->script == REDIS_SLOTS || flight->runs || !call->limit || call->key_count > 1 ||
        call->asking || call->now_us != WEIR_OWN_CLOCK)
        return false;
    for (const struct redis_flight_request *aboard = flight->keys[call->keys[0]].first; aboard; aboard = aboard->next)
        if (aboard->request.verb != WEIR_TAKE || aboard->request.ahead > 0 ||
            !redis_denials_foresee(denials, &aboard->request, flight->written_us))
            return false;
    return true;
}

bool redis_read_write(const struct redis_flight *flight, struct redis_flight_call *call, const char *prefix,
                      struct redis_bytes *out)
{
    call->reads = call_reads(flight, call);
    if (!call->reads)
        return false;
    redis_bytes_words(out, 0, "TIME", NULL);
    redis_bytes_command(out, 2);
    redis_bytes_text(out, "GET");
    redis_call_write_key(prefix, &flight->keys[call->keys[0]].first->request, "", out);
    return true;
}

/* Its scripts will say whether the server refuses the user or the command; from here on it is not asked again. */
static void note_refusal(const struct redis_flight *flight, const struct redis_reply *reply)
{
    if (redis_reply_is_error(reply, "NOPERM") || redis_reply_is_error(reply, "ERR"))
        redis_denials_stop(flight->rules.denials);
}

bool redis_read_time(struct redis_flight *flight, const struct redis_reply *reply)
{
    if (reply->kind != REDIS_REPLY_IS_ERROR)
        return reply->kind == REDIS_REPLY_IS_LIST &&
               redis_time_read((const unsigned char *)reply->text, reply->len, &flight->read_us);
    note_refusal(flight, reply);
    flight->read_us = REDIS_UNREADABLE;
    return true;
}

/* Read the state that a key had at flight->read_us from its value. Return false unless a script that denies would
 * answer with it: a state that is under another plan, or younger than the time, is written anew even then. */
static bool value_read(struct redis_flight *flight, const struct weir_plan *plan, const struct redis_reply *reply)
{
    enum redis_found found;
    if (reply->kind == REDIS_REPLY_IS_NIL)
        state_charge(plan, flight->state, flight->read_us, 0);
    if (reply->kind != REDIS_REPLY_IS_STRING)
        return reply->kind == REDIS_REPLY_IS_NIL;
    return redis_state_read(plan, (const unsigned char *)reply->text, reply->len, flight->state, &found) ==
               (int)reply->len &&
           found == REDIS_STATE && state_noted_us(plan, flight->state, 0) <= flight->read_us;
}

void redis_read_doubt(const struct redis_flight *flight, const struct redis_flight_call *call)
{
    const struct redis_flight_key *key = &flight->keys[call->keys[0]];
    redis_denials_doubt(flight->rules.denials, key->first->request.hash, flight->written_us);
}

bool redis_read_value(struct redis_flight *flight, const struct redis_flight_call *call,
                      const struct redis_reply *reply, bool *is_plain)
{
    const struct redis_flight_key *key = &flight->keys[call->keys[0]];
    if (reply->kind != REDIS_REPLY_IS_ERROR && reply->kind != REDIS_REPLY_IS_STRING &&
        reply->kind != REDIS_REPLY_IS_NIL)
        return false;
    note_refusal(flight, reply);
    *is_plain = flight->read_us != REDIS_UNREADABLE && value_read(flight, &key->plan, reply);
    if (!*is_plain)
        redis_read_doubt(flight, call);
    return true;
}
