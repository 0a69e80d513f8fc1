/* state.h - plans, requests and states as the bytes that scripts read and return.
 *
 * Numbers are little-endian and unsigned; I1 .. I7 say how many bytes. A stamp is a plan. The state of a key begins
 * with the stamp of the plan that it was written under; the algorithm's own fields follow. Equal stamps are equal
 * plans.
 *
 *     algorithm                    stamp                                             fields of the state
 *     token bucket, leaky bucket   'T' or 'L', p I7, q I7, tick_us I5, size I6       used units I7, tick I7
 *     interval refill              'I', align I1, limit I6, period_us I7, size I6    used I7, last refill in us I7
 *     fixed window                 'F', align I1, period_us I7, size I6              used I7, start in us I7
 *     sliding window               'S', blocks I2, block in us I7, size I6           newest block I7, n I2, n counts
 *
 * Counts are I4, or I7 if the size needs more.
 *
 * lua/<algorithm>.lua has the same. A key with nothing used has no state. A state takes at most 40 bytes, except with
 * sliding windows; up to 44 Redis stores a value in one piece with its header.
 *
 * In the state of a token or leaky bucket p, q and the used units may be doubled. It stands for the same level, and
 * says that the key's time to live has room (lua/level.lua). A plan's p and q are never both even.
 *
 * A state's origin (core/algorithm/origin.h) is stored before it: 'O', eight I7. An answer holds it, too.
 *
 * A former state (lua/meet.lua) is stored behind the state: '+', I7 the time in us until which it is kept, I2 the
 * length of the state, the state (its stamp alone if nothing is used), the former state. An answer never holds one.
 */
#ifndef BACKENDS_REDIS_FLIGHT_STATE_H
#define BACKENDS_REDIS_FLIGHT_STATE_H

#include "backends/redis/wire/scripts.h"
#include "core/algorithm/origin.h"

#include <weir/backend.h>

#define REDIS_STAMP_MAX 26
#define REDIS_BUCKET_STATE_SIZE (REDIS_STAMP_MAX + 7 + 7)
#define REDIS_STATE_MAX (16 + 9 + 4 * (WEIR_MAX_BLOCKS + 1))
_Static_assert(7 * (WEIR_MAX_WIDE_BLOCKS + 1) <= 4 * (WEIR_MAX_BLOCKS + 1), "counts of 7 bytes take no more");
#define REDIS_COUNTS_SIZE 4 /* bytes before the first item: redis_items_pack() */
#define REDIS_ITEM_SIZE 15
#define REDIS_RETURN_SIZE 16 /* of a key's only item, if that is a return: redis_items_pack() */
#define REDIS_ECHO_SIZE 4    /* bytes after the last item, repeated at the end of the answer */
#define REDIS_HEAD_SIZE 14   /* bytes of an answer: the time and the permits charged, I7 each */
#define REDIS_MAX_TIMES 65535

/* Write a number, and return what is behind it; read one, and go on behind it. */
unsigned char *redis_put_number(unsigned char *at, int bytes, int64_t value);
int64_t redis_get_number(const unsigned char **at, int bytes);

/* Read the origin before a state. Return its length; 0: there is none that is sound. */
#define REDIS_ORIGIN_SIZE (1 + 8 * 7)
_Static_assert(ORIGIN_WORDS == 8, "as many numbers");
size_t redis_origin_read(const unsigned char *bytes, size_t len, struct origin *out);

/* Return the script that decides requests under this plan one by one. In Redis, the greedy token bucket and the leaky
 * bucket are the same algorithm, so their two scripts have one text and one SHA-1. */
enum redis_script_id redis_script_of(const struct weir_plan *plan);

/* Write the stamp of a plan whose size is at least 1. Return its length. */
size_t redis_stamp_write(const struct weir_plan *plan, unsigned char out[REDIS_STAMP_MAX]);

/* The argument of lua/bucket_single.lua: the plan, numbers made from the plan and the permits, and the echo. A charge
 * has one more number, a return two. */
#define REDIS_TAKE_SIZE (REDIS_STAMP_MAX + 4 * 8 + REDIS_ECHO_SIZE)
#define REDIS_CHARGE_SIZE (REDIS_TAKE_SIZE + 8)
#define REDIS_SETTLE_SIZE (REDIS_CHARGE_SIZE + 8)

/* Write the argument of one take of `cost` permits by the server's time, with the REDIS_ECHO_SIZE bytes at `echo`.
 * Return its length, or 0 if that script does not decide under this plan: the algorithm is not a bucket, the tick is
 * longer than a microsecond, or the units are too large to have room. */
size_t redis_take_write(const struct weir_plan *plan, int64_t cost, const void *echo,
                        unsigned char out[REDIS_TAKE_SIZE]);

/* Do the same for the return of `cost` permits that were charged at `since_us` and not used; or, if that is 0, for the
 * charge of `cost`. Also return 0 for a charge that exceeds the size. */
size_t redis_settle_write(const struct weir_plan *plan, int64_t cost, int64_t since_us, const void *echo,
                          unsigned char out[REDIS_SETTLE_SIZE]);

/* Write the second argument of lua/settle.lua: charge `permits` for an outage that began `ago_us` ago, with the
 * REDIS_ECHO_SIZE bytes at `echo`. */
#define REDIS_ASK_SIZE (7 + 7 + REDIS_ECHO_SIZE)
void redis_ask_pack(int64_t permits, int64_t ago_us, const void *echo, unsigned char out[REDIS_ASK_SIZE]);

/* The size of a state without its stamp, and of that script's answer without its echo, unless it denies. No other
 * answer is as short. */
#define REDIS_LEFT_SIZE (7 + 7)

/* Read it: the state that the request has left at its tick, which is the time or, after a return, that of the change
 * before. Nothing may be in use. Return false if the script leaves no such state: an odd number of half units in use,
 * or more than a full bucket's. */
bool redis_left_read(const struct weir_plan *plan, const unsigned char bytes[REDIS_LEFT_SIZE], int64_t *state);

/* True if bytes[0..len), an answer of that script without its echo, are its short denial: REDIS_BUCKET_STATE_SIZE bytes
 * of the state, and text. Its longest answer ends with a byte below any digit. */
static inline bool redis_denial_is_short(const unsigned char *bytes, size_t len)
{
    return len > REDIS_BUCKET_STATE_SIZE && bytes[len - 1] >= '0';
}

/* Read that text: the time. Return false if it is none. */
bool redis_time_read(const unsigned char *text, size_t len, int64_t *now_us);

/* Read the plan of the stamp at the front of `bytes`, without its fingerprint; a limit on requests in flight has become
 * a sliding window. Return the stamp's length, or 0 if it is none that scripts accept. */
size_t redis_stamp_read(const unsigned char *bytes, size_t len, struct weir_plan *plan);

/* The kinds of value that a script finds for a key. */
enum redis_found {
    REDIS_FRESH,  /* nothing used: a 0 byte */
    REDIS_STATE,  /* a state */
    REDIS_FOREIGN /* another value, which it left alone: a 1 byte */
};

/* Read what a script found for a key under `plan` from the front of `bytes`. If REDIS_STATE, `state` receives the state
 * for state_decide() (core/algorithm/algorithm.h), state_words(plan) words. Return the number of bytes read, or -1 if
 * no script sends such bytes for this plan; then nothing is written. A script may deny by a bucket's state with room
 * that no script has written: such a value is foreign. */
int redis_state_read(const struct weir_plan *plan, const unsigned char *bytes, size_t len, int64_t *state,
                     enum redis_found *found);

/* The verbs of items: enum weir_verb, and these. The first two charge up to `cost` permits ahead of use: as many as fit
 * into the permits left divided by `times`. */
enum redis_verb {
    REDIS_LEASE = WEIR_RENEW + 1,
    REDIS_LEASE_IF_TAKEN, /* only if the key's last take in this call was admitted */
    REDIS_RETURN          /* give back `cost` permits that were charged at `times`, in us, and not used */
};
#define REDIS_MORE 128 /* added to the verb if the next item is for the same key */

/* Write an item: `times` (1 to REDIS_MAX_TIMES) equal requests, one after the other; or WEIR_RENEW of permits that were
 * charged at `times`, in us. `more`: the next item is for the same key. Costs are below 2^53. */
void redis_item_write(unsigned char out[REDIS_ITEM_SIZE], int verb, bool more, int64_t cost, int64_t times);

/* Put the two counts of lua/each.lua before `n` items, drop the copies of the first, and write returns as that script
 * reads them. The keys that come first may have equal items, which are neither returns nor renewals; the keys after
 * them may have returns. `bytes` begin with REDIS_COUNTS_SIZE bytes of room, and have room for REDIS_RETURN_SIZE bytes
 * an item. Return the length of all. */
size_t redis_items_pack(unsigned char *bytes, size_t n);

#endif
