/* store.h - where a command keeps its counts: in this process, in a file that processes of this machine share
 * (--shared), or in Redis (--mode distributed, --mode hybrid).
 *
 * A request to Redis is answered by Redis or fails. If the command fell back to this process, its answer would be about
 * something else than the user asked. No password is ever printed.
 */
#ifndef WEIR_CLI_STORE_H
#define WEIR_CLI_STORE_H

#include <weir/weir.h>

#define STORE_PREFIX_SIZE 40

/* getopt_long()'s codes for the options of a store. Commands number their own options from 256. */
enum store_option {
    STORE_MODE = 1024, /* of a command without --shared */
    STORE_ANY_MODE,
    STORE_SHARED,
    STORE_REDIS,
    STORE_PASSWORD_FILE,
    STORE_PREFIX,
    STORE_REPLICAS,
    STORE_CA_FILE,
    STORE_CERT_FILE,
    STORE_KEY_FILE,
    STORE_INSTANCES,
    STORE_DEAL,
    STORE_LEASE_LIFE,
    STORE_LEASE_EXCESS,
    STORE_LEASE_MAX,
    STORE_STRICT,
    STORE_PERCENT_SEED
};

#define STORE_REDIS_OPTIONS                                                      \
    { "redis", required_argument, NULL, STORE_REDIS },                           \
        { "redis-password-file", required_argument, NULL, STORE_PASSWORD_FILE }, \
        { "redis-prefix", required_argument, NULL, STORE_PREFIX },               \
        { "redis-ca-file", required_argument, NULL, STORE_CA_FILE },             \
        { "redis-cert-file", required_argument, NULL, STORE_CERT_FILE },         \
    {                                                                            \
        "redis-key-file", required_argument, NULL, STORE_KEY_FILE                \
    }

/* The help on the modes of a command that may count in a shared file. */
#define STORE_ANY_MODE_HELP                                                                        \
    "      --mode MODE        local (default), machine, distributed or hybrid\n"                   \
    "      --shared FILE      count in this file, together with other processes of this machine\n" \
    "                         that use it (machine); a name without / is a file in /dev/shm\n"

/* The help on TLS. */
#define STORE_TLS_HELP                                                                                 \
    "      --redis-ca-file FILE    authorities for the server's certificate (default: the system's)\n" \
    "      --redis-cert-file FILE  this client's certificate\n"                                        \
    "      --redis-key-file FILE   its private key\n"

/* The options of a command that looks into Redis, and the help on them. */
#define STORE_REDIS_HELP                                                                                  \
    "      --redis URL   redis[s]://[user@]host[:port][/db], unix://[user@]/path[?db=N],\n"               \
    "                    redis[s]-sentinel://[user@]host[:port][,host[:port]...]/service[?db=N] or\n"     \
    "                    redis[s]-cluster://[user@]host[:port][,host[:port]...]\n"                        \
    "      --redis-password-file FILE\n"                                                                  \
    "                    a file whose first line is the password; without it, the environment variable\n" \
    "                    WEIR_REDIS_PASSWORD\n" STORE_TLS_HELP "      --redis-prefix PREFIX\n"            \
    "                    the beginning of all keys in Redis (default: weir:)\n"

/* The same for percent_seed. */
#define STORE_PERCENT_SEED_OPTION                                   \
    {                                                               \
        "percent-seed", required_argument, NULL, STORE_PERCENT_SEED \
    }

#define STORE_INSTANCES_MAX 256 /* each is a limiter with its own thread and connection */

/* How requests are dealt to the instances, as by the balancer of a service. */
enum deal {
    DEAL_ROUND_ROBIN, /* each in turn */
    DEAL_KEY,         /* all requests of a key to one instance */
    DEAL_SKEWED       /* half of all to the first, half of the rest to the second, and so on */
};

struct store {
    struct weir_options options; /* what the user's options say; store_options() adds what every command has */
    bool has_mode;
    char run_prefix[STORE_PREFIX_SIZE];
    enum deal deal;            /* hybrid mode only, as options.instances: here the instances of this command */
    const char *redis_option;  /* an option that was given and means something for Redis only, --redis before others */
    const char *hybrid_option; /* the same of hybrid mode */
};

/* Set an option of the library from the command line or a configuration file. `name` has dashes, as behind the "--" there;
 * `value` may be NULL for a flag that is given. Return EXIT_OK, or EXIT_ERROR after a complaint. */
int store_set(struct store *store, const char *command, const char *name, const char *value);

/* Take an option of enum store_option. Return EXIT_OK, or EXIT_ERROR after a complaint. */
int store_read_option(struct store *store, const char *command, int code, const char *value);

/* Check after the last option whether they fit together. Return EXIT_OK, or EXIT_ERROR after a complaint. */
int store_check(struct store *store, const char *command);

/* True if the counts are in Redis. */
static inline bool store_has_redis(const struct store *store)
{
    return store->options.mode == WEIR_DISTRIBUTED || store->options.mode == WEIR_HYBRID;
}

/* Return "local", "distributed", "hybrid" or "machine"; "round-robin", "key" or "skewed". */
const char *store_mode_name(const struct store *store);
const char *store_deal_name(const struct store *store);

/* Give this run its own keys, "weir:replay-<16 hex digits>:". Return EXIT_OK, or EXIT_FAILED after a complaint. */
int store_make_prefix(struct store *store);

/* Fill in the options of this store, with errors if Redis does not answer and a log hook that prints warnings. */
void store_options(const struct store *store, struct weir_options *options);

/* Complain that weir_open() has failed with these options, unless their log hook has printed the reason. */
void store_open_failed(int error);

/* Check that Redis answers, by a request that changes nothing. Return EXIT_OK, or after a complaint EXIT_ERROR (wrong
 * options) or EXIT_FAILED. Without Redis, always EXIT_OK. */
int store_reach(const struct store *store);

/* Return the name of a decision's source: "memory", "redis" and so on. */
const char *store_source_name(unsigned source);

/* Hold back SIGINT, SIGTERM, SIGHUP and SIGPIPE, the first of each, so that keys can be removed. store_signal() returns
 * the last signal held back, or 0. Releasing restores their effect and raises that signal. */
void store_hold_signals(void);
int store_signal(void);
void store_release_signals(void);

#endif
