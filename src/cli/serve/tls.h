/* tls.h - TLS towards the clients of weir serve, with OpenSSL. One thread; nothing here blocks. */
#ifndef WEIR_CLI_SERVE_TLS_H
#define WEIR_CLI_SERVE_TLS_H

#include <stdbool.h>
#include <sys/types.h>

/* The server's certificate and key, for all clients. */
struct tls_context;

/* One client's session. */
struct tls;

/* Read the files, in PEM: the server's certificates and key and, if `ca_file` is not NULL, the authorities that must
 * have signed the clients' certificates. TLS 1.2 or later. NULL after a complaint. */
struct tls_context *tls_open(const char *cert_file, const char *key_file, const char *ca_file);
void tls_close(struct tls_context *context); /* NULL is ignored */

/* Begin a session on a connection; the handshake takes place in tls_recv(). NULL: no memory. */
struct tls *tls_begin(struct tls_context *context, int fd);

/* Send the alert that ends a session, if the socket takes it now, and free it. NULL is ignored. */
void tls_end(struct tls *tls);

/* As recv() and send() on a socket that does not block; EPROTO: the session has failed. */
ssize_t tls_recv(struct tls *tls, void *data, size_t size);
ssize_t tls_send(struct tls *tls, const void *data, size_t len);

/* True if tls_recv() has more to give although the socket has nothing. */
bool tls_has_input(const struct tls *tls);

/* True if tls_recv() waits until the socket takes more. */
bool tls_waits_to_send(const struct tls *tls);

#endif
