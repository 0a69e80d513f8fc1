/* consul_place.h - where the tests on a real Consul take place: an agent, and limiters that follow it.
 *
 * Times are real: an awaited state has a generous limit, and a state that must never occur is checked for all that
 * time.
 */
#ifndef WEIR_TESTS_CONSUL_PLACE_H
#define WEIR_TESTS_CONSUL_PLACE_H

#include "support.h"

#include "consul_server.h"

enum { PATIENCE_MS = 30000 };

void sleep_ms(int ms);

/* Wait for it, and fail if it does not come. */
#define await(condition)                                                                 \
    do {                                                                                 \
        for (int waited_ms = 0; !(condition) && waited_ms < PATIENCE_MS; waited_ms += 5) \
            sleep_ms(5);                                                                 \
        if (!(condition))                                                                \
            never_came(#condition);                                                      \
    } while (0)
void never_came(const char *what);

extern struct consul_server server;

void agent_start(enum consul_server_acl acl);
void asked(int status); /* fails the test unless it is 0: for the functions of consul_server.h */
int64_t passing(void);  /* instances of the service "api" */

/* Whether some limiter has logged a line with that text. */
bool logged(const char *text);

struct instance {
    struct weir_peers peers;
    struct weir_consul consul;
    struct weir_options options;
    weir *limiter;
    weir_limit *limit; /* "api", 100 a second by the code */
};

/* One of the service "api" that joins by itself, soon knows of a change, and soon makes use of it. */
void instance_init(struct instance *instance, const char *id, int64_t weight);
void instance_open(struct instance *instance);
void instance_open_ready(struct instance *instance);

/* Its part of the limit, by what it admits at once. */
int64_t part_of(const struct instance *instance);
bool share_is(const struct instance *instance, int64_t weight, int64_t total);
struct weir_follow_stats followed(const struct instance *instance, enum weir_followed what);

#endif
