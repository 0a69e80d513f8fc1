/* peers_dns.c - follows the peers behind a DNS name.
 *
 * An instance of a dual-stack service has an address of each family behind the name. So only one family counts: that
 * of this instance's own address, or the one with more addresses. All instances must get the same answer, so it does
 * not matter which families this host can reach. */
#include "backends/follow/sources.h"

#include "backends/shared/follow_thread.h"
#include "core/ground/arith.h"

#include <arpa/inet.h>
#include <stdlib.h>

enum { ADDRESSES_MOST = SHARE_MAX_INSTANCES + 1, REASON_SIZE = 128 }; /* one more shows that there are too many */

struct peers_dns { /* (c) constant once started */
    struct follow_thread thread;
    char *host;                /* (c) */
    char id[INET6_ADDRSTRLEN]; /* (c) in the form of printed addresses; empty: not given */
    int64_t poll_us;           /* (c) */
    struct resolver resolver;  /* the thread's, like all below */
    struct resolve_address addresses[ADDRESSES_MOST];
    char ids[ADDRESSES_MOST][INET6_ADDRSTRLEN];
    struct weir_peer peers[ADDRESSES_MOST];
};

/* ---- An answer ---- */

static int dns_by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Print the bytes of an address, an IPv4-mapped one as IPv4: a program may have its own from a socket for both. */
static bool dns_print(int family, const unsigned char *bytes, char text[INET6_ADDRSTRLEN])
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    const bool is_mapped = family == AF_INET6 && memcmp(bytes, mapped, sizeof mapped) == 0;
    return inet_ntop(is_mapped ? AF_INET : family, is_mapped ? bytes + sizeof mapped : bytes, text, INET6_ADDRSTRLEN);
}

/* Print an address. False: it is neither IPv4 nor IPv6. */
static bool dns_print_address(const struct resolve_address *address, char text[INET6_ADDRSTRLEN])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->name;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->name;
    const int family = address->name.ss_family;
    const void *bytes = family == AF_INET ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr;
    return (family == AF_INET || family == AF_INET6) && dns_print(family, bytes, text);
}

static bool dns_is_ipv6(const char *printed)
{
    return strchr(printed, ':') != NULL;
}

/* Report each address of the family that counts once: a hosts file may have one in several lines. */
static void dns_take_answer(struct peers_dns *source, size_t count)
{
    size_t printed = 0, distinct[2] = { 0, 0 }, n = 0;
    for (size_t i = 0; i < count; i++)
        printed += dns_print_address(&source->addresses[i], source->ids[printed]);
    qsort(source->ids, printed, sizeof source->ids[0], dns_by_text);
    for (size_t i = 0; i < printed; i++) {
        if (i > 0 && strcmp(source->ids[i - 1], source->ids[i]) == 0)
            continue;
        source->peers[n++] = (struct weir_peer){ .id = source->ids[i], .weight = 1 };
        distinct[dns_is_ipv6(source->ids[i])]++;
    }
    const bool ipv6_counts = source->id[0] ? dns_is_ipv6(source->id) : distinct[1] > distinct[0];
    if (distinct[ipv6_counts] > 0) { /* otherwise report the other family: this instance is not among it */
        const size_t all = n;
        n = 0;
        for (size_t i = 0; i < all; i++)
            if (dns_is_ipv6(source->peers[i].id) == ipv6_counts)
                source->peers[n++] = source->peers[i];
    }
    follow_peers(source->thread.limiter, source->peers, n, source->id[0] ? source->id : NULL);
}

/* ---- The thread ---- */

/* True if the question has been answered or has failed. */
static bool dns_look(struct peers_dns *source)
{
    char reason[REASON_SIZE];
    size_t count = 0;
    switch (resolver_ask(&source->resolver, source->addresses, &count, reason, sizeof reason)) {
    case RESOLVING: return false;
    case NOT_RESOLVED:
        follow_failed(source->thread.limiter, WEIR_FOLLOW_PEERS, "%s: %s", source->host, reason);
        return true;
    case RESOLVED: dns_take_answer(source, count); return true;
    }
    return true;
}

static void *dns_run(void *user)
{
    struct peers_dns *source = user;
    int64_t ask_us = clock_boot_us();
    bool is_asking = false;
    while (!follow_thread_ends(&source->thread)) {
        const int64_t now_us = clock_boot_us();
        if (is_asking || now_us >= ask_us) {
            const bool begins = !is_asking;
            is_asking = !dns_look(source);
            if (begins)
                ask_us = follow_thread_next_us(ask_us, source->poll_us, now_us);
        }
        if (is_asking && now_us >= ask_us) { /* a question that hangs is not repeated, but reported every time */
            follow_failed(source->thread.limiter, WEIR_FOLLOW_PEERS, "%s: no answer in time", source->host);
            ask_us = now_us + source->poll_us;
        }
        follow_peers_turn(source->thread.limiter);
        follow_thread_wait(&source->thread, resolver_fd(&source->resolver),
                           min_of(ask_us, follow_peers_due_us(source->thread.limiter)));
    }
    return NULL;
}

/* ---- Beginning and end ---- */

static void dns_destroy(struct follow_thread *thread, bool ended)
{
    struct peers_dns *source = (struct peers_dns *)thread;
    if (ended)
        resolver_destroy(&source->resolver);
    free(source->host);
    free(source);
}

static void dns_abandon(struct follow_thread *thread)
{
    resolver_abandon(&((struct peers_dns *)thread)->resolver);
}

/* Keep `id` in the form in which addresses are printed; anything else matches no address. */
static void dns_set_id(struct peers_dns *source, const char *id)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    const int family = id && inet_pton(AF_INET, id, bytes) == 1 ? AF_INET : AF_INET6;
    if (id && inet_pton(family, id, bytes) == 1)
        dns_print(family, bytes, source->id);
}

int peers_dns_follow_by(const struct weir_options *options, struct weir *limiter, const struct resolve_target *target)
{
    static const char what[] = "peers.dns";
    struct peers_dns *source = calloc(1, sizeof *source);
    if (!source)
        return follow_thread_refuse(limiter, what, WEIR_ENOMEM, NULL);
    source->thread.limiter = limiter;
    source->thread.destroy = dns_destroy;
    source->thread.abandon = dns_abandon;
    source->poll_us = options->peers->poll_us;
    source->host = strdup(options->peers->dns);
    dns_set_id(source, options->peers->id);
    const struct resolve_target asked = {
        .host = source->host,
        .most = ADDRESSES_MOST,
        .look_up = target->look_up,
        .free_found = target->free_found,
    };
    resolver_init(&source->resolver, &asked);
    return follow_thread_start(&source->thread, source->host ? WEIR_OK : WEIR_ENOMEM, what, dns_run);
}

int peers_dns_follow(const struct weir_options *options, struct weir *limiter)
{
    return peers_dns_follow_by(options, limiter, &(struct resolve_target){ 0 });
}
