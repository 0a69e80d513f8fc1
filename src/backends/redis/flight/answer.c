/* answer.c - what comes back from Redis: each reply made into the decisions of its call.
 *
 * A script answers with the states that it found. What they mean for each request, in its order, is told by the core's
 * own algorithms, and the permits that these charge must be as many as the script has charged.
 */
#include "backends/redis/flight/redirect.h"
#include "backends/redis/flight/call.h"
#include "core/algorithm/algorithm.h"

#include <string.h>

void redis_call_end(struct redis_flight *flight, struct redis_flight_call *call, int status, redis_ask_ended *ended)
{
    call->answered = true;
    for (uint32_t i = 0; i < call->key_count; i++) {
        for (struct redis_ask *ask = flight->keys[call->keys[i]].first; ask; ask = ask->next) {
            redis_call_end_ask(ask, status, ended);
        }
    }
}

static void note_error(struct redis_flight *flight, const struct redis_reply *reply)
{
    size_t len = 0;
    if (flight->error_word[0] != '\0')
        return;
    while (len < reply->len && len + 1 < sizeof flight->error_word &&
           ((reply->text[len] >= 'A' && reply->text[len] <= 'Z') || reply->text[len] == '_')) {
        flight->error_word[len] = reply->text[len];
        len++;
    }
    flight->error_word[len] = '\0';
    if (len == 0)
        memcpy(flight->error_word, "ERR", sizeof "ERR");
}

/* A command for which a script's user has no right fails without the word NOPERM, which it has outside of scripts: "ERR ACL
 * failure in script: ...", and up to Redis 7.0 "The user executing the script can't run this command or subcommand". */
static bool lacks_right(const struct redis_reply *error)
{
    static const char now[] = "ACL failure in script", before[] = "The user executing the script can't ";
    return memmem(error->text, error->len, now, sizeof now - 1) ||
           memmem(error->text, error->len, before, sizeof before - 1);
}

/* Up to Redis 6.2 the error of a command in a script stands at the end of one about the script: "ERR Error running
 * script (call to f_...): @user_script:1: @user_script: 1: -READONLY You can't write ...". */
static struct redis_reply innermost(const struct redis_reply *error)
{
    static const char outer[] = "ERR Error running script ", noperm[] = "NOPERM";
    const size_t len = sizeof outer - 1;
    if (lacks_right(error))
        return (struct redis_reply){ .kind = error->kind, .text = noperm, .len = sizeof noperm - 1 };
    if (error->len < len || memcmp(error->text, outer, len) != 0)
        return *error;
    const char *mark = memmem(error->text + len, error->len - len, ": -", 3);
    if (!mark)
        return *error;
    return (struct redis_reply){
        .kind = error->kind,
        .text = mark + 3,
        .len = (size_t)(error->text + error->len - (mark + 3)),
    };
}

static void set_redirect(struct redis_flight *flight, struct redis_flight_call *call,
                         const struct redis_redirect *redirect)
{
    for (uint32_t i = 0; i < call->key_count; i++)
        for (struct redis_ask *ask = flight->keys[call->keys[i]].first; ask; ask = ask->next)
            ask->redirect = redirect;
}

/* Whether the call is for another server to execute, or for another time. Only what is said of the call itself counts,
 * not what a command in its script was told, for that comes when the script runs. */
static bool call_redirected(struct redis_flight *flight, struct redis_flight_call *call,
                            const struct redis_reply *reply, redis_ask_ended *ended)
{
    struct redis_redirect redirect;
    if (!flight->rules.in_cluster)
        return false;
    if (redis_reply_is_error(reply, "TRYAGAIN")) {
        redis_call_end(flight, call, REDIS_TRY_AGAIN, ended);
        return true;
    }
    if (!redis_redirect_read(reply, &redirect))
        return false;
    set_redirect(flight, call, &redirect);
    redis_call_end(flight, call, redirect.kind == REDIS_REDIRECT_MOVED ? REDIS_MOVED : REDIS_ASKING, ended);
    set_redirect(flight, call, NULL);
    return true;
}

static size_t count_asks(const struct redis_flight *flight, const struct redis_flight_call *call)
{
    size_t count = 0;
    for (uint32_t i = 0; i < call->key_count; i++)
        for (const struct redis_ask *ask = flight->keys[call->keys[i]].first; ask; ask = ask->next)
            count++;
    return count;
}

/* An error means that the script was not executed, or had written nothing yet. */
static void call_failed(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                        redis_ask_ended *ended)
{
    if (redis_reply_is_error(reply, "NOSCRIPT")) {
        flight->not_loaded |= 1u << call->script;
        flight->again += count_asks(flight, call);
        return;
    }
    if (call_redirected(flight, call, reply, ended)) {
        flight->decided += count_asks(flight, call);
        return;
    }
    const struct redis_reply error = innermost(reply);
    note_error(flight, &error);
    flight->read_only = flight->read_only || redis_reply_is_error(&error, "READONLY");
    redis_call_end(flight, call, WEIR_EIO, ended);
}

struct reading {
    const unsigned char *at, *end;
    int64_t now_us, charged;
};

static int64_t number_read(struct reading *reading)
{
    int64_t number = 0;
    for (int i = 6; i >= 0; i--)
        number = number << 8 | reading->at[i];
    reading->at += 7;
    return number;
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
    reading->now_us = number_read(reading);
    reading->charged = number_read(reading);
    return reading->now_us <= WEIR_MAX_TIME_US && (call->now_us == WEIR_OWN_CLOCK || call->now_us == reading->now_us);
}

static bool state_read(const struct weir_plan *plan, struct reading *reading, int64_t *state, enum redis_found *found)
{
    int used = redis_state_read(plan, reading->at, (size_t)(reading->end - reading->at), state, found);
    if (used < 1)
        return false;
    reading->at += used;
    if (*found == REDIS_FRESH)
        state_charge(plan, state, reading->now_us, 0);
    return true;
}

/* Decide as the script has decided. Returns the permits that were charged. */
static int64_t decide(const struct weir_plan *plan, int64_t *state, int64_t now_us, enum weir_verb verb,
                      struct redis_ask *ask)
{
    const struct weir_backend_request *request = &ask->request;
    if (verb == WEIR_RESET) {
        state_charge(plan, state, now_us, 0);
        verb = WEIR_PEEK;
    }
    if (request->ahead > 0)
        state_take_ahead(plan, state, now_us, request->cost, request->ahead, request->spread, &ask->decision);
    else
        state_decide(plan, state, now_us, request->cost, verb, &ask->decision);
    ask->decision.source = WEIR_BY_REDIS;
    const int64_t charged = verb == WEIR_TAKE && ask->decision.allowed ? request->cost + ask->decision.ahead : 0;
    ask->changed = charged > 0 || request->verb == WEIR_REFUND || request->verb == WEIR_RESET;
    return charged;
}

/* Asks of a key whose state is not ours are marked by this until they are told. */
#define FOREIGN_SOURCE UINT8_MAX

static void mark_foreign(struct redis_flight_key *key)
{
    for (struct redis_ask *ask = key->first; ask; ask = ask->next)
        ask->decision.source = FOREIGN_SOURCE;
}

static bool read_each(struct redis_flight *flight, const struct redis_flight_call *call, struct reading *reading)
{
    int64_t state[STATE_MAX_WORDS];
    for (uint32_t i = 0; i < call->key_count; i++) {
        struct redis_flight_key *key = &flight->keys[call->keys[i]];
        enum redis_found found;
        if (!state_read(&key->plan, reading, state, &found))
            return false;
        if (found == REDIS_FOREIGN) {
            mark_foreign(key);
            continue;
        }
        for (struct redis_ask *ask = key->first; ask; ask = ask->next)
            reading->charged -= decide(&key->plan, state, reading->now_us, ask->request.verb, ask);
    }
    return reading->at == reading->end && reading->charged == 0;
}

/* First what each would answer; if none denies, what each does answer. */
static bool read_all(struct redis_flight *flight, const struct redis_flight_call *call, struct reading *reading)
{
    int64_t state[STATE_MAX_WORDS];
    const struct reading start = *reading;
    bool allowed = true, foreign = false;
    for (int round = 0; round < 2; round++) {
        enum weir_verb verb = round == 0 ? WEIR_PEEK : WEIR_TAKE;
        reading->at = start.at;
        for (uint32_t i = 0; i < call->key_count; i++) {
            struct redis_flight_key *key = &flight->keys[call->keys[i]];
            enum redis_found found;
            if (!state_read(&key->plan, reading, state, &found))
                return false;
            foreign = foreign || found == REDIS_FOREIGN;
            if (found != REDIS_FOREIGN)
                reading->charged -= decide(&key->plan, state, reading->now_us, verb, key->first);
            allowed = allowed && !foreign && key->first->decision.allowed;
        }
        if (!allowed)
            break;
    }
    for (uint32_t i = 0; foreign && i < call->key_count; i++)
        mark_foreign(&flight->keys[call->keys[i]]);
    return reading->at == reading->end && reading->charged == 0;
}

static void tell(struct redis_ask *ask, redis_ask_ended *ended)
{
    const bool foreign = ask->decision.source == FOREIGN_SOURCE;
    if (!foreign && ask->owner)
        *ask->out = ask->decision;
    redis_call_end_ask(ask, foreign ? WEIR_ESTATE : WEIR_OK, ended);
}

static bool call_answered(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                          redis_ask_ended *ended)
{
    struct reading reading;
    if (!frame_read(flight, call, reply, &reading))
        return false;
    if (!(call->limit ? read_each(flight, call, &reading) : read_all(flight, call, &reading)))
        return false;
    call->answered = true;
    for (uint32_t i = 0; i < call->key_count; i++) {
        for (struct redis_ask *ask = flight->keys[call->keys[i]].first; ask; ask = ask->next) {
            flight->decided++; /* by a server that is there and well, whatever is stored in it */
            if (flight->rules.replicas > 0 && ask->changed && ask->owner)
                flight->held = true;
            else
                tell(ask, ended);
        }
    }
    return true;
}

/* A script that cannot be loaded shows in its calls, which then are not executed. */
static bool load_answered(struct redis_flight *flight, const struct redis_reply *reply)
{
    unsigned script = (unsigned)__builtin_ctz(flight->loads_due);
    flight->loads_due &= flight->loads_due - 1;
    if (reply->kind == REDIS_REPLY_IS_ERROR) {
        note_error(flight, reply);
        return true;
    }
    return reply->kind == REDIS_REPLY_IS_STRING && reply->len == 40 &&
           memcmp(reply->text, redis_scripts[script].sha1, 40) == 0;
}

/* A server that refuses ASKING then redirects the call, which is not executed. */
static bool asking_answered(struct redis_flight *flight, const struct redis_reply *reply)
{
    flight->asked = true;
    if (reply->kind == REDIS_REPLY_IS_ERROR)
        note_error(flight, reply);
    return reply->kind == REDIS_REPLY_IS_ERROR ||
           (reply->kind == REDIS_REPLY_IS_STATUS && reply->len == 2 && memcmp(reply->text, "OK", 2) == 0);
}

static bool call_replied(struct redis_flight *flight, const struct redis_reply *reply, redis_ask_ended *ended)
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

/* What too few replicas have acknowledged may be lost, or may not: whoever asked for it knows as little as without an
 * answer. */
static bool wait_answered(struct redis_flight *flight, const struct redis_reply *reply, redis_ask_ended *ended)
{
    const bool is_number = reply->kind == REDIS_REPLY_IS_NUMBER && reply->number >= 0;
    const bool acknowledged = is_number && reply->number >= flight->rules.replicas;
    if (reply->kind == REDIS_REPLY_IS_ERROR)
        note_error(flight, reply);
    else if (!is_number)
        return false;
    flight->held = false;
    flight->unacknowledged = is_number && !acknowledged;
    for (size_t i = 0; i < flight->ask_count; i++) {
        struct redis_ask *ask = &flight->asks[i];
        if (!ask->changed)
            continue;
        if (acknowledged)
            tell(ask, ended);
        else
            redis_call_end_ask(ask, WEIR_EIO, ended);
    }
    return true;
}

enum redis_progress redis_flight_reply(struct redis_flight *flight, const struct redis_reply *reply,
                                       redis_ask_ended *ended)
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

void redis_flight_fail(struct redis_flight *flight, int status, redis_ask_ended *ended)
{
    for (size_t i = 0; i < flight->call_count; i++)
        if (!flight->calls[i].answered)
            redis_call_end(flight, &flight->calls[i], status, ended);
    for (size_t i = 0; i < flight->ask_count; i++)
        if (flight->asks[i].changed)
            redis_call_end_ask(&flight->asks[i], status, ended);
    flight->held = false;
    flight->again = 0;
}
