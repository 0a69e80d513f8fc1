/* cluster_speaker.h - a node of a Redis Cluster that says what a test tells it to. */
#ifndef WEIR_TESTS_CLUSTER_SPEAKER_H
#define WEIR_TESTS_CLUSTER_SPEAKER_H

#include "redis_place.h"

#define HOST "$9\r\n127.0.0.1\r\n"
#define ID "$4\r\nnode\r\n"
#define ALL ":0\r\n:16383\r\n"

enum { SPEAKER_TIMEOUT_US = 200000, SPEAKER_PATIENCE_US = 20 * 1000 * 1000 };

/* Set before the first request, except for the atomic fields. */
struct speaker {
    struct fake_redis *fake;
    int port;
    char map[512];   /* to CLUSTER, */
    char later[512]; /* and from a time on */
    atomic_bool is_later;
    const char *_Atomic decides;        /* to EVALSHA; NULL: as a server would, "": nothing. PORT: see `to` */
    const char *asking;                 /* to ASKING */
    int to;                             /* the port written in place of PORT; 0: a different one each time */
    _Atomic int64_t truths;             /* EVALSHA answered as by a server, before `decides` answers */
    _Atomic int64_t delay_us;           /* of each EVALSHA */
    _Atomic int64_t maps, asked, calls; /* CLUSTER, ASKING and EVALSHA that came */
    _Atomic int64_t takes;              /* and those of them that are not for a refund, a peek or a reset */
};

/* A map in which slots up to 9999 are the node's on one port, so "bar", which is in 5061; and others, so "foo", which
 * is in 12182, the node's on the other. */
void map_halves(char map[static 512], int bar, int foo);

void speaker_start(struct speaker *speaker);

/* All slots are the node's on that port. */
void map_to(struct speaker *speaker, int port);

/* Options with these nodes as seeds, and a place without a server. `second` may be NULL. */
struct weir_options speaker_options(struct place *place, int64_t timeout_us, const struct speaker *first,
                                    const struct speaker *second);

#endif
