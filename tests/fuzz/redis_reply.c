/* redis_reply.c - what Redis sends: through hiredis's reader, cut at random, into decisions.
 *
 * The input is a stream of bytes; or requests, the states that a script finds for them, and a fate of its reply.
 * Properties:
 *
 *     - a stream gives the same replies, and fails at the same one, however it is cut, with lists and without
 *     - a list's contents are shown in order, up to the allowed depth
 *     - a script's correct reply gives each request the decision that the core makes from the same states
 *     - whatever else arrives, each request ends once, with a decision in range or an error; a script that the server
 *       lost is sent again, three times
 *     - a request that changed something ends when replicas have the change, or with an error
 */
#include "fuzz.h"
#include "state_bytes.h"

#include "backends/redis/flight/call.h"
#include "core/algorithm/algorithm.h"
#include "core/api/verbs.h"
#include "core/ground/arith.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Streams ---- */

enum { REPLIES = 256 };

struct heard {
    size_t count;
    uint64_t hashes[REPLIES];
    bool broken;
    struct redis_wire_scalar last; /* a copy of the current list; depth 0: none */
    uint64_t in_lists;             /* a hash of all that was shown */
};

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    return hash + len;
}

static uint64_t hash_of(const struct redis_reply *reply)
{
    const uint64_t hash = UINT64_C(14695981039346656037) + (uint64_t)reply->kind + (uint64_t)reply->number;
    return hash_bytes(hash, reply->text, reply->len);
}

static bool hear_scalar(void *user, const struct redis_wire_scalar *scalar)
{
    struct heard *heard = user;
    const struct redis_wire_scalar *last = &heard->last;
    fuzz_must(scalar->depth >= 1 && scalar->depth <= REDIS_WIRE_DEPTH, "lists are so deep at most");
    size_t same = 0;
    while (same < last->depth && same < scalar->depth && last->place[same] == scalar->place[same])
        same++;
    fuzz_must(last->depth == 0 ||
                  (same < last->depth && same < scalar->depth && last->place[same] < scalar->place[same]),
              "what comes later stands behind");
    fuzz_must(scalar->is_number + scalar->is_nil + (scalar->text != NULL) <= 1 && (scalar->text || scalar->len == 0) &&
                  (scalar->is_number || scalar->number == 0),
              "it is one thing");
    heard->last = *scalar;
    heard->in_lists = hash_bytes(heard->in_lists, scalar->place, scalar->depth * sizeof scalar->place[0]);
    heard->in_lists = hash_bytes(heard->in_lists + (uint64_t)scalar->number, scalar->text, scalar->len);
    return !redis_wire_is_text(scalar, "stop");
}

static void hear(struct redis_wire *wire, struct heard *heard)
{
    struct redis_reply reply;
    int result;
    while (!heard->broken && (result = redis_wire_next(wire, &reply)) != 0) {
        heard->broken = result < 0;
        if (result > 0)
            heard->hashes[heard->count++ % REPLIES] = hash_of(&reply);
        if (result > 0)
            heard->last.depth = 0;
    }
}

/* Feed the bytes in pieces of `piece` bytes, or of random sizes by `chance` if that is 0, and report what was heard. */
static struct heard hear_stream(const uint8_t *data, size_t size, size_t piece, uint64_t chance, bool lists)
{
    struct redis_wire wire;
    struct heard heard = { .count = 0 };
    fuzz_must(redis_wire_init(&wire) == 0, "there is memory");
    if (lists)
        redis_wire_show_lists(&wire, hear_scalar, &heard);
    for (size_t at = 0, len; at < size && !heard.broken; at += len) {
        len = piece > 0 ? piece : fuzz_piece(&chance);
        len = size - at < len ? size - at : len;
        if (redis_wire_feed(&wire, (const char *)data + at, len) != 0)
            heard.broken = true;
        hear(&wire, &heard);
    }
    redis_wire_free(&wire);
    return heard;
}

static void check_stream(const uint8_t *data, size_t size, uint8_t cut, bool lists)
{
    const size_t sizes[] = { 1, 2, (size_t)cut + 1, 0 };
    const struct heard whole = hear_stream(data, size, size + 1, 0, lists);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const struct heard pieces = hear_stream(data, size, sizes[i], cut + size, lists);
        fuzz_must(whole.count == pieces.count && whole.broken == pieces.broken, "%zu replies, not %zu, in pieces",
                  whole.count, pieces.count);
        fuzz_must(memcmp(whole.hashes, pieces.hashes, sizeof whole.hashes) == 0, "the replies are the same");
        fuzz_must(whole.in_lists == pieces.in_lists, "so is what stands in lists");
    }
}

/* ---- Flights ---- */

enum { ASKS = 8, KEYS = 4, POLICIES = 6, NOT_ENDED = 99 };
enum { PLAIN, IN_CLUSTER, DURABLE, KINDS };
static const char *const key_names[KEYS] = { "a", "b", "c{d}", "e%" };

/* Each limit keeps one policy, the one of its number. */
static struct {
    weir *limiter;
    weir_limit *limits[POLICIES];
    struct redis_flight *flights[KINDS], *agains[KINDS];
    struct redis_flight *flight, *again;
    struct weir_backend_request requests[ASKS];
    struct weir_decision decisions[ASKS], expected[ASKS];
    int statuses[ASKS];
    size_t n;
    bool all, in_cluster, asking, durable;
} air;

static void open_once(void)
{
    static const char *const policies[POLICIES] = {
        "token_bucket limit=10 period=1s burst=20 debt=3", "leaky_bucket limit=50 period=1s capacity=100",
        "token_bucket limit=10 period=1m refill=interval", "fixed_window limit=1000 period=1h align=epoch",
        "sliding_window limit=100 period=1m blocks=6",     "token_bucket limit=999983 period=366d burst=7",
    };
    if (air.limiter)
        return;
    fuzz_must(weir_open(NULL, &air.limiter) == WEIR_OK, "a limiter opens");
    for (int i = 0; i < POLICIES; i++) {
        struct weir_policy policy;
        char name[16];
        snprintf(name, sizeof name, "limit-%d", i);
        fuzz_must(weir_policy_parse(policies[i], &policy, NULL, 0) == WEIR_OK &&
                      weir_limit_define(air.limiter, name, &policy, &air.limits[i]) == WEIR_OK,
                  "a limit is defined");
    }
    for (int i = 0; i < KINDS; i++) {
        const struct redis_flight_rules rules = { .in_cluster = i == IN_CLUSTER, .replicas = i == DURABLE };
        air.flights[i] = redis_flight_make(ASKS, rules);
        air.agains[i] = redis_flight_make(ASKS, rules);
        fuzz_must(air.flights[i] && air.agains[i], "there is memory");
    }
}

static void ended(struct redis_flight_request *aboard, int status, const struct redis_redirect *redirect)
{
    (void)redirect;
    int *told = aboard->owner;
    fuzz_must(*told == NOT_ENDED && status <= (air.in_cluster ? REDIS_TRY_AGAIN : 0), "a request ends once");
    *told = status;
}

static void board(struct feed *feed)
{
    const uint8_t choice = feed_byte(feed);
    air.all = choice & 1;
    air.in_cluster = air.all && choice & 2; /* so that its keys share a call */
    air.asking = air.in_cluster && choice & 4;
    air.durable = !air.in_cluster && choice & 64;
    air.flight = air.flights[air.in_cluster ? IN_CLUSTER : air.durable ? DURABLE : PLAIN];
    air.again = air.agains[air.in_cluster ? IN_CLUSTER : air.durable ? DURABLE : PLAIN];
    air.n = (size_t)feed_between(feed, 1, ASKS);
    if (air.all && air.n > POLICIES)
        air.n = POLICIES;
    for (size_t i = 0; i < air.n; i++) {
        const uint8_t shape = feed_byte(feed);
        weir_limit *limit = air.limits[(air.all ? i : 0u) + choice / 2 % (air.all ? 1u : POLICIES)];
        const enum weir_verb verb = air.all ? WEIR_TAKE : (enum weir_verb)(shape / 4 % 4);
        const int64_t cost = verb == WEIR_RESET ? 1 : feed_magnitude(feed, WEIR_MAX_PERMITS);
        air.requests[i] = backend_request(limit, weir_key_text(key_names[shape % KEYS]), cost, WEIR_OWN_CLOCK, verb);
        if (!air.all && verb == WEIR_TAKE && shape & 64) {
            air.requests[i].ahead = feed_magnitude(feed, WEIR_MAX_PERMITS);
            air.requests[i].spread = (uint16_t)feed_magnitude(feed, WEIR_MAX_SPREAD);
            air.requests[i].cost = shape & 128 ? 0 : cost;
        }
        air.statuses[i] = NOT_ENDED;
    }
    memset(air.decisions, 0xa5, sizeof air.decisions);
    redis_flight_clear(air.flight);
    redis_flight_clear(air.again);
    if (air.all) {
        bool fits = redis_flight_add(air.flight, air.requests, air.n, true, 1000, air.decisions, &air.statuses[0],
                                     air.asking);
        fuzz_must(fits, "there is room");
        for (size_t i = 0; i < air.n; i++) /* each has its own status */
            air.flight->requests[i].owner = &air.statuses[i];
        return;
    }
    for (size_t i = 0; i < air.n; i++)
        fuzz_must(redis_flight_add(air.flight, &air.requests[i], 1, false, 1000 + (int64_t)i, &air.decisions[i],
                                   &air.statuses[i], false),
                  "there is room");
}

static void answer_asking(struct redis_flight *flight)
{
    static const struct redis_reply ok = { .kind = REDIS_REPLY_IS_STATUS, .text = "OK", .len = 2 };
    if (air.asking)
        fuzz_must(redis_flight_reply(flight, &ok, ended) == REDIS_FLYING, "asking is answered");
}

/* A request that changed something must not end before WAIT's reply, and must end correctly after it. */
static enum redis_progress answer_wait(const struct redis_flight_request *requests, bool acknowledged)
{
    const struct redis_reply reply = { .kind = REDIS_REPLY_IS_NUMBER, .text = "", .number = acknowledged };
    for (size_t i = 0; i < air.n; i++)
        fuzz_must(!requests[i].changed || air.statuses[i] != WEIR_OK, "what changed something is held");
    const enum redis_progress progress = redis_flight_reply(air.flight, &reply, ended);
    for (size_t i = 0; i < air.n; i++)
        fuzz_must(!requests[i].changed || air.statuses[i] == WEIR_ETIME ||
                      air.statuses[i] == (acknowledged ? WEIR_OK : WEIR_EIO),
                  "what changed something is told as the replicas have it");
    return progress;
}

static void write_out(struct redis_flight *flight)
{
    struct redis_bytes out = { 0 };
    redis_flight_write(flight, "weir:", &out);
    fuzz_must(!out.failed && out.len > 0, "it is written");
    redis_bytes_free(&out);
}

/* ---- What the script does ---- */

/* One key, as the script finds it. */
struct found {
    enum redis_found what;
    struct weir_plan plan;
    int64_t state[STATE_MAX_WORDS];
};

static void find(struct feed *feed, const struct weir_backend_request *request, int64_t now_us, struct found *found)
{
    static const enum redis_found whats[] = { REDIS_FRESH, REDIS_STATE, REDIS_STATE, REDIS_FOREIGN };
    const uint8_t choice = feed_byte(feed);
    found->what = whats[choice % 4];
    weir_request_plan(request, &found->plan);
    memset(found->state, 0, sizeof found->state);
    const int64_t since_us = choice & 4 ? feed_between(feed, 0, WEIR_MAX_TIME_US) : now_us - feed_byte(feed) * 1000;
    const int64_t used = found->what == REDIS_STATE ? feed_magnitude(feed, found->plan.size) : 0;
    state_charge(&found->plan, found->state, found->what == REDIS_STATE ? max_of(0, since_us) : now_us, used);
}

static size_t put_found(const struct found *found, char *out)
{
    if (found->what == REDIS_STATE)
        return state_bytes(&found->plan, found->state, (unsigned char *)out);
    out[0] = found->what == REDIS_FOREIGN;
    return 1;
}

/* Compute the core's decision of a request; return the permits that it charges. */
static int64_t expect(const struct weir_backend_request *request, enum weir_verb verb, struct found *found,
                      int64_t now_us, struct weir_decision *out)
{
    if (verb == WEIR_RESET) {
        state_charge(&found->plan, found->state, now_us, 0);
        verb = WEIR_PEEK;
    }
    if (request->ahead > 0)
        state_take_ahead(&found->plan, found->state, now_us, request->cost, request->ahead, request->spread, out);
    else
        state_decide(&found->plan, found->state, now_us, request->cost, verb, out);
    out->source = WEIR_BY_REDIS;
    return verb == WEIR_TAKE && out->allowed ? request->cost + out->ahead : 0;
}

struct answer {
    char bytes[REDIS_HEAD_SIZE + POLICIES * REDIS_STATE_MAX + REDIS_ECHO_SIZE];
    size_t len;
    bool foreign[ASKS];
};

static void put_number(char *out, int64_t number)
{
    for (int i = 0; i < 7; i++)
        out[i] = (char)((uint64_t)number >> 8 * i);
}

static void put_end(struct answer *answer, int64_t now_us, int64_t charged)
{
    put_number(answer->bytes, now_us);
    put_number(answer->bytes + 7, charged);
    memcpy(answer->bytes + answer->len, &air.flight->first_echo, REDIS_ECHO_SIZE);
    answer->len += REDIS_ECHO_SIZE;
}

static void answer_each(struct feed *feed, int64_t now_us, struct answer *answer)
{
    int64_t charged = 0;
    const struct redis_flight_call *call = &air.flight->calls[0];
    answer->len = REDIS_HEAD_SIZE;
    for (uint32_t k = 0; k < call->key_count; k++) { /* the call has its own order of keys */
        struct found found;
        size_t i = 0;
        while (air.requests[i].key.data != air.flight->keys[call->keys[k]].first->request.key.data)
            i++;
        find(feed, &air.requests[i], now_us, &found);
        answer->len += put_found(&found, answer->bytes + answer->len);
        for (size_t j = i; j < air.n; j++) {
            if (air.requests[j].key.data != air.requests[i].key.data)
                continue;
            answer->foreign[j] = found.what == REDIS_FOREIGN;
            if (!answer->foreign[j])
                charged += expect(&air.requests[j], air.requests[j].verb, &found, now_us, &air.expected[j]);
        }
    }
    put_end(answer, now_us, charged);
}

static void answer_all(struct feed *feed, int64_t now_us, struct answer *answer)
{
    static struct found found[POLICIES];
    bool allowed = true, foreign = false;
    int64_t charged = 0;
    answer->len = REDIS_HEAD_SIZE;
    for (size_t i = 0; i < air.n; i++) {
        find(feed, &air.requests[i], now_us, &found[i]);
        answer->len += put_found(&found[i], answer->bytes + answer->len);
        foreign = foreign || found[i].what == REDIS_FOREIGN;
        if (found[i].what != REDIS_FOREIGN)
            expect(&air.requests[i], WEIR_PEEK, &found[i], now_us, &air.expected[i]);
        allowed = allowed && !foreign && air.expected[i].allowed;
    }
    for (size_t i = 0; i < air.n && allowed; i++)
        charged += expect(&air.requests[i], WEIR_TAKE, &found[i], now_us, &air.expected[i]);
    for (size_t i = 0; i < air.n; i++)
        answer->foreign[i] = foreign;
    put_end(answer, now_us, charged);
}

/* ---- Landing ---- */

static void check_ended(const struct answer *answer, bool is_true)
{
    for (size_t i = 0; i < air.n; i++) {
        const struct weir_decision *decision = &air.decisions[i];
        fuzz_must(air.statuses[i] != NOT_ENDED, "each request ends");
        if (is_true && air.statuses[i] != WEIR_ETIME) {
            fuzz_must(air.statuses[i] == (answer->foreign[i] ? WEIR_ESTATE : WEIR_OK), "a true answer is taken");
            if (!answer->foreign[i])
                fuzz_same_decision(decision, &air.expected[i], "an answer");
        }
        if (air.statuses[i] == WEIR_OK)
            fuzz_must(decision->remaining >= 0 && decision->remaining <= decision->limit &&
                          decision->retry_after_us >= WEIR_NEVER && decision->reset_after_us >= 0 &&
                          decision->delay_us >= 0 && decision->ahead >= 0 && decision->source == WEIR_BY_REDIS,
                      "a decision is in its ranges");
    }
}

/* Send requests again and give them the same reply, until none is left to send. */
static void fly_again(const struct redis_reply *reply)
{
    struct redis_flight *from = air.flight, *to = air.again;
    for (int round = 0; from->not_loaded != 0; round++) {
        fuzz_must(round < REDIS_TRIES, "it is not sent for ever");
        redis_flight_again(from, to, ended);
        redis_flight_clear(from);
        struct redis_flight *flown = to;
        to = from;
        from = flown;
        if (from->request_count == 0)
            return;
        write_out(from);
        while (from->loads_due) {
            const struct redis_script *script = &redis_scripts[__builtin_ctz(from->loads_due)];
            const struct redis_reply loaded = { .kind = REDIS_REPLY_IS_STRING, .text = script->sha1, .len = 40 };
            fuzz_must(redis_flight_reply(from, &loaded, ended) == REDIS_FLYING, "a script is loaded");
        }
        answer_asking(from);
        while (from->replied < from->call_count)
            redis_flight_reply(from, reply, ended);
        if (from->held)
            fuzz_must(redis_flight_reply(from, &(struct redis_reply){ .kind = REDIS_REPLY_IS_NUMBER }, ended) ==
                          REDIS_LANDED,
                      "it lands");
    }
    redis_flight_fail(from, WEIR_EIO, ended);
}

/* Write the reply as bytes of the connection, or an error in its place. Return false if it is damaged. */
static bool wire_bytes(struct feed *feed, const struct answer *answer, struct redis_bytes *out)
{
    static const char *const errors[] = { "NOSCRIPT No matching script.",
                                          "OOM command not allowed",
                                          "READONLY You",
                                          "",
                                          "x",
                                          "MOVED 3999 127.0.0.1:6381",
                                          "ASK 16383 ::1:1",
                                          "TRYAGAIN",
                                          "MOVED 3999",
                                          "LOADING Redis is loading the dataset in memory" };
    const uint8_t fate = feed_byte(feed);
    char head[32];
    if (fate % 8 == 7) {
        redis_bytes_add(out, "-", 1);
        redis_bytes_add(out, errors[fate / 8 % 10], strlen(errors[fate / 8 % 10]));
        redis_bytes_add(out, "\r\n", 2);
        return false;
    }
    redis_bytes_add(out, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", answer->len));
    redis_bytes_add(out, answer->bytes, answer->len);
    redis_bytes_add(out, "\r\n", 2);
    if (fate % 8 != 6)
        return true;
    const size_t at = (size_t)feed_between(feed, 0, (int64_t)out->len - 1);
    const uint8_t by = feed_byte(feed);
    out->data[at] = (char)(out->data[at] ^ by);
    return by == 0;
}

static void check_flight(struct feed *feed)
{
    static struct answer answer;
    struct redis_bytes bytes = { 0 };
    struct redis_wire wire;
    struct redis_reply reply;
    board(feed);
    write_out(air.flight);
    const int64_t now_us = feed_byte(feed) & 1 ? feed_between(feed, 0, WEIR_MAX_TIME_US) : INT64_C(1790000000000000);
    if (air.all)
        answer_all(feed, now_us, &answer);
    else
        answer_each(feed, now_us, &answer);
    fuzz_must(air.flight->call_count == 1, "requests of a limit share a call");
    const bool is_true = wire_bytes(feed, &answer, &bytes);
    if (feed_byte(feed) % 8 == 7)
        redis_flight_expire(air.flight, 1000 + feed_between(feed, 0, ASKS), ended);
    fuzz_must(redis_wire_init(&wire) == 0, "there is memory");
    enum redis_progress progress = REDIS_FLYING;
    uint64_t chance = feed_byte(feed);
    answer_asking(air.flight);
    for (size_t at = 0, piece; at < bytes.len && progress == REDIS_FLYING; at += piece) {
        piece = (size_t)min_of((int64_t)fuzz_piece(&chance), (int64_t)(bytes.len - at));
        int result = redis_wire_feed(&wire, bytes.data + at, piece);
        if (result == 0 && (result = redis_wire_next(&wire, &reply)) == 1)
            progress = redis_flight_reply(air.flight, &reply, ended);
        if (result < 0)
            progress = REDIS_MISFIT;
    }
    bool acknowledged = true;
    if (progress == REDIS_HELD) {
        acknowledged = feed_byte(feed) % 4 != 3;
        progress = answer_wait(air.flight->requests, acknowledged);
    }
    fuzz_must(!is_true || progress == REDIS_LANDED, "a true answer lands");
    if (progress == REDIS_LANDED)
        fly_again(&reply);
    else
        redis_flight_fail(air.flight, WEIR_EIO, ended);
    check_ended(&answer, is_true && acknowledged);
    redis_wire_free(&wire);
    redis_bytes_free(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] & 1) {
        struct feed feed = feed_of(data + 1, size - 1);
        open_once();
        check_flight(&feed);
    } else {
        check_stream(data + 1, size - 1, data[0], false);
        check_stream(data + 1, size - 1, data[0], true);
    }
    return 0;
}
