/* options.h - what a limiter is opened with: where the count is kept, what answers when that fails, and how much it may
 * take. Included by weir.h.
 */
#ifndef WEIR_OPTIONS_H
#define WEIR_OPTIONS_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

/* What a new key gets when max_keys or max_bytes is reached and no key that was looked at, up to 512 of them, is as
 * good as new. The decision's source is then WEIR_BY_FULL. Keys that are there keep their state whatever is chosen. */
enum weir_on_full {
    WEIR_FULL_DENY,  /* denied; retry_after_us is the time until one of the keys looked at comes free */
    WEIR_FULL_ALLOW, /* allowed and not counted */
    WEIR_FULL_SHARE  /* all such keys of a limit share one state of it */
};

/* Where the count is kept. */
enum weir_mode {
    WEIR_LOCAL,       /* in this process; this instance's share of each limit */
    WEIR_DISTRIBUTED, /* in Redis, by its clock, in one atomic script: exact over all instances */
    /* In Redis, but permits of busy keys are leased ahead of use and spent in this process, and a denial is remembered
     * until it may change: most decisions need no call. More than the limit passes only where permits come back bit by
     * bit (token bucket, greedy refill), and by no more than weir_limit_info.over_max; with `strict` not even that. */
    WEIR_HYBRID
};

/* What answers when Redis, or a backend of one's own, cannot be reached or does not answer in time. It is asked for
 * takes and peeks; a refund or a reset that fails is always an error, as is a state that is not weir's. */
enum weir_on_failure {
    /* This process, by its share (weir_options.instances and those after it; without them that is the whole limit),
     * kept in memory. Each outage starts cold: every key counts as if all its permits had been taken when it began, so
     * that an outage is never a second burst; once it is over, what was admitted is charged to Redis before a key is
     * decided there again. Source WEIR_BY_FALLBACK. */
    WEIR_FAIL_LOCAL,
    WEIR_FAIL_OPEN,   /* allowed and not counted, save what can never fit, for open_for_us; source WEIR_BY_FAIL_OPEN */
    WEIR_FAIL_CLOSED, /* denied, retry_after_us a second or WEIR_NEVER; source WEIR_BY_FAIL_CLOSED */
    WEIR_FAIL_ERROR   /* the caller gets WEIR_ETIME or WEIR_EIO */
};

struct weir_peers; /* follow.h */
struct weir_consul;

enum weir_log_level { WEIR_LOG_ERROR, WEIR_LOG_WARNING, WEIR_LOG_INFO };

/* Start from WEIR_OPTIONS_INIT; zero in a field means its default. Strings and arrays are copied. */
struct weir_options {
    size_t size;               /* sizeof(struct weir_options) */
    enum weir_mode mode;       /* default WEIR_LOCAL */
    const char *policy_file;   /* limits to define at open, see weir_limits_load(); default none */
    bool follow_policy_file;   /* and again whenever the file changes, or is replaced: what it no longer has falls back
                                * to what weir_limit_define() said. A file with a bad line changes nothing */
    enum weir_on_full on_full; /* default WEIR_FULL_DENY */
    bool keep_idle;            /* keep keys that are as good as new until max_keys or max_bytes asks for their room; for
                                * replays and tests whose clock jumps back by more than WEIR_CLOCK_SLACK_US */
    int64_t max_keys;          /* 1 to 2^31; default 1,000,000 */
    int64_t max_bytes;         /* memory for keys and tables, 1 MiB or more; default 256 * max_keys, at least 1 MiB */

    enum weir_on_failure on_failure; /* default WEIR_FAIL_LOCAL */
    int64_t open_for_us; /* WEIR_FAIL_OPEN: how long all is allowed; then it is denied as with WEIR_FAIL_CLOSED. Counted
                          * over all outages, and given back by as long a time without one; 0: however long it lasts */
    int64_t timeout_us;  /* longest stay in one call for the sake of a backend that can block; 1 us to 1 hour; default
                          * 50,000. The memory backend never does. */

    /* Redis, modes WEIR_DISTRIBUTED and WEIR_HYBRID; elsewhere these must be 0.
     *
     *     redis://[user:password@]host[:port][/db]      unix://[user:password@]/path[?db=N]
     *     redis-sentinel://[user:password@]host[:port][,host[:port]...]/service[?db=N]
     *     redis-cluster://[user:password@]host[:port][,host[:port]...]
     *     rediss://, rediss-sentinel:// and rediss-cluster://, the same over TLS 1.2 or later
     *
     * Default port 6379, db 0; an IPv6 address stands in brackets; user, password, path and service are
     * percent-decoded. Without a password in the URL the first line of redis_password_file is used, or else the
     * environment variable WEIR_REDIS_PASSWORD, both read at weir_open(). Keys are <redis_prefix><limit>:{<key>}.
     *
     * With redis-sentinel:// the hosts are up to 16 sentinels (default port 26379) and `service` the name by which they
     * know the primary. One after the other is asked for it, every connection to a server is used only if that says it
     * is a primary (ROLE), and another that the sentinels name is followed at once. User and password of the URL are
     * the servers'; the sentinels' are redis_sentinel_user and the first line of redis_sentinel_password_file, or else
     * WEIR_REDIS_SENTINEL_PASSWORD.
     *
     * With redis-cluster:// the hosts are up to 16 nodes of a Redis Cluster, which are asked for the others (CLUSTER
     * SLOTS); there may be up to 128 primaries, each with connections and a thread of its own. User and password are
     * those of all nodes. A cluster has no db but 0. */
    const char *redis_url;           /* required */
    const char *redis_password_file; /* default none */
    const char *redis_sentinel_user; /* redis-sentinel; default none: the default user, if there is a password */
    const char *redis_sentinel_password_file; /* redis-sentinel; default none */
    const char *redis_prefix;    /* 1 to 64 printable bytes of ASCII but space, '{' and '}'; default "weir:" */
    const char *redis_ca_file;   /* rediss: who may vouch for the server, whose certificate must be for the URL's
                                      * host, or for the one that a sentinel names it by; PEM, read at weir_open();
                                      * default: the system's store */
    const char *redis_cert_file; /* rediss: this client's certificate, and those up to its authority, PEM */
    const char *redis_key_file;  /* and its key, without a passphrase; default: none */
    bool redis_insecure;         /* rediss: whoever answers is taken for the server; said in the log */
    bool by_local_clock;         /* decide by this process's clock (now_us) instead of the server's: for replays and
                                      * tests. Keys then stay a week longer than they count, for the server's clock and
                                      * this one have nothing to do with each other */

    /* Leases, mode WEIR_HYBRID; elsewhere these must be 0. All instances must be given the same. */
    int64_t lease_life_us; /* no permit is used later than this after it was taken from Redis: 1000 to 10,000,000;
                        * default 100,000. Where Redis takes longer than a tenth of it to answer nothing is leased */
    int64_t lease_max; /* permits that an instance has of a key ahead of use, 1 to WEIR_MAX_PERMITS; default: as many
                        * as its load asks for and `instances` leave it */
    bool strict;       /* greedy token buckets: Redis holds back what comes back in lease_life_us, so that never more
                        * than the limit passes. Where that is more than half of a limit nothing of it is leased */

    /* This instance's share of every limit: weight / total weight. All instances must be given the same `instances`
     * and weights; then what they admit adds up to the limit. In modes WEIR_DISTRIBUTED and WEIR_HYBRID shares matter
     * only while Redis cannot be had; in the latter `instances` says for how many the leases have to leave room as
     * well. */
    int64_t instances;      /* how many there are: 1 to 10,000; default 1 */
    int64_t rank;           /* this one's place in the order of their ids: 0 to instances-1 */
    int64_t weight;         /* this one's weight: 1 to 65535; default 1, or weights[rank] */
    int64_t total_weight;   /* the sum of all weights; default instances * weight: all weigh the same */
    const int64_t *weights; /* all weights, `instances` of them in the order of ids. Needed for the shares to add up
                             * to the last permit where weights differ; without it an instance rounds down. */

    /* The same, found out while running (follow.h): the numbers above must then be 0, but `weight` with peers->join.
     * Both structs are copied. */
    const struct weir_peers *peers;   /* default none */
    const struct weir_consul *consul; /* the agent to ask, for `peers` and consul_policies; default none */
    const char *consul_policies;      /* policies in Consul's KV store, under this prefix: <prefix>/<limit> and
                                       * <prefix>/<limit>/<pattern>, values as for weir_policy_parse(); a key that ends
                                       * in '/' and has no value is a folder, and passed over; default none */

    /* Replaces the clock: Unix time in microseconds, 0 to WEIR_MAX_TIME_US. Called from the thread that asks for a
     * decision, or for a submitted one from a thread of the limiter's, no lock held. Default: Unix time as it stood at
     * weir_open(), carried on by CLOCK_BOOTTIME, so that nobody who sets the system's clock adds or takes permits.
     * Where the kernel's clock is the processor's counter (x86-64, clock source "tsc"), each thread that reads it often
     * does so once in a millisecond, and counts on from there by that counter: up to two microseconds behind, but for
     * a millisecond in which the clock begins to be slewed (NTP): then up to a quarter of one off, either way. */
    int64_t (*now_us)(void *user);
    /* Called for each line worth an operator's eye, any thread, no lock held. Default: none. It must not block: until
     * it returns, calls that wait for Redis go on waiting, for longer than timeout_us too. `line` has no newline and
     * never holds a secret or a request's key; where a policy comes from it tells, an override's pattern in a file or
     * in Consul included. weir_close() must not be called from it: the thread may be one that weir_close() waits for,
     * and then the program is ended by abort(), after a sentence on stderr, or hangs. */
    void (*log)(void *user, enum weir_log_level level, const char *line);
    void *user; /* handed to both */

    /* Redis, as above: how many of the primary's replicas must have acknowledged a charge, a refund or a reset before
     * it counts: 0 to 16; default 0: none need. The primary is asked by WAIT, which its user must be allowed, once it
     * has answered that something was changed: a denial or a peek has none. But while more than 8 callers ask at once,
     * and for what is submitted, all share a connection, on which whoever comes, be it for a denial, waits behind the
     * WAIT that is under way: for up to three quarters of timeout_us. What too few have acknowledged within three
     * quarters of the time that the call has left has failed, as if Redis had not answered: on_failure decides, and no
     * lease is made of it. It may have been charged. Then, if a replica that has acknowledged becomes the primary, no
     * permit comes back to be given out twice. */
    int64_t redis_replicas;
};
#ifdef __cplusplus
static inline struct weir_options weir_options_init_(void)
{
    struct weir_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    return options;
}
#define WEIR_OPTIONS_INIT weir_options_init_()
#else
/* clang-format off */
#define WEIR_OPTIONS_INIT { .size = sizeof(struct weir_options) }
/* clang-format on */
#endif

#endif
