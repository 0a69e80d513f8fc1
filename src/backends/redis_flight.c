/* redis_flight.c - requests on their way to Redis and back: made into script calls, each reply made into decisions. */
#include "backends/redis_flight.h"

#include "backends/redis_key.h"
#include "backends/redis_state.h"
#include "core/algorithm.h"
#include "core/arith.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct redis_flight_key {
    struct weir_plan plan;
    struct redis_ask *first, *last;
    uint32_t call; /* its index */
};

/* Its keys need not stand side by side: they are found through the first asks, in the order of their coming. */
struct redis_flight_call {
    weir_limit *limit; /* of its keys; NULL if it is all or nothing */
    int64_t now_us;    /* WEIR_OWN_CLOCK, or the time that its requests bring */
    uint64_t version;  /* of the limit's plan */
    enum redis_script_id script;
    bool answered;
    uint32_t key_count;
    uint32_t keys[REDIS_CALL_KEYS]; /* their indices */
};

#define OPEN_CALLS (sizeof((struct redis_flight *)0)->open_calls / sizeof(uint32_t))

/* ---- Life ---- */

struct redis_flight *redis_flight_make(size_t room)
{
    uint32_t slots = 16;
    while (slots < 2 * room)
        slots *= 2;
    struct redis_flight *flight = calloc(1, sizeof *flight);
    if (!flight)
        return NULL;
    flight->room = room;
    flight->slot_mask = slots - 1;
    flight->asks = calloc(room, sizeof *flight->asks);
    flight->keys = calloc(room, sizeof *flight->keys);
    flight->calls = calloc(room, sizeof *flight->calls);
    flight->slots = calloc(slots, sizeof *flight->slots);
    if (!flight->asks || !flight->keys || !flight->calls || !flight->slots) {
        redis_flight_free(flight);
        return NULL;
    }
    return flight;
}

void redis_flight_free(struct redis_flight *flight)
{
    if (!flight)
        return;
    free(flight->asks);
    free(flight->keys);
    free(flight->calls);
    free(flight->slots);
    free(flight);
}

void redis_flight_clear(struct redis_flight *flight)
{
    if (flight->key_count > 0)
        memset(flight->slots, 0, (flight->slot_mask + (size_t)1) * sizeof *flight->slots);
    memset(flight->open_calls, 0, sizeof flight->open_calls);
    flight->ask_count = flight->key_count = flight->call_count = flight->replied = flight->again = 0;
    flight->loads = flight->loads_due = flight->not_loaded = 0;
    flight->deadline_us = 0;
    flight->read_only = false;
    flight->error_word[0] = '\0';
    flight->counts = (struct redis_flight_counts){ 0, 0 };
}

/* ---- On board ---- */

static struct redis_flight_call *add_call(struct redis_flight *flight, weir_limit *limit, int64_t now_us,
                                          uint64_t version, enum redis_script_id script)
{
    struct redis_flight_call *call = &flight->calls[flight->call_count++];
    call->limit = limit;
    call->now_us = now_us;
    call->version = version;
    call->script = script;
    call->answered = false;
    call->key_count = 0;
    return call;
}

static struct redis_flight_key *add_key(struct redis_flight *flight, struct redis_flight_call *call)
{
    uint32_t index = (uint32_t)flight->key_count++;
    struct redis_flight_key *key = &flight->keys[index];
    key->first = key->last = NULL;
    key->call = (uint32_t)(call - flight->calls);
    call->keys[call->key_count++] = index;
    return key;
}

static void add_ask(struct redis_flight *flight, struct redis_flight_key *key,
                    const struct weir_backend_request *request, struct weir_decision *out, void *owner)
{
    struct redis_ask *ask = &flight->asks[flight->ask_count++];
    ask->request = *request;
    ask->out = out;
    ask->owner = owner;
    ask->next = NULL;
    ask->tries = 1;
    if (key->last)
        key->last->next = ask;
    else
        key->first = ask;
    key->last = ask;
}

static bool same_key(const struct weir_backend_request *a, const struct weir_backend_request *b)
{
    return a->hash == b->hash && a->limit == b->limit && a->key.len == b->key.len &&
           memcmp(a->key.data, b->key.data, a->key.len) == 0;
}

/* The slot of the last key on board that is the request's, or the empty one where it belongs. */
static uint32_t *find_slot(struct redis_flight *flight, const struct weir_backend_request *request)
{
    uint32_t i = (uint32_t)request->hash & flight->slot_mask;
    while (flight->slots[i] && !same_key(&flight->keys[flight->slots[i] - 1].first->request, request))
        i = (i + 1) & flight->slot_mask;
    return &flight->slots[i];
}

static uint32_t most_keys(const struct weir_plan *plan)
{
    if (plan->algorithm != WEIR_SLIDING_WINDOW)
        return REDIS_CALL_KEYS;
    return (uint32_t)min_of(REDIS_CALL_KEYS, max_of(1, REDIS_CALL_BLOCKS / (plan->blocks + 1)));
}

/* The call that takes the next key of the request's limit. */
static struct redis_flight_call *open_call(struct redis_flight *flight, const struct weir_backend_request *request,
                                           const struct weir_plan *plan, uint64_t version)
{
    uint32_t *open = &flight->open_calls[(uintptr_t)request->limit / 64 % OPEN_CALLS]; /* limits are aligned */
    if (*open) {
        struct redis_flight_call *call = &flight->calls[*open - 1];
        if (call->limit == request->limit && call->now_us == request->now_us && call->version == version &&
            call->key_count < most_keys(plan))
            return call;
    }
    *open = (uint32_t)flight->call_count + 1;
    return add_call(flight, request->limit, request->now_us, version, redis_script_of(plan));
}

/* A request joins the last place of its key on board, unless it is decided by another time or plan: then it gets a
 * later place, in a later call, so that the order of a key's requests is kept. */
static void add_one(struct redis_flight *flight, const struct weir_backend_request *request, struct weir_decision *out,
                    void *owner)
{
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    uint32_t *slot = find_slot(flight, request);
    struct redis_flight_key *key = *slot ? &flight->keys[*slot - 1] : NULL;
    if (key) {
        const struct redis_flight_call *call = &flight->calls[key->call];
        if (call->now_us != request->now_us || call->version != version)
            key = NULL;
    }
    if (!key) {
        key = add_key(flight, open_call(flight, request, &plan, version));
        key->plan = plan;
        *slot = (uint32_t)flight->key_count;
    }
    add_ask(flight, key, request, out, owner);
}

bool redis_flight_add(struct redis_flight *flight, const struct weir_backend_request *requests, size_t n, bool all,
                      struct weir_decision *out, void *owner)
{
    assert(n >= 1 && (!all || n <= REDIS_CALL_KEYS));
    if (flight->room - flight->ask_count < n)
        return false;
    if (!all) {
        for (size_t i = 0; i < n; i++)
            add_one(flight, &requests[i], &out[i], owner);
        return true;
    }
    struct redis_flight_call *call = add_call(flight, NULL, requests[0].now_us, 0, REDIS_TRY_ALL);
    for (size_t i = 0; i < n; i++) {
        struct redis_flight_key *key = add_key(flight, call);
        weir_request_plan(&requests[i], &key->plan);
        add_ask(flight, key, &requests[i], &out[i], owner);
    }
    return true;
}

/* ---- Out ---- */

static void write_load(const struct redis_script *script, struct redis_bytes *out)
{
    redis_bytes_command(out, 3);
    redis_bytes_text(out, "SCRIPT");
    redis_bytes_text(out, "LOAD");
    redis_bytes_string(out, script->text, script->len);
}

/* Equal requests that follow one another are one item. */
static bool ends_item(const struct redis_ask *ask)
{
    const struct redis_ask *next = ask->next;
    return !next || next->request.verb != ask->request.verb || next->request.cost != ask->request.cost;
}

static size_t count_items(const struct redis_flight_key *key)
{
    size_t items = 0;
    for (const struct redis_ask *ask = key->first; ask; ask = ask->next)
        items += ends_item(ask);
    return items;
}

static void write_items(const struct redis_flight_key *key, struct redis_bytes *out)
{
    unsigned times = 0;
    for (const struct redis_ask *ask = key->first; ask; ask = ask->next) {
        times++;
        if (!ends_item(ask))
            continue;
        unsigned char item[REDIS_ITEM_SIZE];
        redis_item_write(item, ask->request.verb, ask->next != NULL, ask->request.cost, times);
        redis_bytes_add(out, item, sizeof item);
        times = 0;
    }
}

/* What the answer must end with: no two calls of this process, of the last 2^32, have it in common. So an answer that is
 * late, doubled or another's is never taken for this one's. */
static uint32_t echo_of(const struct redis_flight *flight, const struct redis_flight_call *call)
{
    return flight->first_echo + (uint32_t)(call - flight->calls);
}

static void write_call(const struct redis_flight *flight, const struct redis_flight_call *call, const char *prefix,
                       struct redis_bytes *out)
{
    bool all = call->limit == NULL;
    bool timed = call->now_us != WEIR_OWN_CLOCK;
    size_t stamps = all ? call->key_count : 1;
    size_t item_count = 0;
    redis_bytes_command(out, 3 + call->key_count + stamps + 1 + timed);
    redis_bytes_text(out, "EVALSHA");
    redis_bytes_string(out, redis_scripts[call->script].sha1, 40);
    redis_bytes_number(out, call->key_count);
    for (uint32_t i = 0; i < call->key_count; i++) {
        const struct redis_flight_key *key = &flight->keys[call->keys[i]];
        const struct weir_backend_request *request = &key->first->request;
        char name[REDIS_KEY_MAX];
        redis_bytes_string(out, name, redis_key_write(prefix, weir_limit_name(request->limit), request->key, name));
        item_count += count_items(key);
    }
    for (size_t i = 0; i < stamps; i++) {
        unsigned char stamp[REDIS_STAMP_MAX];
        redis_bytes_string(out, stamp, redis_stamp_write(&flight->keys[call->keys[i]].plan, stamp));
    }
    redis_bytes_string_head(out, item_count * REDIS_ITEM_SIZE + REDIS_ECHO_SIZE);
    for (uint32_t i = 0; i < call->key_count; i++)
        write_items(&flight->keys[call->keys[i]], out);
    const uint32_t echo = echo_of(flight, call);
    redis_bytes_add(out, &echo, REDIS_ECHO_SIZE);
    redis_bytes_add(out, "\r\n", 2);
    if (timed)
        redis_bytes_number(out, call->now_us);
}

void redis_flight_write(struct redis_flight *flight, const char *prefix, struct redis_bytes *out)
{
    static _Atomic uint32_t echoes; /* relaxed: that they differ is all */
    flight->first_echo = atomic_fetch_add_explicit(&echoes, (uint32_t)flight->call_count, memory_order_relaxed);
    flight->loads_due = flight->loads;
    for (unsigned i = 0; i < REDIS_SCRIPT_COUNT; i++)
        if (flight->loads & 1u << i)
            write_load(&redis_scripts[i], out);
    for (size_t i = 0; i < flight->call_count; i++)
        write_call(flight, &flight->calls[i], prefix, out);
}

/* ---- Back ---- */

static void end_call(struct redis_flight *flight, struct redis_flight_call *call, int status, redis_ask_ended *ended)
{
    call->answered = true;
    for (uint32_t i = 0; i < call->key_count; i++) {
        struct redis_ask *next;
        for (struct redis_ask *ask = flight->keys[call->keys[i]].first; ask; ask = next) {
            next = ask->next;
            flight->counts.failed += status != WEIR_OK;
            flight->counts.decided += status == WEIR_OK;
            ended(ask, status);
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

/* An error means that the script was not executed, or had written nothing yet. */
static void call_failed(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                        redis_ask_ended *ended)
{
    if (redis_reply_is_error(reply, "NOSCRIPT")) {
        flight->not_loaded |= 1u << call->script;
        for (uint32_t i = 0; i < call->key_count; i++)
            for (struct redis_ask *ask = flight->keys[call->keys[i]].first; ask; ask = ask->next)
                flight->again++;
        return;
    }
    note_error(flight, reply);
    flight->read_only = flight->read_only || redis_reply_is_error(reply, "READONLY");
    end_call(flight, call, WEIR_EIO, ended);
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
    const uint32_t echo = echo_of(flight, call);
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
    if (verb == WEIR_RESET) {
        state_charge(plan, state, now_us, 0);
        verb = WEIR_PEEK;
    }
    state_decide(plan, state, now_us, ask->request.cost, verb, &ask->decision);
    ask->decision.source = WEIR_BY_REDIS;
    return verb == WEIR_TAKE && ask->decision.allowed ? ask->request.cost : 0;
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
        struct redis_ask *next;
        for (struct redis_ask *ask = flight->keys[call->keys[i]].first; ask; ask = next) {
            bool foreign = ask->decision.source == FOREIGN_SOURCE;
            next = ask->next;
            flight->counts.decided++; /* by a server that is there and well, whatever is stored in it */
            if (!foreign)
                *ask->out = ask->decision;
            ended(ask, foreign ? WEIR_ESTATE : WEIR_OK);
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

enum redis_progress redis_flight_reply(struct redis_flight *flight, const struct redis_reply *reply,
                                       redis_ask_ended *ended)
{
    if (flight->loads_due) {
        if (!load_answered(flight, reply))
            return REDIS_MISFIT;
    } else {
        assert(flight->replied < flight->call_count);
        struct redis_flight_call *call = &flight->calls[flight->replied];
        if (reply->kind == REDIS_REPLY_IS_ERROR)
            call_failed(flight, call, reply, ended);
        else if (!call_answered(flight, call, reply, ended))
            return REDIS_MISFIT;
        flight->replied++;
    }
    return flight->loads_due == 0 && flight->replied == flight->call_count ? REDIS_LANDED : REDIS_FLYING;
}

void redis_flight_fail(struct redis_flight *flight, int status, redis_ask_ended *ended)
{
    for (size_t i = 0; i < flight->call_count; i++)
        if (!flight->calls[i].answered)
            end_call(flight, &flight->calls[i], status, ended);
    flight->again = 0;
}

/* ---- Once more ---- */

void redis_flight_again(struct redis_flight *flight, struct redis_flight *into, redis_ask_ended *ended)
{
    assert(into->ask_count == 0 && into->room >= flight->room);
    into->loads = flight->not_loaded;
    for (size_t i = 0; i < flight->call_count; i++) {
        struct redis_flight_call *call = &flight->calls[i];
        if (call->answered)
            continue;
        if (flight->keys[call->keys[0]].first->tries >= REDIS_TRIES) {
            end_call(flight, call, WEIR_EIO, ended);
            continue;
        }
        /* All or nothing stays together: its asks stand side by side, as do the outcomes. */
        struct redis_flight_call *copy = NULL;
        for (uint32_t k = 0; k < call->key_count; k++) {
            for (const struct redis_ask *ask = flight->keys[call->keys[k]].first; ask; ask = ask->next) {
                size_t index = into->ask_count;
                if (call->limit) {
                    add_one(into, &ask->request, ask->out, ask->owner);
                } else {
                    if (!copy)
                        copy = add_call(into, NULL, call->now_us, 0, REDIS_TRY_ALL);
                    struct redis_flight_key *key = add_key(into, copy);
                    key->plan = flight->keys[call->keys[k]].plan;
                    add_ask(into, key, &ask->request, ask->out, ask->owner);
                }
                into->asks[index].tries = ask->tries + 1;
            }
        }
        call->answered = true;
    }
    flight->again = 0;
}
