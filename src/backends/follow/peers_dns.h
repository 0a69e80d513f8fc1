/* peers_dns.h - peers by DNS: the addresses behind a host's name, one an instance, all of one weight. */
#ifndef BACKENDS_FOLLOW_PEERS_DNS_H
#define BACKENDS_FOLLOW_PEERS_DNS_H

#include "backends/shared/resolve.h"
#include "core/limiter/limiter.h"

/* Resolve the name every poll_us. `options` come from options_read_followed(). WEIR_OK; WEIR_ENOMEM or WEIR_EIO, with a
 * line in the log and nothing started. */
int peers_dns_follow(const struct weir_options *options, struct weir *limiter);

/* The same, for tests: by somebody else than getaddrinfo(). Of `target` only look_up and free_found count. */
int peers_dns_follow_by(const struct weir_options *options, struct weir *limiter, const struct resolve_target *target);

#endif
