/* consul.h - follows Consul: the instances of a service, this one among them, and policies in its KV store. */
#ifndef BACKENDS_CONSUL_CONSUL_H
#define BACKENDS_CONSUL_CONSUL_H

#include "core/follow/follow.h"

/* Start what `options`, which options_read() has checked, ask of Consul: peers->service, consul_policies or both, on
 * one thread. Nothing is waited for. WEIR_OK, WEIR_EINVAL, WEIR_EIO (a file, the environment's too, cannot be read;
 * no thread) or WEIR_ENOMEM, all but the first with a line in the log and nothing started. */
int consul_follow(const struct weir_options *options, struct weir *limiter);

#endif
