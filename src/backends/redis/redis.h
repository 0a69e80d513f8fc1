/* redis.h - the Redis backend: a script on the server decides, so that all instances share the limits. */
#ifndef BACKENDS_REDIS_REDIS_H
#define BACKENDS_REDIS_REDIS_H

#include <weir/backend.h>

/* Open the backend with `options` as options_read() left them. WEIR_OK, WEIR_EINVAL (the URL or the password), WEIR_EIO
 * (a password file, or no thread) or WEIR_ENOMEM; the log says why. On WEIR_OK the caller destroys *out. Does not wait
 * for the server. */
int redis_open(const struct weir_options *options, struct weir_backend **out);

#endif
