/* listen.h - the sockets on which weir serve waits for clients. */
#ifndef WEIR_CLI_SERVE_LISTEN_H
#define WEIR_CLI_SERVE_LISTEN_H

#include "cli/serve/client.h"

#define LISTEN_MAX 16

struct listener {
    struct watch watch; /* first */
    const char *path;   /* of a Unix socket, which is removed at the end; NULL: TCP */
    bool is_for_metrics;
    bool is_tcp; /* its clients speak TLS if the server does */
};

/* Listen on HOST:PORT or [HOST]:PORT, and print the address on stdout, which tells the port if PORT is 0. An address
 * that is not this machine's own (127.0.0.0/8, ::1) needs `has_password`. Return EXIT_OK, or an exit code after a
 * complaint. */
int listen_tcp(const char *address, bool has_password, struct listener *out);

/* Listen there for Prometheus servers. Otherwise as above, without a password. */
int listen_metrics(const char *address, struct listener *out);

/* Listen on a Unix socket, with the rights that the process's umask leaves. Replaces a socket on which no process
 * listens any more. Otherwise as above. */
int listen_unix(const char *path, struct listener *out);

void listen_close(struct listener *listener);

/* Accept all clients that wait, at most as many as can have waited. */
void listen_accept_all(struct server *server, const struct listener *listener);

#endif
