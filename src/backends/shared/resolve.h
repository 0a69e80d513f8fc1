/* resolve.h - finds the addresses of a host's name without blocking a thread that has a deadline.
 *
 * getaddrinfo() blocks for as long as the system's resolver likes. So a separate thread calls it, for one
 * question at a time. A question that hangs keeps its thread and stays unanswered until getaddrinfo() returns.
 * The answer is announced on a descriptor for poll(). A numeric address needs no thread. */
#ifndef BACKENDS_SHARED_RESOLVE_H
#define BACKENDS_SHARED_RESOLVE_H

#include <netdb.h>
#include <stddef.h>
#include <sys/socket.h>

struct resolve_address {
    struct sockaddr_storage name;
    socklen_t len;
};

/* A question. */
struct resolve_target {
    const char *host;
    int port;
    int flags;   /* AI_* for a name; a numeric address ignores them */
    size_t most; /* largest number of addresses; further ones are ignored */
    /* In place of getaddrinfo() and freeaddrinfo(), which NULL stands for. Called on the resolver's thread. */
    int (*look_up)(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found);
    void (*free_found)(struct addrinfo *found);
};

struct resolve_question; /* shared with the resolver's thread */

struct resolver {
    struct resolve_target target;      /* the owner keeps its host */
    struct resolve_question *question; /* NULL: none is under way */
};

void resolver_init(struct resolver *resolver, const struct resolve_target *target);

/* Give up a question that is under way; its thread frees what it holds when it returns. */
void resolver_destroy(struct resolver *resolver);

/* In the child of a fork, drop the parent's question: close the descriptor and lose the memory, because the
 * parent's thread never lets go of its part here. There is nothing left to do in a child of that child. */
void resolver_abandon(struct resolver *resolver);

enum resolved { RESOLVED, RESOLVING, NOT_RESOLVED };

/* Ask, or check for the answer to the earlier question. RESOLVED fills list[0..*count) with 1 to `most`
 * addresses. NOT_RESOLVED is a failure and writes a sentence to `reason`. */
enum resolved resolver_ask(struct resolver *resolver, struct resolve_address *list, size_t *count, char *reason,
                           size_t reason_size);

/* Return a descriptor that is readable once there is an answer; -1: no question is under way. */
int resolver_fd(const struct resolver *resolver);

#endif
