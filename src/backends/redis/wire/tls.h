/* tls.h - TLS for a connection to Redis, with OpenSSL, between the link's bytes and the socket's.
 *
 * This layer never touches a socket: the link sends the encrypted bytes and hands in those it received. So deadlines
 * and waits are the same with and without TLS, and nothing here blocks. A session belongs to its link's thread; a
 * context may be shared by threads.
 */
#ifndef BACKENDS_REDIS_WIRE_TLS_H
#define BACKENDS_REDIS_WIRE_TLS_H

#include "backends/redis/wire/bytes.h"
#include "core/ground/log.h"

/* Shared by all connections: the trusted authorities and this client's certificate. */
struct redis_tls_context;

/* One connection's session. */
struct redis_tls;

/* Make a context from the options redis_ca_file, redis_cert_file, redis_key_file and redis_insecure. The server's
 * certificate must be signed by redis_ca_file or, without it, by an authority that the system trusts. TLS 1.2 or later.
 * A session that begins after a file has changed uses the new one, if the files can then be used.
 * WEIR_OK, WEIR_EINVAL (the files do not match, or weir was built without TLS), WEIR_EIO (a file cannot be read) or
 * WEIR_ENOMEM; a message then begins with the option's name. */
int redis_tls_context_make(const struct weir_options *options, struct redis_tls_context **out, struct message message);
void redis_tls_context_free(struct redis_tls_context *context); /* NULL is ignored */

/* Begin a session. The server's certificate must match `host`, a name or an address, which is copied. NULL: out of
 * memory. */
struct redis_tls *redis_tls_begin(struct redis_tls_context *context, const char *host);

/* Free a session without sending a close alert: after a fork the connection may be another process's. */
void redis_tls_end(struct redis_tls *tls); /* NULL is ignored */

/* Continue the handshake and append what must be sent to `sealed`. 1: it is done, 0: more data is needed, -1: it
 * failed. */
int redis_tls_shake_hands(struct redis_tls *tls, struct redis_bytes *sealed);

/* Encrypt `len` bytes and append them to `sealed`. Only after the handshake. 0 or -1. */
int redis_tls_seal(struct redis_tls *tls, const void *data, size_t len, struct redis_bytes *sealed);

/* Take in received bytes. 0, or -1: out of memory. */
int redis_tls_feed(struct redis_tls *tls, const void *data, size_t len);

/* Decrypt received bytes: their number, 0 if there are none, or -1: the connection is over. TLS appends its own
 * messages to `sealed`. */
int redis_tls_read(struct redis_tls *tls, void *data, size_t size, struct redis_bytes *sealed);

/* Return why a function above returned -1. These words of OpenSSL go to the log and hold no secret. */
const char *redis_tls_reason(const struct redis_tls *tls);

#endif
