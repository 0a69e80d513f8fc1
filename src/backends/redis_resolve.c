/* redis_resolve.c - finds the addresses of a server's name, off every thread that has a deadline. */
#include "backends/redis_resolve.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

/* Held by the resolver and by the thread; the last to let go frees it. */
struct redis_question {
    atomic_int holders;
    int answered_fd; /* written to when the fields below are filled, which orders them */
    char *host;
    int port;
    int error;                        /* of getaddrinfo() */
    struct redis_addresses addresses; /* the answer */
};

void redis_resolver_init(struct redis_resolver *resolver, const struct redis_target *target)
{
    resolver->target = target;
    resolver->question = NULL;
}

/* Acquire and release: who frees it sees all that the other wrote. */
static void let_go(struct redis_question *question)
{
    if (atomic_fetch_sub_explicit(&question->holders, 1, memory_order_acq_rel) != 1)
        return;
    close(question->answered_fd);
    free(question->host);
    free(question);
}

void redis_resolver_destroy(struct redis_resolver *resolver)
{
    if (resolver->question)
        let_go(resolver->question);
    resolver->question = NULL;
}

static int look_up(const char *host, int port, int flags, struct redis_addresses *out)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV };
    struct addrinfo *found;
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error)
        return error;
    out->count = 0;
    for (const struct addrinfo *info = found; info && out->count < REDIS_ADDRESSES; info = info->ai_next) {
        struct redis_address *address = &out->list[out->count];
        if (info->ai_addrlen > sizeof address->name)
            continue;
        memset(address, 0, sizeof *address);
        memcpy(&address->name, info->ai_addr, info->ai_addrlen);
        address->len = info->ai_addrlen;
        out->count++;
    }
    freeaddrinfo(found);
    return out->count > 0 ? 0 : EAI_NONAME;
}

static void *ask(void *user)
{
    struct redis_question *question = user;
    const uint64_t one = 1;
    question->error = look_up(question->host, question->port, AI_ADDRCONFIG, &question->addresses);
    while (write(question->answered_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    let_go(question);
    return NULL;
}

/* A thread with all signals blocked: they are the caller's. */
static int start(struct redis_question *question)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return -1;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, &attributes, ask, question);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed ? -1 : 0;
}

static struct redis_question *question_make(const struct redis_target *target)
{
    struct redis_question *question = calloc(1, sizeof *question);
    if (!question)
        return NULL;
    question->host = strdup(target->host);
    question->port = target->port;
    question->answered_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_init(&question->holders, 1);
    if (!question->host || question->answered_fd < 0) {
        if (question->answered_fd >= 0)
            close(question->answered_fd);
        free(question->host);
        free(question);
        return NULL;
    }
    return question;
}

static void unix_address(const char *path, struct redis_addresses *out)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    memset(out, 0, sizeof *out);
    memcpy(name.sun_path, path, strnlen(path, sizeof name.sun_path - 1)); /* redis_url.c has refused longer ones */
    memcpy(&out->list[0].name, &name, sizeof name);
    out->list[0].len = sizeof name;
    out->count = 1;
}

static enum redis_resolved take_answer(struct redis_resolver *resolver, struct redis_addresses *out, char *reason,
                                       size_t reason_size)
{
    struct redis_question *question = resolver->question;
    uint64_t count;
    if (read(question->answered_fd, &count, sizeof count) < 0)
        return REDIS_RESOLVING;
    int error = question->error;
    if (!error)
        *out = question->addresses;
    let_go(question);
    resolver->question = NULL;
    if (!error)
        return REDIS_RESOLVED;
    snprintf(reason, reason_size, "the host's name is not resolved: %s", gai_strerror(error));
    return REDIS_NOT_RESOLVED;
}

enum redis_resolved redis_resolver_ask(struct redis_resolver *resolver, struct redis_addresses *out, char *reason,
                                       size_t reason_size)
{
    const struct redis_target *target = resolver->target;
    if (resolver->question)
        return take_answer(resolver, out, reason, reason_size);
    if (target->is_unix) {
        unix_address(target->path, out);
        return REDIS_RESOLVED;
    }
    if (look_up(target->host, target->port, AI_NUMERICHOST, out) == 0)
        return REDIS_RESOLVED;

    struct redis_question *question = question_make(target);
    if (question) {
        atomic_store_explicit(&question->holders, 2, memory_order_relaxed); /* the thread's start orders it */
        if (start(question) == 0) {
            resolver->question = question;
            return REDIS_RESOLVING;
        }
        atomic_store_explicit(&question->holders, 1, memory_order_relaxed);
        let_go(question);
    }
    snprintf(reason, reason_size, "no memory or thread to resolve the host's name");
    return REDIS_NOT_RESOLVED;
}

int redis_resolver_fd(const struct redis_resolver *resolver)
{
    return resolver->question ? resolver->question->answered_fd : -1;
}
