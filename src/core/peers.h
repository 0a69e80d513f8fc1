/* peers.h - this instance's share of every limit: its weight w of a total W.
 *
 * Rates are divided exactly, as limit*w per period*W (plan.c). Whole permits, such as a burst or a window's limit, are
 * floor(x*w/W), and what is left over all instances goes one each to those first in the order of their ids, so that
 * the parts add up to the whole.
 */
#ifndef CORE_PEERS_H
#define CORE_PEERS_H

#include "core/log.h"

#include <weir/weir.h>

#define SHARE_MAX_INSTANCES 10000
#define SHARE_MAX_WEIGHT 65535

struct share {
    int64_t weight, total;  /* w and W, not 0 */
    int64_t rank, count;    /* place in the order of ids, number of instances */
    const int64_t *weights; /* of all, in that order; NULL: all alike, or unknown if total != count * weight */
};

extern const struct share share_whole; /* 1 of 1 */

/* From the options; WEIR_OK, or WEIR_EINVAL with a sentence. `weights` is the caller's list still. */
int share_from_options(const struct weir_options *options, struct share *out, struct message message);

/* This instance's part of `permits` (0 to 2 * WEIR_MAX_PERMITS) whole permits. */
int64_t share_permits(const struct share *share, int64_t permits);

/* The same, but only among the instances whose own floor is at least 1, of which this must be one: what an instance
 * below that gets is made up by a longer period instead, and must not be handed out twice. */
int64_t share_refill(const struct share *share, int64_t permits);

#endif
