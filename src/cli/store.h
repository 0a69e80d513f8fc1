/* store.h - where a command keeps its counts: in this process, or in Redis (--mode distributed, --mode hybrid).
 *
 * What is asked of Redis is answered by Redis or is an error: a command that fell back to this process would say
 * something else than it was asked to find out. No password is ever printed.
 */
#ifndef WEIR_CLI_STORE_H
#define WEIR_CLI_STORE_H

#include <weir/weir.h>

#define STORE_PREFIX_SIZE 40

/* getopt_long()'s codes for the options that set a store; commands number their own from 256. */
enum store_option {
    STORE_MODE = 1024,
    STORE_REDIS,
    STORE_PASSWORD_FILE,
    STORE_PREFIX,
    STORE_REPLICAS,
    STORE_INSTANCES,
    STORE_DEAL,
    STORE_LEASE_LIFE,
    STORE_LEASE_MAX,
    STORE_STRICT
};

#define STORE_INSTANCES_MAX 256 /* each is a limiter with a thread and a connection of its own */

/* Which instance gets a request, as the balancers in front of a service deal them. */
enum deal {
    DEAL_ROUND_ROBIN, /* each in turn */
    DEAL_KEY,         /* all requests of a key to one instance */
    DEAL_SKEWED       /* half of all to the first, half of the rest to the second, and so on */
};

struct store {
    enum weir_mode mode;
    const char *redis_url, *password_file;
    const char *prefix; /* of the keys in Redis; NULL: the library's default */
    char run_prefix[STORE_PREFIX_SIZE];
    int64_t replicas; /* 0: none */
    bool has_replicas;

    /* Mode WEIR_HYBRID alone. */
    int64_t instances; /* 0: 1 */
    enum deal deal;
    int64_t lease_life_us, lease_max; /* 0: the library's default */
    bool strict;
    const char *hybrid_option; /* the last option of these that was given, or NULL */
};

/* Take an option of enum store_option; EXIT_OK, or EXIT_ERROR after a complaint. */
int store_read_option(struct store *store, const char *command, int code, const char *value);

/* After the last option: whether they go together. EXIT_OK, or EXIT_ERROR after a complaint. */
int store_check(const struct store *store, const char *command);

/* "local", "distributed", "hybrid"; "round-robin", "key", "skewed". */
const char *store_mode_name(const struct store *store);
const char *store_deal_name(const struct store *store);

/* Give this run keys of its own, "weir:replay-<16 hex digits>:". EXIT_OK, or EXIT_FAILED after a complaint. */
int store_make_prefix(struct store *store);

/* Fill in where the counts are kept, what is done when Redis cannot be had (an error), and a log hook that says so. */
void store_options(const struct store *store, struct weir_options *options);

/* Whether Redis can be reached and asked, found out by a question that changes nothing: EXIT_OK, or after a complaint
 * EXIT_ERROR (the options are wrong) or EXIT_FAILED. Always EXIT_OK without Redis. */
int store_reach(const struct store *store);

/* "memory", "redis" and so on: who decided. */
const char *store_source_name(unsigned source);

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE are only noted, the first time each, so that there is time to remove
 * keys. store_signal() is what was noted last, or 0. Releasing them gives them their effect back, and this process the
 * one that was noted. */
void store_hold_signals(void);
int store_signal(void);
void store_release_signals(void);

#endif
