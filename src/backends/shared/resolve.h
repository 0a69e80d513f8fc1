/* resolve.h - finds the addresses behind a host's name, off every thread that has a deadline.
 *
 * getaddrinfo() blocks for as long as the system's resolver likes. So a thread of its own asks it, one at a time: a
 * question that hangs keeps its thread and answers nobody, until it comes back. What it found is fetched by poll() on a
 * descriptor. An address in digits needs no thread.
 */
#ifndef BACKENDS_SHARED_RESOLVE_H
#define BACKENDS_SHARED_RESOLVE_H

#include <netdb.h>
#include <stddef.h>
#include <sys/socket.h>

struct resolve_address {
    struct sockaddr_storage name;
    socklen_t len;
};

/* What is asked. */
struct resolve_target {
    const char *host;
    int port;
    int flags;   /* AI_* of a name; of an address in digits none count */
    size_t most; /* addresses; further ones of the same name are left out */
    /* In place of getaddrinfo() and freeaddrinfo(); NULL: these. Called on the resolver's thread. */
    int (*look_up)(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found);
    void (*free_found)(struct addrinfo *found);
};

struct resolve_question; /* shared with the thread that asks */

struct resolver {
    struct resolve_target target;      /* its host is the owner's */
    struct resolve_question *question; /* NULL: none is under way */
};

void resolver_init(struct resolver *resolver, const struct resolve_target *target);

/* Give up what is under way, if anything is; its thread frees what it holds when it comes back. */
void resolver_destroy(struct resolver *resolver);

/* Let go, in the child of a fork, of a resolver that is the parent's: the descriptor is closed, and the memory lost, for
 * what the parent's thread holds is never let go of here. In a child of that one there is nothing left to do. */
void resolver_abandon(struct resolver *resolver);

enum resolved { RESOLVED, RESOLVING, NOT_RESOLVED };

/* Ask, or look whether there is an answer to what was asked before: RESOLVED fills list[0..*count), 1 to `most`
 * addresses; NOT_RESOLVED is a failure, with a sentence in `reason`. */
enum resolved resolver_ask(struct resolver *resolver, struct resolve_address *list, size_t *count, char *reason,
                           size_t reason_size);

/* Readable once there is an answer; -1: nothing is under way. */
int resolver_fd(const struct resolver *resolver);

#endif
