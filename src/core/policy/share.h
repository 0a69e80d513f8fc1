/* share.h - this instance's share of every limit: its weight w of a total W.
 *
 * Rates are divided exactly, as limit*w per period*W (plan.c). Whole permits, such as a burst or a window's limit, are
 * floor(x*w/W), and what is left over all instances goes one each to those first in the order of their ids, so that
 * the parts add up to the whole.
 *
 * While instances come and go several shares may have to hold at once (peers.h): then of each of these numbers the
 * least counts, that is, of all rates and, apart from that, of all parts of a whole. (A part may be larger where w/W is
 * less, for the remainders go by rank.)
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
    int64_t count;  /* how many they are */
    int64_t before; /* and how many of them are before this one in the order of ids */
};

struct share {
    int64_t weight, total;  /* w and W; W is not 0; w is where nothing is this instance's */
    int64_t rank, count;    /* place in the order of ids, number of instances */
    const int64_t *weights; /* of all, in that order; NULL: all alike, or unknown if total != count * weight */
    /* The same as `weights`, in place of them: all that the arithmetic needs, in as many steps as there are different
     * weights; NULL: there are only those. */
    const struct share_class *classes;
    int64_t class_count;
    bool floors_only;         /* whose turn it is to get what is left over is not known: nobody gets it */
    const struct share *next; /* another that has to hold as well; NULL: none */
};

extern const struct share share_whole; /* 1 of 1 */

/* Whether w/W is less. */
static inline bool share_is_less(const struct share *a, const struct share *b)
{
    return a->weight * b->total < b->weight * a->total; /* both below 2^46 */
}

static inline bool share_is_nothing(const struct share *share)
{
    return share->weight == 0;
}

/* The one of those that hold at once with the least w/W. */
const struct share *share_least(const struct share *share);

/* How many instances there are at most, by all that hold at once. */
int64_t share_instances(const struct share *share);

/* Write the classes of a share that has `weights` to `out`, which has room for as many as there are instances. Returns
 * how many they are. */
int64_t share_classes(const struct share *share, struct share_class *out);

/* Copy a share and the chain behind it. Classes replace weights. All but *out is in one allocation, *memory, which is
 * NULL if none was needed: for one share without weights. The caller frees it. WEIR_OK, or WEIR_ENOMEM with nothing
 * written. */
int share_copy(const struct share *share, struct share *out, void **memory);

/* From the options; WEIR_OK, or WEIR_EINVAL with a sentence. `weights` is the caller's list still. */
int share_from_options(const struct weir_options *options, struct share *out, struct message message);

/* This instance's part of `permits` (0 to 2 * WEIR_MAX_PERMITS) whole permits: the least by all that hold at once. */
int64_t share_permits(const struct share *share, int64_t permits);

/* The same by this share alone, and only among the instances whose own floor is at least 1, of which this must be one:
 * what an instance below that gets is made up by a longer period instead, and must not be handed out twice. */
int64_t share_refill(const struct share *share, int64_t permits);

#endif
