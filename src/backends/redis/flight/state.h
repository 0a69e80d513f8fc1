/* state.h - what goes to a script and comes back: plans, requests and states as bytes.
 *
 * All numbers are little-endian and unsigned, I1 .. I7 of so many bytes. A stamp is a plan; the state of a key is the
 * stamp of the plan that it was written under, and behind it what the algorithm keeps. Equal stamps are equal plans.
 *
 *     token bucket, leaky bucket   'T' or 'L', p I7, q I7, tick_us I3, size I4           used units I7, tick I7
 *     interval refill              'I', align I1, limit I4, period_us I7, size I4        used I4, last refill in us I7
 *     fixed window                 'F', align I1, period_us I7, size I4                  used I4, start in us I7
 *     sliding window               'S', blocks I2, us of a block I7, size I4            newest block I7, n I2, n counts I4
 *
 * lua/<algorithm>.lua has the same. Nothing used is no state at all. (36 bytes at most, but for sliding windows: up to
 * 44 Redis keeps a value in one piece with its header.)
 *
 * Where a key has a former state (lua/meet.lua), it is stored behind the state: '+', I2 the length of the state, the
 * state, or its stamp alone if nothing is used in it, and the former state. An answer never holds one.
 */
#ifndef BACKENDS_REDIS_FLIGHT_STATE_H
#define BACKENDS_REDIS_FLIGHT_STATE_H

#include "backends/redis/wire/scripts.h"

#include <weir/backend.h>

#define REDIS_STAMP_MAX 22
#define REDIS_STATE_MAX (14 + 9 + 4 * (WEIR_MAX_BLOCKS + 1))
#define REDIS_ITEM_SIZE 9
#define REDIS_ECHO_SIZE 4  /* after the last item, and again at the end of the answer */
#define REDIS_HEAD_SIZE 14 /* of an answer: the time and the permits charged, 7 bytes each */
#define REDIS_MAX_TIMES 65535

/* Return the script that decides requests under this plan one by one. In Redis, the greedy token bucket and the leaky
 * bucket are the same algorithm, so their two scripts have one text and one SHA-1. */
enum redis_script_id redis_script_of(const struct weir_plan *plan);

/* Write the stamp of a plan, whose size is 1 or more; returns its length. */
size_t redis_stamp_write(const struct weir_plan *plan, unsigned char out[REDIS_STAMP_MAX]);

/* What a script found for a key. */
enum redis_found {
    REDIS_FRESH,  /* nothing used: a byte 0 */
    REDIS_STATE,  /* a state */
    REDIS_FOREIGN /* something else, which it left alone: a byte 1 */
};

/* Read what a script found for one key under `plan` from the front of `bytes`. With REDIS_STATE, `state` is made the
 * state for state_decide() (core/algorithm/algorithm.h), state_words(plan) words. Returns how many bytes it took, or -1 if they
 * are not what a script sends for this plan: then nothing is written. */
int redis_state_read(const struct weir_plan *plan, const unsigned char *bytes, size_t len, int64_t *state,
                     enum redis_found *found);

/* The verbs of items are enum weir_verb and these, which charge up to `cost` permits ahead of use: as many as fit into
 * what is left divided by `times`. */
enum redis_verb {
    REDIS_LEASE = WEIR_RESET + 1,
    REDIS_LEASE_IF_TAKEN /* only if the last take of the key in this call was admitted */
};

/* Write one item: `times` (1 to REDIS_MAX_TIMES) equal requests, one after the other. `more`: the next item is about
 * the same key. Costs are below 2^40. */
void redis_item_write(unsigned char out[REDIS_ITEM_SIZE], int verb, bool more, int64_t cost, int64_t times);

#endif
