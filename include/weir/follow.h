/* follow.h - what a limiter follows while it runs: who its peers are, and its policies. Included by weir.h.
 *
 * Peers    The instances that share the limits. How many they are, and what each weighs, comes from Consul, from DNS or
 *          from a function of the caller's; by it this instance's share of every limit is set anew whenever it changes.
 *          (Fixed numbers need none of this: weir_options.instances and those after it.)
 * Policies From Consul's KV store, or a policy file that is watched. They override what weir_limit_define() put
 *          under the same name, for as long as they are there; Consul overrides the file.
 *
 *          A file whose folder, or one above that, is replaced may be read up to 4 s later; other changes are
 *          noticed at once.
 *
 * Threads  Each thing that is followed has one thread, with all signals blocked. No decision ever waits for it, and
 *          weir_open() does not wait for the first answer, nor does weir_acquire(): weir_await_ready() does.
 * Fork     A child of fork() follows nothing: its share and its policies stay as they were.
 */
#ifndef WEIR_FOLLOW_H
#define WEIR_FOLLOW_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

/* An agent of HashiCorp's Consul, 1.8 or later. Strings are copied at weir_open(). Answers above 1 MB are refused; with
 * 1 to 2 KB for each instance of a service that is some hundreds of them. Where a proxy closes connections after each
 * answer, nothing waits for changes: the agent is asked every 1 to 2 s. */
struct weir_consul {
    size_t size; /* sizeof(struct weir_consul) */
    /* http://host[:port], https://host[:port], host[:port] or unix:///path; default: environment variable
     * CONSUL_HTTP_ADDR, else http://127.0.0.1:8500. Without a port: 8500, 8501 with https. */
    const char *address;
    /* ACL token: never logged, sent in a header. Default: the first line of token_file, else of the environment
     * variable CONSUL_HTTP_TOKEN, else of the file that CONSUL_HTTP_TOKEN_FILE names, else none. Needs service:read
     * (and :write to join), node:read, key_prefix:read. */
    const char *token;
    const char *token_file; /* read at weir_open() */
    const char *datacenter; /* default: the agent's own; with weir_peers.join it must be that */
    const char *query;      /* more for the query string of every request, such as "ns=team"; default none */
    const char *ca_file;   /* https: who alone may vouch for the agent, PEM; default CONSUL_CACERT, else the system's */
    const char *cert_file; /* https: this client's certificate, PEM; default CONSUL_CLIENT_CERT, else none */
    const char *key_file;  /* and its key, without a passphrase; default CONSUL_CLIENT_KEY, else none */
    int64_t wait_us;    /* how long the agent may hold a query that waits for a change: 1 s to 10 min; default 30 s */
    int64_t timeout_us; /* and how long anything else may take: 10 ms to 1 min; default 5 s */
};

struct weir_peer {
    const char *id; /* of one instance, the same wherever it is asked; 1 to 255 bytes */
    int64_t weight; /* 1 to 65535 */
};

/* Who shares the limits. One of service, dns and list says where it is asked. What an answer is worth:
 *
 * - A list that is empty, or does not have this instance in it, says nothing: Consul answers so where a token is
 *   missing or an agent has started again. It counts as a failure.
 * - A smaller share is in force at once, a larger one when hold_down_us have passed in which no answer gave less; a
 *   seventh more, at most, while answers keep changing. So the shares of all instances never add up to more than the
 *   limit, as long as each is told of every change within that time.
 * - Before the first answer, and a hold-down longer, nothing is admitted, retry_after_us WEIR_NEVER; or, if that is
 *   set, 1/floor_instances of each limit. weir_await_ready() waits for the end of that. In hybrid mode as few permits
 *   are leased until then as if there were floor_instances instances, or else 10,000.
 * - After max_stale_us without an answer the share is 1/floor_instances if that is less than what was known; without it
 *   the smallest that any answer gave. It never grows for want of an answer.
 * - A limit whose numbers have no exact arithmetic at a share w/W is enforced at 1/ceil(W/w), or else denied here
 *   (weir_stats.share_zeros, and a line in the log).
 *
 * Shares that never add up to more than the limit are not all there is to what is admitted where each instance counts
 * by itself (local mode, or while Redis is away). That may be more if
 *
 * - floor_instances is set: who joins admits its 1/floor_instances at once, before the others have made room, and if
 *   there are more instances than that, all of them together are too much while the peers are not known;
 * - an instance goes: what it has admitted in this window, or of this burst, nobody else knows, and it is not
 *   subtracted from what the others admit once they have its share. One that comes back begins with an empty state;
 * - an instance is off the list but runs, as one that its agent cannot be reached by: it keeps its share until
 *   max_stale_us, while the others share all of the limit among themselves. (A failed check of its own is no cause to
 *   stop: lists without it say nothing.) After that it has 1/floor_instances still, or the least that it ever had;
 * - changes come faster than answers, so that an instance never sees some of them: for a moment;
 * - the source does not tell the truth: see dns and id. */
struct weir_peers {
    size_t size; /* sizeof(struct weir_peers) */

    const char *service; /* Consul: the instances of this service that pass their checks; needs weir_options.consul */
    /* DNS: the addresses behind this host name, one an instance, all of one weight. What is answered may be as old as
     * its time to live: then hold_down_us should be longer than that and poll_us together. Answers must be whole: a
     * server that leaves addresses out, as Consul's does over UDP (it answers with 3 of them, unless its
     * dns_config.udp_answer_limit says otherwise), makes every share too large. */
    const char *dns;
    /* The caller's: write up to `room` peers, which is 10,000, to `peers` and return how many, or a negative number if
     * that cannot be told now. Called on a thread of the limiter's every poll_us, the first time soon after
     * weir_open(); ids must stay until the next call, or until weir_close() returned, which waits for a call that is
     * under way: so it must not be called from here (that is ended by abort(), after a sentence on stderr). While a
     * call lasts nothing else happens to the share, so it should not be long. `user` is that of weir_options. */
    int64_t (*list)(void *user, struct weir_peer *peers, size_t room);

    /* Which of them is this one: the service's id in Consul, an address in digits, or an id of `list`. Required, but
     * for `dns`: there without it an instance rounds its parts down. In Consul an id must be there once in the whole
     * datacenter, not just on its agent: a list with an id twice is refused. */
    const char *id;

    /* Consul: register this instance under `service` and `id`, with a check that passes for ttl_us and is renewed every
     * third of that, register it again when the agent forgot it, and deregister it in weir_close(). Its weight there is
     * weir_options.weight. Without `join` somebody else registers it. What is registered must be UTF-8, and the id have
     * no control byte and between '/' no empty part, "." or "..": Consul could not deregister it. */
    bool join;
    const char *join_address; /* of the service, for those who look it up; default: the agent's */
    int64_t join_port;        /* likewise, 0 to 65535 */
    int64_t ttl_us;          /* 1 s to 1 h; default 10 s. Consul drops an instance that has been gone for 1 min or more,
                               * see its deregister_critical_service_after */
    const char *weight_meta; /* the name of a Meta field that has each instance's weight (those without it: 1); default:
                               * the weight that Consul knows, Service.Weights.Passing */

    /* Ask so often: 100 ms to 1 h; default 30 s. Consul: 0 asks for changes, which are known after some milliseconds,
     * the default there; otherwise it is asked so often as well. */
    int64_t poll_us;
    /* 1 ms to 2 h, and not less than poll_us; default 2 s with Consul that tells of changes, else poll_us and a second
     * more, which is how long it may take until the last of all instances has heard of a change. */
    int64_t hold_down_us;
    /* 1 s to 30 days, and not less than good answers may be apart where nothing changes: 2 times poll_us, or with
     * Consul that tells of changes wait_us, a sixteenth of it, and timeout_us. Default 5 min, or 4 times poll_us, or
     * twice that of Consul, whichever is longest. */
    int64_t max_stale_us;
    int64_t floor_instances; /* 2 to 10,000; default: see above */
};

/* Wait until all that is followed has answered once and the share that follows from it is in force; for the start of a
 * program, before it serves (weir_acquire() is no way to wait for that: before the first answer it is denied at once).
 * WEIR_OK, at once where nothing is followed; WEIR_ETIME after max_wait_us (0 to WEIR_HOUR); WEIR_EINVAL, WEIR_ECLOSED.
 */
WEIR_API int weir_await_ready(weir *w, int64_t max_wait_us);

enum weir_followed {
    WEIR_FOLLOW_PEERS,
    WEIR_FOLLOW_CONSUL_POLICIES, /* weir_options.consul_policies */
    WEIR_FOLLOW_POLICY_FILE      /* weir_options.follow_policy_file */
};

struct weir_follow_stats {
    size_t size;          /* set to sizeof(struct weir_follow_stats) before the call */
    int64_t age_us;       /* of what is known: since the last good answer; -1: there was none */
    uint64_t answers;     /* good ones */
    uint64_t failures;    /* all others: unreachable, late, refused, not understood, or a list that says nothing */
    uint64_t changes;     /* answers that changed something */
    uint64_t refused;     /* policies that were refused, and so kept what was there */
    int64_t instances;    /* peers: how many, by the last good answer */
    int64_t rank;         /* peers: this one's place in the order of ids, from 0; -1: not known, see weir_peers.id */
    char last_error[200]; /* of the latest failure or refusal, in words; empty: there was none */
};

/* WEIR_EINVAL if that is not followed, or out->size is not a known size. */
WEIR_API int weir_follow_read(weir *w, enum weir_followed what, struct weir_follow_stats *out);

#endif
