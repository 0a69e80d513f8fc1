/* sources.h - the sources that a limiter can follow without Consul: DNS, a function of the caller's, and a policy file.
 *
 * Each function starts a source with a thread, before the limiter is returned to the caller. It returns WEIR_OK; or
 * WEIR_ENOMEM or WEIR_EIO (no thread is available) with a line in the log and nothing started.
 */
#ifndef BACKENDS_FOLLOW_SOURCES_H
#define BACKENDS_FOLLOW_SOURCES_H

#include "backends/shared/resolve.h"
#include "core/limiter/limiter.h"

/* Follow the addresses behind peers->dns, resolved every poll_us; each is an instance of weight 1. `options` come from
 * options_read_followed(). */
int peers_dns_follow(const struct weir_options *options, struct weir *limiter);

/* The same with another resolver than getaddrinfo(), for tests: only look_up and free_found of `target` are used. */
int peers_dns_follow_by(const struct weir_options *options, struct weir *limiter, const struct resolve_target *target);

/* Follow the peers that peers->list reports, called every poll_us. `options` come from options_read_followed(). */
int peers_list_follow(const struct weir_options *options, struct weir *limiter);

/* Follow a policy file: read it again whenever it has changed in any way. `path` is copied. */
int policy_file_follow(const char *path, struct weir *limiter);

#endif
