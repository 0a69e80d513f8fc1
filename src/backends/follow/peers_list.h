/* peers_list.h - follows peers that a function of the caller's, weir_peers.list, reports. */
#ifndef BACKENDS_FOLLOW_PEERS_LIST_H
#define BACKENDS_FOLLOW_PEERS_LIST_H

#include "core/limiter/limiter.h"

/* Call it every poll_us on a separate thread. `options` come from options_read_followed(). WEIR_OK; WEIR_ENOMEM
 * or WEIR_EIO with a line in the log and nothing started. */
int peers_list_follow(const struct weir_options *options, struct weir *limiter);

#endif
