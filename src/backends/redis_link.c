/* redis_link.c - one connection to Redis: made, greeted, written to and read from, without ever blocking. */
#include "backends/redis_link.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECEIVE_SIZE 16384
#define GREETING_ROOM (1 << 17) /* more than all scripts and secrets take */
#define PEER_GONE_MS 5000       /* what was sent and is not acknowledged for so long ends the connection (RFC 5482) */

int redis_link_init(struct redis_link *link)
{
    *link = (struct redis_link){ .fd = -1 };
    if (redis_wire_init(&link->wire) != 0)
        return -1;
    lock_init(&link->fd_lock);
    return 0;
}

void redis_link_free(struct redis_link *link)
{
    redis_link_close(link, "");
    redis_wire_free(&link->wire);
    redis_bytes_free(&link->out);
    lock_destroy(&link->fd_lock);
}

static void set_fd(struct redis_link *link, int fd)
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
        set_fd(link, -1);
    link->state = REDIS_LINK_CLOSED;
    redis_bytes_clear(&link->out, link->secret);
    link->secret = false;
    link->sent = 0;
    snprintf(link->reason, sizeof link->reason, "%s", reason);
}

void redis_link_hang_up(struct redis_link *link)
{
    lock_take(&link->fd_lock);
    if (link->fd >= 0)
        shutdown(link->fd, SHUT_RDWR);
    lock_give(&link->fd_lock);
}

static void close_for(struct redis_link *link, const char *what, int error)
{
    const char *text = strerrordesc_np(error);
    char reason[96];
    snprintf(reason, sizeof reason, "%s: %s", what, text ? text : "unknown error");
    redis_link_close(link, reason);
}

/* ---- Making it ---- */

/* Settings that are not to be had cost nothing but their use. */
static void set_options(int fd, int family)
{
    int on = 1, gone_ms = PEER_GONE_MS;
    if (family == AF_UNIX)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &gone_ms, sizeof gone_ms);
}

static void greet(struct redis_link *link, const struct redis_target *target, bool load_scripts)
{
    link->greetings = link->loads = 0;
    if (load_scripts)
        redis_bytes_room(&link->out, GREETING_ROOM); /* so that no password is left behind when the buffer moves */
    if (target->password) {
        redis_bytes_command(&link->out, target->user ? 3 : 2);
        redis_bytes_text(&link->out, "AUTH");
        if (target->user)
            redis_bytes_text(&link->out, target->user);
        redis_bytes_text(&link->out, target->password);
        link->secret = true;
        link->greetings++;
    }
    if (target->db != 0) {
        redis_bytes_command(&link->out, 2);
        redis_bytes_text(&link->out, "SELECT");
        redis_bytes_number(&link->out, target->db);
        link->greetings++;
    }
    if (link->greetings == 0 && !load_scripts) { /* a server that is full accepts, and then says so and closes */
        redis_bytes_command(&link->out, 1);
        redis_bytes_text(&link->out, "PING");
        link->greetings++;
    }
    for (unsigned i = 0; load_scripts && i < REDIS_SCRIPT_COUNT; i++) {
        redis_bytes_command(&link->out, 3);
        redis_bytes_text(&link->out, "SCRIPT");
        redis_bytes_text(&link->out, "LOAD");
        redis_bytes_string(&link->out, redis_scripts[i].text, redis_scripts[i].len);
        link->greetings++;
        link->loads++;
    }
}

void redis_link_open(struct redis_link *link, const struct resolve_address *address, const struct redis_target *target,
                     bool load_scripts)
{
    assert(link->state == REDIS_LINK_CLOSED && link->out.len == 0);
    int family = address->name.ss_family;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        close_for(link, "no socket", errno);
        return;
    }
    set_fd(link, fd);
    set_options(fd, family);
    greet(link, target, load_scripts);
    if (redis_wire_restart(&link->wire) != 0 || link->out.failed) {
        redis_link_close(link, "out of memory");
        return;
    }
    link->state = REDIS_LINK_CONNECTING;
    if (connect(fd, (const struct sockaddr *)&address->name, address->len) == 0)
        redis_link_step(link);
    else if (errno != EINPROGRESS && errno != EINTR)
        close_for(link, "cannot connect", errno);
}

static void step_connecting(struct redis_link *link)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    if (error) {
        close_for(link, "cannot connect", error);
        return;
    }
    struct pollfd writable = { .fd = link->fd, .events = POLLOUT };
    if (poll(&writable, 1, 0) != 1)
        return;
    link->state = link->greetings > 0 ? REDIS_LINK_GREETING : REDIS_LINK_UP;
}

/* ---- Writing and reading ---- */

short redis_link_events(const struct redis_link *link)
{
    if (link->state == REDIS_LINK_CLOSED)
        return 0;
    if (link->state == REDIS_LINK_CONNECTING)
        return POLLOUT;
    return link->sent < link->out.len ? POLLIN | POLLOUT : POLLIN;
}

/* What comes while the socket is full must not pile up behind what has been sent. */
static void drop_sent(struct redis_link *link)
{
    if (link->sent < link->out.len / 2 || link->secret)
        return;
    link->out.len -= link->sent;
    memmove(link->out.data, link->out.data + link->sent, link->out.len);
    link->sent = 0;
}

void redis_link_send(struct redis_link *link)
{
    while (link->sent < link->out.len) {
        ssize_t sent = send(link->fd, link->out.data + link->sent, link->out.len - link->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            drop_sent(link);
            return;
        }
        if (sent < 0) {
            close_for(link, "cannot send", errno);
            return;
        }
        link->sent += (size_t)sent;
    }
    redis_bytes_clear(&link->out, link->secret);
    link->secret = false;
    link->sent = 0;
}

void redis_link_make_patient(struct redis_link *link, int64_t us)
{
    const struct timeval patience = { .tv_sec = us / 1000000, .tv_usec = us % 1000000 };
    int flags = fcntl(link->fd, F_GETFL);
    if (setsockopt(link->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 && flags >= 0)
        fcntl(link->fd, F_SETFL, flags & ~O_NONBLOCK); /* all else here says MSG_DONTWAIT */
}

static void receive(struct redis_link *link, int flags)
{
    char data[RECEIVE_SIZE];
    ssize_t len = recv(link->fd, data, sizeof data, flags);
    if (len > 0) {
        if (redis_wire_feed(&link->wire, data, (size_t)len) != 0)
            redis_link_close(link, "more came than any answer is long");
    } else if (len == 0) {
        redis_link_close(link, "the server closed the connection");
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        close_for(link, "cannot receive", errno);
    }
}

void redis_link_receive(struct redis_link *link)
{
    receive(link, 0);
}

/* The server's own words are not repeated but for the first, which is a code: an error may quote anything. */
static void refused(struct redis_link *link, const struct redis_reply *reply)
{
    size_t len = 0;
    while (len < reply->len && len < 20 && reply->text[len] >= 'A' && reply->text[len] <= 'Z')
        len++;
    char reason[96];
    snprintf(reason, sizeof reason, "the server answers %.*s to the greeting", len ? (int)len : 3,
             len ? reply->text : "ERR");
    redis_link_close(link, reason);
}

static bool greeting_fits(const struct redis_link *link, const struct redis_reply *reply)
{
    if (link->greetings > link->loads)
        return reply->kind == REDIS_REPLY_IS_STATUS;
    const struct redis_script *script = &redis_scripts[REDIS_SCRIPT_COUNT - link->greetings];
    return reply->kind == REDIS_REPLY_IS_STRING && reply->len == 40 && memcmp(reply->text, script->sha1, 40) == 0;
}

static void read_greetings(struct redis_link *link)
{
    struct redis_reply reply;
    while (link->state == REDIS_LINK_GREETING && redis_link_next(link, &reply)) {
        if (reply.kind == REDIS_REPLY_IS_ERROR)
            refused(link, &reply);
        else if (!greeting_fits(link, &reply))
            redis_link_close(link, "the server does not speak Redis' protocol");
        else if (--link->greetings == 0)
            link->state = REDIS_LINK_UP;
    }
}

void redis_link_step(struct redis_link *link)
{
    if (link->state == REDIS_LINK_CONNECTING)
        step_connecting(link);
    if (link->state < REDIS_LINK_GREETING)
        return;
    if (link->sent < link->out.len)
        redis_link_send(link);
    if (link->state >= REDIS_LINK_GREETING)
        receive(link, MSG_DONTWAIT);
    if (link->state == REDIS_LINK_GREETING)
        read_greetings(link);
}

int redis_link_next(struct redis_link *link, struct redis_reply *out)
{
    int got = redis_wire_next(&link->wire, out);
    if (got < 0)
        redis_link_close(link, "the server does not speak Redis' protocol");
    return got > 0;
}

bool redis_link_is_fresh(const struct redis_link *link)
{
    char byte;
    return link->state == REDIS_LINK_UP && recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
}
