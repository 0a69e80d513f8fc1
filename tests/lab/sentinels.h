/* sentinels.h - a Redis primary, its replicas, and the sentinels that watch them, for a test: on free ports of
 * 127.0.0.1, with timeouts so short that a failover takes a second or two.
 *
 * Servers and sentinels have numbers from 0. The primary changes; at first it is number 0. A sentinel runs the same
 * program as a server, see redis_server.h. Sentinel 0 notices a dead primary long before the others, who then vote
 * for it; otherwise an election could end in a draw and be repeated many seconds later. All of it ends with the
 * thread that started it.
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
    /* More lines for every sentinel's configuration, and more command-line words for every server, which must outlive
     * the trio; NULL: none. */
    const char *sentinel_lines;
    const char *const *server_words;
    const char *const *uses; /* what the servers' user needs rights for, see redis_user.h; NULL: the sentinels */
    const char *host;        /* the host under which the sentinels know the primary; NULL: 127.0.0.1 */
    bool tls;                /* the servers have certificates: all then use TLS ports */
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
    int ports[SENTINELS_MOST]; /* where the sentinels find the servers */
    char port_texts[SENTINELS_MOST][8];
    const char *words[SENTINELS_MOST][SENTINELS_WORDS_MOST + 1];
    struct sentinels_one sentinels[SENTINELS_MOST];
    char error[768]; /* the reason after a -1 */
};

/* Start all of it, and wait until the sentinels know each other and every replica can be promoted. `wish` may be
 * NULL. Return 0, or -1 with a sentence in trio->error and nothing left behind. */
int sentinels_start(struct sentinels *trio, const struct sentinels_wish *wish);
void sentinels_stop(struct sentinels *trio);

/* Write a redis-sentinel:// URL (with TLS rediss-sentinel://) of all sentinels from number `first`, wrapping around;
 * `user_info` is "" or ends with '@'. */
void sentinels_url(const struct sentinels *trio, int first, const char *user_info, char *url, size_t size);

/* Return the number of the server that sentinel `i` names; -1: none of them, or no answer. */
int sentinels_named(const struct sentinels *trio, int i);

/* True if a server says that it is a primary. */
bool sentinels_is_primary(const struct sentinels *trio, int server);

/* Ask sentinel `i` for a failover. Return 0, or -1 with a sentence in trio->error if it refuses. */
int sentinels_fail_over(struct sentinels *trio, int i);

/* One sentinel: kill -9, and start again. */
void sentinels_kill(struct sentinels *trio, int i);
int sentinels_restart(struct sentinels *trio, int i);

#endif
