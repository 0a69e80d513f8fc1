/* inspect.h - looks at the keys that weir keeps in Redis or in a shared file, without their policies, and clears them.
 * Included by weir.h.
 *
 *     weir_inspector *inspector;
 *     if (weir_inspect_open(&options, &inspector) != WEIR_OK)
 *         fprintf(stderr, "%s\n", weir_last_message());
 *     weir_inspect_keys(inspector, "login", "10.0.*", visit, user);
 *     weir_inspect_close(inspector);
 *
 * This is for operators' tools: `weir peek`, `weir keys`, `weir reset`, and over Redis `weir stats`, `weir top` and
 * `weir watch` are made of it. Each state in Redis begins with the plan that it was written under, so it can be read
 * without the limit's policy. Nothing is decided or charged. The calls block. An inspector belongs to one thread at a
 * time, and does not survive a fork.
 *
 * In distributed mode, Redis knows all that a limit knows. In hybrid mode, permits that an instance has leased
 * count as used, also while they are still unspent. Local mode keeps nothing in Redis.
 *
 * In mode WEIR_MACHINE the inspector opens the file that the option `shared` names, which must exist. No other process
 * needs to use it.
 */
#ifndef WEIR_INSPECT_H
#define WEIR_INSPECT_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

typedef struct weir_inspector weir_inspector;

enum weir_found {
    WEIR_FOUND_NOTHING, /* no state: nothing of the key is used */
    WEIR_FOUND_STATE,   /* a state of weir's */
    WEIR_FOUND_FOREIGN  /* a value that weir did not write; weir leaves it alone and fails with WEIR_ESTATE */
};

/* A state, and what it says at the server's present time. */
struct weir_inspected_state {
    /* A policy with this plan: the same algorithm, rate and size, in a form that a person might have chosen. The text
     * that was configured may differ: a debt is part of the burst here. */
    struct weir_policy policy;
    struct weir_decision decision; /* of a weir_peek() for one permit */
    int64_t used;                  /* permits in use, rounded up; above decision.limit if the key is overdrawn */
};

struct weir_inspected {
    size_t size;           /* set to sizeof(struct weir_inspected) before weir_inspect_key() */
    enum weir_found found; /* unless WEIR_FOUND_STATE, the fields after `has_former` mean nothing */
    bool is_cut;           /* the key is longer than its name in Redis tells: `key` has its first 448 bytes */
    bool has_former;       /* instances disagree on the policy, or disagreed lately: `former` is the other state */
    char limit[WEIR_MAX_NAME_LEN + 1]; /* the limit's name */
    struct weir_key key;               /* valid until the next call on the inspector */
    struct weir_inspected_state state, former;
    int64_t slots; /* of a limit on requests in flight: how many are held, by state.used permits. Nothing is known of
                    * the policy but its algorithm. 0: the key is under another policy */
    int64_t first_slot_us; /* in how long the first of them ends; the last ends in state.decision.reset_after_us */
};

/* Connect to the Redis that the options name, or open the shared file. `mode` must not be WEIR_LOCAL. These other
 * options count: redis_url, redis_prefix, the passwords, redis_ca_file and the rest about TLS, shared, timeout_us (of
 * each answer), log, user and quiet.
 *
 * The user of Redis needs the rights +getrange, +time, +zcount, +zscore, +zrangebyscore and +zrevrange; for
 * weir_inspect_keys() also +scan, and for weir_inspect_reset() +del. docs/redis.md has the rights for a db, Sentinel and
 * Cluster.
 *
 * WEIR_OK; WEIR_EINVAL, WEIR_EIO, WEIR_ETIME, WEIR_ENOMEM or WEIR_ESTATE (the file of option `shared` is not weir's),
 * and weir_last_message() says why. */
WEIR_API int weir_inspect_open(const struct weir_options *opts, weir_inspector **out);

/* Disconnect and free the inspector. NULL is ignored. */
WEIR_API void weir_inspect_close(weir_inspector *inspector);

/* Look at one key of a limit. The limit need not be defined anywhere, but WEIR_EINVAL says that a shared file knows
 * nothing of it: no process has asked for a key of it yet, or all its keys have long been idle. WEIR_OK, or an error as
 * of weir_inspect_open(); *out is then undefined. */
WEIR_API int weir_inspect_key(weir_inspector *inspector, const char *limit, struct weir_key key,
                              struct weir_inspected *out);

/* Look at every key of `limit` (NULL: of every limit) that `pattern` matches (NULL: every key), in no order. A pattern
 * is an override's: see weir_limit_define(). Keys that exist throughout are visited at least once; a key may be visited
 * twice, and keys of slots that move between nodes of a cluster may be missed. weir walks the server in steps (SCAN)
 * that each take it well below a millisecond. Every step also visits keys of other limits and programs, so the whole
 * walk takes time in proportion to all keys in the server. In a shared file, each key that exists throughout is visited
 * once, and keys that are idle are not. The walk holds the lock of a part of the file for a key or two at a time, and
 * none during a visit. `visit` must not use the inspector. If it returns anything but WEIR_OK, the visits end and this
 * function returns the same. */
WEIR_API int weir_inspect_keys(weir_inspector *inspector, const char *limit, const char *pattern,
                               int (*visit)(void *user, const struct weir_inspected *key), void *user);

/* Do the same, but have the server look at about `most` keys (1 or more), of any limit and program, and then end; in a
 * cluster each node looks at its part of them. The first keys are a sample: the server's order has nothing to do with
 * their names or states. In a shared file a place for a key counts as one. *is_all tells whether these were all keys;
 * false after an error. */
WEIR_API int weir_inspect_some(weir_inspector *inspector, const char *limit, const char *pattern, int64_t most,
                               bool *is_all, int (*visit)(void *user, const struct weir_inspected *key), void *user);

/* Forget a key, as weir_reset() does; *existed tells whether there was anything to forget (`existed` may be NULL).
 * Instances in hybrid mode notice within weir_options.denial_life_us, and keep permits that they have leased.
 * WEIR_ESTATE: the value is not weir's, and was left alone. */
WEIR_API int weir_inspect_reset(weir_inspector *inspector, const char *limit, struct weir_key key, bool *existed);

#endif
