/* link.c - one connection to Redis: opened, greeted, written to and read from; it never blocks. */
#include "backends/redis/wire/link.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEER_GONE_MS 5000 /* data unacknowledged for this long ends the connection (RFC 5482) */

void redis_addresses_seek(struct resolver *resolver, const char *host, int port)
{
    resolver_init(resolver, &(struct resolve_target){
                                .host = host,
                                .port = port,
                                .flags = AI_ADDRCONFIG,
                                .most = REDIS_ADDRESSES,
                            });
}

int redis_link_init(struct redis_link *link)
{
    *link = (struct redis_link){ .fd = -1, .received = malloc(REDIS_LINK_RECEIVE) };
    if (!link->received || redis_wire_init(&link->wire) != 0) {
        free(link->received);
        return -1;
    }
    lock_init(&link->fd_lock);
    return 0;
}

void redis_link_free(struct redis_link *link)
{
    redis_link_close(link, "");
    redis_wire_free(&link->wire);
    free(link->received);
    redis_bytes_free(&link->out);
    redis_bytes_free(&link->sealed);
    lock_destroy(&link->fd_lock);
}

static void link_set_fd(struct redis_link *link, int fd)
{
    lock_take(&link->fd_lock);
    int old = link->fd;
    link->fd = fd;
    if (old >= 0)
        close(old);
    lock_give(&link->fd_lock);
}

void redis_link_close(struct redis_link *link, const char *reason)
{
    if (link->fd >= 0)
        link_set_fd(link, -1);
    link->state = REDIS_LINK_CLOSED;
    redis_bytes_clear(&link->out, link->secret);
    redis_bytes_clear(&link->sealed, false);
    link->secret = false;
    link->ends = link->is_patient = false;
    link->sent = 0;
    snprintf(link->reason, sizeof link->reason, "%s", reason);
    explicit_bzero(link->greeting.password, sizeof link->greeting.password);
    redis_tls_end(link->tls); /* last: `reason` may be its words */
    link->tls = NULL;
}

void redis_link_abandon(const struct redis_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
}

void redis_link_hang_up(struct redis_link *link)
{
    lock_take(&link->fd_lock);
    if (link->fd >= 0)
        shutdown(link->fd, SHUT_RDWR);
    lock_give(&link->fd_lock);
}

static void link_close_error(struct redis_link *link, const char *what, int error)
{
    char reason[96];
    snprintf(reason, sizeof reason, "%s: %s", what, strerror(error));
    redis_link_close(link, reason);
}

void redis_link_refused(struct redis_link *link, const struct redis_reply *error, const char *what)
{
    char reason[sizeof link->reason];
    redis_reply_refusal(error, what, reason, sizeof reason);
    redis_link_close(link, reason);
}

/* ---- Sending ---- */

/* Return the bytes that go to the socket. */
static struct redis_bytes *link_wire(struct redis_link *link)
{
    return link->tls ? &link->sealed : &link->out;
}

/* While the socket is full, new output must not pile up behind bytes already sent. */
static void link_drop_sent(struct redis_link *link)
{
    struct redis_bytes *wire = link_wire(link);
    if (link->sent < wire->len / 2 || link->secret)
        return;
    wire->len -= link->sent;
    memmove(wire->data, wire->data + link->sent, wire->len);
    link->sent = 0;
}

static void link_send_all(struct redis_link *link)
{
    struct redis_bytes *wire = link_wire(link);
    while (link->sent < wire->len) {
        ssize_t sent = send(link->fd, wire->data + link->sent, wire->len - link->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            link_drop_sent(link);
            return;
        }
        if (sent < 0 && link->state == REDIS_LINK_GREETING && (errno == EPIPE || errno == ECONNRESET))
            break; /* what has come may say why, and its end closes the link */
        if (sent < 0) {
            link_close_error(link, "cannot send", errno);
            return;
        }
        link->sent += (size_t)sent;
    }
    redis_bytes_clear(wire, link->secret);
    if (!link->tls)
        link->secret = false;
    link->sent = 0;
}

/* False: the link is closed. */
static bool link_seal_all(struct redis_link *link)
{
    if (link->out.len == 0 || link->state < REDIS_LINK_GREETING)
        return true;
    if (redis_tls_seal(link->tls, link->out.data, link->out.len, &link->sealed) != 0) {
        redis_link_close(link, redis_tls_reason(link->tls));
        return false;
    }
    redis_bytes_clear(&link->out, link->secret);
    link->secret = false;
    return true;
}

bool redis_link_send(struct redis_link *link)
{
    if (link->out.failed) {
        redis_link_close(link, "out of memory");
        return false;
    }
    if (!link->tls || link_seal_all(link))
        link_send_all(link);
    return true;
}

/* ---- Connecting ---- */

/* A socket works without these options, so failures are ignored. */
static void link_set_options(int fd, int family)
{
    int on = 1, gone_ms = PEER_GONE_MS;
    if (family == AF_UNIX)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &gone_ms, sizeof gone_ms);
}

void redis_link_open(struct redis_link *link, const struct redis_where *where, const struct redis_target *target,
                     enum redis_guest guest)
{
    assert(link->state == REDIS_LINK_CLOSED && link->out.len == 0);
    const struct resolve_address *address = &where->address;
    int family = address->name.ss_family;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        link_close_error(link, "no socket", errno);
        return;
    }
    link_set_fd(link, fd);
    link_set_options(fd, family);
    const bool can_read = redis_wire_restart(&link->wire) == 0;
    link->secret = redis_greet_write(&link->greeting, target, guest, &link->wire, &link->out);
    if (target->tls)
        link->tls = redis_tls_begin(target->tls, where->host);
    if (!can_read || link->out.failed || (target->tls && !link->tls)) {
        redis_link_close(link, "out of memory");
        return;
    }
    link->state = REDIS_LINK_CONNECTING;
    if (connect(fd, (const struct sockaddr *)&address->name, address->len) == 0)
        redis_link_step(link);
    else if (errno != EINPROGRESS && errno != EINTR)
        link_close_error(link, "cannot connect", errno);
}

static void link_begin_greeting(struct redis_link *link)
{
    link->state = link->greeting.due > 0 ? REDIS_LINK_GREETING : REDIS_LINK_UP;
}

/* TLS has failed. Send the server its alert, as far as the socket takes it now. */
static void link_close_tls(struct redis_link *link)
{
    link_send_all(link);
    if (link->state != REDIS_LINK_CLOSED)
        redis_link_close(link, redis_tls_reason(link->tls));
}

static void link_step_securing(struct redis_link *link)
{
    int done = redis_tls_shake_hands(link->tls, &link->sealed);
    if (done < 0)
        link_close_tls(link);
    else if (done > 0)
        link_begin_greeting(link);
}

static void link_step_connecting(struct redis_link *link)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    if (error) {
        link_close_error(link, "cannot connect", error);
        return;
    }
    struct pollfd writable = { .fd = link->fd, .events = POLLOUT };
    if (poll(&writable, 1, 0) != 1)
        return;
    if (link->tls) {
        link->state = REDIS_LINK_SECURING;
        link_step_securing(link);
    } else {
        link_begin_greeting(link);
    }
}

/* ---- Reading ---- */

bool redis_link_has_output(const struct redis_link *link)
{
    if (!link->tls)
        return link->sent < link->out.len;
    return link->sent < link->sealed.len || (link->state >= REDIS_LINK_GREETING && link->out.len > 0);
}

short redis_link_events(const struct redis_link *link)
{
    if (link->state == REDIS_LINK_CLOSED)
        return 0;
    if (link->state == REDIS_LINK_CONNECTING)
        return POLLOUT;
    return redis_link_has_output(link) ? POLLIN | POLLOUT : POLLIN;
}

void redis_link_make_patient(struct redis_link *link, int64_t us)
{
    const struct timeval patience = { .tv_sec = us / 1000000, .tv_usec = us % 1000000 };
    int flags = fcntl(link->fd, F_GETFL);
    link->is_patient = flags >= 0 && setsockopt(link->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
                       fcntl(link->fd, F_SETFL, flags & ~O_NONBLOCK) ==
                           0; /* every other call here passes MSG_DONTWAIT */
}

#define TLS_ALERT 0x15 /* a record's first byte; no reply of Redis has it */

static void link_take_in(struct redis_link *link, size_t len)
{
    if (!link->tls && link->state == REDIS_LINK_GREETING && link->received[0] == TLS_ALERT) {
        redis_link_close(link, "the server's port expects TLS: use a rediss:// URL");
        return;
    }
    if (redis_wire_feed(&link->wire, link->received, len) != 0)
        redis_link_close(link, "the server sends more than any answer is long");
}

static void link_take_in_sealed(struct redis_link *link, size_t len)
{
    int got = redis_tls_feed(link->tls, link->received, len) == 0 ? 1 : -1; /* which copies all of it */
    if (got > 0 && link->state == REDIS_LINK_SECURING) {
        link_step_securing(link);
        if (link->state <= REDIS_LINK_SECURING)
            return;
    }
    while (got > 0 && link->state >= REDIS_LINK_GREETING) {
        got = redis_tls_read(link->tls, link->received, REDIS_LINK_RECEIVE, &link->sealed);
        if (got > 0)
            link_take_in(link, (size_t)got);
    }
    if (got >= 0)
        return;
    if (link->state >= REDIS_LINK_GREETING)
        link->ends = true; /* answers may have come before that */
    else
        link_close_tls(link);
}

/* A port with TLS closes or resets a connection without it. */
static void link_close_by_peer(struct redis_link *link, const char *what)
{
    char reason[sizeof link->reason];
    const bool is_early = link->state == REDIS_LINK_GREETING && !link->tls;
    snprintf(reason, sizeof reason, "%s%s", what,
             is_early ? " in the greeting; if its port expects TLS: use a rediss:// URL" : "");
    redis_link_close(link, reason);
}

static void link_receive(struct redis_link *link, int flags)
{
    ssize_t len = recv(link->fd, link->received, REDIS_LINK_RECEIVE, flags);
    if (len > 0 && link->tls) {
        link_take_in_sealed(link, (size_t)len);
    } else if (len > 0) {
        link_take_in(link, (size_t)len);
    } else if (len == 0) {
        link_close_by_peer(link, "the server closed the connection");
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        if (errno == ECONNRESET)
            link_close_by_peer(link, "the server reset the connection");
        else
            link_close_error(link, "cannot receive", errno);
    }
}

void redis_link_receive(struct redis_link *link)
{
    link_receive(link, 0);
}

static void link_step_greeting(struct redis_link *link)
{
    struct redis_reply reply;
    char reason[sizeof link->reason];
    while (link->state == REDIS_LINK_GREETING && redis_link_next(link, &reply)) {
        if (!redis_greet_take(&link->greeting, &reply, reason, sizeof reason)) {
            redis_link_close(link, reason);
        } else if (link->greeting.due == 0) {
            link->state = REDIS_LINK_UP;
            explicit_bzero(link->greeting.password, sizeof link->greeting.password); /* the server has it now */
            if (link->greeting.asks_role)
                redis_wire_show_lists(&link->wire, NULL, NULL);
        }
    }
}

void redis_link_step(struct redis_link *link)
{
    if (link->state == REDIS_LINK_CONNECTING)
        link_step_connecting(link);
    if (link->state < REDIS_LINK_SECURING)
        return;
    if (redis_link_has_output(link))
        redis_link_send(link);
    if (link->state >= REDIS_LINK_SECURING)
        link_receive(link, MSG_DONTWAIT);
    if (link->state >= REDIS_LINK_SECURING && redis_link_has_output(link)) /* TLS may answer to what came */
        redis_link_send(link);
    if (link->state != REDIS_LINK_GREETING)
        return;
    link_step_greeting(link);
    if (link->state == REDIS_LINK_UP)
        redis_link_leave(link);
}

void redis_link_leave(struct redis_link *link)
{
    if (link->ends)
        redis_link_close(link, redis_tls_reason(link->tls));
}

int redis_link_next(struct redis_link *link, struct redis_reply *out)
{
    int got = redis_wire_next(&link->wire, out);
    if (got < 0)
        redis_link_close(link, "the server does not speak Redis' protocol");
    else if (got == 0)
        redis_link_leave(link);
    return got > 0;
}

bool redis_link_is_fresh(const struct redis_link *link)
{
    char byte;
    return link->state == REDIS_LINK_UP && recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
}
