/* store.h - the Redis server that distributed and hybrid mode are measured on: a private one, or the user's. */
#ifndef BENCH_STORE_H
#define BENCH_STORE_H

#include <redis_server.h>

#include "bench.h"
#include "redis/calls.h"

struct store {
    struct redis_server server; /* not running if the user's server is measured */
    bool is_users;   /* it is the server of --redis: it must not be stopped, and all keys are under `prefix` */
    char url[2048];  /* for limiters; may contain a password */
    char prefix[32]; /* weir_options.redis_prefix; empty: the default */
    char about[150]; /* "redis-server 7.0.15, private, on a Unix socket"; no password */
    char gateway_sha1[SHA1_LEN + 1], floor_sha1[SHA1_LEN + 1];
    uint64_t keys;        /* the number of keys filled for the gateway script and for weir's token bucket */
    struct stream stream; /* draws from them, zipf */
};

/* Return the private server. The first call starts it, pins it away from the callers, loads its scripts and fills its
 * keys. It ends with the program. If no server can be started, return NULL; section `name` then consists of the reason.
 */
struct store *store_of(struct bench *bench, const char *name);

/* Return the server for section modes: the one that --redis names, or else the private one. It has no scripts or keys
 * in place, and no stream. NULL if no chosen mode needs a server, or if there is none; stderr then says why. */
struct store *store_of_modes(struct bench *bench);

/* Begin a section; its sentence also names the server. */
void store_section(struct bench *bench, const struct store *store, const char *name, const char *sentence);

/* True if the benchmark can connect to it directly: not the user's server over TLS, through sentinels or in a cluster.
 */
bool store_can_be_asked(const struct store *store);

/* Return the CPU time of the server's process, and the memory that the key takes in it without the table of all keys;
 * -1 if unknown. */
int64_t store_cpu_us(const struct store *store);
int64_t store_key_bytes(const struct store *store, const char *limit, const struct bench_key *key);
void store_version(const struct store *store, char *out, size_t size); /* "7.0.15", or "of unknown version" */

/* Open a blocking connection; make a call on one. Both fail if there is no connection or it breaks. */
redisContext *store_connect(const struct store *store);
redisReply *store_ask(redisContext *connection, const struct call *call);

/* Fill all keys of that algorithm of weir's. */
void store_fill_weir(const struct store *store, enum kind kind);

/* Make a key of the token bucket one that nothing else uses and, for all keys, fill these with few permits, which drain
 * at once. */
void store_drained(struct bench_key *key);
void store_fill_drained(const struct store *store);

#endif
