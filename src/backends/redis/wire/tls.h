/* tls.h - TLS for a connection to Redis, by OpenSSL, between the link's bytes and the socket's.
 *
 * It touches no socket: the link sends what is sealed and hands in what it received. So a connection with TLS has the
 * same deadlines, waits and wake-ups as one without, and nothing here ever blocks. A session belongs to its link's
 * thread; a context serves any number of threads.
 */
#ifndef BACKENDS_REDIS_WIRE_TLS_H
#define BACKENDS_REDIS_WIRE_TLS_H

#include "backends/redis/wire/bytes.h"
#include "core/ground/log.h"

/* What all connections to a server have in common: who is trusted, and who this client is. */
struct redis_tls_context;

/* What one connection has. */
struct redis_tls;

/* From options redis_ca_file, redis_cert_file, redis_key_file and redis_insecure. A server's certificate must be
 * vouched for by redis_ca_file, else by the system's store; TLS 1.2 or later.
 * WEIR_OK, WEIR_EINVAL (files that do not fit each other, a build without TLS), WEIR_EIO (a file cannot be read) or
 * WEIR_ENOMEM, with a sentence that begins with the option's name. */
int redis_tls_context_make(const struct weir_options *options, struct redis_tls_context **out, struct message message);
void redis_tls_context_free(struct redis_tls_context *context); /* NULL is ignored */

/* The server's certificate must be for `host`, a name or an address, which is copied. NULL: out of memory. */
struct redis_tls *redis_tls_begin(struct redis_tls_context *context, const char *host);

/* Sends nothing: to say goodbye is the business of the process that made the connection, which may be another. */
void redis_tls_end(struct redis_tls *tls); /* NULL is ignored */

/* Go on with the handshake; what is to be sent is added to `sealed`. 1: it is done, 0: more must come, -1: it failed.
 */
int redis_tls_shake_hands(struct redis_tls *tls, struct redis_bytes *sealed);

/* Add `len` bytes to `sealed`, as they are to be sent. 0 or -1. The handshake is done. */
int redis_tls_seal(struct redis_tls *tls, const void *data, size_t len, struct redis_bytes *sealed);

/* What came. 0, or -1: out of memory. */
int redis_tls_feed(struct redis_tls *tls, const void *data, size_t len);

/* The next of what came, opened: how many bytes, 0 if none are there, or -1: the connection is over. What TLS itself
 * has to send is added to `sealed`. */
int redis_tls_read(struct redis_tls *tls, void *data, size_t size, struct redis_bytes *sealed);

/* Why a function above returned -1, for the log: OpenSSL's own words about certificates and protocol, no secret. */
const char *redis_tls_reason(const struct redis_tls *tls);

#endif
