/* store.h - the redis-server that distributed and hybrid mode are measured on: a private one, or the user's. */
#ifndef BENCH_STORE_H
#define BENCH_STORE_H

#include <redis_server.h>

#include "bench.h"
#include "redis/calls.h"

#define STORE_BESIDE_MAX 4

struct store {
    struct redis_server server; /* not running if the user's is asked */
    bool is_users;              /* --redis names it: not to be stopped, and all keys are under `prefix` */
    char url[2048];             /* by which limiters reach it; may hold a password */
    char prefix[32];            /* weir_options.redis_prefix; empty: the default */
    /* Others that a section has started, NULL after the last: what they take is not other programs' doing. */
    const struct redis_server *beside[STORE_BESIDE_MAX];
    char about[150]; /* "redis-server 7.0.15, private, on a Unix socket"; no password */
    char gateway_sha1[SHA1_LEN + 1];
    uint64_t keys;        /* that are filled, for the gateway script and for weir's token bucket */
    struct stream stream; /* of them, zipf */
};

/* The server, started by the first section that asks, pinned away from the callers, with its scripts and keys in
 * place. It ends with the program. If there is none to be had, NULL, and section `name` consists of the reason. */
struct store *store_of(struct bench *bench, const char *name);

/* The server that the modes are measured on side by side: the one that --redis names, or else that one. No scripts or
 * keys are in place there, nor is there a stream. NULL if there is none, and why is on stderr, or if of the modes that
 * were asked for none needs it. */
struct store *store_of_modes(struct bench *bench);

/* Begins a section; to its sentence is added which server it is. */
void store_section(struct bench *bench, const struct store *store, const char *name, const char *sentence);

/* A row of the section that says what could not be measured and why. */
void store_missing(struct bench *bench, const char *what, const char *why);

/* Whether it can be asked by itself: the user's cannot over TLS, nor by sentinels, nor in a cluster. */
bool store_can_be_asked(const struct store *store);

/* CPU time its process has taken so far, and bytes that the key takes of its memory, tables of all keys aside; -1 if it
 * does not tell. */
int64_t store_cpu_us(const struct store *store);
int64_t store_key_bytes(const struct store *store, const char *limit, const struct bench_key *key);
void store_version(const struct store *store, char *out, size_t size); /* "7.0.15", or "of unknown version" */

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
