/* sentinel.h - asks a sentinel which server is the primary, then listens for news from it.
 *
 *     idle -> resolving -> asking -> watching -> idle
 *
 * A sentinel that fails in any way, or takes too long, is skipped for the next one of the URL. While an answer is
 * wanted the next try follows immediately, until all have failed; otherwise it follows after a pause. A sentinel that
 * has answered is kept, with subscriptions to +switch-master and +promoted-slave. The sentinel that leads a failover
 * publishes +promoted-slave as soon as it knows, and +switch-master after the other replicas have followed. The other
 * sentinels publish +switch-master immediately. One write carries the question and the subscriptions, so no news is
 * lost between them. Each connection begins with the question, whose answer covers what happened before.
 *
 * The answer is not trusted: a server that is named must say itself that it is a primary (redis/wire/greet.h). All of
 * this runs on the I/O thread and never blocks. The log identifies sentinels by their place in the URL, never by name.
 */
#ifndef BACKENDS_REDIS_ENGINE_SENTINEL_H
#define BACKENDS_REDIS_ENGINE_SENTINEL_H

#include "backends/redis/wire/link.h"
#include "backends/redis/wire/node.h"
#include "backends/redis/wire/pause.h"
#include "core/ground/log.h"

enum redis_sentinel_state {
    REDIS_SENTINEL_IDLE, /* until due_us */
    REDIS_SENTINEL_RESOLVING,
    REDIS_SENTINEL_ASKING,
    REDIS_SENTINEL_WATCHING
};

#define REDIS_SENTINEL_HEARD 3 /* "message", a channel and its text; or a host and a port */
#define REDIS_WORD_MAX 1024    /* bytes of each */

struct redis_word {
    size_t len; /* 0: none */
    char text[REDIS_WORD_MAX];
};

struct redis_sentinel {
    const struct redis_target *target;
    const struct log *log;
    enum redis_sentinel_state state;
    size_t at;          /* index of the current one in the URL */
    bool wanted;        /* the I/O thread waits for an answer */
    size_t failed;      /* sentinels that have failed since an answer is wanted */
    unsigned known_bad; /* a bit each: the log has a line that it cannot be used */
    int64_t due_us;     /* when to go on or to give up; INT64_MAX: never */

    struct resolver resolver;
    struct redis_addresses addresses;
    size_t address; /* the one being tried */
    struct redis_link link;
    bool subscribed, pinged; /* pinged: PING is not answered yet */
    int64_t watching_since_us;
    struct redis_pauses pauses;
    char reason[REDIS_REASON_SIZE]; /* why the last one failed */

    struct redis_node_name primary;                /* as last named; its host is not "" */
    struct redis_word heard[REDIS_SENTINEL_HEARD]; /* the first strings of the current list */
};

/* 0, or -1: out of memory. */
int redis_sentinel_init(struct redis_sentinel *sentinel, const struct redis_target *target, const struct log *log);
void redis_sentinel_free(struct redis_sentinel *sentinel);

/* In the child of a fork, close the parent's descriptors. */
void redis_sentinel_abandon(struct redis_sentinel *sentinel);

/* Ask the sentinel asked last or, if `another`, the next one, for the primary. A turn returns the answer. */
void redis_sentinel_ask(struct redis_sentinel *sentinel, bool another);

enum redis_sentinel_news {
    REDIS_NO_NEWS,
    REDIS_PRIMARY_NAMED,   /* `primary` is set; it may have changed */
    REDIS_SENTINELS_FAILED /* none of them could answer the question */
};

/* Go on as far as possible now. Call it until it returns REDIS_NO_NEWS, and again when `due_us` has come or the
 * descriptor of redis_sentinel_polled() is ready. */
enum redis_sentinel_news redis_sentinel_turn(struct redis_sentinel *sentinel, int64_t now_us);

/* Return what to poll for; fd -1: nothing. */
struct pollfd redis_sentinel_polled(const struct redis_sentinel *sentinel);

#endif
