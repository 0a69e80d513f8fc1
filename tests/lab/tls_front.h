/* tls_front.h - TLS before a server that speaks none: a front that ends a connection in the very segment that brings an
 * answer, shows another certificate for another name, or speaks old versions alone.
 */
#ifndef WEIR_LAB_TLS_FRONT_H
#define WEIR_LAB_TLS_FRONT_H

struct tls_front_wish {
    const char *certificate, *key; /* PEM files */
    /* For who asks for this name (SNI), other files. NULL: none. */
    const char *name, *name_certificate, *name_key;
    int newest;       /* version of TLS that it speaks, as OpenSSL numbers them; 0: the newest there is */
    int server_port;  /* of 127.0.0.1 */
    const char *last; /* NULL: no connection is ended */
};

struct tls_front;

/* On a port of 127.0.0.1, before the server at wish->server_port there. Each connection is carried until the answer to a
 * request in which `last` stands, unless that is an error: its end, and TLS's close_notify, go with it. `wish` stays the
 * caller's, until the front is stopped. NULL if it cannot be had. */
struct tls_front *tls_front_start(const struct tls_front_wish *wish);
int tls_front_port(const struct tls_front *front);

/* Returns how many connections it has ended so. */
int tls_front_stop(struct tls_front *front);

#endif
