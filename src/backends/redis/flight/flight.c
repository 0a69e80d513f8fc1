/* flight.c - requests on their way to Redis: grouped into script calls, and the calls written. */
#include "backends/redis/flight/call.h"
#include "backends/redis/wire/greet.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/limiter/same_key.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NUDGE_US 1000 /* from the end of a WAIT's time to the first nudge, and between nudges */
#define OPEN_CALLS (sizeof((struct redis_flight *)0)->open_calls / sizeof(uint32_t))

/* ---- Life ---- */

struct redis_flight *redis_flight_make(size_t room, struct redis_flight_rules rules)
{
    uint32_t entries = 16;
    while (entries < 2 * room)
        entries *= 2;
    struct redis_flight *flight = calloc(1, sizeof *flight);
    if (!flight)
        return NULL;
    flight->room = room;
    flight->rules = rules;
    flight->table_mask = entries - 1;
    flight->requests = calloc(room, sizeof *flight->requests);
    flight->keys = calloc(room, sizeof *flight->keys);
    flight->calls = calloc(room, sizeof *flight->calls);
    flight->table = calloc(entries, sizeof *flight->table);
    if (!flight->requests || !flight->keys || !flight->calls || !flight->table) {
        redis_flight_free(flight);
        return NULL;
    }
    return flight;
}

void redis_flight_free(struct redis_flight *flight)
{
    if (!flight)
        return;
    free(flight->requests);
    free(flight->keys);
    free(flight->calls);
    free(flight->table);
    free(flight);
}

void redis_flight_clear(struct redis_flight *flight)
{
    if (flight->key_count > 0)
        memset(flight->table, 0, (flight->table_mask + (size_t)1) * sizeof *flight->table);
    memset(flight->open_calls, 0, sizeof flight->open_calls);
    flight->request_count = flight->key_count = flight->call_count = flight->replied = 0;
    flight->loads = flight->loads_due = flight->not_loaded = 0;
    flight->deadline_us = INT64_MAX;
    flight->changes_until_us = INT64_MIN;
    flight->held = flight->unacknowledged = false;
    flight->left_us = 0;
    flight->runs = flight->undecided = flight->asked = false;
    flight->read_us = REDIS_UNREAD;
    flight->written_us = 0;
    flight->read_only = false;
    flight->error_word[0] = flight->error_said[0] = '\0';
    flight->foreign_limit = NULL;
    flight->decided = false;
    flight->tries = 1;
}

/* ---- Adding ---- */

static struct redis_flight_call *flight_add_call(struct redis_flight *flight, weir_limit *limit, int64_t now_us,
                                                 uint64_t version, enum redis_script_id script, bool asking)
{
    struct redis_flight_call *call = &flight->calls[flight->call_count++];
    call->limit = limit;
    call->now_us = now_us;
    call->version = version;
    call->script = script;
    call->asking = asking;
    call->reads = call->answered = false;
    call->permits = 0;
    call->key_count = 0;
    return call;
}

static struct redis_flight_key *flight_add_key(struct redis_flight *flight, struct redis_flight_call *call,
                                               const struct weir_plan *plan)
{
    uint32_t index = (uint32_t)flight->key_count++;
    struct redis_flight_key *key = &flight->keys[index];
    key->plan = *plan;
    key->first = key->last = NULL;
    key->call = (uint32_t)(call - flight->calls);
    call->keys[call->key_count++] = index;
    return key;
}

/* Return the most permits that a request charges. */
static int64_t request_permits(const struct weir_backend_request *request)
{
    return request->cost + (request->verb == WEIR_TAKE ? request->ahead : 0);
}

/* True if a call may charge that request's permits, too. */
static bool call_has_room(const struct redis_flight_call *call, const struct weir_backend_request *request)
{
    return call->permits <= EXACT_MAX - request_permits(request);
}

static void flight_add_request(struct redis_flight *flight, struct redis_flight_key *key,
                               const struct weir_backend_request *request, int64_t deadline_us,
                               struct weir_decision *out, void *owner)
{
    struct redis_flight_request *aboard = &flight->requests[flight->request_count++];
    assert(request->cost > 0 || redis_request_asks(request) || (request->ahead > 0 && request->verb == WEIR_TAKE));
    flight->calls[key->call].permits += request_permits(request);
    aboard->deadline_us = deadline_us;
    flight->deadline_us = min_of(flight->deadline_us, deadline_us);
    aboard->request = *request;
    aboard->out = out;
    aboard->owner = owner;
    aboard->next = NULL;
    aboard->changed = false;
    if (request->verb != WEIR_PEEK)
        flight->changes_until_us = max_of(flight->changes_until_us, deadline_us);
    if (key->last)
        key->last->next = aboard;
    else
        key->first = aboard;
    key->last = aboard;
}

/* Return the entry of the request's latest key in the flight, or the empty entry where the key belongs. */
static uint32_t *flight_find_key(struct redis_flight *flight, const struct weir_backend_request *request)
{
    uint32_t i = (uint32_t)request->hash & flight->table_mask;
    while (flight->table[i] && !same_key(&flight->keys[flight->table[i] - 1].first->request, request))
        i = (i + 1) & flight->table_mask;
    return &flight->table[i];
}

static uint32_t most_keys(const struct weir_plan *plan)
{
    if (plan->algorithm != WEIR_SLIDING_WINDOW)
        return REDIS_CALL_KEYS;
    return (uint32_t)min_of(REDIS_CALL_KEYS, max_of(1, REDIS_CALL_BLOCKS / (plan->blocks + 1)));
}

/* Return the call that takes the next key of the request's limit. */
static struct redis_flight_call *open_call(struct redis_flight *flight, const struct weir_backend_request *request,
                                           const struct weir_plan *plan, uint64_t version, bool asking)
{
    const bool asks = redis_request_asks(request);
    if (!flight->rules.in_cluster && !asking) {
        uint32_t *open = &flight->open_calls[(uintptr_t)request->limit / 64 % OPEN_CALLS]; /* limits are aligned */
        if (*open && !asks) {
            struct redis_flight_call *call = &flight->calls[*open - 1];
            if (call->limit == request->limit && call->now_us == request->now_us && call->version == version &&
                call->key_count < most_keys(plan) && call_has_room(call, request))
                return call;
        }
        *open = asks ? 0 : (uint32_t)flight->call_count + 1; /* what comes after it must not join a call before it */
    }
    return flight_add_call(flight, request->limit, request->now_us, version, redis_script_of(plan), asking);
}

/* A request joins its key's latest place in the flight, unless the two differ in time or plan, either must be alone, or
 * the call could then charge more than a script can add up. Then it gets a new place in a later call, which keeps the
 * order of the key's requests. */
static void flight_add_one(struct redis_flight *flight, const struct weir_backend_request *request, int64_t deadline_us,
                           struct weir_decision *out, void *owner, bool asking)
{
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    if (request->slot) {
        struct redis_flight_call *call = flight_add_call(flight, request->limit, request->now_us, version, REDIS_SLOTS,
                                                         asking);
        flight_add_request(flight, flight_add_key(flight, call, &plan), request, deadline_us, out, owner);
        return;
    }
    uint32_t *entry = flight_find_key(flight, request);
    struct redis_flight_key *key = *entry ? &flight->keys[*entry - 1] : NULL;
    if (key) {
        const struct redis_flight_call *call = &flight->calls[key->call];
        if (call->now_us != request->now_us || call->version != version || call->asking || asking ||
            !call_has_room(call, request) || redis_request_asks(request) || redis_request_asks(&key->first->request))
            key = NULL;
    }
    if (!key) {
        key = flight_add_key(flight, open_call(flight, request, &plan, version, asking), &plan);
        *entry = (uint32_t)flight->key_count;
    }
    flight_add_request(flight, key, request, deadline_us, out, owner);
}

bool redis_flight_add(struct redis_flight *flight, const struct weir_backend_request *requests, size_t n, bool all,
                      int64_t deadline_us, struct weir_decision *out, void *owner, bool asking)
{
    assert(n >= 1 && (!all || n <= REDIS_CALL_KEYS));
    if (flight->room - flight->request_count < n)
        return false;
    if (!all) {
        for (size_t i = 0; i < n; i++)
            flight_add_one(flight, &requests[i], deadline_us, &out[i], owner, asking);
        return true;
    }
    struct redis_flight_call *call = flight_add_call(flight, NULL, requests[0].now_us, 0, REDIS_TRY_ALL, asking);
    for (size_t i = 0; i < n; i++) {
        struct weir_plan plan;
        weir_request_plan(&requests[i], &plan);
        flight_add_request(flight, flight_add_key(flight, call, &plan), &requests[i], deadline_us, &out[i], owner);
    }
    return true;
}

/* ---- Writing ---- */

/* The commonest calls, one take or settlement of one key, have a shorter script, if the plan allows it. */
static bool write_single(const struct redis_flight *flight, struct redis_flight_call *call, const char *prefix,
                         struct redis_bytes *out)
{
    unsigned char argument[REDIS_SETTLE_SIZE];
    const struct redis_flight_key *key = &flight->keys[call->keys[0]];
    const struct weir_backend_request *request = &key->first->request;
    const bool takes = redis_key_takes(key);
    if (!call->limit || call->key_count > 1 || key->first->next || call->now_us != WEIR_OWN_CLOCK ||
        !(takes || request->verb == WEIR_CHARGE || (request->verb == WEIR_REFUND && request->ahead > 0)))
        return false;
    const uint32_t echo = redis_call_echo(flight, call);
    const size_t len = takes ? redis_take_write(&key->plan, request->cost, &echo, argument)
                             : redis_settle_write(&key->plan, request->cost, request->ahead, &echo, argument);
    if (len == 0)
        return false;
    call->script = REDIS_BUCKET_SINGLE;
    redis_call_write_head(call, 1, 1, out);
    redis_call_write_key(prefix, request, "", out);
    redis_bytes_string(out, argument, len);
    return true;
}

static void write_call(const struct redis_flight *flight, struct redis_flight_call *call, const char *prefix,
                       struct redis_bytes *out)
{
    if (call->script == REDIS_SLOTS) {
        redis_slots_write(flight, call, prefix, out);
        return;
    }
    if (redis_read_write(flight, call, prefix, out))
        return;
    if (redis_ask_write(flight, call, prefix, out) || write_single(flight, call, prefix, out))
        return;
    if (call->limit && call->key_count > 1)
        redis_call_order(flight, call);
    bool all = call->limit == NULL;
    bool timed = call->now_us != WEIR_OWN_CLOCK;
    size_t stamps = all ? call->key_count : 1;
    redis_call_write_head(call, call->key_count + (all ? redis_slots_in_group(flight, call) : 0), stamps + 1 + timed,
                          out);
    redis_slots_write_names(flight, call, prefix, out);
    for (size_t i = 0; i < stamps; i++) {
        unsigned char stamp[REDIS_STAMP_MAX];
        const struct redis_flight_key *key = &flight->keys[call->keys[i]];
        redis_bytes_string(out, stamp,
                           key->first->request.slot ? redis_slots_stamp(key, stamp)
                                                    : redis_stamp_write(&key->plan, stamp));
    }
    redis_call_write_items(flight, call, out);
    if (timed)
        redis_bytes_number(out, call->now_us);
}

void redis_flight_write(struct redis_flight *flight, const char *prefix, struct redis_bytes *out)
{
    static _Atomic uint32_t echoes; /* relaxed: they only need to differ */
    flight->first_echo = atomic_fetch_add_explicit(&echoes, (uint32_t)flight->call_count, memory_order_relaxed);
    flight->loads_due = flight->loads;
    flight->written_us = clock_monotonic_us();
    for (unsigned i = 0; i < REDIS_SCRIPT_COUNT; i++)
        if (flight->loads & 1u << i)
            redis_script_load(&redis_scripts[i], out);
    for (size_t i = 0; i < flight->call_count; i++) {
        if (flight->calls[i].asking)
            redis_bytes_words(out, 0, "ASKING", NULL); /* it covers the next command only */
        write_call(flight, &flight->calls[i], prefix, out);
    }
}

/* A quarter of the time is left for the answer to come back. WAIT 0 would wait for ever. */
void redis_wait_write(struct redis_wait *wait, unsigned replicas, int64_t until_us, int64_t now_us,
                      struct redis_bytes *out)
{
    const int64_t left_us = until_us - now_us;
    const int64_t wait_ms = max_of(1, (left_us - left_us / 4) / 1000);
    redis_bytes_words(out, 2, "WAIT", NULL);
    redis_bytes_number(out, replicas);
    redis_bytes_number(out, wait_ms);
    *wait = (struct redis_wait){ .due = true, .left_us = now_us, .nudge_us = now_us + wait_ms * 1000 + NUDGE_US };
}

void redis_wait_nudge(struct redis_wait *wait, int64_t now_us, struct redis_bytes *out)
{
    if (now_us < wait->nudge_us)
        return;
    redis_bytes_add(out, "\r\n", 2);
    wait->nudge_us = now_us + NUDGE_US;
}

/* ---- Too late ---- */

void redis_flight_expire(struct redis_flight *flight, int64_t now_us, redis_request_ended *ended)
{
    flight->deadline_us = INT64_MAX;
    for (size_t i = 0; i < flight->request_count; i++) {
        struct redis_flight_request *aboard = &flight->requests[i];
        if (aboard->owner && aboard->deadline_us <= now_us)
            redis_flight_request_end(aboard, WEIR_ETIME, NULL, ended);
        else if (aboard->owner)
            flight->deadline_us = min_of(flight->deadline_us, aboard->deadline_us);
    }
}

/* ---- Once more ---- */

/* An all-or-nothing call stays one call: its requests are consecutive, as are their decisions. */
static void call_again(const struct redis_flight *flight, const struct redis_flight_call *call,
                       struct redis_flight *into)
{
    struct redis_flight_call *copy = NULL;
    for (uint32_t k = 0; k < call->key_count; k++) {
        const struct redis_flight_key *key = &flight->keys[call->keys[k]];
        for (const struct redis_flight_request *aboard = key->first; aboard; aboard = aboard->next) {
            if (!aboard->owner)
                continue;
            if (call->limit) {
                flight_add_one(into, &aboard->request, aboard->deadline_us, aboard->out, aboard->owner, call->asking);
            } else {
                if (!copy)
                    copy = flight_add_call(into, NULL, call->now_us, 0, REDIS_TRY_ALL, call->asking);
                flight_add_request(into, flight_add_key(into, copy, &key->plan), &aboard->request, aboard->deadline_us,
                                   aboard->out, aboard->owner);
            }
        }
    }
}

void redis_flight_again(struct redis_flight *flight, struct redis_flight *into, redis_request_ended *ended)
{
    assert(into->request_count == 0 && into->room >= flight->room);
    if (flight->tries >= REDIS_TRIES) {
        redis_flight_fail(flight, WEIR_EIO_UNDONE, ended);
        return;
    }
    into->loads = flight->not_loaded;
    into->tries = flight->tries + (flight->not_loaded != 0);
    into->runs = true;
    for (size_t i = 0; i < flight->call_count; i++) {
        if (!flight->calls[i].answered)
            call_again(flight, &flight->calls[i], into);
        flight->calls[i].answered = true;
    }
    flight->not_loaded = 0;
    flight->undecided = false;
}
