/* redis_place.h - what the fault tests share: a server, a proxy before it, and limiters of the public API.
 *
 * Times are real here. A test asserts several times what an idle machine shows, so that a busy one passes too, and
 * prints the figures. Time during which other processes had the processors does not count where it is known.
 */
#ifndef WEIR_TESTS_REDIS_PLACE_H
#define WEIR_TESTS_REDIS_PLACE_H

#include "support.h"

#include "asker.h"
#include "fake_redis.h"
#include "fproxy.h"
#include "redis_server.h"
#include "wire.h"

#include <pthread.h>
#include <stdatomic.h>

/* No permit comes back during a test, so `remaining` shows every admitted permit. */
#define UNREFILLED "fixed_window limit=1000000 period=366d"
#define FIFTY_AN_HOUR "token_bucket limit=50 period=1h"

enum { RECOVERY_MOST_US = 60 * 1000 * 1000 }; /* after a fault has gone, on a machine that is busy with others */

/* The longest that a call with that timeout may take: several times as long, and the time for which a machine may stand
 * still. Only WEIR_TEST_FULL measures it; otherwise this finds a call that hangs. */
static inline int64_t call_most_us(int64_t timeout_us)
{
    return 5 * timeout_us + full_or(WEIR_SECOND / 2, 20 * WEIR_SECOND);
}

struct place {
    struct redis_server server;
    struct fproxy *proxy; /* NULL: none */
    char proxy_url[96];   /* for the user of the server's URLs */
    struct asker asker;   /* to the server, not through the proxy */
    pthread_mutex_t log_lock;
    char log[16384]; /* the lines so far, truncated when full */
    size_t log_len;
    atomic_int log_lines;
};

/* `config` as for redis_server_start(); the asker needs no password only if the server has none. */
void place_open(struct place *place, bool with_proxy, const char *const *config);
void place_close(struct place *place);

/* Return options for distributed mode through the proxy, if there is one, as the user that docs/redis.md describes.
 * They log to the place and pass errors to the caller. */
struct weir_options place_options(struct place *place, int64_t timeout_us);
/* Open a place without a server, only for its log. */
void place_open_bare(struct place *place);

/* Wait for the lines of the log so far. Return their number; or true if one of them has the text. */
int place_log_lines(struct place *place);
bool place_logged(struct place *place, const char *text);

/* Return the server's answer to a command of text words; valid until the next one. */
#define place_ask(place, ...) \
    place_asked(place, asker_ask(&(place)->asker, place_reply, sizeof place_reply, __VA_ARGS__, NULL))
extern char place_reply[65536];
const char *place_asked(struct place *place, ssize_t len);
/* Return the number after `name` in INFO, or 0 if INFO does not have it. */
int64_t place_info(struct place *place, const char *section, const char *name);

/* Open a place that is closed where its block ends. */
#define PLACE(name, ...)                      \
    CLOSED_BY(place_close) struct place name; \
    place_open(&name, __VA_ARGS__)

weir *limiter_of(const struct weir_options *options);

/* The same for a limiter. Declared after the place it logs to, it is closed first. */
#define LIMITER(name, options) CLOSED_BY(limiter_close) weir *name = limiter_of(options)

/* weir_try(), timed. */
struct timed {
    int status;
    int64_t took_us; /* without kept_us */
    int64_t kept_us; /* for which the caller or a thread of its limiter was ready and got no processor */
    struct weir_decision decision;
};
struct timed timed_try(weir_limit *limit, const char *key, int64_t cost);

/* Peek at `key` until Redis decides again, and return how long that took. Fails the test after RECOVERY_MOST_US. */
int64_t recover(weir_limit *limit, const char *key);

/* Take until Redis decides, and return its decision. Fails the test after RECOVERY_MOST_US. */
struct weir_decision taken_by_redis(weir_limit *limit, const char *key, int64_t cost);

/* Take 50 permits in a child of a fork while this process takes 50. The child closes the limiter. */
void assert_child_takes_too(weir *limiter, weir_limit *limit, const char *key);

/* Take until the log says so; each call must fail. */
void assert_refused(struct place *place, weir_limit *limit, const char *says);

void sleep_us(int64_t us);

int64_t resident_bytes(void); /* of this process */

/* ---- What a script answers ---- */

enum { TRUTH_LEN = 19, ECHO_LEN = 4 };

/* Return what the answer to this EVALSHA must repeat at its end: the end of the word that holds the items. */
const char *echo_asked(const struct fake_request *request);
/* Return the verb of the first request of a call. */
int verb_asked(const struct fake_request *request);

/* Write the answer to one request for a fresh key: the time, the charge, the missing state and the echo. Returns
 * TRUTH_LEN. */
size_t truth_about(const struct fake_request *request, unsigned char answer[TRUTH_LEN]);

#endif
