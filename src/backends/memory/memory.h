/* memory.h - the memory backend: decides under a shard's lock. */
#ifndef BACKENDS_MEMORY_MEMORY_H
#define BACKENDS_MEMORY_MEMORY_H

#include <weir/backend.h>

/* `options` as options_read() left them. WEIR_OK or WEIR_ENOMEM; on WEIR_OK *out is the caller's to destroy. */
int memory_open(const struct weir_options *options, struct weir_backend **out);

/* Keep a memory backend whole over forks: no thread is half-way through a change when one comes. Costs each fork the
 * taking of every shard's lock. */
void memory_watch_forks(struct weir_backend *backend);

#endif
