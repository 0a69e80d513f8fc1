/* sentinel.h - whom the sentinels name as the primary: one of them is asked, and then listened to.
 *
 *     idle -> resolving -> asking -> watching -> idle
 *
 * A sentinel that fails in any way, or takes longer than it may, is passed over, and the next of the URL is tried: at
 * once while somebody wants the answer, until all have failed; else after a pause. The one that has answered stays, and
 * is subscribed to +switch-master and +promoted-slave: the sentinel that leads a failover publishes the latter as soon
 * as it knows, and the former only when the other replicas have followed; the rest of them publish the former at once.
 * Question and subscription go out in one write, so that no news falls between them, and each connection begins with
 * the question: what happened while nobody listened is in its answer.
 *
 * Nothing here is believed: a server that is named must say itself that it is a primary (redis/wire/greet.c). It belongs to
 * the I/O thread and never blocks. The log tells sentinels by their place in the URL, never by name.
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

#define REDIS_SENTINEL_HEARD 3 /* "message", a channel and what is published; or a host and a port */
#define REDIS_WORD_MAX 1024    /* bytes of each */

struct redis_word {
    size_t len; /* 0: there is none */
    char text[REDIS_WORD_MAX];
};

struct redis_sentinel {
    const struct redis_target *target;
    const struct log *log;
    enum redis_sentinel_state state;
    size_t at;          /* which one of the URL's */
    bool wanted;        /* somebody waits for an answer */
    size_t failed;      /* in a row, since it is wanted */
    unsigned known_bad; /* a bit each: a line in the log has said that it does not work */
    int64_t due_us;     /* when to go on, or to give up; INT64_MAX: never */

    struct resolver resolver;
    struct redis_addresses addresses;
    size_t address; /* the one that is tried */
    struct redis_link link;
    bool subscribed, pinged; /* pinged: and no answer yet */
    int64_t watching_since_us;
    struct redis_pauses pauses;

    struct redis_node_name primary;                /* as it was named last; its host is not "" */
    struct redis_word heard[REDIS_SENTINEL_HEARD]; /* the first strings of the list at hand */
};

/* 0, or -1: out of memory. */
int redis_sentinel_init(struct redis_sentinel *sentinel, const struct redis_target *target, const struct log *log);
void redis_sentinel_free(struct redis_sentinel *sentinel);

/* In a child, close what belongs to the parent. */
void redis_sentinel_abandon(struct redis_sentinel *sentinel);

/* Who is the primary? The one that was asked last is asked first, or, if `another`, the one after it. The answer is the
 * news of a turn. */
void redis_sentinel_ask(struct redis_sentinel *sentinel, bool another);

enum redis_sentinel_news {
    REDIS_NO_NEWS,
    REDIS_PRIMARY_NAMED,   /* `primary` is set: the one it was, or another */
    REDIS_SENTINELS_FAILED /* it was asked for, and none of them could say */
};

/* Go on as far as that goes now. To be called again until there is no news, and then when the time `due_us` has come or
 * one of redis_sentinel_polled() is ready. */
enum redis_sentinel_news redis_sentinel_turn(struct redis_sentinel *sentinel, int64_t now_us);

/* What to wait for; fd -1: nothing. */
struct pollfd redis_sentinel_polled(const struct redis_sentinel *sentinel);

#endif
