/* memory.h - the memory backend: keeps the state of keys in this process. */
#ifndef BACKENDS_MEMORY_MEMORY_H
#define BACKENDS_MEMORY_MEMORY_H

#include <weir/backend.h>

/* Open a memory backend with options that options_read() has checked. WEIR_OK, with a backend in *out that the
 * caller destroys, or WEIR_ENOMEM. */
int memory_open(const struct weir_options *options, struct weir_backend **out);

/* Keep a memory backend usable in children of fork(): no thread is in the middle of a change during a fork. Each
 * fork then takes every shard's lock. */
void memory_watch_forks(struct weir_backend *backend);

#endif
