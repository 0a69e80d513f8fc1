/* peers_dns.h - follows the addresses of a host's name; each is an instance of weight 1. */
#ifndef BACKENDS_FOLLOW_PEERS_DNS_H
#define BACKENDS_FOLLOW_PEERS_DNS_H

#include "backends/shared/resolve.h"
#include "core/limiter/limiter.h"

/* Resolve the name every poll_us. `options` come from options_read_followed(). WEIR_OK; WEIR_ENOMEM or WEIR_EIO
 * with a line in the log and nothing started. */
int peers_dns_follow(const struct weir_options *options, struct weir *limiter);

/* The same with another resolver than getaddrinfo(), for tests: only look_up and free_found of `target` are used. */
int peers_dns_follow_by(const struct weir_options *options, struct weir *limiter, const struct resolve_target *target);

#endif
