/* fake_redis.h - a server that speaks Redis' protocol and answers what the test tells it to.
 *
 * It listens on a Unix socket, or on a port of 127.0.0.1. Unless the test's function answers a request, it answers
 * itself: AUTH, SELECT, CLIENT and SCRIPT LOAD as Redis does, HELLO with an error (it knows protocol 2 only), PING, and
 * everything else with NOSCRIPT or an unknown command. All happens on one thread of its own, the test's function
 * included.
 */
#ifndef WEIR_LAB_FAKE_REDIS_H
#define WEIR_LAB_FAKE_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_WORDS_MOST = 256 };

struct fake_request {
    int64_t connection; /* 1, 2, 3, ... */
    int64_t number;     /* of all requests: 1, 2, 3, ... */
    size_t n;
    const char *words[FAKE_WORDS_MOST]; /* not NUL-terminated */
    size_t lens[FAKE_WORDS_MOST];
};

bool fake_request_is(const struct fake_request *request, const char *command); /* the first word, in any case */

struct fake_redis;
struct fake_reply;

/* Return false to leave the request to the fake. Nothing said and true: no answer. */
typedef bool fake_answer(void *user, const struct fake_request *request, struct fake_reply *reply);

void fake_say(struct fake_reply *reply, const void *bytes, size_t len);
void fake_say_text(struct fake_reply *reply, const char *text);
void fake_say_bulk(struct fake_reply *reply, const void *bytes, size_t len); /* in the form of a bulk string */
void fake_say_slowly(struct fake_reply *reply, const void *bytes, size_t len, int64_t step_us); /* a byte each step */
void fake_say_for_ever(struct fake_reply *reply, const void *bytes, size_t len);                /* again and again */
void fake_hang_up(struct fake_reply *reply);                                                    /* once all is said */

/* NULL if it cannot be had (a perror line says why). `answer` may be NULL. */
struct fake_redis *fake_redis_start(fake_answer *answer, void *user);
struct fake_redis *fake_redis_start_port(fake_answer *answer, void *user); /* on a port that is free */
void fake_redis_stop(struct fake_redis *fake);
const char *fake_redis_url(const struct fake_redis *fake); /* unix://..., or redis://...: as long as the fake lives */
int fake_redis_port(const struct fake_redis *fake);        /* 0: it listens on a socket */

struct fake_counts {
    int64_t connections, requests, script_calls; /* script_calls: EVALSHA and EVAL */
    int64_t open;                                /* connections that there are now */
};
struct fake_counts fake_redis_counts(struct fake_redis *fake);

/* Whether any request so far held these bytes: what was said on the wire, and what never must be. */
bool fake_redis_heard(struct fake_redis *fake, const char *text);

#endif
