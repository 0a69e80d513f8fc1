/* sentinels.h - a Redis primary, its replicas, and the sentinels that watch over them, for a test: on free ports of
 * 127.0.0.1, with times so short that a failover takes a second or two.
 *
 * Servers and sentinels are known by their number, from 0; which server is the primary changes, at first it is number
 * 0. A sentinel is the same program as a server, see redis_server.h. The first finds out that a primary is gone long
 * before the others, who vote for it: so that no election ends in a draw, and is held again after many seconds. All of
 * it ends with the thread that started it.
 */
#ifndef WEIR_LAB_SENTINELS_H
#define WEIR_LAB_SENTINELS_H

#include "redis_server.h"

enum { SENTINELS_MOST = 3, SENTINELS_WORDS_MOST = 24, SENTINELS_DOWN_MS = 500, SENTINELS_FAILOVER_MS = 4000 };

#define SENTINELS_SERVICE "weir-primary"

struct sentinels_wish {
    int servers, sentinels;   /* how many; 0: SENTINELS_MOST */
    const char *password;     /* of the servers; NULL: none */
    const char *own_password; /* of the sentinels; NULL: none */
    /* More lines for the configuration of every sentinel, and more words for the command line of every server; NULL:
     * none. Words stay the caller's, for as long as the trio lives. */
    const char *sentinel_lines;
    const char *const *server_words;
    const char *const *uses; /* what the servers' user needs rights for, see redis_user.h; NULL: the sentinels */
    const char *host;        /* by which the sentinels are told of the primary; NULL: 127.0.0.1 */
    bool tls;                /* these have certificates: all then know one another by ports that speak TLS */
};

struct sentinels_one {
    struct daemon daemon;
    int port;
    char socket[108], port_text[8], command[512];
    char *words[REDIS_SERVER_WORDS_MOST + 1];
};

struct sentinels {
    struct sentinels_wish wish;
    struct redis_server servers[SENTINELS_MOST];
    int ports[SENTINELS_MOST]; /* by which the sentinels know the servers */
    char port_texts[SENTINELS_MOST][8];
    const char *words[SENTINELS_MOST][SENTINELS_WORDS_MOST + 1];
    struct sentinels_one sentinels[SENTINELS_MOST];
    char error[768]; /* after a -1, why */
};

/* Start all of it, and wait until the sentinels know one another and every replica is fit to be promoted. `wish` may be
 * NULL. 0, or -1 with a sentence in trio->error and nothing left behind. */
int sentinels_start(struct sentinels *trio, const struct sentinels_wish *wish);
void sentinels_stop(struct sentinels *trio);

/* redis-sentinel://, or with TLS rediss-sentinel://, with all sentinels from number `first` round; `user_info` is "" or
 * ends with '@'. */
void sentinels_url(const struct sentinels *trio, int first, const char *user_info, char *url, size_t size);

/* The number of the server that sentinel `i` names; -1: none of them, or there is no answer. */
int sentinels_named(const struct sentinels *trio, int i);

/* Whether a server says of itself that it is a primary. */
bool sentinels_is_primary(const struct sentinels *trio, int server);

/* Ask sentinel `i` for a failover. 0, or -1 with a sentence in trio->error: not now. */
int sentinels_fail_over(struct sentinels *trio, int i);

/* One sentinel: as by kill -9; again. */
void sentinels_kill(struct sentinels *trio, int i);
int sentinels_restart(struct sentinels *trio, int i);

#endif
