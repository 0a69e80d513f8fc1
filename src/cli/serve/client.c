/* client.c - a connection: reads, has commands carried out, sends replies, and closes.
 *
 * The memory of a client is bounded: RESP_COMMAND_MAX bytes of input; CLIENT_WAITING_MAX replies that wait, and
 * CLIENT_WAITING_HIGH bytes of them besides one; CLIENT_OUTPUT_HIGH bytes of output besides one reply. At a bound its
 * commands wait in the socket, and it alone waits.
 */
#include "cli/serve/client.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/serve/metrics.h"

#define INPUT_AT_FIRST (16 << 10)
#define PATIENCE_US (30 * WEIR_SECOND) /* until a command is complete, or a client has logged in or reads its replies */
#define KEEPALIVE_S 300                /* silence of a TCP connection until its peer is probed, as in redis-server */
#define ROUNDS 16                      /* of a client in one turn, so that none holds up the others */

static void client_ready(struct server *server, struct watch *watch, uint32_t events);

/* ---- Life ---- */

void client_accept(struct server *server, int fd, bool is_scraper, bool is_secure)
{
    struct client *client = calloc(1, sizeof *client);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = client };
    if (client && is_secure)
        client->tls = tls_begin(server->tls, fd);
    if (!client || (is_secure && !client->tls) || epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        if (client)
            tls_end(client->tls);
        free(client);
        close(fd);
        return;
    }
    /* These fail on a Unix socket, which needs none. A peer whose host has vanished is noticed after 10 minutes. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){ KEEPALIVE_S }, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){ KEEPALIVE_S / 3 }, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){ 3 }, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, sizeof(int));
    client->watch = (struct watch){ client_ready, fd };
    client->server = server;
    client->events = EPOLLIN;
    client->version = 2;
    client->is_scraper = is_scraper;
    client->is_authenticated = !server->password || is_scraper;
    client->accepted_us = client->active_us = server->now_us;
    client->id = ++server->last_id;
    client->next = server->clients;
    if (client->next)
        client->next->prev = client;
    server->clients = client;
    server->client_count++;
}

void client_free(struct client *client)
{
    if (client->prev)
        client->prev->next = client->next;
    else
        client->server->clients = client->next;
    if (client->next)
        client->next->prev = client->prev;
    output_free(&client->output);
    output_free(&client->queued);
    free(client->input);
    free(client);
}

/* Close the connection. The client itself stays until client_serve() finds that nothing of it waits. */
static void client_close(struct client *client)
{
    tls_end(client->tls);
    client->tls = NULL;
    close(client->watch.fd); /* epoll forgets it */
    client->watch.fd = -1;
    client->server->client_count--;
}

void client_is_due(struct client *client)
{
    if (client->is_due)
        return;
    client->is_due = true;
    client->next_due = client->server->due;
    client->server->due = client;
}

/* True if the client has been silent for longer than --idle-timeout. One that waits for an answer is not idle. */
static bool client_is_idle(const struct client *client)
{
    const struct server *server = client->server;
    return server->idle_us && client->waiting_count == 0 && server->now_us - client->active_us > server->idle_us;
}

void client_check_patience(struct client *client)
{
    const int64_t now_us = client->server->now_us;
    if (client->watch.fd >= 0 &&
        ((client->began_us && now_us - client->began_us > PATIENCE_US) ||
         (client->stuck_us && now_us - client->stuck_us > PATIENCE_US) ||
         ((!client->is_authenticated || client->is_scraper) && now_us - client->accepted_us > PATIENCE_US) ||
         client_is_idle(client))) {
        client_close(client);
        client_is_due(client);
    }
}

/* ---- Input ---- */

/* Make room for more input. False: there is as much as a command may have, or no memory. */
static bool input_grow(struct client *client)
{
    const size_t most = RESP_COMMAND_MAX + INPUT_AT_FIRST;
    size_t size = client->input_size ? 2 * client->input_size : INPUT_AT_FIRST;
    size = size < most ? size : most;
    if (client->input_len < client->input_size)
        return true;
    char *grown = size > client->input_size ? realloc(client->input, size) : NULL;
    if (!grown)
        return false;
    client->input = grown;
    client->input_size = size;
    return true;
}

static void client_read(struct client *client)
{
    if (!input_grow(client)) {
        client_close(client);
        return;
    }
    char *to = client->input + client->input_len;
    const size_t room = client->input_size - client->input_len;
    const ssize_t len = client->tls ? tls_recv(client->tls, to, room) : recv(client->watch.fd, to, room, 0);
    if (len > 0) {
        client->input_len += (size_t)len;
        client->active_us = client->server->now_us;
    } else if (len == 0)
        client->is_at_end = true;
    else if (errno != EAGAIN && errno != EINTR)
        client_close(client);
    else if (errno == EAGAIN && client->server->is_draining)
        client->is_at_end = true;
}

/* True if the handshake goes on when something can be sent. */
static bool client_waits_to_shake_hands(const struct client *client)
{
    return client->tls && tls_waits_to_send(client->tls);
}

/* True if bytes of the client have come of which epoll does not tell. */
static bool client_has_input(const struct client *client)
{
    return client->tls && tls_has_input(client->tls);
}

static void client_ready(struct server *server, struct watch *watch, uint32_t events)
{
    struct client *client = (struct client *)watch;
    (void)server;
    if (watch->fd < 0)
        return;
    if (events & EPOLLERR)
        client_close(client);
    else if ((events & (EPOLLIN | EPOLLHUP) && client->events & EPOLLIN) || client_waits_to_shake_hands(client))
        client_read(client);
    else if (events & EPOLLHUP)
        client_close(client);
    client_is_due(client);
}

static size_t unsent(const struct client *client)
{
    return client->output.end - client->output.begin;
}

/* True if another command may be carried out. */
static bool client_may_go_on(const struct client *client)
{
    return !client->is_ending && !client->output.failed && client->waiting_count < CLIENT_WAITING_MAX &&
           client->waiting_bytes < CLIENT_WAITING_HIGH && unsent(client) < CLIENT_OUTPUT_HIGH;
}

/* True if the rest of what the client has sent is still to be read, because the server ends. */
static bool client_drains(const struct client *client)
{
    return client->server->is_draining && !client->is_at_end;
}

/* Give back what a long command needed. */
static void input_shrink(struct client *client)
{
    if (client->input_len > 0 || client->input_size <= INPUT_AT_FIRST)
        return;
    free(client->input);
    client->input = NULL;
    client->input_size = 0;
}

/* Answer the request in the input of a scraper. */
static void carry_out_scrape(struct client *client)
{
    if (!client->is_ending && !metrics_answer(client) && client->began_us == 0)
        client->began_us = client->server->now_us;
}

void client_count_reply(struct client *client)
{
    struct waiting *last = client->last;
    if (last && last->bytes == 0) {
        last->bytes = last->text.end;
        client->waiting_bytes += last->bytes;
    }
}

/* Carry out the commands in the input. True if no whole one is left. */
static bool carry_out(struct client *client)
{
    if (client->is_scraper) {
        carry_out_scrape(client);
        return true;
    }
    static struct resp_command command; /* 4 KiB; one thread */
    size_t at = 0;
    enum resp_result result = RESP_COMMAND;
    while (client_may_go_on(client) && (result = resp_read((struct span){ client->input + at, client->input_len - at },
                                                           &command)) == RESP_COMMAND) {
        if (command.count > 0)
            command_run(client, &command), client_count_reply(client);
        at += command.bytes;
    }
    if (result == RESP_PARTIAL && !client->is_authenticated && client->input_len - at > CLIENT_STRANGER_MAX) {
        command.fault = "unauthenticated bulk length";
        result = RESP_BROKEN;
    }
    if (result == RESP_BROKEN) {
        output_error(client_reply(client), "ERR Protocol error: %s", command.fault);
        client->is_ending = true;
    }
    if (at > 0) {
        memmove(client->input, client->input + at, client->input_len - at);
        client->input_len -= at;
        client->began_us = 0;
        input_shrink(client);
    }
    if (result == RESP_PARTIAL && client->input_len > 0 && client->began_us == 0)
        client->began_us = client->server->now_us;
    return result == RESP_PARTIAL || client->is_ending;
}

/* ---- Output ---- */

static void client_send(struct client *client)
{
    while (unsent(client) > 0) {
        const char *from = client->output.data + client->output.begin;
        const ssize_t len = client->tls ? tls_send(client->tls, from, unsent(client))
                                        : send(client->watch.fd, from, unsent(client), MSG_NOSIGNAL);
        if (len < 0 && errno == EINTR)
            continue;
        if (len <= 0) {
            if (len == 0 || errno != EAGAIN)
                client_close(client);
            else if (client->stuck_us == 0)
                client->stuck_us = client->server->now_us;
            return;
        }
        client->active_us = client->server->now_us;
        client->output.begin += (size_t)len;
        client->stuck_sent += (size_t)len;
        if (unsent(client) == 0 || client->stuck_sent >= CLIENT_OUTPUT_HIGH) { /* a byte now and then is no progress */
            client->stuck_us = 0;
            client->stuck_sent = 0;
        }
    }
}

/* Tell epoll what the client waits for. */
static void client_watch(struct client *client)
{
    const bool reads = !client->is_at_end && client_may_go_on(client);
    const bool sends = unsent(client) > 0 || client_waits_to_shake_hands(client);
    const uint32_t events = (reads ? EPOLLIN : 0u) | (sends ? EPOLLOUT : 0u);
    struct epoll_event event = { .events = events, .data.ptr = client };
    if (events != client->events && epoll_ctl(client->server->epoll_fd, EPOLL_CTL_MOD, client->watch.fd, &event) == 0)
        client->events = events;
}

void client_serve(struct client *client)
{
    bool is_through = false;
    for (int round = 0; round < ROUNDS && client->watch.fd >= 0; round++) {
        client_collect(client);
        if ((client_has_input(client) || client_drains(client)) && client_may_go_on(client))
            client_read(client);
        if (client->watch.fd < 0)
            break;
        is_through = client->input_len == 0 || carry_out(client);
        if (client->output.failed)
            client_close(client);
        else
            client_send(client);
        if ((is_through && !client_drains(client)) || !client_may_go_on(client))
            break;
    }
    client->is_ending = client->is_ending || (client->is_at_end && is_through);
    if (client->watch.fd >= 0 && client->is_ending && client->waiting_count == 0 && unsent(client) == 0)
        client_close(client);
    if (client->watch.fd < 0) {
        client_collect(client);
        if (client->waiting_count == 0)
            client_free(client);
        return;
    }
    if ((!is_through || client_has_input(client) || client_drains(client)) && client_may_go_on(client))
        client_is_due(client);
    client_watch(client);
}
