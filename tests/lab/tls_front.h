/* tls_front.h - TLS before a server without it: a front that ends a connection in the same segment as an answer,
 * shows another certificate for another name, or speaks only old versions. */
#ifndef WEIR_LAB_TLS_FRONT_H
#define WEIR_LAB_TLS_FRONT_H

struct tls_front_wish {
    const char *certificate, *key; /* PEM files */
    /* Other files for clients that request this name (SNI). NULL: none. */
    const char *name, *name_certificate, *name_key;
    int newest;       /* TLS version, as OpenSSL numbers it; 0: the newest */
    int server_port;  /* of 127.0.0.1 */
    const char *last; /* NULL: no connection is ended */
};

struct tls_front;

/* Listen on a port of 127.0.0.1, before the server at wish->server_port. A connection ends after the answer to a
 * request that contains `last`, unless it is an error: close_notify and the connection's end go in the same segment.
 * `wish` must outlive the front. Return NULL on failure. */
struct tls_front *tls_front_start(const struct tls_front_wish *wish);
int tls_front_port(const struct tls_front *front);

/* Return how many connections it ended that way. */
int tls_front_stop(struct tls_front *front);

#endif
