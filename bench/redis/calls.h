/* calls.h - script calls as they go to Redis: the gateway style's, and weir's own without its transport. */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <hiredis/hiredis.h>
#include <stdint.h>

#include "backends/redis/flight/state.h"
#include "measure/keys.h"

#define CALL_KEYS_MAX 256
#define SHA1_LEN 40

/* Both kinds of script decide by a bucket that admits all requests of a benchmark. Its keys live for at least a quarter
 * of an hour once CALLS_FILL permits are taken. */
#define CALLS_PERMITS_A_SECOND 100000
#define CALLS_BURST INT64_C(1000000000)
#define CALLS_FILL 100000000
enum kind { KIND_TOKEN, KIND_INTERVAL, KIND_FIXED, KIND_SLIDING, KIND_LEAKY, KINDS };
extern const struct weir_policy calls_policies[KINDS];

/* Return "token", "interval", "fixed", "sliding" or "leaky". */
const char *kind_name(enum kind kind);

/* The limit that weir's own transport must define to use the keys and states of the calls made here. */
#define CALLS_LIMIT "api"

extern const char gateway_script[]; /* ends with a NUL */

/* The least that a script that decides by the server's clock must do: read the clock and one key. */
extern const char floor_script[];

struct call {
    int words;
    const char *argv[CALL_KEYS_MAX + 8];
    size_t len[CALL_KEYS_MAX + 8];
    uint64_t decisions;
    char keys[CALL_KEYS_MAX][64];
    char numbers[4][24];
    unsigned char stamp[REDIS_STAMP_MAX];
    unsigned char items[REDIS_COUNTS_SIZE + CALL_KEYS_MAX * REDIS_RETURN_SIZE + REDIS_ECHO_SIZE]; /* or one argument */
};

/* Make a call of the gateway script for one key. `sha1` must live as long as the call. */
void call_gateway(struct call *call, const char *sha1, const struct bench_key *key, int64_t cost);

/* Make a call of the floor's script for a key of weir's token bucket. `sha1` must live as long as the call. */
void call_floor(struct call *call, const char *sha1, const struct bench_key *key);

/* Make the second command of a call that reads such a key without a script; TIME comes first. */
void call_read(struct call *call, const struct bench_key *key);

void call_ping(struct call *call);

/* Make a call of weir's script for keys[0..n), n from 1 to CALL_KEYS_MAX. Each key takes `cost` permits `times` times.
 */
void call_weir(struct call *call, enum kind kind, const struct bench_key *keys, size_t n, int64_t cost, uint16_t times);

/* Make a call that gives back a permit, charged at `since_us`, as weir_settle() does; of the second half of the keys,
 * and takes `cost` of each of the first half, if there are several. Each return has another time. */
void call_settle(struct call *call, enum kind kind, const struct bench_key *keys, size_t n, int64_t cost,
                 int64_t since_us);

/* Return how many permits the call was given, or UINT64_MAX if the reply is an error. The first error is printed. */
uint64_t call_permits(const redisReply *reply);

#endif
