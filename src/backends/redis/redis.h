/* redis.h - the Redis backend: decides in a script on a server, for all instances together. */
#ifndef BACKENDS_REDIS_REDIS_H
#define BACKENDS_REDIS_REDIS_H

#include <weir/backend.h>

/* `options` as options_read() left them. WEIR_OK, WEIR_EINVAL (the URL or password), WEIR_EIO (password file, no
 * thread), WEIR_ENOMEM; the log says why. On WEIR_OK *out is the caller's to destroy. Does not wait for the server. */
int redis_open(const struct weir_options *options, struct weir_backend **out);

#endif
