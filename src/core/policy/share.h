/* share.h - this instance's share of every limit: its weight w of a total W.
 *
 * Rates are divided exactly, as limit*w per period*W (plan.c). A number of whole permits x, such as a burst or a
 * window's limit, becomes floor(x*w/W). The permits that remain over all instances go to the first ones in the order of
 * their ids, one each, so the parts add up to the whole.
 *
 * While instances come and go, several shares may apply at the same time (peers.h). Then the least of each number
 * applies: the least of the rates and, separately, the least of each part. (The share with the smaller w/W may have the
 * larger part, because the permits that remain are given out in the order of ids.)
 */
#ifndef CORE_POLICY_SHARE_H
#define CORE_POLICY_SHARE_H

#include "core/ground/log.h"

#include <weir/weir.h>

#define SHARE_MAX_INSTANCES 10000
#define SHARE_MAX_WEIGHT 65535

/* All instances of one weight. */
struct share_class {
    int64_t weight;
    int64_t count;  /* how many instances */
    int64_t before; /* how many of them precede this one in the order of ids */
};

struct share {
    int64_t weight, total; /* w and W; W is not 0; w is 0 if this instance has no share */
    int64_t rank, count;   /* place in the order of ids, number of instances */
    const int64_t
        *weights; /* of all instances, in that order; NULL: all alike, or unknown if total != count * weight */
    /* Replaces `weights`: what the arithmetic needs, with one element for each different weight. NULL: there is only
     * `weights`. */
    const struct share_class *classes;
    int64_t class_count;
    bool floors_only;         /* it is not known which instances get what is left over: none does */
    const struct share *next; /* another share that holds too; NULL: none */
};

extern const struct share share_whole; /* 1 of 1 */

/* True if w/W of `a` is less than that of `b`. */
static inline bool share_is_less(const struct share *a, const struct share *b)
{
    return a->weight * b->total < b->weight * a->total; /* both below 2^46 */
}

static inline bool share_is_nothing(const struct share *share)
{
    return share->weight == 0;
}

/* Return the share with the least w/W in a chain. */
const struct share *share_least(const struct share *share);

/* Return the largest number of instances that any share in the chain says. */
int64_t share_instances(const struct share *share);

/* Write the classes of a share that has `weights` to `out`, which has room for one per instance. Return their number.
 */
int64_t share_classes(const struct share *share, struct share_class *out);

/* Copy a share and the chain behind it. Classes replace weights. All but *out is in one allocation, *memory, which is
 * NULL if none was needed: for one share without weights. The caller frees it. WEIR_OK, or WEIR_ENOMEM with nothing
 * written. */
int share_copy(const struct share *share, struct share *out, void **memory);

/* Make the share that the options describe. WEIR_OK, or WEIR_EINVAL with a sentence. `weights` still belongs to the
 * caller. */
int share_from_options(const struct weir_options *options, struct share *out, struct message message);

/* Return this instance's part of `permits` (0 to 2 * WEIR_MAX_PERMITS) whole permits: the least in the chain. */
int64_t share_permits(const struct share *share, int64_t permits);

/* Return the part by this share alone, only among instances whose floor is at least 1; this one must be among them. An
 * instance below that gets its part through a longer period, so its permits must not be handed out twice. */
int64_t share_refill(const struct share *share, int64_t permits);

#endif
