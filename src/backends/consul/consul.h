/* consul.h - follows Consul: the instances of a service, among them this one, and policies in the KV store. */
#ifndef BACKENDS_CONSUL_CONSUL_H
#define BACKENDS_CONSUL_CONSUL_H

#include "core/follow/follow.h"

/* Start what `options`, checked by options_read(), ask of Consul (peers->service, consul_policies or both) on one
 * thread, without waiting for it. WEIR_OK; WEIR_EINVAL, WEIR_EIO (no thread, or a file cannot be read, including
 * the environment's) or WEIR_ENOMEM with a line in the log and nothing started. */
int consul_follow(const struct weir_options *options, struct weir *limiter);

#endif
