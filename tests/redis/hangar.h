/* hangar.h - a flight that a test drives by hand: it adds the requests and makes the replies. There is no server. */
#ifndef WEIR_TESTS_HANGAR_H
#define WEIR_TESTS_HANGAR_H

#include "backends/redis/flight/flight.h"
#include "backends/redis/flight/redirect.h"
#include "backends/redis/flight/state.h"
#include "core/api/verbs.h"
#include "support.h"

enum { ASKS = 200 };

/* A memory limiter supplies the limits; the test drives the flight by hand. */
static struct hangar {
    struct scene scene;
    struct redis_flight *flight, *again;
    struct redis_bytes out;
    struct weir_decision decisions[ASKS];
    int statuses[ASKS]; /* 1: not finished */
} hangar;

static inline void hangar_open_by(size_t room, struct redis_flight_rules rules)
{
    scene_open(&hangar.scene, NULL);
    hangar.flight = redis_flight_make(room, rules);
    hangar.again = redis_flight_make(room, rules);
    ck_assert_ptr_nonnull(hangar.flight);
    ck_assert_ptr_nonnull(hangar.again);
    redis_flight_clear(hangar.flight);
    redis_flight_clear(hangar.again);
    hangar.out = (struct redis_bytes){ 0 };
    for (int i = 0; i < ASKS; i++)
        hangar.statuses[i] = 1;
}
#define hangar_open(room) hangar_open_by(room, (struct redis_flight_rules){ 0 })
#define hangar_open_in_cluster(room) hangar_open_by(room, (struct redis_flight_rules){ .in_cluster = true })
#define hangar_open_durable(room) hangar_open_by(room, (struct redis_flight_rules){ .replicas = 2 })

static inline void hangar_close(void)
{
    redis_flight_free(hangar.flight);
    redis_flight_free(hangar.again);
    redis_bytes_free(&hangar.out);
    scene_close(&hangar.scene);
}

static inline struct weir_backend_request take(weir_limit *limit, const char *key, int64_t cost)
{
    return backend_request(limit, weir_key_text(key), cost, WEIR_OWN_CLOCK, WEIR_TAKE);
}

static inline struct weir_backend_request lease(weir_limit *limit, const char *key, int64_t cost, int64_t ahead,
                                                uint32_t spread)
{
    struct weir_backend_request request = take(limit, key, cost);
    request.ahead = ahead;
    request.spread = (uint16_t)spread;
    return request;
}

static inline bool add_by(int i, struct weir_backend_request request, bool asking)
{
    return redis_flight_add(hangar.flight, &request, 1, false, 1000 + i, &hangar.decisions[i], &hangar.statuses[i],
                            asking);
}

static inline bool add(int i, struct weir_backend_request request)
{
    return add_by(i, request, false);
}

static inline void ended(struct redis_flight_request *aboard, int status, const struct redis_redirect *redirect)
{
    (void)redirect;
    int *told = aboard->owner;
    ck_assert_int_eq(*told, 1); /* exactly once */
    *told = status;
}

/* Count the occurrences of `text` in the bytes to be sent. */
static inline int count_of(const char *text)
{
    int count = 0;
    size_t len = strlen(text);
    for (size_t i = 0; i + len <= hangar.out.len; i++)
        count += memcmp(hangar.out.data + i, text, len) == 0;
    return count;
}

static inline void write_out(void)
{
    redis_bytes_clear(&hangar.out, false);
    redis_flight_write(hangar.flight, "weir:", &hangar.out);
    ck_assert(!hangar.out.failed);
}

/* A reply: the time, the permits charged, and `fresh` keys without a state. */
struct answer {
    char bytes[14 + REDIS_CALL_KEYS + 4];
    struct redis_reply reply;
};

static inline void number(char *out, int64_t value)
{
    for (int i = 0; i < 7; i++)
        out[i] = (char)((uint64_t)value >> 8 * i);
}

static inline const struct redis_reply *answer(const struct redis_flight *flight, struct answer *answer,
                                               int64_t charged, size_t fresh)
{
    const uint32_t echo = flight->first_echo + (uint32_t)flight->replied;
    number(answer->bytes, INT64_C(1790000000000000));
    number(answer->bytes + 7, charged);
    memset(answer->bytes + 14, 0, fresh);
    memcpy(answer->bytes + 14 + fresh, &echo, sizeof echo);
    answer->reply = (struct redis_reply){ .kind = REDIS_REPLY_IS_STRING,
                                          .text = answer->bytes,
                                          .len = 14 + fresh + sizeof echo };
    return &answer->reply;
}

static inline struct redis_reply digest_reply(enum redis_script_id script)
{
    return (struct redis_reply){ .kind = REDIS_REPLY_IS_STRING, .text = redis_scripts[script].sha1, .len = 40 };
}

static inline struct redis_reply error_reply(const char *text)
{
    return (struct redis_reply){ .kind = REDIS_REPLY_IS_ERROR, .text = text, .len = strlen(text) };
}

/* Put the requests that are sent again into hangar.flight, and write it. */
static inline void fly_again(void)
{
    redis_flight_clear(hangar.again);
    redis_flight_again(hangar.flight, hangar.again, ended);
    struct redis_flight *landed = hangar.flight;
    hangar.flight = hangar.again;
    hangar.again = landed;
    write_out();
}

#define NO_SCRIPT "NOSCRIPT No matching script. Please use EVAL."
static const struct redis_reply not_there = { .kind = REDIS_REPLY_IS_ERROR,
                                              .text = NO_SCRIPT,
                                              .len = sizeof NO_SCRIPT - 1 };
static const struct redis_reply ok = { .kind = REDIS_REPLY_IS_STATUS, .text = "OK", .len = 2 };
static const struct redis_reply none = { .kind = REDIS_REPLY_IS_NUMBER, .text = "" };
static const struct redis_reply two_replicas = { .kind = REDIS_REPLY_IS_NUMBER, .text = "", .number = 2 };

/* Write a flight of two calls, for key "a" of a token bucket and of a fixed window. */
static inline void fly_two_calls(void)
{
    weir_limit *bucket = scene_define_text(&hangar.scene, "bucket", "token_bucket limit=5 period=1s");
    weir_limit *window = scene_define_text(&hangar.scene, "window", "fixed_window limit=5 period=1s");
    ck_assert(add(0, take(bucket, "a", 1)));
    ck_assert(add(1, take(window, "a", 1)));
    write_out();
}

#define assert_reply(reply, progress) ck_assert_int_eq(redis_flight_reply(hangar.flight, reply, ended), progress)

/* The same for a script's answer. */
#define assert_answer(charged, fresh, progress) \
    assert_reply(answer(hangar.flight, &(struct answer){ .bytes = "" }, charged, fresh), progress)

#endif
