/* answer.c - turns each reply of Redis into the decisions of its call.
 *
 * A script answers with the states that it found, or with the one that a single request has left. The core's own
 * algorithms compute from them what each request gets, in its order. The permits that they charge must add up to what
 * the script says it has charged.
 */
#include "backends/redis/flight/call.h"
#include "backends/redis/flight/redirect.h"
#include "backends/redis/wire/scripts.h"
#include "core/algorithm/algorithm.h"
#include "core/algorithm/level.h"
#include "core/ground/arith.h"

#include <stdio.h>
#include <string.h>

void redis_call_end(struct redis_flight *flight, struct redis_flight_call *call, int status,
                    const struct redis_redirect *redirect, redis_request_ended *ended)
{
    call->answered = true;
    for (uint32_t i = 0; i < call->key_count; i++) {
        struct redis_flight_request *aboard = flight->keys[call->keys[i]].first;
        for (; aboard; aboard = aboard->next)
            redis_flight_request_end(aboard, status, redirect, ended);
    }
}

/* ---- Errors ---- */

/* Note the first error: of a call to this script for this limit, or NULL. */
static void flight_note_error(struct redis_flight *flight, const struct redis_reply *reply, const char *command,
                              const char *limit)
{
    char sentence[REDIS_SENTENCE_SIZE];
    if (flight->error_word[0] != '\0')
        return;
    redis_reply_word(reply, flight->error_word);
    redis_reply_sentence(reply, sentence);
    snprintf(flight->error_said, sizeof flight->error_said, "%s (to %s%s%s)", sentence, command,
             limit ? " for limit " : "", limit ? limit : "");
}

static const char *call_limit(const struct redis_flight_call *call)
{
    return call->limit ? weir_limit_name(call->limit) : NULL;
}

/* Return where an error says that the script's user may not run a command, or NULL. Such an error lacks the word NOPERM
 * that it has outside of scripts. It is "ERR ACL failure in script: ..."; up to Redis 7.0, "The user executing the
 * script can't run this command ...". */
static const char *lacked_right(const struct redis_reply *error)
{
    static const char now[] = "ACL failure in script: ", before[] = "The user executing the script can't ";
    const char *at = memmem(error->text, error->len, now, sizeof now - 1);
    return at ? at + sizeof now - 1 : memmem(error->text, error->len, before, sizeof before - 1);
}

/* Write the name of the command that the script may not run, which Redis names from 7.2 on. Before that it may give the
 * line of the script; without a line it was the reading command, see lua/each.lua. */
static void write_lacked_command(const struct redis_flight_call *call, const struct redis_reply *error, char *out,
                                 size_t size)
{
    static const char place[] = "user_script:", begin[] = "call('";
    const char *end = error->text + error->len, *text = redis_scripts[call->script].text;
    const char *at = memmem(error->text, error->len, place, sizeof place - 1);
    long line = 0;
    for (at = at ? at + sizeof place - 1 : end; at < end && *at >= '0' && *at <= '9' && line < 10000; at++)
        line = 10 * line + (*at - '0');
    for (long i = 1; text && i < line; i++) {
        text = strchr(text, '\n');
        text += text ? 1 : 0;
    }
    const char *name = line > 0 && text ? strstr(text, begin) : NULL;
    if (name && (size_t)(name - text) < strcspn(text, "\n"))
        snprintf(out, size, "%.*s", (int)strcspn(name + sizeof begin - 1, "'"), name + sizeof begin - 1);
    else
        snprintf(out, size, "%s", call->key_count > 1 ? "MGET" : "GET");
    for (; *out; out++)
        *out = (char)(*out >= 'A' && *out <= 'Z' ? *out - 'A' + 'a' : *out);
}

/* Return the error of the command in the script. Up to Redis 6.2 it is the end of an error about the script: "ERR Error
 * running script (call to f_...): @user_script:1: @user_script: 1: -READONLY You can't write ...". `room` holds the
 * text of an error about a right. */
static struct redis_reply innermost(const struct redis_flight_call *call, const struct redis_reply *error,
                                    char room[REDIS_SENTENCE_SIZE])
{
    static const char outer[] = "ERR Error running script ", run[] = "can't run this command";
    const size_t len = sizeof outer - 1;
    const char *mark = lacked_right(error);
    if (mark) {
        char command[16] = "";
        const size_t left = (size_t)(error->text + error->len - mark);
        const bool is_nameless = memmem(mark, left, run, sizeof run - 1) != NULL;
        if (is_nameless)
            write_lacked_command(call, error, command, sizeof command);
        const int used = is_nameless
                             ? snprintf(room, REDIS_SENTENCE_SIZE, "NOPERM the user can't run '%s'", command)
                             : snprintf(room, REDIS_SENTENCE_SIZE, "NOPERM %.*s", (int)min_of(128, (int)left), mark);
        return (struct redis_reply){ .kind = error->kind, .text = room, .len = (size_t)used, .secret = error->secret };
    }
    if (error->len < len || memcmp(error->text, outer, len) != 0)
        return *error;
    mark = memmem(error->text + len, error->len - len, ": -", 3);
    if (!mark)
        return *error;
    return (struct redis_reply){
        .kind = error->kind,
        .text = mark + 3,
        .len = (size_t)(error->text + error->len - (mark + 3)),
        .secret = error->secret,
    };
}

/* True if another node must execute the call, or this one later. Only an error about the call itself counts: an error
 * of a command in its script comes from a script that ran. */
static bool call_redirected(struct redis_flight *flight, struct redis_flight_call *call,
                            const struct redis_reply *reply, redis_request_ended *ended)
{
    struct redis_redirect redirect;
    if (!flight->rules.in_cluster)
        return false;
    if (redis_reply_is_error(reply, "TRYAGAIN"))
        redis_call_end(flight, call, REDIS_TRY_AGAIN, NULL, ended);
    else if (redis_redirect_read(reply, &redirect))
        redis_call_end(flight, call, redirect.kind == REDIS_REDIRECT_MOVED ? REDIS_MOVED : REDIS_ASKING, &redirect,
                       ended);
    else
        return false;
    return true;
}

/* An error means that the script did not run, or stopped before it had written anything. */
static void call_failed(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                        redis_request_ended *ended)
{
    if (redis_reply_is_error(reply, "NOSCRIPT")) {
        flight->not_loaded |= 1u << call->script;
        return;
    }
    if (call_redirected(flight, call, reply, ended)) {
        flight->decided = true;
        return;
    }
    char room[REDIS_SENTENCE_SIZE];
    const struct redis_reply error = innermost(call, reply, room);
    flight_note_error(flight, &error, "EVALSHA", call_limit(call));
    flight->read_only = flight->read_only || redis_reply_is_error(&error, "READONLY");
    redis_call_end(flight, call, WEIR_EIO, NULL, ended);
}

/* ---- Decisions ---- */

struct reading {
    const unsigned char *at, *end;
    int64_t now_us, charged;
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
    struct level full = { .used = plan->size * plan->q, .tick = state[1] };
    state[0] += full.used;
    level_return(plan, NULL, &full, request->ahead, request->cost);
    state[0] -= full.used;
    return true;
}

/* Read the time of a short denial, which follows the state. */
static bool denial_read(const struct redis_flight_request *aboard, struct reading *reading)
{
    const unsigned char *text = reading->at + REDIS_BUCKET_STATE_SIZE;
    const bool fits = redis_denial_read(text, (size_t)(reading->end - text), &reading->now_us);
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
    reading->now_us = number_read(reading);
    reading->charged = number_read(reading);
    return reading->now_us <= WEIR_MAX_TIME_US && (call->now_us == WEIR_OWN_CLOCK || call->now_us == reading->now_us);
}

static bool state_read(const struct redis_flight_key *key, struct reading *reading, int64_t *state,
                       enum redis_found *found)
{
    const struct weir_plan *plan = &key->plan;
    *found = REDIS_STATE;
    if (reading->leaves)
        return left_read(key, reading, state);
    int used = redis_state_read(plan, reading->at, (size_t)(reading->end - reading->at), state, found);
    if (used < 1)
        return false;
    reading->at += used;
    if (*found == REDIS_FRESH)
        state_charge(plan, state, reading->now_us, 0);
    return true;
}

/* Decide as the script has decided. Return the permits charged. */
static int64_t decide_aboard(const struct weir_plan *plan, int64_t *state, int64_t now_us, enum weir_verb verb,
                             struct redis_flight_request *aboard)
{
    struct weir_backend_request *request = &aboard->request;
    if (!aboard->owner) /* it has ended without an answer: its caller has gone, with the reservation */
        request->reservation = NULL;
    if (verb == WEIR_RESET) {
        state_charge(plan, state, now_us, 0);
        verb = WEIR_PEEK;
    }
    state_decide_request(plan, state, now_us, verb, request, &aboard->decision);
    aboard->decision.source = WEIR_BY_REDIS;
    const bool takes = verb == WEIR_TAKE || verb == WEIR_RENEW;
    int64_t charged = takes && aboard->decision.allowed ? request->cost + aboard->decision.ahead : 0;
    if (verb == WEIR_CHARGE)
        charged = request->cost - aboard->decision.ahead;
    aboard->changed = charged > 0 || request->verb == WEIR_REFUND || request->verb == WEIR_RESET || verb == WEIR_RENEW;
    return charged;
}

/* Marks, until they end, the requests of a key whose stored value is not a state of weir's. */
#define FOREIGN_SOURCE UINT8_MAX

static void mark_foreign(struct redis_flight_key *key)
{
    for (struct redis_flight_request *aboard = key->first; aboard; aboard = aboard->next)
        aboard->decision.source = FOREIGN_SOURCE;
}

/* Decide each request of a call from the states in the reply: with `verb` or, if that is NULL, its own. Return false if
 * the reply is malformed; clear *allowed if any request is denied or any value is foreign. */
static bool read_states(struct redis_flight *flight, const struct redis_flight_call *call, struct reading *reading,
                        const enum weir_verb *verb, bool *allowed)
{
    int64_t *state = flight->state;
    for (uint32_t i = 0; i < call->key_count; i++) {
        struct redis_flight_key *key = &flight->keys[call->keys[i]];
        enum redis_found found;
        if (!state_read(key, reading, state, &found))
            return false;
        if (found == REDIS_FOREIGN)
            mark_foreign(key);
        for (struct redis_flight_request *aboard = key->first; aboard; aboard = aboard->next) {
            if (found != REDIS_FOREIGN)
                reading->charged -= decide_aboard(&key->plan, state, reading->now_us,
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

static bool call_answered(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                          redis_request_ended *ended)
{
    struct reading reading;
    if (!frame_read(flight, call, reply, &reading))
        return false;
    bool allowed = true;
    if (!(call->limit ? read_states(flight, call, &reading, NULL, &allowed) : read_group(flight, call, &reading)) ||
        reading.at != reading.end || reading.charged != 0)
        return false;
    call->answered = flight->decided = true; /* even if values are foreign: the server is healthy */
    for (uint32_t i = 0; i < call->key_count; i++) {
        for (struct redis_flight_request *aboard = flight->keys[call->keys[i]].first; aboard; aboard = aboard->next) {
            if (flight->rules.replicas > 0 && aboard->changed && aboard->owner)
                flight->held = true;
            else
                end_decided(flight, aboard, ended);
        }
    }
    return true;
}

/* If a script cannot be loaded, its calls fail in turn: the server does not execute them. */
static bool load_answered(struct redis_flight *flight, const struct redis_reply *reply)
{
    unsigned script = (unsigned)__builtin_ctz(flight->loads_due);
    flight->loads_due &= flight->loads_due - 1;
    if (reply->kind == REDIS_REPLY_IS_ERROR) {
        flight_note_error(flight, reply, "SCRIPT LOAD", NULL);
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
        flight_note_error(flight, reply, "ASKING", NULL);
    return reply->kind == REDIS_REPLY_IS_ERROR ||
           (reply->kind == REDIS_REPLY_IS_STATUS && reply->len == 2 && memcmp(reply->text, "OK", 2) == 0);
}

static bool call_replied(struct redis_flight *flight, const struct redis_reply *reply, redis_request_ended *ended)
{
    struct redis_flight_call *call = &flight->calls[flight->replied];
    if (call->asking && !flight->asked)
        return asking_answered(flight, reply);
    if (reply->kind == REDIS_REPLY_IS_ERROR)
        call_failed(flight, call, reply, ended);
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
        flight_note_error(flight, reply, "WAIT", NULL);
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
    for (size_t i = 0; i < flight->call_count; i++)
        if (!flight->calls[i].answered)
            redis_call_end(flight, &flight->calls[i], status, NULL, ended);
    for (size_t i = 0; i < flight->request_count; i++)
        if (flight->requests[i].changed)
            redis_flight_request_end(&flight->requests[i], status, NULL, ended);
    flight->held = false;
    flight->not_loaded = 0;
}
