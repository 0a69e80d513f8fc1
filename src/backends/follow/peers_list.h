/* peers_list.h - peers by a function of the caller's: weir_peers.list. */
#ifndef BACKENDS_FOLLOW_PEERS_LIST_H
#define BACKENDS_FOLLOW_PEERS_LIST_H

#include "core/limiter/limiter.h"

/* Ask it every poll_us on a thread of its own. `options` come from options_read_followed(). WEIR_OK; WEIR_ENOMEM or
 * WEIR_EIO, with a line in the log and nothing started. */
int peers_list_follow(const struct weir_options *options, struct weir *limiter);

#endif
