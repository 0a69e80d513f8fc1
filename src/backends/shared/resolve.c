/* resolve.c - finds the addresses behind a host's name, off every thread that has a deadline. */
#include "backends/shared/resolve.h"

#include "core/ground/quiet_thread.h"
#include "core/ground/wake_fd.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Held by the resolver and by the thread; the last to let go frees it. */
struct resolve_question {
    atomic_int holders;
    int answered_fd; /* rung when the fields below are filled, which orders them */
    char *host;
    struct resolve_target target; /* but for the host, which may be gone before the thread is */
    int error;                    /* of getaddrinfo() */
    struct resolve_address *list; /* the answer */
    size_t count;
};

void resolver_init(struct resolver *resolver, const struct resolve_target *target)
{
    resolver->target = *target;
    if (!target->look_up) {
        resolver->target.look_up = getaddrinfo;
        resolver->target.free_found = freeaddrinfo;
    }
    resolver->question = NULL;
}

/* Acquire and release: who frees it sees all that the other wrote. */
static void let_go(struct resolve_question *question)
{
    if (atomic_fetch_sub_explicit(&question->holders, 1, memory_order_acq_rel) != 1)
        return;
    close(question->answered_fd);
    free(question->list);
    free(question->host);
    free(question);
}

/* It forgets the question first: a child that is forked meanwhile must not close what is closed. */
void resolver_destroy(struct resolver *resolver)
{
    struct resolve_question *question = resolver->question;
    resolver->question = NULL;
    if (question)
        let_go(question);
}

void resolver_abandon(struct resolver *resolver)
{
    if (resolver->question)
        close(resolver->question->answered_fd);
    resolver->question = NULL;
}

/* Into memory for `most` addresses. */
static int look_up(const struct resolve_target *target, const char *host, int flags, struct resolve_address *list,
                   size_t *count)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV };
    struct addrinfo *found;
    char service[8];
    snprintf(service, sizeof service, "%d", target->port);
    int error = target->look_up(host, service, &hints, &found);
    if (error)
        return error;
    *count = 0;
    for (const struct addrinfo *info = found; info && *count < target->most; info = info->ai_next) {
        struct resolve_address *address = &list[*count];
        if (info->ai_addrlen > sizeof address->name)
            continue;
        memset(address, 0, sizeof *address);
        memcpy(&address->name, info->ai_addr, info->ai_addrlen);
        address->len = info->ai_addrlen;
        (*count)++;
    }
    target->free_found(found);
    return *count > 0 ? 0 : EAI_NONAME;
}

static void *ask(void *user)
{
    struct resolve_question *question = user;
    const struct resolve_target *target = &question->target;
    question->error = look_up(target, question->host, target->flags, question->list, &question->count);
    wake_fd_ring(question->answered_fd);
    let_go(question);
    return NULL;
}

/* 0, or an errno. */
static int start(struct resolve_question *question)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = quiet_thread_start(&thread, &attributes, ask, question);
    pthread_attr_destroy(&attributes);
    return error;
}

/* NULL, and in *error an errno: there is no memory or no descriptor to be had. */
static struct resolve_question *question_make(const struct resolve_target *target, int *error)
{
    struct resolve_question *question = calloc(1, sizeof *question);
    *error = ENOMEM;
    if (!question)
        return NULL;
    question->target = *target;
    question->target.host = NULL;
    question->host = strdup(target->host);
    question->list = calloc(target->most, sizeof *question->list);
    question->answered_fd = wake_fd_open();
    if (question->answered_fd < 0)
        *error = errno;
    atomic_init(&question->holders, 1);
    if (question->host && question->list && question->answered_fd >= 0)
        return question;
    if (question->answered_fd >= 0)
        close(question->answered_fd);
    free(question->list);
    free(question->host);
    free(question);
    return NULL;
}

static enum resolved take_answer(struct resolver *resolver, struct resolve_address *list, size_t *count, char *reason,
                                 size_t reason_size)
{
    struct resolve_question *question = resolver->question;
    if (!wake_fd_drain(question->answered_fd))
        return RESOLVING;
    int error = question->error;
    if (!error) {
        memcpy(list, question->list, question->count * sizeof *list);
        *count = question->count;
    }
    resolver_destroy(resolver);
    if (!error)
        return RESOLVED;
    snprintf(reason, reason_size, "the host's name is not resolved: %s", gai_strerror(error));
    return NOT_RESOLVED;
}

enum resolved resolver_ask(struct resolver *resolver, struct resolve_address *list, size_t *count, char *reason,
                           size_t reason_size)
{
    const struct resolve_target *target = &resolver->target;
    if (resolver->question)
        return take_answer(resolver, list, count, reason, reason_size);
    if (look_up(target, target->host, AI_NUMERICHOST, list, count) == 0)
        return RESOLVED;

    int error;
    struct resolve_question *question = question_make(target, &error);
    if (question) {
        atomic_store_explicit(&question->holders, 2, memory_order_relaxed); /* the thread's start orders it */
        error = start(question);
        if (!error) {
            resolver->question = question;
            return RESOLVING;
        }
        atomic_store_explicit(&question->holders, 1, memory_order_relaxed);
        let_go(question);
    }
    snprintf(reason, reason_size, "the host's name is not resolved: %s%s", question ? "no thread: " : "",
             strerrordesc_np(error));
    return NOT_RESOLVED;
}

int resolver_fd(const struct resolver *resolver)
{
    return resolver->question ? resolver->question->answered_fd : -1;
}
