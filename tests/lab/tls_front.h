/* tls_front.h - TLS before a server that speaks none: a front that ends a connection in the very segment that brings an
 * answer.
 */
#ifndef WEIR_LAB_TLS_FRONT_H
#define WEIR_LAB_TLS_FRONT_H

struct tls_front;

/* On a port of 127.0.0.1, before the server at `server_port` there. Each connection is carried until the answer to a
 * request in which `last` stands, unless that is an error: its end, and TLS's close_notify, go with it. NULL if it
 * cannot be had. */
struct tls_front *tls_front_start(const char *certificate, const char *key, int server_port, const char *last);
int tls_front_port(const struct tls_front *front);

/* Returns how many connections it has ended so. */
int tls_front_stop(struct tls_front *front);

#endif
