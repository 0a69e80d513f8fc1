/* resolve.c - resolves a host's name on a separate thread. */
#include "backends/shared/resolve.h"

#include "core/ground/quiet_thread.h"
#include "core/ground/wake_fd.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Shared by the resolver and the thread; the last one to let go frees it. */
struct resolve_question {
    atomic_int holders;
    int answered_fd; /* readable when the fields below are filled; orders them */
    char *host;
    struct resolve_target target; /* without the host, which the owner may free first */
    int error;                    /* getaddrinfo()'s */
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

/* Acquire and release: the thread that frees it sees all writes of the other one. */
static void question_let_go(struct resolve_question *question)
{
    if (atomic_fetch_sub_explicit(&question->holders, 1, memory_order_acq_rel) != 1)
        return;
    close(question->answered_fd);
    free(question->list);
    free(question->host);
    free(question);
}

/* Forget the question first: a child forked in between must not close the descriptor a second time. */
void resolver_destroy(struct resolver *resolver)
{
    struct resolve_question *question = resolver->question;
    resolver->question = NULL;
    if (question)
        question_let_go(question);
}

void resolver_abandon(struct resolver *resolver)
{
    if (resolver->question)
        close(resolver->question->answered_fd);
    resolver->question = NULL;
}

/* Fill `list`, which has room for `most` addresses. */
static int resolve_look_up(const struct resolve_target *target, const char *host, int flags,
                           struct resolve_address *list, size_t *count)
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

static void *resolve_run(void *user)
{
    struct resolve_question *question = user;
    const struct resolve_target *target = &question->target;
    question->error = resolve_look_up(target, question->host, target->flags, question->list, &question->count);
    wake_fd_ring(question->answered_fd);
    question_let_go(question);
    return NULL;
}

/* Start the thread. 0, or an errno. */
static int question_start(struct resolve_question *question)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = quiet_thread_start(&thread, &attributes, resolve_run, question);
    pthread_attr_destroy(&attributes);
    return error;
}

/* Make a question. NULL: no memory or no descriptor; *error is an errno. */
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

static enum resolved resolver_take_answer(struct resolver *resolver, struct resolve_address *list, size_t *count,
                                          char *reason, size_t reason_size)
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
        return resolver_take_answer(resolver, list, count, reason, reason_size);
    if (resolve_look_up(target, target->host, AI_NUMERICHOST, list, count) == 0)
        return RESOLVED;

    int error;
    struct resolve_question *question = question_make(target, &error);
    if (question) {
        atomic_store_explicit(&question->holders, 2, memory_order_relaxed); /* starting the thread orders it */
        error = question_start(question);
        if (!error) {
            resolver->question = question;
            return RESOLVING;
        }
        atomic_store_explicit(&question->holders, 1, memory_order_relaxed);
        question_let_go(question);
    }
    snprintf(reason, reason_size, "the host's name is not resolved: %s%s", question ? "no thread: " : "",
             strerror(error));
    return NOT_RESOLVED;
}

int resolver_fd(const struct resolver *resolver)
{
    return resolver->question ? resolver->question->answered_fd : -1;
}
