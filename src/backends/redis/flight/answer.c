/* answer.c - turns each reply of Redis into the decisions of its call.
 *
 * A script answers with the states that it found, or with the one that a single request has left. The core's own
 * algorithms compute from them what each request gets, in its order. The permits that they charge must add up to what
 * the script says it has charged.
 */
#include "backends/redis/flight/call.h"
#include "backends/redis/flight/denials.h"
#include "backends/redis/wire/scripts.h"
#include "core/algorithm/algorithm.h"
#include "core/algorithm/level.h"
#include "core/ground/arith.h"

/* ---- Decisions ---- */

struct reading {
    const unsigned char *at, *end;
    int64_t now_us, charged;
    int64_t idle_us, ended_us; /* of a request that asks: own_ops.idles */
    bool leaves; /* it has the state that its request has left, instead of the one that its requests met */
};

static int64_t number_read(struct reading *reading)
{
    int64_t number = 0;
    for (int i = 6; i >= 0; i--)
        number = number << 8 | reading->at[i];
    reading->at += 7;
    return number;
}

/* Read a state that a request has left, and take back what the request did: `state` becomes the one that it met. */
static bool left_read(const struct redis_flight_key *key, struct reading *reading, int64_t *state)
{
    const struct weir_plan *plan = &key->plan;
    const struct weir_backend_request *request = &key->first->request;
    if (!redis_left_read(plan, reading->at, state))
        return false;
    reading->at = reading->end;
    reading->now_us = state[1];
    if (request->verb != WEIR_REFUND) {
        reading->charged = request->cost;
        state[0] -= mul_capped(request->cost, plan->q);
        return state[0] >= 0;
    }
    int64_t full[2] = { plan->size * plan->q, state[1] };
    state[0] += full[0];
    level_return(plan, full, request->ahead, request->cost);
    state[0] -= full[0];
    return true;
}

/* Read the time of a short denial, which follows the state. */
static bool denial_read(const struct redis_flight_request *aboard, struct reading *reading)
{
    const unsigned char *text = reading->at + REDIS_BUCKET_STATE_SIZE;
    const bool fits = redis_time_read(text, (size_t)(reading->end - text), &reading->now_us);
    reading->end = text;
    return fits && aboard->request.verb == WEIR_TAKE;
}

static bool frame_read(const struct redis_flight *flight, const struct redis_flight_call *call,
                       const struct redis_reply *reply, struct reading *reading)
{
    const uint32_t echo = redis_call_echo(flight, call);
    if (reply->kind != REDIS_REPLY_IS_STRING || reply->len < REDIS_HEAD_SIZE + REDIS_ECHO_SIZE)
        return false;
    *reading = (struct reading){ .at = (const unsigned char *)reply->text };
    reading->end = reading->at + reply->len - REDIS_ECHO_SIZE;
    if (memcmp(reading->end, &echo, REDIS_ECHO_SIZE) != 0)
        return false;
    if (call->script == REDIS_BUCKET_SINGLE) {
        reading->leaves = reply->len == REDIS_LEFT_SIZE + REDIS_ECHO_SIZE;
        if (reading->leaves)
            return true;
        if (redis_denial_is_short(reading->at, reply->len - REDIS_ECHO_SIZE))
            return denial_read(flight->keys[call->keys[0]].first, reading);
    }
    if (call->script == REDIS_SETTLE) {
        if (reply->len < 2 * REDIS_HEAD_SIZE + REDIS_ECHO_SIZE)
            return false;
        reading->idle_us = number_read(reading);
        reading->ended_us = number_read(reading);
    }
    reading->now_us = number_read(reading);
    reading->charged = number_read(reading);
    return reading->now_us <= WEIR_MAX_TIME_US && (call->now_us == WEIR_OWN_CLOCK || call->now_us == reading->now_us);
}

static bool state_read(const struct redis_flight_key *key, struct reading *reading, int64_t *state,
                       struct origin *origin, enum redis_found *found)
{
    const struct weir_plan *plan = &key->plan;
    *found = REDIS_STATE;
    *origin = (struct origin){ 0 };
    if (reading->leaves)
        return left_read(key, reading, state);
    reading->at += redis_origin_read(reading->at, (size_t)(reading->end - reading->at), origin);
    int used = redis_state_read(plan, reading->at, (size_t)(reading->end - reading->at), state, found);
    if (used < 1)
        return false;
    reading->at += used;
    if (*found == REDIS_FRESH)
        state_charge(plan, state, reading->now_us, 0);
    return true;
}

/* Decide as the script has decided. Return the permits charged. */
static int64_t decide_aboard(const struct weir_plan *plan, int64_t *state, struct origin *origin, int64_t now_us,
                             enum weir_verb verb, struct redis_flight_request *aboard)
{
    struct weir_backend_request *request = &aboard->request;
    if (!aboard->owner) /* it has ended without an answer: its caller has gone, with the reservation */
        request->reservation = NULL;
    if (verb == WEIR_RESET) {
        state_charge(plan, state, now_us, 0);
        verb = WEIR_PEEK;
    }
    state_decide_request(plan, state, origin, now_us, verb, request, &aboard->decision);
    aboard->decision.source = WEIR_BY_REDIS;
    const bool takes = verb == WEIR_TAKE || verb == WEIR_RENEW;
    int64_t charged = takes && aboard->decision.allowed ? request->cost + aboard->decision.ahead : 0;
    if (verb == WEIR_CHARGE)
        charged = request->cost - aboard->decision.ahead;
    aboard->changed = charged > 0 || request->verb == WEIR_REFUND || request->verb == WEIR_RESET;
    return charged;
}

/* Marks, until they end, the requests of a key whose stored value is not a state of weir's. */
#define FOREIGN_SOURCE UINT8_MAX

static void mark_foreign(struct redis_flight_key *key)
{
    for (struct redis_flight_request *aboard = key->first; aboard; aboard = aboard->next)
        aboard->decision.source = FOREIGN_SOURCE;
}

/* Read a slot's part of a group's answer. */
static bool slot_read(struct redis_flight_key *key, struct reading *reading, bool takes, bool *allowed)
{
    if (reading->at < reading->end && *reading->at == 2) {
        reading->at++;
        mark_foreign(key);
        *allowed = false;
        return true;
    }
    const size_t len = redis_slots_member(key, reading->at, (size_t)(reading->end - reading->at), takes);
    reading->at += len;
    *allowed = *allowed && key->first->decision.allowed;
    if (takes)
        reading->charged -= key->first->request.cost;
    return len > 0;
}

/* Decide each request of a call from the states in the reply: with `verb` or, if that is NULL, its own. Return false if
 * the reply is malformed; clear *allowed if any request is denied or any value is foreign. */
static bool read_states(struct redis_flight *flight, const struct redis_flight_call *call, struct reading *reading,
                        const enum weir_verb *verb, bool *allowed)
{
    int64_t *state = flight->state;
    for (uint32_t i = 0; i < call->key_count; i++) {
        struct redis_flight_key *key = &flight->keys[call->keys[i]];
        struct origin origin;
        enum redis_found found;
        if (key->first->request.slot) {
            if (!slot_read(key, reading, verb && *verb == WEIR_TAKE, allowed))
                return false;
            continue;
        }
        if (!state_read(key, reading, state, &origin, &found))
            return false;
        if (found == REDIS_FOREIGN)
            mark_foreign(key);
        for (struct redis_flight_request *aboard = key->first; aboard; aboard = aboard->next) {
            if (found != REDIS_FOREIGN)
                reading->charged -= decide_aboard(&key->plan, state, &origin, reading->now_us,
                                                  verb ? *verb : aboard->request.verb, aboard);
            *allowed = *allowed && found != REDIS_FOREIGN && aboard->decision.allowed;
        }
    }
    return true;
}

/* All or nothing: find out first whether every key allows its request; if so, charge them. */
static bool read_group(struct redis_flight *flight, const struct redis_flight_call *call, struct reading *reading)
{
    static const enum weir_verb peek = WEIR_PEEK, take = WEIR_TAKE;
    const unsigned char *start = reading->at;
    bool allowed = true, foreign = false;
    if (!read_states(flight, call, reading, &peek, &allowed))
        return false;
    if (allowed) {
        reading->at = start;
        return read_states(flight, call, reading, &take, &allowed);
    }
    for (uint32_t i = 0; i < call->key_count; i++)
        foreign = foreign || flight->keys[call->keys[i]].first->decision.source == FOREIGN_SOURCE;
    for (uint32_t i = 0; foreign && i < call->key_count; i++)
        mark_foreign(&flight->keys[call->keys[i]]);
    return true;
}

static void end_decided(struct redis_flight *flight, struct redis_flight_request *aboard, redis_request_ended *ended)
{
    const bool foreign = aboard->decision.source == FOREIGN_SOURCE;
    if (foreign && aboard->owner)
        flight->foreign_limit = weir_limit_name(aboard->request.limit);
    if (!foreign && aboard->owner)
        *aboard->out = aboard->decision;
    redis_flight_request_end(aboard, foreign ? WEIR_ESTATE : WEIR_OK, NULL, ended);
}

/* Note the decisions of takes: the next one for a key that denies need not run a script. */
static void note_denials(const struct redis_flight *flight, const struct redis_flight_call *call)
{
    if (!flight->rules.denials || !call->limit || call->now_us != WEIR_OWN_CLOCK)
        return;
    for (uint32_t i = 0; i < call->key_count; i++) {
        const struct redis_flight_request *aboard = flight->keys[call->keys[i]].first;
        for (; aboard; aboard = aboard->next)
            if (aboard->request.verb == WEIR_TAKE && !aboard->request.slot && aboard->decision.source != FOREIGN_SOURCE)
                redis_denials_note(flight->rules.denials, &aboard->request, &aboard->decision, flight->written_us);
    }
}

/* End the requests of a call, or hold them for replicas. */
static void call_decided(struct redis_flight *flight, struct redis_flight_call *call, redis_request_ended *ended)
{
    call->answered = flight->decided = true; /* even if values are foreign: the server is healthy */
    note_denials(flight, call);
    for (uint32_t i = 0; i < call->key_count; i++) {
        for (struct redis_flight_request *aboard = flight->keys[call->keys[i]].first; aboard; aboard = aboard->next) {
            if (flight->rules.replicas > 0 && aboard->changed && aboard->owner)
                flight->held = true;
            else
                end_decided(flight, aboard, ended);
        }
    }
}

static bool call_answered(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                          redis_request_ended *ended)
{
    struct reading reading;
    if (call->script == REDIS_SLOTS) {
        bool is_foreign;
        if (!redis_slots_read(flight, call, reply, &is_foreign))
            return false;
        if (is_foreign)
            mark_foreign(&flight->keys[call->keys[0]]);
        call_decided(flight, call, ended);
        return true;
    }
    if (!frame_read(flight, call, reply, &reading))
        return false;
    bool allowed = true;
    if (!(call->limit ? read_states(flight, call, &reading, NULL, &allowed) : read_group(flight, call, &reading)) ||
        reading.at != reading.end || reading.charged != 0)
        return false;
    struct redis_flight_request *first = flight->keys[call->keys[0]].first;
    if (redis_request_asks(&first->request)) {
        first->decision.age_us = reading.idle_us;
        first->decision.retry_after_us = reading.ended_us;
    }
    call_decided(flight, call, ended);
    return true;
}

/* ---- Calls that read ---- */

/* Decide a key's takes from its state. Return true if all of them are denied. */
static bool takes_denied(struct redis_flight *flight, const struct redis_flight_key *key)
{
    for (struct redis_flight_request *aboard = key->first; aboard; aboard = aboard->next) {
        decide_aboard(&key->plan, flight->state, NULL, flight->read_us, WEIR_PEEK, aboard);
        if (aboard->decision.allowed)
            return false;
    }
    return true;
}

/* The value's reply is the call's last. */
static bool value_answered(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                           redis_request_ended *ended)
{
    const struct redis_flight_key *key = &flight->keys[call->keys[0]];
    bool is_plain;
    if (!redis_read_value(flight, call, reply, &is_plain))
        return false;
    if (is_plain && takes_denied(flight, key)) {
        call_decided(flight, call, ended);
        return true;
    }
    if (is_plain)
        redis_denials_forget(flight->rules.denials, key->first->request.hash);
    flight->undecided = true;
    return true;
}

static bool read_answered(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                          redis_request_ended *ended)
{
    if (flight->read_us == REDIS_UNREAD)
        return redis_read_time(flight, reply);
    if (!value_answered(flight, call, reply, ended))
        return false;
    flight->read_us = REDIS_UNREAD;
    flight->replied++;
    return true;
}

/* ---- Scripts loaded ---- */

/* If a script cannot be loaded, its calls fail in turn: the server does not execute them. */
static bool load_answered(struct redis_flight *flight, const struct redis_reply *reply)
{
    unsigned script = (unsigned)__builtin_ctz(flight->loads_due);
    flight->loads_due &= flight->loads_due - 1;
    if (reply->kind == REDIS_REPLY_IS_ERROR) {
        redis_flight_note_error(flight, reply, "SCRIPT LOAD", NULL);
        return true;
    }
    return reply->kind == REDIS_REPLY_IS_STRING && reply->len == 40 &&
           memcmp(reply->text, redis_scripts[script].sha1, 40) == 0;
}

/* A server that refuses ASKING redirects the call and does not execute it. */
static bool asking_answered(struct redis_flight *flight, const struct redis_reply *reply)
{
    flight->asked = true;
    if (reply->kind == REDIS_REPLY_IS_ERROR)
        redis_flight_note_error(flight, reply, "ASKING", NULL);
    return reply->kind == REDIS_REPLY_IS_ERROR ||
           (reply->kind == REDIS_REPLY_IS_STATUS && reply->len == 2 && memcmp(reply->text, "OK", 2) == 0);
}

static bool call_replied(struct redis_flight *flight, const struct redis_reply *reply, redis_request_ended *ended)
{
    struct redis_flight_call *call = &flight->calls[flight->replied];
    if (call->reads)
        return read_answered(flight, call, reply, ended);
    if (call->asking && !flight->asked)
        return asking_answered(flight, reply);
    if (reply->kind == REDIS_REPLY_IS_ERROR)
        redis_call_failed(flight, call, reply, ended);
    else if (!call_answered(flight, call, reply, ended))
        return false;
    flight->asked = false;
    flight->replied++;
    return true;
}

/* If too few replicas have confirmed a charge it may be lost or not, so its request ends like one without an answer. */
static bool wait_answered(struct redis_flight *flight, const struct redis_reply *reply, redis_request_ended *ended)
{
    const bool is_number = reply->kind == REDIS_REPLY_IS_NUMBER && reply->number >= 0;
    const bool acknowledged = is_number && reply->number >= flight->rules.replicas;
    if (reply->kind == REDIS_REPLY_IS_ERROR)
        redis_flight_note_error(flight, reply, "WAIT", NULL);
    else if (!is_number)
        return false;
    flight->held = false;
    flight->unacknowledged = is_number && !acknowledged;
    for (size_t i = 0; i < flight->request_count; i++) {
        struct redis_flight_request *aboard = &flight->requests[i];
        if (!aboard->changed)
            continue;
        if (acknowledged)
            end_decided(flight, aboard, ended);
        else
            redis_flight_request_end(aboard, WEIR_EIO, NULL, ended);
    }
    return true;
}

enum redis_progress redis_flight_reply(struct redis_flight *flight, const struct redis_reply *reply,
                                       redis_request_ended *ended)
{
    bool fits;
    assert(flight->replied < flight->call_count || flight->held);
    if (flight->loads_due)
        fits = load_answered(flight, reply);
    else if (flight->replied < flight->call_count)
        fits = call_replied(flight, reply, ended);
    else
        fits = wait_answered(flight, reply, ended);
    if (!fits)
        return REDIS_MISFIT;
    if (flight->replied < flight->call_count)
        return REDIS_FLYING;
    return flight->held ? REDIS_HELD : REDIS_LANDED;
}

void redis_flight_fail(struct redis_flight *flight, int status, redis_request_ended *ended)
{
    for (size_t i = 0; i < flight->call_count; i++) {
        struct redis_flight_call *call = &flight->calls[i];
        if (call->answered)
            continue;
        if (call->reads) /* the server may dislike to be read */
            redis_read_doubt(flight, call);
        redis_call_end(flight, call, status, NULL, ended);
    }
    for (size_t i = 0; i < flight->request_count; i++)
        if (flight->requests[i].changed)
            redis_flight_request_end(&flight->requests[i], status, NULL, ended);
    flight->held = flight->undecided = false;
    flight->not_loaded = 0;
}
