/* peers_list.c - peers by a function of the caller's. */
#include "backends/follow/peers_list.h"

#include "backends/shared/follow_thread.h"
#include "core/ground/arith.h"
#include "core/follow/follow.h"

#include <inttypes.h>
#include <stdlib.h>

struct peers_list { /* (c) constant once started */
    struct follower follower;
    struct follow_thread thread;
    struct weir *limiter;                                              /* (c) */
    int64_t (*list)(void *user, struct weir_peer *peers, size_t room); /* (c) */
    void *user;                                                        /* (c) */
    int64_t poll_us;                                                   /* (c) */
    char *id;                                                          /* (c) */
    struct weir_peer peers[SHARE_MAX_INSTANCES];                       /* the thread's */
};

static void ask(struct peers_list *source)
{
    const int64_t n = source->list(source->user, source->peers, SHARE_MAX_INSTANCES);
    if (n < 0)
        follow_failed(source->limiter, WEIR_FOLLOW_PEERS, "peers.list() cannot tell now: %" PRId64, n);
    else if (n > SHARE_MAX_INSTANCES)
        follow_failed(source->limiter, WEIR_FOLLOW_PEERS,
                      "peers.list() says %" PRId64 " peers where there is room for %d", n, SHARE_MAX_INSTANCES);
    else
        follow_peers(source->limiter, source->peers, (size_t)n, source->id);
}

static void *run(void *user)
{
    struct peers_list *source = user;
    int64_t ask_us = clock_boot_us();
    while (!follow_thread_ends(&source->thread)) {
        if (clock_boot_us() >= ask_us) {
            ask(source);
            ask_us = follow_thread_next_us(ask_us, source->poll_us, clock_boot_us());
        }
        follow_peers_turn(source->limiter);
        follow_thread_wait(&source->thread, -1, min_of(ask_us, follow_peers_due_us(source->limiter)));
    }
    return NULL;
}

static void list_free(struct peers_list *source)
{
    free(source->id);
    free(source);
}

static void end(struct follower *follower)
{
    struct peers_list *source = (struct peers_list *)follower;
    follow_thread_end(&source->thread);
    list_free(source);
}

static void abandon(struct follower *follower)
{
    follow_thread_abandon(&((struct peers_list *)follower)->thread);
}

int peers_list_follow(const struct weir_options *options, struct weir *limiter)
{
    struct peers_list *source = calloc(1, sizeof *source);
    char *id = strdup(options->peers->id);
    int error = source && id ? WEIR_OK : WEIR_ENOMEM;
    if (!error) {
        source->follower.end = end;
        source->follower.abandon = abandon;
        source->limiter = limiter;
        source->list = options->peers->list;
        source->user = options->user;
        source->poll_us = options->peers->poll_us;
        source->id = id;
        error = follow_thread_start(&source->thread, run, source);
    }
    if (error) {
        log_line(&limiter->log, WEIR_LOG_ERROR, "peers.list() cannot be followed: %s",
                 error == WEIR_EIO ? "no thread or descriptor to be had" : weir_strerror(error));
        free(id);
        free(source);
        return error;
    }
    follow_add(limiter, &source->follower);
    return WEIR_OK;
}
