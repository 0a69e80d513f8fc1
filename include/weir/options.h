/* options.h - the options of weir_open(): the mode, the behaviour during an outage, memory, Redis, leases, shares and
 * hooks. Included by weir.h.
 */
#ifndef WEIR_OPTIONS_H
#define WEIR_OPTIONS_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

/* The decision for a new key when max_keys or max_bytes is reached and no key is idle; and for a key whose state must
 * grow to follow a new policy. The decision's source is then WEIR_BY_FULL. Keys already in the table always keep their
 * state. A new key inspects up to 512 keys that may be idle, and the next one goes on after them: in a table of n keys,
 * at most n / 512 are turned away before one finds an idle key. Keys of all sizes share the memory: max_bytes counts as
 * reached when less than a tenth of it is free besides what the new key needs. */
enum weir_on_full {
    WEIR_FULL_DENY,  /* denied; before retry_after_us no key becomes idle */
    WEIR_FULL_ALLOW, /* allowed and not counted */
    /* All such keys of a limit share one state; refunds to keys that have no other go there. These states have 1/64 of
     * max_bytes; a limit whose state finds no room there denies. */
    WEIR_FULL_SHARE
};

/* Where a limiter counts. */
enum weir_mode {
    WEIR_LOCAL,       /* in this process, by this instance's share of each limit */
    WEIR_DISTRIBUTED, /* in Redis, by its clock, in one atomic script: exact over all instances */
    /* In Redis, but permits of busy keys are leased in advance and spent in this process, and denials are remembered
     * until they may change, so most decisions need no call. Only a token bucket with greedy refill can exceed its
     * limit, by at most weir_limit_info.over_max; with `strict` it cannot either. */
    WEIR_HYBRID,
    /* In a file in memory that all processes of this machine map, option `shared`. The counts are exact over all of
     * them, even if any of them dies, and need no I/O. Otherwise as WEIR_LOCAL: each of several machines has a share.
     * See docs/machine.md. */
    WEIR_MACHINE
};

/* The decision during an outage: while Redis, or the user's own backend, is unreachable or does not answer in time. It
 * applies to takes and peeks. A refund or reset that fails is always an error, and so is a state that is not weir's. A
 * charge is an error unless WEIR_FAIL_LOCAL records it. */
enum weir_on_failure {
    /* This process decides in memory, by its share: weir_options.instances and the fields after it. Without them the
     * share is the whole limit. With every algorithm a key then gets permits at this share of the limit's rate, one
     * after the other: 100 seconds of an outage admit 100 seconds' worth, also on a window of a day. A key begins with
     * this share of the permits that Redis last reported as left, if weir remembers them (it does for roughly the last
     * 16,384 keys), and otherwise with none: an outage is never a second burst. After the outage weir
     * charges the admitted permits of a key to Redis before Redis decides for that key again. Source
     * WEIR_BY_FALLBACK. */
    WEIR_FAIL_LOCAL,
    /* Allowed and not counted, for open_for_us; a cost that can never be admitted is denied. Source
     * WEIR_BY_FAIL_OPEN. */
    WEIR_FAIL_OPEN,
    WEIR_FAIL_CLOSED, /* denied, with retry_after_us of outage_retry_us or WEIR_NEVER; source WEIR_BY_FAIL_CLOSED */
    WEIR_FAIL_ERROR   /* the caller gets WEIR_ETIME or WEIR_EIO */
};

struct weir_peers; /* follow.h */
struct weir_consul;
struct weir_event; /* events.h */

enum weir_log_level { WEIR_LOG_ERROR, WEIR_LOG_WARNING, WEIR_LOG_INFO };

#define WEIR_MAX_GATHER_US 10000 /* redis_gather_us: 0 to this */

/* Start with WEIR_OPTIONS_INIT. A field that is zero means its default. weir copies strings and arrays. */
struct weir_options {
    size_t size;             /* sizeof(struct weir_options) */
    enum weir_mode mode;     /* default WEIR_LOCAL */
    const char *policy_file; /* limits to define in weir_open(), see weir_limits_load(); default none */
    bool follow_policy_file; /* true: read policy_file again whenever it has changed or been replaced and then been the
                                * same for 0.1 s. A limit that it no longer has returns to its policy from
                                * weir_limit_define(). A file with a bad line changes nothing */
    enum weir_on_full on_full; /* default WEIR_FULL_DENY */
    bool keep_idle;            /* true: keep idle keys until max_keys or max_bytes needs their room; for replays and
                                * tests whose clock steps back by more than WEIR_CLOCK_SLACK_US */
    int64_t max_keys;          /* 1 to 2^31; default 1,000,000 */
    int64_t max_bytes;         /* memory for keys and tables, 1 MiB to 2^50; default 256 * max_keys, at least 1 MiB */

    enum weir_on_failure on_failure; /* default WEIR_FAIL_LOCAL */
    int64_t open_for_us; /* WEIR_FAIL_OPEN: how long to allow everything, up to 1 day; afterwards it denies as
                          * WEIR_FAIL_CLOSED. All outages together use up this time, and time without an outage
                          * restores it. 0: no bound */
    bool outage_cold; /* WEIR_FAIL_LOCAL: true: an outage begins without permits, even of keys of which it is known how
                       * many were left */
    /* WEIR_FAIL_LOCAL, in modes WEIR_DISTRIBUTED and WEIR_HYBRID: true lets outages of some instances add up. By
     * default, permits that cut-off instances admit while others reach Redis count until Redis has been charged for
     * them, or the key has lain idle in Redis. So a second outage of some instances, no longer than the first, admits
     * nothing more of a key at its limit. If true, such permits are forgotten after the time that a bucket takes to
     * fill, or a window lasts, and each outage admits the late instances' share of the rate anew. */
    bool outage_adds;
    /* Longest retry_after_us of a denial during an outage, because the outage may end; except WEIR_NEVER for a cost
     * above the limit: 1 us to 1 day; default 1,000,000. */
    int64_t outage_retry_us;
    int64_t timeout_us; /* longest time that one call may block for Redis or another backend: 1 us to 1 hour; default
                         * 50,000. The memory backend never blocks. */

    /* Redis, modes WEIR_DISTRIBUTED and WEIR_HYBRID. An option that the mode does not use is ignored, with one line of
     * WEIR_LOG_INFO, so that one set of options serves all modes.
     *
     *     redis://[user:password@]host[:port][/db]      unix://[user:password@]/path[?db=N]
     *     redis-sentinel://[user:password@]host[:port][,host[:port]...]/service[?db=N]
     *     redis-cluster://[user:password@]host[:port][,host[:port]...]
     *     rediss://, rediss-sentinel:// and rediss-cluster://, the same over TLS 1.2 or later
     *
     * Default port 6379, db 0. Put an IPv6 address in brackets. User, password, path and service are percent-decoded.
     * If the URL has no password, weir takes the first line of redis_password_file, or else the environment variable
     * WEIR_REDIS_PASSWORD. It reads both in weir_open() and the file again for each connection, so that a rotated
     * password is used. While the file cannot be read, the first password serves. Keys are named
     * <redis_prefix><limit>:{<key>}.
     *
     * redis-sentinel:// names up to 16 sentinels (default port 26379) and the `service` under which they know the
     * primary. weir asks one sentinel after the other, and uses a connection to a server only if the server reports
     * that it is a primary (ROLE). When the sentinels name another primary, weir follows immediately. User and
     * password in the URL are the servers'. The sentinels' are redis_sentinel_user and the first line of
     * redis_sentinel_password_file, or else WEIR_REDIS_SENTINEL_PASSWORD.
     *
     * redis-cluster:// names up to 16 nodes of a Redis Cluster, from which weir learns the others (CLUSTER SLOTS). A
     * cluster may have up to 128 primaries; each gets its own connections and thread. User and password are the same
     * on all nodes. A cluster has only db 0. */
    const char *redis_url;           /* required */
    const char *redis_password_file; /* default none */
    const char *redis_sentinel_user; /* redis-sentinel; default none: the default user, if there is a password */
    const char *redis_sentinel_password_file; /* redis-sentinel; default none */
    const char *redis_prefix;    /* 1 to 64 printable ASCII bytes without space, '{' and '}'; default "weir:" */
    const char *redis_ca_file;   /* rediss: the authorities that may sign the server's certificate; PEM;
                                  * default: the system's store. The certificate must match the URL's host, or the host
                                  * that a sentinel reports. weir reads this and the next two files in weir_open(), and
                                  * again for a connection that begins after one of them has changed */
    const char *redis_cert_file; /* rediss: this client's certificate, with those up to its authority; PEM */
    const char *redis_key_file;  /* rediss: its private key, without a passphrase; default: none */
    bool redis_insecure;         /* rediss, true: do not verify the server's certificate; the log says so */
    bool by_local_clock;         /* true: decide by this process's clock (now_us) instead of the server's; for replays
                                  * and tests. Keys then stay in Redis a week longer than needed, because the server's
                                  * clock is unrelated to this one */

    /* Leases, mode WEIR_HYBRID; ignored in the other modes. All instances must use the same values. */
    int64_t lease_excess;  /* greedy token buckets: a lease lives for as long as this part of the burst takes to refill,
                            * in percent, 1 to 100; default 5. All instances together exceed the limit by that part at
                            * most. Leases of other limits live until their permits would come back, and never exceed
                            * it. If Redis needs longer than a tenth of a life to answer, nothing is leased */
    int64_t lease_life_us; /* no lease lives longer than this, whatever its limit: 1000 to WEIR_MAX_PERIOD_US; default:
                            * no such bound */
    int64_t lease_max; /* most permits of a key that an instance leases in advance, 1 to WEIR_MAX_PERMITS; default: as
                        * demand requires, limited by the number of `instances` */
    bool strict; /* greedy token buckets, true: Redis holds back what refills in a lease's life, so that the limit is
                        * never exceeded. A limit of which that would be more than half is not leased */
    int64_t denial_life_us; /* a denial is remembered for its retry_after_us, but no longer than this: then weir asks
                             * Redis again, and sees a reset, a refund or a raised limit made elsewhere. 1000 to
                             * WEIR_MAX_PERIOD_US; default 2,000,000 */

    /* This instance's share of every limit: weight / total weight. All instances must use the same `instances` and
     * weights; then their shares add up to the limit. In modes WEIR_DISTRIBUTED and WEIR_HYBRID shares matter only
     * during an outage; hybrid mode also sizes leases so that this many instances can each hold one. */
    int64_t instances;      /* number of instances: 1 to 10,000; default 1 */
    int64_t rank;           /* this instance's place in the order of their ids: 0 to instances-1 */
    int64_t weight;         /* this instance's weight: 1 to 65535; default 1, or weights[rank] */
    int64_t total_weight;   /* the sum of all weights; default instances * weight: all are equal */
    const int64_t *weights; /* all weights, `instances` of them in the order of ids. Required for shares that add up to
                             * the last permit when weights differ; without it an instance rounds its share down. */

    /* The same, learned while running (follow.h). The numbers above must then be 0, except `weight` with peers->join.
     * weir copies both structs. */
    const struct weir_peers *peers;   /* default none */
    const struct weir_consul *consul; /* the agent for `peers` and consul_policies; default none */
    const char *consul_policies;      /* prefix of policies in Consul's KV store: <prefix>/<limit> and
                                       * <prefix>/<limit>/<pattern>, values as for weir_policy_parse(); default none.
                                       * A key that ends in '/' and has no value is a folder and is skipped */

    /* Replaces the clock: returns Unix time in microseconds, 0 to WEIR_MAX_TIME_US. Called without locks, on the thread
     * that requests a decision, or on a thread of the limiter for a submitted request.
     *
     * Default: Unix time as read at weir_open(), continued with CLOCK_BOOTTIME, so that setting the system's clock adds
     * or removes no permits. Where the kernel's clock is the processor's counter (x86-64, clock source "tsc"), a thread
     * that needs the time often reads the clock once a millisecond and extrapolates with that counter. The result is up
     * to two microseconds behind. In a millisecond in which NTP begins to slew the clock, it can be off by up to a
     * quarter of a millisecond in either direction. */
    int64_t (*now_us)(void *user);
    /* Receives each line meant for the operator. Called on any thread, without locks. Default: warnings and errors
     * go to stderr, lines that differ only in numbers once a minute; see `quiet`. Lines about Redis and outages
     * come one after the other on a separate thread, so a hook that blocks holds up no decision; if 64 lines wait
     * for it, more are lost, and a line says how many. Lines about an argument or a policy come during the call
     * that has it. `line` has no control characters (those of names and paths appear as \xNN) and never contains a
     * secret or a request's key. It does name the source of a policy, including an override's pattern in a file or
     * in Consul. Must not call weir_close(): the thread may be one that weir_close() waits for. That either ends
     * the program by abort() with a message on stderr, or hangs. */
    void (*log)(void *user, enum weir_log_level level, const char *line);
    /* Receives events, see events.h: keys that come near their limit or are denied, outages, changes of policies and
     * shares. Called without locks, on the separate thread that calls `log`; with events_at_once on the thread where
     * the event happens. Without this hook a decision pays for a branch at most. Must not call weir_close().
     * Default: none */
    void (*event)(void *user, const struct weir_event *event);
    void *user;           /* passed to all three */
    bool events_in_clear; /* true: an event about a key has its first WEIR_TOP_KEY_SIZE bytes, not only its hash */
    bool events_at_once;  /* true: call `event` on the caller's thread, or on a thread of the limiter that serves Redis:
                           * a hook that blocks there holds up decisions of all callers. No event is lost then */
    bool quiet;           /* true: without `log`, write nothing to stderr either */

    int64_t top_keys;       /* count the keys that are denied most, this many of them: 0 to WEIR_MAX_TOP_KEYS; default
                             * 0: none. See weir_top_keys_read() */
    bool top_keys_in_clear; /* true: also keep the first WEIR_TOP_KEY_SIZE bytes of these keys, not only hashes */

    /* Path of a Unix socket, of 107 bytes at most, on which `weir stats`, `weir top`, `weir watch`, `weir peek`, `weir
     * reset` and `weir reload` ask this limiter. It has mode 0600: only this process's user, and root, can connect. It
     * exists from weir_open() until weir_close(), and replaces one that a dead process left behind. If another process
     * listens there, a warning says so, and this limiter has none. A separate thread of low priority serves up to 16
     * clients, for 5 seconds each. Default NULL: none. */
    const char *control_socket;

    /* Chooses the keys for which a limit with percent=N is enforced: by a hash of the limit's name and the key. Give
     * all instances the same one; keep it secret if clients may not find out whether they were chosen. Default 0:
     * random, another choice by each limiter. */
    uint64_t percent_seed;

    /* Redis, as above: the number of replicas that must acknowledge a charge, refund or reset before it counts: 0 to
     * 16; default 0. After the primary has reported a change, weir sends WAIT, for which the Redis user needs the
     * right. Denials and peeks need no WAIT. More than 8 concurrent callers, and all submitted requests, share a
     * connection; there every request, even one that will be denied, waits behind a running WAIT, for up to three
     * quarters of timeout_us.
     *
     * If too few replicas acknowledge within three quarters of the call's remaining time, the request has failed as
     * if Redis had not answered: on_failure decides, and a lease is not created. Redis may have charged it. In
     * return, when a replica that has acknowledged becomes the primary, no permit is given out twice. */
    int64_t redis_replicas;

    /* Redis, as above: the shortest time between two calls to a server, so that requests that come in between share the
     * next one: 0 to WEIR_MAX_GATHER_US, and at most a quarter of timeout_us; default 0. A request waits for up to this
     * time longer, but a request that finds no call within this time before it leaves immediately, and so does one
     * whose deadline is close. It saves server CPU and calls where an instance asks about many keys a second;
     * docs/benchmarks.md has figures. With it, every caller uses the shared connection. */
    int64_t redis_gather_us;

    /* Mode WEIR_MACHINE: the file in which the processes of this machine count. A name without '/' is a file in
     * /dev/shm, whose counts last until the machine restarts; a path on a disk keeps them longer. The first process
     * makes the file, for max_keys keys and with all the memory that takes (about 80 bytes a key, and 3 to 16 MB for
     * slots of requests in flight); max_bytes has no meaning. Only its user may use it (mode 0600). NULL: memory
     * without a name, which this process shares with those that it forks. /proc/self/fd/N is the file that this process
     * has open as N, such as one of memfd_create(), memory without a name that outlives the limiter; give it mode 0600
     * with fchmod(), because the kernel makes it for everyone and weir refuses that. A call waits no longer than
     * timeout_us for a process that was stopped in the middle of a decision; then it returns WEIR_ETIME. A file with a
     * name makes weir install a handler for SIGBUS, which passes on what is not weir's: a file that is truncated then
     * fails calls with WEIR_EIO instead of ending the process. */
    const char *shared;
};

/* An option that has a name in text. docs/options.md lists them. */
struct weir_option {
    const char *name; /* the field's name; a time's without `_us`, and "redis" for redis_url */
    unsigned modes;   /* bit 1 << enum weir_mode: the modes that use it */
    bool is_path;     /* its value is a file's path */
    const char *text; /* what it does, in a sentence or two */
};

/* Return the option of this index, from 0, or NULL behind the last. The order never changes while a program runs. */
WEIR_API const struct weir_option *weir_option_at(size_t index);

/* Print which values an option of weir_option_at() takes, as in "a time, 1us to 1h". Return the length, which may be
 * `size` or more: then the text is cut off. */
WEIR_API size_t weir_option_values(const struct weir_option *option, char *text, size_t size);

/* Set one option by its name: for configuration files, command lines, and bindings to other languages. A value is
 * written as in policies: times as 20ms or 1h, numbers as 5000, 10k or 64MiB; flags as on or off; the constants of
 * enums as local, distributed, hybrid, machine; local, open, closed, error; deny, allow, share. A text is not copied:
 * `value` must live until weir_open(). Hooks, `weights`, `peers` and those of Consul have no name.
 * Return WEIR_OK, or WEIR_EINVAL with a sentence in `message` (may be NULL), which begins with the name unless there is
 * no such option; `options` are then unchanged. weir_open() checks whether the options fit together. */
WEIR_API int weir_options_set(struct weir_options *options, const char *name, const char *value, char *message,
                              size_t size);

/* Set several options: name=value, separated by blanks or ends of lines, each name once; a value with blanks in double
 * quotes. Example: mode=hybrid redis=redis://db.local timeout=20ms
 * Writes to `text`, to which the options then point: it must live until weir_open(). Returns as weir_options_set(). */
WEIR_API int weir_options_parse(struct weir_options *options, char *text, char *message, size_t size);

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
