/* fake_redis.c - a stand-in that speaks Redis's protocol, with scripted answers: see fake_redis.h. */
#include "fake_redis.h"

#include "scratch.h"
#include "wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sha1.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { GUESTS_MOST = 256, BACKLOG = 128, POLL_MOST_MS = 1000, HEARD_MOST = 1 << 20 };

struct guest {
    struct wire wire;
    int64_t number;
};

struct fake_redis {
    pthread_t thread;
    pthread_mutex_t lock; /* guards counts and heard; only the loop uses the rest */
    int wake, listener;
    int port; /* 0: a Unix socket, in `dir` */
    char dir[64], url[128];
    struct sockaddr_un address;
    fake_answer *answer;
    void *user;
    struct fake_counts counts;
    char *heard; /* the latest requests, up to HEARD_MOST bytes */
    size_t heard_len;
    struct guest guests[GUESTS_MOST];
    int guest_count;
};

struct fake_reply {
    struct wire *wire;
};

/* ---- A test's answers ---- */

void fake_say(struct fake_reply *reply, const void *bytes, size_t len)
{
    wire_add(reply->wire, bytes, len, 0);
}

void fake_say_text(struct fake_reply *reply, const char *text)
{
    fake_say(reply, text, strlen(text));
}

void fake_say_bulk(struct fake_reply *reply, const void *bytes, size_t len)
{
    char head[32];
    snprintf(head, sizeof head, "$%zu\r\n", len);
    fake_say_text(reply, head);
    fake_say(reply, bytes, len);
    fake_say_text(reply, "\r\n");
}

void fake_say_slowly(struct fake_reply *reply, const void *bytes, size_t len, int64_t step_us)
{
    wire_drip(reply->wire, bytes, len, wire_now_us() + step_us, step_us);
}

void fake_say_for_ever(struct fake_reply *reply, const void *bytes, size_t len)
{
    wire_repeat(reply->wire, bytes, len);
}

void fake_hang_up(struct fake_reply *reply)
{
    wire_end_at(reply->wire, WIRE_CLOSES, 0);
}

/* ---- The fake's own answers ---- */

static bool word_is(const struct fake_request *request, size_t i, const char *word)
{
    return i < request->n && request->lens[i] == strlen(word) &&
           strncasecmp(request->words[i], word, request->lens[i]) == 0;
}

bool fake_request_is(const struct fake_request *request, const char *command)
{
    return word_is(request, 0, command);
}

static void answer_as_redis(const struct fake_request *request, struct fake_reply *reply)
{
    if (word_is(request, 0, "AUTH") || word_is(request, 0, "SELECT") || word_is(request, 0, "CLIENT")) {
        fake_say_text(reply, "+OK\r\n");
    } else if (word_is(request, 0, "PING")) {
        fake_say_text(reply, "+PONG\r\n");
    } else if (word_is(request, 0, "SCRIPT") && word_is(request, 1, "LOAD") && request->n == 3) {
        char digest[SHA1_DIGEST_STRING_LENGTH];
        SHA1Data((const uint8_t *)request->words[2], request->lens[2], digest);
        fake_say_bulk(reply, digest, strlen(digest));
    } else if (word_is(request, 0, "EVALSHA")) {
        fake_say_text(reply, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    } else {
        fake_say_text(reply, "-ERR unknown command\r\n");
    }
}

static void hear(struct fake_redis *fake, const struct fake_request *request, const char *bytes, size_t len)
{
    pthread_mutex_lock(&fake->lock);
    fake->counts.requests++;
    fake->counts.script_calls += word_is(request, 0, "EVALSHA") || word_is(request, 0, "EVAL");
    if (len > HEARD_MOST / 2)
        len = HEARD_MOST / 2;
    if (fake->heard_len + len > HEARD_MOST) { /* drop the older half */
        fake->heard_len -= HEARD_MOST / 2;
        memmove(fake->heard, fake->heard + HEARD_MOST / 2, fake->heard_len);
    }
    memcpy(fake->heard + fake->heard_len, bytes, len);
    fake->heard_len += len;
    pthread_mutex_unlock(&fake->lock);
}

static void guest_answer(struct fake_redis *fake, struct guest *guest)
{
    struct wire *wire = &guest->wire;
    for (ssize_t len; wire->in_len > 0;) {
        if (resp_is_empty_line(wire->in, wire->in_len)) {
            wire_use(wire, 2);
            continue;
        }
        if ((len = resp_span(wire->in, wire->in_len)) <= 0)
            break;
        struct fake_request request = { .connection = guest->number, .number = fake->counts.requests + 1 };
        struct fake_reply reply = { .wire = wire };
        request.n = resp_words(wire->in, (size_t)len, FAKE_WORDS_MOST, request.words, request.lens);
        hear(fake, &request, wire->in, (size_t)len);
        if (fake->answer == NULL || !fake->answer(fake->user, &request, &reply))
            answer_as_redis(&request, &reply);
        wire_use(wire, (size_t)len);
    }
}

/* ---- The loop ---- */

static void guest_let_in(struct fake_redis *fake)
{
    const int at_once = 1;
    int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (fake->port != 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    if (fake->guest_count == GUESTS_MOST) {
        close(fd);
        return;
    }
    struct guest *guest = &fake->guests[fake->guest_count++];
    wire_init(&guest->wire, fd);
    pthread_mutex_lock(&fake->lock);
    guest->number = ++fake->counts.connections;
    fake->counts.open++;
    pthread_mutex_unlock(&fake->lock);
}

static void guest_turn(struct fake_redis *fake, struct guest *guest, short revents)
{
    if (revents & (POLLIN | POLLHUP | POLLERR))
        wire_read(&guest->wire);
    guest_answer(fake, guest);
    if (guest->wire.fd >= 0 && guest->wire.shut)
        wire_close(&guest->wire, WIRE_CLOSES);
    wire_write(&guest->wire, wire_now_us());
}

static void guests_see_off(struct fake_redis *fake)
{
    for (int i = fake->guest_count - 1; i >= 0; i--) {
        if (fake->guests[i].wire.fd >= 0)
            continue;
        fake->guests[i] = fake->guests[--fake->guest_count];
        pthread_mutex_lock(&fake->lock);
        fake->counts.open--;
        pthread_mutex_unlock(&fake->lock);
    }
}

static void *loop(void *argument)
{
    struct fake_redis *fake = argument;
    struct pollfd polled[2 + GUESTS_MOST];
    for (;;) {
        int64_t now_us = wire_now_us(), due_us = now_us + POLL_MOST_MS * 1000;
        int guests = fake->guest_count;
        polled[0] = (struct pollfd){ .fd = fake->wake, .events = POLLIN };
        polled[1] = (struct pollfd){ .fd = fake->listener, .events = POLLIN };
        for (int i = 0; i < guests; i++)
            polled[2 + i] = (struct pollfd){ .fd = fake->guests[i].wire.fd,
                                             .events = wire_events(&fake->guests[i].wire, now_us, &due_us) };
        const struct timespec wait = { .tv_sec = (due_us - now_us) / 1000000,
                                       .tv_nsec = (due_us - now_us) % 1000000 * 1000 };
        int ready = ppoll(polled, (nfds_t)(2 + guests), &wait, NULL);
        if (ready > 0 && polled[0].revents != 0)
            return NULL;
        for (int i = 0; i < guests; i++)
            guest_turn(fake, &fake->guests[i], ready > 0 ? polled[2 + i].revents : 0);
        guests_see_off(fake);
        if (ready > 0 && polled[1].revents != 0)
            guest_let_in(fake);
    }
}

/* ---- Control ---- */

static bool door_open(struct fake_redis *fake)
{
    snprintf(fake->dir, sizeof fake->dir, "%s/weir-fake-XXXXXX", scratch_parent());
    if (mkdtemp(fake->dir) == NULL)
        return false;
    fake->address.sun_family = AF_UNIX;
    snprintf(fake->address.sun_path, sizeof fake->address.sun_path, "%s/redis.sock", fake->dir);
    snprintf(fake->url, sizeof fake->url, "unix://%s", fake->address.sun_path);
    fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return bind(fake->listener, (const struct sockaddr *)&fake->address, sizeof fake->address) == 0 &&
           listen(fake->listener, BACKLOG) == 0;
}

static bool door_open_port(struct fake_redis *fake)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fake->listener < 0 || bind(fake->listener, (const struct sockaddr *)&address, len) != 0 ||
        listen(fake->listener, BACKLOG) != 0 || getsockname(fake->listener, (struct sockaddr *)&address, &len) != 0)
        return false;
    fake->port = ntohs(address.sin_port);
    snprintf(fake->url, sizeof fake->url, "redis://127.0.0.1:%d", fake->port);
    return true;
}

static struct fake_redis *start(fake_answer *answer, void *user, bool (*open)(struct fake_redis *fake))
{
    struct fake_redis *fake = calloc(1, sizeof *fake);
    if (fake == NULL)
        return NULL;
    fake->answer = answer;
    fake->user = user;
    fake->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fake->heard = malloc(HEARD_MOST);
    pthread_mutex_init(&fake->lock, NULL);
    if (fake->wake < 0 || fake->heard == NULL || !open(fake) || pthread_create(&fake->thread, NULL, loop, fake) != 0) {
        perror("fake_redis");
        free(fake->heard);
        free(fake);
        return NULL;
    }
    return fake;
}

struct fake_redis *fake_redis_start(fake_answer *answer, void *user)
{
    return start(answer, user, door_open);
}

struct fake_redis *fake_redis_start_port(fake_answer *answer, void *user)
{
    return start(answer, user, door_open_port);
}

int fake_redis_port(const struct fake_redis *fake)
{
    return fake->port;
}

void fake_redis_stop(struct fake_redis *fake)
{
    const uint64_t one = 1;
    if (fake == NULL)
        return;
    if (write(fake->wake, &one, sizeof one) != sizeof one)
        abort();
    pthread_join(fake->thread, NULL);
    for (int i = 0; i < fake->guest_count; i++)
        wire_close(&fake->guests[i].wire, WIRE_CLOSES);
    close(fake->listener);
    close(fake->wake);
    if (fake->port == 0) {
        unlink(fake->address.sun_path);
        rmdir(fake->dir);
    }
    pthread_mutex_destroy(&fake->lock);
    free(fake->heard);
    free(fake);
}

const char *fake_redis_url(const struct fake_redis *fake)
{
    return fake->url;
}

struct fake_counts fake_redis_counts(struct fake_redis *fake)
{
    pthread_mutex_lock(&fake->lock);
    struct fake_counts counts = fake->counts;
    pthread_mutex_unlock(&fake->lock);
    return counts;
}

bool fake_redis_heard(struct fake_redis *fake, const char *text)
{
    pthread_mutex_lock(&fake->lock);
    bool heard = memmem(fake->heard, fake->heard_len, text, strlen(text)) != NULL;
    pthread_mutex_unlock(&fake->lock);
    return heard;
}
