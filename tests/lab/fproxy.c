/* fproxy.c - a proxy before a Redis server that injects the faults of networks and dying servers: see fproxy.h.
 *
 * The loop holds the lock except in poll(). A control call changes the settings, wakes the loop and waits for one
 * round, so that everything after the call sees the new state.
 */
#include "fproxy.h"

#include "wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PAIRS_MOST = 1024, TIMES_KEPT = 8192, BACKLOG = 512, POLL_MOST_MS = 1000 };

static const char garbage[] = "\x01\xff\x00 this is no reply\r\n";

/* The fate of the reply to a delivered request. */
struct fate {
    enum fproxy_fault fault;
    bool aimed; /* it is counted */
};

struct pair {
    struct wire client, server;
    bool held;          /* by the door: it has no server */
    bool lost;          /* requests are dropped */
    bool stalled;       /* replies are dropped */
    struct fate *fates; /* of the requests without a reply, oldest first */
    size_t waiting, fates_size;
    char *kept; /* a reply for FPROXY_SWAP */
    size_t kept_len;
};

struct fproxy {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t round_done;
    int wake, listener, port;
    struct sockaddr_un server;
    bool stop, frozen, passes_bytes;
    enum wire_end cut; /* requested for all connections */
    enum fproxy_door door, door_now;
    int64_t wanted, done; /* rounds requested and completed */

    enum fproxy_fault fault;
    char command[32]; /* empty: any */
    int64_t every, times, seen;
    int64_t request_us, reply_us, drip_us;

    struct fproxy_counts counts;
    int64_t times_us[TIMES_KEPT]; /* a ring, indexed by counts.connections */
    struct pair *pairs[PAIRS_MOST];
    int pair_count;
};

/* ---- Requests ---- */

static bool is_aimed(const struct fproxy *proxy, const char *bytes, size_t len)
{
    const char *word;
    size_t word_len;
    return proxy->command[0] == '\0' ||
           (resp_words(bytes, len, 1, &word, &word_len) == 1 && word_len == strlen(proxy->command) &&
            strncasecmp(word, proxy->command, word_len) == 0);
}

static struct fate fate_of(struct fproxy *proxy, const char *bytes, size_t len)
{
    struct fate fate = { .aimed = is_aimed(proxy, bytes, len) };
    if (!fate.aimed)
        return fate;
    proxy->counts.requests++;
    if (proxy->fault == FPROXY_NONE || proxy->times == 0 || ++proxy->seen % proxy->every != 0)
        return fate;
    proxy->times -= proxy->times > 0;
    proxy->counts.faults++;
    fate.fault = proxy->fault;
    return fate;
}

static void fate_push(struct pair *pair, struct fate fate)
{
    if (pair->waiting == pair->fates_size) {
        pair->fates_size = 2 * pair->fates_size + 64;
        pair->fates = realloc(pair->fates, pair->fates_size * sizeof *pair->fates);
        if (pair->fates == NULL)
            abort();
    }
    pair->fates[pair->waiting++] = fate;
}

static struct fate fate_pop(struct pair *pair)
{
    struct fate fate = { 0 };
    if (pair->waiting > 0) {
        fate = pair->fates[0];
        memmove(pair->fates, pair->fates + 1, --pair->waiting * sizeof *pair->fates);
    }
    return fate;
}

static void request_pass(struct fproxy *proxy, struct pair *pair, const char *bytes, size_t len, int64_t now_us)
{
    struct fate fate = fate_of(proxy, bytes, len);
    int64_t due_us = now_us + proxy->request_us;
    if (pair->lost)
        return;
    switch (fate.fault) {
    case FPROXY_CUT_REQUEST:
        wire_add(&pair->server, bytes, len / 2, due_us);
        wire_end_at(&pair->server, WIRE_CLOSES, due_us);
        wire_end_at(&pair->client, WIRE_CLOSES, now_us);
        pair->lost = pair->stalled = true;
        return;
    case FPROXY_RESET_REQUEST:
        wire_end_at(&pair->client, WIRE_RESETS, now_us);
        pair->lost = pair->stalled = true;
        return;
    case FPROXY_LOSE_REQUEST: pair->lost = true; return;
    default: break;
    }
    proxy->counts.delivered += fate.aimed;
    fate_push(pair, fate);
    wire_add(&pair->server, bytes, len, due_us);
}

/* ---- Replies ---- */

static void reply_keep(struct pair *pair, const char *bytes, size_t len)
{
    free(pair->kept);
    pair->kept = malloc(len);
    if (pair->kept == NULL)
        abort();
    memcpy(pair->kept, bytes, len);
    pair->kept_len = len;
}

static void reply_pass(struct fproxy *proxy, struct pair *pair, const char *bytes, size_t len, int64_t now_us)
{
    struct fate fate = fate_pop(pair);
    struct wire *client = &pair->client;
    int64_t due_us = now_us + proxy->reply_us;
    if (pair->stalled)
        return;
    switch (fate.fault) {
    case FPROXY_DROP_REPLY: return;
    case FPROXY_STALL: pair->stalled = true; return;
    case FPROXY_CLOSE_REPLY:
    case FPROXY_RESET_REPLY:
        wire_end_at(client, fate.fault == FPROXY_CLOSE_REPLY ? WIRE_CLOSES : WIRE_RESETS, due_us);
        pair->stalled = true;
        return;
    case FPROXY_CUT_REPLY:
        wire_add(client, bytes, len / 2, due_us);
        wire_end_at(client, WIRE_CLOSES, due_us);
        pair->stalled = true;
        return;
    case FPROXY_GARBAGE: wire_add(client, garbage, sizeof garbage - 1, due_us); return;
    case FPROXY_SWAP: reply_keep(pair, bytes, len); return;
    case FPROXY_DRIP: wire_drip(client, bytes, len, due_us, proxy->drip_us); break;
    default: wire_add(client, bytes, len, due_us);
    }
    proxy->counts.replies += fate.aimed;
    if (fate.fault == FPROXY_TWICE)
        wire_add(client, bytes, len, due_us);
    if (pair->kept != NULL) {
        wire_add(client, pair->kept, pair->kept_len, due_us);
        free(pair->kept);
        pair->kept = NULL;
    }
    if (fate.fault == FPROXY_HALF_CLOSE) {
        wire_end_at(client, WIRE_SHUTS, due_us);
        pair->stalled = true;
    }
}

/* A connection that has ended drops bytes as it drops messages. */
static void bytes_pass(struct fproxy *proxy, struct pair *pair, struct wire *from, int64_t now_us)
{
    if (from == &pair->client && !pair->lost)
        wire_add(&pair->server, from->in, from->in_len, now_us + proxy->request_us);
    else if (from == &pair->server && !pair->stalled)
        wire_add(&pair->client, from->in, from->in_len, now_us + proxy->reply_us);
    wire_use(from, from->in_len);
}

/* Forward each whole message of `from`; bytes that are not a message stay forever. */
static void messages_pass(struct fproxy *proxy, struct pair *pair, struct wire *from, int64_t now_us)
{
    ssize_t len;
    size_t at = 0;
    if (proxy->passes_bytes && from->in_len > 0)
        bytes_pass(proxy, pair, from, now_us);
    while (from->in_len > at) {
        if (from == &pair->client && resp_is_empty_line(from->in + at, from->in_len - at)) {
            if (!pair->lost)
                wire_add(&pair->server, from->in + at, 2, now_us + proxy->request_us);
            at += 2;
            continue;
        }
        if ((len = resp_span(from->in + at, from->in_len - at)) <= 0)
            break;
        if (from == &pair->client)
            request_pass(proxy, pair, from->in + at, (size_t)len, now_us);
        else
            reply_pass(proxy, pair, from->in + at, (size_t)len, now_us);
        at += (size_t)len;
    }
    if (at > 0)
        wire_use(from, at);
}

/* ---- Connections ---- */

static void pair_make(struct fproxy *proxy, int fd)
{
    const int yes = 1;
    struct pair *pair = calloc(1, sizeof *pair);
    if (pair == NULL || proxy->pair_count == PAIRS_MOST) {
        close(fd);
        free(pair);
        return;
    }
    proxy->times_us[proxy->counts.connections++ % TIMES_KEPT] = wire_now_us();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    wire_init(&pair->client, fd);
    pair->held = proxy->door == FPROXY_HOLD;
    int server = pair->held ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server >= 0 && connect(server, (const struct sockaddr *)&proxy->server, sizeof proxy->server) != 0) {
        close(server);
        server = -1;
    }
    wire_init(&pair->server, server);
    if (server < 0 && !pair->held)
        wire_end_at(&pair->client, WIRE_RESETS, 0);
    proxy->pairs[proxy->pair_count++] = pair;
}

static void pair_close(struct pair *pair, enum wire_end end)
{
    wire_close(&pair->client, end);
    wire_close(&pair->server, WIRE_CLOSES);
}

/* When one side has ended, end the other after its pending bytes. */
static void pair_settle(struct pair *pair, int64_t now_us)
{
    if (pair->client.fd >= 0 && pair->client.shut)
        wire_close(&pair->client, WIRE_CLOSES);
    if (pair->held)
        return;
    if (pair->server.fd >= 0 && pair->server.shut)
        wire_close(&pair->server, WIRE_CLOSES);
    if (pair->client.fd < 0 && pair->server.fd >= 0 && !pair->lost) {
        pair->lost = pair->stalled = true;
        wire_end_at(&pair->server, WIRE_CLOSES, now_us);
    }
    if (pair->client.fd < 0 && pair->server.fd >= 0 && pair->server.first == NULL)
        wire_close(&pair->server, WIRE_CLOSES);
    if (pair->server.fd < 0 && pair->client.fd >= 0 && !pair->stalled) {
        pair->stalled = true;
        wire_end_at(&pair->client, WIRE_CLOSES, now_us);
    }
}

static void wire_turn(struct fproxy *proxy, struct pair *pair, struct wire *wire, short revents, int64_t now_us)
{
    if (wire->fd >= 0 && revents & (POLLIN | POLLHUP | POLLERR))
        wire_read(wire);
    if (pair->held && wire->fd >= 0)
        wire->in_len = 0;
    else if (wire->fd >= 0)
        messages_pass(proxy, pair, wire, now_us);
}

static void pairs_bury(struct fproxy *proxy)
{
    for (int i = proxy->pair_count - 1; i >= 0; i--) {
        struct pair *pair = proxy->pairs[i];
        if (pair->client.fd >= 0 || pair->server.fd >= 0)
            continue;
        free(pair->fates);
        free(pair->kept);
        free(pair);
        proxy->pairs[i] = proxy->pairs[--proxy->pair_count];
    }
}

/* ---- The loop ---- */

/* Bind to the same port as before, if any. Bound without listening, it refuses connections and keeps the port. */
static int door_bind(struct fproxy *proxy)
{
    const int yes = 1;
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)proxy->port) };
    socklen_t len = sizeof address;
    if (proxy->listener >= 0)
        close(proxy->listener);
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(proxy->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(proxy->listener, (const struct sockaddr *)&address, len) != 0 ||
        getsockname(proxy->listener, (struct sockaddr *)&address, &len) != 0)
        return -1;
    proxy->port = ntohs(address.sin_port);
    return 0;
}

static void wishes_fulfil(struct fproxy *proxy)
{
    if (proxy->door != proxy->door_now) {
        if (proxy->door == FPROXY_REFUSE && door_bind(proxy) != 0)
            abort(); /* the port was ours until now */
        if (proxy->door_now == FPROXY_REFUSE)
            listen(proxy->listener, BACKLOG);
        proxy->door_now = proxy->door;
    }
    if (proxy->cut != WIRE_GOES_ON)
        for (int i = 0; i < proxy->pair_count; i++)
            pair_close(proxy->pairs[i], proxy->cut);
    proxy->cut = WIRE_GOES_ON;
    pairs_bury(proxy);
    proxy->done = proxy->wanted;
    pthread_cond_broadcast(&proxy->round_done);
}

static void *loop(void *argument)
{
    struct fproxy *proxy = argument;
    struct pollfd polled[2 + 2 * PAIRS_MOST];
    pthread_mutex_lock(&proxy->lock);
    for (wishes_fulfil(proxy); !proxy->stop; wishes_fulfil(proxy)) {
        int64_t now_us = wire_now_us(), due_us = now_us + POLL_MOST_MS * 1000;
        int pairs = proxy->frozen ? 0 : proxy->pair_count;
        polled[0] = (struct pollfd){ .fd = proxy->wake, .events = POLLIN };
        polled[1] = (struct pollfd){ .fd = proxy->frozen || proxy->door_now == FPROXY_REFUSE ? -1 : proxy->listener,
                                     .events = POLLIN };
        for (int i = 0; i < pairs; i++) {
            const struct wire *ends[] = { &proxy->pairs[i]->client, &proxy->pairs[i]->server };
            for (int end = 0; end < 2; end++) {
                short events = wire_events(ends[end], now_us, &due_us);
                /* poll() reports a hang-up even without events */
                polled[2 + 2 * i + end] = (struct pollfd){ .fd = events ? ends[end]->fd : -1, .events = events };
            }
        }
        const struct timespec wait = { .tv_sec = (due_us - now_us) / 1000000,
                                       .tv_nsec = (due_us - now_us) % 1000000 * 1000 };
        pthread_mutex_unlock(&proxy->lock);
        int ready = ppoll(polled, (nfds_t)(2 + 2 * pairs), &wait, NULL);
        pthread_mutex_lock(&proxy->lock);
        uint64_t wakes;
        if (ready > 0 && polled[0].revents != 0 && read(proxy->wake, &wakes, sizeof wakes) < 0)
            continue;
        if (proxy->frozen || proxy->cut != WIRE_GOES_ON)
            continue; /* only older bytes pass */
        now_us = wire_now_us();
        for (int i = 0; i < pairs; i++) {
            struct pair *pair = proxy->pairs[i];
            wire_turn(proxy, pair, &pair->server, ready > 0 ? polled[3 + 2 * i].revents : 0, now_us);
            wire_turn(proxy, pair, &pair->client, ready > 0 ? polled[2 + 2 * i].revents : 0, now_us);
            pair_settle(pair, now_us);
            wire_write(&pair->server, now_us);
            wire_write(&pair->client, now_us);
        }
        int fd;
        if (ready > 0 && polled[1].revents != 0 && proxy->door != FPROXY_REFUSE)
            while ((fd = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
                pair_make(proxy, fd);
    }
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

/* ---- Control ---- */

static void round_begin(struct fproxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
}

static void round_end(struct fproxy *proxy)
{
    const uint64_t one = 1;
    int64_t wanted = ++proxy->wanted;
    if (write(proxy->wake, &one, sizeof one) != sizeof one)
        abort();
    while (proxy->done < wanted)
        pthread_cond_wait(&proxy->round_done, &proxy->lock);
    pthread_mutex_unlock(&proxy->lock);
}

struct fproxy *fproxy_start(const char *server_socket)
{
    struct fproxy *proxy = calloc(1, sizeof *proxy);
    if (proxy == NULL)
        return NULL;
    proxy->server.sun_family = AF_UNIX;
    snprintf(proxy->server.sun_path, sizeof proxy->server.sun_path, "%s", server_socket);
    proxy->listener = -1;
    proxy->every = 1;
    proxy->drip_us = 1000;
    proxy->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&proxy->lock, NULL);
    pthread_cond_init(&proxy->round_done, NULL);
    if (proxy->wake < 0 || door_bind(proxy) != 0 || listen(proxy->listener, BACKLOG) != 0 ||
        pthread_create(&proxy->thread, NULL, loop, proxy) != 0) {
        perror("fproxy");
        free(proxy);
        return NULL;
    }
    return proxy;
}

void fproxy_stop(struct fproxy *proxy)
{
    if (proxy == NULL)
        return;
    round_begin(proxy);
    proxy->stop = true;
    proxy->cut = WIRE_CLOSES;
    round_end(proxy);
    pthread_join(proxy->thread, NULL);
    close(proxy->listener);
    close(proxy->wake);
    pthread_cond_destroy(&proxy->round_done);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

int fproxy_port(const struct fproxy *proxy)
{
    return proxy->port;
}

void fproxy_fault(struct fproxy *proxy, enum fproxy_fault fault, const char *command, int64_t every, int64_t times)
{
    round_begin(proxy);
    proxy->fault = fault;
    snprintf(proxy->command, sizeof proxy->command, "%s", command != NULL ? command : "");
    proxy->every = every;
    proxy->times = times;
    proxy->seen = 0;
    round_end(proxy);
}

void fproxy_pace(struct fproxy *proxy, int64_t request_us, int64_t reply_us, int64_t drip_us)
{
    round_begin(proxy);
    proxy->request_us = request_us;
    proxy->reply_us = reply_us;
    proxy->drip_us = drip_us;
    round_end(proxy);
}

void fproxy_door(struct fproxy *proxy, enum fproxy_door door)
{
    round_begin(proxy);
    proxy->door = door;
    round_end(proxy);
}

void fproxy_cut(struct fproxy *proxy, bool reset)
{
    round_begin(proxy);
    proxy->cut = reset ? WIRE_RESETS : WIRE_CLOSES;
    round_end(proxy);
}

void fproxy_pass_bytes(struct fproxy *proxy)
{
    round_begin(proxy);
    proxy->passes_bytes = true;
    round_end(proxy);
}

void fproxy_freeze(struct fproxy *proxy, bool frozen)
{
    round_begin(proxy);
    proxy->frozen = frozen;
    round_end(proxy);
}

struct fproxy_counts fproxy_counts(struct fproxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    struct fproxy_counts counts = proxy->counts;
    pthread_mutex_unlock(&proxy->lock);
    return counts;
}

int fproxy_connection_times(struct fproxy *proxy, int64_t *times_us, int most)
{
    pthread_mutex_lock(&proxy->lock);
    int64_t all = proxy->counts.connections, kept = all < TIMES_KEPT ? all : TIMES_KEPT;
    int n = (int)(kept < most ? kept : most);
    for (int i = 0; i < n; i++)
        times_us[i] = proxy->times_us[(all - n + i) % TIMES_KEPT];
    pthread_mutex_unlock(&proxy->lock);
    return n;
}
