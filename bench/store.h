/* store.h - the private redis-server that all of distributed mode is measured on. */
#ifndef BENCH_STORE_H
#define BENCH_STORE_H

#include <redis_server.h>

#include "bench.h"
#include "calls.h"

#define STORE_BESIDE_MAX 4

struct store {
    struct redis_server server; /* not running if the user's is asked */
    char url[192];              /* by which limiters reach it */
    /* Others that a section has started, NULL after the last: what they take is not other programs' doing. */
    const struct redis_server *beside[STORE_BESIDE_MAX];
    char about[80]; /* "redis-server 7.0.15, private, on a Unix socket" */
    char gateway_sha1[SHA1_LEN + 1];
    uint64_t keys;        /* that are filled, for the gateway script and for weir's token bucket */
    struct stream stream; /* of them, zipf */
};

/* The server, started by the first section that asks, pinned away from the callers, with its scripts and keys in
 * place. It ends with the program. If there is none to be had, NULL, and section `name` consists of the reason. */
struct store *store_of(struct bench *bench, const char *name);

/* The server that the modes are measured on side by side: the one that --redis names, or else that one. NULL if there is
 * none, and why is on stderr; local mode needs none. */
struct store *store_of_modes(struct bench *bench);

/* Begins a section; to its sentence is added which server it is. */
void store_section(struct bench *bench, const struct store *store, const char *name, const char *sentence);

/* A row of the section that says what could not be measured and why. */
void store_missing(struct bench *bench, const char *what, const char *why);

/* A connection that blocks. Ends the program with a message if there is none to be had, or if it breaks. */
redisContext *store_connect(const struct store *store);
redisReply *store_ask(redisContext *connection, const struct call *call);

/* Pipelines `calls` calls, each made by `make(user, i, call)`: for filling. Any reply that is an error ends the
 * program. */
void store_pipeline(redisContext *connection, uint64_t calls, void (*make)(void *user, uint64_t i, struct call *call),
                    void *user);

/* Fills all keys of that kind of weir's. */
void store_fill_weir(const struct store *store, enum kind kind);

#endif
