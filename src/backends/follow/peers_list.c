/* peers_list.c - follows the peers that the caller's function weir_peers.list reports. */
#include "backends/follow/sources.h"

#include "backends/shared/follow_thread.h"
#include "core/ground/arith.h"

#include <inttypes.h>
#include <stdlib.h>

struct peers_list { /* (c) constant once started */
    struct follow_thread thread;
    int64_t (*list)(void *user, struct weir_peer *peers, size_t room); /* (c) */
    void *user;                                                        /* (c) */
    int64_t poll_us;                                                   /* (c) */
    char *id;                                                          /* (c) */
    struct weir_peer peers[SHARE_MAX_INSTANCES];                       /* the thread's */
};

static void list_ask(struct peers_list *source)
{
    struct weir *limiter = source->thread.limiter;
    const int64_t n = source->list(source->user, source->peers, SHARE_MAX_INSTANCES);
    if (n < 0)
        follow_failed(limiter, WEIR_FOLLOW_PEERS, "peers.list() failed: %" PRId64, n);
    else if (n > SHARE_MAX_INSTANCES)
        follow_failed(limiter, WEIR_FOLLOW_PEERS, "peers.list() returned %" PRId64 " peers; there is room for %d", n,
                      SHARE_MAX_INSTANCES);
    else
        follow_peers(limiter, source->peers, (size_t)n, source->id);
}

static void *list_run(void *user)
{
    struct peers_list *source = user;
    struct weir *limiter = source->thread.limiter;
    int64_t ask_us = clock_boot_us();
    while (!follow_thread_ends(&source->thread)) {
        if (clock_boot_us() >= ask_us) {
            list_ask(source);
            ask_us = follow_thread_next_us(ask_us, source->poll_us, clock_boot_us());
        }
        follow_peers_turn(limiter);
        follow_thread_wait(&source->thread, -1, min_of(ask_us, follow_peers_due_us(limiter)));
    }
    return NULL;
}

static void list_destroy(struct follow_thread *thread, bool ended)
{
    struct peers_list *source = (struct peers_list *)thread;
    (void)ended;
    free(source->id);
    free(source);
}

int peers_list_follow(const struct weir_options *options, struct weir *limiter)
{
    static const char what[] = "peers.list()";
    struct peers_list *source = calloc(1, sizeof *source);
    if (!source)
        return follow_thread_refuse(limiter, what, WEIR_ENOMEM, NULL);
    source->thread.limiter = limiter;
    source->thread.destroy = list_destroy;
    source->list = options->peers->list;
    source->user = options->user;
    source->poll_us = options->peers->poll_us;
    source->id = strdup(options->peers->id);
    return follow_thread_start(&source->thread, source->id ? WEIR_OK : WEIR_ENOMEM, what, list_run);
}
