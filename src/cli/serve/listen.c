/* listen.c - opens sockets and accepts clients. */
#include "cli/serve/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/span.h"

#define ACCEPTS 64 /* clients accepted in one turn */
#define BACKLOG 511
#define PORT_MAX 65535

/* Accept some of those that wait. False: none is left, or a client has gone. */
static bool accept_some(struct server *server, const struct listener *listener)
{
    static const char full[] = "-ERR max number of clients reached\r\n";
    for (int i = 0; i < ACCEPTS; i++) {
        const int fd = accept4(listener->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return false;
        if (server->client_count < server->client_max) {
            client_accept(server, fd, listener->is_for_metrics, listener->is_tcp && server->tls);
            continue;
        }
        if (!listener->is_tcp || !server->tls) /* with TLS, or if it does not fit, the client only sees the end */
            send(fd, full, sizeof full - 1, MSG_NOSIGNAL);
        close(fd);
    }
    return true;
}

static void listener_ready(struct server *server, struct watch *watch, uint32_t events)
{
    (void)events;
    accept_some(server, (struct listener *)watch);
}

void listen_accept_all(struct server *server, const struct listener *listener)
{
    for (int i = 0; i <= BACKLOG / ACCEPTS; i++)
        if (!accept_some(server, listener))
            return;
}

static int refuse(int fd, const char *what, const char *name)
{
    complain("%s '%s': %s", what, name, strerror(errno));
    if (fd >= 0)
        close(fd);
    return EXIT_FAILED;
}

/* ---- TCP ---- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* Split HOST:PORT. False: it is not of that form. */
static bool split_address(const char *address, char *host, size_t host_size, const char **port)
{
    const char *colon = strrchr(address, ':');
    size_t len = colon ? (size_t)(colon - address) : 0;
    const bool has_brackets = len > 2 && address[0] == '[' && address[len - 1] == ']';
    if (has_brackets) {
        address++;
        len -= 2;
    }
    if (len == 0 || len >= host_size || (!has_brackets && memchr(address, ':', len)) || !colon[1])
        return false;
    memcpy(host, address, len);
    host[len] = '\0';
    *port = colon + 1;
    return true;
}

static void tell_address(int fd, const char *purpose)
{
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    char host[64], port[16];
    if (getsockname(fd, (struct sockaddr *)&bound, &len) == 0 &&
        getnameinfo((struct sockaddr *)&bound, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        printf(bound.ss_family == AF_INET6 ? "%s on [%s]:%s\n" : "%s on %s:%s\n", purpose, host, port);
}

/* `option` and `purpose` are for messages. */
static int listen_at(const char *option, const char *address, bool is_open, const char *purpose, struct listener *out)
{
    char host[256];
    const char *port;
    int64_t number;
    struct addrinfo *found, hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    if (!split_address(address, host, sizeof host, &port))
        return usage_error("serve", "%s '%s' is not HOST:PORT or [HOST]:PORT", option, address);
    /* getaddrinfo() takes a larger port modulo 2^16. */
    if (!span_number(span_of(port), &number) || number < 0 || number > PORT_MAX)
        return usage_error("serve", "%s '%s': the port must be 0 to %d", option, address, PORT_MAX);
    const int error = getaddrinfo(host, port, &hints, &found);
    if (error)
        return usage_error("serve", "%s '%s': %s", option, address, gai_strerror(error));
    if (!is_open && !is_loopback(found->ai_addr)) {
        freeaddrinfo(found);
        return usage_error("serve", "%s '%s' lets other machines in: that needs --password-file", option, address);
    }
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    const bool is_bound = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0;
    freeaddrinfo(found);
    if (!is_bound)
        return refuse(fd, "cannot listen on", address);
    tell_address(fd, purpose);
    *out = (struct listener){ .watch = { listener_ready, fd } };
    return EXIT_OK;
}

int listen_tcp(const char *address, bool has_password, struct listener *out)
{
    const int result = listen_at("--listen", address, has_password, "listening", out);
    if (result == EXIT_OK)
        out->is_tcp = true;
    return result;
}

int listen_metrics(const char *address, struct listener *out)
{
    const int result = listen_at("--metrics", address, true, "metrics", out);
    if (result == EXIT_OK)
        out->is_for_metrics = true;
    return result;
}

/* ---- Unix sockets ---- */

/* Remove a socket on which no process listens any more. False with errno: another kind of file has this name, which
 * bind() would call an address in use. */
static bool remove_stale(const struct sockaddr_un *address)
{
    struct stat found;
    if (lstat(address->sun_path, &found) != 0)
        return true;
    if (!S_ISSOCK(found.st_mode)) {
        errno = EEXIST;
        return false;
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED)
        unlink(address->sun_path);
    close(fd);
    return true;
}

int listen_unix(const char *path, struct listener *out)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) == 0 || strlen(path) >= sizeof address.sun_path)
        return usage_error("serve", "--unix '%s': a path has 1 to %zu bytes", path, sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    if (!remove_stale(&address))
        return refuse(-1, "cannot listen on", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, BACKLOG) != 0)
        return refuse(fd, "cannot listen on", path);
    printf("listening on %s\n", path);
    *out = (struct listener){ .watch = { listener_ready, fd }, .path = path };
    return EXIT_OK;
}

void listen_close(struct listener *listener)
{
    if (listener->watch.fd < 0)
        return;
    close(listener->watch.fd);
    listener->watch.fd = -1;
    if (listener->path)
        unlink(listener->path);
}
