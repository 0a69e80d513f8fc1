/* redis_resolve.h - finds the addresses of a server's name, off every thread that has a deadline.
 *
 * getaddrinfo() blocks for as long as the system's resolver likes. So a thread of its own asks it, one at a time: a
 * question that hangs keeps its thread and answers nobody, until it comes back. What it found is fetched by poll() on a
 * descriptor. A path, or an address in digits, needs no thread.
 */
#ifndef BACKENDS_REDIS_RESOLVE_H
#define BACKENDS_REDIS_RESOLVE_H

#include "backends/redis_link.h"

#define REDIS_ADDRESSES 8 /* further ones of the same name are left out */

struct redis_addresses {
    size_t count;
    struct redis_address list[REDIS_ADDRESSES];
};

struct redis_question; /* shared with the thread that asks */

struct redis_resolver {
    const struct redis_target *target;
    struct redis_question *question; /* NULL: none is under way */
};

void redis_resolver_init(struct redis_resolver *resolver, const struct redis_target *target);

/* Give up what is under way; its thread frees what it holds when it comes back. */
void redis_resolver_destroy(struct redis_resolver *resolver);

enum redis_resolved { REDIS_RESOLVED, REDIS_RESOLVING, REDIS_NOT_RESOLVED };

/* Ask, or look whether there is an answer to what was asked before: REDIS_RESOLVED fills *out with one address or more;
 * REDIS_NOT_RESOLVED is a failure, with a sentence in `reason`. */
enum redis_resolved redis_resolver_ask(struct redis_resolver *resolver, struct redis_addresses *out, char *reason,
                                       size_t reason_size);

/* Readable once there is an answer; -1: nothing is under way. */
int redis_resolver_fd(const struct redis_resolver *resolver);

#endif
