/* fake_redis.h - a stand-in that speaks Redis's protocol, with scripted answers.
 *
 * It listens on a Unix socket or on a port of 127.0.0.1. It answers what the test's function does not: AUTH, SELECT,
 * CLIENT and SCRIPT LOAD as Redis does; HELLO with an error, because it only has protocol 2; PING; and everything
 * else with NOSCRIPT or an unknown command. All of it, including the test's function, runs on one dedicated thread.
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

/* Return false to leave the request to the fake; true without saying anything sends no answer. */
typedef bool fake_answer(void *user, const struct fake_request *request, struct fake_reply *reply);

void fake_say(struct fake_reply *reply, const void *bytes, size_t len);
void fake_say_text(struct fake_reply *reply, const char *text);
void fake_say_bulk(struct fake_reply *reply, const void *bytes, size_t len);                    /* as a bulk string */
void fake_say_slowly(struct fake_reply *reply, const void *bytes, size_t len, int64_t step_us); /* one byte per step */
void fake_say_for_ever(struct fake_reply *reply, const void *bytes, size_t len);                /* again and again */
/* after everything is sent */
void fake_hang_up(struct fake_reply *reply);

/* Return NULL on failure, with a perror line. `answer` may be NULL. */
struct fake_redis *fake_redis_start(fake_answer *answer, void *user);
struct fake_redis *fake_redis_start_port(fake_answer *answer, void *user); /* on a free port */
void fake_redis_stop(struct fake_redis *fake);
const char *fake_redis_url(const struct fake_redis *fake); /* unix://... or redis://...; valid as long as the fake */
int fake_redis_port(const struct fake_redis *fake);        /* 0: it listens on a socket */

struct fake_counts {
    int64_t connections, requests, script_calls; /* script_calls: EVALSHA and EVAL */
    int64_t open;                                /* current connections */
};
struct fake_counts fake_redis_counts(struct fake_redis *fake);

/* True if any request so far contained these bytes. */
bool fake_redis_heard(struct fake_redis *fake, const char *text);

#endif
