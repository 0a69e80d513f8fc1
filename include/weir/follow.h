/* follow.h - what a limiter follows while it runs: its peers and its policies. Included by weir.h.
 *
 * Peers    The instances that share the limits. weir learns their number and weights from Consul, from DNS or from a
 *          function of the caller, and adapts this instance's share of every limit whenever they change. Fixed numbers
 *          need none of this: see weir_options.instances and the fields after it.
 * Policies From Consul's KV store, or from a policy file. They override what weir_limit_define() put under the same
 *          name, for as long as they exist; Consul overrides the file. Changes are noticed immediately, except that a
 *          file is read up to 4 s later when its folder, or one above it, is replaced.
 * Threads  Each source has one thread, with all signals blocked. No decision ever waits for it. Neither weir_open() nor
 *          weir_acquire() waits for the first answer: weir_await_ready() does.
 * Fork     A child of fork() follows nothing: its share and its policies stay as they were.
 */
#ifndef WEIR_FOLLOW_H
#define WEIR_FOLLOW_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

/* An agent of HashiCorp's Consul, 1.8 or later. weir_open() copies the strings. Answers above 1 MB are refused; at 1 to
 * 2 KB an instance, that is some hundreds of instances. If a proxy closes the connection after each answer, weir cannot
 * wait for changes and asks every 1 to 2 s. */
struct weir_consul {
    size_t size; /* sizeof(struct weir_consul) */
    /* http://host[:port], https://host[:port], host[:port] or unix:///path; default: environment variable
     * CONSUL_HTTP_ADDR, else http://127.0.0.1:8500. Without a port: 8500, 8501 with https. */
    const char *address;
    /* ACL token, sent in a header and never logged. Default: the first line of token_file, else of the environment
     * variable CONSUL_HTTP_TOKEN, else of the file that CONSUL_HTTP_TOKEN_FILE names, else none. It needs service:read
     * (and service:write to join), node:read and key_prefix:read. */
    const char *token;
    const char *token_file; /* read in weir_open() and again for each request, so that a rotated token is used */
    const char *datacenter; /* default: the agent's; with weir_peers.join it must be the agent's */
    const char *query;      /* added to the query string of every request, such as "ns=team"; default none */
    /* https: the only authorities that may sign the agent's certificate, PEM; default CONSUL_CACERT, else the
     * system's */
    const char *ca_file;
    const char *cert_file; /* https: this client's certificate, PEM; default CONSUL_CLIENT_CERT, else none */
    const char *key_file;  /* https: its private key, without a passphrase; default CONSUL_CLIENT_KEY, else none */
    int64_t wait_us;    /* how long the agent may hold a query that waits for a change: 1 s to 10 min; default 30 s */
    int64_t timeout_us; /* how long any other request may take: 10 ms to 1 min; default 5 s */
};

struct weir_peer {
    const char *id; /* names one instance, identically on all instances; 1 to 255 bytes */
    int64_t weight; /* 1 to 65535 */
};

/* The instances that share the limits. One of `service`, `dns` and `list` names the source. weir treats answers so:
 *
 * - An empty list, or one without this instance, counts as a failure. Consul answers so if a token is missing or if
 *   an agent has restarted.
 * - A smaller share takes effect immediately. A larger one takes effect after hold_down_us in which no answer gave
 *   less, or at most a seventh later while answers keep changing. So the shares of all instances never add up to more
 *   than the limit, as long as every instance learns of every change within that time.
 * - Until the first answer, and a hold-down longer, nothing is admitted (retry_after_us WEIR_NEVER), or
 *   1/floor_instances of each limit if that is set. weir_await_ready() waits for the end of this. Hybrid mode sizes its
 *   leases until then as if there were floor_instances instances, or else 10,000.
 * - After max_stale_us without an answer the share falls to 1/floor_instances, if that is smaller than the last share;
 *   without floor_instances, to the smallest share that any answer gave. A share never grows without an answer.
 * - If a limit has no exact arithmetic at a share w/W, it is enforced at 1/ceil(W/w), or else denied here
 *   (weir_stats.share_zeros, and a line in the log).
 *
 * Where each instance counts alone (local mode, or during an outage), all instances together can still admit more
 * than the limit if
 *
 * - floor_instances is set: a new instance admits 1/floor_instances of the limit before the others have made room. If
 *   there are more instances than that, all of them together exceed the limit while the peers are unknown;
 * - an instance leaves: the others take over its share, but do not know the permits that it has admitted in the current
 *   window or from the current burst. An instance that returns begins with fresh keys;
 * - an instance runs but is missing from the list, because its agent is unreachable: it keeps its share until
 *   max_stale_us, while the others divide the whole limit. (A failed check alone does not stop it: a list without it
 *   counts as a failure.) After that it keeps 1/floor_instances, or the smallest share that it ever had;
 * - changes come faster than answers, so that an instance never sees some of them: for a moment;
 * - the source reports wrong instances: see `dns` and `id`. */
struct weir_peers {
    size_t size; /* sizeof(struct weir_peers) */

    const char *service; /* Consul: the instances of this service that pass their checks; needs weir_options.consul */
    /* DNS: the addresses of this host name, one per instance, all of equal weight. Of a name with IPv4 and IPv6
     * addresses only one family counts, because a dual-stack instance has one of each: the family of `id`, which must
     * then be the same on all instances, or the one with more addresses. Each instance must have an address of it.
     *
     * An answer may be as old as its time to live, so hold_down_us should exceed that plus poll_us. Answers must be
     * complete. A server that omits addresses makes every share too large: Consul's does over UDP, where it answers
     * with 3 addresses unless its dns_config.udp_answer_limit says otherwise. */
    const char *dns;
    /* A function of the caller: write up to `room` peers, which is 10,000, to `peers` and return their number, or a
     * negative number if it is unknown at present. A thread of the limiter calls it every poll_us, first soon after
     * weir_open(). The ids must stay valid until the next call, or until weir_close() has returned. weir_close() waits
     * for a running call, so this function must not call it: that ends in abort(), with a message on stderr. The share
     * cannot change during a call, so keep it short. `user` is that of weir_options. */
    int64_t (*list)(void *user, struct weir_peer *peers, size_t room);

    /* This instance among them: the service's id in Consul, an address in digits, or an id of `list`. Required, except
     * for `dns`, where an instance without it rounds its shares down. In Consul an id must be unique in the whole
     * datacenter, not just on its agent: weir refuses a list in which an id appears twice. */
    const char *id;

    /* Consul, true: register this instance under `service` and `id` with a check that passes for ttl_us, and renew the
     * check every third of ttl_us. Register again when the agent has forgotten it, and deregister in weir_close(). Its
     * weight there is weir_options.weight. False: something else registers it. Everything registered must be UTF-8.
     * The id must not contain control bytes, nor an empty part, "." or ".." between slashes, because Consul could not
     * deregister it. */
    bool join;
    const char *join_address; /* the address that Consul shows for the service; default: the agent's */
    int64_t join_port;        /* the port that Consul shows for the service, 0 to 65535 */
    /* 1 s to 1 h; default 10 s. Consul drops an instance that has been silent for 1 min or more, see its
     * deregister_critical_service_after. */
    int64_t ttl_us;
    const char *weight_meta; /* the Meta field with each instance's weight (1 where it is missing); default: the weight
                              * that Consul knows, Service.Weights.Passing */

    /* How often to ask: 100 ms to 1 h; default 30 s. Consul: 0, the default there, waits for changes, which are known
     * after some milliseconds; another value asks that often in addition. */
    int64_t poll_us;
    /* 1 ms to 2 h, and at least poll_us; default 2 s with Consul if it reports changes, else poll_us and one second. It
     * must cover the time until the last instance has learned of a change. */
    int64_t hold_down_us;
    /* 1 s to 30 days, and at least the time between good answers when nothing changes: 2 times poll_us, or with Consul
     * that reports changes wait_us, a sixteenth of it, and timeout_us. Default: the longest of 5 min, 4 times poll_us
     * and twice Consul's minimum. */
    int64_t max_stale_us;
    int64_t floor_instances; /* 2 to 10,000; default: see above */
};

/* Wait until every source has answered once, the resulting share is in force and, in the modes on Redis, weir_ping()
 * succeeds. Call it at program start, before serving; weir_acquire() cannot replace it, because it denies without
 * waiting before the first answer. WEIR_OK, immediately in local mode if nothing is followed; WEIR_ETIME after
 * max_wait_us (0 to WEIR_HOUR): weir_ping() and weir_follow_read() then say why; WEIR_EINVAL, WEIR_ECLOSED and, in the
 * modes on Redis, WEIR_ENOMEM and WEIR_ESTATE. */
WEIR_API int weir_await_ready(weir *w, int64_t max_wait_us);

enum weir_followed {
    WEIR_FOLLOW_PEERS,
    WEIR_FOLLOW_CONSUL_POLICIES, /* weir_options.consul_policies */
    WEIR_FOLLOW_POLICY_FILE      /* weir_options.follow_policy_file */
};

struct weir_follow_stats {
    size_t size;          /* set to sizeof(struct weir_follow_stats) before the call */
    int64_t age_us;       /* time since the last good answer; -1: there was none */
    uint64_t answers;     /* good answers */
    uint64_t failures;    /* other answers: unreachable, late, refused, not understood, or an unusable list */
    uint64_t changes;     /* good answers that changed something */
    uint64_t refused;     /* policies refused; the previous one stays in force */
    int64_t instances;    /* peers: their number in the last good answer */
    int64_t rank;         /* peers: this instance's place in the order of ids, from 0; -1: unknown, see weir_peers.id */
    char last_error[200]; /* the latest failure or refusal, in words; empty: there was none */
};

/* Read the state of one source. WEIR_EINVAL if it is not followed, or if out->size is not a known size. */
WEIR_API int weir_follow_read(weir *w, enum weir_followed what, struct weir_follow_stats *out);

#endif
