/* tls_front.c - a TLS front, by OpenSSL: one thread that accepts connections, and one per connection. */
#include "tls_front.h"

#include "wire.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GUESTS_MOST = 256, BUFFER_SIZE = 65536, MESSAGE_MOST = 2 * BUFFER_SIZE };

/* A stream of messages: what has come of the next one. */
struct messages {
    char bytes[MESSAGE_MOST];
    size_t len;
    char kind; /* the first byte of the latest whole one */
};

struct guest {
    struct tls_front *front;
    pthread_t thread;
    int fd, server; /* closed when the front stops */
    SSL *openssl;
    BIO *came, *leaves;
    struct messages requests, answers;
    int64_t unanswered; /* requests */
    bool is_last;       /* the connection ends once all of them are answered */
};

struct tls_front {
    const struct tls_front_wish *wish;
    SSL_CTX *context, *name_context; /* name_context NULL: no name has its own certificate */
    pthread_t thread;
    int listener, port;
    atomic_int ended;
    struct guest guests[GUESTS_MOST];
    size_t guest_count; /* the thread's until it is joined */
};

/* ---- One connection ---- */

static bool send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        const ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* Send all that TLS has to send, in one write. */
static bool flush(const struct guest *guest)
{
    char *bytes;
    const long len = BIO_get_mem_data(guest->leaves, &bytes);
    const bool sent = send_all(guest->fd, bytes, (size_t)len);
    return BIO_reset(guest->leaves) == 1 && sent;
}

static bool take_in(const struct guest *guest)
{
    char bytes[BUFFER_SIZE];
    const ssize_t len = recv(guest->fd, bytes, sizeof bytes, 0);
    return len > 0 && BIO_write(guest->came, bytes, (int)len) == (int)len;
}

static bool shake_hands(const struct guest *guest)
{
    int result;
    while ((result = SSL_accept(guest->openssl)) != 1) {
        const bool goes_on = SSL_get_error(guest->openssl, result) == SSL_ERROR_WANT_READ;
        if (!flush(guest) || !goes_on || !take_in(guest)) /* its last record is an alert with the reason */
            return false;
    }
    return flush(guest);
}

/* Add to a stream. Return how many messages that completes; -1: not a message, or a too long one. */
static int complete(struct messages *messages, const char *bytes, size_t len)
{
    int n = 0;
    size_t at = 0;
    ssize_t span = 0;
    if (len > sizeof messages->bytes - messages->len)
        return -1;
    memcpy(messages->bytes + messages->len, bytes, len);
    messages->len += len;
    for (; (span = resp_span(messages->bytes + at, messages->len - at)) > 0; at += (size_t)span, n++)
        messages->kind = messages->bytes[at];
    messages->len -= at;
    memmove(messages->bytes, messages->bytes + at, messages->len);
    return span < 0 ? -1 : n;
}

/* Forward received requests to the server. */
static bool carry_requests(struct guest *guest)
{
    char bytes[BUFFER_SIZE];
    int len;
    while ((len = SSL_read(guest->openssl, bytes, sizeof bytes)) > 0) {
        const char *last = guest->front->wish->last;
        if (guest->unanswered == 0 && guest->requests.len == 0)
            guest->is_last = false;
        const int n = complete(&guest->requests, bytes, (size_t)len);
        guest->is_last |= last != NULL && memmem(bytes, (size_t)len, last, strlen(last)) != NULL;
        guest->unanswered += n;
        if (n < 0 || !send_all(guest->server, bytes, (size_t)len))
            return false;
    }
    return SSL_get_error(guest->openssl, len) == SSL_ERROR_WANT_READ;
}

/* Return false after the last answer, or at the end of the stream. */
static bool carry_answers(struct guest *guest)
{
    char bytes[BUFFER_SIZE];
    const ssize_t len = recv(guest->server, bytes, sizeof bytes, 0);
    if (len <= 0 || SSL_write(guest->openssl, bytes, (int)len) != (int)len)
        return false;
    const int n = complete(&guest->answers, bytes, (size_t)len);
    guest->unanswered -= n;
    /* a busy server may answer a connection's greeting before it reads the request that came with it */
    const bool ends = guest->is_last && guest->unanswered == 0 && guest->answers.kind != '-';
    if (ends)
        SSL_shutdown(guest->openssl);
    if (ends)
        atomic_fetch_add(&guest->front->ended, 1);
    return flush(guest) && !ends && n >= 0;
}

static bool call_server(struct guest *guest)
{
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)guest->front->wish->server_port),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    return guest->server >= 0 && connect(guest->server, (const struct sockaddr *)&address, sizeof address) == 0;
}

static void *serve(void *user)
{
    struct guest *guest = user;
    bool goes_on = call_server(guest) && shake_hands(guest) && carry_requests(guest);
    while (goes_on) {
        struct pollfd ready[] = { { .fd = guest->fd, .events = POLLIN }, { .fd = guest->server, .events = POLLIN } };
        if (poll(ready, 2, -1) < 0)
            break;
        if (ready[0].revents)
            goes_on = take_in(guest) && carry_requests(guest);
        if (goes_on && ready[1].revents)
            goes_on = carry_answers(guest);
    }
    shutdown(guest->fd, SHUT_WR);
    shutdown(guest->server, SHUT_RDWR);
    return NULL;
}

/* ---- All of them ---- */

static bool welcome(struct tls_front *front, int fd)
{
    struct guest *guest = &front->guests[front->guest_count];
    *guest = (struct guest){ .front = front, .fd = fd, .server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    guest->openssl = SSL_new(front->context);
    guest->came = BIO_new(BIO_s_mem());
    guest->leaves = BIO_new(BIO_s_mem());
    if (!guest->openssl || !guest->came || !guest->leaves)
        abort();
    BIO_set_mem_eof_return(guest->came, -1);
    SSL_set_bio(guest->openssl, guest->came, guest->leaves);
    if (pthread_create(&guest->thread, NULL, serve, guest) != 0)
        abort();
    return ++front->guest_count < GUESTS_MOST;
}

static void *welcome_all(void *user)
{
    struct tls_front *front = user;
    int fd;
    while ((fd = accept4(front->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        if (!welcome(front, fd))
            break;
    return NULL;
}

/* ---- Certificates ---- */

static SSL_CTX *context_of(const struct tls_front_wish *wish, const char *certificate, const char *key)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context != NULL && wish->newest != 0) { /* old versions use hashes that are no longer allowed by default */
        SSL_CTX_set_cipher_list(context, "DEFAULT@SECLEVEL=0");
        SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
        SSL_CTX_set_max_proto_version(context, wish->newest);
    }
    if (context != NULL && SSL_CTX_use_certificate_chain_file(context, certificate) == 1 &&
        SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1)
        return context;
    SSL_CTX_free(context);
    return NULL;
}

static int choose(SSL *openssl, int *alert, void *user)
{
    const struct tls_front *front = user;
    const char *name = SSL_get_servername(openssl, TLSEXT_NAMETYPE_host_name);
    (void)alert;
    if (name != NULL && strcmp(name, front->wish->name) == 0)
        SSL_set_SSL_CTX(openssl, front->name_context);
    return SSL_TLSEXT_ERR_OK;
}

static bool take_certificates(struct tls_front *front)
{
    const struct tls_front_wish *wish = front->wish;
    front->context = context_of(wish, wish->certificate, wish->key);
    if (front->context == NULL || wish->name == NULL)
        return front->context != NULL;
    front->name_context = context_of(wish, wish->name_certificate, wish->name_key);
    SSL_CTX_set_tlsext_servername_callback(front->context, choose);
    SSL_CTX_set_tlsext_servername_arg(front->context, front);
    return front->name_context != NULL;
}

/* ---- Start and stop ---- */

static void forget(struct tls_front *front)
{
    SSL_CTX_free(front->context);
    SSL_CTX_free(front->name_context);
    free(front);
}

struct tls_front *tls_front_start(const struct tls_front_wish *wish)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    struct tls_front *front = calloc(1, sizeof *front);
    if (!front)
        return NULL;
    front->wish = wish;
    front->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!take_certificates(front) || front->listener < 0 ||
        bind(front->listener, (struct sockaddr *)&address, len) != 0 || listen(front->listener, 64) != 0 ||
        getsockname(front->listener, (struct sockaddr *)&address, &len) != 0 ||
        pthread_create(&front->thread, NULL, welcome_all, front) != 0) {
        if (front->listener >= 0)
            close(front->listener);
        forget(front);
        return NULL;
    }
    front->port = ntohs(address.sin_port);
    return front;
}

int tls_front_port(const struct tls_front *front)
{
    return front->port;
}

int tls_front_stop(struct tls_front *front)
{
    shutdown(front->listener, SHUT_RDWR);
    pthread_join(front->thread, NULL);
    for (size_t i = 0; i < front->guest_count; i++) {
        struct guest *guest = &front->guests[i];
        shutdown(guest->fd, SHUT_RDWR);
        shutdown(guest->server, SHUT_RDWR);
        pthread_join(guest->thread, NULL);
        close(guest->fd);
        if (guest->server >= 0)
            close(guest->server);
        SSL_free(guest->openssl);
    }
    const int ended = atomic_load(&front->ended);
    close(front->listener);
    forget(front);
    return ended;
}
