/* peers_dns.c - peers by DNS.
 *
 * A name with addresses of both families counts each of them as an instance of its own: that is a share too small, not
 * too large. All instances must be given the same answer, so the families that this host can reach are of no account.
 */
#include "backends/follow/peers_dns.h"

#include "backends/shared/follow_thread.h"
#include "core/ground/arith.h"
#include "core/follow/follow.h"

#include <arpa/inet.h>
#include <stdlib.h>

enum { ADDRESSES_MOST = SHARE_MAX_INSTANCES + 1, REASON_SIZE = 128 }; /* one more, to know that there are too many */

struct peers_dns { /* (c) constant once started */
    struct follower follower;
    struct follow_thread thread;
    struct weir *limiter;      /* (c) */
    char *host;                /* (c) */
    char id[INET6_ADDRSTRLEN]; /* (c) as the addresses are printed; empty: not given */
    int64_t poll_us;           /* (c) */
    struct resolver resolver;  /* the thread's, as all below */
    struct resolve_address addresses[ADDRESSES_MOST];
    char ids[ADDRESSES_MOST][INET6_ADDRSTRLEN];
    struct weir_peer peers[ADDRESSES_MOST];
};

/* ---- An answer ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Of one that is neither IPv4 nor IPv6 nothing: false. */
static bool print_address(const struct resolve_address *address, char text[INET6_ADDRSTRLEN])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->name;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->name;
    const int family = address->name.ss_family;
    const void *bytes = family == AF_INET ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr;
    return (family == AF_INET || family == AF_INET6) && inet_ntop(family, bytes, text, INET6_ADDRSTRLEN);
}

/* Each address once: a host file may name one in several lines. */
static void hear(struct peers_dns *source, size_t count)
{
    size_t printed = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        printed += print_address(&source->addresses[i], source->ids[printed]);
    qsort(source->ids, printed, sizeof source->ids[0], by_text);
    for (size_t i = 0; i < printed; i++)
        if (i == 0 || strcmp(source->ids[i - 1], source->ids[i]) != 0)
            source->peers[n++] = (struct weir_peer){ .id = source->ids[i], .weight = 1 };
    follow_peers(source->limiter, source->peers, n, source->id[0] ? source->id : NULL);
}

/* ---- The thread ---- */

/* Whether the question is answered, one way or the other. */
static bool look(struct peers_dns *source)
{
    char reason[REASON_SIZE];
    size_t count = 0;
    switch (resolver_ask(&source->resolver, source->addresses, &count, reason, sizeof reason)) {
    case RESOLVING: return false;
    case NOT_RESOLVED: follow_failed(source->limiter, WEIR_FOLLOW_PEERS, "%s: %s", source->host, reason); return true;
    case RESOLVED: hear(source, count); return true;
    }
    return true;
}

static void *run(void *user)
{
    struct peers_dns *source = user;
    int64_t ask_us = clock_boot_us();
    bool is_asking = false;
    while (!follow_thread_ends(&source->thread)) {
        const int64_t now_us = clock_boot_us();
        if (is_asking || now_us >= ask_us) {
            const bool begins = !is_asking;
            is_asking = !look(source);
            if (begins)
                ask_us = follow_thread_next_us(ask_us, source->poll_us, now_us);
        }
        if (is_asking && now_us >= ask_us) { /* one that hangs is not asked twice, but told of at every turn */
            follow_failed(source->limiter, WEIR_FOLLOW_PEERS, "%s: no answer in time", source->host);
            ask_us = now_us + source->poll_us;
        }
        follow_peers_turn(source->limiter);
        follow_thread_wait(&source->thread, resolver_fd(&source->resolver),
                           min_of(ask_us, follow_peers_due_us(source->limiter)));
    }
    return NULL;
}

/* ---- Beginning and end ---- */

static void dns_free(struct peers_dns *source)
{
    free(source->host);
    free(source);
}

static void end(struct follower *follower)
{
    struct peers_dns *source = (struct peers_dns *)follower;
    if (follow_thread_end(&source->thread))
        resolver_destroy(&source->resolver);
    dns_free(source);
}

static void abandon(struct follower *follower)
{
    struct peers_dns *source = (struct peers_dns *)follower;
    follow_thread_abandon(&source->thread);
    resolver_abandon(&source->resolver);
}

static int dns_start(struct peers_dns *source, const struct weir_options *options, const struct resolve_target *target)
{
    source->host = strdup(options->peers->dns);
    if (!source->host)
        return WEIR_ENOMEM;
    struct in6_addr bytes;
    for (int family = AF_INET; options->peers->id; family = AF_INET6) {
        if (inet_pton(family, options->peers->id, &bytes) == 1)
            inet_ntop(family, &bytes, source->id, sizeof source->id);
        if (family == AF_INET6 || source->id[0])
            break;
    }
    source->poll_us = options->peers->poll_us;
    const struct resolve_target asked = {
        .host = source->host,
        .most = ADDRESSES_MOST,
        .look_up = target->look_up,
        .free_found = target->free_found,
    };
    resolver_init(&source->resolver, &asked);
    return follow_thread_start(&source->thread, run, source);
}

int peers_dns_follow_by(const struct weir_options *options, struct weir *limiter, const struct resolve_target *target)
{
    struct peers_dns *source = calloc(1, sizeof *source);
    int error = WEIR_ENOMEM;
    if (source) {
        source->follower.end = end;
        source->follower.abandon = abandon;
        source->limiter = limiter;
        error = dns_start(source, options, target);
    }
    if (error) {
        log_line(&limiter->log, WEIR_LOG_ERROR, "peers.dns cannot be followed: %s",
                 error == WEIR_EIO ? "no thread or descriptor to be had" : weir_strerror(error));
        if (source)
            dns_free(source);
        return error;
    }
    follow_add(limiter, &source->follower);
    return WEIR_OK;
}

int peers_dns_follow(const struct weir_options *options, struct weir *limiter)
{
    return peers_dns_follow_by(options, limiter, &(struct resolve_target){ 0 });
}
